//! Work that traps repeatedly in ticks is skipped and reported, and all other work is done. Only the embedded host has such faults.

use crate::deletion_queue::{WORKER, acquire, at, grant_workers, wanted};
use coppice_tests::blocks::{block, id, plain, plain_id, seal, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::{Host, Kind, Outcome, StableAccess};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const RETAIN: u64 = 4;
const BLOCKS: u64 = 13;
/// Blocks that are due.
const DUE: u64 = BLOCKS - 1 - RETAIN;

fn policy() -> PrunePolicyArg {
    PrunePolicyArg {
        retain_blocks: Some(RETAIN),
        min_kept_blocks: Some(0),
        timer_interval_secs: Some(10),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    }
}

fn enable(coppice: &Coppice, enabled: bool) {
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(enabled), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
}

fn health(coppice: &Coppice) -> Health {
    coppice.health()
}

fn logged(coppice: &Coppice, host: &Host, line: &str) -> bool {
    host.fetch_canister_logs(coppice.id).iter().any(|record| String::from_utf8_lossy(&record.content).contains(line))
}

fn lost(coppice: &Coppice) -> u64 {
    coppice.storage().classes.iter().map(|class| class.lost).sum()
}

/// The first access to stable memory that only this call makes, and the number of accesses from there on. An access counts only if it is of
/// an entry of the arena or of the mark of a header (16 bytes), or of a slice of an index, because every search for work reads headers,
/// skipped work goes from the log's directory as well, and the first call of several writes words of the arena's sets that all of them share.
fn own_accesses(
    host: &Host,
    coppice: &Coppice,
    calls: impl Iterator<Item = Box<dyn FnOnce()>>,
) -> Vec<(StableAccess, u64)> {
    let memory = host.get_stable_memory(coppice.id);
    let in_directory = |at: u64| memory[at as usize >> 16 << 16..].starts_with(b"CPLD");
    let all: Vec<Vec<StableAccess>> = calls
        .map(|call| {
            host.faults().watch_accesses();
            call();
            host.faults().take_accesses()
        })
        .collect();
    let own = |of: usize| {
        let others: BTreeSet<_> = all.iter().enumerate().filter(|&(at, _)| at != of).flat_map(|(_, all)| all).collect();
        let works = |access: &StableAccess| access.size == 16 && !in_directory(access.offset) || access.size > 4_096;
        let at = all[of].iter().position(|access| works(access) && !others.contains(access));
        let at = at.expect("an access of its own");
        (all[of][at], (all[of].len() - at) as u64)
    };
    (0..all.len()).map(own).collect()
}

/// Lets time pass without calls, until there is nothing to prune or to sweep.
fn work_off(coppice: &Coppice, what: &str) {
    for _ in 0..60 {
        let status = coppice.prune_status();
        if status.prune_cursor.is_none() && matches!(status.sweep, SweepPhase::Idle | SweepPhase::Collecting) {
            return;
        }
        coppice.pass(600);
    }
    panic!("{what}: stuck: {:?}", coppice.prune_status());
}

/// Asserts that every status names the skipped work, and that acknowledging it makes `health` healthy.
fn check_reported(coppice: &Coppice, host: &Host, name: &str, what: &str) {
    let status = coppice.prune_status();
    assert!(status.skipped.len() == 1 && status.skipped[0].starts_with(name), "{what}: {:?}", status.skipped);
    let health_now = health(coppice);
    let named = |problems: &[Problem]| {
        problems.iter().any(|problem| problem.code == ProblemCode::WorkSkipped && problem.message.contains(name))
    };
    assert!(!health_now.healthy && named(&health_now.problems), "{what}: {health_now:?}");
    assert!(logged(coppice, host, &format!("skipped because it traps: {name}")), "{what}");
    assert_eq!((status.faults, status.acknowledged_faults), (1, 0), "{what}");
    // An acknowledgement of fewer faults leaves `health` unhealthy.
    assert_eq!(coppice.operator().acknowledge_faults(0u64).answer(), 0);
    assert!(!health(coppice).healthy);
    assert_eq!(coppice.operator().acknowledge_faults(1_000u64).answer(), 1);
    let health_now = health(coppice);
    assert!(health_now.healthy, "{what}: {health_now:?}");
    let codes: Vec<ProblemCode> = health_now.problems.iter().filter_map(Problem::known).collect();
    assert_eq!(codes[0], ProblemCode::DamageAcknowledged, "{what}: {codes:?}");
    assert_eq!(coppice.prune_status().skipped, Vec::<String>::new());
}

/// A chain in which some blocks have their own blobs, with the daemon switched off.
fn chain() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    for number in 0..BLOCKS {
        coppice.append(&plain(number, 3, if number % 4 == 1 { 10 } else { LOG_CLASS as usize })).unwrap();
    }
    coppice.set_policy(policy()).unwrap();
    enable(&coppice, false);
    (coppice, host)
}

#[test]
fn a_block_whose_pruning_traps_is_skipped_and_all_others_are_pruned() {
    let (coppice, host) = chain();
    let coppice = Rc::new(coppice);
    let start = host.checkpoint();
    let blobs = Rc::new(RefCell::new(Vec::new()));
    let each = (0..DUE).map(|_| {
        let coppice = Rc::clone(&coppice);
        let blobs = Rc::clone(&blobs);
        let prune = move || {
            let run = coppice.prune_now(1);
            assert_eq!(run.blocks, 1);
            blobs.borrow_mut().push(run.blobs);
        };
        Box::new(prune) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each);
    let blobs = blobs.take();
    assert!(blobs.contains(&0) && blobs.contains(&1), "{blobs:?}");
    host.restore(&start);
    enable(&coppice, true);
    work_off(&coppice, "undisturbed");
    let expected = (coppice.chain(), coppice.storage().owners[0].clone());
    let mut places = 0;
    // The oldest block, one with a blob, one without, and the last that is due.
    for number in [0, 3, 5, DUE - 1] {
        let (access, count) = own[number as usize];
        // Every place of one block, and some places of the others.
        for n in (1..=count).filter(|&n| number == 3 || n % 7 == 1 || n == count) {
            let what = format!("block {number}, place {n} of {count} from {access:?}");
            host.restore(&start);
            host.faults().clear();
            host.faults().trap_after_access(access, n);
            enable(&coppice, true);
            work_off(&coppice, &what);
            let status = coppice.prune_status();
            assert_eq!((status.pruned_before_block, status.pruned_blocks), (DUE, DUE), "{what}");
            assert_eq!(lost(&coppice), blobs[number as usize], "{what}: {:?}", status.skipped);
            assert_eq!((coppice.chain(), coppice.storage().owners[0].clone()), expected, "{what}");
            assert_eq!(coppice.location(plain_id(number, 0)), Err(ReadError::NotFound), "{what}");
            check_reported(&coppice, &host, &format!("block {number}:"), &what);
            // The daemon still does the work that comes later.
            let traps = host.faults().injected();
            coppice.append_plain(BLOCKS..BLOCKS + 3, LOG_CLASS as usize);
            coppice.pass(30);
            assert_eq!(coppice.prune_status().pruned_before_block, DUE + 3, "{what}");
            assert_eq!(host.faults().injected(), traps, "{what}");
            assert!(health(&coppice).healthy, "{what}");
            places += 1;
        }
    }
    println!("{places} places");
    assert!(places > 30);
}

/// With an interval of an hour only the safety timer fires, every ten minutes: trapping work is still skipped, but later.
#[test]
fn a_trapping_block_is_skipped_even_if_only_the_safety_timer_fires() {
    let (coppice, host) = chain();
    coppice.set_policy(PrunePolicyArg { timer_interval_secs: Some(3_600), ..policy() }).unwrap();
    let coppice = Rc::new(coppice);
    let start = host.checkpoint();
    let each = (0..DUE).map(|_| {
        let coppice = Rc::clone(&coppice);
        Box::new(move || {
            coppice.prune_now(1);
        }) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each);
    host.restore(&start);
    host.faults().trap_after_access(own[3].0, 1);
    enable(&coppice, true);
    let mut hours = 0;
    while coppice.prune_status().pruned_before_block < DUE {
        hours += 1;
        assert!(hours < 72, "{:?}", coppice.prune_status());
        coppice.pass(3_600);
    }
    check_reported(&coppice, &host, "block 3:", "with an interval of an hour");
    println!("{hours} hours");
    assert_eq!(coppice.prune_status().pruned_blocks, DUE);
}

/// Several traps at once, and new ones after the first are acknowledged.
#[test]
fn new_faults_are_reported_after_old_ones_are_acknowledged() {
    let (coppice, host) = chain();
    let coppice = Rc::new(coppice);
    let start = host.checkpoint();
    let each = (0..DUE).map(|_| {
        let coppice = Rc::clone(&coppice);
        Box::new(move || {
            coppice.prune_now(1);
        }) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each);
    host.restore(&start);
    host.faults().trap_after_access(own[2].0, 3);
    enable(&coppice, true);
    for _ in 0..60 {
        coppice.pass(60);
        // A producer keeps calling, so ticks come within the interval.
        let _: Result<(), AppendError> = coppice.append(&plain(BLOCKS - 1, 3, LOG_CLASS as usize));
    }
    assert_eq!(coppice.prune_status().pruned_before_block, DUE);
    check_reported(&coppice, &host, "block 2:", "first");
    host.faults().clear();
    enable(&coppice, false);
    coppice.append_plain(BLOCKS..BLOCKS + 6, LOG_CLASS as usize);
    let later = host.checkpoint();
    let each = (0..6).map(|_| {
        let coppice = Rc::clone(&coppice);
        Box::new(move || {
            coppice.prune_now(1);
        }) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each);
    host.restore(&later);
    host.faults().trap_after_access(own[1].0, 1);
    enable(&coppice, true);
    work_off(&coppice, "second");
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.faults, status.acknowledged_faults), (DUE + 6, 2, 1));
    assert_eq!(status.skipped.len(), 1);
    let problems = health(&coppice).problems;
    assert!(
        problems.iter().any(|problem| problem.code == ProblemCode::Damaged && problem.message.starts_with("1 damaged")),
        "{problems:?}"
    );
    assert_eq!(coppice.operator().acknowledge_faults(2u64).answer(), 2);
    assert!(health(&coppice).healthy);
}

#[test]
fn a_slice_whose_sweep_traps_is_skipped_and_all_others_are_swept() {
    const IDS: u64 = 1_500;
    let (coppice, host) = Coppice::embedded(default_arg());
    for number in 0..BLOCKS {
        // The kept blocks have most ids, so that the table does not become sparse: then sweeps would also undo splits.
        let count = if number < DUE { IDS } else { 2 * IDS };
        let ids: Vec<_> = (0..count).map(|i| id(number << 20 | i)).collect();
        let mut block = block(number, &ids, 10);
        block.receipts = ByteBuf::new();
        seal(&mut block);
        coppice.append(&block).unwrap();
    }
    let coppice = Rc::new(coppice);
    coppice.set_policy(policy()).unwrap();
    enable(&coppice, false);
    let start = host.checkpoint();
    (0..DUE).for_each(|_| assert_eq!(coppice.prune_now(1).dropped, 0));
    let buckets = coppice.prune_status().transaction_index.buckets;
    let slices = buckets.div_ceil(128);
    assert!(slices > 4, "{slices}");
    let each = (0..slices).map(|_| {
        let coppice = Rc::clone(&coppice);
        Box::new(move || assert!(coppice.prune_now(1).dropped > 0)) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each);
    assert_eq!(coppice.prune_status().transaction_index.sweeps, 1);
    let live = (RETAIN + 1) * 2 * IDS;
    let mut places = 0;
    for slice in [0, 2, slices - 1] {
        let (access, count) = own[slice as usize];
        // A slice writes a hundred buckets, all in the same way.
        for n in (1..=count).filter(|&n| n <= 3 || n % 16 == 0 || n + 3 > count) {
            let what = format!("slice {slice}, place {n} of {count} from {access:?}");
            host.restore(&start);
            host.faults().clear();
            host.faults().trap_after_access(access, n);
            enable(&coppice, true);
            work_off(&coppice, &what);
            let status = coppice.prune_status();
            let table = &status.transaction_index;
            assert_eq!((status.pruned_before_block, table.sweeps, table.debt), (DUE, 1, 0), "{what}");
            let left = table.entries - live;
            assert!(left > 0 && left < DUE * IDS / slices * 2, "{what}: {left} stale entries are left");
            for number in 0..BLOCKS {
                let found = coppice.location(id(number << 20 | 7));
                assert_eq!(found, if number < DUE { Err(ReadError::NotFound) } else { Ok((number, 7)) }, "{what}");
            }
            check_reported(&coppice, &host, &format!("buckets {} to {}", slice * 128, slice * 128 + 127), &what);
            places += 1;
        }
    }
    println!("{places} places");
    // Acknowledged work is retried; if it no longer traps, nothing is left over.
    host.faults().clear();
    coppice.append_plain(BLOCKS..BLOCKS + 40, 10);
    coppice.pass(60);
    let more: Vec<_> = (0..6_000).map(|i| id(99 << 20 | i)).collect();
    coppice.append(&block(BLOCKS + 40, &more, 10)).unwrap();
    coppice.append_plain(BLOCKS + 41..BLOCKS + 60, 10);
    coppice.pass(60);
    work_off(&coppice, "again");
    let table = coppice.prune_status().transaction_index;
    assert!(table.sweeps >= 2, "{table:?}");
    assert!(table.entries <= (RETAIN + 1) * 3 + table.debt, "{table:?}");
}

/// Dropping an expired upload, and a rollback: neither stops the pruner.
#[test]
fn a_trapping_upload_expiry_or_rollback_is_skipped_too() {
    let (coppice, host) = chain();
    let (begin, _) = upload(&plain(BLOCKS, 1, 3 * LOG_CLASS as usize), 1 << 16);
    coppice.producer().begin_block(&begin).answer().unwrap();
    let start = host.checkpoint();
    let coppice = Rc::new(coppice);
    let [first, second] = [Rc::clone(&coppice), Rc::clone(&coppice)];
    let abort: Box<dyn FnOnce()> =
        Box::new(move || assert_eq!(first.producer().abort_block(BLOCKS).answer(), Ok(true)));
    let prune: Box<dyn FnOnce()> = Box::new(move || {
        second.prune_now(10_000);
    });
    let own = own_accesses(&host, &coppice, [abort, prune].into_iter());
    host.restore(&start);
    host.faults().trap_after_access(own[0].0, own[0].1 / 2);
    enable(&coppice, true);
    coppice.pass(3_601);
    work_off(&coppice, "an upload that cannot be dropped");
    for _ in 0..60 {
        if !coppice.prune_status().skipped.is_empty() {
            break;
        }
        coppice.pass(600);
    }
    assert_eq!(coppice.prune_status().pruned_before_block, DUE);
    // The daemon is idle: skipped work triggers no ticks.
    host.take_executions();
    let ticks = coppice.prune_status().ticks;
    (0..50).for_each(|_| coppice.ic.tick());
    assert!(coppice.prune_status().ticks <= ticks + 1, "{} ticks", coppice.prune_status().ticks - ticks);
    assert!(coppice.anyone().list_uploads().answer().block.is_some());
    check_reported(&coppice, &host, "dropping an upload", "upload");
    // Acknowledged work is retried.
    host.faults().clear();
    coppice.pass(60);
    assert_eq!(coppice.anyone().list_uploads().answer().block, None);
    assert_eq!(coppice.storage().owners[1].kept_bytes, 0);

    // A rollback that traps in its third message, with pruning switched off.
    enable(&coppice, false);
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(1), ..policy() }).unwrap();
    coppice.append_plain(BLOCKS..BLOCKS + 6, LOG_CLASS as usize);
    let start = host.checkpoint();
    let roll = |coppice: &Coppice| coppice.producer().rollback_to(BLOCKS + 1, None).answer().unwrap();
    let each = (0..8).map(|_| {
        let coppice = Rc::clone(&coppice);
        Box::new(move || {
            roll(&coppice);
        }) as Box<dyn FnOnce()>
    });
    let own = own_accesses(&host, &coppice, each.take(4));
    host.restore(&start);
    host.faults().trap_after_access(own[2].0, 2);
    assert!(roll(&coppice).has_more);
    for _ in 0..60 {
        if !coppice.prune_status().skipped.is_empty() {
            break;
        }
        coppice.pass(600);
    }
    let underway = coppice.append(&plain(BLOCKS + 6, 1, 10));
    assert_eq!(underway, Err(AppendError::RollbackUnderway { to: BLOCKS + 1 }));
    assert_eq!(coppice.prune_status().pruned_before_block, DUE);
    let fast = PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(10_000), ..policy() };
    coppice.set_policy(fast).unwrap();
    enable(&coppice, true);
    coppice.pass(60);
    work_off(&coppice, "after a rollback that traps");
    assert_eq!(coppice.prune_status().pruned_before_block, BLOCKS, "one below the future head");
    host.faults().clear();
    check_reported_again(&coppice, "undoing");
    coppice.pass(60);
    coppice.pass(60);
    assert_eq!(coppice.head(), Some(BLOCKS + 1));
    coppice.append(&plain(BLOCKS + 2, 1, 10)).unwrap();
}

/// The first access to stable memory that `work` makes and `others` do not, for work that only one piece does.
fn own_access(host: &Host, work: impl FnOnce(), others: impl FnOnce()) -> StableAccess {
    host.faults().watch_accesses();
    others();
    let others: BTreeSet<_> = host.faults().take_accesses().into_iter().collect();
    host.faults().watch_accesses();
    work();
    let own = host.faults().take_accesses();
    *own.iter().find(|access| !others.contains(access)).expect("an access of its own")
}

/// Dropping a transaction that has expired, and clearing after a reset: neither stops the pruner.
#[test]
fn trapping_expiry_of_a_transaction_and_clearing_after_a_reset_are_skipped_too() {
    let (coppice, host) = chain();
    let tx = Tx::orphan(1, 3);
    let begin = BeginTransaction { txid: tx.id(), length: 200_000, chunk_size: 64 << 10 };
    coppice.producer().utxo_begin_transaction(&begin).answer().unwrap();
    let chunk = PutTransactionChunk { txid: tx.id(), chunk: 0, bytes: ByteBuf::from(vec![7; 64 << 10]) };
    coppice.producer().utxo_put_transaction_chunk(&chunk).answer().unwrap();
    let start = host.checkpoint();
    let open = || coppice.anyone().list_uploads().answer().transactions.unwrap().len();
    let prune = || {
        coppice.pass(10);
        coppice.prune_now(10_000);
    };
    let own = own_access(&host, || coppice.pass(200), prune);
    assert_eq!(open(), 0);
    host.restore(&start);
    host.faults().trap_after_access(own, 1);
    enable(&coppice, true);
    wait_for_skipped(&coppice);
    assert_eq!((coppice.prune_status().pruned_before_block, open()), (DUE, 1));
    host.faults().clear();
    check_reported_again(&coppice, "dropping the upload of a transaction");
    coppice.pass(60);
    coppice.pass(60);
    assert_eq!(open(), 0);

    enable(&coppice, false);
    let head_hash = coppice.anyone().get_head().answer().unwrap().hash;
    let idle = host.checkpoint();
    let reset = || {
        let reset = ResetChain { head_hash: head_hash.clone(), drop_unexported: false };
        coppice.operator().reset_chain(&reset).answer().unwrap();
    };
    let own = own_access(&host, || coppice.pass(10), reset);
    assert_eq!(coppice.storage().owners[0].kept_bytes, 0);
    host.restore(&idle);
    reset();
    host.faults().trap_after_access(own, 1);
    wait_for_skipped(&coppice);
    assert!(coppice.storage().owners[0].kept_bytes > 0);
    host.faults().clear();
    check_reported_again(&coppice, "undoing");
    coppice.pass(60);
    coppice.pass(60);
    assert_eq!(coppice.storage().owners[0].kept_bytes, 0);
    coppice.append(&plain(0, 1, 10)).unwrap();
}

/// Lets time pass until a piece of work is skipped, and until the work after it is done.
fn wait_for_skipped(coppice: &Coppice) {
    for _ in 0..100 {
        coppice.pass(600);
        if !coppice.prune_status().skipped.is_empty() {
            coppice.pass(60);
            return work_off(coppice, "after a piece that traps");
        }
    }
    panic!("nothing is skipped: {:?}", coppice.prune_status());
}

/// Leases that expire have no pieces to skip. A firing for them that traps delays no other work, and they expire once it no longer traps.
#[test]
fn trapping_expiry_of_leases_delays_neither_blocks_nor_jobs() {
    let (coppice, host) = chain();
    lease(&coppice);
    coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    let start = host.checkpoint();
    let others = || {
        coppice.prune_now(10_000);
        coppice.producer().utxo_notify_block(1_000, true).answer().unwrap();
    };
    let own = own_access(&host, || coppice.pass(60), others);
    assert_eq!(leased(&coppice), [0, 3]);
    host.restore(&start);
    host.faults().trap_after_access(own, 1);
    coppice.producer().utxo_notify_block(1_000, true).answer().unwrap();
    enable(&coppice, true);
    (0..120).for_each(|_| coppice.pass(10));
    assert!(host.faults().injected() > 0);
    let job = coppice.anyone().utxo_get_pruner_status().answer();
    assert!(job.pending.is_none() && job.running.is_none() && job.last_job.is_some(), "{job:?}");
    assert_eq!((coppice.prune_status().pruned_before_block, leased(&coppice)), (DUE, [3, 0]));
    host.faults().clear();
    (0..3).for_each(|_| coppice.pass(600));
    assert_eq!(leased(&coppice), [0, 3]);
}

/// Acquires a lease of three rows for five seconds.
fn lease(coppice: &Coppice) {
    grant_workers(coppice);
    for of in 0..3 {
        coppice.producer().schedule_blob_deletion(&at(of, 1)).answer().unwrap();
    }
    let arg = AcquireBlobDeletions { lock_timeout_secs: 5, ..wanted(10, None) };
    assert_eq!(acquire(coppice, WORKER, arg).unwrap().rows.len(), 3);
}

/// The rows that are leased, and those that wait.
fn leased(coppice: &Coppice) -> [u64; 2] {
    let stores = coppice.anyone().get_blob_deletion_status().answer().stores;
    stores.iter().fold([0, 0], |[leased, waiting], of| [leased + of.leased, waiting + of.waiting])
}

/// With a backlog of blocks that takes every firing, leases expire, jobs run and uploads are dropped within seconds.
#[test]
fn backlog_of_blocks_starves_no_other_duty() {
    let (coppice, _) = Coppice::embedded(default_arg());
    coppice.append_plain(0..400, 10);
    lease(&coppice);
    coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(1), ..policy() }).unwrap();
    coppice.producer().utxo_notify_block(1_000, true).answer().unwrap();
    let (begin, _) = upload(&plain(400, 1, 1_000), 600);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for _ in 0..13 {
        coppice.ic.advance_time(Duration::from_secs(10));
        (0..12).for_each(|_| coppice.ic.tick());
    }
    let status = coppice.prune_status();
    assert!(status.backlog.blocks > 100 && status.pruned_blocks > 5, "{status:?}");
    let job = coppice.anyone().utxo_get_pruner_status().answer();
    assert!(job.pending.is_none() && job.running.is_none() && job.last_job.is_some(), "{job:?}");
    assert_eq!(leased(&coppice), [0, 3]);
    assert!(coppice.anyone().list_uploads().answer().block.is_none());
}

fn check_reported_again(coppice: &Coppice, name: &str) {
    let status = coppice.prune_status();
    assert!(status.skipped.iter().any(|piece| piece.starts_with(name)), "{:?}", status.skipped);
    assert_eq!(coppice.operator().acknowledge_faults(status.faults).answer(), status.faults);
    assert!(health(coppice).healthy, "{:?}", health(coppice));
}

/// Without traps, no message is wasted.
#[test]
fn an_ordinary_run_takes_no_extra_message() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..200, 10);
    coppice.pass(700);
    host.take_executions();
    // 190 blocks of an op each, ten in a message.
    let ten = PrunePolicyArg { max_ops_per_tick: Some(10), retain_blocks: Some(9), ..policy() };
    coppice.set_policy(ten).unwrap();
    coppice.ic.advance_time(Duration::from_secs(10));
    (0..100).for_each(|_| coppice.ic.tick());
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.running), (190, false));
    let run = status.last_run.unwrap();
    assert!((19..=20).contains(&run.ticks), "{run:?}");
    let timer: Vec<_> = host
        .take_executions()
        .into_iter()
        .filter(|e| e.method.starts_with("<ic-cdk internal>") && e.kind == Kind::Update)
        .collect();
    assert!(timer.iter().all(|message| message.outcome == Outcome::Completed));
    assert!(timer.len() as u64 <= run.ticks + 1, "{} messages for {} ticks of work", timer.len(), run.ticks);
    assert_eq!(status.skipped, Vec::<String>::new());
}
