//! The model by the vectors of the reference implementation, and by a few of its rules.

use super::source::{inpoints, utxo_hash, varint, wrapper};
use super::*;

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn reversed(text: &str) -> Hash {
    hex(text).into_iter().rev().collect::<Vec<_>>().try_into().unwrap()
}

fn call(height: u32) -> Call {
    Call { height, now_ns: 7, settings: UtxoSettings::default(), most: MAX_HEIGHT }
}

/// Bitcoin's first transaction.
const GENESIS: &str = "01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000";

fn outside(txid: u8, inputs: &[(u8, u32)], outputs: usize) -> UtxoCreate {
    let id = |byte: u8| Txid::from([byte; 32]);
    let source = OutsideTransaction {
        txid: id(txid),
        store: ExternalStore { blob_key: id(txid).into(), file_type: FileType::Tx, store_type: StoreType::Tx },
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 100,
        inputs: inputs.iter().map(|&(txid, vout)| Outpoint { txid: id(txid), vout }).collect(),
        utxo_hashes: vec![Some(UtxoHash::from([0xcc; 32])); outputs],
    };
    let source = TransactionSource::Outside(source);
    UtxoCreate { source, mined: None, locked: Some(false), conflicting: false, fee: None, is_new: false }
}

fn holding(spender: u8, spends: &[(u8, u32)]) -> TransactionSpends {
    let spend =
        |(&(txid, vout), vin)| Spend { txid: [txid; 32].into(), vout, utxo_hash: UtxoHash::from([0xcc; 32]), vin };
    TransactionSpends { spender: [spender; 32].into(), spends: spends.iter().zip(0..).map(spend).collect() }
}

#[test]
fn varints() {
    for (value, bytes) in [
        (0, "00"),
        (0xfc, "fc"),
        (0xfd, "fdfd00"),
        (0xffff, "fdffff"),
        (0x1_0000, "fe00000100"),
        (0xffff_ffff, "feffffffff"),
        (0x1_0000_0000, "ff0000000001000000"),
    ] {
        assert_eq!(varint(value), hex(bytes), "{value}");
    }
}

#[test]
fn hashes_of_outputs() {
    let zero = [0; 32];
    for (vout, satoshis, expected) in [
        (0, 0, "4e94fda23f40416c583f3c454f71fec364bf23ce1f38e5ed8e747fb584b8164f"),
        (253, 253, "47e025c5d6ce7f2d47343c98a22b94163b8b5d8531e703ed6cdfc898b560de13"),
        (65536, 1 << 32, "bf258a2b3b6ab9e2cea809adfb74d1e45125eaa4504fb9b3ff19d84ae3b97349"),
    ] {
        assert_eq!(utxo_hash(&zero, vout, &[0x51], satoshis).to_vec(), hex(expected));
    }
    let txid = reversed("2fb09ea4d1d282f55b4f4b5b1eec92fa314e1ba5a5a009e897f63d155b4dba82");
    let script = hex("76a914d687c76d6ee133c9cc42bd96e3947d8a84bdf60288ac");
    let expected = reversed("8ef53bb4c9c4b849c30ec75243bad8a7eafd83f407407a154a6d9ec80d83dd00");
    assert_eq!(utxo_hash(&txid, 0, &script, 1_149_996_160), expected);
}

#[test]
fn encodings() {
    let (a, b) = ([0xaa; 32], [0xbb; 32]);
    let expected =
        [&hex("02000000")[..], &a, &b, &hex("02000000"), &hex("0000000002000000"), &hex("0100000001000000")].concat();
    assert_eq!(inpoints(&[(a, 0), (b, 1), (a, 2)]), expected);
    let output = PartialOutput { index: 3, satoshis: 5, script: ByteBuf::from([0x51]) };
    let expected = [&a[..], &hex("d1070000010000000300000005000000000000000100000051")].concat();
    assert_eq!(wrapper(&a, 1000, true, &[output]), expected);
}

#[test]
fn a_coinbase() {
    let mut model = Model::default();
    let mined = Some(MinedIn { blocks: vec![BlockRef { block_id: 9, height: 1, subtree: 2 }], on_longest_chain: true });
    let source = TransactionSource::Raw(ByteBuf::from(hex(GENESIS)));
    let item = UtxoCreate { source, mined, locked: None, conflicting: false, fee: None, is_new: false };
    let created = model.create(&item, &call(5)).unwrap();
    let txid = reversed("4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b");
    assert_eq!(created, UtxoCreated { txid: buf(&txid), utxos: 1, extra_pages: 0, external: false });
    assert_eq!(model.create(&item, &call(5)), Err(UtxoRefusal::TxExists));
    let record = model.record(&txid, 0, 10).unwrap();
    assert!(record.is_coinbase && !record.locked && record.unmined_since.is_none());
    assert_eq!((record.inputs, record.spending_height, record.fee, record.size_in_bytes), (0, Some(101), None, 204));
    assert_eq!(record.blocks, [BlockRef { block_id: 9, height: 1, subtree: 2 }]);
    assert_eq!(record.inpoints, Some(ByteBuf::from([0; 4])));

    let hash = record.utxos[0].clone().unwrap();
    let spends = vec![Spend { txid: buf(&txid), vout: 0, utxo_hash: hash.into_vec().into(), vin: 1 }];
    let item = TransactionSpends { spender: buf(&[7; 32]), spends };
    let immature = UtxoRefusal::CoinbaseImmature { spendable_at: 101 };
    assert_eq!(model.spend(&item, &call(100)), Err(vec![RefusedSpend { spend: 0, error: immature.into() }]));
    assert_eq!(model.spend(&item, &call(101)), Ok(1));
    assert_eq!(model.spend(&item, &call(102)), Ok(0));
    let record = model.record(&txid, 0, 10).unwrap();
    assert_eq!(record.utxos[0].as_ref().unwrap()[32..], [&[7; 32][..], &[1, 0, 0, 0]].concat());
    assert_eq!((record.spent_utxos, record.delete_at_height), (1, Some(102 + 288)));
}

#[test]
fn a_spender_that_was_deleted_is_not_taken_again() {
    let mut model = Model::default();
    model.create(&outside(1, &[], 2), &call(1)).unwrap();
    model.create(&outside(2, &[(1, 0), (1, 1)], 1), &call(1)).unwrap();
    assert_eq!(model.spend(&holding(2, &[(1, 0)]), &call(1)), Ok(1));
    assert_eq!(model.spend(&holding(3, &[(9, 0), (1, 1)]), &call(1)).unwrap_err().len(), 1);
    assert_eq!(model.delete(&[2; 32], &call(1)), Ok(1));
    assert_eq!(model.delete(&[2; 32], &call(1)), Err(UtxoRefusal::TxNotFound));
    assert_eq!(model.record(&[1; 32], 0, 2).unwrap().deleted_children, [buf(&[2; 32])]);
    assert_eq!(model.record(&[1; 32], 1, 1).unwrap().deleted_children, Vec::<Txid>::new());
    let refused = RefusedSpend { spend: 0, error: UtxoSpendError::InvalidSpend };
    assert_eq!(model.spend(&holding(2, &[(1, 0)]), &call(1)), Err(vec![refused]));
    let by = Spender { txid: buf(&[2; 32]), vin: 0 };
    let refused = RefusedSpend { spend: 0, error: UtxoSpendError::Spent { by } };
    assert_eq!(model.spend(&holding(4, &[(1, 0)]), &call(1)), Err(vec![refused]));
}

/// 2 and 3 want an output of 1; 2 has it, and 4 spends from 2. Then 3 wins.
#[test]
fn a_winner_takes_what_the_loser_held() {
    let mut model = Model::default();
    model.create(&outside(1, &[], 2), &call(1)).unwrap();
    model.create(&outside(2, &[(1, 0)], 1), &call(2)).unwrap();
    model.spend(&holding(2, &[(1, 0)]), &call(2)).unwrap();
    model.create(&outside(4, &[(2, 0)], 1), &call(3)).unwrap();
    model.spend(&holding(4, &[(2, 0)]), &call(3)).unwrap();
    let three = UtxoCreate { conflicting: true, ..outside(3, &[(1, 0)], 1) };
    model.create(&three, &call(4)).unwrap();
    assert_eq!(model.record(&[1; 32], 0, 9).unwrap().conflicting_children, [buf(&[3; 32])]);
    assert_eq!(model.record(&[3; 32], 0, 9).unwrap().delete_at_height, Some(292));

    let refused = model.process_conflicting(&[buf(&[4; 32])], &call(5)).unwrap_err();
    assert_eq!(refused, ConflictError { txid: buf(&[4; 32]), error: UtxoError::NotConflicting });
    let resolved = model.process_conflicting(&[buf(&[3; 32])], &call(5)).unwrap();
    assert_eq!(resolved.losers, [buf(&[2; 32]), buf(&[4; 32])]);
    let held: Vec<_> = resolved.unspent.iter().map(|held| (held.outpoint.txid[0], held.spender.txid[0])).collect();
    assert_eq!((held, resolved.spent), (vec![(2, 4), (1, 2)], 1));
    let one = model.record(&[1; 32], 0, 9).unwrap();
    assert_eq!((one.conflicting_children, one.locked), (vec![buf(&[2; 32])], false));
    assert_eq!(one.utxos[0].as_ref().unwrap()[32..64], [3; 32]);
    assert!(!model.record(&[3; 32], 0, 9).unwrap().conflicting);
    assert_eq!(model.indexes().deletable, BTreeMap::from([(293, BTreeSet::from([[2; 32], [4; 32]]))]));
}
