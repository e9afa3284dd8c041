//! The canister's arena and its spaces, opened once and held on the heap.

use crate::platform;
use crate::settings::config;
use ic_coppice_interface::storage::in_arena;
use ic_coppice_interface::{Config, MAX_STABLE_PAGES, Owner, records_reserve};
use ic_coppice_records::owners;
use ic_coppice_storage::arena::{self, Arena, Class};
use ic_coppice_storage::{OpenError, Space, Terms};
use std::cell::RefCell;

/// New records and new rows of the deletion queue take memory up to `max_utxo_bytes`.
const SHARES: arena::Shares =
    arena::Shares { spaces: in_arena(Owner::Spaces), strays: in_arena(Owner::Stray), counted: &owners::ALL };

/// Number of nodes of an application subnet, used until the settings are read.
const SMALL_SUBNET: u32 = 13;

thread_local! {
    static ARENA: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// A growth must leave the cycles for the calls of two timers, so that the safety timer keeps running.
fn terms(nodes: u32, reserved_cycles_limit: u128) -> Terms {
    Terms { nodes, reserved_cycles_limit, kept: 2 * platform::timer_call_cycles() }
}

/// Drops the arena, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    ic_coppice_storage::testing::forget();
    ARENA.set(None);
}

/// Returns the arena, and opens it first if it is not open.
#[inline(never)]
pub fn arena() -> Result<Arena, OpenError> {
    if let Some(arena) = ARENA.with_borrow(Clone::clone) {
        return Ok(arena);
    }
    let arena = Arena::open(SHARES, terms(SMALL_SUBNET, u128::MAX))?;
    // Until the settings are read.
    arena.set_reserve(records_reserve(MAX_STABLE_PAGES));
    Class::of_size(Config::default().log_class).into_iter().for_each(|class| arena.set_log_class(class));
    #[cfg(test)]
    ic_coppice_storage::testing::set_arena(arena.clone());
    ARENA.set(Some(arena.clone()));
    Ok(arena)
}

/// Opens the space of an id.
#[inline(never)]
pub fn space(id: u8) -> Result<Space, OpenError> {
    Space::open(&arena()?, id)
}

/// Applies the memory limits of the settings.
pub fn bound(arena: &Arena, config: &Config) {
    arena.growth().set_max_pages(config.max_stable_pages);
    arena.growth().set_terms(terms(config.nodes, config.reserved_cycles_limit));
    arena.set_reserve(records_reserve(config.max_stable_pages));
    arena.set_log_class(config::class(config));
}

/// Passes the growth of stable memory to `look`.
#[cfg(test)]
pub fn growth<T>(look: impl FnOnce(&ic_coppice_storage::Growth) -> T) -> T {
    look(arena().unwrap().growth())
}

/// Sets the cap on raw pages of 64 KiB.
#[cfg(test)]
pub fn set_max_pages(pages: u64) {
    growth(|growth| growth.set_max_pages(pages));
}

/// Returns the cap on raw pages.
#[cfg(test)]
pub fn max_pages() -> u64 {
    growth(|growth| growth.max_pages())
}

/// Returns the raw pages in use; the platform bills these.
#[cfg(test)]
pub fn billed_pages() -> u64 {
    arena().unwrap().billed_pages()
}

/// Opens a space that is used only by the bench.
#[cfg(feature = "bench")]
pub fn bench(which: u8) -> Space {
    space(crate::places::BENCH + which).unwrap_or_else(|why| platform::trap(&why.to_string()))
}
