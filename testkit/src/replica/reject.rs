//! Rejects as agents read them.

use ic_coppice_host::ErrorCode;
use ic_transport_types::{RejectCode, RejectResponse};

/// The error code of a reject by the canister.
const REJECTED: ErrorCode = ErrorCode::CanisterRejectedMessage;

/// Returns a reject by the canister with this text.
pub fn rejection(why: String) -> RejectResponse {
    RejectResponse { reject_code: RejectCode::CanisterReject, reject_message: why, error_code: code(REJECTED) }
}

/// Returns an error code as text, without which the agent of JavaScript cannot verify a reject.
fn code(code: ErrorCode) -> Option<String> {
    Some(code.to_string())
}

/// Returns a reject of the host.
pub fn reject_of(reject: &ic_coppice_host::RejectResponse) -> RejectResponse {
    RejectResponse {
        reject_code: RejectCode::try_from(reject.reject_code as u64).unwrap_or(RejectCode::SysFatal),
        reject_message: reject.reject_message.clone(),
        error_code: code(reject.error_code),
    }
}
