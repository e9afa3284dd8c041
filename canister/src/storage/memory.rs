//! Registry of stable memory: the manager and its regions.

pub use super::ids::*;
use super::{Arena, OpenError, owners, places};
use crate::platform::{self, Ic};
use coppice_interface::{NoMemory, RECORDS_RESERVE};
pub use coppice_storage::{BUCKET, GrowError, WASM_PAGE};
use coppice_storage::{Layout, Manager, Terms, arena};
use ic_stable_structures::Memory as _;
use std::cell::RefCell;

/// Address space of one data structure in the canister's stable memory.
pub type Region = coppice_storage::Region<Ic>;

/// Constants of the canister's stable memory.
const LAYOUT: Layout = Layout { regions: NAMES.len() as u8, reserved_cycles: (CELLS, places::RESERVED) };

/// New records and new rows of the deletion queue take memory up to `max_utxo_bytes`.
const SHARES: arena::Shares = arena::Shares { counted: &owners::COUNTED, reserve: RECORDS_RESERVE };

/// Number of nodes of an application subnet, used until the settings are read.
const SMALL_SUBNET: u32 = 13;

thread_local! {
    static MANAGER: RefCell<Option<Manager<Ic>>> = const { RefCell::new(None) };
    static ARENA_OF_ALL: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// Returns the reason of a refused growth as the interface says it. A tick whose memory is deferred continues later.
pub fn refused(why: GrowError) -> NoMemory {
    match why {
        GrowError::OutOfSpace | GrowError::Later => NoMemory::OutOfSpace,
        GrowError::QuotaFull => NoMemory::RecordsFull { limit: arena().map_or(0, |arena| arena.quota()) },
        GrowError::LowCycles { missing } => NoMemory::LowCycles { missing },
        GrowError::ReservedCyclesLimit { missing } => NoMemory::ReservedCyclesLimit { missing },
    }
}

/// A growth must leave the cycles for the calls of two timers, so that the ten-minute timer keeps running.
fn terms(nodes: u32, reserved_cycles_limit: u128) -> Terms {
    Terms { nodes, reserved_cycles_limit, kept: 2 * platform::timer_call_cycles() }
}

/// Returns the manager.
pub fn manager() -> Manager<Ic> {
    let there = MANAGER.with_borrow(Clone::clone);
    there.unwrap_or_else(|| {
        let manager = Manager::open(LAYOUT);
        manager.growth().set_terms(terms(SMALL_SUBNET, u128::MAX));
        MANAGER.set(Some(manager.clone()));
        manager
    })
}

/// Drops the manager, as an upgrade does.
#[cfg(not(target_family = "wasm"))]
pub fn forget() {
    MANAGER.set(None);
    ARENA_OF_ALL.set(None);
}

/// Returns the region of an id.
pub fn region(id: u8) -> Region {
    manager().region(id)
}

/// Returns the arena, and opens it first if it is not open.
///
/// # Errors
/// [`OpenError`].
pub fn arena() -> Result<Arena, OpenError> {
    if let Some(arena) = ARENA_OF_ALL.with_borrow(Clone::clone) {
        return Ok(arena);
    }
    let arena = Arena::open([ARENA, GRANULES, ARENA_SETS].map(region), SHARES)?;
    ARENA_OF_ALL.set(Some(arena.clone()));
    Ok(arena)
}

/// Sets the inputs to the growth check.
pub fn set_terms(nodes: u32, reserved_cycles_limit: u128) {
    manager().growth().set_terms(terms(nodes, reserved_cycles_limit));
}

/// Returns the raw pages in use; the platform bills these.
pub fn billed_pages() -> u64 {
    <Ic as coppice_storage::Platform>::Memory::default().size()
}

/// Memory of the data structures that the bench compares.
#[cfg(feature = "bench")]
pub type BenchMemory = ic_stable_structures::memory_manager::VirtualMemory<<Ic as coppice_storage::Platform>::Memory>;

/// Returns a memory that is used only by the bench.
#[cfg(feature = "bench")]
pub fn bench(which: u8) -> BenchMemory {
    manager().other(200 + which)
}

/// Runs code that creates UTXO records or rows: their memory is limited by `max_utxo_bytes`, and they take nothing from the reserve.
pub fn creating_records<T>(run: impl FnOnce() -> T) -> T {
    match ARENA_OF_ALL.with_borrow(Clone::clone) {
        Some(arena) => arena.creating(run),
        None => run(),
    }
}

// The interface declares both constants again, for replies.
const _: () = assert!(BUCKET == coppice_interface::BUCKET && WASM_PAGE == coppice_interface::WASM_PAGE);
