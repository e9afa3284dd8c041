//! Blocks that are taken back.

use super::world::*;
use crate::apply::TakenBack;
use crate::utxo::Order;
use coppice_model::transactions::Tx;
use ic_coppice_interface::blocks::Blocks as _;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::{audit, overwrite};
use ic_coppice_storage::twin;

fn blocks() -> Vec<Vec<Tx>> {
    let coinbases: Vec<Tx> = (0..5).map(|salt| Tx::coinbase(1_000 + salt, 2)).collect();
    let a = Tx::of(1, &[(coinbases[0].txid, 0)], 3);
    let b = Tx::of(2, &[(a.txid, 0), (coinbases[1].txid, 1)], 2);
    let c = Tx::of(3, &[(a.txid, 1), (b.txid, 0)], 2);
    let of_coinbase = Tx::of(4, &[(coinbases[2].txid, 0)], 1);
    let more = [vec![], vec![], vec![a], vec![b, c], vec![of_coinbase]];
    coinbases.into_iter().zip(more).map(|(first, more)| [vec![first], more].concat()).collect()
}

#[test]
fn block_that_is_taken_back_leaves_its_records_unmined_with_their_spends() {
    let blocks = blocks();
    let mut w = World::new();
    for (number, txs) in (0..).zip(&blocks) {
        w.append(number, txs);
    }
    assert!(!w.applier.is_applied(&w.chain, 0));
    (0..5).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    assert_eq!(w.take_back(4), 1);
    assert_eq!(
        w.applier.status(),
        Some(UtxoApplyPosition {
            base: 0,
            next: 4,
            height: 1_004,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
    let of = &blocks[4][1];
    let record = w.record(of).unwrap();
    assert_eq!((record.blocks, record.unmined_since, record.conflicting), (vec![], Some(1_004), false));
    let coinbase = w.record(&blocks[4][0]).unwrap();
    assert_eq!((coinbase.blocks, coinbase.conflicting), (vec![], true));
    assert!(w.record(&blocks[2][0]).unwrap().spent_utxos > 0, "the spend stays");
    audit();
}

#[test]
fn taking_all_blocks_back_does_what_unsetting_them_does() {
    let blocks = blocks();
    let all = blocks.concat();
    let run = |unapplied: bool| {
        let mut w = World::new();
        for (number, txs) in (0..).zip(&blocks) {
            w.append(number, txs);
            w.apply(&argument(number)).unwrap();
        }
        for number in (0..5).rev() {
            if unapplied {
                w.take_back(number);
                continue;
            }
            let UtxoApplyBlock { height, block_id, .. } = argument(number);
            let set = UtxoSetMinedBatch {
                height,
                block_id,
                block_height: height,
                on_longest_chain: true,
                unset: true,
                items: vec![],
            };
            let call = w.call(height);
            for tx in blocks[number as usize].iter().rev() {
                w.utxo
                    .set_mined(
                        &set,
                        &MinedTransaction { txid: tx.id(), subtree: 0 },
                        &call,
                        (&mut w.blobs, crate::testing::no_block),
                    )
                    .unwrap();
            }
            let coinbase = blocks[number as usize][0].txid;
            while w.utxo.set_conflicting(&coinbase, &call).unwrap().has_more {}
        }
        let mut seen = w.seen(&all);
        for record in seen.records.iter_mut().flatten() {
            record.0.conflicting_children.sort();
        }
        (seen, w.utxo.index(Order::UnminedSince))
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn bytes_in_a_block_are_copied_in_when_it_is_taken_back() {
    for (most, external) in [(1 << 20, false), (0, true)] {
        let mut w = World::new();
        w.settings.copy_applied_transactions = false;
        w.settings.max_tx_size_in_store = most;
        let txs = [Tx::coinbase(0, 1), Tx::orphan(1, 300)];
        w.append(0, &txs);
        w.apply(&argument(0)).unwrap();
        assert!(matches!(w.record(&txs[1]).unwrap().transaction, TransactionPlace::Block { .. }));
        w.take_back(0);
        w.chain.reset();
        for tx in &txs {
            let place = w.record(tx).unwrap().transaction;
            assert_eq!(matches!(place, TransactionPlace::Blobs { .. }), external, "{place:?}");
            assert_eq!(w.transaction(tx), Ok(tx.raw.clone()));
        }
        let call = w.call(3_000);
        for tx in &txs {
            w.utxo.delete_by_id(&mut w.blobs, &tx.txid, &call).unwrap();
        }
        assert_eq!(w.blobs.arena().kept_bytes(crate::owners::EXTERNAL), 0);
        assert_eq!(w.utxo.storage().records, 0);
        audit();
    }
}

/// Returns a world with a transaction that two applied blocks have.
fn mined_twice() -> (World, Tx) {
    let mut w = World::new();
    let tx = Tx::orphan(1, 1);
    w.append(0, &[Tx::coinbase(0, 1), tx.clone()]);
    w.append(1, &[Tx::coinbase(1, 1), tx.clone()]);
    w.apply(&argument(0)).unwrap();
    assert_eq!(w.apply(&argument(1)).map(|done| (done.created, done.existed)), Ok((1, 1)));
    (w, tx)
}

#[test]
fn record_of_two_blocks_keeps_the_other_one() {
    let (mut w, tx) = mined_twice();
    w.take_back(1);
    let record = w.record(&tx).unwrap();
    assert_eq!((record.blocks.len(), record.unmined_since), (1, None));
}

#[test]
fn record_off_the_longest_chain_stays_there_when_one_of_its_blocks_is_taken_back() {
    let (mut w, tx) = mined_twice();
    let call = w.call(300);
    w.utxo.set_on_longest_chain(&tx.txid, false, &call, (&mut w.blobs, crate::testing::no_block)).unwrap();
    let since = w.record(&tx).unwrap().unmined_since;
    w.take_back(1);
    let record = w.record(&tx).unwrap();
    assert_eq!((record.blocks.len(), record.unmined_since), (1, since));
    assert!(since.is_some());
}

#[test]
fn partly_applied_block_is_taken_back_from_where_it_stands() {
    let mut w = World::new();
    let bad = Tx::of(5, &[(crate::testing::id(5), 0)], 1);
    let txs = [Tx::coinbase(0, 1), Tx::coinbase(1, 2), bad, Tx::orphan(2, 1)];
    w.append(0, &txs[..1]);
    w.append(1, &txs[1..]);
    w.apply(&argument(0)).unwrap();
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(1) };
    assert_eq!(w.step(&refuse).map(|done| (done.has_more, done.transactions)), Ok((true, 1)));
    assert!(w.step(&refuse).is_err());
    assert_eq!(w.step(&argument(0)).map(|done| done.has_more), Ok(false), "the block before is applied");
    let other_id = UtxoApplyBlock { block_id: 1, ..argument(1) };
    assert_eq!(w.step(&other_id), Err(UtxoApplyError::OtherId { block_id: 51 }));
    w.take_back(1);
    assert!(w.record(&txs[1]).unwrap().conflicting);
    // It is applied again under another id.
    let done = w.apply(&other_id).unwrap();
    assert_eq!((done.transactions, done.created, done.existed, done.missing_parents), (3, 2, 1, 2));
    assert!(!w.record(&txs[1]).unwrap().conflicting);
    assert_eq!(w.record(&txs[3]).unwrap().blocks[0].block_id, 1);
}

/// Ends applying in the middle of block 1, whose third transaction has no parent, and whose last one is not applied.
fn ended_in_the_middle() -> (World, Vec<Tx>) {
    let mut w = World::new();
    let txs = vec![Tx::coinbase(1, 2), Tx::orphan(1, 1), Tx::of(5, &[([5; 32], 0)], 1), Tx::orphan(2, 1)];
    w.append(0, &[Tx::coinbase(0, 1)]);
    w.append(1, &txs);
    w.apply(&argument(0)).unwrap();
    w.create(&UtxoCreate { locked: None, ..txs[1].record() }, 1_000).unwrap();
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(1) };
    assert_eq!(w.step(&refuse).map(|done| (done.has_more, done.transactions)), Ok((true, 1)));
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    (w, txs)
}

#[test]
fn block_in_whose_middle_applying_ended_is_taken_back_whole() {
    let (mut w, txs) = ended_in_the_middle();
    assert_eq!((w.applier.status(), w.record(&txs[0]).unwrap().blocks.len()), (None, 1));
    w.reopen();
    w.take_back(1);
    let coinbase = w.record(&txs[0]).unwrap();
    assert_eq!((coinbase.blocks.len(), coinbase.conflicting), (0, true));
    assert!(!w.record(&txs[1]).unwrap().conflicting);
    audit();
}

#[test]
fn block_in_whose_middle_applying_ended_is_continued_there_under_the_same_id_only() {
    let (mut w, txs) = ended_in_the_middle();
    let other_id = UtxoApplyBlock { block_id: 1, ..argument(1) };
    assert_eq!(w.step(&other_id), Err(UtxoApplyError::OtherId { block_id: 51 }));
    let other_height = UtxoApplyBlock { height: 7, ..argument(1) };
    assert_eq!(w.step(&other_height), Err(UtxoApplyError::WrongHeight { expected: 1_001 }));
    let done = w.apply(&argument(1)).unwrap();
    assert_eq!(
        (done.created, done.existed, done.transactions),
        (2, 1, 4),
        "the first transaction is not looked at again"
    );
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
    assert!(txs.iter().all(|tx| w.record(tx).unwrap().blocks.len() == 1));
}

#[test]
fn new_beginning_passes_applied_blocks_and_takes_up_at_the_first_other_one() {
    let mut w = World::new();
    for number in 0..4 {
        w.append(number, &[Tx::coinbase(number, 1)]);
    }
    (0..3).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    let known = UtxoApplied { known: true, transactions: 1, ..UtxoApplied::default() };
    assert_eq!((w.step(&argument(1)), w.applier.status()), (Ok(known), None));
    let other = UtxoApplyBlock { block_id: 9, ..argument(1) };
    assert_eq!(w.step(&other), Err(UtxoApplyError::OtherId { block_id: 51 }));
    let other = UtxoApplyBlock { height: 9, ..argument(1) };
    assert_eq!(w.step(&other), Err(UtxoApplyError::WrongHeight { expected: 1_001 }));
    assert_eq!(w.apply(&argument(3)).map(|done| done.created), Ok(1));
    assert_eq!(w.applier.status().map(|status| (status.base, status.next)), Some((3, 4)));
    (0..4).rev().for_each(|number| assert_eq!(w.take_back(number), 1));
    assert_eq!(
        w.applier.status(),
        Some(UtxoApplyPosition {
            base: 0,
            next: 0,
            height: 1_000,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
}

#[test]
fn position_before_an_applied_block_passes_it() {
    let mut w = World::new();
    for number in 0..4 {
        w.append(number, &[Tx::coinbase(number, 1)]);
    }
    assert!(w.apply(&argument(2)).is_ok());
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    (0..2).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    assert_eq!(w.apply(&argument(2)).map(|done| done.known), Ok(true));
    assert_eq!(w.apply(&argument(3)).map(|done| done.known), Ok(false));
    assert_eq!(w.applier.status().map(|status| status.next), Some(4));
}

#[test]
fn another_hash_is_refused_and_names_the_kept_one() {
    let mut w = World::new();
    w.append(0, &[Tx::coinbase(0, 1)]);
    let other = UtxoApplyBlock { hash: ic_coppice_chain::testing::hash(0, 1).into(), ..argument(0) };
    let expected = UtxoApplyError::WrongHash { expected: argument(0).hash };
    assert_eq!(w.step(&other), Err(expected.clone()));
    assert!(w.step(&argument(0)).is_ok());
    assert_eq!(w.step(&other), Err(expected), "another block of this number is not known");
}

#[test]
fn blocks_that_are_taken_back_and_applied_again_leave_the_same_records() {
    let (blocks, mut w) = (blocks(), World::new());
    for (number, txs) in (0..).zip(&blocks) {
        w.append(number, txs);
        w.apply(&argument(number)).unwrap();
    }
    let all = blocks.concat();
    let before = w.seen(&all);
    (2..5).rev().for_each(|number| assert_eq!(w.take_back(number), 1));
    assert_eq!(w.apply(&argument(2)).map(|done| done.existed), Ok(2));
    assert_eq!(w.apply(&argument(3)).map(|done| done.existed), Ok(3));
    // The coinbase returns with its block; a transaction that spends from it has to win.
    let done = w.step(&argument(4)).unwrap();
    assert_eq!((done.has_more, done.transactions), (true, 1));
    let Err(UtxoApplyError::Stopped(stop)) = w.step(&argument(4)) else { panic!("its parent was a double spend") };
    assert_eq!((stop.transaction, stop.reason), (1, UtxoApplyReason::Conflicting));
    let call = w.call(1_004);
    let process = UtxoProcessConflicting { height: 1_004, winners: vec![blocks[4][1].id()] };
    assert!(!w.utxo.process_conflicting(&process, &call).unwrap().has_more);
    assert_eq!(w.apply(&argument(4)).map(|done| done.transactions), Ok(2));
    assert_eq!(w.seen(&all), before);
    audit();
}

#[test]
fn coinbase_with_many_spenders_is_marked_over_several_messages() {
    // A slice marks at most 5,000 transactions.
    let many = 5_100;
    let coinbase = Tx::coinbase(0, many);
    let mut w = World::new();
    w.append(0, std::slice::from_ref(&coinbase));
    w.append(1, &[Tx::coinbase(1, 1)]);
    let spenders: Vec<Tx> = (0..many).map(|vout| Tx::of(u64::from(vout), &[(coinbase.txid, vout)], 1)).collect();
    w.append(2, &[vec![Tx::coinbase(2, 1)], spenders.clone()].concat());
    (0..3).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    (1..3).rev().for_each(|number| assert!(w.take_back(number) > 0));
    let coinbase = |w: &World| {
        let record = w.record(&coinbase).unwrap();
        (record.blocks.len(), record.conflicting)
    };
    assert_eq!((w.take_back_step(0), coinbase(&w)), ((TakenBack::Part, 0, vec![]), (0, true)));
    assert_eq!(w.applier.next(), Some(0));
    w.reopen();
    let unmarked = |w: &World| spenders.iter().filter(|tx| !w.record(tx).unwrap().conflicting).count();
    assert!((1..many as usize).contains(&unmarked(&w)));
    assert!(w.applier.is_applied(&w.chain, 0));
    assert!(w.take_back(0) > 0);
    assert_eq!((unmarked(&w), coinbase(&w)), (0, (0, true)));
    audit();
}

#[test]
fn damaged_record_is_named_and_the_block_is_taken_back() {
    let mut w = World::new();
    let (coinbase, other) = (Tx::coinbase(0, 1), Tx::orphan(7, 1));
    let spender = Tx::of(1, &[(coinbase.txid, 0)], 1);
    w.append(0, &[coinbase.clone(), other.clone()]);
    w.apply(&argument(0)).unwrap();
    w.create(&UtxoCreate { locked: None, ..spender.record() }, 1_002).unwrap();
    let call = w.call(1_002);
    let spends = vec![coinbase.spend(0, 0)];
    w.utxo.spend(&TransactionSpends { spender: spender.id(), spends }, &call).unwrap();
    for slot in [&spender, &other].map(|tx| w.utxo.slot_of(&tx.txid)) {
        overwrite(slot, 0, &[9]);
    }
    let (taken, lost, faults) = w.take_back_step(0);
    assert_eq!((taken, lost), (TakenBack::Whole, 0));
    assert!(
        faults[0].starts_with("block 0, transaction 1: ") && faults[0].ends_with("stays mined in the block"),
        "{faults:?}"
    );
    assert!(faults[1].starts_with("block 0, transaction 0: ") && faults[1].contains("not marked"), "{faults:?}");
    assert_eq!((faults.len(), w.record(&coinbase).unwrap().blocks.len()), (2, 0));
    assert!(!w.applier.is_applied(&w.chain, 0));
}

#[test]
fn damaged_index_segment_or_header_is_named_and_the_block_goes() {
    for of_header in [true, false] {
        let mut w = World::new();
        w.append(0, &[Tx::coinbase(0, 1)]);
        w.append(1, &[Tx::coinbase(1, 1), Tx::orphan(1, 1)]);
        (0..2).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
        if of_header {
            w.chain.poison_header(1);
            assert!(!w.applier.is_applied(&w.chain, 1), "nothing tells that it is applied");
            w.applier.lower(1, None);
        } else {
            w.chain.poison_blob(&w.blobs, 0);
            let (taken, lost, faults) = w.take_back_step(1);
            assert_eq!((taken, lost, faults.len()), (TakenBack::Whole, 0, 1), "{faults:?}");
            assert!(faults[0].starts_with("block 1, transaction 0: the ids up to transaction 1: "), "{faults:?}");
        }
        assert_eq!(w.applier.status().map(|status| (status.next, status.height)), Some((1, 1_001)));
    }
    // The header is damaged in the middle.
    let mut w = World::new();
    w.append(0, &[Tx::coinbase(0, 5_001)]);
    w.append(
        1,
        &(0..5_001).map(|vout| Tx::of(u64::from(vout), &[(Tx::coinbase(0, 5_001).txid, vout)], 1)).collect::<Vec<_>>(),
    );
    w.settings.coinbase_maturity = 0;
    (0..2).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    w.take_back(1);
    assert_eq!(w.take_back_step(0).0, TakenBack::Part);
    w.chain.poison_header(0);
    let (taken, _, faults) = w.take_back_step(0);
    assert_eq!((taken, faults.len(), w.applier.is_applied(&w.chain, 0)), (TakenBack::Whole, 1, false), "{faults:?}");
}

/// A world in which block 1, at height 1,001, spends from block 0, and its record was pruned after its output was spent; the pruned height
/// is 1,001. Returns the transactions of blocks 0 to 2.
fn pruned_spender() -> (World, [Tx; 3]) {
    let parent = Tx::orphan(1, 2);
    let spender = Tx::of(2, &[(parent.txid, 1)], 1);
    let last = Tx::of(3, &[(spender.txid, 0)], 1);
    let mut w = World::new();
    w.settings.block_height_retention = 1;
    for (number, tx) in [&parent, &spender, &last].into_iter().enumerate() {
        w.append(number as u64, &[Tx::coinbase(number as u64, 1), tx.clone()]);
        w.apply(&argument(number as u64)).unwrap();
    }
    let call = w.call(1_003);
    w.utxo.delete_by_id(&mut w.blobs, &spender.txid, &call).unwrap();
    assert_eq!((w.utxo.pruned_height(), w.record(&spender)), (1_001, None));
    (w, [parent, spender, last])
}

#[test]
fn output_that_a_pruned_transaction_spent_counts_as_unspent_once_its_block_is_taken_back() {
    let (mut w, [parent, spender, last]) = pruned_spender();
    assert_eq!(w.record(&parent).unwrap().spent_utxos, 1);
    w.take_back(2);
    assert_eq!(w.take_back_step(1), (TakenBack::Whole, 1, vec![]));
    assert_eq!(w.record(&parent).unwrap().spent_utxos, 0);
    let (_, lost) = w.applier.counted();
    assert_eq!((lost.transactions, lost.block), (1, 1));
    // The new branch has the transaction again, and one that spends the output differently is possible as well.
    let arg = UtxoApplyBlock { block_id: 900, missing_parents: Some(MissingParents::Refuse), ..argument(1) };
    let done = w.apply(&arg).unwrap();
    assert_eq!(
        (done.created, done.existed, done.pruned, done.spent),
        (1, 1, 0, 1),
        "the block is new, although it lies at the pruned height"
    );
    assert_eq!(w.record(&spender).unwrap().blocks[0].block_id, 900);
    assert!(w.apply(&UtxoApplyBlock { block_id: 901, ..argument(2) }).is_ok());
    assert_eq!(w.record(&last).unwrap().blocks[0].block_id, 901);
    audit();
}

#[test]
fn outputs_that_a_large_pruned_transaction_spent_are_freed_over_several_messages() {
    const INPUTS: u32 = 3_000;
    let parent = Tx::orphan(1, INPUTS);
    let inputs: Vec<_> = (0..INPUTS).map(|vout| (parent.txid, vout)).collect();
    let spender = Tx::of(2, &inputs, 1);
    let last = Tx::of(3, &[(spender.txid, 0)], 1);
    let mut w = World::new();
    w.settings.block_height_retention = 1;
    for (number, tx) in [&parent, &spender, &last].into_iter().enumerate() {
        w.append(number as u64, std::slice::from_ref(tx));
        w.apply(&argument(number as u64)).unwrap();
    }
    let call = w.call(1_003);
    w.utxo.delete_by_id(&mut w.blobs, &spender.txid, &call).unwrap();
    w.take_back(2);
    let spent = |w: &World| w.record(&parent).unwrap().spent_utxos;
    let (mut messages, mut lost) = (0, 0);
    // A message looks at the instructions three times before the first input.
    twin::with(|world| world.instructions_per_reading = 600_000_000);
    loop {
        twin::with(|world| world.instructions = 0);
        let (taken, more, faults) = w.take_back_step(1);
        (messages, lost) = (messages + 1, lost + more);
        assert!(faults.is_empty() && messages < 20, "{faults:?}, {} are spent", spent(&w));
        if taken == TakenBack::Whole {
            break;
        }
        w.reopen();
    }
    twin::with(|world| world.instructions_per_reading = 0);
    assert_eq!((messages > 3, lost, spent(&w)), (true, 1, 0), "{messages}");
    audit();
}

#[test]
fn damaged_body_leaves_outputs_of_pruned_transactions_spent_and_is_named() {
    let (mut w, [parent, ..]) = pruned_spender();
    w.take_back(2);
    w.chain.poison_blob(&w.blobs, 0);
    let (taken, _, faults) = w.take_back_step(1);
    assert_eq!((taken, faults.len()), (TakenBack::Whole, 2), "{faults:?}");
    assert!(faults[1].ends_with("outputs that this and later transactions spend stay spent"), "{faults:?}");
    assert_eq!(w.record(&parent).unwrap().spent_utxos, 1);
}

#[test]
fn blocks_after_a_reset_are_new_and_take_over_the_marks_of_deleted_transactions() {
    let (mut w, [parent, spender, last]) = pruned_spender();
    w.applier.reset();
    w.utxo.forget_pruned();
    for number in 0..3 {
        w.chain.set_note(number, None);
        // The parent of the first one has no record.
        let missing_parents = Some(if number == 0 { MissingParents::Skip } else { MissingParents::Refuse });
        let arg = UtxoApplyBlock { block_id: 500 + number as u32, missing_parents, ..argument(number) };
        let done = w.apply(&arg).unwrap();
        let created = u32::from(number == 1);
        assert_eq!(
            (done.created, done.existed, done.pruned, done.spent),
            (created, 2 - created, 0, u32::from(number == 2)),
            "block {number}"
        );
    }
    let state = w.record(&parent).unwrap();
    assert_eq!((state.spent_utxos, state.deleted_children.len()), (1, 0), "the mark is cleared: {state:?}");
    assert_eq!((w.record(&spender).unwrap().blocks.len(), w.record(&last).unwrap().blocks.len()), (1, 2));
    audit();
}

#[test]
fn replay_at_or_below_the_pruned_height_is_counted_and_named() {
    let (mut w, [_, spender, _]) = pruned_spender();
    w.chain.set_note(1, None);
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    let done = w.apply(&argument(1)).unwrap();
    assert_eq!((done.pruned, done.existed, w.record(&spender)), (1, 1, None));
    let (pruned, _) = w.applier.counted();
    assert_eq!((pruned.transactions, pruned.block), (1, 1));
    w.applier.acknowledge();
    w.reopen();
    assert_eq!(w.applier.counted().0.transactions, 0);
}

#[test]
fn first_transaction_is_marked_only_if_it_is_a_coinbase_without_a_block() {
    let mut w = World::new();
    let (coinbase, orphan) = (Tx::coinbase(0, 1), Tx::orphan(1, 1));
    w.append(0, std::slice::from_ref(&coinbase));
    w.append(1, std::slice::from_ref(&orphan));
    (0..2).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    let set = UtxoSetMinedBatch {
        height: 1_001,
        block_id: 9,
        block_height: 1_000,
        on_longest_chain: true,
        unset: false,
        items: vec![],
    };
    let call = w.call(1_001);
    w.utxo
        .set_mined(
            &set,
            &MinedTransaction { txid: coinbase.id(), subtree: 0 },
            &call,
            (&mut w.blobs, crate::testing::no_block),
        )
        .unwrap();
    assert_eq!((w.take_back(1), w.take_back(0)), (1, 1));
    let seen = |tx: &Tx| w.record(tx).map(|record| (record.blocks.len(), record.conflicting));
    assert_eq!((seen(&coinbase), seen(&orphan)), (Some((1, false)), Some((0, false))));
}

#[test]
fn double_spend_that_is_no_coinbase_by_its_bytes_stays_one() {
    let mut w = World::new();
    let tx = Tx::of(1, &[([9; 32], 0)], 1);
    let source = TransactionSource::Outputs(PartialTransaction {
        txid: tx.id(),
        coinbase: true,
        total_outputs: 1,
        outputs: vec![],
    });
    w.create(&UtxoCreate { source, conflicting: true, ..tx.record() }, 1_000).unwrap();
    w.append(0, &[Tx::coinbase(0, 1), tx.clone()]);
    let done = w.step(&argument(0)).unwrap();
    assert_eq!((done.has_more, done.transactions), (true, 1));
    let Err(UtxoApplyError::Stopped(stop)) = w.step(&argument(0)) else { panic!("the record is a double spend") };
    assert_eq!((stop.transaction, stop.reason), (1, UtxoApplyReason::Conflicting));
}

#[test]
fn double_spend_with_a_block_stays_one() {
    let mut w = World::new();
    let txs = [Tx::coinbase(0, 1)];
    w.append(0, &txs);
    w.apply(&argument(0)).unwrap();
    let call = w.call(1_000);
    w.utxo.set_conflicting(&txs[0].txid, &call).unwrap();
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    w.chain.set_note(0, None);
    let again = UtxoApplyBlock { block_id: 1, ..argument(0) };
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&again) else { panic!("another block has the coinbase") };
    assert_eq!((stop.transaction, stop.reason), (0, UtxoApplyReason::Conflicting));
}
