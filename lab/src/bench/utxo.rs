//! The UTXO store and its two peers: a `StableBTreeMap` of encoded records with three maps as its indexes, and rows of fixed size, one for
//! each output, with a `u64` as the key. At today's price the store is at least four times cheaper than the first peer, and costs the same
//! at any number of records. Also measures whole messages, including Candid and the heap.

use super::figure::{Figure, Row};
use super::limits::{self, OUTPUTS};
use super::price::Price;
use super::subject::{Bench, Each, Subject};
use anyhow::{Context, Result, bail, ensure};
use bitcoin::hashes::Hash;
use bitcoin::{OutPoint, Transaction, TxIn, TxOut, Txid, absolute, consensus, transaction};
use candid::{CandidType, Encode};
use ic_coppice_cli::utxo::set::utxo_hash;
use ic_coppice_host::{Checkpoint, Execution};
use ic_coppice_interface::{
    AppendBlock, AppendError, Batch, Grant, MinedTransaction, MissingParents, RefusedSpend, Role, RoleError, Spend,
    TransactionSource, TransactionSpends, UtxoApplied, UtxoApplyBlock, UtxoApplyError, UtxoCreate, UtxoCreateBatch,
    UtxoCreateError, UtxoCreated, UtxoError, UtxoHash, UtxoSetMinedBatch, UtxoSpendBatch,
};
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::fmt::Debug;

/// Numbers of existing records.
const NUMBERS: [u64; 2] = [1_000, 100_000];
/// Transactions of a measured batch.
const BATCH: u32 = 1_000;
const OPS: [&str; 6] = ["create", "create_raw", "spend", "spend_one", "unspend", "set_mined"];
/// Pruning, with the number of records pruned:
/// - `prune`: records with two outputs and two surviving parents.
/// - `prune_scattered`: the same, with parents far from each other.
/// - `prune_tick`: as many records as a tick of a billion instructions prunes.
/// - `nothing_new`: a run that finds nothing new, although all existing records are unmined and old.
const PRUNE: [(&str, u64); 4] = [("prune", 500), ("prune_scattered", 500), ("prune_tick", 40_000), ("nothing_new", 1)];
/// Factor by which each operation must be cheaper than on the plain map.
const CHEAPER: u64 = 4;
/// Factor by which pruning must be cheaper.
const PRUNE_CHEAPER: u64 = 5;

/// The argument of the bench endpoints.
#[derive(Clone, Debug, CandidType)]
struct UtxoBenchArg {
    op: String,
    side: Side,
    outputs: u32,
    rounds: u64,
}

/// The store, or one of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType)]
enum Side {
    Coppice,
    Records,
    Rows,
}

impl Side {
    /// Returns the name of a peer in figures.
    fn peer(self) -> Option<&'static str> {
        match self {
            Self::Coppice => None,
            Self::Records => Some("btree"),
            Self::Rows => Some("rows"),
        }
    }

    /// Returns whether an operation is measured on this store.
    fn has(self, op: &str, outputs: u32) -> bool {
        match self {
            Self::Coppice => true,
            Self::Records => op != "create_raw",
            // For the largest transactions, only the operations that differ most.
            Self::Rows => op != "create_raw" && (outputs < 20_000 || matches!(op, "create" | "spend" | "spend_one")),
        }
    }
}

/// Measures each operation of a side among `n` records. Returns the bench as it was before.
fn among(subject: &Subject, n: u64, side: Side) -> Result<(Bench, Checkpoint, Vec<[Figure; 2]>)> {
    let bench = Bench::start(subject, &format!("utxo: {n} records, {side:?}"))?;
    bench.fill("bench_fill_utxo", (n, side))?;
    let bytes = bench.call::<u64>("bench_utxo_bytes", (side,))? as f64 / n as f64;
    let from = bench.host.checkpoint();
    let mut measured = Vec::new();
    for outputs in OUTPUTS {
        for op in OPS.into_iter().filter(|op| side.has(op, outputs)) {
            let both = measure(&bench, &from, op, side, outputs, n)?;
            // The existing records have two outputs.
            let bytes = ((op, outputs) == ("create", 2)).then_some(bytes);
            measured.push(both.map(|figure| Figure { bytes, ..figure }));
        }
    }
    for (op, rounds) in PRUNE.into_iter().filter(|(op, _)| side == Side::Coppice || *op == "prune") {
        measured.push(prune(&bench, &from, op, side, rounds, n)?);
    }
    Ok((bench, from, measured))
}

/// Measures all sides, the peers first, because the costs of the plain map set the store's limits; or the store alone among as many records
/// as the subject names.
pub fn utxo(subject: &Subject, each: Each) -> Result<()> {
    if let Some(n) = subject.records {
        let (.., measured) = among(subject, n, Side::Coppice)?;
        return measured.into_iter().try_for_each(|[today, tomorrow]| each(Row::of(today, &tomorrow)?));
    }
    let mut plain: Vec<Figure> = Vec::new();
    let mut small: Vec<Figure> = Vec::new();
    for n in NUMBERS {
        for side in [Side::Records, Side::Rows, Side::Coppice] {
            // The pages show this peer only among the most records.
            if side == Side::Rows && n != NUMBERS[1] {
                continue;
            }
            let (bench, from, measured) = among(subject, n, side)?;
            for [mut today, mut tomorrow] in measured {
                match side {
                    Side::Records => plain.push(today.clone()),
                    Side::Rows => {}
                    Side::Coppice => {
                        today.limit = limit(&today, &plain, &small);
                        tomorrow.limit = limits::limit(Price::Tomorrow, "utxo", tomorrow.op, tomorrow.size);
                        small.push(today.clone());
                    }
                }
                each(Row::of(today, &tomorrow)?)?;
            }
            if side == Side::Coppice {
                bench.host.restore(&from);
                bench.rows(|bench| messages(bench, n))?.into_iter().try_for_each(&mut *each)?;
            }
        }
    }
    Ok(())
}

/// Returns the limit of a figure of the store at today's price: the smallest of the constant limit, a fraction of the plain map's cost
/// among as many records, and 1.3 times the store's own cost among few records.
fn limit(figure: &Figure, plain: &[Figure], small: &[Figure]) -> Option<u64> {
    let &Figure { op, size, n, .. } = figure;
    let most = limits::limit(Price::Today, "utxo", op, size);
    if op == "nothing_new" {
        return most;
    }
    let (same, cheaper) = if op.starts_with("prune") { ("prune", PRUNE_CHEAPER) } else { (op, CHEAPER) };
    let fraction = plain.iter().find(|f| (f.op, f.size, f.n) == (same, size, n)).map(|f| f.instructions / cheaper);
    let flat = small.iter().find(|f| (f.op, f.size) == (op, size)).map(|f| f.instructions * 13 / 10);
    [most, fraction, flat].into_iter().flatten().min()
}

/// Measures whole messages. Messages with one item each: create a record of a transaction with one output, set the transaction mined, and
/// spend the output. A message with [`BATCH`] items: create records of transactions with two inputs and two outputs. The first message of
/// each kind is not measured, because it also creates structures that later ones use.
fn messages(bench: &Bench, n: u64) -> Result<Vec<Figure>> {
    let grant = Grant { principal: bench.operator, role: Role::Producer };
    bench.done::<(), RoleError>("grant_role", Encode!(&grant)?)?;
    let mut measured = Vec::new();
    for number in [1, 2] {
        measured = one_by_one(bench, number)?;
    }
    let one = |(op, message)| bench.of_message("utxo", op, 1, n, &message);
    let mut figures: Vec<Figure> = measured.into_iter().map(one).collect();
    create_batch(bench, 1)?;
    let batch = create_batch(bench, 2)?;
    figures.push(bench.of_message("utxo", "create batch message", BATCH, n, &batch));
    figures.push(bench.of_message("utxo", "apply message", BATCH, n, &apply_block(bench)?));
    Ok(figures)
}

/// Returns [`BATCH`] transactions of 374 bytes, with two outputs and these inputs.
fn batch_of(inputs: impl Fn(u32) -> [OutPoint; 2]) -> Vec<Transaction> {
    let output = TxOut { value: bitcoin::Amount::ONE_BTC, script_pubkey: vec![0x51; 25].into() };
    // As long as a signature and a key.
    let input = |previous_output| TxIn { previous_output, script_sig: vec![7; 107].into(), ..TxIn::default() };
    let one = |serial| Transaction {
        version: transaction::Version::TWO,
        lock_time: absolute::LockTime::ZERO,
        input: inputs(serial).map(input).into(),
        output: vec![output.clone(); 2],
    };
    (0..BATCH).map(one).collect()
}

/// Returns the outpoints of parents that have no record.
fn unknown(number: u8) -> impl Fn(u32) -> [OutPoint; 2] {
    move |serial| {
        let mut parent = [0xB0 + number; 32];
        parent[..4].copy_from_slice(&serial.to_le_bytes());
        [0, 1].map(|vout| OutPoint::new(Txid::from_byte_array(parent), vout))
    }
}

/// Creates records of [`BATCH`] transactions of 374 bytes in one message.
fn create_batch(bench: &Bench, number: u8) -> Result<Execution> {
    let items = batch_of(unknown(number)).into_iter().map(|transaction| {
        let source = TransactionSource::Raw(ByteBuf::from(consensus::serialize(&transaction)));
        UtxoCreate { source, mined: None, locked: Some(false), conflicting: false, fee: None, is_new: false }
    });
    let batch = UtxoCreateBatch { height: 1, items: items.collect() };
    let answer = bench.update::<Batch<Result<UtxoCreated, UtxoCreateError>>>("utxo_create", Encode!(&batch)?)?;
    let (done, message) = answer;
    let created = done.results.iter().filter(|result| result.is_ok()).count();
    ensure!(created == BATCH as usize, "utxo_create: {created} of {BATCH} records were created");
    Ok(message)
}

/// Applies a block of [`BATCH`] transactions of 374 bytes in one message. Each of them spends two outputs of the block before it.
fn apply_block(bench: &Bench) -> Result<Execution> {
    let parents = batch_of(unknown(9));
    let ids: Vec<Txid> = parents.iter().map(Transaction::compute_txid).collect();
    let children = batch_of(|serial| {
        // The outputs of one parent lie apart, as they do in most blocks.
        let of = |nth: u32| ids[((serial + nth * BATCH / 2) % BATCH) as usize];
        [OutPoint::new(of(0), 0), OutPoint::new(of(1), 1)]
    });
    let mut last = None;
    for (number, transactions) in (0..).zip([parents, children]) {
        bench.update::<Result<(), AppendError>>("append_block", Encode!(&block_of(number, &transactions))?)?.0?;
        let missing_parents = Some(MissingParents::Skip);
        let hash = block_of(number, &transactions).hash;
        let height = 1 + number as u32;
        let arg = UtxoApplyBlock { number, hash, height, block_id: 1, missing_parents, skip: None, skip_rest: false };
        let (applied, message) =
            bench.update::<Result<UtxoApplied, UtxoApplyError>>("utxo_apply_block", Encode!(&arg)?)?;
        let UtxoApplied { has_more, created, spent, .. } = applied?;
        let expected = (false, BATCH, 2 * BATCH * number as u32);
        ensure!((has_more, created, spent) == expected, "utxo_apply_block: {created} created, {spent} spent");
        last = Some(message);
    }
    last.context("two blocks were applied")
}

fn block_of(number: u64, transactions: &[Transaction]) -> AppendBlock {
    let mut body = vec![0; 80];
    let count = u32::try_from(transactions.len()).expect("a block of the bench is small");
    body.extend(consensus::serialize(&bitcoin::VarInt(u64::from(count))));
    transactions.iter().for_each(|transaction| body.extend(consensus::serialize(transaction)));
    let hash = |number: u64| number.to_le_bytes();
    let block = ic_coppice_client::Block::new(number, hash(number + 1), hash(number), number).body(body);
    let id = |transaction: &Transaction| transaction.compute_txid().to_byte_array();
    let block = transactions.iter().fold(block, |block, transaction| block.transaction(id(transaction), None, &[]));
    block.seal().expect("a block of the bench is small")
}

fn one_by_one(bench: &Bench, number: u8) -> Result<Vec<(&'static str, Execution)>> {
    let [parent, spender] = [1, 2].map(|byte| Txid::from_byte_array([16 * number + byte; 32]));
    let transaction = Transaction {
        version: transaction::Version::TWO,
        lock_time: absolute::LockTime::ZERO,
        input: vec![TxIn { previous_output: OutPoint::new(parent, 0), ..TxIn::default() }],
        // As long as a payment to a key.
        output: vec![TxOut { value: bitcoin::Amount::ONE_BTC, script_pubkey: vec![0x51; 25].into() }],
    };
    let source = TransactionSource::Raw(ByteBuf::from(consensus::serialize(&transaction)));
    let record = UtxoCreate { source, mined: None, locked: Some(false), conflicting: false, fee: None, is_new: false };
    let batch = UtxoCreateBatch { height: 1, items: vec![record] };
    let create = message::<UtxoCreated, UtxoCreateError>(bench, "utxo_create", Encode!(&batch)?, ToString::to_string)?;
    let output = OutPoint::new(transaction.compute_txid(), 0);
    let txid = ic_coppice_interface::Txid::from(output.txid.to_byte_array());
    let items = vec![MinedTransaction { txid: txid.clone(), subtree: 0 }];
    let batch =
        UtxoSetMinedBatch { height: 1, block_id: 1, block_height: 1, on_longest_chain: true, unset: false, items };
    let set_mined = message::<Vec<u32>, UtxoError>(bench, "utxo_set_mined", Encode!(&batch)?, ToString::to_string)?;
    let utxo_hash = UtxoHash::from(utxo_hash(output, &transaction.output[0]));
    let spends = vec![Spend { txid, vout: 0, utxo_hash, vin: 0 }];
    let spends = TransactionSpends { spender: spender.to_byte_array().into(), spends };
    let batch = UtxoSpendBatch { height: 1, items: vec![spends] };
    let first = |errors: &Vec<RefusedSpend>| errors.first().map_or("no reason".into(), ToString::to_string);
    let spend = message::<u32, Vec<RefusedSpend>>(bench, "utxo_spend", Encode!(&batch)?, first)?;
    Ok(vec![("create message", create), ("set_mined message", set_mined), ("spend message", spend)])
}

/// Calls a method with one item, which must succeed; `why` is the sentence of an error.
fn message<T, E>(bench: &Bench, method: &str, arg: Vec<u8>, why: impl Fn(&E) -> String) -> Result<Execution>
where
    T: CandidType + DeserializeOwned,
    E: CandidType + DeserializeOwned,
{
    let (done, message) = bench.update::<Batch<Result<T, E>>>(method, arg)?;
    if !matches!(done.results[..], [Ok(_)]) {
        let refused = done.results.iter().find_map(|result| result.as_ref().err());
        bail!("{method}: {}", refused.map_or("it does not answer for one item".into(), why));
    }
    Ok(message)
}

/// Creates records with two parents, whose external blobs wait for deletion.
pub fn make_external(bench: &Bench, rounds: u64) -> Result<()> {
    let arg = UtxoBenchArg { op: "external".into(), side: Side::Coppice, outputs: 2, rounds };
    bench.call::<()>("bench_prepare_prune", (&arg,))
}

/// Begins a job of the pruner, so that an upgrade must read its place.
pub fn begin_job(bench: &Bench) -> Result<()> {
    let arg = UtxoBenchArg { op: "job".into(), side: Side::Coppice, outputs: 2, rounds: 3 };
    bench.call::<()>("bench_prepare_prune", (&arg,))
}

fn prune(bench: &Bench, from: &Checkpoint, op: &'static str, side: Side, rounds: u64, n: u64) -> Result<[Figure; 2]> {
    let arg = UtxoBenchArg { op: op.into(), side, outputs: 2, rounds };
    run(bench, from, op, arg, n, ("bench_prepare_prune", "bench_run_prune"))
}

fn measure(
    bench: &Bench,
    from: &Checkpoint,
    op: &'static str,
    side: Side,
    outputs: u32,
    n: u64,
) -> Result<[Figure; 2]> {
    let rounds = match outputs {
        0..=2 => 500,
        3..=100 => 50,
        _ if side == Side::Rows => 1,
        _ => 2,
    };
    let arg = UtxoBenchArg { op: op.into(), side, outputs, rounds };
    run(bench, from, op, arg, n, ("bench_prepare_utxo", "bench_run_utxo"))
}

fn run(
    bench: &Bench,
    from: &Checkpoint,
    op: &'static str,
    arg: UtxoBenchArg,
    n: u64,
    (before, measured): (&str, &str),
) -> Result<[Figure; 2]> {
    bench.host.restore(from);
    bench.call::<()>(before, (&arg,))?;
    bench.at_both(|bench| {
        let (figure, _) = bench.run((measured, (&arg,)), ("utxo", op), arg.outputs, arg.rounds, n)?;
        Ok(Figure { peer: arg.side.peer(), ..figure })
    })
}
