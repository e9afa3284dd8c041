//! The client: the same tests on the embedded host and inside a canister that calls Coppice with a bounded wait. Over HTTP they run in the
//! command's network tests.

use candid::{Principal, decode_one, encode_args};
use coppice_client_tests::{NAMES, ROLES, init_arg, run};
use coppice_ic::{Backend, Ic};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use coppice_tests::wasm;
use ic_coppice_client::{Client, Embedded};
use ic_coppice_interface::{Grant, InitArg};
use std::sync::Arc;
use std::time::Duration;

/// Gives a caller the roles that the client tests need.
fn for_caller(coppice: &Coppice, caller: Principal) {
    for role in ROLES {
        coppice.operator().grant_role(&Grant { principal: caller, role }).answer().unwrap();
    }
}

/// A canister under test, and the canister that runs the tests from inside.
fn with_a_caller() -> (Coppice, Principal) {
    let coppice = Coppice::with(InitArg { admins: None, ..init_arg(Who::Stranger.principal()) });
    let controller = Who::Controller.principal();
    let caller = coppice.ic.create_canister(controller);
    coppice.ic.install(caller, wasm::example("coppice_client_tests"), encode_args(()).unwrap(), controller);
    for_caller(&coppice, caller);
    coppice
        .operator()
        .grant_role(&Grant { principal: caller, role: ic_coppice_interface::Role::Admin })
        .answer()
        .unwrap();
    (coppice, caller)
}

#[test]
fn all_client_tests_pass_on_the_embedded_host() {
    let caller = Who::Stranger.principal();
    let (coppice, host) = Coppice::embedded(init_arg(caller));
    for_caller(&coppice, caller);
    let client = Client::new(Embedded::new(Arc::clone(&host), coppice.id, caller));
    for name in NAMES {
        pollster::block_on(run(name, &client, caller));
    }
    assert!(coppice.anyone().health().answer().healthy);
}

#[test]
fn all_client_tests_pass_inside_a_canister() {
    let (coppice, caller) = with_a_caller();
    let names = coppice.ic.query(caller, Principal::anonymous(), "names", encode_args(()).unwrap()).unwrap();
    assert_eq!(decode_one::<Vec<String>>(&names).unwrap(), NAMES);
    // In reverse order, because no test may depend on the ones before it.
    for name in NAMES.iter().rev() {
        let arg = encode_args((name, coppice.id)).unwrap();
        let answer = coppice.ic.update(caller, Principal::anonymous(), "run", arg);
        answer.unwrap_or_else(|reject| panic!("{name}: {}", reject.message));
    }
    assert!(coppice.anyone().health().answer().healthy);
}

/// Has the caller canister ask Coppice for its head with a wait of at most `secs` seconds. Returns the reject code and whether the call may
/// be retried.
fn waited(ic: &dyn Ic, caller: Principal, coppice: Principal, secs: u32) -> (u32, bool) {
    let arg = encode_args((coppice, secs)).unwrap();
    candid::decode_args(&ic.update(caller, Principal::anonymous(), "wait_for_head", arg).unwrap()).unwrap()
}

#[test]
fn a_calling_canister_learns_of_a_stopped_or_missing_canister() {
    let (coppice, caller) = with_a_caller();
    assert_eq!(waited(&*coppice.ic, caller, coppice.id, 300), (0, false));
    coppice.ic.stop(coppice.id, Who::Controller.principal()).unwrap();
    assert_eq!(waited(&*coppice.ic, caller, coppice.id, 300), (5, true), "it may be upgraded");
    coppice.ic.start(coppice.id, Who::Controller.principal()).unwrap();
    // A canister without the methods of Coppice.
    assert_eq!(waited(&*coppice.ic, caller, caller, 300), (5, false));
}

/// Never answers `get_head`: it calls another method of itself, and calls it again after each answer.
const SILENT: &str = r#"(module
  (import "ic0" "msg_reply" (func $reply))
  (import "ic0" "canister_self_size" (func $self_size (result i32)))
  (import "ic0" "canister_self_copy" (func $self_copy (param i32 i32 i32)))
  (import "ic0" "call_new" (func $call_new (param i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "ic0" "call_perform" (func $perform (result i32)))
  (memory 1)
  (table funcref (elem $again))
  (data (i32.const 100) "wait")
  (func $again (param i32)
    (call $self_copy (i32.const 0) (i32.const 0) (call $self_size))
    (call $call_new (i32.const 0) (call $self_size) (i32.const 100) (i32.const 4)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    (drop (call $perform)))
  (func (export "canister_update wait") (call $reply))
  (func (export "canister_update get_head") (call $again (i32.const 0))))"#;

#[test]
fn a_bounded_wait_ends_for_a_silent_canister() {
    let (coppice, caller) = with_a_caller();
    let controller = Who::Controller.principal();
    let silent = coppice.ic.create_canister(controller);
    coppice.ic.install(silent, wat::parse_str(SILENT).unwrap(), Vec::new(), controller);
    let arg = encode_args((silent, 10u32)).unwrap();
    let call = coppice.ic.submit(caller, Principal::anonymous(), "wait_for_head", arg).unwrap();
    if coppice.ic.backend() == Backend::Host {
        coppice.ic.tick();
    } else {
        (0..5).for_each(|_| coppice.ic.tick());
    }
    coppice.ic.advance_time(Duration::from_secs(12));
    let outcome: (u32, bool) = candid::decode_args(&coppice.ic.wait(call).unwrap()).unwrap();
    assert_eq!(outcome, (6, true), "the outcome is unknown");
    // The caller is no longer waiting: it can be stopped and started.
    coppice.ic.stop(caller, controller).unwrap();
    coppice.ic.start(caller, controller).unwrap();
    assert_eq!(waited(&*coppice.ic, caller, coppice.id, 10), (0, false));
}
