//! The platform of this build: the Internet Computer on wasm, its native twin elsewhere.

#[cfg(not(target_family = "wasm"))]
pub use crate::twin::Twin as Ic;

/// The Internet Computer.
#[cfg(target_family = "wasm")]
#[derive(Clone, Copy)]
pub struct Ic;

#[cfg(target_family = "wasm")]
impl crate::Platform for Ic {
    type Memory = ic_stable_structures::DefaultMemoryImpl;

    fn liquid_cycles() -> u128 {
        ic_cdk::api::canister_liquid_cycle_balance()
    }

    fn cycle_balance() -> u128 {
        ic_cdk::api::canister_cycle_balance()
    }

    fn now_ns() -> u64 {
        ic_cdk::api::time()
    }

    fn instructions() -> u64 {
        ic_cdk::api::performance_counter(0)
    }

    fn caller() -> ic_principal::Principal {
        ic_cdk::api::msg_caller()
    }

    fn is_replicated() -> bool {
        ic_cdk::api::in_replicated_execution()
    }

    fn log(line: &str) {
        ic_cdk::api::debug_print(line);
    }

    fn trap(message: &str) -> ! {
        ic_cdk::api::trap(message)
    }
}
