//! Why an operation on records was refused: an error for creating, one for spending, one for the rest; and [`UtxoRefusal`], which is
//! all of them.

use super::{ExternalStore, Spender};
use crate::UtxoHash;
use candid::CandidType;
use serde::{Deserialize, Serialize};

/// Why a record was not created. Nothing of the item has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoCreateError {
    /// The transaction has a record already.
    TxExists,
    /// The record is being deleted; its blob outside is not gone yet. Or the blob that a new record names is to be deleted.
    BeingDeleted,
    /// The blob outside is named by another record.
    BlobTaken,
    /// The height is 0: no block has height 0.
    ZeroHeight,
    /// A height is no block's: 2^31 or more.
    BadHeight {
        /// The largest height.
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
        /// The place of the fault, in bytes from the start.
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
    /// No upload of this transaction is complete.
    NoUpload,
    /// More instructions than a message has would be needed.
    TooMuchWork,
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

/// Why an output was not spent. Nothing of the transaction has changed.
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
    /// The height is 0: no block has height 0.
    ZeroHeight,
    /// A height is no block's: 2^31 or more.
    BadHeight {
        /// The largest height.
        most: u32,
    },
    /// A hash does not have 32 bytes, or another argument makes no sense.
    BadArgument {
        /// The name of the argument.
        field: String,
        /// The reason as a sentence.
        why: String,
    },
    /// More instructions than a message has would be needed.
    TooMuchWork,
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
    /// The height is 0: no block has height 0.
    ZeroHeight,
    /// A height is no block's: 2^31 or more.
    BadHeight {
        /// The largest height.
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
    /// More instructions than a message has would be needed.
    TooMuchWork,
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
    /// The height is 0: no block has height 0.
    ZeroHeight,
    /// A height is no block's: 2^31 or more.
    BadHeight {
        /// The largest height.
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
        /// The place of the fault, in bytes from the start.
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
    /// No upload of this transaction is complete.
    NoUpload,
    /// The transaction's bytes are kept outside the canister, there.
    Outside(ExternalStore),
    /// More instructions than a message has would be needed.
    TooMuchWork,
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

impl From<UtxoCreateError> for UtxoRefusal {
    fn from(error: UtxoCreateError) -> Self {
        match error {
            UtxoCreateError::TxExists => Self::TxExists,
            UtxoCreateError::BeingDeleted => Self::BeingDeleted,
            UtxoCreateError::BlobTaken => Self::BlobTaken,
            UtxoCreateError::ZeroHeight => Self::ZeroHeight,
            UtxoCreateError::BadHeight { most } => Self::BadHeight { most },
            UtxoCreateError::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoCreateError::BadTransaction { at, why } => Self::BadTransaction { at, why },
            UtxoCreateError::NoOutputs => Self::NoOutputs,
            UtxoCreateError::NotExtended { input } => Self::NotExtended { input },
            UtxoCreateError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            UtxoCreateError::ExternalFull { limit } => Self::ExternalFull { limit },
            UtxoCreateError::NoUpload => Self::NoUpload,
            UtxoCreateError::TooMuchWork => Self::TooMuchWork,
            UtxoCreateError::OutOfSpace => Self::OutOfSpace,
            UtxoCreateError::LowCycles { missing } => Self::LowCycles { missing },
            UtxoCreateError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoCreateError::Corrupt { why } => Self::Corrupt { why },
        }
    }
}

impl From<UtxoRefusal> for UtxoCreateError {
    fn from(refusal: UtxoRefusal) -> Self {
        match refusal {
            UtxoRefusal::TxExists => Self::TxExists,
            UtxoRefusal::BeingDeleted => Self::BeingDeleted,
            UtxoRefusal::BlobTaken => Self::BlobTaken,
            UtxoRefusal::ZeroHeight => Self::ZeroHeight,
            UtxoRefusal::BadHeight { most } => Self::BadHeight { most },
            UtxoRefusal::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoRefusal::BadTransaction { at, why } => Self::BadTransaction { at, why },
            UtxoRefusal::NoOutputs => Self::NoOutputs,
            UtxoRefusal::NotExtended { input } => Self::NotExtended { input },
            UtxoRefusal::TooLarge { what, limit } => Self::TooLarge { what, limit },
            UtxoRefusal::ExternalFull { limit } => Self::ExternalFull { limit },
            UtxoRefusal::NoUpload => Self::NoUpload,
            UtxoRefusal::TooMuchWork => Self::TooMuchWork,
            UtxoRefusal::OutOfSpace => Self::OutOfSpace,
            UtxoRefusal::LowCycles { missing } => Self::LowCycles { missing },
            UtxoRefusal::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoRefusal::Corrupt { why } => Self::Corrupt { why },
            other => Self::Corrupt { why: misplaced(&other) },
        }
    }
}

impl From<UtxoSpendError> for UtxoRefusal {
    fn from(error: UtxoSpendError) -> Self {
        match error {
            UtxoSpendError::TxNotFound => Self::TxNotFound,
            UtxoSpendError::Conflicting => Self::Conflicting,
            UtxoSpendError::Locked => Self::Locked,
            UtxoSpendError::CoinbaseImmature { spendable_at } => Self::CoinbaseImmature { spendable_at },
            UtxoSpendError::UtxoNotFound => Self::UtxoNotFound,
            UtxoSpendError::UtxoHashMismatch { stored } => Self::UtxoHashMismatch { stored },
            UtxoSpendError::Frozen => Self::Frozen,
            UtxoSpendError::FrozenUntil { height } => Self::FrozenUntil { height },
            UtxoSpendError::InvalidSpend => Self::InvalidSpend,
            UtxoSpendError::Spent { by } => Self::Spent { by },
            UtxoSpendError::ZeroHeight => Self::ZeroHeight,
            UtxoSpendError::BadHeight { most } => Self::BadHeight { most },
            UtxoSpendError::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoSpendError::TooMuchWork => Self::TooMuchWork,
            UtxoSpendError::OutOfSpace => Self::OutOfSpace,
            UtxoSpendError::LowCycles { missing } => Self::LowCycles { missing },
            UtxoSpendError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoSpendError::Corrupt { why } => Self::Corrupt { why },
        }
    }
}

impl From<UtxoRefusal> for UtxoSpendError {
    fn from(refusal: UtxoRefusal) -> Self {
        match refusal {
            UtxoRefusal::TxNotFound => Self::TxNotFound,
            UtxoRefusal::Conflicting => Self::Conflicting,
            UtxoRefusal::Locked => Self::Locked,
            UtxoRefusal::CoinbaseImmature { spendable_at } => Self::CoinbaseImmature { spendable_at },
            UtxoRefusal::UtxoNotFound => Self::UtxoNotFound,
            UtxoRefusal::UtxoHashMismatch { stored } => Self::UtxoHashMismatch { stored },
            UtxoRefusal::Frozen => Self::Frozen,
            UtxoRefusal::FrozenUntil { height } => Self::FrozenUntil { height },
            UtxoRefusal::InvalidSpend => Self::InvalidSpend,
            UtxoRefusal::Spent { by } => Self::Spent { by },
            UtxoRefusal::ZeroHeight => Self::ZeroHeight,
            UtxoRefusal::BadHeight { most } => Self::BadHeight { most },
            UtxoRefusal::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoRefusal::TooMuchWork => Self::TooMuchWork,
            UtxoRefusal::OutOfSpace => Self::OutOfSpace,
            UtxoRefusal::LowCycles { missing } => Self::LowCycles { missing },
            UtxoRefusal::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoRefusal::Corrupt { why } => Self::Corrupt { why },
            other => Self::Corrupt { why: misplaced(&other) },
        }
    }
}

impl From<UtxoError> for UtxoRefusal {
    fn from(error: UtxoError) -> Self {
        match error {
            UtxoError::TxNotFound => Self::TxNotFound,
            UtxoError::UtxoNotFound => Self::UtxoNotFound,
            UtxoError::UtxoHashMismatch { stored } => Self::UtxoHashMismatch { stored },
            UtxoError::Spent { by } => Self::Spent { by },
            UtxoError::AlreadyFrozen => Self::AlreadyFrozen,
            UtxoError::UtxoNotFrozen => Self::UtxoNotFrozen,
            UtxoError::NotMined => Self::NotMined,
            UtxoError::NotConflicting => Self::NotConflicting,
            UtxoError::WinnerLoses => Self::WinnerLoses,
            UtxoError::ZeroHeight => Self::ZeroHeight,
            UtxoError::BadHeight { most } => Self::BadHeight { most },
            UtxoError::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            UtxoError::Outside(store) => Self::Outside(store),
            UtxoError::TooMuchWork => Self::TooMuchWork,
            UtxoError::OutOfSpace => Self::OutOfSpace,
            UtxoError::LowCycles { missing } => Self::LowCycles { missing },
            UtxoError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoError::Corrupt { why } => Self::Corrupt { why },
            UtxoError::NotSpendable(error) => (*error).into(),
        }
    }
}

impl From<UtxoRefusal> for UtxoError {
    fn from(refusal: UtxoRefusal) -> Self {
        match refusal {
            UtxoRefusal::TxNotFound => Self::TxNotFound,
            UtxoRefusal::UtxoNotFound => Self::UtxoNotFound,
            UtxoRefusal::UtxoHashMismatch { stored } => Self::UtxoHashMismatch { stored },
            UtxoRefusal::Spent { by } => Self::Spent { by },
            UtxoRefusal::AlreadyFrozen => Self::AlreadyFrozen,
            UtxoRefusal::UtxoNotFrozen => Self::UtxoNotFrozen,
            UtxoRefusal::NotMined => Self::NotMined,
            UtxoRefusal::NotConflicting => Self::NotConflicting,
            UtxoRefusal::WinnerLoses => Self::WinnerLoses,
            UtxoRefusal::ZeroHeight => Self::ZeroHeight,
            UtxoRefusal::BadHeight { most } => Self::BadHeight { most },
            UtxoRefusal::BadArgument { field, why } => Self::BadArgument { field, why },
            UtxoRefusal::TooLarge { what, limit } => Self::TooLarge { what, limit },
            UtxoRefusal::Outside(store) => Self::Outside(store),
            UtxoRefusal::TooMuchWork => Self::TooMuchWork,
            UtxoRefusal::OutOfSpace => Self::OutOfSpace,
            UtxoRefusal::LowCycles { missing } => Self::LowCycles { missing },
            UtxoRefusal::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
            UtxoRefusal::Corrupt { why } => Self::Corrupt { why },
            refusal @ (UtxoRefusal::Conflicting
            | UtxoRefusal::Locked
            | UtxoRefusal::CoinbaseImmature { .. }
            | UtxoRefusal::Frozen
            | UtxoRefusal::FrozenUntil { .. }
            | UtxoRefusal::InvalidSpend) => Self::NotSpendable(Box::new(refusal.into())),
            other => Self::Corrupt { why: misplaced(&other) },
        }
    }
}
