//! Queries of UTXO records.

use super::{BlockRef, FileType, Outpoint, Spender, TransactionPlace, UtxoApplyPosition};
use crate::{Txid, UtxoHash};
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;

/// The part of a record to return.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoGet {
    /// The transaction of the record.
    pub txid: Txid,
    /// The first output whose entry is returned.
    pub first: u32,
    /// The most entries to return, at most 5,000; 0 returns none.
    pub limit: u32,
    /// The cursor of the previous answer, for more pages; `null`: pages from page 1 on.
    pub extra_pages_cursor: Option<u32>,
}

/// The record of a transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoRecord {
    /// The transaction's id.
    pub txid: Txid,
    /// Entries from output `first` on: 32 bytes unspent, 68 bytes spent or frozen, `null` if the output is not a UTXO.
    pub utxos: Vec<Option<ByteBuf>>,
    /// The output of the first entry.
    pub first: u32,
    /// The number of outputs of the transaction.
    pub total_outputs: u32,
    /// The number of outputs that are UTXOs, on all pages.
    pub total_utxos: u32,
    /// The number of outputs of a page.
    pub utxo_batch_size: u32,
    /// The number of UTXOs of the master record.
    pub record_utxos: u32,
    /// The number of UTXOs of the master record that are spent.
    pub spent_utxos: u32,
    /// The number of pages after the master record.
    pub total_extra_recs: u32,
    /// The number of pages after the master record on which every UTXO is spent.
    pub spent_extra_recs: u32,
    /// The pages after the master record, from page 1 or the cursor on, at most 1,000.
    pub extra_pages: Vec<UtxoPage>,
    /// The next page; `null` if these are the last.
    pub extra_pages_cursor: Option<u32>,
    /// Outputs that were reassigned, by ascending number.
    pub spendable_in: Vec<SpendableIn>,
    /// At least one output is frozen.
    pub frozen: bool,
    /// The outputs cannot be spent yet.
    pub locked: bool,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// The last 10,000 double spends that spend from this transaction.
    pub conflicting_children: Vec<Txid>,
    /// The height since which the longest chain has not had the transaction; `null` if it has the transaction.
    pub unmined_since: Option<u32>,
    /// The moment at which the record was created, in Unix nanoseconds.
    pub created_at_ns: u64,
    /// The height until which the record is not deleted; `null` if it is not preserved.
    pub preserve_until: Option<u32>,
    /// The height at which defensive mode, which has kept the record, checks it again; `null` if it has not kept the
    /// record.
    pub postponed_until: Option<u32>,
    /// The height at which the record may be deleted; `null` if the record is not eligible.
    pub delete_at_height: Option<u32>,
    /// The first height at which a coinbase's outputs can be spent; `null` for other transactions.
    pub spending_height: Option<u32>,
    /// The blocks that have the transaction.
    pub blocks: Vec<BlockRef>,
    /// The place of the transaction's bytes.
    pub transaction: TransactionPlace,
    /// Outputs that got a new owner, in order.
    pub reassignments: Vec<Reassignment>,
    /// Spenders of the returned entries that were deleted since, each once.
    pub deleted_children: Vec<Txid>,
    /// The transaction's fee in satoshis; `null` if unknown.
    pub fee: Option<u64>,
    /// The length of the transaction as it was given, in bytes.
    pub size_in_bytes: u64,
    /// The number of inputs; 0 for a coinbase.
    pub inputs: u32,
    /// TxInpoints: u32 LE parents ‖ their ids ‖ for each, u32 LE count ‖ u32 LE vouts. `null` if longer than 256 KiB:
    /// use `utxo_get_transaction`.
    pub inpoints: Option<ByteBuf>,
    /// The transaction is a coinbase.
    pub is_coinbase: bool,
    /// The transaction's version.
    pub version: u32,
    /// The transaction's lock time.
    pub lock_time: u32,
    /// The transaction's bytes contain the outputs that its inputs spend.
    pub extended: bool,
    /// The record is being deleted: only queries find it, and it waits for the deletion of its external blob, or for
    /// the update of its parents.
    pub being_deleted: bool,
}

/// A reassigned output, and the height from which it is spendable.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendableIn {
    /// The output's number, from 0.
    pub vout: u32,
    /// The first height at which the output is spendable.
    pub height: u32,
}

/// Counters of a page.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtxoPage {
    /// The number of UTXOs of the page.
    pub record_utxos: u32,
    /// The number of UTXOs of the page that are spent.
    pub spent_utxos: u32,
}

/// An output that got a new owner.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// The output's number, from 0.
    pub offset: u32,
    /// The output's hash before the reassignment.
    pub utxo_hash: UtxoHash,
    /// The output's hash after the reassignment.
    pub new_utxo_hash: UtxoHash,
    /// The height of the reassignment.
    pub block_height: u32,
}

/// A part of a transaction's bytes, or of its inpoints, to return.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoGetPart {
    /// The transaction.
    pub txid: Txid,
    /// The bytes to read.
    pub part: UtxoPart,
    /// The first byte to return, counted from the start.
    pub offset: u64,
    /// The most bytes to return; the answer also has at most as many as a reply holds. 0 returns no byte.
    pub length: u64,
}

/// Bytes of a record that are read in parts.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtxoPart {
    /// The transaction.
    #[default]
    Transaction,
    /// The outpoints that the transaction's inputs spend, as TxInpoints.
    Inpoints,
}

/// A part of a transaction's bytes.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionPart {
    /// The returned bytes.
    pub bytes: ByteBuf,
    /// The length of the whole, in bytes.
    pub total: u64,
    /// The kind of file of the record: the transaction as it was given, or a UTXOWrapper of its outputs.
    pub file_type: FileType,
}

/// Outputs to check, and the height at which they would be spent.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoGetSpend {
    /// The height at which the outputs would be spent.
    pub height: u32,
    /// The outputs, at most 5,000.
    pub outpoints: Vec<Outpoint>,
}

/// Result of the check of an output.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpendStatus {
    /// The output can be spent.
    Ok,
    /// The output is spent.
    Spent,
    /// The output can be spent at a later height.
    Immature {
        /// The first height at which the output can be spent.
        spendable_at: u32,
    },
    /// There is no such output.
    NotFound,
    /// The output is frozen.
    Frozen,
    /// The output's transaction is a double spend.
    Conflicting,
    /// The output's transaction is locked.
    Locked,
}

/// State of an output.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSpendState {
    /// The result of the check: `Ok`, or the first reason against a spend, in the order in which `utxo_spend` checks.
    pub status: SpendStatus,
    /// The output's hash; `null` if there is no such output.
    pub utxo_hash: Option<UtxoHash>,
    /// The spender of the output, even if the output is frozen; `null` if unspent.
    pub spender: Option<Spender>,
}

/// The point that a list of unmined transactions has reached.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnminedCursor {
    /// The moment at which the record of the last listed transaction was created, in Unix nanoseconds.
    pub created_at_ns: u64,
    /// The last listed transaction.
    pub txid: Txid,
}

/// Unmined transactions by `created_at_ns`, which no two records share. A transaction that stays unmined is listed exactly once; one that
/// becomes unmined during the listing is listed if its place is after the cursor.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnminedPage {
    /// The transactions.
    pub transactions: Vec<UnminedTransaction>,
    /// The cursor of the next page; `null` at the end.
    pub cursor: Option<UnminedCursor>,
}

/// A transaction that the longest chain does not have.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnminedTransaction {
    /// The transaction.
    pub txid: Txid,
    /// The moment at which the transaction's record was created, in Unix nanoseconds.
    pub created_at_ns: u64,
    /// The height since which the transaction is unmined.
    pub unmined_since: u32,
    /// The transaction's fee in satoshis; `null` if unknown.
    pub fee: Option<u64>,
    /// The length of the transaction, in bytes.
    pub size_in_bytes: u64,
    /// The transaction's outputs cannot be spent yet.
    pub locked: bool,
    /// The transaction is a double spend.
    pub conflicting: bool,
}

/// Numbers of records, also by index, and their memory.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtxoStorage {
    /// The number of records, without pages.
    pub records: u64,
    /// The number of pages after the master records.
    pub extra_pages: u64,
    /// The number of records with `delete_at_height`.
    pub deletable: u64,
    /// The number of records with `unmined_since`.
    pub unmined: u64,
    /// The number of records with `preserve_until`.
    pub preserved: u64,
    /// The highest block of all records that were pruned as spent; `null` if there were none. It falls only by a reset.
    /// `rollback_to` restores all records of blocks above this height.
    pub pruned_height: Option<u32>,
    /// The lowest block to which `rollback_to` restores the records of all applied blocks; `null` if no block is kept. At
    /// most 1,000 blocks below the head are looked at, and a lower one is not shown.
    pub restorable_to: Option<u64>,
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of slots that can be reused, and what else is free of `kept_bytes`.
    pub reusable_bytes: u64,
    /// Bytes of stable memory that count towards `max_bytes`. Memory is counted in units of the log's slots, or of 256 KiB
    /// if these are smaller: those that slots and index of the records, rows of the deletion queue, and transactions in
    /// blobs touch. Free bytes in them serve these only, before another unit is touched.
    pub kept_bytes: u64,
    /// The bytes above which new records take no memory: the setting `max_utxo_bytes`, or the value that is in force if
    /// the setting is 0.
    pub max_bytes: u64,
    /// The position of applying kept blocks; `null` if no block is applied.
    pub applying: Option<UtxoApplyPosition>,
}
