//! The largest blocks in indexes so large that each entry lies on its own page: every message of the daemon is small.

use coppice_tests::blocks::{block, id, plain, seal, with_keys};
use coppice_tests::coppice::{Coppice, default_arg};
use ic_coppice_host::Kind;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// Entries of a block, the most allowed: transactions and secondary keys.
const MOST: u64 = 100_000;
/// Secondary keys among them.
const KEYS: u64 = MOST / 2;
/// The number of these blocks.
const BLOCKS: u64 = 28;
/// The platform slows a canister down that dirties more in a round, heap and stable memory together.
const MOST_DIRTIED: u64 = 75 << 20;

fn ids(number: u64, range: std::ops::Range<u64>) -> Vec<[u8; 32]> {
    range.map(|i| id(number << 20 | i)).collect()
}

/// No message of the daemon takes 2 B instructions or dirties 75 MiB, and readers do not find removed blocks, swept or not. All secondary keys
/// are different, so both indexes are large.
#[test]
fn the_largest_blocks_with_keys_in_large_indexes_keep_each_message_small() {
    let transactions = MOST - KEYS;
    let ids_of = |number: u64| ids(number, 0..transactions);
    let keys_of = |number: u64| ids(number, transactions..MOST);
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    for number in 0..BLOCKS {
        let keys = keys_of(number);
        let of = |key: usize| (key as u64 * transactions / MOST) as u32;
        let keys: Vec<(u32, &[u8])> = keys.iter().enumerate().map(|(i, key)| (of(i), key.as_slice())).collect();
        let mut large = with_keys(block(number, &ids_of(number), 100), &keys);
        large.receipts = ByteBuf::new();
        seal(&mut large);
        coppice.upload(&large, 1 << 20).unwrap();
    }
    for number in BLOCKS..BLOCKS + 2 {
        coppice.append(&plain(number, 1, 10)).unwrap();
    }
    let most = PrunePolicyArg {
        retain_blocks: Some(BLOCKS - 7),
        max_ops_per_tick: Some(MAX_PRUNE_OPS),
        max_instructions_per_tick: Some(2_000_000_000),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(most).unwrap();
    host.take_executions();
    coppice.ic.advance_time(Duration::from_secs(60));
    coppice.ic.tick();
    assert_eq!(coppice.prune_status().pruned_before_block, 8, "all at once: each block is constant work");
    // The index has more pages than a message may change.
    let progress = coppice.prune_now(MAX_PRUNE_OPS).progress;
    assert_eq!(progress, PruneProgress::HasMore { reason: Some(StopReason::Pages) });
    assert_eq!(coppice.prune_status().sweep, SweepPhase::Applying);
    let gone = |number: u64| {
        assert_eq!(coppice.block(number), Err(ReadError::Pruned { first_available: 8 }));
        assert_eq!(coppice.location(ids_of(number)[transactions as usize - 1]), Err(ReadError::NotFound));
        let last = keys_of(number).last().map(|key| coppice.find(key, None, 0));
        assert!(last.is_none_or(|page| page == Ok(KeyPage { transactions: vec![], cursor: None })));
    };
    (0..8).for_each(gone);
    let mut ticks = 0;
    while coppice.prune_status().sweep == SweepPhase::Applying {
        // After an upgrade, the sweep continues where it was.
        coppice.upgrade();
        coppice.pass(60);
        ticks += 1;
        assert!(ticks < 5, "{:?}", coppice.prune_status());
    }
    (0..8).for_each(gone);
    let (mut messages, mut largest) = (0, (0, 0));
    for message in host.take_executions().into_iter().filter(|e| e.kind == Kind::Update) {
        assert!(message.instructions <= 2_000_000_000, "{message:?}");
        assert!(message.stable_pages_written * 4_096 <= MOST_DIRTIED, "{message:?}");
        largest = largest.max((message.stable_pages_written / 256, message.instructions));
        messages += 1;
    }
    println!("{messages} messages; the largest dirtied {} MiB and took {} instructions", largest.0, largest.1);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_blocks, status.faults, status.backlog.debt), (8, 0, 0), "{status:?}");
    assert_eq!(status.transaction_index.dropped, 8 * transactions);
    assert_eq!(status.key_index.dropped, 8 * KEYS);
    assert_eq!(status.transaction_index.entries, (BLOCKS - 8) * transactions + 2);
    assert_eq!(status.key_index.entries, (BLOCKS - 8) * KEYS);
    assert_eq!(coppice.location(ids_of(8)[77]), Ok((8, 77)));
    for (key, position) in keys_of(8).iter().zip([0, 0, 1]) {
        assert_eq!(coppice.find_all(key, 0), [(8, position)]);
    }
}
