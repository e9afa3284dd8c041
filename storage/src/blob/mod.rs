//! BlobStore: an arena of reusable slots in seven size classes.
//!
//! **Constraint.** Stable memory never shrinks and every byte grown is billed, so a freed slot must be found again in
//! constant time, at any number of blobs, and the instruction budget must not depend on history.
//!
//! **Design.** The spec's two B-trees (`pruning-spec-v1.md` 1.3) cost more than writing the blob itself. Every class is a
//! multiple of 64 KiB, so the allocation table is a dense array (`granules`), and each free list a hierarchy of bitmaps
//! (`sets`): allocate, free and release take a few small reads and writes each. Slots hold no metadata, so freeing never
//! touches the blob's pages.
//!
//! A slot is `Used`, in `Quarantine` after [`BlobStore::free`], and `Free` after [`BlobStore::release`]. One message frees
//! a blob and removes its last reference, so a quarantined blob has no reference and may be released at any
//! later time; the quarantine set finds it without a scan.

mod counters;
mod error;
mod granules;
mod ptr;
mod sets;

pub use counters::ClassCounters;
pub use error::{AllocateError, Freed, PtrError, Released};
pub use granules::SlotState;
pub use ptr::{BlobPtr, Class, GRANULE, MAX_BLOB, MAX_GRANULES, Owner};

use crate::{GrowError, OpenError, Platform, Region};
use counters::Counters;
use granules::{GranuleTable, Slot};
use sets::{GranuleSets, SetId};

/// Blobs in stable memory.
pub struct BlobStore<P: Platform> {
    arena: Region<P>,
    granules: GranuleTable<P>,
    sets: GranuleSets<P>,
    counters: Counters,
    /// The class of the log. The log cannot use slots of other classes.
    log: Option<Class>,
}

impl<P: Platform> BlobStore<P> {
    /// Opens the store in the regions of its arena, its granules and its sets, or creates an empty store. The cost does not depend on the
    /// number of blobs.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open([arena, granules, sets]: [Region<P>; 3]) -> Result<Self, OpenError> {
        let new = sets.is_empty();
        if new {
            sets.reserve(sets::REGION).map_err(|why| OpenError::Grow { name: counters::LAYOUT.name, why })?;
        }
        let counters = if new { Counters::create(&sets) } else { Counters::open(&sets)? };
        Ok(Self { arena, granules: GranuleTable(granules), sets: GranuleSets::open(sets), counters, log: None })
    }

    /// Sets the class of the log. From then on all other bytes of the arena count towards the quota.
    pub fn set_log_class(&mut self, class: Class) {
        self.log = Some(class);
        self.count_others();
    }

    /// Updates the arena's bytes that count towards the quota: slots of the log's class that external data keeps, and all slots of the
    /// other classes, free or not, because the log cannot use them.
    fn count_others(&self) {
        let Some(log) = self.log else { return };
        let bytes = |class: Class| {
            let of = self.counters.class(class);
            let kept = |owner: Owner| u64::from(of.kept[owner.index()]);
            let slots = match class == log {
                true => kept(Owner::External),
                false => u64::from(of.free) + u64::from(of.lost) + Owner::ALL.into_iter().map(kept).sum::<u64>(),
            };
            slots * u64::from(class.size())
        };
        self.arena.quota().set_blobs(Class::all().map(bytes).sum());
    }

    /// Updates the counted bytes after a slot of the log's class was allocated or released. Slots of other classes count from their
    /// creation on.
    #[inline]
    fn note_slot(&self, class: Class, owner: Owner) {
        if owner == Owner::External && self.log == Some(class) {
            self.count_others();
        }
    }

    /// Checks that external blobs of these lengths fit the quota.
    ///
    /// # Errors
    /// `QuotaFull`.
    pub fn check_quota(&self, lens: impl Iterator<Item = u32>) -> Result<(), GrowError> {
        let Some(log) = self.log else { return Ok(()) };
        let mut wanted = [0_u64; Class::COUNT];
        lens.filter_map(Class::for_len).for_each(|class| wanted[class.index()] += 1);
        let more = |class: Class| {
            let free = if class == log { 0 } else { u64::from(self.counters.class(class).free) };
            wanted[class.index()].saturating_sub(free) * u64::from(class.size())
        };
        self.arena.quota().check_blobs(Class::all().map(more).sum())
    }

    /// Checks that the existing blobs of an upload fit the quota as external blobs; `classes` are the bytes of their classes.
    ///
    /// # Errors
    /// `QuotaFull`.
    pub fn check_quota_of_uploaded(&self, classes: impl Iterator<Item = u32>) -> Result<(), GrowError> {
        let Some(log) = self.log else { return Ok(()) };
        self.arena.quota().check_blobs(classes.filter(|class| *class == log.size()).map(u64::from).sum())
    }

    /// Grows memory so that the next `count` allocations of `class` succeed, provided that no other allocation comes between.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn reserve(&self, class: Class, count: u64) -> Result<(), GrowError> {
        let fresh = count.saturating_sub(u64::from(self.counters.class(class).free));
        self.reserve_arena(self.counters.arena_end() + fresh * u64::from(class.size()))
    }

    #[inline]
    fn reserve_arena(&self, end: u64) -> Result<(), GrowError> {
        if end > MAX_GRANULES * GRANULE {
            return Err(GrowError::OutOfSpace);
        }
        self.granules.reserve(end)?;
        self.arena.reserve(end)
    }

    /// Allocates a slot of the smallest class that holds `len` bytes: the free one with the lowest offset, or else a new one at the arena's
    /// end (`pruning-spec-v1.md` 2). The slot's bytes are not cleared.
    ///
    /// # Errors
    /// [`AllocateError`]; nothing has changed.
    pub fn allocate(&mut self, len: u32, owner: Owner) -> Result<BlobPtr, AllocateError> {
        let class = Class::for_len(len).ok_or(AllocateError::TooLarge { limit: MAX_BLOB })?;
        let (granule, generation) = match self.pop_free(class) {
            Some((granule, generation)) => {
                self.counters.change(self.sets.region(), class, |c| {
                    c.free -= 1;
                    c.kept[owner.index()] += 1;
                });
                (granule, generation)
            }
            None => {
                let start = self.counters.arena_end();
                let end = start + u64::from(class.size());
                self.reserve_arena(end)?;
                self.counters.set_arena_end(self.sets.region(), end);
                self.counters.change(self.sets.region(), class, |c| c.kept[owner.index()] += 1);
                if self.log != Some(class) {
                    self.count_others();
                }
                (start / GRANULE, 1)
            }
        };
        self.granules.set(granule, &Slot { generation, len, state: SlotState::Used, class, owner });
        self.note_slot(class, owner);
        Ok(BlobPtr { offset: granule * GRANULE, len, class: class.size(), generation })
    }

    /// Takes the lowest free slot of a class from its free list, and returns it with its new generation. A slot whose entry contradicts the
    /// list is written off, so that it does not block later allocations.
    fn pop_free(&mut self, class: Class) -> Option<(u64, u32)> {
        while let Some(granule) = self.sets.first(SetId::free(class)) {
            self.sets.remove(SetId::free(class), granule);
            match self.granules.get(granule) {
                Ok(Some(slot))
                    if slot.state == SlotState::Free && slot.class == class && slot.generation < u32::MAX =>
                {
                    return Some((granule, slot.generation + 1));
                }
                _ => self.counters.change(self.sets.region(), class, |c| {
                    c.free -= 1;
                    c.lost += 1;
                }),
            }
        }
        None
    }

    /// Writes off a kept blob that cannot be freed because its entry is unreadable: it no longer counts for its owner, and its slot is lost
    /// and never reused.
    pub fn write_off(&mut self, class: Class, owner: Owner) {
        self.counters.change(self.sets.region(), class, |c| {
            if c.kept[owner.index()] > 0 {
                c.kept[owner.index()] -= 1;
                c.lost += 1;
            }
        });
    }

    /// Allocates a blob and writes its bytes.
    ///
    /// # Errors
    /// [`AllocateError`]; nothing has changed.
    pub fn store(&mut self, bytes: &[u8], owner: Owner) -> Result<BlobPtr, AllocateError> {
        let len = u32::try_from(bytes.len()).map_err(|_| AllocateError::TooLarge { limit: MAX_BLOB })?;
        let ptr = self.allocate(len, owner)?;
        self.arena.write(ptr.offset, bytes);
        Ok(ptr)
    }

    /// Checks that a pointer names a used blob.
    ///
    /// # Errors
    /// [`PtrError`] if it does not.
    pub fn check(&self, ptr: &BlobPtr) -> Result<(), PtrError> {
        self.check_range(ptr, 0, 0).map(|_| ())
    }

    /// Writes into a used blob, `at` bytes from its start.
    ///
    /// # Errors
    /// [`PtrError`]; nothing has changed.
    pub fn write(&mut self, ptr: &BlobPtr, at: u32, bytes: &[u8]) -> Result<(), PtrError> {
        self.check_range(ptr, at, bytes.len())?;
        self.arena.write(ptr.offset + u64::from(at), bytes);
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
        self.arena.read_onto(out, ptr.offset + u64::from(at), len as usize);
        Ok(())
    }

    /// Reads exactly `N` bytes of a used blob.
    ///
    /// # Errors
    /// As [`read_onto`](Self::read_onto).
    pub fn read_array<const N: usize>(&self, ptr: &BlobPtr, at: u32) -> Result<[u8; N], PtrError> {
        self.check_range(ptr, at, N)?;
        Ok(self.arena.read(ptr.offset + u64::from(at)))
    }

    #[inline(always)]
    fn check_range(&self, ptr: &BlobPtr, at: u32, len: usize) -> Result<(u64, Slot), PtrError> {
        let (granule, slot) = self.find(ptr)?;
        if slot.generation != ptr.generation {
            return Err(PtrError::StaleGeneration { current: slot.generation });
        }
        if slot.state != SlotState::Used {
            return Err(PtrError::NotUsed);
        }
        if slot.len != ptr.len {
            return Err(PtrError::WrongLength { len: slot.len });
        }
        if u64::from(at) + len as u64 > u64::from(slot.len) {
            return Err(PtrError::OutOfRange { len: slot.len });
        }
        Ok((granule, slot))
    }

    /// Returns the slot that a pointer's offset and class name, without checking generation and state.
    #[inline(always)]
    fn find(&self, ptr: &BlobPtr) -> Result<(u64, Slot), PtrError> {
        if ptr.offset >= self.counters.arena_end() {
            return Err(PtrError::NeverAllocated);
        }
        if !ptr.offset.is_multiple_of(GRANULE) {
            return Err(PtrError::InsideBlob);
        }
        let granule = ptr.offset / GRANULE;
        // Every granule below the arena's end belongs to a slot, so a granule without an entry is not the slot's first.
        let slot = self.granules.get(granule)?.ok_or(PtrError::InsideBlob)?;
        if slot.class.size() != ptr.class {
            return Err(PtrError::WrongClass { class: slot.class.size() });
        }
        Ok((granule, slot))
    }

    /// Quarantines a used blob. A blob that is already quarantined or free stays so (`pruning-spec-v1.md` 3).
    ///
    /// # Errors
    /// [`PtrError`] if the slot holds another blob now, or the pointer names no blob; nothing has changed.
    pub fn free(&mut self, ptr: &BlobPtr) -> Result<Freed, PtrError> {
        let (granule, mut slot) = self.find(ptr)?;
        match slot.state {
            SlotState::Free => return Ok(Freed::AlreadyFree),
            SlotState::Quarantine => return Ok(Freed::AlreadyQuarantined),
            SlotState::Used if slot.generation != ptr.generation => {
                return Err(PtrError::StaleGeneration { current: slot.generation });
            }
            SlotState::Used => {}
        }
        slot.state = SlotState::Quarantine;
        self.granules.set(granule, &slot);
        self.sets.insert(SetId::QUARANTINE, granule);
        self.counters.change(self.sets.region(), slot.class, |c| c.quarantined += 1);
        Ok(Freed::Quarantined)
    }

    /// Moves a quarantined blob's slot to its class's free list. Only then does it stop counting for its owner.
    ///
    /// # Errors
    /// [`PtrError`] if the blob is used, the slot was reused, or the pointer names no blob; nothing has changed.
    pub fn release(&mut self, ptr: &BlobPtr) -> Result<Released, PtrError> {
        let (granule, slot) = self.find(ptr)?;
        match slot.state {
            SlotState::Free => Ok(Released::AlreadyFree),
            _ if slot.generation != ptr.generation => Err(PtrError::StaleGeneration { current: slot.generation }),
            SlotState::Used => Err(PtrError::NotQuarantined),
            SlotState::Quarantine => Ok(Released::Freed(self.release_slot(granule, slot))),
        }
    }

    fn release_slot(&mut self, granule: u64, mut slot: Slot) -> Owner {
        slot.state = SlotState::Free;
        self.granules.set(granule, &slot);
        self.sets.transfer(SetId::QUARANTINE, SetId::free(slot.class), granule);
        self.counters.change(self.sets.region(), slot.class, |c| {
            c.quarantined -= 1;
            c.free += 1;
            c.kept[slot.owner.index()] -= 1;
        });
        self.note_slot(slot.class, slot.owner);
        slot.owner
    }

    /// Returns whether any slot is in quarantine.
    pub fn has_quarantined(&self) -> bool {
        self.sets.first(SetId::QUARANTINE).is_some()
    }

    /// Releases up to `max` quarantined blobs, lowest offset first, and returns their number. A blob whose entry contradicts the quarantine
    /// is removed from it, written off, and reported, so that it does not block the others.
    pub fn release_quarantined(&mut self, max: u64) -> (u64, Vec<String>) {
        let (mut released, mut faults) = (0, Vec::new());
        for _ in 0..max {
            let Some(granule) = self.sets.first(SetId::QUARANTINE) else { break };
            match self.granules.get(granule) {
                Ok(Some(slot)) if slot.state == SlotState::Quarantine => {
                    self.release_slot(granule, slot);
                    released += 1;
                }
                entry => {
                    self.sets.remove(SetId::QUARANTINE, granule);
                    self.forget_quarantined();
                    faults.push(format!("granule {granule} has the entry {entry:?}: written off"));
                }
            }
        }
        (released, faults)
    }

    /// Counts a quarantined slot with an unreadable class as lost, in the first class that has a quarantined slot.
    fn forget_quarantined(&mut self) {
        let class = Class::all().find(|&class| self.counters.class(class).quarantined > 0);
        let Some(class) = class else { return };
        self.counters.change(self.sets.region(), class, |c| {
            c.quarantined -= 1;
            c.lost += 1;
            if let Some(kept) = c.kept.iter_mut().find(|kept| **kept > 0) {
                *kept -= 1;
            }
        });
    }

    /// Changes the owner of a used blob.
    ///
    /// # Errors
    /// [`PtrError`] if the pointer does not name a used blob; nothing has changed.
    pub fn set_owner(&mut self, ptr: &BlobPtr, owner: Owner) -> Result<(), PtrError> {
        let (granule, mut slot) = self.check_range(ptr, 0, 0)?;
        let old = slot.owner;
        slot.owner = owner;
        self.granules.set(granule, &slot);
        self.counters.change(self.sets.region(), slot.class, |c| {
            c.kept[old.index()] -= 1;
            c.kept[owner.index()] += 1;
        });
        self.note_slot(slot.class, old);
        self.note_slot(slot.class, owner);
        Ok(())
    }

    /// `estimated_kept_bytes` of an owner: class bytes of its used and quarantined blobs (`pruning-spec-v1.md` 10).
    pub fn kept_bytes(&self, owner: Owner) -> u64 {
        self.counters.kept_bytes(owner)
    }

    /// Counters of a class's slots, by state and owner.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        *self.counters.class(class)
    }

    /// Makes the entry of a blob's slot undecodable, as damage would.
    #[cfg(any(test, feature = "testing"))]
    pub fn poison(&self, ptr: &BlobPtr) {
        self.granules.poison(ptr.offset / GRANULE, [0xFF; 16]);
    }

    /// Bytes that new blobs can take without growing memory: free slots, and the arena's unused end.
    pub fn reusable_bytes(&self) -> u64 {
        let free = Class::all().map(|class| u64::from(self.class_counters(class).free) * u64::from(class.size()));
        free.sum::<u64>() + self.arena.size() - self.arena_end()
    }

    /// Bytes of the arena in slots, used or not.
    pub fn arena_end(&self) -> u64 {
        self.counters.arena_end()
    }
}

#[cfg(test)]
mod tests;
