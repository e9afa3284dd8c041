//! Mechanism: what can be pruned, one piece at a time.

use super::piece::Piece;
use crate::chain::{ChainStore, Removal, Removed};
use crate::storage::blob::BlobStore;

/// What one piece of pruning did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Blobs that became free.
    pub blobs: u64,
    /// Payload bytes that went.
    pub bytes: u64,
    /// What could not be read and was skipped.
    pub faults: Vec<String>,
}

/// A kind of data that the pipeline prunes in whole pieces, oldest first. The checkpoint of a piece is committed with it.
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
    /// What traps.
    pub set_aside: &'a [Piece],
}

impl PruneSegment for Blocks<'_> {
    fn pieces(&self, before: u64) -> impl Iterator<Item = Removal> {
        self.chain.removals(before)
    }

    fn prune_next(&mut self) -> Pruned {
        let traps = self.set_aside.contains(&Piece::Block(self.chain.state().oldest));
        let removed = if traps { self.chain.skip_oldest(self.blobs) } else { self.chain.remove_oldest(self.blobs) }
            .unwrap_or_default();
        let Removed { blobs, bytes, faults, .. } = removed;
        Pruned { blobs, bytes, faults }
    }
}
