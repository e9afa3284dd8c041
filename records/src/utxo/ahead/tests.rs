//! Transactions parsed in groups equal those parsed by themselves.

use super::*;
use crate::testing::{Tx, raw, serialise};
use ic_coppice_storage::testing::histories;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_bytes::ByteBuf;

fn item(bytes: Vec<u8>) -> UtxoCreate {
    UtxoCreate { source: TransactionSource::Raw(ByteBuf::from(bytes)), ..raw(&Tx::orphan(0, 1)) }
}

fn bytes(item: &UtxoCreate) -> &[u8] {
    let TransactionSource::Raw(raw) = &item.source else { panic!("{item:?}") };
    raw
}

/// Returns a transaction in the extended form.
fn extended(tx: &Tx) -> Vec<u8> {
    let previous: Vec<_> = tx.inputs.iter().map(|_| (5, vec![1; 30])).collect();
    serialise(&tx.inputs, Some(&previous), &tx.outputs)
}

/// Returns a transaction in the form with witnesses.
fn with_witnesses(tx: &Tx) -> Vec<u8> {
    let (lock_time, body) = tx.raw[4..].split_last_chunk::<4>().map(|(body, end)| (end, body)).unwrap();
    let witnesses = [1, 2, 7, 7].repeat(tx.inputs.len());
    [&tx.raw[..4], &[0, 1], body, &witnesses, lock_time].concat()
}

#[test]
fn group_has_at_most_64_transactions() {
    let items: Vec<_> = (0..150).map(|at| raw(&Tx::orphan(at, 2))).collect();
    let mut batch = Ahead::new(&items);
    let mut rests = Vec::new();
    for item in &items {
        assert_eq!(batch.parse(bytes(item)), parse(bytes(item)));
        rests.push(batch.rest.len());
    }
    rests.dedup();
    assert_eq!(rests, [86, 22, 0]);
}

#[test]
fn large_transaction_is_a_group_by_itself() {
    let items: Vec<_> = [1, 1, 5_000, 1, 5_000, 5_000].iter().map(|outputs| raw(&Tx::orphan(9, *outputs))).collect();
    let mut batch = Ahead::new(&items);
    let mut rests = Vec::new();
    for item in &items {
        assert_eq!(batch.parse(bytes(item)), parse(bytes(item)));
        rests.push(batch.rest.len());
    }
    assert_eq!(rests, [4, 4, 3, 2, 1, 1], "the last one is parsed alone");
}

#[test]
fn items_that_are_not_asked_for_are_skipped() {
    let mut items: Vec<_> = (0..200).map(|at| raw(&Tx::orphan(at, 1))).collect();
    items[70].source = TransactionSource::Uploaded(Tx::orphan(0, 1).id());
    let mut batch = Ahead::new(&items);
    for at in [3, 69, 71, 199] {
        assert_eq!(batch.parse(bytes(&items[at])), parse(bytes(&items[at])), "{at}");
    }
}

#[test]
fn transaction_of_no_batch_is_parsed_by_itself() {
    let alone = raw(&Tx::orphan(1, 3));
    assert_eq!(Ahead::default().parse(bytes(&alone)), parse(bytes(&alone)));
    let items = [raw(&Tx::orphan(2, 1))];
    let mut batch = Ahead::new(&items);
    assert_eq!(batch.parse(bytes(&alone)), parse(bytes(&alone)));
    assert_eq!(batch.parse(bytes(&items[0])), parse(bytes(&items[0])), "asked for after all were skipped");
    assert!(batch.parse(&[]).is_err());
}

#[test]
fn every_form_of_a_transaction_has_its_id_and_output_hashes() {
    let tx = Tx::of(7, &[([1; 32], 0), ([2; 32], 1), ([3; 32], 2)], 5);
    let forms = [tx.raw.clone(), extended(&tx), with_witnesses(&tx)];
    let items: Vec<_> = forms.into_iter().map(item).collect();
    let mut batch = Ahead::new(&items);
    for item in &items {
        let parsed = batch.parse(bytes(item)).unwrap();
        assert_eq!(parsed.txid, tx.txid);
        let hashes: Vec<_> = (0..5).map(|vout| Some(tx.hash(vout))).collect();
        assert_eq!((parsed.outputs, parsed.inputs), (hashes, tx.inputs.clone()));
    }
}

/// A transaction, and its form: standard, extended, with witnesses, or cut to so many bytes.
fn transaction() -> impl Strategy<Value = Vec<u8>> {
    let scripts = vec(prop_oneof![8 => vec(any::<u8>(), 0..90), 1 => vec(any::<u8>(), 8_000..9_000)], 1..6);
    let outputs = scripts.prop_flat_map(|scripts| {
        let satoshis = vec(prop_oneof![Just(0u64), any::<u64>()], scripts.len());
        satoshis.prop_map(move |satoshis| satoshis.into_iter().zip(scripts.clone()).collect::<Vec<_>>())
    });
    (vec((any::<[u8; 32]>(), any::<u32>()), 1..5), outputs, 0..9usize, any::<prop::sample::Index>()).prop_map(
        |(inputs, outputs, form, cut)| {
            let tx = Tx::new(&inputs, &outputs);
            match form {
                0..4 => tx.raw,
                4..6 => extended(&tx),
                6..8 => with_witnesses(&tx),
                _ => tx.raw[..cut.index(tx.raw.len())].to_vec(),
            }
        },
    )
}

proptest! {
    #![proptest_config(histories(64))]

    #[test]
    fn batch_is_parsed_as_its_items_are(all in vec(transaction(), 0..90)) {
        let items: Vec<_> = all.into_iter().map(item).collect();
        let mut batch = Ahead::new(&items);
        for item in &items {
            prop_assert_eq!(batch.parse(bytes(item)), parse(bytes(item)));
        }
    }
}
