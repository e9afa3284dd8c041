//! Allocation table: one entry for each 64 KiB granule of the arena, indexed by `offset / 65536`.
//!
//! Every class is a multiple of 64 KiB, so a dense array replaces the spec's B-tree, at the cost of one read and one write.
//! Only the first granule of a slot has a non-zero entry; the generation stays with the granule forever.
//!
//! ```text
//! entry, 16 bytes
//! ┌────────┬────────┬───────┬───────┬───────┬──────┬──────────┐
//! │ gen u32│ len u32│ state │ class │ owner │ 0xC0 │ reserved │
//! └────────┴────────┴───────┴───────┴───────┴──────┴──────────┘
//! 0        4        8       9       10      11     12        16
//! ```

use super::error::PtrError;
use super::ptr::{Class, GRANULE, Owner};
use crate::{GrowError, Platform, Region};

const ENTRY: u64 = 16;
const MARK: u8 = 0xC0;

/// The state of a slot (`pruning-spec-v1.md` 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Holds a blob.
    Used,
    /// The blob was freed; the slot may not be reused before the last reference is gone.
    Quarantine,
    /// The slot may be reused.
    Free,
}

/// Decoded entry of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub generation: u32,
    pub len: u32,
    pub state: SlotState,
    pub class: Class,
    pub owner: Owner,
}

impl Slot {
    #[inline(always)]
    fn encode(&self) -> [u8; ENTRY as usize] {
        let mut entry = [0; ENTRY as usize];
        entry[0..4].copy_from_slice(&self.generation.to_le_bytes());
        entry[4..8].copy_from_slice(&self.len.to_le_bytes());
        entry[8] = match self.state {
            SlotState::Used => 1,
            SlotState::Quarantine => 2,
            SlotState::Free => 3,
        };
        entry[9] = self.class.index() as u8;
        entry[10] = self.owner.index() as u8;
        entry[11] = MARK;
        entry
    }

    /// Returns `None` if no slot starts here. An unknown state, class or owner is an error.
    #[inline(always)]
    fn decode(entry: [u8; ENTRY as usize]) -> Result<Option<Self>, PtrError> {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        let state = match entry[8] {
            0 => return if entry == [0; ENTRY as usize] { Ok(None) } else { Err(PtrError::Corrupt) },
            1 => SlotState::Used,
            2 => SlotState::Quarantine,
            3 => SlotState::Free,
            _ => return Err(PtrError::Corrupt),
        };
        let class = Class::from_index(entry[9]).ok_or(PtrError::Corrupt)?;
        let owner = Owner::from_index(entry[10]).ok_or(PtrError::Corrupt)?;
        let slot = Self { generation: word(0), len: word(4), state, class, owner };
        if entry[11] != MARK || slot.generation == 0 || slot.len > class.size() {
            return Err(PtrError::Corrupt);
        }
        Ok(Some(slot))
    }
}

/// The dense table of all granules.
pub struct GranuleTable<P: Platform>(pub Region<P>);

impl<P: Platform> GranuleTable<P> {
    /// Reserves memory for the entries of an arena of `arena_end` bytes.
    #[inline]
    pub fn reserve(&self, arena_end: u64) -> Result<(), GrowError> {
        self.0.reserve(arena_end / GRANULE * ENTRY)
    }

    /// Returns the slot that starts at `granule`, which must lie inside the arena. Inlined, because a call would return the slot through
    /// memory.
    #[inline(always)]
    pub fn get(&self, granule: u64) -> Result<Option<Slot>, PtrError> {
        Slot::decode(self.0.read(granule * ENTRY))
    }

    #[inline]
    pub fn set(&self, granule: u64, slot: &Slot) {
        self.0.write(granule * ENTRY, &slot.encode());
    }

    /// Overwrites an entry with the given bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn poison(&self, granule: u64, entry: [u8; 16]) {
        self.0.write(granule * ENTRY, &entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_anything_else_fails_closed() {
        let slot = Slot {
            generation: 7,
            len: 70_000,
            state: SlotState::Quarantine,
            class: Class::for_len(70_000).unwrap(),
            owner: Owner::Upload,
        };
        let entry = slot.encode();
        assert_eq!(
            entry,
            [7, 0, 0, 0, 0x70, 0x11, 1, 0, 2, 1, 1, 0xC0, 0, 0, 0, 0],
            "the layout is part of the format"
        );
        assert_eq!(Slot::decode(entry), Ok(Some(slot)));
        assert_eq!(Slot::decode([0; 16]), Ok(None));
        for (at, byte) in [(8, 0), (8, 4), (9, 7), (10, 3), (11, 0), (0, 0), (6, 2)] {
            let mut broken = entry;
            broken[at] = byte;
            assert_eq!(Slot::decode(broken), Err(PtrError::Corrupt), "byte {at} = {byte}");
        }
    }
}
