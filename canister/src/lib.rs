//! Coppice: an Internet Computer canister that keeps a chain's blocks, receipts and index in stable memory, and prunes
//! them for ever without growing.
//!
//! This file is the Candid interface and nothing else: each endpoint asks its guard, calls one store, and answers. Data
//! flows one way, endpoint → store → blob; the pruner reaches the stores through one small trait.

pub mod access;
pub mod audit;
pub mod blob;
pub mod chain;
pub mod config;
pub mod daemon;
pub mod deletion;
mod endpoints;
pub mod export;
pub mod health;
pub mod history;
pub mod http;
pub mod logs;
#[cfg(test)]
mod machine;
pub mod marker;
pub mod memory;
pub mod meter;
#[cfg(test)]
mod persisted;
pub mod prune;
pub mod roles;
pub mod runtime;
pub mod slots;
pub mod state;
pub mod table;
#[cfg(test)]
mod testing;
pub mod utxo;
pub mod utxo_pruner;
pub mod wire;

#[cfg(feature = "bench")]
pub mod bench;

use access::{admin, auditor, exporter, operator, producer, remover, reverter, uploader};
use candid::candid_method;
use config::Settings as _;
use coppice_interface::*;
use ic_cdk::{init, inspect_message, post_upgrade, query, update};
use meter::{Hot, count, counted};
use runtime::time_secs;
use serde_bytes::ByteBuf;
use state::{mutate, read};
use wire::Reply;

#[init]
fn init(arg: Option<CanisterArg>) {
    state::init(arg).unwrap_or_else(|why| runtime::trap(&format!("install: {why}")));
    http::certify();
    daemon::arm();
}

#[post_upgrade(decode_with = "wire::decode_canister_arg")]
fn post_upgrade(arg: Option<CanisterArg>) {
    state::upgrade(arg).unwrap_or_else(|why| runtime::trap(&format!("upgrade: {why}")));
    http::certify();
    daemon::arm();
    daemon::arm_records();
    daemon::arm_deletions();
}

/// The door: asked of each message from outside, before it costs anything.
#[inspect_message]
fn inspect() {
    access::inspect().unwrap_or_else(|why| runtime::trap(&why));
    runtime::accept_message();
}

#[candid_method(update)]
#[update(guard = "producer", manual_reply = true, hidden = true, decode_with = "wire::arg")]
fn append_block(block: AppendBlock) -> Reply<Result<(), AppendError>> {
    daemon::on_call();
    let appended = mutate(|state| {
        let admission = state.admission();
        state.chain.append(&mut state.blobs, &block, &admission, time_secs())
    });
    count(Hot::AppendBlock, runtime::instructions());
    wire::reply(appended)
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn begin_block(block: BeginBlock) -> Result<UploadProgress, AppendError> {
    daemon::on_call();
    let begun = mutate(|state| {
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &block, &admission, time_secs())
    });
    daemon::arm_uploads();
    begun
}

#[candid_method(update)]
#[update(guard = "uploader", hidden = true, decode_with = "wire::arg")]
fn put_block_chunk(chunk: PutBlockChunk) -> Result<UploadProgress, UploadError> {
    daemon::on_call();
    counted(Hot::PutBlockChunk, || mutate(|state| state.put_chunk(&chunk)))
}

#[candid_method(update)]
#[update(guard = "uploader", hidden = true, decode_with = "wire::arg")]
fn commit_block(block: BlockId) -> Result<Commit, UploadError> {
    daemon::on_call();
    counted(Hot::CommitBlock, || mutate(|state| state.commit_upload(&block)))
}

#[candid_method(update)]
#[update(guard = "uploader", hidden = true, decode_with = "wire::arg")]
fn abort_block(number: u64) -> Result<bool, UploadError> {
    daemon::on_call();
    let aborted = mutate(|state| state.abort_upload(number));
    daemon::arm_undo();
    aborted
}

#[candid_method(update)]
#[update(guard = "reverter", hidden = true, decode_with = "wire::arg")]
fn rollback_to(number: u64) -> Result<Rollback, RollbackError> {
    daemon::on_call();
    let rolled_back = mutate(|state| state.rollback_to(number));
    daemon::arm_undo();
    rolled_back
}

#[candid_method(update)]
#[update(guard = "admin", hidden = true, decode_with = "wire::arg")]
fn reset_chain(reset: ResetChain) -> Result<ChainReset, ResetError> {
    let done = mutate(|state| state.reset_chain(&reset));
    daemon::arm_undo();
    done
}

#[query]
fn get_upload() -> Option<OpenBlock> {
    read(|state| state.chain.upload_progress())
}

#[query]
fn get_head() -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(state.chain.state().head().ok_or(ReadError::NotFound)?))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn get_block(number: u64) -> Result<Block, ReadError> {
    read(|state| state.chain.block(&state.blobs, number))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn get_block_header(number: u64) -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(number))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn read_segment(number: u64, segment: u8, offset: u64, length: u64) -> Result<SegmentPart, ReadError> {
    read(|state| state.chain.segment(&state.blobs, number, segment, offset, length))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn get_receipt(id: ByteBuf) -> Result<Receipt, ReadError> {
    read(|state| state.chain.receipt(&state.blobs, &id))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn get_transaction_location(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    read(|state| state.chain.location(&state.blobs, &id))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32) -> Result<KeyPage, KeyError> {
    read(|state| state.chain.find_by_key(&state.blobs, &key, cursor.as_ref(), limit))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn get_block_storage(number: u64) -> Result<BlockStorage, ReadError> {
    read(|state| state.chain.storage(number))
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn register_exporter(exporter: Exporter) -> Result<(), ExporterError> {
    mutate(|state| state.register_exporter(&exporter))
}

#[candid_method(update)]
#[update(guard = "remover", hidden = true, decode_with = "wire::arg")]
fn remove_exporter(which: RemoveExporter) -> Result<(), ExporterError> {
    daemon::arm_work();
    mutate(|state| state.remove_exporter(&which))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn export_blocks(cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
    counted(Hot::ExportBlocks, || read(|state| export::page(&state.chain, &state.blobs, cursor, max_bytes)))
}

#[candid_method(update)]
#[update(guard = "exporter", hidden = true, decode_with = "wire::args")]
fn ack_exported(number: u64, hash: ByteBuf) -> Result<u64, AckError> {
    daemon::arm_work();
    counted(Hot::AckExported, || {
        mutate(|state| state.exporters.acknowledge(&state.chain, runtime::caller(), number, &hash))
    })
}

#[query]
fn get_export_status() -> ExportStatus {
    read(|state| state.exporters.status(&state.chain, state.config.require_export))
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn set_prune_policy(change: PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
    let done = mutate(|state| state.set_prune_policy(&change))?;
    daemon::arm_work();
    Ok(done)
}

#[query]
fn get_prune_policy() -> Option<PrunePolicy> {
    read(|state| state.pruner.policy().cloned())
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn set_pruning_enabled(enabled: bool) -> Result<(), PruneError> {
    daemon::arm_work();
    mutate(|state| state.set_pruning_enabled(enabled))
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn prune_now(max_ops: u64) -> Result<PruneRun, PruneError> {
    daemon::arm_work();
    mutate(|state| state.prune_now(max_ops))
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn acknowledge_faults(up_to: u64) -> u64 {
    daemon::arm_work();
    mutate(|state| state.acknowledge_faults(up_to))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn plan_prune(change: Option<PrunePolicyArg>) -> Result<PrunePlan, PruneError> {
    read(|state| {
        let change = change.as_ref().map(|change| (change, state.config.class()));
        state.pruner.plan(&state.chain, &state.blobs, &state.constraints(), change)
    })
}

#[query]
fn get_prune_status() -> PruneStatus {
    read(|state| state.pruner.status(&state.chain, &state.blobs, &state.constraints()))
}

#[query]
fn get_config() -> Config {
    read(|state| state.config.clone())
}

#[candid_method(update)]
#[update(guard = "admin", hidden = true, decode_with = "wire::arg")]
fn set_config(change: ConfigChange) -> Result<Config, ConfigError> {
    // The export guard and the uploads' expiry are settings, too.
    daemon::arm_work();
    mutate(|state| state.set_config("set_config", &change)).inspect(|_| daemon::watch_cycles())
}

#[candid_method(update)]
#[update(guard = "admin", hidden = true, decode_with = "wire::arg")]
fn grant_role(grant: Grant) -> Result<(), RoleError> {
    mutate(|state| state.grant_role(grant))
}

#[candid_method(update)]
#[update(guard = "admin", hidden = true, decode_with = "wire::arg")]
fn revoke_role(grant: Grant) -> Result<bool, RoleError> {
    mutate(|state| state.revoke_role(&grant))
}

#[query]
fn list_roles() -> Vec<Grant> {
    read(|state| state.roles.list())
}

#[candid_method(query)]
#[query(guard = "auditor", hidden = true, decode_with = "wire::args")]
fn get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage {
    read(|state| state.audit.page(cursor, limit))
}

#[query]
fn get_storage_status() -> StorageStatus {
    read(state::State::storage)
}

#[query]
fn health() -> Health {
    read(state::State::health)
}

/// The interface, as a custom section of the wasm that anyone may read.
#[cfg(target_family = "wasm")]
#[used]
#[unsafe(link_section = "icp:public candid:service")]
static CANDID_SERVICE: [u8; CANDID.len()] = *CANDID;
#[cfg(target_family = "wasm")]
const CANDID: &[u8; include_bytes!("../../candid/coppice.did").len()] = include_bytes!("../../candid/coppice.did");

// The endpoints of the bench are no part of the interface.
#[cfg(all(test, not(feature = "bench")))]
candid::export_service!();

#[cfg(all(test, not(feature = "bench")))]
mod tests {
    use candid_parser::utils::{CandidSource, service_equal};

    /// The committed interface is the code's. Run with `COPPICE_WRITE_CANDID=1` to write it anew.
    #[test]
    fn the_candid_file_is_the_interface() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../candid/coppice.did");
        let code = super::__export_service();
        if std::env::var_os("COPPICE_WRITE_CANDID").is_some() {
            std::fs::write(path, &code).unwrap();
        }
        let file = std::fs::read_to_string(path).unwrap();
        service_equal(CandidSource::Text(&code), CandidSource::Text(&file)).unwrap();
    }
}
