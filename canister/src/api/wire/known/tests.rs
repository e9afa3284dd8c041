//! The fast path reads the same values as the generic decoder, and no message that the generic decoder refuses.

use super::super::quota::DECODING_QUOTA;
use super::super::quotas;
use super::*;
use candid::CandidType;
use candid::utils::decode_args_with_config_debug;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Returns the value that the generic decoder reads and its cost, or `None` if it refuses.
fn generic<T: CandidType + DeserializeOwned>(message: &[u8]) -> Option<(T, usize)> {
    let ((value,), cost) = decode_args_with_config_debug::<(T,)>(message, &quotas(DECODING_QUOTA)).ok()?;
    Some((value, cost.decoding_quota?))
}

fn fast<T: Argument>(message: &[u8]) -> Option<T> {
    read(message, DECODING_QUOTA)
}

/// Returns the cost of the fast path.
fn cost<T: Argument>(message: &[u8]) -> Option<usize> {
    let mut reader = Reader { rest: message.strip_prefix(T::TABLE)?, left: usize::MAX };
    T::read(&mut reader)?;
    Some(usize::MAX - reader.left + 4 * T::TABLE.len())
}

/// Compares both decoders on a client's message, and on the message with changed, missing or additional bytes.
fn agrees<T>(value: &T, harm: &[(prop::sample::Index, u8)], cut: prop::sample::Index, more: u8) -> TestCaseResult
where
    T: Argument + CandidType + DeserializeOwned + Debug + PartialEq,
{
    let message = candid::encode_one(value).unwrap();
    let read = fast::<T>(&message);
    prop_assert_eq!(read.as_ref(), Some(value));
    let (_, generic_cost) = generic::<T>(&message).unwrap();
    prop_assert!(cost::<T>(&message).unwrap() >= generic_cost, "{:?} is less than {generic_cost}", cost::<T>(&message));
    let start = T::TABLE.len();
    let mut harmed = message.clone();
    for (at, byte) in harm {
        harmed[start + at.index(message.len() - start)] = *byte;
    }
    let longer = [&message[..], &[more]].concat();
    for hostile in [&harmed[..], &message[..cut.index(message.len())], &longer] {
        if let Some(found) = fast::<T>(hostile) {
            let (read, generic_cost) = generic::<T>(hostile).expect("the generic decoder reads it");
            prop_assert_eq!(&read, &found);
            prop_assert!(cost::<T>(hostile).unwrap() >= generic_cost);
        }
    }
    Ok(())
}

fn bytes() -> impl Strategy<Value = ByteBuf> {
    prop_oneof![8 => vec(any::<u8>(), 32..33), 2 => vec(any::<u8>(), 0..300)].prop_map(ByteBuf::from)
}

fn block_hash() -> impl Strategy<Value = BlockHash> {
    bytes().prop_map(|bytes| BlockHash::from(bytes.into_vec()))
}

fn txid() -> impl Strategy<Value = Txid> {
    bytes().prop_map(|bytes| Txid::from(bytes.into_vec()))
}

fn utxo_hash() -> impl Strategy<Value = UtxoHash> {
    bytes().prop_map(|bytes| UtxoHash::from(bytes.into_vec()))
}

fn sha256() -> impl Strategy<Value = BySegment<ByteBuf>> {
    [bytes(), bytes(), bytes()].prop_map(BySegment::from)
}

prop_compose! {
    fn block()(
        number: u64, timestamp_secs: u64, hash in block_hash(), parent_hash in block_hash(), body in bytes(), receipts in bytes(), index in bytes(),
        sha256 in sha256(),
    ) -> AppendBlock {
        AppendBlock { number, hash, parent_hash, timestamp_secs, body, receipts, index, sha256 }
    }
}

prop_compose! {
    fn outpoint()(txid in txid(), vout: u32) -> Outpoint {
        Outpoint { txid, vout }
    }
}

prop_compose! {
    fn block_ref()(block_id: u32, height: u32, subtree: u32) -> BlockRef {
        BlockRef { block_id, height, subtree }
    }
}

fn partial() -> impl Strategy<Value = PartialTransaction> {
    let output = (any::<u32>(), any::<u64>(), bytes());
    let output = output.prop_map(|(index, satoshis, script)| PartialOutput { index, satoshis, script });
    (txid(), any::<bool>(), any::<u32>(), vec(output, 0..4)).prop_map(|(txid, coinbase, total_outputs, outputs)| {
        PartialTransaction { txid, coinbase, total_outputs, outputs }
    })
}

fn external() -> impl Strategy<Value = ExternalTransaction> {
    let types = prop::sample::select(vec![FileType::Tx, FileType::Outputs]);
    let store = (bytes(), types, prop::sample::select(StoreType::ALL.to_vec()));
    let store = store.prop_map(|(blob_key, file_type, store_type)| ExternalStore { blob_key, file_type, store_type });
    let hashes = vec(prop::option::of(utxo_hash()), 0..4);
    let words = (any::<u32>(), any::<u32>(), any::<u64>(), any::<bool>());
    (txid(), store, words, vec(outpoint(), 0..4), hashes).prop_map(
        |(txid, store, (version, lock_time, size, coinbase), inputs, utxo_hashes)| ExternalTransaction {
            txid,
            store,
            coinbase,
            version,
            lock_time,
            size,
            inputs,
            utxo_hashes,
        },
    )
}

fn source() -> impl Strategy<Value = TransactionSource> {
    prop_oneof![
        bytes().prop_map(TransactionSource::Raw),
        txid().prop_map(TransactionSource::Uploaded),
        partial().prop_map(TransactionSource::Outputs),
        external().prop_map(TransactionSource::External),
        (any::<u64>(), any::<u32>())
            .prop_map(|(number, position)| TransactionSource::Kept(KeptTransaction { number, position })),
    ]
}

prop_compose! {
    fn creation()(
        source in source(), mined in prop::option::of((vec(block_ref(), 0..3), any::<bool>())), locked: Option<bool>,
        conflicting: bool, fee: Option<u64>, is_new: bool,
    ) -> UtxoCreate {
        let mined = mined.map(|(blocks, on_longest_chain)| MinedIn { blocks, on_longest_chain });
        UtxoCreate { source, mined, locked, conflicting, fee, is_new }
    }
}

prop_compose! {
    fn spend()(txid in txid(), vout: u32, utxo_hash in utxo_hash(), vin: u32) -> Spend {
        Spend { txid, vout, utxo_hash, vin }
    }
}

prop_compose! {
    fn mined()(
        height: u32, block_id: u32, block_height: u32, on_longest_chain: bool, unset: bool,
        items in vec((txid(), any::<u32>()), 0..4),
    ) -> UtxoSetMinedBatch {
        let items = items.into_iter().map(|(txid, subtree)| MinedTransaction { txid, subtree }).collect();
        UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset, items }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn straight_and_generic_agree(
        block in block(), blocks in vec(block(), 0..4), create in vec(creation(), 0..3), spends in vec((txid(), vec(spend(), 0..3)), 0..3), mined in mined(),
        height: u32, harm in vec(any::<(prop::sample::Index, u8)>(), 1..3), cut: prop::sample::Index, more: u8,
    ) {
        agrees(&block, &harm, cut, more)?;
        agrees(&blocks, &harm, cut, more)?;
        agrees(&UtxoCreateBatch { height, items: create }, &harm, cut, more)?;
        let items = spends.into_iter().map(|(spender, spends)| TransactionSpends { spender, spends }).collect();
        agrees(&UtxoSpendBatch { height, items }, &harm, cut, more)?;
        agrees(&mined, &harm, cut, more)?;
    }
}

/// A length in a longer form, or another type table, is left to the generic decoder.
#[test]
fn unusual_encodings_are_left_to_the_generic_decoder() {
    let batch = UtxoSetMinedBatch {
        height: 1,
        block_id: 2,
        block_height: 3,
        on_longest_chain: true,
        unset: false,
        items: vec![MinedTransaction { txid: [7; 32].into(), subtree: 9 }],
    };
    let message = candid::encode_one(&batch).unwrap();
    assert_eq!(fast(&message), Some(batch.clone()));
    // The number of items, and the length of the txid.
    let start = UtxoSetMinedBatch::TABLE.len() + 4 + 4 + 1 + 1;
    for at in [start, start + 5] {
        let mut long = message.clone();
        long[at] |= 0x80;
        long.insert(at + 1, 0);
        assert_eq!(fast::<UtxoSetMinedBatch>(&long), None);
    }
    // An invalid flag.
    let mut flag = message.clone();
    flag[start - 1] = 2;
    assert_eq!((fast::<UtxoSetMinedBatch>(&flag), generic::<UtxoSetMinedBatch>(&flag)), (None, None));
    // An additional argument.
    let twice = candid::encode_args((&batch, 7u8)).unwrap();
    assert_eq!(fast::<UtxoSetMinedBatch>(&twice), None);
    assert_eq!(generic(&twice).map(|(found, _)| found), Some(batch));
}

/// Two megabytes of empty items exceed the quota, and so does the largest possible length.
#[test]
fn messages_above_the_quota_are_not_read() {
    let empty = TransactionSpends { spender: Txid::default(), spends: vec![] };
    let batch = UtxoSpendBatch { height: 1, items: vec![empty; DECODING_QUOTA / 20] };
    let message = candid::encode_one(&batch).unwrap();
    assert!(cost::<UtxoSpendBatch>(&message).unwrap() > DECODING_QUOTA);
    assert_eq!(fast::<UtxoSpendBatch>(&message), None);
    assert!(generic::<UtxoSpendBatch>(&message).is_none());
    let endless = [UtxoSpendBatch::TABLE, &[1, 0, 0, 0], &[0xFF, 0xFF, 0xFF, 0x7F]].concat();
    assert_eq!(fast::<UtxoSpendBatch>(&endless), None);
}

/// The largest batches of a feeder do not fall back to the generic decoder.
#[test]
fn the_largest_messages_take_the_fast_path() {
    let spend = Spend { txid: [3; 32].into(), vout: 5, utxo_hash: UtxoHash::from([4; 32]), vin: 7 };
    let spends = TransactionSpends { spender: [5; 32].into(), spends: vec![spend; 2] };
    let batch = UtxoSpendBatch { height: 9, items: vec![spends; 7_000] };
    assert_eq!(fast(&candid::encode_one(&batch).unwrap()), Some(batch));
    let block = AppendBlock { body: ByteBuf::from(vec![1; 2_000_000]), ..AppendBlock::default() };
    assert_eq!(fast(&candid::encode_one(&block).unwrap()), Some(block.clone()));
    // Small blocks, and blocks that fill a message.
    let small = AppendBlock { body: ByteBuf::from(vec![1; 100]), ..ic_coppice_chain::testing::block(7, &[[1; 32]], 0) };
    for blocks in [vec![small; 4_600], vec![AppendBlock { body: ByteBuf::from(vec![1; 190_000]), ..block }; 10]] {
        let message = candid::encode_one(&blocks).unwrap();
        assert!(message.len() > 1_500_000, "{}", message.len());
        assert_eq!(fast(&message), Some(blocks));
    }
}
