//! The switch `set_deletions_stopped`. Tests of it with external blobs are in `deletion_queue`, and with their records in
//! `pruner::s2_6_external`.

use crate::pruner::world::{World, orphans, which};
use coppice_tests::blocks::{plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// `set_deletions_stopped`.
pub fn stop(coppice: &Coppice, who: Who, stopped: bool) -> Result<(), DeletionsError> {
    coppice.by(who).set_deletions_stopped(stopped).answer()
}

/// Grants roles to an operator who is not an admin, and to an admin who is not an operator.
pub fn with_an_operator_and_an_admin(coppice: &Coppice) {
    coppice.grant(Who::Operator, Role::Operator);
    coppice.grant(Who::Admin, Role::Admin);
}

fn stopped_problem(coppice: &Coppice) -> Option<Problem> {
    let health = coppice.anyone().health().answer();
    let found = health.problems.into_iter().find(|problem| problem.code == ProblemCode::DeletionsStopped);
    assert!(!(found.is_some() && health.healthy));
    found
}

/// Asserts that every status reports the stop: its time, and that it holds pruning back.
fn assert_reported(coppice: &Coppice, since: u64, before: u64) {
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (before, Some(HeldBy::Stopped)));
    assert_eq!((status.deletions_stopped_since_ns, status.exported_before_block), (Some(since), None));
    assert_eq!((status.need_prune, status.prune_cursor, status.backlog.held_since_secs), (true, None, None));
    let plan = coppice.plan().unwrap();
    let progress = PruneProgress::HasMore { reason: Some(StopReason::Stopped) };
    assert_eq!((plan.held_by, plan.blocks, plan.progress), (Some(HeldBy::Stopped), 0, progress));
    let problem = stopped_problem(coppice).unwrap();
    assert_eq!((problem.severity, problem.since_ns), (Severity::Warning, Some(since)));
    assert!(problem.action.contains("set_deletions_stopped '(false)'"), "{problem:?}");
    assert!(coppice.page("/metrics").contains("coppice_problem{code=\"DeletionsStopped\"} 1"));
    let status = coppice.anyone().get_blob_deletion_status().answer();
    assert_eq!(status.deletions_stopped_since_ns, Some(since));
    assert_eq!(coppice.anyone().utxo_get_pruner_status().answer().deletions_stopped_since_ns, Some(since));
}

#[test]
fn stopped_deletions_keep_every_block_and_delay_no_rollback_expiry_or_sweep() {
    let coppice = Coppice::new();
    with_an_operator_and_an_admin(&coppice);
    for number in 0..50 {
        coppice.append(&plain(number, 300, 10)).unwrap();
    }
    let policy = PrunePolicyArg { retain_blocks: Some(5), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(PrunePolicyArg { pause_after_secs: Some(0), ..policy }).unwrap();
    // Too few ops for the sweep.
    let pruned = coppice.prune_now(30).blocks;
    let debt = || coppice.prune_status().transaction_index.debt;
    assert!((20..=30).contains(&pruned) && debt() >= coppice.prune_status().transaction_index.begin_debt, "{}", debt());
    let before = coppice.prune_status().pruned_before_block;
    assert_eq!((stopped_problem(&coppice), coppice.prune_status().deletions_stopped_since_ns), (None, None));
    stop(&coppice, Who::Operator, true).unwrap();
    let since = coppice.prune_status().deletions_stopped_since_ns.unwrap();
    assert_reported(&coppice, since, before);
    // Ticks sweep, but neither ticks nor `prune_now` prune.
    for _ in 0..3 {
        coppice.pass(60);
        assert_eq!(coppice.operator().prune_now(15_000).answer(), Err(PruneError::Stopped));
    }
    assert_eq!(debt(), 0, "the index is swept");
    assert_reported(&coppice, since, before);
    // Repeated stops keep the time of the first one; and an operator cannot end the stop.
    for _ in 0..1_000 {
        stop(&coppice, Who::Operator, true).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(stop(&coppice, Who::Operator, false), Err(DeletionsError::AdminOnly));
        assert_eq!(stop(&coppice, Who::Admin, true), Ok(()));
    }
    coppice.upgrade();
    coppice.pass(600);
    assert_reported(&coppice, since, before);
    // The daemon's own switch does not end the stop either.
    for enabled in [false, true] {
        coppice
            .by(Who::Operator)
            .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(enabled), ..PrunePolicyArg::default() })
            .answer()
            .unwrap();
        coppice.pass(60);
        assert_reported(&coppice, since, before);
    }
    coppice.producer().rollback_to(47u64, None).answer().unwrap();
    assert_eq!(coppice.head(), Some(47));
    coppice.append(&plain(48, 300, 10)).unwrap();
    let (begin, _) = upload(&plain(49, 2, 1_000), 600);
    coppice.producer().begin_block(&begin).answer().unwrap();
    coppice.pass(200);
    assert_eq!(coppice.anyone().list_uploads().answer().block, None, "it has expired");
    assert_reported(&coppice, since, before);
    stop(&coppice, Who::Admin, false).unwrap();
    assert_eq!((stopped_problem(&coppice), coppice.prune_status().deletions_stopped_since_ns), (None, None));
    coppice.pass(60);
    coppice.pass(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (43, None));
    assert_eq!(stop(&coppice, Who::Admin, false), Ok(()));
}

/// Refused appends at the emergency watermark name the stop, and a reset still empties the chain.
#[test]
fn a_full_chain_names_the_stop_and_a_reset_empties_it() {
    let coppice = Coppice::new();
    let target_bytes = Some(3 << 20);
    let policy = PrunePolicyArg { target_bytes, min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    stop(&coppice, Who::Controller, true).unwrap();
    let mut next = 0;
    let refused = loop {
        match coppice.append(&plain(next, 3, 60_000)) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
        coppice.pass(60);
        assert!(next < 100, "it never fills up");
    };
    assert_eq!(refused, AppendError::CapacityExhausted { held_by: HeldBy::Stopped });
    let full =
        coppice.anyone().health().answer().problems.into_iter().find(|p| p.code == ProblemCode::CapacityExhausted);
    let full = full.unwrap().message;
    assert!(full.contains("held by set_deletions_stopped(true), until an admin calls"), "{full}");
    let head = coppice.anyone().get_head().answer().unwrap();
    let reset = ResetChain { head_hash: head.hash, drop_unexported: true };
    coppice.operator().reset_chain(&reset).answer().unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().capacity_bytes, 0);
    coppice.append(&plain(next, 3, 60_000)).unwrap();
}

/// The stop comes in the middle of phase 2, with a marked record whose parents are not updated yet.
#[test]
fn a_job_stopped_in_phase_2_deletes_each_record_once_after_the_restart() {
    let world = World::new();
    let coppice = &world.coppice;
    with_an_operator_and_an_admin(coppice);
    let parents: Vec<Tx> = (0..3).map(|salt| Tx::orphan(salt, 2)).collect();
    world.create(9, &parents.iter().collect::<Vec<_>>());
    world.mine(9, &parents.iter().collect::<Vec<_>>());
    let mut inputs: Vec<([u8; 32], u32)> = (0..25_000).map(|i| ([7; 32], i)).collect();
    for (at, parent) in [0, 12_000, 24_999].into_iter().zip(&parents) {
        inputs[at] = (parent.txid, 0);
    }
    let large = Tx::of(10, &inputs, 1);
    let small = orphans(20..24);
    world.spend(9, &large, &parents.iter().collect::<Vec<_>>());
    world.make_spent(10, std::slice::from_ref(&large));
    world.make_spent(10, &small);
    world.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    let are_marked = || which(parents.iter().map(|parent| world.record(parent).unwrap().deleted_children.pop()));
    let job = World::scheduled(world.persisted(20));
    world.ticks(2);
    assert!(world.record(&large).unwrap().being_deleted && world.status().running.is_some());
    let (before, totals) = ((are_marked(), world.count(&small)), world.status().totals);
    stop(coppice, Who::Operator, true).unwrap();
    let last = world.last();
    assert_eq!((last.id, last.state, last.end), (job.id, UtxoJobState::Cancelled, Some(UtxoJobEnd::Stopped)));
    let pending = world.status().pending.unwrap();
    assert_eq!((pending.height, pending.trigger, world.status().running), (20, UtxoJobTrigger::Resumed, None));
    for _ in 0..3 {
        world.ticks(3);
        assert_eq!(world.prune_manually(20), Err(UtxoPrunerError::Stopped));
        assert_eq!(((are_marked(), world.count(&small)), world.status().totals), (before.clone(), totals));
        assert_eq!(world.status().pending, Some(pending.clone()), "no job begins or is lost");
        coppice.upgrade();
    }
    // Notified heights raise the waiting job meanwhile.
    assert_eq!(World::scheduled(world.persisted(21)).height, 21);
    world.ticks(3);
    assert_eq!(
        (world.status().totals, world.status().next_tick_ns),
        (totals, 0),
        "the timer of a stopped pruner does not fire"
    );
    stop(coppice, Who::Admin, false).unwrap();
    let pending = world.status().pending.unwrap();
    world.finish(pending.id);
    assert_eq!((are_marked(), world.record(&large), world.count(&small)), (vec![true; 3], None, 0));
    let totals = world.status().totals;
    assert_eq!((totals.records_deleted, totals.parents_updated), (5, 3), "each is counted once");
    // The continued job used the heights that were notified meanwhile, and manual runs work again.
    assert_eq!(world.prune_manually(21).unwrap().state, UtxoJobState::Completed);
}
