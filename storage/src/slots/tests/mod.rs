use super::chunk::{FREE, USED};
use super::class::{CLASSES, LARGE, UNIT};
use super::*;
use crate::GrowError;
use crate::arena::{Class, GRANULE};
use crate::testing::{self, LOG, RECORDS};
use crate::twin::Twin;

mod damage;
mod layout;
mod memory;
mod model;

fn fresh() -> Slots<Twin> {
    testing::fresh();
    testing::slots()
}

/// Opens the slots again, as an upgrade does.
fn reopened(slots: Slots<Twin>) -> Slots<Twin> {
    drop(slots);
    testing::forget();
    testing::slots()
}

/// Bytes that the arena counts for the slots.
fn kept(slots: &Slots<Twin>) -> u64 {
    slots.arena.kept_bytes(RECORDS)
}

/// Forbids all growth.
fn cap() {
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
}

/// Takes all memory that can be taken without growth.
fn fill(arena: &Arena<Twin>) {
    cap();
    while arena.take_granules(LOG, 1).is_ok() {}
}

#[test]
fn small_slots_are_adjacent_and_reused() {
    let mut slots = fresh();
    let [a, b] = [200, 200].map(|len| slots.allocate(len).unwrap());
    assert_eq!((a, b, slots.capacity(a)), (2_049, 2_051, 248));
    slots.write(a, 240, &[1; 8]);
    assert_eq!(slots.stats(), SlotStats { used_bytes: 512, free_bytes: 65_024 });
    let c = slots.allocate(200).unwrap();
    slots.free(a);
    slots.free(b);
    assert_eq!(
        [200, 248, 121].map(|len| slots.allocate(len).unwrap()),
        [b, a, c + 2],
        "the last that was freed is first"
    );
    assert_eq!(slots.allocate(120).unwrap(), 2_561, "another class has another chunk");
    assert_eq!(slots.allocate(MAX_LEN + 1), Err(GrowError::OutOfSpace));
    assert_eq!(slots.allocate(u32::MAX), Err(GrowError::OutOfSpace));
}

#[test]
fn a_chunk_serves_until_it_is_full_and_reopened_chunks_serve_last() {
    let mut slots = fresh();
    // Eight slots a chunk.
    let made: Vec<SlotId> = (0..20).map(|_| slots.allocate(8_000).unwrap()).collect();
    slots.free(made[3]);
    slots.free(made[10]);
    slots.free(made[2]);
    let next: Vec<SlotId> = (0..8).map(|_| slots.allocate(8_000).unwrap()).collect();
    let third = [20, 21, 22, 23].map(|nth| made[16] + 64 * (nth - 16));
    assert_eq!(next[..4], third);
    assert_eq!(next[4..7], [made[2], made[3], made[10]]);
    assert_eq!(next[7], made[16] + 64 * 8, "a new chunk");
}

#[test]
fn a_root_is_kept() {
    let mut slots = fresh();
    assert_eq!(slots.root(), 0);
    let root = slots.allocate(500).unwrap();
    slots.set_root(root);
    slots.begin();
    slots.set_root(7);
    slots.undo();
    assert_eq!((slots.root(), reopened(slots).root()), (root, root));
}

#[test]
#[should_panic(expected = "slot 2049 is not in use")]
fn freeing_twice_traps() {
    let mut slots = fresh();
    let [a, _] = [10, 10].map(|len| slots.allocate(len).unwrap());
    slots.free(a);
    slots.free(a);
}

#[test]
#[should_panic(expected = "slot 2049 is not in use")]
fn freeing_a_slot_of_a_chunk_that_was_given_back_traps() {
    let mut slots = fresh();
    let a = slots.allocate(10).unwrap();
    slots.free(a);
    slots.free(a);
}

/// Ids of slots reach the end of the largest arena.
#[test]
fn names_reach_500_gib() {
    let mut slots = fresh();
    crate::twin::with(|world| world.max_pages = u64::MAX);
    testing::arena().growth().set_max_pages(u64::MAX);
    // The first block of each of 2,000 extents has no slot of 4 MiB.
    let blocks = crate::arena::MAX_GRANULES / 64 - 2_000;
    let largest = Class::LARGEST;
    slots.arena.reserve(LOG, &[(largest.granules(), blocks)]).unwrap();
    let first = slots.arena.take_granules(LOG, 64).unwrap();
    let mut last = first;
    while let Ok(block) = slots.arena.take_granules(LOG, 64)
        && block * GRANULE < 500 << 30
    {
        last = block;
    }
    assert_eq!((last + 64) * GRANULE, 500 << 30);
    while slots.arena.take_granules(LOG, 1).is_ok() {}
    slots.arena.give_granules(LOG, last, 64);
    let lens = [10, 100_000, 1_500_000];
    let made = lens.map(|len| {
        let slot = slots.allocate(len).unwrap();
        slots.write(slot, len - 4, &len.to_le_bytes());
        slot
    });
    let lowest = ((last * GRANULE) / UNIT) as u32;
    assert!(made.iter().all(|slot| *slot > lowest), "{made:?}");
    let mut slots = reopened(slots);
    for (slot, len) in made.into_iter().zip(lens) {
        assert!(slots.holds(slot, len.into()));
        assert_eq!(slots.read_u32(slot, len - 4), len);
        slots.free(slot);
    }
    assert_eq!(kept(&slots), 0);
}

#[test]
fn an_undo_ends_the_promises_that_counted_on_its_room() {
    let mut slots = fresh();
    let nodes: Vec<SlotId> = (0..51).map(|_| slots.allocate(radix::NODE).unwrap()).collect();
    slots.begin();
    slots.free(nodes[3]);
    assert_eq!(slots.reserve(&[(radix::NODE, 1)]), Ok(()), "the chunk has room");
    slots.undo();
    fill(&slots.arena);
    assert_eq!(slots.reserve(&[(radix::NODE, 1)]), Err(GrowError::OutOfSpace), "the chunk is full again");
}

#[test]
fn a_promise_ends_with_its_message() {
    let mut slots = fresh();
    let node = slots.allocate(radix::NODE).unwrap();
    assert_eq!(slots.reserve(&[(radix::NODE, 9)]), Ok(()));
    fill(&slots.arena);
    slots.arena.end_reservations();
    slots.free(node);
    assert!(slots.arena.take_granules(LOG, 1).is_ok(), "nothing of the freed chunk is kept for the earlier message");
}
