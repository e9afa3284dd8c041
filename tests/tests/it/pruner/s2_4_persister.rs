//! 2.4: coordination with the block persister.

use super::world::*;
use ic_coppice_interface::*;

#[test]
fn s2_4_2_the_persisted_height_bounds_what_is_deleted() {
    let world = World::new();
    world.block(100, false);
    assert_eq!(world.status().safe_height, 100);
    world.persisted(60);
    let status = world.status();
    assert_eq!((status.current_height, status.last_persisted_height, status.safe_height), (100, Some(60), 60));
}

#[test]
fn s2_4_3_a_persister_ahead_of_the_notified_blocks_is_itself_the_current_height() {
    let world = World::new();
    world.block(90, true);
    let job = world.prune(95);
    assert_eq!((job.current_height, job.safe_height), (Some(95), Some(95)));
}

/// The chain is at 100, blocks are persisted up to 95.
#[test]
fn s2_4_4_the_worked_example() {
    let world = World::new();
    let txs = orphans(0..6);
    // Due at 95 to 100.
    for (height, tx) in (85..).zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    world.block(100, false);
    let job = world.prune(95);
    assert_eq!((job.current_height, job.safe_height), (Some(100), Some(95)), "min(100, 95)");
    assert_eq!(world.have_records(&txs), [false, true, true, true, true, true]);
    // 96 to 100 are protected until they are persisted, each separately.
    for (persisted, left) in [(96, 4), (97, 3), (99, 1), (100, 0)] {
        world.prune(persisted);
        assert_eq!(world.count(&txs), left);
    }
}

#[test]
fn s2_4_5_without_the_persister_the_current_height_is_safe() {
    let world = World::new();
    let txs = orphans(0..3);
    for (height, tx) in [85, 90, 91].into_iter().zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    let job = World::scheduled(world.block(100, true));
    let done = world.finish(job.id);
    assert_eq!(
        (world.status().last_persisted_height, done.current_height, done.safe_height),
        (None, Some(100), Some(100))
    );
    assert_eq!(world.have_records(&txs), [false, false, true]);
}

/// 2.3 phase 2.2 as written there, enabled by a setting.
#[test]
fn s2_3_phase_2_2_the_safe_height_is_persisted_plus_the_smallest_retention_ever() {
    let world = World::as_installed();
    world.assembly(UtxoBlockAssemblyState::Running);
    let plus = Some(UtxoSafeHeightRule::PersistedPlusRetention);
    world.set(UtxoPrunerSettingsChange { safe_height_rule: plus, ..Default::default() });
    let safe = || world.status().safe_height;
    world.block(1_000, false);
    assert_eq!(safe(), 1_000, "nothing is persisted");
    let txs = orphans(0..3);
    world.persisted(100);
    assert_eq!(safe(), 388);
    world.retention(50);
    assert_eq!(safe(), 150);
    // Due at 150 and 151; and at 500, under a longer retention.
    for (height, tx) in [100, 101].into_iter().zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    world.retention(400);
    world.make_spent(100, &txs[2..]);
    assert_eq!(safe(), 150, "records may have got their height by the smaller one");
    world.retention(0);
    world.coppice.upgrade();
    assert_eq!(safe(), 150, "0 gives no record a height");
    world.retention(400);
    let done = world.finish(world.status().pending.unwrap().id);
    assert_eq!((done.current_height, done.safe_height), (Some(1_000), Some(150)));
    assert_eq!(world.have_records(&txs), [false, true, true]);
    world.persisted(990);
    assert_eq!(safe(), 1_000, "no more than the current height");
    let persisted = Some(UtxoSafeHeightRule::Persisted);
    world.set(UtxoPrunerSettingsChange { safe_height_rule: persisted, ..Default::default() });
    assert_eq!(safe(), 990);
}

/// The fallback has begun a run up to 100, and the persister begins in the middle of it.
#[test]
fn s2_4_3_a_persister_that_begins_in_the_middle_of_a_run_protects_unpersisted_blocks() {
    let world = World::new();
    world.slow();
    let (low, high) = (orphans(0..3), orphans(10..13));
    world.make_spent(10, &low);
    world.make_spent(80, &high);
    let job = World::scheduled(world.block(100, true));
    world.ticks(1);
    assert!(matches!(world.persisted(50), UtxoNotifyOutcome::Underway(under) if under.id == job.id));
    let done = world.finish(job.id);
    assert_eq!((done.safe_height, done.counts.records_deleted), (Some(50), 3));
    assert_eq!((world.count(&low), world.count(&high)), (0, 3));
    // Unpersisted blocks are not processed: the next persisted block prunes them.
    assert_eq!(world.status().last_processed_height, 50);
    let done = world.prune(90);
    assert_eq!((done.safe_height, done.counts.records_deleted, world.count(&high)), (Some(90), 3, 0));
}

#[test]
fn s2_4_3_a_manual_run_above_the_persisted_height_does_not_block_later_runs() {
    let world = World::new();
    let due = orphans(0..3);
    world.make_spent(80, &due);
    world.block(100, false);
    world.prune(50);
    let job = world.prune_manually(100).unwrap();
    assert_eq!((job.state, job.safe_height, world.count(&due)), (UtxoJobState::Completed, Some(50), 3));
    assert_eq!(world.status().last_processed_height, 50);
    assert_eq!(world.prune(90).counts.records_deleted, 3);
}
