//! The platform as `coppice_storage` sees it.

use coppice_storage::Platform;
use ic_cdk::api;

/// The Internet Computer.
#[derive(Clone, Copy)]
pub struct Ic;

impl Platform for Ic {
    type Memory = ic_stable_structures::DefaultMemoryImpl;

    fn liquid_cycles() -> u128 {
        api::canister_liquid_cycle_balance()
    }

    fn cycle_balance() -> u128 {
        api::canister_cycle_balance()
    }

    fn now_ns() -> u64 {
        api::time()
    }

    fn instructions() -> u64 {
        api::performance_counter(0)
    }

    fn trap(message: &str) -> ! {
        api::trap(message)
    }
}
