//! Slots by a 32-bit key: a tree from the keys that occur to a ring of the slots that have it, in the order in which they
//! came, linked through 12 bytes that each of them keeps for it.
//!
//! ```text
//! link: key u32 ‖ previous u32 ‖ next u32       of the first the last before it, and of the last the first behind it
//! ```
//! Entering and leaving touches the slot, its neighbours and the tree's leaf: the cost does not depend on how many there are.

use super::tree;
use super::{SlotId, Slots};

/// A slot's place in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The key.
    pub key: u32,
    /// The slot before it under this key; of the first, the last.
    pub previous: SlotId,
    /// The slot behind it; of the last, the first. 0: the slot is not in the index.
    pub next: SlotId,
}

impl Link {
    /// Its bytes.
    pub fn encode(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.previous.to_le_bytes());
        bytes[8..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }

    /// From its bytes.
    pub fn decode(bytes: &[u8; 12]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { key: word(0), previous: word(4), next: word(8) }
    }

    /// The key, where the slot is in the index.
    #[inline]
    pub fn key(self) -> Option<u32> {
        (self.next != 0).then_some(self.key)
    }
}

/// An index: what its owner persists of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// From the keys to the first slot of each.
    pub tree: tree::Root,
    /// Slots that are in the index.
    pub count: u64,
}

/// Reads a slot's link.
#[inline]
pub fn link(slots: &Slots, slot: SlotId, at: u32) -> Link {
    slots.read_with(slot, at, Link::decode)
}

fn write_link(slots: &mut Slots, slot: SlotId, at: u32, link: Link) {
    slots.write(slot, at, &link.encode());
}

impl Rings {
    /// Enters a slot, which keeps its link `at` bytes from its start, under a key. Memory for
    /// [`MOST_NODES`](tree::MOST_NODES) nodes is reserved.
    pub fn enter(&mut self, slots: &mut Slots, at: u32, slot: SlotId, key: u32) {
        let first = tree::get(slots, self.tree, key);
        if first == 0 {
            write_link(slots, slot, at, Link { key, previous: slot, next: slot });
            if let Err(error) = tree::insert(slots, &mut self.tree, key, slot) {
                crate::platform::trap(&format!("ordered index: memory was not reserved: {error:?}"));
            }
        } else {
            let last = slots.read_u32(first, at + 4);
            write_link(slots, slot, at, Link { key, previous: last, next: first });
            slots.write_u32(last, at + 8, slot);
            slots.write_u32(first, at + 4, slot);
        }
        self.count += 1;
    }

    /// Takes a slot out whose link is `link`. The link itself stays as it is unless it is cleared.
    pub fn leave(&mut self, slots: &mut Slots, at: u32, slot: SlotId, link: Link, clear: bool) {
        if link.next == slot {
            tree::remove(slots, &mut self.tree, link.key);
        } else {
            slots.write_u32(link.previous, at + 8, link.next);
            slots.write_u32(link.next, at + 4, link.previous);
            if tree::get(slots, self.tree, link.key) == slot {
                tree::replace(slots, self.tree, link.key, link.next);
            }
        }
        if clear {
            write_link(slots, slot, at, Link::default());
        }
        self.count -= 1;
    }

    /// The smallest key that is `from` or greater, with its first slot.
    #[inline]
    pub fn next(&self, slots: &Slots, from: u32) -> Option<(u32, SlotId)> {
        tree::next(slots, self.tree, from)
    }

    /// The slots under a key, in the order in which they came.
    pub fn under<'a>(&self, slots: &'a Slots, at: u32, key: u32) -> impl Iterator<Item = SlotId> + use<'a> {
        let first = tree::get(slots, self.tree, key);
        let mut next = first;
        std::iter::from_fn(move || {
            let slot = next;
            if slot == 0 {
                return None;
            }
            next = link(slots, slot, at).next;
            if next == first {
                next = 0;
            }
            Some(slot)
        })
    }
}
