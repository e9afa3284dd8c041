//! Classes of the granules that slots lie in, on the heap.

use std::cell::UnsafeCell;

/// The class of each granule + 1; 0 for granules that are not known, or belong to another store.
#[derive(Default)]
pub struct Kinds(UnsafeCell<Vec<u8>>);

impl Kinds {
    /// Returns the class of a granule + 1, or 0. Every name is checked with this, so it costs no more than a comparison and a load.
    #[inline(always)]
    pub fn get(&self, granule: u64) -> u8 {
        // SAFETY: one thread has the cell, and `set` keeps no reference.
        unsafe { &*self.0.get() }.get(granule as usize).copied().unwrap_or(0)
    }

    /// Sets the classes of granules.
    pub fn set(&self, granule: u64, granules: u64, kind: u8) {
        let (first, end) = (granule as usize, (granule + granules) as usize);
        // SAFETY: one thread has the cell, and `get` keeps no reference.
        let kinds = unsafe { &mut *self.0.get() };
        if kinds.len() < end {
            kinds.resize(end, 0);
        }
        kinds[first..end].fill(kind);
    }
}
