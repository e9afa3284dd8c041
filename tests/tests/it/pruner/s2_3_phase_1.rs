//! 2.3, phase 1: parents of old unmined transactions are preserved. Between the phases, preservations expire.

use super::world::*;
use crate::utxo::{all_ok, create};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// A parent that is due at `height + RETENTION`, and its child, unmined since `height`.
fn family(world: &World, salt: u64, height: u32) -> (Tx, Tx) {
    let parent = Tx::orphan(salt, 1);
    let child = Tx::of(salt + 1_000_000, &[(parent.txid, 0)], 1);
    world.create(height, &[&parent]);
    world.mine(height, &[&parent]);
    world.create(height, &[&child]);
    world.spend(height, &child, &[&parent]);
    (parent, child)
}

fn preserve(world: &World, until: u32, txs: &[&Tx]) -> Vec<bool> {
    let preserve = UtxoPreserveBatch { until_height: until, txids: txs.iter().map(|tx| tx.id()).collect() };
    all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer())
}

#[test]
fn s2_3_phase_1_1_the_cutoff_is_half_of_the_retention_below_the_current_height() {
    let world = World::new();
    world.retention(288);
    let (parent, _) = family(&world, 1, 100);
    for (current, cutoff, preserved) in [(244, 100, None), (245, 101, Some(245 + PRESERVATION))] {
        let job = world.prune(current);
        assert_eq!(world.status().unmined_cutoff_height, cutoff);
        assert_eq!(job.counts.old_unmined, u64::from(preserved.is_some()), "at {current}");
        assert_eq!(world.heights(&parent).1, preserved, "at {current}");
    }
    // Half of the retention in force, or a configured number.
    world.retention(21);
    assert_eq!(world.status().unmined_cutoff_height, 245 - 10);
    let own = Some(UtxoUnminedRetention::Blocks(20));
    world.set(UtxoPrunerSettingsChange { unmined_tx_retention: own, ..Default::default() });
    assert_eq!(world.status().unmined_cutoff_height, 225);
}

#[test]
fn s2_3_phase_1_1_there_is_no_cutoff_while_the_chain_is_shorter_than_the_retention() {
    let world = World::new();
    world.retention(288);
    let (parent, _) = family(&world, 1, 1);
    for current in [100, 144, 145] {
        assert_eq!(world.prune(current).counts.old_unmined, 0, "at {current}");
    }
    assert_eq!(world.heights(&parent), (Some(289), None));
    assert_eq!(world.prune(146).counts.old_unmined, 1);
    assert_eq!(world.heights(&parent), (None, Some(146 + PRESERVATION)));
}

#[test]
fn s2_3_phase_1_2_old_is_strictly_below_the_cutoff() {
    let world = World::new();
    let families: Vec<(Tx, Tx)> = (0..).zip([98, 99, 100, 101]).map(|(i, at)| family(&world, i, at)).collect();
    let preserved = || which(families.iter().map(|(parent, _)| world.heights(parent).1));
    let job = world.prune(105);
    assert_eq!((world.status().unmined_cutoff_height, job.counts.old_unmined), (100, 2));
    assert_eq!(preserved(), [true, true, false, false]);
    world.prune(106);
    assert_eq!(preserved(), [true, true, true, false]);
}

#[test]
fn s2_3_phase_1_3_each_parent_is_preserved_for_the_configured_blocks() {
    let world = World::new();
    let (first, second, missing) = (Tx::orphan(1, 2), Tx::orphan(2, 1), Tx::orphan(3, 1));
    let inputs = [(first.txid, 0), (second.txid, 0), (missing.txid, 0), (first.txid, 1)];
    let child = Tx::of(4, &inputs, 1);
    world.create(10, &[&first, &second, &child]);
    world.mine(10, &[&first, &second]);
    world.spend(10, &child, &[&first, &second]);
    assert_eq!(preserve(&world, 9_999, &[&second]), [true]);
    assert_eq!([world.heights(&first), world.heights(&second)], [(Some(20), None), (None, Some(9_999))]);
    let job = world.prune(20);
    // Each parent is preserved once, however many of its outputs are spent; a longer preservation stays.
    assert_eq!([world.heights(&first), world.heights(&second)], [(None, Some(20 + PRESERVATION)), (None, Some(9_999))]);
    assert_eq!((job.counts.old_unmined, job.counts.parents_preserved, job.counts.records_deleted), (1, 2, 0));
    assert_eq!((world.record(&missing), world.coppice.storage().utxo.unwrap().records), (None, 3), "no record is made");
    assert_eq!(world.coppice.storage().utxo.unwrap().preserved, 2);
    assert_eq!(world.heights(&child), (None, None), "the child itself is not preserved");
    world.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(3), ..Default::default() });
    world.prune(21);
    let promised = [(None, Some(20 + PRESERVATION)), (None, Some(9_999))];
    assert_eq!([world.heights(&first), world.heights(&second)], promised, "never for less");
}

#[test]
fn s2_3_phase_1_3_mined_transactions_and_young_ones_preserve_nothing() {
    let world = World::new();
    let (of_mined, mined) = family(&world, 1, 10);
    let (of_young, _) = family(&world, 2, 16);
    world.mine(12, &[&mined]);
    let job = world.prune(20);
    assert_eq!((job.counts.old_unmined, job.counts.parents_preserved, job.counts.records_deleted), (0, 0, 1));
    assert_eq!((world.record(&of_mined), world.heights(&of_young)), (None, (Some(26), None)));
}

/// Memory is full, and new records are refused. Phase 1 has its own reserve: without it, phase 1 would fail, and no record would ever be
/// deleted.
#[test]
fn s2_3_phase_1_3_at_the_cap_on_memory_parents_are_preserved_and_records_deleted() {
    let world = World::new();
    let (parent, _) = family(&world, 1, 10);
    let due = orphans(100..103);
    world.make_spent(10, &due);
    let cap = |pages: u64| {
        let utxo = UtxoSettingsChange { max_utxo_bytes: Some(1 << 40), ..UtxoSettingsChange::default() };
        let change = ConfigChange { max_stable_pages: Some(pages), utxo: Some(utxo), ..ConfigChange::default() };
        world.coppice.operator().set_config(&change).answer().unwrap();
    };
    let pages = (world.coppice.storage().billed_bytes / 65_536).max(1_024);
    cap(pages);
    for (bytes, salts) in [(3_000, 1u32..), (10, 1 << 31..)] {
        let fillers = salts.map(|salt| Tx::new(&[([1; 32], salt)], &[(5, vec![0x51; bytes])]));
        let fillers: Vec<UtxoCreate> = fillers.take(100_000).map(|tx| tx.record()).collect();
        let full = fillers.chunks(400).find_map(|some| {
            let batch = create(&world.coppice, 1_000, some.to_vec());
            batch.results.into_iter().find_map(Result::err)
        });
        assert_eq!(full, Some(UtxoCreateError::NoMemory(NoMemory::OutOfSpace)));
    }
    let done = world.prune(20);
    assert_eq!((done.counts.parents_preserved, done.counts.records_deleted), (1, 3));
    assert_eq!((world.heights(&parent), world.count(&due)), ((None, Some(20 + PRESERVATION)), 0));
    let again = create(&world.coppice, 1_000, due.iter().map(Tx::record).collect());
    assert!(again.results.iter().all(Result::is_ok), "deleted records made room: {:?}", again.results);
}

/// A record that becomes old in the middle of a run, as after a reorg with an earlier height, is not overlooked.
#[test]
fn s2_3_phase_1_5_nothing_more_is_deleted_before_a_latecomers_parents_are_preserved() {
    let world = World::new();
    world.slow();
    let before = orphans(10..13);
    world.make_spent(10, &before);
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    world.create(10, &[&parent]);
    world.mine(10, &[&parent]);
    world.spend(10, &child, &[&parent]);
    let job = World::scheduled(world.persisted(20));
    world.ticks(2);
    assert_eq!(world.status().running.unwrap().phase, UtxoPrunerPhase::DeleteAtHeight);
    assert_eq!((world.count(&before), world.heights(&parent)), (1, (Some(20), None)));
    world.create(12, &[&child]);
    world.ticks(1);
    assert_eq!((world.count(&before), world.heights(&parent)), (1, (None, Some(20 + PRESERVATION))));
    let done = world.finish(job.id);
    assert_eq!((world.count(&before), done.counts.records_deleted), (0, 3));
    assert_eq!((done.counts.old_unmined, done.counts.parents_preserved), (1, 1));
}

#[test]
fn s2_3_phase_1_5_phase_1_completes_before_phase_2_begins() {
    let world = World::new();
    world.slow();
    let families: Vec<(Tx, Tx)> = (0..4).map(|salt| family(&world, salt, 10)).collect();
    let due = orphans(100..102);
    world.make_spent(9, &due);
    let job = World::scheduled(world.persisted(20));
    for done in 1..=4u64 {
        world.ticks(1);
        let running = world.status().running.unwrap();
        assert_eq!(running.phase == UtxoPrunerPhase::PreserveParents, done < 4);
        assert_eq!((running.counts.parents_preserved, running.counts.processed, world.count(&due)), (done, 0, 2));
    }
    let done = world.finish(job.id);
    assert_eq!((done.counts.records_deleted, done.ticks, world.count(&due)), (2, 6, 0));
    assert!(families.iter().all(|(parent, _)| world.heights(parent) == (None, Some(20 + PRESERVATION))));
}

#[test]
fn s2_3_between_expired_preservations_are_cleared_and_their_records_evaluated() {
    let world = World::new();
    let (eligible, spendable, missing) = (Tx::orphan(1, 1), Tx::orphan(2, 1), Tx::orphan(3, 1));
    world.make_spent(10, std::slice::from_ref(&eligible));
    world.create(10, &[&spendable]);
    world.mine(10, &[&spendable]);
    assert_eq!(preserve(&world, 50, &[&eligible, &spendable, &missing]), [true, true, false]);
    let heights = || [world.heights(&eligible), world.heights(&spendable)];
    assert_eq!(world.prune(49).counts.preservations_expired, 0);
    assert_eq!(heights(), [(None, Some(50)); 2], "deleted at 20 otherwise");
    let job = world.prune(50);
    assert_eq!((job.counts.preservations_expired, job.counts.processed), (2, 0));
    assert_eq!(heights(), [(Some(50 + RETENTION), None), (None, None)]);
    world.prune(59);
    assert!(world.record(&eligible).is_some());
    assert_eq!(world.prune(60).counts.records_deleted, 1);
    assert_eq!(world.have_records(&[eligible, spendable]), [false, true]);
}

/// Phase 1 uses the current height, phase 2 the persisted one.
#[test]
fn s2_3_between_a_preservation_that_phase_1_renews_does_not_expire() {
    let world = World::new();
    let (parent, _) = family(&world, 1, 10);
    let other = Tx::orphan(2, 1);
    world.make_spent(10, std::slice::from_ref(&other));
    preserve(&world, 50, &[&parent, &other]);
    world.block(50, false);
    let job = world.prune(30);
    assert_eq!((job.current_height, job.safe_height), (Some(50), Some(30)));
    assert_eq!((job.counts.parents_preserved, job.counts.preservations_expired), (1, 1));
    assert_eq!(world.heights(&parent), (None, Some(50 + PRESERVATION)));
    assert_eq!(world.heights(&other), (Some(50 + RETENTION), None));
}
