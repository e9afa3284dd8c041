//! Tests of the store: comparison with a plain model, and its rules one by one.

use super::*;
use crate::fixture;
use crate::twin::Twin;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn regions() -> [Region<Twin>; 3] {
    [fixture::ARENA, fixture::GRANULES, fixture::SETS].map(fixture::region)
}

fn open() -> BlobStore<Twin> {
    BlobStore::open(regions()).unwrap()
}

fn fresh() -> BlobStore<Twin> {
    crate::twin::reset();
    fixture::forget();
    open()
}

fn reopen(store: BlobStore<Twin>) -> BlobStore<Twin> {
    drop(store);
    fixture::forget();
    open()
}

/// Plain model of a store: slots by offset.
#[derive(Clone, Debug, Default)]
struct Model {
    end: u64,
    slots: BTreeMap<u64, ModelSlot>,
}

#[derive(Clone, Debug)]
struct ModelSlot {
    ptr: BlobPtr,
    state: SlotState,
    owner: Owner,
    bytes: Vec<u8>,
}

impl Model {
    fn allocate(&mut self, len: u32, owner: Owner) -> BlobPtr {
        let class = *[64, 128, 256, 512, 1024, 2048, 4096].iter().find(|&&k| k << 10 >= len).unwrap() << 10;
        let free = self.slots.values().find(|s| s.state == SlotState::Free && s.ptr.class == class);
        let (offset, generation) = match free {
            Some(slot) => (slot.ptr.offset, slot.ptr.generation + 1),
            None => {
                self.end += u64::from(class);
                (self.end - u64::from(class), 1)
            }
        };
        let ptr = BlobPtr { offset, len, class, generation };
        self.slots.insert(offset, ModelSlot { ptr, state: SlotState::Used, owner, bytes: Vec::new() });
        ptr
    }

    /// The expected result of `free` and `release` for any pointer.
    fn slot(&self, ptr: &BlobPtr) -> Result<&ModelSlot, PtrError> {
        if ptr.offset >= self.end {
            return Err(PtrError::NeverAllocated);
        }
        let slot = self.slots.get(&ptr.offset).ok_or(PtrError::InsideBlob)?;
        if slot.ptr.class != ptr.class { Err(PtrError::WrongClass { class: slot.ptr.class }) } else { Ok(slot) }
    }

    fn free(&mut self, ptr: &BlobPtr) -> Result<Freed, PtrError> {
        let slot = self.slot(ptr)?;
        match slot.state {
            SlotState::Free => Ok(Freed::AlreadyFree),
            SlotState::Quarantine => Ok(Freed::AlreadyQuarantined),
            SlotState::Used if slot.ptr.generation != ptr.generation => {
                Err(PtrError::StaleGeneration { current: slot.ptr.generation })
            }
            SlotState::Used => {
                self.slots.get_mut(&ptr.offset).unwrap().state = SlotState::Quarantine;
                Ok(Freed::Quarantined)
            }
        }
    }

    fn release(&mut self, ptr: &BlobPtr) -> Result<Released, PtrError> {
        let slot = self.slot(ptr)?.clone();
        match slot.state {
            SlotState::Free => Ok(Released::AlreadyFree),
            _ if slot.ptr.generation != ptr.generation => {
                Err(PtrError::StaleGeneration { current: slot.ptr.generation })
            }
            SlotState::Used => Err(PtrError::NotQuarantined),
            SlotState::Quarantine => {
                self.slots.get_mut(&ptr.offset).unwrap().state = SlotState::Free;
                Ok(Released::Freed(slot.owner))
            }
        }
    }

    fn check(&self, store: &BlobStore<Twin>) -> Result<(), TestCaseError> {
        prop_assert_eq!(store.arena_end(), self.end);
        let mut end = 0;
        for slot in self.slots.values() {
            prop_assert!(slot.ptr.offset >= end, "two slots overlap at {}", slot.ptr.offset);
            end = slot.ptr.offset + u64::from(slot.ptr.class);
            if slot.state == SlotState::Used {
                prop_assert_eq!(&store.read(&slot.ptr).unwrap()[..slot.bytes.len()], &slot.bytes[..]);
            }
        }
        prop_assert_eq!(end, self.end);
        // The counters, recomputed by a full scan.
        for class in Class::all() {
            let of = |f: &dyn Fn(&ModelSlot) -> bool| {
                self.slots.values().filter(|s| s.ptr.class == class.size() && f(s)).count() as u32
            };
            let expected = ClassCounters {
                free: of(&|s| s.state == SlotState::Free),
                quarantined: of(&|s| s.state == SlotState::Quarantine),
                lost: 0,
                kept: Owner::ALL.map(|owner| of(&|s| s.state != SlotState::Free && s.owner == owner)),
            };
            prop_assert_eq!(store.class_counters(class), expected);
        }
        for owner in Owner::ALL {
            let kept = self.slots.values().filter(|s| s.owner == owner && s.state != SlotState::Free);
            prop_assert_eq!(store.kept_bytes(owner), kept.map(|s| u64::from(s.ptr.class)).sum::<u64>());
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store {
        len: u32,
        owner: usize,
        fill: u8,
    },
    Free(usize),
    Release(usize),
    /// A pointer that was once returned, with one field changed.
    Bent {
        which: usize,
        field: u8,
        by: u32,
        release: bool,
    },
    ReleaseQuarantined(u64),
    SetOwner {
        which: usize,
        owner: usize,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![
        4 => 0u32..70_000,
        2 => 60_000u32..600_000,
        1 => 0u32..=MAX_BLOB,
        1 => prop::sample::select(vec![65_536, 65_537, 1 << 20, (1 << 20) + 1, MAX_BLOB]),
    ];
    prop_oneof![
        6 => (len, 0usize..3, any::<u8>()).prop_map(|(len, owner, fill)| Step::Store { len, owner, fill }),
        4 => any::<usize>().prop_map(Step::Free),
        4 => any::<usize>().prop_map(Step::Release),
        4 => (any::<usize>(), 0u8..5, any::<u32>(), any::<bool>())
            .prop_map(|(which, field, by, release)| Step::Bent { which, field, by, release }),
        1 => (0u64..4).prop_map(Step::ReleaseQuarantined),
        1 => (any::<usize>(), 0usize..3).prop_map(|(which, owner)| Step::SetOwner { which, owner }),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(fixture::histories(96))]

    /// Random histories with stale and changed pointers, double frees and reopenings agree with the model in every result, every byte and
    /// every counter.
    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut store = fresh();
        let mut model = Model::default();
        // Every pointer ever returned: most of them become stale.
        let mut given: Vec<BlobPtr> = Vec::new();
        for step in steps {
            match step {
                Step::Store { len, owner, fill } => {
                    let owner = Owner::ALL[owner];
                    let expected = model.allocate(len, owner);
                    let ptr = store.allocate(len, owner).unwrap();
                    prop_assert_eq!(ptr, expected);
                    let bytes = vec![fill; len.min(100) as usize];
                    store.write(&ptr, 0, &bytes).unwrap();
                    model.slots.get_mut(&ptr.offset).unwrap().bytes = bytes;
                    given.push(ptr);
                }
                Step::Free(which) if !given.is_empty() => {
                    let ptr = given[which % given.len()];
                    prop_assert_eq!(store.free(&ptr), model.free(&ptr));
                }
                Step::Release(which) if !given.is_empty() => {
                    let ptr = given[which % given.len()];
                    prop_assert_eq!(store.release(&ptr), model.release(&ptr));
                }
                Step::Bent { which, field, by, release } if !given.is_empty() => {
                    let mut ptr = given[which % given.len()];
                    match field {
                        0 => ptr.offset = u64::from(by) * 4096 % (model.end + (1 << 22)),
                        1 => ptr.class = 65_536 << (by % 7),
                        2 => ptr.class = by,
                        3 => ptr.generation = by % 4,
                        _ => ptr.offset = u64::from(by) * 65_536 % (model.end + 65_536),
                    }
                    if release {
                        prop_assert_eq!(store.release(&ptr), model.release(&ptr));
                    } else {
                        prop_assert_eq!(store.free(&ptr), model.free(&ptr));
                    }
                }
                Step::ReleaseQuarantined(max) => {
                    let quarantined: Vec<BlobPtr> = model.slots.values()
                        .filter(|s| s.state == SlotState::Quarantine).map(|s| s.ptr).take(max as usize).collect();
                    for ptr in &quarantined {
                        model.release(ptr).unwrap();
                    }
                    prop_assert_eq!(store.release_quarantined(max), (quarantined.len() as u64, vec![]));
                }
                Step::SetOwner { which, owner } if !given.is_empty() => {
                    let ptr = given[which % given.len()];
                    let owner = Owner::ALL[owner];
                    let used = model.slots.get(&ptr.offset).is_some_and(|s| s.ptr == ptr && s.state == SlotState::Used);
                    prop_assert_eq!(store.set_owner(&ptr, owner).is_ok(), used);
                    if used {
                        model.slots.get_mut(&ptr.offset).unwrap().owner = owner;
                    }
                }
                Step::Reopen => store = reopen(store),
                _ => {}
            }
            model.check(&store)?;
        }
    }

    /// `pruning-spec-v1.md` 9: once a workload of one class has reached its plateau, memory never grows again.
    #[test]
    fn a_plateau_never_grows_again(
        class in 0usize..4, live in 1usize..12, turns in prop::collection::vec((any::<usize>(), 1u32..65_536), 50..150)
    ) {
        let mut store = fresh();
        let size = 65_536u32 << class;
        let mut blobs: Vec<BlobPtr> = (0..live).map(|_| store.allocate(size, Owner::Log).unwrap()).collect();
        let (pages, end) = (fixture::manager().billed_pages(), store.arena_end());
        for (which, len) in turns {
            let at = which % blobs.len();
            store.free(&blobs[at]).unwrap();
            store.release(&blobs[at]).unwrap();
            blobs[at] = store.allocate(size - len % 1000, Owner::Log).unwrap();
            prop_assert_eq!((fixture::manager().billed_pages(), store.arena_end()), (pages, end));
        }
        let offsets: BTreeSet<u64> = blobs.iter().map(|ptr| ptr.offset).collect();
        prop_assert_eq!(offsets.len(), blobs.len());
    }
}

#[test]
fn a_quarantined_slot_is_not_reused() {
    let mut store = fresh();
    let a = store.allocate(10, Owner::Log).unwrap();
    assert_eq!(store.free(&a), Ok(Freed::Quarantined));
    let b = store.allocate(10, Owner::Log).unwrap();
    assert_ne!(a.offset, b.offset);
    assert_eq!(store.kept_bytes(Owner::Log), 2 * 65_536, "quarantine is still kept");
    assert_eq!(store.release(&a), Ok(Released::Freed(Owner::Log)));
    assert_eq!(store.kept_bytes(Owner::Log), 65_536);
    let c = store.allocate(10, Owner::Log).unwrap();
    assert_eq!((c.offset, c.generation), (a.offset, 2));
    assert_eq!(store.read(&a), Err(PtrError::StaleGeneration { current: 2 }));
    assert_eq!(
        store.free(&a),
        Err(PtrError::StaleGeneration { current: 2 }),
        "an old pointer cannot free the new blob"
    );
}

#[test]
fn refused_growth_changes_nothing() {
    let mut store = fresh();
    fixture::manager().set_max_pages(fixture::manager().billed_pages() + 256);
    // The granule table takes the remaining bucket, so the arena gets none.
    assert_eq!(store.allocate(10, Owner::Log), Err(AllocateError::Grow(GrowError::OutOfSpace)));
    assert_eq!((store.arena_end(), store.kept_bytes(Owner::Log)), (0, 0));
    fixture::manager().set_max_pages(u64::MAX);
    crate::twin::with(|world| world.liquid_cycles = 0);
    assert_eq!(
        store.allocate(10, Owner::Log),
        Err(AllocateError::Grow(GrowError::LowCycles { missing: 84_200_000_000 }))
    );
    crate::twin::with(|world| world.liquid_cycles = u128::MAX);
    assert_eq!(store.allocate(10, Owner::Log).map(|ptr| ptr.offset), Ok(0));
}

#[test]
fn too_large_and_out_of_range_are_refused() {
    let mut store = fresh();
    assert_eq!(store.allocate(MAX_BLOB + 1, Owner::Log), Err(AllocateError::TooLarge { limit: MAX_BLOB }));
    let ptr = store.store(b"hello", Owner::External).unwrap();
    assert_eq!(store.write(&ptr, 3, b"lo!"), Err(PtrError::OutOfRange { len: 5 }));
    assert_eq!(store.read(&BlobPtr { len: 4, ..ptr }), Err(PtrError::WrongLength { len: 5 }));
    let mut out = vec![1];
    assert_eq!(store.read_onto(&mut out, &ptr, 4, 2), Err(PtrError::OutOfRange { len: 5 }));
    store.read_onto(&mut out, &ptr, 1, 3).unwrap();
    assert_eq!(out, b"\x01ell");
    assert_eq!(store.read_array::<2>(&ptr, 3), Ok(*b"lo"));
}

#[test]
fn a_poisoned_entry_fails_closed() {
    let mut store = fresh();
    let a = store.allocate(10, Owner::Log).unwrap();
    store.free(&a).unwrap();
    store.release(&a).unwrap();
    store.granules.poison(0, [0xFF; 16]);
    assert_eq!(store.free(&a), Err(PtrError::Corrupt));
    assert_eq!(store.read(&a), Err(PtrError::Corrupt));
    let b = store.allocate(10, Owner::Log).unwrap();
    assert_eq!(b.offset, 65_536, "the poisoned slot does not block allocations");
    let class = Class::for_len(10).unwrap();
    assert_eq!(store.class_counters(class), ClassCounters { lost: 1, kept: [1, 0, 0], ..ClassCounters::default() });

    store.granules.poison(1, [0xFF; 16]);
    assert_eq!(store.free(&b), Err(PtrError::Corrupt));
    store.write_off(class, Owner::Log);
    assert_eq!(store.kept_bytes(Owner::Log), 0);
    let store = reopen(store);
    assert_eq!(store.class_counters(class).lost, 2);
}

/// A bad entry in quarantine is counted as lost, and the blobs after it are released.
#[test]
fn release_skips_a_bad_entry() {
    let mut store = fresh();
    let blobs = [(); 5].map(|()| store.allocate(10, Owner::Log).unwrap());
    for ptr in &blobs {
        store.free(ptr).unwrap();
    }
    store.poison(&blobs[0]);
    // An entry with a wrong state: used.
    store.granules.set(
        2,
        &Slot { generation: 1, len: 10, state: SlotState::Used, class: Class::for_len(10).unwrap(), owner: Owner::Log },
    );
    let (released, faults) = store.release_quarantined(2);
    assert_eq!((released, faults.len()), (1, 1), "{faults:?}");
    assert!(store.has_quarantined());
    let mut store = reopen(store);
    let (released, faults) = store.release_quarantined(1_000);
    assert_eq!((released, faults.len()), (2, 1), "{faults:?}");
    assert!(!store.has_quarantined());
    let counters = store.class_counters(Class::for_len(10).unwrap());
    assert_eq!(counters, ClassCounters { lost: 2, free: 3, ..ClassCounters::default() });
    assert_eq!((store.kept_bytes(Owner::Log), store.release_quarantined(1_000)), (0, (0, vec![])));
    let again = [(); 3].map(|()| store.allocate(10, Owner::Log).unwrap().offset);
    assert_eq!(again, [1, 3, 4].map(|granule| granule * 65_536), "neither of the bad ones");
}

#[test]
fn an_unknown_version_is_refused() {
    let mut store = fresh();
    store.allocate(10, Owner::Log).unwrap();
    store.sets.region().write(4, &9u16.to_le_bytes());
    drop(store);
    fixture::forget();
    assert!(BlobStore::open(regions()).err().unwrap().to_string().contains("version 9"));
}
