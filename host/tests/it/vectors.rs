//! Vector operators cost what the platform charges for them.

use crate::common::*;
use ic_coppice_host::Host;

/// Returns the instructions of an update whose body is this text.
fn instructions(body: &str) -> u64 {
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(
        canister,
        wasm_with(&format!(r#"(func (export "canister_update vector") {body})"#)),
        vec![],
        None,
    );
    // The update does not reply, which is an error to the caller only.
    host.update_call(canister, ANYONE, "vector", vec![]).unwrap_err();
    host.last_execution().expect("there was an execution").instructions
}

#[test]
fn shifts_and_shuffles_of_vectors_cost_more_than_additions() {
    let vector = "(v128.const i32x4 1 2 3 4)";
    let none = instructions("");
    // Each operand, and the drop of the result, costs 1.
    for (operator, second, cost) in [
        ("i32x4.add", vector, 1),
        ("v128.xor", vector, 1),
        ("i32x4.mul", vector, 2),
        ("i32x4.shl", "(i32.const 7)", 2),
        ("i32x4.shr_u", "(i32.const 7)", 2),
        ("i64x2.shr_u", "(i32.const 7)", 2),
        ("i64x2.shr_s", "(i32.const 7)", 3),
        ("i8x16.shl", "(i32.const 7)", 3),
        ("i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", vector, 3),
        ("i64x2.mul", vector, 4),
        ("f32x4.div", vector, 10),
        ("f64x2.div", vector, 12),
    ] {
        assert_eq!(instructions(&format!("(drop ({operator} {vector} {second}))")) - none, cost + 3, "{operator}");
    }
}
