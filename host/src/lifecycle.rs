//! Starts, stops and uninstalls canisters; settings and status.

use candid::Principal;

use crate::call_context::Origin;
use crate::cycles;
use crate::host::{Host, or_anonymous};
use crate::reject::{ErrorCode, RejectResponse};
use crate::settings::{CanisterSettings, CanisterStatus, Status};
use crate::subnet::Subnet;

impl Host {
    /// Removes code, heap and stable memory, and rejects every open call.
    ///
    /// # Errors
    /// When there is no such canister or the sender isn't a controller.
    pub fn uninstall_canister(&self, canister: Principal, sender: Option<Principal>) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        subnet.controlled(canister, or_anonymous(sender), "uninstall_code")?;
        subnet.uninstall(canister, "Canister has been uninstalled.");
        Ok(())
    }

    /// Lets a canister take messages again.
    ///
    /// # Errors
    /// When there is no such canister or the sender isn't a controller.
    pub fn start_canister(&self, canister: Principal, sender: Option<Principal>) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        let state = &mut subnet.controlled(canister, or_anonymous(sender), "start_canister")?.state;
        state.status = Status::Running;
        state.version += 1;
        Ok(())
    }

    /// Stops a canister: executes messages until its open calls have ended.
    ///
    /// # Errors
    /// When there is no such canister, the sender is not a controller, or an open call cannot end.
    pub fn stop_canister(&self, canister: Principal, sender: Option<Principal>) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        subnet.begin_stop(canister, or_anonymous(sender))?;
        while subnet.canister(canister)?.state.status == Status::Stopping {
            if !subnet.step() {
                let message =
                    format!("Canister {canister} still waits for responses, and the host has nothing to execute");
                return Err(RejectResponse::new(ErrorCode::StopCanisterRequestTimeout, message));
            }
        }
        Ok(())
    }

    /// Begins to stop a canister without executing anything. The canister's status is "stopping" until its open calls have ended.
    ///
    /// # Errors
    /// When there is no such canister or the sender isn't a controller.
    pub fn begin_stop_canister(&self, canister: Principal, sender: Option<Principal>) -> Result<(), RejectResponse> {
        self.subnet().begin_stop(canister, or_anonymous(sender))
    }

    /// Returns the status of a canister.
    ///
    /// # Errors
    /// When there is no such canister or the sender isn't a controller.
    pub fn canister_status(
        &self,
        canister: Principal,
        sender: Option<Principal>,
    ) -> Result<CanisterStatus, RejectResponse> {
        let mut subnet = self.subnet();
        let state = &subnet.controlled(canister, or_anonymous(sender), "canister_status")?.state;
        let mut carried = 0;
        Ok(CanisterStatus {
            status: state.status,
            module_hash: state.code.as_ref().map(|code| code.hash.to_vec()),
            controllers: state.settings.controllers.to_vec(),
            memory_size: state.memory_usage(),
            wasm_memory_size: state.heap.bytes(),
            stable_memory_size: state.stable.bytes(),
            cycles: state.balance,
            reserved_cycles: state.reserved,
            reserved_cycles_limit: state.settings.reserved_cycles_limit,
            freezing_threshold: state.settings.freezing_seconds,
            freezing_limit: state.freezing_limit(),
            idle_cycles_burned_per_day: cycles::storage(state.memory_usage(), 24 * 3600 * 1_000_000_000, &mut carried),
            version: state.version,
            global_timer: state.timer,
            certified_data: state.certified_data.clone(),
        })
    }

    /// Returns metadata of a canister's module that everybody may read: the contents of the section `icp:public NAME`.
    pub fn public_metadata(&self, canister: Principal, name: &str) -> Option<Vec<u8>> {
        let mut subnet = self.subnet();
        let code = subnet.canister(canister).ok()?.state.code.as_ref()?;
        code.metadata.get(name).cloned()
    }

    /// Returns the hash of a canister's module and its controllers, which everybody may read.
    pub fn canister_info(&self, canister: Principal) -> Option<(Option<Vec<u8>>, Vec<Principal>)> {
        let mut subnet = self.subnet();
        let state = &subnet.canister(canister).ok()?.state;
        Some((state.code.as_ref().map(|code| code.hash.to_vec()), state.settings.controllers.to_vec()))
    }

    /// Changes settings of a canister.
    ///
    /// # Errors
    /// When there is no such canister or the sender isn't a controller.
    pub fn update_canister_settings(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        settings: CanisterSettings,
    ) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        let state = &mut subnet.controlled(canister, or_anonymous(sender), "update_settings")?.state;
        state.settings.apply(settings);
        state.version += 1;
        Ok(())
    }
}

impl Subnet {
    /// Stops new calls to a canister. The canister is stopped once its open calls have ended.
    pub(crate) fn begin_stop(&mut self, id: Principal, sender: Principal) -> Result<(), RejectResponse> {
        let state = &mut self.controlled(id, sender, "stop_canister")?.state;
        state.status = if state.contexts.is_empty() { Status::Stopped } else { Status::Stopping };
        state.version += 1;
        Ok(())
    }

    /// Removes code and data, and rejects every open call.
    pub(crate) fn uninstall(&mut self, id: Principal, reason: &str) {
        let Some(canister) = self.canisters.get_mut(&id) else { return };
        canister.instance = None;
        canister.state.clear();
        canister.state.callbacks.clear();
        let contexts = std::mem::take(&mut canister.state.contexts);
        if canister.state.status == Status::Stopping {
            canister.state.status = Status::Stopped;
        }
        for context in contexts.into_values().filter(|context| !context.answered) {
            let reject = RejectResponse::new(ErrorCode::CanisterRejectedMessage, reason);
            let origin = context.origin;
            debug_assert_ne!(origin, Origin::System);
            self.answer(origin, Err(reject), context.cycles);
        }
    }
}
