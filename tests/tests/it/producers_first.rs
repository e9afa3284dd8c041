//! Producers come first: in rounds of seven billion instructions, blocks that arrive at random wait no longer while the daemon works off a
//! backlog than while it is switched off. Rounds are those of the embedded host.

use coppice_tests::blocks::{block, hash, id};
use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_host::Host;
use ic_coppice_interface::*;
use std::sync::Arc;

/// Transactions and body of the demonstration's average block.
const TRANSACTIONS: u64 = 318;
const BODY: usize = 135_000;
/// Blocks before the first arrival: a backlog.
const BEFORE: u64 = 150;
/// Blocks that are retained.
const RETAINED: u64 = 20;

/// Arriving blocks: `COPPICE_ARRIVALS`, or a number that takes seconds.
fn arrivals() -> u64 {
    std::env::var("COPPICE_ARRIVALS").ok().and_then(|arrivals| arrivals.parse().ok()).unwrap_or(500)
}

fn next(number: u64) -> AppendBlock {
    let ids: Vec<_> = (0..TRANSACTIONS).map(|i| id(number << 20 | i)).collect();
    block(number, &ids, BODY)
}

/// A number in [0, 1), from a seed and a counter.
fn random(seed: u64, counter: u64) -> f64 {
    let bytes = id(seed << 40 | counter);
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as f64 / u64::MAX as f64
}

/// The number of arrivals in one round of a Poisson process with this mean: Knuth's product of uniform numbers.
fn poisson(mean: f64, mut draw: impl FnMut() -> f64) -> u64 {
    let (limit, mut product, mut count) = ((-mean).exp(), draw(), 0);
    while product > limit {
        product *= draw();
        count += 1;
    }
    count
}

/// A canister with blocks that are due, and none pruned yet.
fn world() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    for number in 0..BEFORE {
        coppice.append(&next(number)).unwrap();
    }
    (coppice, host)
}

/// Blocks that one round appends.
fn capacity(coppice: &Coppice, host: &Host) -> f64 {
    let before = host.checkpoint();
    for number in BEFORE..BEFORE + 300 {
        let arg = candid::encode_one(next(number)).unwrap();
        host.submit_call(coppice.id, Who::Producer.principal(), "append_block", arg).unwrap();
    }
    let (first, second) = (host.run_round(), host.run_round());
    assert!(second.completed.len() > 1 && second.in_progress, "a full round");
    host.restore(&before);
    first.completed.len() as f64
}

/// The delays of all arrivals at a load, in rounds, and the final status.
fn delays(coppice: &Coppice, host: &Host, per_round: f64, seed: u64) -> (Vec<u64>, PruneStatus) {
    let (mut number, mut draws, mut delays) = (BEFORE, 0, Vec::new());
    let total = arrivals();
    while (delays.len() as u64) < total {
        let arriving = poisson(per_round, || {
            draws += 1;
            random(seed, draws)
        });
        for _ in 0..arriving.min(BEFORE + total - number) {
            let arg = candid::encode_one(next(number)).unwrap();
            host.submit_call(coppice.id, Who::Producer.principal(), "append_block", arg).unwrap();
            number += 1;
        }
        for completed in host.run_round().completed {
            let answer = host.await_call(completed.id).unwrap();
            let answer: Result<(), AppendError> = candid::decode_one(&answer).unwrap();
            answer.unwrap();
            delays.push(completed.delay);
        }
        host.take_executions();
    }
    (delays, coppice.prune_status())
}

/// The 99th percentile.
fn percentile(delays: &mut [u64]) -> u64 {
    delays.sort_unstable();
    delays[delays.len() * 99 / 100]
}

#[test]
fn the_daemon_delays_no_producer() {
    let (coppice, host) = world();
    let capacity = capacity(&coppice, &host);
    let start = host.checkpoint();
    for (load, seed) in [(0.2, 1), (0.9, 2)] {
        host.restore(&start);
        let (mut without, status) = delays(&coppice, &host, load * capacity, seed);
        assert_eq!(status.pruned_blocks, 0);
        host.restore(&start);
        // Ticks are so small that they always leave work.
        let policy = PrunePolicyArg {
            retain_blocks: Some(RETAINED),
            timer_interval_secs: Some(1),
            max_ops_per_tick: Some(9),
            pause_after_secs: Some(0),
            ..PrunePolicyArg::default()
        };
        coppice.set_policy(policy).unwrap();
        let (mut with, status) = delays(&coppice, &host, load * capacity, seed);
        assert!(status.backlog.blocks + status.backlog.debt > 0, "a backlog throughout: {status:?}");
        assert!(status.ticks > 3 && status.pruned_blocks > 3, "the daemon was at work: {status:?}");
        let (without, with) = (percentile(&mut without), percentile(&mut with));
        println!("load {load}, {capacity} blocks a round: 99 % within {without} rounds, with the daemon {with}");
        assert!(with <= without + 1, "at {load} of capacity: {with} rounds, without the daemon {without}");
    }
    assert_eq!(coppice.block(BEFORE).unwrap().header.hash, hash(BEFORE).into());
}
