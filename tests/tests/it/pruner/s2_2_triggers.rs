//! 2.2 and 2.7: which notifications trigger pruning of records.

use super::world::*;
use coppice_tests::client::Answered;
use ic_coppice_interface::*;

#[test]
fn s2_2_primary_3_the_persisted_height_is_noted() {
    let world = World::new();
    let persisted = || (world.status().last_persisted_height, world.status().current_height);
    for (height, noted) in [(5, 5), (9, 9), (7, 9)] {
        world.persisted(height);
        assert_eq!(persisted(), (Some(noted), noted));
    }
    world.coppice.upgrade();
    assert_eq!(persisted(), (Some(9), 9));
}

#[test]
fn s2_2_primary_4_at_most_one_job_waits() {
    let world = World::new();
    let first = World::scheduled(world.persisted(5));
    assert_eq!((first.state, first.height, first.trigger), (UtxoJobState::Pending, 5, UtxoJobTrigger::BlockPersisted));
    let second = World::scheduled(world.persisted(7));
    assert_eq!((world.status().pending, second.id), (Some(second.clone()), first.id + 1));
    let cancelled = world.last();
    assert_eq!(
        (cancelled.id, cancelled.state, cancelled.end),
        (first.id, UtxoJobState::Cancelled, Some(UtxoJobEnd::Superseded))
    );
    assert_eq!((cancelled.started_at_ns, cancelled.ticks), (None, 0));
    for lower in [6, 7, 1] {
        assert_eq!(world.persisted(lower), UtxoNotifyOutcome::Underway(second.clone()));
    }
    assert_eq!(world.jobs().len(), 2, "a dropped height makes no job");
    assert_eq!(world.skipped("superseded"), 1.0);
}

#[test]
fn s2_2_primary_5_the_workflow_runs_for_the_height() {
    let world = World::new();
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    assert_eq!(world.count(&txs), 3, "nothing is done in the notification's own message");
    world.ticks(1);
    let done = world.last();
    assert_eq!((done.id, done.height, done.state), (job.id, 20, UtxoJobState::Completed));
    assert_eq!((done.current_height, done.safe_height, done.ticks), (Some(20), Some(20), 1));
    assert!(
        Some(job.created_at_ns) <= done.started_at_ns
            && done.started_at_ns <= done.ended_at_ns
            && done.instructions > 0
    );
    assert_eq!((world.count(&txs), world.status().last_processed_height), (0, 20));
}

#[test]
fn s2_2_deduplication_only_one_runs_at_a_time_and_the_highest_comes_next() {
    let world = World::new();
    world.slow();
    let (first, second) = (orphans(0..3), orphans(10..12));
    world.make_spent(10, &first);
    world.make_spent(13, &second);
    let running = World::scheduled(world.persisted(20));
    world.ticks(1);
    let pending = World::scheduled(world.persisted(21));
    let status = world.status();
    assert_eq!((status.running.unwrap().id, status.pending.unwrap().id), (running.id, pending.id));
    let highest = World::scheduled(world.persisted(23));
    assert_eq!(world.last().end, Some(UtxoJobEnd::Superseded));
    let UtxoNotifyOutcome::Underway(job) = world.persisted(20) else { panic!("it runs") };
    assert_eq!((job.id, job.state), (running.id, UtxoJobState::Running));
    let UtxoNotifyOutcome::Underway(job) = world.persisted(22) else { panic!("a higher one waits") };
    assert_eq!((job.id, job.state), (highest.id, UtxoJobState::Pending));
    world.ticks(2);
    assert_eq!((world.last().id, world.last().safe_height, world.count(&second)), (running.id, Some(20), 2));
    let done = world.finish(highest.id);
    assert_eq!((done.safe_height, done.counts.records_deleted, world.count(&second)), (Some(23), 2, 0));
    assert_eq!(world.jobs().iter().map(|job| job.id).collect::<Vec<_>>(), [highest.id, running.id, pending.id]);
}

#[test]
fn s2_2_a_processed_height_is_answered_with_its_jobs_state() {
    let world = World::new();
    let done = world.prune(20);
    for height in [20, 3, 19] {
        assert_eq!(world.persisted(height), UtxoNotifyOutcome::Processed(Some(done.clone())));
    }
    assert_eq!((world.skipped("already_processed"), world.jobs()), (3.0, vec![done.clone()]));
    world.coppice.upgrade();
    assert_eq!(world.persisted(20), UtxoNotifyOutcome::Processed(Some(done)));
    World::scheduled(world.persisted(21));
}

#[test]
fn s2_2_height_0_means_none_and_is_refused() {
    let world = World::new();
    let before = world.status();
    let persisted: Result<UtxoNotifyOutcome, UtxoPrunerError> =
        world.coppice.producer().utxo_notify_block_persisted(0u32).answer();
    assert_eq!(persisted, Err(UtxoPrunerError::BadHeight(BadHeight::Zero)));
    let block: Result<UtxoNotifyOutcome, UtxoPrunerError> =
        world.coppice.producer().utxo_notify_block(0u32, true).answer();
    assert_eq!(block, Err(UtxoPrunerError::BadHeight(BadHeight::Zero)));
    assert_eq!(world.status(), before);
}

#[test]
fn s2_2_fallback_3_a_block_is_a_trigger_only_while_nothing_was_persisted() {
    let world = World::new();
    let job = World::scheduled(world.block(5, true));
    assert_eq!((job.trigger, job.height), (UtxoJobTrigger::Block, 5));
    world.finish(job.id);
    assert_eq!(world.status().last_persisted_height, None);
    world.prune(6);
    for height in [7, 9, 8] {
        assert_eq!(world.block(height, true), UtxoNotifyOutcome::PersisterActive { last_persisted_height: 6 });
    }
    world.coppice.upgrade();
    assert_eq!(world.block(10, true), UtxoNotifyOutcome::PersisterActive { last_persisted_height: 6 });
    let status = world.status();
    assert_eq!((status.pending, world.skipped("persister_active")), (None, 4.0));
    // The block's height still counts as the current height.
    assert_eq!((status.current_height, status.last_persisted_height), (10, Some(6)));
    assert_eq!(world.prune(7).current_height, Some(10));
}

#[test]
fn s2_2_fallback_4_a_block_whose_transactions_are_not_marked_is_no_trigger() {
    let world = World::new();
    assert_eq!(world.block(5, false), UtxoNotifyOutcome::NotMined);
    world.ticks(1);
    let status = world.status();
    assert_eq!((status.current_height, status.last_processed_height, world.jobs()), (5, 0, vec![]));
    assert_eq!(world.skipped("not_mined"), 1.0);
    World::scheduled(world.block(5, true));
}

#[test]
fn s2_2_fallback_5_records_are_pruned_at_the_blocks_height() {
    let world = World::new();
    let (due, later) = (orphans(0..2), orphans(10..12));
    world.make_spent(10, &due);
    world.make_spent(11, &later);
    let job = World::scheduled(world.block(20, true));
    let done = world.finish(job.id);
    assert_eq!((done.current_height, done.safe_height), (Some(20), Some(20)), "no coordination");
    assert_eq!((world.count(&due), world.count(&later)), (0, 2));
}

#[test]
fn s2_7_catch_up_is_one_run_at_the_highest_height() {
    let world = World::new();
    let txs = orphans(0..40);
    for (height, tx) in (10..).zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    let heights = (20..=59).map(|height| World::scheduled(world.persisted(height)).height);
    assert_eq!(heights.collect::<Vec<_>>(), (20..=59).collect::<Vec<_>>());
    world.ticks(1);
    let jobs = world.jobs();
    let ended =
        |state: UtxoJobState| jobs.iter().filter(|job| job.state == state).map(|job| job.height).collect::<Vec<_>>();
    assert_eq!(ended(UtxoJobState::Completed), [59]);
    assert_eq!(ended(UtxoJobState::Cancelled), (20..59).rev().collect::<Vec<_>>(), "intermediate heights are skipped");
    assert_eq!((jobs.len(), world.skipped("superseded")), (40, 39.0));
    assert_eq!((world.count(&txs), world.status().totals.records_deleted), (0, 40));
    assert_eq!((world.status().pending, world.status().last_processed_height), (None, 59));
}
