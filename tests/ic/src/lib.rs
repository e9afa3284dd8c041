//! An Internet Computer for tests, behind one small trait with two backends.
//!
//! A test is written once against [`Ic`] and runs on PocketIC where a server is to be had, else on the embedded host. What
//! the two answer must be the same: a difference is a bug of the host. Portable tests [`Ic::tick`] after
//! [`Ic::advance_time`] and assume no order between a timer and a call.
//!
//! `COPPICE_IC=host` or `COPPICE_IC=pocket-ic` chooses; without it, PocketIC is taken where `POCKET_IC_BIN` names a
//! server. Each instance is noted in the file that `COPPICE_IC_LOG` names, so that a test run can say what ran on which.

mod host;
mod pocket;

use candid::Principal;
use coppice_host::Host;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
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
pub struct Submitted(Box<dyn std::any::Any>);

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

/// Which Internet Computer this run's tests go by.
///
/// # Panics
/// Where `COPPICE_IC` names none.
pub fn chosen() -> Backend {
    match std::env::var("COPPICE_IC").as_deref() {
        Ok("host") => Backend::Host,
        Ok("pocket-ic") => Backend::PocketIc,
        Ok(other) => panic!("COPPICE_IC is {other:?}; it may be `host` or `pocket-ic`"),
        Err(_) if std::env::var_os("POCKET_IC_BIN").is_some() => Backend::PocketIc,
        Err(_) => Backend::Host,
    }
}

/// The Internet Computer that this run's tests go by.
pub fn ic() -> Box<dyn Ic> {
    let ic: Box<dyn Ic> = match chosen() {
        Backend::Host => Box::new(host::HostIc(Arc::new(host()))),
        Backend::PocketIc => Box::new(pocket::PocketIcBackend::new()),
    };
    note(ic.backend());
    ic
}

/// The embedded host, and a handle on what only it can do: faults, single steps, counted executions.
pub fn embedded() -> (Box<dyn Ic>, Arc<Host>) {
    let host = Arc::new(host());
    note(Backend::Host);
    (Box::new(host::HostIc(Arc::clone(&host))), host)
}

fn host() -> Host {
    // Each of the test binaries would compile the same canister.
    coppice_host::set_module_cache(coppice_host::default_module_cache());
    Host::new()
}

/// Notes that the current test runs on a backend.
pub fn note(backend: Backend) {
    let Some(path) = std::env::var_os("COPPICE_IC_LOG") else { return };
    let thread = std::thread::current();
    let line = format!("{backend}\t{}\n", thread.name().unwrap_or("unnamed"));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("COPPICE_IC_LOG {}: {error}", path.display());
    }
}
