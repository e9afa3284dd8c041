//! Clocks that stand still or jump, and chains whose timestamps are of any year. Retention by age uses the chain's monotonic time; the lag
//! of an exporter uses the clock alone.

use coppice_tests::blocks::{hash, plain};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_host::Limits;
use ic_coppice_interface::*;
use std::time::Duration;

const DAY: u64 = 86_400;
const NS: u64 = 1_000_000_000;
/// The timestamp of Bitcoin's first block.
const IN_2009: u64 = 1_231_006_505;
const TIMES: [u64; 5] = [0, IN_2009, 4_000_000_000, 1 << 40, u64::MAX];

fn at(number: u64, timestamp_secs: u64) -> AppendBlock {
    AppendBlock { timestamp_secs, ..plain(number, 1, 10) }
}

fn a_day() -> PrunePolicyArg {
    PrunePolicyArg { retain_days: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() }
}

fn pruned_before(coppice: &Coppice) -> u64 {
    coppice.prune_status().pruned_before_block
}

/// The status of the exporter, and the clock in seconds.
fn exporter(coppice: &Coppice) -> (ExporterStatus, u64) {
    let health: Health = coppice.anyone().health().answer();
    (coppice.export_status().exporters[0].clone(), health.time_ns / NS)
}

/// Asserts that the exporter's lag counts by the clock from its last acknowledgement or its registration. Returns the lag.
fn lags_by_the_clock(coppice: &Coppice, what: &str) -> u64 {
    let (status, now) = exporter(coppice);
    let since = status.acknowledged_at_ns.unwrap_or(status.registered_at_ns) / NS;
    assert!(status.lag_secs.abs_diff(now - since) <= 5, "{what}: {status:?} at {now}");
    status.lag_secs
}

#[test]
fn exporter_lag_uses_the_clock_and_not_block_timestamps() {
    for time in TIMES {
        let what = format!("blocks of {time}");
        let coppice = Coppice::new();
        coppice.register(Who::Exporter);
        coppice.set_policy(a_day()).unwrap();
        coppice.pass(1_000);
        assert_eq!(exporter(&coppice).0.lag_secs, 0, "{what}: no block waits");
        coppice.append(&at(0, time)).unwrap();
        coppice.append(&at(1, time)).unwrap();
        let lag = lags_by_the_clock(&coppice, &what);
        assert!((1_000..1_100).contains(&lag), "{what}: {lag}");
        coppice.pass(30 * DAY);
        let lag = lags_by_the_clock(&coppice, &what);
        assert!((30 * DAY..30 * DAY + 2_000).contains(&lag), "{what}: {lag}");
        assert_eq!(pruned_before(&coppice), 0, "{what}: the exporter holds them");
        coppice.ack(Who::Exporter, 0, &hash(0)).unwrap();
        assert!(lags_by_the_clock(&coppice, &what) < 60, "{what}");
        coppice.pass(500);
        assert!((500..600).contains(&lags_by_the_clock(&coppice, &what)), "{what}");
        coppice.ack(Who::Exporter, 1, &hash(1)).unwrap();
        coppice.pass(30 * DAY);
        assert_eq!(exporter(&coppice).0.lag_secs, 0, "{what}: nothing waits");
        assert_eq!(pruned_before(&coppice), 1, "{what}: all except the head");
        // The lag of a new block counts from the last acknowledgement.
        coppice.append(&at(2, time)).unwrap();
        assert!(lags_by_the_clock(&coppice, &what) >= 30 * DAY, "{what}");
    }
}

#[test]
fn retention_by_age_uses_monotonic_time() {
    // A timestamp in the future counts as the time of the append.
    for time in [4_000_000_000, u64::MAX] {
        let coppice = Coppice::new();
        coppice.set_policy(a_day()).unwrap();
        (0..5).for_each(|number| coppice.append(&at(number, time)).unwrap());
        coppice.settle(DAY - 1_000);
        assert_eq!(pruned_before(&coppice), 0, "{time}");
        coppice.append(&at(5, time)).unwrap();
        coppice.settle(2_000);
        assert_eq!(pruned_before(&coppice), 5, "{time}: the later block is young");
        coppice.append(&at(6, 0)).unwrap();
        coppice.settle(2_000);
        assert_eq!(pruned_before(&coppice), 5, "{time}: no older than the previous block, despite its timestamp");
        coppice.settle(30 * DAY);
        assert_eq!((pruned_before(&coppice), coppice.head()), (6, Some(6)), "{time}: a jump of 30 days");
    }
    // A timestamp in the past counts as it is.
    for time in [0, IN_2009] {
        let coppice = Coppice::new();
        coppice.set_policy(a_day()).unwrap();
        (0..5).for_each(|number| coppice.append(&at(number, time)).unwrap());
        coppice.settle(60);
        assert_eq!(pruned_before(&coppice), 4, "{time}");
        // After one block with the current time, no later block can be older than that.
        coppice.append(&at(5, u64::MAX)).unwrap();
        (6..9).for_each(|number| coppice.append(&at(number, time)).unwrap());
        coppice.settle(DAY / 2);
        assert_eq!(pruned_before(&coppice), 5, "{time}");
        coppice.settle(DAY);
        assert_eq!(pruned_before(&coppice), 8, "{time}");
    }
}

/// The clock of an idle subnet, and of a stopped canister. Only the embedded host can hold the clock still.
#[test]
fn a_clock_that_stands_still_and_then_jumps_changes_nothing_but_ages() {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.set_limits(Limits { round_duration: Duration::ZERO, ..Limits::default() });
    coppice.register(Who::Exporter);
    coppice.set_policy(a_day()).unwrap();
    let start = exporter(&coppice).1;
    for number in 0..50 {
        coppice.append(&at(number, start + number * 600)).unwrap();
        coppice.ic.tick();
    }
    let (status, now) = exporter(&coppice);
    assert_eq!((status.lag_secs, status.lag_blocks, now), (0, 50, start));
    let header: Result<BlockHeader, ReadError> =
        coppice.anyone().get_block_headers(49u64, 49u64).answer().map(|mut page| page.headers.remove(0));
    assert_eq!(header.unwrap().monotonic_timestamp_secs, start, "no later than the clock");
    assert_eq!((pruned_before(&coppice), coppice.prune_status().need_prune), (0, false));
    coppice.ack(Who::Exporter, 29, &hash(29)).unwrap();
    coppice.upgrade();
    host.set_limits(Limits::default());
    coppice.settle(30 * DAY);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (30, Some(HeldBy::Exporter(Who::Exporter.name()))));
    assert!((30 * DAY..30 * DAY + 1_000).contains(&lags_by_the_clock(&coppice, "jumped")));
    coppice.ack(Who::Exporter, 49, &hash(49)).unwrap();
    coppice.settle(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.faults), (49, 0));
    assert_eq!(status.skipped, Vec::<String>::new(), "nothing has trapped: it was the clock");
    let health: Health = coppice.anyone().health().answer();
    assert!(health.healthy, "{health:?}");
}
