//! The trait that tests are written against.

use candid::Principal;
use std::fmt;
use std::time::Duration;

/// Seconds of storage that a canister in production keeps paid: 180 days.
pub const FREEZING_THRESHOLD: u64 = 180 * 86_400;

/// Which Internet Computer a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `coppice_host`, in this process.
    Host,
    /// A PocketIC server.
    PocketIc,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "embedded host",
            Self::PocketIc => "PocketIC",
        })
    }
}

/// A call that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The IC's reject code: 4 the canister rejected, 5 it trapped or is not there.
    pub reject_code: u64,
    /// The IC's error code, such as `IC0406`.
    pub error_code: String,
    /// What was said.
    pub message: String,
}

/// A call that was submitted and not yet awaited.
pub struct Submitted(pub(crate) Box<dyn std::any::Any>);

/// What tests need of an Internet Computer. One canister's controller does everything that needs one.
pub trait Ic {
    /// Which one this is.
    fn backend(&self) -> Backend;

    /// A new canister, controlled by `controller`, with 100 T cycles and production's freezing threshold
    /// ([`FREEZING_THRESHOLD`]).
    fn create_canister(&self, controller: Principal) -> Principal;

    /// Sets the controllers of a canister.
    ///
    /// # Errors
    /// Where `sender` is none of them.
    fn set_controllers(
        &self,
        canister: Principal,
        sender: Principal,
        controllers: Vec<Principal>,
    ) -> Result<(), Reject>;

    /// Installs a canister.
    ///
    /// # Panics
    /// Where the installation fails.
    fn install(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal);

    /// Upgrades a canister, whatever is in flight.
    fn upgrade(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) -> Result<(), Reject>;

    /// Stops a canister: waits until nothing is in flight.
    fn stop(&self, canister: Principal, controller: Principal) -> Result<(), Reject>;

    /// Starts a stopped canister.
    fn start(&self, canister: Principal, controller: Principal) -> Result<(), Reject>;

    /// An update, through to its answer.
    fn update(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject>;

    /// A query.
    fn query(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject>;

    /// Submits an update.
    fn submit(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Submitted, Reject>;

    /// Waits for a submitted update.
    fn wait(&self, call: Submitted) -> Result<Vec<u8>, Reject>;

    /// Runs one round.
    fn tick(&self);

    /// Sets the clock forward; timers that are due fire in the next rounds.
    fn advance_time(&self, by: Duration);

    /// Nanoseconds since the Unix epoch.
    fn now(&self) -> u64;

    /// Cycles of a canister.
    fn cycles(&self, canister: Principal) -> u128;
}
