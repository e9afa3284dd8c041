//! External blobs that are due while no worker takes them.

use super::*;
use coppice_interface::UtxoBlockAssemblyState::Running;
use serde_bytes::ByteBuf;

const HALF_AN_HOUR: u64 = 1_800;
/// Half hours after which waiting blobs have been reported: six hours, and the time until the next check.
const NAMED: u32 = 14;

fn start() -> Coppice {
    let coppice = Coppice::new();
    coppice.grant(Who::BlobWorker, Role::BlobWorker);
    coppice.producer().utxo_set_block_assembly_state(Running).answer();
    coppice
}

/// Notifies a block of this height.
fn block(coppice: &Coppice, height: u32) {
    coppice.producer().utxo_notify_block(height, true).try_answer().unwrap().unwrap();
    coppice.pass(60);
}

fn name(of: u64, store_type: StoreType) -> BlobName {
    BlobName { blob_key: ByteBuf::from(of.to_le_bytes()), file_type: "tx".into(), store_type }
}

fn schedule(coppice: &Coppice, of: u64, store_type: StoreType, delete_at_height: u32) -> u64 {
    let row = ScheduleBlobDeletion { name: name(of, store_type), delete_at_height };
    coppice.producer().schedule_blob_deletion(&row).answer().unwrap().id
}

fn pass(coppice: &Coppice, half_hours: u32) {
    (0..half_hours).for_each(|_| coppice.pass(HALF_AN_HOUR));
}

fn lease(coppice: &Coppice, limit: u32, secs: u64, stores: &[StoreType]) -> BlobDeletionLease {
    let store_types = stores.to_vec();
    let arg = AcquireBlobDeletions {
        height: 1_000,
        limit,
        lock_timeout_secs: secs,
        store_types,
        request: None,
        ..Default::default()
    };
    coppice.by(Who::BlobWorker).acquire_blob_deletion_batch(&arg).answer().unwrap().expect("a row waits")
}

fn complete(coppice: &Coppice, lease: &BlobDeletionLease) {
    let completed_ids = lease.rows.iter().map(|row| row.id).collect();
    let arg = CompleteBlobDeletionBatch {
        token: lease.token.clone(),
        completed_ids,
        failed_ids: vec![],
        max_retries: 3,
        ..Default::default()
    };
    coppice.by(Who::BlobWorker).complete_blob_deletion_batch(&arg).answer().unwrap();
}

fn is_raised(coppice: &Coppice) -> bool {
    found(coppice, ProblemCode::BlobDeletionsWait).is_some()
}

#[test]
fn due_blobs_without_a_worker_are_reported_after_six_hours() {
    let coppice = start();
    pass(&coppice, NAMED);
    assert_eq!(health(&coppice).problems, [], "there is no queue");
    // Workers leave the last ten blocks alone: a blob with height 91 is due from height 101 on.
    block(&coppice, 100);
    schedule(&coppice, 1, StoreType::Tx, 91);
    pass(&coppice, NAMED);
    assert_eq!(health(&coppice).problems, []);
    block(&coppice, 101);
    let mut waited = 0;
    let problem = loop {
        coppice.pass(HALF_AN_HOUR);
        waited += 1;
        if let Some(problem) = found(&coppice, ProblemCode::BlobDeletionsWait) {
            break problem;
        }
        assert!(waited < NAMED, "{:?}", health(&coppice));
    };
    assert!(waited > 12 && health(&coppice).time_ns - problem.since_ns > 6 * 3_600 * NS, "{waited}: {problem:?}");
    let says = "of store type Tx: the first is due from height 91 on, and workers may take blobs that are due at 91";
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, says);
    assert!(page(&coppice).contains("BlobDeletionsWait"));
    coppice.upgrade();
    pass(&coppice, 1);
    let later = raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, says);
    assert_eq!(later.since_ns, problem.since_ns);
    // A worker leases a row.
    let row = lease(&coppice, 1, 0, &[]);
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    complete(&coppice, &row);
    pass(&coppice, NAMED);
    assert_eq!(health(&coppice).problems, []);
}

#[test]
fn due_blobs_are_bounded_by_the_persister_and_the_safety_window() {
    let coppice = start();
    schedule(&coppice, 1, StoreType::Tx, 1);
    let id = schedule(&coppice, 2, StoreType::Tx, 0);
    block(&coppice, 10);
    pass(&coppice, NAMED);
    assert!(!is_raised(&coppice), "ten blocks are the window");
    assert!(coppice.by(Who::BlobWorker).remove_blob_deletion(id, None).answer().unwrap());
    // The chain is at 100, its persister at 50.
    assert!(coppice.producer().cancel_blob_deletion(&name(1, StoreType::Tx)).answer().unwrap());
    coppice.producer().utxo_notify_block_persisted(50u32).answer().unwrap();
    block(&coppice, 100);
    schedule(&coppice, 3, StoreType::Temp, 41);
    pass(&coppice, NAMED);
    assert_eq!(health(&coppice).problems, []);
    schedule(&coppice, 4, StoreType::Temp, 40);
    pass(&coppice, NAMED);
    raised(
        &coppice,
        ProblemCode::BlobDeletionsWait,
        Severity::Warning,
        "store type Temp: the first is due from height 40",
    );
    // A cancelled row no longer waits.
    assert!(coppice.producer().cancel_blob_deletion(&name(4, StoreType::Temp)).answer().unwrap());
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    pass(&coppice, 1);
    schedule(&coppice, 5, StoreType::Temp, 40);
    pass(&coppice, 2);
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
}

#[test]
fn a_worker_counts_only_for_the_store_types_that_it_takes() {
    let coppice = start();
    block(&coppice, 100);
    for of in 0..20 {
        schedule(&coppice, of, StoreType::Tx, 10);
    }
    // One row every five hours, by a lease that is completed or expires, or without a lease, completed or failed.
    for round in 0..8 {
        pass(&coppice, 10);
        assert!(!is_raised(&coppice), "round {round}");
        match round % 4 {
            0 => complete(&coppice, &lease(&coppice, 1, 0, &[])),
            1 => {
                let rows = coppice.anyone().get_pending_blob_deletions(1_000u32, 1u32, None).answer();
                let arg = CompleteBlobDeletions {
                    completed_ids: vec![rows[0].id],
                    failed_ids: vec![],
                    max_retries: 3,
                    ..Default::default()
                };
                assert_eq!(coppice.by(Who::BlobWorker).complete_blob_deletions(&arg).answer().unwrap().removed, 1);
            }
            2 => {
                lease(&coppice, 1, 0, &[]);
            }
            _ => {
                let rows = coppice.anyone().get_pending_blob_deletions(1_000u32, 1u32, None).answer();
                let failed = coppice.by(Who::BlobWorker).increment_blob_deletion_retry(rows[0].id, 9u32).try_answer();
                assert!(!failed.unwrap().unwrap().should_remove);
            }
        }
    }
    // During a lease of twelve hours a worker counts as present. After the lease has expired, no worker counts as present.
    lease(&coppice, 1, 43_200, &[]);
    pass(&coppice, 23);
    assert!(!is_raised(&coppice));
    pass(&coppice, NAMED + 2);
    assert!(is_raised(&coppice));
    // The worker takes blobs of one store type only, and no worker takes the other type.
    schedule(&coppice, 100, StoreType::BlockPersister, 90);
    for _ in 0..3 {
        complete(&coppice, &lease(&coppice, 1, 0, &[StoreType::Tx]));
        assert!(!is_raised(&coppice));
        pass(&coppice, 5);
    }
    let only = "of store type BlockPersister: the first is due from height 90 on";
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, only);
    complete(&coppice, &lease(&coppice, 1, 0, &[StoreType::BlockPersister]));
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    assert!(coppice.anyone().get_blob_deletion_status().answer().oldest_due.is_some(), "others wait");
}

#[test]
fn a_worker_at_its_lease_limit_without_completions_for_an_hour_is_reported() {
    let coppice = start();
    block(&coppice, 100);
    for of in 0..40 {
        schedule(&coppice, of, StoreType::Tx, 10);
    }
    let is_raised = || found(&coppice, ProblemCode::BlobLeasesIdle).is_some();
    let hours = 12 * 3_600;
    let leases: Vec<BlobDeletionLease> = (0..31).map(|_| lease(&coppice, 1, hours, &[])).collect();
    pass(&coppice, 3);
    assert!(!is_raised(), "one more may be had");
    let last = lease(&coppice, 1, hours, &[]);
    let arg = AcquireBlobDeletions { height: 1_000, limit: 1, ..Default::default() };
    let full: Result<Option<BlobDeletionLease>, BlobDeletionError> =
        coppice.by(Who::BlobWorker).acquire_blob_deletion_batch(&arg).answer();
    assert_eq!(full, Err(BlobDeletionError::TooManyLeases { limit: 32 }));
    let says = format!("{} has its maximum number of leases", Who::BlobWorker.principal());
    pass(&coppice, 1);
    raised(&coppice, ProblemCode::BlobLeasesIdle, Severity::Warning, &says);
    // The worker completes a row and leases another one: a new hour begins.
    complete(&coppice, &last);
    assert!(!is_raised());
    lease(&coppice, 1, hours, &[]);
    pass(&coppice, 1);
    assert!(!is_raised());
    coppice.upgrade();
    pass(&coppice, 2);
    raised(&coppice, ProblemCode::BlobLeasesIdle, Severity::Warning, &says);
    assert_eq!(coppice.operator().end_blob_deletion_leases(Who::BlobWorker.principal()).answer(), 32);
    cleared(&coppice, ProblemCode::BlobLeasesIdle);
    coppice.pass(hours / 4 + 60);
    let rows = leases.iter().flat_map(|lease| &lease.rows).count() as u64;
    let waiting = coppice.anyone().get_blob_deletion_status().answer().stores[0].waiting;
    assert_eq!((rows, waiting), (31, 39), "all except the completed one");
}
