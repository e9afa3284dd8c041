//! The queue of blobs outside the canister that are to be deleted (`blob-deletion-api.md`).

use super::{Metric, StoreType};
use crate::Txid;
use crate::error::NoMemory;
use candid::{CandidType, Principal};
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// Blocks below the chain's height, or the persister's where one runs, up to which workers delete blobs if they are not told another number.
pub const BLOB_SAFETY_WINDOW: u32 = 10;

/// A blob that is to be deleted. (key, file type, store) is unique.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletion {
    /// The row's number, from 1.
    pub id: u64,
    /// The blob's key.
    pub blob_key: ByteBuf,
    /// The kind of file: `tx`, `outputs`, or what was scheduled by hand.
    pub file_type: String,
    /// The store that has the blob.
    pub store_type: StoreType,
    /// The height from which on the blob may be deleted.
    pub delete_at_height: u32,
    /// The number of times that deleting the blob has failed.
    pub retry_count: u32,
    /// The moment at which deleting the blob failed last, in Unix nanoseconds; none where it never did.
    pub last_retry_at: Option<u64>,
    /// The UTXO record that goes with the blob; none where no record does.
    pub txid: Option<Txid>,
}

/// The name of a blob outside.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobName {
    /// The blob's key, 1 to 1,024 bytes.
    pub blob_key: ByteBuf,
    /// The kind of file, 1 to 32 bytes.
    pub file_type: String,
    /// The store that has the blob.
    pub store_type: StoreType,
}

/// A blob that is to be deleted, and from which height on.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ScheduleBlobDeletion {
    /// The blob's name.
    pub name: BlobName,
    /// The height from which on the blob may be deleted.
    pub delete_at_height: u32,
}

/// What scheduling came to. A row that was there already keeps its number, gets the height, and is tried from the start.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ScheduledBlobDeletion {
    /// The row's number.
    pub id: u64,
    /// The row was under a live lease, and has left it: somebody may be deleting the blob this moment.
    pub was_leased: bool,
}

/// The place of a row in the queue. A row has one place only.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum BlobDeletionState {
    /// A live UTXO record names the blob: the row is not to be deleted yet.
    Held,
    /// The row waits until its height has come and somebody takes it.
    Waiting,
    /// Somebody has leased the row.
    Leased,
    /// Deleting the blob has failed under a lease; the row waits again from some moment on.
    BackingOff,
    /// The row was given up: a dead letter.
    Dead,
}

impl BlobDeletionState {
    /// All of them, by their number.
    pub const ALL: [Self; 5] = [Self::Held, Self::Waiting, Self::Leased, Self::BackingOff, Self::Dead];
}

/// The rows that are listed, by number. What is left out does not matter.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ListBlobDeletions {
    /// The cursor of the page before; none for the first page.
    pub cursor: Option<u64>,
    /// The most rows of the page, and 1,000; 0: 100.
    pub limit: u32,
    /// The lowest height of a row that is listed.
    pub min_height: Option<u32>,
    /// The highest height of a row that is listed.
    pub max_height: Option<u32>,
    /// The store of the rows that are listed.
    pub store_type: Option<StoreType>,
    /// The state of the rows that are listed.
    pub state: Option<BlobDeletionState>,
}

/// A row, and where it stands.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ListedBlobDeletion {
    /// The row.
    pub row: BlobDeletion,
    /// The row's place in the queue.
    pub state: BlobDeletionState,
    /// The moment at which the row's lease expires, or the row waits again, in Unix nanoseconds; none in other states.
    pub until: Option<u64>,
}

/// A page of rows with their states, as `list_blob_deletions` answers it. A call looks at 10,000 rows at most: a page
/// may be short, or empty, and there is more while there is a cursor.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionList {
    /// The rows.
    pub rows: Vec<ListedBlobDeletion>,
    /// The cursor with which the next page is asked for; none at the end.
    pub cursor: Option<u64>,
}

/// What a failure came to.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionRetry {
    /// Deleting the blob has failed as often as it may, and the row is a dead letter now. `remove_blob_deletion` removes it
    /// where no UTXO record waits for it.
    pub should_remove: bool,
    /// How often deleting the blob has failed.
    pub retry_count: u32,
}

/// Rows of a store, of one file type or of any.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobSelector {
    /// The store of the rows.
    pub store_type: StoreType,
    /// The file type of the rows; none: any.
    pub file_type: Option<String>,
}

/// A request for rows to lease.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AcquireBlobDeletions {
    /// The height that has come: rows of a higher one are not leased. It does not count where there is a `safety_window`.
    pub height: u32,
    /// The most rows of the lease; 0: 100. More than 1,000 are refused as `TooMany`.
    pub limit: u32,
    /// Seconds until the lease expires; 0: 300; 43,200 at most.
    pub lock_timeout_secs: u64,
    /// The stores of the rows that are leased; empty: all stores.
    pub store_types: Vec<StoreType>,
    /// Names the call, 1 to 64 bytes: the same caller with the same name gets the same lease again while it is live, should an answer
    /// be lost; `Completed` or `Expired` while it is among the last 256 that ended. None: each call makes a lease.
    pub request: Option<ByteBuf>,
    /// The rows that the worker can serve, 64 selectors at most: others are not leased. None: all rows of `store_types`.
    pub selectors: Option<Vec<BlobSelector>>,
    /// Blocks below the chain's height, or the persister's where one runs, up to which rows are leased. While that height is at
    /// most the window nothing is. None: `height` counts.
    pub safety_window: Option<u32>,
}

/// Rows that nobody else is given until the lease ends. By height, and then by number.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionLease {
    /// The secret that the lease's holder shows to complete or to extend it.
    pub token: ByteBuf,
    /// The moment at which the lease expires, in Unix nanoseconds.
    pub expires_at: u64,
    /// The height for which the lease was acquired.
    pub height: u32,
    /// The rows that are leased.
    pub rows: Vec<BlobDeletion>,
}

/// What a worker did of what it had leased.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompleteBlobDeletionBatch {
    /// The lease's token.
    pub token: ByteBuf,
    /// Rows whose blob is gone, or was not there.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row counts in the first list that names it; one in none waits again at once.
    pub failed_ids: Vec<u64>,
    /// How often deleting a blob may fail; 0 and 1: once. The setting `least_retries` counts where it is larger.
    pub max_retries: u32,
    /// Rows whose blob a store was asked to delete without answering: they stay leased until the lease expires, as the blob may still
    /// go. None: there are none.
    pub unknown_ids: Option<Vec<u64>>,
    /// The outcome for the rows of the lease that no list names. None: they wait again at once.
    pub rest: Option<BlobDeletionRest>,
}

/// The outcome for the rows of a lease that no list names.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum BlobDeletionRest {
    /// The blobs of these rows are gone, or were not there.
    Completed,
}

/// A lease, as an operator sees it.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobLeaseStatus {
    /// The lease's number, from 1.
    pub number: u64,
    /// The principal that has the lease.
    pub holder: Principal,
    /// The moment at which the lease was acquired, in Unix nanoseconds.
    pub acquired_at: u64,
    /// The moment at which the lease expires, in Unix nanoseconds.
    pub expires_at: u64,
    /// The height for which the lease was acquired.
    pub height: u32,
    /// The number of rows that the lease has.
    pub rows: u32,
    /// The lease is over, and its rows are on their way back.
    pub over: bool,
    /// The lease has ended, and rows stay under it until it expires, because a request for their blobs may still be under way.
    pub ended: bool,
}

/// Rows of a store.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct StoreDeletions {
    /// The store.
    pub store_type: StoreType,
    /// The number of rows whose blob a live UTXO record names.
    pub held: u64,
    /// The number of rows that wait.
    pub waiting: u64,
    /// The number of rows under a lease.
    pub leased: u64,
    /// The number of rows that wait for a moment, as deleting their blob has failed.
    pub backing_off: u64,
    /// The number of rows that were given up.
    pub dead: u64,
    /// The lowest height among the rows that wait; none where no row waits.
    pub oldest_due: Option<u32>,
}

/// Everything that an operator needs to see of the queue.
#[native_docs]
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct BlobDeletionStatus {
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; none where they are not.
    pub deletions_stopped_since: Option<u64>,
    /// The rows by store.
    pub stores: Vec<StoreDeletions>,
    /// The number of all rows.
    pub rows: u64,
    /// The number of rows above which no new ones come in: the setting `max_deletion_rows`.
    pub max_rows: u64,
    /// The lowest height among the rows that wait; none where no row waits.
    pub oldest_due: Option<u32>,
    /// The leases, the oldest first.
    pub leases: Vec<BlobLeaseStatus>,
    /// Figures for a monitor: counts and durations, each by its name and labels.
    pub metrics: Vec<Metric>,
}

/// The report of a worker without a lease.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompleteBlobDeletions {
    /// Rows whose blob is gone, or was not there.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row in both lists is completed.
    pub failed_ids: Vec<u64>,
    /// How often deleting a blob may fail; 0 and 1: once. The setting `least_retries` counts where it is larger.
    pub max_retries: u32,
    /// The height up to which the worker has looked: rows of a higher one, which were scheduled anew, are left alone and
    /// `skipped`. None: any.
    pub up_to_height: Option<u32>,
}

/// The outcome of `complete_blob_deletions`, or of `complete_blob_deletion_batch` since the lease was acquired. The answer
/// that ends a lease is final.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct CompletedBlobDeletions {
    /// The number of rows that are not pending any more: completed, given up at `max_retries`, or given up because
    /// their UTXO record made difficulties.
    pub removed: u64,
    /// The number of rows that are to be tried again.
    pub retries_incremented: u64,
    /// The number of rows, among `removed`, that were given up: `list_blob_deletions` lists them.
    pub dead: u64,
    /// The count of numbers at the end, of the completed ones, the failed ones, those not known and then the rest of the lease,
    /// for which the message had no room. Without a lease they are to be sent again, and those before them are not, as a failure
    /// would count twice. With a lease all is sent again as it was: the lease is live until nothing remains.
    pub remaining: u64,
    /// The numbers of rows that were done before: those that were given out once and no longer exist and, with a lease, those
    /// whose last failure was under it.
    pub already: Vec<u64>,
    /// The numbers of all else that was left alone: rows under a live lease, or not under this one; rows above `up_to_height`;
    /// dead letters that failed again; numbers that were never given out.
    pub skipped: Vec<u64>,
}

/// The dead letters that are to be tried again.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum RetryBlobDeletions {
    /// Rows with these numbers, 10,000 at most.
    Ids(Vec<u64>),
    /// All of a store.
    StoreType(StoreType),
}

/// The outcome of `retry_blob_deletions`.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct RetriedBlobDeletions {
    /// The number of rows that wait again, from the start.
    pub retried: u64,
    /// The count of numbers at the end, or of the store's dead letters, for which the message had no room: the call is to be
    /// repeated for them.
    pub remaining: u64,
    /// The numbers of rows that are no dead letters.
    pub skipped: Vec<u64>,
}

/// Why something was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum BlobDeletionError {
    /// There is no row with this number.
    #[error("there is no such row")]
    NotFound,
    /// The row is under a live lease: its holder has the say.
    #[error("the row is leased")]
    Leased,
    /// The blob is that of a UTXO record, and goes with it.
    #[error("the blob belongs to a UTXO record and is deleted with it")]
    HoldsRecord,
    /// A name or a token is empty.
    #[error("{what} is empty")]
    Empty {
        /// The name of the field that is empty.
        what: String,
    },
    /// A field is longer, or later, than it may be.
    #[error("{what} is too large: at most {limit}")]
    TooLarge {
        /// The name of the field.
        what: String,
        /// The most that it may be.
        limit: u64,
    },
    /// More rows or selectors than one call takes; of `schedule_blob_deletion`, more pairs of a store type and a file type
    /// than the queue keeps apart at a time.
    #[error("too many: at most {limit} in one call")]
    TooMany {
        /// The most that there may be.
        limit: u64,
    },
    /// There are as many leases as there may be, or the caller has as many as one may (`max_leases_per_holder`).
    #[error("{limit} leases are live, which is the most: complete one, or wait")]
    TooManyLeases {
        /// The most leases that there may be.
        limit: u64,
    },
    /// No lease has, or had lately, such a token.
    #[error("no live or recent lease has this token")]
    UnknownToken,
    /// The lease is somebody else's.
    #[error("the lease belongs to another worker")]
    NotHolder,
    /// The lease has expired: its rows are others' again.
    #[error("the lease has expired")]
    Expired,
    /// The lease was completed.
    #[error("the lease was completed")]
    Completed,
    /// Deletions are stopped (`set_deletions_stopped`): no lease is given or extended.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// The queue has reached `max_deletion_rows`: no new row comes in.
    #[error("the queue has reached max_deletion_rows ({limit}): let workers catch up, or raise it")]
    TooManyRows {
        /// The most rows that there may be.
        limit: u64,
    },
    /// Memory was refused.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}
