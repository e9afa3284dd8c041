//! The table of stolen keys in `SECURITY.md`. Each row is played: a stolen key does its worst, and the levers of the row end it.
//! `docs/operations/security.md` links to the table.

use crate::stop::{stop, with_an_operator_and_an_admin};
use coppice_tests::blocks::{hash, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use coppice_tests::transactions::{Tx, block};
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::path::Path;

/// The holder of the stolen key.
const THIEF: Who = Who::Rival;
const HEIGHT: u32 = 800_000;

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The rows of a page's table, each with its cells.
fn table(page: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| !line.starts_with("| role | give it to |"));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().into()).collect()).collect()
}

/// The names in code style in a cell, without arguments.
fn names(cell: &str) -> BTreeSet<&str> {
    cell.split('`').skip(1).step_by(2).map(|name| name.split('(').next().unwrap_or(name)).collect()
}

fn methods_of(role: Role) -> BTreeSet<&'static str> {
    TABLE.iter().filter(|of| of.roles.contains(&role)).map(|of| of.name).collect()
}

/// Asserts that the levers of a role's row are these methods.
fn assert_levers(role: &str, levers: &[&str]) {
    let table = table(&page("SECURITY.md"));
    let row = table.iter().find(|row| row[0].trim_matches('`') == role).unwrap();
    let methods: BTreeSet<&str> =
        names(&row[4]).into_iter().filter(|name| TABLE.iter().any(|of| of.name == *name)).collect();
    assert_eq!(methods, levers.iter().copied().collect(), "{role}");
}

#[test]
fn table_has_a_row_for_each_role_with_all_of_its_methods() {
    let rows = table(&page("SECURITY.md"));
    let manual = page("docs/operations/security.md");
    assert!(table(&manual).is_empty() && manual.contains("(../../SECURITY.md#roles-and-trust)"));
    let roles = Role::ALL.map(|role| format!("`{role:?}`")).into_iter().chain(["controllers".into()]);
    let listed: BTreeSet<String> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!((listed, rows.len()), (roles.collect(), Role::ALL.len() + 1));
    for (row, role) in
        rows.iter().flat_map(|row| Some((row, Role::ALL.into_iter().find(|role| row[0] == format!("`{role:?}`"))?)))
    {
        let named = names(&row[2]).into_iter().flat_map(|name| {
            match Role::ALL.into_iter().find(|of| format!("{of:?}") == name) {
                Some(of) => methods_of(of),
                None => [TABLE.iter().find(|of| of.name == name).unwrap().name].into(),
            }
        });
        assert_eq!(named.collect::<BTreeSet<_>>(), methods_of(role), "{role:?}");
    }
}

/// A canister with an operator, an admin, and a thief with this role.
fn with_thief(role: Role) -> Coppice {
    let coppice = Coppice::new();
    with_an_operator_and_an_admin(&coppice);
    coppice.grant(THIEF, role);
    coppice
}

fn revoke(coppice: &Coppice, by: Who, role: Role) {
    assert!(coppice.by(by).revoke_role(&Grant { principal: THIEF.principal(), role }).answer());
}

fn retain(coppice: &Coppice, blocks: u64) {
    let policy = PrunePolicyArg { retain_blocks: Some(blocks), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
}

fn pruned_before(coppice: &Coppice) -> u64 {
    coppice.prune_status().pruned_before_block
}

fn argument(number: u64) -> UtxoApplyBlock {
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

/// Appends blocks 0 to 4, each with a transaction that spends from the block before, and applies the first two. Returns these transactions.
fn chain(coppice: &Coppice) -> Vec<Tx> {
    let mut all: Vec<Tx> = Vec::new();
    for number in 0..5 {
        let tx = match all.last() {
            None => Tx::orphan(500, 2),
            Some(before) => Tx::of(500 + number, &[(before.txid, 0)], 2),
        };
        coppice.append(&block(number, &[Tx::coinbase(number, 1), tx.clone()])).unwrap();
        all.push(tx);
    }
    coppice.operator().utxo_apply_block(&argument(0)).answer().unwrap();
    coppice.producer().utxo_apply_block(&argument(1)).answer().unwrap();
    all
}

/// Appends blocks after those of [`chain`] until the canister refuses one. Returns its number.
fn fill(coppice: &Coppice) -> u64 {
    let target_bytes = Some(20 * u64::from(LOG_CLASS));
    let policy = PrunePolicyArg { target_bytes, min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    for number in 5..1_000 {
        if let Err(error) = coppice.append(&block(number, &[Tx::coinbase(number, 1_500)])) {
            assert_eq!(error, AppendError::CapacityExhausted { held_by: HeldBy::UtxoApply });
            return number;
        }
        coppice.pass(60);
    }
    panic!("the canister never refuses a block");
}

/// Ends applying, and asserts that the refused block is accepted then.
fn assert_stop_applying_frees_appends(coppice: &Coppice, refused: u64) {
    assert!(coppice.by(Who::Operator).utxo_stop_applying().answer().is_some());
    (0..3).for_each(|_| coppice.pass(60));
    coppice.append(&block(refused, &[Tx::coinbase(refused, 1_500)])).unwrap();
}

fn problem(coppice: &Coppice, code: ProblemCode) -> Problem {
    let problems = coppice.anyone().health().answer().problems;
    problems.into_iter().find(|problem| problem.code == code).unwrap_or_else(|| panic!("{code} is not raised"))
}

#[test]
fn stolen_block_producer_is_ended() {
    assert_levers("BlockProducer", &["set_deletions_stopped", "revoke_role", "abort_block", "rollback_to"]);
    let coppice = with_thief(Role::BlockProducer);
    coppice.append_plain(0..20, 10);
    retain(&coppice, 15);
    let thief = coppice.by(THIEF);
    (20..30).for_each(|number| thief.append_block(&plain(number, 3, 10)).answer().unwrap());
    let (begin, _) = upload(&plain(30, 2, 1_000), 600);
    thief.begin_block(&begin).answer().unwrap();
    coppice.settle(100);
    assert_eq!(pruned_before(&coppice), 14);
    stop(&coppice, Who::Operator, true).unwrap();
    revoke(&coppice, Who::Admin, Role::BlockProducer);
    assert!(thief.append_block(&plain(30, 3, 10)).try_answer().is_err());
    assert_eq!(coppice.by(Who::Operator).abort_block(30).answer(), Ok(true));
    coppice.by(Who::Admin).rollback_to(19, None).answer().unwrap();
    coppice.pass(600);
    assert_eq!((coppice.head(), pruned_before(&coppice)), (Some(19), 14));
    coppice.append(&plain(20, 3, 10)).unwrap();
}

#[test]
fn stolen_utxo_feeder_is_ended() {
    let levers = [
        "set_deletions_stopped",
        "revoke_role",
        "utxo_set_heights",
        "utxo_cancel_prune_job",
        "cancel_blob_deletion",
        "utxo_stop_applying",
    ];
    assert_levers("UtxoFeeder", &levers);
    let coppice = with_thief(Role::UtxoFeeder);
    chain(&coppice);
    let (thief, operator) = (coppice.by(THIEF), coppice.by(Who::Operator));
    // Heights, and a blob that no record names.
    let name = BlobName { blob_key: ByteBuf::from([1]), file_type: "tx".into(), store_type: StoreType::Tx };
    thief.schedule_blob_deletion(&ScheduleBlobDeletion { name: name.clone(), delete_at_height: 1 }).answer().unwrap();
    thief.utxo_notify_block(HEIGHT + 100, true).answer().unwrap();
    stop(&coppice, Who::Operator, true).unwrap();
    revoke(&coppice, Who::Admin, Role::UtxoFeeder);
    assert!(thief.utxo_notify_block(HEIGHT + 101, true).try_answer().is_err());
    let job = coppice.anyone().utxo_get_pruner_status().answer().pending.expect("the height has made a job");
    operator.utxo_cancel_prune_job(job.id).answer().unwrap();
    let heights = UtxoSetHeights { current: HEIGHT + 1, persisted: None, processed: HEIGHT + 1 };
    operator.utxo_set_heights(&heights).answer().unwrap();
    assert_eq!(operator.cancel_blob_deletion(&name).answer().unwrap().map(|row| row.reported_deleted), Some(false));
    stop(&coppice, Who::Admin, false).unwrap();
    let status = coppice.anyone().utxo_get_pruner_status().answer();
    assert_eq!((status.current_height, status.pending), (HEIGHT + 1, None));
    // A feeder takes no block back.
    coppice.grant(THIEF, Role::UtxoFeeder);
    assert!(thief.rollback_to(0, None).try_answer().is_err());
    revoke(&coppice, Who::Admin, Role::UtxoFeeder);
    // A feeder that applies no more blocks holds pruning.
    let refused = fill(&coppice);
    assert_stop_applying_frees_appends(&coppice, refused);
}

#[test]
fn stolen_producer_is_ended() {
    assert_levers("Producer", &["revoke_role"]);
    let coppice = with_thief(Role::Producer);
    let thief = coppice.by(THIEF);
    thief.append_block(&plain(0, 3, 10)).answer().unwrap();
    thief.utxo_notify_block(10, true).answer().unwrap();
    revoke(&coppice, Who::Admin, Role::Producer);
    assert!(thief.append_block(&plain(1, 3, 10)).try_answer().is_err());
    assert!(thief.utxo_notify_block(11, true).try_answer().is_err());
}

/// The thief freezes an output that the next block spends.
#[test]
fn stolen_alert_is_ended() {
    assert_levers("Alert", &["utxo_stop_applying", "revoke_role", "grant_role", "utxo_unfreeze", "utxo_reassign"]);
    let coppice = with_thief(Role::Alert);
    let txs = chain(&coppice);
    let target = FreezeTarget { txid: txs[1].id(), vout: Some(0), utxo_hash: None };
    let freeze = UtxoFreezeBatch { height: HEIGHT + 1, items: vec![target] };
    assert_eq!(coppice.by(THIEF).utxo_freeze(&freeze).answer().results, [Ok(1)]);
    let apply = || coppice.producer().utxo_apply_block(&argument(2)).answer();
    // The first call applies the coinbase.
    apply().unwrap();
    let Err(UtxoApplyError::Stopped(stopped)) = apply() else { panic!("the output is frozen") };
    let output = Outpoint { txid: txs[1].id(), vout: 0 };
    assert_eq!((stopped.txid.clone(), stopped.input, stopped.output.clone()), (txs[2].id(), Some(0), Some(output)));
    assert_eq!(stopped.reason, UtxoApplyReason::Spend(UtxoSpendError::Frozen));
    let hex: String = txs[1].txid.iter().map(|byte| format!("{byte:02x}")).collect();
    let says = format!(
        "output 0 of {hex}: the output cannot be spent: the output is frozen (by utxo_freeze; undo with utxo_unfreeze)"
    );
    assert!(stopped.to_string().ends_with(&says), "{stopped}");
    let since = problem(&coppice, ProblemCode::ApplyingStopped).since_ns;
    let refused = fill(&coppice);
    coppice.upgrade();
    let stopped = problem(&coppice, ProblemCode::ApplyingStopped);
    assert!(stopped.message.ends_with(&says) && stopped.since_ns == since, "{stopped:?}");
    let full = problem(&coppice, ProblemCode::CapacityExhausted);
    assert!(full.message.contains(&says) && full.action.contains("utxo_stop_applying"), "{full:?}");
    assert_stop_applying_frees_appends(&coppice, refused);
    let problems = coppice.anyone().health().answer().problems;
    assert!(problems.iter().all(|problem| problem.code != ProblemCode::ApplyingStopped), "{problems:?}");
    revoke(&coppice, Who::Admin, Role::Alert);
    assert!(coppice.by(THIEF).utxo_freeze(&freeze).try_answer().is_err());
    let grant = Grant { principal: Who::Alert.principal(), role: Role::Alert };
    coppice.by(Who::Admin).grant_role(&grant).answer().unwrap();
    assert_eq!(coppice.by(Who::Alert).utxo_unfreeze(&freeze).answer().results, [Ok(1)]);
}

/// A new key of the role frees the output before appends are refused, and the feeder goes on.
#[test]
fn unfrozen_output_lets_the_feeder_go_on() {
    let coppice = with_thief(Role::Alert);
    let txs = chain(&coppice);
    let target = FreezeTarget { txid: txs[1].id(), vout: Some(0), utxo_hash: None };
    let freeze = UtxoFreezeBatch { height: HEIGHT + 1, items: vec![target] };
    assert_eq!(coppice.by(THIEF).utxo_freeze(&freeze).answer().results, [Ok(1)]);
    let apply = |number| coppice.producer().utxo_apply_block(&argument(number)).answer();
    apply(2).unwrap();
    assert!(apply(2).is_err());
    problem(&coppice, ProblemCode::ApplyingStopped);
    coppice.grant(Who::Alert, Role::Alert);
    assert_eq!(coppice.by(Who::Alert).utxo_unfreeze(&freeze).answer().results, [Ok(1)]);
    for number in 2..5 {
        assert!(!apply(number).unwrap().has_more);
    }
    let problems = coppice.anyone().health().answer().problems;
    assert!(problems.iter().all(|problem| problem.code != ProblemCode::ApplyingStopped), "{problems:?}");
}

#[test]
fn stolen_exporter_is_ended() {
    assert_levers("Exporter", &["set_deletions_stopped", "revoke_role", "register_exporter"]);
    let coppice = Coppice::new();
    with_an_operator_and_an_admin(&coppice);
    coppice.register(THIEF);
    coppice.append_plain(0..20, 10);
    retain(&coppice, 1);
    coppice.ack(THIEF, 9, &hash(9)).unwrap();
    coppice.settle(100);
    assert_eq!(pruned_before(&coppice), 10, "blocks that were not copied are pruned");
    stop(&coppice, Who::Operator, true).unwrap();
    coppice.ack(THIEF, 14, &hash(14)).unwrap();
    coppice.pass(600);
    assert_eq!(pruned_before(&coppice), 10);
    revoke(&coppice, Who::Admin, Role::Exporter);
    let ack = (19u64, ByteBuf::from(hash(19)));
    assert!(coppice.call::<Result<u64, AckError>>(THIEF, "ack_exported", ack).is_err());
    let exporter = Exporter { name: THIEF.name(), principal: Who::Archive.principal() };
    coppice.by(Who::Admin).register_exporter(&exporter).answer().unwrap();
    stop(&coppice, Who::Admin, false).unwrap();
    coppice.settle(100);
    assert_eq!(pruned_before(&coppice), 15, "the name still holds pruning at its bound");
}

#[test]
fn stolen_blob_worker_is_ended() {
    assert_levers("BlobWorker", &["set_deletions_stopped", "revoke_role", "retry_blob_deletions"]);
    let coppice = with_thief(Role::BlobWorker);
    for key in 0..10u8 {
        let name = BlobName { blob_key: ByteBuf::from([key]), file_type: "tx".into(), store_type: StoreType::Tx };
        coppice
            .producer()
            .schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 })
            .answer()
            .unwrap();
    }
    let thief = coppice.by(THIEF);
    assert_eq!(thief.remove_blob_deletion(1, None).answer(), Ok(true));
    assert!(thief.increment_blob_deletion_retry(2, 1).answer().unwrap().should_remove);
    let ask = AcquireBlobDeletions { height: 1, limit: 5, lock_timeout_secs: 43_200, ..Default::default() };
    let lease = thief.acquire_blob_deletion_batch(&ask).answer().unwrap().unwrap();
    stop(&coppice, Who::Operator, true).unwrap();
    let all = CompleteBlobDeletionBatch {
        token: lease.token.clone(),
        rest: Some(BlobDeletionRest::Completed),
        ..Default::default()
    };
    assert_eq!(thief.complete_blob_deletion_batch(&all).answer(), Err(BlobDeletionError::Stopped));
    assert_eq!(thief.remove_blob_deletion(9, None).answer(), Err(BlobDeletionError::Stopped));
    revoke(&coppice, Who::Admin, Role::BlobWorker);
    assert!(thief.acquire_blob_deletion_batch(&ask).try_answer().is_err());
    let dead = RetryBlobDeletions::StoreType(StoreType::Tx);
    assert_eq!(coppice.by(Who::Operator).retry_blob_deletions(&dead).answer().unwrap().retried, 1);
    stop(&coppice, Who::Admin, false).unwrap();
    coppice.pass(10_900);
    let pending = coppice.anyone().get_pending_blob_deletions(1, 0, None).answer();
    assert_eq!(pending.iter().map(|row| row.id).collect::<Vec<_>>(), (2..=10).collect::<Vec<_>>());
}

#[test]
fn stolen_operator_is_ended() {
    assert_levers("Operator", &["set_deletions_stopped", "revoke_role", "remove_exporter"]);
    let coppice = with_thief(Role::Operator);
    coppice.append_plain(0..20, 10);
    let thief = coppice.by(THIEF);
    let policy = PrunePolicyArg { retain_blocks: Some(10), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    thief.set_prune_policy(&policy).answer().unwrap();
    coppice.settle(600);
    assert_eq!(pruned_before(&coppice), 9);
    let exporter = Exporter { name: "thief".into(), principal: THIEF.principal() };
    thief.register_exporter(&exporter).answer().unwrap();
    stop(&coppice, Who::Operator, true).unwrap();
    thief.set_prune_policy(&PrunePolicyArg { retain_blocks: Some(1), ..policy }).answer().unwrap();
    assert_eq!(thief.prune_now(1_000).answer(), Err(PruneError::Stopped));
    assert_eq!(stop(&coppice, THIEF, false), Err(DeletionsError::AdminOnly));
    revoke(&coppice, Who::Admin, Role::Operator);
    assert!(thief.set_prune_policy(&PrunePolicyArg::default()).try_answer().is_err());
    let exporter = RemoveExporter { name: "thief".into(), drop_guard: true };
    coppice.by(Who::Admin).remove_exporter(&exporter).answer().unwrap();
    coppice.pass(600);
    assert_eq!((pruned_before(&coppice), coppice.head()), (9, Some(19)));
}

#[test]
fn stolen_observer_is_ended() {
    assert_levers("Observer", &["revoke_role"]);
    let coppice = with_thief(Role::Observer);
    coppice.by(THIEF).get_audit_log(None, 10).answer();
    revoke(&coppice, Who::Admin, Role::Observer);
    assert!(coppice.by(THIEF).get_audit_log(None, 10).try_answer().is_err());
}

#[test]
fn stolen_admin_is_ended_by_a_controller() {
    assert_levers("Admin", &["revoke_role"]);
    let coppice = with_thief(Role::Admin);
    coppice.append_plain(0..3, 10);
    let thief = coppice.by(THIEF);
    let mine = |role| Grant { principal: THIEF.principal(), role };
    thief.grant_role(&mine(Role::Operator)).answer().unwrap();
    assert!(thief.revoke_role(&Grant { principal: Who::Admin.principal(), role: Role::Admin }).answer());
    let head = coppice.anyone().get_head().answer().unwrap();
    thief.reset_chain(&ResetChain { head_hash: head.hash, drop_unexported: true }).answer().unwrap();
    for role in [Role::Admin, Role::Operator] {
        revoke(&coppice, Who::Controller, role);
    }
    assert!(thief.grant_role(&mine(Role::Admin)).try_answer().is_err());
    coppice.grant(Who::Admin, Role::Admin);
}

#[test]
fn stolen_controller_is_ended_by_another_controller() {
    assert_levers("controllers", &[]);
    let (coppice, host) = Coppice::embedded(default_arg());
    let set = |by: Who, controllers: &[Who]| {
        let controllers = controllers.iter().map(|who| who.principal()).collect();
        host.set_controllers(coppice.id, Some(by.principal()), controllers)
    };
    set(Who::Controller, &[Who::Controller, THIEF]).unwrap();
    let change = ConfigChange { public_logs: Some(true), ..ConfigChange::default() };
    coppice.by(THIEF).set_config(&change).answer().unwrap();
    set(Who::Controller, &[Who::Controller]).unwrap();
    assert!(coppice.by(THIEF).set_config(&change).try_answer().is_err());
    assert!(set(THIEF, &[THIEF]).is_err());
}
