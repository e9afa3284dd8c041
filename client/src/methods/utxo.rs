//! UTXO records. Heights are block heights, hashes in internal order.
//!
//! A batch is worked through in order as far as a message goes; the rest, `remaining`, is to be sent again. The methods that end in `_all`
//! do that.

use super::methods;
use coppice_interface::*;

methods! {
    /// Makes records. For feeders. [`utxo_create_all`](crate::Client::utxo_create_all) takes any number.
    ///
    /// Repeated, an item is refused as `TxExists`.
    update utxo_create(batch: &UtxoCreateBatch) -> Batch<Result<UtxoCreated, UtxoCreateError>>;

    /// Spends outputs, each item whole or not at all. For feeders. [`utxo_spend_all`](crate::Client::utxo_spend_all) takes any number.
    ///
    /// Repeating it is Ok and counts nothing, but is refused where the output was frozen since, its transaction locked or marked as
    /// conflicting, its record pruned, or the spender's (`InvalidSpend`).
    update utxo_spend(batch: &UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>>;

    /// Has outputs unspent that this spender holds. For feeders.
    ///
    /// Repeating it changes nothing.
    update utxo_unspend(batch: &UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>>;

    /// Says that a block has transactions, or has them no more. For feeders.
    ///
    /// Repeating it changes nothing.
    update utxo_set_mined(batch: &UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>>;

    /// Says that the longest chain has transactions, or has them no more. For feeders.
    ///
    /// Repeating it changes nothing.
    update utxo_set_on_longest_chain(batch: &UtxoSetOnLongestChainBatch) -> Batch<Result<(), UtxoError>>;

    /// Locks or unlocks transactions. For feeders.
    ///
    /// Repeating it changes nothing.
    update utxo_set_locked(batch: &UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>>;

    /// Freezes outputs. For the alert role. Answers how many.
    ///
    /// Repeated, an item is refused as `AlreadyFrozen`.
    update utxo_freeze(batch: &UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>;

    /// Unfreezes outputs. For the alert role. Answers how many.
    ///
    /// Repeated, an item is refused as `UtxoNotFrozen`.
    update utxo_unfreeze(batch: &UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>;

    /// Gives frozen outputs a new owner. For the alert role.
    ///
    /// Repeated, an item is refused, as the output has another hash or is not frozen.
    update utxo_reassign(batch: &UtxoReassignBatch) -> Batch<Result<u32, UtxoError>>;

    /// Marks transactions as double spends, with everything that spends from them. For feeders.
    ///
    /// Repeating it marks nothing more.
    update utxo_set_conflicting(batch: &UtxoSetConflictingBatch) -> Batch<Result<Conflict, UtxoError>>;

    /// Has double spends take the place of what they conflict with. For feeders. All of them or none.
    ///
    /// Repeated, it is refused as `NotConflicting`.
    update utxo_process_conflicting(winners: &UtxoProcessConflicting) -> ConflictResolution, or ConflictError;

    /// Keeps records from being deleted up to a height. For feeders.
    ///
    /// Repeating it changes nothing.
    update utxo_preserve(batch: &UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>>;

    /// Begins a transaction that no message holds. For feeders; each has one at a time.
    /// [`upload_transaction`](crate::Client::upload_transaction) does the whole.
    ///
    /// Repeating it answers how far the upload is.
    update utxo_begin_transaction(transaction: &BeginTransaction) -> UploadProgress, or TransactionUploadError;

    /// Puts a chunk of the caller's upload, in any order. For feeders.
    ///
    /// Repeating it with the same bytes changes nothing.
    update utxo_put_transaction_chunk(chunk: &PutTransactionChunk) -> UploadProgress, or TransactionUploadError;

    /// Drops the caller's upload of this transaction. For feeders. Answers whether there was one.
    ///
    /// Repeating it answers that there is none.
    update utxo_abort_transaction(txid: &Txid) -> bool, or TransactionUploadError;

    /// The uploads that are open.
    query utxo_list_uploads() -> Vec<OpenTransaction>;

    /// A record, with so many of its outputs' entries.
    query utxo_get(part: &UtxoGet) -> UtxoRecord, or UtxoError;

    /// A part of a transaction's bytes. [`whole_transaction`](crate::Client::whole_transaction) reads all.
    query utxo_get_transaction(part: &UtxoGetPart) -> TransactionPart, or UtxoError;

    /// A part of what a transaction's inputs spend.
    query utxo_get_inpoints(part: &UtxoGetPart) -> InpointsPart, or UtxoError;

    /// Whether outputs can be spent at a height.
    query utxo_get_spend(outpoints: &UtxoGetSpend) -> Vec<UtxoSpendState>, or UtxoError;

    /// Unmined transactions by age, from the cursor on: `limit` of them or, for 0, as many as a page holds.
    query utxo_list_unmined(cursor: Option<&UnminedCursor>, limit: u32) -> UnminedPage, or UtxoError;
}
