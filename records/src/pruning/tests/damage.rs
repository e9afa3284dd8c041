//! Damage and lack of memory: nothing is lost, and other records are pruned.

use super::service::Service;
use crate::testing::{Tx, raw};
use crate::utxo::Order;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{self, overwrite, place};
use ic_coppice_storage::twin;
use serde_bytes::ByteBuf;

/// Returns an old unmined transaction, its parent, and a record that is due.
fn old_unmined(s: &mut Service) -> (Tx, Tx, Tx) {
    let (parent, due) = (Tx::orphan(1, 1), Tx::orphan(2, 2));
    let child = Tx::of(3, &[(parent.txid, 0)], 1);
    s.make_mined(&parent);
    s.make(&child);
    s.spend_one(&parent, 0, &child).unwrap();
    s.make_due(&due);
    (parent, child, due)
}

/// Returns the slots of skipped records, and why each is skipped.
fn skipped(s: &Service) -> Vec<(u32, UtxoSkipReason)> {
    s.status().skipped.iter().map(|record| (record.slot, record.why)).collect()
}

#[test]
fn unreadable_unmined_record_stops_pruning_until_skipped() {
    let mut s = Service::new();
    let (parent, child, due) = old_unmined(&mut s);
    let sibling = Tx::of(4, &[(due.txid, 0)], 1);
    s.make(&sibling);
    let slot = s.slot(&child);
    s.damage(slot);
    let job = s.prune(2_000);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = &job.end else { panic!("{job:?}") };
    assert_eq!((job.state, blocked.slot, &blocked.txid), (UtxoJobState::Failed, slot, &child.id()));
    assert!(blocked.parent.is_none() && blocked.code == "Corrupt");
    assert!(s.there(&due) && s.there(&parent), "nothing is deleted");
    assert_eq!(job.counts.records_deleted, 0);
    let blocked = s.status().blocked_by.unwrap();
    assert!(blocked.why.contains(&format!("slot {slot}")), "{blocked:?}");
    assert_eq!(s.status().last_processed_height, 0);

    assert_eq!(s.pruner.skip(slot + 1), Err(UtxoPrunerError::NotBlocking));
    s.reopen();
    assert_eq!(s.pruner.skip(slot), Ok(()));
    assert_eq!(s.pruner.skip(slot), Ok(()), "a second call is accepted");
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.parents_preserved), (UtxoJobState::Completed, 1), "{job:?}");
    assert!(s.get(&due).preserve_until.is_some(), "the readable record's parent is preserved");
    assert!(!s.there(&parent), "the parents of the unreadable record are unknown");
    assert_eq!((s.status().blocked_by, skipped(&s)), (None, vec![(slot, UtxoSkipReason::Unreadable)]));
    s.pruner.retry(slot).unwrap();
    assert!(skipped(&s).is_empty(), "the record is examined again");
}

#[test]
fn unreadable_parent_stops_pruning_until_its_child_is_skipped() {
    let mut s = Service::new();
    let (parent, other) = (Tx::orphan(1, 1), Tx::orphan(2, 1));
    let child = Tx::of(3, &[(parent.txid, 0), (other.txid, 0)], 1);
    s.make_due(&parent);
    s.make_due(&other);
    s.make(&child);
    s.damage(s.slot(&parent));
    let job = s.prune(2_000);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = job.end else { panic!("{job:?}") };
    assert_eq!((blocked.txid, blocked.parent), (child.id(), Some(parent.id())));
    assert!(s.there(&other));
    s.pruner.skip(blocked.slot).unwrap();
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.parents_preserved), (UtxoJobState::Completed, 1));
    assert_eq!(s.get(&other).preserve_until, Some(3_440));
    assert_eq!(job.counts.record_errors, 1, "the damaged record is due and kept");
}

#[test]
fn unreadable_record_is_kept_and_counted_and_others_are_deleted() {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 2)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    let slot = s.slot(&txs[1]);
    s.damage(slot);
    let job = s.prune(1_288);
    assert_eq!((job.state, job.counts.records_deleted, job.counts.record_errors), (UtxoJobState::Completed, 4, 1));
    assert_eq!(s.store.storage().records, 1);
    s.heal(slot);
    let job = s.prune(1_289);
    assert_eq!((job.counts.records_deleted, s.store.storage().records), (1, 0));
}

#[test]
fn record_with_damaged_blob_is_kept_and_with_missing_blob_is_deleted() {
    let mut s = Service::new();
    s.settings.externalize_all = true;
    let (damaged, missing, sound) = (Tx::orphan(1, 1), Tx::orphan(2, 1), Tx::orphan(3, 1));
    [&damaged, &missing, &sound].into_iter().for_each(|tx| s.make_due(tx));
    let part = |s: &Service, tx: &Tx| match s.get(tx).transaction {
        TransactionPlace::Blobs { parts, .. } => (&parts[0]).into(),
        other => panic!("{other:?}"),
    };
    let gone = part(&s, &missing);
    s.blobs.free(&gone).unwrap();
    s.blobs.release(&gone).unwrap();
    let raw = testing::arena().payload();
    let granule = part(&s, &damaged).offset / (64 << 10);
    let mark = 65_536 + granule / 64 * 2_048 + granule % 64 * 16 + 11;
    assert_eq!(raw.read(mark), [0xC0], "the mark of the record's entry");
    raw.write(mark, &[0]);
    let job = s.prune(1_288);
    let counts = job.counts;
    assert_eq!((job.state, counts.external_errors), (UtxoJobState::Completed, 1), "{job:?}");
    assert_eq!((counts.external_files_missing, counts.external_files_deleted, counts.records_deleted), (1, 1, 2));
    assert!(s.there(&damaged) && !s.there(&missing) && !s.there(&sound));
    raw.write(mark, &[0xC0]);
    assert_eq!(s.prune(1_289).counts.external_files_deleted, 1);
    assert!(!s.there(&damaged));
}

/// Uses up all memory.
fn fill(s: &mut Service) {
    s.w.store.fill(0, 0, false);
}

#[test]
fn without_memory_nothing_is_deleted_before_all_parents_are_preserved() {
    let mut s = Service::new();
    let (parent, _, due) = old_unmined(&mut s);
    fill(&mut s);
    let job = s.prune(2_000);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = &job.end else { panic!("{job:?}") };
    assert_eq!((blocked.code.as_str(), &blocked.parent), ("OutOfSpace", &Some(parent.id())));
    assert!(s.there(&due), "nothing is deleted");
    testing::set_max_pages(u64::MAX);
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.records_deleted), (UtxoJobState::Completed, 1));
    assert_eq!(s.get(&parent).preserve_until, Some(3_440));
}

#[test]
fn record_with_external_blob_is_kept_without_memory_for_the_queue() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    make_external(&mut s, &tx);
    fill(&mut s);
    let job = s.prune(1_288);
    assert_eq!((job.counts.external_errors, job.counts.records_deleting), (1, 0));
    assert!(!s.get(&tx).being_deleted);
    testing::set_max_pages(u64::MAX);
    let job = s.prune(1_289);
    assert_eq!((job.counts.external_errors, job.counts.records_deleting), (0, 1));
    assert!(s.get(&tx).being_deleted);
    assert_eq!(s.queue.pending(1_289, 0, None).len(), 1);
}

/// Makes a due record whose bytes are in an external blob.
fn make_external(s: &mut Service, tx: &Tx) {
    let store =
        ExternalStore { blob_key: ByteBuf::from(b"key".to_vec()), file_type: FileType::Tx, store_type: StoreType::Tx };
    let source = TransactionSource::External(ExternalTransaction {
        txid: tx.id(),
        store,
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 9,
        inputs: vec![],
        utxo_hashes: vec![None],
    });
    let blocks = crate::testing::mined(&[crate::testing::block(900, 900)]);
    s.create(&UtxoCreate { source, mined: blocks, ..raw(tx) }).unwrap();
}

#[test]
fn pruner_pauses_when_cycles_are_low() {
    let mut s = Service::new();
    let due = Tx::orphan(1, 1);
    s.make_due(&due);
    s.pruner.notify_block(2_000, true, false).unwrap();
    s.with(|pruner, records| pruner.tick(records, true, false));
    assert!(s.there(&due) && s.status().pending.is_some());
    assert!(twin::with(|world| world.log.iter().any(|line| line.contains("min_liquid_cycles"))));
    s.tick(1);
    assert!(!s.there(&due));
}

/// Clears the record's link in an index.
fn damage_link(s: &Service, tx: &Tx, order: Order) {
    overwrite(s.slot(tx), 148 + 12 * order as u64, &[0; 12]);
}

#[test]
fn broken_index_skips_its_height_and_other_heights_are_pruned() {
    for broken in 0..3 {
        let mut s = Service::new();
        let txs: Vec<Tx> = (0..3).map(|i| Tx::orphan(10 + i, 2)).collect();
        txs.iter().for_each(|tx| s.make_due(tx));
        s.w.height = 1_010;
        let later = Tx::orphan(20, 1);
        s.make_due(&later);
        damage_link(&s, &txs[broken], Order::DeleteAt);
        let job = s.prune(1_300);
        assert_eq!((job.state, job.ticks, s.there(&later)), (UtxoJobState::Completed, 1, false), "{broken}");
        assert!(job.counts.record_errors >= 1 && job.counts.records_deleted <= 3, "{job:?}");
        assert!(s.there(&txs[broken]), "a record that cannot leave its index is kept");
    }
}

#[test]
fn broken_unmined_index_stops_deletions() {
    let mut s = Service::new();
    let (_, child, due) = old_unmined(&mut s);
    let others: Vec<Tx> = (0..2).map(|i| Tx::orphan(30 + i, 1)).collect();
    others.iter().for_each(|tx| s.make(tx));
    damage_link(&s, &child, Order::UnminedSince);
    for _ in 0..3 {
        let job = s.prune(2_000);
        let Some(UtxoJobEnd::PreserveParents(blocked)) = job.end else { panic!("{job:?}") };
        assert_eq!(s.pruner.skip(blocked.slot), Ok(()));
    }
    assert!(s.there(&due));
}

#[test]
fn child_of_an_unreadable_parent_is_kept() {
    let mut s = Service::new();
    s.settings.externalize_all = true;
    let parent = Tx::orphan(1, 2);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    s.make_mined(&parent);
    s.spend_one(&parent, 0, &child).unwrap();
    s.make_due(&child);
    let slot = s.slot(&parent);
    s.damage(slot);
    let job = s.prune(1_288);
    assert_eq!((job.counts.record_errors, job.counts.records_deleted, job.counts.external_files_deleted), (1, 0, 0));
    assert_eq!(s.w.bytes(&child).0, child.raw, "the child is unchanged");
    s.heal(slot);
    assert_eq!(s.prune(1_289).counts.parents_updated, 1);
    assert_eq!(s.get(&parent).deleted_children, vec![child.id()]);
}

#[test]
fn record_with_damaged_extras_is_kept() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    let blocks: Vec<BlockRef> = (0..5).map(|i| crate::testing::block(i, 900)).collect();
    s.create(&UtxoCreate { mined: crate::testing::mined(&blocks), ..raw(&tx) }).unwrap();
    s.spend_one(&tx, 0, &Tx::of(9, &[(tx.txid, 0)], 1)).unwrap();
    let at = place(s.slot(&tx), 76);
    let arena = testing::arena();
    let slots = arena.payload();
    let extras: [u8; 4] = slots.read(at);
    assert_ne!(extras, [0; 4]);
    slots.write(at, &u32::MAX.to_le_bytes());
    assert_eq!(s.prune(1_288).counts.record_errors, 1);
    assert!(s.store.storage().records == 1);
    slots.write(at, &extras);
    assert_eq!(s.prune(1_289).counts.records_deleted, 1);
}

#[test]
fn skipping_applies_to_the_record_and_not_to_its_slot() {
    let mut s = Service::new();
    let (_, child, _) = old_unmined(&mut s);
    let slot = s.slot(&child);
    s.damage(slot);
    s.prune(2_000);
    s.pruner.skip(slot).unwrap();
    s.heal(slot);
    let call = s.w.call();
    s.w.store.delete_by_id(&mut s.w.blobs, &child.txid, &call).unwrap();
    let next = Tx::of(5, &[([1; 32], 0)], 1);
    s.make(&next);
    assert_eq!(s.slot(&next), slot, "the next record takes the slot");
    s.damage(slot);
    assert_eq!(s.prune(2_001).state, UtxoJobState::Failed);
    assert!(s.status().skipped.is_empty());
}
