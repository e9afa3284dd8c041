//! Canister on an embedded host that refuses the calls of one method.
//!
//! An honest run is recorded: its answers, and the state of the host before the first call of each method. A run in which a method is refused
//! is the same up to the first call of that method, so it takes the answers from the record until then, and the host begins there.

use super::cases::Case;
use candid::Principal;
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_client::command::CanisterClient;
use ic_coppice_client::{Embedded, Failure, Transport};
use ic_coppice_host::{Checkpoint, Host};
use ic_coppice_interface::Role;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Calls that are refused before the canister answers again: more than any command believes in a row. An attempt of the indexer may be
/// refused twice, by query and by the subnet.
pub const MANY: u32 = 60;
/// The same for a command that tries again without end.
pub const FEW: u32 = 3;

/// A lease is extended only if half of it is over. So the answer with the first lease comes this late, unless the canister lies about other
/// methods.
const LATE: Duration = Duration::from_millis(250);

/// A refusal of the first calls of a method.
#[derive(Clone)]
pub struct Lie {
    pub method: &'static str,
    pub case: Arc<Case>,
    /// The number of calls.
    pub times: u32,
    /// The record of the honest run, if each run makes the same calls in the same order.
    pub record: Option<Arc<Record>>,
}

/// The calls of a run.
#[derive(Clone, Default)]
pub struct Record {
    /// The methods with their answers, in order.
    answers: Vec<(String, Vec<u8>)>,
    /// The times that the command read, in order.
    times: Vec<Duration>,
    /// By method: the number of calls before its first one, and the host then.
    firsts: BTreeMap<String, (usize, Checkpoint)>,
}

impl Record {
    /// Returns the methods that were called.
    pub fn methods(&self) -> Vec<String> {
        self.firsts.keys().cloned().collect()
    }
}

#[derive(Default)]
struct Calls {
    record: Record,
    /// The next call of the lie's record.
    next: usize,
    /// The next time of the lie's record.
    next_time: usize,
    /// The number of refusals.
    told: u32,
    /// The first lease was asked for.
    has_leased: bool,
}

/// A canister, its caller, and what was called.
pub struct Liar {
    inner: Embedded,
    host: Arc<Host>,
    canister: Principal,
    principal: Principal,
    lie: Option<Lie>,
    calls: Mutex<Calls>,
}

impl Liar {
    pub fn new(host: Arc<Host>, canister: Principal, principal: Principal, lie: Option<Lie>) -> Self {
        let inner = Embedded::new(host.clone(), canister, principal);
        Self { inner, host, canister, principal, lie, calls: Mutex::default() }
    }

    /// Returns the calls so far.
    pub fn record(&self) -> Record {
        self.calls.lock().unwrap().record.clone()
    }

    /// Returns the number of calls that were refused.
    pub fn told(&self) -> u32 {
        self.calls.lock().unwrap().told
    }

    /// Returns the number of calls that are answered from the record, and the host's state after them.
    fn recorded(&self) -> Option<(&Record, &(usize, Checkpoint))> {
        let lie = self.lie.as_ref()?;
        let record = lie.record.as_deref()?;
        Some((record, record.firsts.get(lie.method)?))
    }

    /// Returns whether the host answers, and not the record.
    fn is_live(&self) -> bool {
        self.recorded().is_none_or(|(_, (calls, _))| self.calls.lock().unwrap().next > *calls)
    }

    /// Returns the answer to a call if the host does not give it.
    fn answer(&self, method: &str, arg: &[u8]) -> Option<Vec<u8>> {
        let mut calls = self.calls.lock().unwrap();
        if let Some((record, (until, checkpoint))) = self.recorded() {
            let at = calls.next;
            calls.next = (at + 1).min(until + 1);
            if at < *until {
                let (called, answer) = &record.answers[at];
                assert_eq!(called, method, "call {at} of the record");
                return Some(answer.clone());
            }
            if at == *until {
                self.host.restore(checkpoint);
            }
        }
        let lie = self.lie.as_ref().filter(|lie| lie.method == method)?;
        calls.told += 1;
        (calls.told <= lie.times).then(|| (lie.case.answer)(arg))
    }

    /// Makes a call of the canister, and records it in an honest run.
    async fn call(
        &self,
        method: &str,
        arg: Vec<u8>,
        call: impl AsyncFnOnce(Vec<u8>) -> Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Failure> {
        let is_late = self.lie.as_ref().is_none_or(|lie| lie.method == "extend_blob_deletion_batch");
        let is_first = || !std::mem::replace(&mut self.calls.lock().unwrap().has_leased, true);
        if is_late && method == "acquire_blob_deletion_batch" && is_first() {
            std::thread::sleep(LATE);
        }
        if let Some(answer) = self.answer(method, &arg) {
            return Ok(answer);
        }
        if self.lie.is_some() {
            return call(arg).await;
        }
        let record = |does: &mut dyn FnMut(&mut Record)| does(&mut self.calls.lock().unwrap().record);
        record(&mut |record| {
            let before = || (record.answers.len(), self.host.checkpoint());
            if !record.firsts.contains_key(method) {
                let before = before();
                record.firsts.insert(method.into(), before);
            }
        });
        let answer = call(arg).await?;
        record(&mut |record| record.answers.push((method.into(), answer.clone())));
        Ok(answer)
    }
}

impl Transport for Liar {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.call(method, arg, async |arg| self.inner.update(method, arg).await).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.call(method, arg, async |arg| self.inner.query(method, arg).await).await
    }
}

impl CanisterClient for Liar {
    fn principal(&self, _: Role) -> Principal {
        self.principal
    }

    /// The liar refuses calls and forges nothing, so the signature is not checked.
    fn vouched(&self, certificate: &[u8]) -> anyhow::Result<Vouched> {
        certificate::vouched(certificate, self.canister, |_| Ok(()))
    }

    /// The host's time; until the first refusal that of the honest run.
    fn now(&self) -> Duration {
        let is_live = self.is_live();
        let mut calls = self.calls.lock().unwrap();
        if let Some((record, _)) = self.recorded()
            && !is_live
        {
            calls.next_time += 1;
            return record.times[calls.next_time - 1];
        }
        let now = Duration::from_nanos(self.host.get_time_nanos());
        if self.lie.is_none() {
            calls.record.times.push(now);
        }
        now
    }

    fn pass(&self, time: Duration) -> anyhow::Result<()> {
        if self.is_live() {
            self.host.advance_time(time);
            self.host.tick();
        }
        Ok(())
    }

    fn await_timer(&self, interval: Duration) -> anyhow::Result<()> {
        // The second call lets the timer library replay missed firings.
        self.pass(interval)?;
        self.pass(interval)
    }

    fn patience(&self) -> u32 {
        1
    }
}
