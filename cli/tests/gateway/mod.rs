//! A gateway with faults, before the replica of the test kit: it loses, forges, holds back and rejects.
//!
//! The canister's clock advances by a second per request or, after [`Gateway::follow_the_clock`], like the real clock, with any offset.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use candid::Principal;
use cbor4ii::serde::to_vec;
use coppice_testkit::replica::{Answer, Call, Replica, Request, is_filtered, rejection};
use ic_coppice_cli::http_server::{self, Server};
use ic_coppice_host::Host;
use ic_transport_types::TransportCallResponse;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    /// The cycles that the canister paid for it.
    pub cycles: u128,
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
    replica: Replica,
    /// The number of next requests that fail with an error of the gateway.
    failures: AtomicU64,
    /// The number of requests that were answered.
    answered: AtomicU64,
    /// If set, calls are only accepted, and the caller must poll for the outcome.
    accept_only: AtomicBool,
    /// Changes answers to queries before they are signed.
    lie: Mutex<Option<Lie>>,
    /// Another canister that answers queries of some methods in the canister's place.
    other: Mutex<Option<(Principal, Vec<&'static str>)>>,
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
            replica: Replica::new(host.clone()),
            host,
            server: Server::bind(0).unwrap(),
            failures: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            accept_only: AtomicBool::new(false),
            lie: Mutex::default(),
            other: Mutex::default(),
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

    /// Lets another canister of the subnet answer queries of these methods.
    pub fn answer_from(&self, canister: Principal, methods: &[&'static str]) {
        *self.inner.other.lock().unwrap() = Some((canister, methods.to_vec()));
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
        self.inner.replica.root_key()
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

impl Inner {
    fn answer(&self, request: http_server::Request) {
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
        let Answer { status, body } = if status.is_ok() {
            fails("no replica behind the gateway")
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
        request.respond((status, [("content-type", "application/cbor")], body));
    }

    fn reply(&self, url: &str, body: &[u8]) -> Answer {
        let replica = &self.replica;
        match Request::read(url, body) {
            Err(refused) => panic!("{url}: {}", String::from_utf8_lossy(&refused.body)),
            Ok(Request::Status) => replica.status(),
            Ok(Request::Call(call)) => {
                if self.cut_off.lock().unwrap().contains(&(call.sender, call.method.clone())) {
                    return fails("the call does not arrive");
                }
                if let Some(why) = self.rejected(&call.method) {
                    return replica.rejected(rejection(why)).unwrap();
                }
                let balance = || self.host.cycle_balance(call.canister);
                let before = self.made.lock().unwrap().is_some().then(balance);
                let outcome = replica.execute(&call);
                let cycles = before.map_or(0, |before| before - balance());
                let answer = replica.replied(&call, &outcome);
                if is_filtered(&outcome) {
                    return answer.unwrap();
                }
                self.wait_where_held(call.sender, &call.method);
                if self.note(call, outcome.ok(), cycles) {
                    return fails("the answer is lost");
                }
                if self.accept_only.load(Ordering::SeqCst) {
                    let body = to_vec(Vec::new(), &TransportCallResponse::Accepted).unwrap();
                    return Answer { status: StatusCode::ACCEPTED, body };
                }
                answer
            }
            Ok(Request::Query(query)) => {
                let other = self.other.lock().unwrap().clone();
                let other = other.filter(|(_, methods)| methods.contains(&query.method.as_str()));
                let canister = other.map_or(query.canister, |(canister, _)| canister);
                let mut outcome = replica.query(&Call { canister, ..query.clone() });
                if let Some(why) = self.rejected(&query.method) {
                    outcome = Err(rejection(why));
                } else if let Some(lie) = &mut *self.lie.lock().unwrap() {
                    outcome = outcome.map(|reply| lie(&query.method, reply));
                }
                replica.signed(&query, outcome)
            }
            Ok(Request::ReadState { call, canister }) => replica.state(call.as_ref(), canister),
        }
        .unwrap()
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
    fn note(&self, call: Call, reply: Option<Vec<u8>>, cycles: u128) -> bool {
        let Call { sender, method, arg, .. } = call;
        let (methods, lost) = &mut *self.lost.lock().unwrap();
        let is_lost = methods.contains(&method) && lost.insert([sender.as_slice(), method.as_bytes(), &arg].concat());
        if let Some(made) = &mut *self.made.lock().unwrap() {
            made.push(Made { at: Instant::now(), sender, method, arg, reply, cycles });
        }
        is_lost
    }
}

fn fails(why: &str) -> Answer {
    Answer::refused(StatusCode::BAD_GATEWAY, why)
}
