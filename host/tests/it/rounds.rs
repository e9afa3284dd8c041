//! Rounds: the messages that a round executes, continues in the next one, or leaves waiting.

use std::time::Duration;

use crate::common::*;
use ic_coppice_host::{Completed, Host, Kind, Limits, MessageId, Principal, Round};

/// Submits a `spin` of `turns` turns.
fn spin(host: &Host, canister: Principal, turns: u64) -> MessageId {
    host.submit_call(canister, ANYONE, "spin", bytes(&[turns])).unwrap()
}

/// Returns a host whose canister has spun before, and the cost of one more `spin`: instructions and pages.
fn spun(turns: u64) -> (Host, Principal, u64, u64) {
    let (host, canister) = installed();
    for _ in 0..2 {
        let id = spin(&host, canister, turns);
        host.await_call(id).unwrap();
    }
    let checkpoint = host.checkpoint();
    let id = spin(&host, canister, turns);
    host.await_call(id).unwrap();
    let execution = host.last_execution().unwrap();
    host.restore(&checkpoint);
    let pages = execution.stable_pages_written + execution.heap_pages_written;
    (host, canister, execution.instructions_charged, pages)
}

fn limit(host: &Host, instructions: u64, pages: u64) {
    host.set_limits(Limits { round_instructions: instructions, round_dirty_bytes: pages * 4_096, ..Limits::default() });
}

fn delays(round: &Round) -> Vec<u64> {
    round.completed.iter().map(|completed| completed.delay).collect()
}

fn ids(round: &Round) -> Vec<MessageId> {
    round.completed.iter().map(|completed| completed.id).collect()
}

#[test]
fn messages_run_in_order_until_the_round_is_full() {
    let (host, canister, cost, pages) = spun(1_000);
    let share = (cost * 5).div_ceil(2);
    limit(&host, share, 1_000);
    let calls: Vec<_> = (0..5).map(|_| spin(&host, canister, 1_000)).collect();
    let first = host.run_round();
    assert_eq!((ids(&first), delays(&first)), (calls[..2].to_vec(), vec![1, 1]));
    assert_eq!((first.number, first.in_progress, first.waiting), (1, true, 2));
    assert_eq!(first.instructions, share, "the third continues in the next round");
    assert_eq!(host.ingress_status(calls[2]), None);
    let second = host.run_round();
    assert_eq!((ids(&second), delays(&second)), (calls[2..].to_vec(), vec![2, 2, 2]));
    assert_eq!((second.number, second.in_progress, second.waiting), (2, false, 0));
    assert_eq!((first.instructions + second.instructions, first.pages + second.pages), (5 * cost, 5 * pages));
    calls.into_iter().for_each(|id| {
        host.await_call(id).unwrap();
    });
    assert_eq!(host.run_round(), Round { number: 3, ..Round::default() });
}

#[test]
fn long_message_takes_as_many_rounds_as_its_instructions_need() {
    for (rounds, more) in [(1, 0), (2, 0), (3, 0), (3, 1), (40, 0)] {
        let (host, canister, cost, _) = spun(10_000);
        let share = cost.div_ceil(rounds) - more;
        let expected = cost.div_ceil(share);
        limit(&host, share, 1_000);
        let long = spin(&host, canister, 10_000);
        let next = host.submit_call(canister, ANYONE, "echo", b"next".to_vec()).unwrap();
        let mut round = host.run_round();
        let mut used = round.instructions;
        while !ids(&round).contains(&long) {
            assert_eq!((round.instructions, round.in_progress, round.waiting), (share, true, 1));
            assert!(round.completed.is_empty(), "nothing else runs meanwhile");
            round = host.run_round();
            used += round.instructions;
        }
        assert_eq!((round.number, round.completed[0]), (expected, Completed { id: long, delay: expected }));
        while !ids(&round).contains(&next) {
            round = host.run_round();
            used += round.instructions;
        }
        assert!(used > cost);
        assert_eq!(host.await_call(next).unwrap(), b"next");
    }
}

#[test]
fn dirtied_pages_fill_a_round() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[16]).unwrap();
    let write = |pages: u64| host.submit_call(canister, ANYONE, "write", bytes(&[0, pages * 4_096])).unwrap();
    // The arguments and the reply are on two pages of the heap, and the first of these messages changes both.
    let id = write(3);
    host.await_call(id).unwrap();
    limit(&host, u64::MAX, 10);
    let calls = [write(20), write(20)];
    let first = host.run_round();
    assert_eq!((first.pages, first.in_progress, first.waiting), (10, true, 1));
    let second = host.run_round();
    assert_eq!((second.pages, ids(&second).len(), second.in_progress), (10, 0, true));
    let third = host.run_round();
    assert_eq!((third.pages, ids(&third), third.in_progress), (10, vec![calls[0]], true), "22 pages, and 8 of 20");
    let fourth = host.run_round();
    assert_eq!((fourth.pages, fourth.in_progress), (10, true));
    let fifth = host.run_round();
    assert_eq!((fifth.pages, ids(&fifth), delays(&fifth)), (2, vec![calls[1]], vec![5]));
    // A trap or query dirties no pages, but still uses instructions.
    let trap = host.submit_call(canister, ANYONE, "bump_trap", vec![]).unwrap();
    let seen = host.submit_call(canister, ANYONE, "bump_query", vec![]).unwrap();
    let round = host.run_round();
    assert_eq!((round.pages, ids(&round)), (0, vec![trap, seen]));
    assert!(round.instructions > 1_000);
}

#[test]
fn timer_is_queued_once_per_round_after_waiting_messages() {
    let (host, canister) = installed();
    update(&host, canister, "set_timer", &[1]).unwrap();
    host.take_executions();
    let kinds = |host: &Host| {
        let executions = host.take_executions().into_iter();
        executions.map(|execution| execution.kind).filter(|kind| *kind != Kind::InspectMessage).collect::<Vec<_>>()
    };
    let bump = |host: &Host| host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
    bump(&host);
    // This message sets the timer anew, which must wait for the next round.
    host.submit_call(canister, ANYONE, "set_timer", bytes(&[2])).unwrap();
    bump(&host);
    host.run_round();
    assert_eq!(kinds(&host), [Kind::Update, Kind::Update, Kind::Update, Kind::Timer]);
    host.submit_call(canister, ANYONE, "set_timer", bytes(&[3])).unwrap();
    host.run_round();
    assert_eq!(kinds(&host), [Kind::Update], "none was due when the round began");
    host.run_round();
    assert_eq!(kinds(&host), [Kind::Timer]);
    host.run_round();
    assert_eq!(kinds(&host), []);
}

#[test]
fn busy_canister_fires_no_timer() {
    let (host, canister, cost, _) = spun(1_000);
    limit(&host, cost.div_ceil(3), 1_000);
    host.submit_call(canister, ANYONE, "set_timer", bytes(&[1])).unwrap();
    spin(&host, canister, 1_000);
    let mut firings = Vec::new();
    for _ in 0..6 {
        host.take_executions();
        let round = host.run_round();
        let fired = host.take_executions().iter().any(|execution| execution.kind == Kind::Timer);
        firings.push((fired, round.in_progress));
        if round.number == 2 {
            // This message arrives before the timer is queued.
            host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
        }
    }
    let first = firings.iter().position(|(fired, _)| *fired).expect("it fires");
    assert!(first >= 2 && firings[..first - 1].iter().all(|(_, busy)| *busy), "{firings:?}");
    assert_eq!(firings.iter().filter(|(fired, _)| *fired).count(), 1);
}

#[test]
fn calls_of_a_long_message_join_the_queue_at_its_end() {
    let (host, canister) = installed();
    update(&host, canister, "call_bump", &[]).unwrap();
    let cost = host.take_executions().iter().rev().nth(2).unwrap().instructions_charged;
    limit(&host, cost.div_ceil(3) + 10, 1_000);
    let call = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    assert!(host.run_round().in_progress);
    let echo = host.submit_call(canister, ANYONE, "echo", vec![]).unwrap();
    let mut order = Vec::new();
    for _ in 0..10 {
        order.extend(host.run_round().completed);
    }
    assert_eq!(order.iter().map(|completed| completed.id).collect::<Vec<_>>(), [echo, call]);
    let methods: Vec<_> = host.take_executions().into_iter().map(|e| (e.kind, e.method)).collect();
    let updates: Vec<_> = methods.iter().filter(|(kind, _)| *kind == Kind::Update).map(|(_, m)| m.as_str()).collect();
    assert_eq!(updates, ["call_bump", "echo", "bump"]);
    host.await_call(call).unwrap();
}

#[test]
fn each_round_moves_the_clock() {
    let (host, _) = installed();
    let start = host.get_time_nanos();
    host.run_round();
    assert_eq!(host.get_time_nanos() - start, 1_000_000_000);
    for (duration, expected) in [
        (Duration::ZERO, 1_000_000_000),
        (Duration::from_millis(1_500), 2_500_000_000),
        (Duration::MAX, u64::MAX - start),
    ] {
        host.set_limits(Limits { round_duration: duration, ..Limits::default() });
        host.run_round();
        assert_eq!(host.get_time_nanos() - start, expected);
    }
}

#[test]
fn refused_and_trapped_calls_are_reported_as_completed() {
    let (host, canister) = installed();
    let bump = host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
    let trap = host.submit_call(canister, ANYONE, "bump_trap", vec![]).unwrap();
    host.stop_canister(canister, None).unwrap();
    let round = host.run_round();
    assert_eq!((ids(&round), round.instructions, round.pages), (vec![bump, trap], 0, 0));
    assert_eq!(code(host.await_call(bump)), ic_coppice_host::ErrorCode::CanisterStopped);
    host.start_canister(canister, None).unwrap();
    let trap = host.submit_call(canister, ANYONE, "bump_trap", vec![]).unwrap();
    assert_eq!(ids(&host.run_round()), [trap]);
    assert_eq!(code(host.await_call(trap)), ic_coppice_host::ErrorCode::CanisterCalledTrap);
}

#[test]
fn message_in_progress_ends_when_another_method_executes() {
    let (host, canister, cost, _) = spun(1_000);
    limit(&host, cost / 4, 1_000);
    let long = spin(&host, canister, 1_000);
    assert!(host.run_round().in_progress);
    let checkpoint = host.checkpoint();
    host.await_call(long).unwrap();
    // The same from the checkpoint, in rounds on another host.
    let other = Host::new();
    other.restore(&checkpoint);
    limit(&other, cost / 4, 1_000);
    let delay = (2..10).find_map(|_| other.run_round().completed.first().map(|completed| completed.delay));
    assert_eq!(delay, Some(cost.div_ceil(cost / 4)));
    other.await_call(long).unwrap();
    assert_eq!(state(&host, canister), state(&other, canister));
    host.restore(&checkpoint);
    assert!(!host.step(), "nothing waits");
    assert!(host.ingress_status(long).is_some());
    host.restore(&checkpoint);
    host.tick();
    assert!(host.ingress_status(long).is_some());
}

#[test]
fn round_without_budget_executes_nothing_and_large_round_everything() {
    let (host, canister, cost, _) = spun(1_000);
    let calls: Vec<_> = (0..100).map(|_| spin(&host, canister, 1_000)).collect();
    for (instructions, pages) in [(0, 0), (0, 1_000), (u64::MAX, 0)] {
        limit(&host, instructions, pages);
        let round = host.run_round();
        assert_eq!((round.completed.len(), round.instructions, round.waiting), (0, 0, 100));
    }
    limit(&host, 1, 1);
    assert!(host.run_round().in_progress);
    host.set_limits(Limits { round_instructions: u64::MAX, round_dirty_bytes: u64::MAX, ..Limits::default() });
    let round = host.run_round();
    assert_eq!((ids(&round), round.instructions), (calls, 100 * cost - 1));
    assert!(delays(&round).iter().all(|delay| *delay == 5));
}
