//! Directory: an entry of some bytes for each number of a window that rises, in a space whose leaves follow the window.
//!
//! ```text
//! header 64 bytes, then a ring of entries: number n lies at 64 + n % ring × entry bytes
//!          ┌─ leaf ─┬─ leaf ─┬─ leaf ─┬─ leaf ─┐
//! reserved │ header │        │ window ━━━━━━   │
//!          └────────┴────────┴────────┴────────┘
//! ```
//! Leaves outside the window go back to the arena when the window needs a new one.

use crate::storage::OpenError;
use crate::storage::memory::{GrowError, Space};
use coppice_storage::header::Header;
use coppice_storage::space::LEAF;
use std::ops::Range;

/// Bytes of the header.
const HEADER: u64 = 64;

/// The entries of a window of numbers.
pub struct Directory {
    space: Space,
    entry: u64,
    ring: u64,
}

impl Directory {
    /// Opens the directory of a space, or creates one there, for windows of up to `ring` numbers with `entry` bytes each.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(space: Space, layout: &Header, entry: u64, ring: u64) -> Result<Self, OpenError> {
        if space.is_empty() {
            space.reserve(HEADER).map_err(|why| OpenError::Grow { name: layout.name, why })?;
            layout.write(&space, 0);
        }
        layout.read(&space, 0)?;
        Ok(Self { space, entry, ring })
    }

    /// The space; the header's bytes from 8 to 64 belong to the caller.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Offset of the entry of a number. Entries without memory are zero.
    #[inline]
    pub fn at(&self, number: u64) -> u64 {
        // The remainder is below the ring, whose bytes a space has.
        HEADER.wrapping_add((number % self.ring).wrapping_mul(self.entry))
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
        let (first, end) = (self.at(added.start), self.at(added.end - 1) + self.entry);
        let parts =
            if first < end { [first..end, 0..0] } else { [first..HEADER + self.ring * self.entry, HEADER..end] };
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
    use crate::platform::native;
    use crate::storage::memory::LOG_DIRECTORY;
    use crate::storage::{memory, owners};
    use crate::testing::space;

    const LAYOUT: Header = Header { name: "numbers", magic: *b"NUMB", version: 1 };
    /// Nearly ten leaves of entries of 8 bytes.
    const RING: u64 = 80_000;

    fn open() -> Directory {
        Directory::open(space(LOG_DIRECTORY), &LAYOUT, 8, RING).unwrap()
    }

    fn leaves() -> u64 {
        memory::arena().unwrap().kept_bytes(owners::SPACES) / LEAF
    }

    #[test]
    fn leaves_follow_the_window_round_the_ring() {
        native::reset();
        memory::forget();
        let mut directory = open();
        let (mut oldest, mut most) = (0, 0);
        for next in 0..5 * RING {
            directory.reserve(oldest, next..next + 1).unwrap();
            directory.space().write_u64(directory.at(next), next + 1);
            if next - oldest > 20_000 {
                directory.space().write_u64(directory.at(oldest), 0);
                oldest += 1;
            }
            if next % 10_007 == 0 {
                memory::forget();
                directory = open();
                most = most.max(leaves());
                let read = |number: u64| directory.space().read_u64(directory.at(number));
                assert!((oldest..=next).all(|number| read(number) == number + 1), "{oldest} to {next}");
            }
        }
        // A window of 20,001 entries touches four leaves; one more is free, and the header and the root have theirs.
        assert!((4..=7).contains(&most), "{most} leaves");
    }

    #[test]
    fn window_is_no_longer_than_the_ring() {
        native::reset();
        memory::forget();
        let directory = open();
        assert_eq!(directory.reserve(7, 7..8 + RING), Err(GrowError::OutOfSpace));
        assert_eq!(directory.reserve(7, RING + 7..RING + 8), Err(GrowError::OutOfSpace));
        assert_eq!(leaves(), 1, "nothing has changed");
        assert_eq!(directory.reserve(7, 9..9), Ok(()));
        directory.reserve(7, 7..7 + RING).unwrap();
        assert_eq!(leaves(), 11);
    }
}
