//! Caps on UTXO records and on rows of the deletion queue: one producer's key fills them, and neither the chain nor the pruning of
//! records is refused memory.

use crate::deletion_queue::{WORKER, acquire, grant_workers, status, wanted};
use crate::pruner::world::{World, orphans};
use crate::utxo::{all_ok, configure, create, set_mined};
use coppice_tests::blocks::{id, plain};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

const MIB: u64 = 1 << 20;
/// Bytes below `max_stable_pages` that are reserved for existing records.
const RESERVE: u64 = 64 * MIB;
/// The target of the chain in these tests.
const TARGET: u64 = 64 * MIB;

/// A canister of 640 MiB with a target for the chain.
fn small() -> World {
    let coppice = Coppice::with(InitArg { max_stable_pages: Some(10_240), ..default_arg() });
    let policy = PrunePolicyArg { target_bytes: Some(TARGET), min_kept_blocks: Some(1), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    World::on(coppice)
}

fn storage(world: &World) -> UtxoStorage {
    world.coppice.storage().utxo.unwrap()
}

/// Returns a record with external bytes and this number of outputs of 72 bytes.
fn external(number: u64, outputs: usize) -> UtxoCreate {
    let blob_key = ByteBuf::from(number.to_le_bytes());
    let source = TransactionSource::External(ExternalTransaction {
        txid: id(number).into(),
        store: ExternalStore { blob_key, file_type: FileType::Outputs, store_type: StoreType::Tx },
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 9,
        inputs: Vec::new(),
        utxo_hashes: vec![None; outputs],
    });
    UtxoCreate { source, mined: None, locked: Some(true), conflicting: false, fee: None, is_new: false }
}

/// Makes smaller and smaller records until none is accepted. Returns the refusal.
fn fill(world: &World, from: u64) -> UtxoCreateError {
    let mut outputs = 200_000;
    for number in from.. {
        let made = create(&world.coppice, 1_000, vec![external(number, outputs)]).results.remove(0);
        match made {
            Ok(_) => {}
            Err(error) if outputs == 1 => return error,
            Err(_) => outputs = (outputs / 4).max(1),
        }
    }
    unreachable!("numbers do not end")
}

fn problem(world: &World, code: ProblemCode) -> Option<Problem> {
    world.health().problems.into_iter().find(|problem| problem.code == code)
}

/// The attack: one key makes records until no more are taken. The chain then appends four times its target, and is pruned.
#[test]
fn records_of_one_key_leave_the_chain_its_target() {
    let world = small();
    let cap = storage(&world).max_bytes;
    // 640 MiB minus the target, the reserve, and what holds neither blocks nor records.
    assert_eq!(cap, 640 * MIB - RESERVE - TARGET - bytes_of_spaces(640 * MIB / WASM_PAGE, LOG_CLASS));
    assert_eq!(fill(&world, 1 << 32), UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap }));
    let full = storage(&world);
    assert!(full.kept_bytes <= cap && full.kept_bytes > cap - MIB, "{full:?}");
    let problem_now = problem(&world, ProblemCode::RecordsFull).unwrap();
    assert_eq!(
        (problem_now.severity, problem_now.message.contains("max_utxo_bytes")),
        (Severity::Critical, true),
        "{problem_now:?}"
    );
    for number in 0..4 * TARGET / 1_900_000 {
        let block = plain(number, 1, 1_900_000);
        let appended = world.coppice.append(&block).or_else(|error| {
            assert!(matches!(error, AppendError::CapacityExhausted { .. }), "block {number}: {error:?}");
            world.coppice.settle(60);
            world.coppice.append(&block)
        });
        assert_eq!(appended, Ok(()), "block {number}");
        world.coppice.pass(60);
    }
    assert!(world.coppice.prune_status().capacity_bytes > TARGET / 2);
    world.coppice.upgrade();
    // The blocks move only the place to which a rollback restores all records.
    let now = storage(&world);
    assert_eq!(UtxoStorage { restorable_to: full.restorable_to, ..now }, full);
    assert_eq!(
        create(&world.coppice, 1, vec![external(1, 100_000)]).results,
        [Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap }))]
    );
}

/// At the cap existing records can still be changed and deleted, even if that needs memory for a distant height.
#[test]
fn records_at_the_cap_are_marked_spent_preserved_pruned_and_completed() {
    let world = small();
    grant_workers(&world.coppice);
    let done = orphans(0..4);
    world.make_spent(10, &done);
    let txs = orphans(10..30);
    world.create(10, &txs.iter().collect::<Vec<_>>());
    // These records have no spendable outputs, so they are finished as soon as they are mined.
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 1, height: 10, subtree: 0 }], on_longest_chain: true };
    let is_mined =
        |item: UtxoCreate| UtxoCreate { mined: Some(mined.clone()), locked: Some(false), is_new: true, ..item };
    all_ok(create(&world.coppice, 10, vec![is_mined(external(77, 1)), is_mined(external(78, 1))]));
    let cap = storage(&world).max_bytes;
    assert_eq!(fill(&world, 1 << 32), UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap }));

    for (tx, far) in txs.iter().zip((1..).map(|step| step * 50_000_000)) {
        // Each height has its own nodes in the ordered indexes, and a record with many blocks has its own slot.
        for block_id in 0..5 {
            all_ok(set_mined(&world.coppice, far, block_id, &[tx], false));
        }
        world.spend_by_stranger(far, tx, 0..1);
        assert!(world.heights(tx).0.is_some());
        let preserve = UtxoPreserveBatch { until_height: far + 30_000_000, txids: vec![tx.id()] };
        assert_eq!(all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer()), [true]);
        let lock = |locked| UtxoSetLockedBatch { height: far, locked, txids: vec![tx.id()] };
        for locked in [true, false] {
            all_ok::<(), UtxoError>(world.coppice.producer().utxo_set_locked(&lock(locked)).answer());
        }
        all_ok(set_mined(&world.coppice, far, 0, &[tx], true));
    }
    let drawn = storage(&world);
    assert!(drawn.kept_bytes > cap && drawn.kept_bytes <= cap + RESERVE, "{drawn:?}");
    assert_eq!(
        create(&world.coppice, 1, vec![external(1, 20_000)]).results,
        [Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap }))]
    );

    let job = world.prune(20);
    assert_eq!((job.counts.records_deleted, job.counts.records_deleting, world.count(&done)), (4, 2, 0), "{job:?}");
    world.persisted(100);
    let lease = acquire(&world.coppice, WORKER, wanted(30, None)).unwrap();
    assert_eq!(lease.rows.len(), 2);
    let completed_ids = lease.rows.iter().map(|row| row.id).collect();
    let arg = CompleteBlobDeletionBatch {
        token: lease.token,
        completed_ids,
        failed_ids: vec![],
        max_retries: 1,
        ..Default::default()
    };
    assert_eq!(world.coppice.by(WORKER).complete_blob_deletion_batch(&arg).answer().unwrap().removed, 2);
    // New records reuse the slots of the deleted ones.
    let again = create(&world.coppice, 1_000, done.iter().map(|tx| is_mined(tx.record())).collect());
    assert!(again.results.iter().all(Result::is_ok), "{again:?}");
}

/// A configured cap, at its last byte, below use and raised again; and a target that changes the computed cap.
#[test]
fn the_cap_follows_the_settings_and_removes_no_record() {
    let world = small();
    let set = |bytes: u64| {
        configure(&world.coppice, UtxoSettingsChange { max_utxo_bytes: Some(bytes), ..Default::default() }).unwrap();
    };
    let by_default = storage(&world).max_bytes;
    let large = |number: u64| create(&world.coppice, 10, vec![external(number, 100_000)]).results.remove(0);
    set(32 * MIB);
    assert_eq!(storage(&world).max_bytes, 32 * MIB);
    assert!(large(1).is_ok());
    let one = storage(&world);
    assert!(large(2).is_ok());
    let two = storage(&world);
    let of_one = two.kept_bytes - one.kept_bytes;
    assert!((6 * MIB..8 * MIB).contains(&of_one), "{of_one} bytes for 100,000 outputs of 72");
    for cap in [two.kept_bytes, two.kept_bytes + of_one - 1] {
        set(cap);
        assert_eq!(large(3), Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap })));
        assert_eq!(storage(&world), UtxoStorage { max_bytes: cap, ..two });
    }
    set(two.kept_bytes + of_one + MIB);
    assert!(large(3).is_ok());
    // A cap below use: existing records stay, and no new one is accepted.
    set(1);
    assert_eq!(large(4), Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: 1 })));
    assert!(problem(&world, ProblemCode::RecordsFull).is_some());
    world.coppice.upgrade();
    assert_eq!(large(4), Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: 1 })));
    assert_eq!(storage(&world).records, 3);
    set(0);
    assert_eq!(storage(&world).max_bytes, by_default);
    assert!(large(4).is_ok());
    let target = |bytes: u64| {
        world.coppice.set_policy(PrunePolicyArg { target_bytes: Some(bytes), ..PrunePolicyArg::default() }).unwrap();
    };
    let most = greatest_target(640 * MIB / WASM_PAGE, LOG_CLASS, 0);
    let beside = by_default + TARGET - most;
    assert!(beside < MIB);
    for (bytes, cap) in [(2 * TARGET, by_default - TARGET), (0, (640 * MIB - RESERVE) / 2), (most, beside)] {
        target(bytes);
        assert_eq!(storage(&world).max_bytes, cap, "with a target of {bytes}");
    }
    let more = PrunePolicyArg { target_bytes: Some(most + MIB), ..PrunePolicyArg::default() };
    let refused = world.coppice.operator().set_prune_policy(&more).answer().unwrap_err();
    assert!(refused.to_string().contains(&format!("at most {most}")), "{refused}");
    let half = UtxoSettingsChange { max_utxo_bytes: Some(beside + 1), ..Default::default() };
    let refused = configure(&world.coppice, half).unwrap_err();
    assert!(refused.to_string().starts_with("max_utxo_bytes: "), "{refused}");
    assert_eq!(large(5), Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: beside })));
    world.coppice.upgrade();
    assert_eq!(storage(&world).max_bytes, beside);
    target(TARGET);
    assert!(large(5).is_ok());
}

/// Data in the BlobStore counts for records, too, until the records are deleted.
#[test]
fn data_in_the_blob_store_counts_towards_the_cap() {
    let world = small();
    world.configure(UtxoSettingsChange { externalize_all: Some(true), ..Default::default() });
    let script = vec![0x51; 900_000];
    let txs: Vec<Tx> = (0..40).map(|salt| Tx::new(&[(id(salt), 0)], &[(5, script.clone())])).collect();
    let made_before = Tx::new(&[(id(99), 0)], &[(5, script.clone())]);
    all_ok(create(&world.coppice, 10, vec![made_before.record()]));
    let before = storage(&world).kept_bytes;
    let cap = before + 20 * MIB;
    world.configure(UtxoSettingsChange { max_utxo_bytes: Some(cap), ..Default::default() });
    let made = |txs: &[Tx]| -> Vec<Result<UtxoCreated, UtxoCreateError>> {
        txs.iter().map(|tx| create(&world.coppice, 10, vec![tx.record()]).results.remove(0)).collect()
    };
    let first = made(&txs[..21]);
    assert!(first[..20].iter().all(Result::is_ok), "{first:?}");
    assert_eq!(first[20], Err(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap })));
    assert_eq!(storage(&world).kept_bytes, cap);
    let begin = BeginTransaction { txid: Txid::from([7; 32]), length: MIB, chunk_size: 1 << 20 };
    assert_eq!(
        world.coppice.producer().utxo_begin_transaction(&begin).answer(),
        Err(TransactionUploadError::Refused(UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: cap })))
    );
    world.mine(10, &txs[..2].iter().collect::<Vec<_>>());
    txs[..2].iter().for_each(|tx| world.spend_by_stranger(10, tx, 0..1));
    assert_eq!(world.prune(20).counts.external_files_deleted, 2);
    assert_eq!(storage(&world).kept_bytes, cap - 2 * MIB);
    let again = made(&txs[20..23]);
    assert!(again[..2].iter().all(Result::is_ok) && again[2].is_err(), "{again:?}");
}

/// Rows are counted: at the cap no new row is accepted, and existing rows are processed.
#[test]
fn rows_of_the_queue_are_refused_at_their_cap() {
    let world = World::new();
    let coppice = &world.coppice;
    grant_workers(coppice);
    let schedule = |number: u8| {
        let name = BlobName { blob_key: ByteBuf::from([number]), file_type: "tx".into(), store_type: StoreType::Tx };
        coppice.producer().schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).answer()
    };
    let most = |rows: u64| {
        configure(coppice, UtxoSettingsChange { max_deletion_rows: Some(rows), ..Default::default() }).unwrap();
    };
    assert_eq!(status(coppice).max_rows, 10_000_000);
    most(0);
    assert_eq!(schedule(1), Err(BlobDeletionError::TooManyRows { limit: 0 }));
    most(3);
    for number in 1..4 {
        schedule(number).unwrap();
    }
    assert_eq!(schedule(4), Err(BlobDeletionError::TooManyRows { limit: 3 }));
    assert_eq!(schedule(3).unwrap().id, 3, "an existing row is rescheduled");
    assert_eq!(create(coppice, 10, vec![external(1, 1)]).results, [Err(UtxoCreateError::TooManyRows { limit: 3 })]);
    assert_eq!((status(coppice).rows, status(coppice).max_rows), (3, 3));
    let problem_now = problem(&world, ProblemCode::RecordsFull).unwrap();
    assert!(problem_now.message.contains("max_deletion_rows"), "{problem_now:?}");
    coppice.upgrade();
    assert_eq!(schedule(4), Err(BlobDeletionError::TooManyRows { limit: 3 }));
    // A cap below use: every operation that removes rows still works.
    most(1);
    world.persisted(100);
    let lease = acquire(coppice, WORKER, wanted(30, None)).unwrap();
    let arg = CompleteBlobDeletionBatch {
        token: lease.token,
        completed_ids: vec![1],
        failed_ids: vec![2],
        max_retries: 1,
        ..Default::default()
    };
    let done = coppice.by(WORKER).complete_blob_deletion_batch(&arg).answer().unwrap();
    assert_eq!((done.removed, done.dead), (2, 1));
    coppice.operator().retry_blob_deletions(&RetryBlobDeletions::Ids(vec![2])).answer().unwrap();
    assert_eq!(schedule(5), Err(BlobDeletionError::TooManyRows { limit: 1 }));
    let name = BlobName { blob_key: ByteBuf::from([3]), file_type: "tx".into(), store_type: StoreType::Tx };
    assert!(coppice.producer().cancel_blob_deletion(&name).answer().unwrap().is_some());
    assert_eq!(schedule(5), Err(BlobDeletionError::TooManyRows { limit: 1 }));
    most(2);
    schedule(5).unwrap();
}
