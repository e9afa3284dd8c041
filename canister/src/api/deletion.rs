//! The queue of blobs outside the canister that are to be deleted (`blob-deletion-api.md`).

use super::StoreType;
use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A blob that is to be deleted. (key, file type, store) is unique.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletion {
    /// The row's number, from 1.
    pub id: u64,
    /// The blob's key.
    pub blob_key: ByteBuf,
    /// What kind of file it is: `tx`, `outputs`.
    pub file_type: String,
    /// Which store has it.
    pub store_type: StoreType,
    /// It may be deleted from this height on.
    pub delete_at_height: u32,
    /// How often deleting it has failed.
    pub retry_count: u32,
    /// When that was last, in Unix nanoseconds; 0: never.
    pub last_retry_at: u64,
    /// The UTXO record that goes with it.
    pub txid: Option<ByteBuf>,
}

/// What a worker did of what it was given. Numbers that the queue does not know are skipped.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompleteBlobDeletions {
    /// Rows whose blob is gone, or was not there.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row in both lists is completed.
    pub failed_ids: Vec<u64>,
    /// How often deleting a blob may fail; 0 and 1: once.
    pub max_retries: u32,
}

/// What became of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompletedBlobDeletions {
    /// Rows that are not pending any more: completed, or given up at `max_retries`.
    pub removed: u64,
    /// Rows that are to be tried again.
    pub retries_incremented: u64,
    /// Of the removed ones those that were given up and whose UTXO record stays: see `list_dead_blob_deletions`.
    pub dead: u64,
    /// So many numbers at the end, of the completed ones and then the failed ones, were not looked at: the message had no room
    /// for them. They are to be sent again; those before them are not, as a failure would count twice.
    pub remaining: u64,
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionPage {
    /// The rows.
    pub rows: Vec<BlobDeletion>,
    /// Where to go on; none at the end.
    pub cursor: Option<u64>,
}

/// Why something was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum BlobDeletionError {
    /// There is no such row among those that were given up.
    NotFound,
    /// More rows than one call takes.
    TooMany {
        /// The most of them.
        limit: u64,
    },
    /// The operator's cap on stable memory is reached, or the platform has no more.
    OutOfSpace,
    /// The balance would not pay for growing.
    LowCycles {
        /// Cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// By so many.
        missing: u128,
    },
}

impl From<crate::memory::GrowError> for BlobDeletionError {
    fn from(error: crate::memory::GrowError) -> Self {
        match error {
            // Only a tick's work is put off, and a tick that meets it goes on later.
            crate::memory::GrowError::OutOfSpace | crate::memory::GrowError::Later => Self::OutOfSpace,
            crate::memory::GrowError::LowCycles { missing } => Self::LowCycles { missing },
            crate::memory::GrowError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
        }
    }
}
