//! Transport for calls from another canister.

use crate::{Failure, Reject, Transport};
use candid::Principal;
use ic_cdk::call::{Call, CallFailed};

/// Default timeout of a call, in seconds: the longest that the platform allows.
const TIMEOUT_SECS: u32 = 300;

/// Transport for another canister that calls Coppice. A call waits a bounded time, so that the calling canister can always be stopped and
/// upgraded. An answer that is late is a reject with code 6 ([`Retry::Again`](crate::Retry::Again)), and the call may have been executed.
///
/// A canister cannot query another canister: queries are sent as update calls, whose answers the subnet certifies. An argument to a
/// canister on another subnet has at most 2 MiB.
#[derive(Clone, Copy, Debug)]
pub struct InterCanister {
    canister: Principal,
    timeout_secs: u32,
}

impl InterCanister {
    /// The canister with this principal.
    pub fn new(canister: Principal) -> Self {
        Self { canister, timeout_secs: TIMEOUT_SECS }
    }

    /// Sets the timeout in seconds. The platform treats more than 300 as 300.
    #[must_use]
    pub fn timeout(self, secs: u32) -> Self {
        Self { timeout_secs: secs, ..self }
    }

    /// The canister that is called.
    pub fn canister(&self) -> Principal {
        self.canister
    }
}

impl From<CallFailed> for Failure {
    fn from(failed: CallFailed) -> Self {
        // ic-cdk found this error itself. It gets the platform's reject code for a transient error.
        let transient = |why: String| Self::Rejected(Reject::new(2, None, why));
        match failed {
            CallFailed::CallRejected(rejected) => {
                Self::Rejected(Reject::new(rejected.raw_reject_code(), None, rejected.reject_message().into()))
            }
            CallFailed::CallPerformFailed(why) => transient(why.to_string()),
            // Retrying does not help: the calling canister must be topped up.
            CallFailed::InsufficientLiquidCycleBalance(why) => Self::Transport(Box::new(why)),
        }
    }
}

impl Transport for InterCanister {
    const REPLICATED: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let call = Call::bounded_wait(self.canister, method).change_timeout(self.timeout_secs).take_raw_args(arg);
        Ok(call.await?.into_bytes())
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.update(method, arg).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallError, Retry};
    use ic_cdk::call::{CallPerformFailed, InsufficientLiquidCycleBalance};

    #[test]
    fn call_without_enough_cycles_is_not_retried() {
        let retry = |failed: CallFailed| CallError { method: "health".into(), failure: failed.into() }.retry();
        let poor = InsufficientLiquidCycleBalance { available: 1, required: 2 };
        assert_eq!(retry(CallFailed::InsufficientLiquidCycleBalance(poor)), Retry::Never);
        assert_eq!(retry(CallFailed::CallPerformFailed(CallPerformFailed)), Retry::Again);
    }
}
