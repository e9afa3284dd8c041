//! 2.5: defensive mode.

use super::world::*;
use crate::utxo::{all_ok, spend};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// Defensive mode with pages of two outputs, looking up `batch` spenders at a time.
fn defensive(batch: u32) -> World {
    let world = World::new();
    world.configure(UtxoSettingsChange { utxo_batch_size: Some(2), ..Default::default() });
    world.set(UtxoPrunerSettingsChange {
        utxo_defensive_enabled: Some(true),
        utxo_defensive_batch_read_size: Some(batch),
        ..UtxoPrunerSettingsChange::default()
    });
    world
}

/// A parent with `outputs` outputs, mined at 10, each spent at 10 by a child. The feeder names the children as spenders, but they have no such
/// input: else phase 1 would preserve the parent of an unmined child.
fn family(world: &World, salt: u64, outputs: u32) -> (Tx, Vec<Tx>) {
    let parent = Tx::orphan(salt, outputs);
    let children: Vec<Tx> = (0..outputs).map(|vout| Tx::orphan(salt + 1_000 + u64::from(vout), 1)).collect();
    world.create(10, &[&parent]);
    world.create(10, &children.iter().collect::<Vec<_>>());
    world.mine(10, &[&parent]);
    let spends = (0..)
        .zip(&children)
        .map(|(vout, child)| TransactionSpends { spender: child.id(), spends: vec![parent.spend(vout, 0)] });
    all_ok(spend(&world.coppice, 10, spends.collect()));
    assert_eq!(world.heights(&parent).0, Some(20));
    (parent, children)
}

/// The reasons that a job counted: unmined, recent, absent.
fn reasons(counts: &UtxoPruneCounts) -> [u64; 3] {
    [counts.skipped_child_unmined, counts.skipped_child_recent, counts.skipped_child_absent]
}

#[test]
fn s2_5_2_a_record_stays_while_any_child_on_any_page_is_unmined_or_recent() {
    for batch in [1, 2, 3, 10_000] {
        for unstable in 0..5 {
            let world = defensive(batch);
            let (parent, children) = family(&world, 1, 5);
            let stable: Vec<&Tx> =
                children.iter().enumerate().filter(|(i, _)| *i != unstable).map(|(_, c)| c).collect();
            world.mine(10, &stable);
            let job = world.prune(20);
            assert_eq!((reasons(&job.counts), job.counts.records_deleted), ([1, 0, 0], 0), "{batch}, {unstable}");
            // Mined at 21, it is stable at 31.
            world.mine(21, &[&children[unstable]]);
            let job = world.prune(30);
            assert_eq!((reasons(&job.counts), job.counts.records_deleted), ([0, 1, 0], 0), "{batch}, {unstable}");
            let job = world.prune(31);
            assert_eq!((reasons(&job.counts), job.counts.records_deleted), ([0; 3], 1), "{batch}, {unstable}");
            assert!(world.record(&parent).is_none());
            assert_eq!(world.count(&children), 5, "they have unspent outputs");
        }
    }
}

#[test]
fn s2_5_2_a_child_without_a_record_is_not_stable() {
    let world = defensive(10_000);
    let parent = Tx::orphan(1, 5);
    world.make_spent(10, std::slice::from_ref(&parent));
    for height in [20, 20 + RETENTION] {
        let job = world.prune(height);
        assert_eq!((reasons(&job.counts), job.counts.processed, job.counts.records_deleted), ([0, 0, 1], 1, 0));
    }
    assert_eq!(world.heights(&parent).0, Some(20), "it is examined again after this many blocks");
    for (reason, count) in [("child_absent", 2.0), ("child_unmined", 0.0), ("child_recent", 0.0)] {
        assert_eq!(world.metric("coppice_utxo_pruner_records_skipped_total", Some(reason)), count);
    }
}

#[test]
fn s2_5_2_stability_counts_from_the_childs_highest_block() {
    let world = defensive(10_000);
    let (parent, children) = family(&world, 1, 1);
    world.mine(12, &[&children[0]]);
    world.mine(15, &[&children[0]]);
    assert_eq!(reasons(&world.prune(24).counts), [0, 1, 0]);
    world.prune(25);
    assert!(world.record(&parent).is_none());
}

#[test]
fn s2_5_3_kept_records_do_not_keep_others() {
    let world = defensive(10_000);
    let (kept, _) = family(&world, 1, 1);
    let (gone, children) = family(&world, 2, 1);
    let absent = Tx::orphan(3, 1);
    world.make_spent(10, std::slice::from_ref(&absent));
    world.mine(10, &[&children[0]]);
    let job = world.prune(20);
    assert_eq!((reasons(&job.counts), job.counts.processed, job.counts.records_deleted), ([1, 0, 1], 3, 1));
    assert_eq!(world.have_records(&[kept, gone, absent]), [true, false, true]);
}

#[test]
fn s2_5_4_a_child_that_was_deleted_is_stable() {
    let world = defensive(10_000);
    let parent = Tx::orphan(1, 1);
    let child = last_of(&parent, 0);
    let never = Tx::orphan(2, 1);
    world.create(10, &[&parent, &child, &never]);
    // The child is due at 20, the parents at 25.
    world.mine(10, &[&child]);
    world.mine(15, &[&parent, &never]);
    world.spend(15, &child, &[&parent]);
    world.spend_by_stranger(15, &never, 0..1);
    let job = world.prune(20);
    assert_eq!((job.counts.records_deleted, job.counts.parents_updated), (1, 1));
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
    let job = world.prune(25);
    assert_eq!((reasons(&job.counts), job.counts.records_deleted), ([0, 0, 1], 1));
    assert_eq!(world.have_records(&[parent, never]), [false, true], "a child that never was is another matter");
}

#[test]
fn s2_5_the_children_of_a_record_are_looked_up_over_several_messages() {
    let world = defensive(2);
    let (parent, children) = family(&world, 1, 5);
    world.mine(10, &children.iter().collect::<Vec<_>>());
    world.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let done = world.prune(20);
    assert_eq!((done.ticks, done.counts.processed, done.counts.records_deleted, done.counts.chunks), (3, 1, 1, 1));
    assert!(world.record(&parent).is_none());
}

#[test]
fn s2_5_disabled_mode_relies_on_the_retention_alone() {
    let world = World::new();
    let (unmined, _) = family(&world, 1, 2);
    let absent = Tx::orphan(5_000, 2);
    world.make_spent(10, std::slice::from_ref(&absent));
    let job = world.prune(20);
    assert_eq!((reasons(&job.counts), job.counts.records_deleted), ([0; 3], 2));
    assert_eq!(world.have_records(&[unmined, absent]), [false, false]);
}
