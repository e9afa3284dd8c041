//! Raw stable memory: reads and writes at addresses. The platform traps beyond its end.

use crate::{Platform, pages};
use ic_stable_structures::Memory;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Appends `count` items that `fill` writes, without zeroing them first (that would cost as much as the read).
///
/// # Safety
/// `fill` must write `count` items from its pointer on, or trap.
#[inline(always)]
pub(crate) unsafe fn append<T>(out: &mut Vec<T>, count: usize, fill: impl FnOnce(*mut T)) {
    out.reserve(count);
    let old = out.len();
    // SAFETY: `reserve` made room for `count` items after `old`, and `fill` writes all of them.
    unsafe {
        fill(out.as_mut_ptr().add(old));
        out.set_len(old + count);
    }
}

/// Raw stable memory, by address.
#[derive(Clone, Copy)]
pub struct Raw<P>(PhantomData<P>);

impl<P: Platform> Raw<P> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }

    /// Pages of 64 KiB; the platform bills these.
    pub(crate) fn pages(self) -> u64 {
        P::Memory::default().size()
    }

    /// Reads `len` bytes to `to`.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    #[inline(always)]
    pub(crate) unsafe fn read_to(self, at: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe { P::Memory::default().read_unsafe(at, to, len) }
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn read<const N: usize>(self, at: u64) -> [u8; N] {
        self.read_with(at, |bytes| *bytes)
    }

    /// Reads `N` bytes and looks at them where they are: moving more than 64 costs 100 instructions and one a byte.
    #[inline(always)]
    pub fn read_with<const N: usize, T>(self, at: u64, look: impl FnOnce(&[u8; N]) -> T) -> T {
        let mut bytes = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: `read_to` fills all `N` bytes or traps. Zeroing them first would cost as much as the read.
        unsafe {
            self.read_to(at, bytes.as_mut_ptr().cast(), N);
            look(bytes.assume_init_ref())
        }
    }

    /// Reads 64 bits, little-endian.
    #[inline]
    pub fn read_u64(self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at))
    }

    /// Reads 32 bits, little-endian.
    #[inline]
    pub fn read_u32(self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    /// Appends `len` bytes from `at` to `out`.
    pub fn read_onto(self, out: &mut Vec<u8>, at: u64, len: usize) {
        // SAFETY: `read_to` fills all bytes or traps.
        unsafe { append(out, len, |to| self.read_to(at, to, len)) }
    }

    /// Reads `count` little-endian words of 32 bits.
    pub(crate) fn read_words(self, at: u64, count: usize) -> Vec<u32> {
        const { assert!(cfg!(target_endian = "little")) };
        let mut words = Vec::with_capacity(count);
        // SAFETY: `read_to` fills all bytes of the words or traps; any bytes are a word, and on a little-endian machine the one that they
        // encode.
        unsafe { append(&mut words, count, |to: *mut u32| self.read_to(at, to.cast(), 4 * count)) };
        words
    }

    /// Writes bytes.
    #[inline]
    pub fn write(self, at: u64, bytes: &[u8]) {
        pages::note(at, bytes.len());
        P::Memory::default().write(at, bytes);
    }

    /// Writes 64 bits, little-endian.
    #[inline]
    pub(crate) fn write_u64(self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Writes 32 bits, little-endian.
    #[inline]
    pub(crate) fn write_u32(self, at: u64, value: u32) {
        self.write(at, &value.to_le_bytes());
    }
}
