//! Calls that wait for a bounded time.

mod common;

use common::*;
use coppice_host::{Host, MessageId, Principal};
use std::time::Duration;

const SYS_UNKNOWN: u64 = 6;

/// A call of a method of four letters, that waits so many seconds at most.
fn submitted(host: &Host, canister: Principal, method: &[u8; 4], secs: u64) -> MessageId {
    let arg = [&method[..], &[0; 4], &secs.to_le_bytes()].concat();
    host.submit_call(canister, ANYONE, "call_bounded", arg).unwrap()
}

/// What the callback was told: its environment and the reject's code, and the cycles that came back where there was a reply.
fn told(host: &Host, id: MessageId) -> Option<Vec<u64>> {
    host.ingress_status(id).map(|answer| numbers(&answer.unwrap()[..16]))
}

#[test]
fn a_call_that_is_not_answered_in_time_has_an_unknown_outcome() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"hang", 10);
    for _ in 0..5 {
        assert!(host.step());
    }
    host.advance_time(Duration::from_secs(10));
    assert!(host.step());
    assert_eq!(told(&host, id), None, "the deadline itself is in time");
    host.advance_time(Duration::from_nanos(1));
    // What the callee does next is before it in the queue.
    assert!(host.step() && host.step());
    assert_eq!(told(&host, id), Some(vec![42, SYS_UNKNOWN]));
    let reply = host.await_call(id).unwrap();
    assert!(String::from_utf8_lossy(&reply[16..]).contains("deadline has expired"));
    // The callee goes on, and nothing more comes of the call.
    let before = state(&host, canister).heap;
    host.advance_time(Duration::from_secs(1_000));
    assert!(host.step() && state(&host, canister).heap == before + 1);
}

#[test]
fn a_request_that_waits_too_long_is_not_executed_and_its_cycles_come_back() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"bump", 1);
    assert!(host.step());
    let before = host.cycle_balance(canister);
    host.advance_time(Duration::from_secs(2));
    while host.step() {}
    assert_eq!(told(&host, id), Some(vec![42, SYS_UNKNOWN]));
    assert_eq!(state(&host, canister), bumped(0));
    assert!(host.cycle_balance(canister) > before, "the cycles, and what was paid in advance for a longer reply");
}

#[test]
fn the_cycles_of_an_answer_that_comes_too_late_are_lost() {
    let host = Host::new();
    let canister = host.create_canister();
    // It answers when it has called another method, and takes no cycles.
    let slow = r#"(func (export "canister_update slow")
        (call $call_self (i32.const 1032) (i32.const 4) (i32.const 0)) (drop (call $call_perform)))"#;
    host.install_canister(canister, wasm_with(slow), vec![], None);
    let id = submitted(&host, canister, b"slow", 1);
    assert!(host.step() && host.step() && host.step());
    host.advance_time(Duration::from_secs(2));
    assert!(host.step() && host.step());
    assert_eq!(told(&host, id), Some(vec![42, SYS_UNKNOWN]));
    let before = host.cycle_balance(canister);
    assert!(host.step() && !host.step(), "the answer");
    assert_eq!(host.cycle_balance(canister), before);
}

#[test]
fn an_answer_that_is_there_counts_whenever_it_is_taken() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"take", 1);
    assert!(host.step() && host.step());
    host.advance_time(Duration::from_secs(100));
    assert!(host.step() && !host.step());
    assert_eq!(told(&host, id), Some(vec![41, 0]));
}

#[test]
fn the_platform_waits_for_300_seconds_at_most_and_without_end_where_nothing_is_said() {
    let (host, canister) = installed();
    let bounded = submitted(&host, canister, b"hang", 100_000);
    let unbounded = host.submit_call(canister, ANYONE, "hang", vec![]).unwrap();
    assert!(host.step() && host.step() && host.step());
    for (secs, ended) in [(300, false), (1, true)] {
        host.advance_time(Duration::from_secs(secs));
        for _ in 0..10 {
            host.step();
        }
        assert_eq!(told(&host, bounded).is_some(), ended, "{secs}");
    }
    host.advance_time(Duration::from_secs(1_000_000));
    for _ in 0..10 {
        host.step();
    }
    assert_eq!(told(&host, unbounded), None);
}
