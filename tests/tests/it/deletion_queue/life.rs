//! A life of the queue, run undisturbed and then with a fault at every message: a trap at its end or inside, or an upgrade before it. A
//! worker repeats rejected calls, as workers do. After any interruption every row is in one place, no row has two holders, and the life
//! ends as the undisturbed one does.

use super::{OTHER, WORKER, at, grant_workers, ids, name, pending, status, wanted};
use candid::CandidType;
use candid::utils::ArgumentEncoder;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::wasm;
use ic_coppice_host::{Checkpoint, Host, Kind, TrapPoint};
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use std::sync::Arc;

fn retry_call<R: CandidType + DeserializeOwned>(
    coppice: &Coppice,
    who: Who,
    method: &str,
    args: impl ArgumentEncoder + Clone,
) -> R {
    let mut reject = None;
    for _ in 0..4 {
        match coppice.call::<Result<R, BlobDeletionError>>(who, method, args.clone()) {
            Ok(reply) => return reply.unwrap_or_else(|error| panic!("{method}: {error:?}")),
            Err(error) => reject = Some(error),
        }
    }
    panic!("{method}: {reject:?}");
}

fn list(coppice: &Coppice) -> Vec<ListedBlobDeletion> {
    let page: BlobDeletionList =
        coppice.anyone().list_blob_deletions(&ListBlobDeletions { limit: 1_000, ..Default::default() }).answer();
    assert_eq!(page.cursor, None);
    page.rows
}

/// Checks any state on the way: counts are those of a scan, and waiting rows are in order.
fn check(coppice: &Coppice) {
    let (rows, status) = (list(coppice), status(coppice));
    let of = |state| rows.iter().filter(|row| row.state == state).map(|row| &row.row).collect::<Vec<_>>();
    let store = &status.stores[0];
    let counted = [store.held, store.waiting, store.leased, store.backing_off, store.dead];
    assert_eq!(counted, BlobDeletionState::ALL.map(|state| of(state).len() as u64));
    let mut waiting: Vec<_> = of(BlobDeletionState::Waiting).iter().map(|row| (row.delete_at_height, row.id)).collect();
    waiting.sort_unstable();
    assert_eq!(pending(coppice), waiting.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    let leased: u64 = status.leases.iter().map(|lease| u64::from(lease.rows)).sum();
    assert_eq!(leased, store.leased);
    let dead = coppice.dead_rows(None, 0);
    assert_eq!(ids(&dead.rows), of(BlobDeletionState::Dead).iter().map(|row| row.id).collect::<Vec<_>>());
}

fn complete(
    coppice: &Coppice,
    who: Who,
    lease: &BlobDeletionLease,
    (completed, failed): (&[u64], &[u64]),
    max_retries: u32,
) -> CompletedBlobDeletions {
    let (completed_ids, failed_ids) = (completed.to_vec(), failed.to_vec());
    let arg = CompleteBlobDeletionBatch {
        token: lease.token.clone(),
        completed_ids,
        failed_ids,
        max_retries,
        ..Default::default()
    };
    retry_call(coppice, who, "complete_blob_deletion_batch", (arg,))
}

fn acquire(coppice: &Coppice, who: Who, limit: u32, secs: u64) -> BlobDeletionLease {
    let request = format!("life {secs}");
    let arg = AcquireBlobDeletions { lock_timeout_secs: secs, ..wanted(limit, Some(request.as_bytes())) };
    retry_call::<Option<_>>(coppice, who, "acquire_blob_deletion_batch", (arg,)).expect("something waits")
}

fn schedule(coppice: &Coppice, of: u64, height: u32) -> ScheduledBlobDeletion {
    retry_call(coppice, Who::Producer, "schedule_blob_deletion", (at(of, height),))
}

/// Lets time pass; then a call wakes the timers if they were lost.
fn time_passes(coppice: &Coppice, secs: u64) {
    for _ in 0..2 {
        coppice.pass(secs);
        let cancelled: Option<CancelledBlobDeletion> =
            retry_call(coppice, Who::Producer, "cancel_blob_deletion", (name(999),));
        assert_eq!(cancelled, None);
        coppice.pass(1);
    }
}

fn life(coppice: &Coppice, mut step: impl FnMut(&Coppice)) {
    for of in 0..12 {
        schedule(coppice, of, (40 - 3 * of) as u32);
    }
    step(coppice);
    let first = acquire(coppice, WORKER, 5, 0);
    assert_eq!(ids(&first.rows), [12, 11, 10, 9, 8]);
    step(coppice);
    let second = acquire(coppice, OTHER, 4, 20);
    assert_eq!(ids(&second.rows), [7, 6, 5, 4]);
    step(coppice);
    // The first worker deletes some blobs and fails at one. One of the rows was rescheduled meanwhile, and one is not reported.
    assert!(schedule(coppice, 9, 2).was_leased);
    let done = complete(coppice, WORKER, &first, (&[12, 11, 10], &[9]), 3);
    assert_eq!((done.removed, done.retries_incremented, done.skipped), (2, 1, vec![10]));
    assert_eq!(pending(coppice), [10, 8, 3, 2, 1]);
    step(coppice);
    // The second worker never reports.
    time_passes(coppice, 12);
    assert_eq!(pending(coppice), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    step(coppice);
    let third = acquire(coppice, WORKER, 3, 30);
    let until: u64 = retry_call(coppice, WORKER, "extend_blob_deletion_batch", (third.token.clone(), 600u64));
    assert!(until > third.expires_at_ns);
    time_passes(coppice, 20);
    let done = complete(coppice, WORKER, &third, (&[10], &[9, 8]), 1);
    assert_eq!((done.removed, done.dead), (3, 2));
    step(coppice);
    let nine = RetryBlobDeletions::Ids(vec![9]);
    retry_call::<RetriedBlobDeletions>(coppice, Who::Controller, "retry_blob_deletions", (nine,));
    let cancelled: Option<CancelledBlobDeletion> =
        retry_call(coppice, Who::Producer, "cancel_blob_deletion", (name(7),));
    assert!(cancelled.is_some());
    step(coppice);
    let retry: BlobDeletionRetry = retry_call(coppice, OTHER, "increment_blob_deletion_retry", (1u64, 1u32));
    assert!(retry.should_remove);
    assert!(retry_call::<bool>(coppice, OTHER, "remove_blob_deletion", (1u64, None::<u32>)));
    let arg =
        CompleteBlobDeletions { completed_ids: vec![2, 3], failed_ids: vec![4], max_retries: 3, ..Default::default() };
    retry_call::<CompletedBlobDeletions>(coppice, WORKER, "complete_blob_deletions", (arg,));
    step(coppice);
}

/// The state that two lives are compared by: everything except the times.
fn end(coppice: &Coppice) -> Vec<(u64, u32, u32, BlobDeletionState)> {
    check(coppice);
    assert_eq!(status(coppice).leases, []);
    list(coppice).iter().map(|row| (row.row.id, row.row.delete_at_height, row.row.retry_count, row.state)).collect()
}

/// Asserts that the timer still fires.
fn assert_still_fires(coppice: &Coppice) {
    schedule(coppice, 500, 0);
    let before = pending(coppice);
    acquire(coppice, WORKER, 1_000, 5);
    assert!(pending(coppice).is_empty());
    time_passes(coppice, 6);
    assert_eq!(pending(coppice), before);
}

struct Undisturbed {
    coppice: Coppice,
    host: Arc<Host>,
    start: Checkpoint,
    end: Vec<(u64, u32, u32, BlobDeletionState)>,
    /// The kind of each message of the life, its instructions and its system calls.
    messages: Vec<(Kind, u64, u64)>,
}

fn undisturbed() -> Undisturbed {
    let (coppice, host) = Coppice::embedded(default_arg());
    grant_workers(&coppice);
    let start = host.checkpoint();
    host.take_executions();
    let mut messages = Vec::new();
    life(&coppice, |coppice| {
        messages.extend(
            host.take_executions().into_iter().filter(|e| !matches!(e.kind, Kind::Query | Kind::InspectMessage)),
        );
        check(coppice);
    });
    let messages: Vec<_> = messages.iter().map(|e| (e.kind, e.instructions, e.system_calls)).collect();
    assert!(messages.iter().any(|(kind, ..)| *kind == Kind::Timer), "the timer fires in it");
    let end = end(&coppice);
    assert!(end.len() >= 5, "{end:?}");
    assert_still_fires(&coppice);
    Undisturbed { coppice, host, start, end, messages }
}

impl Undisturbed {
    /// Runs the life again from the start with a fault, and compares.
    fn again(&self, what: &str, fault: impl FnOnce(&Host)) {
        self.host.restore(&self.start);
        self.host.faults().clear();
        let before = self.host.faults().injected();
        fault(&self.host);
        eprintln!("{what}");
        life(&self.coppice, check);
        assert_eq!(self.host.faults().injected() - before, 1, "{what}: the fault must strike");
        for result in self.host.faults().upgrade_results() {
            result.unwrap_or_else(|reject| panic!("{what}: {reject:?}"));
        }
        self.host.faults().clear();
        assert_eq!(end(&self.coppice), self.end, "{what}");
        assert_still_fires(&self.coppice);
    }
}

#[test]
fn a_trap_in_any_message_of_the_queue_changes_nothing() {
    let life = undisturbed();
    let mut tried = 0;
    for (k, &(kind, instructions, system_calls)) in (1..).zip(&life.messages) {
        let inside = TrapPoint::Instructions(instructions / 2 + k * 997 % (instructions / 3).max(1));
        for point in [TrapPoint::End, inside, TrapPoint::SystemCall(1 + k * 31 % system_calls.max(1))] {
            // A trap point within the last 1,000 instructions may lie after the last place where the host checks for it.
            if matches!(point, TrapPoint::Instructions(n) if n + 1_000 > instructions) {
                continue;
            }
            tried += 1;
            let what = format!("trap in message {k}, {kind:?}, at {point:?}");
            life.again(&what, |host| host.faults().trap_message(k, point));
        }
    }
    assert!(tried > 2 * life.messages.len(), "{tried} points in {} messages", life.messages.len());
}

#[test]
fn an_upgrade_between_any_two_messages_of_the_queue_loses_nothing() {
    let life = undisturbed();
    let arg = candid::encode_one(None::<CanisterArg>).unwrap();
    for k in 1..=life.messages.len() as u64 {
        let (kind, ..) = life.messages[k as usize - 1];
        let what = format!("upgrade before message {k}, {kind:?}");
        life.again(&what, |host| {
            host.faults().upgrade_before(k, life.coppice.id, wasm::canister(), arg.clone());
        });
    }
}
