// Tests of the TypeScript package that need no canister. `scripts/typescript` runs them next to its build.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inflateRawSync } from "node:zlib";
import { IDL } from "@icp-sdk/core/candid";
import { Refusal, appendBlocks, blocks, encodeBlock, fromDisplay, fromHex, ok, pages, readBlock, toDisplay, toHex, transactionsOf } from "./dist/index.js";

const u32 = (number) => [number & 255, (number >> 8) & 255, (number >> 16) & 255, (number >> 24) & 255];
const id = (byte) => Array(32).fill(byte);
const bytes = (...parts) => Uint8Array.from(parts.flat());
const index = bytes(u32(2), id(1), id(2), u32(2), u32(1), [2, 0], [7, 8], u32(1), [0, 0]);
const receipts = bytes(u32(2), u32(0), u32(3), [4, 5, 6]);
const none = new Uint8Array();

const digest = async (segment) => new Uint8Array(await crypto.subtle.digest("SHA-256", segment));

// A canister with block 7, whose replies have at most `limit` bytes.
async function canister(segments, limit, change = (part) => part) {
  const [body, receipts, index] = segments;
  const lengths = { body: BigInt(body.length), receipts: BigInt(receipts.length), index: BigInt(index.length) };
  const sha256 = { body: await digest(body), receipts: await digest(receipts), index: await digest(index) };
  const header = { number: 7n, lengths, sha256 };
  const size = body.length + receipts.length + index.length;
  return {
    get_block: async (number) => {
      if (number !== 7n) return { Err: { NotFound: null } };
      if (size > limit) return { Err: { TooLarge: { size: BigInt(size), limit: BigInt(limit) } } };
      return { Ok: { header, body: change(body), receipts, index } };
    },
    get_block_headers: async (from) => (from > 7n ? { Err: { NotFound: null } } : { Ok: { headers: [header], next: [] } }),
    read_segment: async (_, which, offset, length) => {
      const part = segments[which].slice(Number(offset), Number(offset) + Math.min(Number(length), limit));
      return { Ok: { bytes: change(part), total: BigInt(segments[which].length) } };
    },
  };
}

test("index and receipts give transactions with keys and receipts", () => {
  const found = transactionsOf(index, receipts);
  assert.deepEqual(found.map(({ position }) => position), [0, 1]);
  assert.deepEqual(found.map(({ id }) => id[31]), [1, 2]);
  assert.deepEqual(found.map(({ keys }) => keys.map(toHex)), [[], ["0708", ""]]);
  assert.deepEqual(found.map(({ receipt }) => toHex(receipt)), ["", "040506"]);
  assert.equal(transactionsOf(index, none)[0].receipt, undefined);
  assert.deepEqual(transactionsOf(none, none), []);
});

test("every shortened or lengthened segment is refused", () => {
  for (let end = 0; end < index.length; end += 1) assert.throws(() => transactionsOf(index.slice(0, end), receipts), RangeError, `${end}`);
  for (let end = 1; end < receipts.length; end += 1) assert.throws(() => transactionsOf(index, receipts.slice(0, end)), RangeError, `${end}`);
  assert.throws(() => transactionsOf(bytes([...index], [0]), none), RangeError);
  assert.throws(() => transactionsOf(index, bytes([...receipts], [0])), RangeError);
});

test("lying numbers in a segment are refused", () => {
  const most = [255, 255, 255, 255];
  assert.throws(() => transactionsOf(bytes(most, id(1)), none), RangeError);
  assert.throws(() => transactionsOf(bytes(u32(0), most), none), RangeError);
  assert.throws(() => transactionsOf(bytes(u32(1), id(1), u32(1), u32(1), [0, 0]), none), RangeError);
  assert.throws(() => transactionsOf(index, bytes(u32(2), u32(3), u32(0), [4, 5, 6])), RangeError);
  assert.throws(() => transactionsOf(index, bytes(u32(2), u32(0), most, [4])), RangeError);
  assert.throws(() => transactionsOf(index, bytes(u32(3), u32(0), u32(0), u32(0))), RangeError);
});

test("block is read whole or in parts, with the same result", async () => {
  const segments = [bytes([1, 2, 3, 4, 5]), receipts, index];
  const whole = await readBlock(await canister(segments, 10_000), 7n);
  assert.deepEqual(await readBlock(await canister(segments, 2), 7n), whole);
  assert.deepEqual([whole.body.length, whole.transactions.length], [5, 2]);
});

test("bytes that differ from their digest or length are refused", async () => {
  const segments = [bytes([1, 2, 3, 4, 5]), receipts, index];
  const changed = (part) => part.map((byte, at) => (at === 0 ? byte ^ 1 : byte));
  for (const limit of [10_000, 2]) {
    await assert.rejects(readBlock(await canister(segments, limit, changed), 7n), /SHA-256/);
  }
  for (const wrong of [() => none, (part) => bytes([...part], [0])]) {
    await assert.rejects(readBlock(await canister(segments, 2, wrong), 7n), /another length/);
  }
});

test("refusal has the canister's error", async () => {
  assert.equal(ok({ Ok: null }), null);
  const refused = readBlock(await canister([none, none, none], 9), 8n);
  await assert.rejects(refused, (error) => error instanceof Refusal && "NotFound" in error.error);
  const message = new Refusal({ Gap: { expected: 2n ** 63n, hash: none } }).message;
  assert.equal(message, 'the canister refuses: {"Gap":{"expected":"9223372036854775808","hash":"0 bytes"}}');
});

test("pages follow the cursor to its end, also from a cursor on", async () => {
  const asked = [];
  const ask = async (cursor) => {
    asked.push(cursor);
    return { cursor: cursor.length === 0 ? [1] : cursor[0] < 2 ? [cursor[0] + 1] : [] };
  };
  const count = async (pages) => {
    let count = 0;
    for await (const _ of pages) count += 1;
    return count;
  };
  assert.equal(await count(pages(ask)), 3);
  assert.equal(await count(pages(ask, 2)), 1);
  assert.deepEqual(asked, [[], [1], [2], [2]]);
  assert.equal(await count(blocks(await canister([none, none, none], 9), 7n)), 1);
});

test("text of an id has the last byte first, and other text is refused", () => {
  assert.equal(toDisplay(bytes([1, 2, 255])), "ff0201");
  assert.deepEqual(fromDisplay("FF0201"), bytes([1, 2, 255]));
  assert.deepEqual(fromHex(""), none);
  for (const text of ["0", "0x00", "zz", "00 ", "00\n"]) assert.throws(() => fromHex(text), RangeError, text);
});

const block = (number, body) =>
  encodeBlock({ number, hash: bytes(id(1)), parentHash: bytes(id(2)), timestampSecs: 9n, body, transactions: [{ id: bytes(id(3)), keys: [bytes([7])] }] });
// A body that no algorithm compresses.
const noise = (length) => crypto.getRandomValues(new Uint8Array(length));

// A canister that keeps the blocks from `next` on, `most` in a message, and notes its messages.
function producer(next, most, traps = () => false, code = "IC0503") {
  const blob = IDL.Vec(IDL.Nat8);
  const digests = IDL.Record({ body: blob, receipts: blob, index: blob });
  const fields = { number: IDL.Nat64, hash: blob, parent_hash: blob, timestamp_secs: IDL.Nat64, body: blob, receipts: blob, index: blob, sha256: digests };
  const messages = [];
  const append = (kind) => async (list) => {
    messages.push([kind, list.length]);
    if (traps(list)) throw new Error(`Reject code: 5, ${code}: the canister trapped`);
    const kept = list.slice(0, most);
    const refused = kept.findIndex((block) => block.number !== next + BigInt(kept.indexOf(block)));
    if (refused >= 0) return { next, stopped: [{ Refused: { Gap: { expected: next } } }] };
    next += BigInt(kept.length);
    return { next, stopped: kept.length < list.length ? [{ HasMore: null }] : [] };
  };
  const append_compressed = (argument) => {
    const plain = inflateRawSync(argument.slice(4));
    assert.equal(plain.length, new DataView(argument.buffer).getUint32(0, true));
    return append("compressed")(IDL.decode([IDL.Vec(IDL.Record(fields))], new Uint8Array(plain))[0]);
  };
  return { messages, head: () => next - 1n, append_blocks: append("plain"), append_compressed };
}

test("a block in the making has the segments and digests that a reader finds", async () => {
  const transactions = [{ id: bytes(id(1)), receipt: none }, { id: bytes(id(2)), keys: [bytes([7, 8]), none], receipt: bytes([4, 5, 6]) }];
  const made = { number: 7n, hash: bytes([1]), parentHash: none, timestampSecs: 9n, body: bytes([5]) };
  const encoded = await encodeBlock({ ...made, transactions });
  assert.deepEqual([encoded.index, encoded.receipts, encoded.parent_hash], [index, receipts, none]);
  assert.deepEqual(encoded.sha256.index, await digest(encoded.index));
  const empty = await encodeBlock(made);
  assert.deepEqual([empty.index, empty.receipts], [none, none]);
  for (const wrong of [[{ id: bytes([1]) }], [{ id: bytes(id(1)), keys: [new Uint8Array(65)] }], [transactions[0], { id: bytes(id(1)) }]]) {
    await assert.rejects(encodeBlock({ ...made, transactions: wrong }), RangeError);
  }
});

test("blocks are sent together, compressed if that saves more than it costs, and the rest again", async () => {
  const small = await Promise.all([5n, 6n, 7n, 8n, 9n].map((number) => block(number, new Uint8Array(9_000))));
  const coppice = producer(5n, 3);
  await appendBlocks(coppice, small);
  assert.deepEqual([coppice.messages, coppice.head()], [[["compressed", 5], ["compressed", 2]], 9n]);
  const large = await Promise.all([5n, 6n, 7n].map((number) => block(number, noise(60_000))));
  const other = producer(5n, 9);
  await appendBlocks(other, large);
  assert.deepEqual(other.messages, [["plain", 3]]);
  const long = await Promise.all([5n, 6n, 7n].map((number) => block(number, new Uint8Array(800_000))));
  const third = producer(5n, 9);
  await appendBlocks(third, long);
  assert.deepEqual(third.messages.map(([, count]) => count), [1, 1, 1]);
  const many = Array.from({ length: 5_001 }, () => ({ id: bytes(id(3)), keys: [none, none] }));
  const keyed = await Promise.all([5n, 6n].map(async (number) => encodeBlock({ ...(await block(number, none)), parentHash: none, timestampSecs: 9n, transactions: many.slice(number === 5n ? 3_000 : 0) })));
  const fourth = producer(5n, 9);
  await appendBlocks(fourth, keyed);
  assert.deepEqual(fourth.messages.map(([, count]) => count), [1, 1], "21,006 transactions and keys");
});

test("a block that no message holds is named, and the blocks before it are appended", async () => {
  const list = await Promise.all([5n, 6n].map((number) => block(number, new Uint8Array(number === 6n ? 1_500_000 : 9))));
  const coppice = producer(5n, 9);
  await assert.rejects(appendBlocks(coppice, list), (error) => error instanceof RangeError && /block 6 .* upload/.test(error.message));
  assert.deepEqual([coppice.messages.length, coppice.head()], [1, 5n]);
});

test("a refused block is thrown, and a list that traps is halved", async () => {
  const list = await Promise.all([5n, 6n, 7n, 8n].map((number) => block(number, none)));
  await assert.rejects(appendBlocks(producer(6n, 9), list), (error) => error instanceof Refusal && error.error.Gap.expected === 6n);
  const coppice = producer(5n, 9, (sent) => sent.some(({ number }) => number === 8n));
  await assert.rejects(appendBlocks(coppice, list), /IC0503/);
  assert.equal(coppice.head(), 7n);
  assert.deepEqual(coppice.messages.map(([, count]) => count), [4, 2, 2, 1, 1]);
  const heavy = (sent) => sent.length > 2;
  const limited = producer(5n, 9, heavy, "IC0522");
  await appendBlocks(limited, list);
  assert.deepEqual(limited.messages.map(([, count]) => count), [4, 2, 2], "a message that takes more instructions than one may");
  const stopped = producer(5n, 9, heavy, "IC0508");
  await assert.rejects(appendBlocks(stopped, list), /IC0508/);
  assert.equal(stopped.messages.length, 1, "a stopped canister has not trapped");
});
