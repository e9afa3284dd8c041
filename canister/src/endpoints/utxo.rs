//! UTXO records (`docs/design.md` 6).

use crate::access::{alert, producer};
use crate::meter::{Hot, counted};
use crate::state::{State, mutate, read};
use crate::utxo::{Call, Item, LastUnspent, UtxoStore, Weight};
use crate::{daemon, runtime, utxo_pruner, wire};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};
use serde_bytes::ByteBuf;

/// Does something with the store at a height.
fn at<T>(
    state: &mut State,
    height: u32,
    run: impl FnOnce(&mut UtxoStore, &mut crate::blob::BlobStore, &Call) -> T,
) -> T {
    let call = Call { height, now_ns: runtime::time_ns(), settings: &state.config.utxo };
    run(&mut state.utxo, &mut state.blobs, &call)
}

/// Works through a batch.
fn batch<I: Item, T: Weight, R, E: From<R>>(
    height: u32,
    items: &[I],
    mut each: impl FnMut(&mut UtxoStore, &I, &Call) -> Result<T, R>,
) -> Batch<Result<T, E>>
where
    Result<T, E>: Weight,
{
    mutate(|state| {
        at(state, height, |store, _, call| {
            store.batch(items, call.settings, |store, item| each(store, item, call).map_err(E::from))
        })
    })
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_create(arg: UtxoCreateBatch) -> Batch<Result<UtxoCreated, UtxoCreateError>> {
    counted(Hot::UtxoCreate, || {
        mutate(|state| {
            let State { utxo, blobs, deletions, config, .. } = state;
            let call = Call { height: arg.height, now_ns: runtime::time_ns(), settings: &config.utxo };
            utxo.batch(&arg.items, call.settings, |store, item| {
                utxo_pruner::create(store, blobs, deletions, item, &call).map_err(UtxoCreateError::from)
            })
        })
    })
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_spend(arg: UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>> {
    counted(Hot::UtxoSpend, || batch(arg.height, &arg.items, |store, item, call| store.spend(item, call)))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_unspend(arg: UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>> {
    mutate(|state| {
        at(state, arg.height, |store, _, call| {
            let mut last = LastUnspent::default();
            let done = store.batch(&arg.items, call.settings, |store, item| {
                store.unspend(item, call, &mut last).map_err(UtxoError::from)
            });
            store.unspent(call, &mut last);
            done
        })
    })
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_set_mined(arg: UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>> {
    counted(Hot::UtxoSetMined, || batch(arg.height, &arg.items, |store, item, call| store.set_mined(&arg, item, call)))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_set_on_longest_chain(arg: UtxoSetOnLongestChainBatch) -> Batch<Result<(), UtxoError>> {
    batch(arg.height, &arg.txids, |store, txid, call| store.set_on_longest_chain(txid, arg.on_longest_chain, call))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_set_locked(arg: UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>> {
    batch(arg.height, &arg.txids, |store, txid, call| store.set_locked(txid, arg.locked, call))
}

#[candid_method(update)]
#[update(guard = "alert", hidden = true, decode_with = "wire::arg")]
fn utxo_freeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    batch(arg.height, &arg.items, |store, item, call| store.set_frozen(item, true, call))
}

#[candid_method(update)]
#[update(guard = "alert", hidden = true, decode_with = "wire::arg")]
fn utxo_unfreeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    batch(arg.height, &arg.items, |store, item, call| store.set_frozen(item, false, call))
}

#[candid_method(update)]
#[update(guard = "alert", hidden = true, decode_with = "wire::arg")]
fn utxo_reassign(arg: UtxoReassignBatch) -> Batch<Result<u32, UtxoError>> {
    batch(arg.height, &arg.items, |store, item, call| store.reassign(item, call))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_set_conflicting(arg: UtxoSetConflictingBatch) -> Batch<Result<Conflict, UtxoError>> {
    batch(arg.height, &arg.txids, |store, txid, call| store.set_conflicting(txid, call))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_process_conflicting(arg: UtxoProcessConflicting) -> Result<ConflictResolution, ConflictError> {
    mutate(|state| at(state, arg.height, |store, _, call| store.process_conflicting(&arg, call)))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_preserve(arg: UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>> {
    batch(0, &arg.txids, |store, txid, _| store.preserve(txid, arg.until))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_begin_transaction(arg: BeginTransaction) -> Result<UploadProgress, TransactionUploadError> {
    let (by, now) = (runtime::caller(), runtime::time_secs());
    let begun = mutate(|state| state.utxo.begin_upload(&mut state.blobs, &arg, &state.config.utxo, by, now));
    daemon::arm_uploads();
    begun
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_put_transaction_chunk(arg: PutTransactionChunk) -> Result<UploadProgress, TransactionUploadError> {
    mutate(|state| state.utxo.uploads.put(&mut state.blobs, &arg, runtime::caller(), runtime::time_secs()))
}

#[candid_method(update)]
#[update(guard = "producer", hidden = true, decode_with = "wire::arg")]
fn utxo_abort_transaction(txid: ByteBuf) -> Result<bool, TransactionUploadError> {
    mutate(|state| state.utxo.uploads.abort(&mut state.blobs, &txid, runtime::caller()))
}

#[query]
fn utxo_list_uploads() -> Vec<OpenTransaction> {
    read(|state| state.utxo.uploads.list(state.config.upload_expiry_secs))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn utxo_get(arg: UtxoGet) -> Result<UtxoRecord, UtxoError> {
    read(|state| state.utxo.get(&arg).map_err(UtxoError::from))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn utxo_get_transaction(arg: UtxoGetPart) -> Result<TransactionPart, UtxoError> {
    read(|state| state.utxo.transaction(&state.blobs, &arg).map_err(UtxoError::from))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn utxo_get_inpoints(arg: UtxoGetPart) -> Result<InpointsPart, UtxoError> {
    read(|state| state.utxo.inpoints(&arg).map_err(UtxoError::from))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn utxo_get_spend(arg: UtxoGetSpend) -> Result<Vec<UtxoSpendState>, UtxoError> {
    read(|state| state.utxo.spend_states(&arg.outpoints, arg.height).map_err(UtxoError::from))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn utxo_list_unmined(cursor: Option<UnminedCursor>, limit: u32) -> UnminedPage {
    read(|state| state.utxo.unmined(cursor.as_ref(), limit))
}
