//! Rings of slots, by a 32-bit key. A radix tree leads from each used key to a ring of the key's slots in the order of
//! insertion, linked through 12 bytes in each slot.
//!
//! ```text
//! link: key u32 ‖ previous u32 ‖ next u32       the last slot comes before the first, and the first after the last
//! ```
//! Inserting and removing touches the slot, its neighbours and the tree's leaf: the cost does not depend on the number of slots.

use super::{SlotId, Slots, radix};
use crate::Platform;
use crate::bytes::u32_at;

/// Position of a slot in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The key.
    pub key: u32,
    /// The previous slot of this key; for the first slot, the last one.
    pub previous: SlotId,
    /// The next slot of this key; for the last slot, the first one. 0 if the slot is not in the index.
    pub next: SlotId,
}

impl Link {
    /// Returns the link's bytes.
    pub fn encode(self) -> [[u8; 4]; 3] {
        [self.key, self.previous, self.next].map(u32::to_le_bytes)
    }

    /// Decodes a link.
    pub fn decode(bytes: &[u8; 12]) -> Self {
        Self { key: u32_at(bytes, 0), previous: u32_at(bytes, 4), next: u32_at(bytes, 8) }
    }

    /// Returns the key if the slot is in the index.
    #[inline]
    pub fn key(self) -> Option<u32> {
        (self.next != 0).then_some(self.key)
    }
}

/// The persisted part of an index; its owner stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Radix tree from each key to its first slot.
    pub tree: radix::Root,
    /// Number of slots in the index.
    pub count: u64,
}

/// Reads a slot's link.
#[inline]
pub fn link(slots: &Slots<impl Platform>, slot: SlotId, at: u32) -> Link {
    slots.read_with(slot, at, Link::decode)
}

/// Returns whether the neighbours of a link are slots.
#[inline]
pub fn is_linked(slots: &Slots<impl Platform>, link: Link) -> bool {
    slots.contains(link.previous) && slots.contains(link.next)
}

impl Rings {
    /// Inserts a slot under a key; the slot's link is `at` bytes from its start. Memory for [`MOST_NODES`](radix::MOST_NODES) nodes must be
    /// reserved.
    pub fn enter(&mut self, slots: &mut Slots<impl Platform>, at: u32, slot: SlotId, key: u32) {
        let first = radix::get(slots, self.tree, key);
        if first == 0 {
            slots.write(slot, at, Link { key, previous: slot, next: slot }.encode().as_flattened());
            radix::insert(slots, &mut self.tree, key, slot);
        } else {
            let last = slots.check(slots.read_u32(slots.check(first), at + 4));
            slots.write(slot, at, Link { key, previous: last, next: first }.encode().as_flattened());
            slots.write_u32(last, at + 8, slot);
            slots.write_u32(first, at + 4, slot);
        }
        self.count += 1;
    }

    /// Removes a slot whose link is `link`. Overwrites the link with zeros if `clear`.
    pub fn leave(&mut self, slots: &mut Slots<impl Platform>, at: u32, slot: SlotId, link: Link, clear: bool) {
        if link.next == slot {
            radix::remove(slots, &mut self.tree, link.key);
        } else {
            let [previous, next] = [link.previous, link.next].map(|link| slots.check(link));
            slots.write_u32(previous, at + 8, next);
            slots.write_u32(next, at + 4, previous);
            if radix::get(slots, self.tree, link.key) == slot {
                radix::replace(slots, self.tree, link.key, link.next);
            }
        }
        if clear {
            slots.write(slot, at, Link::default().encode().as_flattened());
        }
        self.count -= 1;
    }

    /// Returns the slots under a key, in the order of insertion.
    pub fn under(self, slots: &Slots<impl Platform>, at: u32, key: u32) -> impl Iterator<Item = SlotId> {
        slots.chain(radix::get(slots, self.tree, key), at + 8)
    }
}
