//! Keys of one bucket, chosen by someone who knows the key of the hash: no message exceeds its limits.

use coppice_tests::blocks::{block, id, seal, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, default_arg};
use ic_coppice_host::{Host, Kind, Outcome};
use ic_coppice_interface::*;
use ic_coppice_storage::{HashKey, KEY};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Keys of a block.
const OF_BLOCK: u64 = 10_000;
/// Limits of a message: instructions, and changed 4 KiB pages, heap and stable memory together.
const INSTRUCTIONS: u64 = 2_000_000_000;
const PAGES: u64 = 17_408;

/// A canister that draws this hash key.
fn with_key(bytes: [u8; KEY]) -> (Coppice, Arc<Host>) {
    let (ic, host) = coppice_ic::embedded();
    let mut drawn = vec![0; 32];
    drawn[..KEY].copy_from_slice(&bytes);
    host.faults().answer_random(Ok(candid::encode_one(ByteBuf::from(drawn)).unwrap()));
    let coppice = Coppice::just_installed(ic, default_arg());
    coppice.await_ready();
    host.add_cycles(coppice.id, 1 << 60);
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    (coppice, host)
}

/// Keys of one bucket: `COPPICE_COLLIDING_KEYS`, rounded to blocks, or 15,000.
fn many() -> u64 {
    let wanted = std::env::var("COPPICE_COLLIDING_KEYS").map(|keys| keys.parse().expect("a number of keys"));
    wanted.unwrap_or(15_000u64).next_multiple_of(OF_BLOCK)
}

/// Keys whose hashes share so many low bits that a table of all keys has fewer buckets.
fn colliding(key: &HashKey, count: u64) -> Vec<[u8; 8]> {
    let mask = (count / 16).next_power_of_two() - 1;
    (0u64..).map(u64::to_le_bytes).filter(|bytes| key.hash(bytes) & mask == 5).take(count as usize).collect()
}

/// Block `number`, whose only transaction has these keys.
fn keyed(number: u64, keys: &[[u8; 8]]) -> AppendBlock {
    let keys: Vec<(u32, &[u8])> = keys.iter().map(|key| (0, key.as_slice())).collect();
    let mut keyed = with_keys(block(number, &[id(number)], 100), &keys);
    keyed.receipts = ByteBuf::new();
    seal(&mut keyed);
    keyed
}

/// Asserts that no message since the last call was large, and that none trapped. Returns their number.
fn assert_small(host: &Host, what: &str) -> usize {
    let messages = host.take_executions();
    let (mut most, mut count) = ((0, 0), 0);
    for message in messages.iter().filter(|message| message.kind != Kind::InspectMessage) {
        assert_eq!(message.outcome, Outcome::Completed, "{what}");
        let dirtied = message.stable_pages_written + message.heap_pages_written;
        assert!(message.instructions <= INSTRUCTIONS && dirtied <= PAGES, "{what}: {message:?}");
        most = (most.0.max(message.instructions), most.1.max(dirtied));
        count += 1;
    }
    println!("{what}: the largest of {count} messages took {} instructions and changed {} pages", most.0, most.1);
    count
}

#[test]
fn keys_of_one_bucket_come_are_found_swept_and_rolled_back_within_each_message() {
    let bytes = [7; KEY];
    let (coppice, host) = with_key(bytes);
    let many = many();
    let keys = colliding(&HashKey::of(bytes), many + 5_000);
    coppice.append(&keyed(0, &[])).unwrap();
    let of = |number: u64| &keys[((number - 1) * OF_BLOCK) as usize..(number * OF_BLOCK) as usize];
    host.take_executions();
    (1..=many / OF_BLOCK).for_each(|number| coppice.upload(&keyed(number, of(number)), 1 << 20).unwrap());
    assert!(assert_small(&host, "uploads") as u64 > many / 3_000);

    // Too large for an append, and later uploaded.
    let next = many / OF_BLOCK + 1;
    let more = keyed(next, &keys[many as usize..]);
    let refused = coppice.append(&more);
    let Err(AppendError::TooLarge { what, limit }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("upload the block") && limit < 5_000, "{what}: {limit}");
    assert_eq!(coppice.storage().key_entries, many);
    coppice.append(&keyed(next, &keys[many as usize..][..10])).unwrap();
    assert_small(&host, "appends");

    for number in 1..next {
        for key in [of(number)[0], of(number)[OF_BLOCK as usize - 1]] {
            assert_eq!(coppice.find_all(&key, 0), [(number, 0)]);
        }
    }
    assert_eq!(coppice.find_all(&keys[many as usize + 50], 0), []);
    assert_small(&host, "look-ups");

    loop {
        let done = coppice.producer().rollback_to(2, None).answer().unwrap();
        if !done.has_more {
            assert_eq!(done.head, 2);
            break;
        }
    }
    assert_small(&host, "a rollback");
    assert_eq!(coppice.storage().key_entries, 2 * OF_BLOCK);

    coppice.upload(&keyed(3, &[]), 1 << 20).unwrap();
    let policy = PrunePolicyArg {
        retain_blocks: Some(1),
        min_kept_blocks: Some(0),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(policy).unwrap();
    let mut rounds = 0;
    while coppice.storage().key_entries > OF_BLOCK {
        coppice.pass(60);
        rounds += 1;
        assert!(rounds < 200, "{:?}", coppice.prune_status());
    }
    assert_small(&host, "pruning and sweeping");
    let status = coppice.prune_status();
    assert_eq!((status.key_index.dropped, status.faults), (OF_BLOCK, 0), "block 2 is kept");
}
