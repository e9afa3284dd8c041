//! Slots by a 32-bit key that few of them share, as a hash: a tree from the keys that occur to the first slot of each, from which
//! the others follow in the order in which they came, linked through 4 bytes that each slot keeps for it.
//!
//! ```text
//! link: the slot behind it u32, 0 at the end
//! ```
//! Entering and leaving writes one word: the link of the slot before, or the tree's. What goes oldest first goes from the front, where
//! the words of many keys share a page.

use super::tree::{self, Root};
use super::{SlotId, Slots};

/// The slots under a key, in the order in which they came. `at`: where each has its link.
pub fn under(slots: &Slots, root: Root, at: u32, key: u32) -> impl Iterator<Item = SlotId> + use<'_> {
    let mut next = tree::get(slots, root, key);
    std::iter::from_fn(move || {
        let slot = next;
        if slot == 0 || !slots.contains(slot) {
            return None;
        }
        next = slots.read_u32(slot, at);
        Some(slot)
    })
}

/// Enters a slot behind those of its key. Memory for [`MOST_NODES`](tree::MOST_NODES) nodes is reserved.
pub fn enter(slots: &mut Slots, root: &mut Root, at: u32, slot: SlotId, key: u32) {
    slots.write_u32(slot, at, 0);
    let last = under(slots, *root, at, key).last();
    match last {
        Some(last) => slots.write_u32(last, at, slot),
        None => tree::insert(slots, root, key, slot)
            .unwrap_or_else(|error| crate::platform::trap(&format!("a chain: memory was not reserved: {error:?}"))),
    }
}

/// Takes a slot out that is there.
pub fn leave(slots: &mut Slots, root: &mut Root, at: u32, slot: SlotId, key: u32) {
    let next = slots.read_u32(slot, at);
    let first = tree::get(slots, *root, key);
    if first != slot {
        let before = under(slots, *root, at, key).find(|before| slots.read_u32(*before, at) == slot);
        match before {
            Some(before) => slots.write_u32(before, at, next),
            None => crate::platform::trap(&format!("slot {slot} is not in the chain of key {key}")),
        }
    } else if next == 0 {
        tree::remove(slots, root, key);
    } else {
        tree::replace(slots, *root, key, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::storage::memory::{self, UTXO_SLOTS};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against lists by key: each in the order in which they came, and no node is left when all are gone.
        #[test]
        fn agrees_with_a_model(steps in prop::collection::vec((0u32..6, prop::option::of(0usize..4)), 1..80)) {
            native::reset();
            memory::forget();
            let mut slots = Slots::open(memory::region(UTXO_SLOTS)).unwrap();
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
