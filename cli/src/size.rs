//! `coppice size`: what a chain will need of the canister: `target_bytes`, stable memory billed, cycles a year.
//!
//! Stable memory is billed for what was ever grown, so it is the plateau that costs. It follows from the retained window by
//! the canister's own constants; a test holds the prediction against a canister that was fed until it stopped growing.

use crate::args::SizeArgs;
use crate::feed;
use crate::terminal;
use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use coppice_interface::PrunePolicy;
use coppice_interface::{
    BLOCK_BYTES, BUCKET, FIRING_CYCLES, IDLE_INSTRUCTIONS, NET_SECS, RECORDS_RESERVE, REFERENCE_BYTES, SIZE_CLASSES,
    WASM_PAGE, chain_begins,
};
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
/// Instructions charged, heap pages included, for a message that appends or uploads, and for what comes
/// with bytes and transactions; for pruning a block, and for sweeping what a transaction leaves in the index (`docs/costs.md`).
/// One instruction is one cycle.
const APPEND: u64 = 125_000;
const APPEND_BYTE: u64 = 4;
const APPEND_TRANSACTION: u64 = 2_800;
const PRUNE: u64 = 65_000;
const SWEEP: u64 = 1_000;
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
    /// The least `max_stable_pages` for the target and the reserve; UTXO records come on top.
    pub max_stable_pages: u64,
    /// Cycles a year for it.
    pub storage_cycles: u128,
    /// Cycles a year for the messages that bring the blocks.
    pub feeding_cycles: u128,
    /// Cycles a year for the timer, and for pruning.
    pub daemon_cycles: u128,
    /// Ops a second that keeping up takes: blocks, blobs, and index entries.
    pub ops_per_second: f64,
    /// Whether that is more than ticks can do, so that pruning falls behind for ever.
    pub outruns_pruning: bool,
}

impl Size {
    /// The needs of a chain.
    pub fn of(workload: Workload) -> Self {
        let Workload { block_bytes, transactions, interval_secs, days, log_class, timer_interval_secs } = workload;
        // The head and what comes between two ticks stands behind the window.
        let retained = (days * DAY).div_ceil(interval_secs).max(PrunePolicy::default().min_kept_blocks);
        let blocks = retained + 2 + timer_interval_secs.div_ceil(interval_secs);
        // The window starts and ends in the middle of a blob.
        let kept_bytes = (blocks * block_bytes).div_ceil(log_class) * log_class + 2 * log_class;
        let capacity_bytes = kept_bytes + blocks * (BLOCK_BYTES + transactions * REFERENCE_BYTES);
        let target_bytes = (capacity_bytes * 10 / 8).max(21 * log_class).next_multiple_of(1 << 20);
        let billed_bytes = billed(kept_bytes, blocks, transactions, log_class);
        let mut size = Self {
            workload,
            blocks,
            kept_bytes,
            target_bytes,
            billed_bytes,
            max_stable_pages: least_pages(target_bytes, log_class),
            storage_cycles: (u128::from(billed_bytes) * GIB_SECOND * YEAR) >> 30,
            feeding_cycles: 0,
            daemon_cycles: 0,
            ops_per_second: ops(&workload),
            outruns_pruning: ops(&workload) > drain(),
        };
        let messages = u128::from(messages(block_bytes));
        let block = messages * (MESSAGE + INGRESS + ENVELOPE * INGRESS_BYTE) + u128::from(block_bytes) * INGRESS_BYTE;
        let blocks_a_year = YEAR / u128::from(interval_secs);
        size.feeding_cycles = blocks_a_year * (block + u128::from(size.feeding_instructions()));
        let firings = firings_a_second(&workload) * YEAR as f64;
        let instructions = size.pruning_instructions() as f64 * YEAR as f64 / interval_secs as f64;
        size.daemon_cycles = (firings * FIRING_CYCLES as f64 + instructions) as u128;
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

    /// Instructions charged for the timer from one block to the next: firings, pruning one, and sweeping as many references.
    pub fn daemon_instructions(&self) -> u64 {
        (self.firings() * IDLE_INSTRUCTIONS as f64) as u64 + self.pruning_instructions()
    }

    /// Instructions charged for pruning a block, and sweeping its references.
    fn pruning_instructions(&self) -> u64 {
        PRUNE + self.workload.transactions * SWEEP
    }

    /// Firings of the timer from one block to the next.
    pub fn firings(&self) -> f64 {
        firings_a_second(&self.workload) * self.workload.interval_secs as f64
    }
}

/// Firings of the timer: the net's; one that a block arms, and one that the age of the oldest block arms, where they don't come
/// faster than the interval; and those of sweeps, each of which drops as many entries as a tick may.
fn firings_a_second(workload: &Workload) -> f64 {
    let Workload { interval_secs, timer_interval_secs, .. } = *workload;
    let net = 1.0 / NET_SECS as f64;
    let armed = match timer_interval_secs {
        NET_SECS.. => 0.0,
        secs if secs > interval_secs => 1.0 / secs as f64,
        _ => 2.0 / interval_secs as f64,
    };
    net + armed + workload.transactions as f64 / interval_secs as f64 / max_ops()
}

/// Ops a second that pruning takes: 1 a block, 2 a blob that becomes free, 1 a reference.
fn ops(workload: &Workload) -> f64 {
    let Workload { block_bytes, transactions, interval_secs, log_class, .. } = *workload;
    let blobs = block_bytes as f64 / log_class as f64;
    (1.0 + 2.0 * blobs + transactions as f64) / interval_secs as f64
}

/// Ops a second that ticks can do: one tick in each round, of about a second.
fn drain() -> f64 {
    max_ops()
}

/// Ops of a tick, unless the policy says otherwise.
fn max_ops() -> f64 {
    PrunePolicy::default().max_ops_per_tick as f64
}

/// Messages that bring a block: `append_block`, or chunks between a beginning and a commit.
fn messages(block_bytes: u64) -> u64 {
    if block_bytes <= feed::MAX_APPEND as u64 { 1 } else { block_bytes.div_ceil(u64::from(feed::CHUNK)) + 2 }
}

/// The least cap with which a chain reaches its target: with what the regions of an empty canister begin with, two of them the UTXO
/// records', and their reserve. An empty canister asks for 5,120 pages.
fn least_pages(target_bytes: u64, log_class: u64) -> u64 {
    let bytes = target_bytes + chain_begins(log_class as u32) + 2 * BUCKET + RECORDS_RESERVE;
    (1 + bytes / WASM_PAGE).max(5_120)
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
        (4 << 20) + blocks.div_ceil(256) * (80 << 10),
        // 28 entries to a bucket of 512 bytes, 60 % of it used, and one bucket in ten for overflow.
        (2 << 20) + entries * 512 * 11 / (28 * 6),
        // The index of secondary keys, of which the chain has none; nor has it UTXO records.
        2 << 20,
        2 << 20,
        4 << 10,
    ];
    WASM_PAGE + regions.map(grown).iter().sum::<u64>()
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
    let size = text.parse().ok().filter(|size| SIZE_CLASSES.contains(size));
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
        "`max_stable_pages`",
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
            at.max_stable_pages.to_string(),
            if at.fits() { size(at.billed_bytes) } else { "over 500 GiB".into() },
            tera(at.storage_cycles),
            tera(at.feeding_cycles),
            tera(at.daemon_cycles),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// What is said below the table of chains that outrun pruning.
fn warnings(sizes: &[Size]) -> Vec<String> {
    let outrunning = sizes.iter().filter(|size| size.outruns_pruning);
    let warning = |size: &Size| {
        format!(
            "blocks of {} KiB outrun pruning: {} references, blocks and blobs a second, and a tick a second takes {}; the backlog grows for ever",
            HumanCount(size.workload.block_bytes >> 10),
            HumanCount(size.ops_per_second as u64),
            HumanCount(drain() as u64),
        )
    };
    let mut warnings: Vec<String> = outrunning.map(warning).collect();
    warnings.dedup();
    warnings
}

/// Prints the table, or a line of JSON for each row.
///
/// # Errors
/// When JSON cannot be written.
pub fn command(args: &SizeArgs) -> Result<()> {
    let sizes = sizes(args);
    if args.json {
        for size in &sizes {
            terminal::print(&serde_json::to_string(size)?)?;
        }
        return Ok(());
    }
    terminal::print(&table(&sizes))?;
    Ok(warnings(&sizes).iter().try_for_each(|warning| terminal::print(warning))?)
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
    fn a_feed_that_outruns_pruning_is_said() {
        let workload = |transactions, interval_secs| Workload {
            block_bytes: 4 << 20,
            transactions,
            interval_secs,
            days: 1,
            log_class: 1 << 20,
            timer_interval_secs: 60,
        };
        // 1 a block, 2 for each of four blobs, and the references: 10,000 a second are the most.
        let most = Size::of(workload(9_991, 1));
        assert!(!most.outruns_pruning && warnings(&[most]).is_empty(), "{most:?}");
        let more = Size::of(workload(9_992, 1));
        assert!(more.outruns_pruning, "{more:?}");
        assert!(!Size::of(workload(9_992, 2)).outruns_pruning);
        let said = warnings(&[more, Size { blocks: 7, ..more }, most]);
        assert!(said.len() == 1 && said[0].contains("10,001 references"), "{said:?}");
    }

    /// A block a year: the net is what it costs.
    #[test]
    fn an_idle_year_costs_less_than_a_trillion_cycles() {
        let workload = Workload {
            block_bytes: 1,
            transactions: 0,
            interval_secs: YEAR as u64,
            days: 1,
            log_class: 1 << 20,
            timer_interval_secs: 60,
        };
        let cycles = Size::of(workload).daemon_cycles;
        assert!((700_000_000_000..1_000_000_000_000).contains(&cycles), "{cycles}");
        assert_eq!(Size::of(workload).blocks, 16 + 2 + 1, "so many stay however old they are");
    }

    /// However fast blocks come, there is a firing an interval, and the net.
    #[test]
    fn blocks_that_come_fast_share_firings() {
        let workload = |interval_secs, timer_interval_secs| Workload {
            block_bytes: 1,
            transactions: 0,
            interval_secs,
            days: 1,
            log_class: 1 << 20,
            timer_interval_secs,
        };
        let an_hour = |interval, timer| (firings_a_second(&workload(interval, timer)) * 3_600.0).round();
        assert_eq!([1, 30, 600].map(|interval| an_hour(interval, 60)), [66.0, 66.0, 18.0]);
        assert_eq!(an_hour(600, 600), 6.0);
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
