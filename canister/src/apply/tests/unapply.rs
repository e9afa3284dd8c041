//! Blocks that are taken back.

use super::world::*;
use crate::testing::{audit, overwrite};
use crate::utxo::Order;
use coppice_interface::*;
use coppice_model::transactions::Tx;

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
    assert_eq!(w.unapply(0), Err(UtxoUnapplyError::NoneApplied));
    (0..4).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    w.apply(&argument(4)).unwrap();
    for wrong in [0, 3, 5, u64::MAX] {
        let expected = if wrong == 5 { Ok(0) } else { Err(UtxoUnapplyError::NotLast { last: 4 }) };
        assert_eq!(w.unapply(wrong), expected, "{wrong}");
    }
    assert_eq!(w.unapply(4), Ok(2));
    assert_eq!(w.unapply(4), Ok(0), "a repeated call");
    assert_eq!(w.applier.status(), Some(UtxoApplying { base: 0, next: 4, height: 1_004, transactions: 0 }));
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
                w.unapply(number).unwrap();
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
                w.utxo.set_mined(&set, &MinedTransaction { txid: tx.id(), subtree: 0 }, &call).unwrap();
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
        assert_eq!(w.unapply(0), Ok(2));
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
        assert_eq!(w.blobs.kept_bytes(crate::storage::owners::EXTERNAL), 0);
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
    assert_eq!(w.unapply(1), Ok(2));
    let record = w.record(&tx).unwrap();
    assert_eq!((record.blocks.len(), record.unmined_since), (1, None));
}

#[test]
fn record_off_the_longest_chain_stays_there_when_one_of_its_blocks_is_taken_back() {
    let (mut w, tx) = mined_twice();
    let call = w.call(300);
    w.utxo.set_on_longest_chain(&tx.txid, false, &call).unwrap();
    let since = w.record(&tx).unwrap().unmined_since;
    assert_eq!(w.unapply(1), Ok(2));
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
    let refuse = UtxoApplyBlock { missing_parents: MissingParents::Refuse, ..argument(1) };
    assert_eq!(w.step(&refuse).map(|done| (done.has_more, done.transactions)), Ok((true, 1)));
    assert!(w.step(&refuse).is_err());
    assert_eq!(w.step(&argument(0)).map(|done| done.has_more), Ok(false), "the block before is applied");
    let other_id = UtxoApplyBlock { block_id: 1, ..argument(1) };
    assert_eq!(w.step(&other_id), Err(UtxoApplyError::OtherId { block_id: 51 }));
    assert_eq!((w.applier.above(0), w.applier.above(1)), (Some(1), None));
    assert_eq!(w.unapply(0), Err(UtxoUnapplyError::NotLast { last: 1 }));
    assert_eq!(w.unapply(1), Ok(1));
    assert_eq!(w.applier.above(0), None);
    assert!(w.record(&txs[1]).unwrap().conflicting);
    // It is applied again under another id.
    let done = w.apply(&other_id).unwrap();
    assert_eq!((done.transactions, done.created, done.existed, done.missing_parents), (3, 2, 1, 2));
    assert!(!w.record(&txs[1]).unwrap().conflicting);
    assert_eq!(w.record(&txs[3]).unwrap().blocks[0].block_id, 1);
}

#[test]
fn pruned_block_cannot_be_taken_back() {
    let mut w = World::new();
    for number in 0..3 {
        w.append(number, &[Tx::coinbase(number, 1)]);
    }
    w.apply(&argument(0)).unwrap();
    w.chain.remove_oldest(&mut w.blobs).unwrap();
    assert_eq!(w.unapply(0), Err(UtxoUnapplyError::Pruned { first_available: 1 }));
    // The chain goes on.
    assert!(w.apply(&argument(1)).is_ok());
    assert_eq!(w.apply(&argument(0)).map(|done| done.transactions), Ok(0), "nothing is known of it any more");
}

#[test]
fn block_below_others_that_were_applied_before_is_not_taken_back() {
    let mut w = World::new();
    for number in 0..4 {
        w.append(number, &[Tx::coinbase(number, 1)]);
        w.apply(&argument(number)).unwrap();
    }
    // Applying ends, and begins again at a lower block.
    w.applier.set(None);
    w.apply(&argument(1)).unwrap();
    assert_eq!(w.unapply(1), Err(UtxoUnapplyError::NotLast { last: 3 }));
    w.apply(&argument(2)).unwrap();
    w.apply(&argument(3)).unwrap();
    assert_eq!((w.unapply(3), w.unapply(2), w.unapply(1)), (Ok(1), Ok(1), Ok(1)));
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
    (2..5).rev().for_each(|number| assert!(w.unapply(number).is_ok()));
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
fn block_whose_coinbase_is_half_marked_is_applied_or_taken_back_further() {
    // A slice marks at most 5,000 transactions.
    let many = 5_100;
    let coinbase = Tx::coinbase(0, many);
    let mut w = World::new();
    w.append(0, std::slice::from_ref(&coinbase));
    w.append(1, &[Tx::coinbase(1, 1)]);
    let spenders: Vec<Tx> = (0..many).map(|vout| Tx::of(u64::from(vout), &[(coinbase.txid, vout)], 1)).collect();
    w.append(2, &[vec![Tx::coinbase(2, 1)], spenders.clone()].concat());
    (0..3).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
    (1..3).rev().for_each(|number| assert!(w.unapply(number).is_ok()));
    let coinbase = |w: &World| {
        let record = w.record(&coinbase).unwrap();
        (record.blocks.len(), record.conflicting)
    };
    let half = UtxoUnapplied { has_more: true, transactions: 0, unset: 1 };
    assert_eq!((w.unapply_step(0), coinbase(&w)), (Ok(half), (0, true)));
    assert_eq!((w.applier.guard().map(|guard| guard.before), w.applier.position().unwrap().last()), (Some(0), Some(0)));
    w.reopen();
    // The block is applied again.
    assert_eq!(w.apply(&argument(0)).map(|done| (done.existed, done.transactions)), Ok((1, 1)));
    assert_eq!((coinbase(&w), w.applier.status().map(|status| status.next)), ((1, false), Some(1)));
    // It is taken back to its end.
    let unmarked = |w: &World| spenders.iter().filter(|tx| !w.record(tx).unwrap().conflicting).count();
    assert!((1..many as usize).contains(&unmarked(&w)));
    assert_eq!((w.unapply(0), coinbase(&w)), (Ok(1), (0, true)));
    assert_eq!((unmarked(&w), w.unapply(0), w.applier.position().unwrap().last()), (0, Ok(0), None));
    audit();
}

#[test]
fn coinbase_that_cannot_be_marked_keeps_its_block_half_taken_back() {
    let mut w = World::new();
    let coinbase = Tx::coinbase(0, 1);
    let spender = Tx::of(1, &[(coinbase.txid, 0)], 1);
    w.append(0, std::slice::from_ref(&coinbase));
    w.apply(&argument(0)).unwrap();
    w.create(&UtxoCreate { locked: None, ..spender.record() }, 1_002).unwrap();
    let call = w.call(1_002);
    let spends = vec![coinbase.spend(0, 0)];
    w.utxo.spend(&TransactionSpends { spender: spender.id(), spends }, &call).unwrap();
    let slot = w.utxo.slot_of(&spender.txid);
    overwrite(slot, 0, &[9]);
    assert_eq!(w.unapply_step(0), Ok(UtxoUnapplied { has_more: true, transactions: 0, unset: 1 }));
    for _ in 0..2 {
        let refused = w.unapply_step(0);
        assert!(matches!(refused, Err(UtxoUnapplyError::Refused { transaction: 0, .. })), "{refused:?}");
        assert_eq!(w.applier.position().unwrap().last(), Some(0), "a rollback is refused");
    }
    // A record that got the block again meanwhile loses it, and the answer counts it.
    let UtxoApplyBlock { height, block_id, .. } = argument(0);
    let set = UtxoSetMinedBatch {
        height,
        block_id,
        block_height: height,
        on_longest_chain: true,
        unset: false,
        items: vec![],
    };
    w.utxo.set_mined(&set, &MinedTransaction { txid: coinbase.id(), subtree: 0 }, &call).unwrap();
    assert_eq!(w.unapply_step(0), Ok(UtxoUnapplied { has_more: true, transactions: 0, unset: 1 }));
    assert!(w.unapply_step(0).is_err());
    overwrite(slot, 0, &[1]);
    assert_eq!((w.unapply(0), w.applier.position().unwrap().last()), (Ok(0), None));
    assert!(w.record(&coinbase).unwrap().conflicting && w.record(&spender).unwrap().conflicting);
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
    w.utxo.set_mined(&set, &MinedTransaction { txid: coinbase.id(), subtree: 0 }, &call).unwrap();
    assert_eq!((w.unapply(1), w.unapply(0)), (Ok(1), Ok(1)));
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
    w.applier.set(None);
    w.chain.note_applied(0, None);
    let again = UtxoApplyBlock { block_id: 1, ..argument(0) };
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&again) else { panic!("another block has the coinbase") };
    assert_eq!((stop.transaction, stop.reason), (0, UtxoApplyReason::Conflicting));
}
