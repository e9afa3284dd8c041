//! The test canister, and functions to use it.

use ic_coppice_host::{ErrorCode, Host, Limits, Principal, RejectResponse};

/// The caller of the tests.
pub const ANYONE: Principal = Principal::anonymous();

/// Returns the Wasm of `canister.wat`.
pub fn wasm() -> Vec<u8> {
    wat::parse_str(include_str!("canister.wat")).expect("the test canister is valid")
}

/// Returns the Wasm of `canister.wat` with additional text in the module.
pub fn wasm_with(addition: &str) -> Vec<u8> {
    let text = include_str!("canister.wat").trim_end();
    let text = text.strip_suffix(')').expect("the module's end");
    wat::parse_str(format!("{text}\n{addition})")).expect("the test canister is valid")
}

/// Returns a host with a test canister.
pub fn installed() -> (Host, Principal) {
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(canister, wasm(), vec![], None);
    (host, canister)
}

/// Hooks that write their first argument to the heap.
pub const HOOKS: &str = r#"
  (func (export "canister_pre_upgrade") (call $do_bump))
  (func (export "canister_post_upgrade") (drop (call $args)) (i64.store (i32.const 8) (call $arg (i32.const 0))))
  (func (export "canister_init") (drop (call $args)) (i64.store (i32.const 8) (call $arg (i32.const 0))))"#;

/// Returns a canister on a subnet whose usage is halfway between the reservation threshold and its capacity.
pub fn half_full() -> (Host, Principal) {
    let (host, canister) = installed();
    let gib = 1 << 30;
    host.set_limits(Limits {
        subnet_reservation_bytes: 100 * gib,
        subnet_bytes: 200 * gib,
        subnet_bytes_elsewhere: 150 * gib,
        ..Limits::default()
    });
    (host, canister)
}

/// Converts numbers to bytes.
pub fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Converts bytes to numbers.
pub fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("whole numbers"))).collect()
}

/// Calls an update that takes and returns numbers.
pub fn update(host: &Host, canister: Principal, method: &str, arguments: &[u64]) -> Result<Vec<u64>, RejectResponse> {
    host.update_call(canister, ANYONE, method, bytes(arguments)).map(|reply| numbers(&reply))
}

/// Calls a query that takes and returns numbers.
pub fn query(host: &Host, canister: Principal, method: &str, arguments: &[u64]) -> Result<Vec<u64>, RejectResponse> {
    host.query_call(canister, ANYONE, method, bytes(arguments)).map(|reply| numbers(&reply))
}

/// The canister's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub heap: u64,
    pub global: u64,
    pub stable: u64,
    pub stable_pages: u64,
    pub firings: u64,
    pub cleanup: u64,
}

/// Returns a canister's state.
pub fn state(host: &Host, canister: Principal) -> State {
    let values = query(host, canister, "state", &[]).expect("a state");
    let [heap, global, stable, stable_pages, firings, cleanup] = values[..] else { panic!("six numbers") };
    State { heap, global, stable, stable_pages, firings, cleanup }
}

/// Returns the state after `times` bumps.
pub fn bumped(times: u64) -> State {
    State { heap: times, global: times, stable: times, stable_pages: u64::from(times > 0), ..State::default() }
}

/// Returns the error code of a call that must have failed.
pub fn code<T: std::fmt::Debug>(result: Result<T, RejectResponse>) -> ErrorCode {
    result.expect_err("the call must fail").error_code
}
