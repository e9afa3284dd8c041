//! Blobs outside that are due, and that no worker takes.

use super::{Finding, finding};
use crate::history::Since;
use crate::runtime;
use crate::state::State;
use coppice_interface::{BLOB_SAFETY_WINDOW, ProblemCode, StoreType};

/// Seconds for which blobs that are due may wait before `health` calls it a problem.
const PATIENCE_SECS: u64 = 6 * 3_600;

impl State {
    /// The height up to which workers may take blobs outside.
    pub fn blobs_due(&self) -> u32 {
        self.utxo_pruner.reached().saturating_sub(BLOB_SAFETY_WINDOW)
    }

    /// Blobs that have waited for long where workers could take them, of the store types of which none was taken. Whether they still wait is
    /// looked up for a sentence only (`deep`).
    pub(super) fn untaken(&self, since: &Since, deep: bool) -> Option<Finding> {
        let (now, taken) = (runtime::time_secs(), self.deletions.taken());
        let has_lasted =
            |&(store, secs): &(StoreType, u64)| now.saturating_sub(secs) > PATIENCE_SECS && !taken[store as usize];
        let waits = since.untaken().filter(has_lasted);
        if !deep {
            let secs = waits.map(|(_, secs)| secs).min()?;
            return Some(finding(ProblemCode::BlobDeletionsWait, "").since_secs(Some(secs)));
        }
        let due = self.blobs_due();
        let first = |store| self.deletions.first_waiting(store).filter(|&height| height <= due);
        let still: Vec<_> = waits.filter_map(|(store, secs)| Some((store, secs, first(store)?))).collect();
        let (secs, height) = (still.iter().map(|of| of.1).min()?, still.iter().map(|of| of.2).min()?);
        let stores: Vec<String> = still.iter().map(|(store, ..)| format!("{store:?}")).collect();
        let message = format!(
            "no worker takes blobs outside that are due, of store type {}: the first is due from height {height} on, and workers may take \
             what is due at {due}",
            stores.join(", ")
        );
        Some(finding(ProblemCode::BlobDeletionsWait, message).since_secs(Some(secs)))
    }
}
