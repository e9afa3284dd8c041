//! A canister: its state, and the preparation, run, commit or rollback of one execution.
//!
//! [`State`] is the whole state of a canister. Cloning it is cheap because its memories are shared copy-on-write; snapshots and the
//! rollback of a failed upgrade are such clones. The live [`Instance`] is a cache of the state's heap: it may be dropped at any time and is
//! rebuilt when it is next needed.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use candid::Principal;

use crate::call_context::{CallContext, Callback};
use crate::certificate::{self, Keys};
use crate::context::{Answer, Environment, Input, OutgoingCall, Run};
use crate::cost;
use crate::cycles::{self, Saturation};
use crate::execution::{Execution, History, Kind, Outcome};
use crate::faults::Faults;
use crate::heap::HeapImage;
use crate::instance::{Entry, Instance};
use crate::limits::Limits;
use crate::log::Log;
use crate::module::CanisterModule;
use crate::settings::{Settings, Status};
use crate::stable_memory::{Journal, StableMemory};
use crate::trap::Trap;

/// The whole state of a canister.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) status: Status,
    pub(crate) balance: u128,
    /// Cycles set aside for storage.
    pub(crate) reserved: u128,
    /// Storage cost not charged yet, a fraction of a cycle.
    pub(crate) storage_carried: u128,
    pub(crate) version: u64,
    pub(crate) code: Option<Arc<CanisterModule>>,
    pub(crate) heap: HeapImage,
    pub(crate) stable: StableMemory,
    /// Nanoseconds since 1970, 0 when not set.
    pub(crate) timer: u64,
    pub(crate) certified_data: Vec<u8>,
    pub(crate) contexts: BTreeMap<u64, CallContext>,
    pub(crate) callbacks: BTreeMap<u64, Callback>,
    /// Bytes of the canister's snapshots.
    pub(crate) snapshot_bytes: u64,
    pub(crate) next_id: u64,
    pub(crate) log: Log,
}

impl State {
    pub(crate) fn new(settings: Settings, balance: u128) -> Self {
        State {
            settings,
            status: Status::Running,
            balance,
            reserved: 0,
            storage_carried: 0,
            version: 0,
            code: None,
            heap: HeapImage::default(),
            stable: StableMemory::default(),
            timer: 0,
            certified_data: Vec::new(),
            contexts: BTreeMap::new(),
            callbacks: BTreeMap::new(),
            snapshot_bytes: 0,
            next_id: 0,
            log: Log::default(),
        }
    }

    /// Bytes of heap, stable memory and module, which a snapshot copies.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.heap.bytes() + self.stable.bytes() + self.code.as_ref().map_or(0, |code| code.size)
    }

    /// Bytes that are paid for: those of the canister and of its snapshots.
    pub(crate) fn memory_usage(&self) -> u64 {
        self.own_bytes() + self.snapshot_bytes
    }

    /// Returns the balance below which nothing runs.
    pub(crate) fn freezing_limit(&self) -> u128 {
        cycles::freezing_limit(self.memory_usage(), self.settings.freezing_seconds).saturating_sub(self.reserved)
    }

    /// Returns the cycles above the freezing threshold.
    pub(crate) fn liquid(&self) -> u128 {
        self.balance.saturating_sub(self.freezing_limit())
    }

    /// Pays `price` for a change by which the memory grows by `bytes`, and reserves cycles for them if the subnet is above its threshold.
    /// Fails, and changes nothing, if the balance does not cover all of this above the freezing threshold.
    pub(crate) fn pay_for_growth(&mut self, bytes: u64, price: u128, saturation: Saturation) -> Result<(), Trap> {
        let (limit, reservation) = (self.settings.reserved_cycles_limit, saturation.reservation(bytes));
        if reservation > 0 && self.reserved + reservation > limit {
            let exceeded_by = self.reserved + reservation - limit;
            return Err(Trap::ReservedCyclesLimitExceededInMemoryGrow { bytes, limit, exceeded_by });
        }
        let storage = cycles::freezing_limit(self.memory_usage() + bytes, self.settings.freezing_seconds);
        let needed = price + reservation + storage.saturating_sub(self.reserved + reservation);
        if self.balance < needed {
            return Err(Trap::InsufficientCyclesInMemoryGrow { bytes, missing: needed - self.balance });
        }
        self.balance -= price + reservation;
        self.reserved += reservation;
        Ok(())
    }

    pub(crate) fn exports(&self, name: &str) -> bool {
        self.code.as_ref().is_some_and(|code| code.exports(name))
    }

    /// Returns a number for a call context or callback, never used before.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Removes code and data; settings, cycles and log stay.
    pub(crate) fn clear(&mut self) {
        self.code = None;
        self.heap = HeapImage::default();
        self.stable = StableMemory::default();
        self.timer = 0;
        self.certified_data.clear();
        self.version += 1;
    }
}

/// The contents of a snapshot: the parts of a canister that come back when it is loaded.
#[derive(Clone)]
pub(crate) struct Contents {
    pub(crate) heap: HeapImage,
    pub(crate) stable: StableMemory,
    pub(crate) code: Option<Arc<CanisterModule>>,
    pub(crate) certified_data: Vec<u8>,
    pub(crate) bytes: u64,
}

/// A canister on the host.
pub(crate) struct Canister {
    pub(crate) id: Principal,
    pub(crate) state: State,
    pub(crate) instance: Option<Instance>,
}

/// The parts of the subnet that an execution needs.
pub(crate) struct Surroundings<'a> {
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) limits: &'a Limits,
    pub(crate) faults: &'a Faults,
    pub(crate) history: &'a mut History,
    pub(crate) keys: &'a Arc<Keys>,
    /// True if certificates carry the real time, not `time`.
    pub(crate) certifies_real_time: bool,
    /// Wasm pages of stable memory that the other canisters have.
    pub(crate) stable_elsewhere: u64,
    pub(crate) saturation: Saturation,
}

/// An execution to run.
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) entry: Entry,
    pub(crate) input: Input,
    /// Most instructions it may use.
    pub(crate) limit: u64,
    /// Cycles already paid for the execution; `None`: it is paid from the balance.
    pub(crate) prepaid: Option<u128>,
}

/// Effects of an execution outside its canister.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) answer: Option<Answer>,
    pub(crate) calls: Vec<OutgoingCall>,
    pub(crate) cycles_accepted: u128,
    pub(crate) accepted: bool,
}

/// The end of an execution.
pub(crate) struct Done {
    pub(crate) result: Result<Effects, Trap>,
    /// Instructions that were paid for, heap pages included.
    pub(crate) instructions: u64,
}

impl Canister {
    pub(crate) fn new(id: Principal, state: State) -> Self {
        Canister { id, state, instance: None }
    }

    fn live_instance(&mut self) -> Result<Instance, Trap> {
        match (self.instance.take(), &self.state.code) {
            (Some(instance), _) => Ok(instance),
            (None, Some(code)) => Instance::from_image(code, &self.state.heap),
            (None, None) => Err(Trap::Wasm("the canister contains no Wasm module".into())),
        }
    }

    fn environment(&self, kind: Kind, around: &Surroundings<'_>) -> Environment {
        let limits = around.limits;
        Environment {
            canister: self.id,
            time: around.time,
            version: self.state.version,
            status: self.state.status.number(),
            settings: self.state.settings.clone(),
            saturation: around.saturation,
            keys: around.keys.clone(),
            certified_at: (kind == Kind::Query)
                .then(|| if around.certifies_real_time { certificate::real_time() } else { around.time }),
            stable_pages_max: limits
                .canister_stable_pages
                .min(limits.subnet_stable_pages.saturating_sub(around.stable_elsewhere)),
            stable_accesses: limits.stable_accesses(kind),
            stable_page_prices: limits.stable_page_prices,
            callback_instructions: limits.update_instructions,
        }
    }

    /// Runs a job, then commits or rolls back its changes. The caller has checked that the balance covers it.
    pub(crate) fn execute(&mut self, job: Job, around: &mut Surroundings<'_>) -> Done {
        let method = job.input.method.clone();
        let kind = job.kind;
        let mut instance = match self.live_instance() {
            Ok(instance) => instance,
            Err(trap) => return Done { result: Err(trap), instructions: 0 },
        };
        let free = matches!(kind, Kind::Query | Kind::InspectMessage);
        let prepaid = job.prepaid.unwrap_or_else(|| if free { 0 } else { cycles::execution(job.limit) });
        if job.prepaid.is_none() {
            self.state.balance = self.state.balance.saturating_sub(prepaid);
        }
        let stable = std::mem::take(&mut self.state.stable);
        let usage = self.state.memory_usage() + stable.bytes();
        let run = Box::new(Run {
            kind,
            environment: self.environment(kind, around),
            input: job.input,
            limit: job.limit,
            faults: around.faults.clone(),
            planned: around.faults.next_message(kind),
            trap_at_call: None,
            system_calls: 0,
            journal: Journal::start(&stable),
            stable,
            balance: self.state.balance,
            reserved: self.state.reserved,
            memory_usage: usage,
            cycles_accepted: 0,
            reply_data: Vec::new(),
            answer: None,
            call: None,
            calls: Vec::new(),
            timer: self.state.timer,
            certified_data: self.state.certified_data.clone(),
            certificate: OnceCell::new(),
            accepted: false,
            log: Vec::new(),
        });
        let ended = instance.execute(run, &job.entry);
        let mut run = ended.run;
        let mut execution = Execution {
            canister: self.id,
            kind,
            method,
            instructions: ended.instructions,
            heap_pages_written: 0,
            instructions_charged: ended.instructions,
            stable_pages_read: run.journal.pages_read(),
            stable_pages_written: run.journal.pages_written(),
            system_calls: run.system_calls,
            outcome: match &ended.result {
                Ok(()) => Outcome::Completed,
                Err(trap) => Outcome::Trapped { code: trap.code(), message: trap.to_string() },
            },
        };
        let keeps = ended.result.is_ok() && kind.keeps_changes();
        if keeps {
            execution.heap_pages_written = instance.commit(&mut self.state.heap);
            // A call that was built and never performed gives its cycles back.
            self.state.balance = run.balance + run.call.take().map_or(0, |call| call.cycles);
            self.state.reserved = run.reserved;
            self.state.timer = run.timer;
            self.state.certified_data = std::mem::take(&mut run.certified_data);
            self.state.version += 1;
            self.instance = Some(instance);
        } else {
            run.stable.roll_back(&mut run.journal);
            (self.instance, execution.heap_pages_written) = instance.roll_back(&self.state.heap);
        }
        self.state.stable = std::mem::take(&mut run.stable);
        // The platform charges for the pages of a message that trapped, too. It stops at the limit instead of trapping, so the prepaid
        // cycles are enough.
        if kind.keeps_changes() {
            let pages = cost::CHANGED_HEAP_PAGE * execution.heap_pages_written;
            execution.instructions_charged = (ended.instructions + pages).min(job.limit);
        }
        let instructions = execution.instructions_charged;
        around.history.push(execution);
        if !free {
            self.state.balance += prepaid.saturating_sub(cycles::execution(instructions));
            self.write_log(&mut run, ended.result.as_ref().err(), around.time);
        }
        let effects = ended.result.map(|()| Effects {
            answer: run.answer.take(),
            calls: std::mem::take(&mut run.calls),
            cycles_accepted: run.cycles_accepted,
            accepted: run.accepted,
        });
        Done { result: effects, instructions }
    }

    /// Debug output stays when the message traps, as on the platform.
    fn write_log(&mut self, run: &mut Run, trap: Option<&Trap>, time: u64) {
        let limit = self.state.settings.log_bytes;
        for line in run.log.drain(..) {
            self.state.log.push(time, line, limit);
        }
        if let Some(trap) = trap {
            self.state.log.push(time, format!("[TRAP]: {trap}").into_bytes(), limit);
        }
    }
}
