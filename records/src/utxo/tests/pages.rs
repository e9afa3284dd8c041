//! Transactions with more outputs than fit on a page, and with more bytes than fit in a message.

use crate::testing::*;
use crate::{owners, places};
use candid::Principal;
use ic_coppice_interface::*;
use ic_coppice_storage::testing::hash_key;
use ic_coppice_storage::twin;
use serde_bytes::ByteBuf;

/// The caller of uploads and messages.
const BY: Principal = Principal::anonymous();

fn spends(tx: &Tx, of: std::ops::Range<u32>) -> Vec<Spend> {
    of.map(|vout| tx.spend(vout, vout)).collect()
}

fn counters(w: &World, tx: &Tx) -> (u32, Vec<(u32, u32)>, u32) {
    let record = w.store.get(&UtxoGet { txid: tx.id(), first: 0, limit: 0, extra_pages_cursor: None }).unwrap();
    let pages = record.extra_pages.iter().map(|page| (page.record_utxos, page.spent_utxos)).collect();
    (record.spent_utxos, pages, record.spent_extra_recs)
}

#[test]
fn a_transaction_of_45_000_outputs_is_spent_to_the_last_on_every_page() {
    let mut w = World::new();
    let tx = Tx::orphan(1, 45_000);
    let created = w.create(&UtxoCreate { mined: mined(&[block(1, 900)]), ..raw(&tx) }).unwrap();
    assert_eq!(created, UtxoCreated { txid: tx.id(), utxos: 45_000, extra_pages: 2, external: true });
    assert_eq!(w.store.storage().extra_pages, 2);
    assert_eq!(w.bytes(&tx), (tx.raw.clone(), FileType::Tx));
    let all = |w: &World| {
        w.store.get(&UtxoGet { txid: tx.id(), first: 44_990, limit: 20, extra_pages_cursor: None }).unwrap()
    };
    assert_eq!((all(&w).utxos.len(), all(&w).first), (10, 44_990));
    assert_eq!(all(&w).utxos[9].as_ref().unwrap()[..], tx.hash(44_999));

    let by = Tx::orphan(2, 1);
    for round in 0..2 {
        assert_eq!(w.spend(&by, &spends(&tx, 0..20_000)), Ok(20_000), "{round}");
        assert_eq!(counters(&w, &tx), (20_000, vec![(20_000, 0), (5_000, 0)], 0));
        assert_eq!(w.spend(&by, &spends(&tx, 20_000..44_999)), Ok(24_999));
        assert_eq!(counters(&w, &tx), (20_000, vec![(20_000, 20_000), (5_000, 4_999)], 1));
        assert_eq!(all(&w).delete_at_height, None, "one output is left");
        assert_eq!(w.spend(&by, &spends(&tx, 44_990..45_000)), Ok(1), "nine of ten were spent before");
        assert_eq!(counters(&w, &tx), (20_000, vec![(20_000, 20_000), (5_000, 5_000)], 2));
        assert_eq!(all(&w).delete_at_height, Some(1_288));
        w.reopen();
        for vout in 0..45_000 {
            assert_eq!(w.unspend(&tx, vout, &by, vout), Ok(true));
        }
        assert_eq!(counters(&w, &tx), (0, vec![(20_000, 0), (5_000, 0)], 0));
        assert_eq!(all(&w).delete_at_height, None);
    }
    assert_eq!(w.freeze(&tx, None, true), Ok(45_000));
    assert_eq!(w.freeze(&tx, Some(30_000), false), Ok(1));
    assert!(w.get(&tx).frozen);
    assert_eq!(w.freeze(&tx, None, false), Ok(44_999));
    assert!(!w.get(&tx).frozen);
    let call = w.call();
    w.store.delete_by_id(&mut w.blobs, &tx.txid, &call).unwrap();
    assert_eq!((w.store.storage().records, w.store.storage().extra_pages), (0, 0));
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), 0);
}

#[test]
fn pages_without_a_utxo_are_spent_from_the_beginning() {
    let mut w = World::new();
    w.settings.utxo_batch_size = 2;
    let data = (0, vec![0x6A]);
    let tx = Tx::new(&[([1; 32], 0)], &[data.clone(), (5, vec![0x51]), data.clone(), data.clone(), (6, vec![0x51])]);
    w.create(&UtxoCreate { mined: mined(&[block(1, 900)]), ..raw(&tx) }).unwrap();
    assert_eq!(counters(&w, &tx), (0, vec![(0, 0), (1, 0)], 1));
    let by = Tx::orphan(2, 1);
    assert_eq!(w.spend(&by, &[tx.spend(0, 0)]).unwrap_err()[0].error, UtxoSpendError::UtxoNotFound);
    assert_eq!(w.spend(&by, &[tx.spend(4, 0), tx.spend(1, 1)]), Ok(2));
    assert_eq!((counters(&w, &tx).2, w.get(&tx).delete_at_height), (2, Some(1_288)));

    let nothing = Tx::new(&[([1; 32], 1)], &[data]);
    w.make(&nothing);
    assert_eq!(w.get(&nothing).delete_at_height, None);
    w.set_mined(&nothing, block(1, 900), true, false);
    assert_eq!(w.get(&nothing).delete_at_height, Some(1_288), "no output to spend");
}

#[test]
fn a_transaction_of_60_000_inputs_keeps_them_all() {
    let mut w = World::new();
    let inputs: Vec<_> = (0..60_000).map(|i| ([(i % 7) as u8 + 1; 32], i)).collect();
    let tx = Tx::of(1, &inputs, 2);
    w.make(&tx);
    let record = w.get(&tx);
    assert_eq!((record.inputs, record.inpoints), (60_000, None));
    let mut inpoints = Vec::new();
    loop {
        let offset = inpoints.len() as u64;
        let part = w
            .store
            .transaction(
                &w.blobs,
                &UtxoGetPart { txid: tx.id(), part: UtxoPart::Inpoints, offset, length: 100_000 },
                |_, _, _| None,
            )
            .unwrap();
        inpoints.extend_from_slice(&part.bytes);
        if inpoints.len() as u64 == part.total {
            break;
        }
    }
    assert_eq!(inpoints, crate::utxo::encoding::inpoints(&inputs));
    assert_eq!(w.bytes(&tx).0, tx.raw);
    let call = w.call();
    w.store.delete_by_id(&mut w.blobs, &tx.txid, &call).unwrap();
    assert_eq!(w.store.storage().used_bytes, 128, "the root is left");
}

#[test]
fn transaction_larger_than_a_message_is_uploaded_in_chunks() {
    let mut w = World::new();
    let tx = Tx::new(&[([1; 32], 0)], &[(5, vec![0x51; 5_000_000]), (6, vec![0x52])]);
    let length = tx.raw.len() as u64;
    let begin = BeginTransaction { txid: tx.id(), length, chunk_size: 1 << 20 };
    let bad = BeginTransaction { chunk_size: 100_000, ..begin.clone() };
    let settings = w.settings.clone();
    let at = |w: &mut World, begin: &BeginTransaction| w.store.begin_upload(&mut w.blobs, begin, &settings, BY, 10);
    let empty = BeginTransaction { length: 0, ..begin.clone() };
    for (begin, wrong) in [(bad, "chunk_size"), (empty, "length")] {
        let refused = at(&mut w, &begin);
        let Err(TransactionUploadError::Refused(UtxoCreateError::BadArgument(BadArgument { field, .. }))) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(field, wrong);
    }
    assert_eq!(at(&mut w, &begin), Ok(UploadProgress { chunks: 5, missing: 5 }));
    // Another upload, or the same with other sizes, is refused while one is open.
    for other in [
        BeginTransaction { txid: [3; 32].into(), ..begin.clone() },
        BeginTransaction { length: length + 1, ..begin.clone() },
        BeginTransaction { chunk_size: 1 << 19, ..begin.clone() },
    ] {
        assert_eq!(at(&mut w, &other), Err(TransactionUploadError::OtherUpload { txid: tx.id() }));
    }
    let item = UtxoCreate { source: TransactionSource::Uploaded(tx.id()), ..raw(&tx) };
    assert_eq!(w.create(&item), Err(UtxoRefusal::NoUpload));
    let chunk = |i: u32| PutTransactionChunk {
        txid: tx.id(),
        chunk: i,
        bytes: ByteBuf::from(tx.raw.chunks(1 << 20).nth(i as usize).unwrap()),
    };
    for i in [4, 0, 2, 0, 1] {
        w.store.uploads.put(&mut w.blobs, &chunk(i), BY, 11).unwrap();
        w.reopen();
    }
    let wrong = PutTransactionChunk { bytes: ByteBuf::from(vec![0; 1 << 20]), ..chunk(2) };
    assert_eq!(w.store.uploads.put(&mut w.blobs, &wrong, BY, 11), Err(TransactionUploadError::ChunkMismatch));
    let short = PutTransactionChunk { bytes: ByteBuf::from([0]), ..chunk(3) };
    let expected = TransactionUploadError::WrongLength { expected: 1 << 20 };
    assert_eq!(w.store.uploads.put(&mut w.blobs, &short, BY, 11), Err(expected));
    assert_eq!(w.create(&item), Err(UtxoRefusal::NoUpload));
    w.store.uploads.put(&mut w.blobs, &chunk(3), BY, 12).unwrap();
    let kept = w.blobs.arena().kept_bytes(owners::EXTERNAL);
    assert!(w.create(&item).unwrap().external);
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), kept);
    assert_eq!(w.bytes(&tx).0, tx.raw);
    assert_eq!(w.store.uploads.list(60), []);

    // A transaction that fits in its record frees its blobs; an upload of another transaction stays until it is aborted; an idle upload
    // expires.
    let [small, other] = [9, 10].map(|salt| Tx::orphan(salt, 1));
    for (named, what) in [(&small, "whole"), (&other, "another's"), (&other, "left")] {
        let begin = BeginTransaction { txid: named.id(), length: small.raw.len() as u64, chunk_size: 64 << 10 };
        at(&mut w, &begin).unwrap();
        let bytes = ByteBuf::from(small.raw.as_slice());
        let put = PutTransactionChunk { txid: named.id(), chunk: 0, bytes };
        w.store.uploads.put(&mut w.blobs, &put, BY, 20).unwrap();
        let item = UtxoCreate { source: TransactionSource::Uploaded(named.id()), ..raw(&small) };
        match what {
            "whole" => assert!(!w.create(&item).unwrap().external),
            "another's" => {
                assert!(matches!(w.create(&item), Err(UtxoRefusal::BadTransaction { .. })));
                assert_eq!(w.store.uploads.abort(&mut w.blobs, &named.id(), BY), Ok(true));
                assert_eq!(w.store.uploads.abort(&mut w.blobs, &named.id(), BY), Ok(false));
            }
            _ => {
                assert_eq!(w.store.uploads.expire(&mut w.blobs, 79, 60), 0);
                assert_eq!(w.store.uploads.expire(&mut w.blobs, 80, 60), 1);
            }
        }
        assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), kept);
    }
    // A producer that lost the reply repeats the call and gets `TxExists`.
    assert_eq!(w.create(&item), Err(UtxoRefusal::TxExists));
    assert_eq!(at(&mut w, &begin), Err(TransactionUploadError::Refused(UtxoCreateError::TxExists)));
}

#[test]
fn outputs_unspent_in_one_batch_are_counted_on_their_pages_and_records() {
    let mut w = World::new();
    w.settings.utxo_batch_size = 3;
    let [a, b] = [1, 2].map(|salt| Tx::orphan(salt, 8));
    let by = Tx::orphan(3, 1);
    for tx in [&a, &b] {
        w.create(&UtxoCreate { mined: mined(&[block(1, 900)]), ..raw(tx) }).unwrap();
        assert_eq!(w.spend(&by, &spends(tx, 0..8)), Ok(8));
        assert_eq!(w.get(tx).delete_at_height, Some(1_288));
    }
    let item = |tx: &Tx, vout: u32, vin: u32| Unspend {
        outpoint: tx.outpoint(vout),
        utxo_hash: UtxoHash::from(tx.hash(vout)),
        spender: Spender { txid: by.id(), vin },
    };
    let wrong = Unspend { utxo_hash: UtxoHash::from([0; 32]), ..item(&a, 1, 1) };
    let items = [
        (item(&a, 0, 0), Ok(true)),
        (item(&a, 4, 4), Ok(true)),
        (item(&a, 5, 5), Ok(true)),
        (item(&a, 5, 5), Ok(false)),
        (wrong, Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(a.hash(1)) })),
        (item(&b, 7, 7), Ok(true)),
        (item(&b, 6, 0), Ok(false)),
        (item(&a, 1, 1), Ok(true)),
    ];
    let call = w.call();
    let (items, expected): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    let mut results = Vec::new();
    w.store.unspend_all(&items, &call, |held| results.push(held));
    assert_eq!(results, expected);
    assert_eq!(counters(&w, &a), (1, vec![(3, 1), (2, 2)], 1));
    assert_eq!(counters(&w, &b), (3, vec![(3, 3), (2, 1)], 1));
    assert_eq!((w.get(&a).delete_at_height, w.get(&b).delete_at_height), (None, None));
}

/// Each producer has its own upload, at most 64 at a time; one more is refused without loss.
#[test]
fn each_producer_has_its_own_upload() {
    let mut w = World::new();
    let settings = w.settings.clone();
    let of = |i: u8| Principal::from_slice(&[i, 7]);
    let tx = |i: u8| Tx::orphan(u64::from(i), 1);
    let begin = |i: u8| BeginTransaction { txid: tx(i).id(), length: tx(i).raw.len() as u64, chunk_size: 64 << 10 };
    let chunk = |i: u8| PutTransactionChunk { txid: tx(i).id(), chunk: 0, bytes: ByteBuf::from(tx(i).raw) };
    let open =
        |w: &mut World, by: u8, i: u8| w.store.begin_upload(&mut w.blobs, &begin(i), &settings, of(by), u64::from(by));
    for i in 0..64 {
        assert_eq!(open(&mut w, i, i), Ok(UploadProgress { chunks: 1, missing: 1 }));
        let others = Err(TransactionUploadError::OtherUpload { txid: tx(i).id() });
        assert_eq!(open(&mut w, i, 99), others);
    }
    let kept = w.blobs.arena().kept_bytes(owners::EXTERNAL);
    assert_eq!(open(&mut w, 64, 64), Err(TransactionUploadError::TooMany { limit: 64 }));
    assert_eq!(w.blobs.arena().kept_bytes(owners::EXTERNAL), kept);
    w.reopen();
    for i in 0..64 {
        assert_eq!(w.store.uploads.put(&mut w.blobs, &chunk(i), of(i), u64::from(i)).unwrap().missing, 0);
        let none = w.store.uploads.put(&mut w.blobs, &chunk(i), of(i + 64), 0);
        assert_eq!(none, Err(TransactionUploadError::NoUpload));
    }
    w.reopen();
    // A record is created from the caller's upload, and the upload's cell becomes free.
    let item = |i: u8| UtxoCreate { source: TransactionSource::Uploaded(tx(i).id()), ..raw(&tx(i)) };
    twin::with(|world| world.caller = of(9));
    assert_eq!(w.create(&item(8)), Err(UtxoRefusal::NoUpload));
    w.create(&item(9)).unwrap();
    assert_eq!(w.store.uploads.list(60).len(), 63);
    assert_eq!(open(&mut w, 64, 64), Ok(UploadProgress { chunks: 1, missing: 1 }));
    // Only the idle uploads expire.
    assert_eq!((w.store.uploads.touched(), w.store.uploads.expire(&mut w.blobs, 99, 60)), (Some(0), 39));
    w.reopen();
    let left: Vec<u64> = w.store.uploads.list(60).iter().map(|open| open.expires_at_secs - 60).collect();
    assert_eq!(left.len(), 25);
    assert!(left.iter().all(|&touched| touched >= 40), "{left:?}");
    assert_eq!(
        w.store.uploads.abort(&mut w.blobs, &tx(50).id(), of(51)),
        Err(TransactionUploadError::OtherUpload { txid: tx(51).id() })
    );
    assert_eq!(w.store.uploads.abort(&mut w.blobs, &tx(50).id(), of(50)), Ok(true));
    assert_eq!(w.store.uploads.expire(&mut w.blobs, 1_000, 60), 24);
    assert_eq!((w.blobs.arena().kept_bytes(owners::EXTERNAL), w.store.uploads.touched()), (0, None));
    w.reopen();
    assert_eq!(w.store.uploads.list(60), []);
    // The second of three cells is free again. Another version of the bitmap is refused.
    for by in [1, 2, 3] {
        open(&mut w, by, by).unwrap();
    }
    w.store.uploads.abort(&mut w.blobs, &tx(2).id(), of(2)).unwrap();
    let cells = ic_coppice_storage::testing::cells();
    w.reopen();
    assert_eq!(w.store.uploads.list(60).len(), 2);
    let [version] = cells.read(places::TRANSACTION_PLACES + 4);
    cells.write(places::TRANSACTION_PLACES + 4, &[version + 1]);
    assert!(
        crate::utxo::UtxoStore::open(
            &ic_coppice_storage::testing::arena(),
            ic_coppice_storage::testing::cells(),
            hash_key()
        )
        .is_err()
    );
}

/// Pages begin with the first page, whichever output is asked for, and continue at the cursor.
#[test]
fn counters_of_pages_are_returned_by_the_thousand_with_a_cursor() {
    let mut w = World::new();
    w.settings.utxo_batch_size = 2;
    let tx = Tx::orphan(1, 5_001);
    assert_eq!(w.create(&raw(&tx)).unwrap().extra_pages, 2_500);
    w.spend(&Tx::orphan(2, 1), &spends(&tx, 2_004..2_006)).unwrap();
    let pages = |first, extra_pages_cursor| {
        let record = w.store.get(&UtxoGet { txid: tx.id(), first, limit: 1, extra_pages_cursor }).unwrap();
        let spent = record.extra_pages.iter().position(|page| page.spent_utxos > 0);
        (record.extra_pages.len(), spent, record.extra_pages_cursor)
    };
    for first in [0, 4_000, u32::MAX] {
        assert_eq!(pages(first, None), (1_000, None, Some(1_001)), "{first}");
        assert_eq!(pages(first, Some(1_001)), (1_000, Some(1), Some(2_001)), "outputs 2,004 and 2,005 are page 1,002");
        assert_eq!(pages(first, Some(2_001)), (500, None, None));
    }
    assert_eq!((pages(0, Some(0)), pages(0, Some(1))), (pages(0, None), pages(0, None)));
    assert_eq!(
        (pages(0, Some(2_500)).0, pages(0, Some(2_501)), pages(0, Some(u32::MAX))),
        (1, (0, None, None), (0, None, None))
    );
    assert_eq!(pages(0, Some(1_500)), (1_000, None, Some(2_500)));
}
