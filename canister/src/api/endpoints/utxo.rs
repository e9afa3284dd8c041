//! UTXO records (`docs/design.md` 6).

use crate::api::access::{alert, utxo_feeder};
use crate::api::wire;
use crate::external::Records;
use crate::external::create::create;
use crate::operation::daemon;
use crate::platform::meter::{Hot, counted};
use crate::platform::{self, cycles};

use crate::state::{mutate, read};
use crate::utxo::{Conflicting, LastUnspent, UtxoStore};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};

/// Creates records of transactions; a feeder's. The batch goes as far as one message does, and its items are independent
/// of each other. A record that is there already answers `TxExists`, which is how a repeated call shows. Below
/// `feed_min_liquid_cycles` each item answers `LowCycles`.
#[candid_method(update)]
#[update(guard = "utxo_feeder", hidden = true, decode_with = "wire::known_arg", encode_with = "wire::answer")]
fn utxo_create(arg: UtxoCreateBatch) -> Batch<Result<UtxoCreated, UtxoCreateError>> {
    counted(Hot::UtxoCreate, || {
        let missing = cycles::missing_to_feed();
        mutate(|state| {
            let (Records { utxo, blobs, deletions, .. }, call) = state.records_at(arg.height);
            utxo.batch(&arg.items, call.settings, |store, item| {
                if let Some(missing) = missing {
                    return Err(UtxoCreateError::LowCycles { missing });
                }
                create(store, blobs, deletions, item, &call).map_err(UtxoCreateError::from)
            })
        })
    })
}

/// Spends outputs, each transaction's all or none; a feeder's. The batch goes as far as one message does. Spending
/// again with the same spender answers `Ok` and counts nothing, but is refused where since then the output was frozen,
/// its transaction was locked or marked as conflicting, or its record or the spender's was pruned.
#[candid_method(update)]
#[update(guard = "utxo_feeder", hidden = true, decode_with = "wire::known_arg", encode_with = "wire::answer")]
fn utxo_spend(arg: UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>> {
    counted(Hot::UtxoSpend, || mutate(|state| state.batch(arg.height, &arg.items, UtxoStore::spend)))
}

/// Takes spends back; a feeder's. The batch goes as far as one message does. Answers whether the named spender held the
/// output: a repeated call answers `false`.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoUnspendBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_unspend(arg: UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>> {
    mutate(|state| {
        let (Records { utxo, .. }, call) = state.records_at(arg.height);
        let mut last = LastUnspent::default();
        let done = utxo.batch(&arg.items, call.settings, |store, item| {
            store.unspend(item, &call, &mut last).map_err(UtxoError::from)
        });
        utxo.unspent(&call, &mut last);
        done
    })
}

/// Notes that a block has transactions, or has them no more; a feeder's. The batch goes as far as one message does.
/// Answers the ids of the blocks that have the transaction now; repeating the call changes nothing.
#[candid_method(update)]
#[update(guard = "utxo_feeder", hidden = true, decode_with = "wire::known_arg", encode_with = "wire::answer")]
fn utxo_set_mined(arg: UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>> {
    counted(Hot::UtxoSetMined, || {
        mutate(|state| state.batch(arg.height, &arg.items, |store, item, call| store.set_mined(&arg, item, call)))
    })
}

/// Notes whether the blocks of transactions are on the longest chain; a feeder's. The batch goes as far as one message
/// does; repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoSetOnLongestChainBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_set_on_longest_chain(arg: UtxoSetOnLongestChainBatch) -> Batch<Result<(), UtxoError>> {
    mutate(|state| {
        state.batch(arg.height, &arg.txids, |store, txid, call| {
            store.set_on_longest_chain(txid, arg.on_longest_chain, call)
        })
    })
}

/// Locks transactions, whose outputs cannot be spent then, or unlocks them; a feeder's. The batch goes as far as one
/// message does; repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoSetLockedBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_set_locked(arg: UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>> {
    mutate(|state| state.batch(arg.height, &arg.txids, |store, txid, call| store.set_locked(txid, arg.locked, call)))
}

/// Freezes outputs, or all outputs of a transaction; for the role `Alert`. The batch goes as far as one message does.
/// Answers how many were frozen; what is frozen already answers `AlreadyFrozen`.
#[candid_method(update)]
#[update(
    guard = "alert",
    guard = "wire::readable::<(UtxoFreezeBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_freeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    mutate(|state| state.batch(arg.height, &arg.items, |store, item, call| store.set_frozen(item, true, call)))
}

/// Unfreezes outputs, or all outputs of a transaction; for the role `Alert`. The batch goes as far as one message does.
/// Answers how many were unfrozen; what is not frozen answers `UtxoNotFrozen`.
#[candid_method(update)]
#[update(
    guard = "alert",
    guard = "wire::readable::<(UtxoFreezeBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_unfreeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>> {
    mutate(|state| state.batch(arg.height, &arg.items, |store, item, call| store.set_frozen(item, false, call)))
}

/// Gives frozen outputs a new owner; for the role `Alert`. The batch goes as far as one message does. Answers the height from
/// which the output is spendable; until then a spend answers `FrozenUntil`. With the output's own hash as the new one, the owner
/// stays: so an output is frozen until a height. A repeated call answers `UtxoHashMismatch`, as the output has its new hash, or
/// `UtxoNotFrozen`, where that is the old one.
#[candid_method(update)]
#[update(
    guard = "alert",
    guard = "wire::readable::<(UtxoReassignBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_reassign(arg: UtxoReassignBatch) -> Batch<Result<u32, UtxoError>> {
    mutate(|state| state.batch(arg.height, &arg.items, UtxoStore::reassign))
}

/// Marks transactions as double spends, with all that spends from them; a feeder's. The batch goes as far as one message
/// does, and so does an item: it is repeated while it has more. Repeating one that is done marks nothing and answers what
/// the named transaction holds.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoSetConflictingBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_set_conflicting(arg: UtxoSetConflictingBatch) -> Batch<Result<Conflict, UtxoError>> {
    let items: Vec<Conflicting> = arg.txids.into_iter().map(Conflicting).collect();
    mutate(|state| state.batch(arg.height, &items, |store, item, call| store.set_conflicting(&item.0, call)))
}

/// Has conflicting transactions win over those that they conflict with, all of them or none; a feeder's. The call goes as
/// far as one message does, and is repeated while it has more. One that is done answers `NotConflicting`, as the winners are
/// conflicting no more. Transactions of which losers held outputs are unlocked, whoever locked them.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoProcessConflicting,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_process_conflicting(arg: UtxoProcessConflicting) -> Result<ConflictResolution, ConflictError> {
    mutate(|state| {
        let (Records { utxo, .. }, call) = state.records_at(arg.height);
        utxo.process_conflicting(&arg, &call)
    })
}

/// Keeps records from being pruned until a height; a feeder's. The batch goes as far as one message does. Answers whether
/// there is such a record; repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoPreserveBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_preserve(arg: UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>> {
    mutate(|state| state.batch(0, &arg.txids, |store, txid, _| store.preserve(txid, arg.until)))
}

/// Begins the upload of a transaction that is longer than a message, 32 MiB at most; a feeder's, who has one open, as
/// 64 feeders may at a time. The same upload begun again answers its progress. `utxo_create` with `Uploaded` makes
/// the record.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(BeginTransaction,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_begin_transaction(arg: BeginTransaction) -> Result<UploadProgress, TransactionUploadError> {
    let (by, now) = (platform::caller(), platform::time_secs());
    mutate(|state| {
        let begun = state.utxo.begin_upload(&mut state.blobs, &arg, &state.config.utxo, by, now);
        daemon::arm_uploads(state);
        begun
    })
}

/// Stores a chunk of the caller's upload, in any order; a feeder's. The same chunk again answers `Ok`; other bytes
/// under the same number are refused.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(PutTransactionChunk,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_put_transaction_chunk(arg: PutTransactionChunk) -> Result<UploadProgress, TransactionUploadError> {
    mutate(|state| state.utxo.uploads.put(&mut state.blobs, &arg, platform::caller(), platform::time_secs()))
}

/// Gives up the caller's upload of a transaction, and says whether there was one; a feeder's. Repeating the call is safe:
/// it answers `false`.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(Txid,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn utxo_abort_transaction(txid: Txid) -> Result<bool, TransactionUploadError> {
    mutate(|state| state.utxo.uploads.abort(&mut state.blobs, &txid, platform::caller()))
}

/// Uploads of transactions that are open; for anyone.
#[query]
fn utxo_list_uploads() -> Vec<OpenTransaction> {
    read(|state| state.utxo.uploads.list(state.config.upload_expiry_secs))
}

/// A record, with as many of its outputs' entries as are asked for, 5,000 at most; for anyone. A limit of 0 asks for none.
#[candid_method(query)]
#[query(guard = "wire::readable::<(UtxoGet,)>", hidden = true, decode_with = "wire::arg")]
fn utxo_get(arg: UtxoGet) -> Result<UtxoRecord, UtxoError> {
    read(|state| state.utxo.get(&arg).map_err(UtxoError::from))
}

/// Bytes of a record's transaction, as many as are asked for and as a reply holds; for anyone. A length of 0 asks for none,
/// and learns how long the transaction is.
#[candid_method(query)]
#[query(guard = "wire::readable::<(UtxoGetPart,)>", hidden = true, decode_with = "wire::arg")]
fn utxo_get_transaction(arg: UtxoGetPart) -> Result<TransactionPart, UtxoError> {
    read(|state| state.utxo.transaction(&state.blobs, &arg).map_err(UtxoError::from))
}

/// Bytes of what a record's inputs spend, as many as are asked for and as a reply holds; for anyone. A length of 0 asks for
/// none, and learns how long they are.
#[candid_method(query)]
#[query(guard = "wire::readable::<(UtxoGetPart,)>", hidden = true, decode_with = "wire::arg")]
fn utxo_get_inpoints(arg: UtxoGetPart) -> Result<InpointsPart, UtxoError> {
    read(|state| state.utxo.inpoints(&arg).map_err(UtxoError::from))
}

/// Whether outputs can be spent at a height, and who spends them; for anyone. 5,000 outputs at most.
#[candid_method(query)]
#[query(guard = "wire::readable::<(UtxoGetSpend,)>", hidden = true, decode_with = "wire::arg")]
fn utxo_get_spend(arg: UtxoGetSpend) -> Result<Vec<UtxoSpendState>, UtxoError> {
    read(|state| {
        let most = state.utxo_pruner.most_height();
        state.utxo.spend_states(&arg.outpoints, arg.height, most).map_err(UtxoError::from)
    })
}

/// Transactions that the longest chain does not have, from the cursor on, the oldest first; for anyone. A page has `limit`
/// transactions at most; 0 and more than 2,000: 2,000. There is more while there is a cursor.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<UnminedCursor>, u32,)>", hidden = true, decode_with = "wire::args")]
fn utxo_list_unmined(cursor: Option<UnminedCursor>, limit: u32) -> Result<UnminedPage, UtxoError> {
    read(|state| state.utxo.unmined(cursor.as_ref(), limit).map_err(UtxoError::from))
}
