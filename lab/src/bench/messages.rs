//! Whole messages including Candid: a block appended, a page exported, an acknowledgement, an idle firing, a block pruned.

use super::figure::{Figure, Row};
use super::subject::{Bench, Each, Subject};
use anyhow::{Result, anyhow, ensure};
use candid::{Decode, Encode, Principal};
use ic_coppice_client::Block;
use ic_coppice_host::{Execution, Kind, largest_argument};
use ic_coppice_interface::*;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Blocks that are kept.
const KEPT: u64 = 100;
/// Bytes of the block that the canister makes itself, as that of the table of a block's cost.
pub const INSIDE: u32 = 177_000;
/// Such blocks in a message: making and appending one takes 30 M instructions, and an append needs room for 1 G.
const INSIDE_ROUNDS: u64 = 10;
/// Exporters that a canister may have.
const EXPORTERS: u8 = 100;
/// Headers of the longest page.
const HEADERS: u64 = 1_000;
/// Seals of a chain, and certified data, that are measured.
const ROUNDS: u64 = 20;
/// Bytes of a page.
const PAGE_BYTES: u64 = 1 << 20;

fn hash(number: u64) -> BlockHash {
    <[u8; 32]>::from(Sha256::digest(number.to_le_bytes())).into()
}

/// Returns a block of `body` bytes with `transactions` transactions, each with a receipt of 100 bytes.
fn block(number: u64, body: usize, transactions: u32) -> AppendBlock {
    let id = |position: u32| Sha256::digest([number.to_le_bytes(), u64::from(position).to_be_bytes()].concat()).into();
    // Every block has other bytes than the one before, whose heap pages would otherwise be unchanged and free.
    let fill = number as u8;
    let block = Block::new(number, hash(number), hash(number.wrapping_sub(1)), 0).body(vec![fill; body]);
    let with = |block: Block, position| block.transaction(id(position), Some(&[fill; 100]), &[]);
    (0..transactions).fold(block, with).seal().expect("a block of the bench is small")
}

impl Bench {
    /// Switches the comparison of segments with their digests on or off.
    fn verify_segments(&self, verify: bool) -> Result<()> {
        let change = ConfigChange { verify_segments: Some(verify), ..ConfigChange::default() };
        self.done::<Config, ConfigError>("set_config", Encode!(&change)?).map(drop)
    }

    /// Fires the timer after `secs` seconds, and returns the executions.
    fn firing(&self, secs: u64) -> Result<Vec<Execution>> {
        self.host.take_executions();
        self.host.advance_time(Duration::from_secs(secs));
        (0..5).for_each(|_| self.host.tick());
        let executions = self.host.take_executions();
        ensure!(!executions.is_empty(), "the timer did not fire");
        Ok(executions)
    }
}

/// Measures messages with small blocks, and with large ones.
pub fn chain(subject: &Subject, each: Each) -> Result<()> {
    for (body, transactions) in [(100, 1), (100 << 10, 300)] {
        let what = format!("chain: blocks of {body} bytes and {transactions} transactions");
        let bench = Bench::start(subject, &what)?;
        bench.rows(|bench| of_blocks(bench, body, transactions))?.into_iter().try_for_each(&mut *each)?;
    }
    let bench = Bench::start(subject, &format!("chain: {HEADERS} headers"))?;
    (0..HEADERS).try_for_each(|_| bench.call::<()>("bench_append", (0u64,)))?;
    let from = bench.host.checkpoint();
    for op in ["seal", "certified data"] {
        let [(today, _), (tomorrow, _)] = bench.measure(&from, ("chain", "chain", op), 0, ROUNDS, HEADERS)?;
        each(Row::of(today, &tomorrow)?)?;
    }
    let inside = ("chain", "chain", "append inside");
    let [(today, _), (tomorrow, _)] = bench.measure(&from, inside, INSIDE, INSIDE_ROUNDS, HEADERS)?;
    each(Row::of(today, &tomorrow)?)?;
    bench.host.restore(&from);
    bench.rows(of_headers)?.into_iter().try_for_each(each)
}

/// Measures the life of a block.
fn of_blocks(bench: &Bench, body: u32, transactions: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut figure =
        |op: &'static str, size: u32, run: &[Execution]| figures.push(bench.of_items("chain", op, size, KEPT, 1, run));
    let grant = Grant { principal: bench.operator, role: Role::Producer };
    bench.done::<(), RoleError>("grant_role", Encode!(&grant)?)?;
    let policy = PrunePolicyArg { retain_blocks: Some(1), timer_interval_secs: Some(60), ..PrunePolicyArg::default() };
    bench.done::<PrunePolicyChange, PruneError>("set_prune_policy", Encode!(&policy)?)?;
    bench.verify_segments(false)?;
    let exporter = Exporter { name: "bench".into(), principal: bench.operator };
    bench.done::<(), ExporterError>("register_exporter", Encode!(&exporter)?)?;
    for number in 0..=KEPT {
        let block = Encode!(&block(number, body as usize, transactions))?;
        let ((), execution) = bench.done::<(), AppendError>("append_block", block)?;
        if number == KEPT {
            figure("append", body, &[execution]);
        }
    }
    let arg = Encode!(&None::<ExportCursor>, &PAGE_BYTES)?;
    let (page, execution) = bench.query::<Result<ExportPage, ExportError>>("export_blocks", arg)?;
    let page = page.map_err(|error| anyhow!("{error}"))?;
    let bytes: usize = page.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    figure("export page", bytes as u32, &[execution]);
    // All blocks except the last one are due, but the exporter holds them. The first firing records this; firings of the safety timer
    // are then idle.
    bench.firing(60)?;
    figure("idle firing", body, &bench.firing(600)?);
    let acknowledge = |number: u64| -> Result<Execution> {
        Ok(bench.done::<u64, AckError>("ack_exported", Encode!(&number, &hash(number))?)?.1)
    };
    // The first acknowledgement arms the timer.
    acknowledge(KEPT - 1)?;
    figure("ack", body, &[acknowledge(KEPT)?]);
    for is_second in [false, true] {
        let (pruned, execution) = bench.done::<PruneRun, PruneError>("prune_now", Encode!(&1u64)?)?;
        ensure!(pruned.blocks == 1, "prune_now: {pruned:?}");
        if is_second {
            figure("prune", body, &[execution]);
        }
    }
    bench.verify_segments(true)?;
    for number in KEPT + 1..=KEPT + 2 {
        let block = Encode!(&block(number, body as usize, transactions).sealed())?;
        let ((), execution) = bench.done::<(), AppendError>("append_block", block)?;
        if number == KEPT + 2 {
            figure("append verified", body, &[execution]);
        }
    }
    for of in 1..EXPORTERS {
        let exporter = Exporter { name: format!("bench{of}"), principal: Principal::from_slice(&[of; 29]) };
        bench.done::<(), ExporterError>("register_exporter", Encode!(&exporter)?)?;
    }
    figure("ack of a hundred", body, &[acknowledge(KEPT + 2)?]);
    Ok(figures)
}

/// Measures the longest page of headers, and a stranger's block.
fn of_headers(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let arg = Encode!(&0u64, &u64::MAX)?;
    for (op, as_update) in [("1,000 headers by query", false), ("1,000 headers by update", true)] {
        let reply = match as_update {
            false => bench.host.query_call(bench.canister, bench.operator, "get_block_headers", arg.clone())?,
            true => bench.host.update_call(bench.canister, bench.operator, "get_block_headers", arg.clone())?,
        };
        let execution = bench.last()?;
        let page = Decode!(&reply, Result<HeaderPage, ReadError>)?.map_err(|error| anyhow!("{error}"))?;
        ensure!(page.headers.len() as u64 == HEADERS, "{} headers", page.headers.len());
        figures.push(bench.of_message("chain", op, reply.len() as u32, HEADERS, &execution));
    }
    let stranger = Principal::self_authenticating(b"stranger");
    let longest = largest_argument(bench.canister, stranger, "append_block");
    let refused = bench.host.update_call(bench.canister, stranger, "append_block", vec![1; longest]);
    let execution = bench.last()?;
    ensure!(refused.is_err() && execution.kind == Kind::InspectMessage, "a stranger's block is accepted");
    figures.push(bench.of_message("chain", "refused at the door", longest as u32, 0, &execution));
    Ok(figures)
}
