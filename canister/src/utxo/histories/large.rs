//! What random histories are too small for.

use super::store::Real;
use super::{Answer, Op, Store};
use crate::testing::id;
use crate::utxo::model::{Call, Model};
use coppice_interface::*;

fn outside(number: u64, inputs: Vec<Outpoint>, outputs: u32) -> UtxoCreate {
    let txid = Txid::from(id(number));
    let store = ExternalStore { blob_key: txid.clone().into(), file_type: FileType::Tx, store_type: StoreType::Tx };
    let hash = |vout: u32| (vout % 7 != 3).then(|| UtxoHash::from(id(u64::from(vout))));
    let source = TransactionSource::Outside(OutsideTransaction {
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

fn call(height: u32) -> Call {
    Call { height, now_ns: u64::from(height) * 1_000_000_000, settings: UtxoSettings::default(), most: MAX_HEIGHT }
}

fn is_full(answer: &Answer) -> bool {
    answer.error() == Some(UtxoRefusal::OutOfSpace)
}

/// What is full can be emptied, and what was emptied filled: for ever.
#[test]
fn a_full_store_is_emptied_and_filled_again() {
    let mut store = Real::full(3 << 20);
    let mut next = 0u64;
    let mut height = 1;
    let fill = |store: &mut Real, next: &mut u64, height: &mut u32| {
        let first = *next;
        loop {
            *height += 1;
            if is_full(&store.apply(&Op::Create(outside(*next, Vec::new(), 100)), &call(*height))) {
                return first..*next;
            }
            *next += 1;
        }
    };
    let mut there = fill(&mut store, &mut next, &mut height);
    let most = there.end - there.start;
    assert!(most > 100, "{most}");
    // What else needs memory takes the last of it.
    let mut until = 0;
    for number in there.clone() {
        until += 5_000_000;
        let txid = Txid::from(id(number));
        if is_full(&store.apply(&Op::Preserve(txid, until), &call(height))) {
            break;
        }
    }
    for _ in 0..3 {
        for number in there.clone() {
            assert_eq!(
                store.apply(&Op::Delete(id(number)), &call(height)),
                Answer::Count(Ok(0)),
                "{number} of {there:?}"
            );
        }
        there = fill(&mut store, &mut next, &mut height);
        let again = there.end - there.start;
        assert!(again >= most - most / 10, "{again} where {most} were");
    }
}

/// Both sides of a few calls on large records.
struct Both {
    store: Real,
    model: Model,
    height: u32,
}

impl Both {
    fn apply(&mut self, op: Op) -> Answer {
        self.height += 1;
        let call = call(self.height);
        let answer = self.store.apply(&op, &call).plain();
        let expected = self.model.apply(&op, &call).plain();
        assert!(
            answer == expected,
            "{}: {:.500} and not {:.500}",
            op.name(),
            format!("{answer:?}"),
            format!("{expected:?}")
        );
        answer
    }

    fn check(&mut self, numbers: &[u64], outputs: u32) {
        self.store.reopen();
        assert_eq!(self.store.indexes(), Store::indexes(&self.model));
        for number in numbers {
            let txid = id(*number);
            for first in (0..outputs).step_by(4_999) {
                let expected = Store::record(&self.model, &txid, first, 5_000);
                assert!(self.store.record(&txid, first, 5_000) == expected, "{number} from {first} on");
            }
            for offset in [0, 1_000_000, 3_000_000] {
                let part = UtxoGetPart { txid: txid.into(), offset, length: 1_500_000 };
                assert!(self.store.inpoints(&part) == Store::inpoints(&self.model, &part), "{number} at {offset}");
            }
        }
    }
}

fn spends(by: u64, of: u64, vouts: impl Iterator<Item = (u32, u32)>) -> TransactionSpends {
    let spend = |(vout, vin)| {
        let utxo_hash = UtxoHash::from(id(u64::from(vout)));
        Spend { txid: id(of).into(), vout, utxo_hash, vin }
    };
    TransactionSpends { spender: id(by).into(), spends: vouts.map(spend).collect() }
}

/// Three pages of outputs, three of inputs, and several spenders.
#[test]
fn large_records_are_as_the_model_says() {
    let mut both = Both { store: Real::new(), model: Model::default(), height: 1 };
    let outputs = 45_000u32;
    let outpoint = |of: u64, vout: u32| Outpoint { txid: id(of).into(), vout };
    both.apply(Op::Create(outside(1_000, Vec::new(), outputs)));
    // One spends the outputs from the last on, behind inputs of others.
    let inputs = (0..110_000u32).map(|vin| match vin.checked_sub(60_000) {
        Some(at) if at < outputs => outpoint(1_000, outputs - 1 - at),
        _ => outpoint(2_000 + u64::from(vin % 3), vin),
    });
    both.apply(Op::Create(outside(1_001, inputs.collect(), 3)));
    let is_utxo = |vout: &u32| vout % 7 != 3;
    let vin_of = |vout: u32| (vout, 60_000 + outputs - 1 - vout);
    both.apply(Op::Spend(spends(1_001, 1_000, (0..2_000).filter(is_utxo).map(vin_of))));
    both.apply(Op::Spend(spends(1_001, 1_000, (40_000..42_000).filter(is_utxo).map(vin_of))));
    both.check(&[1_000, 1_001], outputs);
    // Another has a whole page, and a double spend wants some of the first one's.
    both.apply(Op::Spend(spends(1_009, 1_000, (20_000..40_000).filter(is_utxo).zip(0..))));
    let wanted = || (0..2_000).chain(20_000..20_100).filter(is_utxo);
    let double = outside(1_002, wanted().map(|vout| outpoint(1_000, vout)).collect(), 2);
    both.apply(Op::Create(UtxoCreate { conflicting: true, ..double }));
    both.check(&[1_000, 1_001, 1_002], outputs);
    both.apply(Op::Freeze(FreezeTarget { txid: id(1_000).into(), vout: Some(41_000), utxo_hash: None }));
    let resolved = both.apply(Op::ProcessConflicting(vec![Txid::from(id(1_002))]));
    let Answer::Resolved(Ok(resolved)) = resolved else { panic!("{resolved:?}") };
    assert_eq!(resolved.losers, [Txid::from(id(1_001))]);
    assert_eq!(resolved.spent as usize, wanted().count());
    both.check(&[1_000, 1_001, 1_002], outputs);
    let whole = |number: u64| FreezeTarget { txid: id(number).into(), vout: None, utxo_hash: None };
    both.apply(Op::Freeze(whole(1_000)));
    both.check(&[1_000], outputs);
    both.apply(Op::Unfreeze(whole(1_000)));
    both.apply(Op::SetMined(UtxoSetMinedBatch {
        height: both.height,
        block_id: 4,
        block_height: 3,
        on_longest_chain: true,
        unset: false,
        items: vec![MinedTransaction { txid: id(1_000).into(), subtree: 0 }],
    }));
    both.apply(Op::Spend(spends(1_003, 1_000, (2_000..20_000).filter(is_utxo).zip(0..))));
    both.apply(Op::Spend(spends(1_003, 1_000, (40_000..outputs).filter(is_utxo).zip(20_000..))));
    both.check(&[1_000], outputs);
    assert!(both.model.records[&id(1_000)].delete_at_height.is_some());
    both.apply(Op::Delete(id(1_002)));
    both.check(&[1_000, 1_001], outputs);
    both.apply(Op::Delete(id(1_001)));
    both.apply(Op::Delete(id(1_000)));
    assert_eq!(both.store.storage().used_bytes, Real::new().storage().used_bytes);
}

/// A double spend of very many parents, each of which must remember it, while memory is short: it fits, or is refused.
#[test]
fn a_double_spend_of_many_parents_fits_or_is_refused() {
    let parents = 1_500;
    let (mut refused, mut done) = (0, 0);
    for slack in (250_000..450_000).step_by(8_000) {
        let mut store = Real::new();
        for number in 0..parents {
            store.apply(&Op::Create(outside(number, Vec::new(), 1)), &call(1));
        }
        let inputs = (0..parents).map(|number| Outpoint { txid: id(number).into(), vout: 0 }).collect();
        store.apply(&Op::Create(outside(parents, inputs, 1)), &call(1));
        store.fill(slack);
        let txid = Txid::from(id(parents));
        match store.apply(&Op::SetConflicting(txid.clone()), &call(2)) {
            Answer::Conflict(Ok(_)) => done += 1,
            answer => {
                assert!(is_full(&answer), "{answer:?}");
                assert!(!store.record(&txid, 0, 1).unwrap().conflicting);
                assert!(store.record(&id(0), 0, 1).unwrap().conflicting_children.is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 3 && done > 3, "{refused} {done}");
}
