//! Acceptance and refusal of heights, and the repair of wrong ones.

use super::world::*;
use crate::utxo::all_ok;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Who;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// The first number that is not a valid height.
const NONE: u32 = 1 << 31;

fn persisted(world: &World, height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    world.coppice.producer().utxo_notify_block_persisted(height).answer()
}

fn block(world: &World, height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    world.coppice.producer().utxo_notify_block(height, true).answer()
}

fn set(world: &World, current: u32, persisted: Option<u32>, processed: u32) -> Result<UtxoHeightsSet, UtxoPrunerError> {
    world.coppice.operator().utxo_set_heights(&UtxoSetHeights { current, persisted, processed }).answer()
}

/// Makes a parent that is due at 20, and its child, unmined since 10. Returns the parent.
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
        let pruned = world.prune_manually(height);
        if height >= NONE {
            let bad = UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: NONE - 1 });
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
    world.make_spent(10, &txs);
    world.prune(12);
    for wrong in [NONE - 1, 10_013] {
        let refused = Err(UtxoPrunerError::HeightJump { highest: 12, most: 10_012, accepted_at_ns: None });
        assert_eq!((persisted(&world, wrong), block(&world, wrong)), (refused.clone(), refused));
    }
    assert_eq!((world.status().current_height, world.count(&txs)), (12, 3));
    // A wrong height that is accepted: an operator corrects it before any record is deleted.
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
    // A block persister that is switched off.
    assert_eq!(set(&world, 15, None, 15).unwrap().due, None);
    World::scheduled(block(&world, 20).unwrap());
    world.ticks(3);
    assert_eq!(world.count(&txs), 0);
}

/// A stolen key notifies heights in steps of the largest allowed jump: the attack that once deleted every due record.
#[test]
fn ninety_steps_of_the_largest_jump_raise_a_height_by_one_jump() {
    const JUMP: u32 = 10_000;
    let world = World::new();
    // Due at 12, at 12 + 1 to 4 jumps, and two retentions above the first jump.
    let txs: Vec<Tx> = orphans(0..6);
    for (tx, height) in txs.iter().zip([2, 2 + JUMP, 3 + 2 * JUMP, 3 * JUMP, 4 * JUMP, 23 + JUMP]) {
        world.make_spent(height, std::slice::from_ref(tx));
    }
    world.prune(12);
    assert_eq!(world.count(&txs), 5);
    let started = world.coppice.ic.now();
    let mut height = 12;
    let mut refused = 0;
    for call in 0..90_u32 {
        let answer = if call % 2 == 0 { persisted(&world, height + JUMP) } else { block(&world, height + JUMP) };
        match answer {
            Ok(_) => height += JUMP,
            Err(UtxoPrunerError::HeightJump { highest, most, accepted_at_ns }) => {
                assert_eq!(highest, height);
                assert!(most < height + JUMP && accepted_at_ns.is_some_and(|at| at > world.coppice.ic.now()), "{most}");
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
        if call == 45 {
            world.coppice.upgrade();
        }
        world.ticks(1);
    }
    assert_eq!((height, refused), (12 + JUMP, 89), "an upgrade fills nothing");
    // The allowance refills over a day, also for persisted heights.
    let most = world.status().most_height;
    let minutes = (world.coppice.ic.now() - started) / 60_000_000_000;
    assert!((1..=7 * (minutes as u32 + 1)).contains(&(most - height)), "{most} after {minutes} minutes");
    persisted(&world, most).unwrap();
    world.ticks(3);
    assert_eq!(world.have_records(&txs), [false, false, true, true, true, most < 33 + JUMP], "{most}");
    // Honest heights make no job for 10,000 blocks, and `health` reports that.
    assert!(matches!(persisted(&world, 13), Ok(UtxoNotifyOutcome::Processed(_))));
    let ahead = world.health().problems.into_iter().find(|problem| problem.code == ProblemCode::HeightsAhead).unwrap();
    // The height to set must come from a node, so the command is the query that shows the one in force.
    let command = " utxo_get_pruner_status '()'`";
    assert_eq!((ahead.severity, ahead.action.contains(command)), (Severity::Warning, true), "{}", ahead.action);
    set(&world, 13, Some(13), 13).unwrap();
    assert!(!world.health().problems.iter().any(|problem| problem.code == ProblemCode::HeightsAhead));
    World::scheduled(persisted(&world, 14).unwrap());
}

/// The allowance refills to the nanosecond and not earlier; the refusal names that time.
#[test]
fn a_refused_height_is_accepted_at_the_moment_that_the_refusal_names() {
    let world = World::new();
    let day = |blocks: u32| UtxoPrunerSettingsChange {
        max_height_jump: Some(blocks),
        heights_per_day: Some(blocks),
        ..Default::default()
    };
    world.set(day(144));
    block(&world, 1_000).unwrap();
    block(&world, 1_144).unwrap();
    let Err(UtxoPrunerError::HeightJump { highest: 1_144, most: 1_144, accepted_at_ns: Some(at) }) =
        block(&world, 1_146)
    else {
        panic!("a height above the bucket is accepted");
    };
    let wait = (at - world.coppice.ic.now()) / 1_000_000_000;
    assert!((1_190..=1_200).contains(&wait), "20 minutes are 2 of 144 heights, not {wait} s");
    assert!(matches!(block(&world, 1_289), Err(UtxoPrunerError::HeightJump { accepted_at_ns: None, .. })));
    world.coppice.pass(wait - 5);
    assert!(block(&world, 1_146).is_err());
    world.coppice.upgrade();
    world.coppice.pass(10);
    block(&world, 1_146).unwrap();
    // Persisted heights have their own allowance once one was notified. The first persisted height may be any.
    persisted(&world, 900).unwrap();
    persisted(&world, 1_044).unwrap();
    let refused = persisted(&world, 1_146);
    assert!(matches!(refused, Err(UtxoPrunerError::HeightJump { highest: 1_044, .. })), "{refused:?}");
    // A replay is not bounded by the head, and `health` reports that meanwhile.
    let codes = || -> Vec<ProblemCode> { world.health().problems.iter().filter_map(Problem::known).collect() };
    let both = [ProblemCode::HeightsRefused, ProblemCode::HeightJumpWide];
    assert_eq!(codes(), both, "144 blocks, and 10 are retained; a persister waits");
    world.coppice.pass(2 * 3_600);
    assert_eq!(codes(), [ProblemCode::HeightJumpWide], "it has not asked again for two hours");
    world.set(UtxoPrunerSettingsChange { heights_per_day: Some(0), ..Default::default() });
    block(&world, 1_000_000).unwrap();
    assert_eq!(codes(), [ProblemCode::HeightsUnlimited]);
    world.set(day(10));
    assert_eq!((codes(), world.health().healthy), (vec![], true));
    assert!(block(&world, 1_000_011).is_err());
    assert_eq!((codes(), world.health().healthy), (vec![ProblemCode::HeightsRefused], false));
    world.coppice.upgrade();
    assert_eq!(codes(), [ProblemCode::HeightsRefused], "an upgrade forgets no refusal");
    set(&world, 1_000_011, None, 1_000_000).unwrap();
    assert_eq!(codes(), []);
}

/// A feeder's height may exceed the head by at most one jump; an operator's height may be any.
#[test]
fn heights_that_are_block_numbers_are_bounded_by_the_head() {
    let world = World::new();
    let change = UtxoPrunerSettingsChange {
        heights_are_block_numbers: Some(true),
        max_height_jump: Some(5),
        ..Default::default()
    };
    world.set(change);
    assert_eq!(block(&world, 1), Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: 0 })), "there is no block");
    world.coppice.append_plain(100..103, 50);
    for wrong in [108, NONE - 1] {
        let refused = Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: 107 }));
        assert_eq!((block(&world, wrong), persisted(&world, wrong)), (refused.clone(), refused));
    }
    block(&world, 107).unwrap();
    persisted(&world, 107).unwrap();
    let both = Grant { principal: Who::Controller.principal(), role: Role::Producer };
    world.coppice.operator().grant_role(&both).answer().unwrap();
    world.coppice.operator().utxo_notify_block(1_000_000, true).answer().unwrap();
    assert_eq!(world.status().current_height, 1_000_000);
}

#[test]
fn due_records_are_pruned_without_another_call() {
    let world = World::new();
    world.slow();
    let (first, second) = (orphans(0..3), orphans(10..12));
    world.make_spent(30, &first);
    world.make_spent(80, &second);
    block(&world, 100).unwrap();
    persisted(&world, 50).unwrap();
    world.ticks(1);
    assert!(matches!(persisted(&world, 95), Ok(UtxoNotifyOutcome::Underway(_))));
    world.ticks(5);
    assert_eq!((world.count(&first), world.count(&second)), (0, 0));
    assert_eq!((world.last().trigger, world.status().last_processed_height), (UtxoJobTrigger::Due, 95));
}

#[test]
fn only_an_operator_cancels_a_job() {
    let world = World::new();
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    assert!(
        world
            .coppice
            .call::<Result<UtxoPruneJob, UtxoPrunerError>>(Who::Producer, "utxo_cancel_prune_job", (job.id,))
            .is_err()
    );
    let cancelled: Result<UtxoPruneJob, UtxoPrunerError> =
        world.coppice.operator().utxo_cancel_prune_job(job.id).answer();
    assert_eq!(cancelled.unwrap().end, Some(UtxoJobEnd::Cancelled));
    let again: Result<UtxoPruneJob, UtxoPrunerError> = world.coppice.operator().utxo_cancel_prune_job(job.id).answer();
    assert_eq!(again, Err(UtxoPrunerError::NotOpen));
    world.ticks(3);
    assert_eq!((world.count(&txs), world.status().last_processed_height), (3, 0));
    assert_eq!(world.prune(20).counts.records_deleted, 3);
}

#[test]
fn the_longest_chain_status_changes_while_blocks_stay() {
    let world = World::new();
    let tx = Tx::orphan(1, 1);
    world.make_spent(10, std::slice::from_ref(&tx));
    let on_longest_chain = |is: bool, height: u32| {
        let set = UtxoSetOnLongestChainBatch { height, txids: vec![tx.txid.into()], on_longest_chain: is };
        all_ok(world.coppice.producer().utxo_set_on_longest_chain(&set).answer());
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

#[test]
fn a_record_spent_at_a_height_below_its_block_is_kept_for_its_whole_retention() {
    let world = World::new();
    let [tx, other] = [Tx::orphan(1, 1), Tx::orphan(2, 1)];
    world.create(100, &[&tx, &other]);
    world.mine(100, &[&tx]);
    world.mine(90, &[&tx, &other]);
    world.spend_by_stranger(1, &tx, 0..1);
    assert_eq!(world.heights(&tx), (Some(100 + RETENTION), None), "by its highest block");
    world.spend_by_stranger(95, &other, 0..1);
    assert_eq!(world.heights(&other), (Some(95 + RETENTION), None), "by the call, which is above its block");
    world.block(100, true);
    world.ticks(3);
    assert_eq!(world.have_records(&[tx.clone(), other.clone()]), [true, true]);
    world.block(110, true);
    world.ticks(3);
    assert_eq!(world.have_records(&[tx, other]), [false, false]);
}

#[test]
fn a_record_with_many_blocks_is_due_by_the_highest() {
    let world = World::new();
    let tx = Tx::orphan(1, 1);
    world.create(10, &[&tx]);
    for height in [10, 12, 30, 11, 13] {
        world.mine(height, &[&tx]);
    }
    world.spend_by_stranger(14, &tx, 0..1);
    assert_eq!(world.heights(&tx), (Some(30 + RETENTION), None));
}

/// Calls each method that changes records, at a height, and with a block at `block` if the method names one.
fn at_height(world: &World, tx: &Tx, height: u32, block: u32) -> Vec<Option<UtxoError>> {
    use crate::utxo::{create, spend};
    let coppice = &world.coppice;
    let producer = coppice.producer();
    fn only<T, E: Into<UtxoRefusal>>(batch: Batch<Result<T, E>>) -> Option<UtxoError> {
        let refusal: Option<UtxoRefusal> = batch.results.into_iter().next().unwrap().err().map(Into::into);
        refusal.map(UtxoError::from)
    }
    let spends = vec![tx.spend(0, 0)];
    let spent = spend(coppice, height, vec![TransactionSpends { spender: stranger(tx).into(), spends }]);
    let spent = spent.results.into_iter().next().unwrap().err().map(|errors| errors[0].error.clone());
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 9, height: block, subtree: 0 }], on_longest_chain: true };
    let item = UtxoCreate { mined: Some(mined), ..Tx::orphan(u64::from(height) << 32 | u64::from(block), 1).record() };
    let items = vec![MinedTransaction { txid: tx.id(), subtree: 0 }];
    let (block_id, on_longest_chain) = (7, true);
    let set = UtxoSetMinedBatch { height, block_id, block_height: block, on_longest_chain, unset: false, items };
    let target = FreezeTarget { txid: tx.id(), vout: Some(1), utxo_hash: None };
    let freeze = UtxoFreezeBatch { height, items: vec![target] };
    let reassign = Reassign { outpoint: tx.outpoint(1), utxo_hash: tx.hash(1).into(), new_utxo_hash: [5; 32].into() };
    let alert = || coppice.by(Who::Alert);
    let spender = Spender { txid: stranger(tx).into(), vin: 0 };
    let unspend = Unspend { outpoint: tx.outpoint(0), utxo_hash: tx.hash(0).into(), spender };
    let txids = vec![tx.id()];
    vec![
        only(create(coppice, height, vec![item])),
        spent.map(|error| UtxoRefusal::from(error).into()),
        only(producer.utxo_unspend(&UtxoUnspendBatch { height, items: vec![unspend] }).answer()),
        only(producer.utxo_set_mined(&set).answer()),
        only(
            producer
                .utxo_set_on_longest_chain(&UtxoSetOnLongestChainBatch {
                    height,
                    txids: txids.clone(),
                    on_longest_chain,
                })
                .answer(),
        ),
        only(producer.utxo_set_locked(&UtxoSetLockedBatch { height, locked: false, txids: txids.clone() }).answer()),
        only(alert().utxo_freeze(&freeze).answer()),
        only(alert().utxo_unfreeze(&freeze).answer()),
        only(alert().utxo_freeze(&freeze).answer()),
        only(alert().utxo_reassign(&UtxoReassignBatch { height, items: vec![reassign] }).answer()),
        only(producer.utxo_set_conflicting(&UtxoSetConflictingBatch { height, txids: txids.clone() }).answer()),
        producer
            .utxo_process_conflicting(&UtxoProcessConflicting { height, winners: txids })
            .answer()
            .err()
            .map(|refused: ConflictError| refused.error),
        coppice.anyone().utxo_get_spend(&UtxoGetSpend { height, outpoints: vec![tx.outpoint(0)] }).answer().err(),
    ]
}

#[test]
fn heights_of_calls_and_of_their_blocks_are_bounded_once_a_height_was_notified() {
    const MOST: u32 = 12 + 10_000;
    let world = World::new();
    let grant = Grant { principal: Who::Alert.principal(), role: Role::Alert };
    world.coppice.operator().grant_role(&grant).answer().unwrap();
    let made = |salt: u64, height: u32| {
        let parent = Tx::orphan(100 + salt, 1);
        let tx = Tx::of(salt, &[(parent.txid, 0)], 2);
        world.create(height, &[&parent, &tx]);
        tx
    };
    let before = made(1, 10);
    let answers = at_height(&world, &before, NONE - 1, NONE - 1);
    assert!(answers.iter().all(Option::is_none), "nothing was notified: {answers:?}");
    let tx = made(2, 10);
    world.persisted(12);
    let bad = Some(UtxoError::BadHeight(BadHeight::TooHigh { most: MOST }));
    for height in [MOST + 1, 1_700_000_000, NONE - 1, NONE, u32::MAX] {
        let record = world.record(&tx);
        let answers = at_height(&world, &tx, height, 12);
        assert!(answers.iter().all(|answer| *answer == bad), "{height}: {answers:?}");
        assert_eq!(world.record(&tx), record, "nothing has changed");
        let answers = at_height(&world, &tx, 12, height);
        assert_eq!([&answers[0], &answers[3]], [&bad, &bad], "of a block");
    }
    let status = world.status();
    assert_eq!((status.most_height, status.current_height), (MOST, 12), "nothing is drawn");
    // The largest height is accepted, and a record may be preserved until any height.
    let last = made(3, MOST);
    let answers = at_height(&world, &last, MOST, MOST);
    assert!(answers.iter().all(Option::is_none), "{answers:?}");
    let preserve = UtxoPreserveBatch { until_height: NONE - 1, txids: vec![last.id()] };
    assert_eq!(all_ok::<bool, UtxoError>(world.coppice.producer().utxo_preserve(&preserve).answer()), [true]);
    assert_eq!(world.status().most_height, MOST);
}

#[test]
fn unix_seconds_as_a_height_spend_no_immature_coinbase() {
    let world = World::new();
    let coinbase = Tx::of(1, &[([0; 32], u32::MAX)], 1);
    world.create(100, &[&coinbase]);
    world.persisted(100);
    let thief = Tx::of(2, &[(coinbase.txid, 0)], 1);
    let refused = world.try_spend(1_700_000_000, &thief, &[&coinbase]).unwrap_err();
    assert_eq!(refused[0].error, UtxoSpendError::BadHeight(BadHeight::TooHigh { most: 10_100 }));
    let refused = world.try_spend(199, &thief, &[&coinbase]).unwrap_err();
    assert_eq!(refused[0].error, UtxoSpendError::CoinbaseImmature { spendable_at: 200 });
    // Without a daily limit of heights, this height is not bounded, either.
    world.set(UtxoPrunerSettingsChange { heights_per_day: Some(0), ..Default::default() });
    world.spend(NONE - 1, &thief, &[&coinbase]);
}
