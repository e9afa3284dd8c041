//! The deletion queue of external blobs, through the interface (`blob-deletion-api.md`): its three ways, each with its number of calls; who
//! may call which method; expiry by time; and a life of the queue with a trap or an upgrade at every message. Exact and large cases are in
//! the canister's own tests.

mod file_types;
mod life;
mod stopped;

use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_host::Kind;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Two workers.
pub const WORKER: Who = Who::Archive;
pub const OTHER: Who = Who::Exporter;

pub fn grant_workers(coppice: &Coppice) {
    for who in [WORKER, OTHER] {
        let grant = Grant { principal: who.principal(), role: Role::BlobWorker };
        coppice.operator().grant_role(&grant).answer().unwrap();
    }
}

fn with_workers() -> Coppice {
    let coppice = Coppice::new();
    grant_workers(&coppice);
    coppice
}

pub fn name(of: u64) -> BlobName {
    BlobName { blob_key: ByteBuf::from(of.to_le_bytes()), file_type: "tx".into(), store_type: StoreType::Tx }
}

pub fn at(of: u64, delete_at_height: u32) -> ScheduleBlobDeletion {
    ScheduleBlobDeletion { name: name(of), delete_at_height }
}

fn schedule(coppice: &Coppice, of: u64, height: u32) -> ScheduledBlobDeletion {
    coppice.producer().schedule_blob_deletion(&at(of, height)).answer().unwrap()
}

pub fn wanted(limit: u32, request: Option<&[u8]>) -> AcquireBlobDeletions {
    let request = request.map(ByteBuf::from);
    AcquireBlobDeletions {
        height: 1_000_000,
        limit,
        lock_timeout_secs: 0,
        store_types: vec![],
        request,
        ..Default::default()
    }
}

pub fn acquire(coppice: &Coppice, who: Who, arg: AcquireBlobDeletions) -> Option<BlobDeletionLease> {
    let lease: Result<_, BlobDeletionError> = coppice.by(who).acquire_blob_deletion_batch(&arg).answer();
    lease.unwrap()
}

fn complete_lease(
    coppice: &Coppice,
    who: Who,
    lease: &BlobDeletionLease,
    (completed, failed): (&[u64], &[u64]),
) -> Result<CompletedBlobDeletions, BlobDeletionError> {
    let (completed_ids, failed_ids) = (completed.to_vec(), failed.to_vec());
    let arg = CompleteBlobDeletionBatch {
        token: lease.token.clone(),
        completed_ids,
        failed_ids,
        max_retries: 3,
        ..Default::default()
    };
    coppice.by(who).complete_blob_deletion_batch(&arg).answer()
}

pub fn ids(rows: &[BlobDeletion]) -> Vec<u64> {
    rows.iter().map(|row| row.id).collect()
}

pub fn pending(coppice: &Coppice) -> Vec<u64> {
    ids(&coppice.anyone().get_pending_blob_deletions(u32::MAX, 1_000u32, None).answer())
}

pub fn status(coppice: &Coppice) -> BlobDeletionStatus {
    coppice.anyone().get_blob_deletion_status().answer()
}

fn metric(coppice: &Coppice, name: &str) -> f64 {
    let metrics = status(coppice).metrics;
    let ends = format!("pruner_blob_deletion_{name}");
    metrics
        .iter()
        .find(|metric| metric.name.strip_prefix("coppice_").unwrap_or(&metric.name) == ends)
        .expect(name)
        .value
}

/// The document's table: 1,001 calls, 2 and 2 for a thousand deletions, counted from the executions.
#[test]
fn a_thousand_deletions_take_1001_calls_or_2_or_2() {
    let (coppice, host) = Coppice::embedded(default_arg());
    grant_workers(&coppice);
    let calls = |run: &dyn Fn()| {
        for of in 0..1_000 {
            schedule(&coppice, of, of as u32);
        }
        host.take_executions();
        run();
        let ran = host.take_executions();
        assert_eq!(status(&coppice).stores[0].waiting, 0);
        ran.iter().filter(|execution| matches!(execution.kind, Kind::Update | Kind::Query)).count()
    };
    let individual = calls(&|| {
        for id in pending(&coppice) {
            let removed = coppice.by(WORKER).remove_blob_deletion(id, None).try_answer();
            assert_eq!(removed.unwrap(), Ok(true));
        }
    });
    let batch = calls(&|| {
        let arg = CompleteBlobDeletions {
            completed_ids: pending(&coppice),
            failed_ids: vec![],
            max_retries: 3,
            ..Default::default()
        };
        let done = coppice.by(WORKER).complete_blob_deletions(&arg).try_answer();
        assert_eq!(done.unwrap().unwrap().removed, 1_000);
    });
    let leased = calls(&|| {
        let lease = acquire(&coppice, WORKER, wanted(1_000, None)).unwrap();
        let done = complete_lease(&coppice, WORKER, &lease, (&ids(&lease.rows), &[]));
        assert_eq!(done.unwrap().removed, 1_000);
    });
    assert_eq!((individual, batch, leased), (1_001, 2, 2));
    assert_eq!(metric(&coppice, "processed_total"), 3_000.0);
}

#[test]
fn two_workers_share_the_queue_and_each_row_is_deleted_by_one() {
    let coppice = with_workers();
    for of in 0..50 {
        schedule(&coppice, of, 50 - of as u32);
    }
    let first = acquire(&coppice, WORKER, wanted(20, None)).unwrap();
    let second = acquire(&coppice, OTHER, wanted(0, None)).unwrap();
    assert_eq!(ids(&first.rows), (31..=50).rev().collect::<Vec<_>>(), "by height");
    assert_eq!(ids(&second.rows), (1..=30).rev().collect::<Vec<_>>());
    assert_eq!((acquire(&coppice, OTHER, wanted(1, None)), pending(&coppice)), (None, vec![]));
    coppice.upgrade();
    let refused = complete_lease(&coppice, OTHER, &first, (&[50], &[]));
    assert_eq!(refused, Err(BlobDeletionError::NotHolder));
    let done = complete_lease(&coppice, WORKER, &first, (&ids(&first.rows), &[30])).unwrap();
    assert_eq!((done.removed, done.skipped), (20, vec![30]));
    let done = complete_lease(&coppice, OTHER, &second, (&(1..=10).collect::<Vec<_>>(), &[11, 12])).unwrap();
    assert_eq!((done.removed, done.retries_incremented), (10, 2));
    assert_eq!(
        pending(&coppice),
        (13..=30).rev().collect::<Vec<_>>(),
        "rows that were not reported wait again at once"
    );
    assert_eq!(status(&coppice).stores[0].backing_off, 2);
    coppice.pass(11);
    assert_eq!(pending(&coppice), (11..=30).rev().collect::<Vec<_>>(), "a timer has them wait again");
}

#[test]
fn a_repeated_lease_call_returns_the_lost_answer() {
    let coppice = with_workers();
    (0..9).for_each(|of| _ = schedule(&coppice, of, 1));
    let lease = acquire(&coppice, WORKER, wanted(4, Some(b"run 1"))).unwrap();
    assert_eq!(acquire(&coppice, WORKER, wanted(4, Some(b"run 1"))).as_ref(), Some(&lease));
    coppice.upgrade();
    assert_eq!(acquire(&coppice, WORKER, wanted(4, Some(b"run 1"))).as_ref(), Some(&lease));
    let other = acquire(&coppice, OTHER, wanted(4, Some(b"run 1"))).unwrap();
    assert_eq!(ids(&other.rows), [5, 6, 7, 8], "a request is its caller's");
    // The same name for other rows, or for another time, is another request.
    let same = || wanted(4, Some(b"run 1"));
    let selector = BlobSelector { store_type: StoreType::Block, file_type: None };
    for arg in [
        AcquireBlobDeletions { limit: 5, ..same() },
        AcquireBlobDeletions { height: 9, ..same() },
        AcquireBlobDeletions { lock_timeout_secs: 301, ..same() },
        AcquireBlobDeletions { safety_window: Some(3), ..same() },
        AcquireBlobDeletions { store_types: vec![StoreType::Block], ..same() },
        AcquireBlobDeletions { selectors: Some(vec![selector]), ..same() },
    ] {
        let refused = coppice.by(WORKER).acquire_blob_deletion_batch(&arg).answer();
        assert_eq!(refused, Err(BlobDeletionError::OtherRequest), "{arg:?}");
    }
    let done = complete_lease(&coppice, WORKER, &lease, (&[1, 2, 9], &[3])).unwrap();
    coppice.upgrade();
    assert_eq!(complete_lease(&coppice, WORKER, &lease, (&[1, 2, 9], &[3])), Ok(done));
    let extended: Result<u64, BlobDeletionError> =
        coppice.by(WORKER).extend_blob_deletion_batch(&lease.token, 60u64).answer();
    assert_eq!(extended, Err(BlobDeletionError::Completed));
}

#[test]
fn an_expired_lease_frees_its_rows_for_other_workers() {
    let coppice = with_workers();
    (0..3).for_each(|of| _ = schedule(&coppice, of, 7));
    let short = AcquireBlobDeletions { lock_timeout_secs: 20, ..wanted(2, None) };
    let lease = acquire(&coppice, WORKER, short).unwrap();
    let extend = |secs: u64| -> Result<u64, BlobDeletionError> {
        coppice.by(WORKER).extend_blob_deletion_batch(&lease.token, secs).answer()
    };
    assert!(extend(40).unwrap() > lease.expires_at_ns);
    coppice.pass(25);
    assert_eq!((pending(&coppice), status(&coppice).leases.len()), (vec![3], 1));
    coppice.pass(20);
    assert_eq!((pending(&coppice), status(&coppice).leases.len()), (vec![1, 2, 3], 0), "nobody called");
    assert_eq!(extend(9), Err(BlobDeletionError::Expired));
    assert_eq!(complete_lease(&coppice, WORKER, &lease, (&[1], &[])), Err(BlobDeletionError::Expired));
    assert_eq!(metric(&coppice, "leases_expired_total"), 1.0);
    // A lease from before an upgrade expires after it.
    acquire(&coppice, WORKER, AcquireBlobDeletions { lock_timeout_secs: 20, ..wanted(2, None) }).unwrap();
    coppice.upgrade();
    coppice.pass(30);
    assert_eq!(pending(&coppice), [1, 2, 3]);
}

/// The document's example of option 1, with a blob that cannot be deleted: its row is not lost.
#[test]
fn the_individual_calls_lose_no_row() {
    let coppice = with_workers();
    let increment = |id: u64| -> Result<BlobDeletionRetry, BlobDeletionError> {
        coppice.by(WORKER).increment_blob_deletion_retry(id, 2u32).answer()
    };
    let remove = |id: u64| coppice.by(WORKER).remove_blob_deletion(id, None).answer();
    schedule(&coppice, 0, 1);
    assert_eq!(increment(1), Ok(BlobDeletionRetry { should_remove: false, retry_count: 1 }));
    assert_eq!(pending(&coppice), [1]);
    assert_eq!(increment(1), Ok(BlobDeletionRetry { should_remove: true, retry_count: 2 }));
    let dead = coppice.dead_rows(None, 0);
    assert_eq!((pending(&coppice), ids(&dead.rows)), (vec![], vec![1]));
    let all = RetryBlobDeletions::StoreType(StoreType::Tx);
    let retried: RetriedBlobDeletions = coppice.operator().retry_blob_deletions(&all).answer().unwrap();
    assert_eq!(((retried.retried, retried.remaining), pending(&coppice)), ((1, 0), vec![1]));
    let again = coppice.operator().retry_blob_deletions(&RetryBlobDeletions::Ids(vec![1, 77])).answer();
    assert_eq!(again, Ok(RetriedBlobDeletions { skipped: vec![1, 77], ..Default::default() }));
    assert_eq!((remove(1), remove(1)), (Ok(true), Ok(false)), "an unknown row is not an error");
    assert_eq!(increment(1), Err(BlobDeletionError::NotFound));
    // A feeder may cancel a row that it scheduled, dead or not.
    schedule(&coppice, 5, 1);
    assert!(increment(2).is_ok() && increment(2).unwrap().should_remove);
    let cancel = || coppice.operator().cancel_blob_deletion(&name(5)).answer();
    let by_stranger = coppice.by(WORKER).cancel_blob_deletion(&name(5)).try_answer();
    assert!(by_stranger.unwrap_err().message.contains("access denied"));
    let cancelled = CancelledBlobDeletion { id: 2, reported_deleted: false };
    assert_eq!((cancel(), cancel()), (Ok(Some(cancelled)), Ok(None)));
}

#[test]
fn the_list_is_filtered_and_paged() {
    let coppice = with_workers();
    for of in 0..30u64 {
        let mut row = at(of, of as u32 / 3);
        row.name.store_type = StoreType::ALL[(of % 6) as usize];
        coppice.producer().schedule_blob_deletion(&row).answer().unwrap();
    }
    acquire(&coppice, WORKER, wanted(6, None)).unwrap();
    let list = |arg: ListBlobDeletions| -> Vec<u64> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page: BlobDeletionList =
                coppice.anyone().list_blob_deletions(&ListBlobDeletions { cursor, limit: 4, ..arg.clone() }).answer();
            assert!(page.rows.len() <= 4);
            all.extend(page.rows.iter().map(|row| row.row.id));
            cursor = page.cursor;
            if cursor.is_none() {
                return all;
            }
        }
    };
    let none = ListBlobDeletions::default();
    assert_eq!(list(none.clone()), (1..=30).collect::<Vec<_>>());
    let leased = ListBlobDeletions { state: Some(BlobDeletionState::Leased), ..none.clone() };
    assert_eq!(list(leased), (1..=6).collect::<Vec<_>>());
    let heights = ListBlobDeletions { min_height: Some(2), max_height: Some(3), ..none.clone() };
    assert_eq!(list(heights.clone()), (7..=12).collect::<Vec<_>>());
    let of_store = ListBlobDeletions { store_type: Some(StoreType::Block), ..none };
    assert_eq!(list(of_store), [3, 9, 15, 21, 27]);
    assert_eq!(list(ListBlobDeletions { store_type: Some(StoreType::Block), ..heights }), [9]);
    let status = status(&coppice);
    assert_eq!((status.oldest_due, status.leases[0].rows), (Some(2), 6));
    let waiting: u64 = status.stores.iter().map(|store| store.waiting).sum();
    assert_eq!((waiting, metric(&coppice, "pending"), metric(&coppice, "scheduled_total")), (24, 30.0, 30.0));
}

/// A worker that loses the role can no longer report its deletions: its rows become available after a quarter of the lease's time.
#[test]
fn revoking_the_role_of_a_worker_ends_its_leases_and_no_others() {
    let coppice = with_workers();
    (0..4).for_each(|of| _ = schedule(&coppice, of, 1));
    let long = |rows| AcquireBlobDeletions { lock_timeout_secs: 4_000, ..wanted(rows, Some(b"mine")) };
    let lease = acquire(&coppice, WORKER, long(2)).unwrap();
    acquire(&coppice, OTHER, long(1)).unwrap();
    let grant = Grant { principal: WORKER.principal(), role: Role::BlobWorker };
    let exporter = Grant { role: Role::Exporter, ..grant };
    assert!(!coppice.operator().revoke_role(&exporter).answer());
    assert_eq!(metric(&coppice, "leases_ended_total"), 0.0, "revoking another role ends no lease");
    assert!(coppice.operator().revoke_role(&grant).answer());
    assert_eq!((metric(&coppice, "leases_ended_total"), pending(&coppice)), (1.0, vec![4]));
    coppice.operator().grant_role(&grant).answer().unwrap();
    assert_eq!(complete_lease(&coppice, WORKER, &lease, (&[1, 2], &[])), Err(BlobDeletionError::Expired));
    let again: Result<Option<BlobDeletionLease>, BlobDeletionError> =
        coppice.by(WORKER).acquire_blob_deletion_batch(&long(2)).answer();
    assert_eq!(again, Err(BlobDeletionError::Expired));
    coppice.pass(900);
    assert_eq!(pending(&coppice), [4], "a request may be under way");
    coppice.upgrade();
    coppice.pass(110);
    assert_eq!((pending(&coppice), status(&coppice).leases.len()), (vec![1, 2, 4], 1));
}

#[test]
fn only_an_operator_ends_the_leases_of_a_holder() {
    let coppice = with_workers();
    (0..3).for_each(|of| _ = schedule(&coppice, of, 1));
    let lease = acquire(&coppice, WORKER, wanted(2, None)).unwrap();
    let stranger = coppice.by(OTHER).end_blob_deletion_leases(WORKER.principal()).try_answer();
    assert!(stranger.unwrap_err().message.contains("access denied"));
    let end = || coppice.operator().end_blob_deletion_leases(WORKER.principal()).answer();
    assert_eq!((end(), end()), (1, 0));
    let extended: Result<u64, BlobDeletionError> =
        coppice.by(WORKER).extend_blob_deletion_batch(&lease.token, 60u64).answer();
    assert_eq!(extended, Err(BlobDeletionError::Expired));
    coppice.pass(80);
    assert_eq!(pending(&coppice), [1, 2, 3], "a quarter of 300 s");
}
