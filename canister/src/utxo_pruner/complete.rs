//! Blobs outside that are gone, or were given up: what becomes of the records that go with them.

use super::phase::STEP_INPUTS;
use super::{Records, UtxoPruner};
use crate::api::{BlobDeletionError, CompleteBlobDeletions, CompletedBlobDeletions, UtxoError};
use crate::deletion::RecordEnd;
use crate::runtime;

/// Rows that one call takes.
const MAX_ROWS: usize = 10_000;
/// Instructions after which a call leaves it to phase 2 to take records out: a message has 40 billion.
const MOST_INSTRUCTIONS: u64 = 10_000_000_000;

impl UtxoPruner {
    /// Takes note of what a worker did: the records of blobs that are gone go with them, in this message where they are no
    /// larger than most are, otherwise in the next run.
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
        let Records { utxo, deletions, .. } = records;
        let totals = &mut self.stored.totals;
        let done = deletions.complete(arg, runtime::time_ns(), |txid| {
            let ended = utxo.deleting(txid).and_then(|of| {
                if of.inputs() > STEP_INPUTS || runtime::instructions() > deadline {
                    return utxo.list_deleting(&of);
                }
                let parents = utxo.parents(&of, (0, STEP_INPUTS))?;
                totals.parents_updated += utxo.tell(&of, &parents);
                utxo.remove(&of);
                totals.records_deleted += 1;
                totals.external_files_deleted += 1;
                totals.pages_deleted += u64::from(of.pages());
                Ok(())
            });
            match ended {
                Ok(()) | Err(UtxoError::TxNotFound) => RecordEnd::Gone,
                Err(error) => {
                    runtime::log(&format!("pruner: the record of a blob that is gone is kept: {error:?}"));
                    RecordEnd::Kept
                }
            }
        });
        self.save();
        Ok(done)
    }
}
