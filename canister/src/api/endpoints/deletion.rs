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

/// Runs an operation of the queue at the present time, then arms the daemon.
fn message<T>(run: impl FnOnce(&mut State, u64) -> T) -> T {
    arming(|state| run(state, time_ns()))
}

/// Runs a message as [`message`] does; writes calls of operators without a feeder's role to the audit log, with the blob's row.
fn scheduling<T>(
    method: &str,
    name: &BlobName,
    run: impl FnOnce(&mut State, u64) -> Result<T, BlobDeletionError>,
) -> Result<T, BlobDeletionError> {
    message(|state, now| {
        if UTXO_FEEDERS.iter().any(|&role| state.caller_is(role)) {
            return run(state, now);
        }
        // A name may be as long as a message, so the audit log gets only its beginning.
        let key = |most: usize| hex(&name.blob_key[..name.blob_key.len().min(most)]);
        let (of, bytes) = (name.store_type, name.blob_key.len());
        let argument = format!("{of:?}, a key of {bytes} bytes: {}", key(64));
        let row = format!("{of:?} {}", key(32));
        let shown = |state: &State| vec![field(&row, state.records.deletions.describe(&Name::from(name)))];
        state.noting(method, argument, shown, |state| run(state, now))
    })
}

pub fn schedule_blob_deletion(arg: ScheduleBlobDeletion) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
    scheduling("schedule_blob_deletion", &arg.name, |state, now| {
        if let Some(missing) = cycles::missing_to_feed() {
            return Err(BlobDeletionError::NoMemory(NoMemory::LowCycles { missing }));
        }
        state.records.deletions.schedule(&Name::from(&arg.name), arg.delete_at_height, now)
    })
}

pub fn cancel_blob_deletion(name: BlobName) -> Result<Option<CancelledBlobDeletion>, BlobDeletionError> {
    scheduling("cancel_blob_deletion", &name, |state, now| state.records.deletions.cancel(&Name::from(&name), now))
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
    message(|state, now| {
        if state.deletions_stopped.is_some() {
            return state.records.deletions.report_row(id, up_to, now);
        }
        let (pruner, mut records) = state.utxo_pruner();
        pruner.remove_deletion(&mut records, id, up_to)
    })
}

pub fn increment_blob_deletion_retry(id: u64, max_retries: u32) -> Result<BlobDeletionRetry, BlobDeletionError> {
    message(|state, now| match state.deletions_stopped {
        None => state.records.deletions.increment(id, max_retries, now),
        Some(_) => Err(BlobDeletionError::Stopped),
    })
}

pub fn complete_blob_deletions(arg: CompleteBlobDeletions) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    message(|state, now| {
        if state.deletions_stopped.is_some() {
            return state.records.deletions.report(&arg, now);
        }
        let (pruner, mut records) = state.utxo_pruner();
        pruner.complete_deletions(&mut records, &arg)
    })
}

pub fn acquire_blob_deletion_batch(arg: AcquireBlobDeletions) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
    counted(Hot::AcquireDeletions, || {
        message(|state, now| match state.deletions_stopped {
            None => state.records.deletions.acquire(caller(), &arg, state.records.pruner.reached(), now),
            Some(_) => Ok(None),
        })
    })
}

pub fn extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64) -> Result<u64, BlobDeletionError> {
    message(|state, now| match state.deletions_stopped {
        None => state.records.deletions.extend(caller(), &token, lock_timeout_secs, now),
        Some(_) => Err(BlobDeletionError::Stopped),
    })
}

pub fn complete_blob_deletion_batch(
    arg: CompleteBlobDeletionBatch,
) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    counted(Hot::CompleteDeletions, || {
        message(|state, now| {
            if state.deletions_stopped.is_some() {
                return state.records.deletions.report_batch(caller(), &arg, now);
            }
            let (pruner, mut records) = state.utxo_pruner();
            pruner.complete_lease(&mut records, caller(), &arg)
        })
    })
}

pub fn retry_blob_deletions(arg: RetryBlobDeletions) -> Result<RetriedBlobDeletions, BlobDeletionError> {
    let argument = match &arg {
        RetryBlobDeletions::Ids(ids) => format!("{} rows: {:?}", ids.len(), &ids[..ids.len().min(8)]),
        RetryBlobDeletions::StoreType(of) => format!("all of {of:?}"),
    };
    message(|state, now| {
        noting(state, "retry_blob_deletions", argument, |state| state.records.deletions.retry(&arg, now))
    })
}

pub fn end_blob_deletion_leases(holder: candid::Principal) -> u64 {
    let Ok(ended) = message(|state, now| {
        noting(state, "end_blob_deletion_leases", holder, |state| {
            Ok::<_, Infallible>(state.records.deletions.end_leases(Some(holder), now))
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
