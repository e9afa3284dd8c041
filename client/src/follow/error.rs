//! The reason why following a chain ends.

use crate::{Cause, Error, Retry};
use ic_coppice_interface::{HeldBy, ReadError, RollbackError, UploadError};

/// The reason why [`follow`](crate::Client::follow) ended. Blocks appended until then stay appended.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The caller's chain cannot be read.
    #[error("the chain cannot be read")]
    Chain(#[source] Cause),
    /// The caller's chain has no block with this number, or one whose parent is not the block before it. The chain may have changed between
    /// two calls.
    #[error("the chain has no block {number} that follows its own block before it")]
    Missing {
        /// The number of the block.
        number: u64,
    },
    /// The canister and the caller's chain have no block in common: the chain must reach further back, or an admin must reset the canister.
    #[error(
        "the canister with head {head} keeps none of the chain's blocks {first} to {last}, and not the parent of block {first}"
    )]
    NoCommonBlock {
        /// The number of the canister's head.
        head: u64,
        /// The number of the chain's first block.
        first: u64,
        /// The number of the chain's last block.
        last: u64,
    },
    /// The canister's head or headers cannot be read.
    #[error("the canister's head cannot be read")]
    Read(#[source] Error<ReadError>),
    /// A block cannot be appended.
    #[error("block {number} is not appended")]
    Append {
        /// The number of the block.
        number: u64,
        /// The reason.
        #[source]
        error: Error<UploadError>,
    },
    /// The canister cannot be rolled back.
    #[error("the canister cannot be rolled back to block {to}")]
    Rollback {
        /// The newest common block.
        to: u64,
        /// The reason.
        #[source]
        error: Error<RollbackError>,
    },
}

impl FollowError {
    /// Returns if and when another call of `follow` with the same chain may succeed.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Chain(_) | Self::NoCommonBlock { .. } => Retry::Never,
            Self::Missing { .. } => Retry::Again,
            // Another caller removed blocks in between.
            Self::Read(Error::Refused(ReadError::NotFound))
            | Self::Rollback {
                error: Error::Refused(RollbackError::AboveHead { .. } | RollbackError::Empty), ..
            } => Retry::Reorg,
            Self::Read(error) => error.retry(),
            Self::Append { error, .. } => error.retry(),
            Self::Rollback { error, .. } => error.retry(),
        }
    }

    /// Returns what holds pruning back, if the canister refuses a block until something is pruned.
    pub fn held_by(&self) -> Option<&HeldBy> {
        match self {
            Self::Append { error, .. } => error.held_by(),
            _ => None,
        }
    }
}
