//! Records on which ticks trap: they are skipped and reported, and all other records are pruned.

use super::service::Service;
use crate::testing::Tx;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::audit;
use ic_coppice_storage::twin;

/// Fires the timer ten seconds later and returns whether the tick trapped. A trap undoes all its changes.
fn fires(s: &mut Service) -> bool {
    let due = s.pruner.next_tick_ns;
    if twin::message(|| s.tick(10)).is_ok() {
        return false;
    }
    s.reopen();
    audit();
    s.pruner.next_tick_ns = due;
    true
}

/// Fires the timer until no job is open. Returns the number of firings and of traps.
fn settle(s: &mut Service) -> (u32, u32) {
    s.pruner.next_tick_ns = twin::with(|world| world.time_ns) + 10_000_000_000;
    let (mut times, mut traps) = (0, 0);
    while s.status().pending.is_some() || s.status().running.is_some() {
        times += 1;
        assert!(times < 2_000, "stuck: {:?}", s.status());
        traps += u32::from(fires(s));
    }
    (times, traps)
}

fn traps_on(tx: &Tx) {
    crate::faults::trap_on(&[tx.txid]);
}

#[test]
fn record_that_traps_on_deletion_is_skipped_and_others_are_deleted() {
    for culprit in [0, 17, 39] {
        let mut s = Service::new();
        let txs: Vec<Tx> = (0..40).map(|i| Tx::orphan(10 + i, 1)).collect();
        txs.iter().for_each(|tx| s.make_due(tx));
        traps_on(&txs[culprit]);
        s.pruner.notify_block(1_300, true, false).unwrap();
        let (times, traps) = settle(&mut s);
        assert!(traps > 3 && times < 200, "{culprit}: {traps} of {times}");
        let left: Vec<usize> = (0..40).filter(|i| s.there(&txs[*i])).collect();
        assert_eq!(left, [culprit]);
        let status = s.status();
        let slot = s.slot(&txs[culprit]);
        let skipped = UtxoSkipped {
            why: UtxoSkipReason::Trapped,
            phase: UtxoPrunerPhase::DeleteAtHeight,
            slot,
            txid: txs[culprit].id(),
        };
        assert_eq!((status.skipped, status.last_job.unwrap().state), (vec![skipped], UtxoJobState::Completed));
        // Later jobs skip the record without a trap.
        let more = Tx::orphan(99, 1);
        s.make_due(&more);
        s.pruner.notify_block(1_301, true, false).unwrap();
        assert_eq!((settle(&mut s), s.there(&more)), ((1, 0), false));
        // The record is pruned after it is healed.
        crate::faults::trap_on(&[]);
        assert_eq!(s.pruner.retry(slot + 1), Err(UtxoPrunerError::NotBlocking));
        assert_eq!(s.pruner.retry(slot), Ok(()));
        assert_eq!(s.status().skipped, []);
        s.pruner.notify_block(1_302, true, false).unwrap();
        settle(&mut s);
        assert!(!s.there(&txs[culprit]));
    }
}

/// Traps at accesses to memory all over a tick that deletes records and gives their chunks back.
#[test]
fn interrupted_ticks_leave_the_arena_consistent() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..30).map(|i| Tx::orphan(10 + i, 300)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    let (arena, kept) = (|| ic_coppice_storage::testing::arena(), s.store.storage().kept_bytes);
    s.pruner.notify_block(1_300, true, false).unwrap();
    let (mut at, mut traps) = (0, 0);
    while s.status().pending.is_some() || s.status().running.is_some() {
        twin::with(|world| world.trap_after = Some(at));
        traps += u32::from(fires(&mut s));
        twin::with(|world| world.trap_after = None);
        assert!(s.store.storage().records == 0 || arena().touched_bytes() == kept);
        at += 40;
    }
    assert!(traps > 15 && s.store.storage().records == 0, "{traps}");
    assert!(arena().touched_bytes() < kept);
    audit();
}

#[test]
fn preservation_that_traps_stays_and_others_expire() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 1)).collect();
    for tx in &txs {
        s.make_due(tx);
        s.store.preserve(&tx.txid, 1_100).unwrap();
    }
    traps_on(&txs[2]);
    s.pruner.notify_block(1_300, true, false).unwrap();
    settle(&mut s);
    let kept: Vec<bool> = txs.iter().map(|tx| s.get(tx).preserve_until.is_some()).collect();
    assert_eq!(kept, [false, false, true, false, false]);
    assert_eq!(s.status().skipped[0].phase, UtxoPrunerPhase::ExpirePreservations);
}

#[test]
fn unmined_record_that_traps_stops_pruning_until_skipped() {
    let mut s = Service::new();
    let (parent, other, due) = (Tx::orphan(1, 1), Tx::orphan(2, 1), Tx::orphan(3, 1));
    let (child, sibling) = (Tx::of(4, &[(parent.txid, 0)], 1), Tx::of(5, &[(other.txid, 0)], 1));
    for (parent, child) in [(&parent, &child), (&other, &sibling)] {
        s.make_mined(parent);
        s.make(child);
        s.spend_one(parent, 0, child).unwrap();
    }
    s.make_due(&due);
    traps_on(&child);
    s.pruner.notify_block(1_300, true, false).unwrap();
    settle(&mut s);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = s.status().last_job.unwrap().end else {
        panic!("{:?}", s.status())
    };
    assert_eq!((blocked.slot, &blocked.txid), (s.slot(&child), &child.id()));
    assert!(s.there(&due), "nothing is deleted");
    s.pruner.skip(blocked.slot).unwrap();
    s.pruner.notify_block(1_300, true, false).unwrap();
    assert_eq!(settle(&mut s), (1, 0));
    let reasons: Vec<_> = s.status().skipped.iter().map(|record| (record.slot, record.why)).collect();
    assert_eq!(reasons, [(blocked.slot, UtxoSkipReason::Trapped), (blocked.slot, UtxoSkipReason::Unreadable)]);
    assert!(!s.there(&due) && s.get(&other).preserve_until == Some(2_740));
}

#[test]
fn late_ticks_skip_no_record() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange {
        max_instructions_per_tick: Some(1),
        job_timeout_secs: Some(1_000_000),
        ..Default::default()
    });
    s.pruner.notify_block(1_300, true, false).unwrap();
    // Late ticks: the message that records the lateness deletes nothing, and no record is skipped.
    for pause in [10, 69, 70, 10_000, 10, 10, 10] {
        s.tick(pause);
    }
    let status = s.status();
    assert_eq!((status.totals.records_deleted, status.skipped, status.last_job.unwrap().ticks), (5, vec![], 5));
}

#[test]
fn trap_while_finding_the_next_record_is_reported_until_a_job_completes() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(10);
    let running = s.status().running.unwrap().id;
    // Each tick is as late as if the earlier ones had trapped before they reached a record.
    (0..4).for_each(|_| s.tick(100));
    let job = s.status().last_job.unwrap();
    let end = UtxoJobEnd::Trapped { phase: UtxoPrunerPhase::DeleteAtHeight };
    assert_eq!((job.id, job.state, &job.end), (running, UtxoJobState::Failed, &Some(end)));
    let trapped = Some((running, UtxoPrunerPhase::DeleteAtHeight));
    assert_eq!(s.pruner.stored().trapped, trapped);
    // Jobs that end without completing do not hide the problem; an upgrade does not either.
    s.pruner.notify_block(1_301, true, false).unwrap();
    s.pruner.notify_block(1_302, true, false).unwrap();
    s.reopen();
    assert_eq!(s.pruner.stored().trapped, trapped);
    s.settle();
    assert_eq!((s.status().last_job.unwrap().state, s.pruner.stored().trapped), (UtxoJobState::Completed, None));
    assert_eq!(s.store.storage().records, 0);
}
