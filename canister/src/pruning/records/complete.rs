//! Blobs outside that are gone, or were given up: what becomes of the records that go with them.

use super::delete::RELEASED;
use super::phase::STEP_INPUTS;
use super::run::MOST_PAGES;
use super::{Records, UtxoPruner};
use crate::deletion::{Completion, DeletionQueue, MOST_INSTRUCTIONS, RecordEnd};
use crate::text::refusal;
use crate::utxo::{Call, UtxoStore};
use crate::{logs, platform};
use candid::Principal;
use coppice_interface::{
    BlobDeletionError, CompleteBlobDeletionBatch, CompleteBlobDeletions, CompletedBlobDeletions, UtxoPruneCounts,
    UtxoRefusal,
};

/// The records of rows that are completed, within a message.
struct Rows<'a> {
    utxo: &'a mut UtxoStore,
    call: Call<'a>,
    totals: &'a mut UtxoPruneCounts,
    deadline: u64,
}

impl Rows<'_> {
    /// Takes out the record of a blob that is gone; a large one is left to phase 2, which tells its parents over several messages.
    fn take_out(&mut self, txid: &[u8; 32]) -> Result<(), UtxoRefusal> {
        let Self { utxo, call, totals, .. } = self;
        let of = utxo.deleting(txid)?;
        let most = if of.is_conflicting() { STEP_INPUTS / RELEASED as u32 } else { STEP_INPUTS };
        let parents = utxo.parents(&of, (0, most))?;
        if parents.next < of.inputs() || utxo.is_large(&of) {
            utxo.list_deleting(&of)?;
            totals.external_files_deleted += 1;
            return Ok(());
        }
        let told = utxo.tell(&of, &parents, call)?;
        utxo.remove(&of);
        totals.parents_updated += told.marked;
        totals.outputs_released += told.released;
        totals.records_deleted += 1;
        totals.external_files_deleted += 1;
        totals.pages_deleted += u64::from(of.pages());
        Ok(())
    }
}

impl Completion for Rows<'_> {
    fn goes_on(&mut self, pages: u64) -> bool {
        platform::instructions() <= self.deadline && self.utxo.pages_changed() + pages < MOST_PAGES
    }

    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd {
        match self.take_out(txid) {
            Ok(()) | Err(UtxoRefusal::TxNotFound) => RecordEnd::Gone,
            Err(error) => {
                logs::error(&format!("pruner: the record of a blob that is gone is kept: {}", refusal(error)));
                RecordEnd::Kept
            }
        }
    }
}

impl UtxoPruner {
    /// Runs a message of the queue's in which records go with the blobs that are gone.
    fn with_records<T>(
        &mut self,
        records: &mut Records,
        run: impl FnOnce(&mut DeletionQueue, u64, &mut Rows) -> T,
    ) -> T {
        let deadline = platform::instructions().saturating_add(MOST_INSTRUCTIONS);
        let Records { utxo, deletions, settings, .. } = records;
        let call = Call::of_pruner(self.stored.current.max(1), settings);
        utxo.begin_pruning();
        let before = self.stored.totals;
        let mut rows = Rows { utxo, call, totals: &mut self.stored.totals, deadline };
        let done = run(deletions, call.now_ns, &mut rows);
        utxo.end_pruning();
        if self.stored.totals != before {
            self.save();
        }
        done
    }

    /// Takes note of what a worker did, as far as one message goes: the records of blobs that are gone go with them.
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

    /// The same of what the caller has leased.
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

    /// Takes a row out whose blob is gone, and its record with it; where its height is this one or lower.
    ///
    /// # Errors
    /// As [`DeletionQueue::remove`].
    pub fn remove_deletion(&mut self, records: &mut Records, id: u64, up_to: u32) -> Result<bool, BlobDeletionError> {
        self.with_records(records, |queue, now, rows| queue.remove(id, up_to, now, rows))
    }
}
