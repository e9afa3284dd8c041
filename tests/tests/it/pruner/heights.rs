//! What heights are believed, and the way back from wrong ones.

use super::world::*;
use crate::utxo::all_ok;
use coppice_interface::*;
use coppice_tests::client::Told;
use coppice_tests::coppice::Who;
use coppice_tests::transactions::Tx;
use serde_bytes::ByteBuf;

/// The first height that is none.
const NONE: u32 = 1 << 31;

fn persisted(world: &World, height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    world.coppice.producer().notify_block_persisted(height).told()
}

fn block(world: &World, height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    world.coppice.producer().notify_block(height, true).told()
}

fn set(world: &World, current: u32, persisted: Option<u32>, processed: u32) -> Result<UtxoHeightsSet, UtxoPrunerError> {
    world.coppice.operator().set_heights(&UtxoSetHeights { current, persisted, processed }).told()
}

/// A parent that is due at 20, and what spends from it and has been unmined since 10.
fn old_unmined(world: &World) -> Tx {
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    world.create(10, &[&parent, &child]);
    world.mine(10, &[&parent]);
    world.spend(10, &child, &[&parent]);
    parent
}

#[test]
fn the_largest_heights_delete_no_parent_of_an_old_unmined_transaction() {
    for height in [u32::MAX, NONE, NONE - 1] {
        let world = World::new();
        let parent = old_unmined(&world);
        let pruned = world.by_hand(height);
        if height >= NONE {
            let bad = UtxoPrunerError::BadHeight { most: NONE - 1 };
            assert_eq!(pruned, Err(bad.clone()));
            assert_eq!((persisted(&world, height), block(&world, height)), (Err(bad.clone()), Err(bad)));
            assert_eq!(world.heights(&parent), (Some(20), None), "nothing has changed");
        } else {
            assert_eq!(pruned.unwrap().state, UtxoJobState::Completed);
            assert_eq!(world.heights(&parent), (None, Some(NONE - 1 + PRESERVATION)));
        }
    }
}

#[test]
fn one_wrong_notification_deletes_nothing_and_is_repaired() {
    let world = World::new();
    let txs = orphans(0..3);
    world.done(10, &txs);
    world.prune(12);
    for wrong in [NONE - 1, 10_013] {
        let refused = Err(UtxoPrunerError::HeightJump { current: 12, most: 10_012 });
        assert_eq!((persisted(&world, wrong), block(&world, wrong)), (refused.clone(), refused));
    }
    assert_eq!((world.status().current_height, world.count(&txs)), (12, 3));
    // One that is believed: it is set right before anything goes.
    world.slow();
    World::scheduled(persisted(&world, 5_000).unwrap());
    world.ticks(1);
    let running = world.status().running.unwrap();
    let due = set(&world, 15, Some(14), 12).unwrap();
    assert_eq!((due.safe_height, due.due.as_ref().map(|job| job.height)), (14, Some(14)));
    assert_eq!((world.last().id, world.last().end), (running.id, Some(UtxoJobEnd::HeightsSet)));
    world.coppice.upgrade();
    world.ticks(2);
    assert_eq!((world.status().last_processed_height, world.count(&txs)), (14, 2));
    // A persister that is retired.
    assert_eq!(set(&world, 15, None, 15).unwrap().due, None);
    World::scheduled(block(&world, 20).unwrap());
    world.ticks(3);
    assert_eq!(world.count(&txs), 0);
}

#[test]
fn what_is_due_is_pruned_without_another_call() {
    let world = World::new();
    world.slow();
    let (first, second) = (orphans(0..3), orphans(10..12));
    world.done(30, &first);
    world.done(80, &second);
    block(&world, 100).unwrap();
    persisted(&world, 50).unwrap();
    world.ticks(1);
    assert!(matches!(persisted(&world, 95), Ok(UtxoNotifyOutcome::Underway(_))));
    world.ticks(5);
    assert_eq!((world.count(&first), world.count(&second)), (0, 0));
    assert_eq!((world.last().trigger, world.status().last_processed_height), (UtxoJobTrigger::Due, 95));
}

#[test]
fn a_job_is_cancelled_by_an_operator_and_by_nobody_else() {
    let world = World::new();
    let txs = orphans(0..3);
    world.done(10, &txs);
    let job = World::scheduled(world.persisted(20));
    assert!(
        world
            .coppice
            .call::<Result<UtxoPruneJob, UtxoPrunerError>>(Who::Producer, "cancel_prune_job", (job.id,))
            .is_err()
    );
    let cancelled: Result<UtxoPruneJob, UtxoPrunerError> = world.coppice.operator().cancel_prune_job(job.id).told();
    assert_eq!(cancelled.unwrap().end, Some(UtxoJobEnd::Cancelled));
    let again: Result<UtxoPruneJob, UtxoPrunerError> = world.coppice.operator().cancel_prune_job(job.id).told();
    assert_eq!(again, Err(UtxoPrunerError::NotOpen));
    world.ticks(3);
    assert_eq!((world.count(&txs), world.status().last_processed_height), (3, 0));
    assert_eq!(world.prune(20).counts.records_deleted, 3);
}

#[test]
fn a_status_is_taken_back_and_given_again_and_blocks_stay() {
    let world = World::new();
    let tx = Tx::orphan(1, 1);
    world.done(10, std::slice::from_ref(&tx));
    let on_longest_chain = |is: bool, height: u32| {
        let set = UtxoSetOnLongestChainBatch { height, txids: vec![ByteBuf::from(tx.txid)], on_longest_chain: is };
        all_ok(world.coppice.producer().utxo_set_on_longest_chain(&set).told());
        let record = world.record(&tx).unwrap();
        (
            record.unmined_since,
            record.delete_at_height,
            record.blocks.iter().map(|block| block.block_id).collect::<Vec<_>>(),
        )
    };
    assert_eq!(on_longest_chain(false, 12), (Some(12), None, vec![10]));
    assert_eq!(on_longest_chain(true, 13), (None, Some(13 + RETENTION), vec![10]));
}
