use super::*;
use crate::fixture;
use crate::twin::Twin;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn open() -> Slots<Twin> {
    Slots::open(fixture::region(fixture::SLOTS)).unwrap()
}

fn fresh() -> Slots<Twin> {
    crate::twin::reset();
    fixture::forget();
    open()
}

#[test]
fn small_slots_are_adjacent_and_reused() {
    let mut slots = fresh();
    let [a, b] = [100, 100].map(|len| slots.allocate(len).unwrap());
    assert_eq!((a, b), (FIRST_SLOT, FIRST_SLOT + 2));
    assert_eq!(slots.capacity(a), 120);
    slots.write(a, 112, &[1; 8]);
    slots.free(a);
    slots.free(b);
    assert_eq!(slots.stats(), SlotStats { used_bytes: 0, free_bytes: 256 });
    assert_eq!(slots.allocate(120).unwrap(), b, "the last that was freed");
    assert_eq!(slots.allocate(50).unwrap(), a, "a larger one, because there is no other");
    assert_eq!(slots.allocate(56).unwrap(), FIRST_SLOT + 4);
    assert_eq!(slots.allocate(MAX_LEN + 1), Err(GrowError::OutOfSpace));
}

#[test]
fn allocations_after_a_reservation_succeed() {
    let mut slots = fresh();
    for (i, len) in [1u32, 56, 57, 505, 5_000, 70_000, MAX_LEN].into_iter().enumerate() {
        slots.reserve(&[(len, 1)]).unwrap();
        fixture::manager().set_max_pages(fixture::manager().billed_pages());
        slots.allocate(len).unwrap_or_else(|error| panic!("{i} {error:?}"));
        fixture::manager().set_max_pages(u64::MAX);
    }
}

#[test]
fn reservation_counts_free_slots() {
    let mut slots = fresh();
    let many: Vec<SlotId> = (0..2).map(|_| slots.allocate(4_000_000).unwrap()).collect();
    while slots.has_room(50_000, 1) {
        slots.allocate(50_000).unwrap();
    }
    fixture::manager().set_max_pages(fixture::manager().billed_pages());
    assert_eq!(slots.reserve(&[(4_000_000, 1)]), Err(GrowError::OutOfSpace));
    many.into_iter().for_each(|slot| slots.free(slot));
    slots.reserve(&[(4_000_000, 2)]).unwrap();
    assert_eq!(slots.reserve(&[(4_000_000, 3)]), Err(GrowError::OutOfSpace));
    assert_eq!(slots.reserve(&[(4_000_000, 1), (3_500_000, 2)]), Err(GrowError::OutOfSpace));
    slots.allocate(4_000_000).unwrap();
    slots.allocate(3_500_000).unwrap();
}

#[test]
#[should_panic(expected = "is not in use")]
fn freeing_twice_traps() {
    let mut slots = fresh();
    let a = slots.allocate(10).unwrap();
    slots.free(a);
    slots.free(a);
}

#[test]
fn a_damaged_free_list_is_not_followed() {
    let mut slots = fresh();
    let a = slots.allocate(10).unwrap();
    slots.free(a);
    slots.region.write(u64::from(a) * UNIT + 1, &[USED]);
    assert_eq!(slots.allocate(10).unwrap(), a + 1);
}

#[test]
fn unknown_header_is_refused() {
    let slots = fresh();
    slots.region.write(4, &[9]);
    assert!(Slots::open(slots.region).is_err_and(|why| why.to_string().contains("version 9")));
    let slots = fresh();
    slots.region.write_u64(END, FIRST + 64);
    assert!(Slots::open(slots.region).is_err_and(|why| why.to_string().contains("their bytes end")));
}

fn filled(tag: u8, len: u32) -> Vec<u8> {
    (0..len).map(|i| tag ^ i as u8).collect()
}

proptest! {
    /// Compared with a map of each slot's content: slots do not overlap, and undone changes leave no trace; reopened in between.
    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec((0u8..10, any::<u8>(), 1u32..3_000), 1..300)) {
        let mut slots = fresh();
        let mut model: BTreeMap<SlotId, Vec<u8>> = BTreeMap::new();
        let mut saved = None;
        for (kind, tag, len) in steps {
            match kind {
                0..=4 => {
                    let slot = slots.allocate(len).unwrap();
                    slots.write(slot, 0, &filled(tag, len));
                    prop_assert!(model.insert(slot, filled(tag, len)).is_none());
                }
                5..=6 => {
                    let slot = model.range(FIRST_SLOT + u32::from(tag)..).next().map(|(slot, _)| *slot);
                    if let Some(slot) = slot {
                        slots.free(slot);
                        model.remove(&slot);
                    }
                }
                7 if saved.is_none() => {
                    slots.begin();
                    saved = Some(model.clone());
                }
                7 => {
                    slots.undo();
                    model = saved.take().unwrap();
                }
                8 => {
                    slots.commit();
                    saved = None;
                }
                _ if saved.is_none() => {
                    drop(slots);
                    fixture::forget();
                    slots = open();
                }
                _ => {}
            }
        }
        let mut end = FIRST;
        for (&slot, bytes) in &model {
            prop_assert!(u64::from(slot) * UNIT >= end);
            end = u64::from(slot) * UNIT + u64::from(slots.capacity(slot) + HEAD);
            let mut found = Vec::new();
            slots.read_onto(&mut found, slot, 0, bytes.len());
            prop_assert_eq!(&found, bytes);
        }
        slots.commit();
        for slot in model.into_keys() {
            slots.free(slot);
        }
        let stats = slots.stats();
        prop_assert_eq!(stats.used_bytes, 0);
        prop_assert_eq!(FIRST + stats.free_bytes, slots.header.end);
        prop_assert!(Slots::open(slots.region).is_ok());
    }
}
