//! The client over the Internet Computer that a test runs on, and its answers in a form that tests can compare.

use candid::Principal;
use coppice_ic::{Ic, Reject};
use ic_coppice_client::{CallError, Error, Failure, Transport};

/// A transport of the client: a canister on an Internet Computer for tests, and the principal that calls it.
pub struct OnIc<'a> {
    /// The Internet Computer.
    pub ic: &'a dyn Ic,
    /// The canister.
    pub canister: Principal,
    /// The caller.
    pub sender: Principal,
}

fn rejected(Reject { reject_code, error_code, message }: Reject) -> Failure {
    let code = u32::try_from(reject_code).expect("a reject code");
    Failure::Rejected(ic_coppice_client::Reject::new(code, Some(error_code), message))
}

impl Transport for OnIc<'_> {
    const INGRESS: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.ic.update(self.canister, self.sender, method, arg).map_err(rejected)
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.ic.query(self.canister, self.sender, method, arg).map_err(rejected)
    }
}

/// A call of the client, run to completion.
pub trait Answered: Sized {
    /// The canister's answer: if the method can refuse, a result with the method's own error.
    type Answer;

    /// The canister's answer, or the reject.
    ///
    /// # Errors
    /// If the call was rejected.
    ///
    /// # Panics
    /// If the call fails in another way.
    fn try_answer(self) -> Result<Self::Answer, Reject>;

    /// The canister's answer.
    ///
    /// # Panics
    /// If there is no answer.
    fn answer(self) -> Self::Answer {
        self.try_answer().unwrap_or_else(|reject| panic!("{reject:?}"))
    }
}

impl<F: Future<Output: CallResult>> Answered for F {
    type Answer = <F::Output as CallResult>::Answer;

    fn try_answer(self) -> Result<Self::Answer, Reject> {
        pollster::block_on(self).try_answer().map_err(|error| match error.failure {
            Failure::Rejected(ic_coppice_client::Reject { code, error_code, message, .. }) => {
                Reject { reject_code: code.into(), error_code: error_code.unwrap_or_default(), message }
            }
            failure => panic!("{}: {failure:?}", error.method),
        })
    }
}

/// The result of a call of the client.
pub trait CallResult {
    /// As [`Answered::Answer`].
    type Answer;

    /// Separates the canister's answer from a failure of the call.
    ///
    /// # Errors
    /// If there is no answer.
    fn try_answer(self) -> Result<Self::Answer, CallError>;
}

impl<T> CallResult for Result<T, CallError> {
    type Answer = T;

    fn try_answer(self) -> Result<T, CallError> {
        self
    }
}

impl<T, E> CallResult for Result<T, Error<E>> {
    type Answer = Result<T, E>;

    fn try_answer(self) -> Result<Result<T, E>, CallError> {
        ic_coppice_client::heard(self)
    }
}
