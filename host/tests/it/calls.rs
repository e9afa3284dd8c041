//! Calls from outside and between canisters, and their answers.

use crate::common::*;
use ic_coppice_host::{ErrorCode, Kind, Limits, RejectCode, largest_argument};

fn kinds(host: &ic_coppice_host::Host) -> Vec<Kind> {
    let executions = host.take_executions().into_iter().map(|execution| execution.kind);
    executions.filter(|kind| *kind != Kind::InspectMessage).collect()
}

#[test]
fn reply_reject_or_no_reply_is_returned() {
    let (host, canister) = installed();
    let reply = host.update_call(canister, ANYONE, "echo", b"abc".to_vec()).unwrap();
    assert_eq!(reply, b"abc");
    let reject = update(&host, canister, "silent", &[]).unwrap_err();
    assert_eq!((reject.error_code, reject.reject_code), (ErrorCode::CanisterDidNotReply, RejectCode::CanisterError));
    assert_eq!(state(&host, canister), bumped(1), "it was executed");
    let reject = update(&host, canister, "nothing", &[]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterMethodNotFound);
    assert_eq!(reject.error_code.to_string(), "IC0536");
    assert!(reject.reject_message.contains("Canister has no update method 'nothing'"), "{reject}");
    assert_eq!(code(query(&host, canister, "bump", &[])), ErrorCode::CanisterMethodNotFound);
    let missing = ic_coppice_host::Principal::management_canister();
    assert_eq!(code(update(&host, missing, "bump", &[])), ErrorCode::CanisterNotFound);
    let reject = query(&host, canister, "forbidden", &[]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterContractViolation);
    assert!(reject.reject_message.contains("\"ic0_global_timer_set\" cannot be executed in non replicated query mode"));
}

#[test]
fn explicit_reject_and_refused_inspection_are_returned() {
    let (host, canister) = installed();
    let reject = host.submit_call(canister, ANYONE, "bad", vec![]).unwrap_err();
    assert_eq!(reject.reject_message, "Canister rejected the message");
    assert_eq!((reject.error_code, host.pending_messages()), (ErrorCode::CanisterRejectedMessage, 0));
    let reject = host.update_call(canister, ANYONE, "reject", b"no".to_vec()).unwrap_err();
    assert_eq!((reject.reject_message.as_str(), reject.reject_code), ("no", RejectCode::CanisterReject));
    assert_eq!(reject.error_code.to_string(), "IC0406");
}

#[test]
fn argument_above_the_limit_is_refused() {
    let (host, canister) = installed();
    update(&host, canister, "grow_heap", &[64]).unwrap();
    // A server counts the envelope, too: 121 bytes besides method and argument, four more for a long length, and the message's id.
    let most = largest_argument(canister, ANYONE, "echo");
    assert_eq!(most, 2_097_152 - 121 - 4 - 32 - "echo".len());
    let reply = host.update_call(canister, ANYONE, "echo", vec![7; most]).unwrap();
    assert_eq!(reply.len(), most);
    let reject = host.update_call(canister, ANYONE, "echo", vec![7; most + 1]).unwrap_err();
    assert!(reject.reject_message.contains("BadIngressMessage: 2097153 bytes with the envelope"), "{reject}");
}

#[test]
fn self_call_runs_as_three_messages() {
    let (host, canister) = installed();
    host.take_executions();
    let id = host.submit_call(canister, ANYONE, "call_bump", vec![]).unwrap();
    let mut steps = 0;
    while host.ingress_status(id).is_none() {
        assert_eq!(host.pending_messages(), 1);
        assert!(host.step());
        steps += 1;
    }
    assert_eq!(steps, 3);
    assert!(!host.step());
    assert_eq!(kinds(&host), [Kind::Update, Kind::Update, Kind::ReplyCallback]);
    let reply = numbers(&host.await_call(id).unwrap());
    // Environment, reject code, refunded cycles (128 bits cut to 64), and then the callee's state.
    assert_eq!(reply[..3], [41, 0, 0]);
    assert_eq!(reply[3..6], [2, 2, 2], "the callee saw its caller's changes");
    assert_eq!(code(host.await_call(id)), ErrorCode::DeadlineExpired, "an answer is taken once");
}

#[test]
fn failed_calls_reach_the_reject_callback() {
    let (host, canister) = installed();
    let reply = host.update_call(canister, ANYONE, "call_nothing", vec![]).unwrap();
    assert_eq!(numbers(&reply[..16]), [42, 5]);
    assert!(String::from_utf8_lossy(&reply[16..]).contains("Canister has no update method 'nothing'"));
    let reply = host.update_call(canister, ANYONE, "call_trap", vec![]).unwrap();
    assert_eq!(numbers(&reply[..16]), [42, 5]);
    assert!(String::from_utf8_lossy(&reply[16..]).contains("'boom'"));
    assert_eq!(state(&host, canister), bumped(0));
    // A canister that doesn't exist, and one that is stopped.
    let missing = ic_coppice_host::Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 99, 1, 1]);
    let reply = host.update_call(canister, ANYONE, "call_callee", missing.as_slice().to_vec()).unwrap();
    assert_eq!(numbers(&reply[..16]), [42, 3]);
    let other = host.create_canister();
    host.install_canister(other, wasm(), vec![], None);
    host.stop_canister(other, None).unwrap();
    let reply = host.update_call(canister, ANYONE, "call_callee", other.as_slice().to_vec()).unwrap();
    assert_eq!(numbers(&reply[..16]), [42, 5]);
    assert!(String::from_utf8_lossy(&reply[16..]).ends_with("is stopped"));
    host.start_canister(other, None).unwrap();
    let reply = host.update_call(canister, ANYONE, "call_callee", other.as_slice().to_vec()).unwrap();
    assert_eq!(numbers(&reply)[3..6], [1, 1, 1]);
}

#[test]
fn trap_in_a_callback_runs_the_cleanup() {
    let (host, canister) = installed();
    host.take_executions();
    let reject = update(&host, canister, "call_bump_callback_traps", &[]).unwrap_err();
    assert_eq!(reject.error_code, ErrorCode::CanisterCalledTrap);
    assert_eq!(kinds(&host), [Kind::Update, Kind::Update, Kind::ReplyCallback, Kind::Cleanup]);
    let mut expected = bumped(1);
    expected.cleanup = 43;
    assert_eq!(state(&host, canister), expected, "the callee's bump stays, the callback's doesn't");
}

#[test]
fn call_transfers_cycles_and_pays_its_costs() {
    let (host, canister) = installed();
    let before = host.cycle_balance(canister);
    let reply = numbers(&host.update_call(canister, ANYONE, "call_take", vec![]).unwrap());
    // Refunded 700, then the answer of `take`: accepted 300 and had 700 left.
    assert_eq!(reply, [41, 0, 700, 300, 0, 700, 0]);
    let executions = host.take_executions();
    let instructions: u64 = executions.iter().rev().take(3).map(|execution| execution.instructions_charged).sum();
    // Ingress (9 bytes of name and 121 of envelope), three executions, a call of 4 bytes and its reply of 32.
    let expected = 1_200_000 + (9 + 121) * 2_000 + 3 * 5_000_000 + u128::from(instructions) + 260_000 + 4_000 + 32_000;
    assert_eq!(before - host.cycle_balance(canister), expected);
}

#[test]
fn trap_after_a_call_refunds_the_call() {
    let (host, canister) = installed();
    update(&host, canister, "bump", &[]).unwrap();
    let before = host.cycle_balance(canister);
    update(&host, canister, "bump_trap", &[]).unwrap_err();
    let spent = before - host.cycle_balance(canister);
    let execution = host.last_execution().unwrap();
    assert_eq!((execution.heap_pages_written, execution.instructions_charged), (1, execution.instructions + 1_000));
    let instructions = u128::from(execution.instructions_charged);
    assert_eq!(spent, 1_200_000 + (9 + 121) * 2_000 + 5_000_000 + instructions, "the call that was made is undone");
}

#[test]
fn canister_without_enough_cycles_refuses_calls() {
    let (host, canister) = installed();
    host.set_limits(Limits { update_instructions: 1_000_000_000, ..Limits::default() });
    update(&host, canister, "bump", &[]).unwrap();
    let limit = host.canister_status(canister, None).unwrap().freezing_limit;
    host.faults().low_cycles(canister, limit + 5_000_000 + 1_000_000_000 + 1_200_000 + (4 + 121) * 2_000);
    let id = host.submit_call(canister, ANYONE, "bump", vec![]).unwrap();
    host.await_call(id).unwrap();
    // After this message, the balance does not cover another execution.
    let reject = update(&host, canister, "bump", &[]).unwrap_err();
    assert_eq!((reject.error_code, reject.reject_code), (ErrorCode::CanisterOutOfCycles, RejectCode::SysTransient));
    assert!(reject.reject_message.contains("is out of cycles: please top up"), "{reject}");
    assert_eq!(state(&host, canister), bumped(2), "queries are answered until it is frozen");
    host.faults().low_cycles(canister, limit - 1);
    assert!(!host.step());
    assert_eq!(code(query(&host, canister, "state", &[])), ErrorCode::CanisterOutOfCycles);
    host.add_cycles(canister, 1_000_000_000_000);
    update(&host, canister, "bump", &[]).unwrap();
}
