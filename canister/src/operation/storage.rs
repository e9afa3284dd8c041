//! Storage status: the bytes of stable memory, by part.

use crate::chain::IndexTable;
use crate::state::State;
use crate::storage::blob::{Class, Owner};
use crate::storage::memory::{self, WASM_PAGE};
use coppice_interface::{ClassStorage, OwnerStorage, RegionStorage, StorageStatus};

/// Returns how many bytes of stable memory each part takes.
pub fn status(state: &State) -> StorageStatus {
    let classes: Vec<ClassStorage> = Class::all()
        .map(|class| {
            let counters = state.blobs.class_counters(class);
            let kept: u64 = counters.kept.iter().map(|&kept| u64::from(kept)).sum();
            ClassStorage {
                class: class.size(),
                used: kept - u64::from(counters.quarantined),
                quarantined: u64::from(counters.quarantined),
                free: u64::from(counters.free),
                lost: u64::from(counters.lost),
            }
        })
        .collect();
    let bytes =
        |slots: fn(&ClassStorage) -> u64| classes.iter().map(|class| slots(class) * u64::from(class.class)).sum();
    let regions: Vec<RegionStorage> = memory::NAMES
        .iter()
        .zip(memory::manager().region_pages())
        .map(|(name, pages)| RegionStorage { name: name.to_string(), bytes: pages * WASM_PAGE })
        .collect();
    let arena_bytes = regions[usize::from(memory::BLOB_ARENA)].bytes;
    let chain = state.chain.state();
    StorageStatus {
        billed_bytes: memory::billed_pages() * WASM_PAGE,
        max_bytes: state.config.max_stable_pages * WASM_PAGE,
        arena_bytes,
        used_bytes: bytes(|class| class.used),
        quarantined_bytes: bytes(|class| class.quarantined),
        reusable_bytes: state.blobs.reusable_bytes(),
        payload_bytes: state.chain.payload_bytes(),
        owners: coppice_interface::Owner::ALL
            .into_iter()
            .zip(Owner::ALL)
            .map(|(owner, of)| OwnerStorage { owner, kept_bytes: state.blobs.kept_bytes(of) })
            .collect(),
        classes,
        regions,
        index_entries: state.chain.debt(IndexTable::Ids).live(),
        key_entries: state.chain.debt(IndexTable::Keys).live(),
        blocks: if chain.started { chain.blocks() } else { 0 },
        utxo: state.utxo.storage(),
        block: None,
    }
}
