use super::*;
use crate::testing::{Tx, World, raw};
use crate::utxo::Ahead;
use ic_coppice_interface::{UtxoCreated, UtxoRefusal};
use ic_coppice_storage::{changed_pages, twin};

fn create(w: &mut World, items: &[UtxoCreate]) -> Batch<Result<UtxoCreated, UtxoRefusal>> {
    let call = w.call();
    let World { store, blobs, .. } = w;
    let mut batch = Ahead::new(items);
    store.batch(items, |store, item| store.create(blobs, item, &mut batch, &call))
}

#[test]
fn batch_ends_before_an_item_that_changes_too_many_pages() {
    let mut w = World::new();
    // Each transaction takes 360 pages, so 49 exceed the pages that a message may change.
    let txs: Vec<Tx> = (0..60).map(|i| Tx::orphan(i, 20_000)).collect();
    let items: Vec<UtxoCreate> = txs.iter().map(raw).collect();
    let done = create(&mut w, &items);
    let made = done.results.len() as u64;
    assert!(done.results.iter().all(Result::is_ok));
    assert_eq!(made + u64::from(done.remaining), 60);
    assert!((20..48).contains(&made), "{made}");
    // The first item is done whatever its pages.
    let freeze = |w: &mut World, txs: &[Tx]| {
        let call = w.call();
        let all: Vec<_> = txs.iter().map(|tx| FreezeTarget { txid: tx.id(), vout: None, utxo_hash: None }).collect();
        w.store.batch(&all, |store, item| store.set_frozen(item, true, &call))
    };
    let frozen = freeze(&mut w, &txs[..made as usize]);
    assert!(frozen.results.iter().all(|result| *result == Ok(20_000)));
    assert_eq!((frozen.results.len() as u64, frozen.remaining), (made, 0), "352 pages each");
    let rest = create(&mut w, &items[made as usize..]);
    assert_eq!(u64::from(rest.remaining) + rest.results.len() as u64, 60 - made);
}

#[test]
fn batch_ends_after_the_item_that_exceeds_its_instructions() {
    let mut w = World::new();
    twin::with(|world| world.instructions_per_reading = INSTRUCTIONS / 4);
    let items: Vec<UtxoCreate> = (0..9).map(|i| raw(&Tx::orphan(i, 1))).collect();
    let done = create(&mut w, &items);
    assert_eq!((done.results.len(), done.remaining), (5, 4));
    twin::with(|world| world.instructions_per_reading = 2 * INSTRUCTIONS);
    assert_eq!(create(&mut w, &items[5..]).remaining, 3, "the first item is done whatever it costs");
}

#[test]
fn estimated_pages_cover_the_changed_pages() {
    let mut w = World::new();
    let _counting = Counting::begin();
    w.make(&Tx::orphan(1, 20_000));
    let pages = changed_pages();
    assert!((440..460).contains(&pages), "{pages}");
    w.make(&Tx::orphan(2, 1));
    assert!((0..8).contains(&(changed_pages() - pages)));
}
