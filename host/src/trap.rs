//! Traps: reasons why an execution stopped before its end.

use candid::Principal;

use crate::reject::{ErrorCode, RejectResponse};

/// The mark of a trap made by [`Faults`](crate::Faults), in reject messages and logs.
pub const INJECTED_FAULT: &str = "injected fault";

/// A trap: everything the message did is undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trap {
    #[error("Canister called `ic0.trap` with message: '{0}'")]
    Called(String),
    #[error("Canister trapped: {0}")]
    Wasm(String),
    #[error("Canister violated contract: {0}")]
    Contract(String),
    #[error("Canister exceeded the limit of {0} instructions for single message execution.")]
    InstructionLimit(u64),
    #[error(
        "Canister exceeded the limit for the number of accessed pages in the stable memory in a single message \
         execution: limit {0} KB."
    )]
    StableAccessLimit(u64),
    #[error(
        "Canister cannot grow memory by {bytes} bytes due to insufficient cycles. At least {missing} additional \
         cycles are required."
    )]
    InsufficientCyclesInMemoryGrow { bytes: u64, missing: u128 },
    #[error(
        "Canister cannot grow memory by {bytes} bytes due to its reserved cycles limit. The current limit ({limit}) would \
         be exceeded by {exceeded_by}."
    )]
    ReservedCyclesLimitExceededInMemoryGrow { bytes: u64, limit: u128, exceeded_by: u128 },
    #[error("Canister exceeded its current Wasm memory limit of {0} bytes.")]
    WasmMemoryLimit(u64),
    #[error("Canister has no {kind} method '{name}'.")]
    MethodNotFound { kind: &'static str, name: String },
    #[error("Canister trapped: {INJECTED_FAULT}: {0}")]
    Injected(String),
}

impl Trap {
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Trap::Called(_) => ErrorCode::CanisterCalledTrap,
            Trap::Wasm(_) | Trap::Injected(_) => ErrorCode::CanisterTrapped,
            Trap::Contract(_) => ErrorCode::CanisterContractViolation,
            Trap::InstructionLimit(_) => ErrorCode::CanisterInstructionLimitExceeded,
            Trap::StableAccessLimit(_) => ErrorCode::CanisterMemoryAccessLimitExceeded,
            Trap::InsufficientCyclesInMemoryGrow { .. } => ErrorCode::InsufficientCyclesInMemoryGrow,
            Trap::ReservedCyclesLimitExceededInMemoryGrow { .. } => ErrorCode::ReservedCyclesLimitExceededInMemoryGrow,
            Trap::WasmMemoryLimit(_) => ErrorCode::CanisterWasmMemoryLimitExceeded,
            Trap::MethodNotFound { .. } => ErrorCode::CanisterMethodNotFound,
        }
    }

    /// The reject that the caller of the trapped message gets.
    pub(crate) fn reject(&self, canister: Principal) -> RejectResponse {
        RejectResponse::new(self.code(), format!("Error from Canister {canister}: {self}{}", self.advice()))
    }

    /// The hint that the platform appends.
    fn advice(&self) -> &'static str {
        match self {
            Trap::Called(_) => {
                ".\nConsider gracefully handling failures from this canister or altering the canister to handle \
                 exceptions. See documentation: \
                 https://internetcomputer.org/docs/current/references/execution-errors#trapped-explicitly"
            }
            Trap::InstructionLimit(_) => {
                "\nTry optimizing this canister to use fewer instructions. See documentation: \
                 https://internetcomputer.org/docs/current/references/execution-errors#instruction-limit-exceeded"
            }
            Trap::MethodNotFound { .. } => {
                "\nCheck that the method being called is exported by the target canister. See documentation: \
                 https://internetcomputer.org/docs/current/references/execution-errors#method-not-found"
            }
            _ => "",
        }
    }

    /// Returns the trap that caused a Wasmtime error.
    pub(crate) fn from_wasmtime(error: &wasmtime::Error, limit: u64) -> Self {
        use wasmtime::Trap as Code;
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return trap.clone();
        }
        match error.downcast_ref::<Code>() {
            Some(Code::OutOfFuel) => Trap::InstructionLimit(limit),
            Some(Code::UnreachableCodeReached) => Trap::Wasm("unreachable".into()),
            Some(Code::MemoryOutOfBounds) => Trap::Wasm("heap out of bounds".into()),
            Some(Code::TableOutOfBounds) => Trap::Wasm("table out of bounds".into()),
            Some(Code::StackOverflow) => Trap::Wasm("stack overflow".into()),
            Some(Code::IntegerDivisionByZero) => Trap::Wasm("integer division by zero".into()),
            Some(code) => Trap::Wasm(code.to_string()),
            None => Trap::Wasm(error.to_string()),
        }
    }
}
