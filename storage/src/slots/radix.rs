//! Ordered map from 32-bit keys to slots: a radix tree whose nodes are slots.
//!
//! Three levels, of 1,024, 2,048 and 2,048 children: finding a key reads three words, at any number of keys. A bitmap in each node
//! shows which children exist. A node without children is freed.
//!
//! ```text
//! node, 8,448 bytes: ┌─ bitmap: 2048 bits ─┬─ 2048 × child u32 (a node, or on the last level the value) ─┐
//! ```

use super::{SlotId, Slots};
use crate::{GrowError, Platform};

const FAN: u32 = 2048;
const BITS: u32 = 11;
const BITMAP: usize = FAN as usize / 8;
/// Bytes of a node.
pub const NODE: u32 = BITMAP as u32 + 4 * FAN;
/// Maximum number of nodes that inserting a key needs.
pub const MOST_NODES: u64 = 3;

/// The tree's first node, or 0 for an empty tree. The owner persists it.
pub type Root = SlotId;

/// Returns the number of the child that leads to a key.
const fn digit(key: u32, level: u32) -> u32 {
    key >> (BITS * (2 - level)) & (FAN - 1)
}

const fn child_at(child: u32) -> u32 {
    BITMAP as u32 + 4 * child
}

const fn byte_of(child: u32) -> u32 {
    child / 8
}

/// Returns the root, or a child that a node names, after checking that it is a slot.
#[inline(always)]
fn node_at(slots: &Slots<impl Platform>, node: SlotId) -> SlotId {
    if !slots.contains(node) {
        no_node(slots, node);
    }
    node
}

#[cold]
#[inline(never)]
fn no_node(slots: &Slots<impl Platform>, node: SlotId) -> ! {
    slots.broken(&format!("ordered index: slot {node} is no node"))
}

/// Returns a child of a node above the last level, or 0 for none.
#[inline(always)]
fn node_below(slots: &Slots<impl Platform>, node: SlotId, child: u32) -> SlotId {
    if has(slots, node, child) { node_at(slots, slots.read_u32(node, child_at(child))) } else { 0 }
}

fn has(slots: &Slots<impl Platform>, node: SlotId, child: u32) -> bool {
    let [byte] = slots.read(node, byte_of(child));
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
    let [byte] = slots.read(node, byte_of(child));
    slots.write(node, byte_of(child), &[byte | 1 << (child % 8)]);
}

fn new_node(slots: &mut Slots<impl Platform>) -> Result<SlotId, GrowError> {
    let node = slots.allocate(NODE)?;
    slots.write(node, 0, &[0; BITMAP]);
    Ok(node)
}

/// Returns the leaf of a key in a tree that is not empty, or 0 for none.
#[inline]
fn leaf_at(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    match slots.leaves.get(root, key >> BITS) {
        Some(node) => node,
        None => find_leaf(slots, root, key),
    }
}

#[inline(never)]
fn find_leaf(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    let mut node = node_at(slots, root);
    for level in 0..2 {
        node = node_below(slots, node, digit(key, level));
        if node == 0 {
            return 0;
        }
    }
    slots.leaves.set(root, key >> BITS, node);
    node
}

/// Returns the node that has a key's value, or `None` if the key is absent.
#[inline]
fn leaf(slots: &Slots<impl Platform>, root: Root, key: u32) -> Option<SlotId> {
    if root == 0 {
        return None;
    }
    let node = leaf_at(slots, root, key);
    (node != 0 && has(slots, node, digit(key, 2))).then_some(node)
}

/// Returns the number of nodes that inserting a key would create.
pub fn missing_nodes(slots: &Slots<impl Platform>, root: Root, key: u32) -> u32 {
    if root == 0 {
        return MOST_NODES as u32;
    }
    let mut node = node_at(slots, root);
    for level in 0..2 {
        node = node_below(slots, node, digit(key, level));
        if node == 0 {
            return 2 - level;
        }
    }
    0
}

/// Returns the value of a key, or 0 if the key is absent.
#[inline]
pub fn get(slots: &Slots<impl Platform>, root: Root, key: u32) -> SlotId {
    leaf(slots, root, key).map_or(0, |leaf| slots.read_u32(leaf, child_at(digit(key, 2))))
}

/// Replaces the value of an existing key.
pub fn replace(slots: &mut Slots<impl Platform>, root: Root, key: u32, value: SlotId) {
    match leaf(slots, root, key) {
        Some(leaf) => slots.write_u32(leaf, child_at(digit(key, 2)), value),
        None => slots.broken(&format!("ordered index: key {key} is missing")),
    }
}

/// Inserts an absent key, with a value other than 0.
///
/// # Errors
/// [`GrowError`], only if memory for [`MOST_NODES`] nodes was not reserved.
pub fn insert(slots: &mut Slots<impl Platform>, root: &mut Root, key: u32, value: SlotId) -> Result<(), GrowError> {
    if *root == 0 {
        *root = new_node(slots)?;
    }
    let known = slots.leaves.get(*root, key >> BITS);
    let node = match known {
        Some(leaf) => leaf,
        None => make_leaf(slots, *root, key)?,
    };
    slots.write_u32(node, child_at(digit(key, 2)), value);
    set_bit(slots, node, digit(key, 2));
    Ok(())
}

/// Returns the leaf of a key, and makes the nodes that are missing.
fn make_leaf(slots: &mut Slots<impl Platform>, root: Root, key: u32) -> Result<SlotId, GrowError> {
    let mut node = node_at(slots, root);
    for level in 0..2 {
        let child = digit(key, level);
        let below = node_below(slots, node, child);
        node = if below != 0 {
            below
        } else {
            let new = new_node(slots)?;
            slots.write_u32(node, child_at(child), new);
            set_bit(slots, node, child);
            new
        };
    }
    Ok(node)
}

/// Removes an existing key, and each node that has no other key.
pub fn remove(slots: &mut Slots<impl Platform>, root: &mut Root, key: u32) {
    let mut path = [node_at(slots, *root); 3];
    for level in 0..2 {
        let below = slots.read_u32(path[level as usize], child_at(digit(key, level)));
        path[level as usize + 1] = node_at(slots, below);
    }
    for level in (0..3).rev() {
        let (node, child) = (path[level as usize], digit(key, level));
        let [byte] = slots.read(node, byte_of(child));
        slots.write(node, byte_of(child), &[byte & !(1 << (child % 8))]);
        if first_from(slots, node, 0).is_some() {
            return;
        }
        slots.leaves.forget();
        slots.free(node);
    }
    *root = 0;
}

/// Returns the smallest key that is `from` or greater, with its value.
pub fn next(slots: &Slots<impl Platform>, root: Root, from: u32) -> Option<(u32, SlotId)> {
    if root == 0 {
        return None;
    }
    descend(slots, node_at(slots, root), 0, from)
}

fn descend(slots: &Slots<impl Platform>, node: SlotId, level: u32, from: u32) -> Option<(u32, SlotId)> {
    let shift = BITS * (2 - level);
    let below = (1u32 << shift) - 1;
    let mut child = digit(from, level);
    let mut rest = from & below;
    loop {
        let found = first_from(slots, node, child)?;
        if found != child {
            rest = 0;
        }
        let next = slots.read_u32(node, child_at(found));
        if level == 2 {
            return Some((found, next));
        }
        // The lower digits; every key of a later child is greater than `from`.
        if let Some((key, value)) = descend(slots, node_at(slots, next), level + 1, rest) {
            return Some((found << shift | key, value));
        }
        child = found + 1;
        rest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compared with a `BTreeMap`, with keys close together and far apart; nothing is left when all keys are removed.
        #[test]
        fn agrees_with_a_model(
            steps in prop::collection::vec((any::<bool>(), 0u8..3, any::<u32>(), 1u32..1_000), 1..120),
        ) {
            crate::twin::reset();
            fixture::forget();
            let mut slots = fixture::slots();
            let mut root = 0;
            let mut model = BTreeMap::new();
            for (insert, spread, key, value) in steps {
                let key = match spread {
                    0 => key % 40,
                    1 => key % 3 * 2047 + key % 2,
                    _ => key,
                };
                let there = model.get(&key).copied().unwrap_or(0);
                prop_assert_eq!(get(&slots, root, key), there);
                if there == 0 && insert {
                    let before = slots.stats().used_bytes;
                    let missing = u64::from(missing_nodes(&slots, root, key));
                    super::insert(&mut slots, &mut root, key, value).unwrap();
                    prop_assert_eq!(slots.stats().used_bytes - before, missing * 9_344);
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
