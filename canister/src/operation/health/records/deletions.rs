//! Findings about external blobs that are due and that no worker deletes.

use super::super::finding::{Finding, finding};
use crate::platform;
use crate::state::State;
use ic_coppice_interface::text::duration;
use ic_coppice_interface::{ProblemCode, StoreDeletions, StoreType};

/// Seconds for which a blob may be due before `health` reports a problem.
const PATIENCE_SECS: u64 = 6 * 3_600;
/// Seconds for which a worker at its limit of leases may complete nothing.
const IDLE_SECS: u64 = 3_600;

/// Returns a finding if a worker has its maximum number of leases and completes none while rows wait.
pub(super) fn idle_holder(state: &State) -> Option<Finding> {
    let (holder, since) = state.records.deletions.idle_holder()?;
    let secs = since / 1_000_000_000;
    if platform::time_secs().saturating_sub(secs) <= IDLE_SECS {
        return None;
    }
    let message =
        format!("{holder} has its maximum number of leases and has completed none for an hour, while rows wait");
    Some(finding(ProblemCode::BlobLeasesIdle, message).since_secs(Some(secs)))
}

/// Returns a finding about store types with a blob that has been due for too long, whether its row waits, is leased or backs off.
pub(super) fn overdue(state: &State) -> Option<Finding> {
    let now = platform::time_secs();
    let since = |store| Some((store, state.records.deletions.due_since(store)?));
    let is_long = |of: &(StoreType, u64)| now.saturating_sub(of.1) > PATIENCE_SECS;
    let overdue: Vec<_> = StoreType::ALL.into_iter().filter_map(since).filter(is_long).collect();
    let first = overdue.iter().map(|(_, secs)| *secs).min()?;
    let status = state.records.deletions.status();
    let stores = overdue.iter().map(|(store, secs)| {
        let StoreDeletions { waiting, leased, backing_off, .. } = status.stores[*store as usize];
        let age = duration(now - secs);
        format!(
            "store type {store:?}, the oldest for {age} ({waiting} wait, {leased} are leased, {backing_off} back off)"
        )
    });
    let message = format!("external blobs are due and not deleted: {}", stores.collect::<Vec<_>>().join("; "));
    Some(finding(ProblemCode::BlobDeletionsWait, message).since_secs(Some(first)))
}
