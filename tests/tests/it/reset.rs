//! `reset_chain`: empties the chain, which may begin again at any number.

use coppice_tests::blocks::{block, hash, id, plain, plain_id, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, blob_bytes};
use ic_coppice_interface::*;

fn reset_with(coppice: &Coppice, head_hash: &[u8], drop_unexported: bool) -> Result<ChainReset, ResetError> {
    coppice.operator().reset_chain(&ResetChain { head_hash: head_hash.into(), drop_unexported }).answer()
}

/// Resets a chain whose head is block `head`.
fn reset(coppice: &Coppice, head: u64) -> ChainReset {
    reset_with(coppice, &hash(head), false).unwrap_or_else(|error| panic!("head {head}: {error:?}"))
}

/// Waits for ticks to clear the data of the old chain.
fn cleared(coppice: &Coppice) {
    for _ in 0..20 {
        if coppice.storage().owners[0].kept_bytes == 0 {
            return;
        }
        coppice.pass(1);
    }
    panic!("the old chain is not cleared: {:?}", coppice.storage());
}

/// A block with an id and a key that all blocks share, and an id and a key of its own. `fork` makes it another block.
fn shared(number: u64, fork: u64) -> AppendBlock {
    let own = (number ^ fork << 50).to_le_bytes();
    let ids = [id(77 << 40), id(number ^ fork << 50)];
    let block = with_keys(block(number, &ids, 30_000), &[(0, b"all"), (1, &own)]);
    AppendBlock {
        hash: fork_hash(number, fork).into(),
        parent_hash: fork_hash(number.wrapping_sub(1), fork).into(),
        ..block
    }
}

fn fork_hash(number: u64, fork: u64) -> [u8; 32] {
    if fork == 0 { hash(number) } else { hash(number ^ fork << 50) }
}

fn has_only(coppice: &Coppice, numbers: std::ops::Range<u64>, fork: u64, gone: &[u64]) {
    let all: Vec<_> = numbers.clone().rev().map(|number| (number, 0)).collect();
    assert_eq!(coppice.find_all(b"all", 3), all);
    assert_eq!(coppice.location(id(77 << 40)), all.first().copied().ok_or(ReadError::NotFound));
    for number in numbers.clone() {
        assert_eq!(coppice.location(id(number ^ fork << 50)), Ok((number, 1)));
        assert_eq!(coppice.find_all(&(number ^ fork << 50).to_le_bytes(), 0), [(number, 1)]);
        assert_eq!(coppice.block(number).unwrap().index, shared(number, fork).index);
    }
    for &of_before in gone {
        assert_eq!(coppice.location(id(of_before)), Err(ReadError::NotFound), "{of_before}");
        assert_eq!(coppice.find_all(&of_before.to_le_bytes(), 0), [], "{of_before}");
    }
}

#[test]
fn each_refusal_names_its_reason_and_changes_nothing() {
    let coppice = Coppice::new();
    assert_eq!(reset_with(&coppice, &hash(0), true), Err(ResetError::Empty));
    assert_eq!(reset_with(&coppice, &[], true), Err(ResetError::Empty));
    coppice.append_plain(5..9, 50_000);
    let before = coppice.chain();
    let wrong = Err(ResetError::WrongHash { expected: hash(8).into() });
    for other in [&hash(7)[..], &[], &hash(8)[..31], &[&hash(8)[..], &[0]].concat()] {
        assert_eq!(reset_with(&coppice, other, true), wrong);
    }
    for who in [Who::Producer, Who::Stranger, Who::Exporter] {
        let argument = ResetChain { head_hash: hash(8).into(), drop_unexported: true };
        let refused = coppice.by(who).reset_chain(&argument).try_answer();
        assert!(refused.is_err(), "{who:?}");
    }
    let begin = upload(&plain(9, 1, 10), 10).0;
    coppice.producer().begin_block(&begin).answer().unwrap();
    assert!(matches!(reset_with(&coppice, &hash(8), true), Err(ResetError::UploadOpen(UploadOpen { .. }))));
    coppice.producer().abort_block(9u64).answer().unwrap();
    // A rollback that takes several messages.
    let few = PrunePolicyArg { max_ops_per_tick: Some(1), retain_blocks: Some(100), ..PrunePolicyArg::default() };
    coppice.set_policy(few).unwrap();
    coppice.append_plain(9..20, 10);
    coppice.hold_timers();
    let done = coppice.producer().rollback_to(8u64, None).answer().unwrap();
    assert!(done.has_more);
    let underway = Err(ResetError::RollbackUnderway { to: 8 });
    assert_eq!(reset_with(&coppice, &hash(done.head), true), underway);
    coppice.release_timers();
    coppice.pass(60);
    while coppice.head() != Some(8) {
        coppice.pass(60);
    }
    // The refusal names the slowest exporter and its bound.
    coppice.register(Who::Exporter);
    coppice.register(Who::Archive);
    let behind =
        |who: Who, exported_before_block| Err(ResetError::NotExported { exporter: who.name(), exported_before_block });
    coppice.ack(Who::Exporter, 8, &hash(8)).unwrap();
    assert_eq!(reset_with(&coppice, &hash(8), false), behind(Who::Archive, 5));
    coppice.ack(Who::Archive, 7, &hash(7)).unwrap();
    assert_eq!(reset_with(&coppice, &hash(8), false), behind(Who::Archive, 8));
    assert_eq!(coppice.chain(), before);
    coppice.ack(Who::Archive, 8, &hash(8)).unwrap();
    assert_eq!(reset_with(&coppice, &hash(8), false).unwrap().blocks, 4);
    cleared(&coppice);
    assert_eq!(reset_with(&coppice, &hash(8), true), Err(ResetError::Empty), "again");
}

#[test]
fn the_chain_restarts_at_any_number_and_old_data_is_not_found() {
    for at in [0, 1, 99, 100, 103, 104, 105, 106, 1_000, 1 << 40, 1 << 62, (1 << 63) - 9, (1 << 63) - 3] {
        let coppice = Coppice::new();
        (100..106).for_each(|number| coppice.append(&shared(number, 0)).unwrap());
        coppice.set_policy(PrunePolicyArg { retain_blocks: Some(3), ..PrunePolicyArg::default() }).unwrap();
        coppice.prune_now(1_000);
        has_only(&coppice, 102..106, 0, &[100, 101]);
        coppice.hold_timers();
        let done = reset(&coppice, 105);
        assert!(done.blocks == 4 && done.left > 4, "{done:?}");
        assert_eq!((coppice.head(), coppice.chain()), (None, vec![]));
        has_only(&coppice, 0..0, 0, &[100, 101, 102, 105]);
        let waits = coppice.append(&shared(at, 1));
        assert_eq!(waits, Err(AppendError::ResetUnderway { left: done.left }));
        let begin = upload(&plain(at, 1, 10), 10).0;
        let waits = coppice.producer().begin_block(&begin).answer();
        assert_eq!(waits, Err(AppendError::ResetUnderway { left: done.left }));
        coppice.release_timers();
        coppice.upgrade();
        coppice.pass(60);
        cleared(&coppice);
        let storage = coppice.storage();
        assert_eq!((blob_bytes(&storage), storage.quarantined_bytes, storage.blocks), (0, 0, 0), "{storage:?}");
        let end = at + 3;
        for number in at..end {
            coppice.append(&shared(number, 1)).unwrap_or_else(|error| panic!("{at}: {number}: {error:?}"));
            has_only(&coppice, at..number + 1, 1, &[100, 101, 102, 103, 104, 105]);
        }
        assert_eq!(coppice.block(at.wrapping_sub(1)), Err(ReadError::NotFound), "it was never there");
        coppice.upgrade();
        has_only(&coppice, at..end, 1, &[100, 101, 102, 103, 104, 105]);
        // A sweep removes the stale entries of the old chain together with those of blocks that are pruned now.
        coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
        for _ in 0..3 {
            coppice.prune_now(10_000);
        }
        has_only(&coppice, end - 2..end, 1, &[100, 103, 105]);
        let status = coppice.prune_status();
        assert_eq!((status.transaction_index.entries, status.key_index.entries, status.faults), (3, 3, 0), "{at}");
        assert_eq!(status.backlog.debt, 0);
        assert_eq!(coppice.producer().rollback_to(end - 2, None).answer().unwrap().head, end - 2);
    }
}

/// A number that no index database can hold is refused as the first one, and the chain can begin and end at the last possible number.
#[test]
fn first_number_of_more_than_63_bits_is_refused_after_a_reset_too() {
    const LAST: u64 = (1 << 63) - 1;
    let coppice = Coppice::new();
    coppice.append_plain(0..3, 10);
    reset(&coppice, 2);
    coppice.pass(60);
    cleared(&coppice);
    let too_large = AppendError::TooLarge { what: "number".into(), limit: LAST };
    for number in [u64::MAX, LAST + 1] {
        assert_eq!(coppice.append(&plain(number, 1, 10)), Err(too_large.clone()));
        let (begin, _) = upload(&plain(number, 1, 10), 100);
        assert_eq!(coppice.producer().begin_block(&begin).answer(), Err(too_large.clone()));
    }
    coppice.append(&plain(LAST, 1, 10)).unwrap();
    assert_eq!(coppice.head(), Some(LAST));
    assert_eq!(coppice.location(plain_id(LAST, 0)), Ok((LAST, 0)));
    assert_eq!(coppice.append(&plain(LAST + 1, 1, 10)), Err(too_large));
    assert_eq!(reset(&coppice, LAST).blocks, 1);
    coppice.pass(60);
    cleared(&coppice);
    coppice.append_plain(0..2, 10);
}

#[test]
fn old_cursors_are_refused_after_a_reset() {
    let coppice = Coppice::new();
    (0..6).for_each(|number| coppice.append(&shared(number, 0)).unwrap());
    // Cursors that record the number of rollbacks, one here, and cursors that do not.
    coppice.producer().rollback_to(4u64, None).answer().unwrap();
    coppice.append(&shared(5, 0)).unwrap();
    let exports = [(0, 0), (2, 3), (5, 0)].map(|(number, segment)| {
        let hash = BlockHash::from(hash(number));
        ExportCursor { number, hash, segment, offset: 0, rollbacks: 1 }
    });
    let unknown = exports.clone().map(|cursor| ExportCursor { rollbacks: 0, ..cursor });
    let keys = coppice.find(b"all", None, 2).unwrap().cursor.unwrap();
    for cursor in exports.iter().chain(&unknown) {
        assert!(coppice.export(Some(cursor.clone()), 10).is_ok(), "{cursor:?}");
    }
    reset(&coppice, 5);
    let are_refused = |first_available, what: &str| {
        for cursor in exports.iter().chain(&unknown) {
            let answer = coppice.export(Some(cursor.clone()), 10);
            assert_eq!(answer, Err(ExportError::Reset { first_available }), "{what}: {cursor:?}");
        }
        assert_eq!(coppice.find(b"all", Some(&keys), 2), Err(KeyError::Reset { first_available }), "{what}");
    };
    are_refused(None, "empty");
    let page = coppice.export(None, 10).unwrap();
    assert_eq!((page.chunks.len(), page.cursor, page.head), (0, None, None));
    coppice.upgrade();
    coppice.pass(60);
    cleared(&coppice);
    are_refused(None, "cleared");
    // The new chain is first lower than the cursors, then as high, then higher.
    coppice.append(&shared(1, 1)).unwrap();
    are_refused(Some(1), "lower");
    (2..9).for_each(|number| coppice.append(&shared(number, 1)).unwrap());
    are_refused(Some(1), "higher");
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.prune_now(1_000);
    are_refused(Some(7), "pruned");
    // A cursor of the new chain works like any other; a cursor without the number of rollbacks is checked by its hash.
    let new = coppice.export(None, 1 << 20).unwrap().cursor.unwrap();
    assert!(new.rollbacks > 1, "{new:?}");
    assert!(coppice.export(Some(new.clone()), 0).is_ok());
    assert!(coppice.export(Some(ExportCursor { rollbacks: 0, ..new.clone() }), 0).is_ok());
    // A replica that lags has not seen the reset: its answer is `Behind`.
    let ahead = ExportCursor { rollbacks: 99, number: 50, ..new };
    assert_eq!(coppice.export(Some(ahead), 0), Err(ExportError::Behind { head: Some(8) }));
    let list = coppice.find(b"all", None, 1).unwrap().cursor.unwrap();
    assert!(coppice.find(b"all", Some(&list), 1).is_ok());
}

#[test]
fn exporters_restart_with_the_new_chain() {
    let coppice = Coppice::new();
    coppice.register(Who::Exporter);
    coppice.append_plain(10..14, 10);
    coppice.ack(Who::Exporter, 13, &hash(13)).unwrap();
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    reset(&coppice, 13);
    let status = &coppice.export_status().exporters[0];
    assert_eq!((status.exported_before_block, status.lag_blocks, status.lag_secs), (0, 0, 0));
    assert_eq!(coppice.ack(Who::Exporter, 13, &hash(13)), Err(AckError::AboveHead { head: None }));
    coppice.pass(60);
    cleared(&coppice);
    // The new chain is lower than the old acknowledgement: no block may be pruned.
    coppice.append_plain(3..9, 10);
    coppice.settle(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (3, Some(HeldBy::Exporter(Who::Exporter.name()))));
    assert_eq!(coppice.export_status().exporters[0].lag_blocks, 6);
    coppice.ack(Who::Exporter, 5, &hash(5)).unwrap();
    coppice.settle(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 6);
    // Unexported blocks are dropped only with `drop_unexported`.
    let refused = reset_with(&coppice, &hash(8), false);
    let left = ResetError::NotExported { exporter: Who::Exporter.name(), exported_before_block: 6 };
    assert_eq!(refused, Err(left));
    assert_eq!(reset_with(&coppice, &hash(8), true).unwrap().blocks, 3);
}

/// After many resets no memory grows, and look-ups find nothing of an earlier chain.
#[test]
fn many_resets_in_a_row_leave_nothing_behind() {
    let coppice = Coppice::new();
    let (mut gone, mut pages) = (Vec::new(), Vec::new());
    for round in 0..40u64 {
        let at = [7, 7, 8, 3, 1 << 33][round as usize % 5];
        let blocks = at..at + 1 + round % 4;
        for number in blocks.clone() {
            let new = shared(number, round + 1);
            if number % 3 == 0 { coppice.upload(&new, 10_000).unwrap() } else { coppice.append(&new).unwrap() }
        }
        has_only(&coppice, blocks.clone(), round + 1, &gone);
        if round % 7 == 0 {
            coppice.upgrade();
        }
        let head = fork_hash(blocks.end - 1, round + 1);
        assert_eq!(reset_with(&coppice, &head, false).unwrap().blocks, blocks.end - blocks.start);
        assert_eq!(reset_with(&coppice, &head, false), Err(ResetError::Empty));
        coppice.pass(60);
        cleared(&coppice);
        gone.extend(blocks.map(|number| number ^ (round + 1) << 50));
        pages.push(coppice.storage().billed_bytes);
    }
    assert_eq!(pages.first(), pages.last(), "cleared space is reused: {pages:?}");
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.append(&shared(5, 99)).unwrap();
    coppice.prune_now(10_000);
    has_only(&coppice, 5..6, 99, &gone);
    let status = coppice.prune_status();
    assert_eq!((status.transaction_index.entries, status.key_index.entries), (2, 2), "{status:?}");
    assert_eq!(
        (status.faults, coppice.storage().owners[0].kept_bytes / u64::from(coppice_tests::coppice::LOG_CLASS)),
        (0, 1)
    );
}

/// Stale entries of a reset are swept without a policy, and while pruning is switched off.
#[test]
fn resets_leave_no_index_entries_whether_blocks_are_pruned_or_not() {
    let coppice = Coppice::new();
    let status = || coppice.prune_status();
    for (round, with_policy) in [(0, false), (1, false), (2, true)] {
        if with_policy {
            let off = PrunePolicyArg { retain_blocks: Some(1_000), ..PrunePolicyArg::default() };
            coppice.set_policy(off).unwrap();
            coppice
                .operator()
                .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
                .answer()
                .unwrap();
        }
        for number in 0..2 {
            let ids: Vec<_> = (0..8_000).map(|of| id(round << 40 | number << 20 | of)).collect();
            let keys: Vec<_> =
                (0..3_000).map(|of: u32| (of, [&of.to_le_bytes()[..], &number.to_le_bytes()].concat())).collect();
            let keys: Vec<_> = keys.iter().map(|(transaction, key)| (*transaction, key.as_slice())).collect();
            coppice.append(&with_keys(block(number, &ids, 10), &keys)).unwrap();
        }
        assert_eq!((status().transaction_index.entries, status().key_index.entries), (16_000, 6_000));
        reset(&coppice, 1);
        (0..3).for_each(|_| coppice.pass(60));
        let after = status();
        assert_eq!((after.transaction_index.entries, after.key_index.entries), (0, 0), "{after:?}");
        assert_eq!((after.sweep, after.enabled), (SweepPhase::Idle, false));
        // Nothing is left to do, so only the safety timer fires, once in ten minutes.
        (0..4).for_each(|_| coppice.pass(60));
        assert!(status().ticks <= after.ticks + 1, "{} after {}", status().ticks, after.ticks);
    }
    assert_eq!(status().transaction_index.dropped, 3 * 16_000);
}
