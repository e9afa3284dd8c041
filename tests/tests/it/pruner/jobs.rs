//! Jobs: their states and history (section 4), and manual runs.

use super::world::*;
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

fn ids(jobs: &[UtxoPruneJob]) -> Vec<u64> {
    jobs.iter().map(|job| job.id).collect()
}

#[test]
fn s4_jobs_are_listed_active_first_then_newest_first() {
    let world = World::new();
    world.slow();
    world.prune(1);
    world.persisted(2);
    world.prune(3);
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    world.persisted(20);
    world.ticks(1);
    world.persisted(21);
    let jobs = world.jobs();
    let states: Vec<(u64, UtxoJobState)> = jobs.iter().map(|job| (job.id, job.state)).collect();
    use UtxoJobState::{Cancelled, Completed, Pending, Running};
    assert_eq!(states, [(5, Pending), (4, Running), (3, Completed), (2, Cancelled), (1, Completed)]);
    let status = world.status();
    assert_eq!((&status.pending, &status.running), (&Some(jobs[0].clone()), &Some(jobs[1].clone())));
    assert_eq!(status.last_job.as_ref(), Some(&jobs[2]));
    world.coppice.upgrade();
    assert_eq!(world.jobs(), jobs);
}

#[test]
fn s4_the_list_is_read_in_pages() {
    let world = World::new();
    (1..=23).for_each(|height| drop(world.persisted(height)));
    world.ticks(1);
    let all = world.jobs();
    assert_eq!(ids(&all), (1..=23).rev().collect::<Vec<_>>());
    for limit in [1, 4, 22, 23, 24, 7] {
        let (mut read, mut cursor) = (Vec::new(), None);
        loop {
            let page = world.page(cursor, limit);
            assert!(page.jobs.len() <= limit as usize);
            assert_eq!(page.cursor.is_some(), read.len() + page.jobs.len() < 23, "pages of {limit}");
            read.extend(page.jobs);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
            // A job that ends meanwhile does not change the rest of the pages.
            if limit == 7 {
                let status = world.status();
                world.prune(status.current_height + 1);
            }
        }
        assert_eq!(read, all, "pages of {limit}");
    }
}

#[test]
fn s4_max_job_history_bounds_the_ended_jobs() {
    let world = World::new();
    let history = |most: u32| {
        let change = UtxoPrunerSettingsChange { max_job_history: Some(most), ..Default::default() };
        assert_eq!(world.set(change).max_job_history, most);
    };
    history(3);
    (1..=5).for_each(|height| drop(world.prune(height)));
    assert_eq!(ids(&world.jobs()), [5, 4, 3]);
    history(2);
    assert_eq!(ids(&world.jobs()), [5, 4], "at once");
    history(1_000);
    world.prune(6);
    assert_eq!(ids(&world.jobs()), [6, 5, 4], "forgotten jobs do not come back");
    // Waiting and running jobs do not count, and are never removed.
    history(1);
    world.slow();
    let txs = orphans(0..2);
    world.make_spent(10, &txs);
    world.persisted(20);
    world.ticks(1);
    world.persisted(21);
    assert_eq!(ids(&world.jobs()), [8, 7, 6]);
}

#[test]
fn s4_a_job_keeps_its_times_heights_and_counts() {
    let world = World::new();
    world.slow();
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    world.block(30, false);
    let begun = world.coppice.ic.now();
    let made = World::scheduled(world.persisted(20));
    assert!(made.created_at_ns >= begun);
    assert_eq!((made.started_at_ns, made.ended_at_ns, made.current_height, made.safe_height), (None, None, None, None));
    let done = world.finish(made.id);
    assert_eq!(
        (done.id, done.height, done.trigger, done.created_at_ns),
        (made.id, 20, made.trigger, made.created_at_ns)
    );
    assert_eq!(
        (done.current_height, done.safe_height, done.phase),
        (Some(30), Some(20), UtxoPrunerPhase::DeleteAtHeight)
    );
    let seconds = |ns: u64| ns / 1_000_000_000;
    assert_eq!((seconds(done.ended_at_ns.unwrap() - done.started_at_ns.unwrap()), done.ticks), (20, 3));
    assert!(done.started_at_ns >= Some(made.created_at_ns + 9_000_000_000) && done.instructions > 1_000);
}

#[test]
fn s4_a_manual_run_deletes_at_once_even_if_the_timer_is_off() {
    let world = World::new();
    world.set(UtxoPrunerSettingsChange { pruner_enabled: Some(false), ..Default::default() });
    let txs = orphans(0..2);
    world.make_spent(10, &txs);
    let job = world.prune_manually(20).unwrap();
    assert_eq!((job.state, job.trigger, job.ticks), (UtxoJobState::Completed, UtxoJobTrigger::Manual, 1));
    assert_eq!((job.current_height, job.safe_height, job.counts.records_deleted), (Some(20), Some(20), 2));
    assert_eq!((world.count(&txs), world.last()), (0, job.clone()));
    let again = world.prune_manually(20).unwrap();
    assert_eq!(
        (again.id, again.state, again.counts.processed),
        (job.id + 1, UtxoJobState::Completed, 0),
        "nothing is left"
    );
    assert_eq!(world.jobs(), [again, job]);
}

#[test]
fn s4_a_long_manual_job_continues_with_each_call() {
    let world = World::new();
    world.set(UtxoPrunerSettingsChange { pruner_enabled: Some(false), ..Default::default() });
    world.slow();
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    for (ticks, state) in [(1, UtxoJobState::Running), (2, UtxoJobState::Running), (3, UtxoJobState::Completed)] {
        let job = world.prune_manually(20).unwrap();
        assert_eq!((job.id, job.ticks, job.state), (1, ticks, state));
        assert_eq!(world.count(&txs), 3 - ticks as usize);
        // The switched-off timer does not continue the run.
        world.ticks(1);
        assert_eq!(world.count(&txs), 3 - ticks as usize);
    }
}

#[test]
fn s4_an_unsafe_manual_run_is_refused_and_changes_nothing() {
    let world = World::new();
    world.assembly(UtxoBlockAssemblyState::NotRunning);
    let txs = orphans(0..1);
    world.make_spent(10, &txs);
    let before = world.status();
    assert_eq!(world.prune_manually(20), Err(UtxoPrunerError::BlockAssemblyNotRunning));
    assert_eq!(world.prune_manually(0), Err(UtxoPrunerError::BadHeight(BadHeight::Zero)));
    assert_eq!((world.status(), world.jobs(), world.count(&txs)), (before, vec![], 1));
}

#[test]
fn s4_a_manual_height_above_the_notified_one_is_refused() {
    let world = World::new();
    world.prune(20);
    let (parent, child) = (Tx::orphan(1, 1), Tx::of(2, &[(Tx::orphan(1, 1).txid, 0)], 1));
    world.create(18, &[&parent, &child]);
    world.mine(18, &[&parent]);
    world.spend(18, &child, &[&parent]);
    // The parent is due at 28, when the child is not yet old by the chain's height.
    let before = (world.status(), world.jobs(), world.record(&parent));
    for height in [21, 28, 1_000, u32::MAX / 2] {
        assert_eq!(world.prune_manually(height), Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: 20 })));
    }
    assert_eq!((world.status(), world.jobs(), world.record(&parent)), before, "nothing has changed");
    assert_eq!(world.prune(21).height, 21);
    for processed in [21, 15] {
        let job = world.prune_manually(processed).unwrap();
        let made = (job.height, job.trigger, job.state, job.current_height, job.safe_height);
        let at = Some(processed);
        assert_eq!(made, (processed, UtxoJobTrigger::Manual, UtxoJobState::Completed, at, at));
    }
    assert_eq!(world.status().last_processed_height, 21);
}

#[test]
fn s4_a_lower_manual_height_applies_to_all_phases() {
    let world = World::new();
    world.block(100, false);
    let due = orphans(0..2);
    world.make_spent(40, &due[..1]);
    world.make_spent(80, &due[1..]);
    let (parent, child) = (Tx::orphan(11, 1), Tx::of(12, &[(Tx::orphan(11, 1).txid, 0)], 1));
    world.create(50, &[&parent, &child]);
    world.mine(50, &[&parent]);
    let kept = Tx::orphan(13, 1);
    world.create(50, &[&kept]);
    let preserve = UtxoPreserveBatch { until_height: 70, txids: vec![kept.id()] };
    crate::utxo::all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer());
    let job = world.prune_manually(55).unwrap();
    assert_eq!((job.current_height, job.safe_height), (Some(55), Some(55)));
    assert_eq!((job.counts.old_unmined, job.counts.preservations_expired), (0, 0), "50 is not below 55 - 5");
    assert_eq!(world.have_records(&due), [false, true]);
    let job = world.prune_manually(100).unwrap();
    assert_eq!((job.counts.old_unmined, job.counts.preservations_expired), (2, 1));
    assert_eq!((world.have_records(&due), world.heights(&parent).1), (vec![false, false], Some(100 + PRESERVATION)));
}
