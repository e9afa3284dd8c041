//! Endpoints for UTXO records (`docs/design/records.md`).

use super::{arming, arming_work};
use crate::operation::daemon;
use crate::platform::meter::{Hot, counted};
use crate::platform::{self, cycles};
use crate::state::records::AtHeight;
use crate::state::{State, mutate, read};
use ic_coppice_interface::*;
use ic_coppice_records::apply::in_blocks;
use ic_coppice_records::external::Records;
use ic_coppice_records::external::create::create;
use ic_coppice_records::utxo::{Ahead, Chained, Conflicting, Mined, UtxoStore};

/// Runs a change of records.
fn change<T>(height: u32, run: impl FnOnce(AtHeight) -> T) -> T {
    mutate(|state| run(state.records_at(height)))
}

pub fn utxo_create(arg: UtxoCreateBatch) -> Batch<Result<UtxoCreated, UtxoCreateError>> {
    counted(Hot::UtxoCreate, || {
        let missing = cycles::missing_to_feed();
        change(arg.height, |AtHeight { chain, records: Records { utxo, blobs, deletions, .. }, call }| {
            let mut batch = Ahead::new(&arg.items);
            utxo.batch(&arg.items, |store, item| {
                if let Some(missing) = missing {
                    return Err(UtxoCreateError::NoMemory(NoMemory::LowCycles { missing }));
                }
                create(store, (chain, blobs), deletions, item, &mut batch, &call).map_err(UtxoCreateError::from)
            })
        })
    })
}

pub fn utxo_spend(arg: UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>> {
    counted(Hot::UtxoSpend, || change(arg.height, |at| at.batch(&arg.items, UtxoStore::spend)))
}

pub fn utxo_unspend(arg: UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>> {
    change(arg.height, |at| at.records.utxo.unspend_batch(&arg.items, &at.call))
}

pub fn utxo_set_mined(arg: UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>> {
    counted(Hot::UtxoSetMined, || {
        let items: Vec<Mined> = arg.items.iter().map(|item| Mined(item, arg.unset)).collect();
        change(arg.height, |AtHeight { chain, records: Records { utxo, blobs, .. }, call }| {
            utxo.batch(&items, |store, item| {
                store.set_mined(&arg, item.0, &call, (blobs, in_blocks(chain))).map_err(UtxoError::from)
            })
        })
    })
}

pub fn utxo_set_on_longest_chain(arg: UtxoSetOnLongestChainBatch) -> Batch<Result<(), UtxoError>> {
    let items: Vec<Chained> = arg.txids.iter().map(|txid| Chained(txid, !arg.on_longest_chain)).collect();
    change(arg.height, |AtHeight { chain, records: Records { utxo, blobs, .. }, call }| {
        utxo.batch(&items, |store, item| {
            let kept = (&mut *blobs, in_blocks(chain));
            store.set_on_longest_chain(item.0, arg.on_longest_chain, &call, kept).map_err(UtxoError::from)
        })
    })
}

pub fn utxo_set_locked(arg: UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>> {
    change(arg.height, |at| at.batch(&arg.txids, |store, txid, call| store.set_locked(txid, arg.locked, call)))
}

pub fn utxo_freeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    change(arg.height, |at| at.batch(&arg.items, |store, item, call| store.set_frozen(item, true, call)))
}

pub fn utxo_unfreeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    change(arg.height, |at| at.batch(&arg.items, |store, item, call| store.set_frozen(item, false, call)))
}

pub fn utxo_reassign(arg: UtxoReassignBatch) -> Batch<Result<u32, UtxoError>> {
    change(arg.height, |at| at.batch(&arg.items, UtxoStore::reassign))
}

pub fn utxo_set_conflicting(arg: UtxoSetConflictingBatch) -> Batch<Result<Conflict, UtxoError>> {
    let items: Vec<Conflicting> = arg.txids.into_iter().map(Conflicting).collect();
    change(arg.height, |at| at.batch(&items, |store, item, call| store.set_conflicting(&item.0, call)))
}

pub fn utxo_process_conflicting(arg: UtxoProcessConflicting) -> Result<ConflictResolution, ConflictError> {
    change(arg.height, |at| at.records.utxo.process_conflicting(&arg, &at.call))
}

pub fn utxo_preserve(arg: UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>> {
    change(0, |at| at.batch(&arg.txids, |store, txid, _| store.preserve(txid, arg.until_height)))
}

pub fn utxo_begin_transaction(arg: BeginTransaction) -> Result<UploadProgress, TransactionUploadError> {
    let (by, now) = (platform::caller(), platform::time_secs());
    arming(|state| {
        let Records { utxo, blobs, settings, .. } = state.records_at(0).records;
        utxo.begin_upload(blobs, &arg, settings, by, now)
    })
}

pub fn utxo_put_transaction_chunk(arg: PutTransactionChunk) -> Result<UploadProgress, TransactionUploadError> {
    let (by, now) = (platform::caller(), platform::time_secs());
    mutate(|state| state.records.utxo.uploads.put(&mut state.blobs, &arg, by, now))
}

pub fn utxo_abort_transaction(txid: Txid) -> Result<bool, TransactionUploadError> {
    mutate(|state| state.records.utxo.uploads.abort(&mut state.blobs, &txid, platform::caller()))
}

pub fn utxo_apply_block(arg: UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
    mutate(|state| {
        let applied = state.apply_block(&arg);
        daemon::arm(state);
        daemon::on_ack(state);
        applied
    })
}

pub fn utxo_stop_applying() -> Option<UtxoApplyPosition> {
    arming_work(State::stop_applying)
}

pub fn utxo_get(arg: UtxoGet) -> Result<UtxoRecord, UtxoError> {
    read(|state| state.records.utxo.get(&arg).map_err(UtxoError::from))
}

pub fn utxo_get_transaction(arg: UtxoGetPart) -> Result<TransactionPart, UtxoError> {
    read(|state| state.records.utxo.transaction(&state.blobs, &arg, in_blocks(&state.chain)).map_err(UtxoError::from))
}

pub fn utxo_get_spend(arg: UtxoGetSpend) -> Result<Vec<UtxoSpendState>, UtxoError> {
    read(|state| {
        let most = state.records.pruner.most_height();
        state.records.utxo.spend_states(&arg.outpoints, arg.height, most).map_err(UtxoError::from)
    })
}

pub fn utxo_list_unmined(cursor: Option<UnminedCursor>, limit: u32) -> Result<UnminedPage, UtxoError> {
    read(|state| state.records.utxo.unmined(cursor.as_ref(), limit).map_err(UtxoError::from))
}
