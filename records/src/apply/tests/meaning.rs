//! Applied blocks have the meaning of the single calls.

use super::world::*;
use coppice_model::transactions::Tx;
use ic_coppice_interface::blocks::Blocks as _;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{audit, histories};
use proptest::prelude::*;

/// A random block: for each transaction the outputs it spends, by their number among the unspent ones, and its outputs.
type Plan = Vec<Vec<(Vec<usize>, u32)>>;

fn plan() -> impl Strategy<Value = Plan> {
    let tx = (prop::collection::vec(any::<usize>(), 0..4), 1u32..6);
    prop::collection::vec(prop::collection::vec(tx, 0..6), 1..6)
}

/// Makes the blocks of a plan: each with a coinbase, and each output spent at most once.
fn blocks(plan: &Plan) -> Vec<Vec<Tx>> {
    let (mut unspent, mut salt): (Vec<([u8; 32], u32)>, u64) = (Vec::new(), 0);
    let mut young: Vec<Vec<([u8; 32], u32)>> = Vec::new();
    plan.iter()
        .enumerate()
        .map(|(number, block)| {
            salt += 1;
            let coinbase = Tx::coinbase(1_000_000 + number as u64, 2);
            // A coinbase can be spent two blocks later.
            young.push(vec![(coinbase.txid, 0), (coinbase.txid, 1)]);
            if let Some(grown) = number.checked_sub(2) {
                unspent.append(&mut young[grown]);
            }
            let mut txs = vec![coinbase];
            for (inputs, outputs) in block {
                salt += 1;
                let mut taken = Vec::new();
                for pick in inputs {
                    if !unspent.is_empty() {
                        taken.push(unspent.swap_remove(pick % unspent.len()));
                    }
                }
                let tx = if taken.is_empty() { Tx::orphan(salt, *outputs) } else { Tx::of(salt, &taken, *outputs) };
                unspent.extend((0..*outputs).map(|vout| (tx.txid, vout)));
                txs.push(tx);
            }
            txs
        })
        .collect()
}

proptest! {
    #![proptest_config(histories(40))]

    #[test]
    fn applied_blocks_equal_the_single_calls(plan in plan(), batch in 1u32..5, waiting in any::<u64>(), external: bool) {
        let blocks = blocks(&plan);
        let all: Vec<Tx> = blocks.concat();
        // Some transactions have records before their block comes, locked.
        let waits = |at: usize, tx: &Tx| waiting >> (at % 64) & 1 == 1 && tx.inputs[0].0 != [0; 32];
        let run = |applied: bool| {
            let mut w = World::new();
            (w.settings.utxo_batch_size, w.settings.externalize_all) = (batch, external);
            for (at, tx) in all.iter().enumerate().filter(|(at, tx)| waits(*at, tx)) {
                let locked = if at % 2 == 0 { None } else { Some(false) };
                w.create(&UtxoCreate { locked, ..tx.record() }, 900).unwrap();
            }
            let mut sums = Vec::new();
            for (number, txs) in (0..).zip(&blocks) {
                w.append(number, txs);
                if applied {
                    let done = w.apply(&argument(number)).unwrap();
                    assert_eq!(done.created + done.existed, txs.len() as u32);
                    sums.push(done);
                    // A repeated call changes nothing.
                    let before = w.seen(&all);
                    let again = w.apply(&argument(number)).unwrap();
                    assert_eq!((again.created, again.existed, again.spent), (0, 0, 0));
                    assert_eq!(w.seen(&all), before);
                } else {
                    w.single(&argument(number), txs, &all);
                }
            }
            audit();
            w.seen(&all)
        };
        prop_assert_eq!(run(true), run(false));
    }
}

fn chain(w: &mut World, blocks: &[Vec<Tx>]) {
    for (number, txs) in (0..).zip(blocks) {
        w.append(number, txs);
    }
}

#[test]
fn blocks_are_applied_in_order_and_an_applied_one_again_changes_nothing() {
    let mut w = World::new();
    let blocks: Vec<Vec<Tx>> = (0..4).map(|number| vec![Tx::coinbase(number, 1)]).collect();
    chain(&mut w, &blocks);
    assert_eq!(w.step(&UtxoApplyBlock { height: 0, ..argument(1) }), Err(BadHeight::Zero.into()));
    for height in [MAX_HEIGHT, MAX_HEIGHT + 1, u32::MAX] {
        let too_high = UtxoApplyBlock { height, ..argument(1) };
        let most = MAX_HEIGHT - 1;
        assert_eq!(
            w.step(&too_high),
            Err(BadHeight::TooHigh { most }.into()),
            "the first block leaves a height for the next one"
        );
    }
    assert_eq!(w.step(&argument(4)), Err(UtxoApplyError::NotFound));
    assert_eq!(w.applier.status(), None);
    let one = UtxoApplied { transactions: 1, created: 1, ..UtxoApplied::default() };
    assert_eq!(w.step(&argument(1)), Ok(one));
    assert_eq!(
        w.applier.status(),
        Some(UtxoApplyPosition {
            base: 1,
            next: 2,
            height: 1_002,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
    for wrong in [0, 3] {
        assert_eq!(w.step(&argument(wrong)), Err(UtxoApplyError::NotNext { next: 2 }));
    }
    for absent in [4, u64::MAX] {
        assert_eq!(w.step(&UtxoApplyBlock { number: absent, ..argument(2) }), Err(UtxoApplyError::NotFound));
    }
    let again = UtxoApplied { known: true, transactions: 1, ..UtxoApplied::default() };
    assert_eq!(w.step(&argument(1)), Ok(again));
    let other_height = UtxoApplyBlock { height: 1_000, ..argument(1) };
    assert_eq!(w.step(&other_height), Err(UtxoApplyError::WrongHeight { expected: 1_001 }));
    let other_id = UtxoApplyBlock { block_id: 1, ..argument(1) };
    assert_eq!(w.step(&other_id), Err(UtxoApplyError::OtherId { block_id: 51 }));
    for height in [1_001, 1_003] {
        let wrong = UtxoApplyBlock { height, ..argument(2) };
        assert_eq!(w.step(&wrong), Err(UtxoApplyError::WrongHeight { expected: 1_002 }));
    }
    w.settings.require_extended = true;
    assert_eq!(w.step(&argument(2)), Err(UtxoApplyError::NotExtended));
    w.settings.require_extended = false;
    w.reopen();
    assert_eq!(w.step(&argument(2)), Ok(one));
    assert_eq!(w.step(&argument(1)), Ok(again));
    // Nothing is known of a pruned block.
    (0..2).for_each(|_| _ = w.chain.remove_oldest(&mut w.blobs).unwrap());
    assert_eq!(w.step(&argument(1)), Err(UtxoApplyError::Pruned { first_available: 2 }));
}

#[test]
fn first_block_is_an_operators() {
    let mut w = World::new();
    w.append(0, &[Tx::coinbase(0, 1)]);
    let World { chain, utxo, blobs, applier, settings } = &mut w;
    let mut stores = crate::apply::Stores { blocks: chain, utxo, blobs, settings };
    assert_eq!(applier.apply(&mut stores, &argument(0), false), Err(UtxoApplyError::OperatorOnly));
    assert!(applier.apply(&mut stores, &argument(0), true).is_ok());
}

#[test]
fn block_that_is_pruned_damaged_or_not_there_is_not_applied() {
    let mut w = World::new();
    (0..3).for_each(|number| w.append(number, &[Tx::coinbase(number, 1)]));
    w.chain.remove_oldest(&mut w.blobs).unwrap();
    assert_eq!(w.step(&argument(0)), Err(UtxoApplyError::Pruned { first_available: 1 }));
    assert_eq!(w.step(&argument(3)), Err(UtxoApplyError::NotFound));
    w.chain.poison_header(1);
    let damaged = w.step(&argument(1));
    assert!(matches!(damaged, Err(UtxoApplyError::Corrupt { .. })), "{damaged:?}");
    assert_eq!((w.step(&argument(2)).map(|done| done.created), w.applier.next()), (Ok(1), Some(3)));
}

#[test]
fn block_without_transactions_is_applied_at_once() {
    let mut w = World::new();
    w.append(0, &[]);
    assert_eq!(w.step(&argument(0)), Ok(UtxoApplied::default()));
    assert_eq!(w.applier.status().map(|status| status.next), Some(1));
}

/// A transaction of the block that stops it, and the reason.
fn stopped(w: &mut World, arg: &UtxoApplyBlock) -> (u32, Option<u32>, UtxoApplyReason) {
    match w.apply(arg) {
        Err(UtxoApplyError::Stopped(stop)) => {
            assert_eq!(stop.number, arg.number);
            (stop.transaction, stop.input, stop.reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn double_spend_stops_the_block_until_it_is_resolved() {
    let mut w = World::new();
    let parent = Tx::coinbase(0, 2);
    let (first, second) = (Tx::of(1, &[(parent.txid, 1)], 1), Tx::of(2, &[(parent.txid, 0), (parent.txid, 1)], 1));
    let last = Tx::of(3, &[(second.txid, 0)], 1);
    chain(&mut w, &[vec![parent.clone()], vec![], vec![Tx::coinbase(9, 1), second.clone(), last.clone()]]);
    w.apply(&argument(0)).unwrap();
    w.apply(&argument(1)).unwrap();
    // Another transaction, which no block has, holds one of the outputs.
    w.create(&first.record(), 1_001).unwrap();
    let call = w.call(1_002);
    w.utxo.spend(&TransactionSpends { spender: first.id(), spends: vec![parent.spend(1, 0)] }, &call).unwrap();
    let by = Spender { txid: first.id(), vin: 0 };
    let spent = (1, Some(1), UtxoApplyReason::Spend(UtxoSpendError::Spent { by }));
    assert_eq!(stopped(&mut w, &argument(2)), spent);
    assert_eq!(stopped(&mut w, &argument(2)), spent, "again");
    assert_eq!(w.record(&second), None);
    assert_eq!(w.applier.status().map(|status| status.transactions), Some(1));
    // The winner's record comes from the block.
    let raw = crate::apply::transaction(&w.chain, &w.blobs, 2, 1).unwrap();
    assert_eq!(raw, second.raw);
    w.create(&UtxoCreate { conflicting: true, ..second.record() }, 1_002).unwrap();
    assert_eq!(stopped(&mut w, &argument(2)), (1, None, UtxoApplyReason::Conflicting));
    let process = UtxoProcessConflicting { height: 1_002, winners: vec![second.id()] };
    assert!(!w.utxo.process_conflicting(&process, &call).unwrap().has_more);
    let done = w.apply(&argument(2)).unwrap();
    assert_eq!((done.transactions, done.created, done.existed, done.spent), (3, 1, 1, 1));
    assert!(w.record(&first).unwrap().conflicting && !w.record(&second).unwrap().conflicting);
    let blocks = w.record(&second).unwrap().blocks;
    assert_eq!(blocks, [BlockRef { block_id: 52, height: 1_002, subtree: 0 }]);
    audit();
}

#[test]
fn skipped_transaction_is_left_out_once() {
    let mut w = World::new();
    let parent = Tx::coinbase(0, 1);
    let (bad, good) = (Tx::of(1, &[(parent.txid, 7)], 1), Tx::orphan(2, 1));
    chain(&mut w, &[vec![parent], vec![Tx::coinbase(3, 1), bad.clone(), good.clone()]]);
    w.apply(&argument(0)).unwrap();
    let skip = |tx: &Tx| UtxoApplyBlock { skip: Some(tx.id()), ..argument(1) };
    assert_eq!(w.apply(&skip(&bad)), Err(UtxoApplyError::WrongSkip { at: Tx::coinbase(3, 1).id() }));
    let reason = UtxoApplyReason::Spend(UtxoSpendError::CoinbaseImmature { spendable_at: 1_002 });
    assert_eq!(stopped(&mut w, &argument(1)), (1, Some(0), reason));
    assert_eq!(w.apply(&skip(&good)), Err(UtxoApplyError::WrongSkip { at: bad.id() }));
    let done = w.apply(&skip(&bad)).unwrap();
    assert_eq!((done.transactions, done.created), (3, 1));
    assert_eq!((w.record(&bad), w.record(&good).is_some()), (None, true));
    // A repeated call is the one of an applied block.
    assert_eq!(w.apply(&skip(&bad)).map(|done| done.created), Ok(0));
}

#[test]
fn repeated_skip_in_the_middle_of_a_block_skips_nothing_else() {
    let mut w = World::new();
    let bad: Vec<Tx> = (0..2).map(|salt| Tx::of(salt, &[(crate::testing::id(salt), 0)], 1)).collect();
    w.append(0, &[Tx::coinbase(3, 1), bad[0].clone(), bad[1].clone()]);
    let arg = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(0) };
    assert_eq!(stopped(&mut w, &arg), (1, Some(0), UtxoApplyReason::MissingParent));
    let skip = UtxoApplyBlock { skip: Some(bad[0].id()), ..arg.clone() };
    // The first answer is lost.
    assert_eq!(w.step(&skip).map(|done| (done.has_more, done.transactions)), Ok((true, 2)));
    assert_eq!(stopped(&mut w, &skip), (2, Some(0), UtxoApplyReason::MissingParent));
    assert_eq!(w.applier.status().map(|status| status.transactions), Some(2));
    let skip = UtxoApplyBlock { skip: Some(bad[1].id()), ..arg };
    assert_eq!(w.step(&skip).map(|done| (done.has_more, done.transactions)), Ok((false, 3)));
}

#[test]
fn repeated_skip_of_a_transaction_that_was_applied_skips_nothing() {
    let mut w = World::new();
    let parent = Tx::orphan(7, 1);
    let bad = [Tx::of(1, &[(parent.txid, 0)], 1), Tx::of(2, &[(crate::testing::id(2), 0)], 1)];
    w.append(0, &[Tx::coinbase(3, 1), bad[0].clone(), bad[1].clone()]);
    let arg = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(0) };
    assert_eq!(stopped(&mut w, &arg), (1, Some(0), UtxoApplyReason::MissingParent));
    // The transaction can be applied now, and the one after it cannot.
    w.create(&parent.record(), 900).unwrap();
    let skip = UtxoApplyBlock { skip: Some(bad[0].id()), ..arg };
    assert_eq!(w.step(&skip).map(|done| (done.has_more, done.transactions)), Ok((true, 2)));
    assert_eq!(stopped(&mut w, &skip), (2, Some(0), UtxoApplyReason::MissingParent));
}

#[test]
fn transaction_that_can_be_applied_is_not_skipped() {
    let mut w = World::new();
    let coinbase = Tx::coinbase(3, 1);
    w.append(0, std::slice::from_ref(&coinbase));
    let done = w.apply(&UtxoApplyBlock { skip: Some(coinbase.id()), ..argument(0) }).unwrap();
    assert_eq!((done.created, w.record(&coinbase).is_some()), (1, true));
}

#[test]
fn parents_come_first_or_are_missing() {
    let mut w = World::new();
    let late = Tx::orphan(1, 2);
    let early = Tx::of(2, &[(late.txid, 0)], 1);
    chain(&mut w, &[vec![Tx::coinbase(0, 1), early.clone(), late.clone()], vec![Tx::coinbase(1, 1)]]);
    assert_eq!(stopped(&mut w, &argument(0)), (1, Some(0), UtxoApplyReason::BadOrder));
    // The same if the parent has a record, as an unmined transaction.
    w.create(&late.record(), 900).unwrap();
    assert_eq!(stopped(&mut w, &argument(0)), (1, Some(0), UtxoApplyReason::BadOrder));
    let refuse =
        UtxoApplyBlock { skip: Some(early.id()), missing_parents: Some(MissingParents::Refuse), ..argument(0) };
    w.step(&refuse).unwrap();
    let stop = stopped(&mut w, &UtxoApplyBlock { skip: None, ..refuse });
    assert_eq!(stop, (2, Some(0), UtxoApplyReason::MissingParent));
    let done = w.apply(&argument(0)).unwrap();
    assert_eq!((done.existed, done.missing_parents, done.spent), (1, 1, 0));
    assert!(!w.record(&late).unwrap().blocks.is_empty());
}

#[test]
fn coinbase_of_two_blocks_is_spendable_once_the_higher_one_is_mature() {
    let coinbase = Tx::coinbase(0, 1);
    let spending = |w: &World| w.record(&coinbase).unwrap().spending_height;
    let mut w = World::new();
    chain(&mut w, &[vec![coinbase.clone()], vec![coinbase.clone()]]);
    w.apply(&argument(0)).unwrap();
    assert_eq!(spending(&w), Some(1_002));
    w.apply(&argument(1)).unwrap();
    assert_eq!(spending(&w), Some(1_003));
    let call = w.call(1_001);
    for (block_id, height, expected) in [(7, 900, 1_003), (8, 1_001, 1_003), (9, 1_000, 1_003)] {
        let set = UtxoSetMinedBatch {
            height: 1_001,
            block_id,
            block_height: height,
            on_longest_chain: true,
            unset: false,
            items: vec![],
        };
        w.utxo
            .set_mined(
                &set,
                &MinedTransaction { txid: coinbase.id(), subtree: 0 },
                &call,
                (&mut w.blobs, crate::testing::no_block),
            )
            .unwrap();
        assert_eq!(spending(&w), Some(expected), "{height}");
    }
    let call = w.call(1_005);
    let set = UtxoSetMinedBatch {
        height: 1_005,
        block_id: 10,
        block_height: 1_005,
        on_longest_chain: true,
        unset: false,
        items: vec![],
    };
    w.utxo
        .set_mined(
            &set,
            &MinedTransaction { txid: coinbase.id(), subtree: 0 },
            &call,
            (&mut w.blobs, crate::testing::no_block),
        )
        .unwrap();
    assert_eq!(spending(&w), Some(1_007));
}

#[test]
fn reassigned_output_needs_its_hash() {
    let mut w = World::new();
    w.settings.reassign_spendable_after = 0;
    let parent = Tx::orphan(0, 1);
    let by = Tx::of(1, &[(parent.txid, 0)], 1);
    chain(&mut w, &[vec![parent.clone()], vec![by.clone()]]);
    w.apply(&argument(0)).unwrap();
    let call = w.call(1_000);
    let target = FreezeTarget { txid: parent.id(), vout: Some(0), utxo_hash: None };
    w.utxo.set_frozen(&target, true, &call).unwrap();
    assert_eq!(stopped(&mut w, &argument(1)), (0, Some(0), UtxoApplyReason::Spend(UtxoSpendError::Frozen)));
    let new = [9; 32];
    let reassign = Reassign {
        outpoint: parent.outpoint(0),
        utxo_hash: UtxoHash::from(parent.hash(0)),
        new_utxo_hash: UtxoHash::from(new),
    };
    w.utxo.reassign(&reassign, &call).unwrap();
    assert_eq!(stopped(&mut w, &argument(1)), (0, Some(0), UtxoApplyReason::NeedsHash));
    let call = w.call(1_001);
    let spend = Spend { utxo_hash: UtxoHash::from(new), ..parent.spend(0, 0) };
    w.utxo.spend(&TransactionSpends { spender: by.id(), spends: vec![spend] }, &call).unwrap();
    let done = w.apply(&argument(1)).unwrap();
    assert_eq!((done.created, done.spent), (1, 0));
}

#[test]
fn pruned_transactions_count_as_applied() {
    let mut w = World::new();
    let parent = Tx::orphan(0, 2);
    let child = Tx::of(1, &[(parent.txid, 0)], 1);
    let last = Tx::of(2, &[(child.txid, 0)], 1);
    let blocks = [vec![parent.clone()], vec![child.clone()], vec![last.clone()]];
    chain(&mut w, &blocks);
    (0..3).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    let call = w.call(2_000);
    w.utxo.delete_by_id(&mut w.blobs, &child.txid, &call).unwrap();
    let before = w.seen(&blocks.concat());
    // Applying begins again, with the block whose transaction is gone.
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    (1..3).for_each(|number| w.chain.set_note(number, None));
    let done = w.apply(&argument(1)).unwrap();
    assert_eq!((done.pruned, done.created, done.existed, done.spent), (1, 0, 0, 0));
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(2) };
    // The parent is gone, but the transaction was applied while it was there.
    assert_eq!(w.apply(&refuse).map(|done| (done.existed, done.missing_parents)), Ok((1, 1)));
    assert_eq!(w.seen(&blocks.concat()), before);
}

#[test]
fn bytes_that_are_not_copied_come_from_the_block_while_it_is_kept() {
    let mut w = World::new();
    w.settings.copy_applied_transactions = false;
    let txs = vec![Tx::coinbase(0, 1), Tx::orphan(1, 3)];
    chain(&mut w, &[txs.clone(), vec![Tx::coinbase(2, 1)]]);
    w.apply(&argument(0)).unwrap();
    w.apply(&argument(1)).unwrap();
    let place = w.record(&txs[1]).unwrap().transaction;
    let offset = 81 + txs[0].raw.len() as u64;
    assert_eq!(place, TransactionPlace::Block { number: 0, offset });
    let part = |w: &World, offset, length| {
        let arg = UtxoGetPart { txid: txs[1].id(), part: UtxoPart::Transaction, offset, length };
        let in_blocks = crate::apply::in_blocks(&w.chain);
        w.utxo.transaction(&w.blobs, &arg, in_blocks).map(|part| (part.bytes.into_vec(), part.total))
    };
    let raw = &txs[1].raw;
    assert_eq!(part(&w, 0, u64::MAX), Ok((raw.clone(), raw.len() as u64)));
    assert_eq!(part(&w, 5, 3), Ok((raw[5..8].to_vec(), raw.len() as u64)));
    assert_eq!(part(&w, u64::MAX, 3), Ok((vec![], raw.len() as u64)));
    // Pruning the block reads no record.
    let read = ic_coppice_storage::twin::touching(|| w.chain.remove_oldest(&mut w.blobs)).1;
    assert!(read.accessed.len() < 40, "{}", read.accessed.len());
    assert_eq!(part(&w, 0, 1), Err(UtxoRefusal::NotKept));
    // A record without its bytes is deleted like others.
    let call = w.call(2_000);
    w.utxo.delete_by_id(&mut w.blobs, &txs[1].txid, &call).unwrap();
    assert_eq!(w.record(&txs[1]), None);
    audit();
}
