//! Mechanism: what can be pruned, one piece at a time.

use crate::blob::BlobStore;
use crate::chain::{ChainStore, Removal, Removed};

/// What one piece of pruning did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Blobs that became free.
    pub blobs: u64,
    /// Payload bytes that went.
    pub bytes: u64,
    /// What could not be read and was skipped.
    pub faults: Vec<String>,
    /// Only a part of it went, as a message may dirty no more pages: the rest goes in the next one, before anything else.
    pub has_more: bool,
}

/// A kind of data that the pipeline prunes in whole pieces, oldest first. A piece is split over messages only where one
/// would dirty too many pages, and its checkpoint is committed with it.
pub trait PruneSegment {
    /// What the pieces below `before` would cost, oldest first.
    fn pieces(&self, before: u64) -> impl Iterator<Item = Removal>;

    /// Prunes the first of them.
    fn prune_next(&mut self) -> Pruned;
}

/// Blocks, with their receipts and their index.
pub struct Blocks<'a> {
    /// Where the blocks are.
    pub chain: &'a mut ChainStore,
    /// Where their payload is.
    pub blobs: &'a mut BlobStore,
}

impl PruneSegment for Blocks<'_> {
    fn pieces(&self, before: u64) -> impl Iterator<Item = Removal> {
        self.chain.removals(before)
    }

    fn prune_next(&mut self) -> Pruned {
        let removed = self.chain.remove_oldest(self.blobs).unwrap_or_default();
        let Removed { blobs, bytes, faults, has_more, .. } = removed;
        Pruned { blobs, bytes, faults, has_more }
    }
}
