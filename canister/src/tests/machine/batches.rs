//! A chain in batches ends in the same state as the chain block by block: any split, with traps, refused memory and upgrades in any message,
//! lists that begin with kept blocks, and messages that have room for few blocks.

use super::world::{self, World};
use super::{Draft, IDS, KEYS, draft};
use crate::api::endpoints::blocks;
use crate::platform::native;
use crate::state;
use ic_coppice_chain::ChainState;
use ic_coppice_chain::testing::{block, id, with_keys};
use ic_coppice_interface::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::mem::replace;

/// References for which a message has room.
const SLICE: u64 = 40;

/// A message of a split: blocks of its list, kept blocks with which the list begins, and instructions that each reading of the counter
/// adds.
type Message = (usize, u64, u64);

fn message() -> impl Strategy<Value = Message> {
    let slow = prop_oneof![3 => Just(0u64), 1 => Just(200_000_000), 1 => Just(2_000_000_000)];
    (1usize..9, prop_oneof![3 => Just(0u64), 1 => 0u64..4], slow)
}

fn chain_of(first: u64, drafts: &[Draft]) -> Vec<AppendBlock> {
    let made = |(number, draft): (u64, &Draft)| {
        let own = (0..u64::from(draft.own)).map(|i| id(1 << 32 | number << 8 | i));
        let ids: Vec<_> = draft.ids.iter().map(|&of| id(u64::from(of))).chain(own).collect();
        let key = |of: u8| vec![of % KEYS; usize::from(of % KEYS)];
        let keys: Vec<(u32, Vec<u8>)> = match ids.len() as u32 {
            0 => Vec::new(),
            n => draft.keys.iter().map(|&(at, of)| (u32::from(at) % n, key(of))).collect(),
        };
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(at, key)| (*at, key.as_slice())).collect();
        with_keys(block(number, &ids, draft.body), &keys).sealed()
    };
    (first..).zip(drafts).map(made).collect()
}

/// All that readers find, and the chain's stored state.
#[derive(Debug, PartialEq)]
struct End {
    state: ChainState,
    blocks: Vec<Result<Block, ReadError>>,
    ids: Vec<Result<TransactionLocation, ReadError>>,
    keys: Vec<Result<KeyPage, KeyError>>,
}

fn end(chain: &[AppendBlock]) -> End {
    let own = chain.iter().flat_map(|block| segments::Index::parse(&block.index).unwrap().all_ids().to_vec());
    let ids: Vec<[u8; 32]> = (0..IDS).map(id).chain(own).collect();
    state::read(|state| {
        let (kept, blobs) = (&state.chain, &state.blobs);
        End {
            state: *kept.state(),
            blocks: chain.iter().map(|block| kept.block(blobs, block.number)).collect(),
            ids: ids.iter().map(|id| kept.location(blobs, id)).collect(),
            keys: (0..KEYS).map(|of| kept.find_by_key(blobs, &vec![of; usize::from(of)], None, 0)).collect(),
        }
    })
}

fn world(seed: u64, verify: bool) -> World {
    World::new(seed, SLICE, verify)
}

fn one_by_one(chain: &[AppendBlock], verify: bool) -> End {
    let _world = world(0, verify);
    for block in chain {
        assert_eq!(blocks::append_block(block.clone()), Ok(()), "block {}", block.number);
    }
    end(chain)
}

/// Appends the chain in these messages, over and over, and returns what the messages met.
fn in_batches(chain: &[AppendBlock], messages: &[Message], seed: u64, verify: bool) -> World {
    let mut world = world(seed, verify);
    let (first, last) = (chain[0].number, chain[chain.len() - 1].number);
    let (mut next, mut needs_time) = (first, false);
    for (count, again, slow) in messages.iter().cycle().copied() {
        let slow = if replace(&mut needs_time, false) { 0 } else { slow };
        if next > last {
            return world;
        }
        let from = (next - again.min(next - first) - first) as usize;
        let list = &chain[from..(from + again as usize + count).min(chain.len())];
        let answer = world.message(|| {
            native::with(|world| (world.instructions, world.instructions_per_reading) = (0, slow));
            blocks::append_blocks(list.to_vec())
        });
        native::with(|world| (world.instructions, world.instructions_per_reading) = (0, 0));
        let AppendedBlocks { next: now_next, stopped } = answer.expect("no trap of its own");
        let after = list[list.len() - 1].number + 1;
        match stopped {
            None => assert_eq!(now_next, after),
            Some(AppendStop::HasMore) => {
                world.meets("messages without room");
                assert!(list[0].number < now_next && now_next < after, "the first block has the whole message");
            }
            Some(AppendStop::Refused(AppendError::NoMemory(_))) if world.refused => {
                world.meets("blocks without memory");
                assert!(now_next < after);
            }
            Some(AppendStop::Refused(AppendError::TooLarge { .. })) if slow > 0 => {
                world.meets("blocks whose references take a whole message");
            }
            Some(stop) => panic!("{stop:?}"),
        }
        // Otherwise each message could end as this one.
        needs_time = now_next <= next;
        // A repeated list may end before the block that is next.
        assert!(now_next >= next || now_next >= list[0].number);
        next = next.max(now_next);
        assert_eq!(state::read(|state| state.chain.state().head()), (next > first).then(|| next - 1));
    }
    unreachable!("messages go on")
}

proptest! {
    #![proptest_config(ic_coppice_storage::testing::histories(96))]

    #[test]
    fn any_split_ends_in_the_state_of_single_appends(
        first in prop_oneof![Just(1u64), 1u64..1 << 40], drafts in prop::collection::vec(draft(), 1..24),
        messages in prop::collection::vec(message(), 1..12), seed: u64, verify: bool,
    ) {
        let chain = chain_of(first, &drafts);
        let expected = one_by_one(&chain, verify);
        in_batches(&chain, &messages, seed, verify);
        prop_assert_eq!(end(&chain), expected);
    }
}

/// The splits reach every case.
#[test]
fn splits_meet_traps_refused_memory_and_messages_without_room() {
    let chain = chain_of(7, &vec![Draft { body: 90_000, ids: vec![1, 2], own: 3, keys: vec![(0, 1)] }; 60]);
    let expected = one_by_one(&chain, true);
    let mut met = BTreeMap::<_, u64>::new();
    for seed in 0..12 {
        let world = in_batches(&chain, &[(7, 0, 0), (5, 2, 200_000_000), (3, 1, 2_000_000_000)], seed, true);
        assert_eq!(end(&chain), expected);
        world.met.into_iter().for_each(|(what, times)| *met.entry(what).or_default() += times);
    }
    for what in ["traps", "upgrades", "messages without room", "blocks without memory"] {
        assert!(met.get(what).is_some_and(|times| *times > 0), "{what}: {met:?}");
    }
}

fn append(blocks: &[AppendBlock]) -> AppendedBlocks {
    blocks::append_blocks(blocks.to_vec())
}

fn refused(next: u64, error: AppendError) -> AppendedBlocks {
    AppendedBlocks { next, stopped: Some(AppendStop::Refused(error)) }
}

fn plain(first: u64, count: usize) -> Vec<AppendBlock> {
    chain_of(first, &vec![Draft { body: 100, ids: vec![], own: 2, keys: vec![] }; count])
}

#[test]
fn empty_list_and_numbers_that_do_not_rise_by_one_are_refused_and_nothing_is_appended() {
    let _world = world(1, true);
    let chain = plain(7, 4);
    let said = |list: &[AppendBlock]| match append(list) {
        AppendedBlocks {
            next,
            stopped: Some(AppendStop::Refused(AppendError::BadEncoding { segment: 0, offset: 0, why })),
        } => (next, why),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(said(&[]), (0, "the list of blocks is empty".into()));
    append(&chain[..1]);
    assert_eq!(said(&[]).0, 0);
    for (list, why) in
        [([1, 3], "block 10 follows block 8"), ([1, 1], "block 8 follows block 8"), ([2, 1], "block 8 follows block 9")]
    {
        let (next, found) = said(&list.map(|at| chain[at].clone()));
        assert!(next == chain[list[0]].number && found.contains(why), "{next}, {found}");
    }
    let last = AppendBlock { number: u64::MAX, ..chain[1].clone() };
    let wraps = AppendBlock { number: 0, ..chain[2].clone() };
    assert_eq!(said(&[last, wraps]).0, u64::MAX);
    assert_eq!(state::read(|state| state.chain.state().head()), Some(7));
}

#[test]
fn list_stops_at_a_refused_block_and_the_blocks_before_it_stay() {
    let _world = world(1, true);
    let chain = plain(7, 6);
    let mut broken = chain.clone();
    broken[2].parent_hash = [9; 32].into();
    let expected = chain[1].hash.clone();
    assert_eq!(append(&broken), refused(9, AppendError::WrongParent { expected }));
    let mut false_digest = chain.clone();
    false_digest[3].body[0] ^= 1;
    let why = "the bytes do not match the declared sha256".into();
    let error = AppendError::BadEncoding { segment: 0, offset: 0, why };
    assert_eq!(append(&false_digest), refused(10, error), "kept blocks count as kept");
    let mut other = chain.clone();
    other[1].timestamp_secs += 1;
    let differs = vec![BlockField::Timestamp];
    assert_eq!(append(&other), refused(8, AppendError::Conflict { differs }));
    assert_eq!(append(&chain[4..]), refused(11, AppendError::Gap { expected: 10 }));
    assert_eq!(append(&chain), AppendedBlocks { next: 13, stopped: None });
    assert_eq!(append(&chain), AppendedBlocks { next: 13, stopped: None }, "again changes nothing");
    let last = AppendBlock { number: u64::MAX, ..chain[0].clone() };
    assert!(matches!(append(&[last]), AppendedBlocks { next: u64::MAX, stopped: Some(AppendStop::Refused(_)) }));
}

/// A block that the rest of a message has no room for is not too large; alone in a message, it is.
#[test]
fn block_with_more_references_than_a_message_enters_is_too_large_only_as_the_first_one() {
    let mut world = world(1, false);
    let many = Draft { body: 10, ids: vec![], own: 30, keys: vec![] };
    let chain = chain_of(3, &[many.clone(), many.clone(), many]);
    world.set_slice(20);
    let large = append(&chain);
    assert_eq!(large, refused(3, AppendError::TooLarge { what: "references: upload the block".into(), limit: 20 }));
    world.set_slice(30);
    append(&chain[..1]);
    world.set_slice(20);
    assert_eq!(append(&chain), AppendedBlocks { next: 4, stopped: Some(AppendStop::HasMore) });
    assert!(matches!(append(&chain[1..]), AppendedBlocks { next: 4, stopped: Some(AppendStop::Refused(_)) }));
    world.set_slice(30);
    assert_eq!(append(&chain), AppendedBlocks { next: 6, stopped: None });
}

/// Each block is admitted for itself: the mark that the blocks before it reach refuses it.
#[test]
fn emergency_mark_that_a_list_reaches_stops_it_before_the_next_block() {
    let _world = world(1, false);
    let class = u64::from(world::CLASS);
    let policy =
        PrunePolicyArg { target_bytes: Some(20 * class), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    super::prune::set_prune_policy(policy).unwrap();
    let chain = chain_of(1, &vec![Draft { body: 60_000, ids: vec![], own: 1, keys: vec![] }; 40]);
    let AppendedBlocks { next, stopped } = append(&chain);
    let held = |stop: &AppendStop| matches!(stop, AppendStop::Refused(AppendError::CapacityExhausted { .. }));
    assert!(stopped.as_ref().is_some_and(held), "{stopped:?}");
    assert!((15..30).contains(&next), "{next}");
    assert_eq!(append(&chain[next as usize - 1..]).next, next);
}
