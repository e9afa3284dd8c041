//! Errors of calls: refusals by the canister, and calls without an answer.

use crate::{Refusal, Retry};
use ic_coppice_interface::HeldBy;
use ic_coppice_interface::access::RATE_LIMITED;
use std::fmt;

/// A boxed cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call: the canister refused, or there is no answer.
#[derive(Debug)]
pub enum Error<E> {
    /// The canister's own reason.
    Refused(E),
    /// There is no answer.
    Call(CallError),
}

impl<E> Error<E> {
    /// Converts the canister's own reason.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Self::Refused(why) => Error::Refused(change(why)),
            Self::Call(error) => Error::Call(error),
        }
    }
}

impl<E: Refusal> Error<E> {
    /// Returns if and when the same call may succeed.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Refused(why) => why.retry(),
            Self::Call(error) => error.retry(),
        }
    }

    /// Returns what holds pruning back, if the canister refuses a block until something is pruned.
    pub fn held_by(&self) -> Option<&HeldBy> {
        match self {
            Self::Refused(why) => why.held_by(),
            Self::Call(_) => None,
        }
    }

    /// Returns whether the chain of the caller and the chain of the canister differ ([`Retry::Reorg`]).
    pub fn is_reorg(&self) -> bool {
        self.retry() == Retry::Reorg
    }
}

impl<E> From<CallError> for Error<E> {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl<E: Refusal + fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => match why.missing_cycles() {
                Some(missing) => write!(f, "the canister refuses: {why} ({missing} cycles are missing)"),
                None => write!(f, "the canister refuses: {why}"),
            },
            Self::Call(_) => f.write_str("the call has no answer"),
        }
    }
}

impl<E: Refusal + fmt::Display> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Call(error) => Some(error),
        }
    }
}

/// Separates the canister's answer, positive or negative, from calls that have no answer.
///
/// # Errors
/// When there is no answer.
pub fn heard<T, E>(result: Result<T, Error<E>>) -> Result<Result<T, E>, CallError> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::Refused(why)) => Ok(Err(why)),
        Err(Error::Call(error)) => Err(error),
    }
}

/// A call that has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{method}")]
pub struct CallError {
    /// The method that was called.
    pub method: String,
    /// The reason.
    #[source]
    pub failure: Failure,
}

impl CallError {
    /// Returns if and when the same call may succeed. The failed call may have been executed. Most methods may be repeated all the same;
    /// each method's documentation describes a repeated call.
    pub fn retry(&self) -> Retry {
        self.failure.retry()
    }

    /// Returns the reject, if the call was rejected.
    pub fn reject(&self) -> Option<&Reject> {
        match &self.failure {
            Failure::Rejected(reject) => Some(reject),
            _ => None,
        }
    }
}

/// The reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The argument cannot be encoded. Nothing was sent.
    #[error("the argument cannot be encoded")]
    Argument(#[source] candid::Error),
    /// The subnet's answer does not match the interface: the canister has another version, or is another canister. The call was executed.
    /// An answer of a single replica that does not match is [`Transport`](Self::Transport).
    #[error("the answer does not match the interface")]
    Answer(#[source] candid::Error),
    /// The canister or the platform rejected the call.
    #[error("{0}")]
    Rejected(Reject),
    /// The canister could not be reached, or there was no answer in time. The call may have been executed, or may still be.
    #[error("there is no answer")]
    Lost(#[source] Cause),
    /// The transport cannot make the call, or the answer cannot be trusted.
    #[error("the call fails")]
    Transport(#[source] Cause),
}

impl Failure {
    fn retry(&self) -> Retry {
        match self {
            Self::Lost(_) => Retry::Again,
            Self::Rejected(reject) => reject.retry(),
            Self::Argument(_) | Self::Answer(_) | Self::Transport(_) => Retry::Never,
        }
    }
}

/// A call that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The IC's reject code: 1 permanent system error; 2 transient system error; 3 no such canister; 4 the canister rejects; 5 the canister
    /// trapped, or has no such method; 6 the outcome is unknown.
    pub code: u32,
    /// The IC's error code, such as `IC0503`, if known.
    pub error_code: Option<String>,
    /// The message of the reject.
    pub message: String,
    /// True if the subnet vouches for the reject. Otherwise one replica rejects a query, or a gateway or the ingress filter of one replica
    /// rejects an update call; each of these may lie.
    pub certified: bool,
}

impl Reject {
    const SYS_TRANSIENT: u32 = 2;
    const SYS_UNKNOWN: u32 = 6;
    pub(crate) const CANISTER_ERROR: u32 = 5;
    /// "Stopped" and "stopping". A canister is in these states while it is upgraded.
    const STOPPED: [&str; 2] = ["IC0508", "IC0509"];

    /// Creates a reject for which the subnet vouches. Without an error code, takes the code at the front of the message, if there is one.
    pub fn new(code: u32, error_code: Option<String>, message: String) -> Self {
        let is_code = |code: &&str| {
            code.len() == 6 && code.starts_with("IC") && code[2..].bytes().all(|byte| byte.is_ascii_digit())
        };
        let found = message.split(':').next().filter(is_code).map(Into::into);
        Self { code, error_code: error_code.or(found), message, certified: true }
    }

    fn retry(&self) -> Retry {
        let stopped = match &self.error_code {
            Some(code) => Self::STOPPED.contains(&code.as_str()),
            // A calling canister does not always get the error code.
            None => {
                self.code == Self::CANISTER_ERROR
                    && self.message.starts_with("Canister ")
                    && self.message.contains(" is stop")
            }
        };
        // Rate limits refill.
        let limited = self.message.contains(RATE_LIMITED);
        match self.code {
            Self::SYS_TRANSIENT | Self::SYS_UNKNOWN => Retry::Again,
            _ if stopped || limited => Retry::Again,
            _ => Retry::Never,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rejected ({}", self.code)?;
        if let Some(code) = &self.error_code {
            write!(f, ", {code}")?;
        }
        write!(f, "): {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_prints_its_sentence_and_the_missing_cycles() {
        use ic_coppice_interface::{AppendError, NoMemory, UploadError};
        let low = AppendError::NoMemory(NoMemory::LowCycles { missing: 7_000 });
        for text in [Error::Refused(low.clone()).to_string(), Error::Refused(UploadError::Append(low)).to_string()] {
            assert_eq!(text, "the canister refuses: cycles are missing: top up the canister (7000 cycles are missing)");
        }
        let text = Error::Refused(AppendError::Gap { expected: 5 }).to_string();
        assert_eq!(text, "the canister refuses: the number is too high: the next block is 5");
    }

    #[test]
    fn holder_of_pruning_is_found_in_each_error_of_an_append() {
        use ic_coppice_interface::{AppendError, BlockField, UploadError};
        let held = AppendError::CapacityExhausted { held_by: HeldBy::PruneLag };
        let uploaded = Error::Refused(UploadError::Append(held.clone()));
        let appended = Error::Refused(held);
        assert_eq!((appended.held_by(), uploaded.held_by()), (Some(&HeldBy::PruneLag), Some(&HeldBy::PruneLag)));
        assert!(!appended.is_reorg() && !uploaded.is_reorg());
        let conflict = Error::Refused(UploadError::Append(AppendError::Conflict { differs: vec![BlockField::Hash] }));
        assert!(conflict.is_reorg() && conflict.held_by().is_none());
        let lost = CallError { method: "append_block".into(), failure: Failure::Lost("gone".into()) };
        let lost = Error::<AppendError>::Call(lost);
        assert!(!lost.is_reorg() && lost.held_by().is_none());
    }

    #[test]
    fn error_code_is_read_from_the_front_of_the_message() {
        let code_of = |message: &str| Reject::new(5, None, message.into()).error_code;
        assert_eq!(code_of("IC0508: Canister x is stopped").as_deref(), Some("IC0508"));
        for none in ["", "IC0508", "IC05: x", "Canister: x", "IC0508x: y", "IC05é: y"] {
            let code = code_of(none);
            assert!(code.is_none() || none == "IC0508", "{none}: {code:?}");
        }
        assert_eq!(Reject::new(5, Some("IC0503".into()), "IC0508: x".into()).error_code.as_deref(), Some("IC0503"));
    }

    #[test]
    fn only_transient_rejects_are_retried() {
        let retry = |code, message: &str| Reject::new(code, None, message.into()).retry();
        for code in [2, 6] {
            assert_eq!(retry(code, ""), Retry::Again, "{code}");
        }
        for code in [0, 1, 3, 4, 5, 7, u32::MAX] {
            assert_eq!(retry(code, ""), Retry::Never, "{code}");
        }
        assert_eq!(
            retry(5, "IC0503: Canister aaaaa-aa trapped: rate limited: x may have 300 messages a minute"),
            Retry::Again
        );
        assert_eq!(retry(5, "IC0508: stopped"), Retry::Again);
        assert_eq!(retry(5, "IC0503: trapped"), Retry::Never);
        assert_eq!(retry(5, "Canister aaaaa-aa is stopped"), Retry::Again);
        assert_eq!(retry(5, "IC0503: Canister aaaaa-aa is stopped, it says"), Retry::Never);
        assert_eq!(retry(4, "Canister aaaaa-aa is stopped"), Retry::Never);
        let lost = CallError { method: "m".into(), failure: Failure::Lost("gone".into()) };
        assert_eq!((lost.retry(), lost.to_string()), (Retry::Again, "m".into()));
        let refused = Error::<ic_coppice_interface::ReadError>::Call(lost);
        assert_eq!(refused.retry(), Retry::Again);
        let mut messages = vec![refused.to_string()];
        let mut source = std::error::Error::source(&refused);
        while let Some(error) = source {
            messages.push(error.to_string());
            source = error.source();
        }
        assert_eq!(messages, ["the call has no answer", "m", "there is no answer", "gone"]);
    }
}
