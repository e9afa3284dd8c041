//! Directory: a slot of the arena for each number of a window that rises, in a space whose leaves follow the window.
//!
//! ```text
//! header 64 bytes, then a ring of entries: number n lies at 64 + n % ring × 16
//! entry: granule u32 ‖ generation u32, 0 for no slot ‖ check u64 of number and slot
//!          ┌─ leaf ─┬─ leaf ─┬─ leaf ─┬─ leaf ─┐
//! reserved │ header │        │ window ━━━━━━   │
//!          └────────┴────────┴────────┴────────┘
//! ```
//! Leaves outside the window go back to the arena when the window needs a new one. The line of the slot's granule names the number, so the
//! arena's entries are searched for the slot of a damaged entry, which is then mended.

use ic_coppice_storage::arena::{Arena, Slot};
use ic_coppice_storage::blob::Owner;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::space::LEAF;
use ic_coppice_storage::{GrowError, OpenError, Space, checksum};
use std::ops::Range;

/// Bytes of the header.
const HEADER: u64 = 64;
/// Bytes of an entry.
const ENTRY: u64 = 16;

/// The slots of a window of numbers.
pub struct Directory {
    space: Space,
    arena: Arena,
    layout: Header,
    owners: &'static [Owner],
    ring: u64,
}

impl Directory {
    /// Opens the directory of a space, or creates one there, for windows of up to `ring` numbers whose slots belong to `owners`.
    pub fn open(
        space: Space,
        arena: Arena,
        layout: Header,
        owners: &'static [Owner],
        ring: u64,
    ) -> Result<Self, OpenError> {
        space.begin(&layout, HEADER)?;
        Ok(Self { space, arena, layout, owners, ring })
    }

    /// The space; the header's bytes from 8 to 64 belong to the caller.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Writes the header and the list of leaves anew.
    pub fn rewrite(&self) {
        self.space.rewrite_with(&self.layout);
    }

    /// Offset of the entry of a number. Entries without memory are zero.
    #[inline]
    fn at(&self, number: u64) -> u64 {
        // The remainder is below the ring, whose bytes a space has.
        HEADER.wrapping_add((number % self.ring).wrapping_mul(ENTRY))
    }

    /// The slot of a number; `None` if it has none.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Slot> {
        let [slot, check] = self.space.read_pair(self.at(number));
        if slot | check == 0 {
            return None;
        }
        if check == checksum::of_entry(number, slot) {
            return Some(Slot { granule: slot & 0xFFFF_FFFF, generation: (slot >> 32) as u32 });
        }
        self.find(number)
    }

    /// Searches the slot of a number whose entry is damaged, and mends the entry. The entry stays if no slot is found, because the entry
    /// may be that of another number of the ring.
    #[cold]
    #[inline(never)]
    fn find(&self, number: u64) -> Option<Slot> {
        let found = self.arena.find(self.owners, &self.line_of(number))?;
        self.put(number, Some(found));
        Some(found)
    }

    /// The line of the granule that has the slot of a number.
    fn line_of(&self, number: u64) -> [u8; 16] {
        let mut line = [0xFF; 16];
        line[..8].copy_from_slice(&number.to_le_bytes());
        line[8..12].copy_from_slice(&self.layout.magic);
        line
    }

    fn put(&self, number: u64, slot: Option<Slot>) {
        let entry = slot.map_or([0; 2], |Slot { granule, generation }| {
            let slot = granule | u64::from(generation) << 32;
            [slot, checksum::of_entry(number, slot)]
        });
        self.space.write(self.at(number), entry.map(u64::to_le_bytes).as_flattened());
    }

    /// Sets the slot of a number. [`reserve`](Self::reserve) must have succeeded.
    pub fn set(&self, number: u64, slot: Slot) {
        self.arena.set_line(slot.granule, &self.line_of(number));
        self.put(number, Some(slot));
    }

    /// Removes the slot of a number.
    pub fn clear(&self, number: u64) {
        // An entry without memory has no slot already.
        if self.space.read_pair(self.at(number)) != [0; 2] {
            self.put(number, None);
        }
    }

    /// Points a number to a granule that was never its slot.
    #[cfg(any(test, feature = "testing"))]
    pub fn lose(&self, number: u64, granule: u64) {
        self.put(number, Some(Slot { granule, generation: 1 }));
    }

    /// Flips a bit of the entry of a number, as damage would.
    #[cfg(test)]
    pub fn flip(&self, number: u64, bit: u64) {
        let at = self.at(number) + bit / 8;
        let [byte] = self.space.read(at);
        self.space.write(at, &[byte ^ 1 << (bit % 8)]);
    }

    /// Makes room for the entries of `added` while those from `oldest` on are kept.
    ///
    /// # Errors
    /// [`GrowError`]; the entries that are kept have not changed.
    pub fn reserve(&self, oldest: u64, added: Range<u64>) -> Result<(), GrowError> {
        if added.is_empty() {
            return Ok(());
        }
        if added.end.saturating_sub(oldest) > self.ring {
            return Err(GrowError::OutOfSpace);
        }
        let (first, end) = (self.at(added.start), self.at(added.end - 1) + ENTRY);
        let parts = if first < end { [first..end, 0..0] } else { [first..HEADER + self.ring * ENTRY, HEADER..end] };
        if parts.iter().all(|part| self.space.has(part)) {
            return Ok(());
        }
        self.release_outside(self.at(oldest.min(added.start)), end);
        parts.into_iter().try_for_each(|part| self.space.reserve_range(part))
    }

    /// Gives back the leaves outside a window from the offset `first` to `end`, which lies before `first` if the window goes round. The
    /// leaf of the header stays.
    #[cold]
    fn release_outside(&self, first: u64, end: u64) {
        if first < end {
            self.space.release(LEAF..first);
            self.space.release(end.max(LEAF)..self.space.size());
        } else {
            self.space.release(end.max(LEAF)..first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners;
    use crate::places::LOG_DIRECTORY;
    use ic_coppice_storage::blob::Class;
    use ic_coppice_storage::testing::{self, space};
    use ic_coppice_storage::twin;

    const LAYOUT: Header = Header { name: "numbers", magic: *b"NUMB", version: 1 };
    /// Nearly ten leaves of entries.
    const RING: u64 = 40_000;

    fn open() -> Directory {
        let arena = testing::arena();
        Directory::open(space(LOG_DIRECTORY), arena, LAYOUT, &[owners::CHAIN], RING).unwrap()
    }

    /// A slot that is not in the arena.
    fn slot(number: u64) -> Slot {
        Slot { granule: 3, generation: number as u32 + 1 }
    }

    fn leaves() -> u64 {
        testing::arena().kept_bytes(testing::SPACES) / LEAF
    }

    #[test]
    fn leaves_follow_the_window_round_the_ring() {
        twin::reset();
        testing::forget();
        let mut directory = open();
        let (mut oldest, mut most) = (0, 0);
        for next in 0..5 * RING {
            directory.reserve(oldest, next..next + 1).unwrap();
            directory.put(next, Some(slot(next)));
            if next - oldest > 10_000 {
                directory.clear(oldest);
                oldest += 1;
            }
            if next % 10_007 == 0 {
                testing::forget();
                directory = open();
                most = most.max(leaves());
                let has = |number: u64| directory.get(number) == Some(slot(number));
                assert!((oldest..=next).all(has), "{oldest} to {next}");
            }
        }
        // A window of 10,001 entries touches four leaves; one more is free, and the header and the root have theirs.
        assert!((4..=7).contains(&most), "{most} leaves");
    }

    #[test]
    fn slot_of_an_entry_with_a_flipped_bit_is_found_again() {
        twin::reset();
        testing::forget();
        let directory = open();
        let arena = testing::arena();
        let entry = |number: u64| directory.space.read_pair(directory.at(number));
        directory.reserve(7, 7..10).unwrap();
        let (own, other) =
            (|| arena.take(owners::CHAIN, Class::SMALLEST, 9), arena.take(testing::COUNTED, Class::SMALLEST, 9));
        let (old, new) = (own().unwrap(), own().unwrap());
        // Slots that had the number before: one is free, one belongs to another owner now.
        directory.set(8, old);
        directory.set(8, other.unwrap());
        arena.quarantine(old.granule, arena.entry(old.granule).unwrap().unwrap());
        directory.set(8, new);
        assert_eq!((directory.get(7), directory.get(8), directory.get(8 + RING)), (None, Some(new), None));
        for bit in 0..8 * ENTRY {
            directory.flip(8, bit);
            assert_eq!(directory.get(8), Some(new), "bit {bit}");
            assert_eq!(entry(8)[0] as u32, new.granule as u32, "bit {bit}: mended");
            directory.flip(7, bit);
            assert_eq!(directory.get(7), None, "bit {bit}");
            directory.clear(7);
            assert_eq!(entry(7), [0; 2], "bit {bit}");
        }
        directory.clear(8);
        assert_eq!(directory.get(8), None);
    }

    #[test]
    fn window_is_no_longer_than_the_ring() {
        twin::reset();
        testing::forget();
        let directory = open();
        assert_eq!(directory.reserve(7, 7..8 + RING), Err(GrowError::OutOfSpace));
        assert_eq!(directory.reserve(7, RING + 7..RING + 8), Err(GrowError::OutOfSpace));
        assert_eq!(leaves(), 1, "nothing has changed");
        assert_eq!(directory.reserve(7, 9..9), Ok(()));
        directory.reserve(7, 7..7 + RING).unwrap();
        assert_eq!(leaves(), 11);
    }
}
