//! Records on which a tick traps, whatever it does with them: they are passed over, named, and everything else goes on.

use super::service::Service;
use crate::platform::native;
use crate::utxo::tests::world::Tx;
use coppice_interface::*;

/// A firing of the timer, ten seconds later; says whether it trapped. Then nothing of it has happened.
fn fires(s: &mut Service) -> bool {
    let due = s.pruner.next_tick;
    if native::message(|| s.tick(10)).is_ok() {
        return false;
    }
    s.reopen();
    s.pruner.next_tick = due;
    true
}

/// The timer fires until nothing waits or runs; how often, and how often it trapped.
fn settle(s: &mut Service) -> (u32, u32) {
    s.pruner.next_tick = native::with(|world| world.time_ns) + 10_000_000_000;
    let (mut times, mut traps) = (0, 0);
    while s.status().pending.is_some() || s.status().running.is_some() {
        times += 1;
        assert!(times < 2_000, "stuck: {:?}", s.status());
        traps += u32::from(fires(s));
    }
    (times, traps)
}

fn traps_on(tx: &Tx) {
    native::with(|world| world.trapping.push(tx.txid));
}

#[test]
fn a_record_that_traps_when_it_is_deleted_is_passed_over_and_the_others_go() {
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
        let passed = UtxoPassedOver { phase: UtxoPrunerPhase::DeleteAtHeight, slot, txid: txs[culprit].id() };
        assert_eq!((status.passed_over, status.last_job.unwrap().state), (vec![passed], UtxoJobState::Completed));
        let problems = s.problems();
        assert_eq!((problems.len(), problems[0].code), (1, ProblemCode::RecordsPassedOver));
        let id: String = txs[culprit].txid.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(problems[0].message.ends_with(&format!("that of transaction {id}")), "{problems:?}");
        // From now on it is in nobody's way.
        let more = Tx::orphan(99, 1);
        s.make_due(&more);
        s.pruner.notify_block(1_301, true, false).unwrap();
        assert_eq!((settle(&mut s), s.there(&more)), ((1, 0), false));
        // Until it is healed.
        native::with(|world| world.trapping.clear());
        assert_eq!(s.pruner.retry(slot + 1), Err(UtxoPrunerError::NotBlocking));
        assert_eq!(s.pruner.retry(slot), Ok(()));
        assert_eq!(s.problems(), []);
        s.pruner.notify_block(1_302, true, false).unwrap();
        settle(&mut s);
        assert!(!s.there(&txs[culprit]));
    }
}

#[test]
fn a_preservation_that_traps_stays_and_the_others_end() {
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
    assert_eq!(s.status().passed_over[0].phase, UtxoPrunerPhase::ExpirePreservations);
}

#[test]
fn an_unmined_record_that_traps_stops_everything_until_it_is_set_aside() {
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
    s.pruner.set_aside(blocked.slot).unwrap();
    s.pruner.notify_block(1_300, true, false).unwrap();
    assert_eq!(settle(&mut s), (1, 0));
    assert!(!s.there(&due) && s.get(&other).preserve_until == Some(2_740));
}

#[test]
fn ticks_that_come_late_lose_nothing() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(1), job_timeout: Some(1_000_000), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    // As slow as this, and slower: the marker's message deletes nothing, and none is passed over.
    for pause in [10, 69, 70, 10_000, 10, 10, 10] {
        s.tick(pause);
    }
    let status = s.status();
    assert_eq!((status.totals.records_deleted, status.passed_over, status.last_job.unwrap().ticks), (5, vec![], 5));
}

#[test]
fn where_finding_the_next_record_traps_health_says_so_until_a_job_is_done() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(10);
    let running = s.status().running.unwrap().id;
    // Each is as late as if those before it had trapped before they came to a record.
    (0..4).for_each(|_| s.tick(100));
    let job = s.status().last_job.unwrap();
    let end = UtxoJobEnd::Trapped { phase: UtxoPrunerPhase::DeleteAtHeight };
    assert_eq!((job.id, job.state, &job.end), (running, UtxoJobState::Failed, &Some(end)));
    let problems = Service::problems;
    let named = |s: &Service| {
        problems(s).iter().any(|found| {
            found.code == ProblemCode::PrunerTrapped
                && found.message.contains(&format!("job {running} failed"))
                && found.message.contains("DeleteAtHeight")
        })
    };
    assert!(named(&s), "{:?}", problems(&s));
    // Other jobs that end without being done do not hide it, nor does an upgrade.
    s.pruner.notify_block(1_301, true, false).unwrap();
    s.pruner.notify_block(1_302, true, false).unwrap();
    s.reopen();
    assert!(named(&s), "{:?}", problems(&s));
    s.settle();
    assert_eq!((s.status().last_job.unwrap().state, problems(&s)), (UtxoJobState::Completed, vec![]));
    assert_eq!(s.store.storage().records, 0);
}
