//! Client of one canister: its blocking calls, and the errors after which a call is tried again.

pub use ic_coppice_client::command::{CanisterClient, GivesUp, Wait};
pub use ic_coppice_client::{Block, Client, Failure, Retry, Segments, Sent, Transport};

use crate::exit::{Exit, UNREACHABLE, why};
use anyhow::Result;
use backon::ExponentialBuilder;
use ic_coppice_client::CallError;
use std::time::Duration;

/// Time between two blocks, if the clock is simulated.
pub const BLOCK_INTERVAL: Duration = Duration::from_secs(15);

/// Returns an answer that differs from the expected one as a text for the user.
pub fn told<T, E: std::fmt::Display>(answer: &Result<T, E>) -> String {
    match answer {
        Ok(_) => "the canister accepts".into(),
        Err(why) => format!("the canister refuses: {why}"),
    }
}

/// Returns whether an error means that the canister could not be reached now, so that the call may be tried again.
pub fn may_pass(error: &anyhow::Error) -> bool {
    let passes = |error: &CallError| error.retry() == Retry::Again;
    error.chain().any(|error| error.downcast_ref().is_some_and(passes))
}

/// Returns whether an error is a final refusal of the call, by the canister or by a gateway or filter in front of it.
pub fn is_rejected(error: &anyhow::Error) -> bool {
    let is_rejected = |error: &CallError| error.reject().is_some() && error.retry() != Retry::Again;
    error.chain().any(|error| error.downcast_ref().is_some_and(is_rejected))
}

/// Consecutive refusals by one replica or gateway after which the refusal is believed.
pub const BELIEVED: u32 = 20;

/// A refusal that only one replica vouches for.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Uncertified(pub String);

/// The finality of an error: whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finality {
    /// The network, a gateway or the clock fails, HTTP 400 and 403 included: this may be fixed while the command runs.
    Passing,
    /// One replica, its ingress filter or a gateway refuses; each of these may lie or be wrong.
    Uncertified,
    /// The subnet vouches for the error, or the command itself raised it.
    Final,
}

impl Finality {
    fn of(error: &anyhow::Error) -> Self {
        let of_call = |error: &CallError| match &error.failure {
            Failure::Lost(_) | Failure::Transport(_) => Self::Passing,
            Failure::Rejected(_) if error.retry() == Retry::Again => Self::Passing,
            Failure::Rejected(reject) if !reject.certified => Self::Uncertified,
            Failure::Rejected(_) | Failure::Argument(_) | Failure::Answer(_) => Self::Final,
        };
        let of = |error: &(dyn std::error::Error + 'static)| {
            let uncertified = error.downcast_ref::<Uncertified>().map(|_| Self::Uncertified);
            uncertified.or_else(|| error.downcast_ref().map(of_call))
        };
        error.chain().find_map(of).unwrap_or(Self::Final)
    }
}

/// Returns whether an error comes from the network, a gateway or the clock, and is not a refusal.
pub fn is_passing(error: &anyhow::Error) -> bool {
    Finality::of(error) == Finality::Passing
}

/// Gives an error of [`is_passing`] the exit code of a canister that does not answer.
pub fn reached<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match is_passing(&error) {
        true => Exit::error(UNREACHABLE, why(&error)),
        false => error,
    })
}

/// Decides after which errors a call is tried again: always after errors of the network. After refusals for which the subnet does not
/// vouch, fewer than [`BELIEVED`] times in a row, so that no single lie ends a run.
#[derive(Clone, Debug, Default)]
pub struct Trials {
    refused: u32,
}

impl Trials {
    /// Returns whether to try again after this error.
    pub fn may_retry(&mut self, error: &anyhow::Error) -> bool {
        match Finality::of(error) {
            Finality::Passing => true,
            Finality::Uncertified => {
                self.refused += 1;
                self.refused < BELIEVED
            }
            Finality::Final => false,
        }
    }

    /// Resets the count of refusals, because an answer came.
    pub fn answered(&mut self) {
        self.refused = 0;
    }
}

/// The first wait after an error.
pub const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Waits after errors, without end: each is twice as long as the one before, up to the longest.
pub fn waits(longest: Duration) -> ExponentialBuilder {
    let builder = ExponentialBuilder::default().with_min_delay(FIRST_WAIT.min(longest));
    builder.with_max_delay(longest).without_max_times()
}

/// An error after which the same call may succeed.
#[cfg(test)]
pub(crate) fn lost(why: &str) -> anyhow::Error {
    CallError { method: "a method".into(), failure: Failure::Lost(why.into()) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use ic_coppice_client::Reject;

    #[test]
    fn uncertified_refusals_end_after_20_in_a_row_and_certified_ones_at_once() {
        let call = |failure| -> anyhow::Error { CallError { method: "m".into(), failure }.into() };
        let reject = |code, certified| {
            let reject = Reject { certified, ..Reject::new(code, None, "no".into()) };
            call(Failure::Rejected(reject)).context("a call")
        };
        let garbled = || candid::Error::msg("no Candid");
        let many = |error: anyhow::Error| {
            let mut trials = Trials::default();
            (0..1_000).take_while(|_| trials.may_retry(&error)).count()
        };
        for (error, tries) in [
            (lost("502"), 1_000),
            (call(Failure::Transport("HTTP 403".into())).context("a call"), 1_000),
            (reject(2, true), 1_000),
            (reject(2, false), 1_000),
            (reject(4, false), 19),
            (anyhow::Error::from(Uncertified("no role".into())).context("a call"), 19),
            (reject(4, true), 0),
            (call(Failure::Answer(garbled())), 0),
            (call(Failure::Argument(garbled())), 0),
            (anyhow!("no"), 0),
        ] {
            let what = format!("{error:#}");
            assert_eq!(many(error), tries, "{what}");
        }
        let mut trials = Trials::default();
        for _ in 0..100 {
            assert!(trials.may_retry(&reject(4, false)) && trials.may_retry(&reject(4, false)));
            trials.answered();
        }
    }

    #[test]
    fn passing_error_is_found_below_added_contexts() {
        assert!(may_pass(&lost("gone")) && may_pass(&lost("gone").context("a block").context("a run")));
        assert!(!may_pass(&anyhow!("no")));
        let never = CallError { method: "m".into(), failure: Failure::Transport("no".into()) };
        assert!(!may_pass(&never.into()));
    }
}
