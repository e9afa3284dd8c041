//! Ids and links that are wrong are found, and nothing behind them is trusted.

use super::*;

#[test]
fn names_are_checked_against_the_owner_of_their_granule() {
    let mut slots = fresh();
    let [small, _] = [300, 300].map(|len| slots.allocate(len).unwrap());
    let [wide, large] = [20_000, 200_000].map(|len| slots.allocate(len).unwrap());
    // Another store's bytes look like slots in use.
    let other = slots.arena.take_granules(LOG, 1).unwrap();
    slots.arena.set_line(other, &slots.arena.line(0));
    slots.arena.payload().write(other * GRANULE, &[2, USED].repeat(32_768));
    let name = |granule: u64, byte: u64| ((granule * GRANULE + byte) / UNIT) as u32 + 1;
    for round in 0..2 {
        for (slot, len) in [(small, 376), (wide, 21_752), (large, 262_136)] {
            assert!(slots.contains(slot) && slots.holds(slot, len) && !slots.holds(slot, len + 1), "{round}");
        }
        let beyond = slots.arena.end() / UNIT;
        for slot in [0, large + 512, name(other, 0), name(other, 384), beyond as u32 + 1, u32::MAX] {
            assert!(!slots.contains(slot) && !slots.holds(slot, 0), "{slot}");
        }
        for slot in [small + 1, wide + 1, large + 1] {
            assert!(!slots.holds(slot, 0), "{slot} is not where a slot begins");
        }
        slots = reopened(slots);
    }
    slots.free(small);
    assert!(slots.contains(small) && !slots.holds(small, 0), "it is free");
    let stale = [wide, large];
    stale.into_iter().for_each(|slot| slots.free(slot));
    assert!(stale.iter().all(|slot| !slots.contains(*slot)));
}

/// The bytes of a new chunk may be those of a producer.
#[test]
fn slots_that_were_never_used_are_not_in_use() {
    let mut slots = fresh();
    let granule = slots.arena.take_granules(LOG, 1).unwrap();
    slots.arena.payload().write(granule * GRANULE, &[0, USED].repeat(32_768));
    slots.arena.give_granules(LOG, granule, 1);
    let first = slots.allocate(10).unwrap();
    assert_eq!(u64::from(first - 1) * UNIT, granule * GRANULE);
    assert!(slots.contains(first + 1) && !slots.holds(first + 1, 0));
    assert_eq!(slots.allocate(10).unwrap(), first + 1);
    assert!(slots.holds(first + 1, 120));
}

#[test]
fn a_damaged_stack_of_free_slots_is_not_followed() {
    for damage in [[0, USED, 0, 0, 0, 0, 0, 0], [1, FREE, 0, 0, 0, 0, 0, 0], [0, FREE, 0, 0, 9, 0, 0, 0]] {
        let mut slots = fresh();
        let [a, b] = [10, 10].map(|len| slots.allocate(len).unwrap());
        slots.free(a);
        slots.arena.payload().write(u64::from(a - 1) * UNIT, &damage);
        assert_eq!(slots.allocate(10).unwrap(), b + 1);
    }
    // A full chunk has no other slot, so it leaves the list.
    let mut slots = fresh();
    let made: Vec<SlotId> = (0..8).map(|_| slots.allocate(8_000).unwrap()).collect();
    slots.free(made[1]);
    slots.arena.payload().write(u64::from(made[1] - 1) * UNIT, &[19, USED]);
    assert_eq!(slots.allocate(8_000).unwrap(), made[0] + 512);
    slots.free(made[2]);
    assert_eq!(slots.allocate(8_000).unwrap(), made[0] + 512 + 64);
}

#[test]
fn a_damaged_list_of_chunks_is_not_followed() {
    let other = fresh().allocate(4_000).unwrap();
    for name in [1_000_000, 65, other] {
        let mut slots = fresh();
        let made: Vec<SlotId> = (0..24).map(|_| slots.allocate(8_000).unwrap()).collect();
        [1, 9, 17].into_iter().for_each(|nth| slots.free(made[nth]));
        // The first chunk's next one is another.
        let first = u64::from(made[0] - 1) * UNIT / GRANULE;
        let mut line = slots.arena.line(first);
        line[12..].copy_from_slice(&u32::to_le_bytes(name));
        slots.arena.set_line(first, &line);
        assert_eq!(slots.allocate(8_000).unwrap(), made[1]);
        let more: Vec<SlotId> = (0..8).map(|_| slots.allocate(8_000).unwrap()).collect();
        assert!(more.iter().all(|slot| !made.contains(slot)), "{name}");
        made.into_iter()
            .filter(|slot| slots.holds(*slot, 0))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|slot| slots.free(slot));
        more.into_iter().for_each(|slot| slots.free(slot));
        assert_eq!(kept(&slots), 0, "chunks outside the list go back, too");
    }
}

/// A damaged list must not make a later upgrade impossible.
#[test]
fn memory_with_a_damaged_list_is_opened_again_whatever_is_freed_later() {
    let mut slots = fresh();
    let held: Vec<SlotId> = (0..9).map(|_| slots.allocate(10).unwrap()).collect();
    // The list leads to a granule of another store.
    let list = &mut slots.header.lists[0];
    (list.first, list.last) = (9, 9);
    let after = slots.allocate(10).unwrap();
    let mut slots = reopened(slots);
    held.into_iter().chain([after]).for_each(|slot| slots.free(slot));
    let slots = reopened(slots);
    assert_eq!((slots.stats().used_bytes, slots.arena.kept_bytes(RECORDS)), (0, 0));
}
