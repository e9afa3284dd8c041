//! Misleading heights: their limits, and their repair.

use super::service::Service;
use crate::testing::Tx;
use ic_coppice_interface::*;

/// The first number that is not a valid height.
const NONE: u32 = 1 << 31;

/// Returns a spent parent that is due at 1,288, and a transaction that spends from it and has been unmined since 1,000.
fn old_unmined(s: &mut Service) -> (Tx, Tx) {
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    s.make_mined(&parent);
    s.make(&child);
    s.spend_one(&parent, 0, &child).unwrap();
    (parent, child)
}

fn by_hand(s: &mut Service, height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
    s.with(|pruner, records| pruner.prune(height, records))
}

fn set(
    s: &mut Service,
    current: u32,
    persisted: Option<u32>,
    processed: u32,
) -> Result<UtxoHeightsSet, UtxoPrunerError> {
    let Service { w, pruner, .. } = s;
    pruner.set_heights(&UtxoSetHeights { current, persisted, processed }, &w.settings)
}

fn scheduled(trigger: UtxoNotifyOutcome) -> UtxoPruneJob {
    let UtxoNotifyOutcome::Scheduled(job) = trigger else { panic!("{trigger:?}") };
    job
}

#[test]
fn invalid_height_is_refused_and_changes_nothing() {
    let mut s = Service::new();
    let before = s.status();
    for (height, refused) in [
        (0, UtxoPrunerError::BadHeight(BadHeight::Zero)),
        (NONE, UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: NONE - 1 })),
        (u32::MAX, UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: NONE - 1 })),
    ] {
        for by_operator in [false, true] {
            assert_eq!(s.pruner.notify_block(height, true, by_operator), Err(refused.clone()));
            assert_eq!(s.pruner.notify_persisted(height, by_operator), Err(refused.clone()));
        }
        assert_eq!(by_hand(&mut s, height), Err(refused));
    }
    assert_eq!(set(&mut s, NONE, None, 0), Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: NONE - 1 })));
    assert_eq!(set(&mut s, 5, Some(0), 0), Err(UtxoPrunerError::BadHeight(BadHeight::Zero)));
    assert_eq!(set(&mut s, 5, Some(NONE), 0), Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: NONE - 1 })));
    for (current, persisted, processed, named) in [(5, Some(6), 0, "persisted"), (5, Some(5), 6, "processed")] {
        let refused = set(&mut s, current, persisted, processed);
        assert!(
            matches!(&refused, Err(UtxoPrunerError::BadArgument(BadArgument { field, .. })) if field == named),
            "{refused:?}"
        );
    }
    assert_eq!(s.status(), before);
}

#[test]
fn every_operation_on_records_refuses_an_invalid_height() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    s.make_mined(&tx);
    let record = s.get(&tx);
    for height in [NONE, u32::MAX] {
        let bad = UtxoRefusal::BadHeight(BadHeight::TooHigh { most: NONE - 1 });
        s.w.height = height;
        assert_eq!(s.spend_one(&tx, 0, &Tx::orphan(2, 1)), Err(bad.clone()));
        assert_eq!(s.create(&crate::testing::raw(&Tx::orphan(3, 1))), Err(bad.clone()));
        s.w.height = 1_000;
        let mined = crate::testing::mined(&[crate::testing::block(1, height)]);
        let item = UtxoCreate { mined, ..crate::testing::raw(&Tx::orphan(3, 1)) };
        assert_eq!(s.create(&item), Err(bad.clone()));
        assert_eq!(s.w.store.preserve(&tx.txid, height), Err(bad.clone()));
        assert_eq!(s.w.store.spend_states(&[], height, MAX_HEIGHT), Err(bad));
    }
    assert_eq!(s.get(&tx), record);
}

#[test]
fn operators_height_is_at_most_the_notified_one_and_bounds_all_phases() {
    for persisted in [false, true] {
        let mut s = Service::new();
        let (parent, _) = old_unmined(&mut s);
        let (due, kept) = (Tx::orphan(10, 1), Tx::orphan(11, 1));
        s.make_due(&due);
        s.make_due(&kept);
        s.store.preserve(&kept.txid, 1_290).unwrap();
        s.pruner.notify_block(1_400, false, false).unwrap();
        if persisted {
            s.pruner.notify_persisted(1_200, false).unwrap();
            s.settle();
        }
        let before = s.status();
        for height in [1_401, NONE - 1] {
            assert_eq!(by_hand(&mut s, height), Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: 1_400 })));
        }
        assert_eq!(s.status(), before, "nothing has changed");
        let job = by_hand(&mut s, 1_288).unwrap();
        assert_eq!((job.state, job.current_height), (UtxoJobState::Completed, Some(1_288)), "{job:?}");
        // The persisted height bounds deletions, for operators as well.
        assert_eq!(
            (job.safe_height, s.there(&due)),
            if persisted { (Some(1_200), true) } else { (Some(1_288), false) }
        );
        let until = if persisted { 1_400 } else { 1_288 } + 1_440;
        assert_eq!(
            s.get(&parent).preserve_until,
            Some(until),
            "by the job's height, unless preserved for longer before"
        );
        // The persister's job used height 1,400.
        let preserved = if persisted { None } else { Some(1_290) };
        assert_eq!((s.get(&kept).preserve_until, job.counts.preservations_expired), (preserved, 0));
        assert_eq!(s.status().last_processed_height, if persisted { 1_200 } else { 1_288 });
    }
}

#[test]
fn operators_height_without_notification_preserves_parents() {
    let mut s = Service::new();
    let (parent, _) = old_unmined(&mut s);
    let job = by_hand(&mut s, NONE - 1).unwrap();
    assert_eq!((job.state, job.counts.parents_preserved, job.counts.records_deleted), (UtxoJobState::Completed, 1, 0));
    assert_eq!(s.get(&parent).preserve_until, Some(NONE - 1 + 1_440));
    assert_eq!(s.status().last_processed_height, 0);
}

#[test]
fn processed_height_can_be_pruned_again_manually() {
    let mut s = Service::new();
    s.prune(1_300);
    let tx = Tx::orphan(10, 1);
    s.make_due(&tx);
    for (deleted, height) in [(1, 1_300), (0, 1_300), (0, 1)] {
        let job = by_hand(&mut s, height).unwrap();
        let expected = (UtxoJobTrigger::Manual, UtxoJobState::Completed, deleted);
        assert_eq!((job.trigger, job.state, job.counts.records_deleted), expected, "{job:?}");
    }
    assert_eq!(s.status().last_processed_height, 1_300);
    assert!(matches!(s.pruner.notify_block(1_300, true, false), Ok(UtxoNotifyOutcome::Processed(Some(_)))));
}

#[test]
fn height_jump_is_refused_except_the_first_and_an_operators() {
    let mut s = Service::new();
    let due = Tx::orphan(10, 1);
    s.w.height = 4_000_000;
    s.make_due(&due);
    s.w.height = 1_000;
    scheduled(s.pruner.notify_block(1_000_000, true, false).unwrap());
    s.settle();
    let refused = Err(UtxoPrunerError::HeightJump { highest: 1_000_000, most: 1_010_000, accepted_at_ns: None });
    for height in [1_010_001, NONE - 1] {
        assert_eq!(s.pruner.notify_block(height, true, false), refused);
        assert_eq!(s.pruner.notify_block(height, false, false), refused);
        assert_eq!(s.pruner.notify_persisted(height, false), refused);
    }
    let status = s.status();
    assert_eq!((status.current_height, status.last_persisted_height, status.pending), (1_000_000, None, None));
    s.pruner.notify_block(1_010_000, false, false).unwrap();
    assert_eq!(s.status().current_height, 1_010_000);
    s.set(UtxoPrunerSettingsChange { max_height_jump: Some(1), ..Default::default() });
    assert!(s.pruner.notify_persisted(1_010_002, false).is_err());
    scheduled(s.pruner.notify_persisted(5_000_000, true).unwrap());
    s.settle();
    assert!(!s.there(&due));
    for (value, taken) in [(0, false), (1, true), (NONE - 1, true), (NONE, false)] {
        let change = UtxoPrunerSettingsChange { max_height_jump: Some(value), ..Default::default() };
        assert_eq!(s.pruner.set_settings(&change, &s.w.settings).is_ok(), taken, "{value}");
    }
}

#[test]
fn wrong_notifications_can_be_repaired() {
    let mut s = Service::new();
    s.set(UtxoPrunerSettingsChange { max_height_jump: Some(NONE - 1), ..Default::default() });
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.assembly(UtxoBlockAssemblyState::NotRunning);
    s.pruner.notify_persisted(4_000_000, false).unwrap();
    // An operator notices before a deletion: cancels the job and keeps the heights.
    let set_to = set(&mut s, 1_100, Some(1_050), 1_000).unwrap();
    let due = set_to.due.unwrap();
    assert_eq!((set_to.safe_height, set_to.unmined_cutoff_height), (1_050, 956));
    assert_eq!((due.height, due.trigger, due.state), (1_050, UtxoJobTrigger::Due, UtxoJobState::Pending));
    let status = s.status();
    let heights = (status.current_height, status.last_persisted_height, status.last_processed_height);
    assert_eq!((heights, status.pending), ((1_100, Some(1_050), 1_000), Some(due)));
    assert_eq!(status.last_job.unwrap().end, Some(UtxoJobEnd::HeightsSet));
    s.reopen();
    s.assembly(UtxoBlockAssemblyState::Running);
    s.settle();
    assert_eq!((s.status().last_processed_height, s.status().totals.records_deleted), (1_050, 0));
    // Without a persister blocks are triggers again.
    let none = set(&mut s, 1_100, None, 1_100).unwrap();
    assert_eq!((none.safe_height, none.due), (1_100, None));
    assert!(matches!(s.pruner.notify_block(1_100, true, false), Ok(UtxoNotifyOutcome::Processed(_))));
    scheduled(s.pruner.notify_block(1_288, true, false).unwrap());
    s.settle();
    assert_eq!(s.status().totals.records_deleted, 3);
    // All heights are reset to 0, as before the first notification.
    assert_eq!(set(&mut s, 0, None, 0).unwrap().due, None);
    scheduled(s.pruner.notify_block(5, true, false).unwrap());
}

#[test]
fn setting_heights_drops_the_run() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    assert_eq!(s.status().running.unwrap().counts.records_deleted, 1);
    let due = set(&mut s, 1_100, None, 0).unwrap().due.unwrap();
    assert_eq!((s.status().running, s.status().last_job.unwrap().state), (None, UtxoJobState::Cancelled));
    s.settle();
    let job = s.status().last_job.unwrap();
    assert_eq!((job.id, job.safe_height, s.status().totals.records_deleted), (due.id, Some(1_100), 1));
}

#[test]
fn cancelled_job_is_neither_processed_nor_pending() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let first = scheduled(s.pruner.notify_block(1_300, true, false).unwrap());
    for unknown in [0, first.id + 1, u64::MAX] {
        assert_eq!(s.pruner.cancel(unknown), Err(UtxoPrunerError::NotOpen));
    }
    let cancelled = s.pruner.cancel(first.id).unwrap();
    assert_eq!((cancelled.state, cancelled.end), (UtxoJobState::Cancelled, Some(UtxoJobEnd::Cancelled)));
    assert_eq!(s.pruner.cancel(first.id), Err(UtxoPrunerError::NotOpen), "once");
    let second = scheduled(s.pruner.notify_block(1_300, true, false).unwrap());
    s.tick(1);
    scheduled(s.pruner.notify_block(1_301, true, false).unwrap());
    s.pruner.cancel(second.id).unwrap();
    let status = s.status();
    assert_eq!((status.running, status.last_processed_height), (None, 0));
    assert_eq!(status.pending.as_ref().unwrap().height, 1_301, "the pending job stays");
    s.pruner.cancel(status.pending.unwrap().id).unwrap();
    s.reopen();
    assert_eq!(s.pruner.interval_secs(), None);
    (0..3).for_each(|_| s.tick(10));
    assert_eq!(s.status().totals.records_deleted, 1);
    scheduled(s.pruner.notify_block(1_301, true, false).unwrap());
    s.settle();
    assert_eq!(s.status().totals.records_deleted, 3);
}

#[test]
fn cancelling_a_timed_out_job_drops_its_run() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..4).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    let slow = UtxoPrunerSettingsChange {
        max_instructions_per_tick: Some(1),
        job_timeout_secs: Some(10),
        ..Default::default()
    };
    s.set(slow);
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    s.tick(10);
    let running = s.status().running.unwrap();
    assert_eq!(running.trigger, UtxoJobTrigger::Resumed);
    s.pruner.cancel(running.id).unwrap();
    s.pruner.notify_block(1_301, true, false).unwrap();
    s.tick(1);
    assert_eq!(s.status().running.unwrap().safe_height, Some(1_301), "a new run from the start");
    s.settle();
    assert_eq!(s.status().totals.records_deleted, 4);
}

#[test]
fn height_persisted_during_a_job_is_pruned_without_another_call() {
    let mut s = Service::new();
    s.w.settings.block_height_retention = 10;
    let txs: Vec<Tx> = [30, 30, 30, 80]
        .into_iter()
        .zip(10..)
        .map(|(height, salt)| {
            let tx = Tx::orphan(salt, 1);
            s.w.height = height;
            s.make_due(&tx);
            tx
        })
        .collect();
    scheduled(s.pruner.notify_block(100, true, false).unwrap());
    assert!(matches!(s.pruner.notify_persisted(50, false), Ok(UtxoNotifyOutcome::Underway(_))));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.tick(10);
    assert!(matches!(s.pruner.notify_persisted(95, false), Ok(UtxoNotifyOutcome::Underway(_))));
    s.reopen();
    s.settle();
    assert_eq!(txs.iter().map(|tx| s.there(tx)).collect::<Vec<_>>(), [false; 4]);
    let status = s.status();
    let last = status.last_job.unwrap();
    assert_eq!((last.trigger, last.height, last.safe_height), (UtxoJobTrigger::Due, 95, Some(95)));
    assert_eq!((status.last_processed_height, status.pending), (95, None));
}

#[test]
fn operators_job_does_not_absorb_a_higher_notified_height() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..4).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.pruner.notify_block(1_300, false, false).unwrap();
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let by_hand_job = by_hand(&mut s, 1_300).unwrap();
    assert_eq!(by_hand_job.state, UtxoJobState::Running);
    let next = scheduled(s.pruner.notify_block(1_301, true, false).unwrap());
    assert_eq!(by_hand(&mut s, 1_300).unwrap().id, by_hand_job.id, "a repeated call returns the same job");
    s.settle();
    let last = s.status().last_job.unwrap();
    assert_eq!((last.id, last.current_height, s.status().last_processed_height), (next.id, Some(1_301), 1_301));
}
