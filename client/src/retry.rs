//! Classes of retry: if and when a refused call may succeed.

use ic_coppice_interface::*;

/// When the same call may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// Later, unchanged: wait, longer each time, and send the same call again.
    Again,
    /// After pruning, or after an operator makes room: send the same call again then.
    /// [`get_prune_status`](crate::Client::get_prune_status) reports the holder of pruning.
    AfterPruning,
    /// After the caller has followed a reorg: the chain of the caller and the chain of the canister differ. Find their common block, or read
    /// the position of applying (`applying` of `get_storage_status`), and continue there.
    Reorg,
    /// Never unchanged: another argument, another caller, or an operator is needed.
    Never,
}

/// A reason for which the canister refuses a call.
pub trait Refusal: std::fmt::Debug {
    /// Returns if and when the same call may succeed.
    fn retry(&self) -> Retry;

    /// Returns the number of cycles that are missing, if they are the reason. Sentences of errors leave the number out, because the
    /// canister publishes some of them and the number reveals the balance.
    fn missing_cycles(&self) -> Option<u128> {
        None
    }

    /// Returns what holds pruning back, if the canister refuses the call because pruning frees no space.
    fn held_by(&self) -> Option<&HeldBy> {
        None
    }
}

use Retry::{AfterPruning, Again, Never, Reorg};

/// Gives errors their class: cases of a class, a case that names what holds pruning back, cases that another error decides, and `Never` for
/// the rest.
macro_rules! classes {
    ($($error:ident { $($class:ident: $pattern:pat $(if $guard:expr)?,)* $(@held $held:ident,)? $(=> $($case:ident)|+)? })*) => {
        $(impl Refusal for $error {
            fn retry(&self) -> Retry {
                match self {
                    $($pattern $(if $guard)? => $class,)*
                    $($(Self::$case(error) => error.retry(),)+)?
                    #[allow(unreachable_patterns)]
                    _ => Never,
                }
            }

            fn missing_cycles(&self) -> Option<u128> {
                match self {
                    $($(Self::$case(error) => error.missing_cycles(),)+)?
                    _ => None,
                }
            }

            fn held_by(&self) -> Option<&HeldBy> {
                match self {
                    $(Self::$held { held_by } => Some(held_by),)?
                    $($(Self::$case(error) => error.held_by(),)+)?
                    _ => None,
                }
            }
        })*
    };
}

impl Refusal for NotReady {
    fn retry(&self) -> Retry {
        Again
    }
}

impl Refusal for NoMemory {
    /// Pruning frees space, and new blocks use it before memory grows.
    fn retry(&self) -> Retry {
        AfterPruning
    }

    fn missing_cycles(&self) -> Option<u128> {
        match self {
            Self::LowCycles { missing } | Self::ReservedCyclesLimit { missing } => Some(*missing),
            Self::OutOfSpace | Self::RecordsFull { .. } => None,
        }
    }
}

classes! {
    BadHeight {}
    BadArgument {}
    UploadOpen { Again: _, }
    AppendError {
        Again: Self::RollbackUnderway { .. } | Self::ResetUnderway { .. },
        AfterPruning: Self::CapacityExhausted { .. },
        Reorg: Self::WrongParent { .. } | Self::Gap { .. },
        // A block that is kept with other contents is not a reorg: its producer must mend one of the two.
        Reorg: Self::Conflict { differs } if differs.iter().any(|field| field.is_of_another_block()),
        @held CapacityExhausted,
        => NotReady | NoMemory | UploadOpen
    }
    // A retry repeats the whole upload, as `send_block` does: an expired upload is begun again.
    UploadError {
        Again: Self::NoUpload | Self::OtherUpload { .. } | Self::Incomplete { .. } | Self::Aborting,
        => Append | UploadOpen
    }
    ReadError {}
    RollbackError { Again: Self::RollbackUnderway { .. }, => UploadOpen }
    ResetError { Again: Self::RollbackUnderway { .. }, => UploadOpen }
    // With the same cursor. `Reorged` and `Corrupt` name the cursor to continue with.
    ExportError { Again: Self::Behind { .. }, Reorg: Self::Reorged { .. }, }
    // A damaged block hides older transactions until it is pruned.
    KeyError { Again: Self::Behind { .. }, Reorg: Self::Reorged { .. }, AfterPruning: Self::Corrupt { .. }, }
    ExporterError {}
    AckError { Reorg: Self::AboveHead { .. } | Self::WrongHash { .. }, }
    ConfigError {}
    RoleError {}
    PruneError {}
    DeletionsError {}
    // Leases end, by their holders or by time. Phase 2 of the pruner makes room in the queue.
    BlobDeletionError {
        Again: Self::Leased | Self::TooManyLeases { .. },
        AfterPruning: Self::TooManyRows { .. },
        => NotReady | NoMemory
    }
    UtxoPrunerError {}
    // Pruning deletes the record that is in the way, or makes room for a new one. `CoinbaseImmature` and `FrozenUntil` depend on the
    // height of the call: a call with a greater height may succeed.
    UtxoRefusal {
        AfterPruning: Self::BeingDeleted | Self::ExternalFull { .. } | Self::TooManyRows { .. },
        => NotReady | NoMemory
    }
    // A retry repeats the whole upload, as `upload_transaction` does: an expired upload is begun again.
    TransactionUploadError {
        Again: Self::NoUpload | Self::OtherUpload { .. } | Self::TooMany { .. },
        => Refused
    }
}

/// Errors that are subsets of [`UtxoRefusal`].
macro_rules! parts {
    ($($error:ty),*) => {
        $(impl Refusal for $error {
            fn retry(&self) -> Retry {
                UtxoRefusal::from(self.clone()).retry()
            }

            fn missing_cycles(&self) -> Option<u128> {
                UtxoRefusal::from(self.clone()).missing_cycles()
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
    /// The class of a transaction that is spent whole or not at all: the worst of its spends.
    fn retry(&self) -> Retry {
        self.iter().map(Refusal::retry).max().unwrap_or(Never)
    }
}

impl Refusal for UtxoApplyReason {
    fn retry(&self) -> Retry {
        match self {
            Self::Create(error) => error.retry(),
            Self::Spend(error) => error.retry(),
            _ => Never,
        }
    }

    fn missing_cycles(&self) -> Option<u128> {
        match self {
            Self::Create(error) => error.missing_cycles(),
            Self::Spend(error) => error.missing_cycles(),
            _ => None,
        }
    }
}

impl Refusal for UtxoApplyError {
    fn retry(&self) -> Retry {
        match self {
            // The block may still come.
            Self::NotFound | Self::RollbackUnderway { .. } => Again,
            // The caller has another branch, or another caller moved the position.
            Self::WrongHash { .. } | Self::OtherId { .. } | Self::WrongHeight { .. } => Reorg,
            Self::NotNext { .. } | Self::Pruned { .. } => Reorg,
            Self::Stopped(stop) => stop.reason.retry(),
            Self::NoMemory(why) => why.retry(),
            _ => Never,
        }
    }

    fn missing_cycles(&self) -> Option<u128> {
        match self {
            Self::Stopped(stop) => stop.reason.missing_cycles(),
            Self::NoMemory(why) => why.missing_cycles(),
            _ => None,
        }
    }
}

impl Refusal for ConflictError {
    fn retry(&self) -> Retry {
        self.error.retry()
    }
}

#[cfg(test)]
mod tests;
