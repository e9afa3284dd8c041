//! The largest blocks in an index so large that each entry lies on a page of its own.

use coppice_canister::api::*;
use coppice_host::Kind;
use coppice_tests::blocks::{block, id, plain, seal, with_keys};
use coppice_tests::coppice::{Coppice, default_arg};
use serde_bytes::ByteBuf;

/// Entries of a block, as many as there may be: transactions, or half of them secondary keys.
const MOST: u64 = 100_000;
/// Blocks up to which the index has so few pages that a block goes whole: all of them may be dirtied.
const WHOLE: u64 = 18;
/// Blocks with which it has more.
const BLOCKS: u64 = 28;
/// The platform slows a canister down that dirties more, heap and stable memory together. The heap's share, the ids of a
/// block, is some 10 MiB.
const MOST_DIRTIED: u64 = 65 << 20;

fn ids(number: u64, range: std::ops::Range<u64>) -> Vec<[u8; 32]> {
    range.map(|i| id(number << 20 | i)).collect()
}

#[test]
fn the_largest_blocks_in_a_large_index_keep_each_message_small() {
    each_message_is_small(0);
}

/// Two indexes that are large together.
#[test]
fn the_largest_blocks_with_keys_in_large_indexes_keep_each_message_small() {
    each_message_is_small(MOST / 2);
}

/// No prune message takes 2 B instructions or dirties 75 MiB, and a block that is gone in part is gone for readers. So many of
/// each block's entries are secondary keys, no two the same.
fn each_message_is_small(keys: u64) {
    let transactions = MOST - keys;
    let ids_of = |number: u64| ids(number, 0..transactions);
    let keys_of = |number: u64| ids(number, transactions..MOST);
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    let upload = |number: u64| {
        let keys = keys_of(number);
        let of = |key: usize| (key as u64 * transactions / MOST) as u32;
        let keys: Vec<(u32, &[u8])> = keys.iter().enumerate().map(|(i, key)| (of(i), key.as_slice())).collect();
        let mut large = with_keys(block(number, &ids_of(number), 100), &keys);
        large.receipts = ByteBuf::new();
        seal(&mut large);
        coppice.upload(&large, 1 << 20).unwrap();
    };
    // A block more than the daemon retains, and the index as large as it may be for it to go whole.
    (0..WHOLE).for_each(upload);
    let before = host.checkpoint();
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(WHOLE - 2), ..PrunePolicyArg::default() }).unwrap();
    host.take_executions();
    let run = coppice.prune_now(1);
    let message = host.take_executions().into_iter().find(|e| e.kind == Kind::Update).unwrap();
    println!("whole: {} instructions, {} MiB dirtied", message.instructions, message.stable_pages_written / 256);
    assert_eq!((run.blocks, run.parts), (1, 0));
    assert!(message.stable_pages_written > 13_000, "it is a large index, {} pages", message.stable_pages_written);
    assert!(message.instructions <= 2_000_000_000 && message.stable_pages_written * 4_096 <= MOST_DIRTIED);

    host.restore(&before);
    (WHOLE..BLOCKS).for_each(upload);
    for number in BLOCKS..BLOCKS + 2 {
        coppice.append(&plain(number, 1, 10)).unwrap();
    }
    let most = PrunePolicyArg {
        retain_blocks: Some(BLOCKS - 3),
        max_ops_per_tick: Some(15_000),
        max_instructions_per_tick: Some(2_000_000_000),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(most).unwrap();
    let (mut messages, mut parts) = (0, 0);
    while coppice.prune_status().need_prune {
        host.take_executions();
        coppice.pass(60);
        for message in host.take_executions().into_iter().filter(|e| e.kind == Kind::Update) {
            let mib = message.stable_pages_written / 256;
            let status = coppice.prune_status();
            println!(
                "pruned before {}, cursor {:?}: {} instructions, {mib} MiB dirtied",
                status.pruned_before_block, status.prune_cursor, message.instructions
            );
            assert!(message.instructions <= 2_000_000_000 && message.stable_pages_written * 4_096 <= MOST_DIRTIED);
            parts += u64::from(status.prune_cursor.is_some_and(|cursor| cursor < status.pruned_before_block));
            messages += 1;
        }
        let status = coppice.prune_status();
        if let Some(sweeping) = status.prune_cursor.filter(|&cursor| cursor < status.pruned_before_block) {
            let gone = Err(ReadError::Pruned { first_available: sweeping + 1 });
            assert_eq!(coppice.block(sweeping), gone);
            assert_eq!(coppice.location(ids_of(sweeping)[transactions as usize - 1]), Err(ReadError::NotFound));
            let last = keys_of(sweeping).last().map(|key| coppice.find(key, None, 0));
            assert!(last.is_none_or(|page| page == Ok(KeyPage { transactions: vec![], cursor: None })));
        }
        assert!(messages < 100, "{status:?}");
    }
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.pruned_blocks, status.faults), (4, 4, 0));
    assert!(parts > 4, "{parts} messages ended in the middle of a block: the index is not large enough");
    let storage = coppice.storage();
    assert_eq!(storage.index_entries, (BLOCKS - 4) * transactions + 2);
    assert_eq!(storage.key_entries, (BLOCKS - 4) * keys);
    assert_eq!(coppice.location(ids_of(4)[77]), Ok((4, 77)));
    for (key, position) in keys_of(4).iter().zip([0, 0, 1]) {
        assert_eq!(coppice.find_all(key, 0), [(4, position)]);
    }
}
