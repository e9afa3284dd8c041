//! `rollback_to`: a reorg is a rollback and new appends.

use coppice_tests::blocks::{block, hash, id, plain, plain_id, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::Coppice;
use ic_coppice_interface::*;

fn rollback(coppice: &Coppice, number: u64) -> Result<Rollback, RollbackError> {
    coppice.producer().rollback_to(number, None).answer()
}

/// A block of another fork.
fn fork(number: u64, parent: BlockHash, ids: &[[u8; 32]]) -> AppendBlock {
    AppendBlock { hash: hash(number ^ 1 << 40).into(), parent_hash: parent, ..block(number, ids, 70_000) }
}

#[test]
fn a_reorg_is_a_rollback_and_new_appends() {
    let coppice = Coppice::new();
    coppice.append_plain(0..6, 50_000);
    let kept = (coppice.chain(), coppice.storage());
    coppice.append_plain(6..12, 50_000);
    let done = rollback(&coppice, 5).unwrap();
    assert_eq!((done.head, done.removed, done.has_more), (5, 6, false));
    assert_eq!(coppice.chain(), kept.0);
    let storage = coppice.storage();
    assert_eq!((storage.used_bytes, storage.index_entries), (kept.1.used_bytes, kept.1.index_entries));
    assert_eq!((storage.quarantined_bytes, storage.payload_bytes), (0, kept.1.payload_bytes));
    assert_eq!(coppice.block(6), Err(ReadError::NotFound));
    assert_eq!(coppice.location(plain_id(8, 0)), Err(ReadError::NotFound));
    // The other fork, whose second block contains a transaction of the first fork.
    let first = fork(6, hash(5).into(), &[id(1)]);
    let second = fork(7, first.hash.clone(), &[plain_id(8, 0)]);
    coppice.append(&first).unwrap();
    coppice.upgrade();
    coppice.append(&second).unwrap();
    assert_eq!(coppice.location(plain_id(8, 0)), Ok((7, 0)));
    assert_eq!(coppice.block(7).unwrap().body, second.body);
    assert_eq!(
        rollback(&coppice, 7),
        Ok(Rollback { head: 7, removed: 0, has_more: false, not_restored: Some(0), waits: None }),
        "the same again"
    );
}

#[test]
fn a_rollback_restores_the_newest_entry_of_a_repeated_id() {
    let coppice = Coppice::new();
    let twice = id(1);
    coppice.append(&block(0, &[twice], 10)).unwrap();
    coppice.append(&block(1, &[id(2), twice], 10)).unwrap();
    coppice.append(&block(2, &[id(3), id(4), twice], 10)).unwrap();
    assert_eq!(coppice.location(twice), Ok((2, 2)));
    rollback(&coppice, 1).unwrap();
    assert_eq!(coppice.location(twice), Ok((1, 1)));
    rollback(&coppice, 0).unwrap();
    assert_eq!(coppice.location(twice), Ok((0, 0)));
}

#[test]
fn each_refusal_changes_nothing() {
    let coppice = Coppice::new();
    assert_eq!(rollback(&coppice, 0), Err(RollbackError::Empty));
    coppice.append_plain(0..10, 1_000);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(4), ..PrunePolicyArg::default() }).unwrap();
    coppice.prune_now(1_000);
    let before = coppice.chain();
    assert_eq!(rollback(&coppice, 10), Err(RollbackError::AboveHead { head: 9 }));
    assert_eq!(rollback(&coppice, 4), Err(RollbackError::Pruned { first_available: 5 }));
    let begin = upload(&plain(10, 1, 10), 10).0;
    coppice.producer().begin_block(&begin).answer().unwrap();
    assert!(matches!(rollback(&coppice, 8), Err(RollbackError::UploadOpen(UploadOpen { .. }))));
    assert_eq!(coppice.chain(), before);
    coppice.producer().abort_block(10u64).answer().unwrap();
    assert_eq!(rollback(&coppice, 5).unwrap().head, 5, "down to the oldest that is kept");
    assert_eq!(coppice.chain(), before[..1]);
}

#[test]
fn a_long_rollback_takes_several_calls() {
    let coppice = Coppice::new();
    let few_ops =
        PrunePolicyArg { retain_blocks: Some(1_000), max_ops_per_tick: Some(20), ..PrunePolicyArg::default() };
    coppice.set_policy(few_ops).unwrap();
    coppice.append_plain(0..30, 20_000);
    let mut calls = 0;
    loop {
        let done = rollback(&coppice, 3).unwrap();
        calls += 1;
        // Three references and an op for each block; ticks continue the rollback between the calls.
        assert!(done.removed <= 5, "{done:?}");
        let head = coppice.head().unwrap();
        assert!((3..=done.head).contains(&head), "{done:?}, {head}");
        assert_eq!(coppice.block(head).unwrap().body, plain(head, 3, 20_000).body);
        if !done.has_more {
            break;
        }
    }
    assert!(calls > 1, "{calls}");
    assert_eq!(coppice.head(), Some(3));
    coppice.append(&plain(4, 3, 20_000)).unwrap();
}
