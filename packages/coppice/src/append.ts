/** Encoder of blocks, and their appends. For producers of blocks. */
import { Refusal } from "./answer.js";
import type { AppendBlock, AppendedBlocks, AppendError } from "./binding/coppice.did.js";
import type { Coppice } from "./client.js";
import { Writer, fromHex, indexOf, receiptsOf } from "./segments.js";

/** A transaction of a block in the making. */
export interface NewTransaction {
  /** Its id: 32 bytes, in internal byte order. */
  id: Uint8Array;
  /** The secondary keys under which it can be found, each of at most 64 bytes. */
  keys?: Uint8Array[];
  /** Its receipt. Either each transaction of a block has a receipt, or none has. */
  receipt?: Uint8Array;
}

/** A block in the making. */
export interface NewBlock {
  /** The parent's number plus one; any number for the first block. */
  number: bigint;
  /** 1 to 32 bytes of the producer's choice. */
  hash: Uint8Array;
  /** The parent's hash; not checked for the first block. */
  parentHash: Uint8Array;
  /** The block's time, in Unix seconds. */
  timestampSecs: bigint;
  /** Any bytes. */
  body: Uint8Array;
  /** The transactions in order. */
  transactions?: NewTransaction[];
}

/** Returns a block with its three segments and their SHA-256. Throws a `RangeError` if a transaction cannot be encoded. */
export async function encodeBlock(block: NewBlock): Promise<AppendBlock> {
  const transactions = block.transactions ?? [];
  const [body, receipts, index] = [block.body, receiptsOf(transactions), indexOf(transactions)];
  const [ofBody, ofReceipts, ofIndex] = await Promise.all([sha256(body), sha256(receipts), sha256(index)]);
  return {
    number: block.number,
    hash: block.hash,
    parent_hash: block.parentHash,
    timestamp_secs: block.timestampSecs,
    body,
    receipts,
    index,
    sha256: { body: ofBody, receipts: ofReceipts, index: ofIndex },
  };
}

async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

/** Bytes of a message's argument before compression, at most. A block of more bytes must be uploaded in chunks. */
const MAX_BYTES = 1_500_000;
/** Transactions and keys of a message with several blocks, at most. */
const MAX_REFERENCES = 10_000;
/** Cycles that a byte of a message costs the canister, and decompressing a plain byte. */
const PER_BYTE = 2_000;
const PER_PLAIN_BYTE = 60;
/** Bytes below which a list is not compressed. */
const SHORTEST = 256;

/**
 * Appends blocks with consecutive numbers, as many in a message as fit, compressed if that costs the canister less. A repeated call is fine:
 * blocks that are kept already change nothing. A message that traps is sent again in halves.
 *
 * Throws a `Refusal` with the error of the first block that is refused, or a `RangeError` for a block of more than 1.5 MB; the blocks before
 * it are appended. Such a block, and one that is refused as `TooLarge`, must be uploaded: `begin_block`, `put_block_chunk`, `commit_block`.
 */
export async function appendBlocks(coppice: Coppice, blocks: AppendBlock[]): Promise<void> {
  let most = Number.MAX_SAFE_INTEGER;
  for (let from = 0; from < blocks.length; ) {
    const count = Math.min(fitting(blocks, from), most);
    const list = blocks.slice(from, from + count);
    let answer: AppendedBlocks;
    try {
      answer = await send(coppice, list);
    } catch (error) {
      if (count === 1 || !hasTrapped(error)) throw error;
      most = Math.floor(count / 2);
      continue;
    }
    const [stopped] = answer.stopped;
    if (stopped !== undefined && "Refused" in stopped) throw new Refusal<AppendError>(stopped.Refused);
    const kept = Number(answer.next - list[0]!.number);
    if (kept < 1 || kept > count || (stopped === undefined && kept < count)) throw new Error(`${count} blocks sent, ${kept} kept`);
    from += kept;
  }
}

/** Returns how many blocks from a place on go into one message, at least one. Throws a `RangeError` if no message holds the first one. */
function fitting(blocks: AppendBlock[], from: number): number {
  let [bytes, references, to] = [0, 0, from];
  for (; to < blocks.length; to += 1) {
    const { number, body, receipts, index } = blocks[to]!;
    bytes += body.length + receipts.length + index.length + 300;
    references += referencesOf(index as Uint8Array);
    if (to === from && bytes > MAX_BYTES) throw new RangeError(`block ${number} has more than ${MAX_BYTES} bytes: upload it (begin_block)`);
    if (bytes > MAX_BYTES || references > MAX_REFERENCES) break;
  }
  return Math.max(1, to - from);
}

/** Returns the transactions and keys that an index segment declares. */
function referencesOf(index: Uint8Array): number {
  const [view, u32] = [new DataView(index.buffer, index.byteOffset, index.length), 4];
  const declared = (at: number) => (at + u32 <= index.length ? view.getUint32(at, true) : 0);
  const transactions = declared(0);
  return transactions + declared(u32 + 32 * transactions);
}

async function send(coppice: Coppice, list: AppendBlock[]): Promise<AppendedBlocks> {
  const plain = encodeList(list);
  if (plain.length >= SHORTEST) {
    const short = await compress(plain);
    if (short.length * PER_BYTE + plain.length * PER_PLAIN_BYTE < plain.length * PER_BYTE) return coppice.append_compressed(short);
  }
  return coppice.append_blocks(list);
}

/** Returns whether a message was executed and trapped, or took more than a message may: an error of the canister, which is not stopped. */
function hasTrapped(error: unknown): boolean {
  return /\bIC05\d\d\b/.test(String(error)) && !/\bIC050[89]\b/.test(String(error));
}

/** Returns the argument of `append_compressed` for an argument of `append_blocks`: its length, and its raw deflate stream. */
export async function compress(argument: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([argument as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const deflated = new Uint8Array(await new Response(stream).arrayBuffer());
  const writer = new Writer();
  writer.u32(argument.length);
  writer.bytes(deflated);
  return writer.done();
}

/** The type table of a list of blocks, as the canister has it: the fast path of `append_compressed` reads no other. */
const TYPE_TABLE = fromHex("4449444c046d016c08e7c8eae70102a2f5ed880403cedfa0a80403c98dea8b0a7892b6d2f00b038b86c6bd0c78bb89e3970e03c39c99ad0f036c03a2f5ed88040392b6d2f00b03bb89e3970e036d7b0100");

/** Returns a list of blocks as Candid: the argument of `append_blocks`. */
export function encodeList(blocks: AppendBlock[]): Uint8Array {
  const writer = new Writer();
  writer.bytes(TYPE_TABLE);
  writer.leb(blocks.length);
  for (const block of blocks) {
    // Fields are in the order of the hashes of their names.
    const { body, index, receipts } = block.sha256;
    for (const digest of [body, index, receipts]) writer.blob(digest as Uint8Array);
    writer.blob(block.body as Uint8Array);
    writer.blob(block.hash as Uint8Array);
    writer.u64(block.number);
    writer.blob(block.index as Uint8Array);
    writer.u64(block.timestamp_secs);
    writer.blob(block.receipts as Uint8Array);
    writer.blob(block.parent_hash as Uint8Array);
  }
  return writer.done();
}
