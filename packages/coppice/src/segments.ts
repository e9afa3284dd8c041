/**
 * Segments of a block's payload. All integers are little-endian.
 *
 *     receipts = empty, or u32 n ‖ n × u32 end offset ‖ bytes
 *     index    = empty, or u32 n ‖ n × 32-byte id ‖ u32 m ‖ m × (u32 transaction, u16 length, key)
 *
 * An end offset counts from the start of `bytes`.
 */

/** Bytes of a transaction id. */
const ID = 32;
/** Bytes of the longest secondary key. */
const MAX_KEY = 64;

/** A transaction of a block. */
export interface Transaction {
  /** Its position in the block, from 0. */
  position: number;
  /** Its id, in internal byte order. */
  id: Uint8Array;
  /** Its secondary keys, in the order of the segment. */
  keys: Uint8Array[];
  /** Its receipt, if the block has receipts. */
  receipt?: Uint8Array;
}

/** Returns the transactions of a block's index and receipts. Throws a `RangeError` if a segment is malformed. */
export function transactionsOf(index: Uint8Array, receipts: Uint8Array): Transaction[] {
  if (index.length === 0 && receipts.length === 0) return [];
  const ids = new Reader(index, "index");
  const transactions = Array.from({ length: ids.count(ID) }, (_, position): Transaction => ({ position, id: ids.bytes(ID), keys: [] }));
  for (let left = ids.count(6); left > 0; left -= 1) {
    const of = transactions[ids.u32()];
    if (of === undefined) throw new RangeError("index: a key is of a transaction that is not there");
    of.keys.push(ids.bytes(ids.u16()));
  }
  ids.end();
  if (receipts.length > 0) addReceipts(transactions, new Reader(receipts, "receipts"));
  return transactions;
}

function addReceipts(transactions: Transaction[], segment: Reader): void {
  if (segment.count(4) !== transactions.length) throw new RangeError("receipts: not one for each transaction");
  const ends = transactions.map(() => segment.u32());
  let from = 0;
  transactions.forEach((transaction, at) => {
    const end = ends[at] ?? 0;
    transaction.receipt = segment.bytes(end - from);
    from = end;
  });
  segment.end();
}

/** Reads a segment from its start to its end. */
class Reader {
  private at = 0;
  private readonly view: DataView;

  constructor(
    private readonly segment: Uint8Array,
    private readonly name: string,
  ) {
    this.view = new DataView(segment.buffer, segment.byteOffset, segment.byteLength);
  }

  u16(): number {
    return this.view.getUint16(this.advance(2), true);
  }

  u32(): number {
    return this.view.getUint32(this.advance(4), true);
  }

  /** Reads the number of entries that follow, each of at least `size` bytes. */
  count(size: number): number {
    const count = this.u32();
    if (count * size > this.segment.length - this.at) throw new RangeError(`${this.name}: ${count} entries reach behind the end`);
    return count;
  }

  bytes(length: number): Uint8Array {
    const from = this.advance(length);
    return this.segment.slice(from, from + length);
  }

  end(): void {
    if (this.at !== this.segment.length) throw new RangeError(`${this.name}: ${this.segment.length - this.at} bytes behind the end`);
  }

  private advance(length: number): number {
    const from = this.at;
    if (length < 0 || from + length > this.segment.length) throw new RangeError(`${this.name}: ends at byte ${this.segment.length}`);
    this.at += length;
    return from;
  }
}

/** Returns the index segment of transactions. Throws a `RangeError` for an id or a key of another length. */
export function indexOf(transactions: { id: Uint8Array; keys?: Uint8Array[] }[]): Uint8Array {
  if (transactions.length === 0) return new Uint8Array();
  const writer = new Writer();
  writer.u32(transactions.length);
  for (const { id } of transactions) {
    if (id.length !== ID) throw new RangeError(`an id has ${id.length} bytes, not ${ID}`);
    writer.bytes(id);
  }
  const keys = transactions.flatMap(({ keys }, position) => (keys ?? []).map((key) => ({ position, key })));
  writer.u32(keys.length);
  for (const { position, key } of keys) {
    if (key.length > MAX_KEY) throw new RangeError(`a key has ${key.length} bytes; at most ${MAX_KEY}`);
    writer.u32(position);
    writer.u16(key.length);
    writer.bytes(key);
  }
  return writer.done();
}

/** Returns the receipts segment of transactions, empty without receipts. Throws a `RangeError` if only some have a receipt. */
export function receiptsOf(transactions: { receipt?: Uint8Array }[]): Uint8Array {
  const receipts = transactions.flatMap(({ receipt }) => (receipt === undefined ? [] : [receipt]));
  if (receipts.length === 0) return new Uint8Array();
  if (receipts.length !== transactions.length) throw new RangeError("each transaction of a block has a receipt, or none has");
  const writer = new Writer();
  writer.u32(receipts.length);
  let end = 0;
  for (const receipt of receipts) writer.u32((end += receipt.length));
  for (const receipt of receipts) writer.bytes(receipt);
  return writer.done();
}

/** Writes bytes one after another. */
export class Writer {
  private buffer = new Uint8Array(1_024);
  private length = 0;

  u16(value: number): void {
    this.view(2).setUint16(0, value, true);
  }

  u32(value: number): void {
    this.view(4).setUint32(0, value, true);
  }

  u64(value: bigint): void {
    this.view(8).setBigUint64(0, value, true);
  }

  /** Writes a length as LEB128. */
  leb(value: number): void {
    for (; value >= 0x80; value = Math.floor(value / 0x80)) this.view(1).setUint8(0, (value % 0x80) + 0x80);
    this.view(1).setUint8(0, value);
  }

  bytes(bytes: Uint8Array): void {
    const from = this.advance(bytes.length);
    this.buffer.set(bytes, from);
  }

  /** Writes bytes after their length. */
  blob(bytes: Uint8Array): void {
    this.leb(bytes.length);
    this.bytes(bytes);
  }

  done(): Uint8Array {
    return this.buffer.slice(0, this.length);
  }

  private view(length: number): DataView {
    const from = this.advance(length);
    return new DataView(this.buffer.buffer, from, length);
  }

  private advance(length: number): number {
    const from = this.length;
    this.length += length;
    if (this.length > this.buffer.length) {
      const longer = new Uint8Array(Math.max(this.length, 2 * this.buffer.length));
      longer.set(this.buffer);
      this.buffer = longer;
    }
    return from;
  }
}

/** Returns bytes in hexadecimal. */
export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the bytes of a hexadecimal text. Throws a `RangeError` if it is none. */
export function fromHex(text: string): Uint8Array {
  if (!/^([0-9a-f]{2})*$/i.test(text)) throw new RangeError("not hexadecimal");
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

/** Returns an id or hash in display order, the last byte first, as Bitcoin and its explorers write it. */
export function toDisplay(id: Uint8Array): string {
  return toHex(id.slice().reverse());
}

/** Returns the id or hash of a text in display order. Throws a `RangeError` if it is none. */
export function fromDisplay(text: string): Uint8Array {
  return fromHex(text).reverse();
}
