//! The daemon over days: bursts, pauses, duplicate firings, changes in the middle of a run. Tests that count instructions or move cycles
//! run on the embedded host only.

use coppice_tests::blocks::{block, block_id, hash, id, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, blob_bytes, default_arg};
use ic_coppice_host::{Execution, Host, Kind, Outcome};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::time::Duration;

const DAY: u64 = 86_400;

fn policy(retain_blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg { retain_blocks: Some(retain_blocks), min_kept_blocks: Some(0), ..PrunePolicyArg::default() }
}

/// The timer's executions since the last call: firings, the library's calls to itself and their answers.
fn timer_executions(host: &Host) -> Vec<Execution> {
    let all = host.take_executions();
    all.into_iter().filter(|e| e.method.is_empty() || e.method.starts_with("<ic-cdk internal>")).collect()
}

fn instructions(executions: &[Execution]) -> u64 {
    executions.iter().map(|execution| execution.instructions).sum()
}

/// A firing costs the same with every trigger set and nothing due, and with due blocks that an exporter holds.
#[test]
fn an_idle_firing_costs_little() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..1_500, 10);
    let all = PrunePolicyArg { retain_days: Some(100_000), target_bytes: Some(1 << 30), ..policy(2_000) };
    coppice.set_policy(all).unwrap();
    let idle = |what: &str| {
        host.take_executions();
        let ticks = coppice.prune_status().ticks;
        coppice.pass(60);
        assert_eq!(coppice.prune_status().ticks, ticks + 1);
        let fired = timer_executions(&host);
        assert_eq!(fired.len(), 3, "{what}: {fired:?}");
        let cost = instructions(&fired);
        println!("an idle firing, {what}: {cost} instructions");
        assert!(cost <= 100_000, "{what}: {cost}");
    };
    idle("nothing due");
    let exporter = Exporter { name: "archive".into(), principal: Who::Stranger.principal() };
    coppice.operator().register_exporter(&exporter).answer().unwrap();
    coppice.set_policy(policy(100)).unwrap();
    assert!(coppice.prune_status().need_prune);
    idle("all held by an exporter");
    coppice
        .set_policy(PrunePolicyArg { target_bytes: Some(6 << 16), headroom_ratio_bps: Some(9_000), ..policy(100) })
        .unwrap();
    assert_eq!(coppice.prune_status().reason, Some(PruneReason::Capacity));
    idle("capacity held by an exporter");
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    idle("switched off");
}

/// Blocks that an append makes due wait for the safety timer.
#[test]
fn append_arms_no_timer_by_default() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.operator().set_prune_policy(&policy(5)).answer().unwrap();
    coppice.pass(601);
    host.take_executions();
    for number in 0..20 {
        coppice.append_plain(number..number + 1, 1_000);
        coppice.pass(20);
    }
    assert!(timer_executions(&host).is_empty());
    assert_eq!(coppice.prune_status().pruned_blocks, 0);
    coppice.pass(199);
    assert_eq!(coppice.prune_status().pruned_blocks, 14);
}

/// A tick follows at once, and none follows the next appends, which find the mark reached.
#[test]
fn append_that_reaches_a_watermark_is_followed_by_a_tick() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let exporter = Exporter { name: "archive".into(), principal: Who::Archive.principal() };
    coppice.operator().register_exporter(&exporter).answer().unwrap();
    let target_bytes = Some(64 << 16);
    let capacity = PrunePolicyArg { target_bytes, ..PrunePolicyArg::default() };
    coppice.operator().set_prune_policy(&capacity).answer().unwrap();
    let marks = coppice.prune_status().water_marks.unwrap();
    host.take_executions();
    let mut next = 0;
    let mut append_to = |bytes: u64, body: usize| {
        while coppice.prune_status().capacity_bytes <= bytes {
            coppice.append_plain(next..next + 1, body);
            next += 1;
        }
        coppice.pass(1);
        let head = next - 1;
        (head, timer_executions(&host).iter().filter(|fired| fired.kind == Kind::Update).count())
    };
    assert_eq!(append_to(marks.high - 70_000, 30_000).1, 0);
    assert_eq!(append_to(marks.high, 30_000).1, 1, "the exporter holds all blocks back");
    assert_eq!(append_to(marks.high + 70_000, 30_000).1, 0);
    let (head, ticks) = append_to(marks.emergency, 30_000);
    assert_eq!(ticks, 1);
    coppice.by(Who::Archive).ack_exported(head, &hash(head).into()).answer().unwrap();
    coppice.pass(1);
    assert!(coppice.prune_status().capacity_bytes <= marks.low);
    assert_eq!(append_to(marks.emergency, 900_000).1, 2, "the tick after the acknowledgement, and one at once");
}

/// The timer library fires once for each missed interval.
#[test]
fn a_burst_after_a_long_pause_does_the_work_once() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.set_policy(policy(5)).unwrap();
    coppice.append_plain(0..20, 1_000);
    host.take_executions();
    coppice.ic.advance_time(Duration::from_secs(DAY / 2));
    (0..1_000).for_each(|_| coppice.ic.tick());
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.runs, status.running), (14, 1, false));
    let fired = timer_executions(&host);
    let ticks = fired.iter().filter(|e| e.kind == Kind::Update).count() as u64;
    assert_eq!(ticks, status.ticks);
    println!("{ticks} firings for 72 missed intervals of the safety timer, {} instructions", instructions(&fired));
    assert!(fired.iter().all(|e| matches!(e.outcome, Outcome::Completed)), "none traps");
    assert!(instructions(&fired) <= (ticks + 20) * 100_000, "all except the first are idle");
    // The daemon keeps its interval afterwards.
    coppice.append_plain(20..22, 1_000);
    coppice.pass(120);
    assert_eq!(coppice.prune_status().pruned_before_block, 16);
}

/// Two firings at the same moment: the second finds the work done. (The library may deliver a firing twice.)
#[test]
fn two_firings_at_once_do_the_work_once() {
    let coppice = Coppice::new();
    coppice.set_policy(PrunePolicyArg { timer_interval_secs: Some(10), ..policy(5) }).unwrap();
    coppice.append_plain(0..30, 1_000);
    // The timer that the blocks armed, and the safety timer: two ticks in the same round, at the same time.
    coppice.pass(600);
    let status = coppice.prune_status();
    assert!(status.ticks >= 2, "{status:?}");
    assert_eq!((status.pruned_before_block, status.runs, status.pruned_blocks), (24, 1, 24));
    let storage = coppice.storage();
    assert_eq!((storage.blocks, storage.index_entries, storage.quarantined_bytes), (6, 18, 0));
    assert_eq!(blob_bytes(&storage), status.estimated_kept_bytes);
}

/// However many timers have fired at once, one chain of ticks continues: a backlog takes no more messages a round than one daemon does.
#[test]
fn timers_that_fire_together_continue_as_one() {
    let coppice = Coppice::new();
    coppice.append_plain(0..400, 10);
    coppice.set_policy(PrunePolicyArg { max_ops_per_tick: Some(1), ..policy(5) }).unwrap();
    // The timer of the policy, and several intervals of the safety timer.
    coppice.ic.advance_time(Duration::from_secs(3_600));
    (0..20).for_each(|_| coppice.ic.tick());
    let before = coppice.prune_status();
    assert!(before.running && before.ticks > 1, "{before:?}");
    (0..20).for_each(|_| coppice.ic.tick());
    let after = coppice.prune_status();
    assert!(after.running && after.ticks > before.ticks, "{after:?}");
    assert!(after.ticks - before.ticks <= 20, "{} ticks in 20 rounds", after.ticks - before.ticks);
}

/// Due work runs within the interval although a timer for a later time is armed.
#[test]
fn a_timer_armed_for_later_does_not_delay_due_work() {
    let coppice = Coppice::new();
    let expiry = ConfigChange { upload_expiry_secs: Some(500), ..ConfigChange::default() };
    coppice.operator().set_config(&expiry).answer().unwrap();
    coppice.set_policy(policy(5)).unwrap();
    coppice.append_plain(0..20, 10);
    coppice.pass(61);
    assert_eq!(coppice.prune_status().pruned_before_block, 14);
    let block = plain(20, 3, 10);
    let (begin, chunks) = upload(&block, 1 << 20);
    coppice.producer().begin_block(&begin).answer().unwrap();
    // The daemon sees the upload and arms a timer for its expiry, which is much later.
    coppice.pass(61);
    coppice.put(20, 0, chunks[0].clone()).unwrap();
    coppice.producer().commit_block(&block_id(&block)).answer().unwrap();
    coppice.pass(61);
    assert_eq!(coppice.prune_status().pruned_before_block, 15);
}

/// The timer library skips some of many missed intervals and counts the next one from then; the daemon does the same.
#[test]
fn after_a_long_stop_due_work_runs_within_the_interval() {
    let coppice = Coppice::new();
    coppice.set_policy(policy(5)).unwrap();
    coppice.append_plain(0..20, 10);
    coppice.pass(6 * 600 + 300);
    assert_eq!(coppice.prune_status().pruned_before_block, 14);
    // The time at which the safety timer would have fired if no interval had been missed.
    coppice.pass(310);
    coppice.append_plain(20..21, 10);
    coppice.pass(61);
    assert_eq!(coppice.prune_status().pruned_before_block, 15);
}

#[test]
fn low_cycles_pause_the_daemon_and_are_reported() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let floor = ConfigChange {
        min_liquid_cycles: Some(50_000_000_000_000),
        feed_min_liquid_cycles: Some(1),
        ..ConfigChange::default()
    };
    coppice.operator().set_config(&floor).answer().unwrap();
    coppice.set_policy(policy(5)).unwrap();
    coppice.append_plain(0..20, 1_000);
    host.faults().low_cycles(coppice.id, 20_000_000_000_000);
    coppice.pass(600);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.need_prune, status.ticks > 0), (0, true, true));
    assert_eq!(status.held_by, Some(HeldBy::LowCycles));
    let health: Health = coppice.anyone().health().answer();
    assert!(!health.healthy && health.problems.iter().any(|found| found.code == ProblemCode::CyclesLow), "{health:?}");
    let plan: Result<PrunePlan, PruneError> = coppice.anyone().plan_prune(None).answer();
    assert_eq!(plan.unwrap().held_by, Some(HeldBy::LowCycles));
    host.add_cycles(coppice.id, 100_000_000_000_000);
    // A canister is not notified of new cycles: the safety timer notices them.
    coppice.pass(600);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (14, None));
    assert!(coppice.anyone().health().answer().healthy);
}

#[test]
fn a_policy_may_change_in_the_middle_of_a_run() {
    let coppice = Coppice::new();
    let slow = PrunePolicyArg { max_ops_per_tick: Some(1), timer_interval_secs: Some(10), ..policy(5) };
    coppice.set_policy(slow.clone()).unwrap();
    coppice.append_plain(0..30, 1_000);
    coppice.pass(10);
    let status = coppice.prune_status();
    let first = status.pruned_before_block;
    assert!((1..9).contains(&first) && status.running && status.target == 24, "{status:?}");
    // With another window the run ends, and a new run goes to the new target.
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(20), ..slow.clone() }).unwrap();
    let status = coppice.prune_status();
    assert_eq!(status.target, 9);
    coppice.settle(10);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.runs, status.need_prune), (9, 2, false));
    let last = status.last_run.unwrap();
    assert!(last.ticks == last.blocks && last.blocks <= 9 - first, "a block a tick: {last:?}");
    // A change of the interval.
    coppice
        .set_policy(PrunePolicyArg { timer_interval_secs: Some(300), max_ops_per_tick: Some(10_000), ..policy(5) })
        .unwrap();
    coppice.pass(250);
    assert_eq!(coppice.prune_status().pruned_before_block, 9);
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 24);
}

/// A producer's clock may be wrong either way: retention uses the canister's own clock, which never runs backwards.
#[test]
fn blocks_with_any_timestamp_are_accepted() {
    let coppice = Coppice::new();
    let arg = PrunePolicyArg { retain_days: Some(2), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(arg).unwrap();
    let now = || coppice.ic.now() / 1_000_000_000;
    // In the past, in the far future, at zero, at the end of time: one day apart.
    let stamps = [now() - 30 * DAY, now() + 1_000 * DAY, 0, u64::MAX, now() - 2 * DAY, 7];
    let (mut times, mut oldest) = (Vec::new(), Vec::new());
    for (number, timestamp_secs) in (0..).zip(stamps) {
        let mut next = plain(number, 3, 1_000);
        next.timestamp_secs = timestamp_secs;
        coppice.append(&next).unwrap();
        let header: Result<BlockHeader, ReadError> =
            coppice.anyone().get_block_headers(number, number).answer().map(|mut page| page.headers.remove(0));
        let header = header.unwrap();
        assert_eq!(header.timestamp_secs, timestamp_secs, "the block keeps its own timestamp");
        let before = times.last().copied().unwrap_or(0);
        assert!((before..=now()).contains(&header.monotonic_timestamp_secs), "{header:?}");
        times.push(header.monotonic_timestamp_secs);
        (0..24).for_each(|_| coppice.pass(DAY / 24));
        let status = coppice.prune_status();
        // Up to the first block that is at most two days old; the head is kept at any age.
        let due = times[..times.len() - 1].iter().take_while(|&&time| time + 2 * DAY < now()).count() as u64;
        assert_eq!((status.pruned_before_block, status.retain_min_block), (due, due), "{times:?} at {}", now());
        oldest.push(due);
    }
    assert_eq!(oldest, [0, 1, 1, 3, 3, 5]);
}

/// A block with the most transactions allowed is pruned in one message under the smallest budgets, and each message of the prune and of the
/// sweep is small.
#[test]
fn the_largest_block_is_pruned_under_the_smallest_budgets() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let ids: Vec<_> = (0..100_000u64).map(|i| id(1 << 50 | i)).collect();
    let mut large = block(0, &ids, 1_000);
    large.receipts = ByteBuf::new();
    coppice_tests::blocks::seal(&mut large);
    coppice.upload(&large, 1 << 20).unwrap();
    for number in 1..4 {
        coppice.append(&plain(number, 3, 2 * LOG_CLASS as usize)).unwrap();
    }
    let smallest = PrunePolicyArg {
        max_ops_per_tick: Some(1),
        max_instructions_per_tick: Some(1),
        pause_after_secs: Some(0),
        ..policy(1)
    };
    coppice.set_policy(smallest).unwrap();
    host.take_executions();
    coppice.settle(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.last_run.unwrap().blocks), (2, 2));
    // The debt of its 100,000 ids exceeds what the table may owe.
    for tick in 0.. {
        if matches!(coppice.prune_status().sweep, SweepPhase::Idle | SweepPhase::Collecting) {
            break;
        }
        assert!(tick < 1_000, "{:?}", coppice.prune_status());
        coppice.ic.tick();
    }
    let fired = timer_executions(&host);
    for most in &fired {
        assert!(most.instructions <= 10_000_000 && most.stable_pages_written <= 200, "{most:?}");
    }
    // The entries of the last block are not worth a sweep.
    let table = coppice.prune_status().transaction_index;
    assert_eq!((table.sweeps, table.entries - table.debt), (1, 6), "{table:?}");
    assert_eq!(coppice.location(ids[77]), Err(ReadError::NotFound));
    assert_eq!(coppice.storage().index_entries, 6);
    assert_eq!(coppice.block(2).unwrap().header.hash, hash(2).into());
}
