//! The UTXO store, and what it is compared with: a `StableBTreeMap` of encoded records with three maps for its indexes.
//!
//! Both store the same fields and the same bytes, and neither parses or hashes a transaction but in `create_raw`, which the
//! other side has not: those 76 instructions a byte are the same on either. The other side reads, changes and writes a record
//! once for all outputs of it that a transaction spends.

use super::{key, said};
use crate::api::*;
use crate::memory::BenchMemory;
use crate::runtime::instructions;
use crate::state::{State, mutate};
use crate::utxo::{Body, Call, Draft, LastUnspent, Parsed, UtxoStore};
use crate::{access, memory};
use candid::CandidType;
use ic_cdk::update;
use ic_stable_structures::{StableBTreeMap, Storable, storable::Bound};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use std::cell::RefCell;
use std::hint::black_box;

/// What is measured.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct UtxoBenchArg {
    /// The operation.
    pub op: String,
    /// The B-tree and not the store.
    pub baseline: bool,
    /// Outputs of each transaction.
    pub outputs: u32,
    /// Transactions.
    pub rounds: u64,
}

/// Records made in one message.
const STEP: u64 = 4_000;
const HEIGHT: u32 = 1_000;
/// Of whom everything is spent.
const SPENDER: u64 = 7 << 50;
const RETENTION: u32 = 288;

/// A record of the other side: the fields of `utxo-data-model.md`.
#[derive(Serialize, Deserialize)]
struct Plain {
    utxos: Vec<Option<ByteBuf>>,
    record_utxos: u32,
    spent_utxos: u32,
    frozen: bool,
    locked: bool,
    conflicting: bool,
    conflicting_children: Vec<ByteBuf>,
    unmined_since: Option<u32>,
    created_at: u64,
    preserve_until: Option<u32>,
    delete_at_height: Option<u32>,
    spending_height: u32,
    blocks: Vec<(u32, u32, u32)>,
    inputs: Vec<(ByteBuf, u32)>,
    transaction: ByteBuf,
    fee: u64,
    size: u64,
    coinbase: bool,
}

impl Storable for Plain {
    const BOUND: Bound = Bound::Unbounded;

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::new();
        ciborium::into_writer(self, &mut bytes).expect("memory");
        Cow::Owned(bytes)
    }

    fn into_bytes(self) -> Vec<u8> {
        self.to_bytes().into_owned()
    }

    fn from_bytes(bytes: Cow<'_, [u8]>) -> Self {
        ciborium::from_reader(bytes.as_ref()).expect("a record")
    }
}

/// A height and a txid.
type IndexKey = [u8; 36];

struct Baseline {
    records: StableBTreeMap<[u8; 32], Plain, BenchMemory>,
    unmined: StableBTreeMap<IndexKey, (), BenchMemory>,
    delete_at: StableBTreeMap<IndexKey, (), BenchMemory>,
    _preserve: StableBTreeMap<IndexKey, (), BenchMemory>,
}

fn index_key(height: u32, txid: &[u8; 32]) -> IndexKey {
    let mut key = [0; 36];
    key[..4].copy_from_slice(&height.to_be_bytes());
    key[4..].copy_from_slice(txid);
    key
}

impl Baseline {
    fn open() -> Self {
        let map = |at| memory::bench_memory(at);
        Self {
            records: StableBTreeMap::init(map(1)),
            unmined: StableBTreeMap::init(map(2)),
            delete_at: StableBTreeMap::init(map(3)),
            _preserve: StableBTreeMap::init(map(4)),
        }
    }

    fn create(&mut self, tx: &Transaction) -> Result<(), String> {
        let parsed = &tx.parsed;
        let record = Plain {
            utxos: parsed.outputs.iter().map(|hash| hash.map(ByteBuf::from)).collect(),
            record_utxos: parsed.outputs.len() as u32,
            spent_utxos: 0,
            frozen: false,
            locked: false,
            conflicting: false,
            conflicting_children: Vec::new(),
            unmined_since: Some(HEIGHT),
            created_at: 0,
            preserve_until: None,
            delete_at_height: None,
            spending_height: 0,
            blocks: Vec::new(),
            inputs: parsed.inputs.iter().map(|(txid, vout)| (ByteBuf::from(*txid), *vout)).collect(),
            transaction: ByteBuf::from(tx.raw.as_slice()),
            fee: 0,
            size: tx.raw.len() as u64,
            coinbase: false,
        };
        if self.records.contains_key(&parsed.txid) {
            return Err("it is there".into());
        }
        self.records.insert(parsed.txid, record);
        self.unmined.insert(index_key(HEIGHT, &parsed.txid), ());
        Ok(())
    }

    fn change(&mut self, txid: &[u8; 32], change: impl FnOnce(&mut Plain)) -> Result<(), String> {
        let mut record = self.records.get(txid).ok_or("it is not there")?;
        let before = (record.unmined_since, record.delete_at_height);
        change(&mut record);
        let mined = !record.blocks.is_empty() && record.unmined_since.is_none();
        let done = mined && record.spent_utxos == record.record_utxos;
        record.delete_at_height = done.then_some(HEIGHT + RETENTION);
        let after = (record.unmined_since, record.delete_at_height);
        self.records.insert(*txid, record);
        for (index, before, after) in [(&mut self.unmined, before.0, after.0), (&mut self.delete_at, before.1, after.1)]
        {
            if before != after {
                before.map(|height| index.remove(&index_key(height, txid)));
                after.map(|height| index.insert(index_key(height, txid), ()));
            }
        }
        Ok(())
    }

    fn spend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8]) -> Result<(), String> {
        self.change(&tx.parsed.txid, |record| {
            for spend in spends {
                let Some(Some(utxo)) = record.utxos.get_mut(spend.vout as usize) else { continue };
                if utxo.len() == 32 && utxo[..] == spend.utxo_hash[..] {
                    utxo.extend_from_slice(spender);
                    utxo.extend_from_slice(&spend.vin.to_le_bytes());
                    record.spent_utxos += 1;
                }
            }
        })
    }

    fn unspend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8]) -> Result<(), String> {
        self.change(&tx.parsed.txid, |record| {
            for spend in spends {
                let Some(Some(utxo)) = record.utxos.get_mut(spend.vout as usize) else { continue };
                if utxo.len() == 68 && utxo[32..64] == *spender {
                    utxo.truncate(32);
                    record.spent_utxos -= 1;
                }
            }
        })
    }
}

/// A transaction, parsed and not.
struct Transaction {
    raw: Vec<u8>,
    parsed: Parsed,
    spends: TransactionSpends,
    spend_one: TransactionSpends,
    unspends: Vec<Unspend>,
}

impl Transaction {
    fn new(serial: u64, outputs: u32) -> Self {
        let input = |i: u64| (key(serial << 8 | i | 1 << 40), 1);
        let mut raw = 2u32.to_le_bytes().to_vec();
        raw.push(2);
        for (txid, vout) in [input(0), input(1)] {
            raw.extend(txid);
            raw.extend(u32::to_le_bytes(vout));
            raw.push(107);
            raw.extend([7; 107]);
            raw.extend([0xFF; 4]);
        }
        match outputs {
            0..=252 => raw.push(outputs as u8),
            _ => raw.extend([0xFD, outputs as u8, (outputs >> 8) as u8]),
        }
        for output in 0..outputs {
            raw.extend((1_000 + u64::from(output)).to_le_bytes());
            raw.extend([25, 0x76, 0xA9, 0x14]);
            raw.extend([8; 20]);
            raw.extend([0x88, 0xAC]);
        }
        raw.extend([0; 4]);
        let parsed = Parsed {
            txid: key(serial),
            version: 2,
            lock_time: 0,
            coinbase: false,
            extended: false,
            inputs: vec![input(0), input(1)],
            outputs: (0..u64::from(outputs)).map(|i| Some(key(serial ^ i << 32 ^ 1 << 60))).collect(),
            fee: None,
        };
        let spend = |(vout, hash): (u32, &Option<[u8; 32]>)| Spend {
            txid: ByteBuf::from(parsed.txid),
            vout,
            utxo_hash: ByteBuf::from(hash.expect("each has one")),
            vin: vout,
        };
        let spends: Vec<Spend> = (0..).zip(&parsed.outputs).map(spend).collect();
        let spender = ByteBuf::from(key(SPENDER));
        let unspend = |spend: &Spend| Unspend {
            outpoint: Outpoint { txid: spend.txid.clone(), vout: spend.vout },
            utxo_hash: spend.utxo_hash.clone(),
            spender: Spender { txid: spender.clone(), vin: spend.vin },
        };
        let unspends = spends.iter().map(unspend).collect();
        let spend_one = TransactionSpends { spender: spender.clone(), spends: spends[..1].to_vec() };
        Self { raw, parsed, unspends, spend_one, spends: TransactionSpends { spender, spends } }
    }

    fn item(&self) -> UtxoCreate {
        UtxoCreate {
            source: TransactionSource::Raw(ByteBuf::from(self.raw.as_slice())),
            mined: None,
            locked: Some(false),
            conflicting: false,
            fee: None,
        }
    }
}

#[derive(Default)]
struct Prepared {
    transactions: Vec<Transaction>,
    items: Vec<UtxoCreate>,
    serial: u64,
    filled: u64,
    baseline: Option<Baseline>,
}

thread_local! {
    static PREPARED: RefCell<Prepared> = RefCell::default();
}

fn insert(state: &mut State, tx: &Transaction, item: &UtxoCreate, call: &Call) -> Result<(), String> {
    let body = Body::Whole(&tx.raw);
    let draft = Draft { parsed: tx.parsed.clone(), size: tx.raw.len() as u64, body };
    said(state.utxo.insert(&mut state.blobs, draft, item, call)).map(drop)
}

/// Makes records of two outputs until there are `n`. Answers whether there are; call it until then.
#[update(guard = "access::operator")]
fn bench_fill_utxo(n: u64, baseline: bool) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            let settings = UtxoSettings::default();
            let call = Call { height: HEIGHT, now_ns: 0, settings: &settings };
            for _ in prepared.filled..n.min(prepared.filled + STEP) {
                let tx = Transaction::new(prepared.serial, 2);
                prepared.serial += 1;
                prepared.filled += 1;
                if baseline {
                    prepared.baseline.get_or_insert_with(Baseline::open).create(&tx)?;
                } else {
                    insert(state, &tx, &tx.item(), &call)?;
                }
            }
            Ok(prepared.filled == n)
        })
    })
}

/// Makes what `bench_run_utxo` with the same argument needs: transactions, with records in the state before the operation.
#[update(guard = "access::operator")]
fn bench_prepare_utxo(arg: UtxoBenchArg) -> Result<(), String> {
    PREPARED.with_borrow_mut(|prepared| {
        prepared.transactions = (0..arg.rounds)
            .map(|_| {
                prepared.serial += 1;
                Transaction::new(prepared.serial, arg.outputs)
            })
            .collect();
        prepared.items = prepared.transactions.iter().map(Transaction::item).collect();
        let before: &[&str] = match arg.op.as_str() {
            "create" | "create_raw" => &[],
            "set_mined" | "spend_one" => &["create"],
            "spend" => &["create", "set_mined"],
            "unspend" => &["create", "set_mined", "spend"],
            other => return Err(format!("no such operation: {other}")),
        };
        before.iter().try_for_each(|op| run(prepared, op, arg.baseline))
    })
}

/// Runs the operation on each transaction and answers the average instructions of one.
#[update(guard = "access::operator")]
fn bench_run_utxo(arg: UtxoBenchArg) -> Result<u64, String> {
    PREPARED.with_borrow_mut(|prepared| {
        let start = instructions();
        run(prepared, &arg.op, arg.baseline)?;
        Ok((instructions() - start) / arg.rounds)
    })
}

fn run(prepared: &mut Prepared, op: &str, baseline: bool) -> Result<(), String> {
    if baseline {
        let spender = key(SPENDER);
        let maps = prepared.baseline.get_or_insert_with(Baseline::open);
        return prepared.transactions.iter().try_for_each(|tx| match op {
            "create" => maps.create(tx),
            "spend" => maps.spend(tx, &tx.spends.spends, &spender),
            "spend_one" => maps.spend(tx, &tx.spend_one.spends, &spender),
            "unspend" => maps.unspend(tx, &tx.spends.spends, &spender),
            "set_mined" => maps.change(&tx.parsed.txid, |record| {
                record.blocks.push((1, HEIGHT, 0));
                record.unmined_since = None;
                record.locked = false;
            }),
            other => Err(format!("no such operation: {other}")),
        });
    }
    mutate(|state| {
        let settings = UtxoSettings::default();
        let call = Call { height: HEIGHT, now_ns: 0, settings: &settings };
        for (tx, item) in prepared.transactions.iter().zip(&prepared.items) {
            let store: &mut UtxoStore = &mut state.utxo;
            match op {
                "create" => insert(state, tx, item, &call)?,
                "create_raw" => drop(black_box(said(store.create(&mut state.blobs, item, &call))?)),
                "spend" | "spend_one" => {
                    let spends = if op == "spend" { &tx.spends } else { &tx.spend_one };
                    let spent = said(store.spend(spends, &call))?;
                    if spent as usize != spends.spends.len() {
                        return Err(format!("{spent} of {} were spent", spends.spends.len()));
                    }
                }
                "unspend" => {
                    let mut last = LastUnspent::default();
                    for item in &tx.unspends {
                        if !said(store.unspend(item, &call, &mut last))? {
                            return Err("an output was not held".into());
                        }
                    }
                    store.unspent(&call, &mut last);
                }
                "set_mined" => {
                    let block = UtxoSetMined {
                        height: HEIGHT,
                        block_id: 1,
                        block_height: HEIGHT,
                        on_longest_chain: true,
                        unset: false,
                        items: Vec::new(),
                    };
                    let item = MinedTransaction { txid: ByteBuf::from(tx.parsed.txid), subtree: 0 };
                    black_box(said(store.set_mined(&block, &item, &call))?);
                }
                other => return Err(format!("no such operation: {other}")),
            }
        }
        Ok(())
    })
}
