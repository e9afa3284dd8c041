//! Manager of stable memory: provides regions, and grows raw memory for all of them.
//!
//! Stable memory can be grown but never shrunk, `MemoryManager` never gives a bucket back, and a refused growth in the
//! middle of an operation would leave it half done. So every data structure works on a [`Region`] and reserves what an operation
//! needs *before* it changes anything, and a region grows by whole buckets only.
//!
//! ```text
//! raw stable memory
//! ┌─────────────────┬──────────┬──────────┬──────────┬───
//! │ MemoryManager   │ bucket 0 │ bucket 1 │ bucket 2 │ …   one bucket = 256 pages = 16 MiB
//! │ header, 1 page  │ of id a  │ of id b  │ of id a  │
//! └─────────────────┴──────────┴──────────┴──────────┴───
//! ```

use crate::buckets::{self, Addresses};
use crate::growth::{Growth, Reserved};
use crate::shared::{BUCKET_PAGES, Layout, Shared};
use crate::{GrowError, Platform, Region, WASM_PAGE};
use ic_stable_structures::Memory;
use ic_stable_structures::memory_manager::{MemoryManager, VirtualMemory};
use std::cell::Cell;
use std::rc::Rc;

/// The manager of a canister's stable memory. All handles are clones of one manager.
pub struct Manager<P: Platform>(Rc<Shared<P>>);

impl<P: Platform> Clone for Manager<P> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<P: Platform> Manager<P> {
    /// Opens stable memory, or lays it out if it is empty.
    pub fn open(layout: Layout) -> Self {
        let raw = MemoryManager::init_with_bucket_size(P::Memory::default(), BUCKET_PAGES as u16);
        let pages = buckets::pages(&P::Memory::default());
        if pages != BUCKET_PAGES {
            // Addresses are computed from the size of a bucket.
            P::trap(&format!("stable memory has buckets of {pages} pages, and this code works with {BUCKET_PAGES}"));
        }
        let buckets = buckets::by_region(&P::Memory::default(), layout.regions);
        let shared = Rc::new(Shared {
            raw,
            buckets: buckets.into_iter().map(|of| Rc::new(Addresses::from(of))).collect(),
            layout,
            max_pages: Cell::new(u64::MAX),
            growth: Growth::new(),
        });
        let (id, at) = layout.reserved_cycles;
        let cells = shared.memory(id);
        if cells.size() * WASM_PAGE > at {
            let mut bytes = [0; 24];
            cells.read(at, &mut bytes);
            shared.growth.reserved.set(Reserved::decode(&bytes));
        }
        Self(shared)
    }

    /// Returns the region of an id.
    pub fn region(&self, id: u8) -> Region<P> {
        Region::new(Rc::clone(&self.0), id)
    }

    /// Returns the memory of an id outside the layout, for other data structures; this crate does not count it.
    pub fn other(&self, id: u8) -> VirtualMemory<P::Memory> {
        self.0.memory(id)
    }

    /// Sets the cap on raw pages of 64 KiB.
    pub fn set_max_pages(&self, pages: u64) {
        self.0.max_pages.set(pages);
    }

    /// Returns the cap on raw pages.
    pub fn max_pages(&self) -> u64 {
        self.0.max_pages.get()
    }

    /// Returns the raw pages in use; the platform bills these.
    pub fn billed_pages(&self) -> u64 {
        P::Memory::default().size()
    }

    /// Returns the pages of each region, in the layout's order.
    pub fn region_pages(&self) -> impl Iterator<Item = u64> {
        self.0.region_pages()
    }

    /// Returns the growth state of raw memory.
    pub fn growth(&self) -> &Growth<P> {
        &self.0.growth
    }

    /// Grows raw memory by one bucket, for the next region that grows.
    ///
    /// # Errors
    /// [`GrowError`].
    pub fn grow_wanted(&self) -> Result<(), GrowError> {
        self.0.reserve_raw(1)?;
        self.0.growth.wanted.set(false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BUCKET;
    use crate::fixture::{ARENA, SETS, forget, fresh, manager, region};
    use crate::twin;

    #[test]
    fn regions_grow_by_buckets_and_start_as_zeros() {
        fresh();
        let a = region(ARENA);
        let b = region(SETS);
        assert!(a.is_empty());
        a.reserve(1).unwrap();
        b.reserve(BUCKET + 1).unwrap();
        assert_eq!((a.size(), b.size()), (BUCKET, 2 * BUCKET));
        assert_eq!(manager().billed_pages(), 1 + 3 * BUCKET_PAGES);
        assert_eq!(a.read::<4>(100), [0; 4]);
        a.write(BUCKET - 3, &[1, 2, 3]);
        let mut out = vec![9];
        a.read_onto(&mut out, BUCKET - 4, 4);
        assert_eq!(out, [9, 0, 1, 2, 3]);
    }

    #[test]
    fn refused_growth_changes_nothing_and_returns_its_reason() {
        fresh();
        let a = region(ARENA);
        manager().set_max_pages(1 + BUCKET_PAGES);
        a.reserve(5).unwrap();
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(a.size(), BUCKET);

        manager().set_max_pages(u64::MAX);
        twin::with(|world| world.liquid_cycles = 1);
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::LowCycles { missing: 84_199_999_999 }));

        twin::with(|world| {
            world.liquid_cycles = u128::MAX;
            world.max_pages = 300;
        });
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(manager().billed_pages(), 2 + BUCKET_PAGES, "the page grown to measure the price");
    }

    #[test]
    fn a_generous_step_falls_back_to_what_is_needed() {
        fresh();
        let a = region(ARENA);
        a.reserve(100 * BUCKET).unwrap();
        manager().set_max_pages(1 + 101 * BUCKET_PAGES);
        a.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(a.size(), 101 * BUCKET);
    }

    #[test]
    fn memory_with_buckets_of_another_size_is_refused() {
        fresh();
        let _ = MemoryManager::init(<twin::Twin as Platform>::Memory::default());
        let refused = std::panic::catch_unwind(manager).map(|_| ()).unwrap_err();
        let why = refused.downcast_ref::<String>().unwrap();
        assert!(why.contains("buckets of 128 pages"), "{why}");
    }

    #[test]
    fn regions_survive_an_upgrade() {
        fresh();
        let a = region(ARENA);
        a.reserve(10).unwrap();
        a.write_u64(0, 77);
        forget();
        let a = region(ARENA);
        assert_eq!((a.size(), a.read_u64(0)), (BUCKET, 77));
    }
}
