//! Test: compares the longest argument that this client encodes for each method with the table of the ingress filter.

use crate::batch::longest_batch;
use crate::completion::MAX_IDS;
use candid::types::{Type, TypeInner};
use candid::utils::ArgumentEncoder;
use candid::{CandidType, Principal, encode_args};
use ic_coppice_interface::methods::{INGRESS, Method, QUERY, TABLE};
use ic_coppice_interface::segments::MAX_KEY;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

const N32: u32 = u32::MAX;
const N64: u64 = u64::MAX;
/// Rows of a lease that one message completes.
const LEASED: usize = 2_000;
/// Winners in one message.
const WINNERS: usize = 5_000;

fn bytes(length: usize) -> ByteBuf {
    ByteBuf::from(vec![255; length])
}

fn text(length: usize) -> String {
    "x".repeat(length)
}

fn txid() -> Txid {
    Txid::from([255; 32])
}

fn output() -> UtxoHash {
    UtxoHash::from([255; 32])
}

fn hash() -> BlockHash {
    BlockHash::from([255; 32])
}

fn principal() -> Principal {
    Principal::from_slice(&[255; 29])
}

fn length(args: impl ArgumentEncoder) -> u64 {
    encode_args(args).unwrap().len() as u64
}

/// Returns the longest argument of each method whose arguments are at most half a message.
fn longest() -> BTreeMap<&'static str, u64> {
    let mut all = blocks();
    all.extend(records());
    all.extend(deletions());
    all.extend(operation());
    all
}

fn blocks() -> BTreeMap<&'static str, u64> {
    let begin = BeginBlock {
        number: N64,
        hash: hash(),
        parent_hash: hash(),
        timestamp_secs: N64,
        lengths: [N64; 3].into(),
        sha256: [bytes(32), bytes(32), bytes(32)].into(),
        chunk_size: N32,
    };
    let cursor =
        KeyCursor { block_number: N64, block_hash: hash(), position: N32, key: N32, newest: N64, rollbacks: N64 };
    let export = ExportCursor { number: N64, hash: hash(), segment: 3, offset: N64, rollbacks: N64 };
    [
        ("begin_block", length((&begin,))),
        ("commit_block", length((&BlockId { number: N64, hash: hash() },))),
        ("abort_block", length((N64,))),
        ("rollback_to", length((N64, Some(true)))),
        ("reset_chain", length((&ResetChain { head_hash: hash(), drop_unexported: true },))),
        ("get_head", length(())),
        ("get_tip_certificate", length(())),
        ("get_block", length((N64,))),
        ("get_block_headers", length((N64, N64))),
        ("read_segment", length((N64, 2u8, N64, N64))),
        ("get_receipt", length((&bytes(32),))),
        ("get_transaction_location", length((&bytes(32),))),
        ("find_by_index_key", length((&bytes(usize::from(MAX_KEY)), Some(&cursor), N32))),
        ("export_blocks", length((Some(&export), N64))),
        ("ack_exported", length((N64, &hash()))),
        ("get_export_status", length(())),
    ]
    .into()
}

fn records() -> BTreeMap<&'static str, u64> {
    let height = N32;
    let outpoint = || Outpoint { txid: txid(), vout: N32 };
    let spender = Spender { txid: txid(), vin: N32 };
    let unspend = Unspend { outpoint: outpoint(), utxo_hash: output(), spender };
    let target = FreezeTarget { txid: txid(), vout: Some(N32), utxo_hash: Some(output()) };
    let reassign = Reassign { outpoint: outpoint(), utxo_hash: output(), new_utxo_hash: output() };
    let mined = MinedTransaction { txid: txid(), subtree: N32 };
    let mined = UtxoSetMinedBatch {
        height,
        block_id: N32,
        block_height: N32,
        on_longest_chain: true,
        unset: true,
        items: longest_batch(mined),
    };
    let txids = || longest_batch(txid());
    let freeze = UtxoFreezeBatch { height, items: longest_batch(target) };
    let part = UtxoGetPart { txid: txid(), part: UtxoPart::Transaction, offset: N64, length: N64 };
    let begin = BeginTransaction { txid: txid(), length: N64, chunk_size: N32 };
    let apply = UtxoApplyBlock {
        number: N64,
        hash: hash(),
        height,
        block_id: N32,
        missing_parents: Some(MissingParents::Refuse),
        skip: Some(txid()),
        skip_rest: false,
    };
    let cursor = UnminedCursor { created_at_ns: N64, txid: txid() };
    [
        ("utxo_unspend", length((&UtxoUnspendBatch { height, items: longest_batch(unspend) },))),
        ("utxo_set_mined", length((&mined,))),
        (
            "utxo_set_on_longest_chain",
            length((&UtxoSetOnLongestChainBatch { height, on_longest_chain: true, txids: txids() },)),
        ),
        ("utxo_set_locked", length((&UtxoSetLockedBatch { height, locked: true, txids: txids() },))),
        ("utxo_freeze", length((&freeze,))),
        ("utxo_unfreeze", length((&freeze,))),
        ("utxo_reassign", length((&UtxoReassignBatch { height, items: longest_batch(reassign) },))),
        ("utxo_set_conflicting", length((&UtxoSetConflictingBatch { height, txids: txids() },))),
        ("utxo_process_conflicting", length((&UtxoProcessConflicting { height, winners: vec![txid(); WINNERS] },))),
        ("utxo_preserve", length((&UtxoPreserveBatch { until_height: height, txids: txids() },))),
        ("utxo_apply_block", length((&apply,))),
        ("utxo_stop_applying", length(())),
        ("utxo_begin_transaction", length((&begin,))),
        ("utxo_abort_transaction", length((&txid(),))),
        ("utxo_get", length((&UtxoGet { txid: txid(), first: N32, limit: N32, extra_pages_cursor: None },))),
        ("utxo_get_transaction", length((&part,))),
        // Longer arguments are sent only as queries.
        ("utxo_get_spend", QUERY),
        ("utxo_list_unmined", length((Some(&cursor), N32))),
        ("utxo_notify_block_persisted", length((N32,))),
        ("utxo_notify_block", length((N32, true))),
        ("utxo_set_block_assembly_state", length((UtxoBlockAssemblyState::NotRunning, Some(N32)))),
        ("utxo_prune", length((N32,))),
        ("utxo_set_heights", length((&UtxoSetHeights { current: N32, persisted: Some(N32), processed: N32 },))),
        ("utxo_cancel_prune_job", length((N64,))),
        ("utxo_skip_record", length((N32, true))),
        ("utxo_get_pruner_status", length(())),
        ("utxo_list_prune_jobs", length((Some(N64), N32))),
    ]
    .into()
}

fn deletions() -> BTreeMap<&'static str, u64> {
    let name = BlobName { blob_key: bytes(1_024), file_type: text(32), store_type: StoreType::PeerRegistry };
    let list = ListBlobDeletions {
        cursor: Some(N64),
        limit: N32,
        min_height: Some(N32),
        max_height: Some(N32),
        store_type: Some(StoreType::PeerRegistry),
        state: Some(BlobDeletionState::BackingOff),
    };
    let selector = BlobSelector { store_type: StoreType::PeerRegistry, file_type: Some(text(32)) };
    let selectors = vec![selector; 64];
    let lease = AcquireBlobDeletions {
        height: N32,
        limit: N32,
        lock_timeout_secs: N64,
        store_types: vec![StoreType::PeerRegistry; 8],
        request: Some(bytes(64)),
        selectors: Some(selectors.clone()),
        safety_window: Some(N32),
    };
    let ids = |count: usize| vec![N64; count];
    let unleased = CompleteBlobDeletions {
        completed_ids: ids(MAX_IDS),
        failed_ids: vec![],
        max_retries: N32,
        up_to_height: Some(N32),
    };
    let leased = CompleteBlobDeletionBatch {
        token: bytes(32),
        completed_ids: ids(LEASED),
        failed_ids: vec![],
        max_retries: N32,
        unknown_ids: Some(vec![]),
        rest: Some(BlobDeletionRest::Completed),
    };
    [
        ("schedule_blob_deletion", length((&ScheduleBlobDeletion { name: name.clone(), delete_at_height: N32 },))),
        ("cancel_blob_deletion", length((&name,))),
        ("list_blob_deletions", length((&list,))),
        ("get_pending_blob_deletions", length((N32, N32, Some(&selectors)))),
        ("complete_blob_deletions", length((&unleased,))),
        ("remove_blob_deletion", length((N64, Some(N32)))),
        ("increment_blob_deletion_retry", length((N64, N32))),
        ("acquire_blob_deletion_batch", length((&lease,))),
        ("extend_blob_deletion_batch", length((&bytes(32), N64))),
        ("complete_blob_deletion_batch", length((&leased,))),
        ("retry_blob_deletions", length((&RetryBlobDeletions::Ids(ids(MAX_IDS)),))),
        ("end_blob_deletion_leases", length((principal(),))),
        ("get_blob_deletion_status", length(())),
    ]
    .into()
}

fn operation() -> BTreeMap<&'static str, u64> {
    let exporter = Exporter { name: text(32), principal: principal() };
    let grant = Grant { principal: principal(), role: Role::BlobWorker };
    [
        ("register_exporter", length((&exporter,))),
        ("remove_exporter", length((&RemoveExporter { name: text(32), drop_guard: true },))),
        ("set_prune_policy", length_of_all::<PrunePolicyArg>()),
        ("plan_prune", length((Some(&PrunePolicyArg::default()),)) + length_of_values::<PrunePolicyArg>()),
        ("set_deletions_stopped", length((true,))),
        ("prune_now", length((N64,))),
        ("acknowledge_faults", length((N64,))),
        ("get_prune_status", length(())),
        ("utxo_set_pruner_settings", length_of_all::<UtxoPrunerSettingsChange>()),
        ("get_config", length(())),
        ("set_config", length_of_all::<ConfigChange>()),
        ("grant_role", length((&grant,))),
        ("revoke_role", length((&grant,))),
        ("list_roles", length(())),
        ("get_audit_log", length((Some(N64), N32))),
        ("get_logs", length((Some(LogPriority::Error), Some(N64), N32))),
        ("get_storage_status", length((Some(N64),))),
        ("list_uploads", length(())),
        ("health", length(())),
        // A gateway forwards the headers of a browser.
        ("http_request", QUERY),
    ]
    .into()
}

/// Returns the longest encoding of a structure of optional fields, with every field set.
fn length_of_all<T: CandidType + Default>() -> u64 {
    length((&T::default(),)) + length_of_values::<T>()
}

/// Returns how many bytes the longest values of all fields add to an encoding without values.
fn length_of_values<T: CandidType>() -> u64 {
    let TypeInner::Record(fields) = T::ty().as_ref().clone() else { panic!("a structure") };
    fields.iter().map(|field| most(&field.ty) - 1).sum()
}

/// Returns the bytes of the longest value of a type, if it has one.
fn most(ty: &Type) -> u64 {
    match ty.as_ref() {
        TypeInner::Null => 0,
        TypeInner::Bool | TypeInner::Nat8 => 1,
        TypeInner::Nat32 => 4,
        TypeInner::Nat64 => 8,
        // A u128 in LEB128.
        TypeInner::Nat => 19,
        TypeInner::Opt(inner) => 1 + most(inner),
        TypeInner::Record(fields) => fields.iter().map(|field| most(&field.ty)).sum(),
        TypeInner::Variant(fields) => 1 + fields.iter().map(|field| most(&field.ty)).max().unwrap_or(0),
        other => panic!("no longest value of {other}"),
    }
}

/// The table's limit is twice the longest argument, but at most the platform's limit, or the cost limit of a query.
#[test]
fn limit_of_each_argument_is_twice_the_longest_one_sent() {
    let longest = longest();
    let mut wrong = Vec::new();
    for &Method { name: method, is_query, largest, .. } in TABLE {
        let most = if is_query { QUERY } else { INGRESS };
        // A method without a longest argument carries payload, which may be as long as a message.
        let twice = longest.get(method).map_or(INGRESS, |longest| 2 * longest).min(most);
        // Fields of settings are added and removed, so their limits may be up to a quarter above.
        let slack = if method.starts_with("set_") || method == "plan_prune" { twice / 4 } else { 0 };
        if !(twice..=twice + slack).contains(&largest) {
            wrong.push(format!("(\"{method}\", {twice}), not {largest}"));
        }
    }
    assert!(wrong.is_empty(), "twice the longest is\n{}", wrong.join("\n"));
    let payload = TABLE.iter().map(|of| of.name).filter(|method| !longest.contains_key(method));
    let expected = [
        "append_block",
        "append_blocks",
        "append_compressed",
        "put_block_chunk",
        "utxo_create",
        "utxo_spend",
        "utxo_put_transaction_chunk",
    ];
    assert_eq!(payload.collect::<Vec<_>>(), expected);
    assert_eq!(longest.len() + expected.len(), TABLE.len(), "a method that is not there");
}
