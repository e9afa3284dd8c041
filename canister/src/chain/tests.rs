//! The chain against a plain model, and what only a test inside can cause: damage and refused growth.

use super::*;
use crate::api::*;
use crate::blob::{BlobStore, Owner};
use crate::runtime::native;
use crate::testing::{block, fresh, id, reopen};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

const KIB: usize = 1 << 10;

fn append(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    chain.append(blobs, block, &Admission::default(), 1_700_000_000)
}

fn whole(chain: &ChainStore, blobs: &BlobStore, number: u64) -> AppendBlock {
    let found = chain.block(blobs, number).unwrap();
    AppendBlock {
        number,
        hash: found.header.hash,
        parent_hash: found.header.parent_hash,
        timestamp: found.header.timestamp,
        body: found.body,
        receipts: found.receipts,
        index: found.index,
        sha256: found.header.sha256,
    }
}

/// Class bytes over payload bytes, beyond the open blob.
fn overhead(log_class: u32, blocks: u64, size: impl Fn(u64) -> usize) -> f64 {
    let (mut chain, mut blobs) = fresh(log_class);
    for number in 0..blocks {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], size(number))).unwrap();
    }
    let kept = blobs.kept_bytes(Owner::Chain) - u64::from(log_class);
    kept as f64 / chain.state().appended_bytes as f64
}

#[test]
fn small_and_large_blocks_cost_their_bytes() {
    let sizes = |number: u64| 200 + ((number as usize * 2_654_435_761) >> 7) % (8 * KIB - 200);
    let small = overhead(1 << 20, 10_000, sizes);
    assert!((0.9..=1.1).contains(&small), "10,000 blocks of 200 B to 8 KiB: {small}");
    let large = overhead(1 << 20, 100, |_| 1_400_000);
    assert!((0.9..=1.1).contains(&large), "100 blocks of 1.4 MB: {large}");
}

#[test]
fn the_newest_of_a_repeated_id_is_found_and_only_its_own_entry_goes() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let twice = id(1000);
    append(&mut chain, &mut blobs, &block(5, &[twice, id(1)], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(6, &[id(2), twice, id(3), twice], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(7, &[id(4)], 10)).unwrap();
    let at = |chain: &ChainStore, blobs: &BlobStore| {
        chain.location(blobs, &twice).map(|found| (found.block_number, found.position))
    };
    assert_eq!(at(&chain, &blobs), Ok((6, 3)));
    assert_eq!(chain.receipt(&blobs, &twice).unwrap().bytes, [3; 5]);
    assert_eq!(chain.remove_oldest(&mut blobs).unwrap().entries, 2);
    assert_eq!(at(&chain, &blobs), Ok((6, 3)));
    assert_eq!(chain.remove_oldest(&mut blobs).unwrap().entries, 3, "one entry for each different id");
    assert_eq!(at(&chain, &blobs), Err(ReadError::NotFound));
    assert_eq!(chain.remove_oldest(&mut blobs), None, "the head is never taken");
    assert_eq!(chain.index_stats().entries, 1);
}

#[test]
fn refused_growth_of_any_structure_changes_nothing() {
    let (mut chain, mut blobs) = fresh(1 << 20);
    append(&mut chain, &mut blobs, &block(0, &[id(0)], 10)).unwrap();
    let before = *chain.state();
    // The log needs memory.
    native::with(|world| world.liquid_cycles = 0);
    let large = block(1, &[id(1)], 18 << 20);
    assert_eq!(append(&mut chain, &mut blobs, &large), Err(AppendError::LowCycles));
    native::with(|world| world.liquid_cycles = u128::MAX);
    memory::set_max_pages(memory::billed_pages());
    assert_eq!(append(&mut chain, &mut blobs, &large), Err(AppendError::OutOfSpace));
    assert_eq!(*chain.state(), before);
    // The index needs memory.
    let mut number = 1;
    let error = loop {
        let ids: Vec<_> = (0..99_000).map(|i| id(number << 32 | i)).collect();
        match append(&mut chain, &mut blobs, &block(number, &ids, 10)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, AppendError::OutOfSpace);
    assert_eq!(chain.state().next, number);
    assert_eq!(chain.index_stats().entries, 1 + (number - 1) * 99_000);
    assert!(number > 1 && before.next == 1);
    memory::set_max_pages(u64::MAX);
    append(&mut chain, &mut blobs, &block(number, &[id(1)], 18 << 20)).unwrap();
}

/// Where the index itself runs out of memory half way through a block, what was entered of it is taken out again.
#[test]
fn ids_are_entered_whole_or_not_at_all() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    append(&mut chain, &mut blobs, &block(0, &[id(0)], 10)).unwrap();
    let repeated =
        |number: u64| (0..200).map(|i| if i % 2 == 0 { id(1) } else { id(number << 20 | i) }).collect::<Vec<_>>();
    append(&mut chain, &mut blobs, &block(1, &repeated(1), 10)).unwrap();
    let (state, entries) = (*chain.state(), chain.index_stats().entries);
    let bytes = block(2, &repeated(2), 10).index;
    let index = segments::Index::parse(&bytes).unwrap();
    chain.index.fail_after(50);
    let draft =
        append::Draft::new(2, (&[1; 32], &[]), 0, [0, 0, bytes.len() as u64], &block(2, &[], 0).sha256).unwrap();
    assert_eq!(chain.insert_ids(&draft, &index), Err(AppendError::OutOfSpace));
    assert_eq!((*chain.state(), chain.index_stats().entries), (state, entries));
    assert_eq!(chain.location(&blobs, &id(1)).unwrap().block_number, 1);
    append(&mut chain, &mut blobs, &block(2, &repeated(2), 10)).unwrap();
    assert_eq!(chain.index_stats().entries, entries + 101);
}

#[test]
fn damage_is_skipped_with_its_space_accounted_for() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    for number in 0..10 {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], 100 * KIB)).unwrap();
    }
    // A record that cannot be decoded.
    chain.records.poison(2);
    assert!(matches!(chain.find(2), Err(ReadError::Corrupt { .. })));
    // A blob of the log whose generation is not the slot's any more.
    let poisoned = chain.log.blob_of(chain.meta(4).unwrap().log_offset) + 1;
    chain.log.clear(poisoned);
    let mut faults = Vec::new();
    while let Some(removed) = chain.remove_oldest(&mut blobs) {
        faults.extend(removed.faults);
    }
    assert_eq!(chain.state().oldest, 9, "nothing stops the rest: {faults:#?}");
    // The lost blob held the index segment of block 4, and became free with block 5.
    assert_eq!(faults.len(), 3, "{faults:#?}");
    let named = ["block 2: its record", "block 4: its index segment", "blob 7 of the log"];
    assert!(faults.iter().zip(named).all(|(fault, named)| fault.starts_with(named)), "{faults:#?}");
    let head = chain.meta(9).unwrap();
    let kept = chain.log.blobs_end(head.log_end()) - chain.log.blob_of(head.log_offset);
    assert_eq!(blobs.kept_bytes(Owner::Chain), kept * (64 << 10));
    assert_eq!(blobs.class_counters(chain.log_class()).lost, 1);
    // The id of the damaged block is found by nobody, and its entry hurts nobody.
    assert_eq!(chain.location(&blobs, &id(2)), Err(ReadError::NotFound));
    append(&mut chain, &mut blobs, &block(10, &[id(2)], 10)).unwrap();
    assert_eq!(chain.location(&blobs, &id(2)).unwrap().block_number, 10);
}

#[test]
fn time_never_runs_backwards() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let times = [(0, 500), (1, 300), (2, 99_000_000_000), (3, 700)];
    let monotonic = times.map(|(number, timestamp)| {
        let block = AppendBlock { timestamp, ..block(number, &[], 1) };
        append(&mut chain, &mut blobs, &block).unwrap();
        chain.meta(number).unwrap().monotonic
    });
    assert_eq!(monotonic, [500, 500, 1_700_000_000, 1_700_000_000]);
}

/// In a large index the entries of a large block go in several messages. From the first of them on it is gone for readers,
/// its space is free with the last, and whatever comes in between finds everything else whole.
#[test]
fn a_block_too_large_for_a_message_goes_in_several() {
    let class = 64 << 10;
    let (mut chain, mut blobs) = fresh(class);
    let ids = |of: u64| -> Vec<_> { (0..100).map(|i| id(of << 20 | i)).collect() };
    for number in 0..10 {
        append(&mut chain, &mut blobs, &block(number, &ids(number), 64 << 10)).unwrap();
    }
    let kept = blobs.kept_bytes(Owner::Chain);
    let whole = chain.removals(1).next().unwrap();
    chain.set_most_pages(6);
    for part in 1..20 {
        let removed = chain.remove_oldest(&mut blobs).unwrap();
        assert_eq!((removed.number, removed.entries, removed.has_more, removed.blobs), (0, 5, true, 0));
        let state = chain.state();
        assert_eq!((state.oldest, state.sweeping(), state.swept, state.pruned_blocks), (1, Some(0), 5 * part, 0));
        assert_eq!(blobs.kept_bytes(Owner::Chain), kept, "its space is not free yet");
        assert_eq!(chain.find(0), Err(ReadError::Pruned { first_available: 1 }));
        for id in ids(0) {
            let found = chain.location(&blobs, &id).ok().map(|found| found.block_number);
            assert_eq!(found, (4..=9).contains(&part).then_some(10), "also what is still in the index");
        }
        let rest = chain.removals(1).next().unwrap();
        let expected = match part {
            19 => (whole.ops - 95, whole.bytes, false),
            _ => (5, 0, true),
        };
        assert_eq!((rest.ops, rest.bytes, rest.has_more), expected);
        match part {
            3 => append(&mut chain, &mut blobs, &block(10, &ids(0), 10)).unwrap(),
            7 => (chain, blobs) = reopen(class),
            9 => assert_eq!(chain.remove_head(&mut blobs).unwrap().number, 10),
            11 => assert_eq!(chain.check_rollback(0), Err(RollbackError::Pruned { first_available: 1 })),
            _ => {}
        }
        chain.set_most_pages(6);
    }
    let last = chain.remove_oldest(&mut blobs).unwrap();
    assert_eq!((last.number, last.entries, last.has_more, last.blobs, last.faults), (0, 5, false, 1, Vec::new()));
    let state = chain.state();
    assert_eq!((state.oldest, state.sweeping(), state.pruned_blocks, state.pruned_bytes), (1, None, 1, last.bytes));
    assert_eq!(blobs.kept_bytes(Owner::Chain), kept - u64::from(class));
    assert_eq!(chain.index_stats().entries, 900);
    for number in 1..10 {
        assert_eq!(chain.location(&blobs, &ids(number)[99]).unwrap().block_number, number);
    }
    // The last but the head, in the middle of which the chain is rolled back to the block behind it.
    while chain.state().oldest < 9 || chain.state().sweeping().is_some() {
        assert!(chain.remove_oldest(&mut blobs).is_some());
    }
    assert_eq!(chain.remove_oldest(&mut blobs), None);
    assert_eq!(chain.index_stats().entries, 100);
}

/// The order of `pruning-spec-v1.md` 4, as stable memory sees it.
#[test]
fn a_block_goes_in_the_fixed_order() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    for number in 0..3 {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], 64 << 10)).unwrap();
    }
    memory::take_writes();
    chain.remove_oldest(&mut blobs).unwrap();
    let mut order = memory::take_writes();
    // The free list and the counters lie in one region, the granules in another: one step together.
    order.iter_mut().filter(|id| **id == memory::BLOB_GRANULES).for_each(|id| *id = memory::BLOB_SETS);
    order.dedup();
    let expected = [
        memory::BLOB_SETS,         // Used → Quarantine
        memory::TRANSACTION_INDEX, // the references
        memory::LOG_DIRECTORY,
        memory::BLOCK_RECORDS,
        memory::CELLS,     // pruned_before_block
        memory::BLOB_SETS, // Quarantine → Free, kept bytes
    ];
    assert_eq!(order, expected);
}

/// A random history.
#[derive(Clone, Debug)]
enum Step {
    Append { body: usize, ids: Vec<u8> },
    Upload { body: usize, ids: Vec<u8>, chunk: usize, order: u64, stop_at: usize },
    Prune(u8),
    Rollback(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let body = prop_oneof![0usize..500, 0usize..200 * KIB];
    let ids = prop::collection::vec(0u8..30, 0..8);
    prop_oneof![
        6 => (body.clone(), ids.clone()).prop_map(|(body, ids)| Step::Append { body, ids }),
        2 => (body, ids, 1usize..90 * KIB, any::<u64>(), 0usize..20)
            .prop_map(|(body, ids, chunk, order, stop_at)| Step::Upload { body, ids, chunk, order, stop_at }),
        2 => (1u8..4).prop_map(Step::Prune),
        2 => (1u8..4).prop_map(Step::Rollback),
        1 => Just(Step::Reopen),
    ]
}

fn begin(block: &AppendBlock, chunk: usize) -> BeginBlock {
    BeginBlock {
        number: block.number,
        hash: block.hash.clone(),
        parent_hash: block.parent_hash.clone(),
        timestamp: block.timestamp,
        lengths: [&block.body, &block.receipts, &block.index].map(|bytes| bytes.len() as u64).to_vec(),
        sha256: block.sha256.clone(),
        chunk_size: chunk as u32,
    }
}

proptest! {
    #![proptest_config(crate::testing::histories(48))]

    /// Appends, uploads (finished, or aborted half way), prunes, rollbacks and re-opens: every block, every id, every receipt and
    /// every blob is as a plain map says.
    #[test]
    fn agrees_with_a_model(in_parts: bool, first in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)], steps in prop::collection::vec(step(), 1..30)) {
        let class = 64 << 10;
        let (mut chain, mut blobs) = fresh(class);
        let mut model: BTreeMap<u64, (AppendBlock, Vec<[u8; 32]>)> = BTreeMap::new();
        for step in steps {
            if in_parts {
                chain.set_most_pages(0);
            }
            let next = model.last_key_value().map_or(first, |(number, _)| number + 1);
            match step {
                Step::Append { body, ids } => {
                    let ids: Vec<_> = ids.into_iter().map(|i| id(u64::from(i))).collect();
                    let new = block(next, &ids, body);
                    prop_assert_eq!(append(&mut chain, &mut blobs, &new), Ok(()));
                    prop_assert_eq!(append(&mut chain, &mut blobs, &new), Ok(()), "again changes nothing");
                    model.insert(next, (new, ids));
                }
                Step::Upload { body, ids, chunk, order, stop_at } => {
                    let ids: Vec<_> = ids.into_iter().map(|i| id(u64::from(i))).collect();
                    let new = block(next, &ids, body);
                    let payload = [&new.body[..], &new.receipts[..], &new.index[..]].concat();
                    let chunks: Vec<&[u8]> = payload.chunks(chunk.max(payload.len() / 500 + 1)).collect();
                    let arg = begin(&new, chunk.max(payload.len() / 500 + 1));
                    let admission = Admission { verify_segments: true, ..Admission::default() };
                    let progress = chain.begin(&mut blobs, &arg, &admission, 0).unwrap();
                    prop_assert_eq!(progress.chunks as usize, chunks.len());
                    let mut turn: Vec<usize> = (0..chunks.len()).collect();
                    turn.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(order | 1));
                    for (done, &i) in turn.iter().enumerate() {
                        if done == stop_at {
                            (chain, blobs) = reopen(class);
                        }
                        let put = PutBlockChunk { number: next, chunk: i as u32, bytes: ByteBuf::from(chunks[i]) };
                        let progress = chain.put_chunk(&mut blobs, &put, 0).unwrap();
                        prop_assert_eq!(progress.missing as usize, chunks.len() - done - 1);
                    }
                    let block_id = BlockId { number: next, hash: new.hash.clone() };
                    if stop_at % 3 == 0 {
                        prop_assert_eq!(chain.abort_upload(&mut blobs, next), Ok(true));
                    } else {
                        chain.commit_upload(&mut blobs, &block_id, &admission, 1_700_000_000).unwrap();
                        model.insert(next, (new, ids));
                    }
                }
                Step::Prune(count) => {
                    for _ in 0..count {
                        let expected = (model.len() > 1).then(|| model.pop_first().unwrap().0);
                        let mut removed = chain.remove_oldest(&mut blobs);
                        while in_parts && removed.as_ref().is_some_and(|removed| removed.has_more) {
                            prop_assert_eq!(chain.state().sweeping(), expected);
                            let gone = chain.find(expected.unwrap());
                            prop_assert_eq!(gone, Err(ReadError::Pruned { first_available: chain.state().oldest }));
                            (chain, blobs) = reopen(class);
                            chain.set_most_pages(0);
                            removed = chain.remove_oldest(&mut blobs);
                        }
                        if let Some(removed) = &removed {
                            prop_assert_eq!(&removed.faults, &Vec::<String>::new());
                        }
                        prop_assert_eq!(removed.map(|removed| removed.number), expected);
                    }
                }
                Step::Rollback(count) => {
                    for _ in 0..count {
                        let expected = (model.len() > 1).then(|| model.pop_last().unwrap().0);
                        let removed = chain.remove_head(&mut blobs);
                        prop_assert!(removed.as_ref().is_none_or(|removed| removed.faults.is_empty()));
                        prop_assert_eq!(removed.map(|removed| removed.number), expected);
                    }
                }
                Step::Reopen => (chain, blobs) = reopen(class),
            }
            prop_assert_eq!(chain.state().head(), model.last_key_value().map(|(number, _)| *number));
        }
        let mut newest: BTreeMap<[u8; 32], (u64, u32)> = BTreeMap::new();
        for (number, (expected, ids)) in &model {
            prop_assert_eq!(&whole(&chain, &blobs, *number), expected);
            ids.iter().enumerate().for_each(|(position, id)| { newest.insert(*id, (*number, position as u32)); });
        }
        for i in 0..30 {
            let found = chain.location(&blobs, &id(i)).ok().map(|found| (found.block_number, found.position));
            prop_assert_eq!(found, newest.get(&id(i)).copied());
            if let Some((_, position)) = found {
                prop_assert_eq!(chain.receipt(&blobs, &id(i)).unwrap().bytes, vec![position as u8; 5]);
            }
        }
        // Nothing leaks: the kept blobs are those that the kept blocks touch, and nothing is quarantined.
        let state = *chain.state();
        prop_assert_eq!(blobs.kept_bytes(Owner::Upload), 0);
        prop_assert_eq!(blobs.kept_bytes(Owner::Chain), (state.log_end - state.log_first) * u64::from(class));
        if let Some((first, _)) = model.first_key_value() {
            let start = chain.meta(*first).unwrap().log_offset;
            prop_assert_eq!(state.log_first, (start / u64::from(class)).min(state.log_end));
        }
        for class in Class::all() {
            prop_assert_eq!(blobs.class_counters(class).quarantined, 0);
        }
        let mut per_block = 0;
        for (_, ids) in model.values() {
            let mut ids = ids.clone();
            ids.sort();
            ids.dedup();
            per_block += ids.len() as u64;
        }
        prop_assert_eq!(chain.index_stats().entries, per_block);
    }
}
