//! 2.6: transactions whose bytes are not in the record: in the BlobStore, or in an external blob.

use super::world::*;
use crate::utxo::{all_ok, create, set_mined};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::Outcome;
use ic_coppice_interface::Owner;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn kept_bytes(world: &World) -> u64 {
    let owners = world.coppice.storage().owners;
    owners.iter().find(|owner| owner.owner == Owner::External).unwrap().kept_bytes
}

fn externalize(world: &World) {
    world.configure(UtxoSettingsChange { externalize_all: Some(true), ..Default::default() });
}

/// A world with a worker that may complete deletions.
fn with_worker() -> World {
    let world = World::new();
    let worker = Grant { principal: Who::Archive.principal(), role: Role::BlobWorker };
    world.coppice.operator().grant_role(&worker).answer().unwrap();
    world
}

fn store(key: &[u8], file_type: FileType, store_type: StoreType) -> ExternalStore {
    ExternalStore { blob_key: ByteBuf::from(key), file_type, store_type }
}

/// Returns the request for the record of an external transaction.
fn external_record(tx: &Tx, store: ExternalStore) -> UtxoCreate {
    let inputs = tx.inputs.iter().map(|(txid, vout)| Outpoint { txid: (*txid).into(), vout: *vout });
    let hashes = (0..tx.outputs.len() as u32).map(|vout| Some(UtxoHash::from(tx.hash(vout))));
    let source = TransactionSource::External(ExternalTransaction {
        txid: tx.id(),
        store,
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: tx.raw.len() as u64,
        inputs: inputs.collect(),
        utxo_hashes: hashes.collect(),
    });
    UtxoCreate { source, ..tx.record() }
}

/// Makes records of external transactions, mined and spent at 10, due at 20.
fn external(world: &World, txs: &[(&Tx, ExternalStore)]) {
    let item = |(tx, store): &(&Tx, ExternalStore)| external_record(tx, store.clone());
    all_ok(create(&world.coppice, 10, txs.iter().map(item).collect()));
    let txs: Vec<&Tx> = txs.iter().map(|(tx, _)| *tx).collect();
    world.mine(10, &txs);
    txs.iter().for_each(|tx| world.spend_by_stranger(10, tx, 0..tx.outputs.len() as u32));
}

fn pending(world: &World, height: u32) -> Vec<BlobDeletion> {
    world.coppice.anyone().get_pending_blob_deletions(height, 0u32, None).answer()
}

fn dead(world: &World) -> Vec<BlobDeletion> {
    let page = world.coppice.dead_rows(None, 0);
    assert_eq!(page.cursor, None);
    page.rows
}

fn complete(world: &World, completed: &[u64], failed: &[u64], max_retries: u32) -> CompletedBlobDeletions {
    let arg = CompleteBlobDeletions {
        completed_ids: completed.into(),
        failed_ids: failed.into(),
        max_retries,
        ..Default::default()
    };
    let done = world.coppice.by(Who::Archive).complete_blob_deletions(&arg).try_answer();
    done.unwrap().unwrap()
}

fn retry(world: &World, id: u64) -> RetriedBlobDeletions {
    world.coppice.operator().retry_blob_deletions(&RetryBlobDeletions::Ids(vec![id])).answer().unwrap()
}

/// Makes a parent with an unspent output, and its child, external under `key`, scheduled at 20.
fn scheduled(world: &World, key: &[u8]) -> (Tx, Tx) {
    let parent = Tx::orphan(1, 2);
    let child = Tx::of(2, &[(parent.txid, 1)], 2);
    world.create(9, &[&parent]);
    world.mine(9, &[&parent]);
    world.spend(9, &child, &[&parent]);
    external(world, &[(&child, store(key, FileType::Tx, StoreType::Tx))]);
    let job = world.prune(20);
    assert_eq!((job.counts.records_deleting, job.counts.records_deleted), (1, 0));
    (parent, child)
}

#[test]
fn s2_6_1_data_in_the_blob_store_is_freed_with_the_record() {
    let world = World::new();
    let inline = Tx::orphan(1, 1);
    world.make_spent(10, std::slice::from_ref(&inline));
    assert_eq!(kept_bytes(&world), 0);
    externalize(&world);
    let txs = orphans(10..13);
    world.make_spent(10, &txs);
    let place = world.record(&txs[0]).unwrap().transaction;
    assert!(matches!(place, TransactionPlace::Blobs { file_type: FileType::Tx, .. }), "{place:?}");
    let all = kept_bytes(&world);
    // A record that stays keeps its bytes.
    let later = orphans(20..21);
    world.make_spent(11, &later);
    let job = world.prune(20);
    assert_eq!((job.counts.records_deleted, job.counts.external_files_deleted), (4, 3));
    assert_eq!((kept_bytes(&world), job.counts.external_files_missing), (all / 3, 0));
    world.prune(21);
    assert_eq!((kept_bytes(&world), world.coppice.storage().utxo.unwrap().records), (0, 0));
    assert_eq!(world.metric("utxo_pruner_external_files_deleted_total", None), 4.0);
}

#[test]
fn s2_6_2_an_outputs_file_without_inputs_is_deleted_too() {
    let world = World::new();
    externalize(&world);
    let tx = Tx::orphan(1, 2);
    let outputs = (0..).zip(&tx.outputs).map(|(index, (satoshis, script))| PartialOutput {
        index,
        satoshis: *satoshis,
        script: ByteBuf::from(script.as_slice()),
    });
    let partial = PartialTransaction { txid: tx.id(), coinbase: false, total_outputs: 2, outputs: outputs.collect() };
    let item = UtxoCreate { source: TransactionSource::Outputs(partial), ..tx.record() };
    all_ok(create(&world.coppice, 10, vec![item]));
    world.mine(10, &[&tx]);
    world.spend_by_stranger(10, &tx, 0..2);
    let place = world.record(&tx).unwrap().transaction;
    assert!(matches!(place, TransactionPlace::Blobs { file_type: FileType::Outputs, .. }), "{place:?}");
    assert!(kept_bytes(&world) > 0);
    let job = world.prune(20);
    assert_eq!((job.counts.records_deleted, job.counts.external_files_deleted), (1, 1));
    assert_eq!((kept_bytes(&world), world.record(&tx)), (0, None));
}

/// The worker deleted the blob before deletions were stopped, and reports it after: no record is deleted before the restart.
#[test]
fn s2_6_2_report_of_a_blob_while_deletions_are_stopped_keeps_its_record() {
    let world = with_worker();
    let (_, child) = scheduled(&world, &[7; 32]);
    let (row, worker) = (pending(&world, 20).remove(0), world.coppice.by(Who::Archive));
    let stop = |stopped: bool| world.coppice.operator().set_deletions_stopped(stopped).answer().unwrap();
    stop(true);
    assert_eq!((pending(&world, u32::MAX), world.prune_manually(30)), (vec![], Err(UtxoPrunerError::Stopped)));
    let report = CompleteBlobDeletions { completed_ids: vec![row.id], max_retries: 3, ..Default::default() };
    assert_eq!(worker.complete_blob_deletions(&report).answer(), Err(BlobDeletionError::Stopped));
    assert_eq!(worker.remove_blob_deletion(row.id, None).answer(), Err(BlobDeletionError::Stopped));
    let listed = world.coppice.anyone().list_blob_deletions(&ListBlobDeletions::default()).answer().rows.remove(0);
    assert!(listed.reported_deleted && listed.row.id == row.id && world.record(&child).is_some(), "{listed:?}");
    stop(false);
    assert_eq!(complete(&world, &[row.id], &[], 3).removed, 1);
    assert_eq!(world.record(&child), None);
}

#[test]
fn s2_6_2_the_row_has_the_records_key_file_type_and_store() {
    let world = with_worker();
    let txs: Vec<Tx> = orphans(1..4);
    let stores = [
        store(b"first", FileType::Tx, StoreType::Tx),
        store(&[0, 255], FileType::Outputs, StoreType::BlockPersister),
        store(b"first", FileType::Outputs, StoreType::Tx),
    ];
    external(&world, &txs.iter().zip(stores.clone()).collect::<Vec<_>>());
    world.block(50, false);
    let job = world.prune(22);
    assert_eq!((job.counts.processed, job.counts.records_deleting, job.counts.records_deleted), (3, 3, 0));
    assert!(pending(&world, 19).is_empty(), "not before the record's own height");
    let rows = pending(&world, 20);
    assert_eq!((rows.len(), world.status().blobs_pending), (3, 3));
    for (((row, tx), store), id) in rows.iter().zip(&txs).zip(stores).zip(1..) {
        let file_type = if store.file_type == FileType::Tx { "tx" } else { "outputs" };
        assert_eq!((row.id, &row.blob_key, row.store_type), (id, &store.blob_key, store.store_type));
        assert_eq!((row.file_type.as_str(), row.delete_at_height), (file_type, 20));
        assert_eq!((row.retry_count, row.last_retry_at_ns, &row.txid), (0, None, &Some(tx.id())));
    }
    let two: Vec<BlobDeletion> = world.coppice.anyone().get_pending_blob_deletions(22u32, 2u32, None).answer();
    assert_eq!(two, rows[..2]);
    world.coppice.upgrade();
    assert_eq!(pending(&world, 22), rows);
}

#[test]
fn s2_6_3_the_file_is_deleted_before_the_record_which_is_hidden_meanwhile() {
    let world = with_worker();
    let (parent, child) = scheduled(&world, b"key");
    let record = world.record(&child).unwrap();
    assert!(record.being_deleted && !world.record(&parent).unwrap().being_deleted);
    assert_eq!((record.delete_at_height, world.coppice.storage().utxo.unwrap().deletable), (None, 0));
    let of_child = Tx::of(3, &[(child.txid, 0)], 1);
    assert_eq!(world.try_spend(20, &of_child, &[&child]).unwrap_err()[0].error, UtxoSpendError::TxNotFound);
    let refused = create(&world.coppice, 20, vec![child.record()]);
    assert_eq!(refused.results, [Err(UtxoCreateError::BeingDeleted)]);
    let refused = set_mined(&world.coppice, 20, 20, &[&child], false);
    assert_eq!(refused.results, [Err(UtxoError::TxNotFound)]);
    // The parents are updated when the record is deleted, and not before.
    assert_eq!(world.record(&parent).unwrap().deleted_children, Vec::<Txid>::new());
    assert_eq!(world.prune(21).counts, UtxoPruneCounts::default(), "no run looks at it again");
    world.coppice.upgrade();

    let done = complete(&world, &[pending(&world, 21)[0].id], &[], 3);
    assert_eq!(done, CompletedBlobDeletions { removed: 1, retries_incremented: 0, dead: 0, ..Default::default() });
    assert_eq!((world.record(&child), pending(&world, u32::MAX)), (None, vec![]));
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
    let status = world.status();
    assert_eq!((status.totals.records_deleted, status.totals.parents_updated, status.blobs_pending), (1, 1, 0));
    // The replay guard is the same as for any other child; the id may be used again.
    assert_eq!(world.try_spend(21, &child, &[&parent]).unwrap_err()[0].error, UtxoSpendError::InvalidSpend);
    all_ok(create(&world.coppice, 21, vec![child.record()]));
}

#[test]
fn s2_6_error_a_failed_deletion_is_retried_and_given_up_at_its_limit() {
    let world = with_worker();
    let (parent, child) = scheduled(&world, b"key");
    let id = pending(&world, 20)[0].id;
    for count in [1, 2] {
        let done = complete(&world, &[], &[id], 3);
        assert_eq!(done, CompletedBlobDeletions { removed: 0, retries_incremented: 1, dead: 0, ..Default::default() });
        let row = &pending(&world, 20)[0];
        assert_eq!(row.retry_count, count);
        assert!(row.last_retry_at_ns.is_some_and(|at| at <= world.coppice.ic.now()));
    }
    assert!(world.health().healthy);
    let done = complete(&world, &[], &[id], 3);
    assert_eq!(done, CompletedBlobDeletions { removed: 1, retries_incremented: 0, dead: 1, ..Default::default() });
    assert_eq!(pending(&world, u32::MAX), []);
    world.coppice.upgrade();
    let rows = dead(&world);
    assert_eq!((rows.len(), rows[0].id, rows[0].retry_count, &rows[0].txid), (1, id, 3, &Some(child.id())));
    assert_eq!((world.status().blobs_pending, world.status().blobs_dead), (0, 1));
    let health = world.health();
    assert!(!health.healthy && health.problems[0].code == ProblemCode::DeadBlobDeletions, "{health:?}");
    // The record stays; a dead row that fails again is skipped.
    assert!(world.record(&child).unwrap().being_deleted);
    let skipped = CompletedBlobDeletions { skipped: vec![id], ..Default::default() };
    assert_eq!(complete(&world, &[], &[id], 3), skipped);
    assert_eq!(world.prune(30).counts, UtxoPruneCounts::default());

    assert_eq!(retry(&world, id + 1).skipped, [id + 1]);
    assert_eq!(retry(&world, id).retried, 1);
    let row = pending(&world, 20).pop().unwrap();
    assert_eq!((row.id, row.retry_count, row.delete_at_height), (id, 0, 20));
    assert_eq!((pending(&world, 20), dead(&world)), (vec![row], vec![]));
    assert!(world.health().healthy);
    assert_eq!(retry(&world, id).skipped, [id], "it is not given up");
    complete(&world, &[id], &[], 3);
    assert_eq!(world.record(&child), None);
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
}

#[test]
fn s2_6_error_a_late_worker_completes_rows_that_were_given_up() {
    for limit in [0, 1] {
        let world = with_worker();
        let (_, child) = scheduled(&world, b"key");
        let id = pending(&world, 20)[0].id;
        assert_eq!(complete(&world, &[], &[id], limit).dead, 1, "0 and 1: once");
        assert_eq!(complete(&world, &[id], &[], limit), CompletedBlobDeletions { removed: 1, ..Default::default() });
        assert_eq!((world.record(&child), dead(&world)), (None, vec![]));
        assert!(world.health().healthy);
    }
}

#[test]
fn s2_6_error_rows_that_were_given_up_are_listed_in_pages() {
    let world = with_worker();
    let txs = orphans(1..6);
    let stores = (1..6u8).map(|key| store(&[key], FileType::Tx, StoreType::Temp));
    external(&world, &txs.iter().zip(stores).collect::<Vec<_>>());
    world.prune(20);
    complete(&world, &[], &[1, 2, 3, 4, 5], 1);
    let (mut read, mut cursor) = (Vec::new(), None::<u64>);
    for rows in [2, 2, 1] {
        let page = world.coppice.dead_rows(cursor, 2);
        assert_eq!(page.rows.len(), rows);
        read.extend(page.rows);
        cursor = page.cursor;
    }
    assert_eq!((cursor, &read), (None, &dead(&world)));
    assert_eq!(read.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn s2_6_error_rows_in_both_lists_are_completed_and_unknown_ones_skipped() {
    let world = with_worker();
    let (_, child) = scheduled(&world, b"key");
    let id = pending(&world, 20)[0].id;
    let unknown = CompletedBlobDeletions { skipped: vec![id + 1, 0, id + 7, u64::MAX], ..Default::default() };
    assert_eq!(complete(&world, &[id + 1, 0], &[id + 7, u64::MAX], 1), unknown);
    let most = CompleteBlobDeletions {
        completed_ids: vec![id; 10_001],
        failed_ids: vec![],
        max_retries: 1,
        ..Default::default()
    };
    let refused: Result<CompletedBlobDeletions, BlobDeletionError> =
        world.coppice.by(Who::Archive).complete_blob_deletions(&most).answer();
    assert_eq!(refused, Err(BlobDeletionError::TooMany { limit: 10_000 }));
    assert!(world.record(&child).is_some());
    let done = complete(&world, &[id, id], &[id, id], 1);
    assert_eq!(done, CompletedBlobDeletions { removed: 1, retries_incremented: 0, dead: 0, ..Default::default() });
    let again = CompletedBlobDeletions { already: vec![id], ..Default::default() };
    assert_eq!(complete(&world, &[id], &[], 1), again, "repeated");
    assert_eq!(world.record(&child), None);
}

#[test]
fn s2_6_4_no_two_records_name_the_same_blob() {
    let world = with_worker();
    let [first, second] = [Tx::orphan(1, 1), Tx::orphan(2, 1)];
    let same = || store(b"same", FileType::Tx, StoreType::Tx);
    external(&world, &[(&first, same())]);
    let name = || BlobName { blob_key: ByteBuf::from(*b"same"), file_type: "tx".into(), store_type: StoreType::Tx };
    let try_second = || create(&world.coppice, 10, vec![external_record(&second, same())]).results;
    assert_eq!(try_second(), [Err(UtxoCreateError::BlobTaken)]);
    assert!(world.record(&second).is_none());
    // No caller can schedule the blob for deletion while a record needs it.
    let manual = ScheduleBlobDeletion { name: name(), delete_at_height: 1 };
    let schedule = || -> Result<ScheduledBlobDeletion, BlobDeletionError> {
        world.coppice.producer().schedule_blob_deletion(&manual).answer()
    };
    assert_eq!(schedule(), Err(BlobDeletionError::HoldsRecord));
    let cancelled = world.coppice.producer().cancel_blob_deletion(&name()).answer();
    assert_eq!((cancelled, pending(&world, u32::MAX)), (Err(BlobDeletionError::HoldsRecord), vec![]));
    let again = create(&world.coppice, 10, vec![external_record(&first, same())]).results;
    assert_eq!(again, [Err(UtxoCreateError::TxExists)], "repeated, in case the answer was lost");
    assert_eq!(world.prune(20).counts.records_deleting, 1);
    assert_eq!(
        (try_second(), schedule()),
        (vec![Err(UtxoCreateError::BeingDeleted)], Err(BlobDeletionError::HoldsRecord))
    );
    let rows = pending(&world, 20);
    assert_eq!((rows.len(), &rows[0].txid), (1, &Some(first.id())));
    complete(&world, &[rows[0].id], &[], 1);
    assert_eq!(world.record(&first), None);
    all_ok(create(&world.coppice, 21, vec![external_record(&second, same())]));
    // A blob that is queued without a record cannot get a record.
    let other = ScheduleBlobDeletion { name: BlobName { blob_key: ByteBuf::from(*b"other"), ..name() }, ..manual };
    world.coppice.producer().schedule_blob_deletion(&other).answer().unwrap();
    let third = Tx::orphan(3, 1);
    let refused =
        create(&world.coppice, 21, vec![external_record(&third, store(b"other", FileType::Tx, StoreType::Tx))]);
    assert_eq!(refused.results, [Err(UtxoCreateError::BeingDeleted)]);
}

#[test]
fn s2_6_a_key_of_1024_bytes_is_accepted_and_a_longer_one_refused() {
    let world = World::new();
    let tx = Tx::orphan(1, 1);
    let make = |len: usize| {
        let store = store(&vec![7; len], FileType::Tx, StoreType::Tx);
        create(&world.coppice, 10, vec![external_record(&tx, store)]).results.remove(0)
    };
    for len in [0, 1_025, 70_000] {
        let refused = make(len);
        assert!(
            matches!(&refused, Err(UtxoCreateError::BadArgument(BadArgument { field, .. })) if field == "blob_key"),
            "{refused:?}"
        );
    }
    assert!(make(1_024).is_ok());
}

#[test]
fn s2_6_a_worker_with_a_lease_completes_records_with_their_blobs() {
    let world = with_worker();
    let (parent, child) = scheduled(&world, b"key");
    let want = AcquireBlobDeletions {
        height: 20,
        limit: 0,
        lock_timeout_secs: 0,
        store_types: vec![],
        request: None,
        ..Default::default()
    };
    let lease: Result<Option<BlobDeletionLease>, BlobDeletionError> =
        world.coppice.by(Who::Archive).acquire_blob_deletion_batch(&want).answer();
    let lease = lease.unwrap().unwrap();
    assert_eq!(lease.rows[0].txid, Some(child.id()));
    let id = lease.rows[0].id;
    assert_eq!(complete(&world, &[id], &[], 1), CompletedBlobDeletions { skipped: vec![id], ..Default::default() });
    assert!(world.record(&child).unwrap().being_deleted);
    let arg = CompleteBlobDeletionBatch {
        token: lease.token,
        completed_ids: vec![id],
        failed_ids: vec![],
        max_retries: 1,
        ..Default::default()
    };
    let done: Result<CompletedBlobDeletions, BlobDeletionError> =
        world.coppice.by(Who::Archive).complete_blob_deletion_batch(&arg).answer();
    assert_eq!(done.unwrap().removed, 1);
    assert_eq!((world.record(&child), world.status().blobs_pending), (None, 0));
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
}

/// The row of the queue is reserved with the record, so that a tick can schedule it without more memory, even where growth traps.
#[test]
fn scheduling_a_blob_grows_no_memory() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let world = World::on(coppice);
    let tx = Tx::orphan(1, 1);
    external(&world, &[(&tx, store(b"key", FileType::Tx, StoreType::Tx))]);
    (1..200).for_each(|growth| host.faults().trap_growth(growth));
    let job = World::scheduled(world.persisted(20));
    assert!(job.id > 0);
    host.take_executions();
    world.ticks(10);
    assert!(host.take_executions().iter().all(|execution| execution.outcome == Outcome::Completed));
    let status = world.status();
    assert_eq!((status.running, status.skipped.len()), (None, 0));
    assert_eq!(pending(&world, 20).len(), 1);
}
