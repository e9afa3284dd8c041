//! Passes of phase 1 over old unmined records.

use super::service::Service;
use crate::testing::{Tx, block, raw};
use ic_coppice_interface::*;

/// Returns old unmined transactions, one per salt, each with a mined parent.
fn old(s: &mut Service, salts: std::ops::Range<u64>) -> Vec<(Tx, Tx)> {
    let family = |i| {
        let parent = Tx::orphan(10_000 + i, 2);
        (parent.clone(), Tx::of(20_000 + i, &[(parent.txid, 0)], 1))
    };
    let all: Vec<(Tx, Tx)> = salts.map(family).collect();
    for (parent, child) in &all {
        s.make_mined(parent);
        s.make(child);
        s.spend_one(parent, 0, child).unwrap();
    }
    all
}

fn until(s: &Service, of: &(Tx, Tx)) -> Option<u32> {
    s.get(&of.0).preserve_until
}

#[test]
fn preserved_parents_are_not_preserved_again_before_the_next_full_pass() {
    let mut s = Service::new();
    let first = old(&mut s, 0..3);
    s.w.height = 1_060;
    let second = old(&mut s, 3..5);
    let looked_at = |s: &mut Service, height| s.prune(height).counts.old_unmined;
    assert_eq!(looked_at(&mut s, 1_200), 3);
    assert_eq!(looked_at(&mut s, 1_201), 0);
    s.reopen();
    assert_eq!(looked_at(&mut s, 1_204), 0);
    assert_eq!(looked_at(&mut s, 1_205), 2, "older than 144 blocks by now");
    assert_eq!((until(&s, &first[0]), until(&s, &second[0])), (Some(2_640), Some(2_645)));
    assert_eq!(looked_at(&mut s, 1_379), 0);
    assert_eq!(looked_at(&mut s, 1_380), 5, "an eighth of 1,440 blocks after the last full pass");
    assert!(first.iter().chain(&second).all(|one| until(&s, one) == Some(2_820)));
    // The retention is shorter than an eighth of the preservation.
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(100_000), ..Default::default() });
    assert_eq!(looked_at(&mut s, 1_381), 5, "a setting has changed");
    assert_eq!(looked_at(&mut s, 1_668), 0);
    assert_eq!(looked_at(&mut s, 1_669), 5, "288 blocks after the last full pass");
    // A preservation is never shortened.
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(10), ..Default::default() });
    assert_eq!(looked_at(&mut s, 1_670), 5);
    assert_eq!(until(&s, &first[0]), Some(101_669));
}

#[test]
fn record_that_enters_below_the_cutoff_is_examined_alone() {
    for between in [false, true] {
        let mut s = Service::new();
        old(&mut s, 0..5);
        s.prune(1_300);
        let due: Vec<Tx> = (0..3).map(|i| Tx::orphan(50 + i, 1)).collect();
        if between {
            due.iter().for_each(|tx| s.make_due(tx));
            s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
            s.prune(1_301);
            s.pruner.notify_block(1_302, true, false).unwrap();
        }
        s.w.height = 1_001;
        let late = old(&mut s, 7..8);
        s.w.height = 1_290;
        let young = old(&mut s, 8..9);
        let job = s.prune(1_303);
        assert_eq!((job.counts.old_unmined, job.counts.parents_preserved), (1, 1), "{between}");
        assert_eq!((until(&s, &late[0]), until(&s, &young[0])), (Some(job.current_height.unwrap() + 1_440), None));
        assert_eq!(s.get(&late[0].1).unmined_since, Some(1_001), "callers see the record's height");
        assert_eq!(s.prune(1_304).counts.old_unmined, 0, "once");
    }
}

#[test]
fn late_record_is_preserved_at_once_even_if_the_pass_will_reach_it() {
    let mut s = Service::new();
    old(&mut s, 0..2);
    s.prune(1_300);
    s.w.height = 1_001;
    old(&mut s, 7..9);
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(2_000), ..Default::default() });
    assert_eq!(s.prune(1_301).counts.old_unmined, 2 + 4, "it is a full pass");
}

#[test]
fn unmined_double_spend_that_wins_is_examined_before_its_parent_is_deleted() {
    let mut s = Service::new();
    let parent = Tx::orphan(1, 1);
    let [holder, winner] = [2, 3].map(|salt| Tx::of(salt, &[(parent.txid, 0)], 1));
    [&parent, &holder].into_iter().for_each(|tx| s.make_mined(tx));
    s.spend_one(&parent, 0, &holder).unwrap();
    s.w.height = 1_150;
    s.create(&UtxoCreate { conflicting: true, ..raw(&winner) }).unwrap();
    s.prune(1_250);
    assert_eq!(s.get(&parent).preserve_until, None, "a double spend does not keep its parent");
    // A call with an old height does not change the height at which the parent is due.
    s.w.height = 1_000;
    s.process(&[&winner]).unwrap();
    assert_eq!((s.get(&parent).delete_at_height, s.get(&winner).unmined_since), (Some(1_288), Some(1_150)));
    let job = s.prune(1_288);
    assert_eq!((job.counts.old_unmined, s.get(&parent).preserve_until), (1, Some(1_288 + 1_440)));
}

#[test]
fn record_unmined_again_below_the_cutoff_is_examined() {
    let mut s = Service::new();
    let (parent, child) = (Tx::orphan(1, 2), Tx::of(2, &[(Tx::orphan(1, 2).txid, 0)], 1));
    s.make_mined(&parent);
    s.make_mined(&child);
    s.spend_one(&parent, 0, &child).unwrap();
    s.prune(1_300);
    s.set_mined(&child, block(900, 900), true, true);
    let job = s.prune(1_301);
    assert_eq!((job.counts.old_unmined, s.get(&parent).preserve_until), (1, Some(2_741)));
    s.set_mined(&child, block(901, 1_301), true, false);
    assert_eq!(s.prune(1_302).counts.old_unmined, 0);
    assert_eq!(s.store.storage().unmined, 0);
}

#[test]
fn late_parent_that_is_due_at_once_causes_a_full_pass_first() {
    let mut s = Service::new();
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    s.make(&child);
    s.prune(1_300);
    // A replay: the parent is created after its child, and spent at 1,000.
    s.make_mined(&parent);
    s.spend_one(&parent, 0, &child).unwrap();
    assert_eq!(s.get(&parent).delete_at_height, Some(1_288));
    let job = s.prune(1_301);
    assert_eq!((job.counts.old_unmined, job.counts.records_deleted), (1, 0));
    assert_eq!(s.get(&parent).preserve_until, Some(2_741));
}

#[test]
fn record_that_becomes_due_during_a_run_is_left_to_the_next_run() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    let late = Tx::orphan(20, 1);
    s.make_due(&late);
    s.reopen();
    s.settle();
    let job = s.status().last_job.unwrap();
    assert_eq!((job.counts.records_deleted, job.counts.processed, s.there(&late)), (3, 3, true));
    // The next run deletes the record, at the same height or another.
    let job = s.with(|pruner, records| pruner.prune(1_300, records)).unwrap();
    assert_eq!((job.counts.records_deleted, s.there(&late)), (1, false));
}

#[test]
fn run_dropped_in_phase_1_does_not_count_as_a_pass() {
    let mut s = Service::new();
    let all = old(&mut s, 0..6);
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    s.assembly(UtxoBlockAssemblyState::NotRunning);
    s.tick(1);
    s.reopen();
    s.assembly(UtxoBlockAssemblyState::Running);
    s.settle();
    assert!(all.iter().all(|one| until(&s, one) == Some(2_740)));
    assert_eq!(s.status().last_job.unwrap().counts.old_unmined, 6);
}

#[test]
fn lower_chain_height_causes_a_full_pass() {
    let mut s = Service::new();
    let all = old(&mut s, 0..2);
    s.prune(1_300);
    let Service { w, pruner, .. } = &mut s;
    pruner.set_heights(&UtxoSetHeights { current: 1_200, persisted: None, processed: 0 }, &w.settings).unwrap();
    s.settle();
    assert_eq!(s.status().last_job.unwrap().counts.old_unmined, 2);
    assert_eq!(until(&s, &all[0]), Some(2_740), "a preservation is never shortened");
}

/// Looking up all parents would take too many pages of a message.
#[test]
fn child_with_more_than_ten_thousand_parents_is_examined_by_the_next_run() {
    for (parents, examined) in [(10_000, 0), (10_001, 1)] {
        let mut s = Service::new();
        s.prune(1_000);
        let inputs: Vec<_> = (0..parents).map(|i| (Tx::orphan(10_000 + i, 1).txid, 0)).collect();
        s.make(&Tx::of(2, &inputs, 1));
        assert_eq!(s.prune(1_001).counts.old_unmined, examined, "{parents}");
    }
}

#[test]
fn full_pass_preserves_of_a_young_record_only_the_parents_due_before_it_is_old() {
    let mut s = Service::new();
    s.prune(1_000);
    let all = old(&mut s, 0..1);
    let (parent, child) = &all[0];
    // Due at 1,288, when the child, unmined since 1,000, has been old for 143 blocks.
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(2_000), ..Default::default() });
    let job = s.prune(1_001);
    assert_eq!((job.counts.old_unmined, job.counts.parents_preserved, until(&s, &all[0])), (0, 0, None));
    let longest = Some(UtxoUnminedRetention::Blocks(287));
    s.set(UtxoPrunerSettingsChange { unmined_tx_retention: longest, ..Default::default() });
    s.prune(1_002);
    assert_eq!(until(&s, &all[0]), None, "old at 1,288, one block before");
    // A double spend that is young keeps nothing.
    let call = s.w.call();
    s.w.store.set_conflicting(&child.txid, &call).unwrap();
    s.set(UtxoPrunerSettingsChange {
        unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(288)),
        ..Default::default()
    });
    s.prune(1_003);
    assert_eq!((s.get(parent).spent_utxos, until(&s, &all[0])), (1, None));
    s.process(&[child]).unwrap();
    let job = s.prune(1_004);
    assert_eq!((job.counts.old_unmined, until(&s, &all[0])), (1, Some(3_004)));
}
