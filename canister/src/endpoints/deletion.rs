//! The queue of blobs outside that are to be deleted (`docs/design.md` 7).

use super::pruner::noting;
use crate::access::{blob_worker, operator, scheduler};
use crate::deletion::Name;
use crate::meter::{Hot, counted};
use crate::runtime::{caller, time_ns};
use crate::state::{State, mutate, read};
use crate::{daemon, wire};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};
use serde_bytes::ByteBuf;

/// Runs a message of the queue's, after which the timer knows when time does something next.
fn message<T>(run: impl FnOnce(&mut State, u64) -> T) -> T {
    let result = mutate(|state| run(state, time_ns()));
    daemon::arm_deletions();
    result
}

/// As [`message`]; what one does who is no producer is an operator's, and noted.
fn scheduling<T>(
    method: &str,
    name: &BlobName,
    run: impl FnOnce(&mut State, u64) -> Result<T, BlobDeletionError>,
) -> Result<T, BlobDeletionError> {
    let result = match read(|state| state.caller_is(Role::Producer)) {
        true => mutate(|state| run(state, time_ns())),
        false => {
            // A name may be as long as a message, and what is noted is short.
            let key = &name.blob_key[..name.blob_key.len().min(64)];
            let (of, bytes) = (name.store_type, name.blob_key.len());
            noting(method, format!("{of:?}, a key of {bytes} bytes: {key:02x?}"), |state| run(state, time_ns()))
        }
    };
    daemon::arm_deletions();
    result
}

#[candid_method(update)]
#[update(guard = "scheduler", hidden = true, decode_with = "wire::arg")]
fn schedule_blob_deletion(arg: ScheduleBlobDeletion) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
    scheduling("schedule_blob_deletion", &arg.name, |state, now| {
        state.deletions.schedule(&Name::from(&arg.name), arg.delete_at_height, now)
    })
}

#[candid_method(update)]
#[update(guard = "scheduler", hidden = true, decode_with = "wire::arg")]
fn cancel_blob_deletion(name: BlobName) -> Result<bool, BlobDeletionError> {
    scheduling("cancel_blob_deletion", &name, |state, now| state.deletions.cancel(&Name::from(&name), now))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::arg")]
fn list_blob_deletions(arg: ListBlobDeletions) -> BlobDeletionList {
    read(|state| state.deletions.list(&arg))
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn get_pending_blob_deletions(height: u32, limit: u32) -> Vec<BlobDeletion> {
    read(|state| state.deletions.pending(height, limit))
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::arg")]
fn remove_blob_deletion(id: u64) -> Result<bool, BlobDeletionError> {
    message(|state, _| {
        let (pruner, mut records) = state.utxo_pruner();
        pruner.remove_deletion(&mut records, id)
    })
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::args")]
fn increment_blob_deletion_retry(id: u64, max_retries: u32) -> Result<BlobDeletionRetry, BlobDeletionError> {
    message(|state, now| state.deletions.increment(id, max_retries, now))
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::arg")]
fn complete_blob_deletions(arg: CompleteBlobDeletions) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    message(|state, _| {
        let (pruner, mut records) = state.utxo_pruner();
        pruner.complete_deletions(&mut records, &arg)
    })
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::arg")]
fn acquire_blob_deletion_batch(arg: AcquireBlobDeletions) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
    counted(Hot::AcquireDeletions, || message(|state, now| state.deletions.acquire(caller(), &arg, now)))
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::args")]
fn extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64) -> Result<u64, BlobDeletionError> {
    message(|state, now| state.deletions.extend(caller(), &token, lock_timeout_secs, now))
}

#[candid_method(update)]
#[update(guard = "blob_worker", hidden = true, decode_with = "wire::arg")]
fn complete_blob_deletion_batch(arg: CompleteBlobDeletionBatch) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    counted(Hot::CompleteDeletions, || {
        message(|state, _| {
            let (pruner, mut records) = state.utxo_pruner();
            pruner.complete_lease(&mut records, caller(), &arg)
        })
    })
}

#[candid_method(query)]
#[query(hidden = true, decode_with = "wire::args")]
fn list_dead_blob_deletions(cursor: Option<u64>, limit: u32) -> BlobDeletionPage {
    read(|state| state.deletions.dead(cursor, limit))
}

#[candid_method(update)]
#[update(guard = "operator", hidden = true, decode_with = "wire::arg")]
fn retry_blob_deletion(id: u64) -> Result<BlobDeletion, BlobDeletionError> {
    let revived = noting("retry_blob_deletion", id, |state| state.deletions.revive(id, time_ns()));
    daemon::arm_deletions();
    revived
}

#[query]
fn get_blob_deletion_status() -> BlobDeletionStatus {
    read(|state| state.deletions.status())
}
