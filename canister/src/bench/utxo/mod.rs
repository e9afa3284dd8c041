//! The UTXO store, and what it is compared with: a `StableBTreeMap` of encoded records with three maps for its indexes.
//!
//! Both store the same fields and the same bytes, and neither parses or hashes a transaction but in `create_raw`, which the
//! other side has not: those 76 instructions a byte are the same on either. The other side reads, changes and writes a record
//! once for all outputs of it that a transaction spends.

mod baseline;
mod prune;
mod transaction;

use super::{key, said};
use crate::access;
use crate::deletion::Name;
use crate::runtime::instructions;
use crate::state::{State, mutate};
use crate::utxo::{Body, Call, Draft, LastUnspent, UtxoStore};
use baseline::Baseline;
use candid::CandidType;
use coppice_interface::*;
use ic_cdk::update;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::hint::black_box;
use transaction::Transaction;

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

/// The same of a transaction whose bytes lie outside.
fn insert_outside(state: &mut State, tx: &Transaction, item: &UtxoCreate, call: &Call) -> Result<(), String> {
    let blob_key = ByteBuf::from(tx.parsed.txid);
    let store = ExternalStore { blob_key, file_type: FileType::Outputs, store_type: StoreType::Tx };
    let draft = Draft { parsed: tx.parsed.clone(), size: tx.raw.len() as u64, body: Body::Outside(&store) };
    said(state.utxo.insert(&mut state.blobs, draft, item, call))?;
    said(state.deletions.admits(&Name::from(&store), &tx.parsed.txid))?;
    state.deletions.hold(&Name::from(&store), &tx.parsed.txid);
    Ok(())
}

/// Makes records of two outputs until there are `n`. Answers whether there are; call it until then.
#[update(guard = "access::bench")]
fn bench_fill_utxo(n: u64, baseline: bool) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            let settings = UtxoSettings::default();
            let call = Call { height: HEIGHT, now_ns: 0, settings: &settings, most: MAX_HEIGHT };
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
#[update(guard = "access::bench")]
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
#[update(guard = "access::bench")]
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
        let call = Call { height: HEIGHT, now_ns: 0, settings: &settings, most: MAX_HEIGHT };
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
                    let block = UtxoSetMinedBatch {
                        height: HEIGHT,
                        block_id: 1,
                        block_height: HEIGHT,
                        on_longest_chain: true,
                        unset: false,
                        items: Vec::new(),
                    };
                    let item = MinedTransaction { txid: tx.parsed.txid.into(), subtree: 0 };
                    black_box(said(store.set_mined(&block, &item, &call))?);
                }
                other => return Err(format!("no such operation: {other}")),
            }
        }
        Ok(())
    })
}
