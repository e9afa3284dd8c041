//! Why a call has no answer, and what else goes wrong.

use crate::{Refusal, Retry};
use coppice_interface::access::RATE_LIMITED;
use std::fmt;

/// What a boxed cause is.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a method did not do what it was called for: the canister says so, or there is no answer.
#[derive(Debug)]
pub enum Error<E> {
    /// The canister's own reason.
    Refused(E),
    /// There is no answer.
    Call(CallError),
}

impl<E> Error<E> {
    /// The canister's own reason, made into another one.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Self::Refused(why) => Error::Refused(change(why)),
            Self::Call(error) => Error::Call(error),
        }
    }
}

impl<E: Refusal> Error<E> {
    /// Whether the same may succeed later.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Refused(why) => why.retry(),
            Self::Call(error) => error.retry(),
        }
    }
}

impl<E> From<CallError> for Error<E> {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl<E: fmt::Debug> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "the canister refuses: {why:?}"),
            Self::Call(_) => f.write_str("the call has no answer"),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Call(error) => Some(error),
        }
    }
}

/// The canister's own reason apart from what happened on the way there.
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
    /// What was called.
    pub method: String,
    /// What happened.
    #[source]
    pub failure: Failure,
}

impl CallError {
    /// Whether the same may succeed later. Of most methods the same call may be sent again although the first was heard: what a method
    /// does when it is repeated is said with it.
    pub fn retry(&self) -> Retry {
        self.failure.retry()
    }

    /// What the call was rejected with.
    pub fn reject(&self) -> Option<&Reject> {
        match &self.failure {
            Failure::Rejected(reject) => Some(reject),
            _ => None,
        }
    }
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The argument cannot be encoded. Nothing was sent.
    #[error("the argument cannot be encoded")]
    Argument(#[source] candid::Error),
    /// The subnet's answer does not match the interface: the canister has another version, or is another canister. The call was executed.
    /// For such an answer of a single replica see [`Transport`](Self::Transport).
    #[error("the answer is not what the interface says")]
    Answer(#[source] candid::Error),
    /// The canister, or the platform, rejects the call.
    #[error("{0}")]
    Rejected(Reject),
    /// The canister could not be reached, or there was no answer in time. What was called may have been executed, or will be.
    #[error("there is no answer")]
    Lost(#[source] Cause),
    /// The transport cannot do the call, or the answer is not to be believed.
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
    /// The IC's reject code: 1 the system, for good; 2 for now; 3 no such canister; 4 the canister rejects; 5 it trapped, or has no such
    /// method; 6 it is not known what came of the call.
    pub code: u32,
    /// The IC's error code, such as `IC0503`, where it is told.
    pub error_code: Option<String>,
    /// What was said.
    pub message: String,
    /// True if the subnet vouches for the reject. Otherwise one replica rejects a query, or a gateway or the ingress filter of one replica
    /// rejects an update call; each of these may lie.
    pub certified: bool,
}

impl Reject {
    const SYS_TRANSIENT: u32 = 2;
    const SYS_UNKNOWN: u32 = 6;
    const CANISTER_ERROR: u32 = 5;
    /// Stopped, and stopping: while it is upgraded a canister is that.
    const STOPPED: [&str; 2] = ["IC0508", "IC0509"];

    /// Creates a reject for which the subnet vouches. Without an error code, takes the code at the front of the message, if there is one.
    pub fn new(code: u32, error_code: Option<String>, message: String) -> Self {
        let is_code = |code: &&str| {
            code.len() == 6 && code.starts_with("IC") && code[2..].bytes().all(|byte| byte.is_ascii_digit())
        };
        let told = message.split(':').next().filter(is_code).map(Into::into);
        Self { code, error_code: error_code.or(told), message, certified: true }
    }

    fn retry(&self) -> Retry {
        let stopped = match &self.error_code {
            Some(code) => Self::STOPPED.contains(&code.as_str()),
            // A canister that calls is not always told the error code.
            None => {
                self.code == Self::CANISTER_ERROR
                    && self.message.starts_with("Canister ")
                    && self.message.contains(" is stop")
            }
        };
        // The sender's bucket refills.
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
    fn an_error_code_is_found_where_it_is_told() {
        let told = |message: &str| Reject::new(5, None, message.into()).error_code;
        assert_eq!(told("IC0508: Canister x is stopped").as_deref(), Some("IC0508"));
        for none in ["", "IC0508", "IC05: x", "Canister: x", "IC0508x: y", "IC05é: y"] {
            let code = told(none);
            assert!(code.is_none() || none == "IC0508", "{none}: {code:?}");
        }
        assert_eq!(Reject::new(5, Some("IC0503".into()), "IC0508: x".into()).error_code.as_deref(), Some("IC0503"));
    }

    #[test]
    fn what_passes_is_tried_again() {
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
        let refused = Error::<coppice_interface::ReadError>::Call(lost);
        assert_eq!(refused.retry(), Retry::Again);
        let mut said = vec![refused.to_string()];
        let mut source = std::error::Error::source(&refused);
        while let Some(error) = source {
            said.push(error.to_string());
            source = error.source();
        }
        assert_eq!(said, ["the call has no answer", "m", "there is no answer", "gone"]);
    }
}
