//! Deletion of double spends, and the records that are kept and for how long.

use super::service::Service;
use crate::testing::{Tx, block, raw};
use ic_coppice_interface::*;

#[test]
fn deleting_a_loser_releases_its_inputs() {
    let mut s = Service::new();
    let parent = Tx::orphan(1, 2);
    let (loser, kept) = (Tx::of(2, &[(parent.txid, 0)], 1), Tx::of(3, &[(parent.txid, 1)], 1));
    s.make_mined(&parent);
    s.make(&loser);
    s.make(&kept);
    s.spend_one(&parent, 0, &loser).unwrap();
    s.spend_one(&parent, 1, &kept).unwrap();
    assert_eq!(s.get(&parent).delete_at_height, Some(1_288));
    let call = s.w.call();
    s.w.store.set_conflicting(&loser.txid, &call).unwrap();
    s.set(UtxoPrunerSettingsChange {
        unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(10_000)),
        ..Default::default()
    });
    // The parent is deleted at the same height, after its child, unless the child's deletion releases an output.
    let call = s.w.call();
    s.w.store.preserve(&parent.txid, 1_200).unwrap();
    let job = s.prune(1_288);
    assert_eq!((job.counts.records_deleted, job.counts.outputs_released, job.counts.parents_updated), (1, 1, 0));
    assert!(!s.there(&loser));
    let record = s.get(&parent);
    assert_eq!((record.spent_utxos, record.delete_at_height, record.deleted_children), (1, None, vec![]));
    assert!(record.conflicting_children.is_empty());
    // The loser turns out to be valid after all.
    s.make(&loser);
    assert_eq!(s.spend_one(&parent, 0, &loser), Ok(1));
    assert_eq!(s.get(&parent).delete_at_height, Some(call.height + 288));
}

#[test]
fn loser_next_to_its_parent_in_the_index_leaves_the_parent_whole() {
    for others in 0..3 {
        let mut s = Service::new();
        let (parent, loser) = (Tx::orphan(1, 1), Tx::of(2, &[(Tx::orphan(1, 1).txid, 0)], 1));
        let due: Vec<Tx> = (0..4).map(|i| Tx::orphan(10 + i, 1)).collect();
        due[..others].iter().for_each(|tx| s.make_due(tx));
        s.make_mined(&parent);
        s.spend_one(&parent, 0, &loser).unwrap();
        s.create(&UtxoCreate { conflicting: true, ..raw(&loser) }).unwrap();
        due[others..].iter().for_each(|tx| s.make_due(tx));
        assert_eq!((s.get(&parent).delete_at_height, s.get(&loser).delete_at_height), (Some(1_288), Some(1_288)));
        // The loser is deleted first when its parent has become due again after it.
        s.unspend(&parent, 0, &loser, 0).unwrap();
        s.spend_one(&parent, 0, &loser).unwrap();
        let job = s.prune(1_288);
        assert_eq!((job.state, job.counts.record_errors), (UtxoJobState::Completed, 0), "{job:?}");
        assert!(!s.there(&loser) && due.iter().all(|tx| !s.there(tx)));
        assert_eq!((s.get(&parent).delete_at_height, s.store.storage().deletable), (None, 0), "{others}");
    }
}

#[test]
fn loser_with_many_inputs_releases_them_over_several_messages() {
    let mut s = Service::new();
    let parent = Tx::orphan(1, 2_501);
    let inputs: Vec<_> = (0..2_500).map(|vout| (parent.txid, vout)).collect();
    let loser = Tx::of(2, &inputs, 1);
    s.make_mined(&parent);
    s.make(&loser);
    let spends: Vec<_> = (0..2_500).map(|i| parent.spend(i, i)).collect();
    s.spend(&loser, &spends).unwrap();
    let call = s.w.call();
    s.w.store.set_conflicting(&loser.txid, &call).unwrap();
    s.set(UtxoPrunerSettingsChange {
        unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(10_000)),
        max_instructions_per_tick: Some(1),
        ..Default::default()
    });
    s.pruner.notify_block(1_288, true, false).unwrap();
    while !s.get(&loser).being_deleted {
        s.tick(1);
    }
    s.reopen();
    s.settle();
    assert!(!s.there(&loser));
    assert_eq!((s.get(&parent).spent_utxos, s.status().totals.outputs_released), (0, 2_500));
}

#[test]
fn locking_keeps_a_double_spend_and_unlocking_gives_it_a_height_again() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    s.create(&UtxoCreate { conflicting: true, ..raw(&tx) }).unwrap();
    assert_eq!(s.get(&tx).delete_at_height, Some(1_288));
    for _ in 0..2 {
        s.set_locked(&tx, true);
        assert_eq!(s.get(&tx).delete_at_height, None);
    }
    assert_eq!(s.prune(1_300).counts.records_deleted, 0);
    s.w.height = 1_100;
    s.set_locked(&tx, false);
    assert_eq!(s.get(&tx).delete_at_height, Some(1_388));
}

#[test]
fn a_record_that_loses_its_last_block_is_unmined_from_then_on_unless_it_was_before() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    s.make(&tx);
    s.w.height = 1_010;
    // Mined in a block of another chain only, the record stays unmined.
    s.set_mined(&tx, block(5, 1_010), false, false);
    assert_eq!(s.get(&tx).unmined_since, Some(1_000));
    s.w.height = 1_020;
    s.set_mined(&tx, block(5, 1_010), false, true);
    assert_eq!(s.get(&tx).unmined_since, Some(1_000), "a height that is set stays");
    s.set_mined(&tx, block(6, 1_020), true, false);
    s.w.height = 1_030;
    s.set_mined(&tx, block(6, 1_020), false, true);
    assert_eq!(s.get(&tx).unmined_since, Some(1_030));
    s.w.height = 1_040;
    s.set_mined(&tx, block(6, 1_020), false, true);
    assert_eq!(s.get(&tx).unmined_since, Some(1_030), "the record had no block to lose");
}

#[test]
fn the_status_alone_changes_and_blocks_stay() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    s.make_due(&tx);
    let set = |s: &mut Service, is| {
        let call = s.w.call();
        s.w.store.set_on_longest_chain(&tx.txid, is, &call, (&mut s.w.blobs, crate::testing::no_block))
    };
    s.w.height = 1_005;
    for _ in 0..2 {
        assert_eq!(set(&mut s, false), Ok(()));
        let record = s.get(&tx);
        assert_eq!((record.unmined_since, record.delete_at_height), (Some(1_005), None));
        assert_eq!(record.blocks.iter().map(|block| block.block_id).collect::<Vec<_>>(), [900]);
        s.w.height = 1_006;
    }
    assert_eq!(set(&mut s, true), Ok(()));
    let record = s.get(&tx);
    assert_eq!((record.unmined_since, record.delete_at_height), (None, Some(1_294)));
    let other = Tx::orphan(2, 1);
    s.make(&other);
    let call = s.w.call();
    assert_eq!(
        s.w.store.set_on_longest_chain(&other.txid, true, &call, (&mut s.w.blobs, crate::testing::no_block)),
        Err(UtxoRefusal::NotMined)
    );
    assert_eq!(
        s.w.store.set_on_longest_chain(&[1; 32], true, &call, (&mut s.w.blobs, crate::testing::no_block)),
        Err(UtxoRefusal::TxNotFound)
    );
}

/// Returns `count` parents that are due at 1,288, each with its own spender. The spenders have no input that names a parent, so that phase 1
/// preserves no parent.
fn defensive(s: &mut Service, count: u64) -> Vec<(Tx, Tx)> {
    s.set(UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(true), ..Default::default() });
    let family = |i| {
        let parent = Tx::orphan(10 + i, 1);
        let child = Tx::orphan(1_000 + i, 1);
        (parent, child)
    };
    let all: Vec<(Tx, Tx)> = (0..count).map(family).collect();
    for (parent, child) in &all {
        s.make_mined(parent);
        s.make(child);
        s.spend_one(parent, 0, child).unwrap();
    }
    all
}

#[test]
fn kept_record_is_examined_again_when_its_spender_may_be_stable() {
    let mut s = Service::new();
    let all = defensive(&mut s, 2);
    let recent = &all[0];
    s.set_mined(&recent.1, block(1_100, 1_100), true, false);
    let reasons =
        |counts: UtxoPruneCounts| (counts.skipped_child_recent, counts.skipped_child_unmined, counts.processed);
    assert_eq!(reasons(s.prune(1_288).counts), (1, 1, 2));
    let shown = |s: &Service| all.iter().map(|(parent, _)| s.get(parent).delete_at_height).collect::<Vec<_>>();
    assert_eq!(shown(&s), [Some(1_288); 2], "callers see the same height");
    let until = |s: &Service| all.iter().map(|(parent, _)| s.get(parent).postponed_until).collect::<Vec<_>>();
    assert_eq!(until(&s), [Some(1_388), Some(1_576)], "the heights at which they are examined again");
    s.reopen();
    assert_eq!(reasons(s.prune(1_387).counts), (0, 0, 0), "not examined meanwhile");
    let job = s.prune(1_388);
    assert_eq!((reasons(job.counts), job.counts.records_deleted), ((0, 0, 1), 1), "stable at 1,100 + 288");
    assert_eq!(reasons(s.prune(1_575).counts), (0, 0, 0));
    assert_eq!(reasons(s.prune(1_576).counts), (0, 1, 1), "1,288 + 288");
    // A record that is evaluated anew gets a new height, at which it is examined.
    s.w.height = 1_400;
    s.spend_one(&all[1].0, 0, &all[1].1).unwrap();
    assert_eq!((s.get(&all[1].0).delete_at_height, s.get(&all[1].0).postponed_until), (Some(1_688), None));
    assert_eq!(reasons(s.prune(1_687).counts), (0, 0, 0));
    assert_eq!(reasons(s.prune(1_688).counts), (0, 1, 1));
}

/// One log line per run and reason, however many ticks the run takes, even across an upgrade.
#[test]
fn kept_records_of_a_run_are_logged_once_with_the_first_ten_transactions() {
    let said = || -> Vec<String> {
        ic_coppice_storage::twin::with(|world| {
            let of_run = |line: &&String| line.contains("Defensive skip: ");
            world.log.iter().filter(of_run).map(|line| line[line.find("Defensive").unwrap()..].to_string()).collect()
        })
    };
    let mut s = Service::new();
    let all = defensive(&mut s, 13);
    s.set_mined(&all[0].1, block(1_100, 1_100), true, false);
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_288, true, false).unwrap();
    (0..5).for_each(|_| s.tick(10));
    assert_eq!(said(), [] as [String; 0], "the run is not over");
    s.reopen();
    s.settle();
    let lines = said();
    let [unmined, recent] = &lines[..] else { panic!("{lines:?}") };
    assert!(unmined.starts_with("Defensive skip: 12 records kept because a spender is unmined: "), "{unmined}");
    assert!(unmined.ends_with(" and 2 more") && unmined.matches(", ").count() == 9, "{unmined}");
    let id = |tx: &Tx| tx.txid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(all[1..].iter().filter(|(parent, _)| unmined.contains(&id(parent))).count(), 10);
    let one = format!("Defensive skip: 1 record kept because a spender was mined too recently: {}", id(&all[0].0));
    assert_eq!(*recent, one);
    s.prune(1_300);
    assert_eq!(said().len(), 2, "not examined meanwhile");
    // A run that is dropped logs the records that it has kept.
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_576, true, false).unwrap();
    // Twelve ticks examine unmined records.
    (0..16).for_each(|_| s.tick(10));
    s.assembly(UtxoBlockAssemblyState::NotRunning);
    s.tick(10);
    assert!(said().len() == 3 && !said()[2].contains(" more"), "{:?}", said());
}

#[test]
fn records_kept_by_wrong_heights_are_examined_after_the_heights_are_set() {
    for interrupted in [false, true] {
        let mut s = Service::new();
        let all = defensive(&mut s, 3);
        s.prune(1_300);
        let job = s.with(|pruner, records| {
            pruner.notify_block(1_000_000_000, true, true).unwrap();
            pruner.prune(1_000_000_000, records).unwrap()
        });
        assert_eq!(job.counts.skipped_child_unmined, 3);
        let Service { w, pruner, .. } = &mut s;
        pruner.set_heights(&UtxoSetHeights { current: 1_310, persisted: None, processed: 1_300 }, &w.settings).unwrap();
        s.set_mined(&all[0].1, block(900, 900), true, false);
        let late = Tx::orphan(5_000, 1);
        s.w.height = 1_000_000;
        s.make_due(&late);
        if interrupted {
            s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
            s.tick(10);
            s.assembly(UtxoBlockAssemblyState::NotRunning);
            s.tick(10);
            s.reopen();
            s.assembly(UtxoBlockAssemblyState::Running);
        }
        s.settle();
        let there = |s: &Service| all.iter().filter(|(parent, _)| s.there(parent)).count();
        assert_eq!((there(&s), s.there(&late)), (2, true), "{interrupted}");
        assert_eq!(s.status().last_job.unwrap().counts.skipped_child_unmined, 2);
        // Records kept now wait by these heights and are not examined meanwhile.
        assert_eq!(s.prune(1_500).counts.processed, 0);
        let job = s.prune(1_310 + 288);
        assert_eq!((job.counts.skipped_child_unmined, job.counts.processed), (2, 2));
    }
}

#[test]
fn without_retention_kept_records_are_examined_in_the_next_block() {
    let mut s = Service::new();
    defensive(&mut s, 1);
    s.w.settings.block_height_retention = 0;
    for height in 1_300..1_304 {
        assert_eq!(s.prune(height).counts.skipped_child_unmined, 1, "{height}");
    }
}

/// Returns a record with `count` spenders, all stable at 1,288.
fn many_spenders(s: &mut Service, count: u32) -> (Tx, Vec<Tx>) {
    let parent = Tx::orphan(1, count);
    s.make_mined(&parent);
    let children: Vec<Tx> = (0..count).map(|i| Tx::of(10 + u64::from(i), &[(parent.txid, i)], 1)).collect();
    for (child, vout) in children.iter().zip(0..) {
        s.make_mined(child);
        s.spend_one(&parent, vout, child).unwrap();
    }
    s.set(UtxoPrunerSettingsChange {
        utxo_defensive_enabled: Some(true),
        utxo_defensive_batch_read_size: Some(3),
        max_instructions_per_tick: Some(1),
        ..Default::default()
    });
    (parent, children)
}

#[test]
fn check_of_spenders_spans_several_messages() {
    let mut s = Service::new();
    let (parent, _) = many_spenders(&mut s, 10);
    s.pruner.notify_block(1_288, true, false).unwrap();
    for ticks in 1..4 {
        s.tick(1);
        assert!(s.there(&parent), "three of ten in each message: {ticks}");
        s.reopen();
    }
    s.settle();
    let job = s.status().last_job.unwrap();
    assert_eq!((job.ticks, job.counts.processed, job.counts.records_deleted, job.counts.chunks), (4, 1, 1, 1));
}

#[test]
fn check_of_spenders_restarts_after_a_revert() {
    for how in 0..4 {
        let mut s = Service::new();
        let (parent, children) = many_spenders(&mut s, 10);
        s.pruner.notify_block(1_288, true, false).unwrap();
        s.tick(1);
        match how {
            // The first spender was checked and is unmined now.
            0 => drop(s.set_mined(&children[0], block(900, 900), false, true)),
            1 => {
                let call = s.w.call();
                s.w.store
                    .set_on_longest_chain(&children[0].txid, false, &call, (&mut s.w.blobs, crate::testing::no_block))
                    .unwrap();
            }
            // Another transaction, which is unmined, spends now; by the height of that call the record is due again.
            2 => {
                let by = Tx::of(99, &[(parent.txid, 0)], 1);
                s.make(&by);
                s.unspend(&parent, 0, &children[0], 0).unwrap();
                s.spend_one(&parent, 0, &by).unwrap();
            }
            _ => {}
        }
        s.settle();
        assert_eq!(s.there(&parent), how < 3, "{how}");
    }
}
