//! Findings about external blobs that are due and that no worker takes.

use super::finding::{Finding, finding};
use crate::logs::history::Since;
use crate::platform;
use crate::state::State;
use coppice_interface::{BLOB_SAFETY_WINDOW, ProblemCode, StoreType};

/// Seconds for which due blobs may wait before `health` reports a problem.
const PATIENCE_SECS: u64 = 6 * 3_600;
/// Seconds for which a worker at its limit of leases may complete nothing.
const IDLE_SECS: u64 = 3_600;

/// Returns the height up to which workers may take external blobs, or `None` if there is none yet.
pub fn blobs_due(state: &State) -> Option<u32> {
    state.utxo_pruner.reached().checked_sub(BLOB_SAFETY_WINDOW).filter(|height| *height > 0)
}

/// Returns a finding if a worker has its maximum number of leases and completes none while rows wait.
pub(super) fn idle_holder(state: &State) -> Option<Finding> {
    let (holder, since) = state.deletions.idle_holder()?;
    let secs = since / 1_000_000_000;
    if platform::time_secs().saturating_sub(secs) <= IDLE_SECS {
        return None;
    }
    let message =
        format!("{holder} has its maximum number of leases and has completed none for an hour, while rows wait");
    Some(finding(ProblemCode::BlobLeasesIdle, message).since_secs(Some(secs)))
}

/// Returns a finding about store types of which no worker has taken a blob for too long. Only `deep` checks look up whether the blobs still
/// wait.
pub(super) fn untaken(state: &State, since: &Since, deep: bool) -> Option<Finding> {
    let (now, taken) = (platform::time_secs(), state.deletions.taken());
    let has_lasted =
        |&(store, secs): &(StoreType, u64)| now.saturating_sub(secs) > PATIENCE_SECS && !taken[store as usize];
    let waits = since.untaken().filter(has_lasted);
    if !deep {
        let secs = waits.map(|(_, secs)| secs).min()?;
        return Some(finding(ProblemCode::BlobDeletionsWait, "").since_secs(Some(secs)));
    }
    let due = blobs_due(state)?;
    let first = |store| state.deletions.first_waiting(store).filter(|&height| height <= due);
    let still: Vec<_> = waits.filter_map(|(store, secs)| Some((store, secs, first(store)?))).collect();
    let (secs, height) = (still.iter().map(|of| of.1).min()?, still.iter().map(|of| of.2).min()?);
    let stores: Vec<String> = still.iter().map(|(store, ..)| format!("{store:?}")).collect();
    let message = format!(
        "no worker takes the due external blobs of store type {}: the first is due from height {height} on, and workers may take \
         blobs that are due at {due}",
        stores.join(", ")
    );
    Some(finding(ProblemCode::BlobDeletionsWait, message).since_secs(Some(secs)))
}
