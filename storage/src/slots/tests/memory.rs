//! Memory that is taken, reserved and given back.

use super::*;

#[test]
fn allocations_after_a_reservation_succeed() {
    for len in [1u32, 120, 121, 505, 5_000, 33_000, 70_000, 150_000, MAX_LEN] {
        for count in [1, 3, 40] {
            let mut slots = fresh();
            slots.allocate(len).unwrap();
            slots.reserve(&[(len, count), (9_000, 2)]).unwrap();
            fill(&slots.arena.clone());
            for nth in 0..count {
                slots.allocate(len).unwrap_or_else(|error| panic!("{nth} of {len} bytes: {error:?}"));
            }
            (0..2).for_each(|_| assert!(slots.allocate(9_000).is_ok()));
        }
    }
}

/// A slot that is freed after the reservation may empty the chunk whose room was counted.
#[test]
fn a_reservation_outlives_the_chunk_that_had_room() {
    for len in [100, 8_000, 70_000] {
        let mut slots = fresh();
        let old = slots.allocate(len).unwrap();
        slots.reserve(&[(len, 2)]).unwrap();
        fill(&slots.arena.clone());
        let before = slots.arena.kept_bytes(LOG);
        slots.free(old);
        assert_eq!(kept(&slots), 0);
        fill(&slots.arena.clone());
        assert_eq!(slots.arena.kept_bytes(LOG), before, "no other store gets the chunk");
        let made = [len, len].map(|len| slots.allocate(len).unwrap());
        made.into_iter().for_each(|slot| slots.free(slot));
        fill(&slots.arena.clone());
        assert!(slots.arena.kept_bytes(LOG) > before, "nothing is reserved any more");
    }
}

#[test]
fn a_reservation_counts_free_slots_and_replaces_the_previous_one() {
    let mut slots = fresh();
    slots.reserve(&[(MAX_LEN, 2)]).unwrap();
    cap();
    let free = slots.arena.available(Class::LARGEST);
    assert!(slots.reserve(&[(MAX_LEN, free as u32)]).is_ok(), "the first reservation does not count");
    assert_eq!(slots.reserve(&[(MAX_LEN, free as u32 + 1)]), Err(GrowError::OutOfSpace));
    let many: Vec<SlotId> = (0..free).map(|_| slots.allocate(MAX_LEN).unwrap()).collect();
    fill(&slots.arena.clone());
    assert_eq!(slots.reserve(&[(10, 1)]), Err(GrowError::OutOfSpace));
    slots.free(many[0]);
    slots.reserve(&[(10, 512), (3_000_000, 0)]).unwrap();
    slots.reserve(&[(MAX_LEN, 1)]).unwrap();
    assert_eq!(slots.reserve(&[(10, 1), (MAX_LEN, 1)]), Err(GrowError::OutOfSpace));
    slots.reserve(&[(10, 512)]).unwrap();
    slots.allocate(10).unwrap();
    assert_eq!(slots.reserve(&[(MAX_LEN + 1, 1)]), Err(GrowError::OutOfSpace));
    slots.reserve(&[(10, 511), (70_000, 8)]).unwrap();
}

#[test]
fn empty_chunks_go_back_and_serve_other_sizes() {
    let mut slots = fresh();
    let mut end = 0;
    for len in [70_000, 300, 20_000, 1_000_000, 700, 33_000] {
        let made: Vec<SlotId> = (0..20_000_000 / len).map(|_| slots.allocate(len).unwrap()).collect();
        let (even, odd): (Vec<_>, Vec<_>) = made.into_iter().partition(|slot| slot % 3 == 0);
        even.into_iter().chain(odd).for_each(|slot| slots.free(slot));
        assert_eq!((kept(&slots), slots.stats()), (0, SlotStats::default()));
        end = end.max(slots.arena.end());
    }
    assert!(end <= 28 << 20, "{end}");
}

#[test]
fn a_large_slot_takes_whole_granules_and_the_rest_is_free() {
    let mut slots = fresh();
    let slot = slots.allocate(300_000).unwrap();
    assert_eq!((kept(&slots), slots.capacity(slot)), (5 * GRANULE, 5 * 65_536 - 8));
    assert_eq!(slots.allocate(100).unwrap(), slot + 5 * 512, "directly behind it");
}

#[test]
fn a_commit_gives_back_what_became_empty_and_an_undo_what_was_taken() {
    let mut slots = fresh();
    let lens = [100, 20_000, 200_000];
    let old = lens.map(|len| slots.allocate(len).unwrap());
    let before = kept(&slots);
    for (nth, slot) in old.into_iter().enumerate() {
        slots.write(slot, 50, &[nth as u8 + 1; 50]);
    }
    for undone in [true, false] {
        slots.begin();
        old.into_iter().for_each(|slot| slots.free(slot));
        assert_eq!(kept(&slots), before, "their bytes may be needed");
        assert!(old.iter().all(|slot| !slots.holds(*slot, 0)));
        let new = [5_000, 40_000, 4_000_000].map(|len| slots.allocate(len).unwrap());
        new.into_iter().for_each(|slot| slots.write(slot, 50, &[9; 50]));
        slots.free(new[1]);
        if undone {
            slots.undo();
            assert_eq!(kept(&slots), before);
            for (nth, slot) in old.into_iter().enumerate() {
                assert!(slots.holds(slot, 100));
                assert_eq!(slots.read(slot, 50), [nth as u8 + 1; 50]);
            }
            assert!(new.iter().all(|slot| !slots.contains(*slot)));
        } else {
            slots.commit();
            assert_eq!(kept(&slots), 63 * GRANULE, "5,000 and 4,000,000 bytes");
            assert!(old.iter().all(|slot| !slots.contains(*slot)));
        }
    }
}

/// Bytes of the arena for a hundred bytes that are live, for windows of records of one length.
#[test]
fn memory_is_little_more_than_what_slots_hold() {
    let percent = |len: u32| {
        let mut slots = fresh();
        let count = (64 << 20) / len;
        (0..count).for_each(|_| assert!(slots.allocate(len).is_ok()));
        (100 * kept(&slots)).div_ceil(u64::from(len) * u64::from(count))
    };
    let lengths = [300, 700, 1_700, 4_000, 9_000, 20_000, 33_000, 45_000, 70_000, 100_000, 220_000, 500_000];
    let measured = lengths.map(percent);
    assert!(measured.iter().all(|percent| *percent <= 135), "{measured:?}");
}

#[test]
fn pages_that_slots_touch_are_bounded() {
    for len in [100, 1_700, 9_000, 50_000, 100_000, 300_000] {
        let mut slots = fresh();
        let made: Vec<SlotId> = (0..40).map(|_| slots.allocate(len).unwrap()).collect();
        made.iter().skip(1).step_by(3).for_each(|slot| slots.free(*slot));
        for count in [1_u32, 10, 200] {
            let bound = slots.pages_of(&[(len, count)]);
            let (_, touched) = crate::twin::touching(|| {
                for _ in 0..count {
                    let slot = slots.allocate(len).unwrap();
                    slots.write(slot, 0, &vec![1; len as usize]);
                }
            });
            let written = touched.dirtied.len() as u64;
            // The header and the arena have some pages besides.
            assert!(written <= bound + 12 + u64::from(count) / 10, "{len}: {written} of {bound}");
            assert!(bound <= 3 * written + 40, "{len}: {written} of {bound}");
        }
    }
}
