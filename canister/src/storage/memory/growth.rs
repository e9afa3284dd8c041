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

use super::error::GrowError;
use crate::platform::limits::NS;
use crate::platform::{self, StableMemory};
use coppice_interface::WASM_PAGE;
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
    static RESERVED: Cell<Reserved> = const { Cell::new(Reserved { cycles: 0, at: 0 }) };
    /// The reserved cycles have changed and are not in their cell yet.
    static NOTED: Cell<bool> = const { Cell::new(false) };
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
    RESERVED.set(Reserved::default());
    NOTED.set(false);
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
        RESERVED.set(Reserved { cycles: RESERVED.get().now() + reserved, at: platform::time_ns() });
        NOTED.set(true);
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
        let spread = frozen / u128::from(StableMemory::default().size().max(SMALL));
        let reserves = RESERVED.get().now() > 0;
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
        && let missing @ 1.. = (RESERVED.get().now() + reservation).saturating_sub(limit)
    {
        return Err(GrowError::ReservedCyclesLimit { missing });
    }
    Ok(())
}

/// Why a growth by so many pages would be refused, as a query sees it: of its balance nothing is set aside for the message.
pub fn refusal(pages: u64) -> Option<GrowError> {
    check(pages, estimate(), platform::timer_call_cycles()).err()
}

/// Runs work that does not grow memory: a growth is refused with `Later`, and left to [`grow_wanted`](super::grow_wanted). A message that
/// does other work, and traps where it grows, would do so again and again.
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

/// Notes that the growth that was put off has been done.
pub(super) fn done() {
    WANTED.set(false);
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
        let [cycles @ .., _, _, _, _, _, _, _, _] = *bytes;
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, at @ ..] = *bytes;
        Self { cycles: u128::from_le_bytes(cycles), at: u64::from_le_bytes(at) }
    }

    /// Returns the bytes of its cell.
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.cycles.to_le_bytes());
        bytes[16..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    fn now(self) -> u128 {
        if self.cycles == 0 {
            return 0;
        }
        let secs = platform::time_ns().saturating_sub(self.at) / NS;
        let billed = StableMemory::default().size();
        let paid = scaled(GIB_SECOND) * u128::from(secs) * u128::from(billed) / PAGES_A_GIB;
        self.cycles.saturating_sub(paid)
    }
}

/// Sets the reserved cycles as they were kept.
pub fn set_reserved(reserved: Reserved) {
    RESERVED.set(reserved);
}

/// Returns the reserved cycles if a growth has changed them since the last call.
pub fn take_noted() -> Option<Reserved> {
    NOTED.take().then(|| RESERVED.get())
}

#[cfg(test)]
mod tests;
