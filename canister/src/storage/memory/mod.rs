//! The registry of stable memory: who owns which memory id, and how any of them grows.
//!
//! Stable memory can be grown but never shrunk, `MemoryManager` never gives a bucket back, and a refused growth in the
//! middle of an operation would leave it half done. So every structure works on a [`Region`], reserves what an operation
//! needs *before* it changes anything, and a region grows by whole buckets only (`docs/design.md` section 2).
//!
//! ```text
//! raw stable memory
//! ┌─────────────────┬──────────┬──────────┬──────────┬───
//! │ MemoryManager   │ bucket 0 │ bucket 1 │ bucket 2 │ …   one bucket = 256 pages = 16 MiB
//! │ header, 1 page  │ of id a  │ of id b  │ of id a  │
//! └─────────────────┴──────────┴──────────┴──────────┴───
//! ```

pub mod cell;
mod error;
pub mod growth;
mod ids;
pub mod places;
pub mod records;

use crate::platform::StableMemory;
pub use coppice_interface::{BUCKET, WASM_PAGE};
pub use error::GrowError;
use ic_stable_structures::Memory;
use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
pub use ids::*;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

/// Pages of a bucket. The crate's default of 128 would end at 256 GiB; a canister may have 500 GiB.
const BUCKET_PAGES: u64 = BUCKET / WASM_PAGE;
/// A region grows by this fraction of its size, so that the manager's 2 KiB header is seldom rewritten.
const GROWTH_FRACTION: u64 = 32;
/// …but by no more than this many buckets at once (512 MiB).
const MAX_GROWTH_BUCKETS: u64 = 32;

thread_local! {
    static MANAGER: RefCell<Option<MemoryManager<StableMemory>>> = const { RefCell::new(None) };
    static MAX_PAGES: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Which regions were written to, in order.
    #[cfg(test)]
    static WRITES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Which regions were written to since this was asked last, in order.
#[cfg(test)]
pub fn take_writes() -> Vec<u8> {
    WRITES.take()
}

/// Sets the operator's cap on raw pages of 64 KiB (`max_stable_pages`).
pub fn set_max_pages(pages: u64) {
    MAX_PAGES.set(pages);
}

/// The operator's cap on raw pages.
pub fn max_pages() -> u64 {
    MAX_PAGES.get()
}

/// Raw pages in use, which is what the platform bills.
pub fn billed_pages() -> u64 {
    StableMemory::default().size()
}

/// Pages of each region, in the order of [`NAMES`].
pub fn region_pages() -> [u64; IDS.len()] {
    with_manager(|manager| IDS.map(|id| manager.get(MemoryId::new(id)).size()))
}

/// Forgets the manager, as an upgrade does: the next [`region`] reads it from stable memory again.
#[cfg(not(target_family = "wasm"))]
pub fn forget() {
    MANAGER.set(None);
    MAX_PAGES.set(u64::MAX);
    growth::forget();
    records::forget();
}

fn with_manager<T>(f: impl FnOnce(&MemoryManager<StableMemory>) -> T) -> T {
    MANAGER.with_borrow_mut(|manager| {
        f(manager
            .get_or_insert_with(|| MemoryManager::init_with_bucket_size(StableMemory::default(), BUCKET_PAGES as u16)))
    })
}

/// The region of a memory id.
pub fn region(id: u8) -> Region {
    let memory = with_manager(|manager| manager.get(MemoryId::new(id)));
    let size = memory.size() * WASM_PAGE;
    records::set_size(id, size);
    let region = Region { id, memory, size: Cell::new(size) };
    if id == CELLS && size >= places::END {
        growth::set_reserved(growth::Reserved::decode(&region.read(places::RESERVED)));
    }
    region
}

/// One structure's own address space in stable memory. Exactly one exists for an id.
pub struct Region {
    id: u8,
    memory: VirtualMemory<StableMemory>,
    size: Cell<u64>,
}

impl Region {
    /// Whether nothing was ever kept here.
    pub fn is_empty(&self) -> bool {
        self.size.get() == 0
    }

    /// Bytes that may be addressed without growing.
    pub fn size(&self) -> u64 {
        self.size.get()
    }

    /// The byte at which what is made now must end: the cap on UTXO records, where it makes any.
    #[inline]
    pub fn end_of_new(&self) -> u64 {
        records::end_of(self.id)
    }

    /// Makes `[0, end)` addressable. New bytes are zero.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    #[inline]
    pub fn reserve(&self, end: u64) -> Result<(), GrowError> {
        if end <= self.size.get() {
            return Ok(());
        }
        self.grow(end)
    }

    #[cold]
    fn grow(&self, end: u64) -> Result<(), GrowError> {
        let have = self.size.get() / BUCKET;
        let need = end.div_ceil(BUCKET);
        if need > records::most_of(self.id) / BUCKET {
            return Err(GrowError::RecordsFull);
        }
        let more = have + (have / GROWTH_FRACTION).min(MAX_GROWTH_BUCKETS);
        let generous = need.max(more.min(records::most_without_reserve(self.id) / BUCKET));
        let mut buckets = generous;
        // Growth takes no more of the reserve than it needs.
        while let Err(error) = reserve_raw(buckets - have, buckets == need && records::draws_on_reserve(self.id)) {
            if buckets == need {
                if error == GrowError::Later {
                    growth::want();
                }
                return Err(error);
            }
            buckets = need + (buckets - need) / 2;
        }
        // The raw pages are there, so this only hands out buckets.
        if self.memory.grow((buckets - have) * BUCKET_PAGES) < 0 {
            return Err(GrowError::OutOfSpace);
        }
        self.size.set(buckets * BUCKET);
        records::set_size(self.id, buckets * BUCKET);
        Ok(())
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        self.read_with(offset, |bytes| *bytes)
    }

    /// Reads `N` bytes and looks at them where they are: moving more than 64 costs 100 instructions and one a byte.
    #[inline(always)]
    pub fn read_with<const N: usize, T>(&self, offset: u64, look: impl FnOnce(&[u8; N]) -> T) -> T {
        let mut bytes = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: `read_unsafe` fills all `N` bytes or traps. Zeroing them first would cost as much as the read.
        unsafe {
            self.memory.read_unsafe(offset, bytes.as_mut_ptr().cast(), N);
            look(bytes.assume_init_ref())
        }
    }

    /// Reads 64 bits, little-endian.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset))
    }

    /// Reads 32 bits, little-endian.
    #[inline]
    pub fn read_u32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    /// Appends `len` bytes from `offset` to `out`, without zeroing them first (that would cost as much as the read).
    pub fn read_onto(&self, out: &mut Vec<u8>, offset: u64, len: usize) {
        out.reserve(len);
        let old = out.len();
        // SAFETY: `reserve` made room for `len` bytes behind `old`; `read_unsafe` fills all of them or traps.
        unsafe {
            self.memory.read_unsafe(offset, out.as_mut_ptr().add(old), len);
            out.set_len(old + len);
        }
    }

    /// Reads `count` little-endian words.
    pub fn read_words(&self, offset: u64, count: usize) -> Vec<u64> {
        const { assert!(cfg!(target_endian = "little")) };
        let mut words: Vec<u64> = Vec::with_capacity(count);
        // SAFETY: there is room for `count` words; `read_unsafe` fills all their bytes or traps; any bytes are a word, and
        // on a little-endian machine the one that they encode.
        unsafe {
            self.memory.read_unsafe(offset, words.as_mut_ptr().cast(), 8 * count);
            words.set_len(count);
        }
        words
    }

    /// Writes bytes that lie inside the reserved range.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        #[cfg(test)]
        WRITES.with_borrow_mut(|writes| writes.push(self.id));
        self.memory.write(offset, bytes);
    }

    /// Writes 64 bits, little-endian.
    #[inline]
    pub fn write_u64(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    /// Writes 32 bits, little-endian.
    #[inline]
    pub fn write_u32(&self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }
}

/// Memory of a structure that the bench compares with.
#[cfg(feature = "bench")]
pub type BenchMemory = VirtualMemory<StableMemory>;

/// A memory id that the product does not use.
#[cfg(feature = "bench")]
pub fn bench_memory(which: u8) -> BenchMemory {
    with_manager(|manager| manager.get(MemoryId::new(200 + which)))
}

/// Grows raw stable memory so that `buckets` more can be handed out, from the reserve as well or not.
fn reserve_raw(buckets: u64, from_reserve: bool) -> Result<(), GrowError> {
    let handed_out: u64 = region_pages().iter().map(|pages| pages / BUCKET_PAGES).sum();
    let raw = StableMemory::default();
    let wanted = 1 + (handed_out + buckets) * BUCKET_PAGES;
    let missing = wanted.saturating_sub(raw.size());
    if missing == 0 {
        return Ok(());
    }
    let kept = if from_reserve { 0 } else { records::RESERVE / WASM_PAGE };
    if wanted.saturating_add(kept) > MAX_PAGES.get() {
        return Err(GrowError::OutOfSpace);
    }
    let grown = growth::grow(missing);
    keep_reserved();
    grown
}

/// Grows raw memory by what the next region needs that grows.
///
/// # Errors
/// [`GrowError`].
pub fn grow_wanted() -> Result<(), GrowError> {
    reserve_raw(1, true)?;
    growth::done();
    Ok(())
}

/// Writes the reserved cycles into their cell where a growth changed them.
fn keep_reserved() {
    let Some(noted) = growth::take_noted() else { return };
    let cells = region(CELLS);
    if cells.size() >= places::END {
        cells.write(places::RESERVED, &noted.encode());
    }
    growth::set_reserved(noted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    const RESERVED: u64 = records::RESERVE / WASM_PAGE;

    fn fresh() {
        native::reset();
        forget();
    }

    #[test]
    fn regions_grow_by_buckets_and_start_as_zeros() {
        fresh();
        let a = region(BLOB_ARENA);
        let b = region(BLOB_SETS);
        assert!(a.is_empty());
        a.reserve(1).unwrap();
        b.reserve(BUCKET + 1).unwrap();
        assert_eq!((a.size(), b.size()), (BUCKET, 2 * BUCKET));
        assert_eq!(billed_pages(), 1 + 3 * BUCKET_PAGES);
        assert_eq!(a.read::<4>(100), [0; 4]);
        a.write(BUCKET - 3, &[1, 2, 3]);
        let mut out = vec![9];
        a.read_onto(&mut out, BUCKET - 4, 4);
        assert_eq!(out, [9, 0, 1, 2, 3]);
    }

    #[test]
    fn refused_growth_changes_nothing_and_says_why() {
        fresh();
        let a = region(BLOB_ARENA);
        set_max_pages(1 + BUCKET_PAGES + RESERVED);
        a.reserve(5).unwrap();
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(a.size(), BUCKET);

        set_max_pages(u64::MAX);
        native::with(|world| world.liquid_cycles = 1);
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::LowCycles { missing: 84_199_999_999 }));

        native::with(|world| {
            world.liquid_cycles = u128::MAX;
            world.max_pages = 300;
        });
        assert_eq!(a.reserve(BUCKET + 1), Err(GrowError::OutOfSpace));
        assert_eq!(billed_pages(), 2 + BUCKET_PAGES, "the page that was asked about");
    }

    #[test]
    fn a_generous_step_falls_back_to_what_is_needed() {
        fresh();
        let a = region(BLOB_ARENA);
        a.reserve(100 * BUCKET).unwrap();
        set_max_pages(1 + 101 * BUCKET_PAGES + RESERVED);
        a.reserve(100 * BUCKET + 1).unwrap();
        assert_eq!(a.size(), 101 * BUCKET);
    }

    #[test]
    fn regions_survive_an_upgrade() {
        fresh();
        let a = region(BLOB_ARENA);
        a.reserve(10).unwrap();
        a.write_u64(0, 77);
        forget();
        let a = region(BLOB_ARENA);
        assert_eq!((a.size(), a.read_u64(0)), (BUCKET, 77));
    }
}
