//! Completed rows of the deletion queue: removes their records (`external/complete.rs`) and counts these as deleted. Endpoints of workers
//! call the pruner and not the queue, because the pruner has the height and the counts.

use super::{Stored, UtxoPruner};
use crate::deletion::{DeletionQueue, MOST_INSTRUCTIONS, row_meter};
use crate::external::Records;
use crate::external::complete::Rows;
use crate::utxo::Call;
use candid::Principal;
use ic_coppice_interface::{
    BlobDeletionError, CompleteBlobDeletionBatch, CompleteBlobDeletions, CompletedBlobDeletions,
};
use ic_coppice_storage::{Counting, MOST_PAGES};

impl UtxoPruner {
    /// Runs an operation of the queue that also removes the records of deleted blobs.
    fn with_records<T>(
        &mut self,
        records: &mut Records,
        run: impl FnOnce(&mut DeletionQueue, u64, &mut Rows) -> T,
    ) -> T {
        let Records { utxo, deletions, settings, .. } = records;
        let Stored { totals, current, .. } = &mut self.stored;
        let (before, call) = (*totals, Call::at((*current).max(1), settings));
        let counting = Counting::begin();
        let meter = row_meter(MOST_INSTRUCTIONS, MOST_PAGES);
        let done = run(deletions, call.now_ns, &mut Rows { utxo, call, totals, meter });
        drop(counting);
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
