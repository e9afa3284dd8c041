//! Reorgs of applied blocks: `rollback_to` takes them back from the UTXO records, beside a feeder that never stops; new beginnings, resets,
//! late calls, pruned records, and memory that is refused.

use crate::utxo::{configure, get};
use coppice_tests::blocks::hash;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::{self, Tx};
use ic_coppice_interface::*;

pub const HEIGHT: u32 = 1_000;

/// A block of a branch; branch 0 is the first one.
fn block(branch: u64, number: u64, parent: &BlockHash, txs: &[Tx]) -> AppendBlock {
    let hash = BlockHash::from(hash(number ^ branch << 40));
    AppendBlock { hash, parent_hash: parent.clone(), ..transactions::block(number, txs) }
}

/// The argument for a block of a branch, whose id tells the branch.
pub fn argument(branch: u64, number: u64) -> UtxoApplyBlock {
    UtxoApplyBlock {
        number,
        hash: hash(number ^ branch << 40).into(),
        height: HEIGHT + number as u32,
        block_id: (branch * 10_000 + number) as u32,
        missing_parents: Some(MissingParents::Skip),
        skip: None,
        skip_rest: false,
    }
}

/// The transactions of a block: its coinbase, and one that spends an output of the block before.
pub fn txs(branch: u64, number: u64) -> Vec<Tx> {
    let salt = |number: u64| branch * 100_000 + number;
    let mut before = Tx::orphan(salt(0), 2);
    for number in 1..=number {
        before = Tx::of(salt(number), &[(before.txid, 0)], 2);
    }
    vec![Tx::coinbase(salt(number), 1), before]
}

/// A canister with a feeder of its own (`Rival`) besides the producer.
pub fn canister() -> Coppice {
    let coppice = Coppice::new();
    coppice.grant(Who::Rival, Role::UtxoFeeder);
    coppice
}

/// Appends blocks of a branch.
pub fn append(coppice: &Coppice, branch: u64, numbers: std::ops::Range<u64>, of: impl Fn(u64) -> Vec<Tx>) {
    for number in numbers {
        let parent = coppice.anyone().get_head().answer().map_or(BlockHash::default(), |head| head.hash);
        coppice.append(&block(branch, number, &parent, &of(number))).unwrap();
    }
}

pub fn apply(coppice: &Coppice, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
    coppice.by(Who::Controller).utxo_apply_block(arg).answer()
}

pub fn apply_all(coppice: &Coppice, branch: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        while apply(coppice, &argument(branch, number)).unwrap().has_more {}
    }
}

pub fn roll_back(coppice: &Coppice, number: u64) -> Result<Rollback, RollbackError> {
    coppice.producer().rollback_to(number, None).answer()
}

fn applying(coppice: &Coppice) -> Option<UtxoApplyPosition> {
    coppice.storage().utxo.unwrap().applying
}

/// Asserts that the transactions of abandoned blocks are in no block, and their coinbases double spends.
fn assert_abandoned(coppice: &Coppice, txs: &[Tx]) {
    for (nth, tx) in txs.iter().enumerate() {
        let record = get(coppice, tx).unwrap();
        assert_eq!(
            (record.blocks.len(), record.unmined_since.is_some(), record.conflicting),
            (0, true, nth == 0),
            "{nth}"
        );
    }
}

pub fn problem(coppice: &Coppice, code: ProblemCode) -> Option<Problem> {
    coppice.health().problems.into_iter().find(|problem| problem.code == code)
}

/// Lets ticks work until something is so.
fn pass_until(coppice: &Coppice, is_so: impl Fn(&Coppice) -> bool) {
    for _ in 0..200 {
        if is_so(coppice) {
            return;
        }
        coppice.pass(30);
    }
    panic!("ticks do not get there");
}

/// Lets a message of a rollback remove one block.
fn one_block_a_message(coppice: &Coppice) {
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(1), ..PrunePolicyArg::default() }).unwrap();
}

#[test]
fn rollback_takes_applied_blocks_back_beside_a_feeder_that_never_stops() {
    const BLOCKS: u64 = 1_010;
    let coppice = canister();
    let mut all: Vec<Vec<Tx>> = Vec::new();
    for number in 0..BLOCKS {
        let tx = all.last().map_or_else(|| Tx::orphan(0, 2), |before| Tx::of(number, &[(before[1].txid, 0)], 2));
        all.push(vec![Tx::coinbase(number, 1), tx]);
    }
    configure(&coppice, UtxoSettingsChange { block_height_retention: Some(2_000), ..UtxoSettingsChange::default() })
        .unwrap();
    append(&coppice, 0, 0..BLOCKS, |number| all[number as usize].clone());
    apply_all(&coppice, 0, 0..BLOCKS);
    one_block_a_message(&coppice);
    coppice.hold_timers();
    let (mut removed, mut messages) = (0, 0);
    loop {
        let done = roll_back(&coppice, 9).unwrap();
        (removed, messages) = (removed + done.removed, messages + 1);
        if !done.has_more {
            assert_eq!((done.head, done.waits), (9, None));
            break;
        }
        // The feeder applies whatever it can.
        let next = applying(&coppice).unwrap().next;
        for number in [next, next - 1] {
            let refused = coppice.by(Who::Rival).utxo_apply_block(&argument(0, number)).answer();
            assert_eq!(refused, Err(UtxoApplyError::RollbackUnderway { to: 9 }));
        }
        assert!(next <= done.head + 1, "the position {next} is above the head {}", done.head);
        let parent = BlockHash::from(hash(done.head));
        let refused = coppice.append(&block(7, done.head + 1, &parent, &[]));
        assert_eq!(refused, Err(AppendError::RollbackUnderway { to: 9 }));
        if messages % 200 == 0 {
            coppice.upgrade();
        }
    }
    assert_eq!(removed, 1_000);
    assert!(messages > 500, "{messages}");
    assert_eq!(
        applying(&coppice),
        Some(UtxoApplyPosition {
            base: 0,
            next: 10,
            height: HEIGHT + 10,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
    for number in [10, 500, 1_009] {
        assert_abandoned(&coppice, &all[number]);
    }
    assert_eq!(get(&coppice, &all[9][1]).unwrap().blocks.len(), 1);
    // The other branch has some of the transactions again.
    append(&coppice, 1, 10..13, |number| vec![Tx::coinbase(90_000 + number, 1), all[number as usize][1].clone()]);
    for number in 10..13 {
        let done = coppice.by(Who::Rival).utxo_apply_block(&argument(1, number)).answer().unwrap();
        assert_eq!((done.created, done.existed, done.pruned), (1, 1, 0));
    }
    assert_eq!(get(&coppice, &all[12][1]).unwrap().blocks[0].block_id, 10_012);
}

#[test]
fn ticks_finish_a_rollback_whose_caller_is_gone() {
    let coppice = canister();
    append(&coppice, 0, 0..30, |number| txs(0, number));
    apply_all(&coppice, 0, 0..30);
    one_block_a_message(&coppice);
    assert!(roll_back(&coppice, 4).unwrap().has_more);
    coppice.upgrade();
    pass_until(&coppice, |coppice| coppice.head() == Some(4));
    assert_eq!((coppice.head(), applying(&coppice).map(|at| at.next)), (Some(4), Some(5)));
    (5..30).for_each(|number| assert_abandoned(&coppice, &txs(0, number)));
}

#[test]
fn rollback_is_as_deep_as_its_caller_may() {
    let coppice = canister();
    append(&coppice, 0, 0..6, |number| txs(0, number));
    apply_all(&coppice, 0, 0..6);
    coppice.grant(Who::Archive, Role::BlockProducer);
    coppice.configure(ConfigChange { max_rollback_blocks: Some(2), ..ConfigChange::default() });
    let back = |who: Who, number: u64| coppice.by(who).rollback_to(number, Some(true)).answer();
    assert_eq!(back(Who::Archive, 2), Err(RollbackError::TooDeep { lowest: 3 }));
    assert_eq!(back(Who::Archive, 3).map(|done| done.removed), Ok(2));
    assert_eq!(back(Who::Producer, 2), Err(RollbackError::TooDeep { lowest: 3 }));
    assert_eq!(back(Who::Controller, 2).map(|done| done.removed), Ok(1));
    assert_eq!(applying(&coppice).map(|at| at.next), Some(3));
    for who in [Who::Rival, Who::Stranger] {
        assert!(coppice.by(who).rollback_to(1, None).try_answer().is_err(), "{who:?}");
    }
}

#[test]
fn block_in_whose_middle_applying_ended_is_taken_back_whole() {
    let coppice = canister();
    append(&coppice, 0, 0..1, |number| txs(0, number));
    apply_all(&coppice, 0, 0..1);
    let orphan = Tx::of(77, &[([9; 32], 0)], 1);
    let half = [txs(0, 1), vec![orphan, Tx::orphan(5, 1)]].concat();
    append(&coppice, 0, 1..2, |_| half.clone());
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(0, 1) };
    assert_eq!(apply(&coppice, &refuse).map(|done| (done.has_more, done.transactions)), Ok((true, 2)));
    assert_eq!(coppice.operator().utxo_stop_applying().answer().map(|at| at.transactions), Some(2));
    assert_eq!(get(&coppice, &half[1]).unwrap().blocks.len(), 1);
    assert_eq!(roll_back(&coppice, 0).map(|done| done.removed), Ok(1));
    assert_abandoned(&coppice, &half[..2]);
    assert!(get(&coppice, &half[3]).is_err());
}

#[test]
fn reorg_below_a_new_beginning_takes_the_earlier_blocks_back_and_applies_their_replacements() {
    let coppice = canister();
    append(&coppice, 0, 0..10, |number| txs(0, number));
    apply_all(&coppice, 0, 0..4);
    coppice.operator().utxo_stop_applying().answer().unwrap();
    // The new beginning leaves a gap.
    apply_all(&coppice, 0, 6..9);
    assert_eq!(applying(&coppice).map(|at| (at.base, at.next)), Some((6, 9)));
    assert_eq!(roll_back(&coppice, 1).map(|done| done.removed), Ok(8));
    [2, 3, 6, 7, 8].into_iter().for_each(|number| assert_abandoned(&coppice, &txs(0, number)));
    assert_eq!(
        applying(&coppice),
        Some(UtxoApplyPosition {
            base: 2,
            next: 2,
            height: HEIGHT + 2,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
    append(&coppice, 1, 2..5, |number| txs(1, number));
    for number in 2..5 {
        assert_eq!(
            coppice.by(Who::Rival).utxo_apply_block(&argument(1, number)).answer().map(|done| done.created),
            Ok(2)
        );
    }
}

#[test]
fn applied_block_is_known_and_under_another_id_or_height_it_is_refused() {
    let coppice = canister();
    append(&coppice, 0, 0..4, |number| txs(0, number));
    apply_all(&coppice, 0, 0..3);
    let known = UtxoApplied { known: true, transactions: 2, ..UtxoApplied::default() };
    for stopped in [false, true] {
        if stopped {
            coppice.operator().utxo_stop_applying().answer().unwrap();
            coppice.upgrade();
        }
        let before = (applying(&coppice), get(&coppice, &txs(0, 1)[1]));
        for number in [0, 1, 2] {
            assert_eq!(apply(&coppice, &argument(0, number)), Ok(known), "{number}");
            let other = UtxoApplyBlock { block_id: 70, ..argument(0, number) };
            assert_eq!(apply(&coppice, &other), Err(UtxoApplyError::OtherId { block_id: number as u32 }));
            let other = UtxoApplyBlock { height: 70, ..argument(0, number) };
            assert_eq!(apply(&coppice, &other), Err(UtxoApplyError::WrongHeight { expected: HEIGHT + number as u32 }));
        }
        assert_eq!((applying(&coppice), get(&coppice, &txs(0, 1)[1])), before);
    }
    // A new beginning takes up after the applied blocks.
    assert_eq!(apply(&coppice, &argument(0, 3)).map(|done| done.created), Ok(2));
}

#[test]
fn late_call_is_known_or_refused_and_never_does_another_blocks_work() {
    let coppice = canister();
    append(&coppice, 0, 0..6, |number| txs(0, number));
    apply_all(&coppice, 0, 0..6);
    roll_back(&coppice, 2).unwrap();
    let call = |arg: &UtxoApplyBlock| coppice.by(Who::Rival).utxo_apply_block(arg).answer();
    assert_eq!(call(&argument(0, 3)), Err(UtxoApplyError::NotFound));
    append(&coppice, 1, 3..6, |number| txs(1, number));
    // The call of the old branch comes late, before and after the new block is applied.
    let expected = Err(UtxoApplyError::WrongHash { expected: hash(3 ^ 1 << 40).into() });
    assert_eq!(call(&argument(0, 3)), expected);
    assert_eq!(call(&argument(1, 4)), Err(UtxoApplyError::NotNext { next: 3 }));
    assert_eq!(call(&argument(1, 3)).map(|done| done.created), Ok(2));
    assert_eq!(call(&argument(0, 3)), expected);
    assert_eq!(call(&argument(1, 3)).map(|done| done.known), Ok(true));
    assert_eq!(applying(&coppice).map(|at| at.next), Some(4));
    coppice
        .set_policy(PrunePolicyArg { retain_blocks: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() })
        .unwrap();
    coppice.settle(100);
    let first_available = coppice.prune_status().pruned_before_block;
    assert!(first_available > 3);
    for arg in [argument(0, 3), argument(1, 3), UtxoApplyBlock { height: 1, ..argument(1, 2) }] {
        assert_eq!(call(&arg), Err(UtxoApplyError::Pruned { first_available }), "nothing is known of a pruned block");
    }
}

/// The transactions of a block: its coinbase, and one that spends all outputs of the one in the block before.
pub fn spent(number: u64) -> Vec<Tx> {
    let mut before = Tx::orphan(1, 2);
    for number in 1..=number {
        before = Tx::of(1 + number, &[(before.txid, 0), (before.txid, 1)], 2);
    }
    vec![Tx::coinbase(50_000 + number, 1), before]
}

/// A canister with 60 blocks, applied from the first one on, whose pruner has deleted the spent records of old ones.
pub fn pruned_spent(retention: u32) -> Coppice {
    pruned_from(retention, 0)
}

/// The same, with blocks that are applied from `first` on.
fn pruned_from(retention: u32, first: u64) -> Coppice {
    let coppice = canister();
    let change = UtxoSettingsChange { block_height_retention: Some(retention), ..UtxoSettingsChange::default() };
    configure(&coppice, change).unwrap();
    append(&coppice, 0, 0..60, spent);
    apply_all(&coppice, 0, first..60);
    coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    for _ in 0..20 {
        coppice.pass(60);
    }
    assert!(coppice.storage().utxo.unwrap().pruned_height.is_some(), "{:?}", coppice.storage().utxo.unwrap());
    coppice
}

#[test]
fn blocks_of_which_records_may_be_pruned_are_taken_back_only_for_an_admin_who_says_so() {
    let coppice = pruned_spent(10);
    let pruned_height = coppice.storage().utxo.unwrap().pruned_height.unwrap();
    let lowest = u64::from(pruned_height - HEIGHT);
    assert!((20..55).contains(&lowest), "{lowest}");
    let refused = Err(RollbackError::Incomplete { lowest, pruned_height });
    let back = |who: Who, number: u64, incomplete| coppice.by(who).rollback_to(number, incomplete).answer();
    for (who, incomplete) in
        [(Who::Producer, None), (Who::Producer, Some(true)), (Who::Controller, None), (Who::Controller, Some(false))]
    {
        assert_eq!(back(who, lowest - 1, incomplete), refused, "{who:?}, {incomplete:?}");
    }
    assert_eq!(coppice.storage().utxo.unwrap().restorable_to, Some(lowest), "the status says so before");
    assert_eq!(get(&coppice, &spent(lowest + 1)[1]).unwrap().blocks.len(), 1);
    assert!(get(&coppice, &spent(lowest)[1]).is_err());
    assert_eq!(back(Who::Producer, lowest, None).map(|done| (done.head, done.not_restored)), Ok((lowest, Some(0))));
    assert_eq!(problem(&coppice, ProblemCode::NotRestored), None);
    let done = back(Who::Controller, 4, Some(true)).unwrap();
    assert_eq!((done.head, done.has_more), (4, false));
    assert_eq!(coppice.storage().utxo.unwrap().restorable_to, Some(4), "the head");
    // Coinbases are unspent, and stay.
    assert_eq!(done.not_restored, Some(lowest - 4));
    let found = problem(&coppice, ProblemCode::NotRestored).expect("health names it");
    assert!(
        found.message.starts_with(&format!("{} transactions of blocks that were taken back", lowest - 4)),
        "{found:?}"
    );
    let entry = coppice
        .operator()
        .get_audit_log(None, 10)
        .answer()
        .entries
        .into_iter()
        .find(|entry| entry.method == "rollback_to");
    assert!(entry.unwrap().argument.ends_with("4, incomplete"));
    // The same blocks come again in another branch: each record is new, although the blocks lie at or below the pruned height.
    append(&coppice, 1, 5..40, spent);
    for number in 5..40 {
        let done = coppice.by(Who::Rival).utxo_apply_block(&argument(1, number)).answer().unwrap();
        let created = if number <= lowest { 1 } else { 0 };
        assert_eq!((done.created, done.pruned), (created, 0), "{number}: {done:?}");
    }
    coppice.operator().acknowledge_faults(0).answer();
    assert_eq!(problem(&coppice, ProblemCode::NotRestored), None);
}

#[test]
fn record_pruner_waits_until_a_rollback_has_ended() {
    let coppice = pruned_spent(10);
    one_block_a_message(&coppice);
    let before = coppice.storage().utxo.unwrap();
    coppice.hold_timers();
    assert!(roll_back(&coppice, 50).unwrap().has_more);
    coppice.producer().utxo_notify_block(HEIGHT + 70, true).answer().unwrap();
    coppice.operator().utxo_prune(HEIGHT + 70).answer().unwrap();
    assert_eq!(coppice.storage().utxo.unwrap().pruned_height, before.pruned_height);
    coppice.release_timers();
    pass_until(&coppice, |coppice| coppice.storage().utxo.unwrap().pruned_height > before.pruned_height);
    assert_eq!(coppice.head(), Some(50), "the rollback came first");
}

#[test]
fn chain_after_a_reset_is_new() {
    let coppice = pruned_spent(10);
    let status = coppice.anyone().utxo_get_pruner_status().answer();
    assert!(status.current_height > 0);
    coppice.producer().utxo_notify_block_persisted(HEIGHT + 59).answer().unwrap();
    let head_hash = coppice.anyone().get_head().answer().unwrap().hash;
    let reset = ResetChain { head_hash, drop_unexported: false };
    let records = coppice.storage().utxo.unwrap().records;
    assert_eq!(
        coppice.operator().reset_chain(&reset).answer().map(|done| (done.blocks, done.utxo_records)),
        Ok((60, Some(records)))
    );
    let (storage, status) = (coppice.storage().utxo.unwrap(), coppice.anyone().utxo_get_pruner_status().answer());
    assert_eq!((storage.records, storage.pruned_height, storage.applying), (records, None, None));
    assert_eq!((status.current_height, status.last_persisted_height, status.last_processed_height), (0, None, 0));
    assert_eq!((status.pending, status.running), (None, None));
    coppice.pass(60);
    // The same transactions in a new chain: no one is counted as pruned.
    append(&coppice, 2, 1..60, spent);
    for number in 1..60 {
        let done = apply(&coppice, &argument(2, number)).unwrap();
        assert_eq!((done.created + done.existed, done.pruned), (2, 0), "{number}: {done:?}");
    }
    assert_eq!(problem(&coppice, ProblemCode::CountedAsPruned), None);
}

#[test]
fn reorg_below_the_pruned_height_gives_each_new_coinbase_a_record() {
    let coppice = pruned_spent(10);
    assert_eq!(coppice.by(Who::Controller).rollback_to(10, Some(true)).answer().map(|done| done.head), Ok(10));
    append(&coppice, 1, 11..31, |number| vec![Tx::coinbase(70_000 + number, 1)]);
    for number in 11..31 {
        assert_eq!(apply(&coppice, &argument(1, number)).map(|done| (done.created, done.pruned)), Ok((1, 0)));
    }
}

#[test]
fn blocks_below_the_first_applied_one_are_new_after_a_rollback_whether_applying_has_ended_or_not() {
    for ends in [false, true] {
        let coppice = pruned_from(10, 10);
        if ends {
            coppice.operator().utxo_stop_applying().answer();
        }
        while coppice.by(Who::Controller).rollback_to(5, Some(true)).answer().unwrap().has_more {}
        append(&coppice, 1, 6..12, |number| vec![Tx::coinbase(70_000 + number, 1), Tx::orphan(70_000 + number, 1)]);
        for number in 6..12 {
            let done = apply(&coppice, &argument(1, number)).unwrap();
            assert_eq!((done.created, done.pruned), (2, 0), "{number}, {ends}");
        }
    }
}

#[test]
fn rollback_waits_for_refused_memory_and_goes_on_or_is_ended_by_a_reset() {
    for reset in [false, true] {
        let coppice = canister();
        let change = UtxoSettingsChange {
            copy_applied_transactions: Some(false),
            externalize_all: Some(true),
            max_external_bytes: Some(4_096),
            ..UtxoSettingsChange::default()
        };
        configure(&coppice, change).unwrap();
        append(&coppice, 0, 0..3, |number| vec![Tx::coinbase(number, 1), Tx::orphan(number, 300)]);
        apply_all(&coppice, 0, 0..3);
        let done = roll_back(&coppice, 0).unwrap();
        assert!(done.has_more && done.waits.is_some(), "{done:?}");
        let found = problem(&coppice, ProblemCode::RollbackWaits).expect("health names it");
        assert!(found.message.contains("the rollback to block 0 waits: block 2 cannot be taken back"), "{found:?}");
        // Ticks and calls try again: the refusal is as old as before, and is logged once.
        coppice.settle(300);
        assert!(roll_back(&coppice, 0).unwrap().waits.is_some());
        assert_eq!(problem(&coppice, ProblemCode::RollbackWaits).map(|again| again.since_ns), Some(found.since_ns));
        let logged = coppice.operator().get_logs(Some(LogPriority::Error), None, 0).answer().entries;
        let waits = |entry: &&LogEntry| entry.message.contains("rollback: waits: block 2");
        assert_eq!(logged.iter().filter(waits).count(), 1, "{logged:?}");
        coppice.upgrade();
        coppice.settle(300);
        assert_eq!((coppice.head(), applying(&coppice).map(|at| at.next)), (Some(2), Some(2)));
        assert!(problem(&coppice, ProblemCode::RollbackWaits).is_some());
        assert_eq!(apply(&coppice, &argument(0, 2)), Err(UtxoApplyError::RollbackUnderway { to: 0 }));
        if reset {
            let arg = ResetChain { head_hash: hash(2).into(), drop_unexported: false };
            assert_eq!(coppice.operator().reset_chain(&arg).answer().map(|done| done.blocks), Ok(3));
            coppice.pass(60);
            assert_eq!(problem(&coppice, ProblemCode::RollbackWaits), None);
            append(&coppice, 1, 7..8, |number| txs(1, number));
            assert!(apply(&coppice, &argument(1, 7)).is_ok());
            continue;
        }
        let change = UtxoSettingsChange { max_external_bytes: Some(1 << 30), ..UtxoSettingsChange::default() };
        configure(&coppice, change).unwrap();
        coppice.settle(300);
        assert_eq!((coppice.head(), applying(&coppice).map(|at| at.next)), (Some(0), Some(1)));
        assert_eq!(problem(&coppice, ProblemCode::RollbackWaits), None);
        let tx = Tx::orphan(2, 300);
        let part = UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: 0, length: u64::MAX };
        assert_eq!(
            coppice.anyone().utxo_get_transaction(&part).answer().unwrap().bytes,
            tx.raw,
            "the bytes outlast the block"
        );
    }
}
