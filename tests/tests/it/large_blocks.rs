//! The longest blocks: uploaded, verified, committed, rolled back, pruned and reset in messages that are all small.

use coppice_tests::blocks::{block, block_id, hash, plain, plain_id, seal, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes, default_arg};
use ic_coppice_host::{Host, Kind, Outcome};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Bytes of the longest block.
const MOST: usize = 256 << 20;
const CHUNK: usize = 1 << 20;
/// Limits of a message: instructions, and changed 4 KiB pages, heap and stable memory together.
const INSTRUCTIONS: u64 = 2_000_000_000;
const DIRTIED: u64 = (75 << 20) / 4_096;

/// Block `number` with a payload of `bytes` bytes.
fn of_bytes(number: u64, bytes: usize) -> AppendBlock {
    let ids: Vec<_> = (0..1_000).map(|position| plain_id(number, position)).collect();
    let mut block = block(number, &ids, 0);
    let body = bytes - block.receipts.len() - block.index.len();
    block.body = ByteBuf::from((0..body as u64).map(|i| (i ^ i >> 13 ^ number) as u8).collect::<Vec<_>>());
    seal(&mut block);
    block
}

fn canister() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    // The commit takes one message; the second test compares segments with their digests.
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    coppice.append_plain(0..2, 10);
    (coppice, host)
}

/// Asserts that no message since the last call was large, and that none trapped.
fn assert_small(host: &Host, what: &str) {
    let mut most = (0, 0);
    for message in
        host.take_executions().iter().filter(|message| !matches!(message.kind, Kind::Query | Kind::InspectMessage))
    {
        let dirtied = message.stable_pages_written + message.heap_pages_written;
        assert_eq!(message.outcome, Outcome::Completed, "{what}");
        assert!(message.instructions <= INSTRUCTIONS && dirtied <= DIRTIED, "{what}: {message:?}");
        most = (most.0.max(message.instructions), most.1.max(dirtied));
    }
    println!("{what}: at most {} instructions and {} KiB changed", most.0, most.1 * 4);
}

fn put(coppice: &Coppice, block: &AppendBlock) {
    let (begin, chunks) = upload(block, CHUNK);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        coppice.put(block.number, chunk, bytes).unwrap();
    }
}

fn commit(coppice: &Coppice, block: &AppendBlock) -> Result<Commit, UploadError> {
    coppice.producer().commit_block(&block_id(block)).answer()
}

/// Samples the block's bytes at their places.
fn check(coppice: &Coppice, block: &AppendBlock) {
    assert_eq!(coppice.head().max(Some(block.number)), coppice.head());
    let body = block.body.as_slice();
    for at in [0, CHUNK - 7, body.len() / 2, body.len() - 1_000] {
        let part: Result<SegmentPart, ReadError> =
            coppice.anyone().read_segment(block.number, 0u8, at as u64, 1_000u64).answer();
        let part = part.unwrap();
        assert_eq!((part.bytes.as_slice(), part.total), (&body[at..at + 1_000], body.len() as u64), "{at}");
    }
    assert_eq!(coppice.location(plain_id(block.number, 999)), Ok((block.number, 999)));
}

#[test]
fn the_longest_block_is_added_and_removed_in_small_messages() {
    let (coppice, host) = canister();
    let long = of_bytes(2, MOST);
    let (mut begin, _) = upload(&long, CHUNK);
    begin.lengths[0] += 1;
    let refused = coppice.producer().begin_block(&begin).answer();
    assert_eq!(refused, Err(AppendError::TooLarge { what: "block".into(), limit: MOST as u64 }));
    let before = coppice.storage();
    let kept = |coppice: &Coppice| blob_bytes(&coppice.storage());
    // Leaves of the log's directory stay for the next blobs.
    let owners = |storage: StorageStatus| {
        let stays = |of: &OwnerStorage| of.owner != Owner::Spaces;
        storage.owners.into_iter().filter(stays).collect::<Vec<_>>()
    };

    put(&coppice, &long);
    assert_small(&host, "uploading");
    assert_eq!(coppice.producer().abort_block(2u64).answer(), Ok(true));
    assert_small(&host, "aborting");
    assert_eq!(owners(coppice.storage()), owners(before.clone()));

    put(&coppice, &long);
    assert_eq!(commit(&coppice, &long), Ok(Commit::Done));
    assert_small(&host, "uploading and committing");
    check(&coppice, &long);
    assert!(kept(&coppice) >= MOST as u64);

    let done = coppice.producer().rollback_to(1u64, None).answer().unwrap();
    assert_eq!((done.head, done.has_more), (1, false));
    assert_small(&host, "rolling back");
    assert_eq!(owners(coppice.storage()), owners(before.clone()));

    put(&coppice, &long);
    assert_eq!(commit(&coppice, &long), Ok(Commit::Done));
    coppice.append_plain(3..6, 10);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.settle(60);
    assert_eq!((coppice.prune_status().pruned_before_block, coppice.prune_status().faults), (4, 0));
    assert_eq!(kept(&coppice), u64::from(LOG_CLASS));
    assert_small(&host, "pruning");

    let long = of_bytes(6, MOST);
    put(&coppice, &long);
    assert_eq!(commit(&coppice, &long), Ok(Commit::Done));
    let arena = coppice.storage().arena_bytes;
    let reset = ResetChain { head_hash: hash(6).into(), drop_unexported: false };
    let done = coppice.operator().reset_chain(&reset).answer().unwrap();
    assert!(done.left > MOST as u64 / u64::from(LOG_CLASS), "{done:?}");
    coppice.pass(60);
    assert_eq!(kept(&coppice), 0);
    assert_small(&host, "resetting");
    let first = of_bytes(9, MOST);
    put(&coppice, &first);
    assert_eq!(commit(&coppice, &first), Ok(Commit::Done));
    check(&coppice, &first);
    assert_eq!(coppice.storage().arena_bytes, arena, "the blobs are used again");
}

/// With verified digests: each message hashes a part. `COPPICE_BLOCK_MIB` sets the length of the block.
#[test]
fn a_long_block_is_compared_with_its_digests_over_several_messages() {
    let mib = std::env::var("COPPICE_BLOCK_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(64);
    let (coppice, host) = canister();
    let change = ConfigChange { verify_segments: Some(true), ..ConfigChange::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    let long = of_bytes(2, mib << 20);
    put(&coppice, &long);
    // A message hashes 16 MiB and then enters nothing.
    for message in 1..=mib / 16 {
        assert_eq!(commit(&coppice, &long), Ok(Commit::HasMore { entered: 0, of: 1_000 }), "message {message}");
        assert_eq!((coppice.head(), coppice.location(plain_id(2, 0))), (Some(1), Err(ReadError::NotFound)));
        if message % 2 == 1 {
            coppice.upgrade();
        }
    }
    assert_eq!(commit(&coppice, &long), Ok(Commit::Done));
    assert_small(&host, &format!("verifying {mib} MiB"));
    check(&coppice, &long);
    coppice.producer().rollback_to(1u64, None).answer().unwrap();

    // A wrong digest of any segment, even the index, is found only in the last message; the upload can only be aborted.
    let storage = coppice.storage().owners;
    for segment in [0, 1, 2u8] {
        let mut wrong = of_bytes(2, 33 << 20);
        wrong.sha256[usize::from(segment)] = ByteBuf::from(vec![7; 32]);
        put(&coppice, &wrong);
        for _ in 0..2 {
            assert_eq!(commit(&coppice, &wrong), Ok(Commit::HasMore { entered: 0, of: 1_000 }));
        }
        for _ in 0..2 {
            let refused = commit(&coppice, &wrong);
            let Err(UploadError::Append(AppendError::BadEncoding { segment: named, offset: 0, .. })) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(named, segment);
        }
        assert_eq!(coppice.producer().abort_block(2u64).answer(), Ok(true));
        assert_eq!((coppice.storage().owners, coppice.head()), (storage.clone(), Some(1)));
    }
    // The verified bytes of one upload do not count for another one.
    let mut other = of_bytes(2, 20 << 20);
    put(&coppice, &other);
    assert_eq!(commit(&coppice, &other), Ok(Commit::HasMore { entered: 0, of: 1_000 }));
    assert_eq!(coppice.producer().abort_block(2u64).answer(), Ok(true));
    other.body[0] ^= 1;
    put(&coppice, &other);
    assert_eq!(commit(&coppice, &other), Ok(Commit::HasMore { entered: 0, of: 1_000 }));
    assert!(matches!(commit(&coppice, &other), Err(UploadError::Append(AppendError::BadEncoding { segment: 0, .. }))));
    assert_eq!(coppice.producer().abort_block(2u64).answer(), Ok(true));
    coppice.append(&plain(2, 1, 10)).unwrap();
    assert_small(&host, "wrong digests");
}
