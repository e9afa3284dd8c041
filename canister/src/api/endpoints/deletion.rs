//! Endpoints for the deletion queue of external blobs (`docs/design/deletion-queue.md`).

use super::arming;
use super::records::noting;
use crate::logs::audit::field;
use crate::platform::meter::{Hot, counted};
use crate::platform::{caller, cycles, time_ns};
use crate::state::{State, read};
use ic_coppice_interface::access::UTXO_FEEDERS;
use ic_coppice_interface::text::hex;
use ic_coppice_interface::*;
use ic_coppice_records::deletion::Name;
use serde_bytes::ByteBuf;
use std::convert::Infallible;

/// Runs a message as [`arming`] does; writes calls of operators without a feeder's role to the audit log, with the blob's row.
fn scheduling<T>(
    method: &str,
    name: &BlobName,
    run: impl FnOnce(&mut State) -> Result<T, BlobDeletionError>,
) -> Result<T, BlobDeletionError> {
    arming(|state| {
        if UTXO_FEEDERS.iter().any(|&role| state.caller_is(role)) {
            return run(state);
        }
        // A name may be as long as a message, so the audit log gets only its beginning.
        let key = |most: usize| hex(&name.blob_key[..name.blob_key.len().min(most)]);
        let (of, bytes) = (name.store_type, name.blob_key.len());
        let argument = format!("{of:?}, a key of {bytes} bytes: {}", key(64));
        let row = format!("{of:?} {}", key(32));
        let shown = |state: &State| vec![field(&row, state.records.deletions.describe(&Name::from(name)))];
        state.noting(method, argument, shown, run)
    })
}

pub fn schedule_blob_deletion(arg: ScheduleBlobDeletion) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
    scheduling("schedule_blob_deletion", &arg.name, |state| {
        if let Some(missing) = cycles::missing_to_feed() {
            return Err(BlobDeletionError::NoMemory(NoMemory::LowCycles { missing }));
        }
        state.records.deletions.schedule(&Name::from(&arg.name), arg.delete_at_height, time_ns())
    })
}

pub fn cancel_blob_deletion(name: BlobName) -> Result<Option<CancelledBlobDeletion>, BlobDeletionError> {
    scheduling("cancel_blob_deletion", &name, |state| state.records.deletions.cancel(&Name::from(&name), time_ns()))
}

pub fn list_blob_deletions(arg: ListBlobDeletions) -> BlobDeletionList {
    read(|state| state.records.deletions.list(&arg))
}

pub fn get_pending_blob_deletions(height: u32, limit: u32, selectors: Option<Vec<BlobSelector>>) -> Vec<BlobDeletion> {
    read(|state| match state.deletions_stopped {
        None => state.records.deletions.pending(height, limit, selectors.as_deref()),
        Some(_) => Vec::new(),
    })
}

pub fn remove_blob_deletion(id: u64, up_to_height: Option<u32>) -> Result<bool, BlobDeletionError> {
    let up_to = up_to_height.unwrap_or(u32::MAX);
    arming(|state| {
        if state.deletions_stopped.is_some() {
            return state.records.deletions.report_row(id, up_to, time_ns());
        }
        let (pruner, mut records) = state.utxo_pruner();
        pruner.with_records(&mut records, |queue, now, rows| queue.remove(id, up_to, now, rows))
    })
}

pub fn increment_blob_deletion_retry(id: u64, max_retries: u32) -> Result<BlobDeletionRetry, BlobDeletionError> {
    arming(|state| match state.deletions_stopped {
        None => state.records.deletions.increment(id, max_retries, time_ns()),
        Some(_) => Err(BlobDeletionError::Stopped),
    })
}

pub fn complete_blob_deletions(arg: CompleteBlobDeletions) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    arming(|state| {
        if state.deletions_stopped.is_some() {
            return state.records.deletions.report(&arg, time_ns());
        }
        let (pruner, mut records) = state.utxo_pruner();
        pruner.with_records(&mut records, |queue, now, rows| queue.complete(&arg, now, rows))
    })
}

pub fn acquire_blob_deletion_batch(arg: AcquireBlobDeletions) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
    counted(Hot::AcquireDeletions, || {
        arming(|state| match state.deletions_stopped {
            None => state.records.deletions.acquire(caller(), &arg, state.records.pruner.reached(), time_ns()),
            Some(_) => Ok(None),
        })
    })
}

pub fn extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64) -> Result<u64, BlobDeletionError> {
    arming(|state| match state.deletions_stopped {
        None => state.records.deletions.extend(caller(), &token, lock_timeout_secs, time_ns()),
        Some(_) => Err(BlobDeletionError::Stopped),
    })
}

pub fn complete_blob_deletion_batch(
    arg: CompleteBlobDeletionBatch,
) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    counted(Hot::CompleteDeletions, || {
        arming(|state| {
            if state.deletions_stopped.is_some() {
                return state.records.deletions.report_batch(caller(), &arg, time_ns());
            }
            let (pruner, mut records) = state.utxo_pruner();
            let base_secs = pruner.stored().settings.retry_base_secs;
            pruner.with_records(&mut records, |queue, now, rows| {
                queue.complete_batch(caller(), &arg, (now, base_secs), rows)
            })
        })
    })
}

pub fn retry_blob_deletions(arg: RetryBlobDeletions) -> Result<RetriedBlobDeletions, BlobDeletionError> {
    let argument = match &arg {
        RetryBlobDeletions::Ids(ids) => format!("{} rows: {:?}", ids.len(), &ids[..ids.len().min(8)]),
        RetryBlobDeletions::StoreType(of) => format!("all of {of:?}"),
    };
    arming(|state| {
        noting(state, "retry_blob_deletions", argument, |state| state.records.deletions.retry(&arg, time_ns()))
    })
}

pub fn end_blob_deletion_leases(holder: candid::Principal) -> u64 {
    let Ok(ended) = arming(|state| {
        noting(state, "end_blob_deletion_leases", holder, |state| {
            Ok::<_, Infallible>(state.records.deletions.end_leases(Some(holder), time_ns()))
        })
    });
    ended
}

pub fn get_blob_deletion_status() -> BlobDeletionStatus {
    read(|state| BlobDeletionStatus {
        deletions_stopped_since_ns: state.deletions_stopped,
        ..state.records.deletions.status()
    })
}
