//! Calls from another canister.

use crate::{Failure, Reject, Transport};
use candid::Principal;
use ic_cdk::call::{Call, CallFailed};

/// Seconds after which the platform gives an answer up, where the caller does not say it: the most that the platform allows.
const TIMEOUT_SECS: u32 = 300;

/// Coppice, as another canister calls it: with a bounded wait, so that the caller can be stopped and upgraded whatever Coppice does. An answer
/// that does not come in time is a reject with code 6 ([`Retry::Again`](crate::Retry::Again)), and what was called may have been
/// executed.
///
/// A canister has no queries of others: those are calls like updates, of which the subnet vouches for the answer. An argument that
/// crosses to another subnet has 2 MiB at most.
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

    /// The same, waited for so many seconds; the platform takes more than 300 for 300.
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
        // What ic-cdk finds out itself is as the platform would say it: not now.
        let transient = |why: String| Self::Rejected(Reject::new(2, None, why));
        match failed {
            CallFailed::CallRejected(rejected) => {
                Self::Rejected(Reject::new(rejected.raw_reject_code(), None, rejected.reject_message().into()))
            }
            CallFailed::CallPerformFailed(why) => transient(why.to_string()),
            // Somebody has to send the caller cycles.
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
    fn a_caller_without_cycles_is_not_helped_by_trying_again() {
        let retry = |failed: CallFailed| CallError { method: "health".into(), failure: failed.into() }.retry();
        let poor = InsufficientLiquidCycleBalance { available: 1, required: 2 };
        assert_eq!(retry(CallFailed::InsufficientLiquidCycleBalance(poor)), Retry::Never);
        assert_eq!(retry(CallFailed::CallPerformFailed(CallPerformFailed)), Retry::Again);
    }
}
