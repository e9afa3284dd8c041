//! The trait that tests are written against.

use candid::Principal;
use std::fmt;
use std::time::Duration;

/// Seconds of storage that a production canister keeps paid: 180 days.
pub const FREEZING_THRESHOLD: u64 = 180 * 86_400;

/// The Internet Computer that a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `ic_coppice_host`, in this process.
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
    /// The IC's reject code: 4 if the canister rejected, 5 if it trapped or does not exist.
    pub reject_code: u64,
    /// The IC's error code, such as `IC0406`.
    pub error_code: String,
    /// The reject message.
    pub message: String,
}

/// A call that was submitted and not yet awaited.
pub struct Submitted(pub(crate) Box<dyn std::any::Any>);

/// The part of the Internet Computer that tests use. The canister's controller makes every call that needs a controller.
pub trait Ic {
    /// The backend in use.
    fn backend(&self) -> Backend;

    /// Creates a canister controlled by `controller`, with 100 T cycles and production's freezing threshold ([`FREEZING_THRESHOLD`]).
    fn create_canister(&self, controller: Principal) -> Principal;

    /// Sets the controllers of a canister.
    ///
    /// # Errors
    /// If `sender` is not a controller.
    fn set_controllers(
        &self,
        canister: Principal,
        sender: Principal,
        controllers: Vec<Principal>,
    ) -> Result<(), Reject>;

    /// Installs a canister.
    ///
    /// # Panics
    /// If the installation fails.
    fn install(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal);

    /// Upgrades a canister, even while calls are in flight.
    fn upgrade(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) -> Result<(), Reject>;

    /// Stops a canister: waits until no call is in flight.
    fn stop(&self, canister: Principal, controller: Principal) -> Result<(), Reject>;

    /// Starts a stopped canister.
    fn start(&self, canister: Principal, controller: Principal) -> Result<(), Reject>;

    /// Sends an update and waits for its answer.
    fn update(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject>;

    /// Sends a query.
    fn query(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject>;

    /// Submits an update.
    fn submit(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Submitted, Reject>;

    /// Waits for a submitted update.
    fn wait(&self, call: Submitted) -> Result<Vec<u8>, Reject>;

    /// Runs one round.
    fn tick(&self);

    /// Advances the clock; timers that are due fire in the next rounds.
    fn advance_time(&self, by: Duration);

    /// Nanoseconds since the Unix epoch.
    fn now(&self) -> u64;

    /// The cycle balance of a canister.
    fn cycles(&self, canister: Principal) -> u128;
}
