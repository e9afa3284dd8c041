//! Runs over several ticks, and changes between the ticks.

use super::service::Service;
use crate::testing::{Tx, block};
use ic_coppice_interface::*;

fn one_record_a_tick() -> UtxoPrunerSettingsChange {
    UtxoPrunerSettingsChange {
        utxo_chunk_size: Some(1),
        utxo_chunk_group_limit: Some(1),
        ..UtxoPrunerSettingsChange::default()
    }
}

fn due(s: &mut Service, count: u64) -> Vec<Tx> {
    let txs: Vec<Tx> = (0..count).map(|i| Tx::orphan(100 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    txs
}

#[test]
fn parents_of_a_late_old_unmined_record_are_preserved_before_more_is_deleted() {
    for pause in 1..4 {
        let mut s = Service::new();
        let txs = due(&mut s, 4);
        s.set(one_record_a_tick());
        s.pruner.notify_block(1_300, true, false).unwrap();
        (0..pause).for_each(|_| s.tick(1));
        // The producer lags: its record is new at height 1,000 and old for the run.
        let child = Tx::of(200, &[(txs[3].txid, 0)], 1);
        s.make(&child);
        s.settle();
        assert_eq!(s.get(&txs[3]).preserve_until, Some(2_740), "after {pause} ticks");
        assert_eq!(s.status().totals.records_deleted, 3);
    }
}

#[test]
fn new_unmined_record_keeps_only_its_own_parent_from_the_run() {
    let mut s = Service::new();
    let txs = due(&mut s, 4);
    s.set(one_record_a_tick());
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    s.w.height = 1_250;
    s.make(&Tx::of(200, &[(txs[3].txid, 0)], 1));
    s.settle();
    assert_eq!((s.status().totals.records_deleted, s.status().totals.old_unmined), (3, 1));
    assert_eq!(s.get(&txs[3]).preserve_until, Some(2_740), "the record is not old before 1,394");
}

#[test]
fn a_reorg_between_two_ticks_loses_nothing() {
    let mut s = Service::new();
    let txs = due(&mut s, 4);
    s.set(one_record_a_tick());
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    // A reorg that ends before the timer fires: one of the due records is unmined again, and its parent must be kept.
    let child = Tx::of(300, &[(txs[2].txid, 0)], 1);
    s.assembly(UtxoBlockAssemblyState::NotRunning);
    s.set_mined(&txs[3], block(900, 900), true, true);
    s.make(&child);
    s.assembly(UtxoBlockAssemblyState::Running);
    s.settle();
    assert!(s.there(&txs[3]) && s.get(&txs[2]).preserve_until.is_some());
    assert_eq!(s.status().last_job.unwrap().counts.records_deleted, 2);
}

#[test]
fn timed_out_job_leaves_its_run_to_the_next_job() {
    let mut s = Service::new();
    due(&mut s, 10);
    s.set(UtxoPrunerSettingsChange { job_timeout_secs: Some(30), ..one_record_a_tick() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    (0..4).for_each(|_| s.tick(10));
    let jobs = s.pruner.jobs(None, 0).jobs;
    let seen: Vec<_> = jobs.iter().map(|job| (job.id, job.state, job.height, job.counts.records_deleted)).collect();
    assert_eq!(seen, [(2, UtxoJobState::Running, 1_300, 1), (1, UtxoJobState::Failed, 1_300, 3)]);
    assert_eq!((&jobs[1].end, jobs[0].trigger), (&Some(UtxoJobEnd::TimedOut), UtxoJobTrigger::Resumed));
    s.reopen();
    // The next job is for a higher height: the job finishes the old run with that run's heights, then does its own run.
    s.pruner.notify_block(1_400, true, false).unwrap();
    (0..12).for_each(|_| s.tick(10));
    s.settle();
    let status = s.status();
    assert_eq!((status.totals.records_deleted, status.totals.processed), (10, 10));
    assert_eq!(status.last_processed_height, 1_400);
    assert_eq!(s.store.storage().records, 0);
}

#[test]
fn resumed_run_keeps_its_heights() {
    let mut s = Service::new();
    due(&mut s, 3);
    s.w.height = 1_050;
    let later = Tx::orphan(500, 1);
    s.make_due(&later);
    s.set(UtxoPrunerSettingsChange { job_timeout_secs: Some(10), ..one_record_a_tick() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    s.pruner.notify_block(1_338, true, false).unwrap();
    s.tick(10);
    s.tick(1);
    let running = s.status().running.unwrap();
    assert_eq!((running.height, running.counts.records_deleted), (1_338, 2));
    assert!(s.there(&later));
    s.tick(1);
    assert!(!s.there(&later), "by the job's own run");
    s.settle();
    assert_eq!(s.status().last_processed_height, 1_338);
}

#[test]
fn kept_record_is_examined_once_per_run() {
    let mut s = Service::new();
    let txs = due(&mut s, 6);
    s.set(UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(true), ..one_record_a_tick() });
    // None of the spenders has a record.
    let job = s.prune(1_300);
    assert_eq!((job.counts.skipped_child_absent, job.counts.processed, job.ticks), (6, 6, 6));
    assert!(txs.iter().all(|tx| s.there(tx)));
    s.set(UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(false), ..Default::default() });
    assert_eq!(s.prune(1_301).counts.processed, 0, "not examined again before a change is possible");
    assert_eq!(s.prune(1_588).counts.records_deleted, 6);
}

#[test]
fn progress_is_logged_at_the_interval_in_the_platforms_log_only() {
    use ic_coppice_storage::twin;
    use std::cell::RefCell;
    thread_local! {
        static KEPT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let lines = |interval: u64| {
        let mut s = Service::new();
        KEPT.set(Vec::new());
        ic_coppice_storage::log::keep(|_, line| KEPT.with_borrow_mut(|kept| kept.push(line.into())));
        due(&mut s, 12);
        s.set(UtxoPrunerSettingsChange { utxo_progress_log_interval_secs: Some(interval), ..one_record_a_tick() });
        s.pruner.notify_block(1_300, true, false).unwrap();
        ic_coppice_storage::log::error("what was damaged");
        (0..13).for_each(|_| s.tick(10));
        assert_eq!(KEPT.take(), ["what was damaged"]);
        twin::with(|world| world.log.iter().filter(|line| line.contains("records examined")).count())
    };
    assert_eq!((lines(0), lines(30), lines(1)), (0, 3, 10));
}

#[test]
fn late_parent_is_preserved_before_more_is_deleted() {
    let mut s = Service::new();
    due(&mut s, 3);
    let parent = Tx::orphan(400, 1);
    let child = Tx::of(401, &[(parent.txid, 0)], 1);
    s.make(&child);
    s.set(one_record_a_tick());
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    // Phase 1 has passed the parent's child; because the producer lags, the parent is due in this run.
    s.make_mined(&parent);
    s.spend_one(&parent, 0, &child).unwrap();
    assert_eq!(s.get(&parent).delete_at_height, Some(1_288));
    s.settle();
    assert_eq!((s.there(&parent), s.status().totals.records_deleted), (true, 3), "the parent is left to the next run");
    let job = s.prune(1_301);
    assert_eq!((s.get(&parent).preserve_until, job.counts.records_deleted), (Some(2_741), 0));
}

#[test]
fn expired_preservation_stays_until_there_is_a_retention() {
    let mut s = Service::new();
    let txs = due(&mut s, 1);
    s.store.preserve(&txs[0].txid, 1_100).unwrap();
    s.w.settings.block_height_retention = 0;
    assert_eq!(s.prune(1_200).counts.preservations_expired, 0);
    assert_eq!(s.get(&txs[0]).preserve_until, Some(1_100));
    s.w.settings.block_height_retention = 10;
    assert_eq!(s.prune(1_201).counts.preservations_expired, 1);
    assert_eq!(s.get(&txs[0]).delete_at_height, Some(1_211));
    assert_eq!(s.prune(1_211).counts.records_deleted, 1);
}
