//! Counters of the arena's slots: persisted, updated with the slots, never rebuilt by a scan.
//!
//! ```text
//! header of the sets' region
//! 0   magic "CPAR"   4  version u16   6  reserved u16
//! 8   arena_end u64
//! 64  free        7 × u32   slots of each class
//! 96  quarantined 7 × u32
//! 128 lost        7 × u32
//! 160 kept       12 × u32   granules of each owner, used, taken or quarantined
//! ```
//! `estimated_kept_bytes` (`pruning-spec-v1.md` 10) is 64 KiB times the granules of an owner.

use super::class::{Class, GRANULE, Owner};
use crate::header::Header;
use crate::{OpenError, Platform, Region};

/// The header of the arena.
pub const LAYOUT: Header = Header { name: "arena", magic: *b"CPAR", version: 1 };
const ARENA_END: u64 = 8;
const FREE: u64 = 64;
const QUARANTINED: u64 = 96;
const LOST: u64 = 128;
const KEPT: u64 = 160;

/// A number for each class.
pub type ByClass = [u32; Class::COUNT];

/// Slots of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Slots that may be reused.
    pub free: u32,
    /// Freed slots that are not yet released.
    pub quarantined: u32,
    /// Lost slots: their entry could not be decoded, or their generations are used up.
    pub lost: u32,
}

/// The arena's counters, mirrored on the heap and written through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    arena_end: u64,
    free: ByClass,
    quarantined: ByClass,
    lost: ByClass,
    kept: [u32; Owner::COUNT],
}

fn words<const N: usize>(region: &Region<impl Platform>, at: u64) -> [u32; N] {
    std::array::from_fn(|nth| region.read_u32(at + 4 * nth as u64))
}

impl Counters {
    /// Writes the header of an empty arena.
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
        let counters = Self {
            arena_end: region.read_u64(ARENA_END),
            free: words(region, FREE),
            quarantined: words(region, QUARANTINED),
            lost: words(region, LOST),
            kept: words(region, KEPT),
        };
        let idle = |class: Class| u64::from(counters.free(class)) + u64::from(counters.class(class).lost);
        let kept: u64 = counters.kept.iter().map(|&granules| u64::from(granules)).sum();
        let bytes = (kept + Class::all().map(|class| idle(class) * class.granules()).sum::<u64>()) * GRANULE;
        if bytes != counters.arena_end {
            let why = format!("slots of {bytes} bytes in an arena of {}", counters.arena_end);
            return Err(OpenError::Corrupt { name: LAYOUT.name, why });
        }
        Ok(counters)
    }

    /// Bytes of the arena in slots, used or not.
    #[inline]
    pub fn arena_end(&self) -> u64 {
        self.arena_end
    }

    /// Moves the arena's end.
    pub fn set_arena_end(&mut self, region: &Region<impl Platform>, end: u64) {
        self.arena_end = end;
        region.write_u64(ARENA_END, end);
    }

    /// Counters of a class.
    pub fn class(&self, class: Class) -> ClassCounters {
        let at = class.index();
        ClassCounters { free: self.free[at], quarantined: self.quarantined[at], lost: self.lost[at] }
    }

    /// Free slots of a class.
    #[inline]
    pub fn free(&self, class: Class) -> u32 {
        self.free[class.index()]
    }

    /// Free slots by class.
    #[inline]
    pub fn all_free(&self) -> &ByClass {
        &self.free
    }

    /// Changes the number of free slots of a class, until [`save_free`](Self::save_free) only on the heap.
    #[inline]
    pub fn add_free(&mut self, class: Class, by: i32) {
        let count = &mut self.free[class.index()];
        *count = count.saturating_add_signed(by);
    }

    /// Writes the numbers of free slots.
    #[inline]
    pub fn save_free(&self, region: &Region<impl Platform>) {
        region.write(FREE, self.free.map(u32::to_le_bytes).as_flattened());
    }

    /// Changes the number of quarantined slots of a class.
    #[inline]
    pub fn change_quarantined(&mut self, region: &Region<impl Platform>, class: Class, by: i32) {
        let count = &mut self.quarantined[class.index()];
        *count = count.saturating_add_signed(by);
        region.write_u32(QUARANTINED + 4 * class.index() as u64, *count);
    }

    /// Counts a slot of a class as lost.
    pub fn lose(&mut self, region: &Region<impl Platform>, class: Class) {
        let count = &mut self.lost[class.index()];
        *count += 1;
        region.write_u32(LOST + 4 * class.index() as u64, *count);
    }

    /// Changes the number of granules that an owner keeps.
    #[inline]
    pub fn change_kept(&mut self, region: &Region<impl Platform>, owner: Owner, by: i32) {
        let count = &mut self.kept[owner.index()];
        *count = count.wrapping_add_signed(by);
        region.write_u32(KEPT + 4 * owner.index() as u64, *count);
    }

    /// Granules that an owner keeps.
    #[inline]
    pub fn kept(&self, owner: Owner) -> u64 {
        self.kept[owner.index()].into()
    }
}
