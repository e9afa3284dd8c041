//! Transport to a canister in the same process, on the embedded host.

use crate::{Failure, Reject, Transport};
use candid::Principal;
use ic_coppice_host::{Host, RejectResponse};
use std::sync::Arc;

/// Transport to a canister on an embedded host, with a fixed caller. The host executes during the call, so the futures are ready at once.
#[derive(Clone)]
pub struct Embedded {
    host: Arc<Host>,
    canister: Principal,
    sender: Principal,
}

impl Embedded {
    /// Creates a transport to a canister, with `sender` as the caller.
    pub fn new(host: Arc<Host>, canister: Principal, sender: Principal) -> Self {
        Self { host, canister, sender }
    }
}

impl From<RejectResponse> for Failure {
    fn from(response: RejectResponse) -> Self {
        let code = Some(response.error_code.to_string());
        Self::Rejected(Reject::new(response.reject_code as u32, code, response.reject_message))
    }
}

impl Transport for Embedded {
    const REPLICATED: bool = true;
    const INGRESS: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(self.host.update_call(self.canister, self.sender, method, arg)?)
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(self.host.query_call(self.canister, self.sender, method, arg)?)
    }
}
