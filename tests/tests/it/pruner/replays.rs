//! Blocks that are fed again from below the pruned height: pruned transactions do not come back, and no output is spent twice.

use super::world::*;
use crate::utxo::create;
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// A transaction in blocks of these heights, as a replay creates it.
fn in_block(tx: &Tx, heights: &[u32]) -> UtxoCreate {
    let blocks = heights.iter().map(|&height| BlockRef { block_id: height, height, subtree: 0 }).collect();
    UtxoCreate { mined: Some(MinedIn { blocks, on_longest_chain: true }), ..tx.record() }
}

fn made(world: &World, height: u32, item: UtxoCreate) -> Result<(), UtxoCreateError> {
    create(&world.coppice, height, vec![item]).results.remove(0).map(drop)
}

fn pruned_height(world: &World) -> Option<u32> {
    world.coppice.storage().utxo.unwrap().pruned_height
}

/// A coinbase of block 50 is spent by a transaction of block 60, and that one by a transaction of block 70, which is unspent; the first two
/// are pruned.
struct Pruned {
    world: World,
    coinbase: Tx,
    second: Tx,
    third: Tx,
}

fn pruned() -> Pruned {
    let world = World::new();
    let coinbase = Tx::of(1, &[([0; 32], u32::MAX)], 1);
    let second = Tx::of(2, &[(coinbase.txid, 0)], 1);
    let third = Tx::of(3, &[(second.txid, 0)], 1);
    world.configure(UtxoSettingsChange { coinbase_maturity: Some(0), ..Default::default() });
    for (height, tx, parent) in [(50, &coinbase, None), (60, &second, Some(&coinbase)), (70, &third, Some(&second))] {
        made(&world, height, in_block(tx, &[height])).unwrap();
        parent.into_iter().for_each(|parent| world.spend(height, tx, &[parent]));
    }
    assert_eq!(pruned_height(&world), None, "nothing was pruned");
    world.prune(80);
    assert_eq!(which([&coinbase, &second, &third].map(|tx| world.record(tx))), [false, false, true]);
    Pruned { world, coinbase, second, third }
}

#[test]
fn a_replay_of_pruned_blocks_makes_no_spent_coin_spendable() {
    let Pruned { world, coinbase, second, third } = pruned();
    assert_eq!(pruned_height(&world), Some(60));
    assert_eq!(made(&world, 80, in_block(&coinbase, &[50])), Err(UtxoCreateError::Pruned), "a coinbase has no parents");
    assert_eq!(made(&world, 80, in_block(&second, &[60])), Err(UtxoCreateError::Pruned));
    assert_eq!(made(&world, 80, in_block(&third, &[70])), Err(UtxoCreateError::TxExists));
    let thief = Tx::of(9, &[(coinbase.txid, 0)], 1);
    let refused = world.try_spend(80, &thief, &[&coinbase]).unwrap_err();
    assert_eq!(refused[0].error, UtxoSpendError::TxNotFound);
    // An upgrade and `utxo_set_heights` keep the pruned height.
    world.coppice.upgrade();
    let heights = UtxoSetHeights { current: 10, persisted: Some(10), processed: 5 };
    world.coppice.operator().utxo_set_heights(&heights).answer().unwrap();
    assert_eq!(pruned_height(&world), Some(60));
    assert_eq!(made(&world, 10, in_block(&coinbase, &[50])), Err(UtxoCreateError::Pruned));
}

#[test]
fn records_above_the_pruned_height_and_unmined_ones_need_no_parent() {
    let Pruned { world, coinbase, .. } = pruned();
    let [above, one_above, unmined] = [11, 12, 13].map(|salt| Tx::of(salt, &[(coinbase.txid, 0)], 1));
    made(&world, 80, in_block(&above, &[61])).unwrap();
    made(&world, 80, in_block(&one_above, &[50, 61])).unwrap();
    made(&world, 80, unmined.record()).unwrap();
    assert_eq!(which([&above, &one_above, &unmined].map(|tx| world.record(tx))), [true; 3]);
    for heights in [&[60][..], &[50, 60], &[1]] {
        let tx = Tx::of(14, &[(coinbase.txid, 0)], 1);
        assert_eq!(made(&world, 80, in_block(&tx, heights)), Err(UtxoCreateError::Pruned), "{heights:?}");
    }
}

#[test]
fn a_new_record_below_the_pruned_height_needs_a_parent_or_is_new() {
    let Pruned { world, third, .. } = pruned();
    // The parent has a record, and does not name the child as deleted.
    let child = Tx::of(21, &[(third.txid, 0)], 1);
    made(&world, 80, in_block(&child, &[60])).unwrap();
    let late = Tx::of(22, &[([0; 32], u32::MAX)], 1);
    assert_eq!(made(&world, 80, in_block(&late, &[55])), Err(UtxoCreateError::Pruned));
    made(&world, 80, UtxoCreate { is_new: true, ..in_block(&late, &[55]) }).unwrap();
    assert!(world.record(&late).is_some());
}

#[test]
fn a_transaction_that_its_parent_names_as_deleted_is_refused_even_with_is_new() {
    let world = World::new();
    let parent = Tx::orphan(1, 2);
    world.create(40, &[&parent]);
    world.mine(40, &[&parent]);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    world.spend(50, &child, &[&parent]);
    world.make_spent(50, std::slice::from_ref(&child));
    world.prune(60);
    assert_eq!(which([&parent, &child].map(|tx| world.record(tx))), [true, false]);
    assert_eq!(pruned_height(&world), Some(50));
    for is_new in [false, true] {
        let item = UtxoCreate { is_new, ..in_block(&child, &[50]) };
        assert_eq!(made(&world, 60, item), Err(UtxoCreateError::Pruned), "{is_new}");
    }
    // A transaction that the output does not name as deleted is not a replay.
    let other = Tx::of(3, &[(parent.txid, 1)], 1);
    made(&world, 60, in_block(&other, &[50])).unwrap();
}

#[test]
fn a_double_spend_that_is_pruned_raises_no_pruned_height() {
    let world = World::new();
    let rival = Tx::orphan(5, 1);
    made(&world, 50, UtxoCreate { conflicting: true, ..in_block(&rival, &[50]) }).unwrap();
    world.prune(70);
    assert_eq!((world.record(&rival).is_none(), pruned_height(&world)), (true, None));
    made(&world, 70, in_block(&rival, &[50])).unwrap();
}
