//! Raw stable memory shared by all regions: its layout, its cap and its growth.

use crate::buckets::Addresses;
use crate::growth::Growth;
use crate::{BUCKET, GrowError, Platform, WASM_PAGE};
use ic_stable_structures::Memory;
use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
use std::cell::Cell;
use std::rc::Rc;

/// Pages of a bucket. The default of 128 pages would limit memory to 256 GiB; a canister may have 500 GiB.
pub(crate) const BUCKET_PAGES: u64 = BUCKET / WASM_PAGE;

/// Constants of a canister's stable memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of regions; their ids begin with 0.
    pub regions: u8,
    /// Region and offset of 24 bytes for the cycles reserved for storage.
    pub reserved_cycles: (u8, u64),
}

/// State that the manager shares with its regions.
pub(crate) struct Shared<P: Platform> {
    pub raw: MemoryManager<P::Memory>,
    /// Raw addresses of the buckets of each region.
    pub buckets: Vec<Rc<Addresses>>,
    pub layout: Layout,
    /// The cap on raw pages.
    pub max_pages: Cell<u64>,
    pub growth: Growth<P>,
}

impl<P: Platform> Shared<P> {
    pub fn memory(&self, id: u8) -> VirtualMemory<P::Memory> {
        self.raw.get(MemoryId::new(id))
    }

    pub fn region_pages(&self) -> impl Iterator<Item = u64> {
        (0..self.layout.regions).map(|id| self.memory(id).size())
    }

    /// Buckets that regions have.
    fn handed_out(&self) -> u64 {
        crate::buckets::count(&P::Memory::default())
    }

    /// Buckets that regions may still get below the cap on raw pages.
    pub fn buckets_left(&self) -> u64 {
        (self.max_pages.get().saturating_sub(1) / BUCKET_PAGES).saturating_sub(self.handed_out())
    }

    /// Grows raw stable memory so that regions can get `buckets` more.
    pub fn reserve_raw(&self, buckets: u64) -> Result<(), GrowError> {
        let wanted = 1 + (self.handed_out() + buckets) * BUCKET_PAGES;
        let missing = wanted.saturating_sub(P::Memory::default().size());
        if missing == 0 {
            return Ok(());
        }
        if wanted > self.max_pages.get() {
            return Err(GrowError::OutOfSpace);
        }
        let grown = self.growth.grow(missing);
        self.keep_reserved();
        grown
    }

    /// Writes the reserved cycles to their cell if a growth has changed them.
    fn keep_reserved(&self) {
        let Some(changed) = self.growth.take_changed() else { return };
        let (id, at) = self.layout.reserved_cycles;
        let cells = self.memory(id);
        if cells.size() * WASM_PAGE > at {
            cells.write(at, &changed.encode());
        }
    }
}
