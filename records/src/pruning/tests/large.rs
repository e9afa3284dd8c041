//! Large records: more inputs, and more spenders, than one message may touch.

use super::service::Service;
use crate::testing::{Tx, block, mined, raw};
use ic_coppice_interface::*;

const INPUTS: u32 = 25_000;

/// Returns a parent, and the transaction that spends all its outputs; the transaction is due at 1,288.
fn family(s: &mut Service) -> (Tx, Tx) {
    let parent = Tx::orphan(1, INPUTS + 1);
    let inputs: Vec<_> = (0..INPUTS).map(|vout| (parent.txid, vout)).collect();
    let child = Tx::of(2, &inputs, 1);
    s.make_mined(&parent);
    s.make_mined(&child);
    let spends: Vec<_> = (0..INPUTS).map(|i| parent.spend(i, i)).collect();
    s.spend(&child, &spends).unwrap();
    let by = Tx::of(3, &[(child.txid, 0)], 1);
    s.spend_one(&child, 0, &by).unwrap();
    (parent, child)
}

fn small_ticks() -> UtxoPrunerSettingsChange {
    UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..UtxoPrunerSettingsChange::default() }
}

#[test]
fn parents_of_many_inputs_are_marked_over_several_messages_irreversibly() {
    let mut s = Service::new();
    let (parent, child) = family(&mut s);
    s.set(small_ticks());
    s.pruner.notify_block(1_288, true, false).unwrap();
    s.tick(1);
    assert!(s.get(&child).being_deleted);
    assert_eq!(s.create(&raw(&child)), Err(UtxoRefusal::BeingDeleted));
    s.tick(1);
    let told = s.status().running.unwrap().counts.parents_updated;
    assert!(told > 0 && told < u64::from(INPUTS), "{told}");

    // The run is interrupted and dropped; the next run finishes the deletion.
    s.reopen();
    s.assembly(UtxoBlockAssemblyState::NotRunning);
    s.tick(1);
    assert_eq!(s.status().last_job.unwrap().state, UtxoJobState::Cancelled);
    assert!(s.get(&child).being_deleted);
    s.assembly(UtxoBlockAssemblyState::Running);
    s.settle();
    assert!(!s.there(&child));
    assert_eq!(s.status().totals.records_deleted, 1);
    assert_eq!(s.get(&parent).deleted_children, vec![child.id()]);
    for vout in [0, 999, 1_000, 9_999, INPUTS - 1] {
        let refused = s.spend(&child, &[parent.spend(vout, vout)]).unwrap_err();
        assert_eq!(refused[0].error, UtxoSpendError::InvalidSpend, "output {vout}");
    }
}

#[test]
fn parents_of_many_inputs_are_preserved_over_several_messages_before_deletions() {
    let mut s = Service::new();
    let parents: Vec<Tx> = (0..3).map(|i| Tx::orphan(50 + i, 10_000)).collect();
    let inputs: Vec<_> = parents.iter().flat_map(|tx| (0..10_000).map(|vout| (tx.txid, vout))).collect();
    let old = Tx::of(60, &inputs, 1);
    let due = Tx::orphan(70, 1);
    parents.iter().for_each(|tx| s.make_mined(tx));
    s.make(&old);
    s.make_due(&due);
    s.set(small_ticks());
    s.pruner.notify_block(1_288, true, false).unwrap();
    for _ in 0..3 {
        assert!(s.there(&due));
        s.tick(1);
        s.reopen();
    }
    s.settle();
    let job = s.status().last_job.unwrap();
    assert_eq!((job.counts.old_unmined, job.counts.parents_preserved, job.counts.records_deleted), (1, 30, 1));
    assert!(parents.iter().all(|tx| s.get(tx).preserve_until == Some(1_288 + 1_440)));
    assert!(job.ticks >= 30, "{}", job.ticks);
}

#[test]
fn many_spenders_are_looked_up_in_batches_over_all_pages() {
    let mut s = Service::new();
    s.settings.utxo_batch_size = 4;
    let tx = Tx::orphan(1, 11);
    s.make_mined(&tx);
    let children: Vec<Tx> = (0..11).map(|i| Tx::of(10 + u64::from(i), &[(tx.txid, i)], 1)).collect();
    for (child, vout) in children.iter().zip(0..) {
        s.spend_one(&tx, vout, child).unwrap();
        let at = if vout == 10 { 1_400 } else { 950 };
        s.create(&UtxoCreate { mined: mined(&[block(at, at)]), ..raw(child) }).unwrap();
    }
    s.set(UtxoPrunerSettingsChange {
        utxo_defensive_enabled: Some(true),
        utxo_defensive_batch_read_size: Some(3),
        ..small_ticks()
    });
    // All children are stable except the last, which is on the last page.
    let job = s.prune(1_500);
    assert_eq!((job.counts.skipped_child_recent, job.counts.processed), (1, 1), "{job:?}");
    assert!(s.there(&tx));
    let job = s.prune(1_400 + 288);
    assert_eq!((job.counts.records_deleted, job.counts.pages_deleted), (1, 2));
}
