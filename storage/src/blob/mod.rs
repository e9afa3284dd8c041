//! BlobStore: blobs of up to 4 MiB, each in a slot of one of the arena's seven classes.
//!
//! **Constraint.** A reader may hold a pointer while a blob is freed, so memory may not be reused before the last reference is gone, and a
//! pointer to an earlier blob must never reach a later one.
//!
//! **Design.** A slot is `Used`, in `Quarantine` after [`BlobStore::free`], and free after [`BlobStore::release`]. One message frees
//! a blob and removes its last reference, so a quarantined blob has no reference and may be released at any
//! later time; the quarantine set finds it without a scan. A pointer has the generation of its slot, and each use compares it.

mod error;
mod ptr;

pub use crate::arena::{Class, GRANULE, MAX_GRANULES, Owner, SlotState};
pub use error::{AllocateError, PtrError};
pub use ptr::{BlobPtr, MAX_BLOB};

use crate::Platform;
use crate::arena::{Arena, Entry, Slot};

/// Blobs in stable memory.
pub struct BlobStore<P: Platform = crate::Ic> {
    arena: Arena<P>,
}

impl<P: Platform> BlobStore<P> {
    /// Opens the blobs of an arena.
    pub fn open(arena: Arena<P>) -> Self {
        Self { arena }
    }

    /// The arena of the blobs, and of all other stores.
    pub fn arena(&self) -> &Arena<P> {
        &self.arena
    }

    /// Allocates a slot of the smallest class that holds `len` bytes (`pruning-spec-v1.md` 2). The slot's bytes are not cleared.
    ///
    /// # Errors
    /// [`AllocateError`]; nothing has changed.
    pub fn allocate(&mut self, len: u32, owner: Owner) -> Result<BlobPtr, AllocateError> {
        let class = Class::for_len(len).ok_or(AllocateError::TooLarge { limit: MAX_BLOB })?;
        let Slot { granule, generation } = self.arena.take(owner, class, len)?;
        Ok(BlobPtr { offset: granule.wrapping_mul(GRANULE), len, class: class.size(), generation })
    }

    /// Allocates a blob and writes its bytes.
    ///
    /// # Errors
    /// [`AllocateError`]; nothing has changed.
    pub fn store(&mut self, bytes: &[u8], owner: Owner) -> Result<BlobPtr, AllocateError> {
        let len = u32::try_from(bytes.len()).map_err(|_| AllocateError::TooLarge { limit: MAX_BLOB })?;
        let ptr = self.allocate(len, owner)?;
        self.arena.payload().write(ptr.offset, bytes);
        Ok(ptr)
    }

    /// Checks that a pointer names a used blob.
    ///
    /// # Errors
    /// [`PtrError`] if it does not.
    pub fn check(&self, ptr: &BlobPtr) -> Result<(), PtrError> {
        self.check_range(ptr, 0, 0)
    }

    /// Writes into a used blob, `at` bytes from its start.
    ///
    /// # Errors
    /// [`PtrError`]; nothing has changed.
    pub fn write(&mut self, ptr: &BlobPtr, at: u32, bytes: &[u8]) -> Result<(), PtrError> {
        self.check_range(ptr, at, bytes.len())?;
        self.arena.payload().write(ptr.offset + u64::from(at), bytes);
        Ok(())
    }

    /// Returns the whole blob.
    ///
    /// # Errors
    /// [`PtrError`] if the pointer does not name a used blob.
    pub fn read(&self, ptr: &BlobPtr) -> Result<Vec<u8>, PtrError> {
        let mut bytes = Vec::new();
        self.read_onto(&mut bytes, ptr, 0, ptr.len)?;
        Ok(bytes)
    }

    /// Appends `len` bytes of a used blob to `out`, `at` bytes from its start.
    ///
    /// # Errors
    /// [`PtrError`] if the pointer does not name a used blob, or the range lies outside the blob; `out` is unchanged.
    pub fn read_onto(&self, out: &mut Vec<u8>, ptr: &BlobPtr, at: u32, len: u32) -> Result<(), PtrError> {
        self.check_range(ptr, at, len as usize)?;
        self.arena.payload().read_onto(out, ptr.offset + u64::from(at), len as usize);
        Ok(())
    }

    /// Reads exactly `N` bytes of a used blob.
    ///
    /// # Errors
    /// As [`read_onto`](Self::read_onto).
    pub fn read_array<const N: usize>(&self, ptr: &BlobPtr, at: u32) -> Result<[u8; N], PtrError> {
        self.check_range(ptr, at, N)?;
        Ok(self.arena.payload().read(ptr.offset + u64::from(at)))
    }

    /// Checks that a pointer names a used blob, which has `len` bytes from `at` on.
    #[inline(always)]
    fn check_range(&self, ptr: &BlobPtr, at: u32, len: usize) -> Result<(), PtrError> {
        let granule = ptr.offset / GRANULE;
        if !ptr.offset.is_multiple_of(GRANULE) || !self.arena.is_used(granule, ptr.generation, ptr.len, ptr.class) {
            return Err(self.not_used(ptr));
        }
        let end = u64::from(at).saturating_add(len as u64);
        if end > u64::from(ptr.len) { Err(PtrError::OutOfRange { len: ptr.len }) } else { Ok(()) }
    }

    /// The reason why a pointer does not name a used blob.
    #[cold]
    #[inline(never)]
    fn not_used(&self, ptr: &BlobPtr) -> PtrError {
        match self.find(ptr) {
            Err(error) => error,
            Ok((_, slot)) => match slot.state {
                SlotState::Quarantine if slot.generation == ptr.generation => PtrError::NotUsed,
                SlotState::Free => PtrError::NotUsed,
                SlotState::Used if slot.class.size() == ptr.class && slot.generation == ptr.generation => {
                    PtrError::WrongLength { len: slot.len }
                }
                _ => Self::not_a_blob(ptr, &slot),
            },
        }
    }

    /// Returns the entry that a pointer's offset names, without checking anything else.
    #[inline(always)]
    fn find(&self, ptr: &BlobPtr) -> Result<(u64, Entry), PtrError> {
        let granule = ptr.offset / GRANULE;
        let entry = self.arena.entry(granule).ok_or(PtrError::NeverAllocated)?;
        if !ptr.offset.is_multiple_of(GRANULE) {
            return Err(PtrError::InsideBlob);
        }
        Ok((granule, entry.map_err(|_| PtrError::Corrupt)?))
    }

    /// The reason why a pointer does not name the blob of this slot.
    #[cold]
    fn not_a_blob(ptr: &BlobPtr, slot: &Entry) -> PtrError {
        match slot.state {
            SlotState::Inside => PtrError::InsideBlob,
            _ if slot.class.size() != ptr.class => PtrError::WrongClass { class: slot.class.size() },
            SlotState::Taken => PtrError::NotUsed,
            _ => PtrError::StaleGeneration { current: slot.generation },
        }
    }

    /// Returns the slot of a blob that is used or quarantined, or `None` if the blob's memory is free.
    #[inline(always)]
    fn held(&self, ptr: &BlobPtr) -> Result<Option<(u64, Entry)>, PtrError> {
        let (granule, slot) = self.find(ptr)?;
        let same = slot.class.size() == ptr.class && slot.generation == ptr.generation;
        match slot.state {
            SlotState::Used | SlotState::Quarantine if same => Ok(Some((granule, slot))),
            SlotState::Free => Ok(None),
            SlotState::Inside if self.arena.is_free(granule) => Ok(None),
            _ => Err(Self::not_a_blob(ptr, &slot)),
        }
    }

    /// Quarantines a used blob, and returns whether it was used. A blob that is already quarantined or free stays so
    /// (`pruning-spec-v1.md` 3), even if its memory has since become part of a free slot of another class.
    ///
    /// # Errors
    /// [`PtrError`] if the slot holds another blob now, or the pointer names no blob; nothing has changed.
    pub fn free(&mut self, ptr: &BlobPtr) -> Result<bool, PtrError> {
        let Some((granule, slot)) = self.held(ptr)? else { return Ok(false) };
        let is_used = slot.state == SlotState::Used;
        if is_used {
            self.arena.quarantine(granule, slot);
        }
        Ok(is_used)
    }

    /// Frees a quarantined blob's slot, and returns whether it was quarantined and not free already. Only then does it stop counting for its
    /// owner.
    ///
    /// # Errors
    /// [`PtrError`] if the blob is used, the slot was reused, or the pointer names no blob; nothing has changed.
    pub fn release(&mut self, ptr: &BlobPtr) -> Result<bool, PtrError> {
        let Some((granule, slot)) = self.held(ptr)? else { return Ok(false) };
        if slot.state == SlotState::Used {
            return Err(PtrError::NotQuarantined);
        }
        self.arena.give(granule, slot);
        Ok(true)
    }

    /// Returns whether any slot is in quarantine.
    pub fn has_quarantined(&self) -> bool {
        self.arena.first_quarantined().is_some()
    }

    /// Releases up to `max` quarantined blobs, lowest offset first, and returns their number. A blob whose entry contradicts the quarantine
    /// is removed from it, written off, and reported, so that it does not block the others.
    pub fn release_quarantined(&mut self, max: u64) -> (u64, Vec<String>) {
        let (mut released, mut faults) = (0, Vec::new());
        for _ in 0..max {
            let Some(granule) = self.arena.first_quarantined() else { break };
            match self.arena.entry(granule) {
                Some(Ok(slot)) if slot.state == SlotState::Quarantine => {
                    self.arena.give(granule, slot);
                    released += 1;
                }
                Some(Err(_)) => {
                    self.arena.lose_quarantined(granule);
                    faults.push(format!("granule {granule} cannot be decoded: written off"));
                }
                // The entry decides, not the bit.
                entry => {
                    self.arena.forget_quarantined(granule);
                    faults.push(format!("granule {granule} has the entry {entry:?}: it is not quarantined"));
                }
            }
        }
        (released, faults)
    }

    /// Changes the owner of a used blob.
    ///
    /// # Errors
    /// [`PtrError`] if the pointer does not name a used blob; nothing has changed.
    pub fn set_owner(&mut self, ptr: &BlobPtr, owner: Owner) -> Result<(), PtrError> {
        self.check(ptr)?;
        let (granule, slot) = self.find(ptr)?;
        self.arena.set_owner(granule, slot, owner);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
