//! The queue, over the client of the canister.

use super::queue::{Ask, Done, Heights, Lease, Noted, Queue, Refusal, Row, Waiting};
use crate::client::{Client, GivesUp, Reach, Transport, Wait};
use anyhow::Result;
use coppice_interface::*;
use serde_bytes::ByteBuf;

impl<T: Reach> Queue for Client<T> {
    fn limit(&self, gives_up: GivesUp) {
        self.transport().limit(gives_up);
    }

    fn heights(&self) -> Result<Heights> {
        Ok(heights(&self.replicated().get_pruner_status().wait()?))
    }

    fn look(&self, replicated: bool) -> Result<(Heights, Vec<Waiting>)> {
        if replicated { look(&self.replicated()) } else { look(self) }
    }

    fn pending(&self, height: u32, rows: u32) -> Result<Vec<Row>> {
        Ok(self.get_pending_blob_deletions(height, rows, None).wait()?.into_iter().map(row).collect())
    }

    fn acquire(&self, ask: &Ask) -> Result<Result<Option<Lease>, Refusal>> {
        let arg = AcquireBlobDeletions {
            height: ask.height,
            limit: ask.rows,
            lock_timeout_secs: ask.secs,
            store_types: ask.stores.clone(),
            request: Some(ByteBuf::from(ask.request.clone())),
            ..Default::default()
        };
        let lease = |lease: BlobDeletionLease| Lease {
            token: lease.token.into_vec(),
            rows: lease.rows.into_iter().map(row).collect(),
        };
        Ok(self.acquire_blob_deletion_batch(&arg).wait()?.map(|given| given.map(lease)).map_err(refusal))
    }

    fn extend(&self, token: &[u8], secs: u64) -> Result<Result<(), Refusal>> {
        Ok(self.extend_blob_deletion_batch(token, secs).wait()?.map(drop).map_err(refusal))
    }

    fn complete(&self, token: &[u8], done: &Done) -> Result<Result<Noted, Refusal>> {
        let arg = CompleteBlobDeletionBatch {
            token: ByteBuf::from(token),
            completed_ids: done.gone.clone(),
            failed_ids: done.failed.clone(),
            max_retries: done.max_retries,
            ..Default::default()
        };
        let noted = |answer: CompletedBlobDeletions| Noted {
            dead: answer.dead,
            remaining: answer.remaining,
            skipped: answer.skipped,
        };
        Ok(self.complete_blob_deletion_batch(&arg).wait()?.map(noted).map_err(refusal))
    }
}

fn look<T: Transport>(client: &Client<T>) -> Result<(Heights, Vec<Waiting>)> {
    let status = client.get_blob_deletion_status().wait()?;
    // While deletions are stopped nothing is due: no update is spent on hearing that there is no lease.
    let is_stopped = status.deletions_stopped_since.is_some();
    let waiting = |store: &StoreDeletions| Waiting {
        store: store.store_type,
        // One replica's figures may be any.
        rows: store.waiting.saturating_add(store.leased).saturating_add(store.backing_off),
        oldest: store.oldest_due.filter(|_| !is_stopped),
    };
    let stores = status.stores.iter().map(waiting).collect();
    Ok((heights(&client.get_pruner_status().wait()?), stores))
}

fn heights(status: &UtxoPrunerStatus) -> Heights {
    Heights { current: status.current_height, persisted: status.last_persisted_height.unwrap_or_default() }
}

fn row(row: BlobDeletion) -> Row {
    Row {
        id: row.id,
        key: row.blob_key.into_vec(),
        file_type: row.file_type,
        store: row.store_type,
        height: row.delete_at_height,
    }
}

fn refusal(error: BlobDeletionError) -> Refusal {
    use BlobDeletionError::{Completed, Expired, NotHolder, UnknownToken};
    let why = format!("the queue answers {error:?}");
    match error {
        UnknownToken | NotHolder | Expired | Completed => Refusal::Over(why),
        _ => Refusal::Later(why),
    }
}
