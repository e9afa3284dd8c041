//! Tests of the store's rules, one by one; `arena/tests.rs` compares random histories with a model.

use super::*;
use crate::GrowError;
use crate::arena::ClassCounters;
use crate::testing::{self, LOG, RECORDS};
use crate::twin::Twin;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn fresh() -> BlobStore<Twin> {
    testing::fresh();
    BlobStore::open(testing::arena())
}

fn reopen(store: BlobStore<Twin>) -> BlobStore<Twin> {
    drop(store);
    testing::forget();
    BlobStore::open(testing::arena())
}

fn billed() -> u64 {
    testing::arena().billed_pages()
}

proptest! {
    #![proptest_config(testing::histories(96))]

    /// `pruning-spec-v1.md` 9: once a workload of one class has reached its plateau, memory never grows again.
    #[test]
    fn a_plateau_never_grows_again(
        class in 0usize..4, live in 1usize..12, turns in prop::collection::vec((any::<usize>(), 1u32..65_536), 50..150)
    ) {
        let mut store = fresh();
        let size = 65_536u32 << class;
        let mut blobs: Vec<BlobPtr> = (0..live).map(|_| store.allocate(size, LOG).unwrap()).collect();
        let (pages, end) = (billed(), store.arena().end());
        for (which, len) in turns {
            let at = which % blobs.len();
            store.free(&blobs[at]).unwrap();
            store.release(&blobs[at]).unwrap();
            blobs[at] = store.allocate(size - len % 1000, LOG).unwrap();
            prop_assert_eq!((billed(), store.arena().end()), (pages, end));
        }
        let offsets: BTreeSet<u64> = blobs.iter().map(|ptr| ptr.offset).collect();
        prop_assert_eq!(offsets.len(), blobs.len());
    }
}

/// A pointer to memory that has since become part of other slots: free and release know that it is free, and nothing else is answered.
#[test]
fn earlier_pointers_are_typed_errors_whatever_became_of_their_memory() {
    let mut store = fresh();
    // The granule behind the extent's front has no buddy.
    store.allocate(10, LOG).unwrap();
    let ptrs: Vec<BlobPtr> = (0..4).map(|_| store.allocate(10, LOG).unwrap()).collect();
    for ptr in &ptrs {
        store.free(ptr).unwrap();
        store.release(ptr).unwrap();
    }
    for ptr in &ptrs {
        assert_eq!((store.free(ptr), store.release(ptr)), (Ok(false), Ok(false)));
        assert!(store.read(ptr).is_err() && store.set_owner(ptr, RECORDS).is_err());
    }
    let large = store.allocate(200_000, LOG).unwrap();
    assert_eq!((large.offset, large.generation), (4 * 65_536, 2));
    assert_eq!(store.free(&ptrs[0]), Err(PtrError::WrongClass { class: 262_144 }));
    for ptr in &ptrs[1..] {
        assert_eq!((store.free(ptr), store.release(ptr)), (Err(PtrError::InsideBlob), Err(PtrError::InsideBlob)));
        assert_eq!(store.read(ptr), Err(PtrError::InsideBlob));
    }
    store.free(&large).unwrap();
    assert_eq!(store.free(&ptrs[2]), Err(PtrError::InsideBlob), "in quarantine");
    store.release(&large).unwrap();
    let taken = store.arena().take_granules(RECORDS, 1).unwrap();
    assert_eq!(taken, 4);
    let forged = BlobPtr { generation: 3, ..ptrs[0] };
    assert_eq!((store.read(&forged), store.free(&forged)), (Err(PtrError::NotUsed), Err(PtrError::NotUsed)));
    assert_eq!(store.release(&forged), Err(PtrError::NotUsed), "memory of another store is never freed as a blob");
}

#[test]
fn a_quarantined_slot_is_not_reused() {
    let mut store = fresh();
    let a = store.allocate(10, LOG).unwrap();
    assert_eq!(store.free(&a), Ok(true));
    let b = store.allocate(10, LOG).unwrap();
    assert_ne!(a.offset, b.offset);
    assert_eq!(store.arena().kept_bytes(LOG), 2 * 65_536, "quarantine is still kept");
    assert_eq!(store.release(&a), Ok(true));
    assert_eq!(store.arena().kept_bytes(LOG), 65_536);
    let c = store.allocate(10, LOG).unwrap();
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
    testing::arena().growth().set_max_pages(testing::arena().billed_pages());
    while store.arena().take_granules(RECORDS, 1).is_ok() {}
    assert_eq!(store.allocate(10, LOG), Err(AllocateError::Grow(GrowError::OutOfSpace)));
    assert_eq!((store.arena().end(), store.arena().kept_bytes(LOG)), (1 << 20, 0));
    testing::arena().growth().set_max_pages(u64::MAX);
    crate::twin::with(|world| world.liquid_cycles = 0);
    assert_eq!(store.allocate(10, LOG), Err(AllocateError::Grow(GrowError::LowCycles { missing: 84_200_000_000 })));
    crate::twin::with(|world| world.liquid_cycles = u128::MAX);
    assert_eq!(store.allocate(10, LOG).map(|ptr| ptr.offset), Ok(1 << 20));
}

#[test]
fn too_large_and_out_of_range_are_refused() {
    let mut store = fresh();
    assert_eq!(store.allocate(MAX_BLOB + 1, LOG), Err(AllocateError::TooLarge { limit: MAX_BLOB }));
    let ptr = store.store(b"hello", RECORDS).unwrap();
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
    let [a, _] = [(); 2].map(|()| store.allocate(10, LOG).unwrap());
    store.free(&a).unwrap();
    store.release(&a).unwrap();
    store.arena().poison(3);
    assert_eq!(store.free(&a), Err(PtrError::Corrupt));
    assert_eq!(store.read(&a), Err(PtrError::Corrupt));
    let b = store.allocate(10, LOG).unwrap();
    assert_eq!(b.offset, 5 * 65_536, "the poisoned slot does not block allocations");
    let class = Class::for_len(10).unwrap();
    assert_eq!(store.arena().class_counters(class), ClassCounters { lost: 1, free: 0, quarantined: 0 });

    store.arena().poison(5);
    assert_eq!(store.free(&b), Err(PtrError::Corrupt));
    store.arena().lose(class, LOG);
    assert_eq!(store.arena().kept_bytes(LOG), 65_536);
    let store = reopen(store);
    assert_eq!(store.arena().class_counters(class).lost, 2);
}

/// A bad entry in quarantine is counted as lost, and the blobs after it are released.
#[test]
fn release_skips_a_bad_entry() {
    let mut store = fresh();
    let blobs = [(); 5].map(|()| store.allocate(10, LOG).unwrap());
    for ptr in &blobs {
        store.free(ptr).unwrap();
    }
    store.poison(&blobs[0]);
    // An entry with a wrong state: used.
    let entry = store.arena().entry(5).unwrap().unwrap();
    store.arena().overwrite(5, &Entry { state: SlotState::Used, ..entry });
    let (released, faults) = store.release_quarantined(2);
    assert_eq!((released, faults.len()), (1, 1), "{faults:?}");
    assert!(store.has_quarantined());
    let mut store = reopen(store);
    let (released, faults) = store.release_quarantined(1_000);
    assert_eq!((released, faults.len()), (2, 1), "{faults:?}");
    assert!(!store.has_quarantined());
    let counters = store.arena().class_counters(Class::for_len(10).unwrap());
    assert_eq!(counters, ClassCounters { lost: 1, free: 1, quarantined: 1 });
    assert_eq!((store.arena().kept_bytes(LOG), store.release_quarantined(1_000)), (65_536, (0, vec![])));
    let again = [(); 3].map(|()| store.allocate(10, LOG).unwrap().offset);
    assert_eq!(again, [4, 6, 7].map(|granule| granule * 65_536), "neither of the bad ones");
}

#[test]
fn an_unknown_version_is_refused() {
    let mut store = fresh();
    store.allocate(10, LOG).unwrap();
    drop(store);
    testing::arena().payload().write(8_192 + 4, &9u16.to_le_bytes());
    testing::forget();
    assert!(testing::try_arena().err().unwrap().to_string().contains("version 9"));
}
