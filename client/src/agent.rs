//! Transport to a canister on a network, over ic-agent.

use crate::{Failure, Reject, Transport};
use candid::Principal;
use ic_agent::agent::RejectResponse;
use ic_agent::{Agent, AgentError};

/// Transport to a canister on a network. The agent's identity signs calls, and the agent verifies answers. Needs a tokio runtime, as
/// ic-agent does.
///
/// Limit what a gateway may send: build the agent `with_max_response_body_size`. No answer of the canister is longer than 3 MiB.
#[derive(Clone, Debug)]
pub struct OverHttp {
    agent: Agent,
    canister: Principal,
}

impl OverHttp {
    /// Creates a transport to a canister over an agent.
    pub fn new(agent: Agent, canister: Principal) -> Self {
        Self { agent, canister }
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The canister's principal.
    pub fn canister(&self) -> Principal {
        self.canister
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::CertifiedReject { reject, .. } => Self::Rejected(rejected(reject)),
            AgentError::UncertifiedReject { reject, .. } => {
                Self::Rejected(Reject { certified: false, ..rejected(reject) })
            }
            error if may_pass(&error) => Self::Lost(Box::new(error)),
            error => Self::Transport(Box::new(error)),
        }
    }
}

fn rejected(reject: RejectResponse) -> Reject {
    Reject::new(reject.reject_code as u32, reject.error_code, reject.reject_message)
}

/// Returns whether the same call may succeed a little later.
fn may_pass(error: &AgentError) -> bool {
    match error {
        AgentError::TransportError(_)
        | AgentError::RouteProviderError(_)
        | AgentError::TimeoutWaitingForResponse()
        | AgentError::RequestStatusDoneNoReply(_)
        | AgentError::CertificateOutdated(_) => true,
        AgentError::HttpError(http) => http.status == 429 || http.status >= 500,
        _ => false,
    }
}

impl Transport for OverHttp {
    const INGRESS: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(self.agent.update(&self.canister, method).with_arg(arg).call_and_wait().await?)
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(self.agent.query(&self.canister, method).with_arg(arg).call().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_that_fails_verification_is_a_transport_failure_not_lost() {
        for error in [AgentError::QuerySignatureVerificationFailed, AgentError::MissingSignature] {
            let failure = Failure::from(error);
            assert!(matches!(failure, Failure::Transport(_)), "{failure:?}");
        }
        let reject = RejectResponse {
            reject_code: ic_agent::agent::RejectCode::CanisterReject,
            reject_message: "no".into(),
            error_code: None,
        };
        for (certified, error) in [
            (true, AgentError::CertifiedReject { reject: reject.clone(), operation: None }),
            (false, AgentError::UncertifiedReject { reject, operation: None }),
        ] {
            let failure = Failure::from(error);
            assert!(matches!(&failure, Failure::Rejected(reject) if reject.certified == certified), "{failure:?}");
        }
        let late = Failure::from(AgentError::TimeoutWaitingForResponse());
        assert!(matches!(late, Failure::Lost(_)), "{late:?}");
    }
}
