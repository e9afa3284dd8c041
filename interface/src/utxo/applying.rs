//! Applying kept blocks to the UTXO records (`docs/design/applying.md`).

use super::{Outpoint, UtxoCreateError, UtxoSpendError};
use crate::error::{BadHeight, NoMemory};
use crate::{BlockHash, Txid};
use ic_coppice_macros::candid_type;
use thiserror::Error;

/// Treatment of an input whose parent has no record.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingParents {
    /// Skip the input and count it: for a store that starts in the middle of a chain. Such inputs of a winner among
    /// double spends are skipped, too.
    Skip,
    /// Stop at the transaction.
    #[default]
    Refuse,
}

impl std::fmt::Display for MissingParents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Skip => "Skip",
            Self::Refuse => "Refuse",
        })
    }
}

/// A kept block to apply.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoApplyBlock {
    /// The block's number in the kept chain.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
    /// The block's height, which becomes the chain's height.
    pub height: u32,
    /// The chain's own number of the block, as in `BlockRef`. Each block of the chain has another one: a record has an
    /// id once, so that taking back one of two blocks with the same id takes it from the transactions of both.
    pub block_id: u32,
    /// Treatment of inputs whose parents have no record, from this block on; `null` for the store's choice, which is
    /// `Refuse` in a new store. An operator changes the choice, and it stays until an operator changes it again.
    pub missing_parents: Option<MissingParents>,
    /// The transaction at which an earlier call stopped, to go on after it without applying it. The audit
    /// log has each skip, of more than 100 by one caller in an hour the first and the last ones. Nothing is skipped if the transaction can be applied now. A large transaction keeps its record
    /// and the spends that earlier calls made.
    pub skip: Option<Txid>,
    /// Skips the rest of the block if the bytes of its body do not lead to the next transaction (`BadBody`,
    /// `Corrupt`). An operator sets it. The positions and the first ids are written to the audit log.
    pub skip_rest: bool,
}

/// Outcome of one slice of a block. The counts are those of this call.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtxoApplied {
    /// The block is not applied completely: repeat the call.
    pub has_more: bool,
    /// The block was applied before, and this call has changed nothing.
    pub known: bool,
    /// Transactions of the block that are applied, in this call and before.
    pub transactions: u32,
    /// Records that were created.
    pub created: u32,
    /// Records that existed and were set mined.
    pub existed: u32,
    /// Outputs that were spent, without those that their inputs held already.
    pub spent: u32,
    /// Inputs that were skipped, because their parents have no record.
    pub missing_parents: u32,
    /// Transactions for which `utxo_create` would return `Pruned`; they count as applied.
    pub pruned: u32,
}

/// The reason why a transaction of a block was not applied.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UtxoApplyReason {
    /// The record cannot be created.
    #[error("no record can be created: {0}")]
    Create(UtxoCreateError),
    /// The input cannot spend its output.
    #[error("the output cannot be spent: {0}")]
    Spend(UtxoSpendError),
    /// The transaction has a record that is marked as a double spend: `utxo_process_conflicting` can let it win.
    #[error("the record is a double spend: let it win with utxo_process_conflicting")]
    Conflicting,
    /// The input spends from a later transaction of the same block.
    #[error("the parent comes later in the same block")]
    BadOrder,
    /// The output was reassigned, and the body does not have the hash of its new owner: spend it with `utxo_spend`.
    #[error("the output was reassigned: spend it with utxo_spend, which takes its new hash")]
    NeedsHash,
    /// The parent has no record, and the store's `missing_parents` is `Refuse`.
    #[error("the parent has no record")]
    MissingParent,
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

impl UtxoApplyReason {
    /// Returns the method that made the output or the record unspendable, and the way back, as the end of a sentence; empty if no call made it
    /// so.
    fn set_by(&self) -> &'static str {
        match self {
            Self::Spend(UtxoSpendError::Frozen) => " (by utxo_freeze; undo with utxo_unfreeze)",
            Self::Spend(UtxoSpendError::FrozenUntil { .. }) => " (by utxo_reassign)",
            Self::Spend(UtxoSpendError::Locked) => " (by utxo_create or utxo_set_locked; undo with utxo_set_locked)",
            Self::Spend(UtxoSpendError::Conflicting) => {
                " (by utxo_set_conflicting or utxo_process_conflicting; undo with utxo_process_conflicting)"
            }
            Self::Conflicting => " (by utxo_set_conflicting or utxo_process_conflicting)",
            Self::NeedsHash => " (by utxo_reassign)",
            _ => "",
        }
    }
}

/// The transaction at which applying stopped. Resolve the reason and repeat the call, or skip the transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {number}, transaction {transaction}{}{}: {reason}{}", of_input(*.input), of_output(.output.as_ref()), .reason.set_by())]
pub struct UtxoApplyStop {
    /// The block.
    pub number: u64,
    /// The transaction's position in the block, from 0.
    pub transaction: u32,
    /// The transaction's id.
    pub txid: Txid,
    /// The transaction's input, from 0; `null` if the reason is about the whole transaction.
    pub input: Option<u32>,
    /// The output that the input spends; `null` if the reason is about the whole transaction.
    pub output: Option<Outpoint>,
    /// The reason.
    pub reason: UtxoApplyReason,
}

fn of_input(input: Option<u32>) -> String {
    input.map_or_else(String::new, |input| format!(", input {input}"))
}

fn of_output(output: Option<&Outpoint>) -> String {
    let hex = |txid: &Txid| txid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    output.map_or_else(String::new, |Outpoint { txid, vout }| format!(", output {vout} of {}", hex(txid)))
}

/// The reason why a block was not applied. Transactions before the one that is named stay applied.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UtxoApplyError {
    /// The first block decides the height from which all others follow: an operator applies it. Only an operator sets
    /// `skip_rest`.
    #[error("only an operator applies the first block, or sets skip_rest")]
    OperatorOnly,
    /// Blocks are applied in order.
    #[error("the next block to apply is {next}")]
    NotNext {
        /// The number of the next block.
        next: u64,
    },
    /// The block has this height, under which it is applied, or one above the height of the block before it.
    #[error("the block's height is {expected}")]
    WrongHeight {
        /// The block's height.
        expected: u32,
    },
    /// The store has another choice, which an operator changes.
    #[error("missing_parents is {in_force} in this store: name no other value, or let an operator change it")]
    OtherChoice {
        /// The choice in force.
        in_force: MissingParents,
    },
    /// The block is applied, or partly applied, under this id.
    #[error("the block is applied under the id {block_id}")]
    OtherId {
        /// The id.
        block_id: u32,
    },
    /// The chain has another block with this number.
    #[error("the chain has another block with this number")]
    WrongHash {
        /// The hash of the kept block.
        expected: BlockHash,
    },
    /// A rollback is in progress, which takes applied blocks back.
    #[error("a rollback to block {to} is under way: try again")]
    RollbackUnderway {
        /// The number of the block that will be the head.
        to: u64,
    },
    /// The chain does not have the block yet, or never had it.
    #[error("there is no such block")]
    NotFound,
    /// The block was pruned, so its body is gone.
    #[error("the block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The number of the oldest kept block.
        first_available: u64,
    },
    /// The setting `require_extended` is on; the body of a block has no extended transactions.
    #[error("require_extended is set, and the transactions of a block are not extended")]
    NotExtended,
    /// The height was refused.
    #[error(transparent)]
    BadHeight(#[from] BadHeight),
    /// The body is not an 80-byte header, a VarInt count and the transactions of the index segment, in its order; or a
    /// message does not reach the end of a transaction. `skip_rest` skips the rest of the block.
    #[error("block body, transaction {transaction}, byte {at}: {why}")]
    BadBody {
        /// The position of the transaction, from 0.
        transaction: u32,
        /// The byte in the body, from 0.
        at: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// A transaction cannot be applied.
    #[error(transparent)]
    Stopped(#[from] Box<UtxoApplyStop>),
    /// `skip` does not name the next transaction to apply.
    #[error("skip must name the next transaction to apply")]
    WrongSkip {
        /// The next transaction to apply.
        at: Txid,
    },
    /// Memory was refused. A repeated call continues.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// Kept data cannot be read.
    #[error("kept data cannot be read: {why}")]
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The position of applying kept blocks to the records.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtxoApplyPosition {
    /// The number of the first block that was applied.
    pub base: u64,
    /// The number of the next block to apply. Blocks from this one on are not pruned.
    pub next: u64,
    /// The height of the next block.
    pub height: u32,
    /// Transactions of the next block that are applied.
    pub transactions: u32,
    /// Treatment of inputs whose parents have no record.
    pub missing_parents: MissingParents,
}
