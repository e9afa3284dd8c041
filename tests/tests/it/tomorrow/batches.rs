//! Large batches of UTXO records, in scattered order.

use super::*;
use candid::CandidType;
use coppice_tests::blocks::id;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Who;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

/// The platform's instruction limit of an update.
const UPDATE: u64 = 40_000_000_000;
/// Outputs of a record that does not fit a page.
const WIDE: u32 = 60;

/// A transaction whose first and last outputs are known. Its record has its own pages.
pub fn wide(salt: u64) -> Tx {
    Tx { raw: Vec::new(), txid: id(salt), inputs: Vec::new(), outputs: vec![(1_000, vec![0x51]); WIDE as usize] }
}

/// The request for its record, mined if a block is given.
pub fn wide_record(tx: &Tx, mined: Option<u32>) -> UtxoCreate {
    let output = |index: u32| PartialOutput { index, satoshis: 1_000, script: ByteBuf::from([0x51]) };
    let outputs = vec![output(0), output(WIDE - 1)];
    let partial = PartialTransaction { txid: tx.id(), coinbase: false, total_outputs: WIDE, outputs };
    let blocks = |height| vec![BlockRef { block_id: height, height, subtree: 0 }];
    let mined = mined.map(|height| MinedIn { blocks: blocks(height), on_longest_chain: true });
    UtxoCreate {
        source: TransactionSource::Outputs(partial),
        mined,
        locked: Some(false),
        conflicting: false,
        fee: None,
        is_new: false,
    }
}

/// The items in an order in which no two neighbours are adjacent.
pub fn scattered<T: Clone>(all: &[T]) -> Vec<T> {
    (0..all.len()).map(|i| all[i * 7_919 % all.len()].clone()).collect()
}

/// Sends a batch until nothing remains of it. Returns the number of messages. Each item must succeed.
pub fn drive<I, A, T>(coppice: &Coppice, who: Who, method: &str, items: &[I], arg: impl Fn(Vec<I>) -> A) -> u64
where
    I: Clone,
    A: CandidType,
    T: CandidType + DeserializeOwned + IsOk,
{
    let (mut rest, mut messages) = (items, 0);
    while !rest.is_empty() {
        let batch: Batch<T> = coppice.call(who, method, (arg(rest[..rest.len().min(4_000)].to_vec()),)).unwrap();
        assert!(!batch.results.is_empty(), "{method} makes no progress");
        assert!(batch.results.iter().all(IsOk::is_ok), "{method}");
        rest = &rest[batch.results.len()..];
        messages += 1;
    }
    messages
}

/// The answer to an item of a batch.
pub trait IsOk {
    fn is_ok(&self) -> bool;
}

impl<T, E> IsOk for Result<T, E> {
    fn is_ok(&self) -> bool {
        self.is_ok()
    }
}

type Answer<T> = Result<T, UtxoError>;
type Spent = Result<u32, Vec<RefusedSpend>>;

pub fn create(coppice: &Coppice, items: &[UtxoCreate]) -> u64 {
    let arg = |items| UtxoCreateBatch { height: 10, items };
    drive::<_, _, Result<UtxoCreated, UtxoCreateError>>(coppice, Who::Producer, "utxo_create", items, arg)
}

pub fn spend(coppice: &Coppice, items: &[TransactionSpends]) -> u64 {
    let arg = |items| UtxoSpendBatch { height: 10, items };
    drive::<_, _, Spent>(coppice, Who::Producer, "utxo_spend", items, arg)
}

/// Asserts that a message stays within its budget plus one item, and dirties no more than the platform allows.
fn assert_within(host: &Host, what: &str) {
    let (instructions, dirtied) = most(host, what);
    assert!(instructions < UPDATE / 10 && dirtied <= DIRTIED, "{what}: {instructions}, {dirtied}");
}

#[test]
fn batches_over_scattered_records_stay_small() {
    const RECORDS: u64 = 20_000;
    let (coppice, host) = tomorrow();
    let alert = Grant { principal: Who::Alert.principal(), role: Role::Alert };
    coppice.operator().grant_role(&alert).answer().unwrap();
    let txs: Vec<Tx> = (0..RECORDS).map(wide).collect();
    host.take_executions();
    let records: Vec<UtxoCreate> = scattered(&txs).iter().map(|tx| wide_record(tx, None)).collect();
    assert!(create(&coppice, &records) >= 2);
    assert_within(&host, "creating");
    // The items that are not processed also take heap.
    let nothing = UtxoCreate { source: TransactionSource::Raw(ByteBuf::new()), ..records[0].clone() };
    let others = (RECORDS..RECORDS + 3_000).map(|salt| wide_record(&wide(salt), None));
    let items: Vec<UtxoCreate> = others.chain(std::iter::repeat_n(nothing, 5_000)).collect();
    let batch = coppice.producer().utxo_create(&UtxoCreateBatch { height: 10, items }).answer();
    assert!(batch.results.len() > 1_000 && batch.results.iter().take(3_000).all(IsOk::is_ok));
    assert_within(&host, "creating, with a message that is full");

    // Each output is spent by its own transaction, and then very many by one transaction.
    let txs: Vec<Tx> = scattered(&txs);
    let spender = |tx: &Tx| Txid::from(id(u64::from(tx.txid[0]) << 40 | u64::from(tx.txid[9]) << 20 | 7));
    let first = |tx: &Tx| TransactionSpends { spender: spender(tx), spends: vec![tx.spend(0, 0)] };
    spend(&coppice, &txs.iter().map(first).collect::<Vec<_>>());
    assert_within(&host, "spending one output each");
    let (one, rest) = txs.split_at(8_000);
    let last = |(vin, tx): (u32, &Tx)| tx.spend(WIDE - 1, vin);
    let by = |name: u8, txs: &[Tx]| {
        let spends = (0..).zip(txs).map(last).collect();
        spend(&coppice, &[TransactionSpends { spender: [name; 32].into(), spends }])
    };
    by(5, one);
    assert_within(&host, "spending 8,000 outputs at once");
    // The spends of one transaction are not divided, whatever they change.
    by(6, rest);
    let (instructions, _) = most(&host, "spending 12,000 outputs at once");
    assert!(instructions < UPDATE / 10, "{instructions}");

    let ids: Vec<Txid> = txs.iter().map(Tx::id).collect();
    let mined: Vec<_> = ids.iter().map(|txid| MinedTransaction { txid: txid.clone(), subtree: 0 }).collect();
    for unset in [false, true, false] {
        let set = |items| UtxoSetMinedBatch {
            height: 11,
            block_id: 3,
            block_height: 11,
            on_longest_chain: !unset,
            unset,
            items,
        };
        drive::<_, _, Answer<Vec<u32>>>(&coppice, Who::Producer, "utxo_set_mined", &mined, set);
        assert_within(&host, "setting mined");
    }
    for on_longest_chain in [false, true] {
        let set = |txids| UtxoSetOnLongestChainBatch { height: 12, txids, on_longest_chain };
        drive::<_, _, Answer<()>>(&coppice, Who::Producer, "utxo_set_on_longest_chain", &ids, set);
        assert_within(&host, "moving to another chain and back");
    }
    for locked in [true, false] {
        let set = |txids| UtxoSetLockedBatch { height: 12, locked, txids };
        drive::<_, _, Answer<()>>(&coppice, Who::Producer, "utxo_set_locked", &ids, set);
        assert_within(&host, "locking");
    }
    for until in [99, 100] {
        let preserve = |txids| UtxoPreserveBatch { until_height: until, txids };
        drive::<_, _, Answer<bool>>(&coppice, Who::Producer, "utxo_preserve", &ids, preserve);
        assert_within(&host, "preserving");
    }
    let unspend = |tx: &Tx| Unspend {
        outpoint: tx.outpoint(0),
        utxo_hash: UtxoHash::from(tx.hash(0)),
        spender: Spender { txid: spender(tx), vin: 0 },
    };
    let unspends: Vec<Unspend> = txs.iter().map(unspend).collect();
    let arg = |items| UtxoUnspendBatch { height: 12, items };
    drive::<_, _, Answer<bool>>(&coppice, Who::Producer, "utxo_unspend", &unspends, arg);
    assert_within(&host, "unspending");
    let target = |vout: Option<u32>| move |tx: &Tx| FreezeTarget { txid: tx.id(), vout, utxo_hash: None };
    let freeze = |method: &str, vout| {
        let items: Vec<FreezeTarget> = rest.iter().map(target(vout)).collect();
        let arg = |items| UtxoFreezeBatch { height: 12, items };
        drive::<_, _, Answer<u32>>(&coppice, Who::Alert, method, &items, arg);
        assert_within(&host, method);
    };
    freeze("utxo_freeze", None);
    freeze("utxo_unfreeze", None);
    freeze("utxo_freeze", Some(0));
    let reassign = |tx: &Tx| Reassign {
        outpoint: tx.outpoint(0),
        utxo_hash: UtxoHash::from(tx.hash(0)),
        new_utxo_hash: UtxoHash::from([9; 32]),
    };
    let items: Vec<Reassign> = rest.iter().map(reassign).collect();
    let arg = |items| UtxoReassignBatch { height: 12, items };
    drive::<_, _, Answer<u32>>(&coppice, Who::Alert, "utxo_reassign", &items, arg);
    assert_within(&host, "reassigning");
    let arg = |txids| UtxoSetConflictingBatch { height: 12, txids };
    drive::<_, _, Answer<Conflict>>(&coppice, Who::Producer, "utxo_set_conflicting", &ids, arg);
    assert_within(&host, "marking as double spends");
}

/// The largest family of double spends that one call handles: a transaction, and 2,400 that spend from it and from scattered records.
#[test]
fn resolving_a_large_conflict_stays_small() {
    const CHILDREN: u32 = 2_400;
    let (coppice, host) = tomorrow();
    let others: Vec<Tx> = scattered(&(0..u64::from(CHILDREN)).map(wide).collect::<Vec<_>>());
    create(&coppice, &others.iter().map(|tx| wide_record(tx, Some(9))).collect::<Vec<_>>());
    let grandparent = Tx::orphan(1 << 40, 1);
    let root = Tx::of(1 << 41, &[(grandparent.txid, 0)], CHILDREN);
    let child = |(vout, other): (u32, &Tx)| Tx::of(u64::from(vout), &[(root.txid, vout), (other.txid, 0)], 1);
    let children: Vec<Tx> = (0..).zip(&others).map(child).collect();
    let rival = Tx::of(1 << 42, &[(grandparent.txid, 0)], 1);
    let records: Vec<UtxoCreate> = [&grandparent, &root].into_iter().chain(&children).map(Tx::record).collect();
    create(&coppice, &records);
    let mut spends = vec![TransactionSpends { spender: root.id(), spends: vec![grandparent.spend(0, 0)] }];
    let of = |((vout, other), child): ((u32, &Tx), &Tx)| TransactionSpends {
        spender: child.id(),
        spends: vec![root.spend(vout, 0), other.spend(0, 1)],
    };
    spends.extend((0..).zip(&others).zip(&children).map(of));
    spend(&coppice, &spends);
    create(&coppice, &[UtxoCreate { conflicting: true, ..rival.record() }]);
    host.take_executions();
    let arg = UtxoProcessConflicting { height: 12, winners: vec![rival.id()] };
    let (mut losers, mut spent) = (0, 0);
    loop {
        let resolved: Result<ConflictResolution, ConflictError> =
            coppice.producer().utxo_process_conflicting(&arg).answer();
        let resolved = resolved.unwrap();
        losers += resolved.losers.len();
        spent += resolved.spent;
        if !resolved.has_more {
            break;
        }
    }
    assert_eq!((losers, spent), (1 + CHILDREN as usize, 1));
    assert_within(&host, "resolving a conflict");
}
