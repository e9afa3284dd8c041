//! Slots in the order of a 128-bit key: a treap, a binary tree whose nodes are the slots themselves.
//!
//! ```text
//! node: key u64 ‖ key u64 ‖ left u32 ‖ right u32 ‖ parent u32       28 bytes that each slot keeps for the node
//! ```
//! No node has a child of higher priority, and a priority is a seeded hash of the second half of the key, which is unique. So the tree
//! is as deep as a tree grown in random order (about 28 levels at a million slots), in whatever order slots are inserted and removed.
//! Inserting and removing needs no memory, and so cannot be refused. Removing the first slot, and finding the slot after it, touches
//! only neighbours: removing in order costs the same at any number of slots.

use super::{SlotId, Slots};
use crate::Platform;
use crate::bytes::{u32_at, u64_at};

/// The first node, or 0 for an empty tree. The owner persists it.
pub type Root = SlotId;
/// The key of a slot.
pub type Key = (u64, u64);

/// Bytes of a node.
pub const NODE: u32 = 28;
const LEFT: u32 = 16;
const RIGHT: u32 = 20;
const PARENT: u32 = 24;

/// Offset of the nodes in their slots, and the seed of their priorities.
#[derive(Clone, Copy, Debug)]
pub struct Treap {
    /// Bytes from a slot's start to its node.
    pub at: u32,
    /// The seed.
    pub seed: u64,
}

#[derive(Clone, Copy)]
struct Node {
    key: Key,
    left: SlotId,
    right: SlotId,
    parent: SlotId,
}

impl Treap {
    /// Reads a node, whose links may be damaged.
    fn raw(self, slots: &Slots<impl Platform>, slot: SlotId) -> Node {
        slots.read_with(slot, self.at, |b: &[u8; NODE as usize]| {
            let word = |at: u32| u32_at(b, at as usize);
            Node { key: (u64_at(b, 0), u64_at(b, 8)), left: word(LEFT), right: word(RIGHT), parent: word(PARENT) }
        })
    }

    /// Reads a node. A link that leads to no slot is read as 0, so that the tree ends there.
    fn node(self, slots: &Slots<impl Platform>, slot: SlotId) -> Node {
        let Node { key, left, right, parent } = self.raw(slots, slot);
        let [left, right, parent] = [left, right, parent].map(|link| self.entry(slots, link));
        Node { key, left, right, parent }
    }

    /// Returns a link or a root, or 0 if it leads to no slot.
    #[inline(always)]
    fn entry(self, slots: &Slots<impl Platform>, link: SlotId) -> SlotId {
        if slots.contains(link) { link } else { 0 }
    }

    fn set(self, slots: &mut Slots<impl Platform>, slot: SlotId, field: u32, to: SlotId) {
        slots.write_u32(slot, self.at + field, to);
    }

    /// Returns SplitMix64 of the second half of a key.
    fn priority(self, (_, unique): Key) -> u64 {
        let mut x = (unique ^ self.seed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Returns a slot's key.
    pub fn key(self, slots: &Slots<impl Platform>, slot: SlotId) -> Key {
        self.raw(slots, slot).key
    }

    /// Inserts a slot whose key is already written.
    pub fn insert(self, slots: &mut Slots<impl Platform>, root: &mut Root, slot: SlotId) {
        let key = self.key(slots, slot);
        let (mut parent, mut above, mut next) = (0, None, self.entry(slots, *root));
        while next != 0 {
            let node = self.raw(slots, next);
            let smaller = key < node.key;
            (parent, above) = (next, Some((node.key, if smaller { LEFT } else { RIGHT })));
            next = self.entry(slots, if smaller { node.left } else { node.right });
        }
        let links = [0, 0, parent].map(u32::to_le_bytes);
        slots.write(slot, self.at + LEFT, links.as_flattened());
        let Some((above, side)) = above else {
            *root = slot;
            return;
        };
        self.set(slots, parent, side, slot);
        let mut above = Some(above);
        while above.is_some_and(|above| self.priority(above) < self.priority(key)) {
            let parent = self.rotate_up(slots, root, slot);
            above = (parent != 0).then(|| self.key(slots, parent));
        }
    }

    /// Removes a slot that is in the tree.
    pub fn remove(self, slots: &mut Slots<impl Platform>, root: &mut Root, slot: SlotId) {
        let mut node = self.node(slots, slot);
        while node.left != 0 && node.right != 0 {
            let keys = [node.left, node.right].map(|child| self.key(slots, child));
            let left_is_higher = self.priority(keys[0]) > self.priority(keys[1]);
            self.rotate_up(slots, root, if left_is_higher { node.left } else { node.right });
            node = self.node(slots, slot);
        }
        let child = node.left | node.right;
        if child != 0 {
            self.set(slots, child, PARENT, node.parent);
        }
        self.replace(slots, root, node.parent, slot, child);
    }

    /// Replaces a child of a node, or the root if `parent` is 0.
    fn replace(self, slots: &mut Slots<impl Platform>, root: &mut Root, parent: SlotId, old: SlotId, new: SlotId) {
        if parent == 0 {
            if *root != old {
                slots.broken("treap: slot", old, "is in no tree");
            }
            *root = new;
        } else {
            let side = if self.node(slots, parent).left == old { LEFT } else { RIGHT };
            self.set(slots, parent, side, new);
        }
    }

    /// Moves a node up to the place of its parent, which becomes its child. Returns the node's new parent.
    fn rotate_up(self, slots: &mut Slots<impl Platform>, root: &mut Root, slot: SlotId) -> SlotId {
        let Node { left, right, parent, .. } = self.node(slots, slot);
        let above = self.node(slots, parent);
        let (inner, outer_side, inner_side) =
            if above.left == slot { (right, LEFT, RIGHT) } else { (left, RIGHT, LEFT) };
        self.set(slots, parent, outer_side, inner);
        if inner != 0 {
            self.set(slots, inner, PARENT, parent);
        }
        self.set(slots, slot, inner_side, parent);
        self.set(slots, parent, PARENT, slot);
        self.set(slots, slot, PARENT, above.parent);
        self.replace(slots, root, above.parent, parent, slot);
        above.parent
    }

    /// Returns the slot with the smallest key.
    pub fn first(self, slots: &Slots<impl Platform>, root: Root) -> Option<SlotId> {
        Some(self.entry(slots, root)).filter(|root| *root != 0).map(|root| self.leftmost(slots, root))
    }

    fn leftmost(self, slots: &Slots<impl Platform>, mut slot: SlotId) -> SlotId {
        loop {
            match self.entry(slots, self.raw(slots, slot).left) {
                0 => return slot,
                left => slot = left,
            }
        }
    }

    /// Returns the slots in key order, and stops at damage: reads at most `nodes` nodes, all of them slots in use.
    pub fn walk(self, slots: &Slots<impl Platform>, root: Root, mut nodes: usize) -> impl Iterator<Item = SlotId> {
        let (mut above, mut next) = (Vec::new(), root);
        std::iter::from_fn(move || {
            while next != 0 {
                if nodes == 0 || !slots.holds(next, u64::from(self.at + NODE)) {
                    nodes = 0;
                    return None;
                }
                nodes -= 1;
                let node = self.raw(slots, next);
                above.push((next, node.right));
                next = node.left;
            }
            let (slot, right) = above.pop()?;
            next = right;
            Some(slot)
        })
    }

    /// Returns the slot with the next larger key.
    pub fn next(self, slots: &Slots<impl Platform>, slot: SlotId) -> Option<SlotId> {
        let node = self.raw(slots, slot);
        let right = self.entry(slots, node.right);
        if right != 0 {
            return Some(self.leftmost(slots, right));
        }
        let (mut child, mut parent) = (slot, self.entry(slots, node.parent));
        while parent != 0 {
            let node = self.raw(slots, parent);
            if node.left == child {
                return Some(parent);
            }
            (child, parent) = (parent, self.entry(slots, node.parent));
        }
        None
    }

    /// Returns the slot with the smallest key that is `from` or larger.
    pub fn from(self, slots: &Slots<impl Platform>, root: Root, from: Key) -> Option<SlotId> {
        let (mut next, mut found) = (self.entry(slots, root), None);
        while next != 0 {
            let node = self.raw(slots, next);
            let smaller = node.key < from;
            if !smaller {
                found = Some(next);
            }
            next = self.entry(slots, if smaller { node.right } else { node.left });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::twin::Twin;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TREAP: Treap = Treap { at: 4, seed: 7 };

    fn open() -> Slots<Twin> {
        crate::twin::reset();
        testing::forget();
        testing::slots()
    }

    fn enter(slots: &mut Slots<Twin>, root: &mut Root, key: Key) -> SlotId {
        let slot = slots.allocate(4 + NODE).unwrap();
        slots.write(slot, 4, [key.0, key.1].map(u64::to_le_bytes).as_flattened());
        TREAP.insert(slots, root, slot);
        slot
    }

    fn all(slots: &Slots<Twin>, root: Root) -> Vec<(Key, SlotId)> {
        let first = TREAP.first(slots, root);
        std::iter::successors(first, |slot| TREAP.next(slots, *slot))
            .map(|slot| (TREAP.key(slots, slot), slot))
            .collect()
    }

    /// Returns the depth. Also checks the parent links, and that no child has a higher priority.
    fn depth(slots: &Slots<Twin>, slot: SlotId, parent: SlotId) -> u32 {
        if slot == 0 {
            return 0;
        }
        let node = TREAP.node(slots, slot);
        assert_eq!(node.parent, parent);
        if parent != 0 {
            assert!(TREAP.priority(TREAP.key(slots, parent)) >= TREAP.priority(node.key));
        }
        1 + depth(slots, node.left, slot).max(depth(slots, node.right, slot))
    }

    proptest! {
        /// Compared with a `BTreeMap`: the same slots in the same order after every step.
        #[test]
        fn agrees_with_a_model(steps in prop::collection::vec((0u8..3, 0u64..5, any::<u16>()), 1..100)) {
            let mut slots = open();
            let (mut root, mut model, mut unique) = (0, BTreeMap::new(), 0);
            for (what, first, which) in steps {
                if what == 0 && !model.is_empty() {
                    let (key, slot) = model.iter().nth(usize::from(which) % model.len()).map(|(k, s)| (*k, *s)).unwrap();
                    TREAP.remove(&mut slots, &mut root, slot);
                    slots.free(slot);
                    model.remove(&key);
                } else {
                    unique += 1;
                    let key = (if first == 4 { u64::MAX } else { first }, unique);
                    model.insert(key, enter(&mut slots, &mut root, key));
                }
                let expected: Vec<_> = model.iter().map(|(key, slot)| (*key, *slot)).collect();
                prop_assert_eq!(all(&slots, root), &expected[..]);
                let walked: Vec<_> = TREAP.walk(&slots, root, model.len()).collect();
                prop_assert_eq!(walked, model.values().copied().collect::<Vec<_>>());
                for from in [(0, 0), (2, u64::from(which) % 100), (u64::MAX, u64::MAX)] {
                    let expected = model.range(from..).next().map(|(_, slot)| *slot);
                    prop_assert_eq!(TREAP.from(&slots, root, from), expected);
                }
                depth(&slots, root, 0);
            }
        }
    }

    #[test]
    fn walk_ends_at_damaged_links_and_at_its_limit() {
        let (mut slots, mut root) = (open(), 0);
        let made: Vec<SlotId> = (0..50).map(|at| enter(&mut slots, &mut root, (at, at))).collect();
        let freed = slots.allocate(4 + NODE).unwrap();
        slots.free(freed);
        let walk = |slots: &Slots<Twin>, nodes| TREAP.walk(slots, root, nodes).collect::<Vec<_>>();
        assert_eq!((walk(&slots, 50), walk(&slots, 0)), (made.clone(), vec![]));
        assert!(made.starts_with(&walk(&slots, 49)));
        for to in [made[0], root, 600, freed, u32::MAX] {
            TREAP.set(&mut slots, made[0], LEFT, to);
            assert_eq!(walk(&slots, 1_000), vec![0; 0], "to {to}");
        }
        TREAP.set(&mut slots, made[0], LEFT, 0);
        TREAP.set(&mut slots, made[49], RIGHT, u32::MAX);
        assert_eq!(walk(&slots, 1_000), made);
    }

    #[test]
    fn depth_is_small_for_any_insertion_order() {
        for order in 0..3u64 {
            let (mut slots, mut root) = (open(), 0);
            for i in 0..20_000u64 {
                let first = [i, 20_000 - i, i * 7_919 % 20_000][order as usize];
                enter(&mut slots, &mut root, (first, i));
            }
            let deep = depth(&slots, root, 0);
            assert!(deep < 50, "{deep} in order {order}");
        }
    }
}
