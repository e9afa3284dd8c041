use super::*;
use crate::utxo::tests::world::{Tx, World, raw};

fn create(w: &mut World, items: &[UtxoCreate]) -> Batch<Result<UtxoCreated, UtxoRefusal>> {
    let call = w.call();
    let World { store, blobs, .. } = w;
    store.batch(items, call.settings, |store, item| store.create(blobs, item, &call))
}

#[test]
fn a_batch_ends_where_the_next_item_would_change_too_many_pages() {
    let mut w = World::new();
    // 360 pages each, 49 of which are more than a message may change.
    let txs: Vec<Tx> = (0..60).map(|i| Tx::orphan(i, 20_000)).collect();
    let items: Vec<UtxoCreate> = txs.iter().map(raw).collect();
    let done = create(&mut w, &items);
    let made = done.results.len() as u64;
    assert!(done.results.iter().all(Result::is_ok));
    assert_eq!(made + u64::from(done.remaining), 60);
    assert!((20..48).contains(&made), "{made}");
    // One alone is done, whatever it takes.
    let freeze = |w: &mut World, txs: &[Tx]| {
        let call = w.call();
        let all: Vec<_> = txs.iter().map(|tx| FreezeTarget { txid: tx.id(), vout: None, utxo_hash: None }).collect();
        w.store.batch(&all, call.settings, |store, item| store.set_frozen(item, true, &call))
    };
    let frozen = freeze(&mut w, &txs[..made as usize]);
    assert!(frozen.results.iter().all(|result| *result == Ok(20_000)));
    assert_eq!((frozen.results.len() as u64, frozen.remaining), (made, 0), "352 pages each");
    let rest = create(&mut w, &items[made as usize..]);
    assert_eq!(u64::from(rest.remaining) + rest.results.len() as u64, 60 - made);
}

#[test]
fn what_gives_up_in_its_middle_is_undone_and_done_alone() {
    let mut w = World::new();
    let parent = Tx::orphan(1, 2);
    let children: Vec<Tx> = (0..2).map(|i| Tx::of(10 + i, &[(parent.txid, i as u32)], 1)).collect();
    w.make(&parent);
    w.set_locked(&parent, false);
    for (child, vout) in children.iter().zip(0..) {
        w.make(child);
        w.spend_one(&parent, vout, child).unwrap();
    }
    let call = w.call();
    let txids: Vec<ByteBuf> = children.iter().map(Tx::id).collect();
    let done = w.store.batch(&txids, call.settings, |store, txid| {
        // As if what comes behind the first changed more than there is room for.
        store.changed.most = store.changed.most.map(|_| 0);
        store.set_conflicting(txid, &call)
    });
    assert_eq!((done.results.len(), done.remaining), (1, 1));
    assert!(w.get(&children[0]).conflicting && !w.get(&children[1]).conflicting);
    assert_eq!(w.get(&parent).conflicting_children, [txids[0].clone()]);
    let done = w.store.batch(&txids[1..], call.settings, |store, txid| store.set_conflicting(txid, &call));
    assert_eq!((done.results.len(), done.remaining), (1, 0));
}

#[test]
fn pages_are_counted_as_they_are() {
    let mut w = World::new();
    w.store.slots.count_pages(true);
    w.make(&Tx::orphan(1, 20_000));
    let pages = w.store.slots.pages_changed();
    assert!((440..460).contains(&pages), "{pages}");
    w.make(&Tx::orphan(2, 1));
    assert!((0..8).contains(&(w.store.slots.pages_changed() - pages)));
}
