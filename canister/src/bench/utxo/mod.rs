//! The UTXO store and its two peers: a `StableBTreeMap` of encoded records with three maps as its indexes, and rows of fixed size by a
//! `u64`, one for each output.
//!
//! All of them store the same fields and the same bytes, and none parses or hashes a transaction except in `create_raw`, which the
//! peers lack: those 77 instructions a byte are the same for each. A peer reads, changes and writes a record, or a transaction's row,
//! once for all outputs of it that a transaction spends.

mod prune;
mod records;
mod rows;
mod transaction;

use super::{key, said};
use crate::api::access;
use crate::memory;
use crate::platform::instructions;
use crate::state::{State, mutate, read};
use candid::CandidType;
use ic_cdk::update;
use ic_coppice_interface::*;
use ic_coppice_records::deletion::Name;
use ic_coppice_records::utxo::{Ahead, Body, Call, Draft, UtxoStore};
use ic_coppice_storage::blob::BlobStore;
use records::Records;
use rows::Rows;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::hint::black_box;
use std::ops::RangeInclusive;
use transaction::Transaction;

/// An operation to measure.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct UtxoBenchArg {
    /// The operation.
    pub op: String,
    /// The store, or one of its peers.
    pub side: Side,
    /// Outputs of each transaction.
    pub outputs: u32,
    /// Transactions.
    pub rounds: u64,
}

/// The store that an operation is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Deserialize)]
pub enum Side {
    Coppice,
    Records,
    Rows,
}

/// The operations of a peer. The transactions of each operation are in the state that it needs; an operation that fails is not measured.
trait Peer {
    fn create(&mut self, tx: &Transaction) -> Result<(), String>;
    fn spend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String>;
    fn unspend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String>;
    fn set_mined(&mut self, tx: &Transaction) -> Result<(), String>;
    /// Deletes due transactions and updates their parents. Returns the number of deleted transactions.
    fn prune(&mut self, height: u32) -> Result<u64, String>;
}

/// Records made in one message.
const STEP: u64 = 4_000;
const HEIGHT: u32 = 1_000;
/// Number of the spender of all outputs.
const SPENDER: u64 = 7 << 50;
const RETENTION: u32 = 288;

#[derive(Default)]
struct Prepared {
    transactions: Vec<Transaction>,
    items: Vec<UtxoCreate>,
    serial: u64,
    filled: u64,
    peer: Option<Box<dyn Peer>>,
}

impl Prepared {
    /// The peer that is measured, where it is one.
    fn peer(&mut self, side: Side) -> Option<&mut dyn Peer> {
        if self.peer.is_none() {
            self.peer = match side {
                Side::Coppice => None,
                Side::Records => Some(Box::new(Records::open())),
                Side::Rows => Some(Box::new(Rows::open())),
            };
        }
        Some(self.peer.as_mut()?.as_mut())
    }
}

thread_local! {
    static PREPARED: RefCell<Prepared> = RefCell::default();
}

fn insert(state: &mut State, tx: &Transaction, item: &UtxoCreate, call: &Call) -> Result<(), String> {
    let body = Body::Whole(&tx.raw);
    let draft = Draft { parsed: tx.parsed.clone(), size: tx.raw.len() as u64, body };
    said(state.records.utxo.create_from(&mut state.blobs, draft, &item.into(), call)).map(drop)
}

/// Inserts a record of a transaction whose bytes are in an external blob.
fn insert_external(state: &mut State, tx: &Transaction, item: &UtxoCreate, call: &Call) -> Result<(), String> {
    let blob_key = ByteBuf::from(tx.parsed.txid);
    let store = ExternalStore { blob_key, file_type: FileType::Outputs, store_type: StoreType::Tx };
    let draft = Draft { parsed: tx.parsed.clone(), size: tx.raw.len() as u64, body: Body::External(&store) };
    said(state.records.utxo.create_from(&mut state.blobs, draft, &item.into(), call))?;
    said(state.records.deletions.admits(&Name::from(&store), &tx.parsed.txid))?;
    state.records.deletions.hold(&Name::from(&store), &tx.parsed.txid);
    Ok(())
}

/// Makes records of two outputs until there are `n`. Returns whether there are; call it until then.
#[update(guard = "access::bench")]
fn bench_fill_utxo(n: u64, side: Side) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            let settings = UtxoSettings::default();
            let call = Call {
                height: HEIGHT,
                now_ns: 0,
                settings: &settings,
                most: MAX_HEIGHT,
                missing: MissingParents::Refuse,
            };
            for _ in prepared.filled..n.min(prepared.filled + STEP) {
                let tx = Transaction::new(prepared.serial, 2);
                prepared.serial += 1;
                prepared.filled += 1;
                match prepared.peer(side) {
                    Some(peer) => peer.create(&tx)?,
                    None => insert(state, &tx, &tx.item(), &call)?,
                }
            }
            Ok(prepared.filled == n)
        })
    })
}

/// Bytes of memory that the records take.
#[update(guard = "access::bench")]
fn bench_utxo_bytes(side: Side) -> Result<u64, String> {
    let of_peer = |which: RangeInclusive<u8>| which.map(|at| memory::bench(at).size()).sum();
    Ok(match side {
        Side::Coppice => read(|state| state.records.utxo.used_bytes()),
        Side::Records => of_peer(records::MEMORIES),
        Side::Rows => of_peer(rows::MEMORIES),
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
        before.iter().try_for_each(|op| run(prepared, op, arg.side))
    })
}

/// Runs the operation on each transaction and returns the average instructions of one.
#[update(guard = "access::bench")]
fn bench_run_utxo(arg: UtxoBenchArg) -> Result<u64, String> {
    PREPARED.with_borrow_mut(|prepared| {
        let start = instructions();
        run(prepared, &arg.op, arg.side)?;
        Ok((instructions() - start) / arg.rounds)
    })
}

fn run(prepared: &mut Prepared, op: &str, side: Side) -> Result<(), String> {
    let transactions = std::mem::take(&mut prepared.transactions);
    let ran = run_on(&transactions, prepared, op, side);
    prepared.transactions = transactions;
    ran
}

fn run_on(transactions: &[Transaction], prepared: &mut Prepared, op: &str, side: Side) -> Result<(), String> {
    if let Some(peer) = prepared.peer(side) {
        let spender = key(SPENDER);
        return transactions.iter().try_for_each(|tx| match op {
            "create" => peer.create(tx),
            "spend" => peer.spend(tx, &tx.spends.spends, &spender),
            "spend_one" => peer.spend(tx, &tx.spend_one.spends, &spender),
            "unspend" => peer.unspend(tx, &tx.spends.spends, &spender),
            "set_mined" => peer.set_mined(tx),
            other => Err(format!("no such operation: {other}")),
        });
    }
    mutate(|state| {
        let settings = UtxoSettings::default();
        let call =
            Call { height: HEIGHT, now_ns: 0, settings: &settings, most: MAX_HEIGHT, missing: MissingParents::Refuse };
        for (tx, item) in transactions.iter().zip(&prepared.items) {
            let store: &mut UtxoStore = &mut state.records.utxo;
            match op {
                "create" => insert(state, tx, item, &call)?,
                "create_raw" => {
                    drop(black_box(said(store.create(&mut state.blobs, item, &mut Ahead::default(), &call))?))
                }
                "spend" | "spend_one" => {
                    let spends = if op == "spend" { &tx.spends } else { &tx.spend_one };
                    let spent = said(store.spend(spends, &call))?;
                    if spent as usize != spends.spends.len() {
                        return Err(format!("{spent} of {} were spent", spends.spends.len()));
                    }
                }
                "unspend" => {
                    let mut held = Ok(true);
                    store.unspend_all(&tx.unspends, &call, |one| match one {
                        Ok(true) => {}
                        other => held = other,
                    });
                    if !said(held)? {
                        return Err("an output was not held".into());
                    }
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
                    black_box(said(store.set_mined(
                        &block,
                        &item,
                        &call,
                        (&mut state.blobs, |_: &BlobStore, _, _| None),
                    ))?);
                }
                other => return Err(format!("no such operation: {other}")),
            }
        }
        Ok(())
    })
}
