//! The queue of blobs outside that are to be deleted.

use super::methods;
use candid::Principal;
use coppice_interface::*;

methods! {
    /// Has a blob deleted from a height on. For feeders and operators.
    ///
    /// A row that is there already keeps its number, gets the height, and is tried from the start, also where it was leased, as often as the
    /// call is repeated: where an answer is lost, look before it is sent again.
    update schedule_blob_deletion(blob: &ScheduleBlobDeletion) -> ScheduledBlobDeletion, or BlobDeletionError;

    /// Takes a blob out of the queue. For feeders and operators. Answers whether it was there.
    ///
    /// Repeating it answers that it is not there.
    update cancel_blob_deletion(name: &BlobName) -> bool, or BlobDeletionError;

    /// Rows of the queue, by number.
    query list_blob_deletions(list: &ListBlobDeletions) -> BlobDeletionList;

    /// Rows that wait and are due at a height, the lowest first: at most `limit`, and at most 1,000; 0: 100. With selectors, only the rows
    /// that a selector names.
    query get_pending_blob_deletions(height: u32, limit: u32, selectors: Option<&[BlobSelector]>) -> Vec<BlobDeletion>;

    /// Takes a row out whose blob is gone. For blob workers. Answers whether the row is gone: it is not where there was none, where its height
    /// is above the one up to which the worker has looked, or where it was given up and has a record.
    ///
    /// Repeating it answers `false`.
    update remove_blob_deletion(id: u64, up_to_height: Option<u32>) -> bool, or BlobDeletionError;

    /// Notes that a blob could not be deleted. For blob workers.
    ///
    /// Repeating it counts one failure more: where an answer is lost, look before it is sent again.
    update increment_blob_deletion_retry(id: u64, max_retries: u32) -> BlobDeletionRetry, or BlobDeletionError;

    /// Takes out rows whose blobs are gone, and notes those that could not be deleted. For blob workers. With `remaining` the rest is sent
    /// again, as [`complete_blob_deletions_all`](crate::Client::complete_blob_deletions_all) does.
    ///
    /// Repeating it counts the failures once more; with a lease, [`complete_blob_deletion_batch`](Self::complete_blob_deletion_batch) does
    /// not.
    update complete_blob_deletions(done: &CompleteBlobDeletions) -> CompletedBlobDeletions, or BlobDeletionError;

    /// Leases rows that are due; none where nothing is. For blob workers.
    ///
    /// Repeating it with the same `request` answers the same lease while that is live, and then `Completed` or `Expired`; without one it
    /// takes another lease.
    update acquire_blob_deletion_batch(lease: &AcquireBlobDeletions) -> Option<BlobDeletionLease>, or BlobDeletionError;

    /// Has a lease end so many seconds from now, where it would end before, and answers when it ends, in Unix nanoseconds. For its holder.
    ///
    /// Repeating it counts from the repeated call.
    update extend_blob_deletion_batch(token: &[u8], lock_timeout_secs: u64) -> u64, or BlobDeletionError;

    /// Says what became of the rows of a lease. For its holder. With `remaining` the rest is sent again, as
    /// [`complete_blob_deletion_batch_all`](crate::Client::complete_blob_deletion_batch_all) does.
    ///
    /// Repeating it answers as the call did that ended the lease; where something remained, rows that were dealt with are `already` done.
    update complete_blob_deletion_batch(done: &CompleteBlobDeletionBatch) -> CompletedBlobDeletions, or BlobDeletionError;

    /// Rows that were given up, by number, from the cursor on: `limit` of them, 1,000 at most; 0: 100.
    query list_dead_blob_deletions(cursor: Option<u64>, limit: u32) -> BlobDeletionPage;

    /// Has dead letters tried again. For operators.
    ///
    /// Repeating it goes on with those that are `remaining`.
    update retry_blob_deletions(which: &RetryBlobDeletions) -> RetriedBlobDeletions, or BlobDeletionError;

    /// Ends the live leases of a principal, and answers how many there were. For operators.
    ///
    /// Repeating it answers 0.
    update end_blob_deletion_leases(holder: Principal) -> u64;

    /// How many rows there are, by store and state, and the leases.
    query get_blob_deletion_status() -> BlobDeletionStatus;
}
