//! The queue while deletions are stopped: all leases have ended, no rows are listed or leased, and reports of workers only mark rows.

use super::*;
use crate::stop::{stop, with_an_operator_and_an_admin};

const STOPPED: BlobDeletionError = BlobDeletionError::Stopped;

/// A canister with an operator, an admin, two workers and 30 due rows.
fn with_rows() -> Coppice {
    let coppice = with_workers();
    with_an_operator_and_an_admin(&coppice);
    for of in 0..30 {
        schedule(&coppice, of, 5);
    }
    coppice
}

fn extend(coppice: &Coppice, who: Who, lease: &BlobDeletionLease) -> Result<u64, BlobDeletionError> {
    coppice.by(who).extend_blob_deletion_batch(&lease.token, 43_200).answer()
}

fn cancel(coppice: &Coppice, of: u64) -> Result<Option<CancelledBlobDeletion>, BlobDeletionError> {
    coppice.producer().cancel_blob_deletion(&name(of)).answer()
}

/// The numbers of the rows that are reported deleted.
fn reported(coppice: &Coppice) -> Vec<u64> {
    let all = ListBlobDeletions { limit: 1_000, ..Default::default() };
    let rows = coppice.anyone().list_blob_deletions(&all).answer().rows;
    rows.iter().filter(|listed| listed.reported_deleted).map(|listed| listed.row.id).collect()
}

/// A lease of twelve hours and a lease that was asked for ahead: neither deletes a row after the stop, and both keep their rows for a quarter
/// of their time.
#[test]
fn stop_ends_every_lease_and_keeps_its_rows_for_a_quarter_of_its_time() {
    let coppice = with_rows();
    let long = AcquireBlobDeletions { lock_timeout_secs: 43_200, ..wanted(10, Some(b"first")) };
    let first = acquire(&coppice, WORKER, long).unwrap();
    let ahead = acquire(&coppice, WORKER, wanted(5, None)).unwrap();
    let other = acquire(&coppice, OTHER, wanted(5, None)).unwrap();
    stop(&coppice, Who::Operator, true).unwrap();
    let leases = status(&coppice).leases;
    assert!(leases.len() == 3 && leases.iter().all(|lease| lease.ended && !lease.over), "{leases:?}");
    assert_eq!(
        (pending(&coppice), status(&coppice).stores[0].leased, metric(&coppice, "leases_ended_total")),
        (vec![], 20, 3.0)
    );
    for request in [None, Some(&b"first"[..]), Some(b"third")] {
        assert_eq!(acquire(&coppice, WORKER, wanted(10, request)), None);
    }
    for (who, lease) in [(WORKER, &first), (WORKER, &ahead), (OTHER, &other)] {
        assert_eq!(extend(&coppice, who, lease), Err(STOPPED));
        assert_eq!(complete_lease(&coppice, who, lease, (&ids(&lease.rows), &[])), Err(STOPPED));
        let of = lease.rows[0].id - 1;
        assert_eq!(cancel(&coppice, of), Err(BlobDeletionError::Leased), "a request for the blob may still run");
    }
    // A repeated stop prolongs nothing.
    coppice.pass(60);
    stop(&coppice, Who::Operator, true).unwrap();
    coppice.upgrade();
    coppice.pass(16);
    assert_eq!(
        (status(&coppice).stores[0].leased, status(&coppice).rows),
        (10, 30),
        "a quarter of 300 seconds has passed"
    );
    coppice.pass(10_800);
    assert_eq!((status(&coppice).stores[0].leased, status(&coppice).leases.len()), (0, 0));
    // Eleven hours later the token still deletes nothing.
    coppice.pass(29_000);
    assert_eq!(complete_lease(&coppice, WORKER, &first, (&ids(&first.rows), &[])), Err(STOPPED));
    assert_eq!((status(&coppice).rows, status(&coppice).stores[0].waiting), (30, 30));
    stop(&coppice, Who::Admin, false).unwrap();
    assert_eq!(complete_lease(&coppice, WORKER, &first, (&ids(&first.rows), &[])), Err(BlobDeletionError::Expired));
    let lease = acquire(&coppice, OTHER, wanted(1_000, None)).unwrap();
    assert_eq!(lease.rows.len(), 30);
    extend(&coppice, OTHER, &lease).unwrap();
}

/// Each of the three ways to complete answers `Stopped`, deletes nothing and marks the rows that it names.
#[test]
fn reports_after_a_stop_delete_nothing_and_mark_their_rows() {
    let coppice = with_rows();
    let done = acquire(&coppice, OTHER, wanted(2, None)).unwrap();
    let answer = complete_lease(&coppice, OTHER, &done, (&[1], &[]));
    let first = acquire(&coppice, WORKER, wanted(10, None)).unwrap();
    let rest = acquire(&coppice, WORKER, wanted(5, None)).unwrap();
    let rows = status(&coppice).rows;
    stop(&coppice, Who::Operator, true).unwrap();
    // A lease. Rows that failed, that are of unknown fate or that other leases hold are not marked.
    assert_eq!(ids(&first.rows), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(complete_lease(&coppice, WORKER, &first, (&[2, 3, 12, 99], &[4])), Err(STOPPED));
    assert_eq!(reported(&coppice), [2, 3]);
    assert_eq!(ids(&rest.rows), [12, 13, 14, 15, 16]);
    let with_rest = CompleteBlobDeletionBatch {
        token: rest.token.clone(),
        failed_ids: vec![13],
        unknown_ids: Some(vec![14]),
        rest: Some(BlobDeletionRest::Completed),
        ..Default::default()
    };
    assert_eq!(coppice.by(WORKER).complete_blob_deletion_batch(&with_rest).answer(), Err(STOPPED));
    assert_eq!(reported(&coppice), [2, 3, 12, 15, 16]);
    // No lease: rows under a lease and rows above the height are not marked.
    let single = CompleteBlobDeletions {
        completed_ids: vec![5, 17, 99],
        failed_ids: vec![18],
        max_retries: 1,
        up_to_height: Some(5),
    };
    assert_eq!(coppice.by(WORKER).complete_blob_deletions(&single).answer(), Err(STOPPED));
    let above = CompleteBlobDeletions { completed_ids: vec![19], up_to_height: Some(4), ..single };
    assert_eq!(coppice.by(WORKER).complete_blob_deletions(&above).answer(), Err(STOPPED));
    // One row.
    for (id, up_to) in [(20, None), (21, Some(4)), (5, None), (99, None)] {
        assert_eq!(coppice.by(WORKER).remove_blob_deletion(id, up_to).answer(), Err(STOPPED));
    }
    let counted: Result<BlobDeletionRetry, _> = coppice.by(WORKER).increment_blob_deletion_retry(22, 1).answer();
    assert_eq!(counted, Err(STOPPED));
    let marked = [2, 3, 12, 15, 16, 17, 20];
    for _ in 0..2 {
        assert_eq!(reported(&coppice), marked);
        let now = status(&coppice);
        assert_eq!((now.rows, now.stores[0].dead, metric(&coppice, "errors_total")), (rows, 0, 0.0));
        coppice.upgrade();
        coppice.pass(100);
    }
    // A lease that was completed before repeats its answer, and strangers' tokens stay strange.
    assert_eq!(complete_lease(&coppice, OTHER, &done, (&[1], &[])), answer);
    assert_eq!(complete_lease(&coppice, OTHER, &first, (&[6], &[])), Err(BlobDeletionError::NotHolder));
    let forged = BlobDeletionLease { token: ByteBuf::from([7; 40]), ..first };
    assert_eq!(complete_lease(&coppice, WORKER, &forged, (&[6], &[])), Err(BlobDeletionError::UnknownToken));
    assert_eq!(reported(&coppice), marked);
    // `cancel` names the mark, and a new schedule clears it.
    let cancelled = |id, reported_deleted| Ok(Some(CancelledBlobDeletion { id, reported_deleted }));
    assert_eq!((cancel(&coppice, 16), cancel(&coppice, 17)), (cancelled(17, true), cancelled(18, false)));
    schedule(&coppice, 19, 5);
    assert_eq!(reported(&coppice), [2, 3, 12, 15, 16]);
    // After the restart a worker gets the marked rows like all others, and deletes them.
    stop(&coppice, Who::Admin, false).unwrap();
    let again = acquire(&coppice, WORKER, wanted(2, None)).unwrap();
    assert_eq!(complete_lease(&coppice, WORKER, &again, (&ids(&again.rows), &[])).unwrap().removed, 2);
    assert_eq!((ids(&again.rows), reported(&coppice)), (vec![2, 3], vec![12, 15, 16]));
}
