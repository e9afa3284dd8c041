//! The largest blocks in a large index, entered and removed in slices: no message is large, and readers see a block only when it is whole.

use coppice_model::chain as model;
use coppice_tests::blocks::{block, block_id, id, plain, plain_id, seal, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, blob_bytes, default_arg};
use ic_coppice_host::{Checkpoint, Host, Kind, Outcome};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::{Arc, OnceLock};

/// Entries of a block, the most allowed.
const MOST: u64 = 100_000;
/// Half of the entries are transactions, half are secondary keys.
const HALF: u64 = MOST / 2;
/// The number of these blocks: together both indexes have more than 15,000 pages.
const LARGE: u64 = 22;
/// The number of small blocks after them.
const SMALL: u64 = 2;
/// The number of the next block.
const NEXT: u64 = LARGE + SMALL;
/// Ids, and as many keys, of a block that fits into a message, but changes more pages of both indexes than a message may.
const WIDE: u64 = 27_000;
/// Limits of a message: instructions, and changed 4 KiB pages, heap and stable memory together.
const INSTRUCTIONS: u64 = 2_000_000_000;
const DIRTIED: u64 = (75 << 20) / 4_096;

fn ids(number: u64, range: std::ops::Range<u64>) -> Vec<[u8; 32]> {
    range.map(|i| id(number << 20 | i)).collect()
}

fn with_ids_and_keys(number: u64, ids: &[[u8; 32]], keys: &[[u8; 32]]) -> AppendBlock {
    let keys: Vec<(u32, &[u8])> = (0..).zip(keys).map(|(i, key)| (i, key.as_slice())).collect();
    let mut large = with_keys(block(number, ids, 100), &keys);
    large.receipts = ByteBuf::new();
    seal(&mut large);
    large
}

/// A block of the large chain: its ids and keys are all different, and no other block has them.
fn large_block(number: u64) -> AppendBlock {
    with_ids_and_keys(number, &ids(number, 0..HALF), &ids(number, HALF..MOST))
}

/// A canister with the large chain, which is built only once.
fn large() -> (Coppice, Arc<Host>) {
    static CHAIN: OnceLock<Checkpoint> = OnceLock::new();
    let (coppice, host) = Coppice::embedded(default_arg());
    let chain = CHAIN.get_or_init(|| {
        host.add_cycles(coppice.id, 1 << 60);
        // Without verification, the first message of a commit enters a slice.
        coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
        (0..LARGE).for_each(|number| coppice.upload(&large_block(number), 1 << 20).unwrap());
        coppice.append_plain(LARGE..NEXT, 1_000);
        host.checkpoint()
    });
    host.restore(chain);
    host.take_executions();
    (coppice, host)
}

/// Asserts that no message since the last call was large, and that none trapped. Returns their number, without queries.
fn assert_small(host: &Host, what: &str) -> usize {
    let messages = host.take_executions();
    let (mut most, mut count) = ((0, 0), 0);
    for message in messages.iter().filter(|message| !matches!(message.kind, Kind::Query | Kind::InspectMessage)) {
        assert_eq!(message.outcome, Outcome::Completed, "{what}");
        let dirtied = message.stable_pages_written + message.heap_pages_written;
        assert!(message.instructions <= INSTRUCTIONS, "{what}: {message:?}");
        assert!(dirtied <= DIRTIED, "{what}: {message:?}");
        most = (most.0.max(message.instructions), most.1.max(dirtied));
        count += 1;
    }
    println!("{what}: the largest of {count} messages took {} instructions and changed {} KiB", most.0, most.1 * 4);
    count
}

/// The view of readers.
#[derive(Debug, PartialEq)]
struct View {
    head: Option<u64>,
    headers: Vec<Result<BlockHeader, ReadError>>,
    page: Result<HeaderPage, ReadError>,
    newest: Result<Block, ReadError>,
    locations: Vec<Result<(u64, u32), ReadError>>,
    transactions: Vec<Vec<(u64, u32)>>,
    export: Result<ExportPage, ExportError>,
}

/// The view of the ids and keys of this block, and of the chain's own.
fn view(coppice: &Coppice, of: &AppendBlock) -> View {
    let some = |all: Vec<[u8; 32]>| -> Vec<[u8; 32]> {
        [0, 1, 12_499, 12_500, 49_999, 60_000, 99_999]
            .into_iter()
            .filter_map(|at: usize| all.get(at).copied())
            .collect()
    };
    let mut wanted = some(model::ids(of));
    wanted.extend([0, 3, LARGE - 1].into_iter().flat_map(|number| some(ids(number, 0..HALF))));
    let own = model::keys(of).into_iter().map(|(_, key)| key.try_into().unwrap()).collect();
    let mut keys = some(own);
    keys.extend([0, 3, LARGE - 1].into_iter().flat_map(|number| some(ids(number, HALF..MOST))));
    let head = coppice.head();
    let at = head.map(|head| {
        coppice.anyone().get_block_headers(head, head).answer().map(|mut page| page.headers.remove(0)).unwrap()
    });
    let at = at.map(|at| ExportCursor { number: at.number, hash: at.hash, segment: 3, offset: 0, rollbacks: 0 });
    View {
        head,
        headers: (LARGE - 4..NEXT + 2)
            .map(|number| {
                coppice.anyone().get_block_headers(number, number).answer().map(|mut page| page.headers.remove(0))
            })
            .collect(),
        page: coppice.anyone().get_block_headers(LARGE - 4, u64::MAX).answer(),
        newest: coppice.block(NEXT - 1),
        locations: wanted.into_iter().map(|id| coppice.location(id)).collect(),
        transactions: keys.iter().map(|key| coppice.find_all(key, 0)).collect(),
        export: coppice.export(at, 1_000),
    }
}

fn put(coppice: &Coppice, block: &AppendBlock) {
    let (begin, chunks) = upload(block, 1 << 20);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        coppice.put(block.number, chunk, bytes).unwrap();
    }
}

fn commit(coppice: &Coppice, block: &AppendBlock) -> Result<Commit, UploadError> {
    coppice.producer().commit_block(&block_id(block)).answer()
}

/// Next blocks: with new ids only; with as many ids and keys, some of which kept blocks have; and with ids that all are in kept blocks.
fn next_blocks() -> [(&'static str, AppendBlock); 3] {
    let fresh = with_ids_and_keys(NEXT, &ids(NEXT, 0..MOST), &[]);
    let mut keys = ids(NEXT, HALF..MOST);
    (keys[0], keys[49_999]) = (id(3 << 20 | HALF), id(HALF));
    let both = with_ids_and_keys(NEXT, &ids(NEXT, 0..HALF), &keys);
    let repeated = with_ids_and_keys(NEXT, &[ids(0, 0..HALF), ids(3, 0..HALF)].concat(), &[]);
    [("fresh ids", fresh), ("ids and keys", both), ("repeated ids", repeated)]
}

#[test]
fn a_commit_enters_a_slice_per_message_and_is_invisible_before_the_last() {
    for (what, block) in next_blocks() {
        let (coppice, host) = large();
        let before = view(&coppice, &block);
        put(&coppice, &block);
        assert_eq!(view(&coppice, &block), before);
        let mut entered = 0;
        while let Some(now) = enter_slice(&coppice, &block, entered) {
            entered = now;
            assert_eq!(view(&coppice, &block), before, "{what}: {entered} are entered");
            assert!(matches!(coppice.append(&plain(NEXT, 1, 10)), Err(AppendError::UploadOpen(UploadOpen { .. }))));
            coppice.upgrade();
            assert_eq!(view(&coppice, &block), before, "{what}: {entered} are entered, after an upgrade");
        }
        assert_eq!(commit(&coppice, &block), Ok(Commit::Done), "{what}: again");
        assert_small(&host, &format!("a commit of {what}"));
        assert_eq!(coppice.head(), Some(NEXT));
        let own = model::ids(&block);
        for at in [0, 12_499, 12_500, own.len() - 1] {
            assert_eq!(coppice.location(own[at]), Ok((NEXT, at as u32)), "{what}");
        }
        for (at, key) in model::keys(&block) {
            if [0, 1, 12_500, 49_999].contains(&at) {
                let older: &[(u64, u32)] = match at {
                    0 => &[(3, 0)],
                    49_999 => &[(0, 0)],
                    _ => &[],
                };
                assert_eq!(coppice.find_all(&key, 0), [&[(NEXT, at)], older].concat(), "{what}");
            }
        }
        coppice.append(&plain(NEXT + 1, 1, 10)).unwrap();
        // A rollback restores the previous newest entries.
        roll_back(&coppice, NEXT - 1, |coppice| coppice.upgrade());
        assert_eq!(view(&coppice, &block), before, "{what}: rolled back");
        assert_small(&host, &format!("a rollback of {what}"));
    }
}

/// Rolls back by calls alone, with an action between them.
fn roll_back(coppice: &Coppice, to: u64, between: impl Fn(&Coppice)) {
    for _ in 0..100 {
        let done = coppice.producer().rollback_to(to, None).answer().unwrap();
        if !done.has_more {
            return assert_eq!(done.head, to);
        }
        between(coppice);
    }
    panic!("it does not end");
}

/// Commits the next slice after `before` references, and returns how many are entered, or `None` if the block is.
fn enter_slice(coppice: &Coppice, block: &AppendBlock, before: u64) -> Option<u64> {
    match commit(coppice, block) {
        Ok(Commit::HasMore { entered, of: MOST }) => {
            assert!(entered > before, "{entered} after {before}");
            Some(entered)
        }
        done => {
            assert_eq!(done, Ok(Commit::Done));
            None
        }
    }
}

/// Puts a block, and commits its first slice, which is not all of it.
fn enter_first_slice(coppice: &Coppice, block: &AppendBlock) {
    put(coppice, block);
    enter_slice(coppice, block, 0).expect("its pages do not fit a message");
}

/// Runs ticks until the upload is gone, with an upgrade in between. Returns the number of rounds.
fn wait_until_undone(coppice: &Coppice, block: &AppendBlock, before: &View) -> u64 {
    let open = |coppice: &Coppice| coppice.anyone().list_uploads().answer().block.is_some();
    let mut rounds = 0;
    while open(coppice) {
        let begin = upload(&plain(NEXT, 1, 10), 10).0;
        match coppice.producer().begin_block(&begin).answer() {
            Err(error) => assert!(matches!(error, AppendError::UploadOpen(UploadOpen { .. })), "{error:?}"),
            // The upload was undone meanwhile.
            Ok(_) => {
                assert_eq!(coppice.producer().abort_block(NEXT).answer(), Ok(true));
                break;
            }
        }
        let refused = commit(coppice, block);
        assert!(refused == Err(UploadError::Aborting) || !open(coppice), "{refused:?}");
        assert_eq!(&view(coppice, block), before);
        if rounds == 1 {
            coppice.upgrade();
        }
        coppice.pass(30);
        rounds += 1;
        assert!(rounds < 50, "it does not end");
    }
    rounds
}

#[test]
fn an_abort_in_the_middle_removes_a_slice_per_message() {
    let [_, (what, block), _] = next_blocks();
    let (coppice, host) = large();
    let (before, storage) = (view(&coppice, &block), coppice.storage());
    let entries = |coppice: &Coppice| {
        let status = coppice.prune_status();
        (status.transaction_index.entries, status.key_index.entries)
    };
    let indexed = entries(&coppice);
    enter_first_slice(&coppice, &block);
    host.take_executions();
    assert_eq!(coppice.producer().abort_block(NEXT).answer(), Ok(true));
    wait_until_undone(&coppice, &block, &before);
    assert_small(&host, &format!("an abort of {what}"));
    assert_eq!((view(&coppice, &block), entries(&coppice)), (before, indexed), "{what}");
    assert_eq!(blob_bytes(&coppice.storage()), blob_bytes(&storage), "{what}");
    assert_eq!(coppice.append(&plain(NEXT, 1, 10)), Ok(()));
    assert_eq!(coppice.location(plain_id(NEXT, 0)), Ok((NEXT, 0)));
}

#[test]
fn an_abandoned_commit_expires_and_is_undone() {
    let [_, (_, block), _] = next_blocks();
    let (coppice, host) = large();
    let (before, storage) = (view(&coppice, &block), coppice.storage());
    enter_first_slice(&coppice, &block);
    coppice.pass(100);
    assert_eq!(view(&coppice, &block), before);
    // Continuing the commit extends the expiry.
    while commit(&coppice, &block) != Ok(Commit::Done) {}
    roll_back(&coppice, NEXT - 1, |_| {});
    enter_first_slice(&coppice, &block);
    coppice.pass(100);
    assert!(coppice.anyone().list_uploads().answer().block.is_some());
    host.take_executions();
    coppice.pass(30);
    wait_until_undone(&coppice, &block, &before);
    assert_small(&host, "an upload that expires in its commit");
    let after = view(&coppice, &block);
    assert_eq!(after, before);
    assert_eq!(blob_bytes(&coppice.storage()), blob_bytes(&storage));
}

#[test]
fn a_rollback_removes_a_slice_per_message_and_ticks_finish_it() {
    let (coppice, host) = large();
    let roll = |to: u64| coppice.producer().rollback_to(to, None).answer();
    let seen = |what: &str| {
        let head = coppice.head().unwrap();
        for number in LARGE - 5..LARGE {
            let own = ids(number, 0..HALF);
            let keys = ids(number, HALF..MOST);
            for at in [0, 12_500, 49_999] {
                let place = if number <= head { Ok((number, at as u32)) } else { Err(ReadError::NotFound) };
                assert_eq!(coppice.location(own[at]), place, "{what}: the head is {head}");
                assert_eq!(coppice.find_all(&keys[at], 0), place.into_iter().collect::<Vec<_>>(), "{what}");
            }
            let header: Result<BlockHeader, ReadError> =
                coppice.anyone().get_block_headers(number, number).answer().map(|mut page| page.headers.remove(0));
            assert_eq!(header.is_ok(), number <= head, "{what}");
        }
        head
    };
    let done = roll(8).unwrap();
    assert!(done.has_more && done.head < NEXT - 1, "{done:?}");
    assert_eq!(seen("begun"), done.head);
    let underway = || Err(AppendError::RollbackUnderway { to: 8 });
    assert_eq!(coppice.append(&plain(done.head + 1, 1, 10)), underway());
    assert_eq!(roll(9), Err(RollbackError::RollbackUnderway { to: 8 }));
    let begin = upload(&plain(done.head + 1, 1, 10), 10).0;
    assert_eq!(coppice.producer().begin_block(&begin).answer().err(), underway().err());
    coppice.upgrade();
    seen("upgraded");
    // A deeper rollback, with the deepest prune that is allowed during it.
    let deeper = roll(7).unwrap();
    assert!(deeper.has_more, "{deeper:?}");
    assert_eq!(roll(8), Err(RollbackError::RollbackUnderway { to: 7 }));
    let policy = PrunePolicyArg { retain_blocks: Some(2), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    coppice.prune_now(10_000);
    assert_eq!(coppice.prune_status().pruned_before_block, 5, "two below the future head");
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    let is_under_way = || coppice.append(&plain(NEXT, 1, 10)) == Err(AppendError::RollbackUnderway { to: 7 });
    let mut rounds = 0;
    while is_under_way() {
        seen("by ticks");
        if rounds % 3 == 1 {
            coppice.upgrade();
        }
        coppice.pass(60);
        rounds += 1;
        assert!(rounds < 50);
    }
    assert_eq!(seen("done"), 7);
    assert!(assert_small(&host, "a rollback") > 15);
    let block = AppendBlock { parent_hash: large_block(7).hash, ..plain(8, 1, 10) };
    assert_eq!(coppice.append(&block), Ok(()));
    assert_eq!((coppice.prune_status().pruned_before_block, coppice.prune_status().faults), (5, 0));
}

/// Uses the largest settings of a tick.
#[test]
fn prunes_sweeps_and_rollbacks_with_the_largest_settings_keep_each_message_small() {
    let (coppice, host) = large();
    let policy = PrunePolicyArg {
        retain_blocks: Some(12),
        max_ops_per_tick: Some(MAX_PRUNE_OPS),
        max_instructions_per_tick: Some(INSTRUCTIONS),
        pause_after_secs: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(policy).unwrap();
    coppice.settle(60);
    let mut rounds = 0;
    while coppice.prune_status().sweep == SweepPhase::Applying {
        coppice.ic.tick();
        rounds += 1;
        assert!(rounds < 1_000, "{:?}", coppice.prune_status());
    }
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.backlog.debt), (11, 0), "{status:?}");
    assert_eq!((status.transaction_index.dropped, status.key_index.dropped), (11 * HALF, 11 * HALF));
    assert_small(&host, "pruning and sweeping");
    roll_back(&coppice, 12, |_| {});
    assert_small(&host, "rolling back");
    let status = coppice.prune_status();
    let entries = (status.transaction_index.entries, status.key_index.entries);
    assert_eq!((entries, coppice.head()), ((2 * HALF, 2 * HALF), Some(12)), "{status:?}");
}

/// Asserts that a block was refused as too large, and returns how many references would have had room.
fn too_large(refused: Result<(), AppendError>) -> u64 {
    match refused {
        Err(AppendError::TooLarge { what, limit }) if what == "references: upload the block" => {
            assert!((WIDE..2 * WIDE).contains(&limit), "{limit}");
            limit
        }
        other => panic!("{other:?}"),
    }
}

/// A message appends as many references as change its pages, and no more.
#[test]
fn append_that_changes_more_pages_than_a_message_is_refused() {
    let (coppice, host) = large();
    let before = view(&coppice, &plain(NEXT, 1, 10));
    let wide = with_ids_and_keys(NEXT, &ids(NEXT, 0..WIDE), &ids(NEXT, HALF..HALF + WIDE));
    let most = too_large(coppice.append(&wide));
    assert_eq!(view(&coppice, &plain(NEXT, 1, 10)), before);
    // As many ids, and half of the keys that had room.
    let keys = (most - WIDE) / 2;
    let ids_and_keys = with_ids_and_keys(NEXT, &ids(NEXT, 0..WIDE), &ids(NEXT, HALF..HALF + keys));
    assert_eq!(coppice.append(&ids_and_keys), Ok(()));
    let only_ids = with_ids_and_keys(NEXT + 1, &ids(NEXT + 1, 0..WIDE), &[]);
    assert_eq!(coppice.append(&only_ids), Ok(()));
    let only_ids = with_ids_and_keys(NEXT + 2, &ids(0, 0..WIDE), &[]);
    assert_eq!(coppice.append(&only_ids), Ok(()), "of a kept block");
    assert_small(&host, "appending the most that a message may");
    // In a small index all of them are entered at once.
    let (coppice, _) = Coppice::embedded(default_arg());
    assert_eq!(coppice.append(&with_ids_and_keys(0, &ids(0, 0..WIDE), &ids(0, HALF..HALF + WIDE))), Ok(()));
}
