//! External blobs that are due while no worker deletes them.

use super::*;
use ic_coppice_interface::UtxoBlockAssemblyState::Running;
use serde_bytes::ByteBuf;

const HALF_AN_HOUR: u64 = 1_800;
/// Half hours after which waiting blobs have been reported: six hours, and the time until the next check.
const NAMED: u32 = 14;

fn start() -> Coppice {
    let coppice = Coppice::new();
    coppice.grant(Who::BlobWorker, Role::BlobWorker);
    coppice.producer().utxo_set_block_assembly_state(Running, None).answer();
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
    assert!(
        waited > 12 && health(&coppice).time_ns - problem.since_ns.unwrap() > 6 * 3_600 * NS,
        "{waited}: {problem:?}"
    );
    let says = "store type Tx, the oldest for 6 h";
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, says);
    assert!(page(&coppice).contains("BlobDeletionsWait"));
    coppice.upgrade();
    let later = raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, says);
    assert_eq!(later.since_ns, problem.since_ns);
    // A lease deletes nothing yet.
    let row = lease(&coppice, 1, 0, &[]);
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, "(0 wait, 1 are leased, 0 back off)");
    let store = coppice.anyone().get_blob_deletion_status().answer().stores[0];
    assert_eq!((store.store_type, store.due_since_ns), (StoreType::Tx, problem.since_ns));
    complete(&coppice, &row);
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
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
    assert!(coppice.producer().cancel_blob_deletion(&name(1, StoreType::Tx)).answer().unwrap().is_some());
    coppice.producer().utxo_notify_block_persisted(50u32).answer().unwrap();
    block(&coppice, 100);
    schedule(&coppice, 3, StoreType::Temp, 41);
    pass(&coppice, NAMED);
    assert_eq!(health(&coppice).problems, []);
    schedule(&coppice, 4, StoreType::Temp, 40);
    pass(&coppice, NAMED);
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, "store type Temp, the oldest for 6 h");
    // A cancelled row no longer waits.
    assert!(coppice.producer().cancel_blob_deletion(&name(4, StoreType::Temp)).answer().unwrap().is_some());
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    pass(&coppice, 1);
    schedule(&coppice, 5, StoreType::Temp, 40);
    pass(&coppice, 2);
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
}

/// A thief that holds one lease of 32 rows of 900, and lets one lease after another expire.
#[test]
fn a_lease_that_is_never_completed_hides_no_due_blob() {
    let coppice = start();
    block(&coppice, 100);
    for of in 0..900 {
        schedule(&coppice, of, StoreType::Tx, 10);
    }
    for half_hours in 0..12 {
        assert!(!is_raised(&coppice), "{half_hours}");
        lease(&coppice, 32, 1_700, &[]);
        pass(&coppice, 1);
    }
    lease(&coppice, 32, 43_200, &[]);
    pass(&coppice, 2);
    let says = "(868 wait, 32 are leased, 0 back off)";
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, says);
    // All other blobs are deleted, and the thief keeps its own.
    let rows = coppice.anyone().get_pending_blob_deletions(1_000u32, 1_000u32, None).answer();
    let completed_ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
    let arg = CompleteBlobDeletions { completed_ids, max_retries: 3, ..Default::default() };
    assert_eq!(coppice.by(Who::BlobWorker).complete_blob_deletions(&arg).answer().unwrap().removed, 868);
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, "(0 wait, 32 are leased, 0 back off)");
}

/// An honest worker whose store is down: it leases rows again and again, and puts them back or reports failures.
#[test]
fn a_worker_that_deletes_nothing_hides_no_due_blob() {
    let coppice = start();
    block(&coppice, 100);
    for of in 0..20 {
        schedule(&coppice, of, StoreType::Tx, 10);
    }
    schedule(&coppice, 100, StoreType::BlockPersister, 90);
    for half_hours in 0..12 {
        assert!(!is_raised(&coppice), "{half_hours}");
        let rows = lease(&coppice, 21, 0, &[]);
        let (persister, others): (Vec<_>, Vec<_>) =
            rows.rows.iter().partition(|row| row.store_type == StoreType::BlockPersister);
        let ids = |rows: &[&BlobDeletion]| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let arg = CompleteBlobDeletionBatch {
            token: rows.token.clone(),
            failed_ids: if half_hours % 2 == 0 { ids(&others) } else { Vec::new() },
            max_retries: 1_000,
            ..Default::default()
        };
        coppice.by(Who::BlobWorker).complete_blob_deletion_batch(&arg).answer().unwrap();
        pass(&coppice, 1);
        if half_hours == 11 {
            let arg = CompleteBlobDeletions { completed_ids: ids(&persister), max_retries: 3, ..Default::default() };
            coppice.by(Who::BlobWorker).complete_blob_deletions(&arg).answer().unwrap();
        }
    }
    pass(&coppice, 2);
    let only = raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, "store type Tx, the oldest for 6 h");
    assert!(!only.message.contains("BlockPersister"), "{only:?}");
    // A worker that has the backlog deleted clears the problem; new rows are not as old as the old ones.
    complete(&coppice, &lease(&coppice, 100, 0, &[]));
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    schedule(&coppice, 200, StoreType::Tx, 10);
    pass(&coppice, 10);
    cleared(&coppice, ProblemCode::BlobDeletionsWait);
    pass(&coppice, 4);
    raised(&coppice, ProblemCode::BlobDeletionsWait, Severity::Warning, "store type Tx");
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
