//! Charges at the end of a message, for the heap pages that it changed.

use crate::common::*;
use ic_coppice_host::{Execution, Host, Kind, Limits, Outcome};

fn last(host: &Host) -> Execution {
    host.last_execution().expect("there was an execution")
}

/// Returns the heap pages of the last execution, and whether they were charged.
fn pages(host: &Host) -> (u64, bool) {
    let execution = last(host);
    let more = execution.instructions_charged - execution.instructions;
    assert!(more == 0 || more == 1_000 * execution.heap_pages_written, "{execution:?}");
    (execution.heap_pages_written, more > 0)
}

#[test]
fn changed_heap_pages_are_charged() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    assert_eq!(pages(&host), (1, true), "the counters and the reply lie on the first page");
    // Arguments are copied to the second page and those after it.
    let echo = |bytes: &[u8]| host.update_call(canister, ANYONE, "echo", bytes.to_vec()).unwrap();
    echo(&[]);
    assert_eq!(pages(&host), (0, false));
    echo(&[7; 4_096]);
    assert_eq!(pages(&host), (1, true));
    echo(&[7; 4_097]);
    assert_eq!(pages(&host), (1, true), "only the additional byte is a change");
    echo(&[7; 4_097]);
    assert_eq!(pages(&host), (0, false));
    echo(&[8; 40_961]);
    assert_eq!(pages(&host), (11, true));
}

#[test]
fn growing_the_heap_without_writing_is_free() {
    let (host, canister) = installed();
    update(&host, canister, "grow_heap", &[0]).unwrap();
    update(&host, canister, "grow_heap", &[0]).unwrap();
    assert_eq!(pages(&host), (0, false));
    update(&host, canister, "grow_heap", &[30]).unwrap();
    assert_eq!(pages(&host), (1, true), "the argument");
    // Most of the bytes lie on new pages.
    let bytes = vec![9; 61 * 4_096];
    host.update_call(canister, ANYONE, "echo", bytes).unwrap();
    assert_eq!(pages(&host), (61, true));
    update(&host, canister, "grow_heap_trap", &[]).unwrap_err();
    assert_eq!(pages(&host), (1, true), "undone growth is checked, too");
}

#[test]
fn trap_is_charged_for_heap_pages_and_query_is_not() {
    let (host, canister) = installed();
    update(&host, canister, "bump_trap", &[]).unwrap_err();
    assert_eq!(pages(&host), (1, true));
    query(&host, canister, "bump_query", &[]).unwrap();
    assert_eq!((pages(&host), last(&host).kind), ((1, false), Kind::Query));
    update(&host, canister, "bump_query", &[]).unwrap();
    assert_eq!((pages(&host), last(&host).kind), ((1, false), Kind::ReplicatedQuery));
    assert_eq!(state(&host, canister), bumped(0));
}

#[test]
fn data_segments_are_not_charged() {
    let host = Host::new();
    let canister = host.create_canister();
    let init = r#"(data (i32.const 20480) "data") (func (export "canister_init") (i64.store (i32.const 0) (i64.const 1)))
        (func (export "canister_post_upgrade") (i64.store (i32.const 65536) (i64.const 1)))"#;
    host.install_canister(canister, wasm_with(init), vec![], None);
    assert_eq!((pages(&host), last(&host).kind), ((1, true), Kind::Init));
    host.upgrade_canister(canister, wasm_with(init), vec![], None).unwrap();
    assert_eq!((pages(&host), last(&host).kind), ((1, true), Kind::PostUpgrade));
}

#[test]
fn charge_is_capped_at_the_instruction_limit() {
    let (host, canister) = installed();
    let stable = [0, 0];
    update(&host, canister, "write", &stable).unwrap();
    let mut argument = bytes(&stable);
    argument.resize(100_000, 1);
    let message = || {
        let before = host.cycle_balance(canister);
        host.update_call(canister, ANYONE, "write", argument.clone()).unwrap();
        let ingress = 1_200_000 + 2_000 * (5 + 100_000 + 125);
        (last(&host), before - host.cycle_balance(canister) - ingress - 5_000_000)
    };
    let checkpoint = host.checkpoint();
    let (whole, cycles) = message();
    assert_eq!((whole.heap_pages_written, cycles), (26, u128::from(whole.instructions_charged)));
    assert_eq!(whole.instructions_charged, whole.instructions + 26_000);
    for room in [0, 1, 25_999, 26_000, 26_001] {
        host.restore(&checkpoint);
        let limit = whole.instructions + room;
        host.set_limits(Limits { update_instructions: limit, ..Limits::default() });
        let (capped, cycles) = message();
        assert_eq!(capped.outcome, Outcome::Completed, "pages don't make a message trap");
        assert_eq!(capped.instructions_charged, whole.instructions + room.min(26_000));
        assert_eq!(cycles, u128::from(capped.instructions_charged));
    }
}

#[test]
fn totals_sum_instructions_and_charges() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    query(&host, canister, "bump_query", &[]).unwrap();
    let executions = host.take_executions();
    let sum = |of: fn(&Execution) -> u64| executions.iter().map(|execution| u128::from(of(execution))).sum::<u128>();
    let totals = host.totals();
    assert_eq!(totals.heap_pages_written, sum(|execution| execution.heap_pages_written));
    assert_eq!(totals.instructions, sum(|execution| execution.instructions));
    assert_eq!(totals.instructions_charged, sum(|execution| execution.instructions_charged));
    assert!(totals.instructions < totals.instructions_charged);
}
