//! Pages that a message touches, at sizes at which a message without page budgets would exceed the platform's limits: 524,288 pages of 4
//! KiB that a message may access, and 75 MiB that it may dirty without being slowed down.

use super::service::Service;
use crate::testing::{Tx, block, id, mined, raw};
use crate::utxo::{Ahead, Call};
use ic_coppice_interface::*;
use ic_coppice_storage::twin::{self, Touched};
use serde_bytes::ByteBuf;

const MOST_ACCESSED: usize = 524_288;
const MOST_DIRTIED: usize = (75 << 20) / 4_096;

/// Spenders of a large record: more than a message may look up.
const SPENDERS: u32 = 350_000;

/// Returns a parent with `count` outputs. Each output has its own spender, all stable at 1,288; the spenders are scattered in memory.
fn scattered(s: &mut Service, count: u32, outputs: u32) -> Tx {
    let parent = Tx::orphan(1, count);
    s.make_mined(&parent);
    let call: Call<'static> = s.w.call();
    for number in 0..u64::from(count) {
        let vout = (number * 100_003 % u64::from(count)) as u32;
        let child = Tx::of(10 + number, &[(parent.txid, vout)], outputs);
        let item = UtxoCreate { mined: mined(&[block(900, 900)]), ..raw(&child) };
        s.w.store.create(&mut s.w.blobs, &item, &mut Ahead::default(), &call).unwrap();
        let spends = TransactionSpends { spender: child.id(), spends: vec![parent.spend(vout, 0)] };
        assert_eq!(s.w.store.spend(&spends, &call), Ok(1));
    }
    s.set(UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(true), ..Default::default() });
    parent
}

/// Ticks until no job is open; returns the pages that each tick touched.
fn ticks(s: &mut Service) -> Vec<Touched> {
    let mut all = Vec::new();
    while s.status().pending.is_some() || s.status().running.is_some() {
        assert!(all.len() < 1_000, "no end: {:?}", s.status());
        all.push(twin::touching(|| s.tick(10)).1);
    }
    all
}

/// Completes rows of the deletion queue, and removes their records.
fn complete(s: &mut Service, arg: &CompleteBlobDeletions) -> CompletedBlobDeletions {
    s.with(|pruner, records| pruner.with_records(records, |queue, now, rows| queue.complete(arg, now, rows))).unwrap()
}

#[test]
fn check_of_many_scattered_spenders_ends_after_several_messages() {
    let mut s = Service::new();
    let parent = scattered(&mut s, SPENDERS, 1);
    s.pruner.notify_block(1_287, true, false).unwrap();
    s.settle();
    assert!(s.there(&parent), "its height has not come");
    s.pruner.notify_block(1_288, true, false).unwrap();
    let all = ticks(&mut s);
    let job = s.status().last_job.unwrap();
    assert_eq!(
        (job.state, job.counts.processed, job.counts.records_deleted),
        (UtxoJobState::Completed, 1, 1),
        "{job:?}"
    );
    assert!(!s.there(&parent));
    assert_eq!((all.len(), job.ticks), (3, 3), "150,000 a message");
    for touched in &all {
        assert!(touched.accessed.len() < MOST_ACCESSED, "{} pages accessed", touched.accessed.len());
        assert!(touched.dirtied.len() < MOST_DIRTIED, "{} pages dirtied", touched.dirtied.len());
    }
}

/// Several small records share a page. If each record has its own pages, a message's 150,000 lookups still fit.
#[test]
fn lookup_of_a_spender_on_separate_pages_accesses_three_pages() {
    let mut s = Service::new();
    let count = 5_000;
    scattered(&mut s, count, 60);
    s.pruner.notify_block(1_288, true, false).unwrap();
    let all = ticks(&mut s);
    assert_eq!((all.len(), s.status().last_job.unwrap().counts.records_deleted), (1, 1));
    let accessed = all[0].accessed.len();
    assert!(accessed > count as usize, "spenders share pages: {accessed}");
    assert!(150_000 * accessed / (count as usize) < MOST_ACCESSED, "{accessed} pages for {count} spenders");
}

const ROWS: u32 = 10_000;
const INPUTS: u32 = 10;
const PARENTS: u32 = 20_000;

/// Makes due records with external blobs; each record spends from scattered parents on separate pages.
fn external(s: &mut Service, rows: u32, of_each: u32, among: u32) -> Vec<[u8; 32]> {
    let call: Call<'static> = s.w.call();
    let parents: Vec<Tx> = (0..among).map(|salt| Tx::orphan(u64::from(salt), 60)).collect();
    for parent in &parents {
        let item = UtxoCreate { mined: mined(&[block(900, 900)]), ..raw(parent) };
        s.w.store.create(&mut s.w.blobs, &item, &mut Ahead::default(), &call).unwrap();
    }
    let store = |key: u32| ExternalStore {
        blob_key: ByteBuf::from(key.to_le_bytes()),
        file_type: FileType::Tx,
        store_type: StoreType::Tx,
    };
    for number in 0..rows {
        let input = |vin: u32| ((number * 7_919 + vin * 1_009) % among, vin % 60);
        let inputs: Vec<(u32, u32)> = (0..of_each).map(input).collect();
        let txid = id(u64::from(number) | 1 << 40);
        let source = TransactionSource::External(ExternalTransaction {
            txid: txid.into(),
            store: store(number),
            coinbase: false,
            version: 1,
            lock_time: 0,
            size: 9,
            inputs: inputs.iter().map(|(parent, vout)| parents[*parent as usize].outpoint(*vout)).collect(),
            utxo_hashes: vec![None],
        });
        let item = UtxoCreate {
            source,
            mined: mined(&[block(900, 900)]),
            locked: Some(false),
            conflicting: false,
            fee: None,
            is_new: false,
        };
        s.w.store.create(&mut s.w.blobs, &item, &mut Ahead::default(), &call).unwrap();
        let spends =
            inputs.iter().zip(0..).map(|((parent, vout), vin)| parents[*parent as usize].spend(*vout, vin)).collect();
        let spends = TransactionSpends { spender: txid.into(), spends };
        assert_eq!(s.w.store.spend(&spends, &call), Ok(of_each));
    }
    (0..rows).map(|number| id(u64::from(number) | 1 << 40)).collect()
}

#[test]
fn many_rows_with_records_are_completed_over_messages_each_row_atomically() {
    let mut s = Service::new();
    let txids = external(&mut s, ROWS, INPUTS, PARENTS);
    let job = s.prune(1_288);
    assert_eq!((job.counts.records_deleting, s.status().blobs_pending), (u64::from(ROWS), u64::from(ROWS)));
    let mut rows: Vec<u64> = (1..=u64::from(ROWS)).collect();
    let get = |s: &Service, txid: &[u8; 32]| {
        s.store
            .get(&UtxoGet { txid: (*txid).into(), first: 0, limit: 0, extra_pages_cursor: None })
            .map(|record| record.being_deleted)
    };
    let mut calls = 0;
    while !rows.is_empty() {
        calls += 1;
        assert!(calls < 100, "{} rows are left", rows.len());
        let arg = CompleteBlobDeletions {
            completed_ids: rows.clone(),
            failed_ids: vec![],
            max_retries: 3,
            ..Default::default()
        };
        let (done, touched) = twin::touching(|| complete(&mut s, &arg));
        assert!(touched.dirtied.len() < MOST_DIRTIED, "{} pages dirtied", touched.dirtied.len());
        assert_eq!((done.removed + done.remaining, done.dead), (rows.len() as u64, 0));
        assert!(calls > 1 || done.remaining > 0, "a single call did everything, so the test shows nothing");
        rows.drain(..done.removed as usize);
        // Each processed row is removed, its record is deleted and its parents are marked; the other rows are unchanged.
        let left = txids.iter().filter(|txid| get(&s, txid) == Ok(true)).count();
        let gone = txids.iter().filter(|txid| get(&s, txid) == Err(UtxoRefusal::TxNotFound)).count();
        assert_eq!((left, left + gone, s.status().blobs_pending), (rows.len(), txids.len(), rows.len() as u64));
        assert_eq!(s.status().totals.records_deleted, u64::from(ROWS) - rows.len() as u64);
        assert_eq!(s.status().totals.parents_updated, u64::from(INPUTS) * (u64::from(ROWS) - rows.len() as u64));
    }
    assert_eq!(s.store.storage().records, u64::from(PARENTS));
}

/// Phase 2 deletes a record with more inputs than one message handles. Its blob is counted once, when the worker reports it deleted.
#[test]
fn blob_of_a_large_record_is_counted_when_reported_deleted() {
    let mut s = Service::new();
    let txid = external(&mut s, 1, 1_001, 1_001)[0];
    s.prune(1_288);
    let arg =
        CompleteBlobDeletions { completed_ids: vec![1], failed_ids: vec![], max_retries: 3, ..Default::default() };
    let done = complete(&mut s, &arg);
    let totals = |s: &Service| (s.status().totals.external_files_deleted, s.status().totals.records_deleted);
    assert_eq!((done.removed, totals(&s)), (1, (1, 0)));
    s.prune(1_289);
    assert_eq!(totals(&s), (1, 1));
    assert!(s.store.get(&UtxoGet { txid: txid.into(), first: 0, limit: 0, extra_pages_cursor: None }).is_err());
}

/// Parents with 10,000 double spends each: a double spend with all of them as parents, each several times, is deleted over several steps,
/// and each tick stays within the page limits of a message.
#[test]
fn double_spend_leaves_long_lists_over_several_messages() {
    const EACH: u64 = 10_000;
    let mut s = Service::new();
    let parents: Vec<Tx> = (0..200).map(|salt| Tx::orphan(salt, 60)).collect();
    parents.iter().for_each(|tx| s.make_mined(tx));
    let inputs = |first: u32| {
        (first..first + 5).flat_map(|vout| parents.iter().map(move |tx| (tx.txid, vout))).collect::<Vec<_>>()
    };
    let rivals: Vec<Tx> = (0..3).map(|salt| Tx::of(1_000 + salt, &inputs(5 * salt as u32), 1)).collect();
    let enter = |s: &mut Service, rival: &Tx, others: std::ops::Range<u64>| {
        s.create(&UtxoCreate { conflicting: true, locked: Some(false), ..raw(rival) }).unwrap();
        for parent in &parents {
            others.clone().for_each(|number| s.w.store.list_child(&parent.txid, &id(number)));
        }
    };
    enter(&mut s, &rivals[0], 0..EACH / 2);
    enter(&mut s, &rivals[1], EACH / 2..EACH);
    enter(&mut s, &rivals[2], 0..0);
    s.pruner.notify_block(1_288, true, false).unwrap();
    let all = ticks(&mut s);
    assert!(rivals.iter().all(|tx| !s.there(tx)));
    assert_eq!(s.status().totals.records_deleted, 3);
    for touched in &all {
        assert!(touched.accessed.len() < MOST_ACCESSED, "{} pages accessed", touched.accessed.len());
        assert!(touched.dirtied.len() < MOST_DIRTIED, "{} pages dirtied", touched.dirtied.len());
    }
    for parent in &parents {
        assert!(s.get(parent).conflicting_children.iter().all(|txid| rivals.iter().all(|rival| rival.id() != *txid)));
    }
    // A step reads 10,000 pages of lists: the last double spend's inputs take nine steps, and each rival was marked before.
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let last = Tx::of(2_000, &inputs(20), 1);
    s.create(&UtxoCreate { conflicting: true, locked: Some(false), ..raw(&last) }).unwrap();
    s.pruner.notify_block(1_290, true, false).unwrap();
    let before = s.status().totals.records_deleted;
    let all = ticks(&mut s);
    assert_eq!((s.status().totals.records_deleted - before, s.there(&last)), (1, false));
    assert!(all.len() > 8, "{}", all.len());
    for touched in &all {
        assert!(touched.accessed.len() < 30_000, "{} pages accessed", touched.accessed.len());
    }
}

/// A record with more pages of outputs, or of double spends, than one message frees: ticks of one step each delete it although the run is
/// dropped between them, and the rest of the record is consistent at all times.
#[test]
fn record_with_very_many_pages_is_deleted_over_interrupted_messages() {
    for outputs in [true, false] {
        let mut s = Service::new();
        let used = s.store.storage().used_bytes;
        s.w.settings.utxo_batch_size = 1;
        let tx = Tx::orphan(1, if outputs { 3_500 } else { 1 });
        s.create(&UtxoCreate { conflicting: true, mined: mined(&[block(900, 900)]), ..raw(&tx) }).unwrap();
        if !outputs {
            (0..300_000).for_each(|number| s.w.store.list_child(&tx.txid, &id(number)));
        }
        s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
        s.pruner.notify_block(1_288, true, false).unwrap();
        let mut left = Vec::new();
        for tick in 0.. {
            assert!(tick < 20, "no end: {:?}", s.status());
            s.tick(10);
            if !s.there(&tx) {
                break;
            }
            let record = s.get(&tx);
            assert!(record.being_deleted);
            left.push((s.store.storage().extra_pages, record.conflicting_children.len()));
            // The run is dropped and starts anew.
            s.assembly(UtxoBlockAssemblyState::NotRunning);
            s.tick(1);
            s.reopen();
            s.assembly(UtxoBlockAssemblyState::Running);
        }
        let expected = if outputs {
            vec![(3_499, 0), (2_499, 0), (1_499, 0), (499, 0)]
        } else {
            vec![(0, 10_000), (0, 10_000), (0, 10_000)]
        };
        assert_eq!(left, expected, "{outputs}");
        let totals = s.status().totals;
        assert_eq!((totals.records_deleted, totals.pages_deleted), (1, if outputs { 3_499 } else { 0 }));
        assert_eq!((s.store.storage().extra_pages, s.store.storage().used_bytes), (0, used));
    }
}
