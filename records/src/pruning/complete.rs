//! Completed rows of the deletion queue: removes their records (`external/complete.rs`) and counts these as deleted. Endpoints of workers
//! call the pruner and not the queue, because the pruner has the height and the counts.

use super::UtxoPruner;
use crate::deletion::DeletionQueue;
use crate::external::Records;
use crate::external::complete::{Rows, with_records};
use candid::Principal;
use ic_coppice_interface::{
    BlobDeletionError, CompleteBlobDeletionBatch, CompleteBlobDeletions, CompletedBlobDeletions,
};

impl UtxoPruner {
    /// Runs an operation of the queue that also removes the records of deleted blobs.
    fn with_records<T>(
        &mut self,
        records: &mut Records,
        run: impl FnOnce(&mut DeletionQueue, u64, &mut Rows) -> T,
    ) -> T {
        let before = self.stored.totals;
        let done = with_records(records, self.stored.current, &mut self.stored.totals, run);
        if self.stored.totals != before {
            self.save();
        }
        done
    }

    /// Records the outcome of a worker's deletions, as many as fit in one message, and removes the records of deleted blobs.
    ///
    /// # Errors
    /// As [`DeletionQueue::complete`].
    pub fn complete_deletions(
        &mut self,
        records: &mut Records,
        arg: &CompleteBlobDeletions,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        self.with_records(records, |queue, now, rows| queue.complete(arg, now, rows))
    }

    /// Does the same for rows that the caller has leased.
    ///
    /// # Errors
    /// As [`DeletionQueue::complete_batch`].
    pub fn complete_lease(
        &mut self,
        records: &mut Records,
        caller: Principal,
        arg: &CompleteBlobDeletionBatch,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        let base_secs = self.stored.settings.retry_base_secs;
        self.with_records(records, |queue, now, rows| queue.complete_batch(caller, arg, (now, base_secs), rows))
    }

    /// Removes a row whose blob is deleted, and its record, if the row's height is at most `up_to`.
    ///
    /// # Errors
    /// As [`DeletionQueue::remove`].
    pub fn remove_deletion(&mut self, records: &mut Records, id: u64, up_to: u32) -> Result<bool, BlobDeletionError> {
        self.with_records(records, |queue, now, rows| queue.remove(id, up_to, now, rows))
    }
}
