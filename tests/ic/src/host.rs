//! The embedded host.

use crate::ic::{Backend, FREEZING_THRESHOLD, Ic, Reject, Submitted};
use candid::Principal;
use ic_coppice_host::{CanisterSettings, Host, MessageId, RejectResponse};
use std::sync::Arc;
use std::time::Duration;

pub struct HostIc {
    pub host: Arc<Host>,
    /// Due timers fire before and after each update call, as on a server with other messages.
    pub busy: bool,
}

impl HostIc {
    fn fire_if_busy(&self) {
        if self.busy {
            self.host.tick();
        }
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

impl Ic for HostIc {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn create_canister(&self, controller: Principal) -> Principal {
        let settings = CanisterSettings { freezing_threshold: Some(FREEZING_THRESHOLD), ..CanisterSettings::default() };
        self.host.create_canister_with_settings(Some(controller), Some(settings))
    }

    fn set_controllers(
        &self,
        canister: Principal,
        sender: Principal,
        controllers: Vec<Principal>,
    ) -> Result<(), Reject> {
        Ok(self.host.set_controllers(canister, Some(sender), controllers)?)
    }

    fn install(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) {
        self.host.install_canister(canister, wasm, arg, Some(controller));
    }

    fn upgrade(&self, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>, controller: Principal) -> Result<(), Reject> {
        Ok(self.host.upgrade_canister(canister, wasm, arg, Some(controller))?)
    }

    fn stop(&self, canister: Principal, controller: Principal) -> Result<(), Reject> {
        Ok(self.host.stop_canister(canister, Some(controller))?)
    }

    fn start(&self, canister: Principal, controller: Principal) -> Result<(), Reject> {
        Ok(self.host.start_canister(canister, Some(controller))?)
    }

    fn update(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        self.fire_if_busy();
        let reply = self.host.update_call(canister, sender, method, arg);
        self.fire_if_busy();
        Ok(reply?)
    }

    fn query(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        Ok(self.host.query_call(canister, sender, method, arg)?)
    }

    fn submit(&self, canister: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Submitted, Reject> {
        Ok(Submitted(Box::new(self.host.submit_call(canister, sender, method, arg)?)))
    }

    fn wait(&self, call: Submitted) -> Result<Vec<u8>, Reject> {
        let id = call.0.downcast::<MessageId>().expect("submitted to this backend");
        Ok(self.host.await_call(*id)?)
    }

    fn tick(&self) {
        self.host.tick();
    }

    fn advance_time(&self, by: Duration) {
        self.host.advance_time(by);
    }

    fn now(&self) -> u64 {
        self.host.get_time_nanos()
    }

    fn cycles(&self, canister: Principal) -> u128 {
        self.host.cycle_balance(canister)
    }
}
