//! Quota: the share of stable memory that some regions may take together, and a reserve for changing entries when the quota is used up.
//!
//! ```text
//! cap of all stable memory
//! ┌─ other regions ─────────┬─ counted regions and blobs, up to the quota ────────────┬─ reserve ─┐
//! └─────────────────────────┴─────────────────────────────────────────────────────────┴───────────┘
//!   grow up to the reserve    creating: up to the quota, and up to the reserve          all other work
//! ```
//! Billed memory never shrinks, so the quota counts what was ever grown for these regions, not their current content.

use crate::GrowError;
use std::cell::Cell;

/// The quota of a manager's counted regions.
pub struct Quota {
    /// Bytes above the quota, and below the cap of all memory, for work that creates no entries.
    pub reserve: u64,
    /// Cap for work that creates entries.
    cap: Cell<u64>,
    /// The bytes that were billed when the cap was set; the reserve begins above both.
    floor: Cell<u64>,
    /// Id and bytes of each counted region.
    sizes: Box<[(u8, Cell<u64>)]>,
    /// Bytes of blobs that count towards the quota.
    blobs: Cell<u64>,
    creating: Cell<bool>,
}

impl Quota {
    /// Creates a quota without a limit for the regions with these ids.
    pub fn new(counted: &[u8], reserve: u64) -> Self {
        Self {
            reserve,
            cap: Cell::new(u64::MAX),
            floor: Cell::new(0),
            sizes: counted.iter().map(|id| (*id, Cell::new(0))).collect(),
            blobs: Cell::new(0),
            creating: Cell::new(false),
        }
    }

    /// Sets the cap, and the bytes that were billed when it was set (`floor`). The reserve begins above the larger one.
    pub fn set_limits(&self, cap: u64, floor: u64) {
        self.cap.set(cap);
        self.floor.set(floor);
    }

    /// Returns the cap in force, in bytes.
    pub fn cap(&self) -> u64 {
        self.cap.get()
    }

    /// Sets the bytes of blobs that count towards the quota.
    pub fn set_blobs(&self, bytes: u64) {
        self.blobs.set(bytes);
    }

    /// Returns the bytes of a region, if the region counts.
    fn size(&self, id: u8) -> Option<&Cell<u64>> {
        self.sizes.iter().find(|(counted, _)| *counted == id).map(|(_, size)| size)
    }

    /// Sets the size of a region, if the region counts.
    pub fn set_size(&self, id: u8, bytes: u64) {
        if let Some(size) = self.size(id) {
            size.set(bytes);
        }
    }

    /// Returns the bytes that are billed for counted regions and blobs.
    pub fn billed(&self) -> u64 {
        self.sizes.iter().map(|(_, size)| size.get()).sum::<u64>() + self.blobs.get()
    }

    /// Runs work that creates entries: it may take memory up to the cap, and none of the reserve.
    pub fn creating<T>(&self, run: impl FnOnce() -> T) -> T {
        let before = self.creating.replace(true);
        let done = run();
        self.creating.set(before);
        done
    }

    /// Returns whether a region may take the reserve.
    pub fn draws_on_reserve(&self, id: u8) -> bool {
        self.size(id).is_some() && !self.creating.get()
    }

    /// Returns the largest size that a region may have now, in bytes.
    pub fn most_of(&self, id: u8) -> u64 {
        let cap = self.cap();
        let most = if self.creating.get() { cap } else { cap.max(self.floor.get()).saturating_add(self.reserve) };
        self.size_within(id, most)
    }

    /// Returns the largest size that a region may have without the reserve, in bytes.
    pub fn most_without_reserve(&self, id: u8) -> u64 {
        self.size_within(id, self.cap())
    }

    /// Returns the largest size of a region, in bytes, if all counted regions and blobs may take `most`.
    fn size_within(&self, id: u8, most: u64) -> u64 {
        let Some(size) = self.size(id) else { return u64::MAX };
        most.saturating_sub(self.billed() - size.get())
    }

    /// Returns the byte at which new entries of a region must end. Changes of existing entries may end anywhere.
    #[inline]
    pub fn end_of(&self, id: u8) -> u64 {
        if self.creating.get() { self.most_of(id) } else { u64::MAX }
    }

    /// Checks that `more` additional bytes of blobs fit the quota.
    ///
    /// # Errors
    /// [`GrowError::QuotaFull`].
    pub fn check_blobs(&self, more: u64) -> Result<(), GrowError> {
        match more > 0 && self.billed().saturating_add(more) > self.cap() {
            true => Err(GrowError::QuotaFull),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ARENA, INDEX, RESERVE, SLOTS, forget, fresh, manager, region};
    use crate::{BUCKET, WASM_PAGE, twin};

    const MIB: u64 = 1 << 20;

    fn set_limits(cap: u64, floor: u64) {
        manager().quota().set_limits(cap, floor);
    }

    fn creating<T>(run: impl FnOnce() -> T) -> T {
        manager().quota().creating(run)
    }

    fn billed() -> u64 {
        manager().quota().billed()
    }

    #[test]
    fn creating_ends_at_the_cap_and_changing_at_the_end_of_the_reserve() {
        fresh();
        set_limits(48 * MIB, 0);
        let (index, slots) = (region(INDEX), region(SLOTS));
        index.reserve(1).unwrap();
        assert_eq!(creating(|| slots.reserve(32 * MIB)), Ok(()));
        assert_eq!((billed(), slots.size()), (48 * MIB, 32 * MIB));
        assert_eq!(creating(|| slots.reserve(32 * MIB + 1)), Err(GrowError::QuotaFull));
        assert_eq!(creating(|| index.reserve(BUCKET + 1)), Err(GrowError::QuotaFull));
        assert_eq!(creating(|| region(ARENA).reserve(BUCKET + 1)), Ok(()), "a region outside the quota still grows");
        assert_eq!(slots.reserve(96 * MIB), Ok(()));
        assert_eq!(slots.reserve(96 * MIB + 1), Err(GrowError::QuotaFull), "64 MiB above the cap");
        assert_eq!(
            creating(|| manager().quota().end_of(SLOTS)),
            32 * MIB,
            "new entries do not take grown memory of the reserve"
        );
    }

    #[test]
    fn blobs_in_the_arena_count_towards_the_quota() {
        fresh();
        set_limits(48 * MIB, 0);
        manager().quota().set_blobs(40 * MIB);
        assert_eq!(manager().quota().check_blobs(8 * MIB), Ok(()));
        assert_eq!(manager().quota().check_blobs(8 * MIB + 1), Err(GrowError::QuotaFull));
        assert_eq!(creating(|| region(SLOTS).reserve(1)), Err(GrowError::QuotaFull));
        manager().quota().set_blobs(60 * MIB);
        assert_eq!(manager().quota().check_blobs(0), Ok(()), "zero bytes are not refused above the cap");
    }

    #[test]
    fn a_cap_below_use_leaves_the_whole_reserve() {
        fresh();
        let slots = region(SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        set_limits(1, billed());
        assert_eq!(creating(|| slots.reserve(100 * BUCKET + 1)), Err(GrowError::QuotaFull));
        assert_eq!(slots.reserve(104 * BUCKET), Ok(()));
        assert_eq!(slots.reserve(104 * BUCKET + 1), Err(GrowError::QuotaFull));
    }

    #[test]
    fn only_existing_entries_take_the_reserve() {
        fresh();
        let (slots, arena) = (region(SLOTS), region(ARENA));
        slots.reserve(1).unwrap();
        arena.reserve(1).unwrap();
        manager().set_max_pages(manager().billed_pages() + RESERVE / WASM_PAGE);
        assert_eq!(arena.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(creating(|| slots.reserve(BUCKET + 1)), Err(GrowError::OutOfSpace));
        assert_eq!(slots.reserve(5 * BUCKET), Ok(()));
        assert_eq!(slots.reserve(5 * BUCKET + 1), Err(GrowError::OutOfSpace));
    }

    #[test]
    fn growth_takes_no_more_of_the_reserve_than_it_needs() {
        fresh();
        let slots = region(SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        manager().set_max_pages(manager().billed_pages() + RESERVE / WASM_PAGE);
        slots.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(slots.size(), 101 * BUCKET, "a thirty-second more, where there is room");
        // The same above the cap.
        forget();
        twin::reset();
        let slots = region(SLOTS);
        slots.reserve(100 * BUCKET).unwrap();
        set_limits(100 * BUCKET, 0);
        slots.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(slots.size(), 101 * BUCKET);
    }
}
