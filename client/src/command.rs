//! Parts that commands and tests share: blocking calls, and a transport with principals, certificates and a clock.

use crate::certificate::Vouched;
use crate::{CallError, Error, Refusal, Transport, heard};
use anyhow::{Result, anyhow, bail};
use candid::Principal;
use ic_coppice_interface::Role;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Returns true when a call must no longer wait for its answer.
pub type GivesUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// Interval of the checks for the timer's progress, if the clock is real.
const POLL: Duration = Duration::from_secs(2);
/// Maximum number of these checks: five minutes in all.
const PATIENCE: u32 = 150;

/// A client of one canister, in this process or on a network: the transport of its calls, the principals that make them, and the clock.
///
/// [`Client`](crate::Client) adds the canister's methods to it. The defaults are for a real clock.
pub trait CanisterClient: Transport + Sync {
    /// Returns the principal that makes the calls of a role: the same for all roles, or one for each.
    fn principal(&self, role: Role) -> Principal;

    /// Verifies a certificate, and returns the canister's data in it.
    ///
    /// # Errors
    /// When the subnet of the canister has not signed it, or the client verifies no certificates.
    fn vouched(&self, _certificate: &[u8]) -> Result<Vouched> {
        bail!("this transport verifies no certificates")
    }

    /// Ends later calls of this thread as lost when `gives_up` returns true. A client that is answered at once need not implement it.
    fn limit(&self, _gives_up: GivesUp) {}

    /// Returns the time since 1970 by this machine's clock, or by the canister's where that is simulated.
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// Lets time pass between two blocks, if the clock is simulated.
    ///
    /// # Errors
    /// When an execution has trapped.
    fn pass(&self, _time: Duration) -> Result<()> {
        Ok(())
    }

    /// Waits for the canister's timer, which fires every `interval`; the wait may be too short.
    ///
    /// # Errors
    /// When an execution has trapped.
    fn await_timer(&self, interval: Duration) -> Result<()> {
        std::thread::sleep(POLL.min(interval));
        Ok(())
    }

    /// Returns the number of such waits after which the timer must have fired.
    fn patience(&self) -> u32 {
        PATIENCE
    }
}

/// A call of [`Client`](crate::Client) that blocks. Its error is [`Error`] if the canister's method can refuse, else [`CallError`].
pub trait Wait<T, E>: Future<Output = Result<T, E>> + Sized {
    /// The canister's answer: a result with the canister's reason, if the method can refuse.
    type Answer;

    /// Returns the canister's answer.
    ///
    /// # Errors
    /// When there is no answer: the error's [`Retry`](crate::Retry) tells whether the call may be repeated.
    fn wait(self) -> Result<Self::Answer>;

    /// Returns the canister's answer, or an error if the canister refuses.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); when the canister refuses.
    fn done(self) -> Result<T>;
}

impl<T, F: Future<Output = Result<T, CallError>>> Wait<T, CallError> for F {
    type Answer = T;

    fn wait(self) -> Result<T> {
        Ok(pollster::block_on(self)?)
    }

    fn done(self) -> Result<T> {
        self.wait()
    }
}

impl<T, E, F> Wait<T, Error<E>> for F
where
    E: Refusal + std::fmt::Display,
    F: Future<Output = Result<T, Error<E>>>,
{
    type Answer = Result<T, E>;

    fn wait(self) -> Result<Result<T, E>> {
        Ok(heard(pollster::block_on(self))?)
    }

    fn done(self) -> Result<T> {
        self.wait()?.map_err(|why| anyhow!(Error::Refused(why).to_string()))
    }
}
