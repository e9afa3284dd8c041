//! The canister in this process, on the embedded execution host.

use crate::client::{Client, Failure, Reach, Transport, install_arg};
use crate::site::Site;
use anyhow::{Context, Result, bail};
use candid::Principal;
use coppice_host::{Execution, Host, Kind, Outcome};
use coppice_interface::Role;
use coppice_interface::access::{Required, TABLE};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Cycles that the canister gets on top of the host's: enough for hundreds of GiB of ingress.
const CYCLES: u128 = 10_000_000_000_000_000;
/// Calls of these methods make a block.
const APPENDING: [&str; 4] = ["append_block", "begin_block", "put_block_chunk", "commit_block"];
/// Calls of these methods make a UTXO record.
const CREATING: [&str; 3] = ["utxo_create", "utxo_begin_transaction", "utxo_put_transaction_chunk"];
/// Calls of this one spend outputs.
const SPENDING: &str = "utxo_spend";
/// What the timer library calls its calls to itself.
const TIMER_CALLS: &str = "<ic-cdk internal>";

/// What executions cost, as the host counted them: instructions inside them, as `performance_counter` has them at the end,
/// and those that are charged, which are 1,000 more for each 4 KiB page of the heap that a message changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Messages that append, or upload parts of, a block.
    pub append_messages: u64,
    /// Instructions inside them.
    pub append_instructions: u64,
    /// Instructions charged for them.
    pub append_charged: u64,
    /// Instructions inside messages that create UTXO records, or upload parts of a transaction.
    pub create_instructions: u64,
    /// Instructions inside messages that spend outputs.
    pub spend_instructions: u64,
    /// Firings of the timer.
    pub timer_firings: u64,
    /// Instructions inside everything that the timer starts: its firing, the library's calls to itself, the daemon.
    pub timer_instructions: u64,
    /// Instructions charged for all that.
    pub timer_charged: u64,
    /// The first execution that trapped, if one did.
    pub trap: Option<String>,
}

impl Costs {
    fn add(&mut self, execution: &Execution) {
        if let Outcome::Trapped { message, .. } = &execution.outcome
            && self.trap.is_none()
        {
            self.trap = Some(format!("{:?} {} trapped: {message}", execution.kind, execution.method));
        }
        // Its callbacks belong to the firing, which has no name.
        let update = |methods: &[&str]| execution.kind == Kind::Update && methods.contains(&execution.method.as_str());
        let of_the_timer = matches!(execution.kind, Kind::Timer | Kind::ReplyCallback) && execution.method.is_empty();
        if of_the_timer || execution.method.starts_with(TIMER_CALLS) {
            self.timer_firings += u64::from(execution.kind == Kind::Timer);
            self.timer_instructions += execution.instructions;
            self.timer_charged += execution.instructions_charged;
        } else if update(&APPENDING) {
            self.append_messages += 1;
            self.append_instructions += execution.instructions;
            self.append_charged += execution.instructions_charged;
        } else if update(&CREATING) {
            self.create_instructions += execution.instructions;
        } else if update(&[SPENDING]) {
            self.spend_instructions += execution.instructions;
        }
    }
}

/// A canister of its own on an embedded host.
///
/// Its callers are four, and who calls is said by the method.
pub struct Embedded {
    host: Arc<Host>,
    canister: Principal,
    operator: Principal,
    producer: Principal,
    exporter: Principal,
    blob_worker: Principal,
    costs: Mutex<Costs>,
}

impl Embedded {
    /// Starts a host and installs the canister on it, with a principal that controls it, one that is its
    /// producer, and one that may become an exporter.
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
        host.try_install_canister(canister, wasm, install_arg(producer)?, Some(operator))
            .context("cannot install the canister")?;
        Ok(Client::new(Self { host, canister, operator, producer, exporter, blob_worker, costs: Mutex::default() }))
    }

    /// The canister's principal.
    pub fn canister(&self) -> Principal {
        self.canister
    }

    /// Who may call a method.
    fn sender(&self, method: &str) -> Principal {
        let required = TABLE.iter().find(|(name, _)| *name == method).map(|(_, required)| required);
        match required {
            Some(Required::Role(roles) | Required::Reader(roles)) => self.principal(roles[0]),
            // A query as an update is for anybody with a role.
            Some(Required::Nobody) | None => self.producer,
        }
    }
}

impl Transport for Embedded {
    const REPLICATED: bool = true;

    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let sender = self.sender(method);
        coppice_client::Embedded::new(self.host.clone(), self.canister, sender).update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let nobody = Principal::anonymous();
        coppice_client::Embedded::new(self.host.clone(), self.canister, nobody).query(method, arg).await
    }
}

impl Reach for Embedded {
    fn principal(&self, role: Role) -> Principal {
        match role {
            Role::Operator | Role::Admin | Role::Observer => self.operator,
            Role::Exporter => self.exporter,
            Role::BlobWorker => self.blob_worker,
            Role::Producer | Role::BlockProducer | Role::UtxoFeeder | Role::Alert => self.producer,
        }
    }
}

impl Site for Embedded {
    fn now_secs(&self) -> u64 {
        self.host.get_time_nanos() / 1_000_000_000
    }

    /// Whatever timers come due in that time fire.
    fn pass(&self, time: Duration) {
        self.host.advance_time(time);
        self.host.tick();
    }

    fn await_timer(&self, interval: Duration) {
        // The first firing may lie a whole interval off, and the library replays what it missed.
        self.pass(interval);
        self.pass(interval);
    }

    fn patience(&self) -> u32 {
        1
    }

    /// The host remembers some thousands of executions: ask at least every so often.
    fn costs(&self) -> Result<Option<Costs>> {
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        self.host.take_executions().iter().for_each(|execution| costs.add(execution));
        match &costs.trap {
            Some(trap) => bail!("{trap}"),
            None => Ok(Some(costs.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_sorted_by_what_they_are_of() {
        let execution = |kind, method: &str, instructions| Execution {
            canister: Principal::anonymous(),
            kind,
            method: method.into(),
            instructions,
            heap_pages_written: 1,
            instructions_charged: instructions + 1_000,
            stable_pages_read: 0,
            stable_pages_written: 0,
            system_calls: 0,
            outcome: Outcome::Completed,
        };
        let mut costs = Costs::default();
        costs.add(&execution(Kind::Update, "append_block", 1));
        costs.add(&execution(Kind::Update, "put_block_chunk", 2));
        costs.add(&execution(Kind::Update, "set_config", 4));
        costs.add(&execution(Kind::InspectMessage, "append_block", 8));
        costs.add(&execution(Kind::Timer, "", 16));
        costs.add(&execution(Kind::Update, "<ic-cdk internal> timer_executor", 32));
        costs.add(&execution(Kind::ReplyCallback, "<ic-cdk internal> timer_executor", 64));
        costs.add(&execution(Kind::Update, "utxo_create", 128));
        costs.add(&execution(Kind::Update, "utxo_spend", 256));
        let expected = Costs {
            append_messages: 2,
            append_instructions: 3,
            append_charged: 2_003,
            create_instructions: 128,
            spend_instructions: 256,
            timer_firings: 1,
            timer_instructions: 112,
            timer_charged: 3_112,
            trap: None,
        };
        assert_eq!(costs, expected);
        let outcome = Outcome::Trapped { code: coppice_host::ErrorCode::CanisterCalledTrap, message: "why".into() };
        costs.add(&Execution { outcome, ..execution(Kind::Timer, "", 0) });
        assert!(costs.trap.is_some_and(|trap| trap.contains("why")));
    }
}
