//! Slots compared with a plain map of what each one holds.

use super::*;
use crate::slots::class::granules_of;
use crate::twin;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Allocate { tag: u8, len: u32 },
    Write { which: u16, tag: u8 },
    Free { which: u16 },
    Reserve { len: u32, count: u32 },
    Begin,
    Commit,
    Undo,
    Reopen,
    Refused { len: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![6 => 1u32..3_000, 3 => 3_000u32..140_000, 1 => 140_000u32..1_000_000];
    let step = prop_oneof![
        8 => (any::<u8>(), len()).prop_map(|(tag, len)| Step::Allocate { tag, len }),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(which, tag)| Step::Write { which, tag }),
        5 => any::<u16>().prop_map(|which| Step::Free { which }),
        1 => (len(), 1u32..20).prop_map(|(len, count)| Step::Reserve { len, count }),
        1 => Just(Step::Begin),
        1 => Just(Step::Commit),
        1 => Just(Step::Undo),
        1 => Just(Step::Reopen),
        1 => len().prop_map(|len| Step::Refused { len }),
    ];
    prop::collection::vec(step, 1..120)
}

type Model = BTreeMap<SlotId, Vec<u8>>;

fn filled(tag: u8, len: u32) -> Vec<u8> {
    (0..len).map(|i| tag ^ (i % 251) as u8).collect()
}

fn pick(model: &Model, which: u16) -> Option<SlotId> {
    model.keys().nth(usize::from(which) % model.len().max(1)).copied()
}

/// Allocates and fills a slot.
fn make(slots: &mut Slots<Twin>, model: &mut Model, tag: u8, len: u32) {
    let slot = slots.allocate(len).unwrap();
    slots.write(slot, 0, &filled(tag, len));
    assert!(model.insert(slot, filled(tag, len)).is_none());
}

/// Checks contents, and that slots do not overlap each other or others' memory.
fn check(slots: &Slots<Twin>, model: &Model) {
    let mut end = 0;
    for (&slot, bytes) in model {
        assert!(slots.holds(slot, bytes.len() as u64));
        let at = u64::from(slot - 1) * UNIT;
        assert!(at >= end);
        end = at + u64::from(slots.capacity(slot) + HEAD);
        let mut found = Vec::new();
        slots.read_onto(&mut found, slot, 0, bytes.len());
        assert_eq!(&found, bytes);
    }
    assert_eq!(slots.header.granules() * GRANULE, kept(slots));
    check_lists(slots);
}

/// Checks that each class's list has exactly its chunks with room, linked both ways, and that counts agree.
fn check_lists(slots: &Slots<Twin>) {
    let (mut used, mut with_room) = ([0; CLASSES], [0; CLASSES]);
    for granule in 0..slots.arena.end() / GRANULE {
        let class = slots.kind(granule).filter(|class| *class < LARGE);
        let Some(class) = class.filter(|class| granule % granules_of(*class) == 0) else {
            continue;
        };
        let line = slots.line(granule);
        used[class] += u32::from(line.used);
        with_room[class] += usize::from(line.has_room(class));
    }
    for class in 0..CLASSES {
        let list = slots.header.lists[class];
        assert_eq!((list.used, list.first == 0), (used[class], list.last == 0));
        let word = |name: u32, at: usize| {
            let line = slots.arena.line(u64::from(name) - 1);
            u32::from_le_bytes(line[at..at + 4].try_into().unwrap())
        };
        let next = |name: &u32| Some(word(*name, 12)).filter(|next| *next != 0);
        let names: Vec<u32> = std::iter::successors(Some(list.first).filter(|first| *first != 0), next).collect();
        assert_eq!((names.len(), names.last().copied().unwrap_or(0)), (with_room[class], list.last));
        let mut before = 0;
        for name in names {
            assert_eq!(word(name, 8), before);
            assert!(slots.line(u64::from(name) - 1).has_room(class));
            before = name;
        }
    }
}

/// Allocates with all memory taken: what fails changes nothing.
fn refused(slots: &mut Slots<Twin>, model: &mut Model, len: u32) {
    let arena = slots.arena.clone();
    let mut others = Vec::new();
    cap();
    arena.end_reservations();
    while let Ok(granule) = arena.take_granules(LOG, 1) {
        others.push(granule);
    }
    let before = slots.header.clone();
    match slots.allocate(len) {
        Ok(slot) => {
            slots.write(slot, 0, &filled(1, len));
            assert!(model.insert(slot, filled(1, len)).is_none());
        }
        Err(_) => assert_eq!(slots.header, before),
    }
    others.into_iter().for_each(|granule| arena.give_granules(LOG, granule, 1));
    testing::arena().growth().set_max_pages(u64::MAX);
}

/// Reserves, then allocates while growth is forbidden and another store has all other memory.
fn reserved(slots: &mut Slots<Twin>, model: &mut Model, len: u32, count: u32) {
    slots.reserve(&[(len, count)]).unwrap();
    // Frees between the reservation and the allocations.
    for slot in model.keys().copied().take(3).collect::<Vec<_>>() {
        slots.free(slot);
        model.remove(&slot);
    }
    let arena = slots.arena.clone();
    let mut others = Vec::new();
    cap();
    while let Ok(granule) = arena.take_granules(LOG, 1) {
        others.push(granule);
    }
    (0..count).for_each(|nth| make(slots, model, nth as u8, len));
    others.into_iter().for_each(|granule| arena.give_granules(LOG, granule, 1));
    testing::arena().growth().set_max_pages(u64::MAX);
}

proptest! {
    #![proptest_config(testing::histories(96))]

    /// Undone changes leave no trace, and nothing is kept when all slots are freed.
    #[test]
    fn agrees_with_a_model(steps in steps()) {
        let mut slots = fresh();
        let (mut model, mut saved) = (Model::new(), None);
        for step in steps {
            match step {
                Step::Allocate { tag, len } => make(&mut slots, &mut model, tag, len),
                Step::Write { which, tag } => {
                    if let Some(slot) = pick(&model, which) {
                        let bytes = model.get_mut(&slot).unwrap();
                        *bytes = filled(tag, bytes.len() as u32);
                        slots.write(slot, 0, bytes);
                    }
                }
                Step::Free { which } => {
                    if let Some(slot) = pick(&model, which) {
                        slots.free(slot);
                        model.remove(&slot);
                    }
                }
                Step::Reserve { len, count } => reserved(&mut slots, &mut model, len, count),
                Step::Refused { len } => refused(&mut slots, &mut model, len),
                Step::Begin if saved.is_none() => {
                    slots.begin();
                    saved = Some((model.clone(), slots.header.clone(), kept(&slots)));
                }
                Step::Commit => {
                    slots.commit();
                    saved = None;
                }
                Step::Undo => if let Some((before, header, bytes)) = saved.take() {
                    slots.undo();
                    model = before;
                    assert_eq!((&slots.header, kept(&slots)), (&header, bytes));
                }
                Step::Reopen if saved.is_none() => slots = reopened(slots),
                Step::Begin | Step::Reopen => {}
            }
            slots.arena.end_reservations();
        }
        check(&slots, &model);
        if saved.is_none() {
            slots = reopened(slots);
            check(&slots, &model);
        }
        slots.commit();
        for slot in model.into_keys() {
            slots.free(slot);
        }
        prop_assert_eq!((kept(&slots), slots.stats()), (0, SlotStats::default()));
        prop_assert!(slots.header.lists.iter().all(|list| (list.first, list.last, list.used, list.chunks) == (0, 0, 0, 0)));
    }

    /// A trap anywhere leaves the slots as they were before the message.
    #[test]
    fn a_trap_changes_nothing(len in 1u32..200_000, after in 0u64..60) {
        let mut slots = fresh();
        let mut model = Model::new();
        (0..3).for_each(|tag| make(&mut slots, &mut model, tag, len));
        twin::with(|world| world.trap_after = Some(after));
        let first = *model.keys().next().unwrap();
        let ended = twin::message(|| {
            slots.free(first);
            (0..3).for_each(|_| assert!(slots.allocate(len).is_ok()));
        });
        twin::with(|world| world.trap_after = None);
        if ended.is_err() {
            slots = reopened(slots);
            check(&slots, &model);
        }
    }
}
