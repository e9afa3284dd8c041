//! Blocks, chains and damage for the tests of all crates.

pub mod pruning;

use crate::{ChainStore, Removed};
pub use coppice_model::blocks::{id, with_keys};
use ic_coppice_interface::AppendBlock;
use ic_coppice_interface::segments::{encode_index, encode_receipts};
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::table::TableStats;
use ic_coppice_storage::testing::{self, arena, cells, hash_key};
use serde_bytes::ByteBuf;
use std::ops::Range;

/// The hash of block `number` on fork `fork`.
pub fn hash(number: u64, fork: u8) -> [u8; 32] {
    let mut bytes = id(number ^ 0xB10C);
    bytes[0] = fork;
    bytes
}

/// A well-formed block with these ids and a body of `body` bytes.
pub fn block(number: u64, ids: &[[u8; 32]], body: usize) -> AppendBlock {
    let receipts: Vec<[u8; 5]> = (0..ids.len()).map(|i| [i as u8; 5]).collect();
    let period: Vec<u8> = (0..256).map(|i: u64| i.wrapping_mul(number + 31) as u8).collect();
    let mut bytes = period.repeat(body.div_ceil(256));
    bytes.truncate(body);
    let block = AppendBlock {
        number,
        hash: hash(number, 0).into(),
        parent_hash: hash(number.wrapping_sub(1), 0).into(),
        timestamp_secs: 1_600_000_000 + number,
        body: ByteBuf::from(bytes),
        receipts: ByteBuf::from(encode_receipts(&receipts).unwrap()),
        index: ByteBuf::from(encode_index(ids.iter().copied(), [].into_iter()).unwrap()),
        ..AppendBlock::default()
    };
    block.sealed()
}

/// An empty chain over blobs of `log_class` bytes.
pub fn fresh(log_class: u32) -> (ChainStore, BlobStore) {
    testing::fresh();
    reopen(log_class)
}

/// The chain in memory, reopened as after an upgrade.
pub fn reopen(log_class: u32) -> (ChainStore, BlobStore) {
    testing::reopen();
    let class = Class::of_size(log_class).unwrap();
    arena().set_log_class(class);
    (ChainStore::open(&arena(), cells(), class, hash_key()).unwrap(), BlobStore::open(arena()))
}

impl ChainStore {
    /// Statistics of the transaction index: one entry for each different id, plus stale entries that a sweep has not dropped yet.
    pub fn index_stats(&self) -> TableStats {
        self.index.stats()
    }

    /// Statistics of the key index: one entry for each different key, plus stale entries that a sweep has not dropped yet.
    pub fn key_stats(&self) -> TableStats {
        self.keys.stats()
    }

    /// Points the log's blob `blob` to a location that was never allocated.
    pub fn poison_log(&mut self, blob: u64) {
        self.log.poison(blob);
    }

    /// Makes the entry of the log's blob `blob` undecodable, as damage would.
    pub fn poison_blob(&self, blobs: &BlobStore, blob: u64) {
        if let Some(ptr) = self.log.ptr(blob).filter(|_| self.log.is_used(blobs, blob)) {
            blobs.poison(&ptr);
        }
    }

    /// The blobs of the log, including those of an open upload.
    pub fn log_blobs(&self) -> Range<u64> {
        let end = self.open.as_ref().map_or(self.state.log_end, |upload| self.upload_blobs(upload).end);
        self.state.log_first..end
    }

    /// The blob in which the log ends.
    pub fn tail_blob(&self) -> u64 {
        self.log.blob_of(self.state.log_tail)
    }

    /// The blobs that a block occupies according to its header.
    pub fn blobs_of(&self, number: u64) -> Option<Range<u64>> {
        let meta = self.headers.meta(number)?;
        Some(self.log.blob_of(meta.log_offset)..self.log.blobs_end(meta.log_end()))
    }

    /// Changes the payload's start in a block's header, as damage would.
    pub fn misplace_header(&self, number: u64, log_offset: u64) {
        self.headers.poison(number, 16, &log_offset.to_le_bytes());
    }

    /// Overwrites the mark and the number in a block's header, as damage would.
    pub fn poison_header(&self, number: u64) {
        self.headers.poison(number, 0, &[0xEE; 16]);
    }

    /// Removes the oldest block, or returns `None` if there are fewer than two blocks.
    pub fn remove_oldest(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        let removal = self.removals(u64::MAX).next(self)?;
        Some(self.remove(blobs, removal))
    }
}

/// Outcome of removing the head in one go.
#[cfg(test)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadOut {
    /// The block's number.
    pub number: u64,
    /// Index entries that were removed.
    pub entries: u64,
    /// Unreadable data that was skipped.
    pub faults: Vec<String>,
}

#[cfg(test)]
impl ChainStore {
    /// Removes the head in one go, or returns `None` if there are fewer than two blocks.
    pub(crate) fn remove_head(&mut self, blobs: &mut BlobStore) -> Option<HeadOut> {
        if !self.state.started || self.state.blocks() <= 1 {
            return None;
        }
        let entries = |chain: &Self| chain.index.stats().entries + chain.keys.stats().entries;
        let (before, mut out) = (entries(self), HeadOut::default());
        self.begin_rollback(self.state.next - 2);
        while let Some(left) = self.rollback_left() {
            out.faults.extend(self.continue_rollback(blobs, left.ops, ic_coppice_storage::Meter::unlimited()).faults);
        }
        (out.number, out.entries) = (self.state.next, before - entries(self));
        Some(out)
    }
}
