//! Settings and status of a canister.

use std::collections::BTreeMap;
use std::sync::Arc;

use candid::Principal;

/// Settings to change; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanisterSettings {
    /// Principals that may install, stop and so on; default: the creator.
    pub controllers: Option<Vec<Principal>>,
    /// Seconds of storage the balance must always cover; default: 30 days.
    pub freezing_threshold: Option<u64>,
    /// Cycles that may be reserved for storage; default: 5 T. With 0, growing memory is refused once it reserves any.
    pub reserved_cycles_limit: Option<u128>,
    /// Most bytes of the heap in updates and hooks, 0 for no limit; default: 3 GiB.
    pub wasm_memory_limit: Option<u64>,
    /// Bytes of debug output that are kept; default: 2 MiB, the platform's maximum.
    pub log_memory_limit: Option<u64>,
    /// The environment variables that `ic0.env_var_*` read.
    pub environment_variables: Option<BTreeMap<String, String>>,
}

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) controllers: Arc<[Principal]>,
    pub(crate) freezing_seconds: u64,
    pub(crate) reserved_cycles_limit: u128,
    pub(crate) wasm_memory_limit: u64,
    pub(crate) log_bytes: u64,
    pub(crate) variables: Arc<BTreeMap<String, String>>,
}

impl Settings {
    pub(crate) fn of(creator: Principal) -> Self {
        Settings {
            controllers: Arc::new([creator]),
            freezing_seconds: 30 * 24 * 3600,
            reserved_cycles_limit: 5_000_000_000_000,
            wasm_memory_limit: 3 << 30,
            log_bytes: 2 << 20,
            variables: Arc::default(),
        }
    }

    pub(crate) fn apply(&mut self, new: CanisterSettings) {
        if let Some(controllers) = new.controllers {
            self.controllers = controllers.into();
        }
        self.freezing_seconds = new.freezing_threshold.unwrap_or(self.freezing_seconds);
        self.reserved_cycles_limit = new.reserved_cycles_limit.unwrap_or(self.reserved_cycles_limit);
        self.wasm_memory_limit = new.wasm_memory_limit.unwrap_or(self.wasm_memory_limit);
        self.log_bytes = new.log_memory_limit.unwrap_or(self.log_bytes);
        if let Some(variables) = new.environment_variables {
            self.variables = Arc::new(variables);
        }
    }
}

/// The run state of a canister.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Takes messages.
    Running,
    /// Takes only the responses it waits for.
    Stopping,
    /// Takes no messages.
    Stopped,
}

impl Status {
    /// Returns the number that `ic0.canister_status` returns.
    pub(crate) fn number(self) -> u32 {
        match self {
            Status::Running => 1,
            Status::Stopping => 2,
            Status::Stopped => 3,
        }
    }
}

/// The state of a canister as its controllers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanisterStatus {
    /// The run state.
    pub status: Status,
    /// SHA-256 of the module as it was installed.
    pub module_hash: Option<Vec<u8>>,
    /// Controllers of the canister.
    pub controllers: Vec<Principal>,
    /// Bytes of heap, stable memory, module and snapshots together.
    pub memory_size: u64,
    /// Bytes of the heap.
    pub wasm_memory_size: u64,
    /// Bytes of stable memory, as grown.
    pub stable_memory_size: u64,
    /// The balance, in cycles.
    pub cycles: u128,
    /// Cycles reserved for storage, in addition to the balance, and spent on storage before it.
    pub reserved_cycles: u128,
    /// Cycles that may be reserved for storage.
    pub reserved_cycles_limit: u128,
    /// Seconds of storage the balance must always cover.
    pub freezing_threshold: u64,
    /// The balance below which the canister is frozen, in cycles.
    pub freezing_limit: u128,
    /// Cycles that storage costs per day.
    pub idle_cycles_burned_per_day: u128,
    /// Counts changes of code, settings and state.
    pub version: u64,
    /// The time when the timer fires, in nanoseconds since 1970; 0: not set.
    pub global_timer: u64,
    /// The data last certified.
    pub certified_data: Vec<u8>,
}
