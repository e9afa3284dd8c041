//! Slots of 128 bytes to 4 MiB in the arena, for entries that are too small for a blob.
//!
//! **Constraint.** An entry may have a few hundred bytes; a blob's 64 KiB would waste nearly all of its slot. Creating, changing and
//! deleting an entry must touch few pages, in constant time. Memory that becomes free must serve entries of other sizes, and other stores.
//!
//! **Design.** Slots of one size class share chunks of 64 KiB or 256 KiB, which come from the arena and go back when they are empty. A slot
//! above 128 KiB has granules of its own. A chunk hands out its slots in order, so that entries created together lie together; freed slots
//! are a stack that is linked through the slots themselves.
//!
//! ```text
//! arena  ┌─ chunk of 64 KiB ────────┬─ chunk of 256 KiB ───────────────┬─ a slot of 3 granules ─┐
//!        │ slot │ slot │ slot │ …   │ slot       │ slot       │ …      │ slot                   │
//!        └──────┴──────┴──────┴─────┴────────────┴────────────┴────────┴────────────────────────┘
//!          a slot's id is its offset in the arena / 128 + 1: 32 bits reach 512 GiB
//! slot:  0 class u8   1 state u8 (0xA5 used, 0x5A free)   2 reserved u16   4 next free slot of the chunk + 1 u32   8 the owner's bytes
//! ```
//! A chunk's data lie beside the arena's entries (`chunk`); the space has only the header (`header`). Ids are checked in `id`.
//!
//! **Journal.** Between [`Slots::begin`] and [`Slots::commit`] the bytes that writes replace are kept on the heap, so that a long operation
//! that fails in its middle can be [undone](Slots::undo) completely, and return an error instead of trapping.

mod allocate;
pub mod buckets;
mod chunk;
mod class;
mod header;
mod id;
mod journal;
mod kinds;
mod leaves;
pub mod radix;
mod reserved;
pub mod rings;
pub mod treap;

pub use class::{MAX_LEN, SlotId};

use crate::arena::{Arena, GRANULE, Owner};
use crate::{OpenError, Platform, Space};
use class::{CLASSES, HEAD, UNIT};
use header::Header;
use journal::Journal;
use kinds::Kinds;
use leaves::Leaves;
use reserved::Reserved;
use std::cell::Cell;

/// Slots in stable memory.
pub struct Slots<P: Platform = crate::Ic> {
    space: Space<P>,
    arena: Arena<P>,
    owner: Owner,
    header: Header,
    kinds: Kinds,
    leaves: Leaves,
    /// Slots of each class that are reserved and not yet allocated.
    promised: [Cell<u32>; CLASSES],
    /// A bit for each class with promised slots.
    has_promised: Cell<u64>,
    /// The arena's count of ended reservations when slots were promised last; later ones end the promises.
    promised_at: Cell<u64>,
    /// The chunks that the arena has reserved for these slots, while no chunk is taken and no message ends.
    reserved: Cell<Reserved>,
    journal: Option<Journal>,
}

/// Bytes of chunks, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of chunks that are in no slot in use.
    pub free_bytes: u64,
}

impl<P: Platform> Slots<P> {
    /// Opens the slots of a space that has their header, or prepares an empty space. All memory of `owner` in the arena is theirs. The
    /// cost does not depend on the number of slots.
    pub fn open(space: Space<P>, arena: Arena<P>, owner: Owner) -> Result<Self, OpenError> {
        let header = Header::open(&space, arena.kept_bytes(owner) / GRANULE)?;
        Ok(Self {
            space,
            arena,
            owner,
            header,
            kinds: Kinds::default(),
            leaves: Leaves::default(),
            promised: [const { Cell::new(0) }; CLASSES],
            has_promised: Cell::new(0),
            promised_at: Cell::new(0),
            reserved: Cell::default(),
            journal: None,
        })
    }

    /// Returns the arena.
    pub fn arena(&self) -> &Arena<P> {
        &self.arena
    }

    /// The slot that the owner finds first, or 0 for none.
    #[inline]
    pub fn root(&self) -> SlotId {
        self.header.root
    }

    /// Sets the slot that the owner finds first.
    pub fn set_root(&mut self, slot: SlotId) {
        self.header.root = slot;
        self.header.save_root(&self.space);
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.space.rewrite();
        self.header.save(&self.space);
    }

    /// Traps, because an index contradicts its slots: in this slot, at this key, for this size. Takes the number, because a text would cost
    /// callers instructions even if nothing is wrong.
    #[cold]
    #[inline(never)]
    fn broken(&self, of: &str, number: u32, what: &str) -> ! {
        P::trap(&format!("{of} {number} {what}"))
    }

    #[inline(always)]
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let payload = self.arena.payload();
        if let Some(journal) = &mut self.journal {
            journal.add(payload, at, bytes.len());
        }
        payload.write(at, bytes);
    }

    #[inline]
    fn address(slot: SlotId, at: u32) -> u64 {
        u64::from(slot).wrapping_mul(UNIT).wrapping_add(u64::from(HEAD) + u64::from(at)).wrapping_sub(UNIT)
    }

    /// Writes into a slot, `at` bytes from its start.
    #[inline(always)]
    pub fn write(&mut self, slot: SlotId, at: u32, bytes: &[u8]) {
        self.put(Self::address(slot, at), bytes);
    }

    /// Writes 32 bits, little-endian.
    #[inline]
    pub fn write_u32(&mut self, slot: SlotId, at: u32, value: u32) {
        self.write(slot, at, &value.to_le_bytes());
    }

    /// Reads `N` bytes of a slot.
    #[inline]
    pub fn read<const N: usize>(&self, slot: SlotId, at: u32) -> [u8; N] {
        self.arena.payload().read(Self::address(slot, at))
    }

    /// Reads `N` bytes of a slot, and passes them to `look` without copying.
    #[inline(always)]
    pub fn read_with<const N: usize, T>(&self, slot: SlotId, at: u32, look: impl FnOnce(&[u8; N]) -> T) -> T {
        self.arena.payload().read_with(Self::address(slot, at), look)
    }

    /// Reads 32 bits, little-endian.
    #[inline]
    pub fn read_u32(&self, slot: SlotId, at: u32) -> u32 {
        u32::from_le_bytes(self.read(slot, at))
    }

    /// Appends `len` bytes of a slot to `out`.
    pub fn read_onto(&self, out: &mut Vec<u8>, slot: SlotId, at: u32, len: usize) {
        self.arena.payload().read_onto(out, Self::address(slot, at), len);
    }

    /// Returns the slots that follow each other from `first` on, each of which has the next one's id at `at`. A chain ends at an id that is
    /// no slot's, and a ring before its first slot. A damaged chain that returns to another slot has no end: the message
    /// traps at its limit, and changes nothing.
    #[inline]
    fn chain(&self, first: SlotId, at: u32) -> impl Iterator<Item = SlotId> + use<'_, P> {
        let mut next = first;
        std::iter::from_fn(move || {
            let slot = Some(next).filter(|slot| self.contains(*slot))?;
            let after = self.read_u32(slot, at);
            next = if after == first { 0 } else { after };
            Some(slot)
        })
    }

    /// Returns the bytes of chunks, by use.
    pub fn stats(&self) -> SlotStats {
        let used_bytes = self.header.used_bytes();
        SlotStats { used_bytes, free_bytes: (self.header.granules() * GRANULE).saturating_sub(used_bytes) }
    }
}

#[cfg(test)]
mod tests;
