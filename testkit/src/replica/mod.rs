//! HTTP interface of the Internet Computer over an embedded host, as far as an agent calls, queries and reads the state.
//!
//! ```text
//! agent ── POST /api/v3/canister/ID/query ──▶ Request::read ──▶ Replica ──▶ Host
//!       ◀── CBOR: a certificate, or an answer signed by a node ──┘
//! ```
//! An agent verifies the answers as on the platform: a certificate is a hash tree whose root is signed with BLS by the subnet's key, to which
//! the key in `status` delegates for the canisters of the host; and a query's answer is signed by a node whose key is in that tree. The keys
//! are the host's, which signs a canister's certified data. Certificates carry the real time, whatever the canister's clock shows; so requests
//! do not expire.

mod answer;
mod certificate;
mod ledger;
mod management;
mod reject;
mod request;
mod signature;

pub use answer::{Answer, Outcome};
use anyhow::Result;
use axum::http::StatusCode;
use candid::Principal;
use certificate::{Described, Keys};
use ic_coppice_host::Host;
use ic_coppice_host::certificate::real_time;
use ic_transport_types::{
    QueryResponse, ReadStateResponse, RejectResponse, ReplyResponse, RequestId, TransportCallResponse,
};
use management::Management;
use reject::reject_of;
pub use reject::rejection;
pub use request::{Call, Request};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Outcomes of calls that are kept for `read_state`; an agent asks for an outcome within minutes.
const KEPT_CALLS: usize = 1_000;
/// Texts in a reject by the ingress filter: the host's text, and the filter's own when it traps.
const FILTERED: [&str; 2] = ["Canister rejected the message", "access denied: "];
/// The first version of `call` that waits for the outcome.
const SYNCHRONOUS: u8 = 3;

/// The answer to a request for the status.
#[derive(Serialize)]
struct Status {
    replica_health_status: &'static str,
    #[serde(with = "serde_bytes")]
    root_key: Vec<u8>,
}

/// The outcomes of the last calls, and their ids, the oldest first.
#[derive(Default)]
struct Calls {
    outcomes: BTreeMap<RequestId, Outcome>,
    order: VecDeque<RequestId>,
}

/// A subnet of one node, whose canisters are on an embedded host.
pub struct Replica {
    host: Arc<Host>,
    keys: Keys,
    calls: Mutex<Calls>,
    management: Management,
}

impl Replica {
    /// Creates a subnet with the keys of a host, whose certificates carry the real time from now on.
    pub fn new(host: Arc<Host>) -> Self {
        host.certify_with_real_time();
        Self { keys: Keys::of(&host), host, calls: Mutex::default(), management: Management::default() }
    }

    /// Returns the root key in DER.
    pub fn root_key(&self) -> Vec<u8> {
        self.keys.root_key()
    }

    /// Answers a request by its URL and body. A malformed request is refused.
    ///
    /// # Errors
    /// When an answer cannot be encoded.
    pub fn answer(&self, url: &str, body: &[u8]) -> Result<Answer> {
        match Request::read(url, body) {
            Err(refused) => Ok(refused),
            Ok(Request::Status) => self.status(),
            Ok(Request::Call(call)) => {
                let outcome = self.execute(&call);
                self.replied(&call, &outcome)
            }
            Ok(Request::Query(query)) => self.signed(&query, self.query(&query)),
            Ok(Request::ReadState { call, canister }) => self.state(call.as_ref(), canister),
        }
    }

    /// Answers a request for the status.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn status(&self) -> Result<Answer> {
        Answer::ok(&Status { replica_health_status: "healthy", root_key: self.keys.root_key() })
    }

    /// Executes a call, unless the same message was executed already. The outcome is kept, unless the ingress filter rejects the call.
    pub fn execute(&self, call: &Call) -> Outcome {
        if let Some(outcome) = self.calls().outcomes.get(&call.id) {
            return outcome.clone();
        }
        let outcome = if call.canister == Principal::management_canister() {
            self.management.call(&self.host, call.sender, &call.method, &call.arg)
        } else if call.canister == ledger::id() {
            ledger::call(&self.host, &call.method, &call.arg)
        } else {
            let outcome = self.host.update_call(call.canister, call.sender, &call.method, call.arg.clone());
            outcome.map_err(|reject| reject_of(&reject))
        };
        if !is_filtered(&outcome) {
            let mut calls = self.calls();
            calls.outcomes.insert(call.id, outcome.clone());
            calls.order.push_back(call.id);
            if calls.order.len() > KEPT_CALLS
                && let Some(oldest) = calls.order.pop_front()
            {
                calls.outcomes.remove(&oldest);
            }
        }
        outcome
    }

    /// Answers a call that was executed: with a certificate, or, in the interface's second version, with the promise of one.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn replied(&self, call: &Call, outcome: &Outcome) -> Result<Answer> {
        match outcome {
            // The ingress filter's answer is that of one replica, and is not certified.
            Err(reject) if is_filtered(outcome) => self.rejected(reject.clone()),
            _ if call.version < SYNCHRONOUS => Ok(Answer { status: StatusCode::ACCEPTED, body: Vec::new() }),
            _ => Answer::ok(&TransportCallResponse::Replied { certificate: self.certificate(Some(&call.id), None)? }),
        }
    }

    /// Answers a call that is not executed.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn rejected(&self, reject: RejectResponse) -> Result<Answer> {
        Answer::ok(&TransportCallResponse::NonReplicatedRejection(reject))
    }

    pub fn query(&self, query: &Call) -> Outcome {
        let outcome = self.host.query_call(query.canister, query.sender, &query.method, query.arg.clone());
        outcome.map_err(|reject| reject_of(&reject))
    }

    /// Answers a query, signed by the node.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn signed(&self, query: &Call, outcome: Outcome) -> Result<Answer> {
        let mut response = match outcome {
            Ok(arg) => QueryResponse::Replied { reply: ReplyResponse { arg }, signatures: Vec::new() },
            Err(reject) => QueryResponse::Rejected { reject, signatures: Vec::new() },
        };
        let timestamp = real_time();
        let signature = self.keys.by_node(&response.signable(query.id, timestamp), timestamp);
        match &mut response {
            QueryResponse::Replied { signatures, .. } | QueryResponse::Rejected { signatures, .. } => {
                signatures.push(signature);
            }
        }
        Answer::ok(&response)
    }

    /// Answers with a certificate of the state, of one call's outcome, and of one canister's module and controllers.
    ///
    /// # Errors
    /// When the answer cannot be encoded.
    pub fn state(&self, call: Option<&RequestId>, canister: Option<Principal>) -> Result<Answer> {
        Answer::ok(&ReadStateResponse { certificate: self.certificate(call, canister)? })
    }

    fn certificate(&self, call: Option<&RequestId>, canister: Option<Principal>) -> Result<Vec<u8>> {
        let calls = self.calls();
        let asked = call.and_then(|id| calls.outcomes.get_key_value(id));
        let canister = canister.and_then(|id| Described::of(&self.host, id));
        self.keys.of_state(asked, canister.as_ref(), real_time())
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the ingress filter rejected a call, so that no certificate vouches for the reject.
pub fn is_filtered(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|reject| FILTERED.iter().any(|text| reject.reject_message.contains(text)))
}
