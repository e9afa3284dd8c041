//! `coppice size`: what a chain will need of the canister: `target_bytes`, stable memory billed, cycles a year.
//!
//! Stable memory is billed for what was ever grown, so it is the plateau that costs. It follows from the retained window by
//! the canister's own constants; a test holds the prediction against a canister that was fed until it stopped growing.

use crate::args::SizeArgs;
use crate::feed;
use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use coppice_canister::blob::Class;
use coppice_canister::memory::{BUCKET, PAGE};
use indicatif::HumanCount;
use serde::Serialize;

/// Seconds of a day and of a year.
const DAY: u64 = 86_400;
const YEAR: u128 = 365 * 86_400;
/// Prices of the platform on a subnet of 13 nodes, in cycles (`docs/operations.md`).
const GIB_SECOND: u128 = 127_000;
const MESSAGE: u128 = 5_000_000;
const INGRESS: u128 = 1_200_000;
const INGRESS_BYTE: u128 = 2_000;
/// Bytes of a message's envelope beside the argument: 150 and the method's name, 145 for an Ed25519 key, its signature and an
/// agent's longer nonce.
const ENVELOPE: u128 = 310;
/// A firing of the timer is three messages.
const FIRING: u128 = 3 * MESSAGE;
/// Instructions charged, heap pages included, for an idle firing, for a message that appends or uploads, and for what comes
/// with bytes and transactions; and for pruning a block (`docs/costs.md`). One instruction is one cycle.
const IDLE: u64 = 43_000;
const APPEND: u64 = 125_000;
const APPEND_BYTE: u64 = 4;
const APPEND_TRANSACTION: u64 = 2_800;
const PRUNE: u64 = 50_000;
const PRUNE_TRANSACTION: u64 = 2_500;
/// Bytes of a transaction in the table of the manual.
const TRANSACTION_BYTES: u64 = 500;

/// A chain, and how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Payload of a block in bytes: body, receipts and index.
    pub block_bytes: u64,
    /// Transactions of a block.
    pub transactions: u64,
    /// Seconds between two blocks.
    pub interval_secs: u64,
    /// Days for which blocks are retained.
    pub days: u64,
    /// Bytes of a blob of the log.
    pub log_class: u64,
    /// Seconds between two ticks of the daemon.
    pub timer_interval_secs: u64,
}

/// What it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Of which chain.
    #[serde(flatten)]
    pub workload: Workload,
    /// Blocks that are kept at the most.
    pub blocks: u64,
    /// Class bytes of their blobs.
    pub kept_bytes: u64,
    /// What `target_bytes` should be: with it the retained window reaches up to low water.
    pub target_bytes: u64,
    /// Stable memory at the plateau.
    pub billed_bytes: u64,
    /// Cycles a year for it.
    pub storage_cycles: u128,
    /// Cycles a year for the messages that bring the blocks.
    pub feeding_cycles: u128,
    /// Cycles a year for the timer, and for pruning.
    pub daemon_cycles: u128,
}

impl Size {
    /// The needs of a chain.
    pub fn of(workload: Workload) -> Self {
        let Workload { block_bytes, transactions, interval_secs, days, log_class, timer_interval_secs } = workload;
        // The head and what comes between two ticks stands behind the window.
        let blocks = days * DAY / interval_secs + 2 + timer_interval_secs.div_ceil(interval_secs);
        // The window starts and ends in the middle of a blob.
        let kept_bytes = (blocks * block_bytes).div_ceil(log_class) * log_class + 2 * log_class;
        let target_bytes = (kept_bytes * 10 / 8).max(21 * log_class).next_multiple_of(1 << 20);
        let billed_bytes = billed(kept_bytes, blocks, transactions, log_class);
        let mut size = Self {
            workload,
            blocks,
            kept_bytes,
            target_bytes,
            billed_bytes,
            storage_cycles: (u128::from(billed_bytes) * GIB_SECOND * YEAR) >> 30,
            feeding_cycles: 0,
            daemon_cycles: 0,
        };
        let messages = u128::from(messages(block_bytes));
        let block = messages * (MESSAGE + INGRESS + ENVELOPE * INGRESS_BYTE) + u128::from(block_bytes) * INGRESS_BYTE;
        let blocks_a_year = YEAR / u128::from(interval_secs);
        size.feeding_cycles = blocks_a_year * (block + u128::from(size.feeding_instructions()));
        let firings = YEAR / u128::from(timer_interval_secs) * FIRING;
        size.daemon_cycles = firings + blocks_a_year * u128::from(size.daemon_instructions());
        size
    }

    /// Whether a canister may have so much stable memory.
    pub fn fits(&self) -> bool {
        self.billed_bytes <= 500 << 30
    }

    /// Instructions charged for the messages that bring a block.
    pub fn feeding_instructions(&self) -> u64 {
        let Workload { block_bytes, transactions, .. } = self.workload;
        messages(block_bytes) * APPEND + block_bytes * APPEND_BYTE + transactions * APPEND_TRANSACTION
    }

    /// Instructions charged for the timer from one block to the next: idle firings, and pruning one.
    pub fn daemon_instructions(&self) -> u64 {
        let Workload { transactions, interval_secs, timer_interval_secs, .. } = self.workload;
        interval_secs * IDLE / timer_interval_secs + PRUNE + transactions * PRUNE_TRANSACTION
    }
}

/// Messages that bring a block: `append_block`, or chunks between a beginning and a commit.
fn messages(block_bytes: u64) -> u64 {
    if block_bytes <= feed::MAX_APPEND as u64 { 1 } else { block_bytes.div_ceil(u64::from(feed::CHUNK)) + 2 }
}

/// Stable memory that is grown for this much, by whole buckets of each region.
fn billed(kept_bytes: u64, blocks: u64, transactions: u64, log_class: u64) -> u64 {
    const GIB_500: u64 = 500 << 30;
    let entries = blocks * transactions;
    let regions = [
        // Cells, and the sets of free slots, sized for 500 GiB.
        1,
        GIB_500 / (64 << 10),
        kept_bytes,
        kept_bytes / (64 << 10) * 16,
        GIB_500 / log_class * 8,
        (4 << 20) + blocks.div_ceil(256) * (64 << 10),
        // 28 entries to a bucket of 512 bytes, 60 % of it used, and one bucket in ten for overflow.
        (2 << 20) + entries * 512 * 11 / (28 * 6),
        // The index of secondary keys, of which the chain has none; nor has it UTXO records.
        2 << 20,
        2 << 20,
        4 << 10,
    ];
    PAGE + regions.map(grown).iter().sum::<u64>()
}

/// Bytes of a region that grew step by step until it held so many: each time by a thirty-second part, at most 32 buckets.
fn grown(bytes: u64) -> u64 {
    let need = bytes.div_ceil(BUCKET);
    let mut have = 0;
    while have < need {
        have = (have + 1).max(have + (have / 32).min(32));
    }
    have * BUCKET
}

/// A size class of the log's blobs.
///
/// # Errors
/// When there is no such class.
pub fn log_class(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|&size| Class::of_size(size).is_some());
    size.ok_or_else(|| "64, 128, 256 or 512 KiB, 1, 2 or 4 MiB, in bytes".into())
}

/// Sizes for each of these block sizes and days.
fn sizes(args: &SizeArgs) -> Vec<Size> {
    let workload = |block_bytes: u64, days: u64| Workload {
        block_bytes,
        transactions: args.transactions.unwrap_or(block_bytes / TRANSACTION_BYTES),
        interval_secs: args.interval,
        days,
        log_class: u64::from(args.log_class),
        timer_interval_secs: args.timer_interval,
    };
    let blocks = args.block_bytes.iter();
    blocks.flat_map(|&bytes| args.days.iter().map(move |&days| Size::of(workload(bytes, days)))).collect()
}

fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 1.0 { format!("{:.0} MiB", gib * 1024.0) } else { format!("{gib:.1} GiB") }
}

fn tera(cycles: u128) -> String {
    format!("{:.1} T", cycles as f64 / 1e12)
}

/// The table.
fn table(sizes: &[Size]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "block",
        "days",
        "blocks kept",
        "kept",
        "`target_bytes`",
        "billed",
        "storage a year",
        "feeding a year",
        "daemon a year",
    ]);
    for at in sizes {
        table.add_row([
            format!("{} KiB", HumanCount(at.workload.block_bytes >> 10)),
            at.workload.days.to_string(),
            HumanCount(at.blocks).to_string(),
            size(at.kept_bytes),
            at.target_bytes.to_string(),
            if at.fits() { size(at.billed_bytes) } else { "over 500 GiB".into() },
            tera(at.storage_cycles),
            tera(at.feeding_cycles),
            tera(at.daemon_cycles),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// Prints the table, or a line of JSON for each row.
///
/// # Errors
/// When JSON cannot be written.
pub fn command(args: &SizeArgs) -> Result<()> {
    let sizes = sizes(args);
    if args.json {
        for size in &sizes {
            println!("{}", serde_json::to_string(size)?);
        }
        return Ok(());
    }
    println!("{}", table(&sizes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// The manual has what the command prints.
    #[test]
    fn the_manual_has_the_table() {
        let crate::args::Command::Size(args) = crate::args::Cli::parse_from(["coppice", "size"]).command else {
            panic!("another command")
        };
        let table = table(&sizes(&args));
        let manual = include_str!("../../docs/operations.md");
        assert!(manual.contains(&table), "docs/operations.md should have:\n{table}");
    }

    #[test]
    fn what_no_canister_holds_is_said() {
        let workload = Workload {
            block_bytes: 4 << 20,
            transactions: 8_000,
            interval_secs: 60,
            days: 365,
            log_class: 1 << 20,
            timer_interval_secs: 60,
        };
        let size = Size::of(workload);
        assert!(!size.fits() && table(&[size]).contains("over 500 GiB"));
        assert!(Size::of(Workload { days: 1, ..workload }).fits());
        assert_eq!(log_class("65536"), Ok(65_536));
        assert!(log_class("100000").is_err() && log_class("1 MiB").is_err());
    }

    #[test]
    fn a_region_grows_by_buckets_and_by_a_thirty_second_part() {
        assert_eq!(grown(0), 0);
        assert_eq!(grown(1), BUCKET);
        assert_eq!(grown(64 * BUCKET), 64 * BUCKET);
        assert_eq!(grown(65 * BUCKET), 66 * BUCKET);
        assert!(grown(30_000 * BUCKET) <= 30_032 * BUCKET);
    }
}
