//! Limits of the arena's owners: a quota that some owners share, and a reserve that only work takes which creates no entries: the log, and
//! work on existing entries.
//!
//! ```text
//! cap of all stable memory
//! ┌──────────────────────────────────────────────┬─ reserve ─────────────────────────────┐
//! └──────────────────────────────────────────────┴───────────────────────────────────────┘
//!   all work, counted owners up to the quota       all work that creates no entries
//! ```
//! The reserve is counted in slots of the log's class that are free, or can be split off or grown.

use super::class::{Class, GRANULE, Owner};
use super::counters::Counters;
use crate::GrowError;

/// Constants of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The owner of the leaves of all spaces.
    pub spaces: Owner,
    /// Owners that count towards the quota.
    pub counted: &'static [Owner],
}

/// The limits in force.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    shares: Shares,
    /// Bytes of the reserve, and bytes above the quota for work that creates no entries.
    reserve: u64,
    /// A bit for each counted owner.
    counted: u32,
    /// The class in which the reserve is counted.
    class: Class,
    /// Bytes that counted owners may keep while entries are created.
    cap: u64,
    /// The bytes that counted owners kept when the cap was set.
    floor: u64,
    /// Entries are being created.
    creating: bool,
}

impl Limits {
    /// No limits.
    pub fn new(shares: Shares) -> Self {
        let counted = shares.counted.iter().fold(0, |bits, owner| bits | 1 << owner.index());
        Self { shares, reserve: 0, counted, class: Class::LARGEST, cap: u64::MAX, floor: 0, creating: false }
    }

    /// Sets the bytes of the reserve.
    pub fn set_reserve(&mut self, bytes: u64) {
        self.reserve = bytes;
    }

    /// Sets the class of the log, in whose slots the reserve is counted.
    pub fn set_class(&mut self, class: Class) {
        self.class = class;
    }

    /// Sets the quota of counted owners, and the bytes that they kept when it was set.
    pub fn set_cap(&mut self, cap: u64, floor: u64) {
        self.cap = cap;
        self.floor = floor;
    }

    /// The quota.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Sets whether entries are being created, and returns the previous value.
    pub fn set_creating(&mut self, creating: bool) -> bool {
        std::mem::replace(&mut self.creating, creating)
    }

    /// Returns whether an owner counts towards the quota.
    #[inline]
    pub fn counts(&self, owner: Owner) -> bool {
        self.counted >> owner.index() & 1 == 1
    }

    /// Bytes that counted owners keep.
    pub fn counted_bytes(&self, counters: &Counters) -> u64 {
        self.shares.counted.iter().map(|&owner| counters.kept(owner) << GRANULE.ilog2()).sum()
    }

    /// Bytes that counted owners may keep now.
    pub fn most(&self) -> u64 {
        match self.creating {
            true => self.cap,
            false => self.cap.max(self.floor).saturating_add(self.reserve),
        }
    }

    /// Checks that counted owners, which have `reserved` bytes reserved, may keep `more` bytes more.
    ///
    /// # Errors
    /// `QuotaFull`.
    pub fn check_quota(&self, counters: &Counters, reserved: u64, more: u64) -> Result<(), GrowError> {
        let kept = self.counted_bytes(counters).saturating_add(reserved);
        match more > 0 && kept.saturating_add(more) > self.most() {
            true => Err(GrowError::QuotaFull),
            false => Ok(()),
        }
    }

    /// The class of the log, and the number of its slots that must stay available.
    #[inline]
    pub fn reserve(&self) -> (Class, u64) {
        let slots = if self.creating { self.reserve >> self.class.size().ilog2() } else { 0 };
        (self.class, slots)
    }
}
