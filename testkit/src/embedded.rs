//! Canister in this process, on the embedded host.

use crate::costs::{Costs, TIMER_CALLS};
use anyhow::{Context, Result, anyhow};
use candid::Principal;
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_client::command::CanisterClient;
use ic_coppice_client::{Client, Failure, Transport};
use ic_coppice_host::{Execution, Host, Kind};
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::{CanisterArg, InitArg, Role};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Cycles that the canister gets besides the host's: enough for hundreds of GiB of ingress.
const CYCLES: u128 = 10_000_000_000_000_000;

/// A canister on its own embedded host.
///
/// It has four callers; the method of a call determines which one makes it.
pub struct Embedded {
    host: Arc<Host>,
    canister: Principal,
    operator: Principal,
    producer: Principal,
    exporter: Principal,
    blob_worker: Principal,
    costs: Mutex<Costs>,
    /// Callers from outside this process call the canister, too.
    shared: AtomicBool,
}

impl Embedded {
    /// Starts a host and installs the canister on it. Four principals call the canister: its controller, a producer, and an exporter and a
    /// blob worker, once they are given these roles.
    ///
    /// # Errors
    /// When the wasm cannot be installed.
    pub fn start(wasm: Vec<u8>) -> Result<Client<Self>> {
        let host = Arc::new(Host::new());
        let operator = Principal::self_authenticating(b"coppice operator");
        let producer = Principal::self_authenticating(b"coppice producer");
        let exporter = Principal::self_authenticating(b"coppice exporter");
        let blob_worker = Principal::self_authenticating(b"coppice blob worker");
        let canister = host.create_canister_with_settings(Some(operator), None);
        host.add_cycles(canister, CYCLES);
        let init = InitArg { producers: vec![producer], ..InitArg::default() };
        let arg = candid::encode_one(Some(CanisterArg::Init(init)))?;
        host.try_install_canister(canister, wasm, arg, Some(operator)).context("cannot install the canister")?;
        // Its first timer draws the hash key, so that it is ready.
        host.tick();
        Ok(Client::new(Self {
            host,
            canister,
            operator,
            producer,
            exporter,
            blob_worker,
            costs: Mutex::default(),
            shared: AtomicBool::new(false),
        }))
    }

    /// Returns the host, for callers from outside this process. From now on a call or query that traps is an error of its caller only.
    pub fn share(&self) -> Arc<Host> {
        self.shared.store(true, Ordering::SeqCst);
        Arc::clone(&self.host)
    }

    pub fn canister(&self) -> Principal {
        self.canister
    }

    /// Lets principals control the canister, besides its operator.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add_controllers(&self, principals: &[Principal]) -> Result<()> {
        let controllers = [&[self.operator], principals].concat();
        let set = self.host.set_controllers(self.canister, Some(self.operator), controllers);
        set.map_err(|reject| anyhow!("the canister's controllers: {}", reject.reject_message))
    }

    /// Sets the canister's balance before its next message.
    pub fn set_balance(&self, cycles: u128) {
        self.host.faults().low_cycles(self.canister, cycles);
    }

    /// Returns the canister's time, in Unix seconds.
    pub fn now_secs(&self) -> u64 {
        self.host.get_time_nanos() / 1_000_000_000
    }

    /// Returns the costs of executions up to the last time that passed.
    pub fn costs(&self) -> Costs {
        self.costs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a principal that may call a method.
    fn sender(&self, method: &str) -> Principal {
        // The first block is an operator's, and an operator may apply all others, too.
        if method == "utxo_apply_block" {
            return self.operator;
        }
        // Any role may call a query as an update.
        let role = TABLE.iter().find(|of| of.name == method).and_then(|of| of.roles.first());
        role.map_or(self.producer, |&role| self.principal(role))
    }
}

impl Transport for Embedded {
    const REPLICATED: bool = true;
    const INGRESS: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let sender = self.sender(method);
        ic_coppice_client::Embedded::new(self.host.clone(), self.canister, sender).update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let anonymous = Principal::anonymous();
        ic_coppice_client::Embedded::new(self.host.clone(), self.canister, anonymous).query(method, arg).await
    }
}

/// Returns whether an execution belongs to a call from outside the canister.
fn has_caller(execution: &Execution) -> bool {
    use Kind::{InspectMessage, Query, ReplicatedQuery, Update};
    let is_called = matches!(execution.kind, InspectMessage | Query | ReplicatedQuery | Update);
    is_called && !execution.method.starts_with(TIMER_CALLS)
}

impl CanisterClient for Embedded {
    fn principal(&self, role: Role) -> Principal {
        match role {
            Role::Operator | Role::Admin | Role::Observer => self.operator,
            Role::Exporter => self.exporter,
            Role::BlobWorker => self.blob_worker,
            Role::Producer | Role::BlockProducer | Role::UtxoFeeder | Role::Alert => self.producer,
        }
    }

    /// Nothing stands between this process and the canister that could forge a certificate, so the signature is not checked.
    fn vouched(&self, certificate: &[u8]) -> Result<Vouched> {
        certificate::vouched(certificate, self.canister, |_| Ok(()))
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.now_secs())
    }

    /// Fires the timers that come due in that time, and counts all executions: the host keeps only the last 10,000.
    fn pass(&self, time: Duration) -> Result<()> {
        self.host.advance_time(time);
        self.host.tick();
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = self.shared.load(Ordering::SeqCst);
        let executions = self.host.take_executions();
        // Another canister's trap ends nothing: its log has it.
        let own = executions.iter().filter(|of| of.canister == self.canister && !(shared && has_caller(of)));
        own.for_each(|execution| costs.add(execution));
        costs.trap.as_ref().map_or(Ok(()), |trap| Err(anyhow!("{trap}")))
    }

    fn await_timer(&self, interval: Duration) -> Result<()> {
        // The first firing may be a whole interval away. The second call lets the timer library replay missed firings.
        self.pass(interval)?;
        self.pass(interval)
    }

    fn patience(&self) -> u32 {
        1
    }
}
