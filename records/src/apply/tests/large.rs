//! Transactions that are applied over several messages, and those that are too large.

use super::world::*;
use coppice_model::transactions::Tx;
use ic_coppice_interface::blocks::Blocks as _;
use ic_coppice_interface::*;
use ic_coppice_storage::twin;

/// Parents with 3,000 outputs each, and a transaction that spends all of them.
fn wide(parents: u64) -> (Vec<Tx>, Tx) {
    let parents: Vec<Tx> = (0..parents).map(|salt| Tx::orphan(salt, 3_000)).collect();
    let inputs: Vec<_> = parents.iter().flat_map(|tx| (0..3_000).map(|vout| (tx.txid, vout))).collect();
    (parents, Tx::of(99, &inputs, 2))
}

/// A store with the parents, in which block 1 is applied up to the record of the child; not all of its inputs have spent.
fn half_applied(parents: &[Tx], child: &Tx) -> World {
    let mut w = World::new();
    w.append(0, parents);
    w.append(1, std::slice::from_ref(child));
    w.apply(&argument(0)).unwrap();
    // Each look at the instructions takes a fifth of a message.
    twin::with(|world| world.instructions_per_reading = 2_000_000_000);
    while w.record(child).is_none() {
        twin::with(|world| world.instructions = 0);
        assert!(w.step(&argument(1)).unwrap().has_more);
    }
    twin::with(|world| (world.instructions, world.instructions_per_reading) = (0, 0));
    w
}

#[test]
fn large_transaction_equals_the_single_calls_at_each_message() {
    let (parents, child) = wide(4);
    let last = Tx::of(100, &[(child.txid, 1)], 1);
    let mut all = parents.clone();
    all.extend([child.clone(), last.clone()]);
    let blocks = [parents.clone(), vec![Tx::coinbase(7, 1), child.clone(), last]];
    let run = |applied: bool| {
        let mut w = World::new();
        w.settings.utxo_batch_size = 1_000;
        for (number, txs) in (0..).zip(&blocks) {
            w.append(number, txs);
            if !applied {
                w.single(&argument(number), txs, &all);
                continue;
            }
            let (mut messages, mut spent) = (0, 0);
            loop {
                twin::with(|world| (world.instructions, world.instructions_per_reading) = (0, 2_000_000_000));
                let done = w.step(&argument(number)).unwrap();
                (messages, spent) = (messages + 1, spent + done.spent);
                if !done.has_more {
                    break;
                }
                let before = w.seen(&all);
                w.reopen();
                assert_eq!(w.seen(&all), before);
            }
            assert_eq!((messages > 3, spent), if number == 1 { (true, 12_001) } else { (false, 0) }, "{messages}");
        }
        w.seen(&all)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn inputs_of_a_large_transaction_are_checked_before_it_is_created() {
    let (parents, child) = wide(2);
    let thief = Tx::of(50, &[(parents[1].txid, 2_999)], 1);
    let mut w = World::new();
    w.append(0, &parents);
    w.append(1, std::slice::from_ref(&child));
    w.apply(&argument(0)).unwrap();
    w.create(&thief.record(), 1_000).unwrap();
    let call = w.call(1_000);
    let spend = TransactionSpends { spender: thief.id(), spends: vec![parents[1].spend(2_999, 0)] };
    w.utxo.spend(&spend, &call).unwrap();
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&argument(1)) else { panic!("it is spent") };
    assert_eq!((stop.transaction, stop.input), (0, Some(5_999)));
    assert_eq!((w.record(&child), w.record(&parents[0]).unwrap().spent_utxos), (None, 0));
    let done = w.apply(&UtxoApplyBlock { skip: Some(child.id()), ..argument(1) }).unwrap();
    assert_eq!((done.has_more, done.created), (false, 0));
}

#[test]
fn large_transaction_that_was_pruned_counts_as_applied_when_its_block_is_replayed() {
    for parents_pruned in [false, true] {
        let (parents, child) = wide(2);
        let last = Tx::of(7, &[(child.txid, 0), (child.txid, 1)], 1);
        let mut w = World::new();
        w.append(0, &parents);
        w.append(1, std::slice::from_ref(&child));
        w.append(2, std::slice::from_ref(&last));
        (0..3).for_each(|number| assert!(w.apply(&argument(number)).is_ok()));
        let call = w.call(2_000);
        w.utxo.delete_by_id(&mut w.blobs, &child.txid, &call).unwrap();
        for parent in parents.iter().filter(|_| parents_pruned) {
            w.utxo.delete_by_id(&mut w.blobs, &parent.txid, &call).unwrap();
        }
        let World { applier, chain, .. } = &mut w;
        applier.end(chain);
        w.chain.set_note(1, None);
        let arg = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(1) };
        let done = w.apply(&arg).unwrap();
        assert_eq!((done.pruned, done.created, done.transactions), (1, 0, 1));
        assert_eq!(w.record(&child), None);
    }
}

#[test]
fn double_spend_between_two_messages_stops_a_large_transaction() {
    let (parents, child) = wide(3);
    let thief = Tx::of(50, &[(parents[2].txid, 2_999)], 1);
    let mut w = half_applied(&parents, &child);
    w.create(&thief.record(), 1_000).unwrap();
    let call = w.call(1_000);
    let theft = TransactionSpends { spender: thief.id(), spends: vec![parents[2].spend(2_999, 0)] };
    w.utxo.spend(&theft, &call).unwrap();
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&argument(1)) else { panic!("it is spent") };
    assert_eq!(stop.input, Some(8_999));
    // The half-applied block can be taken back, with the transaction's record.
    assert!(w.take_back(1) > 0);
    assert_eq!(w.record(&child).unwrap().blocks, []);
}

#[test]
fn transaction_above_the_limits_is_too_large_and_can_be_skipped() {
    let outputs: Vec<(u64, Vec<u8>)> = vec![(1, vec![0x51; 20]); 1_000_001];
    let many = Tx::new(&[(crate::testing::id(1), 0)], &outputs);
    let long = Tx::new(&[(crate::testing::id(2), 0)], &[(1, vec![0x51; 17 << 20])]);
    let small = Tx::orphan(3, 1);
    for large in [many, long] {
        let mut w = World::new();
        w.append(0, &[small.clone(), large.clone(), Tx::orphan(4, 1)]);
        assert_eq!(w.step(&argument(0)).map(|done| done.transactions), Ok(1));
        let Err(UtxoApplyError::Stopped(stop)) = w.step(&argument(0)) else { panic!("it is too large") };
        assert_eq!((stop.transaction, stop.txid, stop.input), (1, large.id(), None));
        let is_too_large = matches!(stop.reason, UtxoApplyReason::Create(UtxoCreateError::TooLarge { .. }));
        assert!(is_too_large, "{:?}", stop.reason);
        let skip = UtxoApplyBlock { skip: Some(large.id()), ..argument(0) };
        assert_eq!(w.apply(&skip).map(|done| (done.transactions, done.created)), Ok((3, 1)));
        assert_eq!(w.utxo.storage().records, 2);
    }
}

#[test]
fn output_that_a_large_transaction_spends_twice_stops_it_before_anything_changes() {
    let (parents, _) = wide(2);
    let mut inputs: Vec<_> = parents.iter().flat_map(|tx| (0..3_000).map(|vout| (tx.txid, vout))).collect();
    inputs[5_500] = inputs[10];
    let child = Tx::of(99, &inputs, 2);
    let mut w = World::new();
    w.append(0, &parents);
    w.append(1, std::slice::from_ref(&child));
    w.apply(&argument(0)).unwrap();
    let before = w.seen(&parents);
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&argument(1)) else { panic!("an output is spent twice") };
    let by = Spender { txid: child.id(), vin: 10 };
    assert_eq!((stop.input, stop.reason), (Some(5_500), UtxoApplyReason::Spend(UtxoSpendError::Spent { by })));
    assert_eq!((w.record(&child), w.applier.status().map(|status| status.transactions)), (None, Some(0)));
    assert_eq!(w.seen(&parents), before);
}

#[test]
fn large_transaction_that_becomes_a_double_spend_between_two_messages_stops() {
    let (parents, child) = wide(2);
    let mut w = half_applied(&parents, &child);
    let call = w.call(1_001);
    while w.utxo.set_conflicting(&child.txid, &call).unwrap().has_more {}
    let Err(UtxoApplyError::Stopped(stop)) = w.apply(&argument(1)) else { panic!("it is a double spend") };
    assert_eq!(stop.reason, UtxoApplyReason::Conflicting);
}

#[test]
fn message_that_reads_many_records_is_full() {
    let parents: Vec<Tx> = (0..3_000).map(|salt| Tx::orphan(salt, 40)).collect();
    let children: Vec<Tx> = (0..40u32)
        .map(|vout| {
            let inputs: Vec<_> = parents.iter().map(|parent| (parent.txid, vout)).collect();
            Tx::of(9_000 + u64::from(vout), &inputs, 1)
        })
        .collect();
    let mut w = World::new();
    w.append(0, &parents);
    w.append(1, &children);
    w.apply(&argument(0)).unwrap();
    let mut messages = 0;
    loop {
        let (done, touched) = twin::touching(|| w.step(&argument(1)).unwrap());
        assert!(touched.accessed.len() < 300_000 && touched.dirtied.len() < 17_408, "{}", touched.dirtied.len());
        messages += 1;
        if !done.has_more {
            break;
        }
    }
    assert!(messages >= 3, "{messages}");
}

#[test]
fn message_that_changes_many_pages_is_full() {
    // Each record has 352 pages of entries, and its bytes take 90 pages of a blob.
    let txs: Vec<Tx> = (0..50).map(|salt| Tx::orphan(salt, 20_000)).collect();
    let mut w = World::new();
    w.append(0, &txs);
    let mut messages = 0;
    loop {
        let (done, touched) = twin::touching(|| w.step(&argument(0)).unwrap());
        assert!(touched.dirtied.len() <= 17_408, "{}", touched.dirtied.len());
        messages += 1;
        if !done.has_more {
            break;
        }
    }
    assert!(messages > 1 && w.utxo.storage().records == 50, "{messages}");
}

/// The look-ups of each of 1,200 parents walk a chain as long as that of 100,000 records.
#[test]
fn transaction_whose_parents_share_a_bucket_is_applied_in_parts_within_each_message() {
    const PARENTS: u64 = 1_200;
    let parents: Vec<Tx> = (0..PARENTS).map(|salt| Tx::orphan(salt, 1)).collect();
    let inputs: Vec<_> = parents.iter().map(|tx| (tx.txid, 0)).collect();
    let (child, next) = (Tx::of(99, &inputs, 2), Tx::orphan(9_999, 1));
    let all: Vec<Tx> = parents.iter().chain([&child, &next]).cloned().collect();
    let run = |of_access: u64| {
        let mut w = World::new();
        w.utxo.mask_hashes(!0xF_FFFF);
        w.append(0, &parents);
        w.append(1, &[child.clone(), next.clone()]);
        w.apply(&argument(0)).unwrap();
        let (mut messages, mut spent) = (0, 0);
        loop {
            twin::with(|world| (world.instructions, world.instructions_per_access) = (0, of_access));
            let done = w.step(&argument(1)).unwrap();
            let took = twin::with(|world| world.instructions);
            assert!(took < 25_000_000_000, "{took}");
            (messages, spent) = (messages + 1, spent + done.spent);
            if !done.has_more {
                break;
            }
            w.reopen();
            w.utxo.mask_hashes(!0xF_FFFF);
        }
        twin::with(|world| world.instructions_per_access = 0);
        assert_eq!(u64::from(spent), PARENTS);
        (messages, w.seen(&all))
    };
    let (whole, seen) = run(0);
    let (parts, same) = run(600_000);
    assert_eq!((whole, parts > 3, same == seen), (1, true, true), "{parts}");
}

/// An item of a batch gives up before its message traps, and changes nothing.
#[test]
fn spend_whose_parents_share_a_bucket_gives_up() {
    let parents: Vec<Tx> = (0..1_200).map(|salt| Tx::orphan(salt, 1)).collect();
    let mut w = World::new();
    w.utxo.mask_hashes(!0xF_FFFF);
    w.append(0, &parents);
    w.apply(&argument(0)).unwrap();
    let spends: Vec<Spend> = (0..).zip(&parents).map(|(vin, parent)| parent.spend(0, vin)).collect();
    let spend = TransactionSpends { spender: Tx::orphan(77, 1).id(), spends };
    let call = w.call(1_001);
    twin::with(|world| world.instructions_per_access = 600_000);
    let refused = w.utxo.spend(&spend, &call).unwrap_err();
    let took = twin::with(|world| std::mem::take(&mut world.instructions));
    assert_eq!(refused.iter().map(|refused| &refused.error).collect::<Vec<_>>(), [&UtxoSpendError::TooMuchWork]);
    assert!(took < 15_000_000_000, "{took}");
    twin::with(|world| world.instructions_per_access = 0);
    assert!(parents.iter().all(|parent| w.record(parent).unwrap().spent_utxos == 0));
    assert_eq!(w.utxo.spend(&spend, &call), Ok(1_200));
}
