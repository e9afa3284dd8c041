//! The queue while deletions are stopped: no rows are listed or leased, and leases cannot be extended.

use super::*;
use crate::stop::{stop, with_an_operator_and_an_admin};

#[test]
fn stopped_deletions_refuse_leases_and_accept_completions() {
    let coppice = with_workers();
    with_an_operator_and_an_admin(&coppice);
    for of in 0..30 {
        schedule(&coppice, of, 5);
    }
    let first = acquire(&coppice, WORKER, wanted(10, Some(b"first"))).unwrap();
    let second = acquire(&coppice, OTHER, wanted(10, None)).unwrap();
    let extend = |who: Who, lease: &BlobDeletionLease| -> Result<u64, BlobDeletionError> {
        coppice.by(who).extend_blob_deletion_batch(&lease.token, 43_200).answer()
    };
    stop(&coppice, Who::Operator, true).unwrap();
    assert_eq!((pending(&coppice), status(&coppice).stores[0].waiting), (vec![], 10));
    assert_eq!(extend(WORKER, &first), Err(BlobDeletionError::Stopped));
    for request in [None, Some(&b"first"[..]), Some(b"third")] {
        assert_eq!(acquire(&coppice, WORKER, wanted(10, request)), None);
    }
    coppice.upgrade();
    // The rows whose blobs were deleted before the stop are removed; the other leased rows wait again.
    let done = complete_lease(&coppice, WORKER, &first, (&ids(&first.rows)[..7], &ids(&first.rows)[7..8])).unwrap();
    assert_eq!((done.removed, done.retries_incremented, &done.skipped), (7, 1, &vec![]));
    assert_eq!(complete_lease(&coppice, WORKER, &first, (&ids(&first.rows)[..7], &[])), Ok(done));
    // The other lease expires, and its holder has no rows.
    coppice.pass(301);
    let stores = status(&coppice).stores;
    assert_eq!((stores[0].leased, stores[0].waiting), (0, 23));
    assert_eq!(complete_lease(&coppice, OTHER, &second, (&ids(&second.rows), &[])), Err(BlobDeletionError::Expired));
    assert_eq!((pending(&coppice), acquire(&coppice, OTHER, wanted(10, None))), (vec![], None));
    // Rows can be scheduled and cancelled meanwhile.
    schedule(&coppice, 40, 5);
    assert_eq!(coppice.producer().cancel_blob_deletion(&name(20)).answer(), Ok(true));
    stop(&coppice, Who::Admin, false).unwrap();
    assert_eq!(pending(&coppice).len(), 23);
    let lease = acquire(&coppice, OTHER, wanted(1_000, None)).unwrap();
    assert_eq!(lease.rows.len(), 23);
    extend(OTHER, &lease).unwrap();
}
