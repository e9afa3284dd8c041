//! Reorgs: a transaction that was mined is unmined again while the transaction it spends from is due, or nearly so. No record is deleted while
//! a live unmined transaction spends from it.

use super::world::*;
use crate::utxo::all_ok;
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// A mined parent, and its child, unmined since the height, which spends the parent's only output there.
fn family(world: &World, salt: u64, height: u32) -> (Tx, Tx) {
    let parent = Tx::orphan(salt, 1);
    let child = Tx::of(salt + 1_000_000, &[(parent.txid, 0)], 1);
    world.create(height, &[&parent, &child]);
    world.mine(height, &[&parent]);
    world.spend(height, &child, &[&parent]);
    (parent, child)
}

/// `utxo_set_on_longest_chain` with `false`.
fn leave_chain(world: &World, height: u32, txs: &[&Tx]) {
    let txids = txs.iter().map(|tx| tx.id()).collect();
    let set = UtxoSetOnLongestChainBatch { height, txids, on_longest_chain: false };
    all_ok::<(), UtxoError>(world.coppice.producer().utxo_set_on_longest_chain(&set).answer());
}

#[test]
fn parent_is_kept_under_a_child_that_a_reorg_of_one_block_unmined() {
    let world = World::new();
    world.retention(288);
    let (parent, child) = family(&world, 1, 1_000);
    world.mine(1_143, &[&child]);
    world.prune(1_144);
    world.unmine(1_144, 1_143, &[&child]);
    assert_eq!(world.record(&child).unwrap().unmined_since, Some(1_144));
    assert_eq!(world.heights(&parent), (Some(1_288), None), "the call itself changes nothing of the parent");
    let job = world.prune(1_288);
    // The child is not old: the cutoff is its own height.
    assert_eq!((world.status().unmined_cutoff_height, job.counts.records_deleted), (1_144, 0));
    assert_eq!(world.heights(&parent), (None, Some(1_288 + PRESERVATION)));
    let rival = Tx::of(9, &[(parent.txid, 0)], 1);
    let refused = world.try_spend(1_288, &rival, &[&parent]).unwrap_err();
    assert!(matches!(refused[0].error, UtxoSpendError::Spent { .. }), "{refused:?}");
}

#[test]
fn child_that_loses_its_side_block_stays_unmined_since_its_creation() {
    let world = World::new();
    world.retention(288);
    let (parent, child) = family(&world, 1, 1_000);
    let items = vec![MinedTransaction { txid: child.id(), subtree: 0 }];
    let set = UtxoSetMinedBatch {
        height: 1_001,
        block_id: 7,
        block_height: 1_001,
        on_longest_chain: false,
        unset: false,
        items,
    };
    all_ok::<_, UtxoError>(world.coppice.producer().utxo_set_mined(&set).answer());
    world.unmine(1_144, 7, &[&child]);
    assert_eq!(world.record(&child).unwrap().unmined_since, Some(1_000));
    assert_eq!(world.prune(1_288).counts.records_deleted, 0);
    assert_eq!(world.heights(&parent), (None, Some(1_288 + PRESERVATION)));
}

/// Children are mined at each height from the spend to the height at which their parents are due, and unmined at each later one.
#[test]
fn parents_are_kept_after_reorgs_of_every_depth() {
    let world = World::new();
    let due = 100 + RETENTION;
    let reorgs: Vec<(u32, u32)> = (100..due).flat_map(|mined| (mined + 1..=due).map(move |at| (mined, at))).collect();
    let families: Vec<(Tx, Tx)> = (1..).zip(&reorgs).map(|(salt, _)| family(&world, salt, 100)).collect();
    let calm: Vec<(Tx, Tx)> = (500..503).map(|salt| family(&world, salt, 100)).collect();
    for height in 100..=due + RETENTION {
        let of = |is: &dyn Fn(&(u32, u32)) -> bool| -> Vec<&Tx> {
            families.iter().zip(&reorgs).filter(|(_, reorg)| is(reorg)).map(|((_, child), _)| child).collect()
        };
        let mut mined = of(&|(mined, _)| *mined == height);
        if height == 100 {
            mined.extend(calm.iter().map(|(_, child)| child));
        }
        if !mined.is_empty() {
            world.mine(height, &mined);
        }
        // Half of them leave the longest chain with their block, the others lose the block.
        for block in 100..height {
            let all = of(&|(mined, at)| (*mined, *at) == (block, height));
            if !all.is_empty() && block % 2 == 0 {
                world.unmine(height, block, &all);
            } else if !all.is_empty() {
                leave_chain(&world, height, &all);
            }
        }
        world.prune(height);
        if height % 4 == 0 {
            world.coppice.upgrade();
        }
    }
    let parents: Vec<Tx> = families.into_iter().map(|(parent, _)| parent).collect();
    assert_eq!(world.count(&parents), reorgs.len());
    let parents: Vec<Tx> = calm.into_iter().map(|(parent, _)| parent).collect();
    assert_eq!(world.count(&parents), 0, "their children stay mined");
}

#[test]
fn late_child_is_examined_while_there_is_no_cutoff() {
    let world = World::new();
    let (parent, child) = family(&world, 1, 5);
    world.mine(6, &[&child]);
    // The parent stays due at 15, and 15 is below the longer retention.
    world.retention(288);
    world.unmine(14, 6, &[&child]);
    let job = world.prune(15);
    assert_eq!((world.status().unmined_cutoff_height, job.counts.records_deleted), (0, 0));
    assert_eq!(world.heights(&parent), (None, Some(15 + PRESERVATION)));
}

/// Deletions are half done when a child with 2,500 inputs becomes unmined. Preserving its parents takes three ticks, with an upgrade after
/// each.
#[test]
fn parents_that_need_several_slices_are_preserved_before_more_is_deleted() {
    let world = World::new();
    world.slow();
    let due = orphans(10..13);
    world.make_spent(10, &due);
    let parents = [Tx::orphan(1, 1), Tx::orphan(2, 1)];
    let mut inputs: Vec<([u8; 32], u32)> = (0..2_498).map(|vout| ([9; 32], vout)).collect();
    inputs.insert(0, (parents[0].txid, 0));
    inputs.push((parents[1].txid, 0));
    let child = Tx::of(3, &inputs, 1);
    world.create(10, &[&parents[0], &parents[1], &child]);
    world.mine(10, &[&parents[0], &parents[1], &child]);
    world.spend(10, &child, &[&parents[0], &parents[1]]);
    let job = World::scheduled(world.persisted(20));
    world.ticks(1);
    assert_eq!((world.count(&due), world.count(&parents)), (2, 2));
    world.unmine(20, 10, &[&child]);
    for (ticks, preserved) in [(1, [true, false]), (2, [true, false]), (3, [true, true])] {
        world.ticks(1);
        world.coppice.upgrade();
        assert_eq!(which(parents.iter().map(|parent| world.heights(parent).1)), preserved, "after {ticks} ticks");
        assert_eq!(world.count(&due), 2, "nothing is deleted meanwhile");
    }
    let done = world.finish(job.id);
    assert_eq!((world.count(&due), world.count(&parents), done.counts.records_deleted), (0, 2, 3));
}
