//! Tests of spaces: bytes across leaves, holes, refused growth, traps and upgrades; a structure of another crate.

use super::*;
use crate::testing::{self, LOG, SPACES, forget, fresh, space};
use crate::twin::{self, Twin};
use ic_stable_structures::StableBTreeMap;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Leaves and roots that spaces keep.
fn granules() -> u64 {
    testing::arena().kept_bytes(SPACES) / GRANULE
}

#[test]
fn space_grows_by_leaves_and_a_second_leaf_takes_a_root() {
    fresh();
    let a = space(0);
    assert!(a.is_empty() && granules() == 0);
    a.reserve(1).unwrap();
    assert_eq!((a.size(), granules()), (LEAF, 1));
    a.write(0, &[1; 9]);
    a.reserve(LEAF + 1).unwrap();
    assert_eq!((a.size(), granules(), a.read::<9>(0)), (2 * LEAF, 3, [1; 9]));
    a.reserve(5 * LEAF).unwrap();
    assert_eq!(granules(), 6);
    a.reserve(5 * LEAF).unwrap();
    assert_eq!(granules(), 6, "it is there");
}

#[test]
fn new_leaf_is_zero_even_if_its_granule_was_used() {
    fresh();
    let arena = testing::arena();
    let taken: Vec<u64> = (0..40).map(|_| arena.take_granules(LOG, 1).unwrap()).collect();
    taken.iter().for_each(|granule| arena.payload().write(granule * GRANULE, &[7; GRANULE as usize]));
    taken.iter().for_each(|granule| arena.give_granules(LOG, *granule, 1));
    let a = space(0);
    a.reserve(20 * LEAF).unwrap();
    let mut bytes = Vec::new();
    a.read_onto(&mut bytes, 0, 20 * LEAF as usize);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn ranges_across_leaves_are_read_and_written_whole() {
    fresh();
    let (a, b) = (space(0), space(1));
    // Leaves of another space lie between.
    for leaf in 1..4 {
        a.reserve(leaf * LEAF).unwrap();
        b.reserve(leaf * LEAF).unwrap();
    }
    for start in [LEAF - 8, LEAF - 7, LEAF - 1, LEAF, 2 * LEAF - 8] {
        a.write(start, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(a.read(start), [0, 1, 2, 3, 4, 5, 6, 7], "at {start}");
        let mut bytes = vec![9];
        a.read_onto(&mut bytes, start, 8);
        assert_eq!(bytes, [9, 0, 1, 2, 3, 4, 5, 6, 7], "at {start}");
    }
    let long: Vec<u8> = (0..2 * LEAF + 100).map(|at| at as u8).collect();
    a.write(50, &long);
    let mut bytes = Vec::new();
    a.read_onto(&mut bytes, 50, long.len());
    assert!(bytes == long);
    assert_eq!(b.read(LEAF), [0; 64], "the other space");
}

#[test]
fn missing_leaf_reads_as_zeros_and_traps_when_written() {
    fresh();
    let a = space(0);
    a.reserve_range(3 * LEAF..4 * LEAF).unwrap();
    assert_eq!((a.size(), granules()), (4 * LEAF, 2));
    a.write(3 * LEAF, &[5; 4]);
    assert_eq!(a.read(3 * LEAF - 4), [0, 0, 0, 0, 5, 5, 5, 5]);
    for offset in [0, 3 * LEAF - 1, 4 * LEAF - 7, 4 * LEAF, LEAF << 32, u64::MAX - 3] {
        let mut bytes = Vec::new();
        a.read_onto(&mut bytes, offset, 4);
        assert_eq!(bytes.len(), 4);
        let trapped = twin::message(|| a.write(offset, &[1; 8])).unwrap_err();
        assert!(trapped.contains("is not reserved"), "{offset}: {trapped}");
    }
    a.write(4 * LEAF, &[]);
}

#[test]
fn released_leaves_are_given_back_and_reserved_anew() {
    fresh();
    let a = space(0);
    a.reserve(4 * LEAF).unwrap();
    (0..4).for_each(|leaf| a.write(leaf * LEAF, &[9; 8]));
    a.release(LEAF - 1..3 * LEAF + 1);
    assert_eq!((granules(), [0, 1, 2, 3].map(|leaf| a.read::<1>(leaf * LEAF)[0])), (3, [9, 0, 0, 9]));
    forget();
    let a = space(0);
    assert_eq!([0, 1, 2, 3].map(|leaf| a.read::<1>(leaf * LEAF)[0]), [9, 0, 0, 9]);
    a.reserve(4 * LEAF).unwrap();
    assert_eq!((granules(), a.read(LEAF)), (5, [0; 8]));
    let b = space(1);
    b.reserve(1).unwrap();
    b.release(0..LEAF);
    assert!(b.is_empty() && granules() == 5);
}

#[test]
fn refused_growth_changes_nothing() {
    fresh();
    let arena = testing::arena();
    let a = space(0);
    a.reserve(LEAF).unwrap();
    arena.growth().set_max_pages(arena.billed_pages());
    let free = (arena.reusable_bytes(), granules());
    // 13 granules are in the first mebibyte, and one is taken; the root is one, too.
    assert_eq!(a.reserve(13 * LEAF), Err(GrowError::OutOfSpace));
    assert_eq!((arena.reusable_bytes(), granules(), a.size()), (free.0, free.1, LEAF));
    a.reserve(12 * LEAF).unwrap();
    assert_eq!(a.reserve((MAX_LEAVES + 1) * LEAF), Err(GrowError::OutOfSpace));
}

#[test]
fn leaf_or_root_outside_the_arena_is_refused() {
    for (leaves, name) in [(1, "a leaf at granule"), (2, "2 leaves, listed in granule")] {
        fresh();
        space(3).reserve(leaves * LEAF).unwrap();
        let arena = testing::arena();
        let root = arena.root(3);
        arena.set_root(3, Root { granule: 16, ..root });
        forget();
        let why = Space::open(&testing::arena(), 3).err().unwrap().to_string();
        assert!(why.starts_with("space: 3: ") && why.contains(name), "{why}");
    }
    fresh();
    space(3).reserve(2 * LEAF).unwrap();
    let arena = testing::arena();
    arena.payload().write_u32(u64::from(arena.root(3).granule) * GRANULE + 4, 16);
    forget();
    assert!(Space::open(&testing::arena(), 3).is_err());
}

/// The layout of a root, byte by byte.
#[test]
fn root_lists_granules() {
    fresh();
    let a = space(2);
    a.reserve(3 * LEAF).unwrap();
    a.release(LEAF..2 * LEAF);
    let arena = testing::arena();
    let root = arena.root(2);
    assert_eq!((root.leaves, arena.payload().read(8 + 8 * 2)), (3, [root.granule as u8, 0, 0, 0, 3, 0, 0, 0]));
    let leaves = a.leaves.borrow().clone();
    assert_eq!(arena.payload().read_words(u64::from(root.granule) * GRANULE, 3), leaves);
    assert_eq!((leaves[1], leaves[0] > 0 && leaves[2] > 0), (0, true));
}

fn map() -> StableBTreeMap<u64, Vec<u8>, Space<Twin>> {
    StableBTreeMap::init(space(9))
}

/// A map of another crate next to a space, over upgrades, and growth that is refused.
#[test]
fn map_of_another_crate_lives_in_a_space() {
    fresh();
    let (mut other, mut model) = (map(), BTreeMap::new());
    let mut mine = space(0);
    for key in 0..2_000_u64 {
        let value = vec![key as u8; (key % 700) as usize];
        other.insert(key * 7_919 % 2_000, value.clone());
        model.insert(key * 7_919 % 2_000, value);
        if key % 100 == 0 {
            mine.reserve((key / 100 + 1) * LEAF).unwrap();
            mine.write(key / 100 * LEAF, &[key as u8; 64]);
        }
        if key % 500 == 0 {
            drop(other);
            drop(mine);
            forget();
            (other, mine) = (map(), space(0));
        }
    }
    assert!(other.iter().map(|entry| (*entry.key(), entry.value())).eq(model));
    drop(other);
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
    while testing::arena().take_granules(LOG, 1).is_ok() {}
    let memory = space(9);
    let pages = Memory::size(&memory);
    assert_eq!((memory.grow(1), Memory::size(&memory)), (-1, pages));
    assert_eq!(map().len(), 2_000);
}

proptest! {
    #![proptest_config(testing::histories(40))]

    /// Three spaces against plain bytes: growth, holes, writes, traps at any access, and upgrades.
    #[test]
    fn spaces_agree_with_a_model(
        steps in prop::collection::vec((0u8..3, 0u8..8, 0u64..20 * LEAF, 0usize..200, 0u64..60), 1..80)
    ) {
        fresh();
        let mut model: [BTreeMap<u64, Vec<u8>>; 3] = Default::default();
        let mut spaces = [0, 1, 2].map(space);
        for (id, what, at, len, trap_after) in steps {
            let (space, leaves) = (&spaces[usize::from(id)], &mut model[usize::from(id)]);
            let range = at / LEAF..at / LEAF + (len / 70) as u64;
            match what {
                0..4 => {
                    twin::with(|world| world.trap_after = (what == 0).then_some(trap_after));
                    let done = twin::message(|| space.reserve_range(range.start * LEAF..range.end * LEAF));
                    twin::with(|world| world.trap_after = None);
                    if let Ok(reserved) = done {
                        reserved.unwrap();
                        for leaf in range {
                            leaves.entry(leaf).or_insert_with(|| vec![0; LEAF as usize]);
                        }
                    } else {
                        forget();
                        spaces = [0, 1, 2].map(testing::space);
                    }
                }
                4 => {
                    space.release(range.start * LEAF..range.end * LEAF);
                    range.for_each(|leaf| drop(leaves.remove(&leaf)));
                }
                5 => {
                    forget();
                    spaces = [0, 1, 2].map(testing::space);
                }
                _ => {
                    let bytes = vec![len as u8 + 1; len];
                    let there = (at..at + len as u64).all(|at| leaves.contains_key(&(at / LEAF)));
                    if there {
                        space.write(at, &bytes);
                        for (nth, byte) in bytes.iter().enumerate() {
                            let at = at + nth as u64;
                            leaves.get_mut(&(at / LEAF)).unwrap()[(at % LEAF) as usize] = *byte;
                        }
                    }
                }
            }
        }
        let mut kept = 0;
        for (space, leaves) in spaces.iter().zip(&model) {
            for leaf in 0..24 {
                let mut bytes = Vec::new();
                space.read_onto(&mut bytes, leaf * LEAF, LEAF as usize);
                match leaves.get(&leaf) {
                    Some(expected) => prop_assert!(bytes == *expected, "leaf {leaf}"),
                    None => prop_assert!(bytes.iter().all(|byte| *byte == 0), "leaf {leaf}"),
                }
            }
            kept += leaves.len() as u64 + u64::from(space.root.get().leaves > 1);
        }
        prop_assert_eq!(granules(), kept);
    }
}

#[test]
fn list_of_leaves_with_a_flipped_bit_is_written_anew() {
    fresh();
    let a = space(2);
    a.reserve(3 * LEAF).unwrap();
    let payload = testing::arena().payload();
    let list = u64::from(a.root.get().granule) * GRANULE;
    let right: [u8; 12] = payload.read(list);
    for bit in 0..8 * right.len() {
        let mut damaged = right;
        damaged[bit / 8] ^= 1 << (bit % 8);
        payload.write(list, &damaged);
        a.rewrite();
        assert_eq!(payload.read(list), right, "bit {bit}");
    }
}
