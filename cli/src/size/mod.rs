//! `coppice size`: what a chain needs of the canister: `target_bytes`, billed stable memory, cycles per year.
//!
//! Stable memory is billed for its largest size so far, so the plateau determines the cost. The plateau follows from the retained window by
//! the canister's own constants; a test compares the prediction with a canister that was fed until it stopped growing.

pub mod args;
mod memory;
mod needs;
mod table;
mod workload;

pub use needs::{DAY, GIB_SECOND, SWEEP, Size};
pub use workload::Workload;

use crate::terminal;
use anyhow::Result;
use args::SizeArgs;
use needs::TRANSACTION_BYTES;

/// Returns the sizes for all combinations of block size and days.
fn sizes(args: &SizeArgs) -> Vec<Size> {
    let workload = |block_bytes: u64, days: u64| Workload {
        block_bytes,
        transactions: args.transactions.unwrap_or(block_bytes / TRANSACTION_BYTES),
        keys: args.keys,
        records: args.records,
        verify: !args.unverified,
        interval_ns: args.interval_ns,
        days,
        log_class: u64::from(args.log_class),
        timer_interval_secs: args.timer_interval_secs,
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
    use super::args::{interval_ns, log_class};
    use super::needs::{NS, YEAR, firings_a_second};
    use super::table::{table, warnings};
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser;
    use ic_coppice_interface::cycles_of_ticks;

    /// Nanoseconds of a millisecond.
    const MS: u64 = NS / 1_000;
    const CHAIN: Workload = Workload {
        block_bytes: 4 << 20,
        transactions: 8_000,
        keys: 0,
        records: 0,
        verify: true,
        interval_ns: 60 * NS,
        days: 1,
        log_class: 1 << 20,
        timer_interval_secs: 600,
    };
    /// One block per year.
    const IDLE: Workload = Workload { block_bytes: 1, transactions: 0, interval_ns: YEAR as u64 * NS, ..CHAIN };

    fn args(more: &[&str]) -> SizeArgs {
        match Cli::parse_from([&["coppice", "size"], more].concat()).command {
            Command::Size(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// The manual contains the table that the command prints.
    #[test]
    fn manual_contains_the_printed_table() {
        let table = table(&sizes(&args(&[])));
        let manual = include_str!("../../../docs/operations/sizing.md");
        assert!(manual.contains(&table), "docs/operations/sizing.md should have:\n{table}");
    }

    /// docs/reference/costs.md has the parts in a table that `coppice bench` writes.
    #[test]
    fn readme_quotes_the_cost_of_a_block() {
        let size = Size::example();
        let parts = size.of_a_block();
        let all: f64 = parts.iter().map(|(_, cycles)| cycles).sum();
        let share = |part: usize| parts[part].1 / all * 100.0;
        let readme = include_str!("../../../README.md").replace('\n', " ");
        let text = format!(
            "ingress takes {:.0} %, stable memory {:.0} %, SHA-256 of its segments {:.0} %, appending it {:.1} %, the timer {:.1} %, and \
             pruning it {:.1} %: {:.0} XDR a million blocks",
            share(0),
            share(1),
            share(2),
            share(3),
            share(4),
            share(5),
            all / 1e6
        );
        assert!(readme.contains(&text), "README.md should have: {text}");
        let year = (size.storage_cycles + size.feeding_cycles + size.daemon_cycles) as f64;
        // The yearly figures also include the safety timer, and count whole blocks.
        assert!((all * (YEAR / 15) as f64 / year - 1.0).abs() < 0.02, "{all} a block, {year} a year");
    }

    #[test]
    fn deploy_page_quotes_its_size_deposit_and_target() {
        let sizes = sizes(&args(&["--block-bytes", "200000", "--transactions", "400", "--days", "30"]));
        let page = include_str!("../../../docs/operations/deploy.md");
        let deposit = sizes[0].deposit_cycles.div_ceil(1_000_000_000_000);
        let target = crate::report::count(sizes[0].target_bytes).replace(',', "_");
        for part in [
            table(&sizes),
            format!("needs when it is created: {deposit} T cycles here"),
            format!("icp cycles mint --cycles {}t -n ic", deposit + 1),
            format!("icp deploy -e production --cycles {deposit}t"),
            format!("--with-cycles {deposit}000000000000"),
            format!("target_bytes = opt {target} "),
        ] {
            assert!(page.contains(&part), "docs/operations/deploy.md should have:\n{part}");
        }
    }

    #[test]
    fn size_beyond_500_gib_is_reported() {
        let size = Size::of(Workload { days: 365, ..CHAIN });
        assert!(!size.fits() && table(&[size]).contains("over 500 GiB"));
        assert!(Size::of(CHAIN).fits());
        // The largest inputs overflow nothing.
        let largest = Workload {
            block_bytes: 256 << 20,
            transactions: 100_000,
            keys: 1_000_000,
            records: 1_000_000_000_000,
            interval_ns: MS,
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
    fn interval_is_parsed_to_nanoseconds() {
        assert_eq!(
            ["600", "0.25", "0.001", "864000"].map(interval_ns),
            [600_000, 250, 1, 864_000_000].map(|ms| Ok(ms * MS))
        );
        for bad in ["0", "-1", "0.0004", "864000.001", "a", "", "NaN", "inf"] {
            assert!(interval_ns(bad).is_err(), "{bad}");
        }
        assert_eq!((args(&[]).interval_ns, args(&["--interval-secs", "0.5"]).interval_ns), (600 * NS, NS / 2));
        // Four blocks per second keep four times as many blocks as one.
        let of = |ms| Size::of(Workload { block_bytes: 1_000, transactions: 2, interval_ns: ms * MS, ..CHAIN });
        assert_eq!((of(1_000).blocks, of(250).blocks), (86_400 + 2 + 600, 4 * 86_400 + 2 + 2_400));
        assert_eq!(of(250).feeding_cycles / 1_000_000, 4 * of(1_000).feeding_cycles / 1_000_000);
    }

    /// Each option has its price, and costs nothing if it is not chosen.
    #[test]
    fn verification_keys_records_and_feeding_have_their_prices() {
        let chain = Workload { block_bytes: 200_000, transactions: 400, interval_ns: 600 * NS, days: 30, ..CHAIN };
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

        // A byte from outside costs 2,000 and a message 1.2 M; a calling canister pays 1,000 and 0.26 M.
        let saved = blocks * (200_000 * 1_000 + 310 * 2_000 + 1_200_000 - 260_000);
        assert_eq!(plain.feeding_cycles - plain.calling_cycles, saved);
        let year = (plain.storage_cycles + plain.feeding_cycles + plain.daemon_cycles) as f64 / 1e12;
        assert!((plain.xdr - year).abs() < 1e-9);
        // The deposit creates the canister, keeps it from freezing, and feeds it for 30 days.
        let least = 500_000_000_000 + plain.storage_cycles * 180 / 365 + plain.feeding_cycles * 30 / 365;
        assert!((least..least + 2_000_000_000_000).contains(&plain.deposit_cycles), "{plain:?}");
    }

    /// A deposit leaves what an upgrade needs after its 30 days, and with a snapshot, too, if the freezing threshold is halved first.
    #[test]
    fn deposit_pays_for_an_upgrade_and_half_the_threshold_for_its_snapshot() {
        let chain = Workload { interval_ns: 600 * NS, days: 30, ..CHAIN };
        for records in [0, 1_000_000_000] {
            let size = Size::of(Workload { records, ..chain });
            let half_a_year = size.storage_cycles * 180 / 365;
            let spent = 500_000_000_000
                + (size.storage_cycles + size.feeding_cycles + size.daemon_cycles) * 30 / 365
                + cycles_of_ticks(600, 30 * DAY, 13);
            let liquid = size.deposit_cycles - spent - half_a_year;
            assert!(liquid > size.upgrade_cycles && size.upgrade_cycles > 310_000_000_000, "{liquid}: {size:?}");
            // The storage of a snapshot for 180 days is a multiple of what is left.
            let snapshot = size.snapshot_cycles - half_a_year;
            assert!(size.snapshot_cycles > 10 * liquid, "{liquid}: {size:?}");
            // With a threshold of 90 days the canister and its snapshot need what the canister alone needs with 180 days.
            let feeding_stopped = liquid + cycles_of_ticks(600, 30 * DAY, 13);
            assert!(snapshot <= feeding_stopped, "{snapshot}, {feeding_stopped}: {size:?}");
        }
    }

    #[test]
    fn feed_that_outruns_pruning_is_reported() {
        let workload = |transactions, ms| Workload { transactions, interval_ns: ms * MS, ..CHAIN };
        // Ops: 1 per block, 2 for each of four blobs, and 1 per reference; at most 200,000 a second.
        let most = Size::of(workload(199_991, 1_000));
        assert!(!most.outruns_pruning && warnings(&[most]).is_empty(), "{most:?}");
        let more = Size::of(workload(199_992, 1_000));
        assert!(more.outruns_pruning, "{more:?}");
        assert!(!Size::of(workload(199_992, 2_000)).outruns_pruning);
        assert!(Size::of(Workload { keys: 199_992, ..workload(0, 1_000) }).outruns_pruning);
        let shown = warnings(&[more, Size { blocks: 7, ..more }, most]);
        assert!(shown.len() == 1 && shown[0].contains("200,001 references"), "{shown:?}");
    }

    /// An idle canister pays only for the safety timer and storage.
    #[test]
    fn an_idle_year_costs_less_than_a_trillion_cycles() {
        let cycles = Size::of(IDLE).daemon_cycles;
        assert!((700_000_000_000..1_000_000_000_000).contains(&cycles), "{cycles}");
        assert_eq!(Size::of(IDLE).blocks, 16 + 2 + 1, "this many blocks are kept at any age");
    }

    /// However fast blocks come, the timer fires once per interval, besides the safety timer.
    #[test]
    fn fast_blocks_share_timer_firings() {
        let workload = |ms, timer_interval_secs| Workload { interval_ns: ms * MS, timer_interval_secs, ..IDLE };
        let an_hour = |ms, timer| (firings_a_second(&workload(ms, timer)) * 3_600.0).round();
        assert_eq!([100, 1_000, 30_000, 600_000].map(|interval| an_hour(interval, 60)), [66.0, 66.0, 66.0, 18.0]);
        assert_eq!(an_hour(600_000, 600), 6.0);
    }
}
