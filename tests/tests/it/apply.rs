//! Kept blocks applied to the UTXO records, and the parts of the canister that this touches: roles, heights, pruning, rollbacks, resets,
//! upgrades, the audit log. `records/src/apply/tests` compares the records with those of the single calls.

use crate::utxo::get;
use coppice_tests::blocks::hash;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::{Tx, block};
use ic_coppice_interface::*;

pub const HEIGHT: u32 = 800_000;

pub fn argument(number: u64) -> UtxoApplyBlock {
    UtxoApplyBlock {
        number,
        hash: hash(number).into(),
        height: HEIGHT + number as u32,
        block_id: number as u32,
        missing_parents: Some(MissingParents::Skip),
        skip: None,
        skip_rest: false,
    }
}

pub fn apply_by(coppice: &Coppice, who: Who, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
    coppice.by(who).utxo_apply_block(arg).answer()
}

pub fn apply(coppice: &Coppice, number: u64) -> Result<UtxoApplied, UtxoApplyError> {
    apply_by(coppice, Who::Producer, &argument(number))
}

fn applying(coppice: &Coppice) -> Option<UtxoApplyPosition> {
    coppice.storage().utxo.unwrap().applying
}

/// A canister with blocks 0 to `blocks`, each with a coinbase and a transaction that spends from the block before, of which an operator
/// has applied the first, in the middle of a chain. Returns the transactions, block by block.
fn chain(blocks: u64) -> (Coppice, Vec<Vec<Tx>>) {
    let coppice = Coppice::new();
    let mut all: Vec<Vec<Tx>> = Vec::new();
    for number in 0..blocks {
        let mut txs = vec![Tx::coinbase(number, 1)];
        txs.push(match all.last() {
            None => Tx::orphan(500, 2),
            Some(before) => Tx::of(500 + number, &[(before[1].txid, 0)], 2),
        });
        coppice.append(&block(number, &txs)).unwrap();
        all.push(txs);
    }
    apply_by(&coppice, Who::Controller, &argument(0)).unwrap();
    (coppice, all)
}

fn current_height(coppice: &Coppice) -> u32 {
    coppice.anyone().utxo_get_pruner_status().answer().current_height
}

#[test]
fn operator_applies_the_first_block_and_a_feeder_all_others() {
    let coppice = Coppice::new();
    for number in 0..5 {
        coppice.append(&block(number, &[Tx::coinbase(number, 1)])).unwrap();
    }
    coppice.grant(Who::Rival, Role::UtxoFeeder);
    coppice.grant(Who::Archive, Role::BlockProducer);
    assert_eq!(apply_by(&coppice, Who::Rival, &argument(1)), Err(UtxoApplyError::OperatorOnly));
    assert_eq!(apply(&coppice, 1), Err(UtxoApplyError::OperatorOnly), "a producer is not an operator");
    for who in [Who::Archive, Who::Stranger, Who::Anonymous] {
        let rejected = coppice.call::<Result<UtxoApplied, UtxoApplyError>>(who, "utxo_apply_block", (argument(1),));
        assert!(rejected.is_err(), "{who:?}");
    }
    assert_eq!((applying(&coppice), current_height(&coppice)), (None, 0));
    apply_by(&coppice, Who::Controller, &argument(1)).unwrap();
    assert_eq!(current_height(&coppice), HEIGHT + 1, "the first height is not bounded");
    assert_eq!(apply_by(&coppice, Who::Rival, &argument(2)).map(|done| done.created), Ok(1));
    let wrong = UtxoApplyBlock { height: HEIGHT + 1_000, ..argument(3) };
    assert_eq!(apply_by(&coppice, Who::Rival, &wrong), Err(UtxoApplyError::WrongHeight { expected: HEIGHT + 3 }));
    assert_eq!(current_height(&coppice), HEIGHT + 2);
    // A feeder takes nothing back, and a producer of blocks does.
    let rejected = coppice.call::<Result<Rollback, RollbackError>>(Who::Rival, "rollback_to", (1u64,));
    assert!(rejected.is_err());
    assert_eq!(coppice.by(Who::Archive).rollback_to(1, None).answer().map(|done| done.head), Ok(1));
    assert_eq!(applying(&coppice).map(|at| (at.base, at.next)), Some((1, 2)));
    let rejected = coppice.call::<Option<UtxoApplyPosition>>(Who::Rival, "utxo_stop_applying", ());
    assert!(rejected.is_err());
    let entries = coppice.operator().get_audit_log(None, 100).answer().entries;
    let of = |method: &str| entries.iter().filter(|entry| entry.method == method).count();
    assert_eq!((of("utxo_apply_block"), of("rollback_to")), (1, 0), "only the operator's call is an entry");
}

#[test]
fn applied_heights_draw_nothing_from_the_bucket() {
    let (coppice, _) = chain(6);
    let settings = UtxoPrunerSettingsChange {
        max_height_jump: Some(1),
        heights_per_day: Some(1),
        ..UtxoPrunerSettingsChange::default()
    };
    coppice.operator().utxo_set_pruner_settings(&settings).answer().unwrap();
    for number in 1..6 {
        apply(&coppice, number).unwrap();
    }
    assert_eq!(current_height(&coppice), HEIGHT + 5);
    // A feeder's own notification still draws.
    assert!(coppice.producer().utxo_notify_block(HEIGHT + 9, true).answer().is_err());
    let persisted = coppice.anyone().utxo_get_pruner_status().answer().last_persisted_height;
    assert_eq!(persisted, None, "the persisted height is the block persister's");
}

#[test]
fn blocks_that_are_not_applied_are_not_pruned() {
    let (coppice, _) = chain(8);
    apply(&coppice, 1).unwrap();
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    coppice.settle(100);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (2, Some(HeldBy::UtxoApply)));
    assert_eq!(coppice.prune_now(1_000).blocks, 0);
    assert_eq!(coppice.plan().unwrap().held_by, Some(HeldBy::UtxoApply));
    coppice.pass(90_000);
    let health = coppice.health();
    assert!(health.problems.iter().any(|problem| problem.action.contains("utxo_stop_applying")), "{health:?}");
    apply(&coppice, 2).unwrap();
    coppice.settle(100);
    assert_eq!(coppice.prune_status().pruned_before_block, 3);
    assert_eq!(coppice.storage().utxo.unwrap().restorable_to, Some(3), "no record was pruned, so the oldest block");
    let ended = coppice.operator().utxo_stop_applying().answer();
    assert_eq!(
        ended,
        Some(UtxoApplyPosition {
            base: 0,
            next: 3,
            height: HEIGHT + 3,
            transactions: 0,
            missing_parents: MissingParents::Skip
        })
    );
    assert_eq!(coppice.operator().utxo_stop_applying().answer(), None);
    coppice.settle(100);
    assert_eq!((coppice.prune_status().pruned_before_block, applying(&coppice)), (6, None));
    // The operator begins again, at a block that is kept.
    let gone = UtxoApplyError::Pruned { first_available: 6 };
    assert_eq!(apply_by(&coppice, Who::Controller, &argument(3)), Err(gone));
    assert_eq!(apply_by(&coppice, Who::Controller, &argument(6)).map(|done| done.missing_parents), Ok(1));
}

#[test]
fn exporter_and_applying_hold_pruning_by_the_lower_bound() {
    let (coppice, _) = chain(6);
    coppice.register(Who::Exporter);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    assert_eq!(coppice.prune_status().held_by, Some(HeldBy::Exporter(Who::Exporter.name())));
    coppice.ack(Who::Exporter, 3, &hash(3)).unwrap();
    coppice.settle(100);
    assert_eq!(
        (coppice.prune_status().pruned_before_block, coppice.prune_status().held_by),
        (1, Some(HeldBy::UtxoApply))
    );
    (1..6).for_each(|number| assert!(apply(&coppice, number).is_ok()));
    coppice.settle(100);
    assert_eq!(coppice.prune_status().pruned_before_block, 4, "the exporter's bound");
}

#[test]
fn upgrade_between_any_two_messages_changes_nothing() {
    let coppice = Coppice::new();
    let parents: Vec<Tx> = (0..3).map(|salt| Tx::orphan(salt, 2_500)).collect();
    let inputs: Vec<_> = parents.iter().flat_map(|tx| (0..2_500).map(|vout| (tx.txid, vout))).collect();
    let child = Tx::of(50, &inputs, 1);
    let txs = [vec![Tx::coinbase(1, 1)], parents, vec![child.clone()]].concat();
    coppice.append(&block(0, &[])).unwrap();
    coppice.append(&block(1, &txs)).unwrap();
    let mut sums = (0, 0);
    loop {
        let done = apply_by(&coppice, Who::Controller, &argument(1)).unwrap();
        sums = (sums.0 + done.created, sums.1 + done.spent);
        coppice.upgrade();
        if !done.has_more {
            break;
        }
    }
    assert_eq!(sums, (5, 7_500));
    assert_eq!(get(&coppice, &child).unwrap().blocks.len(), 1);
    assert_eq!(applying(&coppice).map(|at| (at.next, at.transactions)), Some((2, 0)));
    coppice.producer().rollback_to(0, None).answer().unwrap();
    coppice.upgrade();
    assert_eq!(applying(&coppice).map(|at| (at.next, at.transactions)), Some((1, 0)));
    assert_eq!(get(&coppice, &child).unwrap().blocks.len(), 0);
}

#[test]
fn conflict_is_resolved_from_the_kept_block() {
    let (coppice, all) = chain(2);
    let (first, second) = (Tx::of(1, &[(all[0][1].txid, 1)], 1), Tx::of(2, &[(all[0][1].txid, 1)], 1));
    coppice.append(&block(2, &[Tx::coinbase(2, 1), second.clone()])).unwrap();
    let create = |source, conflicting| {
        let item = UtxoCreate { source, conflicting, ..first.record() };
        coppice
            .producer()
            .utxo_create(&UtxoCreateBatch { height: HEIGHT, items: vec![item] })
            .answer()
            .results
            .remove(0)
    };
    create(first.record().source, false).unwrap();
    let spends = vec![TransactionSpends { spender: first.id(), spends: vec![all[0][1].spend(1, 0)] }];
    coppice.producer().utxo_spend(&UtxoSpendBatch { height: HEIGHT, items: spends }).answer();
    apply(&coppice, 1).unwrap();
    assert_eq!(apply(&coppice, 2).map(|done| done.has_more), Ok(true));
    let Err(UtxoApplyError::Stopped(stop)) = apply(&coppice, 2) else { panic!("a double spend") };
    assert_eq!((stop.number, stop.transaction, stop.input, &stop.txid), (2, 1, Some(0), &second.id()));
    let kept = |number, position| TransactionSource::Kept(KeptTransaction { number, position });
    assert_eq!(create(kept(2, 2), true), Err(UtxoCreateError::NotKept));
    assert_eq!(create(kept(9, 0), true), Err(UtxoCreateError::NotKept));
    assert_eq!(create(kept(2, 1), true).map(|created| created.txid), Ok(second.id()));
    let process = UtxoProcessConflicting { height: HEIGHT + 2, winners: vec![second.id()] };
    assert!(!coppice.producer().utxo_process_conflicting(&process).answer().unwrap().has_more);
    assert_eq!(apply(&coppice, 2).map(|done| (done.has_more, done.existed)), Ok((false, 1)));
    assert!(get(&coppice, &first).unwrap().conflicting);
}

#[test]
fn each_skipped_transaction_is_in_the_audit_log() {
    let (coppice, _) = chain(1);
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(0) };
    assert_eq!(apply_by(&coppice, Who::Controller, &refuse).map(|done| done.known), Ok(true));
    let bad: Vec<Tx> = (0..3).map(|salt| Tx::of(salt, &[([9; 32], 0)], 1)).collect();
    coppice.append(&block(1, &[bad.as_slice(), &[Tx::orphan(10, 1)]].concat())).unwrap();
    let refuse = UtxoApplyBlock { missing_parents: None, ..argument(1) };
    for tx in &bad {
        assert!(matches!(apply_by(&coppice, Who::Producer, &refuse), Err(UtxoApplyError::Stopped(_))));
        assert!(apply_by(&coppice, Who::Producer, &UtxoApplyBlock { skip: Some(tx.id()), ..refuse.clone() }).is_ok());
    }
    // The last one can be applied, because its parent may be missing.
    let last = UtxoApplyBlock { skip: Some(Tx::orphan(10, 1).id()), ..argument(1) };
    let refused = Err(UtxoApplyError::OtherChoice { in_force: MissingParents::Refuse });
    assert_eq!(apply_by(&coppice, Who::Producer, &last), refused);
    assert_eq!(apply_by(&coppice, Who::Controller, &last).map(|done| (done.has_more, done.created)), Ok((false, 1)));
    let entries = coppice.operator().get_audit_log(None, 100).answer().entries;
    let of_operator = entries.iter().find(|entry| entry.caller == Who::Controller.principal()).unwrap();
    assert_eq!((of_operator.calls, of_operator.before.as_str()), (3, "applied = none; missing parents = Refuse"));
    assert!(of_operator.after.ends_with("missing parents = Skip"), "{of_operator:?}");
    let of_feeder = entries.iter().filter(|entry| entry.caller == Who::Producer.principal());
    let after: String = of_feeder.map(|entry| entry.after.as_str()).collect();
    assert_eq!(after.matches("skipped ").count(), 3, "{after}");
}

/// Returns the result of a batch of one `utxo_create`.
fn create_kept(coppice: &Coppice, number: u64, position: u32) -> Result<UtxoCreated, UtxoCreateError> {
    let source = TransactionSource::Kept(KeptTransaction { number, position });
    let item = UtxoCreate { source, mined: None, locked: Some(false), conflicting: true, fee: None, is_new: false };
    coppice
        .producer()
        .utxo_create(&UtxoCreateBatch { height: HEIGHT + 1, items: vec![item] })
        .answer()
        .results
        .remove(0)
}

#[test]
fn double_spend_with_an_unrecorded_parent_wins_in_a_store_that_starts_midway() {
    let (coppice, all) = chain(1);
    let held = (all[0][1].txid, 1);
    let loser = Tx::of(1, &[held], 1);
    let winner = Tx::of(2, &[held, ([9; 32], 3), ([8; 32], 0)], 1);
    let heir = Tx::of(3, &[(winner.txid, 0), ([9; 32], 4)], 1);
    coppice.append(&block(1, &[Tx::coinbase(1, 1), winner.clone(), heir.clone()])).unwrap();
    let item = UtxoCreate { locked: Some(false), ..loser.record() };
    coppice.producer().utxo_create(&UtxoCreateBatch { height: HEIGHT, items: vec![item] }).answer();
    let spends = vec![TransactionSpends { spender: loser.id(), spends: vec![all[0][1].spend(1, 0)] }];
    coppice.producer().utxo_spend(&UtxoSpendBatch { height: HEIGHT, items: spends }).answer();
    apply(&coppice, 1).unwrap();
    assert!(matches!(apply(&coppice, 1), Err(UtxoApplyError::Stopped(stop)) if stop.transaction == 1));
    create_kept(&coppice, 1, 1).unwrap();
    assert!(get(&coppice, &winner).unwrap().conflicting);
    let process = UtxoProcessConflicting { height: HEIGHT + 1, winners: vec![winner.id()] };
    assert_eq!(coppice.producer().utxo_process_conflicting(&process).answer().map(|done| done.has_more), Ok(false));
    let done = apply(&coppice, 1).unwrap();
    assert_eq!((done.has_more, done.existed, done.created, done.missing_parents), (false, 1, 1, 3));
    assert!(get(&coppice, &loser).unwrap().conflicting && !get(&coppice, &winner).unwrap().conflicting);
    assert_eq!(get(&coppice, &winner).unwrap().blocks.len(), 1);
}

#[test]
fn choice_of_missing_parents_is_an_operators_and_lasts() {
    let coppice = Coppice::new();
    assert_eq!(coppice.storage().utxo.unwrap().restorable_to, None);
    for number in 0..6 {
        coppice.append(&block(number, &[Tx::coinbase(number, 1), Tx::orphan(number, 1)])).unwrap();
    }
    let call =
        |who, number, missing_parents| apply_by(&coppice, who, &UtxoApplyBlock { missing_parents, ..argument(number) });
    let choice = || applying(&coppice).map(|at| at.missing_parents);
    let other = |in_force| Err(UtxoApplyError::OtherChoice { in_force });
    let (skipping, refuse) = (MissingParents::Skip, MissingParents::Refuse);
    // A new store refuses.
    assert_eq!(call(Who::Producer, 0, Some(skipping)), Err(UtxoApplyError::OperatorOnly));
    assert!(call(Who::Controller, 0, None).unwrap().has_more);
    assert_eq!(choice(), Some(refuse));
    assert!(matches!(call(Who::Producer, 0, Some(refuse)), Err(UtxoApplyError::Stopped(_))));
    assert_eq!(call(Who::Producer, 0, Some(skipping)), other(refuse));
    assert_eq!(call(Who::Controller, 0, Some(skipping)).map(|done| done.missing_parents), Ok(1));
    assert_eq!(choice(), Some(skipping));
    for (number, missing_parents) in [(1, None), (2, Some(skipping))] {
        assert_eq!(call(Who::Producer, number, missing_parents).map(|done| done.missing_parents), Ok(1));
    }
    assert_eq!(call(Who::Producer, 3, Some(refuse)), other(skipping));
    assert_eq!(call(Who::Producer, 2, Some(refuse)), other(skipping), "of an applied block, too");
    // The records stay, and with them the choice.
    coppice.upgrade();
    coppice.operator().utxo_stop_applying().answer().unwrap();
    assert_eq!(call(Who::Controller, 3, None).map(|done| done.missing_parents), Ok(1));
    let head_hash = coppice.anyone().get_head().answer().unwrap().hash;
    coppice.operator().reset_chain(&ResetChain { head_hash, drop_unexported: false }).answer().unwrap();
    coppice.pass(60);
    coppice.append(&block(9, &[Tx::orphan(90, 1)])).unwrap();
    assert_eq!(call(Who::Controller, 9, None).map(|done| done.missing_parents), Ok(1));
    // A stop leaves the choice that its call brought, because the calls that resolve the stop need it.
    coppice.append(&block(10, &[Tx::orphan(91, 1)])).unwrap();
    assert!(matches!(call(Who::Controller, 10, Some(refuse)), Err(UtxoApplyError::Stopped(_))));
    assert_eq!(choice(), Some(refuse));
    // A call whose `skip` does not name the next transaction to apply changes nothing.
    let skip = Some(Txid::from([7; 32]));
    let wrong = UtxoApplyBlock { missing_parents: Some(skipping), skip, ..argument(10) };
    let refused = apply_by(&coppice, Who::Controller, &wrong);
    assert!(matches!(refused, Err(UtxoApplyError::WrongSkip { .. })), "{refused:?}");
    assert_eq!(choice(), Some(refuse));
}

#[test]
fn double_spend_with_an_unrecorded_parent_does_not_win_in_a_store_that_refuses() {
    let (coppice, all) = chain(1);
    let refuse = UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(0) };
    apply_by(&coppice, Who::Controller, &refuse).unwrap();
    let winner = Tx::of(2, &[(all[0][1].txid, 1), ([9; 32], 3)], 1);
    let item = UtxoCreate { conflicting: true, ..winner.record() };
    coppice.producer().utxo_create(&UtxoCreateBatch { height: HEIGHT, items: vec![item] }).answer();
    let process = UtxoProcessConflicting { height: HEIGHT + 1, winners: vec![winner.id()] };
    let refused = coppice.producer().utxo_process_conflicting(&process).answer();
    assert_eq!(refused, Err(ConflictError { txid: [9; 32].into(), error: UtxoError::TxNotFound }));
}
