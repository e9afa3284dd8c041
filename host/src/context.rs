//! State of the executing message, which the system API reads and writes.
//!
//! A [`Run`] is created for one execution, put into the Wasmtime store, and taken out again with its effects. Its contents reach the
//! canister only if the execution succeeds, except stable memory, which has its own undo log.

use std::cell::OnceCell;
use std::sync::Arc;

use candid::Principal;
use wasmtime::{Memory, ResourceLimiter};

use crate::certificate::Keys;
use crate::cycles::{self, Saturation};
use crate::execution::Kind;
use crate::faults::{Faults, Planned, StableAccess, TrapPoint};
use crate::limits::{OS_PAGE, StablePagePrices};
use crate::settings::Settings;
use crate::stable_memory::{Journal, StableMemory};
use crate::trap::Trap;

/// A callback: an index into the table and its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closure {
    pub(crate) function: u32,
    pub(crate) env: u32,
}

/// A call that a message makes.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingCall {
    pub(crate) callee: Principal,
    pub(crate) method: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) on_reply: Closure,
    pub(crate) on_reject: Closure,
    pub(crate) on_cleanup: Option<Closure>,
    pub(crate) cycles: u128,
    /// Seconds after which a best-effort call is rejected (`deadlines.rs`); `None` for a call whose answer is waited for.
    pub(crate) timeout: Option<u32>,
    /// Cycles paid in advance.
    pub(crate) prepaid: u128,
}

/// A message's answer to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(Vec<u8>),
    Reject(String),
}

/// The canister and the subnet, as a message sees them.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) canister: Principal,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) version: u64,
    pub(crate) status: u32,
    pub(crate) settings: Settings,
    /// Memory usage of the subnet before the message.
    pub(crate) saturation: Saturation,
    /// The keys that sign certificates.
    pub(crate) keys: Arc<Keys>,
    /// The time of the certificate, in nanoseconds since 1970; `None` if the message has no certificate.
    pub(crate) certified_at: Option<u64>,
    /// Most Wasm pages of stable memory this canister may have.
    pub(crate) stable_pages_max: u64,
    /// Most distinct 4 KiB pages that may be read, and most that may be written.
    pub(crate) stable_accesses: u64,
    pub(crate) stable_page_prices: StablePagePrices,
    /// Instructions of a callback, to be paid in advance.
    pub(crate) callback_instructions: u64,
}

/// The input of a message.
#[derive(Clone, Default)]
pub(crate) struct Input {
    pub(crate) caller: Vec<u8>,
    pub(crate) method: String,
    pub(crate) arg: Vec<u8>,
    /// The code and message of the reject, in a reject callback.
    pub(crate) reject: Option<(u32, String)>,
    /// Nanoseconds since 1970, 0 for calls that don't time out.
    pub(crate) deadline: u64,
    pub(crate) cycles_available: u128,
    pub(crate) cycles_refunded: u128,
    /// True if an earlier message of the call has answered it, or the call needs no answer.
    pub(crate) answered: bool,
    /// Instructions of the earlier messages of the call.
    pub(crate) instructions_before: u64,
}

/// The state of one execution.
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) environment: Environment,
    pub(crate) input: Input,
    pub(crate) limit: u64,
    pub(crate) faults: Faults,
    pub(crate) planned: Planned,
    /// The system call at which a fault strikes, once its access of stable memory was seen.
    pub(crate) trap_at_call: Option<u64>,
    pub(crate) system_calls: u64,
    pub(crate) stable: StableMemory,
    pub(crate) journal: Journal,
    /// Spendable cycles; the execution itself has been paid for.
    pub(crate) balance: u128,
    /// Cycles set aside for storage.
    pub(crate) reserved: u128,
    /// Bytes of heap, stable memory and code.
    pub(crate) memory_usage: u64,
    pub(crate) cycles_accepted: u128,
    pub(crate) reply_data: Vec<u8>,
    pub(crate) answer: Option<Answer>,
    pub(crate) call: Option<OutgoingCall>,
    pub(crate) calls: Vec<OutgoingCall>,
    pub(crate) timer: u64,
    pub(crate) certified_data: Vec<u8>,
    /// The certificate, once the message has read it.
    pub(crate) certificate: OnceCell<Vec<u8>>,
    pub(crate) accepted: bool,
    pub(crate) log: Vec<Vec<u8>>,
}

impl Run {
    /// Returns the initial fuel: the instruction limit, or the point of an injected fault before it.
    pub(crate) fn fuel_limit(&self) -> u64 {
        match self.planned.point {
            Some(TrapPoint::Instructions(n)) => n.min(self.limit),
            _ => self.limit,
        }
    }

    pub(crate) fn at_start(&self) -> Result<(), Trap> {
        self.strike(self.planned.point == Some(TrapPoint::Start), &"at the start of the message")
    }

    pub(crate) fn at_end(&self) -> Result<(), Trap> {
        self.strike(self.planned.point == Some(TrapPoint::End), &"at the end of the message")
    }

    /// Counts a system call.
    pub(crate) fn at_system_call(&mut self, name: &str) -> Result<(), Trap> {
        self.system_calls += 1;
        let strikes = self.planned.point == Some(TrapPoint::SystemCall(self.system_calls))
            || self.trap_at_call == Some(self.system_calls);
        self.strike(strikes, &format_args!("at system call {}, ic0.{name}", self.system_calls))
    }

    /// Checks for faults at an access of stable memory, before the access has an effect.
    pub(crate) fn at_stable_access(&mut self, writes: bool, offset: u64, size: u64) -> Result<(), Trap> {
        let access = StableAccess { writes, offset, size };
        if self.planned.watched {
            self.faults.accessed(access);
        }
        match self.planned.after_access {
            Some((at, n)) if at == access && self.trap_at_call.is_none() => {
                self.trap_at_call = Some(self.system_calls + n.saturating_sub(1));
                self.strike(n <= 1, &format_args!("at an access of stable memory, {access:?}"))
            }
            _ => Ok(()),
        }
    }

    fn strike(&self, strikes: bool, place: &dyn std::fmt::Display) -> Result<(), Trap> {
        if !strikes {
            return Ok(());
        }
        self.faults.struck();
        Err(Trap::Injected(place.to_string()))
    }

    /// Turns the end of the fuel into an injected fault, if a fault set it instead of the platform's limit.
    pub(crate) fn explain(&self, trap: Trap) -> Trap {
        match (&trap, self.planned.point) {
            (Trap::InstructionLimit(_), Some(TrapPoint::Instructions(n))) if n < self.limit => {
                self.faults.struck();
                Trap::Injected(format!("after {n} instructions"))
            }
            _ => trap,
        }
    }

    /// Returns the cycles above the freezing threshold.
    pub(crate) fn liquid(&self) -> u128 {
        self.balance.saturating_sub(self.freezing_limit(self.memory_usage))
    }

    /// Returns the balance below which a canister that uses `bytes` of memory is frozen.
    fn freezing_limit(&self, bytes: u64) -> u128 {
        cycles::freezing_limit(bytes, self.environment.settings.freezing_seconds).saturating_sub(self.reserved)
    }

    /// Adds `bytes` to the memory usage, and reserves cycles for them if the subnet is above its threshold. Fails if that would freeze the
    /// canister, or reserve more than its limit.
    pub(crate) fn use_memory(&mut self, bytes: u64) -> Result<(), Trap> {
        let usage = self.memory_usage + bytes;
        if self.kind.keeps_changes() {
            let insufficient = |missing: u128| Trap::InsufficientCyclesInMemoryGrow { bytes, missing };
            let needed = self.freezing_limit(usage);
            if self.balance < needed {
                return Err(insufficient(needed - self.balance));
            }
            let (saturation, limit) = (self.environment.saturation, self.environment.settings.reserved_cycles_limit);
            let reservation = saturation.reservation(bytes);
            if reservation > 0 && self.reserved + reservation > limit {
                let exceeded_by = self.reserved + reservation - limit;
                return Err(Trap::ReservedCyclesLimitExceededInMemoryGrow { bytes, limit, exceeded_by });
            }
            if self.balance < reservation {
                return Err(insufficient(reservation - self.balance));
            }
            self.balance -= reservation;
            self.reserved += reservation;
            self.environment.saturation = saturation.with(bytes);
        }
        self.memory_usage = usage;
        Ok(())
    }

    /// Returns the certificate of the certified data, which is signed when the message first reads it.
    pub(crate) fn certificate(&self) -> Result<&[u8], Trap> {
        let Environment { keys, canister, certified_at: Some(time), .. } = &self.environment else { return Ok(&[]) };
        if let Some(certificate) = self.certificate.get() {
            return Ok(certificate);
        }
        let signed = keys.of_data(*canister, &self.certified_data, *time);
        let signed = signed.map_err(|error| Trap::Wasm(error.to_string()))?;
        Ok(self.certificate.get_or_init(|| signed))
    }

    /// Checks the limit of stable pages touched.
    pub(crate) fn check_accesses(&self) -> Result<(), Trap> {
        let limit = self.environment.stable_accesses;
        if self.journal.pages_read() > limit || self.journal.pages_written() > limit {
            return Err(Trap::StableAccessLimit(limit * OS_PAGE as u64 / 1024));
        }
        Ok(())
    }
}

/// The data of a Wasmtime store.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) run: Option<Box<Run>>,
    pub(crate) memory: Option<Memory>,
}

impl Context {
    /// Returns the running message. The system API is reachable only from Wasm, which runs only within a message.
    pub(crate) fn run(&mut self) -> &mut Run {
        self.run.as_mut().expect("Wasm runs only within a message")
    }
}

impl ResourceLimiter for Context {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        // Without a message, the host is rebuilding an instance.
        let Some(run) = self.run.as_mut() else { return Ok(true) };
        let limit = run.environment.settings.wasm_memory_limit;
        let limited =
            matches!(run.kind, Kind::Init | Kind::PostUpgrade | Kind::PreUpgrade | Kind::Update | Kind::Start);
        if limited && limit > 0 && desired as u64 > limit {
            return Err(Trap::WasmMemoryLimit(limit).into());
        }
        run.use_memory((desired - current) as u64)?;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 1_000_000)
    }
}
