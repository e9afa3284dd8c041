//! Space: one structure's own addresses, over leaves of 64 KiB that are slots of the arena.
//!
//! A space has as many leaves as it uses: it grows leaf by leaf, and a leaf in its middle may be given back. The superblock names the only
//! leaf of a short space, and the *root* of a longer one: a granule with the leaves' numbers. Nothing is moved when a space grows.
//!
//! ```text
//! superblock        root, 64 KiB                    leaves, anywhere in the arena
//! ┌──────────┐      ┌─────────────────────────┐     ┌─ 64 KiB ─┐   ┌─ 64 KiB ─┐
//! │ space 3 ─┼────▶ │ u32 │ u32 │ 0 │ u32 │ … │ ──▶ │ leaf 0   │   │ leaf 1   │ …     0: no leaf
//! └──────────┘      └─────────────────────────┘     └──────────┘   └──────────┘
//! ```

use crate::arena::{Arena, GRANULE};
use crate::superblock::Root;
use crate::{GrowError, OpenError, Platform, raw};
use ic_stable_structures::Memory;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes of a leaf.
pub const LEAF: u64 = GRANULE;
/// Maximum leaves of a space, which are 1 GiB: as many as a root lists.
pub const MAX_LEAVES: u64 = GRANULE / 4;

/// Splits a range by leaves, which are as long as WebAssembly pages: for each the offset of its part, and the part within the range.
pub(crate) fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = offset.saturating_add(at as u64);
        let part = ((LEAF - from % LEAF) as usize).min(len - at);
        at += part;
        (part > 0).then_some((from, at - part..at))
    })
}

/// One structure's own addresses. Exactly one exists for an id.
pub struct Space<P: Platform = crate::Ic> {
    arena: Arena<P>,
    id: u8,
    root: Cell<Root>,
    /// The granule of each leaf; 0 for none.
    leaves: RefCell<Vec<u32>>,
}

impl<P: Platform> Space<P> {
    /// Opens a space; an id has one space.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] if one of its leaves lies outside the arena.
    pub fn open(arena: &Arena<P>, id: u8) -> Result<Self, OpenError> {
        let root = arena.root(id);
        let is_outside = |granule: u32| u64::from(granule) * GRANULE >= arena.end();
        let corrupt = |why: String| OpenError::Corrupt { name: "space", why: format!("{id}: {why}") };
        let leaves = match root.leaves {
            0 => Vec::new(),
            1 => vec![root.granule],
            leaves if u64::from(leaves) > MAX_LEAVES || is_outside(root.granule) => {
                return Err(corrupt(format!("{leaves} leaves, listed in granule {}", root.granule)));
            }
            leaves => arena.payload().read_words(u64::from(root.granule) * GRANULE, leaves as usize),
        };
        if let Some(leaf) = leaves.iter().find(|&&leaf| is_outside(leaf)) {
            return Err(corrupt(format!("a leaf at granule {leaf}")));
        }
        Ok(Self { arena: arena.clone(), id, root: Cell::new(root), leaves: RefCell::new(leaves) })
    }

    /// Returns whether the space has no leaf yet.
    pub fn is_empty(&self) -> bool {
        self.root.get().leaves == 0
    }

    /// Bytes up to the end of the last leaf.
    pub fn size(&self) -> u64 {
        u64::from(self.root.get().leaves) * LEAF
    }

    /// Makes `[0, end)` writable. New bytes are zero.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    pub fn reserve(&self, end: u64) -> Result<(), GrowError> {
        self.reserve_range(0..end)
    }

    /// Makes a range writable. New bytes are zero.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_range(&self, range: Range<u64>) -> Result<(), GrowError> {
        let range = range.start / LEAF..range.end.div_ceil(LEAF);
        match self.missing(&range) {
            0 => Ok(()),
            missing => self.add(range, missing),
        }
    }

    /// Returns whether all leaves of a range are there.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.missing(&(range.start / LEAF..range.end.div_ceil(LEAF))) == 0
    }

    /// Number of leaves of a range of leaves that are not there.
    #[inline(never)]
    fn missing(&self, range: &Range<u64>) -> u64 {
        let leaves = self.leaves.borrow();
        let there = |leaf: &u64| leaves.get(*leaf as usize).is_some_and(|&granule| granule != 0);
        range.clone().filter(|leaf| !there(leaf)).count() as u64
    }

    #[cold]
    fn add(&self, range: Range<u64>, missing: u64) -> Result<(), GrowError> {
        if range.end > MAX_LEAVES {
            return Err(GrowError::OutOfSpace);
        }
        let owner = self.arena.spaces_owner();
        let root = self.root.get();
        let needs_root = root.leaves < 2 && range.end > 1;
        // All granules are reserved before the first is taken.
        self.arena.reserve(owner, &[(1, missing + u64::from(needs_root))])?;
        let taken = (0..missing).map(|_| self.arena.take_zeros(owner)).collect::<Result<Vec<u64>, GrowError>>()?;
        let list = if needs_root { self.arena.take_granules(owner, 1)? as u32 } else { root.granule };
        let mut leaves = self.leaves.borrow_mut();
        let listed = if needs_root { 0 } else { leaves.len() };
        let count = leaves.len().max(range.end as usize);
        leaves.resize(count, 0);
        let absent = leaves[range.start as usize..range.end as usize].iter_mut().filter(|leaf| **leaf == 0);
        absent.zip(taken).for_each(|(leaf, granule)| *leaf = granule as u32);
        let granule = if count == 1 { leaves[0] } else { list };
        let root = Root { granule, leaves: count as u32 };
        self.write_list(root, &leaves, listed.min(range.start as usize));
        if root != self.root.get() {
            self.root.set(root);
            self.arena.set_root(self.id, root);
        }
        Ok(())
    }

    /// Gives the leaves back that lie completely in a range; their bytes are zero from then on, and cannot be written.
    pub fn release(&self, range: Range<u64>) {
        let mut leaves = self.leaves.borrow_mut();
        let root = self.root.get();
        for leaf in range.start.div_ceil(LEAF)..(range.end / LEAF).min(root.leaves.into()) {
            let granule = std::mem::take(&mut leaves[leaf as usize]);
            if granule == 0 {
                continue;
            }
            if root.leaves > 1 {
                self.arena.payload().write_u32(u64::from(root.granule) * GRANULE + 4 * leaf, 0);
            } else {
                self.root.set(Root::default());
                self.arena.set_root(self.id, Root::default());
                leaves.clear();
            }
            self.arena.give_granules(self.arena.spaces_owner(), granule.into(), 1);
        }
    }

    /// Writes the list of leaves anew, which the heap mirrors.
    pub fn rewrite(&self) {
        self.write_list(self.root.get(), &self.leaves.borrow(), 0);
    }

    /// Writes the list of leaves in a root, from the leaf `from` on. A short space has no list.
    fn write_list(&self, root: Root, leaves: &[u32], from: usize) {
        if root.leaves > 1 {
            let words: Vec<u8> = leaves[from..].iter().flat_map(|leaf| leaf.to_le_bytes()).collect();
            self.arena.payload().write(u64::from(root.granule) * GRANULE + 4 * from as u64, &words);
        }
    }

    /// Returns the raw address of a range that lies inside one leaf.
    #[inline(always)]
    pub(crate) fn address(&self, offset: u64, len: usize) -> Option<u64> {
        let within = offset % LEAF;
        let leaf = u64::from(*self.leaves.borrow().get(usize::try_from(offset / LEAF).ok()?)?);
        (leaf != 0 && len as u64 <= LEAF.wrapping_sub(within)).then_some((leaf * LEAF).wrapping_add(within))
    }

    /// Reads `len` bytes to `to`. Not inlined: see [`write`](Self::write).
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    #[inline(never)]
    unsafe fn read_to(&self, offset: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe {
            match self.address(offset, len) {
                Some(at) => self.arena.payload().read_to(at, to, len),
                None => self.read_across(offset, to, len),
            }
        }
    }

    /// Reads a range that crosses leaves, or where leaves are missing.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    #[cold]
    #[inline(never)]
    unsafe fn read_across(&self, offset: u64, to: *mut u8, len: usize) {
        for (from, part) in parts(offset, len) {
            // SAFETY: a part lies within `len`.
            unsafe {
                let to = to.add(part.start);
                match self.address(from, part.len()) {
                    Some(at) => self.arena.payload().read_to(at, to, part.len()),
                    None => to.write_bytes(0, part.len()),
                }
            }
        }
    }

    /// Writes a range that crosses leaves. Traps if a leaf is missing.
    #[cold]
    #[inline(never)]
    fn write_across(&self, offset: u64, bytes: &[u8]) {
        for (from, part) in parts(offset, bytes.len()) {
            match self.address(from, part.len()) {
                Some(at) => self.arena.payload().write(at, &bytes[part]),
                None => P::trap(&format!("space {}: byte {from} is not reserved", self.id)),
            }
        }
    }

    /// Reads `N` bytes; those of a missing leaf are zero.
    #[inline]
    pub fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        self.read_with(offset, |bytes| *bytes)
    }

    /// Reads `N` bytes and looks at them where they are: see [`read_with`](crate::Raw::read_with).
    #[inline(always)]
    pub fn read_with<const N: usize, T>(&self, offset: u64, look: impl FnOnce(&[u8; N]) -> T) -> T {
        let mut bytes = MaybeUninit::<[u8; N]>::uninit();
        // SAFETY: `read_to` fills all `N` bytes or traps.
        unsafe {
            self.read_to(offset, bytes.as_mut_ptr().cast(), N);
            look(bytes.assume_init_ref())
        }
    }

    /// Reads 64 bits, little-endian. Inlined, as are the next two, because each look-up reads an entry of a directory.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> u64 {
        self.address(offset, 8)
            .map_or_else(|| u64::from_le_bytes(self.read(offset)), |at| self.arena.payload().read_u64(at))
    }

    /// Reads 128 bits, little-endian, as two words.
    #[inline]
    pub fn read_pair(&self, offset: u64) -> [u64; 2] {
        let both = self.address(offset, 16).map_or_else(|| self.read(offset), |at| self.arena.payload().read(at));
        let both = u128::from_le_bytes(both);
        [both as u64, (both >> 64) as u64]
    }

    /// Reads 32 bits, little-endian.
    #[inline]
    pub fn read_u32(&self, offset: u64) -> u32 {
        self.address(offset, 4)
            .map_or_else(|| u32::from_le_bytes(self.read(offset)), |at| self.arena.payload().read_u32(at))
    }

    /// Appends `len` bytes from `offset` to `out`.
    #[inline(never)]
    pub fn read_onto(&self, out: &mut Vec<u8>, offset: u64, len: usize) {
        // SAFETY: `read_to` fills all bytes or traps.
        unsafe { raw::append(out, len, |to| self.read_to(offset, to, len)) }
    }

    /// Writes bytes of reserved leaves. Not inlined, because spaces are written in many places, and each copy has the search of the leaf.
    #[inline(never)]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        match self.address(offset, bytes.len()) {
            Some(at) => self.arena.payload().write(at, bytes),
            None => self.write_across(offset, bytes),
        }
    }

    /// Writes 64 bits, little-endian.
    pub fn write_u64(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    /// Writes 32 bits, little-endian.
    pub fn write_u32(&self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }
}

/// A data structure of another crate may live in a space. A refused growth is -1, as on the platform.
impl<P: Platform> Memory for Space<P> {
    fn size(&self) -> u64 {
        self.root.get().leaves.into()
    }

    fn grow(&self, pages: u64) -> i64 {
        let before = Memory::size(self);
        let end = before.saturating_add(pages).saturating_mul(LEAF);
        self.reserve_range(before * LEAF..end).map_or(-1, |()| before as i64)
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        // SAFETY: `dst` is as long as it says.
        unsafe { self.read_to(offset, dst.as_mut_ptr(), dst.len()) }
    }

    unsafe fn read_unsafe(&self, offset: u64, dst: *mut u8, count: usize) {
        // SAFETY: the caller's.
        unsafe { self.read_to(offset, dst, count) }
    }

    fn write(&self, offset: u64, src: &[u8]) {
        Space::write(self, offset, src);
    }
}

#[cfg(test)]
mod tests;
