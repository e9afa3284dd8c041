//! Quota of UTXO records: how much of stable memory belongs to them, and the reserve that lets them be marked, pruned and completed at
//! the cap.
//!
//! ```text
//! max_stable_pages
//! ┌─ chain ─────────────────┬─ records, up to max_utxo_bytes ─────────────────────────┬─ reserve ─┐
//! │ its regions, its blobs  │ index, slots, deletion queue; blobs that the log can't  │ 64 MiB    │
//! └─────────────────────────┴─ take: of other classes, or a record's ─────────────────┴───────────┘
//!   grows up to the reserve    new records and rows: up to the cap, and the reserve     what changes or deletes records
//! ```
//! Billed memory never becomes less, so what counts is what was ever grown for records, not what they keep.

use super::error::GrowError;
use super::ids::{DELETIONS, UTXO_INDEX, UTXO_SLOTS};
pub use coppice_interface::RECORDS_RESERVE as RESERVE;
use std::cell::Cell;

/// The regions whose content belongs to records.
const REGIONS: [u8; 3] = [UTXO_INDEX, UTXO_SLOTS, DELETIONS];

/// Bounds of the memory of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// New records and rows grow memory up to this (`max_utxo_bytes`).
    cap: u64,
    /// The bytes that were billed for records when the cap was set: the reserve begins above both.
    floor: u64,
}

const UNLIMITED: Limits = Limits { cap: u64::MAX, floor: 0 };

thread_local! {
    static LIMITS: Cell<Limits> = const { Cell::new(UNLIMITED) };
    static SIZES: Cell<[u64; REGIONS.len()]> = const { Cell::new([0; REGIONS.len()]) };
    static BLOBS: Cell<u64> = const { Cell::new(0) };
    static CREATING: Cell<bool> = const { Cell::new(false) };
}

/// Forgets everything, as an upgrade does.
#[cfg(not(target_family = "wasm"))]
pub(super) fn forget() {
    LIMITS.set(UNLIMITED);
    SIZES.set(Default::default());
    BLOBS.set(0);
    CREATING.set(false);
}

/// Sets the cap, and what was billed when it was set, if that is more.
pub fn set_limits(cap: u64, floor: u64) {
    LIMITS.set(Limits { cap, floor });
}

/// The cap in force, in bytes.
pub fn cap() -> u64 {
    LIMITS.get().cap
}

/// Sets the number of the arena's bytes that belong to records.
pub fn set_blobs(bytes: u64) {
    BLOBS.set(bytes);
}

/// Sets the size of a region, if the region belongs to records.
pub(super) fn set_size(id: u8, bytes: u64) {
    if let Some(place) = REGIONS.iter().position(|of_records| *of_records == id) {
        let mut sizes = SIZES.get();
        sizes[place] = bytes;
        SIZES.set(sizes);
    }
}

/// Bytes that are billed for records.
pub fn billed() -> u64 {
    SIZES.get().iter().sum::<u64>() + BLOBS.get()
}

/// Runs something that makes records or rows: it may take memory up to the cap only, and none of the reserve.
pub fn creating<T>(run: impl FnOnce() -> T) -> T {
    let _creating = Creating(CREATING.replace(true));
    run()
}

/// While it lives, records are made; it knows whether they were before.
struct Creating(bool);

impl Drop for Creating {
    fn drop(&mut self) {
        CREATING.set(self.0);
    }
}

/// True where a region may take the reserve.
pub(super) fn draws_on_reserve(id: u8) -> bool {
    REGIONS.contains(&id) && !CREATING.get()
}

/// The largest size that a region may have now, in bytes.
pub(super) fn most_of(id: u8) -> u64 {
    let Limits { cap, floor } = LIMITS.get();
    beside_the_rest(id, if CREATING.get() { cap } else { cap.max(floor).saturating_add(RESERVE) })
}

/// The largest size that a region may have without the reserve, in bytes.
pub(super) fn most_without_reserve(id: u8) -> u64 {
    beside_the_rest(id, LIMITS.get().cap)
}

/// The largest size of a region, in bytes, where all regions and blobs of records together may take `most`.
fn beside_the_rest(id: u8, most: u64) -> u64 {
    let Some(place) = REGIONS.iter().position(|of_records| *of_records == id) else { return u64::MAX };
    most.saturating_sub(billed() - SIZES.get()[place])
}

/// The byte at which new records and rows must end in a region; what changes those that are there may end anywhere.
#[inline]
pub(super) fn end_of(id: u8) -> u64 {
    if CREATING.get() { most_of(id) } else { u64::MAX }
}

/// Checks that `more` additional bytes of the arena may belong to records.
///
/// # Errors
/// `RecordsFull`.
pub fn check_blobs(more: u64) -> Result<(), GrowError> {
    match more > 0 && billed().saturating_add(more) > cap() {
        true => Err(GrowError::RecordsFull),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOB_ARENA, billed_pages, forget, region, set_max_pages};
    use super::*;
    use crate::platform::native;
    use crate::storage::memory::{BUCKET, WASM_PAGE};

    const MIB: u64 = 1 << 20;

    fn fresh() {
        native::reset();
        forget();
    }

    #[test]
    fn what_makes_records_ends_at_the_cap_and_what_changes_them_at_the_reserve() {
        fresh();
        set_limits(48 * MIB, 0);
        let (index, slots) = (region(UTXO_INDEX), region(UTXO_SLOTS));
        index.reserve(1).unwrap();
        assert_eq!(creating(|| slots.reserve(32 * MIB)), Ok(()));
        assert_eq!((billed(), slots.size()), (48 * MIB, 32 * MIB));
        assert_eq!(creating(|| slots.reserve(32 * MIB + 1)), Err(GrowError::RecordsFull));
        assert_eq!(creating(|| index.reserve(BUCKET + 1)), Err(GrowError::RecordsFull));
        assert_eq!(creating(|| region(BLOB_ARENA).reserve(BUCKET + 1)), Ok(()), "the chain goes on");
        assert_eq!(slots.reserve(96 * MIB), Ok(()));
        assert_eq!(slots.reserve(96 * MIB + 1), Err(GrowError::RecordsFull), "64 MiB above the cap");
        assert_eq!(creating(|| end_of(UTXO_SLOTS)), 32 * MIB, "nor do new ones take what of the reserve was grown");
    }

    #[test]
    fn what_lies_in_the_arena_counts() {
        fresh();
        set_limits(48 * MIB, 0);
        set_blobs(40 * MIB);
        assert_eq!(check_blobs(8 * MIB), Ok(()));
        assert_eq!(check_blobs(8 * MIB + 1), Err(GrowError::RecordsFull));
        assert_eq!(creating(|| region(UTXO_SLOTS).reserve(1)), Err(GrowError::RecordsFull));
        set_blobs(60 * MIB);
        assert_eq!(check_blobs(0), Ok(()), "what takes none is not refused above the cap");
    }

    #[test]
    fn a_cap_below_use_leaves_the_whole_reserve() {
        fresh();
        let slots = region(UTXO_SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        set_limits(1, billed());
        assert_eq!(creating(|| slots.reserve(100 * BUCKET + 1)), Err(GrowError::RecordsFull));
        assert_eq!(slots.reserve(104 * BUCKET), Ok(()));
        assert_eq!(slots.reserve(104 * BUCKET + 1), Err(GrowError::RecordsFull));
    }

    #[test]
    fn only_records_that_are_there_take_the_last_64_mib() {
        fresh();
        let (slots, arena) = (region(UTXO_SLOTS), region(BLOB_ARENA));
        slots.reserve(1).unwrap();
        arena.reserve(1).unwrap();
        set_max_pages(billed_pages() + RESERVE / WASM_PAGE);
        assert_eq!(arena.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(creating(|| slots.reserve(BUCKET + 1)), Err(GrowError::OutOfSpace));
        assert_eq!(slots.reserve(5 * BUCKET), Ok(()));
        assert_eq!(slots.reserve(5 * BUCKET + 1), Err(GrowError::OutOfSpace));
    }

    #[test]
    fn growth_takes_no_more_of_the_reserve_than_it_needs() {
        fresh();
        let slots = region(UTXO_SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        set_max_pages(billed_pages() + RESERVE / WASM_PAGE);
        slots.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(slots.size(), 101 * BUCKET, "a thirty-second more, where there is room");
        // Above the cap, too.
        forget();
        native::reset();
        let slots = region(UTXO_SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        set_limits(100 * BUCKET, 0);
        slots.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(slots.size(), 101 * BUCKET);
    }
}
