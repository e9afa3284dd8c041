//! Operations that change UTXO records.

use super::{Outpoint, Spender, UtxoError, UtxoSpendError};
use crate::{Txid, UtxoHash};
use ic_coppice_macros::candid_type;

/// An output to spend, with its hash and its spender's input.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Spends of transactions. For a transaction that is not in a block, spend first and create its record only if the
/// spends are Ok: `utxo_create` alone does not detect that the transaction was pruned before and returns, but its
/// spends return `InvalidSpend`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSpendBatch {
    /// The chain's height.
    pub height: u32,
    /// The transactions, in order. The first of two different spenders of an output wins.
    pub items: Vec<TransactionSpends>,
}

/// Spends of one transaction: all of them or none.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionSpends {
    /// The spending transaction.
    pub spender: Txid,
    /// The outputs.
    pub spends: Vec<Spend>,
}

/// An output that was not spent.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spend {spend}: {error}")]
pub struct RefusedSpend {
    /// The number of the spend among the transaction's spends, from 0.
    pub spend: u32,
    /// The reason why the output was not spent.
    pub error: UtxoSpendError,
}

/// Outputs to unspend.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoUnspendBatch {
    /// The chain's height.
    pub height: u32,
    /// The outputs, in order, each with the spender to remove.
    pub items: Vec<Unspend>,
}

/// An output to unspend.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unspend {
    /// The output.
    pub outpoint: Outpoint,
    /// The output's hash.
    pub utxo_hash: UtxoHash,
    /// The spender to remove. If the output is unspent or has another spender, nothing changes.
    pub spender: Spender,
}

/// Transactions to which a block is added, or from which a block is taken. A transaction that loses its last block is
/// unmined from this height on. If the block to take is not among a transaction's blocks, the transaction is unlocked
/// and otherwise unchanged.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSetMinedBatch {
    /// The chain's height.
    pub height: u32,
    /// The block's id.
    pub block_id: u32,
    /// The block's height.
    pub block_height: u32,
    /// True if the longest chain has the block or, with `unset`, the remaining blocks. If false and a block remains, the
    /// transactions stay on or off the longest chain as before.
    pub on_longest_chain: bool,
    /// True to remove the block from the transactions, false to add it.
    pub unset: bool,
    /// The transactions.
    pub items: Vec<MinedTransaction>,
}

/// A transaction, and the subtree of the block that has it.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinedTransaction {
    /// The transaction.
    pub txid: Txid,
    /// The subtree of the block that has the transaction.
    pub subtree: u32,
}

/// Transactions of blocks that the longest chain gained or lost. The blocks of the transactions are unchanged.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSetOnLongestChainBatch {
    /// The chain's height.
    pub height: u32,
    /// The transactions.
    pub txids: Vec<Txid>,
    /// The longest chain has the transactions.
    pub on_longest_chain: bool,
}

/// Transactions to lock or unlock.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSetLockedBatch {
    /// The chain's height.
    pub height: u32,
    /// True to lock the transactions, false to unlock them.
    pub locked: bool,
    /// The transactions.
    pub txids: Vec<Txid>,
}

/// Outputs or transactions to freeze or unfreeze.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoFreezeBatch {
    /// The chain's height.
    pub height: u32,
    /// The outputs or transactions.
    pub items: Vec<FreezeTarget>,
}

/// An output, or all outputs of a transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeTarget {
    /// The transaction.
    pub txid: Txid,
    /// The output's number; `null`: all outputs of the transaction.
    pub vout: Option<u32>,
    /// The output's hash, checked if given. Without `vout` it is refused as `BadArgument`.
    pub utxo_hash: Option<UtxoHash>,
}

/// Frozen outputs, each with its new owner.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoReassignBatch {
    /// The chain's height.
    pub height: u32,
    /// The outputs.
    pub items: Vec<Reassign>,
}

/// A frozen output that gets a new owner.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassign {
    /// The output.
    pub outpoint: Outpoint,
    /// The output's hash before the reassignment.
    pub utxo_hash: UtxoHash,
    /// The output's hash after the reassignment.
    pub new_utxo_hash: UtxoHash,
}

/// Transactions that are double spends. Each is marked at once, so that nothing more can spend from it. Its direct and
/// indirect spenders are marked leaves first, as many as one message can. While an answer has `has_more`, repeat the
/// call.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSetConflictingBatch {
    /// The chain's height.
    pub height: u32,
    /// The transactions.
    pub txids: Vec<Txid>,
}

/// Outcome of marking a transaction as a double spend.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Transactions that this call has marked: the named transaction first, then its direct and indirect spenders, each
    /// before the transaction from which it spends. Transactions that were conflicting before are not included.
    pub marked: Vec<Txid>,
    /// Outputs that the named transaction and the marked transactions hold, at most 5,000.
    pub parent_spends: Vec<Unspend>,
    /// Some transactions that spend from the named one are not marked yet: repeat the call.
    pub has_more: bool,
}

/// Double spends that must win over the transactions with which they conflict: the current spenders of their inputs
/// lose, with all transactions that spend from these. The losers are marked, and transactions that spend from them give
/// back the outputs that they hold, leaves first, as many as one message can. While an answer has `has_more`, repeat
/// the call. Only the last call takes the winners' inputs from the losers, gives them to the winners, and clears the
/// winners' double-spend mark. A sequence of calls that is not finished leaves transactions marked as double spends.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoProcessConflicting {
    /// The chain's height.
    pub height: u32,
    /// The conflicting transactions that win, all of them in one message or none.
    pub winners: Vec<Txid>,
}

/// Outcome of the call for the winners.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictResolution {
    /// Transactions that became conflicting in this call: losers, and transactions that spend from them.
    pub losers: Vec<Txid>,
    /// Outputs that losers held until this call, at most 5,000 of them. Their transactions are unlocked.
    pub unspent: Vec<Unspend>,
    /// The number of outputs that the winners hold since this call.
    pub spent: u32,
    /// The winners have not won yet: repeat the call.
    pub has_more: bool,
}

/// The reason why the winners did not win. This call has changed nothing.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ConflictError {
    /// The transaction that caused the error: a winner, or a transaction whose outputs it spends.
    pub txid: Txid,
    /// The error.
    pub error: UtxoError,
}

/// Transactions whose records must not be deleted for now.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoPreserveBatch {
    /// The height until which the records are kept.
    pub until_height: u32,
    /// The transactions. For a transaction without a record the answer is `false`.
    pub txids: Vec<Txid>,
}
