//! Leaves of radix trees that were found last, on the heap: most keys are heights near the last one, and finding a leaf checks two nodes.

use super::SlotId;
use std::cell::Cell;

/// Number of remembered leaves, a power of two.
const LEAVES: u32 = 8;

/// A leaf that was found.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    /// The tree; 0 for none.
    root: SlotId,
    /// The key's digits above those of the leaf.
    above: u32,
    node: SlotId,
}

/// Leaves by tree and digits. All are forgotten when any node is freed, and when nodes may have been freed by an undo.
#[derive(Default)]
pub struct Leaves([Cell<Leaf>; LEAVES as usize]);

impl Leaves {
    #[inline(always)]
    fn at(&self, root: SlotId, above: u32) -> &Cell<Leaf> {
        &self.0[(root.wrapping_add(above) % LEAVES) as usize]
    }

    /// Returns the leaf of a tree that is not empty, if it is remembered.
    #[inline(always)]
    pub fn get(&self, root: SlotId, above: u32) -> Option<SlotId> {
        let leaf = self.at(root, above).get();
        (leaf.root == root && leaf.above == above).then_some(leaf.node)
    }

    /// Remembers a leaf.
    pub fn set(&self, root: SlotId, above: u32, node: SlotId) {
        self.at(root, above).set(Leaf { root, above, node });
    }

    /// Forgets all leaves.
    pub fn forget(&self) {
        self.0.iter().for_each(|leaf| leaf.set(Leaf::default()));
    }
}
