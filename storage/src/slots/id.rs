//! Ids of slots, and their check.
//!
//! **Constraint.** An id that comes from memory may be damaged or out of date, and granules that were given back hold another store's
//! bytes. So nothing behind an id is trusted before the entry of its granule says that the granule belongs to this store.
//!
//! **Design.** A granule's class is read from its entry and its chunk's line once, and remembered on the heap, one byte a granule. Only this
//! store takes and gives its granules, and it keeps these bytes up to date.

use super::Slots;
use super::chunk::{Line, USED, slot_at};
use super::class::{CLASSES, HEAD, LARGE, SIZES, SlotId, UNIT, WIDE, granules_of, slots_of};
use crate::Platform;
use crate::arena::GRANULE;

/// A slot's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Class of the slot, or [`LARGE`].
    pub class: usize,
    /// First granule of the slot's chunk.
    pub granule: u64,
    /// Number of the slot in the chunk.
    pub index: u32,
}

/// Returns the id of the slot at an offset in the arena.
#[inline]
pub fn id_of(at: u64) -> SlotId {
    (at / UNIT) as SlotId + 1
}

impl<P: Platform> Slots<P> {
    /// Returns the class of a granule of this store.
    #[inline(always)]
    pub(super) fn kind(&self, granule: u64) -> Option<usize> {
        let known = self.kinds.get(granule);
        if known == 0 { self.look_up(granule) } else { Some(usize::from(known) - 1) }
    }

    #[cold]
    fn look_up(&self, granule: u64) -> Option<usize> {
        let class_at = |start: u64| {
            let entry = self.arena.taken(self.owner, start)?;
            let class = usize::from(self.line(start).class);
            (class == LARGE || class < CLASSES && entry.granules() == granules_of(class)).then_some(class)
        };
        let wide = granule / WIDE * WIDE;
        let (start, class) = match class_at(granule) {
            Some(class) => (granule, class),
            None => (wide, class_at(wide).filter(|class| granules_of(*class) == WIDE)?),
        };
        self.learn(start, class);
        Some(class)
    }

    /// Remembers the class of a chunk, or of a slot with granules of its own.
    pub(super) fn learn(&self, granule: u64, class: usize) {
        self.kinds.set(granule, granules_of(class), class as u8 + 1);
    }

    /// Forgets the class of a chunk that is given back.
    pub(super) fn forget(&self, granule: u64) {
        if let Some(class) = self.kind(granule) {
            self.kinds.set(granule, granules_of(class), 0);
        }
    }

    /// Returns the place of a slot, if a chunk of this store has a slot with this id.
    #[inline]
    fn place(&self, slot: SlotId) -> Option<Place> {
        let at = u64::from(slot.checked_sub(1)?).wrapping_mul(UNIT);
        let of = at / GRANULE;
        let class = self.kind(of)?;
        // The chunk's first granule: chunks have a power of two of granules.
        let granule = of & !(granules_of(class).wrapping_sub(1));
        let within = at.wrapping_sub(granule.wrapping_mul(GRANULE)) as u32;
        let (size, index) = (SIZES[class], within / SIZES[class]);
        (index.wrapping_mul(size) == within && index < slots_of(class)).then_some(Place { class, granule, index })
    }

    /// Returns place and line of a slot in use.
    #[inline]
    pub(super) fn in_use(&self, slot: SlotId) -> Option<(Place, Line)> {
        let place = self.place(slot)?;
        let line = self.line(place.granule);
        let head: [u8; 2] = self.arena.payload().read(slot_at(place.class, place.granule, place.index));
        (place.index < u32::from(line.begun) && head == [place.class as u8, USED]).then_some((place, line))
    }

    /// Returns place and line of a slot, and traps if it is not in use.
    #[inline]
    pub(super) fn found(&self, slot: SlotId) -> (Place, Line) {
        self.in_use(slot).unwrap_or_else(|| self.broken("slot", slot, "is not in use"))
    }

    fn bytes_of(&self, place: &Place) -> u32 {
        if place.class != LARGE {
            return SIZES[place.class] - HEAD;
        }
        self.arena.entry(place.granule).and_then(Result::ok).map_or(0, |entry| entry.len.saturating_sub(HEAD))
    }

    /// Returns the bytes that a slot in use holds.
    ///
    /// # Panics
    /// Traps if the slot is not in use.
    pub fn capacity(&self, slot: SlotId) -> u32 {
        self.bytes_of(&self.found(slot).0)
    }

    /// Returns whether the id leads to a granule of this store, so that it can be read. The slot may be free.
    #[inline(always)]
    pub fn contains(&self, slot: SlotId) -> bool {
        slot != 0 && self.kind(u64::from(slot.wrapping_sub(1)).wrapping_mul(UNIT) / GRANULE).is_some()
    }

    /// Returns whether the first `bytes` bytes of a slot lie inside the arena, whatever the arena's entries and the slot's head say.
    pub fn is_inside(&self, slot: SlotId, bytes: u64) -> bool {
        slot != 0 && u64::from(slot - 1) * UNIT + u64::from(HEAD) + bytes <= self.arena.end()
    }

    /// Returns a link, and traps unless the link leads to a slot.
    #[inline(always)]
    pub(super) fn check(&self, link: SlotId) -> SlotId {
        if self.contains(link) { link } else { self.broken("ordered index:", link, "is not a slot") }
    }

    /// Returns whether `slot` is in use and holds at least `bytes` bytes.
    pub fn holds(&self, slot: SlotId, bytes: u64) -> bool {
        self.in_use(slot).is_some_and(|(place, _)| bytes <= u64::from(self.bytes_of(&place)))
    }
}
