//! Whether more stable memory can be paid for, before it is grown.
//!
//! **Constraint.** A growth that the balance does not cover is a trap on the platform: the message is undone, and who called
//! learns little. What a page costs is known to the platform only: how long storage must stay paid (the freezing threshold), and
//! how many cycles are set aside for it, which depends on how full the subnet is at the moment.
//!
//! **Design.** One page is grown first. What the balances say before and after is its price; the rest is reckoned with that, and
//! grown, or refused with what is missing. A refusal leaves that page, which is part of the growth that follows.
//!
//! ```text
//! balance ─┬─ liquid ──────── falls by what a page adds to the freezing threshold
//!          └─ frozen ──────── balance falls by what a page reserves: what is reserved covers as much of the threshold
//! ```

use crate::bytes::{array_at, u64_at};
use crate::{GrowError, Platform, WASM_PAGE};
use ic_stable_structures::Memory;
use std::cell::Cell;
use std::marker::PhantomData;

/// Nanoseconds of a second.
const NS: u64 = 1_000_000_000;

/// Nodes of the subnet that the prices below are those of.
const NODES: u128 = 13;
/// Cycles for a GiB and a second (the platform's published prices).
const GIB_SECOND: u128 = 127_000;
const PAGES_A_GIB: u128 = (1 << 30) / WASM_PAGE as u128;
/// Most cycles that a page has reserved, where the subnet is full: 300 million seconds of its storage, 38 T a GiB.
const MOST_RESERVED: u128 = 300_000_000 * GIB_SECOND / PAGES_A_GIB;
/// By how many cycles a page makes the next one dearer at most: the price goes from nothing at 750 GiB to the most at 2 TiB, and a
/// message sees the share of one core in four of both.
const DEARER: u128 = MOST_RESERVED.div_ceil((2_048 - 750) / 4 * PAGES_A_GIB);
/// Time for which a measured page price stays valid.
const BELIEVED_NS: u64 = 600 * NS;
/// Assumed page count of a small canister before the first measurement: code and heap are storage, too.
const SMALL: u64 = 256;

/// Inputs to the growth check that the platform does not provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nodes of the subnet.
    pub nodes: u32,
    /// Most cycles that may be reserved, by the canister's settings on the platform.
    pub reserved_cycles_limit: u128,
    /// Liquid cycles that a growth leaves.
    pub kept: u128,
}

/// What a page costs.
#[derive(Clone, Copy, Debug)]
struct Price {
    /// By how much it raises the freezing threshold.
    threshold: u128,
    /// What it has reserved.
    reservation: u128,
    /// When that was so, in Unix nanoseconds.
    at: u64,
}

/// Growth of raw memory: prices that were learnt, and growth that was deferred.
pub struct Growth<P> {
    terms: Cell<Terms>,
    learnt: Cell<Option<Price>>,
    /// Growing is left to a message of its own.
    put_off: Cell<bool>,
    /// A growth was refused with `Later`, and not done since.
    pub(crate) wanted: Cell<bool>,
    /// The reserved cycles, as they were kept or a growth has changed them.
    pub(crate) reserved: Cell<Reserved>,
    /// The reserved cycles have changed and are not in their cell yet.
    noted: Cell<bool>,
    platform: PhantomData<P>,
}

impl<P: Platform> Growth<P> {
    /// Growth that has learnt nothing.
    pub(crate) fn new() -> Self {
        Self {
            terms: Cell::new(Terms { nodes: NODES as u32, reserved_cycles_limit: u128::MAX, kept: 0 }),
            learnt: Cell::new(None),
            put_off: Cell::new(false),
            wanted: Cell::new(false),
            reserved: Cell::default(),
            noted: Cell::new(false),
            platform: PhantomData,
        }
    }

    /// Sets the inputs to the check.
    pub fn set_terms(&self, terms: Terms) {
        self.terms.set(terms);
    }

    /// A price of a subnet of 13 nodes on the canister's.
    fn scaled(&self, price: u128) -> u128 {
        price * u128::from(self.terms.get().nodes) / NODES
    }

    /// Grows raw memory by so many pages.
    ///
    /// # Errors
    /// [`GrowError`]; of raw memory a page may have been grown, nothing else has changed.
    pub(crate) fn grow(&self, pages: u64) -> Result<(), GrowError> {
        if self.put_off.get() {
            self.check(pages, self.estimate(), 0)?;
            return Err(GrowError::Later);
        }
        match self.known() {
            Some(price) => self.check(pages, price, 0)?,
            // One page must be paid to be asked about.
            None => self.check(1, self.estimate(), 0).or_else(|_| self.check(pages, self.estimate(), 0))?,
        }
        let price = self.learn()?;
        if pages > 1 {
            self.check(pages - 1, price, 0)?;
            self.grow_raw(pages - 1)?;
        }
        Ok(())
    }

    /// Grows a page, and learns what it costs.
    fn learn(&self) -> Result<Price, GrowError> {
        let liquid = P::liquid_cycles();
        let reservation = self.grow_raw(1)?;
        let threshold = liquid.saturating_sub(P::liquid_cycles());
        let price = Price { threshold, reservation, at: P::now_ns() };
        self.learnt.set(Some(price));
        Ok(price)
    }

    /// Grows, and says how many cycles that has reserved.
    fn grow_raw(&self, pages: u64) -> Result<u128, GrowError> {
        let balance = P::cycle_balance();
        if P::Memory::default().grow(pages) < 0 {
            return Err(GrowError::OutOfSpace);
        }
        let reserved = balance.saturating_sub(P::cycle_balance());
        if reserved > 0 {
            self.reserved.set(Reserved { cycles: self.reserved_now() + reserved, at: P::now_ns() });
            self.noted.set(true);
        }
        Ok(reserved)
    }

    /// What was learnt not long ago.
    fn known(&self) -> Option<Price> {
        let now = P::now_ns();
        self.learnt.get().filter(|price| now < price.at.saturating_add(BELIEVED_NS))
    }

    /// What a page costs as far as that is known without growing one: what is frozen, spread over the pages, is somewhat more, but for
    /// what is covered by cycles that are reserved.
    fn estimate(&self) -> Price {
        self.known().unwrap_or_else(|| {
            let frozen = P::cycle_balance().saturating_sub(P::liquid_cycles());
            let spread = frozen / u128::from(P::Memory::default().size().max(SMALL));
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

    /// Whether so many pages can be paid at a price, where so many cycles are not there to be spent.
    fn check(&self, pages: u64, price: Price, set_aside: u128) -> Result<(), GrowError> {
        let pages = u128::from(pages);
        let reservation = match price.reservation {
            0 => 0,
            of_one => pages * (of_one + self.scaled(DEARER) * pages),
        };
        let kept = self.terms.get().kept + set_aside;
        let for_storage = (kept + pages * price.threshold).saturating_sub(P::liquid_cycles());
        let for_reserve = (kept + reservation).saturating_sub(P::cycle_balance());
        let missing = for_storage.max(for_reserve);
        if missing > 0 {
            return Err(GrowError::LowCycles { missing });
        }
        let limit = self.terms.get().reserved_cycles_limit;
        if reservation > 0
            && let missing @ 1.. = (self.reserved_now() + reservation).saturating_sub(limit)
        {
            return Err(GrowError::ReservedCyclesLimit { missing });
        }
        Ok(())
    }

    /// Returns the reason why a growth by so many pages would be refused, as a query sees it; `set_aside` cycles are taken for a message.
    pub fn refusal(&self, pages: u64, set_aside: u128) -> Option<GrowError> {
        self.check(pages, self.estimate(), set_aside).err()
    }

    /// Runs work that does not grow memory: a growth is refused with [`GrowError::Later`] and left to
    /// [`Manager::grow_wanted`](crate::Manager::grow_wanted). A message that does other work, and traps where it grows, would do so again
    /// and again.
    pub fn put_off<T>(&self, run: impl FnOnce() -> T) -> T {
        self.wanted.set(false);
        self.put_off.set(true);
        let result = run();
        self.put_off.set(false);
        result
    }

    /// Returns whether a growth was refused with [`GrowError::Later`] since [`Self::put_off`] was last called, and not done since.
    pub fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Returns the cycles that are reserved now.
    fn reserved_now(&self) -> u128 {
        let Reserved { cycles, at } = self.reserved.get();
        if cycles == 0 {
            return 0;
        }
        let secs = P::now_ns().saturating_sub(at) / NS;
        let billed = P::Memory::default().size();
        let paid = self.scaled(GIB_SECOND) * u128::from(secs) * u128::from(billed) / PAGES_A_GIB;
        cycles.saturating_sub(paid)
    }

    /// Returns the reserved cycles if a growth has changed them since the last call.
    pub(crate) fn take_noted(&self) -> Option<Reserved> {
        self.noted.take().then(|| self.reserved.get())
    }
}

/// Cycles reserved for storage, as far as the canister can know: those that its growths have reserved, less what storage has been paid of
/// them since. They may be fewer, because code and heap are paid of them, too.
///
/// ```text
/// 0 cycles u128  16 Unix nanoseconds u64
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    cycles: u128,
    at: u64,
}

impl Reserved {
    /// Reads the bytes of its cell.
    pub fn decode(bytes: &[u8; 24]) -> Self {
        Self { cycles: u128::from_le_bytes(array_at(bytes, 0)), at: u64_at(bytes, 16) }
    }

    /// Returns the bytes of its cell.
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.cycles.to_le_bytes());
        bytes[16..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
