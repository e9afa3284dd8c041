//! Look-up of a secondary key: its postings from the newest on, a page at a time.
//!
//! A list belongs to a hash, and a posting in it may have outlived a damaged block, so every posting is checked: the key in the
//! segment must match, and positions must fall from one posting to the next. A call ends by its meter, with a cursor.
//!
//! The canister keeps no state about its readers. A cursor names the last posting read, by block, hash and number; the list after
//! that posting only ever loses its end. A reader is told if blocks that it has seen were rolled back since.

use super::links::{LINK, NONE, split_link};
use crate::hash::Hash;
use crate::read::look_up_meter;
use crate::store::ChainStore;
use ic_coppice_interface::segments::{ID, KEY_HEADER, MAX_ENTRIES, MAX_KEY, Segment, id_offset, split_key_header};
use ic_coppice_interface::{KeyCursor, KeyError, KeyPage, KeyTransaction};
use ic_coppice_storage::blob::BlobStore;
use serde_bytes::ByteBuf;

/// Transactions of the longest page.
const MAX_KEY_PAGE: u32 = 1_000;

/// A key that is looked up.
struct Wanted<'a> {
    key: &'a [u8],
    hash: u64,
}

/// A posting that was read.
struct Posting {
    number: u64,
    block_hash: Hash,
    /// Number of the key in the block's index segment.
    key: u32,
    transaction: u32,
    /// Log offset of the transaction's id.
    id: u64,
    /// True if the key equals the wanted one, and not only its hash.
    matches: bool,
    /// The posting before it, or `NONE`.
    previous: u64,
}

/// Position of a walk.
#[derive(Clone, Copy)]
struct Point {
    number: u64,
    /// The transaction of the last posting read, and the posting's number.
    transaction: u32,
    key: u32,
    /// See [`KeyCursor::position`].
    position: u32,
}

/// Compares word by word, as ids are compared.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let ((words_a, rest_a), (words_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let same = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) == u64::from_le_bytes(*b);
    a.len() == b.len() && words_a.iter().zip(words_b).all(same) && rest_a.iter().zip(rest_b).all(|(a, b)| a == b)
}

#[cold]
fn corrupt(number: u64, why: impl ToString) -> KeyError {
    KeyError::Corrupt { number, why: why.to_string() }
}

impl ChainStore {
    /// The newest transactions that have a key, older than those the cursor has seen: at most `limit`, which is capped at `MAX_KEY_PAGE`
    /// (1,000; also the default for 0).
    pub fn find_by_key(
        &self,
        blobs: &BlobStore,
        key: &[u8],
        cursor: Option<&KeyCursor>,
        limit: u32,
    ) -> Result<KeyPage, KeyError> {
        if key.len() > usize::from(MAX_KEY) {
            return Err(KeyError::KeyTooLong { limit: u64::from(MAX_KEY) });
        }
        let limit = if limit == 0 { MAX_KEY_PAGE } else { limit.min(MAX_KEY_PAGE) };
        let wanted = Wanted { key, hash: self.key_hash(key) };
        let (mut next, mut point) = match cursor {
            None => (self.skip_transit(blobs, self.keys.get(wanted.hash).unwrap_or(NONE), &wanted)?, None),
            Some(cursor) => self.resume(blobs, cursor, &wanted)?,
        };
        let mut transactions = Vec::with_capacity(limit as usize);
        let (mut meter, mut is_first) = (look_up_meter(), true);
        while !self.is_end(next) && transactions.len() < limit as usize && meter.has_time() {
            match self.step(blobs, next, &mut point, &wanted, &mut transactions) {
                Ok(previous) => (next, is_first) = (previous, false),
                Err(error) if is_first => return Err(error),
                // The transactions before the error are returned; the call for the next page reports the error.
                Err(_) => break,
            }
        }
        let first = transactions.first().map(|first: &KeyTransaction| first.block_number);
        let cursor = point.filter(|_| !self.is_end(next)).map(|point| KeyCursor {
            block_number: point.number,
            block_hash: self.hash(point.number).unwrap_or_default().to_bytes(),
            position: point.position,
            key: point.key,
            newest: cursor.map(|cursor| cursor.newest).or(first).unwrap_or(point.number),
            rollbacks: self.rollbacks.count(),
        });
        Ok(KeyPage { transactions, cursor })
    }

    /// Skips the postings of a block in transit at the start of a list.
    fn skip_transit(&self, blobs: &BlobStore, mut posting: u64, wanted: &Wanted) -> Result<u64, KeyError> {
        // The bound is the most postings a block can have: about 150 M instructions.
        for _ in 0..MAX_ENTRIES {
            let Some((number, _)) = self.index_position(posting).filter(|&(number, _)| self.in_transit(number)) else {
                break;
            };
            let Some(there) = self.posting(blobs, posting, wanted)? else { return Ok(NONE) };
            if there.previous != NONE && there.previous >= posting && there.previous >> 24 != posting >> 24 {
                return Err(corrupt(number, "a link of a key does not lead back"));
            }
            posting = there.previous;
        }
        Ok(posting)
    }

    /// Reads the posting, moves `point` to it, collects its transaction unless already returned, and returns the posting before it. Returns
    /// `NONE` if the posting is not of this hash, because the entry or link that named it outlived a damaged block.
    #[inline(always)]
    fn step(
        &self,
        blobs: &BlobStore,
        posting: u64,
        point: &mut Option<Point>,
        wanted: &Wanted,
        transactions: &mut Vec<KeyTransaction>,
    ) -> Result<u64, KeyError> {
        let Some(posting) = self.posting(blobs, posting, wanted)? else { return Ok(NONE) };
        let Posting { number, transaction, key, .. } = posting;
        if point.is_some_and(|point| (number, transaction, key) >= (point.number, point.transaction, point.key)) {
            return Err(corrupt(number, "a link of a key does not lead back"));
        }
        // A transaction may have a key twice. From the known position on, transactions were returned already.
        let known = point.filter(|point| point.number == number).map_or(u32::MAX, |point| point.position);
        if posting.matches && transaction < known {
            let id: [u8; ID] = self.log.read_array(blobs, posting.id).map_err(|error| corrupt(number, error))?;
            let (block_hash, id) = (posting.block_hash.to_bytes(), ByteBuf::from(id));
            transactions.push(KeyTransaction { block_number: number, block_hash, position: transaction, id });
        }
        // After another key with the same hash, this transaction may still have the wanted key.
        let position = if posting.matches { transaction } else { transaction + 1 };
        *point = Some(Point { number, transaction, key, position: position.min(known) });
        Ok(posting.previous)
    }

    /// Returns whether a list ends before this posting: there is no posting, or its block was removed.
    fn is_end(&self, posting: u64) -> bool {
        posting == NONE || self.index_position(posting).is_none_or(|(number, _)| number < self.state.oldest)
    }

    /// Reads a posting. `None` if it is not of this hash, because the entry or link that named it outlived a damaged block.
    #[inline(always)]
    fn posting(&self, blobs: &BlobStore, posting: u64, wanted: &Wanted) -> Result<Option<Posting>, KeyError> {
        let Some((number, key)) = self.reachable(posting) else { return Ok(None) };
        let (meta, block_hash) = self.headers.peek(number).ok_or_else(|| corrupt(number, "its header is damaged"))?;
        if key >= meta.keys {
            return Ok(None);
        }
        let link = self.log.read_array(blobs, meta.payload_end() + u64::from(key) * LINK as u64);
        let (previous, at) = split_link(&link.map_err(|error| corrupt(number, error))?);
        let segment = meta.segment_start(Segment::Index);
        let start = segment + u64::from(at);
        let read = |length: usize| {
            let end = (start + (KEY_HEADER + length) as u64).min(meta.payload_end());
            let mut bytes = Vec::with_capacity(KEY_HEADER + usize::from(MAX_KEY));
            let read = self.log.read_onto(blobs, &mut bytes, start..end.max(start));
            read.map(|()| bytes).map_err(|error| corrupt(number, error))
        };
        // Nearly always the posting's key is the wanted one, so read a key of that length first.
        let mut bytes = read(wanted.key.len())?;
        let header = bytes.first_chunk().ok_or_else(|| corrupt(number, "a link of a key does not lead to a key"))?;
        let (transaction, length) = split_key_header(header);
        let length = usize::from(length);
        if length != wanted.key.len() {
            bytes = read(length.min(usize::from(MAX_KEY)))?;
        }
        if bytes.len() != KEY_HEADER + length || transaction >= meta.transactions {
            return Err(corrupt(number, "a link of a key does not lead to a key"));
        }
        let found = &bytes[KEY_HEADER..];
        let matches = same_bytes(found, wanted.key);
        if !matches && self.key_hash(found) != wanted.hash {
            return Ok(None);
        }
        let id = segment + id_offset(transaction);
        Ok(Some(Posting { number, block_hash, key, transaction, id, matches, previous }))
    }

    /// The next posting after a cursor, and the position of the walk there.
    fn resume(&self, blobs: &BlobStore, cursor: &KeyCursor, wanted: &Wanted) -> Result<(u64, Option<Point>), KeyError> {
        let KeyCursor { block_number: number, key, position, newest, .. } = *cursor;
        let rollbacks = self.rollbacks.count();
        if let Some(first_available) = self.reset_since(cursor.rollbacks) {
            return Err(KeyError::Reset { first_available });
        }
        if let Some(common) = self.rollbacks.lowest_since(cursor.rollbacks).filter(|&common| common < newest) {
            let kept = (number <= common).then(|| KeyCursor { newest: common, rollbacks, ..cursor.clone() });
            return Err(KeyError::Reorged { common_ancestor: common, cursor: kept });
        }
        // Single replicas answer queries, and a replica may lag by a block or a reorg.
        if cursor.rollbacks > rollbacks || !self.state.started || number >= self.state.next {
            return Err(KeyError::Behind { head: self.state.head() });
        }
        if number < self.state.oldest {
            return Ok((NONE, None));
        }
        let bad = |why: String| Err(KeyError::BadCursor { why });
        let value = (u64::from(key) < MAX_ENTRIES).then(|| self.index_value(number, key));
        let posting = value.map_or(Ok(None), |value| self.posting(blobs, value, wanted))?;
        let Some(Posting { block_hash, transaction, previous, .. }) = posting else {
            return bad(format!("key {key} of block {number} is not the key that is looked up"));
        };
        if block_hash.as_slice() != cursor.block_hash.as_slice() {
            return bad(format!("block {number} with this hash was never part of this chain"));
        }
        Ok((previous, Some(Point { number, transaction, key, position })))
    }
}
