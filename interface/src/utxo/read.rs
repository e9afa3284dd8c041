//! Looking at records.

use super::{BlockRef, FileType, Outpoint, Spender, TransactionPlace};
use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Which part of a record.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGet {
    /// The transaction.
    pub txid: ByteBuf,
    /// The first output whose entry is wanted.
    pub first: u32,
    /// How many entries, at most 5,000.
    pub limit: u32,
}

/// A record (`utxo-data-model.md`, UTXO Data Model).
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoRecord {
    /// The transaction.
    pub txid: ByteBuf,
    /// Entries from output `first` on: 32 bytes unspent, 68 bytes spent or frozen, none where the output is no UTXO.
    pub utxos: Vec<Option<ByteBuf>>,
    /// The output of the first entry.
    pub first: u32,
    /// Outputs of the transaction.
    pub total_outputs: u32,
    /// Of them, those that are UTXOs, on all pages.
    pub total_utxos: u32,
    /// Outputs of a page.
    pub utxo_batch_size: u32,
    /// UTXOs of the master record.
    pub record_utxos: u32,
    /// Of them, those that are spent.
    pub spent_utxos: u32,
    /// Pages behind the master record.
    pub total_extra_recs: u32,
    /// Of them, those of which every UTXO is spent.
    pub spent_extra_recs: u32,
    /// The pages behind the master record, from page 1 on, a thousand at most.
    pub extra_pages: Vec<UtxoPage>,
    /// Outputs that were reassigned, by rising number.
    pub spendable_in: Vec<SpendableIn>,
    /// An output is frozen.
    pub frozen: bool,
    /// The outputs cannot be spent yet.
    pub locked: bool,
    /// The transaction is a double spend.
    pub conflicting: bool,
    /// Transactions that spend from this one and are double spends.
    pub conflicting_children: Vec<ByteBuf>,
    /// The height since which the longest chain has not had the transaction.
    pub unmined_since: Option<u32>,
    /// When the record was created, in Unix nanoseconds.
    pub created_at: u64,
    /// The height until which the record is not deleted.
    pub preserve_until: Option<u32>,
    /// The height at which the record may be deleted.
    pub delete_at_height: Option<u32>,
    /// The height at which a coinbase is spendable; 0 for others.
    pub spending_height: u32,
    /// The blocks that have the transaction.
    pub blocks: Vec<BlockRef>,
    /// Where the transaction's bytes are.
    pub transaction: TransactionPlace,
    /// Outputs that were given a new owner, in order.
    pub reassignments: Vec<Reassignment>,
    /// Spenders of the entries above that were deleted since, each once.
    pub deleted_children: Vec<ByteBuf>,
    /// Satoshis; none where it is not known.
    pub fee: Option<u64>,
    /// Bytes of the transaction, as it was given.
    pub size_in_bytes: u64,
    /// Inputs; none for a coinbase.
    pub inputs: u32,
    /// TxInpoints: u32 LE parents ‖ their ids ‖ for each, u32 LE count ‖ u32 LE vouts. None where it would be longer than
    /// 256 KiB: `utxo_get_inpoints`.
    pub inpoints: Option<ByteBuf>,
    /// It is a coinbase.
    pub is_coinbase: bool,
    /// The transaction's version.
    pub version: u32,
    /// The transaction's lock time.
    pub lock_time: u32,
    /// Its bytes say what its inputs spend.
    pub extended: bool,
    /// The record is going: its blob outside is waited for.
    pub being_deleted: bool,
}

/// From which height on a reassigned output is spendable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct SpendableIn {
    /// Which output, from 0.
    pub vout: u32,
    /// The first height at which it is.
    pub height: u32,
}

/// Counters of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPage {
    /// UTXOs of the page.
    pub record_utxos: u32,
    /// Of them, those that are spent.
    pub spent_utxos: u32,
}

/// An output that was given a new owner.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Reassignment {
    /// The output.
    pub offset: u32,
    /// Its hash before.
    pub utxo_hash: ByteBuf,
    /// Its hash after.
    pub new_utxo_hash: ByteBuf,
    /// The height at which that was.
    pub block_height: u32,
}

/// A part of a transaction's bytes, or of its inpoints.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGetPart {
    /// The transaction.
    pub txid: ByteBuf,
    /// Bytes from the start.
    pub offset: u64,
    /// Bytes that are wanted; as many as a reply holds at most.
    pub length: u64,
}

/// A part of a transaction's bytes.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct TransactionPart {
    /// The bytes.
    pub bytes: ByteBuf,
    /// Bytes of the whole.
    pub total: u64,
    /// The transaction as it was given, or a UTXOWrapper of its outputs.
    pub file_type: FileType,
}

/// A part of a transaction's TxInpoints.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct InpointsPart {
    /// The bytes.
    pub bytes: ByteBuf,
    /// Bytes of the whole.
    pub total: u64,
}

/// Which outputs, and at which height they would be spent.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoGetSpend {
    /// The height.
    pub height: u32,
    /// At most 5,000 outputs.
    pub outpoints: Vec<Outpoint>,
}

/// Whether an output can be spent.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum SpendStatus {
    /// It can.
    Ok,
    /// It is spent.
    Spent,
    /// At this height.
    Immature {
        /// The first height at which it can.
        spendable_at: u32,
    },
    /// There is no such output.
    NotFound,
    /// It is frozen.
    Frozen,
    /// Its transaction is a double spend.
    Conflicting,
    /// Its transaction is locked.
    Locked,
}

/// An output's state.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSpendState {
    /// Whether it can be spent: the first reason why not, in the order in which `utxo_spend` checks.
    pub status: SpendStatus,
    /// Its hash.
    pub utxo_hash: Option<ByteBuf>,
    /// Who spends it, frozen or not.
    pub spender: Option<Spender>,
}

/// Where a list of unmined transactions goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub struct UnminedCursor {
    /// Of the last transaction that was listed.
    pub created_at: u64,
    /// The last transaction that was listed.
    pub txid: ByteBuf,
    /// How many transactions had become unmined again when it was.
    pub taken_back: u64,
}

/// Unmined transactions by the second of `created_at`, and within a second in the order in which they came. Where a transaction
/// has become unmined again since the cursor was made, its second is listed from the start: some come twice, and none is missing.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UnminedPage {
    /// The transactions.
    pub transactions: Vec<UnminedTransaction>,
    /// Where the list goes on; none at its end.
    pub cursor: Option<UnminedCursor>,
}

/// A transaction that the longest chain does not have.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UnminedTransaction {
    /// The transaction.
    pub txid: ByteBuf,
    /// When its record was created, in Unix nanoseconds.
    pub created_at: u64,
    /// The height since which it is unmined.
    pub unmined_since: u32,
    /// Satoshis; none where it is not known.
    pub fee: Option<u64>,
    /// Bytes.
    pub size_in_bytes: u64,
    /// Its outputs cannot be spent yet.
    pub locked: bool,
    /// It is a double spend.
    pub conflicting: bool,
}

/// How many records there are, and how many of them an index has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoStorage {
    /// Records of transactions, pages not counted.
    pub records: u64,
    /// Pages behind them.
    pub extra_pages: u64,
    /// Records with `delete_at_height`.
    pub deletable: u64,
    /// Records with `unmined_since`.
    pub unmined: u64,
    /// Records with `preserve_until`.
    pub preserved: u64,
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of slots that can be used again.
    pub reusable_bytes: u64,
}
