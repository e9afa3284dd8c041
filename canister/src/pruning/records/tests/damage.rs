//! What cannot be read, or has no memory: nothing is lost, and nothing else held up.

use super::service::Service;
use crate::platform::native;
use crate::storage::memory;
use crate::utxo::Order;
use crate::utxo::tests::world::{Tx, raw};
use coppice_interface::*;
use serde_bytes::ByteBuf;

/// An old unmined transaction that spends from `parent`, and a record that is due.
fn old_unmined(s: &mut Service) -> (Tx, Tx, Tx) {
    let (parent, due) = (Tx::orphan(1, 1), Tx::orphan(2, 2));
    let child = Tx::of(3, &[(parent.txid, 0)], 1);
    s.make_mined(&parent);
    s.make(&child);
    s.spend_one(&parent, 0, &child).unwrap();
    s.make_due(&due);
    (parent, child, due)
}

#[test]
fn an_unmined_record_that_cannot_be_read_stops_everything_until_it_is_set_aside() {
    let mut s = Service::new();
    let (parent, child, due) = old_unmined(&mut s);
    let sibling = Tx::of(4, &[(due.txid, 0)], 1);
    s.make(&sibling);
    let slot = s.slot(&child);
    s.damage(slot);
    let job = s.prune(2_000);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = &job.end else { panic!("{job:?}") };
    assert_eq!((job.state, blocked.slot, &blocked.txid), (UtxoJobState::Failed, slot, &child.id()));
    assert!(blocked.parent.is_none() && matches!(blocked.error, UtxoError::Corrupt { .. }));
    assert!(s.there(&due) && s.there(&parent), "nothing is deleted");
    assert_eq!(job.counts.records_deleted, 0);
    let problems = Service::problems;
    let blocked = problems(&s);
    assert_eq!((blocked.len(), blocked[0].code), (1, ProblemCode::PreservationBlocked));
    assert!(blocked[0].message.contains(&format!("slot {slot}")), "{blocked:?}");
    assert_eq!(s.status().last_processed_height, 0);

    assert_eq!(s.pruner.set_aside(slot + 1), Err(UtxoPrunerError::NotBlocking));
    s.reopen();
    assert_eq!(s.pruner.set_aside(slot), Ok(()));
    assert_eq!(s.pruner.set_aside(slot), Ok(()), "once more is the same");
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.parents_preserved), (UtxoJobState::Completed, 1), "{job:?}");
    assert!(s.get(&due).preserve_until.is_some(), "the parent of the one that can be read");
    assert!(!s.there(&parent), "of the other nobody knows what it spends from");
    assert_eq!((s.status().blocked_by, s.status().set_aside), (None, vec![slot]));
    assert_eq!(problems(&s).into_iter().map(|found| found.code).collect::<Vec<_>>(), [ProblemCode::UnminedSetAside]);
    s.pruner.retry(slot).unwrap();
    assert_eq!(problems(&s), [], "it is looked at again");
}

#[test]
fn a_parent_that_cannot_be_read_stops_everything_and_the_others_are_preserved_where_it_is_set_aside() {
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
    s.pruner.set_aside(blocked.slot).unwrap();
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.parents_preserved), (UtxoJobState::Completed, 1));
    assert_eq!(s.get(&other).preserve_until, Some(3_440));
    assert_eq!(job.counts.record_errors, 1, "the damaged one is due, and kept");
}

#[test]
fn a_record_that_cannot_be_read_is_kept_and_counted_and_the_others_go() {
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
fn a_record_is_kept_whose_blob_is_damaged_and_goes_where_it_is_missing() {
    let mut s = Service::new();
    s.settings.externalize_all = true;
    let (damaged, missing, sound) = (Tx::orphan(1, 1), Tx::orphan(2, 1), Tx::orphan(3, 1));
    [&damaged, &missing, &sound].into_iter().for_each(|tx| s.make_due(tx));
    let part = |s: &Service, tx: &Tx| match s.get(tx).transaction {
        TransactionPlace::Blobs { parts, .. } => crate::storage::pointer(&parts[0]),
        other => panic!("{other:?}"),
    };
    let gone = part(&s, &missing);
    s.blobs.free(&gone).unwrap();
    s.blobs.release(&gone).unwrap();
    let broken = part(&s, &damaged);
    assert_eq!(broken.offset, 0, "the first entry with a mark is its own");
    let granules = memory::region(memory::BLOB_GRANULES);
    let mark = (0..granules.size()).find(|at| granules.read(*at) == [0xC0]).unwrap();
    granules.write(mark, &[0]);
    let job = s.prune(1_288);
    let counts = job.counts;
    assert_eq!((job.state, counts.external_errors), (UtxoJobState::Completed, 1), "{job:?}");
    assert_eq!((counts.external_files_missing, counts.external_files_deleted, counts.records_deleted), (1, 1, 2));
    assert!(s.there(&damaged) && !s.there(&missing) && !s.there(&sound));
    granules.write(mark, &[0xC0]);
    assert_eq!(s.prune(1_289).counts.external_files_deleted, 1);
    assert!(!s.there(&damaged));
}

/// Leaves no memory: neither the bucket's rest nor more of it.
fn fill(s: &mut Service) {
    s.w.store.fill(0, false);
    memory::manager().set_max_pages(memory::billed_pages());
}

#[test]
fn without_memory_nothing_is_deleted_before_all_parents_are_preserved() {
    let mut s = Service::new();
    let (parent, _, due) = old_unmined(&mut s);
    fill(&mut s);
    let job = s.prune(2_000);
    let Some(UtxoJobEnd::PreserveParents(blocked)) = &job.end else { panic!("{job:?}") };
    assert_eq!((&blocked.error, &blocked.parent), (&UtxoError::OutOfSpace, &Some(parent.id())));
    assert!(s.there(&due), "nothing is deleted");
    memory::manager().set_max_pages(u64::MAX);
    let job = s.prune(2_000);
    assert_eq!((job.state, job.counts.records_deleted), (UtxoJobState::Completed, 1));
    assert_eq!(s.get(&parent).preserve_until, Some(3_440));
}

#[test]
fn without_memory_for_the_queue_a_record_with_a_blob_outside_is_kept() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    make_outside(&mut s, &tx);
    memory::manager().set_max_pages(memory::billed_pages());
    let job = s.prune(1_288);
    assert_eq!((job.counts.external_errors, job.counts.records_deleting), (1, 0));
    assert!(!s.get(&tx).being_deleted);
    memory::manager().set_max_pages(u64::MAX);
    let job = s.prune(1_289);
    assert_eq!((job.counts.external_errors, job.counts.records_deleting), (0, 1));
    assert!(s.get(&tx).being_deleted);
    assert_eq!(s.queue.pending(1_289, 0, None).len(), 1);
}

/// A due record whose bytes are outside.
fn make_outside(s: &mut Service, tx: &Tx) {
    let store =
        ExternalStore { blob_key: ByteBuf::from(b"key".to_vec()), file_type: FileType::Tx, store_type: StoreType::Tx };
    let source = TransactionSource::Outside(OutsideTransaction {
        txid: tx.id(),
        store,
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 9,
        inputs: vec![],
        utxo_hashes: vec![None],
    });
    let blocks = crate::utxo::tests::world::mined(&[crate::utxo::tests::world::block(900, 900)]);
    s.create(&UtxoCreate { source, mined: blocks, ..raw(tx) }).unwrap();
}

#[test]
fn short_of_cycles_it_pauses() {
    let mut s = Service::new();
    let due = Tx::orphan(1, 1);
    s.make_due(&due);
    s.pruner.notify_block(2_000, true, false).unwrap();
    s.with(|pruner, records| pruner.tick(records, true));
    assert!(s.there(&due) && s.status().pending.is_some());
    assert!(native::with(|world| world.log.iter().any(|line| line.contains("min_liquid_cycles"))));
    s.tick(1);
    assert!(!s.there(&due));
}

/// Clears what a record says of its place in an index.
fn damage_link(s: &Service, tx: &Tx, order: Order) {
    let at = u64::from(s.slot(tx)) * 64 + 8 + 148 + 12 * order as u64;
    memory::region(memory::UTXO_SLOTS).write(at, &[0; 12]);
}

#[test]
fn where_an_index_is_broken_its_height_is_passed_over_and_the_others_go() {
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
        assert!(s.there(&txs[broken]), "what cannot be taken out of its index is kept");
    }
}

#[test]
fn where_the_index_of_unmined_ones_is_broken_nothing_is_deleted_set_aside_or_not() {
    let mut s = Service::new();
    let (_, child, due) = old_unmined(&mut s);
    let others: Vec<Tx> = (0..2).map(|i| Tx::orphan(30 + i, 1)).collect();
    others.iter().for_each(|tx| s.make(tx));
    damage_link(&s, &child, Order::UnminedSince);
    for _ in 0..3 {
        let job = s.prune(2_000);
        let Some(UtxoJobEnd::PreserveParents(blocked)) = job.end else { panic!("{job:?}") };
        assert_eq!(s.pruner.set_aside(blocked.slot), Ok(()));
    }
    assert!(s.there(&due));
}

#[test]
fn a_child_is_kept_whose_parent_cannot_be_read_as_that_would_not_be_told() {
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
    assert_eq!(s.w.bytes(&child).0, child.raw, "nothing of it went");
    s.heal(slot);
    assert_eq!(s.prune(1_289).counts.parents_updated, 1);
    assert_eq!(s.get(&parent).deleted_children, vec![child.id()]);
}

#[test]
fn a_record_is_kept_whose_extras_are_damaged() {
    let mut s = Service::new();
    let tx = Tx::orphan(1, 1);
    let blocks: Vec<BlockRef> = (0..5).map(|i| crate::utxo::tests::world::block(i, 900)).collect();
    s.create(&UtxoCreate { mined: crate::utxo::tests::world::mined(&blocks), ..raw(&tx) }).unwrap();
    s.spend_one(&tx, 0, &Tx::of(9, &[(tx.txid, 0)], 1)).unwrap();
    let at = u64::from(s.slot(&tx)) * 64 + 8 + 76;
    let slots = memory::region(memory::UTXO_SLOTS);
    let extras: [u8; 4] = slots.read(at);
    assert_ne!(extras, [0; 4]);
    slots.write(at, &u32::MAX.to_le_bytes());
    assert_eq!(s.prune(1_288).counts.record_errors, 1);
    assert!(s.store.storage().records == 1);
    slots.write(at, &extras);
    assert_eq!(s.prune(1_289).counts.records_deleted, 1);
}

#[test]
fn who_is_set_aside_is_that_record_and_not_its_slot() {
    let mut s = Service::new();
    let (_, child, _) = old_unmined(&mut s);
    let slot = s.slot(&child);
    s.damage(slot);
    s.prune(2_000);
    s.pruner.set_aside(slot).unwrap();
    s.heal(slot);
    let call = s.w.call();
    s.w.store.delete_by_id(&mut s.w.blobs, &child.txid, &call).unwrap();
    let next = Tx::of(5, &[([1; 32], 0)], 1);
    s.make(&next);
    assert_eq!(s.slot(&next), slot, "its slot is the next one's");
    s.damage(slot);
    assert_eq!(s.prune(2_001).state, UtxoJobState::Failed);
    assert!(s.status().set_aside.is_empty());
}
