//! Transactions that lose a block: whether they are unmined then, and since when.

use super::world::*;
use crate::utxo::all_ok;
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// Removes a block from a transaction, and returns the remaining blocks.
fn unset(world: &World, height: u32, block_id: u32, tx: &Tx, on_longest_chain: bool) -> Vec<u32> {
    let items = vec![MinedTransaction { txid: tx.id(), subtree: 0 }];
    let set = UtxoSetMinedBatch { height, block_id, block_height: block_id, on_longest_chain, unset: true, items };
    all_ok::<_, UtxoError>(world.coppice.producer().utxo_set_mined(&set).answer()).remove(0)
}

fn set(world: &World, height: u32, block_id: u32, tx: &Tx, on_longest_chain: bool) {
    let items = vec![MinedTransaction { txid: tx.id(), subtree: 0 }];
    let set = UtxoSetMinedBatch { height, block_id, block_height: block_id, on_longest_chain, unset: false, items };
    all_ok::<_, UtxoError>(world.coppice.producer().utxo_set_mined(&set).answer());
}

fn shown(world: &World, tx: &Tx) -> (Vec<u32>, Option<u32>, bool) {
    let record = world.record(tx).unwrap();
    (record.blocks.iter().map(|block| block.block_id).collect(), record.unmined_since, record.locked)
}

fn lock(world: &World, tx: &Tx) {
    let set = UtxoSetLockedBatch { height: 20, locked: true, txids: vec![tx.id()] };
    all_ok::<(), UtxoError>(world.coppice.producer().utxo_set_locked(&set).answer());
}

#[test]
fn unset_of_a_block_that_a_record_does_not_have_only_unlocks_it() {
    let world = World::new();
    let [mined, branch, unmined] = [1, 2, 3].map(|salt| Tx::orphan(salt, 1));
    world.create(10, &[&mined, &branch, &unmined]);
    set(&world, 11, 5, &mined, true);
    set(&world, 12, 5, &branch, false);
    for tx in [&mined, &branch, &unmined] {
        for on_longest_chain in [false, true] {
            let (blocks, since, _) = shown(&world, tx);
            lock(&world, tx);
            assert_eq!(unset(&world, 30, 6, tx, on_longest_chain), blocks);
            assert_eq!(shown(&world, tx), (blocks, since, false));
        }
    }
    assert_eq!([&mined, &branch, &unmined].map(|tx| shown(&world, tx).1), [None, Some(10), Some(10)]);
}

#[test]
fn unset_sets_unmined_since_by_the_remaining_blocks() {
    let world = World::new();
    // The flag `on_longest_chain` of both blocks, that of the removal, and `unmined_since` after the first removal and after the second.
    for (salt, before, rest, since, last) in [
        (1, true, true, None, 31),
        (2, true, false, None, 31),
        (3, false, true, None, 31),
        (4, false, false, Some(10), 10),
    ] {
        let tx = Tx::orphan(salt, 1);
        world.create(10, &[&tx]);
        set(&world, 11, 5, &tx, before);
        set(&world, 11, 6, &tx, before);
        lock(&world, &tx);
        assert_eq!(unset(&world, 30, 5, &tx, rest), [6]);
        assert_eq!(shown(&world, &tx), (vec![6], since, false), "{before} {rest}");
        // Removes the last block, twice.
        assert_eq!(unset(&world, 31, 6, &tx, rest), [0_u32; 0]);
        assert_eq!(shown(&world, &tx), (vec![], Some(last), false), "a height that is set stays");
        assert_eq!(unset(&world, 40, 6, &tx, rest), [0_u32; 0]);
        assert_eq!(shown(&world, &tx), (vec![], Some(last), false), "a repeated call changes nothing");
    }
}
