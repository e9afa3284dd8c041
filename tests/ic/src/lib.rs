//! An Internet Computer for tests, behind one small trait with two backends.
//!
//! A test is written once against [`Ic`] and runs on PocketIC if a server is available, else on the embedded host. Both must give the same
//! answers: a difference is a bug of the host. Portable tests [`Ic::tick`] after [`Ic::advance_time`] and assume no order between a timer
//! and a call.
//!
//! `COPPICE_IC` selects the backend: `host`, `busy-host` (the embedded host, on which due timers fire before and after each update call), or
//! `pocket-ic`; without it, PocketIC is used if `POCKET_IC_BIN` names a server. Each
//! instance is noted in the file that `COPPICE_IC_LOG` names, so that a test run can report how many tests ran on which backend.

mod host;
mod ic;
mod pocket;

pub use ic::{Backend, FREEZING_THRESHOLD, Ic, Reject, Submitted};
use ic_coppice_host::Host;
use std::io::Write;
use std::sync::Arc;

/// The embedded host whose timers fire around each update call.
const BUSY: &str = "busy-host";

/// The backend of this run's tests.
///
/// # Panics
/// If `COPPICE_IC` names no backend.
pub fn chosen() -> Backend {
    match std::env::var("COPPICE_IC").as_deref() {
        Ok("host" | BUSY) => Backend::Host,
        Ok("pocket-ic") => Backend::PocketIc,
        Ok(other) => panic!("COPPICE_IC is {other:?}; it may be `host`, `{BUSY}` or `pocket-ic`"),
        Err(_) if std::env::var_os("POCKET_IC_BIN").is_some() => Backend::PocketIc,
        Err(_) => Backend::Host,
    }
}

/// The Internet Computer of this run's tests.
pub fn ic() -> Box<dyn Ic> {
    let ic: Box<dyn Ic> = match chosen() {
        Backend::Host => {
            let busy = std::env::var("COPPICE_IC").is_ok_and(|name| name == BUSY);
            Box::new(host::HostIc { host: Arc::new(host()), busy })
        }
        Backend::PocketIc => Box::new(pocket::PocketIcBackend::new()),
    };
    note(ic.backend());
    ic
}

/// The embedded host, and a handle for what only it can do: faults, single steps, counted executions.
pub fn embedded() -> (Box<dyn Ic>, Arc<Host>) {
    let host = Arc::new(host());
    note(Backend::Host);
    (Box::new(host::HostIc { host: Arc::clone(&host), busy: false }), host)
}

fn host() -> Host {
    // Without a cache, each of the test binaries would compile the same canister.
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    Host::new()
}

/// Records in the log that the current test runs on this backend.
pub fn note(backend: Backend) {
    let Some(path) = std::env::var_os("COPPICE_IC_LOG") else { return };
    let thread = std::thread::current();
    let line = format!("{backend}\t{}\n", thread.name().unwrap_or("unnamed"));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("COPPICE_IC_LOG {}: {error}", path.display());
    }
}
