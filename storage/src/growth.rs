//! Growth of stable memory, with a check beforehand that it can be paid.
//!
//! **Constraint.** A growth that the balance does not cover traps on the platform: the message is undone, and the caller learns
//! little. Only the platform knows the price of a page, which depends on how long storage must stay paid (the freezing threshold),
//! and on the cycles reserved for storage, which depend on how full the subnet is at the moment.
//!
//! **Design.** A growth is checked with the last price, or for one page if that is too old. Then one page is grown, and the change of the
//! balances is its price. With that price the rest is checked, and either grown, or refused with the missing cycles. After a refusal that
//! page stays, and is part of the next growth.
//!
//! Pages that other code of the canister has grown are strays: the arena passes over them before its next
//! growth. A page count of its own, persisted, tells them from pages that this growth has made.
//!
//! At least 1 MiB is grown, and a sixteenth of all memory if more is not needed, because each growth asks the platform several times. If
//! that much is refused, less is tried, down to what is needed.
//!
//! ```text
//! balance ─┬─ liquid ──────── falls by what a page adds to the freezing threshold
//!          └─ frozen ──────── balance falls by what a page reserves; reserved cycles cover part of the threshold
//! ```

use crate::{GrowError, NS, Platform, Raw, WASM_PAGE};
use ic_stable_structures::Memory;
use std::cell::Cell;
use std::ops::Range;

/// Nodes of the subnet for which the prices below hold.
const NODES: u128 = 13;
/// Cycles per GiB and second (the platform's published price).
const GIB_SECOND: u128 = 127_000;
const PAGES_A_GIB: u128 = (1 << 30) / WASM_PAGE as u128;
/// Maximum cycles that a page reserves, on a full subnet: 300 million seconds of its storage, 38 T a GiB.
const MOST_RESERVED: u128 = 300_000_000 * GIB_SECOND / PAGES_A_GIB;
/// Maximum cycles by which a page raises the next page's reservation. The reservation rises from 0 at 750 GiB to the maximum at 2 TiB, and
/// a message sees a quarter of both sizes: the share of one core in four.
const MOST_INCREASE: u128 = MOST_RESERVED.div_ceil((2_048 - 750) / 4 * PAGES_A_GIB);
/// Pages by which the heap may have grown since the last growth. Pages of the heap reserve cycles, too, which the canister does not see.
const HEAP: u128 = 64;
/// Time for which a measured page price stays valid.
const VALID_NS: u64 = 600 * NS;
/// Assumed page count of a small canister before the first measurement: code and heap are storage, too.
const SMALL: u64 = 256;
/// Pages of the smallest growth, 1 MiB.
const LEAST: u64 = 16;
/// Memory grows by this fraction of its size…
const FRACTION: u64 = 16;
/// …but by no more than this many pages at once if fewer suffice (512 MiB).
const MOST: u64 = 8_192;

/// Offset of the time of the reserved cycles, in Unix nanoseconds (u64), in the cell, which begins with these cycles (u128).
const RESERVED_AT: u64 = 16;
/// Offset of the page count (u64) in the cell.
const OWN: u64 = 24;

/// Inputs to the growth check that the platform does not provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nodes of the subnet.
    pub nodes: u32,
    /// Maximum cycles that may be reserved, from the canister's platform settings.
    pub reserved_cycles_limit: u128,
    /// Liquid cycles that a growth must leave.
    pub kept: u128,
}

/// Price of a page.
#[derive(Clone, Copy, Debug)]
struct Price {
    /// Cycles by which a page raises the freezing threshold.
    threshold: u128,
    /// Cycles that a page reserves.
    reservation: u128,
    /// Time of the measurement, in Unix nanoseconds.
    at: u64,
}

/// Growth of raw memory under a cap, with measured prices and deferred growth.
pub struct Growth<P = crate::Ic> {
    /// The cap on raw pages.
    max_pages: Cell<u64>,
    terms: Cell<Terms>,
    learnt: Cell<Option<Price>>,
    /// Growth is deferred to a separate message.
    put_off: Cell<bool>,
    /// Raw pages of the largest growth that was refused with `Later` and has not been made since; 0 for none.
    wanted: Cell<u64>,
    /// The reserved cycles: as loaded from their cell, plus what growths have reserved since.
    reserved: Cell<Reserved>,
    /// Raw pages up to the last one that is not a stray.
    own: Cell<u64>,
    /// Address of the cell of the reserved cycles, and of the page count behind it.
    cell: u64,
    raw: Raw<P>,
}

impl<P: Platform> Growth<P> {
    /// Creates the state without a cap and a measured price. The reserved cycles and the page count have 32 bytes at `cell`.
    pub(crate) fn new(terms: Terms, cell: u64) -> Self {
        Self {
            max_pages: Cell::new(u64::MAX),
            terms: Cell::new(terms),
            learnt: Cell::new(None),
            put_off: Cell::new(false),
            wanted: Cell::new(0),
            reserved: Cell::default(),
            own: Cell::new(Raw::<P>::new().pages()),
            cell,
            raw: Raw::new(),
        }
    }

    /// Reads the cell in memory that is laid out up to the page `end`.
    pub(crate) fn load(&self, end: u64) {
        let cycles = u128::from_le_bytes(self.raw.read(self.cell));
        self.reserved.set(Reserved { cycles, at: self.raw.read_u64(self.cell + RESERVED_AT) });
        self.own.set(self.raw.read_u64(self.cell + OWN).max(end));
    }

    /// Returns the raw pages that other code has grown and the arena has not passed over.
    pub(crate) fn strays(&self) -> Range<u64> {
        let own = self.own.get();
        own..self.raw.pages().max(own)
    }

    /// Counts all raw pages, and those up to `end`, as passed.
    pub(crate) fn pass(&self, end: u64) {
        self.own.set(self.own.get().max(end).max(self.raw.pages()));
        self.save();
    }

    /// Sets the cap on raw pages of 64 KiB.
    pub fn set_max_pages(&self, pages: u64) {
        self.max_pages.set(pages);
    }

    /// Returns the cap on raw pages.
    pub fn max_pages(&self) -> u64 {
        self.max_pages.get()
    }

    /// Makes at least `end` raw pages available.
    ///
    /// # Errors
    /// [`GrowError`]; a page may have been grown to learn its price, nothing else has changed.
    pub(crate) fn reserve(&self, end: u64) -> Result<(), GrowError> {
        let pages = || self.raw.pages();
        let Some(need) = end.checked_sub(pages()).filter(|&need| need > 0) else { return Ok(()) };
        if end > self.max_pages.get() {
            return Err(GrowError::OutOfSpace);
        }
        let generous = LEAST.max((pages() / FRACTION).min(MOST));
        let mut beyond = generous.saturating_sub(need).min(self.max_pages.get() - end);
        let before = pages();
        // A page that was grown to learn the price is part of what is needed.
        while let Some(need) = end.checked_sub(pages()).filter(|&need| need > 0) {
            match self.grow(need + beyond, pages() > before) {
                Ok(()) => break,
                Err(_) if beyond > 0 => beyond /= 2,
                Err(why) => {
                    if why == GrowError::Later {
                        self.wanted.set(self.wanted.get().max(end));
                    }
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Makes the growth that was deferred.
    pub(crate) fn grow_wanted(&self) -> Result<(), GrowError> {
        self.reserve(self.wanted.get())?;
        self.wanted.set(0);
        Ok(())
    }

    /// Sets the inputs to the check.
    pub fn set_terms(&self, terms: Terms) {
        self.terms.set(terms);
    }

    /// Scales a price from 13 nodes to the canister's subnet.
    fn scaled(&self, price: u128) -> u128 {
        price * u128::from(self.terms.get().nodes) / NODES
    }

    /// Grows raw memory by `pages` pages. `is_measured`: an earlier try has measured the price.
    fn grow(&self, pages: u64, is_measured: bool) -> Result<(), GrowError> {
        // Each question to the platform costs 500 instructions, and only a growth changes the answers.
        let (now, liquid) = (P::now_ns(), P::liquid_cycles());
        let price = self.estimate(now);
        let all = self.check(liquid, pages, price, 0);
        if self.put_off.get() {
            return all.and(Err(GrowError::Later));
        }
        // If the price is not known, one page must be payable, which measures it.
        if all.is_err() && (self.known(now).is_some() || self.check(liquid, 1, price, 0).is_err()) {
            return all;
        }
        let mut balance = P::cycle_balance();
        if is_measured {
            return self.grow_raw(pages, &mut balance, now).map(drop);
        }
        // The first page measures the price anew, because controllers and other canisters may have changed it.
        let reservation = self.grow_raw(1, &mut balance, now)?;
        let left = P::liquid_cycles();
        let price = Price { threshold: liquid.saturating_sub(left), reservation, at: now };
        self.learnt.set(Some(price));
        if pages > 1 {
            self.check(left, pages - 1, price, 0)?;
            self.grow_raw(pages - 1, &mut balance, now)?;
        }
        Ok(())
    }

    /// Grows raw memory, and returns the cycles that this has reserved. Updates the balance.
    fn grow_raw(&self, pages: u64, balance: &mut u128, now: u64) -> Result<u128, GrowError> {
        if P::Memory::default().grow(pages) < 0 {
            return Err(GrowError::OutOfSpace);
        }
        let before = std::mem::replace(balance, P::cycle_balance());
        let reserved = before.saturating_sub(*balance);
        if reserved > 0 {
            self.reserved.set(Reserved { cycles: self.reserved_now() + reserved, at: now });
        }
        self.pass(0);
        Ok(reserved)
    }

    /// Writes the cell.
    pub(crate) fn save(&self) {
        let Reserved { cycles, at } = self.reserved.get();
        let words = [cycles as u64, (cycles >> 64) as u64, at, self.own.get()];
        self.raw.write(self.cell, words.map(u64::to_le_bytes).as_flattened());
    }

    /// The measured price while it is valid.
    fn known(&self, now: u64) -> Option<Price> {
        self.learnt.get().filter(|price| now < price.at.saturating_add(VALID_NS))
    }

    /// Estimates the price of a page without growing one. Frozen cycles divided by the pages overestimate the threshold, unless reserved
    /// cycles cover part of the threshold.
    fn estimate(&self, now: u64) -> Price {
        self.known(now).unwrap_or_else(|| {
            let frozen = P::cycle_balance().saturating_sub(P::liquid_cycles());
            let spread = frozen / u128::from(self.raw.pages().max(SMALL));
            let reserves = self.reserved_now() > 0;
            let learnt = self.learnt.get();
            Price {
                threshold: learnt.filter(|_| reserves).map_or(spread, |price| price.threshold.max(spread)),
                reservation: learnt
                    .map_or(if reserves { self.scaled(MOST_RESERVED) } else { 0 }, |price| price.reservation),
                at: 0,
            }
        })
    }

    /// Checks that `liquid` cycles pay `pages` pages at a price while `set_aside` of them are unavailable.
    fn check(&self, liquid: u128, pages: u64, price: Price, set_aside: u128) -> Result<(), GrowError> {
        let pages = u128::from(pages);
        let of_one = price.reservation;
        let reservation = if of_one == 0 { 0 } else { pages * (of_one + self.scaled(MOST_INCREASE) * pages) };
        let kept = self.terms.get().kept + set_aside;
        let for_storage = (kept + pages * price.threshold).saturating_sub(liquid);
        // The balance is at least the liquid cycles, so it is only asked for if something is reserved.
        let for_reserve = if reservation == 0 { 0 } else { (kept + reservation).saturating_sub(P::cycle_balance()) };
        let missing = for_storage.max(for_reserve);
        if missing > 0 {
            return Err(GrowError::LowCycles { missing });
        }
        let limit = self.terms.get().reserved_cycles_limit;
        if reservation > 0
            && let missing @ 1.. = (self.reserved_now() + reservation + HEAP * of_one).saturating_sub(limit)
        {
            return Err(GrowError::ReservedCyclesLimit { missing });
        }
        Ok(())
    }

    /// Returns the reason why a growth by `pages` would be refused, as seen by a query; `set_aside` cycles count as taken by a message.
    pub fn refusal(&self, pages: u64, set_aside: u128) -> Option<GrowError> {
        self.check(P::liquid_cycles(), pages, self.estimate(P::now_ns()), set_aside).err()
    }

    /// Runs work that must not grow memory: a growth is refused with [`GrowError::Later`] and deferred to
    /// [`Arena::grow_wanted`](crate::arena::Arena::grow_wanted). Otherwise a message that traps on growth would lose its other work on every
    /// retry.
    pub fn put_off<T>(&self, run: impl FnOnce() -> T) -> T {
        self.wanted.set(0);
        self.put_off.set(true);
        let result = run();
        self.put_off.set(false);
        result
    }

    /// Returns whether a growth was refused with [`GrowError::Later`] since the last [`Self::put_off`] and not made since.
    pub fn is_wanted(&self) -> bool {
        self.wanted.get() > 0
    }

    /// Returns the cycles that are reserved now.
    fn reserved_now(&self) -> u128 {
        let Reserved { cycles, at } = self.reserved.get();
        if cycles == 0 {
            return 0;
        }
        let secs = P::now_ns().saturating_sub(at) / NS;
        let billed = self.raw.pages();
        let paid = self.scaled(GIB_SECOND) * u128::from(secs) * u128::from(billed) / PAGES_A_GIB;
        cycles.saturating_sub(paid)
    }
}

/// Cycles reserved for storage, as far as the canister can know: those that its growths have reserved, less the storage paid from them
/// since. The true value may be lower, because the platform pays for code and heap from them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reserved {
    cycles: u128,
    at: u64,
}

#[cfg(test)]
mod tests;
