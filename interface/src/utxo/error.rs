//! Errors of operations on records: one for creation, one for spends, one for other operations; and [`UtxoRefusal`],
//! which includes all of them.

use super::{BlockRef, ExternalStore, Spender};
use crate::UtxoHash;
use crate::error::{BadArgument, BadHeight, NoMemory, NotReady};
use ic_coppice_macros::candid_type;
use std::fmt;
use thiserror::Error;

/// The reason why a record was not created. The item has changed nothing.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoCreateError {
    /// The transaction already has a record.
    TxExists,
    /// The record is being deleted, and its external blob still exists. Or the blob that a new record names is
    /// scheduled for deletion.
    BeingDeleted,
    /// The external blob is named by another record.
    BlobTaken,
    /// The record was pruned: an output that the transaction spends names the transaction as a deleted spender. Or it
    /// may have been pruned: all its blocks are at or below `pruned_height`, none of its parents has a record, and the
    /// item does not have `is_new`.
    Pruned,
    /// The height was refused.
    BadHeight(BadHeight),
    /// An argument is invalid.
    BadArgument(BadArgument),
    /// The bytes are not a valid transaction.
    BadTransaction {
        /// The first invalid byte, counted from the transaction's start.
        offset: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// The transaction has no outputs.
    NoOutputs,
    /// The setting `require_extended` is on, and this input does not contain the output that it spends.
    NotExtended {
        /// The input, from 0.
        input: u32,
    },
    /// A part of the argument is too large.
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transactions' data in the BlobStore would exceed `max_external_bytes`.
    ExternalFull {
        /// The most bytes of such data.
        limit: u64,
    },
    /// The deletion queue has reached `max_deletion_rows`: records that name an external blob are refused.
    TooManyRows {
        /// The most rows.
        limit: u64,
    },
    /// No upload of this transaction is complete.
    NoUpload,
    /// No kept block has the transaction: the block was pruned or never existed, or it has fewer transactions.
    NotKept,
    /// The item needs more instructions, or changed pages, than one message has.
    TooMuchWork,
    /// The canister enters nothing yet: send the item again.
    NotReady(NotReady),
    /// Memory was refused.
    NoMemory(NoMemory),
    /// The record cannot be decoded, so its state is unknown.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The reason why an output was not spent. The transaction has changed nothing.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoSpendError {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction is a double spend.
    Conflicting,
    /// The transaction's outputs cannot be spent yet: the feeder, or a block with the transaction, unlocks them.
    Locked,
    /// The output belongs to a coinbase, and becomes spendable at a later height.
    CoinbaseImmature {
        /// The first height at which the output is spendable.
        spendable_at: u32,
    },
    /// The transaction has no such output, or the output can never be spent.
    UtxoNotFound,
    /// The output has another hash.
    UtxoHashMismatch {
        /// The stored hash of the output.
        stored: UtxoHash,
    },
    /// The output is frozen.
    Frozen,
    /// The output was reassigned, and becomes spendable at a later height.
    FrozenUntil {
        /// The first height at which the output is spendable.
        height: u32,
    },
    /// The spender spent this output before, and was pruned since: it is not accepted again.
    InvalidSpend,
    /// The output is spent by another transaction, or by another input of this one.
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The height was refused.
    BadHeight(BadHeight),
    /// An argument is invalid.
    BadArgument(BadArgument),
    /// The item needs more instructions, or changed pages, than one message has.
    TooMuchWork,
    /// Memory was refused.
    NoMemory(NoMemory),
    /// The record cannot be decoded, so its state is unknown.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The reason why an operation other than creation and spends was refused. The item has changed nothing.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoError {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction has no such output, or the output can never be spent.
    UtxoNotFound,
    /// The output has another hash.
    UtxoHashMismatch {
        /// The stored hash of the output.
        stored: UtxoHash,
    },
    /// The output is spent by another transaction, or by another input of this one.
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The output to freeze is frozen already.
    AlreadyFrozen,
    /// The output to unfreeze or reassign is not frozen.
    UtxoNotFrozen,
    /// No block has the transaction, so the longest chain does not have it either.
    NotMined,
    /// The transaction has a block with this id already, at another height or in another subtree.
    OtherBlock {
        /// The block that the record has.
        block: BlockRef,
    },
    /// The transaction is not conflicting; only a conflicting transaction can win.
    NotConflicting,
    /// The winner spends an output of a transaction that loses to a winner.
    WinnerLoses,
    /// The height was refused.
    BadHeight(BadHeight),
    /// An argument is invalid.
    BadArgument(BadArgument),
    /// A part of the argument is too large.
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transaction's bytes are in this external blob.
    External(ExternalStore),
    /// The transaction's bytes were in a block that is no longer kept.
    NotKept,
    /// The transaction leaves the block that has its bytes, and `max_external_bytes` leaves no room for them.
    ExternalFull {
        /// The limit.
        limit: u64,
    },
    /// The item needs more instructions, or changed pages, than one message has.
    TooMuchWork,
    /// Memory was refused.
    NoMemory(NoMemory),
    /// The record cannot be decoded, so its state is unknown.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A winner among double spends cannot spend one of the outputs that its inputs name, for this reason.
    NotSpendable(Box<UtxoSpendError>),
    /// A reason that this version does not know.
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Any reason of the three, for code that handles them alike. Not part of the Candid interface.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UtxoRefusal {
    /// There is no such transaction.
    #[error("there is no record of the transaction")]
    TxNotFound,
    /// The transaction already has a record.
    #[error("the transaction has a record already")]
    TxExists,
    /// The record is being deleted, and its external blob still exists. Or the blob that a new record names is
    /// scheduled for deletion.
    #[error("the record or its blob is being deleted: try again later")]
    BeingDeleted,
    /// The external blob is named by another record.
    #[error("another record names the external blob")]
    BlobTaken,
    /// The record was pruned: an output that the transaction spends names the transaction as a deleted spender. Or it
    /// may have been pruned: all its blocks are at or below `pruned_height`, none of its parents has a record, and the
    /// item does not have `is_new`.
    #[error("the record was pruned, or may have been")]
    Pruned,
    /// The transaction is a double spend.
    #[error("the transaction is a double spend")]
    Conflicting,
    /// The transaction's outputs cannot be spent yet: the feeder, or a block with the transaction, unlocks them.
    #[error("the transaction is locked")]
    Locked,
    /// The output belongs to a coinbase, and becomes spendable at a later height.
    #[error("the coinbase is spendable from height {spendable_at}")]
    CoinbaseImmature {
        /// The first height at which the output is spendable.
        spendable_at: u32,
    },
    /// The transaction has no such output, or the output can never be spent.
    #[error("the transaction has no such spendable output")]
    UtxoNotFound,
    /// The output has another hash.
    #[error("the output has another hash")]
    UtxoHashMismatch {
        /// The stored hash of the output.
        stored: UtxoHash,
    },
    /// The output is frozen.
    #[error("the output is frozen")]
    Frozen,
    /// The output was reassigned, and becomes spendable at a later height.
    #[error("the output is frozen until height {height}")]
    FrozenUntil {
        /// The first height at which the output is spendable.
        height: u32,
    },
    /// The spender spent this output before, and was pruned since: it is not accepted again.
    #[error("the spender was pruned and cannot spend again")]
    InvalidSpend,
    /// The output is spent by another transaction, or by another input of this one.
    #[error("the output is spent by another input")]
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The output to freeze is frozen already.
    #[error("the output is frozen already")]
    AlreadyFrozen,
    /// The output to unfreeze or reassign is not frozen.
    #[error("the output is not frozen")]
    UtxoNotFrozen,
    /// No block has the transaction, so the longest chain does not have it either.
    #[error("no block has the transaction")]
    NotMined,
    /// The transaction has a block with this id already, at another height or in another subtree.
    #[error(
        "the transaction has block {} at height {} in subtree {}: take it back with unset, or use another id",
        block.block_id, block.height, block.subtree
    )]
    OtherBlock {
        /// The block that the record has.
        block: BlockRef,
    },
    /// The transaction is not conflicting; only a conflicting transaction can win.
    #[error("the transaction is not conflicting")]
    NotConflicting,
    /// The winner spends an output of a transaction that loses to a winner.
    #[error("the winner spends an output of a loser")]
    WinnerLoses,
    /// The height was refused.
    #[error(transparent)]
    BadHeight(#[from] BadHeight),
    /// An argument is invalid.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The bytes are not a valid transaction.
    #[error("invalid transaction at byte {offset}: {why}")]
    BadTransaction {
        /// The first invalid byte, counted from the transaction's start.
        offset: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// The transaction has no outputs.
    #[error("the transaction has no outputs")]
    NoOutputs,
    /// The setting `require_extended` is on, and this input does not contain the output that it spends.
    #[error("input {input} is not extended, and require_extended is set")]
    NotExtended {
        /// The input, from 0.
        input: u32,
    },
    /// A part of the argument is too large.
    #[error("too large: {what}; at most {limit}")]
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transactions' data in the BlobStore would exceed `max_external_bytes`.
    #[error("transaction data has reached max_external_bytes ({limit}): raise it, or let pruning make room")]
    ExternalFull {
        /// The most bytes of such data.
        limit: u64,
    },
    /// The deletion queue has reached `max_deletion_rows`: records that name an external blob are refused.
    #[error("the deletion queue has reached max_deletion_rows ({limit}): let workers catch up, or raise it")]
    TooManyRows {
        /// The most rows.
        limit: u64,
    },
    /// No upload of this transaction is complete.
    #[error("no complete upload of this transaction: upload it first")]
    NoUpload,
    /// The transaction's bytes are in this external blob.
    #[error("the bytes are in an external blob")]
    External(ExternalStore),
    /// No kept block has the transaction, or the block that had its bytes is no longer kept.
    #[error("no kept block has the transaction")]
    NotKept,
    /// The item needs more instructions, or changed pages, than one message has.
    #[error("the item needs more than one message: split it")]
    TooMuchWork,
    /// The canister enters nothing yet: send the item again.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Memory was refused.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The record cannot be decoded, so its state is unknown.
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

impl UtxoRefusal {
    /// Returns the reason as a stable word, the name of its innermost case.
    pub fn code(&self) -> String {
        let reason = match self {
            Self::NoMemory(inner) => format!("{inner:?}"),
            Self::BadHeight(inner) => format!("{inner:?}"),
            Self::Other { code, .. } => return code.clone(),
            other => format!("{other:?}"),
        };
        reason.split([' ', '(']).next().unwrap_or_default().into()
    }
}

/// Converts between [`UtxoRefusal`] and the error of a method. A reason that the method's error does not have becomes
/// `Other`.
macro_rules! part {
    (
        $part:ident { $($case:ident $({ $($field:ident),+ })? $(($value:ident))?),+ $(,)? }
        $(all { $part_only:pat => $to_all:expr })?
        $(part { $all_only:pat => $to_part:expr })?
    ) => {
        impl From<$part> for UtxoRefusal {
            fn from(error: $part) -> Self {
                match error {
                    $($part::$case $({ $($field),+ })? $(($value))? => Self::$case $({ $($field),+ })? $(($value))?,)+
                    $part::Other { code, message } => Self::Other { code, message },
                    $($part_only => $to_all,)?
                }
            }
        }

        impl From<UtxoRefusal> for $part {
            fn from(refusal: UtxoRefusal) -> Self {
                match refusal {
                    $(UtxoRefusal::$case $({ $($field),+ })? $(($value))? => Self::$case $({ $($field),+ })? $(($value))?,)+
                    UtxoRefusal::Other { code, message } => Self::Other { code, message },
                    $($all_only => $to_part,)?
                    other => Self::Other { code: other.code(), message: other.to_string() },
                }
            }
        }

        impl fmt::Display for $part {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                UtxoRefusal::from(self.clone()).fmt(f)
            }
        }

        impl std::error::Error for $part {}

        impl From<NoMemory> for $part {
            fn from(why: NoMemory) -> Self {
                Self::NoMemory(why)
            }
        }
    };
}

part! {
    UtxoCreateError {
        TxExists,
        BeingDeleted,
        BlobTaken,
        Pruned,
        BadHeight(height),
        BadArgument(argument),
        BadTransaction { offset, why },
        NoOutputs,
        NotExtended { input },
        TooLarge { what, limit },
        ExternalFull { limit },
        TooManyRows { limit },
        NoUpload,
        NotKept,
        TooMuchWork,
        NotReady(why),
        NoMemory(why),
        Corrupt { why },
    }
}

part! {
    UtxoSpendError {
        TxNotFound,
        Conflicting,
        Locked,
        CoinbaseImmature { spendable_at },
        UtxoNotFound,
        UtxoHashMismatch { stored },
        Frozen,
        FrozenUntil { height },
        InvalidSpend,
        Spent { by },
        BadHeight(height),
        BadArgument(argument),
        TooMuchWork,
        NoMemory(why),
        Corrupt { why },
    }
}

part! {
    UtxoError {
        TxNotFound,
        UtxoNotFound,
        UtxoHashMismatch { stored },
        Spent { by },
        AlreadyFrozen,
        UtxoNotFrozen,
        NotMined,
        OtherBlock { block },
        NotConflicting,
        WinnerLoses,
        BadHeight(height),
        BadArgument(argument),
        TooLarge { what, limit },
        External(store),
        NotKept,
        ExternalFull { limit },
        TooMuchWork,
        NoMemory(why),
        Corrupt { why },
    }
    all { UtxoError::NotSpendable(error) => (*error).into() }
    part {
        refusal @ (UtxoRefusal::Conflicting
        | UtxoRefusal::Locked
        | UtxoRefusal::CoinbaseImmature { .. }
        | UtxoRefusal::Frozen
        | UtxoRefusal::FrozenUntil { .. }
        | UtxoRefusal::InvalidSpend) => Self::NotSpendable(Box::new(refusal.into()))
    }
}
