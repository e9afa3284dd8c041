//! The purpose of the sections, from beginning to end: no record that may be needed again is deleted, and no deleted one comes back.

use super::world::*;
use crate::utxo::{all_ok, create};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::UtxoBlockAssemblyState::{NotRunning, Running};
use ic_coppice_interface::*;

/// Section 1: a pruned transaction is submitted again.
#[test]
fn s1_a_pruned_child_is_refused_while_its_parent_has_a_record() {
    let world = World::new();
    let parent = Tx::orphan(1, 2);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    world.create(10, &[&parent, &child]);
    world.mine(10, &[&parent, &child]);
    world.spend(10, &child, &[&parent]);
    world.spend_by_stranger(10, &child, 0..1);
    assert_eq!(world.try_spend(11, &child, &[&parent]), Ok(0), "before: the same again is not an error");
    world.prune(20);
    assert_eq!(world.have_records(&[parent.clone(), child.clone()]), [true, false]);
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
    world.coppice.upgrade();
    let invalid = vec![RefusedSpend { spend: 0, error: UtxoSpendError::InvalidSpend }];
    assert_eq!(world.try_spend(21, &child, &[&parent]), Err(invalid));
    // Another spender learns who spent the output; the parent's other output is free.
    let rival = Tx::of(3, &[(parent.txid, 0)], 1);
    let by = Spender { txid: child.id(), vin: 0 };
    assert_eq!(world.try_spend(21, &rival, &[&parent]).unwrap_err()[0].error, UtxoSpendError::Spent { by });
    let other = Tx::of(4, &[(parent.txid, 1)], 1);
    assert_eq!(world.try_spend(21, &other, &[&parent]), Ok(1));
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
}

/// 2.3 phase 1, at every height: the parent stays while its child is old and unmined, then for the preservation, then for the retention;
/// and no longer.
#[test]
fn s2_3_a_parent_of_an_old_unmined_transaction_survives_exactly_as_long_as_it_must() {
    let world = World::new();
    world.set(UtxoPrunerSettingsChange { parent_preservation_blocks: Some(20), ..Default::default() });
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    let ordinary = Tx::orphan(3, 1);
    world.create(90, &[&parent]);
    world.mine(90, &[&parent]);
    world.make_spent(100, std::slice::from_ref(&ordinary));
    world.create(100, &[&child]);
    world.spend(100, &child, &[&parent]);
    let (mut gone, mut heights) = (None, Vec::new());
    for height in 101..=145 {
        if height == 112 {
            world.mine(height, &[&child]);
        }
        world.prune(height);
        assert_eq!(world.record(&ordinary).is_some(), height < 110, "at {height}");
        match world.record(&parent) {
            Some(record) => heights.push((height, record.delete_at_height, record.preserve_until)),
            None => gone = gone.or(Some(height)),
        }
    }
    // Old from 106 on, mined at 112: the last preservation holds until 131. It is renewed every other block, an eighth of the preservation.
    let expected = (101..=140).map(|height| match height {
        ..106 => (height, Some(110), None),
        106 => (height, None, Some(126)),
        107..112 => (height, None, Some((height - 1) / 2 * 2 + 21)),
        112..131 => (height, None, Some(131)),
        _ => (height, Some(141), None),
    });
    assert_eq!(heights, expected.collect::<Vec<_>>());
    assert_eq!(gone, Some(141));
    assert!(world.record(&child).is_some(), "it has an unspent output");
}

/// 2.3: an old unmined transaction is accepted when it is submitted again at a time when its parent would long be gone.
#[test]
fn s2_3_an_old_unmined_transaction_can_be_resubmitted() {
    let world = World::new();
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    let item = Tx::of(3, &[(child.txid, 0)], 1);
    world.create(10, &[&parent, &child]);
    world.mine(10, &[&parent]);
    world.spend(10, &child, &[&parent]);
    for height in [16, 20, 100, 1_000] {
        world.prune(height);
    }
    assert_eq!(world.try_spend(1_000, &child, &[&parent]), Ok(0), "its spend is still the one that holds the output");
    world.create(1_000, &[&item]);
    world.spend(1_000, &item, &[&child]);
    world.mine(1_001, &[&child, &item]);
    assert_eq!(world.heights(&child), (Some(1_011), None));
    world.prune(1_011);
    assert_eq!(world.have_records(&[parent.clone(), child.clone(), item]), [true, false, true]);
    assert_eq!(world.record(&parent).unwrap().deleted_children, [child.id()]);
}

/// 2.3, safety check: a reorg in the middle of a run moves records' transactions to another block.
#[test]
fn s2_3_a_reorg_loses_nothing() {
    let world = World::new();
    world.slow();
    let (settled, moved) = (orphans(0..2), orphans(10..14));
    let parent = Tx::orphan(20, 1);
    let child = Tx::of(21, &[(parent.txid, 0)], 1);
    world.make_spent(99, &settled);
    world.make_spent(100, &moved);
    world.create(100, &[&parent, &child]);
    world.mine(100, &[&parent, &child]);
    world.spend(100, &child, &[&parent]);
    world.spend_by_stranger(100, &child, 0..1);
    world.coppice.upgrade();
    let job = World::scheduled(world.persisted(110));
    world.ticks(3);
    assert_eq!((world.count(&settled), world.count(&moved)), (0, 3), "the run is in the middle of them");

    // Block 100 is removed, while a timer may fire between any two messages.
    let three: Vec<&Tx> = moved[1..].iter().chain([&parent, &child]).collect();
    world.assembly(NotRunning);
    for tx in &three {
        world.unmine(110, 100, &[tx]);
        world.ticks(1);
    }
    assert!(three.iter().all(|tx| world.record(tx).unwrap().unmined_since == Some(110)));
    assert_eq!(world.coppice.storage().utxo.unwrap().deletable, 0);
    World::scheduled(world.persisted(112));
    world.ticks(2);
    // Another block contains all but one of them.
    world.mine(112, &three[1..]);
    world.assembly(Running);
    world.ticks(20);
    let status = world.status();
    assert_eq!((status.last_processed_height, status.pending, status.running), (112, None, None));
    assert!(three.iter().all(|tx| world.record(tx).is_some()), "none is lost");
    assert_eq!(world.jobs().iter().find(|ended| ended.id == job.id).unwrap().state, UtxoJobState::Cancelled);

    world.prune(121);
    assert!(three.iter().all(|tx| world.record(tx).is_some()));
    world.prune(122);
    let there: Vec<bool> = which(three.iter().map(|tx| world.record(tx)));
    assert_eq!(there, [true, false, false, false, false], "all except the one without a block");
    // Unmined transactions can be mined, and are pruned when due.
    world.mine(125, &three[..1]);
    world.prune(134);
    assert!(world.record(three[0]).is_some());
    world.prune(135);
    assert_eq!(world.coppice.storage().utxo.unwrap().records, 0);
}

/// 2.3: a double spend that lost does not count as the spender; the winner's chain decides what is deleted.
#[test]
fn s2_3_a_loser_is_deleted_and_the_winner_stays() {
    let world = World::new();
    let parent = Tx::orphan(1, 1);
    let loser = Tx::of(2, &[(parent.txid, 0)], 1);
    let winner = Tx::of(3, &[(parent.txid, 0)], 1);
    world.create(10, &[&parent, &loser]);
    world.mine(10, &[&parent]);
    world.spend(10, &loser, &[&parent]);
    all_ok(create(&world.coppice, 11, vec![UtxoCreate { conflicting: true, ..winner.record() }]));
    let arg = UtxoProcessConflicting { height: 12, winners: vec![winner.id()] };
    let resolved: Result<ConflictResolution, ConflictError> =
        world.coppice.producer().utxo_process_conflicting(&arg).answer();
    assert_eq!(resolved.unwrap().losers, [loser.id()]);
    world.mine(12, &[&winner]);
    assert_eq!((world.heights(&loser).0, world.heights(&winner).0), (Some(22), None));
    assert_eq!(world.heights(&parent).0, Some(22));
    let preserve = UtxoPreserveBatch { until_height: 1_000, txids: vec![parent.id()] };
    all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer());
    world.prune(22);
    assert_eq!(world.have_records(&[parent.clone(), loser, winner]), [true, false, true]);
    let record = world.record(&parent).unwrap();
    assert_eq!((record.conflicting_children.len(), record.deleted_children.len()), (0, 0));
}
