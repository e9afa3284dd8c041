//! The queue of blobs outside the canister that are to be deleted (`blob-deletion-api.md`).

use super::{Metric, StoreType};
use candid::{CandidType, Principal};
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
    /// When deleting it failed last, in Unix nanoseconds; none where it never did.
    pub last_retry_at: Option<u64>,
    /// The UTXO record that goes with it.
    pub txid: Option<ByteBuf>,
}

/// What a blob outside is called.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobName {
    /// Its key, 1 to 1,024 bytes.
    pub blob_key: ByteBuf,
    /// What kind of file it is, 1 to 32 bytes.
    pub file_type: String,
    /// Which store has it.
    pub store_type: StoreType,
}

/// A blob that is to be deleted, and from which height on.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ScheduleBlobDeletion {
    /// What it is called.
    pub name: BlobName,
    /// It may be deleted from this height on.
    pub delete_at_height: u32,
}

/// What scheduling came to. A row that was there already keeps its number, gets the height, and is tried from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ScheduledBlobDeletion {
    /// The row's number.
    pub id: u64,
    /// It was under a live lease, and has left it: somebody may be deleting the blob this moment.
    pub was_leased: bool,
}

/// Where a row stands. It is in one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum BlobDeletionState {
    /// A live UTXO record names the blob: it is not to be deleted yet.
    Held,
    /// It is to be deleted from its height on.
    Waiting,
    /// Somebody has leased it.
    Leased,
    /// Deleting it has failed under a lease; it waits again from some moment on.
    BackingOff,
    /// It was given up: a dead letter.
    Dead,
}

impl BlobDeletionState {
    /// All of them, by their number.
    pub const ALL: [Self; 5] = [Self::Held, Self::Waiting, Self::Leased, Self::BackingOff, Self::Dead];
}

/// Which rows are listed, by number. What is left out does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ListBlobDeletions {
    /// Where to go on: the cursor of the page before.
    pub cursor: Option<u64>,
    /// Rows of the page; 0: 100; 1,000 at most.
    pub limit: u32,
    /// With this height or a higher one.
    pub min_height: Option<u32>,
    /// With this height or a lower one.
    pub max_height: Option<u32>,
    /// In this store.
    pub store_type: Option<StoreType>,
    /// That stand here.
    pub state: Option<BlobDeletionState>,
}

/// A row, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ListedBlobDeletion {
    /// The row.
    pub row: BlobDeletion,
    /// Where it stands.
    pub state: BlobDeletionState,
    /// Until when, in Unix nanoseconds: when its lease expires, or when it waits again.
    pub until: Option<u64>,
}

/// A page of rows. A call looks at 10,000 rows at most: a page may be short, or empty, and there is more while there is a cursor.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionList {
    /// The rows.
    pub rows: Vec<ListedBlobDeletion>,
    /// Where to go on; none at the end.
    pub cursor: Option<u64>,
}

/// What a failure came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionRetry {
    /// It has failed as often as it may, and is a dead letter now. `remove_blob_deletion` removes it where no UTXO record waits for it.
    pub should_remove: bool,
    /// How often deleting the blob has failed.
    pub retry_count: u32,
}

/// What a worker wants to lease.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AcquireBlobDeletions {
    /// Rows of this height or a lower one.
    pub height: u32,
    /// So many rows at most; 0: 100; 1,000 at most.
    pub limit: u32,
    /// Seconds until the lease expires; 0: 300; 43,200 at most.
    pub lock_timeout_secs: u64,
    /// In these stores; empty: in all.
    pub store_types: Vec<StoreType>,
    /// Names the call, 1 to 64 bytes: the same caller with the same name gets the same lease again while it is live, should an answer
    /// be lost. None: each call makes a lease.
    pub request: Option<ByteBuf>,
}

/// Rows that nobody else is given until the lease ends. By height, and then by number.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionLease {
    /// What its holder shows to complete or to extend it.
    pub token: ByteBuf,
    /// It expires at this moment, in Unix nanoseconds.
    pub expires_at: u64,
    /// For which height it was acquired.
    pub height: u32,
    /// The rows that it has.
    pub rows: Vec<BlobDeletion>,
}

/// What a worker did of what it had leased.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompleteBlobDeletionBatch {
    /// The lease's token.
    pub token: ByteBuf,
    /// Rows whose blob is gone, or was not there.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row in both lists is completed; one in neither waits again at once.
    pub failed_ids: Vec<u64>,
    /// How often deleting a blob may fail; 0 and 1: once.
    pub max_retries: u32,
}

/// A lease, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobLeaseStatus {
    /// Its number, from 1.
    pub number: u64,
    /// Who has it.
    pub holder: Principal,
    /// When it was acquired, in Unix nanoseconds.
    pub acquired_at: u64,
    /// When it expires, in Unix nanoseconds.
    pub expires_at: u64,
    /// For which height.
    pub height: u32,
    /// Rows that it has.
    pub rows: u32,
    /// It is over, and its rows are on their way back.
    pub over: bool,
}

/// Rows of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct StoreDeletions {
    /// Which store.
    pub store_type: StoreType,
    /// Of live UTXO records.
    pub held: u64,
    /// Those that wait.
    pub waiting: u64,
    /// Those under a lease.
    pub leased: u64,
    /// Those that wait for a moment.
    pub backing_off: u64,
    /// Dead letters.
    pub dead: u64,
    /// The lowest height among those that wait.
    pub oldest_due: Option<u32>,
}

/// Everything that an operator needs to see of the queue.
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionStatus {
    /// Rows by store.
    pub stores: Vec<StoreDeletions>,
    /// The lowest height among those that wait.
    pub oldest_due: Option<u32>,
    /// Leases, the oldest first.
    pub leases: Vec<BlobLeaseStatus>,
    /// With the names of the document's reference implementation.
    pub metrics: Vec<Metric>,
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
    /// Of the removed ones those that were given up: see `list_dead_blob_deletions`.
    pub dead: u64,
    /// So many numbers at the end, of the completed ones and then the failed ones, were not looked at: the message had no room
    /// for them. They are to be sent again; those before them are not, as a failure would count twice. A lease is live until nothing
    /// remains.
    pub remaining: u64,
    /// Rows that were left alone: under a live lease where that was not shown; or not, or not any more, of the lease that was.
    pub skipped: Vec<u64>,
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
    /// There is no such row, or not among those that were given up where these are meant.
    NotFound,
    /// The row is under a live lease: its holder has the say.
    Leased,
    /// The blob is that of a UTXO record, and goes with it.
    HoldsRecord,
    /// Something is empty.
    Empty {
        /// What.
        what: String,
    },
    /// Something is longer, or later, than it may be.
    TooLarge {
        /// What.
        what: String,
        /// The most that it may be.
        limit: u64,
    },
    /// More rows than one call takes.
    TooMany {
        /// The most of them.
        limit: u64,
    },
    /// So many leases there are already.
    TooManyLeases {
        /// The most of them.
        limit: u64,
    },
    /// No lease has, or had lately, such a token.
    UnknownToken,
    /// The lease is somebody else's.
    NotHolder,
    /// The lease has expired: its rows are others' again.
    Expired,
    /// The lease was completed.
    Completed,
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
