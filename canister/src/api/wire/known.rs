//! Fast path of decoding: arguments whose type table is the expected one are read directly from the message.
//!
//! A Candid message begins with a table of the types of its values. Parsing the table and comparing it with the expected types takes a
//! million instructions, ten times the work of a batch of one item. A client that was generated from the same types sends the same table
//! byte by byte, so a message that begins with exactly these bytes needs no comparison.
//!
//! The fast path gives up, and the generic decoder reads or refuses the message, if a length, option or flag is not in its shortest form,
//! if there is a byte too many or too few, or if a value might cost more than [the quota](super::quota::DECODING_QUOTA). So the generic
//! decoder reads every message that the fast path reads, to the same values.

use super::tables::arguments;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// The unread rest of a message, and the rest of its quota in `candid`'s units.
pub struct Reader<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Reader<'a> {
    fn pay(&mut self, cost: usize) -> Option<()> {
        self.left = self.left.checked_sub(cost)?;
        Some(())
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// Reads a length: LEB128 in its shortest form, at most four bytes.
    fn length(&mut self) -> Option<usize> {
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return (shift == 0 || byte > 0).then_some(length);
            }
        }
        None
    }
}

/// A type whose values can be read without the type table.
pub trait Known: Sized {
    /// Reads the next value, or returns `None` to leave the message to the generic decoder.
    fn read(reader: &mut Reader) -> Option<Self>;
}

impl Known for u32 {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.pay(4)?;
        Some(Self::from_le_bytes(reader.take(4)?.try_into().ok()?))
    }
}

impl Known for u64 {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.pay(8)?;
        Some(Self::from_le_bytes(reader.take(8)?.try_into().ok()?))
    }
}

impl Known for bool {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.pay(1)?;
        match reader.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Known for ByteBuf {
    fn read(reader: &mut Reader) -> Option<Self> {
        let len = reader.length()?;
        reader.pay(len.checked_add(1)?)?;
        Some(Self::from(reader.take(len)?))
    }
}

macro_rules! hash {
    ($($hash:ty),*) => {$(
        impl Known for $hash {
            fn read(reader: &mut Reader) -> Option<Self> {
                ByteBuf::read(reader).map(|bytes| Self::from(bytes.into_vec()))
            }
        }
    )*};
}

hash!(BlockHash, Txid, UtxoHash);

impl<T: Known> Known for Option<T> {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.pay(2)?;
        match reader.byte()? {
            0 => Some(None),
            1 => T::read(reader).map(Some),
            _ => None,
        }
    }
}

impl<T: Known> Known for Vec<T> {
    fn read(reader: &mut Reader) -> Option<Self> {
        let len = reader.length()?;
        reader.pay(2)?;
        // Most items take as many bytes of the message as of memory. Others make the list grow.
        let mut items = Self::with_capacity(len.min(reader.rest.len() / size_of::<T>().max(1)));
        for _ in 0..len {
            reader.pay(3)?;
            items.push(T::read(reader)?);
        }
        Some(items)
    }
}

/// Implements [`Known`] for records. The fields are in Candid's order: by the hash of their names.
macro_rules! record {
    ($($record:ty { $($field:ident),* })*) => {$(
        impl Known for $record {
            fn read(reader: &mut Reader) -> Option<Self> {
                reader.pay(2 $(+ 7 + stringify!($field).len())*)?;
                $(let $field = Known::read(reader)?;)*
                Some(Self { $($field),* })
            }
        }
    )*};
}

record! {
    AppendBlock { sha256, body, hash, number, index, timestamp_secs, receipts, parent_hash }
    BySegment<ByteBuf> { body, index, receipts }
    UtxoCreateBatch { height, items }
    UtxoCreate { fee, mined, source, locked, is_new, conflicting }
    MinedIn { on_longest_chain, blocks }
    BlockRef { height, block_id, subtree }
    PartialTransaction { txid, total_outputs, coinbase, outputs }
    PartialOutput { satoshis, script, index }
    KeptTransaction { number, position }
    ExternalTransaction { size, txid, version, store, inputs, lock_time, coinbase, utxo_hashes }
    ExternalStore { file_type, blob_key, store_type }
    Outpoint { txid, vout }
    UtxoSpendBatch { height, items }
    TransactionSpends { spends, spender }
    Spend { vin, utxo_hash, txid, vout }
    UtxoSetMinedBatch { height, block_id, on_longest_chain, unset, items, block_height }
    MinedTransaction { subtree, txid }
}

/// Implements [`Known`] for variants. The cases are in Candid's order; `(Known::read)` marks a case with a value.
macro_rules! variant {
    ($($variant:ty { $($case:ident $(($read:path))?),* })*) => {$(
        impl Known for $variant {
            fn read(reader: &mut Reader) -> Option<Self> {
                // A case without a value has a value of zero bytes, which costs 1.
                reader.pay(2 + 5 + 1 + [$(stringify!($case).len()),*].into_iter().max()?)?;
                let case = reader.length()?;
                let mut at = 0..;
                $(if at.next() == Some(case) {
                    return Some(Self::$case $(($read(reader)?))?);
                })*
                None
            }
        }
    )*};
}

variant! {
    TransactionSource { Raw(Known::read), Kept(Known::read), Uploaded(Known::read), Outputs(Known::read), External(Known::read) }
    FileType { Tx, Outputs }
    StoreType { Tx, BlockPersister, Temp, Block, PeerRegistry, Subtree }
}

/// An argument whose type table is known.
pub trait Argument: Known {
    /// The bytes before the value.
    const TABLE: &'static [u8];
}

macro_rules! argument {
    ($($argument:ty = $table:ident),* $(,)?) => {$(
        impl Argument for $argument {
            const TABLE: &'static [u8] = arguments::$table;
        }
    )*};
}

argument! {
    AppendBlock = block,
    Vec<AppendBlock> = blocks,
    ByteBuf = bytes,
    UtxoCreateBatch = creations,
    UtxoSpendBatch = spends,
    UtxoSetMinedBatch = mined,
}

/// Returns the bytes after a header, or `None` if the message begins otherwise. Compares words, because comparing bytes takes several times
/// as many instructions.
fn after_header<'a>(message: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = message.split_at_checked(header.len())?;
    let ((words, end), (expected, expected_end)) = (start.as_chunks::<8>(), header.as_chunks::<8>());
    let same = words.iter().zip(expected).all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b));
    (same && end == expected_end).then_some(rest)
}

/// Returns the only argument of a method, or `None` to leave the message to the generic decoder.
pub fn read<T: Argument>(message: &[u8], quota: usize) -> Option<T> {
    let rest = after_header(message, T::TABLE)?;
    let mut reader = Reader { rest, left: quota.checked_sub(4 * T::TABLE.len())? };
    let value = T::read(&mut reader)?;
    reader.rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests;
