//! Blobs outside that are gone, or were given up: what becomes of the records that go with them.

use super::phase::STEP_INPUTS;
use super::run::MOST_PAGES;
use super::{Records, UtxoPruner};
use crate::api::{BlobDeletionError, CompleteBlobDeletions, CompletedBlobDeletions, PruneCounts, UtxoError};
use crate::deletion::{Completion, RecordEnd};
use crate::runtime;
use crate::utxo::{Call, UtxoStore};

/// Rows that one call takes.
const MAX_ROWS: usize = 10_000;
/// Instructions after which a call begins no further row: a message has 40 billion.
const MOST_INSTRUCTIONS: u64 = 2_000_000_000;
/// Pages that a row changes in the queue, at most: of three indexes, with its neighbours there, its own, and the queue's head.
const PAGES_OF_A_ROW: u64 = 20;

/// The records of rows that are completed, within a message.
struct Rows<'a> {
    utxo: &'a mut UtxoStore,
    call: Call<'a>,
    totals: &'a mut PruneCounts,
    deadline: u64,
}

impl Rows<'_> {
    /// Takes out the record of a blob that is gone; a large one is left to phase 2, which tells its parents over several messages.
    fn take_out(&mut self, txid: &[u8; 32]) -> Result<(), UtxoError> {
        let Self { utxo, call, totals, .. } = self;
        let of = utxo.deleting(txid)?;
        if of.inputs() > STEP_INPUTS {
            return utxo.list_deleting(&of);
        }
        let parents = utxo.parents(&of, (0, STEP_INPUTS))?;
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
    fn goes_on(&mut self, rows: u64) -> bool {
        let pages = self.utxo.pages_changed() + rows * PAGES_OF_A_ROW;
        runtime::instructions() <= self.deadline && pages < MOST_PAGES
    }

    fn record_end(&mut self, txid: &[u8; 32]) -> RecordEnd {
        match self.take_out(txid) {
            Ok(()) | Err(UtxoError::TxNotFound) => RecordEnd::Gone,
            Err(error) => {
                runtime::log(&format!("pruner: the record of a blob that is gone is kept: {error:?}"));
                RecordEnd::Kept
            }
        }
    }
}

impl UtxoPruner {
    /// Takes note of what a worker did, as far as one message goes: the records of blobs that are gone go with them.
    ///
    /// # Errors
    /// `TooMany`, and nothing has changed.
    pub fn complete_deletions(
        &mut self,
        records: &mut Records,
        arg: &CompleteBlobDeletions,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        if arg.completed_ids.len() + arg.failed_ids.len() > MAX_ROWS {
            return Err(BlobDeletionError::TooMany { limit: MAX_ROWS as u64 });
        }
        let deadline = runtime::instructions().saturating_add(MOST_INSTRUCTIONS);
        let Records { utxo, deletions, settings, .. } = records;
        let call = Call { height: self.stored.current.max(1), now_ns: runtime::time_ns(), settings };
        utxo.begin_pruning();
        let mut rows = Rows { utxo, call, totals: &mut self.stored.totals, deadline };
        let done = deletions.complete(arg, call.now_ns, &mut rows);
        utxo.end_pruning();
        self.save();
        Ok(done)
    }
}
