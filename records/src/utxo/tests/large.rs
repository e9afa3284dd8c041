//! Records with several pages of outputs and inputs, and several spenders, which random histories do not reach.

use crate::testing::{id, *};
use ic_coppice_interface::*;

/// Outputs of the parent, on three pages.
const OUTPUTS: u32 = 45_000;

/// Returns a creation with an external transaction.
fn external(number: u64, inputs: Vec<Outpoint>, outputs: u32) -> UtxoCreate {
    let txid = Txid::from(id(number));
    let store = ExternalStore { blob_key: txid.clone().into(), file_type: FileType::Tx, store_type: StoreType::Tx };
    let hash = |vout: u32| is_utxo(&vout).then(|| UtxoHash::from(id(u64::from(vout))));
    let source = TransactionSource::External(ExternalTransaction {
        txid,
        store,
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 1 << 30,
        inputs,
        utxo_hashes: (0..outputs).map(hash).collect(),
    });
    UtxoCreate { source, mined: None, locked: Some(false), conflicting: false, fee: None, is_new: false }
}

fn is_utxo(vout: &u32) -> bool {
    vout % 7 != 3
}

fn utxos(of: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
    of.filter(is_utxo)
}

fn outpoint(of: u64, vout: u32) -> Outpoint {
    Outpoint { txid: id(of).into(), vout }
}

/// Spends outputs of the parent; each pair is an output and the spending input.
fn spend(w: &mut World, by: u64, outputs: impl Iterator<Item = (u32, u32)>) -> u32 {
    let hash = |vout: u32| UtxoHash::from(id(u64::from(vout)));
    let spend = |(vout, vin)| Spend { txid: id(PARENT).into(), vout, utxo_hash: hash(vout), vin };
    let call = w.call();
    w.store.spend(&TransactionSpends { spender: id(by).into(), spends: outputs.map(spend).collect() }, &call).unwrap()
}

/// Returns the spender of each output of the parent, or `None` if unspent.
fn spenders(w: &World) -> Vec<Option<Txid>> {
    let spender = |entry: &serde_bytes::ByteBuf| entry.get(32..64).map(Txid::from);
    let page = |first: u32| {
        let get = UtxoGet { txid: id(PARENT).into(), first, limit: 5_000, extra_pages_cursor: None };
        w.store.get(&get).unwrap().utxos
    };
    let all = (0..OUTPUTS).step_by(5_000).flat_map(page);
    all.map(|entry| entry.as_ref().and_then(spender)).collect()
}

fn record(w: &World, number: u64) -> UtxoRecord {
    w.store.get(&UtxoGet { txid: id(number).into(), first: 0, limit: 0, extra_pages_cursor: None }).unwrap()
}

const PARENT: u64 = 1_000;
const LOSER: u64 = 1_001;
const WINNER: u64 = 1_002;
const OTHERS: [u64; 2] = [1_003, 1_009];

#[test]
fn winner_takes_outputs_of_several_pages_and_deletion_leaves_no_memory() {
    let mut w = World::new();
    let used = w.store.storage().used_bytes;
    w.create(&external(PARENT, Vec::new(), OUTPUTS)).unwrap();
    // The loser spends the outputs in reverse order, after inputs that spend from other transactions.
    let vin_of = |vout: u32| 60_000 + OUTPUTS - 1 - vout;
    let inputs = (0..110_000u32).map(|vin| match vin.checked_sub(60_000) {
        Some(at) if at < OUTPUTS => outpoint(PARENT, OUTPUTS - 1 - at),
        _ => outpoint(2_000 + u64::from(vin % 3), vin),
    });
    w.create(&external(LOSER, inputs.collect(), 3)).unwrap();
    for range in [0..2_000, 40_000..42_000] {
        let count = utxos(range.clone()).count() as u32;
        assert_eq!(spend(&mut w, LOSER, utxos(range).map(|vout| (vout, vin_of(vout)))), count);
    }
    spend(&mut w, OTHERS[1], utxos(20_000..40_000).zip(0..));

    // The double spend spends some outputs that the loser holds and some that the other transaction holds.
    let wanted = || utxos(0..1_000).chain(utxos(20_000..20_100));
    let double = external(WINNER, wanted().map(|vout| outpoint(PARENT, vout)).collect(), 2);
    w.create(&UtxoCreate { conflicting: true, ..double }).unwrap();
    let call = w.call();
    let winners = vec![Txid::from(id(WINNER))];
    let resolved = w.store.process_conflicting(&UtxoProcessConflicting { height: w.height, winners }, &call).unwrap();
    assert_eq!((resolved.losers, resolved.has_more), (vec![Txid::from(id(LOSER))], false));
    assert_eq!(resolved.spent as usize, wanted().count());
    let by = |vout: u32| match vout {
        0..1_000 | 20_000..20_100 => Some(id(WINNER)),
        20_100..40_000 => Some(id(OTHERS[1])),
        _ => None,
    };
    let expected =
        || -> Vec<_> { (0..OUTPUTS).map(|vout| by(vout).filter(|_| is_utxo(&vout)).map(Txid::from)).collect() };
    assert!(spenders(&w) == expected());
    w.reopen();
    assert!(spenders(&w) == expected());

    let whole = FreezeTarget { txid: id(PARENT).into(), vout: None, utxo_hash: None };
    let call = w.call();
    assert_eq!(w.store.set_frozen(&whole, true, &call), Ok(utxos(0..OUTPUTS).count() as u32));
    assert_eq!(w.store.set_frozen(&whole, false, &call), Ok(utxos(0..OUTPUTS).count() as u32));
    assert!(spenders(&w) == expected());

    let item = MinedTransaction { txid: id(PARENT).into(), subtree: 0 };
    let (height, on_longest_chain) = (w.height, true);
    let set = UtxoSetMinedBatch { height, block_id: 4, block_height: 3, on_longest_chain, unset: false, items: vec![] };
    w.store.set_mined(&set, &item, &call, (&mut w.blobs, no_block)).unwrap();
    spend(&mut w, OTHERS[0], utxos(1_000..20_000).zip(0..));
    assert_eq!(record(&w, PARENT).delete_at_height, None);
    spend(&mut w, OTHERS[0], utxos(40_000..OUTPUTS).zip(20_000..));
    let parent = record(&w, PARENT);
    assert_eq!((parent.spent_extra_recs, parent.delete_at_height), (2, Some(w.height + 288)));
    for number in [WINNER, LOSER, PARENT] {
        let call = w.call();
        w.store.delete_by_id(&mut w.blobs, &id(number), &call).unwrap();
    }
    assert_eq!(w.store.storage().used_bytes, used);
}
