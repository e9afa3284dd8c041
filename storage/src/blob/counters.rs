//! Counters of the store's slots: persisted, updated with the slots, never rebuilt by a scan.
//!
//! ```text
//! header of the sets' region
//! 0   magic "CPBS"   4  version u16   6  reserved u16
//! 8   arena_end u64
//! 64  seven lines of 32 bytes, one a class:
//!     ┌──────────┬─────────────────┬──────────┬─────────────────────┬──────────┐
//!     │ free u32 │ quarantined u32 │ lost u32 │ kept u32 × 3 owners │ reserved │
//!     └──────────┴─────────────────┴──────────┴─────────────────────┴──────────┘
//! ```
//! `kept` counts the slots of each owner, used or quarantined: `estimated_kept_bytes` is the sum of their class bytes (`pruning-spec-v1.md`
//! 10).

use super::ptr::{Class, Owner};
use crate::header::Header;
use crate::{OpenError, Platform, Region};

/// The header of the store.
pub const LAYOUT: Header = Header { name: "blob store", magic: *b"CPBS", version: 1 };
const ARENA_END: u64 = 8;
const LINES: u64 = 64;
const LINE: usize = 32;

/// Slots of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Slots that may be reused.
    pub free: u32,
    /// Freed slots that are not yet released.
    pub quarantined: u32,
    /// Lost slots: their entry could not be decoded, or their generations are used up.
    pub lost: u32,
    /// Used or quarantined slots, by owner.
    pub kept: [u32; Owner::COUNT],
}

impl ClassCounters {
    #[inline]
    fn encode(&self) -> [u8; LINE] {
        let mut line = [0; LINE];
        let words = [self.free, self.quarantined, self.lost, self.kept[0], self.kept[1], self.kept[2]];
        for (bytes, word) in line.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        line
    }

    fn decode(line: [u8; LINE]) -> Self {
        let word = |at: usize| u32::from_le_bytes([line[4 * at], line[4 * at + 1], line[4 * at + 2], line[4 * at + 3]]);
        Self { free: word(0), quarantined: word(1), lost: word(2), kept: [word(3), word(4), word(5)] }
    }
}

/// The store's counters, mirrored on the heap and written through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    arena_end: u64,
    classes: [ClassCounters; Class::COUNT],
}

impl Counters {
    /// Writes the header of an empty store.
    pub fn create(region: &Region<impl Platform>) -> Self {
        LAYOUT.write(region, 0);
        Self::default()
    }

    /// Reads the header.
    ///
    /// # Errors
    /// [`OpenError`] if the magic or the version differs, or the sums contradict each other.
    pub fn open(region: &Region<impl Platform>) -> Result<Self, OpenError> {
        LAYOUT.read(region, 0)?;
        let mut counters = Self { arena_end: region.read_u64(ARENA_END), ..Self::default() };
        for class in Class::all() {
            counters.classes[class.index()] = ClassCounters::decode(region.read(LINES + (class.index() * LINE) as u64));
        }
        let slots: u64 = Class::all()
            .map(|class| {
                let c = counters.class(class);
                let kept: u64 = c.kept.iter().map(|&k| u64::from(k)).sum();
                u64::from(class.size()) * (u64::from(c.free) + u64::from(c.lost) + kept)
            })
            .sum();
        if slots != counters.arena_end {
            let why = format!("slots of {slots} bytes in an arena of {}", counters.arena_end);
            return Err(OpenError::Corrupt { name: LAYOUT.name, why });
        }
        Ok(counters)
    }

    /// Offset of the next new slot.
    #[inline]
    pub fn arena_end(&self) -> u64 {
        self.arena_end
    }

    #[inline]
    pub fn set_arena_end(&mut self, region: &Region<impl Platform>, end: u64) {
        self.arena_end = end;
        region.write_u64(ARENA_END, end);
    }

    /// Slots of a class.
    #[inline]
    pub fn class(&self, class: Class) -> &ClassCounters {
        &self.classes[class.index()]
    }

    #[inline]
    pub fn change(&mut self, region: &Region<impl Platform>, class: Class, change: impl FnOnce(&mut ClassCounters)) {
        let line = &mut self.classes[class.index()];
        change(line);
        region.write(LINES + (class.index() * LINE) as u64, &line.encode());
    }

    /// `estimated_kept_bytes` of an owner: class bytes, used or quarantined.
    pub fn kept_bytes(&self, owner: Owner) -> u64 {
        Class::all().map(|class| u64::from(class.size()) * u64::from(self.class(class).kept[owner.index()])).sum()
    }
}
