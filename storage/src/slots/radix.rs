//! Ordered map from 32-bit keys to slots: a radix tree whose nodes are slots.
//!
//! Four levels of 256 children: finding a key reads four words, at any number of keys. A bitmap in each node shows which children exist. A
//! node without children is freed. Bit and word of a child nearly always lie on the same page of 4 KiB, and the nodes that a new key needs
//! lie side by side.
//!
//! ```text
//! node, 1,056 bytes: ┌─ bitmap: 256 bits ─┬─ 256 × child u32 (a node, or on the last level the value) ─┐
//! ```

use super::{SlotId, Slots};
use crate::Platform;

const FAN: u32 = 256;
const BITS: u32 = 8;
const LEVELS: u32 = 4;
const LAST: u32 = LEVELS - 1;
const BITMAP: usize = FAN as usize / 8;
/// Bytes of a node.
pub const NODE: u32 = BITMAP as u32 + 4 * FAN;
/// Maximum number of nodes that inserting a key needs.
pub const MOST_NODES: u64 = LEVELS as u64;

/// The tree's first node, or 0 for an empty tree. The owner persists it.
pub type Root = SlotId;

/// Returns the number of the child that leads to a key.
const fn digit(key: u32, level: u32) -> u32 {
    key >> (BITS * (LAST - level)) & (FAN - 1)
}

const fn child_at(child: u32) -> u32 {
    BITMAP as u32 + 4 * child
}

fn has(slots: &Slots<impl Platform>, node: SlotId, child: u32) -> bool {
    let [byte] = slots.read(node, child / 8);
    byte & 1 << (child % 8) != 0
}

/// Returns the first child of a node that is `from` or later.
fn first_from(slots: &Slots<impl Platform>, node: SlotId, from: u32) -> Option<u32> {
    if from >= FAN {
        return None;
    }
    slots.read_with(node, 0, |bitmap: &[u8; BITMAP]| {
        let words = bitmap.as_chunks::<8>().0;
        let first = (from / 64) as usize;
        (first..words.len()).find_map(|at| {
            let mut word = u64::from_le_bytes(words[at]);
            if at == first {
                word &= u64::MAX << (from % 64);
            }
            (word != 0).then(|| at as u32 * 64 + word.trailing_zeros())
        })
    })
}

fn set_bit(slots: &mut Slots<impl Platform>, node: SlotId, child: u32) {
    let [byte] = slots.read(node, child / 8);
    slots.write(node, child / 8, &[byte | 1 << (child % 8)]);
}

fn new_node(slots: &mut Slots<impl Platform>) -> SlotId {
    let node = slots.allocate(NODE);
    let node = node.unwrap_or_else(|why| slots.broken("ordered index: a node of", NODE, &format!("bytes: {why}")));
    slots.write(node, 0, &[0; BITMAP]);
    node
}

/// Returns the leaf of a key in a tree that is not empty, or 0 for none.
#[inline]
fn leaf_at(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    slots.leaves.get(root, key >> BITS).unwrap_or_else(|| find_leaf(slots, root, key))
}

#[inline(never)]
fn find_leaf(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    let (node, missing) = deepest(slots, root, key);
    if missing > 0 {
        return 0;
    }
    slots.leaves.set(root, key >> BITS, node);
    node
}

/// Returns the deepest node on the way to the leaf of a key, and the number of nodes that are missing below it.
fn deepest(slots: &Slots<impl Platform>, root: Root, key: u32) -> (SlotId, u32) {
    let mut node = slots.check(root);
    for level in 0..LAST {
        let child = digit(key, level);
        if !has(slots, node, child) {
            return (node, LAST - level);
        }
        node = slots.check(slots.read_u32(node, child_at(child)));
    }
    (node, 0)
}

/// Returns the node that has a key's value, or `None` if the key is absent.
#[inline]
fn leaf(slots: &Slots<impl Platform>, root: Root, key: u32) -> Option<SlotId> {
    if root == 0 {
        return None;
    }
    let node = leaf_at(slots, root, key);
    (node != 0 && has(slots, node, digit(key, LAST))).then_some(node)
}

/// Returns the number of nodes that inserting a key would create.
pub fn missing_nodes(slots: &Slots<impl Platform>, root: Root, key: u32) -> u32 {
    if root == 0 { MOST_NODES as u32 } else { deepest(slots, root, key).1 }
}

/// Returns the value of a key, or 0 if the key is absent.
#[inline]
pub fn get(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    leaf(slots, root, key).map_or(0, |leaf| slots.read_u32(leaf, child_at(digit(key, LAST))))
}

/// Replaces the value of an existing key.
pub fn replace(slots: &mut Slots<impl Platform>, root: Root, key: u32, value: SlotId) {
    let leaf = leaf(slots, root, key).unwrap_or_else(|| slots.broken("ordered index: key", key, "is missing"));
    slots.write_u32(leaf, child_at(digit(key, LAST)), value);
}

/// Inserts an absent key, with a value other than 0. Traps if memory for [`MOST_NODES`] nodes was not reserved.
pub fn insert(slots: &mut Slots<impl Platform>, root: &mut Root, key: u32, value: SlotId) {
    if *root == 0 {
        *root = new_node(slots);
    }
    let known = slots.leaves.get(*root, key >> BITS);
    let node = known.unwrap_or_else(|| make_leaf(slots, *root, key));
    slots.write_u32(node, child_at(digit(key, LAST)), value);
    set_bit(slots, node, digit(key, LAST));
}

/// Returns the leaf of a key, and makes the nodes that are missing.
fn make_leaf(slots: &mut Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    let (mut node, missing) = deepest(slots, root, key);
    for level in LAST - missing..LAST {
        let new = new_node(slots);
        slots.write_u32(node, child_at(digit(key, level)), new);
        set_bit(slots, node, digit(key, level));
        node = new;
    }
    node
}

/// Clears the bit of a child, and returns whether the node has other children. A node without children is not written: the caller frees it.
fn clear_bit(slots: &mut Slots<impl Platform>, node: SlotId, child: u32) -> bool {
    let (left, byte) = slots.read_with(node, 0, |bitmap: &[u8; BITMAP]| {
        let word = |at: usize| u64::from_le_bytes(bitmap.as_chunks::<8>().0[at]);
        let bit = |at: usize| if at as u32 == child / 64 { 1 << (child % 64) } else { 0 };
        let left = (0..BITMAP / 8).fold(0, |left, at| left | word(at) & !bit(at));
        (left != 0, bitmap[child as usize / 8])
    });
    if left {
        slots.write(node, child / 8, &[byte & !(1 << (child % 8))]);
    }
    left
}

/// Removes an existing key, and each node that has no other key.
pub fn remove(slots: &mut Slots<impl Platform>, root: &mut Root, key: u32) {
    let leaf = leaf_at(slots, *root, key);
    if leaf == 0 {
        slots.broken("ordered index: key", key, "is missing");
    }
    if !clear_bit(slots, leaf, digit(key, LAST)) {
        remove_leaf(slots, root, key, leaf);
    }
}

/// Removes a leaf without keys, and each node above that has no other child.
#[inline(never)]
fn remove_leaf(slots: &mut Slots<impl Platform>, root: &mut Root, key: u32, leaf: SlotId) {
    let mut path = [slots.check(*root); LAST as usize];
    for level in 1..LAST {
        let below = slots.read_u32(path[level as usize - 1], child_at(digit(key, level - 1)));
        path[level as usize] = slots.check(below);
    }
    slots.leaves.forget();
    slots.free(leaf);
    for level in (0..LAST).rev() {
        let node = path[level as usize];
        if clear_bit(slots, node, digit(key, level)) {
            return;
        }
        slots.free(node);
    }
    *root = 0;
}

/// Returns the smallest key that is `from` or greater, with its value.
pub fn next(slots: &Slots<impl Platform>, root: Root, from: u32) -> Option<(u32, SlotId)> {
    if root == 0 { None } else { descend(slots, slots.check(root), 0, from) }
}

fn descend(slots: &Slots<impl Platform>, node: SlotId, level: u32, from: u32) -> Option<(u32, SlotId)> {
    let shift = BITS * (LAST - level);
    let below = (1u32 << shift) - 1;
    let (mut child, mut rest) = (digit(from, level), from & below);
    loop {
        let found = first_from(slots, node, child)?;
        if found != child {
            rest = 0;
        }
        let next = slots.read_u32(node, child_at(found));
        if level == LAST {
            return Some((found, next));
        }
        // The lower digits; every key of a later child is greater than `from`.
        if let Some((key, value)) = descend(slots, slots.check(next), level + 1, rest) {
            return Some((found << shift | key, value));
        }
        (child, rest) = (found + 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_leaf_that_was_freed_or_undone_is_not_found() {
        testing::fresh();
        let mut slots = testing::slots();
        let mut first = 0;
        insert(&mut slots, &mut first, 5, 1);
        let before = first;
        remove(&mut slots, &mut first, 5);
        let mut second = 0;
        insert(&mut slots, &mut second, 1 << 20 | 5, 2);
        assert_eq!((first, second), (0, before), "another tree has the nodes of the first one");
        assert_eq!([5, 1 << 20 | 5].map(|key| get(&slots, second, key)), [0, 2]);

        slots.begin();
        insert(&mut slots, &mut second, 1 << 30, 3);
        assert_eq!(get(&slots, second, 1 << 30), 3);
        slots.undo();
        insert(&mut slots, &mut second, 1 << 29, 4);
        assert_eq!([1 << 30, 1 << 29].map(|key| get(&slots, second, key)), [0, 4], "the nodes are another key's now");
    }

    proptest! {
        /// Compared with a `BTreeMap`, with keys close together and far apart; nothing is left when all keys are removed.
        #[test]
        fn agrees_with_a_model(
            steps in prop::collection::vec((any::<bool>(), 0u8..3, any::<u32>(), 1u32..1_000), 1..120),
        ) {
            crate::twin::reset();
            testing::forget();
            let mut slots = testing::slots();
            let mut root = 0;
            let mut model = BTreeMap::new();
            for (insert, spread, key, value) in steps {
                let key = match spread {
                    0 => key % 40,
                    1 => key % 3 * 255 + key % 2,
                    _ => key,
                };
                let there = model.get(&key).copied().unwrap_or(0);
                prop_assert_eq!(get(&slots, root, key), there);
                if there == 0 && insert {
                    let before = slots.stats().used_bytes;
                    let missing = u64::from(missing_nodes(&slots, root, key));
                    super::insert(&mut slots, &mut root, key, value);
                    prop_assert_eq!(slots.stats().used_bytes - before, missing * 1_280);
                    model.insert(key, value);
                } else if there != 0 && insert {
                    replace(&mut slots, root, key, value);
                    model.insert(key, value);
                } else if there != 0 {
                    remove(&mut slots, &mut root, key);
                    model.remove(&key);
                }
                for from in [0, key, key.saturating_add(1), u32::MAX] {
                    let expected = model.range(from..).next().map(|(key, value)| (*key, *value));
                    prop_assert_eq!(next(&slots, root, from), expected);
                }
            }
            for key in model.into_keys() {
                remove(&mut slots, &mut root, key);
            }
            prop_assert_eq!((root, slots.stats().used_bytes), (0, 0));
        }
    }
}
