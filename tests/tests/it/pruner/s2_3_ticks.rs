//! 2.3 over many ticks: persisted positions, the job's timeout, progress, metrics.

use super::world::*;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::{Host, TrapPoint};
use ic_coppice_interface::*;

/// Makes records that are due at 20, and old unmined ones with parents.
fn work(world: &World, families: u64, records: u64) -> (Vec<Tx>, Vec<Tx>) {
    let parents = orphans(0..families);
    for (salt, parent) in (1_000..).zip(&parents) {
        let child = Tx::of(salt, &[(parent.txid, 0)], 1);
        world.create(10, &[parent, &child]);
        world.mine(10, &[parent]);
        world.spend(10, &child, &[parent]);
    }
    let due = orphans(100..100 + records);
    world.make_spent(10, &due);
    (parents, due)
}

#[test]
fn s2_3_a_run_resumes_at_its_position_in_each_tick() {
    let world = World::new();
    world.slow();
    let (parents, due) = work(&world, 4, 8);
    let job = World::scheduled(world.persisted(20));
    let mut looked_at = 0;
    for tick in 1..12 {
        world.ticks(1);
        let running = world.status().running.unwrap();
        assert_eq!((running.id, running.ticks, running.state), (job.id, tick, UtxoJobState::Running));
        assert_eq!(running.progress, PruneProgress::HasMore { reason: Some(StopReason::Instructions) });
        let now = running.counts.old_unmined + running.counts.processed;
        assert_eq!(now, looked_at + 1, "one per tick");
        looked_at = now;
    }
    let done = world.finish(job.id);
    assert_eq!((done.ticks, world.count(&due), world.count(&parents)), (12, 0, 4));
}

#[test]
fn s2_3_an_upgrade_after_every_tick_loses_nothing_and_does_nothing_twice() {
    let run = |after_each: &dyn Fn(&World)| {
        let world = World::new();
        world.slow();
        let (parents, due) = work(&world, 5, 9);
        let job = World::scheduled(world.persisted(20));
        for _ in 0..14 {
            after_each(&world);
            assert_eq!(world.status().last_job, None);
            world.ticks(1);
        }
        after_each(&world);
        let done = world.last();
        assert_eq!((done.id, done.state, done.ticks), (job.id, UtxoJobState::Completed, 14));
        assert_eq!((world.count(&due), world.count(&parents)), (0, 5));
        assert!(parents.iter().all(|parent| world.heights(parent) == (None, Some(20 + PRESERVATION))));
        assert_eq!(world.status().totals, done.counts);
        assert_eq!((world.status().running, world.status().pending), (None, None));
        done.counts
    };
    let undisturbed = run(&|_| ());
    let expected = UtxoPruneCounts {
        old_unmined: 5,
        parents_preserved: 5,
        processed: 9,
        records_deleted: 9,
        chunks: 9,
        ..UtxoPruneCounts::default()
    };
    assert_eq!(undisturbed, expected);
    assert_eq!(run(&|world| world.coppice.upgrade()), undisturbed);
}

/// A firing is three messages: the platform's, the library's call to itself, its answer.
#[test]
fn s2_3_a_trap_in_any_message_of_a_tick_changes_nothing() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let world = World::on(coppice);
    world.slow();
    world.set(UtxoPrunerSettingsChange { job_timeout_secs: Some(6_000), ..Default::default() });
    let (parents, due) = work(&world, 2, 60);
    let job = World::scheduled(world.persisted(20));
    let points = [TrapPoint::Start, TrapPoint::SystemCall(20), TrapPoint::End];
    let mut struck = 0;
    for (k, point) in (1..=3).flat_map(|k| points.map(|point| (k, point))) {
        let injected = host.faults().injected();
        host.faults().trap_message(k, point);
        world.ticks(1);
        host.faults().clear();
        struck += host.faults().injected() - injected;
        let counted = world.status().totals.records_deleted as usize;
        assert_eq!(
            counted + world.count(&due),
            due.len(),
            "message {k}, {point:?}: the counts match the deleted records"
        );
        // If the platform's timer is lost, a producer's message wakes it.
        world.coppice.pass(2 * TICK);
        world.persisted(20);
    }
    assert!(world.status().running.is_some(), "the faults struck while it ran");
    assert!(struck >= 7, "{struck} faults struck");
    let job = world.finish(job.id);
    let counts =
        UtxoPruneCounts { old_unmined: 2, parents_preserved: 2, processed: 60, records_deleted: 60, ..job.counts };
    assert_eq!((job.counts, job.state, world.count(&due)), (counts, UtxoJobState::Completed, 0));
    assert_eq!((world.count(&parents), world.status().totals), (2, counts));
}

/// More inputs than one message can update: the record is marked first, and finished before anything else.
#[test]
fn s2_3_a_record_with_many_inputs_is_deleted_over_several_ticks() {
    let world = World::new();
    let parents: Vec<Tx> = (0..3).map(|salt| Tx::orphan(salt, 2)).collect();
    world.create(9, &parents.iter().collect::<Vec<_>>());
    world.mine(9, &parents.iter().collect::<Vec<_>>());
    let mut inputs: Vec<([u8; 32], u32)> = (0..25_000).map(|i| ([7; 32], i)).collect();
    for (at, parent) in [0, 12_000, 24_999].into_iter().zip(&parents) {
        inputs[at] = (parent.txid, 0);
    }
    let large = Tx::of(10, &inputs, 1);
    let small = orphans(20..22);
    world.spend(9, &large, &parents.iter().collect::<Vec<_>>());
    world.make_spent(10, std::slice::from_ref(&large));
    world.make_spent(10, &small);
    world.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let job = World::scheduled(world.persisted(20));
    let are_marked = || which(parents.iter().map(|parent| world.record(parent).unwrap().deleted_children.pop()));
    world.ticks(1);
    assert!(world.record(&large).unwrap().being_deleted, "the record is marked before any parent is updated");
    assert_eq!(are_marked(), [false; 3]);
    world.coppice.upgrade();
    world.ticks(1);
    assert_eq!(are_marked(), [true, false, false]);
    // A marked record cannot be restored, not even by a reorg; and look-ups do not find it.
    world.assembly(UtxoBlockAssemblyState::NotRunning);
    world.ticks(1);
    assert_eq!(world.last().end, Some(UtxoJobEnd::BlockAssemblyNotRunning));
    let of_large = Tx::of(30, &[(large.txid, 0)], 1);
    let refused = world.try_spend(20, &of_large, &[&large]).unwrap_err();
    assert_eq!(refused[0].error, UtxoSpendError::TxNotFound);
    let batch = crate::utxo::create(&world.coppice, 20, vec![large.record()]);
    assert_eq!(batch.results, [Err(UtxoCreateError::BeingDeleted)]);
    world.assembly(UtxoBlockAssemblyState::Running);
    world.ticks(1);
    assert_eq!((world.count(&small), world.record(&large).is_some()), (2, true), "before anything else");
    let done = world.finish(job.id + 1);
    assert_eq!((are_marked(), world.record(&large), world.count(&small)), (vec![true; 3], None, 0));
    let totals = world.status().totals;
    assert_eq!((totals.records_deleted, totals.parents_updated, totals.processed), (3, 3, 3));
    assert_eq!(done.height, 20);
}

#[test]
fn s2_3_a_job_that_times_out_leaves_its_position_to_the_next_one() {
    let world = World::new();
    world.slow();
    world.set(UtxoPrunerSettingsChange { job_timeout_secs: Some(25), ..Default::default() });
    let (parents, due) = work(&world, 2, 5);
    let later = orphans(500..502);
    world.make_spent(13, &later);
    let first = World::scheduled(world.persisted(20));
    // Ticks at 10, 20 and 30 s; at 40 s the job is 30 s old and times out, and the next job takes over its position.
    world.ticks(4);
    let timed_out = world.last();
    assert_eq!(
        (timed_out.id, timed_out.state, timed_out.end),
        (first.id, UtxoJobState::Failed, Some(UtxoJobEnd::TimedOut))
    );
    assert_eq!((timed_out.ticks, timed_out.counts.old_unmined, timed_out.counts.processed), (3, 2, 1));
    let second = world.status().running.unwrap();
    assert_eq!((second.height, second.trigger, second.ticks), (20, UtxoJobTrigger::Resumed, 1));
    assert_eq!((second.counts.old_unmined, second.counts.processed), (0, 1), "phase 1 is not done again");
    // A job for a higher height takes over the position, too, and then does its own run.
    let third = World::scheduled(world.persisted(23));
    world.ticks(3);
    assert_eq!((world.last().id, world.last().end), (second.id, Some(UtxoJobEnd::TimedOut)));
    assert_eq!(world.status().running.unwrap().id, third.id);
    world.set(UtxoPrunerSettingsChange { job_timeout_secs: Some(600), ..Default::default() });
    let done = world.finish(third.id);
    assert_eq!((done.height, done.counts.old_unmined), (23, 0), "a preservation of three blocks before still holds");
    assert_eq!((world.count(&due), world.count(&later), world.count(&parents)), (0, 0, 2));
    let status = world.status();
    assert_eq!((status.totals.records_deleted, status.last_processed_height), (7, 23));
    assert_eq!(world.metric("pruner_errors_total", Some("timeout")), 2.0);
    assert!(parents.iter().all(|parent| world.heights(parent).1 == Some(20 + PRESERVATION)));
}

/// The daemon obeys `min_liquid_cycles` in all its work.
#[test]
fn s2_3_low_cycles_pause_a_run_which_resumes_at_its_position() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let world = World::on(coppice);
    world.slow();
    let due = orphans(0..4);
    world.make_spent(10, &due);
    let floor = ConfigChange {
        min_liquid_cycles: Some(50_000_000_000_000),
        feed_min_liquid_cycles: Some(1),
        ..ConfigChange::default()
    };
    world.coppice.operator().set_config(&floor).answer().unwrap();
    let job = World::scheduled(world.persisted(20));
    world.ticks(1);
    host.faults().low_cycles(world.coppice.id, 20_000_000_000_000);
    world.ticks(3);
    assert_eq!((world.count(&due), world.status().running.unwrap().ticks), (3, 1));
    host.add_cycles(world.coppice.id, 100_000_000_000_000);
    // Any next message notices the cycles.
    world.coppice.operator().acknowledge_faults(0u64).answer();
    let done = world.finish(job.id);
    assert_eq!((done.ticks, done.counts.records_deleted, world.count(&due)), (4, 4, 0));
}

fn progress_lines(world: &World, host: &Host) -> Vec<String> {
    let lines = host.fetch_canister_logs(world.coppice.id).into_iter();
    let lines = lines.map(|line| String::from_utf8_lossy(&line.content).into_owned());
    lines.filter(|line| line.starts_with("pruner: job")).collect()
}

#[test]
fn s2_3_phase_2_4_progress_is_logged_at_the_configured_interval() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let world = World::on(coppice);
    world.slow();
    let due = orphans(0..9);
    world.make_spent(10, &due);
    let job = World::scheduled(world.persisted(20));
    assert_eq!((world.finish(job.id).ticks, world.settings().utxo_progress_log_interval_secs), (9, 30));
    let lines = progress_lines(&world, &host);
    assert_eq!(lines.len(), 2, "30 and 60 of 80 seconds: {lines:?}");
    for (line, deleted) in lines.iter().zip([4, 7]) {
        assert!(line.contains("for height 20") && line.contains(&format!("{deleted} deleted")), "{line}");
    }
    world.set(UtxoPrunerSettingsChange { utxo_progress_log_interval_secs: Some(0), ..Default::default() });
    let more = orphans(20..29);
    world.make_spent(20, &more);
    assert_eq!(world.prune(30).ticks, 9);
    assert_eq!(progress_lines(&world, &host).len(), 2, "0 is none");
}

#[test]
fn s2_3_phase_2_6_metrics_have_the_specified_names_and_counts() {
    let world = World::new();
    let two = UtxoPrunerSettingsChange {
        utxo_chunk_size: Some(2),
        utxo_chunk_group_limit: Some(1),
        ..UtxoPrunerSettingsChange::default()
    };
    world.set(two);
    let grandparent = Tx::orphan(7, 2);
    let spender = Tx::of(8, &[(grandparent.txid, 0)], 1);
    world.create(10, &[&grandparent]);
    world.mine(10, &[&grandparent]);
    world.spend(10, &spender, &[&grandparent]);
    world.make_spent(10, std::slice::from_ref(&spender));
    let (_, due) = work(&world, 1, 6);
    let duration =
        |kind: &str, operation: &str| world.metric(&format!("pruner_duration_seconds_{kind}"), Some(operation));
    for operation in ["preserve_parents", "dah_pruner"] {
        assert_eq!((duration("sum", operation), duration("count", operation)), (0.0, 0.0));
    }
    World::scheduled(world.persisted(20));
    world.ticks(1);
    assert_eq!((world.metric("pruner_active", None), world.metric("pruner_current_height", None)), (1.0, 0.0));
    // Two records a tick, the first tick after an old unmined record and its parent: 10, 20, 30 and 40 s.
    world.ticks(3);
    assert_eq!((world.last().state, world.last().ticks, world.count(&due)), (UtxoJobState::Completed, 4, 0));
    assert_eq!((world.metric("pruner_active", None), world.metric("pruner_current_height", None)), (0.0, 20.0));
    assert_eq!((duration("sum", "preserve_parents"), duration("count", "preserve_parents")), (0.0, 1.0));
    assert_eq!((duration("sum", "dah_pruner"), duration("count", "dah_pruner")), (30.0, 1.0));
    assert_eq!(world.metric("utxo_cleanup_batch_duration_seconds_sum", None), 30.0);
    assert_eq!(world.metric("utxo_cleanup_batch_duration_seconds_count", None), 4.0);
    for (name, count) in [
        ("pruner_processed_total", 7.0),
        ("utxo_pruner_records_deleted_total", 7.0),
        ("utxo_pruner_parents_updated_total", 1.0),
        ("coppice_utxo_pruner_parents_preserved_total", 1.0),
        ("utxo_pruner_external_files_deleted_total", 0.0),
    ] {
        assert_eq!(world.metric(name, None), count, "{name}");
    }
    for reason in ["block_assembly_not_running", "already_processed", "superseded", "persister_active", "not_mined"] {
        assert_eq!(world.skipped(reason), 0.0);
    }
    for operation in ["preserve_parents", "dah_pruner"] {
        assert_eq!(world.metric("pruner_errors_total", Some(operation)), 0.0);
    }
    let before = world.status().metrics;
    world.coppice.upgrade();
    assert_eq!(world.status().metrics, before);
}
