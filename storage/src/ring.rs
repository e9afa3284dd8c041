//! Ring: the last entries of a sequence, in a space that grows up to a number of entries.
//!
//! The first leaf is reserved when the ring is opened, so that writing an entry cannot fail. A full ring grows by a leaf before its next
//! entry would replace the oldest; if the growth is refused, that entry replaces it, and the ring grows after the next round.
//!
//! ```text
//! 0 magic "CPRG"  4 version u16   8 origin u64: entry of the first slot   16 capacity u64: slots     slot 0 begins after the bytes of a slot
//! ```

use crate::header::Header;
use crate::space::LEAF;
use crate::{OpenError, Platform, Space};
use std::cell::Cell;
use std::ops::Range;

const LAYOUT: Header = Header { name: "ring", magic: *b"CPRG", version: 1 };
const ORIGIN: u64 = 8;

/// The place of entry 0 of the present round, and the number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    origin: u64,
    capacity: u64,
}

/// The last entries of a sequence; its owner keeps the number of entries ever written.
pub struct Ring<P: Platform = crate::Ic> {
    space: Space<P>,
    /// Bytes of a slot, a fraction of a leaf.
    len: u64,
    /// Maximum number of slots.
    most: u64,
    round: Cell<Round>,
}

impl<P: Platform> Ring<P> {
    /// Opens the ring of a space, or creates an empty one of one leaf there. Slots of `len` bytes, a power of two from 32 bytes to half a
    /// leaf, hold the last `most` entries.
    pub fn open(space: Space<P>, len: usize, most: u64) -> Result<Self, OpenError> {
        let ring = Self { space, len: len as u64, most, round: Cell::default() };
        if ring.space.begin(&LAYOUT, LEAF)? {
            ring.save(Round { origin: 0, capacity: ring.slots() });
        }
        let [origin, capacity] = ring.space.read_pair(ORIGIN);
        if capacity == 0 || capacity > ring.slots() {
            return Err(LAYOUT.corrupt(format!("{capacity} entries in {} bytes", ring.space.size())));
        }
        ring.round.set(Round { origin, capacity });
        Ok(ring)
    }

    /// Slots that the leaves have.
    fn slots(&self) -> u64 {
        (self.space.size() / self.len).saturating_sub(1).min(self.most)
    }

    fn save(&self, round: Round) {
        let words = [round.origin, round.capacity].map(u64::to_le_bytes);
        self.space.write(ORIGIN, words.as_flattened());
        self.round.set(round);
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.space.rewrite_with(&LAYOUT);
        self.save(self.round.get());
    }

    /// The space of the slots.
    pub fn space(&self) -> &Space<P> {
        &self.space
    }

    /// Returns the numbers of the kept entries when `written` entries were ever written.
    pub fn kept(&self, written: u64) -> Range<u64> {
        let Round { origin, capacity } = self.round.get();
        written.saturating_sub(capacity).max(origin.min(written))..written
    }

    /// Returns the offset of an entry's slot. The entry is kept, or is the next one after [`make_room`](Self::make_room).
    pub fn slot(&self, number: u64) -> u64 {
        let Round { origin, capacity } = self.round.get();
        (1 + number.wrapping_sub(origin) % capacity) * self.len
    }

    /// Makes room for the next entry, whose number is that of entries ever written: a full ring grows, unless it has all its slots or growth
    /// is refused.
    pub fn make_room(&self, next: u64) {
        let Round { origin, capacity } = self.round.get();
        let is_full = next > origin && (next - origin).is_multiple_of(capacity);
        if is_full && capacity < self.most && self.space.reserve(self.space.size() + LEAF).is_ok() {
            // The oldest entry lies in the first slot.
            self.save(Round { origin: next - capacity, capacity: self.slots() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LOG, arena, forget, fresh, space};
    use crate::twin::Twin;

    const MOST: u64 = 40;

    fn open() -> Ring<Twin> {
        Ring::open(space(0), 4_096, MOST).unwrap()
    }

    fn push(ring: &Ring<Twin>, number: u64) {
        ring.make_room(number);
        ring.space().write_u64(ring.slot(number), number);
    }

    /// Returns the number of kept entries, each of which must be there.
    fn kept(ring: &Ring<Twin>, written: u64) -> u64 {
        let kept = ring.kept(written);
        assert!(kept.end == written);
        kept.clone().for_each(|number| assert_eq!(ring.space().read_u64(ring.slot(number)), number));
        kept.end - kept.start
    }

    #[test]
    fn ring_grows_by_leaves_and_then_replaces_its_oldest_entry() {
        fresh();
        let mut ring = open();
        for number in 0..200 {
            push(&ring, number);
            assert_eq!(kept(&ring, number + 1), (number + 1).min(MOST), "{number}");
            if number % 7 == 0 {
                forget();
                ring = open();
            }
        }
        assert_eq!(ring.space().size(), 3 * LEAF, "41 slots of 4 KiB");
    }

    #[test]
    fn ring_whose_growth_is_refused_replaces_its_oldest_entry_and_grows_later() {
        fresh();
        let ring = open();
        arena().growth().set_max_pages(arena().billed_pages());
        let taken: Vec<u64> = std::iter::from_fn(|| arena().take_granules(LOG, 1).ok()).collect();
        for number in 0..40 {
            push(&ring, number);
            assert_eq!(kept(&ring, number + 1), (number + 1).min(15), "{number}");
        }
        taken.into_iter().for_each(|granule| arena().give_granules(LOG, granule, 1));
        for number in 40..200 {
            push(&ring, number);
            let expected = if number < 45 { 15 } else { (number - 29).min(MOST) };
            assert_eq!(kept(&ring, number + 1), expected, "{number}");
        }
        forget();
        assert_eq!(kept(&open(), 200), MOST);
    }

    #[test]
    fn capacity_beyond_its_leaves_is_refused() {
        for capacity in [0, 16, u64::MAX] {
            fresh();
            open().space().write_u64(16, capacity);
            forget();
            assert!(Ring::open(space(0), 4_096, MOST).is_err(), "{capacity}");
        }
    }
}
