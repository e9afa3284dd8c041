//! Registry of stable memory: the one manager, and the regions that it hands out.

pub use super::ids::*;
use super::{blob::BlobStore, places};
use crate::platform::{self, Ic};
use coppice_interface::{AppendError, BlobDeletionError, RECORDS_RESERVE, UtxoRefusal};
pub use coppice_storage::{BUCKET, GrowError, WASM_PAGE};
use coppice_storage::{Layout, Manager, Terms};
use ic_stable_structures::Memory as _;
use std::cell::RefCell;

/// One structure's own address space in the canister's stable memory.
pub type Region = coppice_storage::Region<Ic>;

/// Fixed facts about the canister's stable memory. New records, and new rows of the deletion queue, take memory up to `max_utxo_bytes`.
const LAYOUT: Layout = Layout {
    regions: NAMES.len() as u8,
    counted: &[UTXO_INDEX, UTXO_SLOTS, DELETIONS],
    reserve: RECORDS_RESERVE,
    reserved_cycles: (CELLS, places::RESERVED),
};

/// Nodes of an application subnet, until the settings are read.
const SMALL_SUBNET: u32 = 13;

thread_local! {
    static MANAGER: RefCell<Option<Manager<Ic>>> = const { RefCell::new(None) };
}

/// Memory that was refused, on its way into an error of the interface.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory(pub GrowError);

/// Has an error of the interface say why memory was refused; `$full`: the quota is used up.
macro_rules! no_memory {
    ($error:ident, $full:expr) => {
        impl From<NoMemory> for $error {
            fn from(NoMemory(why): NoMemory) -> Self {
                match why {
                    // Only a tick's work is put off, and a tick that meets it goes on later.
                    GrowError::OutOfSpace | GrowError::Later => Self::OutOfSpace,
                    GrowError::QuotaFull => $full,
                    GrowError::LowCycles { missing } => Self::LowCycles { missing },
                    GrowError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
                }
            }
        }
    };
}

no_memory!(AppendError, Self::OutOfSpace);
no_memory!(BlobDeletionError, Self::RecordsFull { limit: manager().quota().cap() });
no_memory!(UtxoRefusal, Self::RecordsFull { limit: manager().quota().cap() });

/// A growth leaves the cycles of two timers' calls, so that the ten-minute timer goes on.
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

/// Forgets the manager, as an upgrade does.
#[cfg(not(target_family = "wasm"))]
pub fn forget() {
    MANAGER.set(None);
}

/// Returns the region of an id.
pub fn region(id: u8) -> Region {
    manager().region(id)
}

/// Opens the blobs.
///
/// # Errors
/// [`OpenError`](super::OpenError) as a sentence.
pub fn open_blobs() -> Result<BlobStore, String> {
    Ok(BlobStore::open([BLOB_ARENA, BLOB_GRANULES, BLOB_SETS].map(region))?)
}

/// Sets the inputs to the growth check.
pub fn set_terms(nodes: u32, reserved_cycles_limit: u128) {
    manager().growth().set_terms(terms(nodes, reserved_cycles_limit));
}

/// Returns the raw pages in use, which is what the platform bills.
pub fn billed_pages() -> u64 {
    <Ic as coppice_storage::Platform>::Memory::default().size()
}

/// Memory of a structure that the bench compares with.
#[cfg(feature = "bench")]
pub type BenchMemory = ic_stable_structures::memory_manager::VirtualMemory<<Ic as coppice_storage::Platform>::Memory>;

/// Returns a memory that the product does not use.
#[cfg(feature = "bench")]
pub fn bench(which: u8) -> BenchMemory {
    manager().other(200 + which)
}

/// Runs work that creates UTXO records or rows: it takes memory up to the quota only.
pub fn creating_records<T>(run: impl FnOnce() -> T) -> T {
    MANAGER.with_borrow(|manager| match manager {
        Some(manager) => manager.quota().creating(run),
        None => run(),
    })
}

// The interface names both, for answers.
const _: () = assert!(BUCKET == coppice_interface::BUCKET && WASM_PAGE == coppice_interface::WASM_PAGE);
