//! The deletion queue, as a worker reaches it: the interface's own types, over the client of the canister.

use crate::client::{Client, GivesUp, Outcome as _, Reach, Transport, Wait};
use anyhow::Result;
use coppice_interface::*;

/// A blob that is to be deleted.
pub type Row = BlobDeletion;

/// The canister's answer, or the reason for a refusal.
pub type Answer<T> = Result<Result<T, BlobDeletionError>>;

/// The work at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The height up to which blobs may be deleted; none: the chain is within the safety window.
    pub height: Option<u32>,
    /// Rows that wait, are leased, or back off.
    pub rows: u64,
    /// One of those that were asked for is due.
    pub is_due: bool,
}

/// The queue of one canister.
///
/// Every method's outer error is that of the way there: [`Trials`](crate::client::Trials) decides whether the same is tried again.
pub trait Queue: Sync {
    /// From now on a call of this thread ends, its answer lost, where this says so.
    fn limit(&self, gives_up: GivesUp);

    /// How far the chain is and what there is in the queue: on one replica's word or, `replicated`, on the canister's.
    fn look(&self, window: u32, selectors: &[BlobSelector], replicated: bool) -> Result<Seen>;

    /// The first rows that wait and whose height is this one or a lower one, on one replica's word.
    fn pending(&self, height: u32, rows: u32, selectors: &[BlobSelector]) -> Result<Vec<Row>>;

    /// Leases rows; none where nothing is due. Said again it answers the same.
    fn acquire(&self, ask: &AcquireBlobDeletions) -> Answer<Option<BlobDeletionLease>>;

    /// Has a lease end so many seconds from now, if that is later than it would.
    fn extend(&self, token: &[u8], secs: u64) -> Answer<()>;

    /// Says what was done, until nothing remains and the lease has ended. Said again it answers the same.
    fn complete(&self, done: &CompleteBlobDeletionBatch) -> Answer<CompletedBlobDeletions>;
}

impl<T: Reach + Sync> Queue for Client<T> {
    fn limit(&self, gives_up: GivesUp) {
        self.transport().limit(gives_up);
    }

    fn look(&self, window: u32, selectors: &[BlobSelector], replicated: bool) -> Result<Seen> {
        if replicated { look(&self.replicated(), window, selectors) } else { look(self, window, selectors) }
    }

    fn pending(&self, height: u32, rows: u32, selectors: &[BlobSelector]) -> Result<Vec<Row>> {
        self.get_pending_blob_deletions(height, rows, Some(selectors)).wait()
    }

    fn acquire(&self, ask: &AcquireBlobDeletions) -> Answer<Option<BlobDeletionLease>> {
        self.acquire_blob_deletion_batch(ask).wait()
    }

    fn extend(&self, token: &[u8], secs: u64) -> Answer<()> {
        Ok(self.extend_blob_deletion_batch(token, secs).wait()?.map(drop))
    }

    fn complete(&self, done: &CompleteBlobDeletionBatch) -> Answer<CompletedBlobDeletions> {
        pollster::block_on(self.complete_blob_deletion_batch_all(done)).heard()
    }
}

fn look<T: Transport>(client: &Client<T>, window: u32, selectors: &[BlobSelector]) -> Result<Seen> {
    let status = client.get_blob_deletion_status().wait()?;
    // One replica's figures may be any.
    let rows = |store: &StoreDeletions| store.waiting.saturating_add(store.leased).saturating_add(store.backing_off);
    let height = due(&client.get_pruner_status().wait()?, window);
    // None is pending while deletions are stopped.
    let is_due = match height {
        Some(height) => !client.get_pending_blob_deletions(height, 1, Some(selectors)).wait()?.is_empty(),
        None => false,
    };
    Ok(Seen { height, rows: status.stores.iter().map(rows).fold(0, u64::saturating_add), is_due })
}

/// Up to which height the canister leases rows: so many blocks below where the chain is, or its persister, if one runs.
fn due(status: &UtxoPrunerStatus, window: u32) -> Option<u32> {
    let persisted = status.last_persisted_height.filter(|height| *height > 0).unwrap_or(u32::MAX);
    status.current_height.min(persisted).checked_sub(window).filter(|height| *height > 0)
}
