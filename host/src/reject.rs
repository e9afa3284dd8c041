//! Rejects of calls, with the platform's codes.

use std::fmt;

use candid::Principal;

/// The class of a reject, as canisters see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RejectCode {
    /// Fatal system error; a retry does not help.
    SysFatal = 1,
    /// Transient system error; a retry may help.
    SysTransient = 2,
    /// The destination doesn't exist or doesn't take calls.
    DestinationInvalid = 3,
    /// The canister rejected the call.
    CanisterReject = 4,
    /// The canister trapped, is stopped or has no such method.
    CanisterError = 5,
    /// The outcome is unknown.
    SysUnknown = 6,
}

/// The exact reason of a reject; `IC0503` is `CanisterCalledTrap`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// The host refuses such a message, for example one above the size limit.
    SubnetOversubscribed = 101,
    /// The canister still waits for responses.
    StopCanisterRequestTimeout = 206,
    /// The balance doesn't cover the message above the freezing threshold.
    CanisterOutOfCycles = 207,
    /// No such canister.
    CanisterNotFound = 301,
    /// No such snapshot.
    CanisterSnapshotNotFound = 305,
    /// The canister rejected the call, or `canister_inspect_message` didn't accept it.
    CanisterRejectedMessage = 406,
    /// The management canister has no such method here.
    UnknownManagementMessage = 407,
    /// The Wasm trapped: out of bounds, `unreachable`, and so on.
    CanisterTrapped = 502,
    /// The canister called `ic0.trap`.
    CanisterCalledTrap = 503,
    /// The canister broke a rule of the system API.
    CanisterContractViolation = 504,
    /// The module isn't one that can be installed.
    CanisterInvalidWasm = 505,
    /// The call ended without a reply.
    CanisterDidNotReply = 506,
    /// No memory left.
    CanisterOutOfMemory = 507,
    /// The canister is stopped.
    CanisterStopped = 508,
    /// The canister is stopping.
    CanisterStopping = 509,
    /// The sender isn't a controller.
    CanisterInvalidController = 512,
    /// The canister is not empty and cannot be installed.
    CanisterNonEmpty = 514,
    /// The instruction limit was exceeded.
    CanisterInstructionLimitExceeded = 522,
    /// The limit of stable memory pages touched by one message was exceeded.
    CanisterMemoryAccessLimitExceeded = 524,
    /// Growing memory would freeze the canister.
    InsufficientCyclesInMemoryGrow = 532,
    /// Growing memory would reserve more cycles than the settings allow.
    ReservedCyclesLimitExceededInMemoryGrow = 534,
    /// The canister has no such method.
    CanisterMethodNotFound = 536,
    /// The canister has no code.
    CanisterWasmModuleNotFound = 537,
    /// The `wasm_memory_limit` of the settings was exceeded.
    CanisterWasmMemoryLimitExceeded = 539,
    /// The call can no longer be answered, or was not answered before its deadline.
    DeadlineExpired = 601,
}

impl ErrorCode {
    /// Returns the class of a code: its hundreds.
    pub fn reject_code(self) -> RejectCode {
        match self as u16 / 100 {
            1 => RejectCode::SysFatal,
            2 => RejectCode::SysTransient,
            3 => RejectCode::DestinationInvalid,
            4 => RejectCode::CanisterReject,
            5 => RejectCode::CanisterError,
            _ => RejectCode::SysUnknown,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IC{:04}", *self as u16)
    }
}

/// A call that got no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error_code} (reject code {}): {reject_message}", *reject_code as u32)]
pub struct RejectResponse {
    /// The class.
    pub reject_code: RejectCode,
    /// The message for people, in the platform's words.
    pub reject_message: String,
    /// The exact reason.
    pub error_code: ErrorCode,
}

impl RejectResponse {
    /// Creates a reject with the class of its code.
    pub(crate) fn new(error_code: ErrorCode, reject_message: impl Into<String>) -> Self {
        RejectResponse { reject_code: error_code.reject_code(), reject_message: reject_message.into(), error_code }
    }
}

pub(crate) fn no_code(id: Principal) -> RejectResponse {
    let message =
        format!("Error from Canister {id}: Attempted to execute a message, but the canister contains no Wasm module.");
    RejectResponse::new(ErrorCode::CanisterWasmModuleNotFound, message)
}

pub(crate) fn did_not_reply(id: Principal) -> RejectResponse {
    RejectResponse::new(ErrorCode::CanisterDidNotReply, format!("Canister {id} did not reply to the call"))
}

pub(crate) fn out_of_cycles(id: Principal, missing: u128) -> RejectResponse {
    let message =
        format!("Canister {id} is out of cycles: please top up the canister with at least {missing} additional cycles");
    RejectResponse::new(ErrorCode::CanisterOutOfCycles, message)
}

pub(crate) fn not_found(id: Principal) -> RejectResponse {
    RejectResponse::new(ErrorCode::CanisterNotFound, format!("Canister {id} not found"))
}
