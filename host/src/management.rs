//! The management canister, which has only `raw_rand` here.

use crate::reject::{ErrorCode, RejectResponse};
use crate::subnet::Subnet;

impl Subnet {
    /// Answers a call to `aaaaa-aa`.
    pub(crate) fn management_call(&mut self, method: &str) -> Result<Vec<u8>, RejectResponse> {
        let refused = |message: String| RejectResponse::new(ErrorCode::UnknownManagementMessage, message);
        let planned = (method == "raw_rand").then(|| self.faults.take_random()).flatten();
        if let Some(planned) = planned {
            return planned.map_err(|message| RejectResponse::new(ErrorCode::SubnetOversubscribed, message));
        }
        match method {
            "raw_rand" => candid::encode_one(self.random().to_vec()).map_err(|error| refused(error.to_string())),
            _ => Err(refused(format!("Management canister has no method '{method}' on this host"))),
        }
    }
}
