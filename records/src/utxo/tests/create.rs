//! Creation of records, in all forms of a transaction.

use crate::owners;
use crate::testing::*;
use crate::utxo::Order;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

#[test]
fn record_has_every_field_and_returns_its_bytes() {
    let mut w = World::new();
    let parent = Tx::orphan(1, 3);
    let tx = Tx::of(2, &[(parent.txid, 0), ([5; 32], 1), (parent.txid, 2)], 2);
    w.make(&parent);
    let created = w.create(&UtxoCreate { fee: Some(77), locked: None, ..raw(&tx) }).unwrap();
    assert_eq!(created, UtxoCreated { txid: tx.id(), utxos: 2, extra_pages: 0, external: false });
    w.reopen();
    let mut inpoints = 2u32.to_le_bytes().to_vec();
    inpoints.extend([parent.txid, [5; 32]].concat());
    [2u32, 0, 2, 1, 1].iter().for_each(|word| inpoints.extend(word.to_le_bytes()));
    let record = UtxoRecord {
        txid: tx.id(),
        utxos: vec![Some(ByteBuf::from(tx.hash(0))), Some(ByteBuf::from(tx.hash(1)))],
        first: 0,
        total_outputs: 2,
        total_utxos: 2,
        utxo_batch_size: 20_000,
        record_utxos: 2,
        spent_utxos: 0,
        total_extra_recs: 0,
        spent_extra_recs: 0,
        extra_pages: vec![],
        extra_pages_cursor: None,
        spendable_in: vec![],
        frozen: false,
        locked: true,
        conflicting: false,
        conflicting_children: vec![],
        unmined_since: Some(1_000),
        created_at_ns: NOW + 1,
        preserve_until: None,
        postponed_until: None,
        delete_at_height: None,
        spending_height: None,
        blocks: vec![],
        transaction: TransactionPlace::Record,
        reassignments: vec![],
        deleted_children: vec![],
        fee: Some(77),
        size_in_bytes: tx.raw.len() as u64,
        inputs: 3,
        inpoints: Some(ByteBuf::from(inpoints)),
        is_coinbase: false,
        version: 2,
        lock_time: 7,
        extended: false,
        being_deleted: false,
    };
    assert_eq!(w.get(&tx), record);
    assert_eq!(w.bytes(&tx), (tx.raw.clone(), FileType::Tx));
    assert_eq!(w.create(&raw(&tx)), Err(UtxoRefusal::TxExists));
    assert_eq!(w.store.index(Order::UnminedSince), [(1_000, vec![parent.txid, tx.txid])]);
}

#[test]
fn extended_transaction_has_a_fee_and_the_standard_txid() {
    let mut w = World::new();
    let tx = Tx::of(1, &[([1; 32], 0), ([2; 32], 70_000)], 2);
    let previous = [(3_000, vec![0x51; 300]), (500, vec![])];
    let extended = serialise(&tx.inputs, Some(&previous), &tx.outputs);
    let item =
        UtxoCreate { source: TransactionSource::Raw(ByteBuf::from(extended.as_slice())), fee: Some(1), ..raw(&tx) };
    assert_eq!(w.create(&item).unwrap().txid, tx.id());
    let record = w.get(&tx);
    assert_eq!((record.fee, record.extended), (Some(3_500 - 2_001), true));
    assert_eq!(record.size_in_bytes, extended.len() as u64);
    assert_eq!(w.bytes(&tx).0, extended);

    w.settings.require_extended = true;
    assert_eq!(w.create(&raw(&Tx::orphan(2, 1))), Err(UtxoRefusal::NotExtended { input: 0 }));
    w.make(&Tx::coinbase(3, 1));
}

#[test]
fn transaction_is_parsed_to_its_last_byte_and_refused_if_truncated() {
    let mut w = World::new();
    let tx = Tx::new(
        &[([1; 32], 3)],
        &[
            (0, vec![0x6A]),
            (0, vec![0, 0x6A]),
            (0, vec![]),
            (1, vec![0x6A]),
            (9, vec![0x51; 253]),
            (9, vec![0; 70_000]),
        ],
    );
    let extended = serialise(&tx.inputs, Some(&[(5, vec![1; 252])]), &tx.outputs[..5]);
    for whole in [&tx.raw[..], &extended] {
        for cut in (0..whole.len().min(1_000)).chain([whole.len() - 1]) {
            let item = UtxoCreate { source: TransactionSource::Raw(ByteBuf::from(&whole[..cut])), ..raw(&tx) };
            assert!(matches!(w.create(&item), Err(UtxoRefusal::BadTransaction { .. })), "{cut}");
        }
        let long = [whole, &[0]].concat();
        let item = UtxoCreate { source: TransactionSource::Raw(ByteBuf::from(long)), ..raw(&tx) };
        let at = whole.len() as u64;
        assert!(matches!(w.create(&item), Err(UtxoRefusal::BadTransaction { offset: found, .. }) if found == at));
    }
    w.make(&tx);
    let record = w.get(&tx);
    assert_eq!((record.total_outputs, record.total_utxos), (6, 4));
    assert_eq!(record.utxos.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, true, true, true]);
    for vout in [2, 5] {
        assert_eq!(record.utxos[vout as usize].as_ref().unwrap()[..], tx.hash(vout));
    }
    assert_eq!(w.create(&raw(&Tx::new(&[([1; 32], 0)], &[]))), Err(UtxoRefusal::NoOutputs));
}

#[test]
fn a_coinbase_is_spendable_after_its_maturity() {
    let mut w = World::new();
    let coinbase = Tx::coinbase(1, 1);
    w.create(&UtxoCreate { mined: mined(&[block(4, 900)]), ..raw(&coinbase) }).unwrap();
    let record = w.get(&coinbase);
    assert_eq!((record.spending_height, record.is_coinbase, record.inputs), (Some(1_000), true, 0));
    assert_eq!((record.unmined_since, record.blocks[0].block_id, record.blocks.len()), (None, 4, 1));
    let by = Tx::of(2, &[(coinbase.txid, 0)], 1);
    w.height = 999;
    let immature = UtxoRefusal::CoinbaseImmature { spendable_at: 1_000 };
    assert_eq!(w.spend_one(&coinbase, 0, &by), Err(immature));
    assert_eq!(w.state(&coinbase, 0), SpendStatus::Immature { spendable_at: 1_000 });
    w.height = 1_000;
    assert_eq!(w.spend_one(&coinbase, 0, &by), Ok(1));
}

#[test]
fn a_coinbase_of_two_blocks_matures_by_the_higher_one() {
    let mut w = World::new();
    for (number, heights) in [(1, [900, 902]), (2, [902, 900])] {
        let coinbase = Tx::coinbase(number, 1);
        let blocks = [block(4, heights[0]), block(5, heights[1])];
        w.create(&UtxoCreate { mined: mined(&blocks), ..raw(&coinbase) }).unwrap();
        assert_eq!(w.get(&coinbase).spending_height, Some(1_002));
    }
}

#[test]
fn large_transactions_are_in_the_blob_store_and_refusals_leave_nothing() {
    let mut w = World::new();
    w.settings.max_tx_size_in_store = 1_000;
    w.settings.max_external_bytes = 128 << 10;
    let tx = Tx::new(&[([1; 32], 0)], &[(5, vec![0x51; 1_500])]);
    assert!(w.create(&raw(&tx)).unwrap().external);
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), 64 << 10);
    assert_eq!(w.bytes(&tx), (tx.raw.clone(), FileType::Tx));

    let partial = PartialTransaction {
        txid: [9; 32].into(),
        coinbase: true,
        total_outputs: 4,
        outputs: vec![PartialOutput { index: 2, satoshis: 50, script: ByteBuf::from([0x51]) }],
    };
    let item =
        UtxoCreate { source: TransactionSource::Outputs(partial.clone()), mined: mined(&[block(1, 800)]), ..raw(&tx) };
    w.create(&item).unwrap();
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), 128 << 10);
    let known = Tx { txid: [9; 32], ..tx.clone() };
    let mut wrapper = [9; 32].to_vec();
    wrapper.extend((1_601u32).to_le_bytes());
    wrapper.extend([1, 0, 0, 0, 2, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x51]);
    assert_eq!(w.bytes(&known), (wrapper, FileType::Outputs));
    let record = w.get(&known);
    assert_eq!((record.total_outputs, record.total_utxos, record.is_coinbase), (4, 1, true));

    let full = Tx::new(&[([1; 32], 1)], &[(5, vec![0x51; 1_500])]);
    let before = w.store.storage();
    assert_eq!(w.create(&raw(&full)), Err(UtxoRefusal::ExternalFull { limit: 128 << 10 }));
    let twice = UtxoCreate { mined: mined(&[block(1, 5), block(1, 6)]), ..raw(&Tx::orphan(3, 1)) };
    assert!(matches!(w.create(&twice), Err(UtxoRefusal::BadArgument(BadArgument { field, .. })) if field == "mined"));
    assert_eq!(w.store.storage(), before);

    for txid in [tx.txid, [9; 32]] {
        let call = w.call();
        w.store.delete_by_id(&mut w.blobs, &txid, &call).unwrap();
    }
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), 0);
    assert_eq!(w.store.storage().records, 0);
}

#[test]
fn external_transaction_is_trusted_and_named() {
    let mut w = World::new();
    let tx = Tx::orphan(1, 2);
    let store = ExternalStore {
        blob_key: ByteBuf::from(*b"bucket/key"),
        file_type: FileType::Tx,
        store_type: StoreType::BlockPersister,
    };
    let external = ExternalTransaction {
        txid: tx.id(),
        store: store.clone(),
        coinbase: false,
        version: 3,
        lock_time: 4,
        size: 5_000_000,
        inputs: vec![Outpoint { txid: [8; 32].into(), vout: 6 }],
        utxo_hashes: vec![Some(UtxoHash::from(tx.hash(0))), None],
    };
    let item = UtxoCreate { source: TransactionSource::External(external.clone()), fee: Some(9), ..raw(&tx) };
    assert!(w.create(&item).unwrap().external);
    let record = w.get(&tx);
    assert_eq!(record.transaction, TransactionPlace::External(store.clone()));
    assert_eq!((record.size_in_bytes, record.version, record.lock_time, record.fee), (5_000_000, 3, 4, Some(9)));
    assert_eq!(record.utxos, [Some(ByteBuf::from(tx.hash(0))), None]);
    let part = UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: 0, length: 1 };
    assert_eq!(w.store.transaction(&w.blobs, &part, no_block), Err(UtxoRefusal::External(store)));
    let bad = ExternalTransaction { utxo_hashes: vec![Some(UtxoHash::from(vec![1; 31]))], ..external };
    let item = UtxoCreate { source: TransactionSource::External(bad), ..raw(&tx) };
    assert!(
        matches!(w.create(&item), Err(UtxoRefusal::BadArgument(BadArgument { field, .. })) if field == "utxo_hash")
    );
}

#[test]
fn counts_lengths_and_values_at_the_boundaries_of_a_var_int() {
    let mut w = World::new();
    for outputs in [252, 253, 65_535, 65_536] {
        let tx = Tx::orphan(u64::from(outputs), outputs);
        w.make(&tx);
        let arg = UtxoGet { txid: tx.id(), first: outputs - 1, limit: 1, extra_pages_cursor: None };
        let record = w.store.get(&arg).unwrap();
        assert_eq!((record.total_outputs, record.total_utxos), (outputs, outputs));
        assert_eq!(record.utxos, [Some(ByteBuf::from(tx.hash(outputs - 1)))]);
        assert_eq!(w.bytes(&tx).0, tx.raw);
    }
    for (script, satoshis) in [(252, 252), (253, 253), (65_535, 65_535), (65_536, 65_536), (0, 1 << 32)] {
        let tx = Tx::new(&[([3; 32], script)], &[(satoshis, vec![0x52; script as usize])]);
        w.make(&tx);
        assert_eq!(w.get(&tx).utxos, [Some(ByteBuf::from(tx.hash(0)))]);
    }
    // A count in a longer form than necessary is refused.
    let tx = Tx::orphan(1, 1);
    let raw_bytes = [&tx.raw[..4], &[0xFD, 1, 0], &tx.raw[5..]].concat();
    let item = UtxoCreate { source: TransactionSource::Raw(ByteBuf::from(raw_bytes)), ..raw(&tx) };
    assert!(matches!(w.create(&item), Err(UtxoRefusal::BadTransaction { offset: 4, .. })));
}

#[test]
fn many_blocks_are_kept_in_order_and_too_many_are_refused() {
    let mut w = World::new();
    let blocks: Vec<BlockRef> = (0..1_003).map(|i| block(i, 900 + i)).collect();
    let tx = Tx::orphan(1, 1);
    let refused = w.create(&UtxoCreate { mined: mined(&blocks), ..raw(&tx) });
    assert_eq!(refused, Err(UtxoRefusal::TooLarge { what: "blocks".into(), limit: 1_002 }));
    w.create(&UtxoCreate { mined: mined(&blocks[..1_002]), ..raw(&tx) }).unwrap();
    let call = w.call();
    let item = MinedTransaction { txid: tx.id(), subtree: 0 };
    let one_more = UtxoSetMinedBatch {
        height: 1_000,
        block_id: 5_000,
        block_height: 7,
        on_longest_chain: true,
        unset: false,
        items: vec![],
    };
    let before = w.get(&tx);
    let refused = w.store.set_mined(&one_more, &item, &call, (&mut w.blobs, no_block));
    assert_eq!(refused, Err(UtxoRefusal::TooLarge { what: "blocks".into(), limit: 1_000 }));
    assert_eq!(w.get(&tx), before);
    for gone in 0..1_000 {
        w.set_mined(&tx, block(gone, 0), true, true);
    }
    let record = w.get(&tx);
    let block = |block_id, height, subtree| BlockRef { block_id, height, subtree };
    assert_eq!(record.blocks, [block(1_000, 1_900, 1_007), block(1_001, 1_901, 1_008)]);
    let used = w.store.storage().used_bytes;
    assert!(used <= 1_024, "the slot of the extras is freed: {used}");
}
