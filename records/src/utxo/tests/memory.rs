//! At the memory cap: operations are atomic, and freed memory is reused.

use crate::testing::*;
use crate::{owners, places};
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{self, audit, bytes_of, overwrite};
use ic_coppice_storage::twin;

/// Returns everything that the store's queries return.
fn all(w: &World, txs: &[&Tx]) -> (Vec<Option<UtxoRecord>>, UtxoStorage, Vec<UnminedTransaction>) {
    let get = |tx: &&Tx| w.store.get(&UtxoGet { txid: tx.id(), first: 0, limit: 100, extra_pages_cursor: None }).ok();
    (txs.iter().map(get).collect(), w.store.storage(), w.store.unmined(None, 0).unwrap().transactions)
}

/// Returns every byte of every slot, and the slots' header.
fn bytes(_: &World) -> Vec<u8> {
    let mut bytes = bytes_of(owners::RECORDS);
    let header = testing::space(places::UTXO_SLOTS);
    header.read_onto(&mut bytes, 0, 4_096);
    bytes
}

/// Leaves so many granules, and room for so many nodes of the indexes, to work that creates records if `creates`, otherwise to all work.
fn leave(w: &mut World, granules: usize, nodes: usize, creates: bool) {
    w.store.fill(granules, nodes, creates);
}

#[test]
fn operation_without_memory_changes_nothing() {
    let parent = Tx::orphan(1, 2);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    let rival = Tx::of(3, &[(parent.txid, 0), (parent.txid, 1)], 1);
    let grandchild = Tx::of(4, &[(child.txid, 0)], 1);
    let new = Tx::of(5, &[(parent.txid, 1)], 300);
    let txs = [&parent, &child, &rival, &grandchild, &new];
    type Operation<'a> = &'a dyn Fn(&mut World) -> Result<(), UtxoRefusal>;
    let many: Vec<BlockRef> = (0..40).map(|i| block(i, 900)).collect();
    let operations: [(&str, Operation); 9] = [
        ("create", &|w| w.create(&raw(&new)).map(drop)),
        ("create conflicting", &|w| w.create(&UtxoCreate { conflicting: true, ..raw(&new) }).map(drop)),
        ("create in many blocks", &|w| w.create(&UtxoCreate { mined: mined(&many), ..raw(&new) }).map(drop)),
        ("spend", &|w| w.spend_one(&parent, 1, &new).map(drop)),
        ("set_conflicting", &|w| {
            let call = w.call();
            w.store.set_conflicting(&parent.txid, &call).map(drop)
        }),
        ("process_conflicting", &|w| w.process(&[&rival]).map(drop).map_err(|error| error.error.into())),
        ("reassign", &|w| w.reassign(&parent, 1, [9; 32]).map(drop)),
        ("preserve", &|w| w.store.preserve(&parent.txid, 5_000_000).map(drop)),
        ("set_mined", &|w| {
            let call = w.call();
            let item = MinedTransaction { txid: grandchild.id(), subtree: 0 };
            let set = UtxoSetMinedBatch {
                height: 1,
                block_id: 77,
                block_height: 1,
                on_longest_chain: true,
                unset: false,
                items: vec![],
            };
            w.store.set_mined(&set, &item, &call, (&mut w.blobs, no_block)).map(drop)
        }),
    ];
    for (name, operation) in operations {
        let mut outcomes = [0, 0];
        for left in [0, 1, 2, 4, 5, 8, 12].into_iter().flat_map(|granules| [0, 1, 2, 4].map(|nodes| (granules, nodes)))
        {
            let mut w = World::new();
            w.make(&parent);
            w.make(&child);
            w.make(&grandchild);
            w.spend_one(&parent, 0, &child).unwrap();
            w.spend_one(&child, 0, &grandchild).unwrap();
            w.create(&UtxoCreate { conflicting: true, ..raw(&rival) }).unwrap();
            for id in 0..3 {
                w.set_mined(&grandchild, block(id, 1), false, false);
            }
            if name == "reassign" {
                w.freeze(&parent, Some(1), true).unwrap();
            }
            // Far from the existing nodes of the indexes.
            w.height = 2_000_000_000;
            leave(&mut w, left.0, left.1, name.starts_with("create"));
            let before = (all(&w, &txs), bytes(&w));
            let done = operation(&mut w);
            outcomes[usize::from(done.is_ok())] += 1;
            if let Err(error) = done {
                assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::OutOfSpace), "{name} with {left:?} left");
                assert_eq!(all(&w, &txs), before.0, "{name} with {left:?} left");
                assert!(bytes(&w) == before.1, "{name} with {left:?} left: the slots are not what they were");
            }
            let after = all(&w, &txs);
            w.reopen();
            assert_eq!(all(&w, &txs), after, "{name}: heap and stable memory agree");
        }
        assert!(outcomes[1] > 0, "{name}: {outcomes:?}");
        assert!(outcomes[0] > 0 || matches!(name, "spend" | "reassign" | "set_mined"), "{name}: {outcomes:?}");
    }
}

#[test]
fn deletions_at_the_cap_make_room_for_new_records() {
    let mut w = World::new();
    let first = Tx::orphan(0, 2);
    w.make(&first);
    w.set_mined(&first, block(1, 900), true, false);
    leave(&mut w, 6, 0, true);
    let mut made = Vec::new();
    let refused = (1..).map(|salt| Tx::orphan(salt, 2)).find_map(|tx| match w.create(&raw(&tx)) {
        Ok(_) => {
            made.push(tx);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused, Some(UtxoRefusal::NoMemory(NoMemory::OutOfSpace)));
    assert!(made.len() > 5, "{}", made.len());
    for round in 0..3 {
        for tx in &made {
            let call = w.call();
            w.store.delete_by_id(&mut w.blobs, &tx.txid, &call).unwrap();
        }
        for tx in &made {
            assert_eq!(w.create(&raw(tx)).map(|created| created.utxos), Ok(2), "{round}");
        }
    }
    // All operations on the existing records still work.
    let by = Tx::of(9_999, &[(made[0].txid, 0)], 1);
    assert_eq!(w.spend_one(&made[0], 0, &by), Ok(1));
    assert_eq!(w.unspend(&made[0], 0, &by, 0), Ok(true));
    w.set_locked(&made[1], true);
    assert_eq!(w.freeze(&made[2], None, true), Ok(2));
    let call = w.call();
    assert!(w.store.delete_by_id(&mut w.blobs, &first.txid, &call).is_ok());
}

#[test]
fn a_full_store_is_emptied_and_filled_again() {
    let mut w = World::new();
    leave(&mut w, 16, 0, true);
    let mut salt = 0;
    let mut fill = |w: &mut World| {
        let mut made = Vec::new();
        loop {
            salt += 1;
            let tx = Tx::orphan(salt, 100);
            match w.create(&raw(&tx)) {
                Ok(_) => made.push(tx.txid),
                Err(error) => {
                    assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::OutOfSpace));
                    return made;
                }
            }
        }
    };
    let mut made = fill(&mut w);
    let most = made.len();
    assert!(most > 30, "{most}");
    // Preservations, each at a separate node, take the rest of the memory.
    let mut until = 0;
    for txid in &made {
        until += 5_000_000;
        if let Err(error) = w.store.preserve(txid, until) {
            assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::OutOfSpace));
            break;
        }
    }
    for _ in 0..3 {
        for txid in &made {
            let call = w.call();
            assert_eq!(w.store.delete_by_id(&mut w.blobs, txid, &call), Ok(0));
        }
        made = fill(&mut w);
        assert!(made.len() >= most - most / 10, "{} where {most} were", made.len());
    }
}

#[test]
fn a_double_spend_of_many_parents_fits_or_is_refused() {
    let parents: Vec<Tx> = (0..1_500).map(|salt| Tx::orphan(salt, 1)).collect();
    let inputs: Vec<_> = parents.iter().map(|parent| (parent.txid, 0)).collect();
    let child = Tx::of(5_000, &inputs, 1);
    let (mut refused, mut done) = (0, 0);
    for left in 2..12 {
        let mut w = World::new();
        parents.iter().chain([&child]).for_each(|tx| w.make(tx));
        leave(&mut w, left, 0, false);
        let before = bytes(&w);
        let call = w.call();
        match w.store.set_conflicting(&child.txid, &call) {
            Ok(_) => done += 1,
            Err(error) => {
                assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::OutOfSpace));
                assert!(bytes(&w) == before, "the slots are not what they were");
                assert!(!w.get(&child).conflicting && w.get(&parents[0]).conflicting_children.is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 3 && done > 3, "{refused} {done}");
}

#[test]
fn records_are_counted_in_bytes_that_they_keep() {
    let mut w = World::new();
    let arena = testing::arena();
    let empty = arena.touched_bytes();
    let txs: Vec<Tx> = (0..2_000).map(|salt| Tx::orphan(salt, 20)).collect();
    // Room for records of 2 MiB in all, and for their nodes.
    arena.set_quota(empty + (3 << 20), 0);
    let made = txs.iter().take_while(|tx| w.create(&raw(tx)).is_ok()).count();
    assert!(made > 500 && made < 2_000, "{made}");
    let refused = w.create(&raw(&txs[made]));
    assert_eq!(refused, Err(UtxoRefusal::NoMemory(NoMemory::RecordsFull { limit: empty + (3 << 20) })));
    assert!(arena.touched_bytes() > empty + (3 << 20) - (256 << 10) && arena.touched_bytes() <= empty + (3 << 20));
    let storage = w.store.storage();
    assert_eq!((storage.kept_bytes, storage.max_bytes), (arena.touched_bytes(), arena.quota()));
    // Work on records is not refused at the quota.
    let by = Tx::of(9_999, &[(txs[0].txid, 0)], 1);
    assert_eq!(w.spend_one(&txs[0], 0, &by), Ok(1));
    assert_eq!(w.store.preserve(&txs[1].txid, 2_000_000_000), Ok(true));
    for tx in &txs[..made] {
        let call = w.call();
        w.store.delete_by_id(&mut w.blobs, &tx.txid, &call).unwrap();
    }
    assert_eq!(arena.touched_bytes(), empty, "freed memory does not count");
    assert_eq!(txs.iter().take_while(|tx| w.create(&raw(tx)).is_ok()).count(), made);
    audit();
}

/// A trap at any access to memory: the store opens, nothing has changed, and the arena's counters agree with its entries.
#[test]
fn interrupted_operations_change_nothing() {
    let parent = Tx::orphan(1, 2);
    let child = Tx::of(2, &[(parent.txid, 0)], 300);
    type Operation<'a> = &'a dyn Fn(&mut World);
    let operations: [(&str, Operation); 4] = [
        ("create", &|w| drop(w.create(&UtxoCreate { conflicting: true, ..raw(&child) }).unwrap())),
        ("spend", &|w| assert_eq!(w.spend_one(&parent, 1, &child), Ok(1))),
        ("set_conflicting", &|w| drop(w.set_conflicting(&parent))),
        ("delete", &|w| {
            let call = w.call();
            w.store.delete_by_id(&mut w.blobs, &parent.txid, &call).unwrap();
        }),
    ];
    let mut w = World::new();
    w.make(&parent);
    w.set_mined(&parent, block(1, 900), true, false);
    w.spend_one(&parent, 0, &child).unwrap();
    for (name, operation) in operations {
        let before = (bytes(&w), testing::arena().end());
        let mut traps = 0;
        for at in (0..).step_by(3) {
            twin::with(|world| world.trap_after = Some(at));
            let ended = twin::message(|| operation(&mut w));
            if twin::with(|world| world.trap_after.take()).is_some() {
                ended.unwrap();
                break;
            }
            traps += 1;
            w.reopen();
            assert!((bytes(&w), testing::arena().end()) == before, "{name}, trap at {at}");
            audit();
        }
        assert!(traps > 5, "{name}: {traps}");
        audit();
    }
}

/// Names that lead to memory of another store: no bytes of it are shown or changed.
#[test]
fn stale_names_are_refused() {
    let mut w = World::new();
    w.settings.utxo_batch_size = 2;
    let parent = Tx::orphan(1, 6);
    let child = Tx::of(2, &[(parent.txid, 5)], 1);
    w.create(&UtxoCreate { mined: mined(&[block(1, 900), block(2, 901), block(3, 902)]), ..raw(&parent) }).unwrap();
    w.create(&UtxoCreate { conflicting: true, ..raw(&child) }).unwrap();
    // A granule that looks like a record, a page, and a list.
    let arena = testing::arena();
    let foreign = arena.take_granules(testing::RECORDS, 4).unwrap();
    let slot = w.store.slot_of(&parent.txid);
    let mut copy = Vec::new();
    w.store.slots.read_onto(&mut copy, slot, 0, 1_000);
    let stale = (foreign * (64 << 10) / 128) as u32 + 1;
    overwrite(stale, 0, &copy);
    let foreign_bytes = bytes_of(testing::RECORDS);
    let head = w.store.head(slot);
    let corrupt =
        |refused: Result<(), UtxoRefusal>| assert!(matches!(refused, Err(UtxoRefusal::Corrupt { .. })), "{refused:?}");
    let damage = |at: u64, run: &dyn Fn(&mut World), w: &mut World| {
        let mut old = Vec::new();
        w.store.slots.read_onto(&mut old, slot, at as u32, 4);
        overwrite(slot, at, &stale.to_le_bytes());
        run(w);
        overwrite(slot, at, &old);
        assert!(bytes_of(testing::RECORDS) == foreign_bytes, "at {at}");
    };
    let read = |w: &World| {
        w.store.get(&UtxoGet { txid: parent.id(), first: 0, limit: 100, extra_pages_cursor: None }).map(drop)
    };
    let by = Tx::of(3, &[(parent.txid, 4)], 1);
    // The directory's first page.
    damage(
        u64::from(head.directory_at()),
        &|w| {
            corrupt(read(w));
            corrupt(w.spend_one(&parent, 2, &by).map(drop));
            corrupt(w.freeze(&parent, None, true).map(drop));
            assert_eq!(w.spend_one(&parent, 4, &by), Ok(1), "other pages are there");
            assert!(w.store.candidate(slot, None).is_err());
        },
        &mut w,
    );
    // The extras, which have the list of double spends.
    damage(
        76,
        &|w| {
            corrupt(read(w));
            let other = Tx::of(4, &[(parent.txid, 5)], 1);
            corrupt(w.create(&UtxoCreate { conflicting: true, ..raw(&other) }).map(drop));
        },
        &mut w,
    );
    // The ring of records with the same height.
    w.store.preserve(&parent.txid, 5_000).unwrap();
    let link = 148 + 12 * crate::utxo::Order::PreserveUntil as u64;
    damage(link + 8, &|w| corrupt(w.store.preserve(&parent.txid, 6_000).map(drop)), &mut w);
    assert_eq!(read(&w), Ok(()));
}
