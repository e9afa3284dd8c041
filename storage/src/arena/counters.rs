//! Counters of the arena's slots: persisted, updated with the slots, never rebuilt by a scan.
//!
//! ```text
//! at 8,192 of stable memory
//! 0   magic "CPAR"   4  version u16   6  reserved u16
//! 8   end u64: granules of the arena
//! 64  free        7 × u32   slots of each class, on the shared side
//! 96  quarantined 7 × u32
//! 128 lost        7 × u32
//! 160 kept       12 × u32   granules of each owner, used, taken or quarantined
//! 208 free        7 × u32   on the counted side
//! 256 cycles reserved for storage (`growth`), 24 bytes
//! 280 raw pages without the strays after them (`growth`) u64
//! ```
//! `estimated_kept_bytes` (`pruning-spec-v1.md` 10) is 64 KiB times the granules of an owner.

use super::class::{ByClass, Class, Owner, Side};
use super::extent::{self, COUNTERS};
use crate::header::Header;
use crate::{OpenError, Platform, Raw};

/// The header of the arena.
pub const LAYOUT: Header = Header { name: "arena", magic: *b"CPAR", version: 4 };
const END: u64 = COUNTERS + 8;
/// Addresses of the free slots of both sides.
const FREE: [u64; 2] = [COUNTERS + 64, COUNTERS + 208];
const QUARANTINED: u64 = COUNTERS + 96;
const LOST: u64 = COUNTERS + 128;
const KEPT: u64 = COUNTERS + 160;
/// Address of the cycles reserved for storage, and of the page count.
pub const RESERVED_CYCLES: u64 = COUNTERS + 256;

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
    /// Granules of the arena, those in front of extents included; [`set_end`](Self::set_end) moves it.
    pub end: u64,
    /// Free slots of both sides.
    free: [ByClass; 2],
    quarantined: ByClass,
    lost: ByClass,
    kept: [u32; Owner::COUNT],
}

fn words<const N: usize>(raw: Raw<impl Platform>, at: u64) -> [u32; N] {
    std::array::from_fn(|nth| raw.read_u32(at + 4 * nth as u64))
}

impl Counters {
    /// Granules of all slots, as the counters have them and as the arena's end says.
    fn sums(&self) -> (u64, u64) {
        let idle = |class: Class| u64::from(self.class(class).free) + u64::from(self.class(class).lost);
        let kept: u64 = self.kept.iter().map(|&granules| u64::from(granules)).sum();
        let granules = kept + Class::all().map(|class| idle(class) * class.granules()).sum::<u64>();
        (granules, self.end.saturating_sub(extent::front_granules(self.end)))
    }

    /// Makes the counters agree with the arena's end. The counters differ after slots with damaged entries or bits were freed or taken: what is
    /// missing counts as lost, and what is too much was counted as lost, or belongs to the owner that keeps most.
    pub fn agree(&mut self) {
        let (granules, slots) = self.sums();
        let smallest = &mut self.lost[Class::SMALLEST.index()];
        *smallest = smallest.saturating_add(slots.saturating_sub(granules).try_into().unwrap_or(u32::MAX));
        let mut excess = granules.saturating_sub(slots);
        for class in Class::all().rev() {
            let lost = &mut self.lost[class.index()];
            let found = u64::from(*lost).min(excess / class.granules());
            *lost -= found as u32;
            excess -= found * class.granules();
        }
        if let Some(most) = self.kept.iter_mut().max() {
            *most = most.saturating_sub(excess.try_into().unwrap_or(u32::MAX));
        }
    }

    /// Writes the whole header.
    pub fn save(&self, raw: Raw<impl Platform>) {
        raw.write(COUNTERS, &LAYOUT.encode());
        raw.write_u64(END, self.end);
        let free = FREE.into_iter().zip(&self.free);
        for (at, counts) in free.chain([(QUARANTINED, &self.quarantined), (LOST, &self.lost)]) {
            raw.write(at, counts.map(u32::to_le_bytes).as_flattened());
        }
        raw.write(KEPT, self.kept.map(u32::to_le_bytes).as_flattened());
    }

    /// Reads the header.
    ///
    /// # Errors
    /// [`OpenError`] if the magic or the version differs, or the sums contradict each other.
    pub fn open(raw: Raw<impl Platform>) -> Result<Self, OpenError> {
        LAYOUT.check(&raw.read(COUNTERS))?;
        let counters = Self {
            end: raw.read_u64(END),
            free: FREE.map(|at| words(raw, at)),
            quarantined: words(raw, QUARANTINED),
            lost: words(raw, LOST),
            kept: words(raw, KEPT),
        };
        let (granules, slots) = counters.sums();
        if granules != slots {
            return Err(LAYOUT.corrupt(format!("slots of {granules} granules in an arena of {slots}")));
        }
        Ok(counters)
    }

    /// Moves the arena's end.
    pub fn set_end(&mut self, raw: Raw<impl Platform>, end: u64) {
        self.end = end;
        raw.write_u64(END, end);
    }

    /// Counters of a class.
    pub fn class(&self, class: Class) -> ClassCounters {
        let at = class.index();
        let free = self.free.iter().fold(0, |sum: u32, of| sum.saturating_add(of[at]));
        ClassCounters { free, quarantined: self.quarantined[at], lost: self.lost[at] }
    }

    /// Free slots of a side, by class.
    #[inline(always)]
    pub fn free(&self, side: Side) -> &ByClass {
        &self.free[side.index()]
    }

    /// Bytes of the free slots of a side.
    pub fn free_bytes(&self, side: Side) -> u64 {
        let bytes = |class: Class| u64::from(self.free(side)[class.index()]) * u64::from(class.size());
        Class::all().map(bytes).sum()
    }

    /// Changes the number of free slots of a class, until [`save_free`](Self::save_free) only on the heap.
    #[inline(always)]
    pub fn add_free(&mut self, side: Side, class: Class, by: i32) {
        let count = &mut self.free[side.index()][class.index()];
        *count = count.saturating_add_signed(by);
    }

    /// Counts the free slots of a side and class as lost: only after damage.
    #[cold]
    pub fn lose_free(&mut self, raw: Raw<impl Platform>, side: Side, class: Class) {
        let free = std::mem::take(&mut self.free[side.index()][class.index()]);
        self.save_free(raw, side);
        (0..free).for_each(|_| self.lose(raw, class));
    }

    /// Writes the numbers of free slots of a side.
    #[inline(always)]
    pub fn save_free(&self, raw: Raw<impl Platform>, side: Side) {
        raw.write(FREE[side.index()], self.free[side.index()].map(u32::to_le_bytes).as_flattened());
    }

    /// Changes the number of quarantined slots of a class.
    #[inline]
    pub fn change_quarantined(&mut self, raw: Raw<impl Platform>, class: Class, by: i32) {
        let count = &mut self.quarantined[class.index()];
        *count = count.saturating_add_signed(by);
        raw.write_u32(QUARANTINED + 4 * class.index() as u64, *count);
    }

    /// Counts a slot of a class as lost.
    pub fn lose(&mut self, raw: Raw<impl Platform>, class: Class) {
        let count = &mut self.lost[class.index()];
        *count += 1;
        raw.write_u32(LOST + 4 * class.index() as u64, *count);
    }

    /// Changes the number of granules that an owner keeps.
    #[inline]
    pub fn change_kept(&mut self, raw: Raw<impl Platform>, owner: Owner, by: i32) {
        let count = &mut self.kept[owner.index()];
        *count = count.saturating_add_signed(by);
        raw.write_u32(KEPT + 4 * owner.index() as u64, *count);
    }

    /// Granules that an owner keeps.
    #[inline]
    pub fn kept(&self, owner: Owner) -> u64 {
        self.kept[owner.index()].into()
    }
}
