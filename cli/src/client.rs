//! The client as the command uses it: waited for, over places where it is several callers.

pub use coppice_client::{Client, Failure, Retry, Segments, Sent, Transport};

use anyhow::{Result, anyhow};
use candid::Principal;
use coppice_client::{CallError, Error};
use coppice_interface::{CanisterArg, InitArg, Role};
use std::sync::Arc;

/// Says whether a call that is not answered is waited for no more.
pub type GivesUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// A way to reach a canister as whoever may make each call: one caller with several roles, or one for each.
pub trait Reach: Transport {
    /// The principal that has a role.
    fn principal(&self, role: Role) -> Principal;

    /// From now on a call ends, its answer lost, where this says so. What answers at once has no need of it.
    fn limit(&self, _gives_up: GivesUp) {}
}

/// A call of the client, waited for.
pub trait Wait: Sized {
    /// What the canister answers: where it may refuse, a result with its own reason.
    type Answer;
    /// What it answers where it does not refuse.
    type Value;

    /// The canister's answer.
    ///
    /// # Errors
    /// When there is none: [`may_pass`] says whether the same may be tried again.
    fn wait(self) -> Result<Self::Answer>;

    /// What the canister answers where it does not refuse.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); when the canister refuses.
    fn done(self) -> Result<Self::Value>;
}

impl<F: Future<Output: Outcome>> Wait for F {
    type Answer = <F::Output as Outcome>::Answer;
    type Value = <F::Output as Outcome>::Value;

    fn wait(self) -> Result<Self::Answer> {
        pollster::block_on(self).heard()
    }

    fn done(self) -> Result<Self::Value> {
        pollster::block_on(self).done()
    }
}

/// What a call of the client ends with.
pub trait Outcome {
    /// As [`Wait::Answer`].
    type Answer;
    /// As [`Wait::Value`].
    type Value;

    /// As [`Wait::wait`].
    ///
    /// # Errors
    /// When there is no answer.
    fn heard(self) -> Result<Self::Answer>;

    /// As [`Wait::done`].
    ///
    /// # Errors
    /// When there is no answer, or the canister refuses.
    fn done(self) -> Result<Self::Value>;
}

impl<T> Outcome for Result<T, CallError> {
    type Answer = T;
    type Value = T;

    fn heard(self) -> Result<T> {
        Ok(self?)
    }

    fn done(self) -> Result<T> {
        Ok(self?)
    }
}

impl<T, E: std::fmt::Debug> Outcome for Result<T, Error<E>> {
    type Answer = Result<T, E>;
    type Value = T;

    fn heard(self) -> Result<Result<T, E>> {
        Ok(coppice_client::heard(self)?)
    }

    fn done(self) -> Result<T> {
        self.heard()?.map_err(|why| anyhow!("the canister refuses: {why:?}"))
    }
}

/// Whether an error is that the canister could not be reached, or not now, so that the same may be tried again.
pub fn may_pass(error: &anyhow::Error) -> bool {
    let passes = |error: &CallError| error.retry() == Retry::Again;
    error.chain().any(|error| error.downcast_ref().is_some_and(passes))
}

/// The argument that installs a canister with one producer.
///
/// # Errors
/// When it cannot be encoded.
pub fn install_arg(producer: Principal) -> Result<Vec<u8>> {
    let init = InitArg { producers: vec![producer], ..InitArg::default() };
    Ok(candid::encode_one(Some(CanisterArg::Init(init)))?)
}

/// An error that may be over when the same is tried again.
#[cfg(test)]
pub(crate) fn lost(why: &str) -> anyhow::Error {
    CallError { method: "a method".into(), failure: Failure::Lost(why.into()) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_seen_through_what_is_said_of_it() {
        assert!(may_pass(&lost("gone")) && may_pass(&lost("gone").context("a block").context("a run")));
        assert!(!may_pass(&anyhow!("no")));
        let never = CallError { method: "m".into(), failure: Failure::Transport("no".into()) };
        assert!(!may_pass(&never.into()));
    }
}
