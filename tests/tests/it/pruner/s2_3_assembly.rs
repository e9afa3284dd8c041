//! 2.3, the safety check: records are pruned only while the block assembly is running.

use super::world::*;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::UtxoBlockAssemblyState::{NotRunning, Running};
use ic_coppice_interface::*;

#[test]
fn s2_3_safety_check_no_run_begins_while_the_assembly_is_not_running() {
    let world = World::new();
    let txs = orphans(0..2);
    world.make_spent(10, &txs);
    world.assembly(NotRunning);
    let job = World::scheduled(world.persisted(20));
    world.ticks(3);
    world.coppice.upgrade();
    world.ticks(2);
    let status = world.status();
    assert_eq!((status.pending, status.running, status.last_job), (Some(job.clone()), None, None));
    assert_eq!((world.count(&txs), status.last_processed_height), (2, 0));
    assert_eq!(world.skipped("block_assembly_not_running"), 1.0, "once, however many ticks find it so");
    // A job for a higher height replaces it, and does not begin either.
    let higher = World::scheduled(world.persisted(21));
    world.ticks(2);
    assert_eq!(world.skipped("block_assembly_not_running"), 2.0);
    world.assembly(Running);
    assert_eq!(world.finish(higher.id).counts.records_deleted, 2);
    assert_eq!(world.skipped("block_assembly_not_running"), 2.0);
}

#[test]
fn s2_3_safety_check_a_run_under_way_stops_and_its_height_waits() {
    let world = World::new();
    world.slow();
    let txs = orphans(0..6);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    world.ticks(2);
    assert_eq!(world.count(&txs), 4);
    world.assembly(NotRunning);
    world.ticks(1);
    let status = world.status();
    let stopped = status.last_job.unwrap();
    assert_eq!((stopped.id, stopped.state, stopped.ticks), (job.id, UtxoJobState::Cancelled, 2));
    assert_eq!((stopped.end, stopped.counts.records_deleted), (Some(UtxoJobEnd::BlockAssemblyNotRunning), 2));
    let pending = status.pending.unwrap();
    assert_eq!((pending.height, pending.trigger, pending.state), (20, UtxoJobTrigger::Resumed, UtxoJobState::Pending));
    assert_eq!((status.running, status.last_processed_height), (None, 0));
    world.ticks(3);
    world.coppice.upgrade();
    world.ticks(1);
    assert_eq!((world.count(&txs), world.skipped("block_assembly_not_running")), (4, 1.0));
    world.assembly(Running);
    let done = world.finish(pending.id);
    assert_eq!((done.counts.records_deleted, done.height, world.count(&txs)), (4, 20, 0));
    let status = world.status();
    assert_eq!((status.totals.records_deleted, status.last_processed_height), (6, 20));
}

#[test]
fn s2_3_safety_check_a_waiting_higher_height_replaces_a_stopped_one() {
    let world = World::new();
    world.slow();
    let txs = orphans(0..4);
    world.make_spent(10, &txs);
    World::scheduled(world.persisted(20));
    world.ticks(1);
    let higher = World::scheduled(world.persisted(25));
    world.assembly(NotRunning);
    world.ticks(1);
    assert_eq!(world.status().pending, Some(higher.clone()));
    world.assembly(Running);
    world.finish(higher.id);
    assert_eq!((world.count(&txs), world.jobs().len()), (0, 2));
}

/// A stop and a start between two ticks: no tick sees the stop, but phase 1 still examines transactions that became unmined meanwhile, and
/// its earlier work remains valid.
#[test]
fn s2_3_safety_check_a_short_stop_restarts_the_run() {
    let world = World::new();
    world.slow();
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    let txs = orphans(10..14);
    world.create(1, &[&parent]);
    world.mine(1, &[&parent]);
    world.create(12, &[&child]);
    world.spend(12, &child, &[&parent]);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    world.ticks(3);
    assert_eq!(world.status().running.unwrap().counts.old_unmined, 1);
    world.assembly(NotRunning);
    let late = last_of(&txs[3], 0);
    world.create(11, &[&late]);
    world.assembly(Running);
    let done = world.finish(job.id);
    assert_eq!((done.counts.old_unmined, done.counts.parents_preserved), (2, 2));
    assert_eq!((done.counts.records_deleted, world.count(&txs)), (3, 1));
    assert_eq!(world.heights(&txs[3]), (None, Some(20 + PRESERVATION)));
    assert_eq!(world.skipped("block_assembly_not_running"), 0.0);
}

#[test]
fn s2_3_safety_check_no_record_is_deleted_above_the_height_of_the_assembly() {
    let world = World::new();
    let txs = orphans(0..4);
    // Due at 20 to 23.
    for (height, tx) in (10..).zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    world.assembly_at(20);
    let job = world.prune(22);
    assert_eq!((job.current_height, job.safe_height), (Some(22), Some(20)));
    assert_eq!(world.have_records(&txs), [false, true, true, true]);
    let status = world.status();
    assert_eq!((status.block_assembly_height, status.safe_height, status.last_processed_height), (Some(20), 20, 20));
    // A higher height makes a job for what the lower one has left; the same height makes none.
    world.assembly_at(21);
    let due = world.status().pending.unwrap();
    assert_eq!((due.trigger, due.height), (UtxoJobTrigger::Due, 21));
    assert_eq!(world.finish(due.id).counts.records_deleted, 1);
    world.coppice.upgrade();
    world.assembly_at(21);
    assert_eq!(world.status().pending, None);
    // A lower height bounds, too, and no height bounds nothing.
    world.assembly_at(0);
    assert_eq!((world.prune(23).counts.records_deleted, world.status().safe_height), (0, 0));
    world.assembly(Running);
    let done = world.finish(world.status().pending.unwrap().id);
    assert_eq!((done.safe_height, done.counts.records_deleted, world.count(&txs)), (Some(23), 2, 0));
    world.assembly_at(u32::MAX);
    assert_eq!((world.status().safe_height, world.status().pending), (23, None));
}

/// Without a block persister, too. The run's safe height falls with the assembly's.
#[test]
fn s2_3_safety_check_an_assembly_that_falls_back_in_the_middle_of_a_run_protects_records() {
    let world = World::new();
    world.slow();
    let (low, high) = (orphans(0..2), orphans(10..12));
    world.make_spent(10, &low);
    world.make_spent(80, &high);
    world.assembly_at(100);
    let job = World::scheduled(world.block(100, true));
    world.ticks(1);
    world.assembly_at(50);
    let done = world.finish(job.id);
    assert_eq!((done.safe_height, done.counts.records_deleted), (Some(50), 2));
    assert_eq!((world.count(&low), world.count(&high), world.status().last_processed_height), (0, 2, 50));
    world.assembly_at(90);
    let done = world.finish(world.status().pending.unwrap().id);
    assert_eq!((done.safe_height, done.counts.records_deleted, world.count(&high)), (Some(90), 2, 0));
}
