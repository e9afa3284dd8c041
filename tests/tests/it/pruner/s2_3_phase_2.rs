//! 2.3, phase 2: due records are deleted. Section 3: the height at which a record is due.

use super::world::*;
use crate::utxo::{Done, all_ok, create, spend};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

#[test]
fn s2_3_phase_2_2_records_are_deleted_up_to_the_safe_height() {
    let world = World::new();
    let txs = orphans(0..4);
    for (height, tx) in (10..).zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
        assert_eq!(world.heights(tx), (Some(height + RETENTION), None));
    }
    world.block(100, false);
    for (persisted, there) in [(19, [true; 4]), (20, [false, true, true, true]), (22, [false, false, false, true])] {
        let job = world.prune(persisted);
        assert_eq!((job.current_height, job.safe_height), (Some(100), Some(persisted)));
        assert_eq!(world.have_records(&txs), there);
    }
}

#[test]
fn s2_3_phase_2_3_records_are_deleted_by_height_and_then_by_creation() {
    let world = World::new();
    world.slow();
    let txs = orphans(0..5);
    // Made in this order; the third has the same height as the second.
    for (height, tx) in [12, 10, 10, 14, 11].into_iter().zip(&txs) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    World::scheduled(world.persisted(30));
    let mut gone: Vec<usize> = Vec::new();
    for done in 1..=5 {
        world.ticks(1);
        let there = world.have_records(&txs);
        gone.extend((0..5).filter(|i| !there[*i] && !gone.contains(i)).collect::<Vec<_>>());
        assert_eq!(gone.len(), done, "one per tick");
    }
    assert_eq!(gone, [1, 2, 4, 0, 3]);
}

#[test]
fn s2_3_phase_2_4_a_tick_processes_the_configured_chunks() {
    let world = World::new();
    let chunks = UtxoPrunerSettingsChange {
        utxo_chunk_size: Some(2),
        utxo_chunk_group_limit: Some(2),
        ..UtxoPrunerSettingsChange::default()
    };
    world.set(chunks);
    let txs = orphans(0..9);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    for (tick, left) in (1..).zip([5, 1]) {
        world.ticks(1);
        let running = world.status().running.unwrap();
        assert_eq!((running.ticks, running.counts.chunks, world.count(&txs)), (tick, 2 * tick, left));
        assert_eq!(running.progress, PruneProgress::HasMore { reason: Some(StopReason::Chunks) });
    }
    let done = world.finish(job.id);
    let counts = UtxoPruneCounts { processed: 9, records_deleted: 9, chunks: 5, ..UtxoPruneCounts::default() };
    assert_eq!((done.counts, done.ticks, done.progress), (counts, 3, PruneProgress::Finished));
    assert_eq!(world.status().totals, counts);
}

#[test]
fn s2_3_phase_2_5_surviving_parents_are_updated_and_missing_ones_not_created() {
    let world = World::new();
    let (first, second, missing) = (Tx::orphan(1, 3), Tx::orphan(2, 2), Tx::orphan(3, 1));
    let child = Tx::of(4, &[(first.txid, 2), (missing.txid, 0), (second.txid, 1), (first.txid, 0)], 1);
    let other = Tx::of(5, &[(first.txid, 1)], 1);
    world.create(9, &[&first, &second, &child, &other]);
    world.mine(9, &[&first, &second]);
    world.spend(9, &child, &[&first, &second]);
    world.spend(9, &other, &[&first]);
    world.mine(10, &[&child]);
    world.spend_by_stranger(10, &child, 0..1);
    // All outputs of the first parent are spent, so it would be due at 19: it is preserved, because this test is not about its deletion.
    let preserve = UtxoPreserveBatch { until_height: 1_000, txids: vec![first.id()] };
    all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer());
    assert_eq!(world.record(&first).unwrap().deleted_children, Vec::<Txid>::new());
    let done = world.prune(20);
    assert_eq!((done.counts.records_deleted, done.counts.parents_updated), (1, 3), "three outputs of two parents");
    assert!(world.record(&child).is_none() && world.record(&missing).is_none());
    for parent in [&first, &second] {
        assert_eq!(world.record(parent).unwrap().deleted_children, [child.id()]);
    }
    assert_eq!(world.coppice.storage().utxo.unwrap().records, 3);
    assert_eq!(world.metric("utxo_pruner_parents_updated_total", None), 3.0);
}

#[test]
fn s2_3_phase_2_5_a_record_is_deleted_with_all_its_pages() {
    let world = World::new();
    world.configure(UtxoSettingsChange { utxo_batch_size: Some(2), ..Default::default() });
    let tx = Tx::orphan(1, 7);
    let mut left = Vec::new();
    for height in [10, 30, 50] {
        world.make_spent(height, std::slice::from_ref(&tx));
        let full = world.coppice.storage().utxo.unwrap();
        assert_eq!((full.records, full.extra_pages, full.deletable), (1, 3, 1));
        let done = world.prune(height + RETENTION);
        assert_eq!((done.counts.records_deleted, done.counts.pages_deleted), (1, 3));
        let storage = world.coppice.storage().utxo.unwrap();
        assert_eq!((storage.records, storage.extra_pages, storage.deletable, storage.unmined), (0, 0, 0, 0));
        assert!(storage.used_bytes < full.used_bytes - 7 * 72, "{storage:?} of {full:?}");
        left.push((storage.used_bytes, storage.reusable_bytes));
    }
    assert_eq!(left, vec![left[0]; 3], "the next record reuses the slots");
}

#[test]
fn s2_3_phase_2_5_a_deleted_double_spend_is_removed_from_its_parents_list() {
    let world = World::new();
    let parent = Tx::orphan(1, 1);
    let rivals = [Tx::of(2, &[(parent.txid, 0)], 1), Tx::of(3, &[(parent.txid, 0)], 1)];
    world.create(10, &[&parent]);
    for (height, rival) in (10..).zip(&rivals) {
        all_ok(create(&world.coppice, height, vec![UtxoCreate { conflicting: true, ..rival.record() }]));
        assert_eq!(world.heights(rival), (Some(height + RETENTION), None), "deleted although unmined and unspent");
    }
    let listed = || world.record(&parent).unwrap().conflicting_children;
    assert_eq!(listed(), [rivals[0].id(), rivals[1].id()]);
    world.prune(20);
    assert_eq!((listed(), world.have_records(&rivals)), (vec![rivals[1].id()], vec![false, true]));
    world.prune(21);
    assert_eq!((listed(), world.have_records(&rivals)), (vec![], vec![false, false]));
    assert_eq!(
        world.record(&parent).unwrap().deleted_children,
        Vec::<Txid>::new(),
        "the double spends held none of its outputs"
    );
}

#[test]
fn s3_delete_at_height_is_the_last_touch_plus_the_retention() {
    let world = World::new();
    let tx = Tx::orphan(1, 2);
    world.create(10, &[&tx]);
    world.spend_by_stranger(11, &tx, 0..1);
    world.mine(12, &[&tx]);
    assert_eq!(world.heights(&tx), (None, None), "an output is unspent");
    world.spend_by_stranger(13, &tx, 1..2);
    assert_eq!(world.heights(&tx), (Some(23), None));
    // A record that is unspent again, and one off the longest chain, is not due.
    world.unmine(14, 12, &[&tx]);
    assert_eq!((world.heights(&tx), world.record(&tx).unwrap().unmined_since), ((None, None), Some(14)));
    assert_eq!(world.prune(23).counts.processed, 0);
    world.mine(25, &[&tx]);
    assert_eq!(world.heights(&tx), (Some(35), None));
    world.retention(100);
    world.prune(34);
    assert!(world.record(&tx).is_some(), "a set height stays");
    world.prune(35);
    assert!(world.record(&tx).is_none());
}

#[test]
fn s3_preserve_until_keeps_a_due_record() {
    let world = World::new();
    let txs = orphans(0..2);
    world.make_spent(10, &txs);
    let preserve = UtxoPreserveBatch { until_height: 30, txids: vec![txs[0].id()] };
    all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer());
    world.prune(20);
    assert_eq!(world.have_records(&txs), [true, false]);
}

#[test]
fn s7_disable_dah_cleaner_skips_phase_2() {
    let world = World::new();
    world.set(UtxoPrunerSettingsChange { disable_dah_cleaner: Some(true), ..Default::default() });
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    let (due, preserved) = (orphans(10..13), orphans(20..21));
    world.make_spent(10, &due);
    world.make_spent(10, &preserved);
    world.create(10, &[&parent, &child]);
    world.mine(10, &[&parent]);
    all_ok(spend(
        &world.coppice,
        10,
        vec![TransactionSpends { spender: child.id(), spends: vec![parent.spend(0, 0)] }],
    ));
    let preserve = UtxoPreserveBatch { until_height: 15, txids: vec![preserved[0].id()] };
    let answers: Done<bool> = world.coppice.producer().utxo_preserve(&preserve).answer();
    all_ok(answers);
    let done = world.prune(20);
    let counts =
        UtxoPruneCounts { old_unmined: 1, parents_preserved: 1, preservations_expired: 1, ..Default::default() };
    assert_eq!((done.counts, world.count(&due)), (counts, 3));
    world.set(UtxoPrunerSettingsChange { disable_dah_cleaner: Some(false), ..Default::default() });
    assert_eq!(world.prune(21).counts.records_deleted, 3);
}
