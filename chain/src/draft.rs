//! A new block that is not yet part of the chain, and the conditions under which it is admitted.

use super::hash::{Hash, MAX_HASH};
use super::header::StoredHeader;
use ic_coppice_interface::segments::{BadSegment, Index, MAX_BLOCK, MAX_ENTRIES, MAX_KEY, MAX_NUMBER, Segment};
use ic_coppice_interface::{AppendError, BlockField, BySegment, HeldBy};
use serde_bytes::ByteBuf;

/// Bytes of the largest index segment: every entry is a key of maximum length.
const MAX_INDEX: u64 = 8 + MAX_ENTRIES * (6 + MAX_KEY as u64);

/// The canister's settings and state that decide on appends; the canister's `State::admission` builds it for each message.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Seconds without a call after which an upload is aborted.
    pub upload_expiry_secs: u64,
    /// Check each segment against its SHA-256 (77 instructions a byte).
    pub verify_segments: bool,
    /// Liquid cycles missing below `feed_min_liquid_cycles`.
    pub missing_cycles: Option<u128>,
    /// Set if kept bytes have reached the emergency mark: the reason that holds pruning back.
    pub exhausted: Option<HeldBy>,
}

/// All checks are off, for tests and benches.
#[cfg(any(test, feature = "bench", feature = "testing"))]
impl Default for Admission {
    fn default() -> Self {
        Self { upload_expiry_secs: u64::MAX, verify_segments: false, missing_cycles: None, exhausted: None }
    }
}

/// A new block without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    pub number: u64,
    pub hash: Hash,
    pub parent: Hash,
    pub timestamp_secs: u64,
    pub lengths: [u32; 3],
    pub sha256: [[u8; 32]; 3],
}

pub(crate) fn too_large(what: impl Into<String>, limit: u64) -> AppendError {
    AppendError::TooLarge { what: what.into(), limit }
}

/// Returns the refusal of a block because of a whole segment.
pub(super) fn bad(segment: Segment, why: impl Into<String>) -> AppendError {
    BadSegment { segment, at: 0, why: why.into() }.into()
}

/// Checks that a number of a new block is at most `limit`.
pub(super) fn at_most(limit: u64, what: &str, number: u64) -> Result<(), AppendError> {
    if number > limit { Err(too_large(what, limit)) } else { Ok(()) }
}

impl Draft {
    /// Checks everything that needs neither the chain nor the payload.
    pub fn new(
        number: u64,
        hashes: (&[u8], &[u8]),
        timestamp_secs: u64,
        lengths: [u64; 3],
        sha256: &BySegment<ByteBuf>,
    ) -> Result<Self, AppendError> {
        at_most(MAX_NUMBER, "number", number)?;
        let hash_of = |name: &str, bytes: &[u8]| Hash::new(bytes).ok_or_else(|| too_large(name, MAX_HASH as u64));
        let (hash, parent) = (hash_of("hash", hashes.0)?, hash_of("parent_hash", hashes.1)?);
        if hashes.0.is_empty() {
            return Err(bad(Segment::Body, "the block's hash is empty"));
        }
        let digest = |segment: Segment| {
            let bytes = &sha256[segment.index()];
            let why = || format!("its sha256 has {} bytes, not 32", bytes.len());
            <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| bad(segment, why()))
        };
        let sha256 = [digest(Segment::Body)?, digest(Segment::Receipts)?, digest(Segment::Index)?];
        at_most(MAX_BLOCK, "block", BySegment::from(lengths).sum())?;
        at_most(MAX_INDEX, "index", lengths[Segment::Index.index()])?;
        Ok(Self { number, hash, parent, timestamp_secs, lengths: lengths.map(|len| len as u32), sha256 })
    }

    pub fn payload_len(&self) -> u64 {
        self.lengths.iter().map(|&len| u64::from(len)).sum()
    }

    /// Returns the fields in which the block differs from a kept one, whose parent may be unknown. Declared digests are compared, not bytes.
    pub fn differences(&self, kept: &StoredHeader, parent: Option<Hash>) -> Vec<BlockField> {
        let segment = |at: usize| (self.lengths[at], self.sha256[at]) != (kept.meta.lengths[at], kept.sha256[at]);
        let all = [
            (BlockField::Hash, self.hash != kept.hash),
            (BlockField::ParentHash, parent.is_some_and(|parent| self.parent != parent)),
            (BlockField::Timestamp, self.timestamp_secs != kept.meta.timestamp_secs),
            (BlockField::Body, segment(Segment::Body.index())),
            (BlockField::Receipts, segment(Segment::Receipts.index())),
            (BlockField::Index, segment(Segment::Index.index())),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }

    /// Checks a segment's digest against the declared one.
    pub fn verify(&self, segment: Segment, digest: [u8; 32]) -> Result<(), AppendError> {
        if digest == self.sha256[segment.index()] {
            return Ok(());
        }
        Err(bad(segment, "the bytes do not match the declared sha256"))
    }

    /// Checks the number of the block's index entries.
    pub fn check_entries(&self, index: &Index) -> Result<(), AppendError> {
        at_most(MAX_ENTRIES, "transactions + keys", index.references())
    }
}
