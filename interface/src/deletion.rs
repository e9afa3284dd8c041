//! Deletion queue of external blobs (`blob-deletion-api.md`).

use super::{Metric, StoreType};
use crate::Txid;
use crate::error::{NoMemory, NotReady};
use candid::Principal;
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use thiserror::Error;

/// Default of a worker's safety window: workers delete blobs up to this number of blocks below the chain's height, or
/// below the persisted height if the block persister runs.
pub const BLOB_SAFETY_WINDOW: u32 = 10;

/// A row of the deletion queue: an external blob that must be deleted. (key, file type, store) is unique.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobDeletion {
    /// The row's number, from 1.
    pub id: u64,
    /// The blob's key.
    pub blob_key: ByteBuf,
    /// The kind of file: `tx`, `outputs`, or the kind given to `schedule_blob_deletion`.
    pub file_type: String,
    /// The store that contains the blob.
    pub store_type: StoreType,
    /// The height from which on the blob may be deleted.
    pub delete_at_height: u32,
    /// The number of failed attempts to delete the blob.
    pub retry_count: u32,
    /// The moment of the last failed attempt, in Unix nanoseconds; `null` if no attempt failed.
    pub last_retry_at_ns: Option<u64>,
    /// The UTXO record that is removed together with the blob; `null` if there is none.
    pub txid: Option<Txid>,
}

/// The name of an external blob.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobName {
    /// The blob's key, 1 to 1,024 bytes.
    pub blob_key: ByteBuf,
    /// The kind of file, 1 to 32 bytes.
    pub file_type: String,
    /// The store that contains the blob.
    pub store_type: StoreType,
}

/// A blob to delete, and its height.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleBlobDeletion {
    /// The blob's name.
    pub name: BlobName,
    /// The height from which on the blob may be deleted.
    pub delete_at_height: u32,
}

/// Outcome of scheduling. An existing row keeps its number, gets the height, and is tried from the start.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledBlobDeletion {
    /// The row's number.
    pub id: u64,
    /// The row was under a live lease, and has left it: a worker may be deleting the blob right now.
    pub was_leased: bool,
}

/// A row that was cancelled.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelledBlobDeletion {
    /// The row's number.
    pub id: u64,
    /// A worker reported the blob as deleted while deletions were stopped (`set_deletions_stopped`): the blob may be
    /// gone.
    pub reported_deleted: bool,
}

/// The state of a row. A row has one state at a time.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlobDeletionState {
    /// A live UTXO record names the blob, so the row must not be deleted yet.
    Held,
    /// The row waits until its height has come and a worker leases it.
    Waiting,
    /// A worker has leased the row.
    Leased,
    /// An attempt under a lease has failed; the row waits again after a delay.
    BackingOff,
    /// The row was given up: a dead letter.
    Dead,
}

impl BlobDeletionState {
    /// All states, by their number.
    pub const ALL: [Self; 5] = [Self::Held, Self::Waiting, Self::Leased, Self::BackingOff, Self::Dead];
}

/// A filter for rows, which are listed by number. An absent field does not restrict the rows.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListBlobDeletions {
    /// The cursor of the previous page; `null` for the first page.
    pub cursor: Option<u64>,
    /// The most rows of the page, at most 1,000; 0: 100.
    pub limit: u32,
    /// The lowest height of listed rows.
    pub min_height: Option<u32>,
    /// The highest height of listed rows.
    pub max_height: Option<u32>,
    /// The store of listed rows.
    pub store_type: Option<StoreType>,
    /// The state of listed rows.
    pub state: Option<BlobDeletionState>,
}

/// A row, and its state.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlobDeletion {
    /// The row.
    pub row: BlobDeletion,
    /// The row's state.
    pub state: BlobDeletionState,
    /// The moment at which the row's lease expires, or at which its delay ends, in Unix nanoseconds; `null` in other
    /// states.
    pub until_ns: Option<u64>,
    /// A worker reported the blob as deleted while deletions were stopped (`set_deletions_stopped`): the blob may be
    /// gone. Scheduling the row anew clears this mark.
    pub reported_deleted: bool,
}

/// A page of rows with their states, from `list_blob_deletions`. A call looks at no more than 10,000 rows: a page may
/// be short or empty, and there are more pages while there is a cursor.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobDeletionList {
    /// The rows.
    pub rows: Vec<ListedBlobDeletion>,
    /// The cursor of the next page; `null` at the end.
    pub cursor: Option<u64>,
}

/// Outcome of a reported failure.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobDeletionRetry {
    /// The attempts have reached their maximum, and the row is a dead letter now. `remove_blob_deletion` removes it if
    /// no UTXO record waits for it.
    pub should_remove: bool,
    /// The number of failed attempts to delete the blob.
    pub retry_count: u32,
}

/// Rows of a store, of one file type or of any.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobSelector {
    /// The store of the rows.
    pub store_type: StoreType,
    /// The file type of the rows; `null`: any.
    pub file_type: Option<String>,
}

/// A request for rows to lease.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcquireBlobDeletions {
    /// The height up to which rows are leased. Ignored if there is a `safety_window`.
    pub height: u32,
    /// The most rows of the lease; 0: 100. More than 1,000 are refused as `TooMany`.
    pub limit: u32,
    /// Seconds until the lease expires, at most 43,200; 0: 300.
    pub lock_timeout_secs: u64,
    /// The stores of the leased rows; empty: all stores.
    pub store_types: Vec<StoreType>,
    /// A name for the call, 1 to 64 bytes, for retries after a lost reply: the same caller with the same arguments gets
    /// the same lease again while it is live, and `OtherRequest` with other arguments; `Completed` or `Expired` while
    /// the lease is among the last 256 that ended. `null`: each call makes a lease.
    pub request: Option<ByteBuf>,
    /// The rows that the worker can handle, at most 64 selectors: other rows are not leased. `null`: all rows of
    /// `store_types`.
    pub selectors: Option<Vec<BlobSelector>>,
    /// Rows are leased up to this number of blocks below the chain's height, or below the persisted height if the block
    /// persister runs. While that height is not above the window, no row is leased. `null`: `height` is used.
    pub safety_window: Option<u32>,
}

/// A set of rows that no other worker gets until the lease ends. Rows are ordered by height, then by number.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobDeletionLease {
    /// The secret with which the lease's holder completes or extends it.
    pub token: ByteBuf,
    /// The moment at which the lease expires, in Unix nanoseconds.
    pub expires_at_ns: u64,
    /// The height for which the lease was acquired.
    pub height: u32,
    /// The leased rows.
    pub rows: Vec<BlobDeletion>,
}

/// A worker's report on its lease.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteBlobDeletionBatch {
    /// The lease's token.
    pub token: ByteBuf,
    /// Rows whose blob was deleted, or did not exist.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row counts only in the first list that names it; a row in none waits
    /// again at once.
    pub failed_ids: Vec<u64>,
    /// The number of failed attempts after which a row is given up; 0 and 1: one attempt. The setting `least_retries`
    /// is used if it is larger.
    pub max_retries: u32,
    /// Rows whose store was asked to delete the blob but did not answer: they stay leased until the lease expires,
    /// because the request may still be executed. `null`: no such rows.
    pub unknown_ids: Option<Vec<u64>>,
    /// The outcome for rows of the lease that no list names. `null`: they wait again at once.
    pub rest: Option<BlobDeletionRest>,
}

/// The outcome for rows of a lease that no list names.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobDeletionRest {
    /// The blobs of these rows were deleted, or did not exist.
    Completed,
}

/// A lease, as operators see it.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobLeaseStatus {
    /// The lease's number, from 1.
    pub number: u64,
    /// The principal that holds the lease.
    pub holder: Principal,
    /// The moment at which the lease was acquired, in Unix nanoseconds.
    pub acquired_at_ns: u64,
    /// The moment at which the lease expires, in Unix nanoseconds.
    pub expires_at_ns: u64,
    /// The height for which the lease was acquired.
    pub height: u32,
    /// The number of rows under the lease.
    pub rows: u32,
    /// The lease is over, and its rows are returning to the queue.
    pub over: bool,
    /// The lease has ended, and rows stay under it until it expires, because a request for their blobs may still be
    /// running.
    pub ended: bool,
}

/// Numbers of rows of a store.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreDeletions {
    /// The store.
    pub store_type: StoreType,
    /// The number of rows whose blob a live UTXO record names.
    pub held: u64,
    /// The number of rows that wait.
    pub waiting: u64,
    /// The number of leased rows.
    pub leased: u64,
    /// The number of rows that wait for the delay after a failed attempt.
    pub backing_off: u64,
    /// The number of dead letters.
    pub dead: u64,
    /// The lowest height of the waiting rows; `null` if no row waits.
    pub oldest_due: Option<u32>,
    /// The moment since which the oldest due row has been due, in Unix nanoseconds, to half an hour, whether the row
    /// waits, is leased or waits for the delay after a failed attempt; `null` if no row is due.
    pub due_since_ns: Option<u64>,
}

/// Status of the deletion queue.
#[candid_type]
#[derive(Clone, Debug, PartialEq)]
pub struct BlobDeletionStatus {
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; `null` if they are
    /// not stopped.
    pub deletions_stopped_since_ns: Option<u64>,
    /// Numbers of rows, by store.
    pub stores: Vec<StoreDeletions>,
    /// The number of all rows.
    pub rows: u64,
    /// The number of rows above which new rows are refused: the setting `max_deletion_rows`.
    pub max_rows: u64,
    /// The lowest height of the waiting rows; `null` if no row waits.
    pub oldest_due: Option<u32>,
    /// The leases, oldest first.
    pub leases: Vec<BlobLeaseStatus>,
    /// Metrics: counts and durations, each with a name and labels.
    pub metrics: Vec<Metric>,
}

/// The report of a worker without a lease.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteBlobDeletions {
    /// Rows whose blob was deleted, or did not exist.
    pub completed_ids: Vec<u64>,
    /// Rows whose blob could not be deleted. A row in both lists is completed.
    pub failed_ids: Vec<u64>,
    /// The number of failed attempts after which a row is given up; 0 and 1: one attempt. The setting `least_retries`
    /// is used if it is larger.
    pub max_retries: u32,
    /// The height up to which the worker selected rows: rows above it, which were scheduled anew, are unchanged and
    /// `skipped`. `null`: any height.
    pub up_to_height: Option<u32>,
}

/// The outcome of `complete_blob_deletions`, or of `complete_blob_deletion_batch` since the lease was acquired. The answer
/// that ends a lease is final.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletedBlobDeletions {
    /// The number of rows that are no longer pending: completed, given up at `max_retries`, or given up because their
    /// UTXO record could not be removed.
    pub removed: u64,
    /// The number of rows that will be tried again.
    pub retries_incremented: u64,
    /// The number of dead letters among `removed`: `list_blob_deletions` lists them.
    pub dead: u64,
    /// The count of numbers for which the message had no room, from the end of the sequence completed, failed, unknown,
    /// rest of the lease. Without a lease, send only these again, because a repeated failure would count twice. With a
    /// lease, send the whole report again: the lease is live until nothing remains.
    pub remaining: u64,
    /// The numbers of rows that were handled before: rows that no longer exist and, with a lease, rows whose last
    /// failure was under it.
    pub already: Vec<u64>,
    /// The numbers of all other unchanged rows: rows under a live lease, or not under this lease; rows above
    /// `up_to_height`; dead letters that failed again; numbers that no row ever had.
    pub skipped: Vec<u64>,
}

/// The dead letters to try again.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryBlobDeletions {
    /// Rows with these numbers, at most 10,000.
    Ids(Vec<u64>),
    /// All dead letters of a store.
    StoreType(StoreType),
}

/// The outcome of `retry_blob_deletions`.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetriedBlobDeletions {
    /// The number of rows that wait again, from the start.
    pub retried: u64,
    /// The count of numbers, or of the store's dead letters, for which the message had no room, from the end of the
    /// list: repeat the call for them.
    pub remaining: u64,
    /// The numbers of rows that are not dead letters.
    pub skipped: Vec<u64>,
}

/// The reason why a call was refused. Nothing has changed, except marks on rows with `Stopped`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlobDeletionError {
    /// There is no row with this number.
    #[error("there is no such row")]
    NotFound,
    /// The row is under a live lease: only its holder may report on it.
    #[error("the row is leased")]
    Leased,
    /// A UTXO record names the blob, which is deleted together with the record.
    #[error("the blob belongs to a UTXO record and is deleted with it")]
    HoldsRecord,
    /// A name or a token is empty.
    #[error("{what} is empty")]
    Empty {
        /// The name of the field that is empty.
        what: String,
    },
    /// A field is longer, or higher, than allowed.
    #[error("{what} is too large: at most {limit}")]
    TooLarge {
        /// The name of the field.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// More rows or selectors than one call accepts; for `schedule_blob_deletion`, more pairs of a store type and a
    /// file type than the queue can distinguish at a time.
    #[error("too many: at most {limit} in one call")]
    TooMany {
        /// The most that is allowed.
        limit: u64,
    },
    /// The file type differs only in case from another one: a file system that ignores case would have one file for both.
    /// The other one is `tx`, `outputs`, or one that has rows, in any store.
    #[error("the file type differs only in case from {file_type}, which is in use: write it like that")]
    OtherCase {
        /// The file type in use.
        file_type: String,
    },
    /// The number of leases has reached its limit, or the caller has as many as allowed (`max_leases_per_holder`).
    #[error("lease limit ({limit}) reached: complete one, or wait")]
    TooManyLeases {
        /// The most leases.
        limit: u64,
    },
    /// A live lease of the caller has this `request` with other arguments.
    #[error("a live lease of this request has other arguments: repeat those, or use another request")]
    OtherRequest,
    /// No current or recent lease has this token.
    #[error("no live or recent lease has this token")]
    UnknownToken,
    /// The caller does not hold the lease.
    #[error("the lease belongs to another worker")]
    NotHolder,
    /// The lease has expired: its rows wait again, or other workers have them.
    #[error("the lease has expired")]
    Expired,
    /// The lease was completed.
    #[error("the lease was completed")]
    Completed,
    /// Deletions are stopped (`set_deletions_stopped`): leases are neither granted nor extended, and reports delete
    /// nothing. The rows that a report names as completed are marked: see `reported_deleted`.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// The queue has reached `max_deletion_rows`: new rows are refused.
    #[error("the queue has reached max_deletion_rows ({limit}): let workers catch up, or raise it")]
    TooManyRows {
        /// The most rows.
        limit: u64,
    },
    /// The canister enters nothing yet: send the call again.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Memory was refused.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}
