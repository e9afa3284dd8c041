//! Region: one structure's own address space in stable memory.

use crate::buckets::{self, Addresses};
use crate::shared::{BUCKET_PAGES, Shared};
use crate::{BUCKET, GrowError, Platform, WASM_PAGE};
use ic_stable_structures::Memory;
use ic_stable_structures::memory_manager::VirtualMemory;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// A region grows by this fraction of its size, so that the manager's 2 KiB header is seldom rewritten.
const GROWTH_FRACTION: u64 = 32;
/// …but by no more than this many buckets at once (512 MiB).
const MAX_GROWTH_BUCKETS: u64 = 32;

/// One structure's own address space in stable memory. Exactly one exists for an id.
pub struct Region<P: Platform> {
    shared: Rc<Shared<P>>,
    #[cfg(not(target_family = "wasm"))]
    id: u8,
    memory: VirtualMemory<P::Memory>,
    /// Raw address of each bucket. An access inside one bucket takes it from here, and any other access goes through `memory`,
    /// because `VirtualMemory` remembers the last bucket only and searches the list of buckets for any other one.
    buckets: Rc<Addresses>,
    size: Cell<u64>,
}

impl<P: Platform> Region<P> {
    pub(crate) fn new(shared: Rc<Shared<P>>, id: u8) -> Self {
        let memory = shared.memory(id);
        let size = memory.size() * WASM_PAGE;
        let buckets = Rc::clone(&shared.buckets[usize::from(id)]);
        Self {
            shared,
            #[cfg(not(target_family = "wasm"))]
            id,
            memory,
            buckets,
            size: Cell::new(size),
        }
    }

    /// Returns whether a growth was deferred: see [`Growth::is_wanted`](crate::Growth::is_wanted).
    pub(crate) fn is_growth_wanted(&self) -> bool {
        self.shared.growth.is_wanted()
    }

    /// Returns whether the region has no memory yet.
    pub fn is_empty(&self) -> bool {
        self.size.get() == 0
    }

    /// Bytes that may be addressed without growing.
    pub fn size(&self) -> u64 {
        self.size.get()
    }

    /// Bytes that the region may have under the cap on raw pages, if no other region grows.
    pub fn room(&self) -> u64 {
        self.size.get().saturating_add(self.shared.buckets_left().saturating_mul(BUCKET))
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
        let mut buckets = need.max(have + (have / GROWTH_FRACTION).min(MAX_GROWTH_BUCKETS));
        while let Err(error) = self.shared.reserve_raw(buckets - have) {
            if buckets == need {
                if error == GrowError::Later {
                    self.shared.growth.wanted.set(true);
                }
                return Err(error);
            }
            buckets = need + (buckets - need) / 2;
        }
        let raw = P::Memory::default();
        let first = buckets::count(&raw);
        // The raw pages are there, so this only hands out buckets.
        if self.memory.grow((buckets - have) * BUCKET_PAGES) < 0 {
            return Err(GrowError::OutOfSpace);
        }
        self.buckets.extend((first..buckets::count(&raw)).map(buckets::address));
        self.size.set(buckets * BUCKET);
        Ok(())
    }

    /// Returns the raw address of a range that lies inside one bucket.
    #[inline(always)]
    fn raw_address(&self, offset: u64, len: usize) -> Option<u64> {
        let within = offset % BUCKET;
        let start = self.buckets.get(offset / BUCKET)?;
        // Raw memory has at most 2^40 bytes.
        (len as u64 <= BUCKET.wrapping_sub(within)).then_some(start.wrapping_add(within))
    }

    /// Reads `len` bytes to `to`.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    #[inline(always)]
    unsafe fn read_to(&self, offset: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe {
            match self.raw_address(offset, len) {
                Some(at) => P::Memory::default().read_unsafe(at, to, len),
                None => self.read_across(offset, to, len),
            }
        }
    }

    /// Reads a range that crosses buckets. Traps if the range is not reserved.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    #[cold]
    #[inline(never)]
    unsafe fn read_across(&self, offset: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe { self.memory.read_unsafe(offset, to, len) }
    }

    /// Writes a range that crosses buckets. Traps if the range is not reserved.
    #[cold]
    #[inline(never)]
    fn write_across(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(offset, bytes);
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
        // SAFETY: `read_to` fills all `N` bytes or traps. Zeroing them first would cost as much as the read.
        unsafe {
            self.read_to(offset, bytes.as_mut_ptr().cast(), N);
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
        // SAFETY: `reserve` made room for `len` bytes after `old`; `read_to` fills all of them or traps.
        unsafe {
            self.read_to(offset, out.as_mut_ptr().add(old), len);
            out.set_len(old + len);
        }
    }

    /// Reads `count` little-endian words.
    pub fn read_words(&self, offset: u64, count: usize) -> Vec<u64> {
        const { assert!(cfg!(target_endian = "little")) };
        let mut words: Vec<u64> = Vec::with_capacity(count);
        // SAFETY: there is room for `count` words; `read_to` fills all their bytes or traps; any bytes are a word, and
        // on a little-endian machine the one that they encode.
        unsafe {
            self.read_to(offset, words.as_mut_ptr().cast(), 8 * count);
            words.set_len(count);
        }
        words
    }

    /// Writes bytes that lie inside the reserved range.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        #[cfg(not(target_family = "wasm"))]
        crate::twin::note_write(self.id);
        match self.raw_address(offset, bytes.len()) {
            Some(at) => P::Memory::default().write(at, bytes),
            None => self.write_across(offset, bytes),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ARENA, SETS, forget, fresh, manager, region};

    #[test]
    fn raw_addresses_are_those_of_the_memory_manager() {
        fresh();
        let regions = [region(ARENA), region(SETS)];
        for (buckets, id) in [(1, 0), (3, 1), (2, 0), (7, 1), (12, 0)] {
            regions[id].reserve(buckets * BUCKET).unwrap();
        }
        let mark = |id: u8, bucket: u64| 1 + u64::from(id) * 1_000 + bucket;
        for region in &regions {
            for bucket in 0..region.size() / BUCKET {
                region.write_u64(bucket * BUCKET + 8, mark(region.id, bucket));
                region.write(bucket * BUCKET + BUCKET - 3, &[bucket as u8; 3]);
            }
        }
        let addresses = |region: &Region<crate::twin::Twin>| region.buckets.to_vec();
        let known = regions.each_ref().map(addresses);
        for (known, region) in known.iter().zip(&regions) {
            assert_eq!(known.len() as u64, region.size() / BUCKET, "no access searches the list of buckets");
        }
        // The same bytes through the library, and after an upgrade.
        forget();
        for region in [region(ARENA), region(SETS)] {
            let other = manager().other(region.id);
            for bucket in 0..region.size() / BUCKET {
                let mut bytes = [0; 8];
                other.read(bucket * BUCKET + 8, &mut bytes);
                assert_eq!(u64::from_le_bytes(bytes), mark(region.id, bucket));
                assert_eq!(region.read_u64(bucket * BUCKET + 8), mark(region.id, bucket));
                assert_eq!(region.read(bucket * BUCKET + BUCKET - 3), [bucket as u8; 3]);
            }
            assert!(known.contains(&addresses(&region)), "an upgrade finds the same addresses");
        }
    }

    #[test]
    fn ranges_across_buckets_and_at_the_end_are_read_and_written_whole() {
        fresh();
        let region = region(ARENA);
        // Another region's bucket lies between the two.
        region.reserve(BUCKET).unwrap();
        self::region(SETS).reserve(BUCKET).unwrap();
        region.reserve(2 * BUCKET).unwrap();
        for start in [BUCKET - 8, BUCKET - 7, BUCKET - 1, BUCKET, 2 * BUCKET - 8] {
            region.write(start, &[0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(region.read(start), [0, 1, 2, 3, 4, 5, 6, 7], "at {start}");
            let mut bytes = Vec::new();
            region.read_onto(&mut bytes, start, 8);
            assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7], "at {start}");
            // One by one no byte crosses buckets.
            let single = (0..8).map(|at| region.read::<1>(start + at)[0]);
            assert_eq!(single.collect::<Vec<_>>(), bytes, "at {start}");
        }
    }

    #[test]
    fn ranges_that_are_not_reserved_trap() {
        fresh();
        let region = region(ARENA);
        region.reserve(BUCKET).unwrap();
        let traps = |access: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err();
        for offset in [BUCKET - 7, BUCKET, BUCKET << 32, u64::MAX - 8] {
            assert!(traps(&|| assert_eq!(region.read::<8>(offset), [0; 8])), "read at {offset}");
            assert!(traps(&|| region.write(offset, &[1; 8])), "write at {offset}");
        }
        assert!(!traps(&|| region.write(BUCKET, &[])), "no bytes");
    }
}
