//! Blocks: many small blobs, and sweeps of a large index.

use super::*;
use coppice_tests::blocks::{block, id, seal, with_keys};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// The largest settings of the daemon.
fn policy(retain_blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg {
        retain_blocks: Some(retain_blocks),
        min_kept_blocks: Some(0),
        max_ops_per_tick: Some(MAX_PRUNE_OPS),
        max_instructions_per_tick: Some(TICK),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    }
}

/// Small blobs, some ten to a block, and blocks without any blob: more ops than a tick may change pages. Ops share pages, so one tick does all.
#[test]
fn a_tick_of_small_blobs_and_empty_blocks_stays_small() {
    const LARGE: u64 = 650;
    const BLOCKS: u64 = 4_000;
    let (coppice, host) = tomorrow();
    for number in 0..BLOCKS {
        let mut block = block(number, &[], 0);
        if number < LARGE {
            block.body = ByteBuf::from(vec![number as u8; 11 << 16]);
            seal(&mut block);
        }
        coppice.append(&block).unwrap();
    }
    let (appended, dirtied) = most(&host, "appending");
    assert!(appended < TICK / 100 && dirtied < DIRTIED / 20);
    coppice.set_policy(policy(1)).unwrap();
    coppice.settle(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_blocks, status.faults), (BLOCKS - 2, 0), "{status:?}");
    let run = status.last_run.unwrap();
    assert!(run.ticks == 1 && run.blobs >= 10 * LARGE && run.ops > 17_408, "{run:?}");
    let (instructions, dirtied) = most(&host, "pruning");
    assert!(instructions <= TICK && dirtied <= DIRTIED, "{instructions}, {dirtied}");
}

/// Blocks with 100,000 different references each, half of them transactions and half secondary keys.
const HALF: u64 = 50_000;

/// A canister with `blocks` such blocks.
fn with_large_blocks(blocks: u64) -> (Coppice, Arc<Host>) {
    let (coppice, host) = tomorrow();
    for number in 0..blocks {
        let of = |range: std::ops::Range<u64>| range.map(move |i| id(number << 20 | i)).collect::<Vec<_>>();
        let keys = of(HALF..2 * HALF);
        let keys: Vec<(u32, &[u8])> = (0..).zip(&keys).map(|(i, key)| (i, key.as_slice())).collect();
        let mut large = with_keys(block(number, &of(0..HALF), 0), &keys);
        large.receipts = ByteBuf::new();
        seal(&mut large);
        coppice.upload(&large, 1 << 20).unwrap();
    }
    let (uploaded, dirtied) = most(&host, "uploading");
    assert!(uploaded <= TICK && dirtied <= DIRTIED, "{uploaded}, {dirtied}");
    (coppice, host)
}

/// With the default budget, ticks of consecutive rounds sweep 100,000 references a second, and each stays within its budget; upgrades
/// between them lose nothing.
#[test]
fn ticks_of_the_default_policy_sweep_a_hundred_thousand_references_a_second() {
    const BLOCKS: u64 = 12;
    let (coppice, host) = with_large_blocks(BLOCKS);
    let default = PrunePolicy::default();
    let policy = PrunePolicyArg {
        retain_blocks: Some(5),
        min_kept_blocks: Some(0),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(policy).unwrap();
    host.advance_time(std::time::Duration::from_secs(default.timer_interval_secs));
    host.take_executions();
    let dropped = || {
        let status = coppice.prune_status();
        status.transaction_index.dropped + status.key_index.dropped
    };
    let (mut seconds, mut last) = (0, 0);
    while dropped() < (BLOCKS - 6) * 2 * HALF {
        host.run_round();
        seconds += 1;
        let now = dropped();
        assert!(now - last <= default.max_ops_per_tick + 4_000, "{} entries in a tick", now - last);
        last = now;
        assert!(seconds <= 6, "{last} entries in {seconds} s");
    }
    let (instructions, dirtied) = most(&host, "ticks of the default policy");
    assert!(instructions <= default.max_instructions_per_tick + 10_000_000 && dirtied <= DIRTIED, "{instructions}");
    println!("{last} references in {seconds} s");
    assert!(last / seconds >= 100_000, "{last} in {seconds} s");
    let status = coppice.prune_status();
    assert_eq!((status.pruned_blocks, status.backlog.debt, status.faults), (BLOCKS - 6, 0, 0), "{status:?}");
}

/// The largest settings, and a backlog that takes several ticks.
#[test]
fn a_sweep_of_large_indexes_stays_small() {
    const BLOCKS: u64 = 12;
    let (coppice, host) = with_large_blocks(BLOCKS);
    coppice.set_policy(policy(1)).unwrap();
    // A block exceeds this number of ops, and so does a slice.
    for _ in 0..BLOCKS - 2 {
        assert_eq!(coppice.prune_now(30).blocks, 1);
    }
    let slices: Vec<PruneRun> = (0..100).map(|_| coppice.prune_now(1)).collect();
    assert!(slices.iter().all(|slice| slice.blocks == 0 && slice.dropped > 100), "{slices:?}");
    // A slice takes no more than the daemon's estimate.
    let slice = slices.iter().map(|slice| slice.instructions).max();
    assert!(slice <= Some(1_000_000), "{slice:?}");
    println!("{slice:?} instructions of a slice");
    most(&host, "pruning and sweeping alone");
    coppice.settle(60);
    let mut ticks = 0;
    while coppice.prune_status().sweep == SweepPhase::Applying {
        coppice.ic.tick();
        ticks += 1;
        assert!(ticks < 500, "{:?}", coppice.prune_status());
    }
    let status = coppice.prune_status();
    let dropped = (status.transaction_index.dropped, status.key_index.dropped);
    assert_eq!(dropped, ((BLOCKS - 2) * HALF, (BLOCKS - 2) * HALF), "{status:?}");
    let (instructions, dirtied) = most(&host, "pruning and sweeping");
    assert!(instructions <= TICK && dirtied <= DIRTIED, "{instructions}, {dirtied}");
}
