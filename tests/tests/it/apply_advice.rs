//! Each advice of `health` about applied blocks, played to its end: the command that it shows is called, and the problem is gone.

use crate::apply_reorgs::{
    HEIGHT, append, apply, apply_all, argument, canister, problem, pruned_spent, roll_back, spent, txs,
};
use crate::utxo::configure;
use candid::types::value::IDLArgs;
use candid_parser::parse_idl_args;
use candid_parser::utils::CandidSource;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::path::Path;

/// Calls the command of an advice, with a value for `…`, as the controller, an operator and an admin.
fn play(coppice: &Coppice, problem: &Problem, value: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
    let (env, actor) = CandidSource::File(&path).load().unwrap();
    let command = problem.action.split_once("icp canister call -n ic ").expect("the advice shows a call").1;
    let (method, argument) = command.split_once(' ').unwrap().1.split_once(' ').unwrap();
    let argument = argument.split('\'').nth(1).unwrap().replace('…', value);
    let function = env.get_method(&actor.unwrap(), method).unwrap().clone();
    let bytes = parse_idl_args(&argument).unwrap().to_bytes_with_types(&env, &function.args).unwrap();
    let reply = coppice.ic.update(coppice.id, Who::Controller.principal(), method, bytes).unwrap();
    let reply = IDLArgs::from_bytes_with_types(&reply, &env, &function.rets).unwrap().to_string();
    assert!(!reply.contains("Err"), "{method}: {reply}");
}

/// A canister whose block 2 cannot be applied, because an output is frozen.
fn stopped() -> Coppice {
    let coppice = canister();
    append(&coppice, 0, 0..4, |number| txs(0, number));
    apply_all(&coppice, 0, 0..2);
    coppice.grant(Who::Alert, Role::Alert);
    let target = FreezeTarget { txid: txs(0, 1)[1].id(), vout: Some(0), utxo_hash: None };
    let freeze = UtxoFreezeBatch { height: HEIGHT, items: vec![target] };
    assert_eq!(coppice.by(Who::Alert).utxo_freeze(&freeze).answer().results, [Ok(1)]);
    assert!(apply(&coppice, &argument(0, 2)).unwrap().has_more);
    assert!(matches!(apply(&coppice, &argument(0, 2)), Err(UtxoApplyError::Stopped(_))));
    coppice
}

#[test]
fn stop_ends_with_applying_or_with_the_transaction_that_is_skipped() {
    let code = ProblemCode::ApplyingStopped;
    let coppice = stopped();
    let found = problem(&coppice, code).unwrap();
    play(&coppice, &found, "");
    assert_eq!(problem(&coppice, code), None);
    // A new beginning stops again at the same transaction, which is left out then.
    assert!(matches!(apply(&coppice, &argument(0, 2)), Err(UtxoApplyError::Stopped(_))));
    assert!(found.action.contains("utxo_apply_block with `skip`"), "{found:?}");
    let skip = UtxoApplyBlock { skip: Some(txs(0, 2)[1].id()), ..argument(0, 2) };
    assert!(!apply(&coppice, &skip).unwrap().has_more);
    apply_all(&coppice, 0, 3..4);
    assert_eq!(problem(&coppice, code), None);
}

#[test]
fn waiting_rollback_goes_on_with_more_room_or_ends_with_a_reset() {
    for (max_external_bytes, resets) in [(1 << 20, false), (4_096, true)] {
        let coppice = canister();
        let change = UtxoSettingsChange {
            copy_applied_transactions: Some(false),
            externalize_all: Some(true),
            max_external_bytes: Some(4_096),
            ..UtxoSettingsChange::default()
        };
        configure(&coppice, change).unwrap();
        append(&coppice, 0, 0..2, |number| vec![Tx::coinbase(number, 1), Tx::orphan(number, 300)]);
        apply_all(&coppice, 0, 0..2);
        assert!(roll_back(&coppice, 0).unwrap().waits.is_some());
        let found = problem(&coppice, ProblemCode::RollbackWaits).unwrap();
        if resets {
            let hash = coppice.anyone().get_head().answer().unwrap().hash;
            play(&coppice, &found, &hash.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>());
        } else {
            assert!(
                found.message.contains("max_external_bytes") && found.action.contains("max_external_bytes"),
                "{found:?}"
            );
            let change =
                UtxoSettingsChange { max_external_bytes: Some(max_external_bytes), ..UtxoSettingsChange::default() };
            configure(&coppice, change).unwrap();
        }
        coppice.settle(300);
        assert_eq!(problem(&coppice, ProblemCode::RollbackWaits), None);
        assert_eq!(coppice.head(), if resets { None } else { Some(0) });
    }
}

#[test]
fn records_that_a_rollback_could_not_restore_are_acknowledged_after_the_new_branch_is_applied() {
    let coppice = pruned_spent(10);
    assert!(coppice.by(Who::Controller).rollback_to(4, Some(true)).answer().unwrap().not_restored > Some(0));
    let found = problem(&coppice, ProblemCode::NotRestored).unwrap();
    append(&coppice, 1, 5..20, spent);
    // Block 5 spends from a transaction of block 4 whose record is gone.
    let refuse = |number| UtxoApplyBlock { missing_parents: Some(MissingParents::Refuse), ..argument(1, number) };
    assert!(apply(&coppice, &refuse(5)).unwrap().has_more);
    let Err(UtxoApplyError::Stopped(stop)) = apply(&coppice, &refuse(5)) else { panic!("the parent has no record") };
    assert_eq!((stop.transaction, &stop.reason), (1, &UtxoApplyReason::MissingParent));
    assert!(found.action.contains("stops for a missing parent, feed the record again"), "{found:?}");
    let block = BlockRef { block_id: 4, height: HEIGHT + 4, subtree: 0 };
    let mined = Some(MinedIn { blocks: vec![block], on_longest_chain: true });
    let item = UtxoCreate { mined, is_new: true, ..spent(4)[1].record() };
    let batch = UtxoCreateBatch { height: HEIGHT + 4, items: vec![item] };
    assert!(coppice.producer().utxo_create(&batch).answer().results[0].is_ok());
    for number in 5..20 {
        while apply(&coppice, &refuse(number)).unwrap().has_more {}
    }
    play(&coppice, &found, "");
    assert_eq!(problem(&coppice, ProblemCode::NotRestored), None);
}

#[test]
fn transactions_that_were_counted_as_pruned_get_records_after_a_reset() {
    let coppice = canister();
    let change = UtxoSettingsChange { block_height_retention: Some(10), ..UtxoSettingsChange::default() };
    configure(&coppice, change).unwrap();
    let others = |number: u64| vec![Tx::coinbase(90_000 + number, 1), Tx::orphan(90_000 + number, 1)];
    append(&coppice, 0, 0..60, |number| if number < 10 { others(number) } else { spent(number) });
    apply_all(&coppice, 0, 10..60);
    coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    for _ in 0..20 {
        coppice.pass(60);
    }
    // A block that was never applied comes below the pruned height.
    coppice.operator().utxo_stop_applying().answer().unwrap();
    assert_eq!(apply(&coppice, &argument(0, 5)).map(|done| (done.created, done.pruned)), Ok((0, 2)));
    let found = problem(&coppice, ProblemCode::CountedAsPruned).unwrap();
    assert!(found.action.contains("reset the chain, and apply its blocks anew"), "{found:?}");
    let head_hash = coppice.anyone().get_head().answer().unwrap().hash;
    coppice.operator().reset_chain(&ResetChain { head_hash, drop_unexported: false }).answer().unwrap();
    coppice.pass(60);
    append(&coppice, 1, 0..10, others);
    for number in 0..10 {
        assert_eq!(apply(&coppice, &argument(1, number)).map(|done| (done.created, done.pruned)), Ok((2, 0)));
    }
    play(&coppice, &found, "");
    assert_eq!(problem(&coppice, ProblemCode::CountedAsPruned), None);
}
