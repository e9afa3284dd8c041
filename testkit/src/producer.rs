//! Canister that feeds an empty Coppice on the same host, and its log.

use crate::embedded::Embedded;
use anyhow::{Context, Result, anyhow};
use candid::{Encode, Principal};
use ic_coppice_client::Client;
use ic_coppice_client::command::Wait;
use ic_coppice_host::Host;
use ic_coppice_interface::{Grant, Role};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cycles of the producer, besides the host's.
const CYCLES: u128 = 1_000_000_000_000_000;

/// Installs a canister from a wasm file, gives it the role of a producer, and returns its principal. Its argument is the principal of Coppice;
/// `controllers` control it.
///
/// # Errors
/// When the file cannot be read, or its module cannot be installed with that argument.
pub fn install(client: &Client<Embedded>, wasm: &Path, controllers: &[Principal]) -> Result<Principal> {
    let module = std::fs::read(wasm).with_context(|| format!("cannot read {}", wasm.display()))?;
    let host = client.transport().share();
    let producer = host.create_canister();
    host.add_cycles(producer, CYCLES);
    host.try_install_canister(producer, module, Encode!(&client.transport().canister())?, None)
        .map_err(|reject| anyhow!("{}: {}", wasm.display(), reject.reject_message))?;
    let set = host.set_controllers(producer, None, controllers.to_vec());
    set.map_err(|reject| anyhow!("its controllers: {}", reject.reject_message))?;
    client.grant_role(&Grant { principal: producer, role: Role::Producer }).done()?;
    Ok(producer)
}

/// The log of a canister, as far as it was not printed yet.
pub struct Log {
    host: Arc<Host>,
    canister: Principal,
    /// Number of the next record to print.
    next: AtomicU64,
}

impl Log {
    /// Begins with the first record.
    pub fn of(client: &Client<Embedded>, canister: Principal) -> Self {
        Self { host: client.transport().share(), canister, next: AtomicU64::new(0) }
    }

    /// Returns the new records: debug output, and `[TRAP]: ` with the message of a trap.
    pub fn new_lines(&self) -> Vec<String> {
        let records = self.host.fetch_canister_logs(self.canister);
        let next = self.next.swap(records.last().map_or(0, |last| last.idx + 1), Ordering::Relaxed);
        let new = records.into_iter().filter(|record| record.idx >= next);
        new.map(|record| String::from_utf8_lossy(&record.content).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_client::command::CanisterClient as _;

    /// A module whose update method `f` traps.
    const TRAPS: &[u8] =
        b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x15\x01\x11canister_update f\0\0\x0a\x05\x01\x03\0\0\x0b";

    /// A module whose installation sets a timer that traps.
    const TIMER_TRAPS: &[u8] = b"\0asm\x01\0\0\0\x01\x09\x02\x60\x01\x7e\x01\x7e\x60\0\0\
        \x02\x18\x01\x03ic0\x10global_timer_set\0\0\x03\x03\x02\x01\x01\
        \x07\x29\x02\x0dcanister_init\0\x01\x15canister_global_timer\0\x02\
        \x0a\x0d\x02\x07\0\x42\x01\x10\0\x1a\x0b\x03\0\0\x0b";

    #[test]
    fn a_trap_in_the_producers_timer_is_told_and_ends_nothing() {
        ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
        let client = Embedded::start(crate::wasm::of_tests()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TIMER_TRAPS).unwrap();
        let log = Log::of(&client, install(&client, file.path(), &[]).unwrap());
        for _ in 0..2 {
            client.transport().pass(std::time::Duration::from_secs(60)).unwrap();
        }
        let lines = log.new_lines();
        assert!(lines.len() == 1 && lines[0].starts_with("[TRAP]: "), "{lines:?}");
        assert!(client.get_head().wait().unwrap().is_err(), "Coppice answers: it has no block");
    }

    #[test]
    fn traps_of_the_producer_are_told_once() {
        ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
        let client = Embedded::start(crate::wasm::of_tests()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TRAPS).unwrap();
        let me = Principal::self_authenticating(b"me");
        let log = Log::of(&client, install(&client, file.path(), &[me]).unwrap());
        let host = client.transport().share();
        host.update_call(log.canister, me, "f", Vec::new()).unwrap_err();
        let lines = log.new_lines();
        assert!(lines.len() == 1 && lines[0].starts_with("[TRAP]: "), "{lines:?}");
        assert_eq!(log.new_lines(), [""; 0]);
        std::fs::write(file.path(), "no module").unwrap();
        let refused = format!("{:#}", install(&client, file.path(), &[]).unwrap_err());
        assert!(refused.contains(&file.path().display().to_string()), "{refused}");
    }
}
