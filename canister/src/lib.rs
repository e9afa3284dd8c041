//! Coppice: an Internet Computer canister that keeps a chain's blocks, receipts and index in stable memory, and prunes
//! them for ever without growing.
//!
//! This file is the Candid interface and nothing else: each endpoint asks its guard, calls one store, and answers. Data
//! flows one way, endpoint → store → blob; the pruner reaches the stores through one small trait.

pub mod access;
pub mod audit;
pub mod blob;
pub mod buckets;
pub mod chain;
pub mod config;
pub mod cycles;
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
pub mod sampling;
pub mod slots;
pub mod state;
pub mod table;
pub mod tally;
#[cfg(test)]
mod testing;
pub mod text;
pub mod utxo;
pub mod utxo_pruner;
pub mod wire;

#[cfg(feature = "bench")]
pub mod bench;

use access::{admin, auditor, block_producer, exporter, guardian, operator, reverter, uploader};
use candid::candid_method;
use config::Settings as _;
use coppice_interface::*;
use ic_cdk::{init, inspect_message, post_upgrade, query, update};
use meter::{Hot, counted};
use runtime::time_secs;
use serde_bytes::ByteBuf;
use state::{mutate, read};

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

/// Appends a block in one message; a producer's. The argument has two megabytes at most. A block of more than 12,500
/// transactions and keys, or 100,000 while the index is small, answers `TooLarge`: larger blocks go through
/// `begin_block`. An empty hash answers `BadEncoding`. Appending the same block again answers `Ok` and changes nothing,
/// so a caller may repeat it when an answer was lost.
#[candid_method(update)]
#[update(guard = "block_producer", hidden = true, decode_with = "wire::known_arg", encode_with = "wire::answer")]
fn append_block(block: AppendBlock) -> Result<(), AppendError> {
    daemon::on_call();
    counted(Hot::AppendBlock, || {
        mutate(|state| {
            let admission = state.admission();
            state.chain.append(&mut state.blobs, &block, &admission, time_secs())
        })
        .inspect_err(tally::refused)
    })
}

/// Begins the upload of a block that is larger than a message; a producer's. One upload is open at a time; the block
/// has 256 MiB at most, 16,384 chunks, and 100,000 transactions and keys. Beginning the same upload again answers its
/// progress; of a block that is kept already, that nothing is missing. A `chunk_size` of 0 and an empty hash answer
/// `BadEncoding`.
#[candid_method(update)]
#[update(
    guard = "block_producer",
    guard = "wire::readable::<(BeginBlock,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn begin_block(block: BeginBlock) -> Result<UploadProgress, AppendError> {
    daemon::on_call();
    let begun = mutate(|state| {
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &block, &admission, time_secs())
    })
    .inspect_err(tally::refused);
    daemon::arm_uploads();
    begun
}

/// Stores a chunk of the open upload; for the producer that began it, or an operator. Chunks come in any order. The
/// same chunk again answers `Ok`; other bytes under the same number are refused.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(PutBlockChunk,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn put_block_chunk(chunk: PutBlockChunk) -> Result<UploadProgress, UploadError> {
    daemon::on_call();
    counted(Hot::PutBlockChunk, || mutate(|state| state.put_chunk(&chunk)))
}

/// Makes the uploaded block the head, over as many calls as that takes; for the producer that began the upload, or an
/// operator. `HasMore` asks for the same call again. Of a block that is kept already the answer is `Done`.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(BlockId,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn commit_block(block: BlockId) -> Result<Commit, UploadError> {
    daemon::on_call();
    counted(Hot::CommitBlock, || mutate(|state| state.commit_upload(&block)).inspect_err(tally::refused_upload))
}

/// Gives up the open upload of the block with this number, and says whether there was one; for the producer that began
/// it, or an operator. What was entered of the block is taken out a slice a call, or by ticks: until then a repeated
/// call answers `true`, and after that `false`.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn abort_block(number: u64) -> Result<bool, UploadError> {
    daemon::on_call();
    let aborted = mutate(|state| state.abort_upload(number));
    daemon::arm_undo();
    aborted
}

/// Makes the block with this number the head, for a reorg. A producer may go as deep as `max_rollback_blocks`, an admin
/// to the oldest kept block. One call does a bounded part: while `has_more`, the caller repeats it or lets ticks go on.
/// Nobody may append meanwhile: ticks may bring the rollback to its end between two calls, and a repeated call takes
/// out what was appended since. Rolling back to the head changes nothing.
#[candid_method(update)]
#[update(
    guard = "reverter",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn rollback_to(number: u64) -> Result<Rollback, RollbackError> {
    daemon::on_call();
    let rolled_back = mutate(|state| state.rollback_to(number));
    daemon::arm_undo();
    rolled_back
}

/// Empties the chain, which may then begin again with any number; an admin's. It asks for the hash of the head, and for
/// `drop_unexported` where an exporter has not acknowledged all blocks. Ticks clear what was kept; until then appends
/// answer `ResetUnderway`. A second call finds the chain empty and answers `Empty`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(ResetChain,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn reset_chain(reset: ResetChain) -> Result<ChainReset, ResetError> {
    let done = mutate(|state| state.reset_chain(&reset));
    daemon::arm_undo();
    done
}

/// The block upload that is open, if one is; for anyone.
#[query]
fn get_upload() -> Option<OpenBlock> {
    read(|state| state.chain.upload_progress())
}

/// The header of the newest block; for anyone. `NotFound` where there is no block yet.
#[query]
fn get_head() -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(state.chain.state().head().ok_or(ReadError::NotFound)?))
}

/// A whole kept block; for anyone. One that is longer than a reply answers `TooLarge`: `read_segment` gives it in parts.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
fn get_block(number: u64) -> Result<Block, ReadError> {
    read(|state| state.chain.block(&state.blobs, number))
}

/// The header of a kept block; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
fn get_block_header(number: u64) -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(number))
}

/// The headers of kept blocks, the oldest first, from block `from` to block `to`, both included; for anyone. A page has
/// at most 1,000 headers and less than 1 MiB; `next` continues it. The page ends at the head if `to` is above the head,
/// and is empty if `from` is above `to`. Otherwise the block `from` answers as in `get_block_header`: `NotFound` above
/// the head and on an empty chain, `Pruned`, or `Corrupt`. A later block that is damaged ends the page before it, and
/// is its `next`.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64, u64,)>", hidden = true, decode_with = "wire::args")]
fn get_block_headers(from: u64, to: u64) -> Result<HeaderPage, ReadError> {
    read(|state| state.chain.headers(from, to))
}

/// Bytes of a segment of a kept block: 0 body, 1 receipts, 2 index; for anyone. The answer has as many of the `length`
/// bytes from `offset` on as there are and as a reply holds, some 2,000,000; a length of 0 asks for none, and learns how
/// long the segment is.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64, u8, u64, u64,)>", hidden = true, decode_with = "wire::args")]
fn read_segment(number: u64, segment: u8, offset: u64, length: u64) -> Result<SegmentPart, ReadError> {
    read(|state| state.chain.segment(&state.blobs, number, segment, offset, length))
}

/// The receipt of the newest kept transaction with this id; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf,)>", hidden = true, decode_with = "wire::arg")]
fn get_receipt(id: ByteBuf) -> Result<Receipt, ReadError> {
    read(|state| state.chain.receipt(&state.blobs, &id))
}

/// Where the newest kept transaction with this id is; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf,)>", hidden = true, decode_with = "wire::arg")]
fn get_transaction_location(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    read(|state| state.chain.location(&state.blobs, &id))
}

/// Transactions that have a secondary key, the newest first; for anyone. A page has `limit` transactions at most; 0 and
/// more than 1,000: 1,000. A page may have fewer, even none, and a cursor: there is more while there is a cursor.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf, Option<KeyCursor>, u32,)>", hidden = true, decode_with = "wire::args")]
fn find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32) -> Result<KeyPage, KeyError> {
    read(|state| state.chain.find_by_key(&state.blobs, &key, cursor.as_ref(), limit))
}

/// Where the payload of a kept block lies in stable memory; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
fn get_block_storage(number: u64) -> Result<BlockStorage, ReadError> {
    read(|state| state.chain.storage(number))
}

/// Registers an exporter and gives it the role `Exporter`; an operator's or an admin's. Nothing is pruned from then on that
/// the exporter has not acknowledged. There are 100 exporters at most. Registering the same name with the same principal
/// again changes nothing. Under a name whose key was revoked only an admin registers a principal, which goes on at the
/// name's bound.
#[candid_method(update)]
#[update(
    guard = "guardian",
    guard = "wire::readable::<(Exporter,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn register_exporter(exporter: Exporter) -> Result<(), ExporterError> {
    mutate(|state| state.register_exporter(&exporter))
}

/// Takes an exporter and its role out; an admin's. The last exporter takes `drop_guard` as well. A second call answers
/// `Unknown`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(RemoveExporter,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn remove_exporter(which: RemoveExporter) -> Result<(), ExporterError> {
    daemon::arm_work();
    mutate(|state| state.remove_exporter(&which))
}

/// Blocks in order, in chunks, from the cursor on, or from the oldest kept block where there is none; for anyone. A page
/// has `max_bytes` of payload at most; 0: as many as a reply holds. Asking again with the same cursor is safe.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<ExportCursor>, u64,)>", hidden = true, decode_with = "wire::args")]
fn export_blocks(cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
    counted(Hot::ExportBlocks, || read(|state| export::page(&state.chain, &state.blobs, cursor, max_bytes)))
}

/// Acknowledges all blocks up to the one with this number and hash: they may be pruned; for a registered exporter. Answers
/// the number below which all blocks are acknowledged, which a lower or a repeated acknowledgement leaves as it is.
#[candid_method(update)]
#[update(
    guard = "exporter",
    guard = "wire::readable::<(u64, BlockHash,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
fn ack_exported(number: u64, hash: BlockHash) -> Result<u64, AckError> {
    let acknowledged = counted(Hot::AckExported, || {
        mutate(|state| state.exporters.acknowledge(&state.chain, runtime::caller(), number, &hash))
    });
    daemon::on_ack();
    acknowledged
}

/// How far all exporters are, and what they guard; for anyone.
#[query]
fn get_export_status() -> ExportStatus {
    read(|state| state.exporters.status(&state.chain, state.config.require_export))
}

/// Changes the policy by which blocks are pruned; an operator's. What is left out stays. A first policy switches pruning
/// on. The same change again changes nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(PrunePolicyArg,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_prune_policy(change: PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
    let done = mutate(|state| state.set_prune_policy(&change))?;
    daemon::arm_work();
    Ok(done)
}

/// The policy in force; none where none was set. For anyone.
#[query]
fn get_prune_policy() -> Option<PrunePolicy> {
    read(|state| state.pruner.policy().cloned())
}

/// Lets the timer prune blocks, or stops it; an operator's. It asks for a policy. Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(bool,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_pruning_enabled(enabled: bool) -> Result<(), PruneError> {
    daemon::arm_work();
    mutate(|state| state.set_pruning_enabled(enabled))
}

/// One bounded run by hand, also where pruning is disabled, never past what exporters have not acknowledged; an operator's.
/// It does `max_ops` at most, and 15,000; 0 is refused. Calling again goes on with what is left.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn prune_now(max_ops: u64) -> Result<PruneRun, PruneError> {
    daemon::arm_work();
    mutate(|state| state.prune_now(max_ops))
}

/// Notes that an operator has seen the first `up_to` faults, and has what was set aside tried again where these are all; an
/// operator's. Answers how many are acknowledged; 0 changes nothing, and so does a repeated call.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn acknowledge_faults(up_to: u64) -> u64 {
    daemon::arm_work();
    mutate(|state| state.acknowledge_faults(up_to))
}

/// What the next run would do, why, and what holds it back, under the policy in force, or with these changes of it; for
/// anyone. Nothing is pruned.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<PrunePolicyArg>,)>", hidden = true, decode_with = "wire::arg")]
fn plan_prune(change: Option<PrunePolicyArg>) -> Result<PrunePlan, PruneError> {
    read(|state| {
        let change = change.as_ref().map(|change| (change, state.config.class()));
        state.pruner.plan(&state.chain, &state.blobs, &state.constraints(), change)
    })
}

/// Everything that an operator needs to see of the pruning of blocks; for anyone.
#[query]
fn get_prune_status() -> PruneStatus {
    read(|state| state.pruner.status(&state.chain, &state.blobs, &state.constraints()))
}

/// The settings in force; for anyone.
#[query]
fn get_config() -> Config {
    read(|state| state.config.clone())
}

/// Changes settings; an admin's. What is left out stays; repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(ConfigChange,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_config(change: ConfigChange) -> Result<Config, ConfigError> {
    // The export guard and the uploads' expiry are settings, too.
    daemon::arm_work();
    mutate(|state| state.set_config("set_config", &change)).inspect(|_| daemon::watch_cycles())
}

/// Grants a role; an admin's. 256 grants at most. A role that is granted already stays granted.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(Grant,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn grant_role(grant: Grant) -> Result<(), RoleError> {
    mutate(|state| state.grant_role(grant))
}

/// Takes a role back, and says whether it was granted; an admin's. The name and the bound of a registered exporter stay,
/// without a key, and hold pruning; the leases of a blob worker end. A repeated call answers `false`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(Grant,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn revoke_role(grant: Grant) -> bool {
    let revoked = mutate(|state| state.revoke_role(&grant));
    daemon::arm_deletions();
    revoked
}

/// All roles that were granted; for anyone. Controllers are operators and admins besides.
#[query]
fn list_roles() -> Vec<Grant> {
    read(|state| state.roles.list())
}

/// Calls by which operators and admins changed something, or tried to, the newest first, from before the entry with the
/// number `cursor`; for observers, operators and admins. A page has `limit` entries at most, and 250; 0: 100.
#[candid_method(query)]
#[query(guard = "auditor", guard = "wire::readable::<(Option<u64>, u32,)>", hidden = true, decode_with = "wire::args")]
fn get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage {
    read(|state| state.audit.page(cursor, limit))
}

/// Where the bytes of stable memory are; for anyone.
#[query]
fn get_storage_status() -> StorageStatus {
    read(state::State::storage)
}

/// Whether all is well, and what is not; for anyone.
#[query]
fn health() -> Health {
    read(health::health)
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

    /// The interface is written by hand, and is the code's. What the code's is, this says where they differ.
    #[test]
    fn the_candid_file_is_the_interface() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../candid/coppice.did");
        let code = super::__export_service();
        let file = std::fs::read_to_string(path).unwrap();
        let compare = |file: &str| service_equal(CandidSource::Text(&code), CandidSource::Text(file));
        if let Err(why) = compare(&file) {
            panic!("{why}\n\n{code}");
        }
        // The comparison sees another type, a field that is gone, and another kind of call.
        for (from, to) in [
            ("  timestamp : nat64;", "  timestamp : nat32;"),
            ("  keys : nat32;\n", ""),
            ("  health : () -> (Health) query;", "  health : () -> (Health);"),
        ] {
            assert!(file.contains(from), "nothing to plant in: {from}");
            assert!(compare(&file.replacen(from, to, 1)).is_err(), "{from}");
        }
    }
}
