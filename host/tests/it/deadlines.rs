//! Calls that wait for a bounded time.

use crate::common::*;
use ic_coppice_host::{Host, MessageId, Principal};
use std::time::Duration;

const SYS_UNKNOWN: u64 = 6;

/// Submits a call of a method with a four-letter name, which waits at most `secs` seconds.
fn submitted(host: &Host, canister: Principal, method: &[u8; 4], secs: u64) -> MessageId {
    let arg = [&method[..], &[0; 4], &secs.to_le_bytes()].concat();
    host.submit_call(canister, ANYONE, "call_bounded", arg).unwrap()
}

/// Returns the callback's result: its environment and the reject code, or 0 after a reply.
fn result(host: &Host, id: MessageId) -> Option<Vec<u64>> {
    host.ingress_status(id).map(|answer| numbers(&answer.unwrap()[..16]))
}

#[test]
fn call_without_an_answer_in_time_has_an_unknown_outcome() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"hang", 10);
    for _ in 0..5 {
        assert!(host.step());
    }
    host.advance_time(Duration::from_secs(10));
    assert!(host.step());
    assert_eq!(result(&host, id), None, "the deadline itself is in time");
    host.advance_time(Duration::from_nanos(1));
    // The callee's next message is before it in the queue.
    assert!(host.step() && host.step());
    assert_eq!(result(&host, id), Some(vec![42, SYS_UNKNOWN]));
    let reply = host.await_call(id).unwrap();
    assert!(String::from_utf8_lossy(&reply[16..]).contains("deadline has expired"));
    // The callee continues, without further effect on the call.
    let before = state(&host, canister).heap;
    host.advance_time(Duration::from_secs(1_000));
    assert!(host.step() && state(&host, canister).heap == before + 1);
}

#[test]
fn request_past_its_deadline_is_not_executed_and_its_cycles_are_refunded() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"bump", 1);
    assert!(host.step());
    let before = host.cycle_balance(canister);
    host.advance_time(Duration::from_secs(2));
    while host.step() {}
    assert_eq!(result(&host, id), Some(vec![42, SYS_UNKNOWN]));
    assert_eq!(state(&host, canister), bumped(0));
    assert!(host.cycle_balance(canister) > before, "the cycles, and the prepaid part for a longer reply");
}

#[test]
fn cycles_of_a_late_answer_are_lost() {
    let host = Host::new();
    let canister = host.create_canister();
    // Answers after it has called another method, and accepts no cycles.
    let slow = r#"(func (export "canister_update slow")
        (call $call_self (i32.const 1032) (i32.const 4) (i32.const 0)) (drop (call $call_perform)))"#;
    host.install_canister(canister, wasm_with(slow), vec![], None);
    let id = submitted(&host, canister, b"slow", 1);
    assert!(host.step() && host.step() && host.step());
    host.advance_time(Duration::from_secs(2));
    assert!(host.step() && host.step());
    assert_eq!(result(&host, id), Some(vec![42, SYS_UNKNOWN]));
    let before = host.cycle_balance(canister);
    assert!(host.step() && !host.step(), "the answer");
    assert_eq!(host.cycle_balance(canister), before);
}

#[test]
fn answer_queued_in_time_is_delivered_after_the_deadline() {
    let (host, canister) = installed();
    let id = submitted(&host, canister, b"take", 1);
    assert!(host.step() && host.step());
    host.advance_time(Duration::from_secs(100));
    assert!(host.step() && !host.step());
    assert_eq!(result(&host, id), Some(vec![41, 0]));
}

#[test]
fn bounded_wait_is_at_most_300_seconds_and_unbounded_wait_never_ends() {
    let (host, canister) = installed();
    let bounded = submitted(&host, canister, b"hang", 100_000);
    let unbounded = host.submit_call(canister, ANYONE, "hang", vec![]).unwrap();
    assert!(host.step() && host.step() && host.step());
    for (secs, ended) in [(300, false), (1, true)] {
        host.advance_time(Duration::from_secs(secs));
        for _ in 0..10 {
            host.step();
        }
        assert_eq!(result(&host, bounded).is_some(), ended, "{secs}");
    }
    host.advance_time(Duration::from_secs(1_000_000));
    for _ in 0..10 {
        host.step();
    }
    assert_eq!(result(&host, unbounded), None);
}
