/** Reader of whole blocks. */
import { ok } from "./answer.js";
import type { BlockHeader, GetBlockResult } from "./binding/coppice.did.js";
import type { Coppice } from "./client.js";
import { type Transaction, toHex, transactionsOf } from "./segments.js";

/** A block, and the transactions that its index and receipts name. */
export interface Block {
  /** Number, hash, parent, times, lengths and digests. */
  header: BlockHeader;
  /** The body segment. */
  body: Uint8Array;
  /** The transactions in order. */
  transactions: Transaction[];
}

/**
 * Reads a kept block, in parts if it is longer than a reply, and verifies each segment against the SHA-256 in the header.
 *
 * Throws a `Refusal` for a block that does not exist or was pruned, and an `Error` if the bytes do not match. The header comes from one
 * replica: compare its hash with a block that you trust.
 */
export async function readBlock(coppice: Coppice, number: bigint): Promise<Block> {
  const answer = await coppice.get_block(number);
  const { header, body, receipts, index } = isTooLarge(answer) ? await inParts(coppice, number) : ok(answer);
  await Promise.all([
    verify("body", body, header.sha256.body),
    verify("receipts", receipts, header.sha256.receipts),
    verify("index", index, header.sha256.index),
  ]);
  return { header, body, transactions: transactionsOf(index, receipts) };
}

function isTooLarge(answer: GetBlockResult): boolean {
  return "Err" in answer && "TooLarge" in answer.Err;
}

async function inParts(coppice: Coppice, number: bigint) {
  const [header] = ok(await coppice.get_block_headers(number, number)).headers;
  if (header === undefined) throw new Error(`block ${number} has no header`);
  const [body, receipts, index] = [
    await segment(coppice, number, 0, header.lengths.body),
    await segment(coppice, number, 1, header.lengths.receipts),
    await segment(coppice, number, 2, header.lengths.index),
  ];
  return { header, body, receipts, index };
}

async function segment(coppice: Coppice, number: bigint, which: number, length: bigint): Promise<Uint8Array> {
  const whole = new Uint8Array(Number(length));
  for (let at = 0; at < whole.length; ) {
    const { bytes } = ok(await coppice.read_segment(number, which, BigInt(at), BigInt(whole.length - at)));
    if (bytes.length === 0 || at + bytes.length > whole.length) throw new Error(`block ${number} has another length than its header says`);
    whole.set(bytes, at);
    at += bytes.length;
  }
  return whole;
}

async function verify(name: string, bytes: Uint8Array, expected: Uint8Array): Promise<void> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  if (toHex(digest) !== toHex(expected)) throw new Error(`the ${name} does not match its SHA-256`);
}
