//! Operations that change records.

use super::{Outpoint, Spender, UtxoError, UtxoSpendError};
use crate::{Txid, UtxoHash};
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// An output, as it is spent: with its hash and its spender.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Spend {
    /// The transaction that has the output.
    pub txid: Txid,
    /// The output's number in its transaction, from 0.
    pub vout: u32,
    /// The output's hash: SHA-256(txid ‖ VarInt(vout) ‖ locking script ‖ VarInt(satoshis)).
    pub utxo_hash: UtxoHash,
    /// The input of the spender that spends the output, from 0.
    pub vin: u32,
}

/// What transactions spend. A transaction that is not in a block is to spend first, and its record made only when that is Ok:
/// `utxo_create` alone does not see that it was pruned before and comes back, but its spends answer `InvalidSpend`.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSpendBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The transactions, in order. The first of two different spenders of an output wins.
    pub items: Vec<TransactionSpends>,
}

/// What one transaction spends: all of it or nothing.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct TransactionSpends {
    /// The spending transaction.
    pub spender: Txid,
    /// The outputs.
    pub spends: Vec<Spend>,
}

/// An output that was not spent.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, CandidType, Serialize, Deserialize)]
#[error("spend {spend}: {error}")]
pub struct RefusedSpend {
    /// The number of the spend among the transaction's, from 0.
    pub spend: u32,
    /// The reason why the output was not spent.
    pub error: UtxoSpendError,
}

/// Outputs to unspend.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoUnspendBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The outputs, in order, each with the spender that is to be forgotten.
    pub items: Vec<Unspend>,
}

/// An output to unspend.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Unspend {
    /// The output.
    pub outpoint: Outpoint,
    /// The output's hash.
    pub utxo_hash: UtxoHash,
    /// The spender that is to hold the output no more. Where another one holds it, or nobody, nothing happens.
    pub spender: Spender,
}

/// Transactions of a block, or of one that is no more. One from which its last block is taken is unmined from this height on. One
/// that does not have the block that is to be taken is unlocked, and stays as it is otherwise.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetMinedBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The block's id.
    pub block_id: u32,
    /// The block's height.
    pub block_height: u32,
    /// The longest chain has the block; with `unset`, it has what remains. Where this is false and a block remains, the
    /// longest chain has the transactions or not, as before.
    pub on_longest_chain: bool,
    /// The block is taken from the transactions, not given to them.
    pub unset: bool,
    /// The transactions.
    pub items: Vec<MinedTransaction>,
}

/// A transaction, and the subtree of the block that has it.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct MinedTransaction {
    /// The transaction.
    pub txid: Txid,
    /// The subtree of the block that has it.
    pub subtree: u32,
}

/// Transactions of blocks that the longest chain has now, or has not any more. Which blocks have them stays as it is.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetOnLongestChainBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The transactions.
    pub txids: Vec<Txid>,
    /// Whether the longest chain has them.
    pub on_longest_chain: bool,
}

/// Transactions to lock or unlock.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetLockedBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// Lock the transactions, or unlock them.
    pub locked: bool,
    /// The transactions.
    pub txids: Vec<Txid>,
}

/// Outputs or transactions to freeze or unfreeze.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoFreezeBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The outputs or transactions.
    pub items: Vec<FreezeTarget>,
}

/// An output, or all of a transaction's.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct FreezeTarget {
    /// The transaction.
    pub txid: Txid,
    /// The output's number; none: all outputs of the transaction.
    pub vout: Option<u32>,
    /// The output's hash, checked where it is given. Without `vout` it is refused as `BadArgument`.
    pub utxo_hash: Option<UtxoHash>,
}

/// Frozen outputs that get a new owner.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoReassignBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The outputs.
    pub items: Vec<Reassign>,
}

/// A frozen output that gets a new owner.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Reassign {
    /// The output.
    pub outpoint: Outpoint,
    /// The output's hash until now.
    pub utxo_hash: UtxoHash,
    /// The output's hash from now on.
    pub new_utxo_hash: UtxoHash,
}

/// Transactions that are double spends. Each is marked at once, so that nothing more is spent from it; what spends from it, directly or
/// not, is marked leaves first, as far as a message goes. While an answer has `has_more`, the call is repeated.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetConflictingBatch {
    /// The height at which the chain is.
    pub height: u32,
    /// The transactions.
    pub txids: Vec<Txid>,
}

/// What marking a transaction as a double spend has done.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Conflict {
    /// Transactions that this call has marked: the one that was named first, then what spends from it, each before what it
    /// spends from. Those that were conflicting before are not among them.
    pub marked: Vec<Txid>,
    /// Outputs that the named transaction and the marked ones hold, at most 5,000.
    pub parent_spends: Vec<Unspend>,
    /// Transactions that spend from the named one are not marked yet: the call is to be repeated.
    pub has_more: bool,
}

/// Double spends that are to win over what they conflict with: who holds what they spend loses, with everything that spends from it. The
/// losers are marked, and what spends from them gives back what it holds, leaves first, as far as a message goes. While an
/// answer has `has_more`, the call is repeated. Only the last one takes from the losers what the winners spend, gives it to these,
/// and has them be double spends no more; calls that are never continued leave marked double spends.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoProcessConflicting {
    /// The height at which the chain is.
    pub height: u32,
    /// The conflicting transactions that win, all of them in one message or none.
    pub winners: Vec<Txid>,
}

/// What the winners have done.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ConflictResolution {
    /// Transactions that are conflicting now and were not before this call: losers, and what spends from them.
    pub losers: Vec<Txid>,
    /// Outputs that losers held until this call, at most 5,000 of them. The transactions that have them are unlocked.
    pub unspent: Vec<Unspend>,
    /// Outputs that the winners hold now, and did not before this call.
    pub spent: u32,
    /// The winners have not won yet: the call is to be repeated.
    pub has_more: bool,
}

/// Why the winners did not win. This call has changed nothing.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, CandidType, Serialize, Deserialize)]
#[error("{error}")]
pub struct ConflictError {
    /// The transaction with which something is wrong: a winner, or one whose outputs it spends.
    pub txid: Txid,
    /// The error that came up.
    pub error: UtxoError,
}

/// Transactions that are not to be deleted for now.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPreserveBatch {
    /// The height until which the records are kept.
    pub until: u32,
    /// The transactions. Those that have no record answer `false`.
    pub txids: Vec<Txid>,
}
