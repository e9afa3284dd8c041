//! Why an operation on records was refused: an error for creating, one for spending, one for the rest; and [`UtxoRefusal`], which is
//! all of them.

use super::{ExternalStore, Spender};
use crate::UtxoHash;
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// Why a record was not created. Nothing of the item has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoCreateError {
    /// The transaction has a record already.
    TxExists,
    /// The record is being deleted; its blob outside is not gone yet. Or the blob that a new record names is to be deleted.
    BeingDeleted,
    /// The blob outside is named by another record.
    BlobTaken,
    /// The record was pruned: an output that the transaction spends names it as deleted. Or it may have been pruned: all its
    /// blocks are at or below `pruned_height`, none of its parents has a record, and the item does not have `is_new`.
    Pruned,
    /// The height is 0; heights begin with 1.
    ZeroHeight,
    /// A height of the call, or of a block that it names, is 2^31 or more; or, once a height was notified, above it by more than
    /// a producer may raise it now (`most_height` of `get_pruner_status`).
    BadHeight {
        /// The largest height that is taken.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// The name of the argument.
        field: String,
        /// The reason as a sentence.
        why: String,
    },
    /// The bytes are no transaction.
    BadTransaction {
        /// The first byte that is wrong, counted from the transaction's start.
        at: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// The transaction has no outputs.
    NoOutputs,
    /// The setting `require_extended` is on, and this input does not say what it spends.
    NotExtended {
        /// The input, from 0.
        input: u32,
    },
    /// A part of the argument is larger than it may be.
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transactions' data in the BlobStore would be more than `max_external_bytes`.
    ExternalFull {
        /// The most bytes of such data.
        limit: u64,
    },
    /// The deletion queue has reached `max_deletion_rows`: no record that names a blob outside is made.
    TooManyRows {
        /// The most rows that there may be.
        limit: u64,
    },
    /// No upload of this transaction is complete.
    NoUpload,
    /// More instructions, or changed pages, than a message has would be needed.
    TooMuchWork,
    /// The memory of records has reached `max_utxo_bytes`, and no record that was pruned leaves room.
    RecordsFull {
        /// The most bytes that may be billed for records.
        limit: u64,
    },
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing, or is below `feed_min_liquid_cycles`.
    LowCycles {
        /// The number of cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// The number of cycles by which the limit would be passed.
        missing: u128,
    },
    /// The record cannot be decoded; nothing is assumed of it.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
}

/// Why an output was not spent. Nothing of the transaction has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoSpendError {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction is a double spend.
    Conflicting,
    /// The transaction's outputs cannot be spent yet: `utxo_set_locked`, or a block with it.
    Locked,
    /// The output is a coinbase's, and is spendable at a later height.
    CoinbaseImmature {
        /// The first height at which the output is spendable.
        spendable_at: u32,
    },
    /// The transaction has no such output, or it is none that can be spent.
    UtxoNotFound,
    /// The output's hash is another one.
    UtxoHashMismatch {
        /// The output's hash as it is stored.
        stored: UtxoHash,
    },
    /// The output is frozen.
    Frozen,
    /// The output was reassigned, and is spendable at a later height.
    FrozenUntil {
        /// The first height at which the output is spendable.
        height: u32,
    },
    /// The spender spent this output before, and was pruned since: it is not taken again.
    InvalidSpend,
    /// The output is spent by another transaction, or by another input of this one.
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The height is 0; heights begin with 1.
    ZeroHeight,
    /// A height of the call, or of a block that it names, is 2^31 or more; or, once a height was notified, above it by more than
    /// a producer may raise it now (`most_height` of `get_pruner_status`).
    BadHeight {
        /// The largest height that is taken.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// The name of the argument.
        field: String,
        /// The reason as a sentence.
        why: String,
    },
    /// More instructions, or changed pages, than a message has would be needed.
    TooMuchWork,
    /// The memory of records has reached `max_utxo_bytes`, and no record that was pruned leaves room.
    RecordsFull {
        /// The most bytes that may be billed for records.
        limit: u64,
    },
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing.
    LowCycles {
        /// The number of cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// The number of cycles by which the limit would be passed.
        missing: u128,
    },
    /// The record cannot be decoded; nothing is assumed of it.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
}

/// Why an operation that neither creates nor spends was refused. Nothing of the item has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoError {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction has no such output, or it is none that can be spent.
    UtxoNotFound,
    /// The output's hash is another one.
    UtxoHashMismatch {
        /// The output's hash as it is stored.
        stored: UtxoHash,
    },
    /// The output is spent by another transaction, or by another input of this one.
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The output that is to be frozen is frozen.
    AlreadyFrozen,
    /// The output that is to be unfrozen or reassigned is not frozen.
    UtxoNotFrozen,
    /// No block has the transaction, so that the longest chain has not.
    NotMined,
    /// Only a conflicting transaction can win over the one that it conflicts with.
    NotConflicting,
    /// The winner spends an output of a transaction that loses against a winner.
    WinnerLoses,
    /// The height is 0; heights begin with 1.
    ZeroHeight,
    /// A height of the call, or of a block that it names, is 2^31 or more; or, once a height was notified, above it by more than
    /// a producer may raise it now (`most_height` of `get_pruner_status`).
    BadHeight {
        /// The largest height that is taken.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// The name of the argument.
        field: String,
        /// The reason as a sentence.
        why: String,
    },
    /// A part of the argument is larger than it may be.
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transaction's bytes are kept outside the canister, there.
    Outside(ExternalStore),
    /// More instructions, or changed pages, than a message has would be needed.
    TooMuchWork,
    /// The memory of records has reached `max_utxo_bytes`, and no record that was pruned leaves room.
    RecordsFull {
        /// The most bytes that may be billed for records.
        limit: u64,
    },
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing.
    LowCycles {
        /// The number of cycles that are missing; 0 in what a job says, as everybody may read that.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// The number of cycles by which the limit would be passed; 0 in what a job says, as everybody may read that.
        missing: u128,
    },
    /// The record cannot be decoded; nothing is assumed of it.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A winner of `utxo_process_conflicting` cannot spend an output that it spends.
    NotSpendable(Box<UtxoSpendError>),
}

/// Any reason of the three: for whoever treats them alike. It is no type of the Candid interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoRefusal {
    /// There is no such transaction.
    TxNotFound,
    /// The transaction has a record already.
    TxExists,
    /// The record is being deleted; its blob outside is not gone yet. Or the blob that a new record names is to be deleted.
    BeingDeleted,
    /// The blob outside is named by another record.
    BlobTaken,
    /// The record was pruned: an output that the transaction spends names it as deleted. Or it may have been pruned: all its
    /// blocks are at or below `pruned_height`, none of its parents has a record, and the item does not have `is_new`.
    Pruned,
    /// The transaction is a double spend.
    Conflicting,
    /// The transaction's outputs cannot be spent yet: `utxo_set_locked`, or a block with it.
    Locked,
    /// The output is a coinbase's, and is spendable at a later height.
    CoinbaseImmature {
        /// The first height at which the output is spendable.
        spendable_at: u32,
    },
    /// The transaction has no such output, or it is none that can be spent.
    UtxoNotFound,
    /// The output's hash is another one.
    UtxoHashMismatch {
        /// The output's hash as it is stored.
        stored: UtxoHash,
    },
    /// The output is frozen.
    Frozen,
    /// The output was reassigned, and is spendable at a later height.
    FrozenUntil {
        /// The first height at which the output is spendable.
        height: u32,
    },
    /// The spender spent this output before, and was pruned since: it is not taken again.
    InvalidSpend,
    /// The output is spent by another transaction, or by another input of this one.
    Spent {
        /// The spender that holds the output.
        by: Spender,
    },
    /// The output that is to be frozen is frozen.
    AlreadyFrozen,
    /// The output that is to be unfrozen or reassigned is not frozen.
    UtxoNotFrozen,
    /// No block has the transaction, so that the longest chain has not.
    NotMined,
    /// Only a conflicting transaction can win over the one that it conflicts with.
    NotConflicting,
    /// The winner spends an output of a transaction that loses against a winner.
    WinnerLoses,
    /// The height is 0; heights begin with 1.
    ZeroHeight,
    /// A height of the call, or of a block that it names, is 2^31 or more; or, once a height was notified, above it by more than
    /// a producer may raise it now (`most_height` of `get_pruner_status`).
    BadHeight {
        /// The largest height that is taken.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// The name of the argument.
        field: String,
        /// The reason as a sentence.
        why: String,
    },
    /// The bytes are no transaction.
    BadTransaction {
        /// The first byte that is wrong, counted from the transaction's start.
        at: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// The transaction has no outputs.
    NoOutputs,
    /// The setting `require_extended` is on, and this input does not say what it spends.
    NotExtended {
        /// The input, from 0.
        input: u32,
    },
    /// A part of the argument is larger than it may be.
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// The transactions' data in the BlobStore would be more than `max_external_bytes`.
    ExternalFull {
        /// The most bytes of such data.
        limit: u64,
    },
    /// The deletion queue has reached `max_deletion_rows`: no record that names a blob outside is made.
    TooManyRows {
        /// The most rows that there may be.
        limit: u64,
    },
    /// No upload of this transaction is complete.
    NoUpload,
    /// The transaction's bytes are kept outside the canister, there.
    Outside(ExternalStore),
    /// More instructions, or changed pages, than a message has would be needed.
    TooMuchWork,
    /// The memory of records has reached `max_utxo_bytes`, and no record that was pruned leaves room.
    RecordsFull {
        /// The most bytes that may be billed for records.
        limit: u64,
    },
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing.
    LowCycles {
        /// The number of cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// The number of cycles by which the limit would be passed.
        missing: u128,
    },
    /// The record cannot be decoded; nothing is assumed of it.
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
}

/// What a method says where another one's reason came up, which takes a fault of the code.
fn misplaced(refusal: &UtxoRefusal) -> String {
    format!("{refusal:?}, where that cannot be")
}

/// The ways from a part of the reasons to all of them, and back: each case by its name, and what only one way knows behind it.
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
                    $($part_only => $to_all,)?
                }
            }
        }

        impl From<UtxoRefusal> for $part {
            fn from(refusal: UtxoRefusal) -> Self {
                match refusal {
                    $(UtxoRefusal::$case $({ $($field),+ })? $(($value))? => Self::$case $({ $($field),+ })? $(($value))?,)+
                    $($all_only => $to_part,)?
                    other => Self::Corrupt { why: misplaced(&other) },
                }
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
        ZeroHeight,
        BadHeight { most },
        BadArgument { field, why },
        BadTransaction { at, why },
        NoOutputs,
        NotExtended { input },
        TooLarge { what, limit },
        ExternalFull { limit },
        TooManyRows { limit },
        NoUpload,
        TooMuchWork,
        RecordsFull { limit },
        OutOfSpace,
        LowCycles { missing },
        ReservedCyclesLimit { missing },
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
        ZeroHeight,
        BadHeight { most },
        BadArgument { field, why },
        TooMuchWork,
        RecordsFull { limit },
        OutOfSpace,
        LowCycles { missing },
        ReservedCyclesLimit { missing },
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
        NotConflicting,
        WinnerLoses,
        ZeroHeight,
        BadHeight { most },
        BadArgument { field, why },
        TooLarge { what, limit },
        Outside(store),
        TooMuchWork,
        RecordsFull { limit },
        OutOfSpace,
        LowCycles { missing },
        ReservedCyclesLimit { missing },
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
