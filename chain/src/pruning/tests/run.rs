//! Runs over ticks: budgets, pauses, and damage that is skipped.

use super::super::run::run as prune;
use super::*;
use crate::owners;

#[test]
fn a_tick_keeps_its_budgets_and_makes_progress_with_the_smallest() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append(10, 100, 1);
    for oldest in 1..=8 {
        world.tick();
        assert_eq!(world.oldest(), oldest, "one block a tick");
    }
    world.tick();
    assert_eq!(world.oldest(), 8);
    let last = world.status().last_run.unwrap();
    assert_eq!((last.progress, last.blocks, last.ticks), (PruneProgress::Finished, 8, 8), "one run over eight ticks");

    world.append(100, 100, 1);
    let mut policy = world.pruner.policy().unwrap().clone();
    policy.max_ops_per_tick = 1_000;
    policy.max_instructions_per_tick = 200_000;
    world.pruner.set_policy(policy);
    twin::with(|world| world.instructions_per_reading = 50_000);
    world.tick();
    let last = world.status().last_run.unwrap();
    assert_eq!(last.progress, PruneProgress::HasMore { reason: Some(StopReason::Instructions) });
    assert!((1..10).contains(&last.blocks), "{last:?}");
}

#[test]
fn the_daemon_stays_off_without_a_policy_cycles_or_permission() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), ..policy() });
    world.append(10, 100, 1);
    world.pruner.switch(false);
    world.tick();
    assert_eq!(world.oldest(), 0);
    world.pruner.switch(true);
    world.constraints.low_on_cycles = true;
    world.tick();
    assert_eq!(world.oldest(), 0);
    world.constraints.low_on_cycles = false;
    world.tick();
    assert_eq!(world.oldest(), 8);
}

#[test]
fn each_pause_is_logged_once() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1), ..policy() });
    world.append(10, 100, 1);
    let paused = || twin::with(|world| world.log.iter().filter(|line| line.contains("paused")).count());
    for (low, lines) in [(true, 1), (false, 1), (true, 2)] {
        world.constraints.low_on_cycles = low;
        (0..200).for_each(|_| {
            if low || world.oldest() == 0 {
                world.tick()
            }
        });
        assert_eq!(paused(), lines);
    }
}

#[test]
fn a_first_policy_switches_the_daemon_on_and_survives_an_upgrade() {
    fresh(CLASS);
    let open = || Pruner::open(testing::cells()).unwrap();
    let mut pruner = open();
    assert!(!pruner.is_enabled());
    let policy = PrunePolicy { retain_blocks: 7, ..PrunePolicy::default() };
    pruner.set_policy(policy.clone());
    assert!(pruner.is_enabled());
    let policy = PrunePolicy { pruning_enabled: false, ..policy };
    pruner.set_policy(policy.clone());
    pruner.set_policy(PrunePolicy { retain_blocks: 8, ..policy.clone() });
    assert!(!pruner.is_enabled());
    drop(pruner);
    let pruner = open();
    assert_eq!(pruner.policy(), Some(&PrunePolicy { retain_blocks: 8, ..policy }));
}

/// Damage does not stop the daemon: damage is counted, logged and skipped, and its space is accounted for.
#[test]
fn a_poisoned_header_and_a_poisoned_pointer_are_skipped_by_the_daemon() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(2), ..policy() });
    world.append(12, CLASS as usize, 1);
    world.chain.poison_header(3);
    world.chain.poison_log(5);
    let kept = world.blobs.arena().kept_bytes(owners::CHAIN);
    world.tick();
    let status = world.status();
    assert_eq!((status.pruned_before_block, status.pruned_blocks, status.faults > 0), (9, 9, true), "{status:?}");
    assert_eq!(status.last_run.unwrap().faults, status.faults);
    let log = twin::with(|world| world.log.join("\n"));
    assert!(log.contains("block 3") && log.contains("blob 5"), "{log}");
    let freed = (kept - world.blobs.arena().kept_bytes(owners::CHAIN)) / u64::from(CLASS);
    assert_eq!(
        freed,
        world.chain.meta(9).unwrap().log_offset / u64::from(CLASS),
        "all but the kept blobs, the lost one included"
    );
    world.append(30, CLASS as usize, 1);
    world.tick();
    assert_eq!((world.oldest(), world.status().faults), (39, status.faults), "later blocks are pruned");
}

/// Faults that a rollback skips are added to those of the pruner and survive an upgrade.
#[test]
fn faults_of_a_rollback_are_counted() {
    let mut world = world(policy());
    world.append(3, 10, 1);
    world.chain.poison_header(2);
    let removed = world.chain.remove_head(&mut world.blobs).unwrap();
    world.pruner.freed_outside_runs(&world.chain, &world.blobs, removed.faults.len() as u64);
    world.pruner.freed_outside_runs(&world.chain, &world.blobs, 0);
    assert_eq!(world.status().faults, 1);
    world.pruner = Pruner::open(testing::cells()).unwrap();
    assert_eq!(world.status().faults, 1);
}

/// The timer library may deliver a firing twice.
#[test]
fn a_second_tick_at_the_same_moment_changes_nothing() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(5), ..policy() });
    world.append(30, 1_000, 1);
    world.tick();
    let status = world.status();
    assert_eq!(status.pruned_before_block, 24);
    world.tick();
    assert_eq!(world.status(), status);
}

#[test]
fn switching_pruning_off_ends_the_run() {
    let mut world = world(PrunePolicyArg { retain_blocks: Some(5), max_ops_per_tick: Some(4), ..policy() });
    world.append(30, 1_000, 1);
    world.tick();
    assert_eq!((world.status().running, world.status().runs), (true, 1));
    world.pruner.switch(false);
    assert!(!world.status().running);
    world.pruner.switch(true);
    world.tick();
    assert_eq!((world.status().running, world.status().runs), (true, 2));
    world.hold_at(0);
    world.tick();
    assert!(!world.status().running, "held back: later work is another run");
}

/// Emptying the chain forgets its skipped blocks, because the next chain may have a block of the same number.
#[test]
fn a_reset_forgets_the_skipped_blocks() {
    let mut world = world(policy());
    let slice = Piece::Slice(crate::IndexTable::Keys, 128);
    [Piece::Block(5), slice, Piece::Undo, Piece::Upload]
        .into_iter()
        .for_each(|piece| world.pruner.stored.turns.skip(piece));
    world.pruner.reset();
    assert_eq!(world.pruner.stored.turns.skipped(), [slice, Piece::Upload]);
}

#[test]
fn a_run_stops_at_its_budget_and_resumes_there() {
    let mut world = world(policy());
    // One blob per block, which is 3 ops.
    world.append(9, CLASS as usize - 53, 1);
    world.chain.poison_header(4);
    let due = Due { reason: PruneReason::Retention, target: 5, before: 5, held_by: None };
    let mut run = |due: Option<&Due>, ops| {
        let budget = &mut Budget::new(ops, 1 << 40);
        prune(&mut world.chain, &mut world.blobs, due, budget, &[])
    };
    let first = run(Some(&due), 7);
    let bytes = 2 * u64::from(CLASS);
    assert_eq!((first.blocks, first.ops, first.blobs, first.bytes, first.faults), (2, 6, 2, bytes, 0));
    assert_eq!(first.progress, PruneProgress::HasMore { reason: Some(StopReason::Ops) });
    let rest = run(Some(&due), 100);
    assert_eq!((rest.blocks, rest.progress, rest.faults), (3, PruneProgress::Finished, 1));
    let held = Due { target: 9, before: 6, ..due };
    let held = run(Some(&held), 100);
    assert_eq!((held.blocks, held.target), (1, 9));
    assert_eq!(held.progress, PruneProgress::HasMore { reason: Some(StopReason::Guard) });
    let none = run(None, 100);
    assert_eq!((none.blocks, none.reason, none.progress), (0, None, PruneProgress::Finished));
}

/// Each blob of the log lies in another 8 MiB of memory, where no two entries of the arena share a page.
#[test]
fn an_op_of_a_block_changes_at_most_a_page() {
    const BLOBS: usize = 300;
    let mut world = world(PrunePolicyArg { retain_blocks: Some(1), max_ops_per_tick: Some(1_000_000), ..policy() });
    let others: Vec<_> = (0..128 * BLOBS).map(|_| world.blobs.allocate(CLASS, owners::KEY_INDEX).unwrap()).collect();
    for other in others.iter().step_by(128) {
        world.blobs.free(other).unwrap();
        world.blobs.release(other).unwrap();
    }
    world.append(BLOBS as u64 / 2, 2 * CLASS as usize - 53, 1);
    let (_, touched) = twin::touching(|| world.tick());
    let run = world.status().last_run.unwrap();
    assert!(run.ticks == 1 && run.blobs > BLOBS as u64 - 10, "{run:?}");
    let changed = touched.dirtied.len() as u64;
    assert!(changed > run.blobs, "scattered: {changed} pages");
    assert!(changed <= run.ops + 40, "{changed} pages, {} ops", run.ops);
}
