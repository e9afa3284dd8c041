//! Looking at records.

use super::{BlockRef, FileType, Outpoint, Spender, TransactionPlace};
use crate::{Txid, UtxoHash};
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The part of a record that is asked for.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGet {
    /// The transaction whose record is asked for.
    pub txid: Txid,
    /// The first output whose entry is wanted.
    pub first: u32,
    /// The most entries that are wanted, and 5,000; 0 asks for no entry.
    pub limit: u32,
    /// The cursor of the answer before, where more pages are wanted; none: pages from page 1 on.
    pub extra_pages_cursor: Option<u32>,
}

/// The record that is kept of a transaction.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoRecord {
    /// The transaction's id.
    pub txid: Txid,
    /// Entries from output `first` on: 32 bytes unspent, 68 bytes spent or frozen, none where the output is no UTXO.
    pub utxos: Vec<Option<ByteBuf>>,
    /// The output of the first entry.
    pub first: u32,
    /// The number of outputs of the transaction.
    pub total_outputs: u32,
    /// The number of outputs that are UTXOs, on all pages.
    pub total_utxos: u32,
    /// Outputs of a page.
    pub utxo_batch_size: u32,
    /// The number of UTXOs of the master record.
    pub record_utxos: u32,
    /// The number of UTXOs of the master record that are spent.
    pub spent_utxos: u32,
    /// The number of pages behind the master record.
    pub total_extra_recs: u32,
    /// The number of pages behind the master record of which every UTXO is spent.
    pub spent_extra_recs: u32,
    /// The pages behind the master record, from page 1 or the cursor on, a thousand at most.
    pub extra_pages: Vec<UtxoPage>,
    /// The page with which the pages go on; none where these are the last.
    pub extra_pages_cursor: Option<u32>,
    /// Outputs that were reassigned, by rising number.
    pub spendable_in: Vec<SpendableIn>,
    /// An output is frozen.
    pub frozen: bool,
    /// The outputs cannot be spent yet.
    pub locked: bool,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// The last 10,000 transactions that spend from this one and are double spends.
    pub conflicting_children: Vec<Txid>,
    /// The height since which the longest chain has not had the transaction; none where it has it.
    pub unmined_since: Option<u32>,
    /// The moment at which the record was created, in Unix nanoseconds.
    pub created_at: u64,
    /// The height until which the record is not deleted; none where nothing preserves it.
    pub preserve_until: Option<u32>,
    /// The height at which defensive mode, which has kept the record, looks at it again; none where it has not.
    pub postponed_until: Option<u32>,
    /// The height at which the record may be deleted; none where it is not eligible.
    pub delete_at_height: Option<u32>,
    /// The first height at which a coinbase's outputs can be spent; none of other transactions, whose outputs need not
    /// wait.
    pub spending_height: Option<u32>,
    /// The blocks that have the transaction.
    pub blocks: Vec<BlockRef>,
    /// The place of the transaction's bytes.
    pub transaction: TransactionPlace,
    /// Outputs that were given a new owner, in order.
    pub reassignments: Vec<Reassignment>,
    /// Spenders of the entries above that were deleted since, each once.
    pub deleted_children: Vec<Txid>,
    /// The transaction's fee in satoshis; none where it is not known.
    pub fee: Option<u64>,
    /// The bytes that the transaction had as it was given.
    pub size_in_bytes: u64,
    /// The number of inputs; 0 for a coinbase.
    pub inputs: u32,
    /// TxInpoints: u32 LE parents ‖ their ids ‖ for each, u32 LE count ‖ u32 LE vouts. None where it would be longer than
    /// 256 KiB: `utxo_get_transaction`.
    pub inpoints: Option<ByteBuf>,
    /// The transaction is a coinbase.
    pub is_coinbase: bool,
    /// The transaction's version.
    pub version: u32,
    /// The transaction's lock time.
    pub lock_time: u32,
    /// The transaction's bytes say what its inputs spend.
    pub extended: bool,
    /// The record is being deleted: queries find it, and it waits for its blob outside to be deleted, or for its
    /// parents to be told.
    pub being_deleted: bool,
}

/// From which height on a reassigned output is spendable.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct SpendableIn {
    /// The output's number, from 0.
    pub vout: u32,
    /// The first height at which the output is spendable.
    pub height: u32,
}

/// Counters of a page.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPage {
    /// The number of UTXOs of the page.
    pub record_utxos: u32,
    /// The number of UTXOs of the page that are spent.
    pub spent_utxos: u32,
}

/// An output that was given a new owner.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Reassignment {
    /// The output's number, from 0.
    pub offset: u32,
    /// The output's hash before.
    pub utxo_hash: UtxoHash,
    /// The output's hash after.
    pub new_utxo_hash: UtxoHash,
    /// The height at which that was.
    pub block_height: u32,
}

/// A part of a transaction's bytes, or of its inpoints.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGetPart {
    /// The transaction whose bytes are asked for.
    pub txid: Txid,
    /// The bytes that are asked for.
    pub part: UtxoPart,
    /// The first byte that is wanted, counted from the start.
    pub offset: u64,
    /// The number of bytes that are wanted; the answer has as many as a reply holds at most. 0 asks for no byte.
    pub length: u64,
}

/// The bytes of a record that can be read in parts.
#[native_docs]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoPart {
    /// The transaction.
    #[default]
    Transaction,
    /// The outpoints that the transaction's inputs spend, as TxInpoints.
    Inpoints,
}

/// A part of a transaction's bytes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct TransactionPart {
    /// The bytes that were asked for.
    pub bytes: ByteBuf,
    /// The bytes that the whole has.
    pub total: u64,
    /// The kind of file of the record: the transaction as it was given, or a UTXOWrapper of its outputs.
    pub file_type: FileType,
}

/// The outputs that are asked for, and the height at which they would be spent.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGetSpend {
    /// The height at which the outputs would be spent.
    pub height: u32,
    /// The outputs, 5,000 at most.
    pub outpoints: Vec<Outpoint>,
}

/// Whether an output can be spent.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
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

/// An output's state.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSpendState {
    /// Whether the output can be spent: the first reason why not, in the order in which `utxo_spend` checks.
    pub status: SpendStatus,
    /// The output's hash; none where there is no such output.
    pub utxo_hash: Option<UtxoHash>,
    /// The spender of the output, frozen or not; none where nobody spends it.
    pub spender: Option<Spender>,
}

/// Where a list of unmined transactions goes on.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub struct UnminedCursor {
    /// The moment at which the record of the last transaction that was listed was created, in Unix nanoseconds.
    pub created_at: u64,
    /// The last transaction that was listed.
    pub txid: Txid,
}

/// Unmined transactions by `created_at`, and those of one moment by id. One that is unmined all the while is listed once; one that becomes
/// unmined meanwhile, where its place lies behind the cursor.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UnminedPage {
    /// The transactions.
    pub transactions: Vec<UnminedTransaction>,
    /// The cursor with which the next page is asked for; none at the end.
    pub cursor: Option<UnminedCursor>,
}

/// A transaction that the longest chain does not have.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UnminedTransaction {
    /// The transaction.
    pub txid: Txid,
    /// The moment at which the transaction's record was created, in Unix nanoseconds.
    pub created_at: u64,
    /// The height since which the transaction is unmined.
    pub unmined_since: u32,
    /// The transaction's fee in satoshis; none where it is not known.
    pub fee: Option<u64>,
    /// The transaction's bytes.
    pub size_in_bytes: u64,
    /// The transaction's outputs cannot be spent yet.
    pub locked: bool,
    /// The transaction is a double spend.
    pub conflicting: bool,
}

/// How many records there are, and how many of them an index has.
#[native_docs]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoStorage {
    /// The number of records, pages not counted.
    pub records: u64,
    /// The number of pages behind the master records.
    pub extra_pages: u64,
    /// The number of records with `delete_at_height`.
    pub deletable: u64,
    /// The number of records with `unmined_since`.
    pub unmined: u64,
    /// The number of records with `preserve_until`.
    pub preserved: u64,
    /// The highest block of any record that was pruned as spent; none before the first. It never falls.
    pub pruned_height: Option<u32>,
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of slots that can be used again.
    pub reusable_bytes: u64,
    /// Bytes of stable memory that were grown for records, and never become fewer: their index, their slots, the deletion
    /// queue, and of the arena what the chain's log cannot take.
    pub billed_bytes: u64,
    /// The bytes above which nothing more is grown for new records: `max_utxo_bytes`, as it is in force.
    pub max_bytes: u64,
}
