//! Region: one structure's own address space in stable memory.

use crate::quota::Quota;
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
    id: u8,
    memory: VirtualMemory<P::Memory>,
    size: Cell<u64>,
}

impl<P: Platform> Region<P> {
    pub(crate) fn new(shared: Rc<Shared<P>>, id: u8) -> Self {
        let memory = shared.memory(id);
        let size = memory.size() * WASM_PAGE;
        shared.quota.set_size(id, size);
        Self { shared, id, memory, size: Cell::new(size) }
    }

    /// Returns whether a growth was deferred: see [`Growth::is_wanted`](crate::Growth::is_wanted).
    pub(crate) fn is_growth_wanted(&self) -> bool {
        self.shared.growth.is_wanted()
    }

    /// Returns the quota that the region may count towards.
    pub(crate) fn quota(&self) -> &Quota {
        &self.shared.quota
    }

    /// Whether nothing was ever kept here.
    pub fn is_empty(&self) -> bool {
        self.size.get() == 0
    }

    /// Bytes that may be addressed without growing.
    pub fn size(&self) -> u64 {
        self.size.get()
    }

    /// Returns the byte at which new entries must end: the quota, while entries are created.
    #[inline]
    pub fn end_of_new(&self) -> u64 {
        self.shared.quota.end_of(self.id)
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
        let quota = &self.shared.quota;
        let have = self.size.get() / BUCKET;
        let need = end.div_ceil(BUCKET);
        if need > quota.most_of(self.id) / BUCKET {
            return Err(GrowError::QuotaFull);
        }
        let more = have + (have / GROWTH_FRACTION).min(MAX_GROWTH_BUCKETS);
        let generous = need.max(more.min(quota.most_without_reserve(self.id) / BUCKET));
        let mut buckets = generous;
        // Growth takes no more of the reserve than it needs.
        while let Err(error) =
            self.shared.reserve_raw(buckets - have, buckets == need && quota.draws_on_reserve(self.id))
        {
            if buckets == need {
                if error == GrowError::Later {
                    self.shared.growth.wanted.set(true);
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
        quota.set_size(self.id, buckets * BUCKET);
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
        // SAFETY: `reserve` made room for `len` bytes after `old`; `read_unsafe` fills all of them or traps.
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
        #[cfg(not(target_family = "wasm"))]
        crate::twin::note_write(self.id);
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
