//! A block's payload: three segments, encoder and decoder of two of them, and their SHA-256 (`docs/design/blocks.md`).
//!
//! ```text
//! receipts = empty, or u32 n ‖ n × u32 end offset ‖ bytes              (n = transactions)
//! index    = empty, or u32 n ‖ n × 32-byte id ‖ u32 m ‖ m × (u32 transaction, u16 length ≤ 64, key)
//! ```
//! All integers are little-endian. An end offset counts from the start of `bytes`.

use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::ops;

/// Bytes of a transaction id.
pub const ID: usize = 32;
/// Bytes of the longest secondary key.
pub const MAX_KEY: u16 = 64;
/// Number of the last possible block: index databases hold 63 bits.
pub const MAX_NUMBER: u64 = i64::MAX as u64;
/// Bytes of the largest block.
pub const MAX_BLOCK: u64 = 256 << 20;
/// Most transactions and keys of a block, together.
pub const MAX_ENTRIES: u64 = 100_000;

/// One of a block's three payload segments.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// Opaque bytes.
    Body,
    /// One receipt for each transaction.
    Receipts,
    /// Transaction ids and secondary keys.
    Index,
}

impl Segment {
    /// All segments, in the order in which they lie in the log.
    pub const ALL: [Self; 3] = [Self::Body, Self::Receipts, Self::Index];

    /// Returns the segment with this number, as exporters count them.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Returns the segment's number: 0 body, 1 receipts, 2 index.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// An invalid segment, with position and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSegment {
    /// The invalid segment.
    pub segment: Segment,
    /// First invalid byte, counted from the segment's start.
    pub at: u64,
    /// Reason as a sentence.
    pub why: String,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A secondary key of an index segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Position of the key's transaction.
    pub transaction: u32,
    /// Bytes from the segment's start to the key's entry.
    pub at: u32,
    /// The key.
    pub bytes: &'a [u8],
}

/// Bytes of a key's entry before the key itself.
pub const KEY_HEADER: usize = 6;

/// A well-formed index segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index<'a> {
    segment: &'a [u8],
    ids: &'a [u8],
    keys: u32,
}

impl<'a> Index<'a> {
    /// Checks the whole segment.
    ///
    /// # Errors
    /// [`BadSegment`] at the first invalid byte.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadSegment> {
        let bad = |at: usize, why: String| Err(BadSegment { segment: Segment::Index, at: at as u64, why });
        if bytes.is_empty() {
            return Ok(Self { segment: &[], ids: &[], keys: 0 });
        }
        let Some(n) = word(bytes, 0) else { return bad(0, "the number of transactions takes 4 bytes".into()) };
        // On wasm a `usize` has 32 bits: the product must not wrap.
        let ids_end = (n as usize).checked_mul(ID).and_then(|len| len.checked_add(4)).unwrap_or(usize::MAX);
        let (Some(ids), Some(keys)) = (bytes.get(4..ids_end), word(bytes, ids_end)) else {
            return bad(bytes.len(), format!("{n} ids of 32 bytes and the number of keys reach behind the end"));
        };
        let mut at = ids_end + 4;
        for key in 0..keys {
            let (Some(transaction), Some(length)) = (word(bytes, at), bytes.get(at + 4..at + 6)) else {
                return bad(at, format!("key {key} of {keys} reaches behind the end"));
            };
            let length = u16::from_le_bytes([length[0], length[1]]);
            if transaction >= n {
                return bad(at, format!("key {key} is of transaction {transaction}, and there are {n}"));
            }
            if length > MAX_KEY {
                return bad(at + 4, format!("key {key} has {length} bytes of at most {MAX_KEY}"));
            }
            at += KEY_HEADER + usize::from(length);
            if at > bytes.len() {
                return bad(bytes.len(), format!("key {key} of {keys} reaches behind the end"));
            }
        }
        if at != bytes.len() {
            return bad(at, format!("{} bytes behind the last key", bytes.len() - at));
        }
        Ok(Self { segment: bytes, ids, keys })
    }

    /// Returns the number of transactions.
    pub fn transactions(&self) -> u32 {
        (self.ids.len() / ID) as u32
    }

    /// Returns the number of secondary keys.
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// Returns the number of transactions and secondary keys: the block's entries in the two indexes.
    pub fn references(&self) -> u64 {
        u64::from(self.transactions()) + u64::from(self.keys)
    }

    /// Returns the ids, by position.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &'a [u8; ID]> + DoubleEndedIterator + use<'a> {
        self.all_ids().iter()
    }

    /// Returns the ids as one slice, by position.
    pub fn all_ids(&self) -> &'a [[u8; ID]] {
        self.ids.as_chunks::<ID>().0
    }

    /// Returns the id at a position.
    pub fn id(&self, position: u32) -> Option<&'a [u8; ID]> {
        self.ids.as_chunks::<ID>().0.get(position as usize)
    }

    /// Returns the secondary keys, in the order of the segment.
    pub fn each_key(&self) -> impl Iterator<Item = Key<'a>> + use<'a> {
        let segment = self.segment;
        let mut at = 4 + self.ids.len() + 4;
        // `parse` checked every entry, so the first missing entry is the end.
        std::iter::from_fn(move || {
            let header: &[u8; KEY_HEADER] = segment.get(at..)?.first_chunk()?;
            let (transaction, length) = split_key_header(header);
            let start = at + KEY_HEADER;
            let key = Key { transaction, at: at as u32, bytes: segment.get(start..start + usize::from(length))? };
            at = start + usize::from(length);
            Some(key)
        })
    }
}

/// Returns the transaction's position, and the length of the key in bytes.
pub fn split_key_header(header: &[u8; KEY_HEADER]) -> (u32, u16) {
    let [a, b, c, d, length @ ..] = *header;
    (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes(length))
}

/// Returns the bytes from the start of an index segment to the id of transaction `position`.
pub fn id_offset(position: u32) -> u64 {
    4 + u64::from(position) * ID as u64
}

/// Returns the bytes from the start of a receipts segment to its receipts.
pub fn receipts_table_len(transactions: u32) -> u64 {
    4 + 4 * u64::from(transactions)
}

/// Checks the table of a receipts segment of `len` bytes; `table` is the segment's start, of [`receipts_table_len`]
/// bytes.
///
/// # Errors
/// [`BadSegment`] at the first invalid byte.
pub fn check_receipts(table: &[u8], len: u64, transactions: u32) -> Result<(), BadSegment> {
    let bad = |at: u64, why: String| Err(BadSegment { segment: Segment::Receipts, at, why });
    if len == 0 {
        return Ok(());
    }
    let table_len = receipts_table_len(transactions);
    let Some(n) = word(table, 0) else { return bad(0, "the number of receipts takes 4 bytes".into()) };
    if n != transactions {
        return bad(0, format!("{n} receipts for {transactions} transactions"));
    }
    if len < table_len {
        return bad(len, format!("the table of {n} end offsets takes {table_len} bytes"));
    }
    let mut previous = 0;
    for receipt in 0..n {
        let at = 4 + 4 * receipt as usize;
        let end = word(table, at).map_or(0, u64::from);
        if end < previous || end > len - table_len {
            return bad(at as u64, format!("receipt {receipt} ends at {end}, after {previous} of {}", len - table_len));
        }
        previous = end;
    }
    if previous != len - table_len {
        return bad(table_len + previous, format!("{} bytes behind the last receipt", len - table_len - previous));
    }
    Ok(())
}

/// A value for each of a block's segments.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BySegment<T> {
    /// The value of the body.
    pub body: T,
    /// The value of the receipts.
    pub receipts: T,
    /// The value of the index.
    pub index: T,
}

impl<T> BySegment<T> {
    /// Returns the values in the order in which exporters count segments: 0 body, 1 receipts, 2 index.
    pub fn each(&self) -> [&T; 3] {
        [&self.body, &self.receipts, &self.index]
    }
}

impl BySegment<u64> {
    /// Returns the sum of all three, at most `u64::MAX`.
    pub fn sum(&self) -> u64 {
        self.each().into_iter().fold(0, |sum, of| sum.saturating_add(*of))
    }
}

impl<T> From<[T; 3]> for BySegment<T> {
    fn from([body, receipts, index]: [T; 3]) -> Self {
        Self { body, receipts, index }
    }
}

impl<T> From<BySegment<T>> for [T; 3] {
    fn from(of: BySegment<T>) -> Self {
        [of.body, of.receipts, of.index]
    }
}

/// The value by the segment's number.
///
/// # Panics
/// If it is above 2.
impl<T> ops::Index<usize> for BySegment<T> {
    type Output = T;

    fn index(&self, segment: usize) -> &T {
        self.each()[segment]
    }
}

impl<T> ops::IndexMut<usize> for BySegment<T> {
    fn index_mut(&mut self, segment: usize) -> &mut T {
        let Self { body, receipts, index } = self;
        [body, receipts, index].into_iter().nth(segment).expect("a block has three segments")
    }
}

/// Reason why a segment cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A key belongs to a transaction that the segment does not have.
    NoTransaction {
        /// Number of the key, from 0.
        key: usize,
        /// Number of transactions.
        transactions: usize,
    },
    /// A key is longer than [`MAX_KEY`].
    KeyTooLong {
        /// Number of the key, from 0.
        key: usize,
    },
    /// More items, or bytes, than 32 bits can count.
    TooMany,
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::NoTransaction { key, transactions } => {
                write!(f, "key {key} is of a transaction behind the {transactions} that there are")
            }
            Self::KeyTooLong { key } => write!(f, "key {key} has more than {MAX_KEY} bytes"),
            Self::TooMany => f.write_str("there are more than 32 bits count"),
        }
    }
}

impl std::error::Error for EncodeError {}

fn counted(len: usize) -> Result<[u8; 4], EncodeError> {
    u32::try_from(len).map(u32::to_le_bytes).map_err(|_| EncodeError::TooMany)
}

/// Returns an index segment: the ids by position, and the transaction of each key.
///
/// # Errors
/// [`EncodeError`] if [`Index::parse`] would refuse the segment.
pub fn encode_index<'k>(
    ids: impl ExactSizeIterator<Item = [u8; ID]>,
    keys: impl ExactSizeIterator<Item = (u32, &'k [u8])>,
) -> Result<Vec<u8>, EncodeError> {
    let transactions = ids.len();
    let mut segment = Vec::with_capacity(8 + ID * transactions + 40 * keys.len());
    segment.extend(counted(transactions)?);
    ids.for_each(|id| segment.extend(id));
    segment.extend(counted(keys.len())?);
    for (number, (transaction, key)) in keys.enumerate() {
        if transaction as usize >= transactions {
            return Err(EncodeError::NoTransaction { key: number, transactions });
        }
        let length = u16::try_from(key.len()).ok().filter(|length| *length <= MAX_KEY);
        segment.extend(transaction.to_le_bytes());
        segment.extend(length.ok_or(EncodeError::KeyTooLong { key: number })?.to_le_bytes());
        segment.extend(key);
    }
    Ok(segment)
}

/// Returns a receipts segment: one receipt for each transaction, in their order.
///
/// # Errors
/// `TooMany`.
pub fn encode_receipts<R: AsRef<[u8]>>(receipts: &[R]) -> Result<Vec<u8>, EncodeError> {
    let bytes: usize = receipts.iter().map(|receipt| receipt.as_ref().len()).sum();
    let mut segment = Vec::with_capacity(4 + 4 * receipts.len() + bytes);
    segment.extend(counted(receipts.len())?);
    let mut end = 0;
    for receipt in receipts {
        end += receipt.as_ref().len();
        segment.extend(counted(end)?);
    }
    receipts.iter().for_each(|receipt| segment.extend(receipt.as_ref()));
    Ok(segment)
}

/// A well-formed receipts segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipts<'a> {
    ends: &'a [[u8; 4]],
    bytes: &'a [u8],
}

impl<'a> Receipts<'a> {
    /// Checks the whole segment of a block with this number of transactions. An empty segment has no receipts.
    ///
    /// # Errors
    /// [`BadSegment`] at the first invalid byte.
    pub fn parse(segment: &'a [u8], transactions: u32) -> Result<Self, BadSegment> {
        let table = receipts_table_len(transactions).min(segment.len() as u64) as usize;
        check_receipts(&segment[..table], segment.len() as u64, transactions)?;
        let (table, bytes) = segment.split_at(table);
        Ok(Self { ends: table.get(4..).unwrap_or_default().as_chunks().0, bytes })
    }

    /// Returns the number of receipts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no receipts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the receipt of the transaction at a position.
    pub fn get(&self, position: u32) -> Option<&'a [u8]> {
        let end = |at: usize| self.ends.get(at).map(|end| u32::from_le_bytes(*end) as usize);
        let position = position as usize;
        self.bytes.get(position.checked_sub(1).map_or(Some(0), end)?..end(position)?)
    }
}

/// Returns the SHA-256 of each of a block's segments, as `append_block` expects them.
pub fn digests(segments: [&[u8]; 3]) -> BySegment<ByteBuf> {
    segments.map(|segment| ByteBuf::from(Sha256::digest(segment).to_vec())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an index byte by byte, as the module's head describes it.
    fn index_of(ids: &[[u8; ID]], keys: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = (ids.len() as u32).to_le_bytes().to_vec();
        bytes.extend(ids.concat());
        bytes.extend((keys.len() as u32).to_le_bytes());
        for (transaction, key) in keys {
            bytes.extend(transaction.to_le_bytes());
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend(*key);
        }
        bytes
    }

    fn index(ids: u32, keys: &[(u32, &[u8])]) -> Vec<u8> {
        index_of(&(0..ids).map(|id| [id as u8; ID]).collect::<Vec<_>>(), keys)
    }

    fn bad_at(bytes: &[u8]) -> u64 {
        Index::parse(bytes).unwrap_err().at
    }

    #[test]
    fn an_index_is_checked_to_its_last_byte() {
        let good = index(2, &[(0, b"a"), (1, &[7; 64])]);
        let parsed = Index::parse(&good).unwrap();
        assert_eq!((parsed.transactions(), parsed.keys()), (2, 2));
        assert_eq!(parsed.ids().collect::<Vec<_>>(), [&[0; 32], &[1; 32]]);
        let keys = [Key { transaction: 0, at: 72, bytes: b"a" }, Key { transaction: 1, at: 79, bytes: &[7; 64] }];
        assert_eq!(parsed.each_key().collect::<Vec<_>>(), keys);
        assert_eq!(Index::parse(&[]).unwrap().each_key().count(), 0);
        assert_eq!(Index::parse(&[]).unwrap().transactions(), 0);
        for cut in 1..good.len() {
            assert!(Index::parse(&good[..cut]).is_err(), "{cut}");
        }
        assert_eq!(bad_at(&index(1, &[(1, b"")])), 40);
        assert_eq!(bad_at(&index(1, &[(0, &[0; 65])])), 44);
        assert_eq!(bad_at(&[good.clone(), vec![0]].concat()), good.len() as u64);
        assert_eq!(bad_at(&[0xFF; 50]), 50);
    }

    #[test]
    fn receipts_are_checked() {
        let check = |words: &[u32], bytes: usize, transactions| {
            let mut table: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let len = (table.len() + bytes) as u64;
            table.resize(table.len() + bytes, 0);
            check_receipts(&table, len, transactions).map_err(|e| e.at)
        };
        assert_eq!(check_receipts(&[], 0, 5), Ok(()));
        assert_eq!(check(&[2, 3, 3], 3, 2), Ok(()));
        assert_eq!(check(&[2, 3, 3], 3, 1), Err(0));
        assert_eq!(check(&[2, 3], 0, 2), Err(8));
        assert_eq!(check(&[2, 3, 2], 3, 2), Err(8));
        assert_eq!(check(&[2, 4, 4], 3, 2), Err(4));
        assert_eq!(check(&[2, 1, 2], 3, 2), Err(14));
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        let ids = [[1; ID], [2; ID]];
        let keys: [(u32, &[u8]); 3] = [(1, b"address"), (0, b""), (1, &[7; 64])];
        let segment = encode_index(ids.into_iter(), keys.into_iter()).unwrap();
        assert_eq!(segment, index_of(&ids, &keys));
        let parsed = Index::parse(&segment).unwrap();
        assert_eq!(parsed.ids().copied().collect::<Vec<_>>(), ids);
        assert_eq!(parsed.each_key().map(|key| (key.transaction, key.bytes)).collect::<Vec<_>>(), keys);
        let no_keys = std::iter::empty;
        assert_eq!(
            encode_index(no_keys().map(|()| [0; ID]).collect::<Vec<_>>().into_iter(), [].into_iter()).unwrap(),
            [0; 8]
        );
        let refused = |keys: &[(u32, &[u8])]| encode_index(ids.into_iter(), keys.iter().copied()).unwrap_err();
        assert_eq!(refused(&[(0, b""), (2, b"")]), EncodeError::NoTransaction { key: 1, transactions: 2 });
        assert_eq!(refused(&[(0, &[0; 65])]), EncodeError::KeyTooLong { key: 0 });
        let receipts: [&[u8]; 4] = [b"one", b"", b"three", b""];
        let segment = encode_receipts(&receipts).unwrap();
        let parsed = Receipts::parse(&segment, 4).unwrap();
        assert_eq!(
            (0..5).map(|at| parsed.get(at)).collect::<Vec<_>>(),
            [Some(receipts[0]), Some(b""), Some(receipts[2]), Some(b""), None]
        );
        assert_eq!((parsed.len(), parsed.is_empty()), (4, false));
        assert!(Receipts::parse(&segment, 3).is_err() && Receipts::parse(&segment[..9], 4).is_err());
        assert_eq!(Receipts::parse(&[], 7).unwrap().get(0), None);
        assert_eq!(encode_receipts::<&[u8]>(&[]).unwrap(), [0; 4]);
    }
}
