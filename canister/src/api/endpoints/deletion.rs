//! The queue of blobs outside that are to be deleted (`docs/design.md` 7).

use super::records::noting;
use crate::api::access::{blob_worker, operator, scheduler};
use crate::api::wire;
use crate::deletion::Name;
use crate::logs::audit::field;
use crate::operation::daemon;
use crate::platform::meter::{Hot, counted};
use crate::platform::{caller, cycles, time_ns};
use crate::state::{State, mutate, read};
use candid::candid_method;
use coppice_interface::access::UTXO_FEEDERS;
use coppice_interface::*;
use ic_cdk::{query, update};
use serde_bytes::ByteBuf;
use std::convert::Infallible;

/// Runs a message of the queue's, given the time, then arms the timer for the queue.
fn message<T>(run: impl FnOnce(&mut State, u64) -> T) -> T {
    mutate(|state| {
        let result = run(state, time_ns());
        daemon::arm_deletions(state);
        result
    })
}

/// Runs a message as [`message`] does; a call by an operator who is no feeder is noted, with the blob's row.
fn scheduling<T>(
    method: &str,
    name: &BlobName,
    run: impl FnOnce(&mut State, u64) -> Result<T, BlobDeletionError>,
) -> Result<T, BlobDeletionError> {
    message(|state, now| {
        if UTXO_FEEDERS.iter().any(|&role| state.caller_is(role)) {
            return run(state, now);
        }
        // A name may be as long as a message, and what is noted is short.
        let key = |most: usize| {
            let some = &name.blob_key[..name.blob_key.len().min(most)];
            some.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let (of, bytes) = (name.store_type, name.blob_key.len());
        let argument = format!("{of:?}, a key of {bytes} bytes: {}", key(64));
        let row = format!("{of:?} {}", key(32));
        let shown = |state: &State| vec![field(&row, state.deletions.describe(&Name::from(name)))];
        state.noting(method, argument, shown, |state| run(state, now))
    })
}

/// Schedules the deletion of a blob that no record names; a feeder's or an operator's. A row that is there already
/// keeps its number, gets the height, and is tried from the start, also where it was leased, as often as the call is
/// repeated.
#[candid_method(update)]
#[update(
    guard = "scheduler",
    guard = "wire::readable::<(ScheduleBlobDeletion,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn schedule_blob_deletion(arg: ScheduleBlobDeletion) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
    scheduling("schedule_blob_deletion", &arg.name, |state, now| {
        if let Some(missing) = cycles::missing_to_feed() {
            return Err(BlobDeletionError::LowCycles { missing });
        }
        state.deletions.schedule(&Name::from(&arg.name), arg.delete_at_height, now)
    })
}

/// Takes a blob's row out of the queue, and says whether there was one; a feeder's or an operator's. A repeated call
/// answers `false`.
#[candid_method(update)]
#[update(
    guard = "scheduler",
    guard = "wire::readable::<(BlobName,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn cancel_blob_deletion(name: BlobName) -> Result<bool, BlobDeletionError> {
    scheduling("cancel_blob_deletion", &name, |state, now| state.deletions.cancel(&Name::from(&name), now))
}

/// Rows of the queue, by number, as far as they answer to what is asked; for anyone. A call looks at 10,000 rows at most:
/// there is more while there is a cursor.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ListBlobDeletions,)>", hidden = true, decode_with = "wire::arg")]
fn list_blob_deletions(arg: ListBlobDeletions) -> BlobDeletionList {
    read(|state| state.deletions.list(&arg))
}

/// Rows that wait and whose height is this one or lower, by height; for anyone. `limit` rows at most, and 1,000; 0: 100.
/// Rows that `selectors` name; all rows without them. None while deletions are stopped.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u32, u32, Option<Vec<BlobSelector>>,)>", hidden = true, decode_with = "wire::args")]
fn get_pending_blob_deletions(height: u32, limit: u32, selectors: Option<Vec<BlobSelector>>) -> Vec<BlobDeletion> {
    read(|state| match state.deletions_stopped {
        None => state.deletions.pending(height, limit, selectors.as_deref()),
        Some(_) => Vec::new(),
    })
}

/// Takes a row out of the queue, with the record that waits for it, and says whether it is gone; a blob worker's.
/// `false`: there is no such row, its height is above `up_to_height`, or it stays, given up, for the record that goes with
/// it. A repeated call answers `false`.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(u64, Option<u32>,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
fn remove_blob_deletion(id: u64, up_to_height: Option<u32>) -> Result<bool, BlobDeletionError> {
    message(|state, _| {
        let (pruner, mut records) = state.utxo_pruner();
        pruner.remove_deletion(&mut records, id, up_to_height.unwrap_or(u32::MAX))
    })
}

/// Counts a failure of a row that is not leased, and gives it up at `max_retries`, of which 0 means 1; a blob worker's. A
/// repeated call counts again.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(u64, u32,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
fn increment_blob_deletion_retry(id: u64, max_retries: u32) -> Result<BlobDeletionRetry, BlobDeletionError> {
    message(|state, now| state.deletions.increment(id, max_retries, now))
}

/// Says what became of deletions that were not leased; a blob worker's. 10,000 numbers at most; those that the message
/// had no room for are `remaining`. A repeated call finds what was completed `already` done; what failed counts again.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(CompleteBlobDeletions,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn complete_blob_deletions(arg: CompleteBlobDeletions) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    message(|state, _| {
        let (pruner, mut records) = state.utxo_pruner();
        pruner.complete_deletions(&mut records, &arg)
    })
}

/// Leases rows whose height has come; a blob worker's. None where nothing is due, and while deletions are stopped. There
/// are 256 leases at most, and `max_leases_per_holder` of one caller. The same caller with the same `request` gets the same
/// lease again while it is live, and no other one for it.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(AcquireBlobDeletions,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn acquire_blob_deletion_batch(arg: AcquireBlobDeletions) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
    counted(Hot::AcquireDeletions, || {
        message(|state, now| match state.deletions_stopped {
            None => state.deletions.acquire(caller(), &arg, state.utxo_pruner.reached(), now),
            Some(_) => Ok(None),
        })
    })
}

/// Has a lease expire so many seconds from now, 43,200 at most; 0: 300; a lease that would expire later stays as it is.
/// For its holder, a blob worker. Answers the moment in Unix nanoseconds; a repeated call counts from its own time. Refused
/// while deletions are stopped: leases run out, and are completed until then.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(ByteBuf, u64,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
fn extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64) -> Result<u64, BlobDeletionError> {
    message(|state, now| match state.deletions_stopped {
        None => state.deletions.extend(caller(), &token, lock_timeout_secs, now),
        Some(_) => Err(BlobDeletionError::Stopped),
    })
}

/// Says what became of leased rows, 2,000 numbers at most, and ends the lease once nothing is `remaining`; for its
/// holder, a blob worker. A repeated call is answered as the one that ended the lease; before that it finds
/// `already` done what was dealt with, and counts no failure twice.
#[candid_method(update)]
#[update(
    guard = "blob_worker",
    guard = "wire::readable::<(CompleteBlobDeletionBatch,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn complete_blob_deletion_batch(arg: CompleteBlobDeletionBatch) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    counted(Hot::CompleteDeletions, || {
        message(|state, _| {
            let (pruner, mut records) = state.utxo_pruner();
            pruner.complete_lease(&mut records, caller(), &arg)
        })
    })
}

/// Rows that were given up, by number, from the cursor on; for anyone. `limit` rows at most, and 1,000; 0: 100.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<u64>, u32,)>", hidden = true, decode_with = "wire::args")]
fn list_dead_blob_deletions(cursor: Option<u64>, limit: u32) -> BlobDeletionPage {
    read(|state| state.deletions.dead(cursor, limit))
}

/// Has dead letters tried again from the start, as many as the message has room for; an operator's. A repeated call goes on
/// with those that are `remaining`.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(RetryBlobDeletions,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn retry_blob_deletions(arg: RetryBlobDeletions) -> Result<RetriedBlobDeletions, BlobDeletionError> {
    let argument = match &arg {
        RetryBlobDeletions::Ids(ids) => format!("{} rows: {:?}", ids.len(), &ids[..ids.len().min(8)]),
        RetryBlobDeletions::StoreType(of) => format!("all of {of:?}"),
    };
    message(|state, now| noting(state, "retry_blob_deletions", argument, |state| state.deletions.retry(&arg, now)))
}

/// Ends the live leases of a principal, and says how many; an operator's. Their rows come back after a quarter of the
/// lease's time, the longest that a request for a blob may take. `revoke_role` does the same to a blob worker. A repeated
/// call answers 0.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(candid::Principal,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn end_blob_deletion_leases(holder: candid::Principal) -> u64 {
    let Ok(ended) = message(|state, now| {
        noting(state, "end_blob_deletion_leases", holder, |state| {
            Ok::<_, Infallible>(state.deletions.end_leases(holder, now))
        })
    });
    ended
}

/// Everything that an operator needs to see of the queue; for anyone.
#[query]
fn get_blob_deletion_status() -> BlobDeletionStatus {
    read(|state| BlobDeletionStatus { deletions_stopped_since: state.deletions_stopped, ..state.deletions.status() })
}
