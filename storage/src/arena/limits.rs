//! Limits of the arena's owners: a quota that the counted owners share, and a reserve that only work takes which creates no entries: the
//! log, and work on existing entries.
//!
//! ```text
//! cap of all stable memory
//! ┌──────────────────────────────────────────────┬─ reserve ─────────────────────────────┐
//! └──────────────────────────────────────────────┴───────────────────────────────────────┘
//!   all work, counted owners up to the quota       all work that creates no entries
//! ```
//! The reserve is counted in slots of the log's class that are free, or can be split off or grown.
//!
//! **Units.** A unit is an aligned slot of the log's class, or of 256 KiB if that is more. The quota counts the units that counted owners
//! touch, because the log cannot use what they leave of a unit. In return no other owner takes a piece of such a unit: the pieces that are
//! free in it are the counted side's, and counted owners take these before they touch another unit.

use super::class::{Class, GRANULE, Owner, Side};
use super::counters::Counters;
use super::demand::{Demand, missing};

/// Bytes of the smallest unit.
const LEAST_UNIT: u32 = 256 << 10;

/// Constants of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The owner of the leaves of all spaces.
    pub spaces: Owner,
    /// The owner of strays: pages that other code of the canister has grown.
    pub strays: Owner,
    /// Owners that count towards the quota.
    pub counted: &'static [Owner],
}

/// Wanted slots of both sides, by class.
pub type Wanted = [Demand; 2];

/// The limits in force.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the reserve, and bytes above the quota for work that creates no entries.
    pub reserve: u64,
    /// A bit for each counted owner.
    counted: u32,
    /// The class of the log, in which the reserve is counted.
    class: Class,
    /// The class of a unit.
    pub unit: Class,
    /// The quota: bytes that counted owners may touch while entries are created.
    pub cap: u64,
    /// The bytes that counted owners touched when the cap was set.
    pub floor: u64,
    /// Entries are being created.
    pub creating: bool,
}

impl Limits {
    /// No limits.
    pub fn new(counted: &[Owner]) -> Self {
        let counted = counted.iter().fold(0, |bits, owner| bits | 1 << owner.index());
        let class = Class::LARGEST;
        Self { reserve: 0, counted, class, unit: class, cap: u64::MAX, floor: 0, creating: false }
    }

    /// Sets the class of the log.
    pub fn set_class(&mut self, class: Class) {
        self.class = class;
        self.unit = Class::for_len(class.size().max(LEAST_UNIT)).unwrap_or(Class::LARGEST);
    }

    /// Returns whether an owner counts towards the quota.
    #[inline(always)]
    pub fn counts(&self, owner: Owner) -> bool {
        self.counted.wrapping_shr(owner.index() as u32) & 1 == 1
    }

    /// Owners that count towards the quota.
    pub fn counted(&self) -> impl Iterator<Item = Owner> {
        Owner::all().filter(|&owner| self.counts(owner))
    }

    /// The side of an owner's slots of a class.
    #[inline]
    pub fn side(&self, owner: Owner, class: Class) -> Side {
        if self.counts(owner) && class < self.unit { Side::Counted } else { Side::Shared }
    }

    /// Changes what is wanted of each class by an owner's demand, on the side on which the owner's slots of the class are counted.
    #[inline]
    pub fn each(&self, owner: Owner, wanted: &mut Wanted, demand: &Demand, change: impl Fn(&mut u64, u64)) {
        let [shared, counted] = wanted;
        if !self.counts(owner) {
            return shared.iter_mut().zip(demand).for_each(|(all, of)| change(all, *of));
        }
        let (pieces, units) = demand.split_at(self.unit.index());
        counted.iter_mut().zip(pieces).for_each(|(all, of)| change(all, *of));
        shared[pieces.len()..].iter_mut().zip(units).for_each(|(all, of)| change(all, *of));
    }

    /// Bytes of the units that counted owners touch.
    pub fn touched_bytes(&self, counters: &Counters) -> u64 {
        let kept: u64 = self.counted().map(|owner| counters.kept(owner)).sum();
        (kept << GRANULE.ilog2()) + counters.free_bytes(Side::Counted)
    }

    /// Units that counted owners must touch to be served `wanted` of their side.
    #[inline]
    pub fn new_units(&self, counters: &Counters, wanted: &Demand) -> u64 {
        // The usual case. The comparison of arrays would be a call.
        if wanted.iter().fold(0, |any, count| any | count) == 0 {
            return 0;
        }
        missing(counters.free(Side::Counted), wanted, self.unit)
    }

    /// The slots that must be free on the shared side to serve all that is wanted.
    #[inline]
    pub fn shared(&self, counters: &Counters, wanted: &Wanted) -> Demand {
        let [shared, counted] = wanted;
        let mut shared = *shared;
        shared[self.unit.index()] += self.new_units(counters, counted);
        shared
    }

    /// Bytes that counted owners may touch now.
    pub fn most(&self) -> u64 {
        if self.creating { self.cap } else { self.cap.max(self.floor).saturating_add(self.reserve) }
    }

    /// The class of the log, and the number of its slots that must stay available.
    #[inline]
    pub fn reserve(&self) -> (Class, u64) {
        let slots = if self.creating { self.reserve >> self.class.size().ilog2() } else { 0 };
        (self.class, slots)
    }
}
