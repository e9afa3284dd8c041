//! The host's public methods: canisters in this file, calls and time, and measurements.

mod calls;
mod measure;

use std::sync::{Mutex, MutexGuard, PoisonError};

use candid::Principal;

use crate::install::Mode;
use crate::log::LogRecord;
use crate::reject::RejectResponse;
use crate::settings::CanisterSettings;
use crate::stable_memory::StableMemory;
use crate::subnet::Subnet;

/// A subnet with canisters, in this process.
///
/// A sender of `None` is the anonymous principal, as on PocketIC. Every method may be called from any thread.
pub struct Host(Mutex<Subnet>);

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

pub(crate) fn or_anonymous(sender: Option<Principal>) -> Principal {
    sender.unwrap_or(Principal::anonymous())
}

impl Host {
    /// Creates a host without canisters, whose clock shows the beginning of 2026.
    pub fn new() -> Self {
        Host(Mutex::new(Subnet::new()))
    }

    pub(crate) fn subnet(&self) -> MutexGuard<'_, Subnet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty canister with 100 T cycles, controlled by the anonymous principal.
    pub fn create_canister(&self) -> Principal {
        self.create_canister_with_settings(None, None)
    }

    /// Creates an empty canister with 100 T cycles, controlled by `sender` unless the settings say otherwise.
    pub fn create_canister_with_settings(
        &self,
        sender: Option<Principal>,
        settings: Option<CanisterSettings>,
    ) -> Principal {
        let mut subnet = self.subnet();
        let id = subnet.create(or_anonymous(sender));
        if let (Some(settings), Ok(canister)) = (settings, subnet.canister(id)) {
            canister.state.settings.apply(settings);
        }
        id
    }

    /// Adds cycles to a canister and returns the new balance.
    ///
    /// # Panics
    /// When there is no such canister.
    pub fn add_cycles(&self, canister: Principal, amount: u128) -> u128 {
        let mut subnet = self.subnet();
        let state = &mut expect(subnet.canister(canister)).state;
        state.balance += amount;
        state.balance
    }

    /// Returns the balance of a canister, in cycles.
    ///
    /// # Panics
    /// When there is no such canister.
    pub fn cycle_balance(&self, canister: Principal) -> u128 {
        expect(self.subnet().canister(canister)).state.balance
    }

    /// Installs code (Wasm, raw or compressed by gzip) on an empty canister.
    ///
    /// # Panics
    /// When it fails. [`Host::try_install_canister`] returns an error instead.
    pub fn install_canister(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, sender: Option<Principal>) {
        expect(self.try_install_canister(canister, wasm, arg, sender));
    }

    /// Installs code (Wasm, raw or compressed by gzip) on an empty canister.
    ///
    /// # Errors
    /// When the sender is not a controller, the module is invalid, there is code already, or a hook traps.
    pub fn try_install_canister(
        &self,
        canister: Principal,
        wasm: Vec<u8>,
        arg: Vec<u8>,
        sender: Option<Principal>,
    ) -> Result<(), RejectResponse> {
        self.subnet().install_code(canister, Mode::Install, &wasm, arg, or_anonymous(sender))
    }

    /// Replaces the code and the heap, and keeps stable memory.
    ///
    /// # Errors
    /// As for an installation; the old code and state are then kept.
    pub fn upgrade_canister(
        &self,
        canister: Principal,
        wasm: Vec<u8>,
        arg: Vec<u8>,
        sender: Option<Principal>,
    ) -> Result<(), RejectResponse> {
        self.subnet().install_code(canister, Mode::Upgrade, &wasm, arg, or_anonymous(sender))
    }

    /// Replaces the code and clears heap and stable memory.
    ///
    /// # Errors
    /// As for an installation; the old code and state are then kept.
    pub fn reinstall_canister(
        &self,
        canister: Principal,
        wasm: Vec<u8>,
        arg: Vec<u8>,
        sender: Option<Principal>,
    ) -> Result<(), RejectResponse> {
        self.subnet().install_code(canister, Mode::Reinstall, &wasm, arg, or_anonymous(sender))
    }

    /// Changes the controllers of a canister.
    ///
    /// # Errors
    /// When there is no such canister, or the sender is not a controller.
    pub fn set_controllers(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        controllers: Vec<Principal>,
    ) -> Result<(), RejectResponse> {
        let settings = CanisterSettings { controllers: Some(controllers), ..CanisterSettings::default() };
        self.update_canister_settings(canister, sender, settings)
    }

    /// Returns the whole stable memory of a canister, which must fit this process's memory.
    ///
    /// # Panics
    /// When there is no such canister.
    pub fn get_stable_memory(&self, canister: Principal) -> Vec<u8> {
        expect(self.subnet().canister(canister)).state.stable.to_vec()
    }

    /// Replaces the stable memory of a canister, padded with zeros to whole Wasm pages.
    ///
    /// # Panics
    /// When there is no such canister.
    pub fn set_stable_memory(&self, canister: Principal, data: &[u8]) {
        expect(self.subnet().canister(canister)).state.stable = StableMemory::from_slice(data);
    }

    /// Returns the debug output of a canister and the messages of its traps, oldest first.
    ///
    /// # Panics
    /// When there is no such canister.
    pub fn fetch_canister_logs(&self, canister: Principal) -> Vec<LogRecord> {
        expect(self.subnet().canister(canister)).state.log.records()
    }
}

/// Panics, as PocketIC does in methods without an error.
fn expect<T>(result: Result<T, RejectResponse>) -> T {
    result.unwrap_or_else(|reject| panic!("{reject}"))
}
