//! Classes of retry: if and when a refused call may succeed.

use coppice_interface::*;

/// When the same call may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// A little later. Send the same again, after a wait that grows with each attempt.
    Again,
    /// After something was pruned, or an operator made room. Send the same again then.
    /// [`get_prune_status`](crate::Client::get_prune_status) reports what holds pruning back.
    AfterPruning,
    /// Not unchanged: another argument, another caller, or an operator's action is needed.
    Never,
}

/// A reason for which the canister refuses a call.
pub trait Refusal: std::fmt::Debug {
    /// Returns if and when the same call may succeed.
    fn retry(&self) -> Retry;
}

use Retry::{AfterPruning, Again, Never};

impl Refusal for AppendError {
    fn retry(&self) -> Retry {
        match self {
            Self::UploadOpen { .. } | Self::RollbackUnderway { .. } | Self::ResetUnderway { .. } => Again,
            // Pruning frees space inside memory, which is used before memory grows.
            Self::CapacityExhausted { .. }
            | Self::OutOfSpace
            | Self::LowCycles { .. }
            | Self::ReservedCyclesLimit { .. } => AfterPruning,
            Self::Conflict
            | Self::Gap { .. }
            | Self::WrongParent { .. }
            | Self::Pruned { .. }
            | Self::TooLarge { .. }
            | Self::BadEncoding { .. } => Never,
        }
    }
}

impl Refusal for UploadError {
    /// For an upload as a whole, as in [`send_block`](crate::Client::send_block): an expired upload is begun again.
    fn retry(&self) -> Retry {
        match self {
            Self::Append(error) => error.retry(),
            Self::NoUpload
            | Self::UploadOpen { .. }
            | Self::OtherUpload { .. }
            | Self::Incomplete { .. }
            | Self::Aborting => Again,
            Self::ChunkOutOfRange { .. } | Self::WrongLength { .. } | Self::ChunkMismatch | Self::Damaged => Never,
        }
    }
}

impl Refusal for ReadError {
    fn retry(&self) -> Retry {
        match self {
            Self::NotFound
            | Self::Pruned { .. }
            | Self::TooLarge { .. }
            | Self::NoSuchSegment
            | Self::OutOfRange { .. }
            | Self::Corrupt { .. } => Never,
        }
    }
}

impl Refusal for RollbackError {
    fn retry(&self) -> Retry {
        match self {
            Self::UploadOpen { .. } | Self::RollbackUnderway { .. } => Again,
            Self::Empty | Self::AboveHead { .. } | Self::Pruned { .. } | Self::TooDeep { .. } => Never,
        }
    }
}

impl Refusal for ResetError {
    fn retry(&self) -> Retry {
        match self {
            Self::UploadOpen { .. } | Self::RollbackUnderway { .. } => Again,
            Self::Empty | Self::WrongHash { .. } | Self::NotExported { .. } => Never,
        }
    }
}

impl Refusal for ExportError {
    /// With the same cursor. `Reorged` and `Corrupt` name the cursor to continue with.
    fn retry(&self) -> Retry {
        match self {
            Self::Behind { .. } => Again,
            Self::Pruned { .. }
            | Self::Reorged { .. }
            | Self::Reset { .. }
            | Self::BadCursor { .. }
            | Self::Corrupt { .. } => Never,
        }
    }
}

impl Refusal for KeyError {
    /// With the same cursor. `Reorged` names the cursor to continue with.
    fn retry(&self) -> Retry {
        match self {
            Self::Behind { .. } => Again,
            // A damaged block no longer blocks the read once it is pruned.
            Self::Corrupt { .. } => AfterPruning,
            Self::KeyTooLong { .. } | Self::Reorged { .. } | Self::Reset { .. } | Self::BadCursor { .. } => Never,
        }
    }
}

impl Refusal for ExporterError {
    fn retry(&self) -> Retry {
        match self {
            Self::BadName { .. }
            | Self::Anonymous
            | Self::NameTaken { .. }
            | Self::PrincipalTaken { .. }
            | Self::TooMany { .. }
            | Self::Unknown
            | Self::LastExporter
            | Self::Keyless => Never,
        }
    }
}

impl Refusal for AckError {
    fn retry(&self) -> Retry {
        match self {
            Self::NotRegistered { .. } | Self::AboveHead { .. } | Self::WrongHash { .. } | Self::Corrupt => Never,
        }
    }
}

impl Refusal for ConfigError {
    fn retry(&self) -> Retry {
        match self {
            Self::Invalid { .. } => Never,
        }
    }
}

impl Refusal for RoleError {
    fn retry(&self) -> Retry {
        match self {
            Self::Anonymous | Self::TooMany { .. } | Self::RegisterExporter { .. } => Never,
        }
    }
}

impl Refusal for PruneError {
    fn retry(&self) -> Retry {
        match self {
            Self::Invalid { .. } | Self::NoPolicy | Self::Stopped => Never,
        }
    }
}

impl Refusal for DeletionsError {
    fn retry(&self) -> Retry {
        match self {
            Self::AdminOnly => Never,
        }
    }
}

impl Refusal for BlobDeletionError {
    fn retry(&self) -> Retry {
        match self {
            // Leases are ended by their holders or expire.
            Self::Leased | Self::TooManyLeases { .. } => Again,
            // Phase 2 of the records' pruner deletes records, which makes room for the queue.
            Self::TooManyRows { .. }
            | Self::RecordsFull { .. }
            | Self::OutOfSpace
            | Self::LowCycles { .. }
            | Self::ReservedCyclesLimit { .. } => AfterPruning,
            Self::NotFound
            | Self::HoldsRecord
            | Self::Empty { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. }
            | Self::UnknownToken
            | Self::NotHolder
            | Self::Expired
            | Self::Completed
            | Self::Stopped => Never,
        }
    }
}

impl Refusal for UtxoPrunerError {
    fn retry(&self) -> Retry {
        match self {
            Self::BlockAssemblyNotRunning
            | Self::Stopped
            | Self::ZeroHeight
            | Self::BadHeight { .. }
            | Self::HeightJump { .. }
            | Self::NotOpen
            | Self::Invalid { .. }
            | Self::NotBlocking
            | Self::TooMany { .. } => Never,
        }
    }
}

impl Refusal for UtxoRefusal {
    fn retry(&self) -> Retry {
        match self {
            // Pruning deletes the record in the way, or makes room for a new one.
            Self::BeingDeleted
            | Self::ExternalFull { .. }
            | Self::TooManyRows { .. }
            | Self::RecordsFull { .. }
            | Self::OutOfSpace
            | Self::LowCycles { .. }
            | Self::ReservedCyclesLimit { .. } => AfterPruning,
            // These two depend on the height that the call names: a later call with a greater height may succeed.
            Self::CoinbaseImmature { .. } | Self::FrozenUntil { .. } => Never,
            Self::TxNotFound
            // It must be unlocked first.
            | Self::Locked
            | Self::TxExists
            | Self::BlobTaken
            | Self::Pruned
            | Self::Conflicting
            | Self::UtxoNotFound
            | Self::UtxoHashMismatch { .. }
            | Self::Frozen
            | Self::InvalidSpend
            | Self::Spent { .. }
            | Self::AlreadyFrozen
            | Self::UtxoNotFrozen
            | Self::NotMined
            | Self::NotConflicting
            | Self::WinnerLoses
            | Self::ZeroHeight
            | Self::BadHeight { .. }
            | Self::BadArgument { .. }
            | Self::BadTransaction { .. }
            | Self::NoOutputs
            | Self::NotExtended { .. }
            | Self::TooLarge { .. }
            | Self::NoUpload
            | Self::Outside(_)
            | Self::TooMuchWork
            | Self::Corrupt { .. } => Never,
        }
    }
}

/// Errors that are subsets of [`UtxoRefusal`].
macro_rules! parts {
    ($($error:ty),*) => {
        $(impl Refusal for $error {
            fn retry(&self) -> Retry {
                UtxoRefusal::from(self.clone()).retry()
            }
        })*
    };
}
parts!(UtxoCreateError, UtxoSpendError, UtxoError);

impl Refusal for RefusedSpend {
    fn retry(&self) -> Retry {
        self.error.retry()
    }
}

impl Refusal for Vec<RefusedSpend> {
    /// For a transaction that is spent completely or not at all: the class of its worst spend.
    fn retry(&self) -> Retry {
        self.iter().map(Refusal::retry).max().unwrap_or(Never)
    }
}

impl Refusal for ConflictError {
    fn retry(&self) -> Retry {
        self.error.retry()
    }
}

impl Refusal for TransactionUploadError {
    /// For an upload as a whole, as in [`upload_transaction`](crate::Client::upload_transaction): an expired upload is begun again.
    fn retry(&self) -> Retry {
        match self {
            Self::Refused(error) => error.retry(),
            // The caller's one upload, too, is completed or expires.
            Self::NoUpload | Self::OtherUpload { .. } | Self::TooMany { .. } => Again,
            Self::ChunkOutOfRange { .. } | Self::WrongLength { .. } | Self::ChunkMismatch => Never,
        }
    }
}

#[cfg(test)]
mod tests;
