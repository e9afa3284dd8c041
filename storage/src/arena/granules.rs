//! Allocation table: an entry for each 64 KiB granule of the arena, and a line for each chunk of small slots.
//!
//! ```text
//! block of 64 granules, 2 KiB in front of the extent
//! ┌─ 64 entries of 16 bytes ─┬─ 64 lines of 16 bytes ─┐      a line belongs to the store that owns its granule
//! └──────────────────────────┴────────────────────────┘
//! entry
//! ┌────────┬────────┬───────┬───────┬───────┬──────┬──────────┐
//! │ gen u32│ len u32│ state │ class │ owner │ 0xC0 │ reserved │
//! └────────┴────────┴───────┴───────┴───────┴──────┴──────────┘
//! 0        4        8       9       10      11     12        16
//! ```
//! A granule that is not the first of its slot has the state *inside*, and zeros where it was never the first of a slot. An entry is never
//! cleared: its generation stays with the granule for ever, whichever slot the granule belongs to.

use super::class::{Class, GRANULE, Owner};
use super::extent::{self, ENTRY};
use crate::bytes::u32_at;
use crate::{Platform, Raw};

const MARK: u8 = 0xC0;

/// The state of a slot (`pruning-spec-v1.md` 1.3). An entry has its number, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Holds a blob.
    Used,
    /// The blob was freed; the slot may not be reused before the last reference is gone.
    Quarantine,
    /// The slot may be reused.
    Free,
    /// Not the start of a slot.
    Inside,
    /// Holds memory of a store other than the blobs.
    Taken,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First granule of the slot.
    pub granule: u64,
    /// Generation of the slot, above the earlier generations of its first granule.
    pub generation: u32,
}

/// Decoded entry of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of slots that have begun at this granule.
    pub generation: u32,
    /// Bytes of a blob, or of memory that is taken.
    pub len: u32,
    /// State of the slot that starts here.
    pub state: SlotState,
    /// Class of the slot that starts here.
    pub class: Class,
    /// Owner of the slot that starts here.
    pub owner: Owner,
}

/// An entry that does not decode. The content of such an entry is never guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl Entry {
    /// The entry of a granule that was never the first of a slot.
    pub const NEW: Self =
        Self { generation: 0, len: 0, state: SlotState::Inside, class: Class::SMALLEST, owner: Owner::new(0) };

    /// The entry of a granule after its slot became free, with this class.
    #[inline]
    pub fn free(self, class: Class) -> Self {
        Self { len: 0, state: SlotState::Free, class, ..self }
    }

    /// The entry of a granule inside a slot.
    #[inline]
    pub fn inside(self) -> Self {
        Self { len: 0, state: SlotState::Inside, class: Class::SMALLEST, ..self }
    }

    /// Granules of the slot: all of its class, or those that its owner took.
    #[inline]
    pub fn granules(&self) -> u64 {
        match self.state {
            SlotState::Taken => u64::from(self.len).div_ceil(GRANULE),
            _ => self.class.granules(),
        }
    }

    /// Reads the entry of `granule`, which must lie inside the arena. Inlined, because a call would return the entry through memory.
    #[inline(always)]
    pub(super) fn read(raw: Raw<impl Platform>, granule: u64) -> Result<Self, Undecodable> {
        Self::decode(raw.read(extent::entry(granule)))
    }

    /// Writes the entry of `granule`.
    #[inline]
    pub(super) fn write(&self, raw: Raw<impl Platform>, granule: u64) {
        raw.write(extent::entry(granule), &self.encode());
    }

    #[inline(always)]
    fn encode(&self) -> [u8; ENTRY as usize] {
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice([self.generation, self.len].map(u32::to_le_bytes).as_flattened());
        entry[8..12].copy_from_slice(&[self.state as u8 + 1, self.class.index() as u8, self.owner.index() as u8, MARK]);
        entry
    }

    /// Returns whether the bytes are a used blob's entry that decodes, with this generation, length and bytes of its class.
    #[inline(always)]
    pub(super) fn is_used(entry: &[u8; ENTRY as usize], generation: u32, len: u32, class: u32) -> bool {
        let size = Class::from_index(entry[9]).map_or(0, Class::size);
        (entry[8], entry[11], size) == (1, MARK, class)
            && (u32_at(entry, 0), u32_at(entry, 4)) == (generation, len)
            && generation > 0
            && len <= size
            && usize::from(entry[10]) < Owner::COUNT
    }

    /// An unknown state, class or owner is an error.
    #[inline(always)]
    fn decode(entry: [u8; ENTRY as usize]) -> Result<Self, Undecodable> {
        let state = match entry[8] {
            0 if entry == [0; ENTRY as usize] => return Ok(Self::NEW),
            1 => SlotState::Used,
            2 => SlotState::Quarantine,
            3 => SlotState::Free,
            4 => SlotState::Inside,
            5 => SlotState::Taken,
            _ => return Err(Undecodable),
        };
        let class = Class::from_index(entry[9]).ok_or(Undecodable)?;
        let owner = Owner::from_index(entry[10]).ok_or(Undecodable)?;
        let entry_ = Self { generation: u32_at(&entry, 0), len: u32_at(&entry, 4), state, class, owner };
        let held = matches!(state, SlotState::Used | SlotState::Quarantine | SlotState::Taken);
        if entry[11] != MARK || entry_.len > class.size() || held && entry_.generation == 0 {
            return Err(Undecodable);
        }
        Ok(entry_)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_anything_else_fails_closed() {
        let slot = Entry {
            generation: 7,
            len: 70_000,
            state: SlotState::Quarantine,
            class: Class::for_len(70_000).unwrap(),
            owner: Owner::new(1),
        };
        let entry = slot.encode();
        assert_eq!(
            entry,
            [7, 0, 0, 0, 0x70, 0x11, 1, 0, 2, 1, 1, 0xC0, 0, 0, 0, 0],
            "the layout is part of the format"
        );
        assert_eq!(Entry::decode(entry), Ok(slot));
        let used = Entry { state: SlotState::Used, ..slot }.encode();
        let is_used = |entry: &_| Entry::is_used(entry, 7, 70_000, 128 << 10);
        assert_eq!([is_used(&used), is_used(&entry)], [true, false]);
        let others = [(8, 70_000, 128 << 10), (7, 70_001, 128 << 10), (7, 70_000, 64 << 10)];
        assert!(others.iter().all(|&(generation, len, class)| !Entry::is_used(&used, generation, len, class)));
        let never = Entry::decode([0; 16]).unwrap();
        assert_eq!((never.state, never.generation), (SlotState::Inside, 0));
        for (at, byte) in [(8, 0), (8, 6), (9, 7), (10, Owner::COUNT as u8), (11, 0), (0, 0), (6, 2)] {
            let mut broken = entry;
            broken[at] = byte;
            assert_eq!(Entry::decode(broken), Err(Undecodable), "byte {at} = {byte}");
            let mut broken = used;
            broken[at] = byte;
            assert!(!is_used(&broken), "byte {at} = {byte}");
        }
    }
}
