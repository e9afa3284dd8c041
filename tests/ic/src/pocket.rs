//! A PocketIC server, driven by calls that have not changed since version 10.0 of the crate.

use crate::ic::{Backend, FREEZING_THRESHOLD, Ic, Reject, Submitted};
use candid::Principal;
use ic_management_canister_types::CanisterSettings;
use pocket_ic::common::rest::RawMessageId;
use pocket_ic::{PocketIc, PocketIcBuilder, RejectResponse};
use std::time::Duration;

/// Cycles of a new canister, the same as on the embedded host.
const CYCLES: u128 = 100_000_000_000_000;

pub struct PocketIcBackend(PocketIc);

impl PocketIcBackend {
    pub fn new() -> Self {
        Self(PocketIcBuilder::new().with_application_subnet().build())
    }
}

impl From<RejectResponse> for Reject {
    fn from(response: RejectResponse) -> Self {
        Self {
            reject_code: response.reject_code as u64,
            error_code: response.error_code.to_string(),
            message: response.reject_message,
        }
    }
}

impl Ic for PocketIcBackend {
    fn backend(&self) -> Backend {
        Backend::PocketIc
    }

    fn create_canister(&self, controller: Principal) -> Principal {
        let settings =
            CanisterSettings { freezing_threshold: Some(FREEZING_THRESHOLD.into()), ..CanisterSettings::default() };
        let canister = self.0.create_canister_with_settings(Some(controller), Some(settings));
        self.0.add_cycles(canister, CYCLES.saturating_sub(self.0.cycle_balance(canister)));
        canister
    }

    fn set_controllers(
        &self,
        canister: Principal,
        sender: Principal,
        controllers: Vec<Principal>,
    ) -> Result<(), Reject> {
        Ok(self.0.set_controllers(canister, Some(sender), controllers)?)
    }

    fn install(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) {
        self.0.install_canister(canister, wasm, arg, Some(controller));
    }

    fn upgrade(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) -> Result<(), Reject> {
        Ok(self.0.upgrade_canister(canister, wasm, arg, Some(controller))?)
    }

    fn stop(&self, canister: Principal, controller: Principal) -> Result<(), Reject> {
        Ok(self.0.stop_canister(canister, Some(controller))?)
    }

    fn start(&self, canister: Principal, controller: Principal) -> Result<(), Reject> {
        Ok(self.0.start_canister(canister, Some(controller))?)
    }

    fn update(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        Ok(self.0.update_call(canister, sender, method, arg)?)
    }

    fn query(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        Ok(self.0.query_call(canister, sender, method, arg)?)
    }

    fn submit(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Submitted, Reject> {
        Ok(Submitted(Box::new(self.0.submit_call(canister, sender, method, arg)?)))
    }

    fn wait(&self, call: Submitted) -> Result<Vec<u8>, Reject> {
        let id = call.0.downcast::<RawMessageId>().expect("submitted to this backend");
        Ok(self.0.await_call(*id)?)
    }

    fn tick(&self) {
        self.0.tick();
    }

    fn advance_time(&self, by: Duration) {
        self.0.advance_time(by);
    }

    fn now(&self) -> u64 {
        self.0.get_time().as_nanos_since_unix_epoch()
    }

    fn cycles(&self, canister: Principal) -> u128 {
        self.0.cycle_balance(canister)
    }
}
