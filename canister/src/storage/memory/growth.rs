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

use super::{GrowError, WASM_PAGE, billed_pages, cell};
use crate::platform::limits::NS;
use crate::platform::{self, StableMemory};
use ic_stable_structures::Memory;
use std::cell::Cell;

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
/// How long a price is believed that says that a growth cannot be paid.
const BELIEVED_NS: u64 = 600 * NS;
/// Pages of which a small canister is taken to consist, where nothing has been learnt: code and heap are storage, too.
const SMALL: u64 = 256;

/// What growing goes by, beside what the platform says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nodes of the subnet.
    pub nodes: u32,
    /// What the canister's settings on the platform say: no more cycles are reserved than these.
    pub reserved_cycles_limit: u128,
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

thread_local! {
    static TERMS: Cell<Terms> = const { Cell::new(Terms { nodes: NODES as u32, reserved_cycles_limit: u128::MAX }) };
    static LEARNT: Cell<Option<Price>> = const { Cell::new(None) };
    /// Growing is left to a message of its own.
    static PUT_OFF: Cell<bool> = const { Cell::new(false) };
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Sets what growing goes by.
pub fn set_terms(terms: Terms) {
    TERMS.set(terms);
}

/// Forgets what was learnt, as an upgrade does.
#[cfg(not(target_family = "wasm"))]
pub fn forget() {
    LEARNT.set(None);
    PUT_OFF.set(false);
    WANTED.set(false);
    set_terms(Terms { nodes: NODES as u32, reserved_cycles_limit: u128::MAX });
}

/// A price of a subnet of 13 nodes on the canister's.
fn scaled(price: u128) -> u128 {
    price * u128::from(TERMS.get().nodes) / NODES
}

/// Cycles that an installation or an upgrade sets aside for its hooks, beyond what a message sets aside: for 300 billion instructions
/// where that is for 40. What is left of them comes back.
pub fn set_aside_by_hooks() -> u128 {
    scaled(260_000_000_000)
}

/// Liquid cycles that a growth leaves: two calls of a timer, so that the daemon's net goes on.
fn kept() -> u128 {
    2 * platform::timer_call_cycles()
}

/// Grows raw memory by so many pages.
///
/// # Errors
/// [`GrowError`]; of raw memory a page may have been grown, nothing else has changed.
pub fn grow(pages: u64) -> Result<(), GrowError> {
    if PUT_OFF.get() {
        check(pages, estimate(), 0)?;
        return Err(GrowError::Later);
    }
    match known() {
        Some(price) => check(pages, price, 0)?,
        // One page must be paid to be asked about.
        None => check(1, estimate(), 0).or_else(|_| check(pages, estimate(), 0))?,
    }
    let price = learn()?;
    if pages > 1 {
        check(pages - 1, price, 0)?;
        grow_raw(pages - 1)?;
    }
    Ok(())
}

/// Grows a page, and learns what it costs.
fn learn() -> Result<Price, GrowError> {
    let liquid = platform::liquid_cycles();
    let reservation = grow_raw(1)?;
    let threshold = liquid.saturating_sub(platform::liquid_cycles());
    let price = Price { threshold, reservation, at: platform::time_ns() };
    LEARNT.set(Some(price));
    Ok(price)
}

/// Grows, and says how many cycles that has reserved.
fn grow_raw(pages: u64) -> Result<u128, GrowError> {
    let balance = platform::cycle_balance();
    if StableMemory::default().grow(pages) < 0 {
        return Err(GrowError::OutOfSpace);
    }
    let reserved = balance.saturating_sub(platform::cycle_balance());
    if reserved > 0 {
        Reserved::note(reserved);
    }
    Ok(reserved)
}

/// What was learnt not long ago.
fn known() -> Option<Price> {
    let now = platform::time_ns();
    LEARNT.get().filter(|price| now < price.at.saturating_add(BELIEVED_NS))
}

/// What a page costs as far as that is known without growing one: what is frozen, spread over the pages, is somewhat more, but for
/// what is covered by cycles that are reserved.
fn estimate() -> Price {
    known().unwrap_or_else(|| {
        let frozen = platform::cycle_balance().saturating_sub(platform::liquid_cycles());
        let spread = frozen / u128::from(billed_pages().max(SMALL));
        let reserves = Reserved::now() > 0;
        let learnt = LEARNT.get();
        Price {
            threshold: learnt.filter(|_| reserves).map_or(spread, |price| price.threshold.max(spread)),
            reservation: learnt.map_or(if reserves { scaled(MOST_RESERVED) } else { 0 }, |price| price.reservation),
            at: 0,
        }
    })
}

/// Whether so many pages can be paid at a price, where so many cycles are not there to be spent.
fn check(pages: u64, price: Price, set_aside: u128) -> Result<(), GrowError> {
    let pages = u128::from(pages);
    let reservation = match price.reservation {
        0 => 0,
        of_one => pages * (of_one + scaled(DEARER) * pages),
    };
    let kept = kept() + set_aside;
    let for_storage = (kept + pages * price.threshold).saturating_sub(platform::liquid_cycles());
    let for_reserve = (kept + reservation).saturating_sub(platform::cycle_balance());
    let missing = for_storage.max(for_reserve);
    if missing > 0 {
        return Err(GrowError::LowCycles { missing });
    }
    let limit = TERMS.get().reserved_cycles_limit;
    if reservation > 0
        && let missing @ 1.. = (Reserved::now() + reservation).saturating_sub(limit)
    {
        return Err(GrowError::ReservedCyclesLimit { missing });
    }
    Ok(())
}

/// Why a growth by so many pages would be refused, as a query sees it: of its balance nothing is set aside for the message.
pub fn refusal(pages: u64) -> Option<GrowError> {
    check(pages, estimate(), platform::timer_call_cycles()).err()
}

/// Runs something that does not grow memory: where it would, that is left to [`grow_wanted`], and what it works on is refused with
/// `Later`. A message that does other work, and traps where it grows, would do so again and again.
pub fn put_off<T>(run: impl FnOnce() -> T) -> T {
    WANTED.set(false);
    PUT_OFF.set(true);
    let result = run();
    PUT_OFF.set(false);
    result
}

/// Notes that memory is wanted that was put off.
pub(super) fn want() {
    WANTED.set(true);
}

/// Whether something was refused with `Later` since that was last begun.
pub fn is_wanted() -> bool {
    WANTED.get()
}

/// Grows raw memory by what the next region needs that grows.
///
/// # Errors
/// [`GrowError`].
pub fn grow_wanted() -> Result<(), GrowError> {
    super::reserve_raw(1, true)?;
    WANTED.set(false);
    Ok(())
}

/// How many cycles are reserved for storage, as far as the canister can know: what its growths have reserved, without what has been
/// paid of it since. It may be less, as code and heap are paid of it, too.
struct Reserved;

impl Reserved {
    fn cells() -> Option<super::Region> {
        let cells = super::region(super::CELLS);
        (cells.size() >= cell::END).then_some(cells)
    }

    fn now() -> u128 {
        let Some(cells) = Self::cells() else { return 0 };
        let [low, high, at] = [0, 8, 16].map(|offset| cells.read_u64(cell::RESERVED + offset));
        let reserved = u128::from(low) | u128::from(high) << 64;
        if reserved == 0 {
            return 0;
        }
        let secs = platform::time_ns().saturating_sub(at) / NS;
        let paid = scaled(GIB_SECOND) * u128::from(secs) * u128::from(billed_pages()) / PAGES_A_GIB;
        reserved.saturating_sub(paid)
    }

    fn note(more: u128) {
        let reserved = Self::now() + more;
        let Some(cells) = Self::cells() else { return };
        let words = [reserved as u64, (reserved >> 64) as u64, platform::time_ns()];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        cells.write(cell::RESERVED, &bytes);
    }
}

#[cfg(test)]
mod tests;
