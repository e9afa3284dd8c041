//! A block's payload as exporters see it: three segments, and how two of them are encoded (`docs/design.md` 2.2).
//!
//! ```text
//! receipts = empty, or u32 n ‖ n × u32 end offset ‖ bytes              (n = transactions)
//! index    = empty, or u32 n ‖ n × 32-byte id ‖ u32 m ‖ m × (u32 transaction, u16 length ≤ 64, key)
//! ```
//! All integers are little-endian. An end offset counts from the start of `bytes`.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// Bytes of a transaction id.
pub const ID: usize = 32;
/// Bytes of the longest secondary key.
pub const MAX_KEY: u16 = 64;

/// One of a block's three payload segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum Segment {
    /// Opaque bytes.
    Body,
    /// One receipt a transaction.
    Receipts,
    /// Transaction ids and secondary keys.
    Index,
}

impl Segment {
    /// All, in the order in which they lie in the log.
    pub const ALL: [Self; 3] = [Self::Body, Self::Receipts, Self::Index];

    /// The segment with this number, as exporters count them.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// 0 body, 1 receipts, 2 index.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What is wrong with a segment, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSegment {
    /// Which one.
    pub segment: Segment,
    /// Bytes from its start.
    pub at: u64,
    /// A sentence.
    pub why: String,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A secondary key of an index segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Which transaction has it.
    pub transaction: u32,
    /// Where its entry starts in the segment, in bytes.
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
    /// [`BadSegment`] at the first byte that does not fit.
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
                return bad(at + 4, format!("key {key} has {length} bytes; {MAX_KEY} at most"));
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

    /// Transactions.
    pub fn transactions(&self) -> u32 {
        (self.ids.len() / ID) as u32
    }

    /// Secondary keys.
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// Transactions and secondary keys: the block's entries in the two indexes.
    pub fn references(&self) -> u64 {
        u64::from(self.transactions()) + u64::from(self.keys)
    }

    /// The ids, by position.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &'a [u8; ID]> + DoubleEndedIterator + use<'a> {
        self.ids.as_chunks::<ID>().0.iter()
    }

    /// The id at a position.
    pub fn id(&self, position: u32) -> Option<&'a [u8; ID]> {
        self.ids.as_chunks::<ID>().0.get(position as usize)
    }

    /// The secondary keys, in the order of the segment.
    pub fn each_key(&self) -> impl Iterator<Item = Key<'a>> + use<'a> {
        let segment = self.segment;
        let mut at = 4 + self.ids.len() + 4;
        // Every entry was checked, so the first that is not there is behind the last.
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

/// Transaction, and bytes of the key.
pub fn split_key_header(header: &[u8; KEY_HEADER]) -> (u32, u16) {
    let [a, b, c, d, length @ ..] = *header;
    (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes(length))
}

/// Where the id of transaction `position` starts in an index segment.
pub fn id_offset(position: u32) -> u64 {
    4 + u64::from(position) * ID as u64
}

/// Bytes from the start of a receipts segment to its receipts.
pub fn receipts_table_len(transactions: u32) -> u64 {
    4 + 4 * u64::from(transactions)
}

/// Checks the table of a receipts segment of `len` bytes; `table` is its start, [`receipts_table_len`] bytes of it.
///
/// # Errors
/// [`BadSegment`] at the first byte that does not fit.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn index(ids: u32, keys: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = ids.to_le_bytes().to_vec();
        (0..ids).for_each(|id| bytes.extend([id as u8; ID]));
        bytes.extend((keys.len() as u32).to_le_bytes());
        for (transaction, key) in keys {
            bytes.extend(transaction.to_le_bytes());
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend(*key);
        }
        bytes
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
}
