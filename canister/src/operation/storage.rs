//! Storage status: the bytes of stable memory, by part.

use crate::state::{State, records};
use ic_coppice_chain::IndexTable;
use ic_coppice_interface::{ClassStorage, OwnerStorage, StorageStatus};
use ic_coppice_storage::WASM_PAGE;
use ic_coppice_storage::blob::{Class, Owner};

/// Returns how many bytes of stable memory each part takes.
pub fn status(state: &State) -> StorageStatus {
    let of_class = |class: Class| {
        let of = state.blobs.arena().class_counters(class);
        let [free, quarantined, lost] = [of.free, of.quarantined, of.lost].map(u64::from);
        ClassStorage { class: class.size(), free, quarantined, lost }
    };
    let classes: Vec<ClassStorage> = Class::all().map(of_class).collect();
    let owners: Vec<OwnerStorage> = ic_coppice_interface::Owner::ALL
        .into_iter()
        .zip(Owner::all())
        .filter(|(owner, _)| records::has_owner(*owner))
        .map(|(owner, of)| OwnerStorage { owner, kept_bytes: state.blobs.arena().kept_bytes(of) })
        .collect();
    let quarantined_bytes = classes.iter().map(|of| of.quarantined * u64::from(of.class)).sum();
    let chain = state.chain.state();
    StorageStatus {
        billed_bytes: state.blobs.arena().billed_pages() * WASM_PAGE,
        max_bytes: state.config.max_stable_pages * WASM_PAGE,
        arena_bytes: state.blobs.arena().bytes(),
        used_bytes: owners.iter().map(|of| of.kept_bytes).sum::<u64>() - quarantined_bytes,
        quarantined_bytes,
        reusable_bytes: state.blobs.arena().reusable_bytes(),
        payload_bytes: state.chain.payload_bytes(),
        owners,
        classes,
        index_entries: state.chain.debt(IndexTable::Ids).live(),
        key_entries: state.chain.debt(IndexTable::Keys).live(),
        blocks: if chain.started { chain.blocks() } else { 0 },
        utxo: state.records_storage(),
        block: None,
    }
}
