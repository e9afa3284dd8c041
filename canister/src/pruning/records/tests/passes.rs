//! Which old unmined records phase 1 looks at, and when.

use super::service::Service;
use crate::utxo::tests::world::{Tx, block};
use coppice_interface::*;

/// So many old unmined transactions, each with a parent that is mined.
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
fn what_was_promised_is_not_promised_again_for_a_while() {
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
    assert_eq!(looked_at(&mut s, 1_380), 5, "an eighth of 1,440 blocks behind the last time");
    assert!(first.iter().chain(&second).all(|one| until(&s, one) == Some(2_820)));
    // The retention is shorter than an eighth of the promise.
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(100_000), ..Default::default() });
    assert_eq!(looked_at(&mut s, 1_381), 5, "a setting has changed");
    assert_eq!(looked_at(&mut s, 1_668), 0);
    assert_eq!(looked_at(&mut s, 1_669), 5, "288 blocks behind the last time");
    // A promise is never shortened.
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(10), ..Default::default() });
    assert_eq!(looked_at(&mut s, 1_670), 5);
    assert_eq!(until(&s, &first[0]), Some(101_669));
}

#[test]
fn a_record_that_enters_below_the_cutoff_is_looked_at_and_only_it() {
    for between in [false, true] {
        let mut s = Service::new();
        old(&mut s, 0..5);
        s.prune(1_300);
        let due: Vec<Tx> = (0..3).map(|i| Tx::orphan(50 + i, 1)).collect();
        if between {
            due.iter().for_each(|tx| s.make_due(tx));
            s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(3), ..Default::default() });
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
        assert_eq!(s.get(&late[0].1).unmined_since, Some(1_001), "callers see its height");
        assert_eq!(s.prune(1_304).counts.old_unmined, 0, "once");
    }
}

#[test]
fn what_a_pass_will_come_by_anyway_is_looked_at_once() {
    let mut s = Service::new();
    old(&mut s, 0..2);
    s.prune(1_300);
    s.w.height = 1_001;
    old(&mut s, 7..9);
    s.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(2_000), ..Default::default() });
    assert_eq!(s.prune(1_301).counts.old_unmined, 4, "it is a full pass");
}

#[test]
fn a_record_that_is_unmined_again_below_the_cutoff_is_looked_at() {
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
fn a_parent_that_is_made_late_and_is_due_at_once_has_all_looked_at_first() {
    let mut s = Service::new();
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    s.make(&child);
    s.prune(1_300);
    // A replay: the parent comes behind its child, and is done with at 1,000.
    s.make_mined(&parent);
    s.spend_one(&parent, 0, &child).unwrap();
    assert_eq!(s.get(&parent).delete_at_height, Some(1_288));
    let job = s.prune(1_301);
    assert_eq!((job.counts.old_unmined, job.counts.records_deleted), (1, 0));
    assert_eq!(s.get(&parent).preserve_until, Some(2_741));
}

#[test]
fn what_becomes_due_in_the_middle_of_a_run_is_left_to_the_next_one() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    let late = Tx::orphan(20, 1);
    s.make_due(&late);
    s.reopen();
    s.settle();
    let job = s.status().last_job.unwrap();
    assert_eq!((job.counts.records_deleted, job.counts.processed, s.there(&late)), (3, 3, true));
    // The next one, of the same height or of another.
    let job = s.with(|pruner, records| pruner.prune(1_300, records)).unwrap();
    assert_eq!((job.counts.records_deleted, s.there(&late)), (1, false));
}

#[test]
fn a_run_that_is_dropped_in_phase_1_has_not_looked() {
    let mut s = Service::new();
    let all = old(&mut s, 0..6);
    s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(2), ..Default::default() });
    s.pruner.notify_block(1_300, true, false).unwrap();
    s.tick(1);
    s.pruner.set_assembly(UtxoBlockAssemblyState::NotRunning);
    s.tick(1);
    s.reopen();
    s.pruner.set_assembly(UtxoBlockAssemblyState::Running);
    s.settle();
    assert!(all.iter().all(|one| until(&s, one) == Some(2_740)));
    assert_eq!(s.status().last_job.unwrap().counts.old_unmined, 6);
}

#[test]
fn a_chain_that_is_set_back_begins_anew() {
    let mut s = Service::new();
    let all = old(&mut s, 0..2);
    s.prune(1_300);
    let Service { w, pruner, .. } = &mut s;
    pruner.set_heights(&UtxoSetHeights { current: 1_200, persisted: None, processed: 0 }, &w.settings).unwrap();
    s.settle();
    assert_eq!(s.status().last_job.unwrap().counts.old_unmined, 2);
    assert_eq!(until(&s, &all[0]), Some(2_740), "a promise is never shortened");
}
