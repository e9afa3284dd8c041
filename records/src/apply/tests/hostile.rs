//! Invalid bodies and index segments.

use super::world::*;
use crate::apply::AppliedNote;
use crate::apply::window::{BodyError, Source, WalkLimits, Window};
use crate::utxo::MAX_TRANSACTION;
use coppice_model::transactions::{Tx, var_int};
use ic_coppice_interface::blocks::Blocks as _;
use ic_coppice_interface::*;
use ic_coppice_storage::twin;

/// The answer for a block with this body and these ids: transaction, byte, and reason. Nothing has changed.
fn refused(body: Vec<u8>, ids: &[[u8; 32]]) -> (u32, u64, String) {
    let mut w = World::new();
    w.append_body(0, body, ids);
    match w.step(&argument(0)) {
        Err(UtxoApplyError::BadBody { transaction, at, why }) => {
            assert_eq!((w.applier.status(), w.utxo.storage().records), (None, 0), "{why}");
            (transaction, at, why)
        }
        other => panic!("{other:?}"),
    }
}

fn txs() -> [Tx; 3] {
    [Tx::coinbase(0, 1), Tx::orphan(1, 2), Tx::orphan(2, 1)]
}

#[test]
fn segment_that_is_no_block_is_refused() {
    let tx = Tx::coinbase(0, 1);
    let whole = body(&[&tx.raw]);
    assert_eq!(refused(vec![], &[]), (0, 0, "the body has 0 bytes, and a block's header 80".into()));
    assert_eq!(refused(vec![0; 79], &[]), (0, 0, "the body has 79 bytes, and a block's header 80".into()));
    let no_number = (0, 80, "the number of transactions is not a VarInt of minimal length".into());
    assert_eq!(refused(vec![0; 80], &[]), no_number);
    assert_eq!(refused([&[0; 80][..], &[0xFD, 1]].concat(), &[tx.txid]), no_number);
    assert_eq!(refused([&[0; 80][..], &[0xFD, 1, 0], &tx.raw].concat(), &[tx.txid]), no_number);
    let text = "no block at all, but as many bytes as a header has, and some more: ".repeat(3).into_bytes();
    assert_eq!(refused(text, &[]).2, "the body has 108 transactions, and the index segment 0");
    assert_eq!(refused(whole.clone(), &[]).2, "the body has 1 transactions, and the index segment 0");
    assert_eq!(refused(whole, &[tx.txid, [1; 32]]).2, "the body has 1 transactions, and the index segment 2");
    let huge = [&[0; 80][..], &var_int(u64::MAX)].concat();
    assert_eq!(refused(huge, &[]).2, format!("the body has {} transactions, and the index segment 0", u64::MAX));
}

#[test]
fn truncated_body_is_refused_wherever_it_ends() {
    let txs = txs();
    let whole = body(&[&txs[0].raw]);
    for len in 81..whole.len() {
        let (transaction, at, why) = refused(whole[..len].to_vec(), &[txs[0].txid]);
        assert_eq!(transaction, 0, "{len}: {why}");
        assert!((81..=len as u64).contains(&at), "{len}: {at}");
        let ends = why.starts_with("the body ends inside") || why.ends_with("is not a VarInt of minimal length");
        assert!(ends, "{len}: {why}");
    }
}

#[test]
fn rest_of_a_block_is_skipped_where_its_bytes_do_not_lead_on() {
    let txs = txs();
    let whole = body(&[&txs[0].raw, &txs[1].raw]);
    let (ids, end) = ([txs[0].txid, txs[1].txid], whole.len() as u64);
    let next = Tx::orphan(9, 1);
    let after = |bytes: &[u8]| [&whole[..], bytes].concat();
    let mut lying = whole.clone();
    lying[80] = 7;
    // The body; the transactions that are applied; and the byte and the reason of the stop.
    for (body, applied, expected, why) in [
        (after(&[1, 2, 3]), 2, end, "3 bytes after the last transaction"),
        (whole[..whole.len() - 1].to_vec(), 1, end - 4, "the body ends inside the lock time"),
        (lying, 0, 80, "the body has 7 transactions, and the index segment 2"),
        (vec![], 0, 0, "the body has 0 bytes, and a block's header 80"),
    ] {
        let mut w = World::new();
        w.append_body(0, body, &ids);
        w.append(1, std::slice::from_ref(&next));
        let rest = UtxoApplyBlock { skip_rest: true, ..argument(0) };
        if applied > 0 {
            assert_eq!(
                w.step(&argument(0)).map(|done| (done.has_more, done.transactions)),
                Ok((true, applied)),
                "{why}"
            );
        }
        let bad = UtxoApplyError::BadBody { transaction: applied, at: expected, why: why.into() };
        assert_eq!(w.step(&argument(0)), Err(bad.clone()));
        if applied > 0 {
            assert_eq!(w.applier.stop.as_ref().map(|stop| stop.text.clone()), Some(format!("block 0: {bad}")), "{why}");
        }
        let done = w.outcome(&rest, false);
        assert_eq!(done, Err(UtxoApplyError::OperatorOnly), "{why}");
        // A new beginning meets the same bytes.
        let World { applier, chain, .. } = &mut w;
        applier.end(chain);
        assert_eq!(w.step(&argument(0)), Err(bad.clone()), "{why}");
        let done = w.outcome(&rest, true).unwrap();
        assert_eq!((done.rest, done.applied.has_more, done.finished), (applied..2, false, Some(height(0))), "{why}");
        assert!(w.applier.stop.is_none() && w.step(&rest).unwrap().known);
        // The rest of the block has no records; the chain goes on, and is taken back.
        let records = w.utxo.storage().records;
        assert_eq!(records, u64::from(applied), "{why}");
        assert_eq!(w.apply(&argument(1)).map(|done| done.created), Ok(1), "{why}");
        assert!(w.take_back(1) > 0 && w.take_back(0) > 0);
    }
    // A block whose bytes lead on is applied.
    let mut w = World::new();
    w.append(0, &txs);
    let done = w.outcome(&UtxoApplyBlock { skip_rest: true, ..argument(0) }, true).unwrap();
    assert_eq!((done.rest, done.applied.created), (0..0, 3));
}

#[test]
fn block_that_applying_left_in_its_middle_goes_on_at_the_same_byte() {
    let mut w = World::new();
    w.append_body(0, body(&txs().each_ref().map(|tx| &tx.raw[..])), &[txs()[0].txid, txs()[1].txid, [9; 32]]);
    assert_eq!(w.step(&argument(0)).map(|done| done.transactions), Ok(2));
    let at = 81 + (txs()[0].raw.len() + txs()[1].raw.len()) as u64;
    let World { applier, chain, .. } = &mut w;
    applier.end(chain);
    assert_eq!(AppliedNote::of(&w.chain, 0).map(|note| (note.transactions, u64::from(note.offset))), Some((2, at)));
    let why = "the transaction's id is not that of the index segment".into();
    assert_eq!(w.step(&argument(0)), Err(UtxoApplyError::BadBody { transaction: 2, at, why }));
}

#[test]
fn extended_transaction_is_refused_even_if_its_lengths_are_those_of_two_others() {
    let form = |parent: [u8; 32]| {
        let tx = Tx::of(1, &[(parent, 0)], 1);
        let extended = coppice_model::transactions::serialise(&tx.inputs, Some(&[(5, vec![1; 3])]), &tx.outputs);
        (tx, extended)
    };
    // By its lengths the extended form is a transaction of ten bytes, without inputs and outputs, and one that the parent's id describes: no
    // witness and no input, and an output whose script is all that follows except the lock time.
    let after = form([0; 32]).1.len() - 10;
    let mut parent = [0; 32];
    (parent[4], parent[6], parent[15]) = (1, 1, (after - 17 - 4) as u8);
    let (tx, extended) = form(parent);
    let hostile = [&[0; 80][..], &[2], &extended].concat();
    let why = "the transaction is in the extended form, which no block has".to_string();
    assert_eq!(refused(hostile, &[tx.txid, [1; 32]]), (0, 81, why));
}

#[test]
fn ids_that_are_not_those_of_the_index_segment_are_refused() {
    let txs = txs();
    let raws: Vec<&[u8]> = txs.iter().map(|tx| tx.raw.as_slice()).collect();
    let [a, b, c] = [0, 1, 2].map(|at| txs[at].txid);
    let why = "the transaction's id is not that of the index segment";
    assert_eq!(refused(body(&raws), &[b, a, c]), (0, 81, why.into()));
    assert_eq!(refused(body(&raws), &[a, b, b]).2, "transactions 1 and 2 have the same id in the index segment");
    let doubled = body(&[raws[0], raws[1], raws[1]]);
    assert_eq!(refused(doubled, &[a, b, b]).2, "transactions 1 and 2 have the same id in the index segment");
    // Ids whose first bytes are equal are not duplicates.
    let near: Vec<[u8; 32]> = (0..3).map(|last| std::array::from_fn(|at| if at == 31 { last } else { 5 })).collect();
    assert_eq!(refused(body(&raws), &near), (0, 81, why.into()));
    // The transactions before the wrong one stay applied.
    let mut w = World::new();
    w.append_body(0, body(&raws), &[a, b, [3; 32]]);
    assert_eq!(w.step(&argument(0)).map(|done| (done.has_more, done.transactions)), Ok((true, 2)));
    let at = 81 + (txs[0].raw.len() + txs[1].raw.len()) as u64;
    assert_eq!(w.step(&argument(0)), Err(UtxoApplyError::BadBody { transaction: 2, at, why: why.into() }));
}

#[test]
fn transaction_that_is_none_is_refused() {
    let tx = Tx::coinbase(0, 1);
    // The number of outputs is longer encoded than it need be.
    let outputs = 4 + 1 + 36 + 7;
    let raw = [&tx.raw[..outputs], &[0xFD, 1, 0], &tx.raw[outputs + 1..]].concat();
    let (transaction, at, why) = refused(body(&[&raw]), &[tx.txid]);
    assert_eq!((transaction, at), (0, 81 + outputs as u64), "{why}");
}

#[test]
fn twice_spent_output_stops_the_transaction() {
    let mut w = World::new();
    let parent = Tx::orphan(0, 1);
    let by = Tx::of(1, &[(parent.txid, 0), (parent.txid, 0)], 1);
    w.append(0, &[parent.clone(), by.clone()]);
    assert_eq!(w.step(&argument(0)).map(|done| (done.has_more, done.transactions)), Ok((true, 1)));
    let Err(UtxoApplyError::Stopped(stop)) = w.step(&argument(0)) else { panic!("it is refused") };
    let itself = Spender { txid: by.id(), vin: 0 };
    let reason = UtxoApplyReason::Spend(UtxoSpendError::Spent { by: itself });
    assert_eq!((stop.txid, stop.input, stop.reason), (by.id(), Some(1), reason));
    assert_eq!((w.record(&by), w.record(&parent).unwrap().spent_utxos), (None, 0));
}

#[test]
fn transaction_without_outputs_stops_the_block() {
    let mut w = World::new();
    let none = Tx::orphan(0, 0);
    w.append(0, std::slice::from_ref(&none));
    let Err(UtxoApplyError::Stopped(stop)) = w.step(&argument(0)) else { panic!("it is refused") };
    assert_eq!((stop.input, stop.reason), (None, UtxoApplyReason::Create(UtxoCreateError::NoOutputs)));
    assert!(w.step(&UtxoApplyBlock { skip: Some(none.id()), ..argument(0) }).is_ok());
}

#[test]
fn transactions_of_a_kept_block_are_found_or_refused() {
    let mut w = World::new();
    let txs = txs();
    w.append(0, &txs);
    w.append_body(1, vec![9; 200], &[[1; 32]]);
    let get = |number, position| crate::apply::transaction(&w.chain, &w.blobs, number, position);
    for (at, tx) in txs.iter().enumerate() {
        assert_eq!(get(0, at as u32), Ok(tx.raw.clone()));
    }
    for (number, position) in [(0, 3), (0, u32::MAX), (2, 0), (u64::MAX, 0)] {
        assert_eq!(get(number, position), Err(UtxoRefusal::NotKept));
    }
    assert!(matches!(get(1, 0), Err(UtxoRefusal::BadTransaction { offset: 80, .. })), "{:?}", get(1, 0));
    w.chain.poison_header(0);
    let damaged = crate::apply::transaction(&w.chain, &w.blobs, 0, 0);
    assert!(matches!(damaged, Err(UtxoRefusal::Corrupt { .. })), "{damaged:?}");
}

#[test]
fn longest_transaction_of_a_kept_block_is_found_and_a_longer_one_is_too_large() {
    let mut w = World::new();
    let long = |len: u64| {
        let tx = Tx::orphan(1, 1);
        // The script of the only input fills the rest; its length takes five bytes instead of one.
        let (before, after) = tx.raw.split_at(4 + 1 + 36);
        let after = &after[1 + usize::from(after[0])..];
        let script = len as usize - before.len() - 5 - after.len();
        [before, &[0xFE], &(script as u32).to_le_bytes(), &vec![1; script], after].concat()
    };
    for (number, more) in [(0, 0), (1, 1)] {
        let raw = long(MAX_TRANSACTION + more);
        w.append_body(number, body(&[&raw]), &[[1; 32]]);
        let found = crate::apply::transaction(&w.chain, &w.blobs, number, 0);
        match more {
            0 => assert!(found == Ok(raw)),
            _ => assert!(matches!(found, Err(UtxoRefusal::TooLarge { limit: MAX_TRANSACTION, .. }))),
        }
    }
}

#[test]
fn limit_of_instructions_ends_with_a_walk_that_fails() {
    let mut world = World::new();
    world.append_body(0, body(&[&[1; 100]]), &[[1; 32]]);
    let source: Source = (&world.chain, &world.blobs);
    let mut window = Window::new(world.chain.kept(0).unwrap());
    twin::with(|world| world.instructions = 10);
    let walked = window.end_of(source, 81, WalkLimits::until(5));
    assert!(matches!(walked, Err(BodyError::Long)), "{walked:?}");
    assert!(window.read(source, 0, 1).is_ok());
}
