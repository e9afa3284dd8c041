//! Pruning through the interface: budgets, the daemon, and reuse of space.

use coppice_tests::blocks::{plain, plain_id};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, blob_bytes};
use ic_coppice_interface::*;

fn policy(retain_blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg { retain_blocks: Some(retain_blocks), min_kept_blocks: Some(0), ..PrunePolicyArg::default() }
}

/// Checks the state after blocks below `oldest` were pruned: they are removed completely, and the kept blocks are whole.
fn check(coppice: &Coppice, oldest: u64, head: u64, body: usize) {
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.head), (oldest, Some(head)));
    for number in 0..=head {
        let (block, location) = (coppice.block(number), coppice.location(plain_id(number, 2)));
        if number < oldest {
            assert_eq!(block, Err(ReadError::Pruned { first_available: oldest }));
            assert_eq!(location, Err(ReadError::NotFound));
        } else {
            assert_eq!(block.unwrap().body, plain(number, 3, body).body);
            assert_eq!(location, Ok((number, 2)));
        }
    }
    let storage = coppice.storage();
    assert_eq!((storage.blocks, storage.index_entries), (head - oldest + 1, 3 * (head - oldest + 1)));
    assert_eq!(storage.quarantined_bytes, 0);
    assert_eq!(blob_bytes(&storage), status.estimated_kept_bytes);
}

/// Every budget from one op to all: a run stops at every checkpoint, and the state is whole at each.
#[test]
fn a_run_stops_at_every_checkpoint() {
    let blocks = 8;
    // One op a block, two for each blob of the log, and three for its entries: about 5 a block, 40 in all.
    for max_ops in 1..=40 {
        let coppice = Coppice::new();
        coppice.append_plain(0..blocks, 40_000);
        coppice.set_policy(policy(1)).unwrap();
        let mut oldest = 0;
        loop {
            let run = coppice.prune_now(max_ops);
            assert!(run.blocks + run.dropped >= 1, "the smallest budget makes progress");
            assert!(run.blocks <= 1 || run.ops - run.dropped <= max_ops, "{run:?}");
            oldest += run.blocks;
            check(&coppice, oldest, blocks - 1, 40_000);
            match run.progress {
                PruneProgress::HasMore { reason } => assert_eq!(reason, Some(StopReason::Ops)),
                PruneProgress::Finished => break,
            }
        }
        assert_eq!(oldest, blocks - 2);
        let after = coppice.prune_now(max_ops);
        assert_eq!((after.blocks, after.progress), (0, PruneProgress::Finished), "nothing is left to do");
    }
}

#[test]
fn the_daemon_prunes_and_continues_after_an_upgrade() {
    let coppice = Coppice::new();
    let one_block_a_tick = PrunePolicyArg { max_ops_per_tick: Some(1), timer_interval_secs: Some(10), ..policy(5) };
    coppice.set_policy(one_block_a_tick).unwrap();
    coppice.append_plain(0..20, 1_000);
    assert_eq!(coppice.prune_status().pruned_before_block, 0, "nothing of it runs inside a producer's message");
    coppice.pass(10);
    let oldest = coppice.prune_status().pruned_before_block;
    assert!((1..14).contains(&oldest), "a tick that has work left is followed by the next: {oldest}");
    coppice.upgrade();
    coppice.pass(9);
    assert_eq!(coppice.prune_status().pruned_before_block, oldest);
    coppice.settle(1);
    check(&coppice, 14, 19, 1_000);
    let status = coppice.prune_status();
    assert!(!status.need_prune && status.enabled && status.faults == 0);
    assert_eq!(
        (status.runs, status.pruned_blocks, status.running),
        (1, 14, false),
        "one run, fourteen ticks, an upgrade in it"
    );
    let last = status.last_run.unwrap();
    assert_eq!((last.progress, last.blocks, last.reason), (PruneProgress::Finished, 14, Some(PruneReason::Retention)));
    assert_eq!(last.ticks, 14);
    assert!(last.instructions > 14_000 && last.instructions < 14_000_000, "{last:?}");
}

#[test]
fn while_pruning_is_switched_off_only_manual_calls_prune() {
    let coppice = Coppice::new();
    assert_eq!(coppice.operator().prune_now(5u64).answer(), Err(PruneError::NoPolicy));
    coppice.append_plain(0..10, 100);
    coppice.pass(120);
    assert!(!coppice.prune_status().enabled, "off until a policy is set");
    coppice.set_policy(policy(3)).unwrap();
    assert!(coppice.prune_status().enabled);
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    coppice.pass(120);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.need_prune, status.target), (0, true, 6));
    assert_eq!(status.held_by, Some(HeldBy::Disabled));
    assert_eq!(coppice.prune_now(1_000).blocks, 6);
    let error = coppice.operator().prune_now(0u64).answer().unwrap_err();
    assert!(matches!(error, PruneError::BadArgument(BadArgument { field, .. }) if field == "max_ops"));
}

#[test]
fn a_bad_policy_is_refused_and_the_old_one_stays() {
    let coppice = Coppice::new();
    let set = coppice.set_policy(policy(3)).unwrap();
    assert_eq!(
        (set.timer_interval_secs, set.max_ops_per_tick, set.max_instructions_per_tick),
        (60, 200_000, 500_000_000)
    );
    let bad = PrunePolicyArg { target_bytes: Some(1), ..policy(9) };
    let error = coppice.set_policy(bad).unwrap_err();
    assert!(matches!(error, PruneError::BadArgument(BadArgument { field, .. }) if field == "target_bytes"));
    assert_eq!(coppice.anyone().get_prune_status().answer().policy, Some(set.clone()));
    coppice.upgrade();
    assert_eq!(coppice.anyone().get_prune_status().answer().policy, Some(set));
}

/// The purpose of the project: memory of a moving window of blocks stops growing.
#[test]
fn memory_stops_growing() {
    let coppice = Coppice::new();
    coppice.set_policy(PrunePolicyArg { timer_interval_secs: Some(1), ..policy(40) }).unwrap();
    let mut billed = Vec::new();
    for number in 0..400 {
        let body = 1_000 + (number as usize * 7_919) % 200_000;
        coppice.append(&plain(number, 3, body)).unwrap();
        coppice.pass(1);
        let storage = coppice.storage();
        billed.push((storage.billed_bytes, storage.arena_bytes));
        assert!(storage.payload_bytes + u64::from(LOG_CLASS) * 2 >= blob_bytes(&storage), "{storage:?}");
    }
    assert_eq!(billed[199], billed[399], "the last half grew nothing");
    let storage = coppice.storage();
    assert_eq!(storage.blocks, 41);
    // The front of the first extent, and less than a mebibyte after the arena's end.
    let outside = storage.billed_bytes - storage.arena_bytes;
    assert!((3 << 16..1 << 20).contains(&outside), "each billed byte belongs to a slot, except {outside}");
}
