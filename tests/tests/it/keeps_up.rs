//! Pruning keeps up with fast feeds, with ids that repeat without end, and with blocks of any size.

use coppice_tests::blocks::{block, id, plain};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_host::{Execution, Kind};
use ic_coppice_interface::*;
use std::time::Duration;

fn policy(retain_blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg { retain_blocks: Some(retain_blocks), ..PrunePolicyArg::default() }
}

/// Seconds of the feed: `COPPICE_FEED_SECS`, or an hour.
fn seconds() -> u64 {
    std::env::var("COPPICE_FEED_SECS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(3_600)
}

/// A block a second with 300 transactions, under the policy's defaults: the backlog is bounded, and so are the indexes.
#[test]
fn pruning_keeps_up_with_300_transactions_a_second() {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    coppice.set_policy(policy(200)).unwrap();
    let (mut most_blocks, mut billed) = (0, Vec::new());
    let seconds = seconds();
    for number in 0..seconds {
        let ids: Vec<_> = (0..300).map(|i| id(number << 20 | i)).collect();
        coppice.append(&block(number, &ids, 100)).unwrap();
        coppice.ic.advance_time(Duration::from_secs(1));
        coppice.ic.tick();
        if number % 20 == 19 {
            let status = coppice.prune_status();
            most_blocks = most_blocks.max(status.backlog.blocks);
            // The index may lag by a tick of 10,000 ops, and the backlog by a minute of the feed.
            let table = &status.transaction_index;
            let live = table.entries.saturating_sub(table.debt);
            assert!(table.entries <= live * 5 / 4 + table.buckets + 8_192 + 10_000, "{table:?}");
            let lag = status.backlog.behind_since_secs.map_or(0, |since| coppice.ic.now() / 1_000_000_000 - since);
            assert!(lag <= 60, "{lag} s: {status:?}");
        }
        if number == seconds / 2 || number == seconds - 1 {
            billed.push(coppice.storage().billed_bytes);
        }
        host.take_executions();
    }
    println!("a backlog of at most {most_blocks} blocks");
    assert!(most_blocks <= 62, "no more than arrives between two ticks: {most_blocks}");
    assert_eq!(billed[0], billed[1], "the second half grew nothing");
    let health: Health = coppice.anyone().health().answer();
    assert!(health.healthy, "{health:?}");
    assert!(coppice.prune_status().transaction_index.sweeps > 0);
}

fn updates(executions: Vec<Execution>) -> impl Iterator<Item = Execution> {
    executions.into_iter().filter(|execution| execution.kind == Kind::Update)
}

/// 20,000 copies of an id in one block, and one copy in each of 3,000 later blocks: entered, found, pruned and rolled back in small
/// messages.
#[test]
fn copies_of_an_id_cost_what_other_ids_cost() {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    let everywhere = id(0);
    coppice.append(&block(0, &vec![everywhere; 20_000], 10)).unwrap();
    for number in 1..=3_000 {
        coppice.append(&block(number, &[everywhere, id(number)], 10)).unwrap();
        host.take_executions();
    }
    assert_eq!(coppice.location(everywhere), Ok((3_000, 0)));
    let found = host.last_execution().unwrap().instructions;
    assert_eq!(coppice.location(id(3_000)), Ok((3_000, 1)));
    let other = host.last_execution().unwrap().instructions;
    assert!(found.abs_diff(other) < 5_000, "{found}, and {other} for an id that occurs once");
    let rolled_back: Result<Rollback, RollbackError> = coppice.producer().rollback_to(2_990u64, None).answer();
    assert_eq!(
        rolled_back,
        Ok(Rollback { head: 2_990, removed: 10, has_more: false, not_restored: Some(0), waits: None })
    );
    assert_eq!(coppice.location(everywhere), Ok((2_990, 0)));
    coppice.set_policy(PrunePolicyArg { min_kept_blocks: Some(1), ..policy(100) }).unwrap();
    host.take_executions();
    coppice.settle(60);
    for message in updates(host.take_executions()) {
        assert!(message.instructions < 200_000_000, "{message:?}");
    }
    let status = coppice.prune_status();
    assert_eq!((status.oldest_kept_block, status.faults), (Some(2_890), 0));
    assert_eq!(coppice.location(everywhere), Ok((2_990, 0)));
    assert_eq!(coppice.location(id(2_889)), Err(ReadError::NotFound));
}

/// Pruning a block that frees no blob touches the same number of pages whatever the block contains.
#[test]
fn pruning_2500_transactions_touches_as_many_pages_as_pruning_one() {
    let (coppice, host) = Coppice::embedded(InitArg { log_class: Some(1 << 20), ..default_arg() });
    coppice.append(&plain(0, 1, 10)).unwrap();
    coppice.append(&plain(1, 1, 10)).unwrap();
    let ids: Vec<_> = (0..2_500).map(|i| id(1 << 40 | i)).collect();
    coppice.append(&block(2, &ids, 10)).unwrap();
    coppice.append(&plain(3, 1, 10)).unwrap();
    coppice.set_policy(PrunePolicyArg { min_kept_blocks: Some(0), ..policy(1) }).unwrap();
    coppice.append(&plain(4, 1, 10)).unwrap();
    let prune = || {
        host.take_executions();
        let run = coppice.prune_now(1);
        assert_eq!((run.blocks, run.blobs, run.ops), (1, 0, 1));
        let message = updates(host.take_executions()).next().unwrap();
        (message.stable_pages_read, message.stable_pages_written, message.instructions)
    };
    let (one, again, large) = (prune(), prune(), prune());
    println!("pages read and written, instructions: {one:?}, {again:?}; of 2,500 transactions {large:?}");
    assert!(large.0.abs_diff(again.0) <= 2 && large.1.abs_diff(again.1) <= 2, "{again:?} {large:?}");
    assert!(large.2.abs_diff(again.2) <= 30_000, "{again:?} {large:?}");
    assert_eq!(coppice.location(ids[7]), Err(ReadError::NotFound));
}

/// An idle year costs only the ten-minute safety timer: less than a trillion cycles.
#[test]
fn idling_costs_less_than_a_trillion_cycles_a_year() {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    coppice.set_policy(policy(5)).unwrap();
    coppice.append_plain(0..10, 100);
    coppice.settle(60);
    coppice.pass(3_600);
    let (hours, before) = (24, host.cycle_balance(coppice.id));
    host.take_executions();
    let storage = {
        // Storage costs are not part of this figure: time passes with no timer armed.
        let start = host.checkpoint();
        coppice.ic.stop(coppice.id, Who::Controller.principal()).unwrap();
        let before = host.cycle_balance(coppice.id);
        coppice.ic.advance_time(Duration::from_secs(hours * 3_600));
        let storage = before - host.cycle_balance(coppice.id);
        host.restore(&start);
        storage
    };
    for _ in 0..hours * 6 {
        coppice.pass(600);
    }
    let fired = updates(host.take_executions()).count() as u64;
    let a_year = (before - host.cycle_balance(coppice.id) - storage) * 365 * 24 / u128::from(hours);
    println!("{fired} firings in {hours} hours: {a_year} cycles a year");
    assert_eq!(fired, hours * 6, "every ten minutes");
    assert!(a_year <= 1_000_000_000_000, "{a_year}");
}

/// A canister of other code, which has no `pre_upgrade`, has this memory; an upgrade to Coppice is refused if a layout differs, and changes
/// nothing.
#[test]
fn an_upgrade_from_another_layout_is_refused() {
    /// A module without a function.
    const OTHER: &[u8] = b"\0asm\x01\0\0\0";
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..3, 100);
    let memory = host.get_stable_memory(coppice.id);
    coppice.ic.upgrade(coppice.id, OTHER.to_vec(), vec![], Who::Controller.principal()).unwrap();
    let refused = |changed: &[u8], says: &str| {
        host.set_stable_memory(coppice.id, changed);
        let refused = format!("{:?}", coppice.upgrade_with(None).unwrap_err());
        assert!(refused.contains(says), "{says}: {refused}");
    };
    // Memory of another library.
    let mut other = memory.clone();
    [0, 4_096].into_iter().for_each(|copy| other[copy..copy + 4].copy_from_slice(b"MGR\x01"));
    refused(&other, "stable memory: magic");
    // The versions of the cells, the headers and a table follow their magics.
    for (magic, version) in [(*b"CPCE", 3u8), (*b"CPBR", 8), (*b"CPHT", 5)] {
        let mut other = memory.clone();
        let at = memory.chunks(4_096).position(|page| page[..4] == magic && page[4] == version).expect("it is there");
        other[at * 4_096 + 4] = 1;
        refused(&other, "version 1");
    }
    // A flipped bit in a cell.
    let mut other = memory.clone();
    let at = memory.chunks(4_096).position(|page| page[..4] == *b"CPCH").expect("it is there");
    other[at * 4_096 + 40] ^= 1;
    refused(&other, "chain state: damaged");
    host.set_stable_memory(coppice.id, &memory);
    coppice.upgrade();
    assert_eq!(coppice.head(), Some(2));
}
