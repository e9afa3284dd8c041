//! A canister that forwards calls to another canister. Its calls do not pass the ingress filter.

use candid::Principal;
use coppice_ic::{Ic, Reject};

/// `forward` takes a callee and a method, each after its length in a byte, and an argument; it replies with the callee's answer.
const WAT: &str = r#"(module
  (import "ic0" "msg_arg_data_size" (func $arg_size (result i32)))
  (import "ic0" "msg_arg_data_copy" (func $arg_copy (param i32 i32 i32)))
  (import "ic0" "msg_reply_data_append" (func $append (param i32 i32)))
  (import "ic0" "msg_reply" (func $reply))
  (import "ic0" "msg_reject" (func $reject (param i32 i32)))
  (import "ic0" "msg_reject_msg_size" (func $text_size (result i32)))
  (import "ic0" "msg_reject_msg_copy" (func $text_copy (param i32 i32 i32)))
  (import "ic0" "call_new" (func $call_new (param i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "ic0" "call_data_append" (func $data_append (param i32 i32)))
  (import "ic0" "call_perform" (func $perform (result i32)))
  (memory (export "memory") 40)
  (table (export "table") 2 funcref)
  (elem (i32.const 0) $on_reply $on_reject)
  (func $on_reply (param i32)
    (call $arg_copy (i32.const 0) (i32.const 0) (call $arg_size))
    (call $append (i32.const 0) (call $arg_size))
    (call $reply))
  (func $on_reject (param i32)
    (call $text_copy (i32.const 0) (i32.const 0) (call $text_size))
    (call $reject (i32.const 0) (call $text_size)))
  (func (export "canister_update forward") (local $callee i32) (local $method i32) (local $data i32)
    (call $arg_copy (i32.const 0) (i32.const 0) (call $arg_size))
    (local.set $callee (i32.load8_u (i32.const 0)))
    (local.set $method (i32.load8_u (i32.add (i32.const 1) (local.get $callee))))
    (local.set $data (i32.add (i32.const 2) (i32.add (local.get $callee) (local.get $method))))
    (call $call_new
      (i32.const 1) (local.get $callee)
      (i32.add (i32.const 2) (local.get $callee)) (local.get $method)
      (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0))
    (call $data_append (local.get $data) (i32.sub (call $arg_size) (local.get $data)))
    (if (call $perform) (then unreachable))))"#;

/// An installed proxy canister.
pub struct Proxy(Principal);

impl Proxy {
    /// Installs a proxy.
    ///
    /// # Panics
    /// If it cannot be installed.
    pub fn new(ic: &dyn Ic, controller: Principal) -> Self {
        let id = ic.create_canister(controller);
        ic.install(id, wat::parse_str(WAT).expect("it is wasm"), Vec::new(), controller);
        Self(id)
    }

    /// Its principal, which the callee sees as the caller.
    pub fn principal(&self) -> Principal {
        self.0
    }

    /// Calls a method of another canister as an update.
    ///
    /// # Errors
    /// The callee's reject, as the message of the proxy's own reject.
    pub fn update(&self, ic: &dyn Ic, callee: Principal, method: &str, arg: &[u8]) -> Result<Vec<u8>, Reject> {
        let with_length = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
        let forward = [&with_length(callee.as_slice()), &with_length(method.as_bytes()), arg].concat();
        ic.update(self.0, Principal::anonymous(), "forward", forward)
    }
}
