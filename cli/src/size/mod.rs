//! `coppice size`: what a chain will need of the canister: `target_bytes`, stable memory billed, cycles a year.
//!
//! Stable memory is billed for what was ever grown, so it is the plateau that costs. It follows from the retained window by
//! the canister's own constants; a test holds the prediction against a canister that was fed until it stopped growing.

mod memory;
mod table;

use crate::args::SizeArgs;
use crate::feed;
use crate::terminal;
use anyhow::Result;
use coppice_interface::{
    BLOCK_BYTES, Config, FIRING_CYCLES, NET_SECS, PrunePolicy, REFERENCE_BYTES, SIZE_CLASSES, cycles_of_ticks,
};
use serde::Serialize;

/// Seconds of a day and of a year.
pub const DAY: u64 = 86_400;
const YEAR: u128 = 365 * 86_400;
/// Prices of the platform on a subnet of 13 nodes, in cycles (`docs/operations.md`).
pub const GIB_SECOND: u128 = 127_000;
const MESSAGE: u128 = 5_000_000;
const INGRESS: u128 = 1_200_000;
const INGRESS_BYTE: u128 = 2_000;
/// Fees of a canister that calls another one: for a call, and for each byte of the argument.
const CALL: u128 = 260_000;
const CALL_BYTE: u128 = 1_000;
/// Fee for creating a canister.
const CREATION: u128 = 500_000_000_000;
/// Days for which the freezing threshold of production keeps storage paid (`icp.yaml`), and for which a deposit pays for all else.
const FREEZING_DAYS: u128 = 180;
const DEPOSIT_DAYS: u128 = 30;
/// Bytes of a message's envelope beside the argument: 150 and the method's name, 145 for an Ed25519 key, its signature and an
/// agent's longer nonce.
const ENVELOPE: u128 = 310;
/// Instructions charged, heap pages included, for a message that appends or uploads, and for what comes
/// with bytes, transactions and secondary keys; for comparing segments with their digests, a block and a byte; for pruning a block, and for
/// sweeping what a transaction or key leaves in the index (`docs/costs.md`). One instruction is one cycle.
const APPEND: u64 = 125_000;
const APPEND_BYTE: u64 = 4;
const APPEND_TRANSACTION: u64 = 2_800;
const APPEND_KEY: u64 = 3_200;
const VERIFY: u64 = 30_000;
const VERIFY_BYTE: u64 = 76;
/// Instructions charged for a firing of the timer that has nothing to do, including the sample that it takes.
const IDLE_FIRING: u64 = 80_000;
const PRUNE: u64 = 50_000;
/// Instructions charged for sweeping one reference.
pub const SWEEP: u64 = 1_000;
/// Instructions charged for the UTXO record of a transaction with two outputs: creating it, spending its inputs' outputs and setting
/// it as mined; and pruning it.
const RECORD: u64 = 100_000;
const PRUNE_RECORD: u64 = 30_000;
/// Bytes that come for it beside its transaction: what creates it, two spends, and what sets it as mined. Its bytes of stable memory.
const RECORD_MESSAGE_BYTES: u64 = 370;
const RECORD_BYTES: u64 = 500;
/// Bytes of a transaction in the table of the manual.
const TRANSACTION_BYTES: u64 = 500;

/// A chain, and how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Payload of a block in bytes: body, receipts and index.
    pub block_bytes: u64,
    /// Transactions of a block.
    pub transactions: u64,
    /// Secondary keys of a block, each another one.
    pub keys: u64,
    /// UTXO records kept at a time; unless 0, each transaction creates one.
    pub records: u64,
    /// True if segments are compared with their digests.
    pub verify: bool,
    /// Milliseconds between two blocks.
    pub interval_ms: u64,
    /// Days for which blocks are retained.
    pub days: u64,
    /// Bytes of a blob of the log.
    pub log_class: u64,
    /// Seconds between two ticks of the daemon.
    pub timer_interval_secs: u64,
}

/// The needs of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// The chain that has these needs.
    #[serde(flatten)]
    pub workload: Workload,
    /// Blocks that are kept at the most.
    pub blocks: u64,
    /// Class bytes of their blobs.
    pub kept_bytes: u64,
    /// The recommended `target_bytes`, with which the retained window reaches up to low water.
    pub target_bytes: u64,
    /// Stable memory at the plateau.
    pub billed_bytes: u64,
    /// The least `max_stable_pages` for the target, the records and the reserve.
    pub max_stable_pages: u64,
    /// Cycles to deploy with: they make the canister, keep the plateau above the freezing threshold, and pay for 30 days before feeding is refused.
    pub deposit_cycles: u128,
    /// Cycles a year for stable memory.
    pub storage_cycles: u128,
    /// Cycles a year for the messages that bring the blocks, and what makes records, from outside.
    pub feeding_cycles: u128,
    /// Cycles a year for the same messages from a canister, including that canister's fees for its calls.
    pub calling_cycles: u128,
    /// Cycles a year for the timer, and for pruning.
    pub daemon_cycles: u128,
    /// Cost of a year in XDR if the chain is fed from outside; 1 XDR is 1 T cycles.
    pub xdr: f64,
    /// Ops a second that pruning needs to keep up: blocks, blobs, and index entries.
    pub ops_per_second: f64,
    /// True if `ops_per_second` is more than ticks can do, so that pruning falls behind for ever.
    pub outruns_pruning: bool,
}

impl Size {
    /// The needs of a chain.
    pub fn of(workload: Workload) -> Self {
        let Workload { block_bytes, transactions, keys, records, interval_ms, days, log_class, .. } = workload;
        // The head and what comes between two ticks stands behind the window.
        let retained = (days * DAY * 1_000).div_ceil(interval_ms).max(PrunePolicy::default().min_kept_blocks);
        let blocks = retained + 2 + (workload.timer_interval_secs * 1_000).div_ceil(interval_ms);
        let references = transactions + keys;
        // A count of more blocks than any canister holds is cut down to this one.
        let counted = blocks.min(memory::FAR_TOO_MUCH / (block_bytes + BLOCK_BYTES + references * REFERENCE_BYTES));
        // The window starts and ends in the middle of a blob.
        let kept_bytes = (counted * block_bytes).div_ceil(log_class) * log_class + 2 * log_class;
        let capacity_bytes = kept_bytes + counted * (BLOCK_BYTES + references * REFERENCE_BYTES);
        let target_bytes = (capacity_bytes * 10 / 8).max(21 * log_class).next_multiple_of(1 << 20);
        let billed_bytes = memory::billed(&workload, kept_bytes, counted);
        let mut size = Self {
            workload,
            blocks,
            kept_bytes,
            target_bytes,
            billed_bytes,
            max_stable_pages: memory::least_pages(target_bytes, log_class, records),
            deposit_cycles: 0,
            storage_cycles: (u128::from(billed_bytes) * GIB_SECOND * YEAR) >> 30,
            feeding_cycles: 0,
            calling_cycles: 0,
            daemon_cycles: 0,
            xdr: 0.0,
            ops_per_second: ops(&workload),
            outruns_pruning: ops(&workload) > drain(),
        };
        let a_year = |cycles: u128| cycles * YEAR * 1_000 / u128::from(interval_ms);
        let executed = size.messages() * MESSAGE + u128::from(size.feeding_instructions());
        let bytes = size.bytes_in() + size.messages() * ENVELOPE;
        size.feeding_cycles = a_year(executed + size.messages() * INGRESS + bytes * INGRESS_BYTE);
        size.calling_cycles = a_year(executed + size.messages() * CALL + size.bytes_in() * CALL_BYTE);
        let firings = firings_a_second(&workload) * YEAR as f64;
        let instructions = size.pruning_instructions() as f64 * YEAR as f64 / workload.interval_secs();
        size.daemon_cycles = (firings * FIRING_CYCLES as f64 + instructions) as u128;
        let a_year = size.storage_cycles + size.feeding_cycles + size.daemon_cycles;
        let of_days = |cycles: u128, days: u128| cycles * days / 365;
        let left = Config::default().min_liquid_cycles
            + cycles_of_ticks(workload.timer_interval_secs, DEPOSIT_DAYS as u64 * DAY, 13);
        size.deposit_cycles =
            CREATION + left + of_days(size.storage_cycles, FREEZING_DAYS) + of_days(a_year, DEPOSIT_DAYS);
        size.xdr = a_year as f64 / 1e12;
        size
    }

    /// Returns the workload that the pages quote: blocks as the demonstration has them, kept for 30 days.
    pub fn example() -> Self {
        Self::of(Workload {
            block_bytes: 177_000,
            transactions: 318,
            keys: 0,
            records: 0,
            verify: true,
            interval_ms: 15_000,
            days: 30,
            log_class: 1 << 20,
            timer_interval_secs: 60,
        })
    }

    /// Returns whether a canister may have this much stable memory.
    pub fn fits(&self) -> bool {
        self.billed_bytes <= 500 << 30
    }

    /// Bytes of the arguments that bring a block, and what makes its records.
    fn bytes_in(&self) -> u128 {
        let Workload { block_bytes, transactions, records, .. } = self.workload;
        let beside = if records > 0 { transactions * (TRANSACTION_BYTES + RECORD_MESSAGE_BYTES) } else { 0 };
        u128::from(block_bytes) + u128::from(beside)
    }

    /// Messages that bring a block, and what makes its records: batches of creations, spends and mined transactions.
    fn messages(&self) -> u128 {
        let Workload { block_bytes, transactions, records, .. } = self.workload;
        let batches = if records > 0 && transactions > 0 {
            3 * (transactions * (TRANSACTION_BYTES + RECORD_MESSAGE_BYTES)).div_ceil(feed::MAX_APPEND as u64)
        } else {
            0
        };
        u128::from(messages(block_bytes) + batches)
    }

    /// Instructions charged for the messages that bring a block.
    pub fn feeding_instructions(&self) -> u64 {
        let Workload { block_bytes, transactions, keys, records, verify, .. } = self.workload;
        let verified = if verify { VERIFY + block_bytes * VERIFY_BYTE } else { 0 };
        let records = if records > 0 { transactions * RECORD } else { 0 };
        let entered = transactions * APPEND_TRANSACTION + keys * APPEND_KEY;
        messages(block_bytes) * APPEND + block_bytes * APPEND_BYTE + entered + verified + records
    }

    /// Instructions charged for the timer from one block to the next: firings, pruning one, and sweeping as many references.
    pub fn daemon_instructions(&self) -> u64 {
        (self.firings() * IDLE_FIRING as f64) as u64 + self.pruning_instructions()
    }

    /// Instructions charged for pruning a block, sweeping its references, and pruning as many records as it made.
    fn pruning_instructions(&self) -> u64 {
        let Workload { transactions, keys, records, .. } = self.workload;
        let records = if records > 0 { transactions * PRUNE_RECORD } else { 0 };
        PRUNE + (transactions + keys) * SWEEP + records
    }

    /// Firings of the timer from one block to the next.
    pub fn firings(&self) -> f64 {
        firings_a_second(&self.workload) * self.workload.interval_secs()
    }

    /// Returns the cycles that one block costs from append to pruning, by purpose.
    pub fn of_a_block(&self) -> [(&'static str, f64); 6] {
        let Workload { block_bytes, days, verify, .. } = self.workload;
        let verified = if verify { VERIFY + block_bytes * VERIFY_BYTE } else { 0 };
        let bytes = self.messages() * (INGRESS + ENVELOPE * INGRESS_BYTE) + self.bytes_in() * INGRESS_BYTE;
        let executed = self.messages() * MESSAGE + u128::from(self.feeding_instructions() - verified);
        let storage = self.storage_cycles as f64 * days as f64 / 365.0 / self.blocks as f64;
        [
            ("bringing its bytes in", bytes as f64),
            ("stable memory", storage),
            ("SHA-256 of its segments", verified as f64),
            ("its messages, and appending it", executed as f64),
            ("firings of the timer", self.firings() * FIRING_CYCLES as f64),
            ("pruning it, and sweeping its index entries", self.pruning_instructions() as f64),
        ]
    }
}

impl Workload {
    /// Seconds between two blocks.
    fn interval_secs(&self) -> f64 {
        self.interval_ms as f64 / 1_000.0
    }
}

/// Firings of the timer: the net's; one that a block arms, and one that the age of the oldest block arms, where they don't come
/// faster than the interval; and those of sweeps, each of which drops as many entries as a tick may.
fn firings_a_second(workload: &Workload) -> f64 {
    let interval = workload.interval_secs();
    let net = 1.0 / NET_SECS as f64;
    let armed = match workload.timer_interval_secs {
        NET_SECS.. => 0.0,
        secs if secs as f64 > interval => 1.0 / secs as f64,
        _ => 2.0 / interval,
    };
    net + armed + (workload.transactions + workload.keys) as f64 / interval / max_ops()
}

/// Ops a second that pruning takes: 1 a block, 2 a blob that becomes free, 1 a reference.
fn ops(workload: &Workload) -> f64 {
    let Workload { block_bytes, transactions, keys, log_class, .. } = *workload;
    let blobs = block_bytes as f64 / log_class as f64;
    (1.0 + 2.0 * blobs + (transactions + keys) as f64) / workload.interval_secs()
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

/// A size class of the log's blobs.
///
/// # Errors
/// When there is no such class.
pub fn log_class(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| SIZE_CLASSES.contains(size));
    size.ok_or_else(|| "64, 128, 256 or 512 KiB, 1, 2 or 4 MiB, in bytes".into())
}

/// Milliseconds of a number of seconds, which may have three decimals.
///
/// # Errors
/// When it is no number, below 0.001 or above 864,000.
pub fn interval(text: &str) -> Result<u64, String> {
    let millis = text.parse::<f64>().map_or(0.0, |secs| secs * 1_000.0).round();
    if (1.0..=864_000_000.0).contains(&millis) {
        Ok(millis as u64)
    } else {
        Err("seconds from 0.001 to 864000, with three decimals at most".into())
    }
}

/// Sizes for each of these block sizes and days.
fn sizes(args: &SizeArgs) -> Vec<Size> {
    let workload = |block_bytes: u64, days: u64| Workload {
        block_bytes,
        transactions: args.transactions.unwrap_or(block_bytes / TRANSACTION_BYTES),
        keys: args.keys,
        records: args.records,
        verify: !args.unverified,
        interval_ms: args.interval,
        days,
        log_class: u64::from(args.log_class),
        timer_interval_secs: args.timer_interval,
    };
    let blocks = args.block_bytes.iter();
    blocks.flat_map(|&bytes| args.days.iter().map(move |&days| Size::of(workload(bytes, days)))).collect()
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
    terminal::print(&table::table(&sizes))?;
    Ok(table::warnings(&sizes).iter().try_for_each(|warning| terminal::print(warning))?)
}

#[cfg(test)]
mod tests {
    use super::table::{table, warnings};
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    const CHAIN: Workload = Workload {
        block_bytes: 4 << 20,
        transactions: 8_000,
        keys: 0,
        records: 0,
        verify: true,
        interval_ms: 60_000,
        days: 1,
        log_class: 1 << 20,
        timer_interval_secs: 60,
    };
    /// A block a year.
    const IDLE: Workload = Workload { block_bytes: 1, transactions: 0, interval_ms: YEAR as u64 * 1_000, ..CHAIN };

    fn args(more: &[&str]) -> SizeArgs {
        match Cli::parse_from([&["coppice", "size"], more].concat()).command {
            Command::Size(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// The manual has what the command prints.
    #[test]
    fn the_manual_has_the_table() {
        let table = table(&sizes(&args(&[])));
        let manual = include_str!("../../../docs/operations.md");
        assert!(manual.contains(&table), "docs/operations.md should have:\n{table}");
    }

    /// docs/costs.md has the parts in a table that `coppice bench` writes.
    #[test]
    fn readme_has_what_a_block_costs() {
        let size = Size::example();
        let parts = size.of_a_block();
        let all: f64 = parts.iter().map(|(_, cycles)| cycles).sum();
        let share = |part: usize| parts[part].1 / all * 100.0;
        let readme = include_str!("../../../README.md").replace('\n', " ");
        let said = format!(
            "bringing its bytes in takes {:.0} %, stable memory {:.0} %, SHA-256 of its segments {:.0} %, appending it {:.1} %, the timer {:.0} %, and \
             pruning it {:.1} %: {:.0} XDR a million blocks",
            share(0),
            share(1),
            share(2),
            share(3),
            share(4),
            share(5),
            all / 1e6
        );
        assert!(readme.contains(&said), "README.md should have: {said}");
        let year = (size.storage_cycles + size.feeding_cycles + size.daemon_cycles) as f64;
        // The timer's net and whole blocks are a year's, too.
        assert!((all * (YEAR / 15) as f64 / year - 1.0).abs() < 0.02, "{all} a block, {year} a year");
    }

    #[test]
    fn the_page_of_the_first_deployment_has_its_size_deposit_and_target() {
        let sizes = sizes(&args(&["--block-bytes", "200000", "--transactions", "400", "--days", "30"]));
        let page = include_str!("../../../docs/deploy.md");
        let deposit = sizes[0].deposit_cycles.div_ceil(1_000_000_000_000);
        let target = crate::report::count(sizes[0].target_bytes).replace(',', "_");
        for part in [
            table(&sizes),
            format!("is to have when it is made: {deposit} T cycles here"),
            format!("icp cycles mint --cycles {}t -n ic", deposit + 1),
            format!("icp deploy -e production --cycles {deposit}t"),
            format!("--with-cycles {deposit}000000000000"),
            format!("target_bytes = opt {target} "),
        ] {
            assert!(page.contains(&part), "docs/deploy.md should have:\n{part}");
        }
    }

    #[test]
    fn what_no_canister_holds_is_said() {
        let size = Size::of(Workload { days: 365, ..CHAIN });
        assert!(!size.fits() && table(&[size]).contains("over 500 GiB"));
        assert!(Size::of(CHAIN).fits());
        // The largest of everything: nothing overflows.
        let largest = Workload {
            block_bytes: 256 << 20,
            transactions: 100_000,
            keys: 1_000_000,
            records: 1_000_000_000_000,
            interval_ms: 1,
            days: 36_500,
            log_class: 64 << 10,
            timer_interval_secs: 86_400,
            ..CHAIN
        };
        let size = Size::of(largest);
        assert!(!size.fits() && size.outruns_pruning && size.blocks > 3_000_000_000_000, "{size:?}");
        assert_eq!(log_class("65536"), Ok(65_536));
        assert!(log_class("100000").is_err() && log_class("1 MiB").is_err());
    }

    #[test]
    fn an_interval_has_milliseconds() {
        assert_eq!(["600", "0.25", "0.001", "864000"].map(interval), [600_000, 250, 1, 864_000_000].map(Ok));
        for bad in ["0", "-1", "0.0004", "864000.001", "a", "", "NaN", "inf"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
        assert_eq!((args(&[]).interval, args(&["--interval", "0.5"]).interval), (600_000, 500));
        // Four blocks a second are four times as many as one.
        let of = |interval_ms| Size::of(Workload { block_bytes: 1_000, transactions: 2, interval_ms, ..CHAIN });
        assert_eq!((of(1_000).blocks, of(250).blocks), (86_400 + 2 + 60, 4 * 86_400 + 2 + 240));
        assert_eq!(of(250).feeding_cycles / 1_000_000, 4 * of(1_000).feeding_cycles / 1_000_000);
    }

    /// Each option costs what it should, and nothing where it is not chosen.
    #[test]
    fn verification_keys_records_and_the_way_of_feeding_have_their_prices() {
        let chain = Workload { block_bytes: 200_000, transactions: 400, interval_ms: 600_000, days: 30, ..CHAIN };
        let plain = Size::of(chain);
        let blocks = 52_560;
        let unverified = Size::of(Workload { verify: false, ..chain });
        assert_eq!(plain.feeding_cycles - unverified.feeding_cycles, blocks * (30_000 + 76 * 200_000));
        assert_eq!((plain.billed_bytes, plain.daemon_cycles), (unverified.billed_bytes, unverified.daemon_cycles));

        let keyed = Size::of(Workload { keys: 4_000, ..chain });
        assert_eq!(keyed.feeding_cycles - plain.feeding_cycles, blocks * 4_000 * 3_200);
        assert!(keyed.billed_bytes > plain.billed_bytes + blocks as u64 / 365 * 30 * 4_000 * 31, "{keyed:?}");
        assert!(keyed.target_bytes > plain.target_bytes && keyed.daemon_cycles > plain.daemon_cycles);

        let records = Size::of(Workload { records: 1_000_000, ..chain });
        assert!(records.billed_bytes > plain.billed_bytes + 500_000_000, "{records:?}");
        assert_eq!(records.max_stable_pages - plain.max_stable_pages, 7_630);
        assert_eq!((records.target_bytes, records.kept_bytes), (plain.target_bytes, plain.kept_bytes));
        let executed = blocks * 400 * 100_000;
        assert!(
            records.feeding_cycles > plain.feeding_cycles + executed && records.daemon_cycles > plain.daemon_cycles
        );

        // From outside a byte costs 2,000 and a message 1.2 M; a canister that calls pays 1,000 and 0.26 M.
        let saved = blocks * (200_000 * 1_000 + 310 * 2_000 + 1_200_000 - 260_000);
        assert_eq!(plain.feeding_cycles - plain.calling_cycles, saved);
        let year = (plain.storage_cycles + plain.feeding_cycles + plain.daemon_cycles) as f64 / 1e12;
        assert!((plain.xdr - year).abs() < 1e-9);
        // The deposit creates the canister, keeps it from freezing, and feeds it for 30 days.
        let least = 500_000_000_000 + plain.storage_cycles * 180 / 365 + plain.feeding_cycles * 30 / 365;
        assert!((least..least + 2_000_000_000_000).contains(&plain.deposit_cycles), "{plain:?}");
    }

    #[test]
    fn a_feed_that_outruns_pruning_is_said() {
        let workload = |transactions, interval_ms| Workload { transactions, interval_ms, ..CHAIN };
        // 1 a block, 2 for each of four blobs, and the references: 10,000 a second are the most.
        let most = Size::of(workload(9_991, 1_000));
        assert!(!most.outruns_pruning && warnings(&[most]).is_empty(), "{most:?}");
        let more = Size::of(workload(9_992, 1_000));
        assert!(more.outruns_pruning, "{more:?}");
        assert!(!Size::of(workload(9_992, 2_000)).outruns_pruning);
        assert!(Size::of(Workload { keys: 9_992, ..workload(0, 1_000) }).outruns_pruning);
        let said = warnings(&[more, Size { blocks: 7, ..more }, most]);
        assert!(said.len() == 1 && said[0].contains("10,001 references"), "{said:?}");
    }

    /// The net is what an idle canister costs.
    #[test]
    fn an_idle_year_costs_less_than_a_trillion_cycles() {
        let cycles = Size::of(IDLE).daemon_cycles;
        assert!((700_000_000_000..1_000_000_000_000).contains(&cycles), "{cycles}");
        assert_eq!(Size::of(IDLE).blocks, 16 + 2 + 1, "so many stay however old they are");
    }

    /// However fast blocks come, there is a firing an interval, and the net.
    #[test]
    fn blocks_that_come_fast_share_firings() {
        let workload = |interval_ms, timer_interval_secs| Workload { interval_ms, timer_interval_secs, ..IDLE };
        let an_hour = |interval_ms, timer| (firings_a_second(&workload(interval_ms, timer)) * 3_600.0).round();
        assert_eq!([100, 1_000, 30_000, 600_000].map(|interval| an_hour(interval, 60)), [66.0, 66.0, 66.0, 18.0]);
        assert_eq!(an_hour(600_000, 600), 6.0);
    }
}
