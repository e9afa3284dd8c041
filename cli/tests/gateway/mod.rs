//! The IC's HTTP interface over the embedded host, as far as an agent uses it to call, query and read the state.
//!
//! Answers are certified as on the platform: a hash tree whose root is signed with BLS by the key in `status`, and query answers signed by
//! a node whose key is in that tree. Certificates carry the real time. The canister's clock advances by a second per request or, after
//! [`Gateway::follow_the_clock`], like the real clock, with any offset.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use candid::Principal;
use coppice::http_server::{Request, Server};
use coppice_host::Host;
use ic_certification::hash_tree::{fork, label, leaf};
use ic_certification::{Certificate, HashTree};
use ic_transport_types::{
    Envelope, EnvelopeContent, NodeSignature, QueryResponse, RejectCode, RejectResponse, ReplyResponse, RequestId,
    TransportCallResponse,
};
use ic_verify_bls_signature::PrivateKey;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// DER prefix of a BLS public key.
const BLS_DER: [u8; 37] = [
    0x30, 0x81, 0x82, 0x30, 0x1D, 0x06, 0x0D, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x01, 0x02,
    0x01, 0x06, 0x0C, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x02, 0x01, 0x03, 0x61, 0x00,
];

/// Texts in a reject by the ingress filter: the host's text, and the filter's own when it traps.
const FILTERED: [&str; 2] = ["Canister rejected the message", "access denied: "];

/// The outcome of a call.
type Outcome = Result<Vec<u8>, RejectResponse>;

/// A call that was executed.
#[derive(Clone, Debug)]
pub struct Made {
    /// The time of execution.
    pub at: Instant,
    /// The caller.
    pub sender: Principal,
    /// The method.
    pub method: String,
    /// The argument.
    pub arg: Vec<u8>,
    /// The answer, or `None` after a reject.
    pub reply: Option<Vec<u8>>,
}

/// Changes a replica's answer to a query of a method.
pub type Lie = Box<dyn FnMut(&str, Vec<u8>) -> Vec<u8> + Send>;

/// Forges a gateway's answer to a request, by the last part of the path: `status`, `query`, `call` or `read_state`.
pub type Own = Box<dyn FnMut(&str) -> Option<Forged> + Send>;

/// Forges a reject by method, with its reason. Only the gateway vouches for the reject of an update call, and only one replica for that of
/// a query.
pub type Rejects = Box<dyn FnMut(&str) -> Option<String> + Send>;

/// A forged answer of the gateway.
pub enum Forged {
    /// A status with a body.
    Body(u16, Vec<u8>),
    /// A body that never ends.
    Endless,
}

struct Inner {
    host: Arc<Host>,
    server: Server,
    root: PrivateKey,
    node: ic_ed25519::PrivateKey,
    calls: Mutex<BTreeMap<RequestId, Outcome>>,
    /// The number of next requests that fail with an error of the gateway.
    failures: AtomicU64,
    /// The number of requests that were answered.
    answered: AtomicU64,
    /// If set, calls are only accepted, and the caller must poll for the outcome.
    accept_only: AtomicBool,
    /// Changes answers to queries before they are signed.
    lie: Mutex<Option<Lie>>,
    /// Forges answers without a replica.
    own: Mutex<Option<Own>>,
    /// Rejects calls that the canister would accept.
    rejects: Mutex<Option<Rejects>>,
    /// The executed calls in order, once a test has asked to record them.
    made: Mutex<Option<Vec<Made>>>,
    /// Methods of which the first answer to each call is lost, and the calls whose first answer was lost.
    lost: Mutex<(Vec<String>, BTreeSet<Vec<u8>>)>,
    /// Callers and methods whose calls do not arrive.
    cut_off: Mutex<Vec<(Principal, String)>>,
    /// The caller and method whose next answer is held back, and whether an answer is held.
    held: Mutex<Option<(Principal, String, bool)>>,
    /// The last time at which the canister's clock was advanced like the real clock.
    follows: Mutex<Option<Instant>>,
}

/// A running gateway; dropping it stops it.
pub struct Gateway {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts a gateway on a free port.
    pub fn start(host: Arc<Host>) -> Self {
        let inner = Arc::new(Inner {
            host,
            server: Server::bind(0).unwrap(),
            root: PrivateKey::deserialize(&[[0; 31].as_slice(), &[7]].concat()).unwrap(),
            node: ic_ed25519::PrivateKey::generate_from_seed(b"node"),
            calls: Mutex::default(),
            failures: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            accept_only: AtomicBool::new(false),
            lie: Mutex::default(),
            own: Mutex::default(),
            rejects: Mutex::default(),
            made: Mutex::default(),
            lost: Mutex::default(),
            cut_off: Mutex::default(),
            held: Mutex::default(),
            follows: Mutex::default(),
        });
        let serving = inner.clone();
        let thread = std::thread::spawn(move || {
            while let Some(request) = serving.server.recv() {
                serving.answer(request);
            }
        });
        Self { inner, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        self.inner.server.url()
    }

    /// Returns the number of requests that were answered so far.
    pub fn answered(&self) -> u64 {
        self.inner.answered.load(Ordering::SeqCst)
    }

    /// Makes the next requests fail like those to a gateway without a replica.
    pub fn fail(&self, requests: u64) {
        self.inner.failures.store(requests, Ordering::SeqCst);
    }

    /// Returns whether all failing requests have been made.
    pub fn has_failed(&self) -> bool {
        self.inner.failures.load(Ordering::SeqCst) == 0
    }

    /// Makes the replica that answers queries lie, or tell the truth again. It signs its answers.
    pub fn lie(&self, lie: Option<Lie>) {
        *self.inner.lie.lock().unwrap() = lie;
    }

    /// Makes the gateway forge answers, or stop doing so.
    pub fn forge(&self, own: Option<Own>) {
        *self.inner.own.lock().unwrap() = own;
    }

    /// Makes the gateway reject calls and queries, or stop doing so.
    pub fn reject(&self, rejects: Option<Rejects>) {
        *self.inner.rejects.lock().unwrap() = rejects;
    }

    /// Returns the root key in DER.
    pub fn root_key(&self) -> Vec<u8> {
        self.inner.root_key()
    }

    /// Returns the subnet's certificate of a canister's certified data.
    pub fn certify(&self, canister: Principal, data: &[u8]) -> Vec<u8> {
        let of = vec![(canister.as_slice().to_vec(), label(b"certified_data".to_vec(), leaf(data.to_vec())))];
        let top = vec![(b"canister".to_vec(), tree(of)), (b"time".to_vec(), leaf(number(now())))];
        self.inner.signed(tree(top))
    }

    /// Starts to record calls.
    pub fn remember(&self) {
        *self.inner.made.lock().unwrap() = Some(Vec::new());
    }

    /// Returns the recorded calls.
    pub fn made(&self) -> Vec<Made> {
        self.inner.made.lock().unwrap().clone().unwrap_or_default()
    }

    /// Loses the first answer to each call of these methods; a repeated call with the same caller and argument gets its answer.
    pub fn lose_first_answers(&self, methods: &[&str]) {
        self.inner.lost.lock().unwrap().0 = methods.iter().map(ToString::to_string).collect();
    }

    /// Blocks all calls of a method by a caller.
    pub fn cut_off(&self, sender: Principal, method: &str) {
        self.inner.cut_off.lock().unwrap().push((sender, method.into()));
    }

    /// Holds back the answer to a caller's next call of a method, and all answers after it. The call is executed, but the caller does not
    /// know.
    pub fn hold(&self, sender: Principal, method: &str) {
        *self.inner.held.lock().unwrap() = Some((sender, method.into(), false));
    }

    /// Returns whether an answer is held back.
    pub fn is_holding(&self) -> bool {
        self.inner.held.lock().unwrap().as_ref().is_some_and(|(_, _, holds)| *holds)
    }

    /// Releases the held answers.
    pub fn let_go(&self) {
        *self.inner.held.lock().unwrap() = None;
    }

    /// Returns the number of lost answers.
    pub fn lost(&self) -> usize {
        self.inner.lost.lock().unwrap().1.len()
    }

    /// Makes the canister's clock advance like the real clock; the test sets the offset on the host.
    pub fn follow_the_clock(&self) {
        *self.inner.follows.lock().unwrap() = Some(Instant::now());
    }

    /// Makes calls be accepted only, without their outcome.
    pub fn accept_only(&self) {
        self.inner.accept_only.store(true, Ordering::SeqCst);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.let_go();
        self.inner.server.unblock();
        let _ = self.thread.take().unwrap().join();
    }
}

fn cbor(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = serde_cbor::Serializer::new(&mut bytes);
    serializer.self_describe().unwrap();
    value.serialize(&mut serializer).unwrap();
    bytes
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn number(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb128::write::unsigned(&mut bytes, number).unwrap();
    bytes
}

/// Builds a tree of sorted labels, balanced, because a decoder accepts a limited number of levels.
fn tree(mut branches: Vec<(Vec<u8>, HashTree)>) -> HashTree {
    if branches.len() > 1 {
        let right = branches.split_off(branches.len() / 2);
        return fork(tree(branches), tree(right));
    }
    let (name, tree) = branches.pop().expect("a branch");
    label(name, tree)
}

impl Inner {
    fn root_key(&self) -> Vec<u8> {
        [&BLS_DER[..], &self.root.public_key().serialize()].concat()
    }

    fn node_key(&self) -> Vec<u8> {
        self.node.public_key().serialize_rfc8410_der()
    }

    fn answer(&self, request: Request) {
        let path = request.path().rsplit('/').next().unwrap_or_default().to_string();
        let forged = self.own.lock().unwrap().as_mut().and_then(|own| own(&path));
        if let Some(forged) = forged {
            let (code, body) = match forged {
                Forged::Body(code, body) => (code, Body::from(body)),
                Forged::Endless => {
                    let noise = Bytes::from(vec![0x41; 1 << 16]);
                    (
                        200,
                        Body::from_stream(futures_util::stream::repeat_with(move || {
                            Ok::<_, Infallible>(noise.clone())
                        })),
                    )
                }
            };
            return request.respond((StatusCode::from_u16(code).unwrap(), body));
        }
        let status = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let (code, answer) = if status.is_ok() {
            (502, b"no replica behind the gateway".to_vec())
        } else {
            self.answered.fetch_add(1, Ordering::SeqCst);
            let passed = match &mut *self.follows.lock().unwrap() {
                Some(before) => std::mem::replace(before, Instant::now()).elapsed(),
                None => Duration::from_secs(1),
            };
            self.host.advance_time(passed);
            self.host.tick();
            self.reply(request.path(), request.asked.body())
        };
        request.respond((StatusCode::from_u16(code).unwrap(), [("content-type", "application/cbor")], answer));
    }

    fn reply(&self, url: &str, body: &[u8]) -> (u16, Vec<u8>) {
        if url.ends_with("/status") {
            let key = serde_cbor::Value::Bytes(self.root_key());
            let health = serde_cbor::Value::Text("healthy".into());
            let status = BTreeMap::from([("root_key", key), ("replica_health_status", health)]);
            return (200, cbor(&status));
        }
        let envelope: Envelope<'_> = serde_cbor::from_slice(body).unwrap();
        let id = envelope.content.to_request_id();
        let sender = *envelope.content.sender();
        let signed_by =
            envelope.sender_pubkey.as_deref().map_or(Principal::anonymous(), Principal::self_authenticating);
        assert_eq!(sender, signed_by, "the sender is not the signer");
        match (url.rsplit('/').next().unwrap(), envelope.content.into_owned()) {
            ("call", EnvelopeContent::Call { canister_id, method_name, arg, .. }) => {
                if self.cut_off.lock().unwrap().contains(&(sender, method_name.clone())) {
                    return (502, b"the call does not arrive".to_vec());
                }
                if let Some(why) = self.rejected(&method_name) {
                    return (200, cbor(&TransportCallResponse::NonReplicatedRejection(rejection(why))));
                }
                let outcome = self
                    .host
                    .update_call(canister_id, sender, &method_name, arg.clone())
                    .map_err(|reject| reject_of(&reject));
                // The ingress filter's answer is that of one replica, and is not certified.
                if let Err(reject) = &outcome
                    && FILTERED.iter().any(|text| reject.reject_message.contains(text))
                {
                    return (200, cbor(&TransportCallResponse::NonReplicatedRejection(reject.clone())));
                }
                self.calls.lock().unwrap().insert(id, outcome.clone());
                self.wait_where_held(sender, &method_name);
                if self.note(sender, method_name, arg, outcome.ok()) {
                    return (502, b"the answer is lost".to_vec());
                }
                if self.accept_only.load(Ordering::SeqCst) {
                    return (202, cbor(&TransportCallResponse::Accepted));
                }
                (200, cbor(&TransportCallResponse::Replied { certificate: self.certificate(Some(&id[..])) }))
            }
            ("query", EnvelopeContent::Query { canister_id, method_name, arg, .. }) => {
                let answer = self.host.query_call(canister_id, sender, &method_name, arg);
                let mut response = match self.rejected(&method_name).map_or(Ok(answer), Err) {
                    Err(why) => QueryResponse::Rejected { reject: rejection(why), signatures: Vec::new() },
                    Ok(Ok(arg)) => {
                        let arg = match &mut *self.lie.lock().unwrap() {
                            Some(lie) => lie(&method_name, arg),
                            None => arg,
                        };
                        QueryResponse::Replied { reply: ReplyResponse { arg }, signatures: Vec::new() }
                    }
                    Ok(Err(reject)) => QueryResponse::Rejected { reject: reject_of(&reject), signatures: Vec::new() },
                };
                let timestamp = now();
                let signature = self.node.sign_message(&response.signable(id, timestamp)).to_vec();
                let identity = Principal::self_authenticating(self.node_key());
                let signature = NodeSignature { timestamp, signature, identity };
                match &mut response {
                    QueryResponse::Replied { signatures, .. } | QueryResponse::Rejected { signatures, .. } => {
                        signatures.push(signature);
                    }
                }
                (200, cbor(&response))
            }
            ("read_state", EnvelopeContent::ReadState { paths, .. }) => {
                let of_call = paths.iter().find(|path| path[0].as_bytes() == b"request_status");
                let call = of_call.and_then(|path| Some(path.get(1)?.as_bytes()));
                let certificate = serde_cbor::Value::Bytes(self.certificate(call));
                (200, cbor(&BTreeMap::from([("certificate", certificate)])))
            }
            (what, _) => panic!("{what} at {url}"),
        }
    }

    fn rejected(&self, method: &str) -> Option<String> {
        self.rejects.lock().unwrap().as_mut().and_then(|rejects| rejects(method))
    }

    fn wait_where_held(&self, sender: Principal, method: &str) {
        let is_held = || match &mut *self.held.lock().unwrap() {
            Some((of, named, holds)) if *of == sender && named == method => {
                *holds = true;
                true
            }
            _ => false,
        };
        while is_held() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Records a call, and returns whether its answer is lost.
    fn note(&self, sender: Principal, method: String, arg: Vec<u8>, reply: Option<Vec<u8>>) -> bool {
        let (methods, lost) = &mut *self.lost.lock().unwrap();
        let is_lost = methods.contains(&method) && lost.insert([sender.as_slice(), method.as_bytes(), &arg].concat());
        if let Some(made) = &mut *self.made.lock().unwrap() {
            made.push(Made { at: Instant::now(), sender, method, arg, reply });
        }
        is_lost
    }

    /// Returns a certificate of the whole state, with only the requested call, because answers of calls are long.
    fn certificate(&self, call: Option<&[u8]>) -> Vec<u8> {
        let subnet = Principal::self_authenticating(self.root_key());
        let node = Principal::self_authenticating(self.node_key());
        let leaf_of = |bytes: Vec<u8>| leaf(bytes);
        let everything = vec![(Principal::from_slice(&[]), Principal::from_slice(&[0xFF; 29]))];
        let ranges = serde_cbor::to_vec(&everything).unwrap();
        let name = |name: &str| name.as_bytes().to_vec();
        let calls = self.calls.lock().unwrap();
        let asked: Vec<_> = calls.iter().filter(|(id, _)| call == Some(&id[..])).collect();
        let mut top = Vec::new();
        if !asked.is_empty() {
            let asked = asked.into_iter().map(|(id, outcome)| {
                let parts = match outcome {
                    Ok(reply) => {
                        vec![(name("reply"), leaf_of(reply.clone())), (name("status"), leaf_of(name("replied")))]
                    }
                    Err(reject) => vec![
                        (name("error_code"), leaf_of(name(reject.error_code.as_deref().unwrap_or_default()))),
                        (name("reject_code"), leaf_of(number(reject.reject_code as u64))),
                        (name("reject_message"), leaf_of(name(&reject.reject_message))),
                        (name("status"), leaf_of(name("rejected"))),
                    ],
                };
                (id.to_vec(), tree(parts))
            });
            top.push((name("request_status"), tree(asked.collect())));
        }
        let nodes = tree(vec![(node.as_slice().to_vec(), tree(vec![(name("public_key"), leaf_of(self.node_key()))]))]);
        let of_subnet = tree(vec![
            (name("canister_ranges"), leaf_of(ranges)),
            (name("node"), nodes),
            (name("public_key"), leaf_of(self.root_key())),
            (name("type"), leaf_of(name("system"))),
        ]);
        top.push((name("subnet"), tree(vec![(subnet.as_slice().to_vec(), of_subnet)])));
        top.push((name("time"), leaf_of(number(now()))));
        self.signed(tree(top))
    }

    fn signed(&self, tree: HashTree) -> Vec<u8> {
        let message = [&b"\x0Dic-state-root"[..], &tree.digest()].concat();
        let signature = self.root.sign(&message).serialize().to_vec();
        cbor(&Certificate { tree, signature, delegation: None })
    }
}

fn rejection(why: String) -> RejectResponse {
    RejectResponse { reject_code: RejectCode::CanisterReject, reject_message: why, error_code: None }
}

fn reject_of(reject: &coppice_host::RejectResponse) -> RejectResponse {
    RejectResponse {
        reject_code: RejectCode::try_from(reject.reject_code as u64).unwrap(),
        reject_message: reject.reject_message.clone(),
        error_code: None,
    }
}
