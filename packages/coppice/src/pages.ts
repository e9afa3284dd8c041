/** Pages and their cursors as async iterators. */
import { ok } from "./answer.js";
import type { BlockHeader, ExportCursor, ExportPage, HeaderPage, KeyCursor, KeyTransaction } from "./binding/coppice.did.js";
import { type Block, readBlock } from "./block.js";
import type { Coppice } from "./client.js";

/** The number above all blocks. */
const LAST = 2n ** 64n - 1n;

/**
 * Yields pages until one has no cursor. Works for every method whose answer has `cursor`: `pages((cursor) => coppice.get_audit_log(cursor, 0))`.
 * To continue later, keep the cursor of the last page and pass it as `from`.
 */
export async function* pages<C, P extends { cursor: [] | [C] }>(ask: (cursor: [] | [C]) => Promise<P>, from?: C): AsyncGenerator<P> {
  let cursor: [] | [C] = from === undefined ? [] : [from];
  do {
    const page = await ask(cursor);
    cursor = page.cursor;
    yield page;
  } while (cursor.length > 0);
}

/** Yields the headers of blocks `from` to `to`, both included, up to the head. Throws a `Refusal` as `get_block_headers`. */
export async function* headers(coppice: Coppice, from: bigint, to = LAST): AsyncGenerator<BlockHeader> {
  let next: bigint | undefined = from;
  while (next !== undefined) {
    const page: HeaderPage = ok(await coppice.get_block_headers(next, to));
    yield* page.headers;
    next = page.next[0];
  }
}

/** Yields blocks `from` to `to`, both included, up to the head. Throws as `headers` and `readBlock`. */
export async function* blocks(coppice: Coppice, from: bigint, to = LAST): AsyncGenerator<Block> {
  for await (const { number } of headers(coppice, from, to)) yield await readBlock(coppice, number);
}

/**
 * Yields the transactions with a secondary key, newest first. Throws a `Refusal` as `find_by_index_key`: `Reorged` if blocks of which it
 * yielded transactions were rolled back meanwhile.
 */
export async function* transactionsWithKey(coppice: Coppice, key: Uint8Array | string): AsyncGenerator<KeyTransaction> {
  const bytes = typeof key === "string" ? new TextEncoder().encode(key) : key;
  for await (const page of pages(async (at: [] | [KeyCursor]) => ok(await coppice.find_by_index_key(bytes, at, 0)))) {
    yield* page.transactions;
  }
}

/**
 * Yields pages of exported blocks from `cursor` on, or from the oldest kept block, until the head. Store the cursor of a page together with
 * its contents, and continue there. Throws a `Refusal` as `export_blocks`; its error says how to continue.
 */
export async function* exportPages(coppice: Coppice, cursor?: ExportCursor): AsyncGenerator<ExportPage> {
  let at: [] | [ExportCursor] = cursor === undefined ? [] : [cursor];
  for (;;) {
    const page: ExportPage = ok(await coppice.export_blocks(at, 0n));
    if (page.chunks.length === 0) return;
    at = page.cursor;
    yield page;
  }
}
