//! Hash buckets of slots, by a 32-bit key that few slots share. A radix tree leads from each used key to its first slot; the other
//! slots of the key follow in the order of insertion, linked through 4 bytes in each slot.
//!
//! ```text
//! link: the next slot u32, 0 at the end
//! ```
//! Inserting or removing a slot writes one word: the link of the previous slot, or a word of the tree. If slots are removed oldest first,
//! they are removed from the front, where the words of many keys share a page.

use super::radix::{self, Root};
use super::{SlotId, Slots};
use crate::Platform;

/// Returns the slots under a key, in the order of insertion. `at` is the offset of the link in a slot.
pub fn under(slots: &Slots<impl Platform>, root: Root, at: u32, key: u32) -> impl Iterator<Item = SlotId> {
    slots.chain(radix::get(slots, root, key), at)
}

/// Inserts a slot after the other slots of its key. Memory for [`MOST_NODES`](radix::MOST_NODES) nodes must be reserved.
pub fn enter(slots: &mut Slots<impl Platform>, root: &mut Root, at: u32, slot: SlotId, key: u32) {
    slots.write_u32(slot, at, 0);
    match under(slots, *root, at, key).last() {
        Some(last) => slots.write_u32(last, at, slot),
        None => radix::insert(slots, root, key, slot),
    }
}

/// Removes a slot from the slots of its key.
pub fn leave(slots: &mut Slots<impl Platform>, root: &mut Root, at: u32, slot: SlotId, key: u32) {
    let next = slots.read_u32(slot, at);
    let first = radix::get(slots, *root, key);
    if first != slot {
        let before = under(slots, *root, at, key).find(|before| slots.read_u32(*before, at) == slot);
        let before = before.unwrap_or_else(|| slots.broken("slot", slot, "is not in the bucket of its key"));
        slots.write_u32(before, at, next);
    } else if next == 0 {
        radix::remove(slots, root, key);
    } else {
        radix::replace(slots, *root, key, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compared with lists by key: the order is that of insertion, and no node is left when all slots are removed.
        #[test]
        fn agrees_with_a_model(steps in prop::collection::vec((0u32..6, prop::option::of(0usize..4)), 1..80)) {
            crate::twin::reset();
            testing::forget();
            let mut slots = testing::slots();
            let (mut root, mut model) = (0, BTreeMap::<u32, Vec<SlotId>>::new());
            for (key, leaves) in steps {
                let key = key << 20 | key;
                let all = model.entry(key).or_default();
                match leaves {
                    Some(which) if which < all.len() => {
                        let slot = all.remove(which);
                        leave(&mut slots, &mut root, 4, slot, key);
                        slots.free(slot);
                    }
                    _ => {
                        let slot = slots.allocate(8).unwrap();
                        enter(&mut slots, &mut root, 4, slot, key);
                        all.push(slot);
                    }
                }
                for (key, all) in &model {
                    prop_assert_eq!(&under(&slots, root, 4, *key).collect::<Vec<_>>(), all);
                }
            }
            for (key, all) in model {
                for slot in all.into_iter().rev() {
                    leave(&mut slots, &mut root, 4, slot, key);
                    slots.free(slot);
                }
            }
            prop_assert_eq!((root, slots.stats().used_bytes), (0, 0));
        }
    }
}
