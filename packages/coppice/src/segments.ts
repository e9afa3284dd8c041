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
