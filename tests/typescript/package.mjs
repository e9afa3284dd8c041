// Tests of the TypeScript package that need no canister. `scripts/typescript` runs them next to its build.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal, blocks, fromDisplay, fromHex, ok, pages, readBlock, toDisplay, toHex, transactionsOf } from "./dist/index.js";

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
