//! Faults that no real platform lets a test cause.
//!
//! A canister must survive a trap, a refused growth, an empty balance and an upgrade at any point. A [`Faults`] is a
//! handle on the host's plan of them. Messages are counted as they are executed, one execution a message: updates,
//! timers, callbacks and the hooks of installations and upgrades count; queries and `canister_inspect_message` don't.
//! An injected trap rolls back exactly as a real one; its message contains [`INJECTED_FAULT`](crate::INJECTED_FAULT).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candid::Principal;

use crate::execution::Kind;
use crate::reject::RejectResponse;

/// Where in a message a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapPoint {
    /// Before its first instruction.
    Start,
    /// As soon as it has used this many instructions; a message that uses fewer isn't touched. Noticed at the next
    /// loop, function or system call, as all limits are.
    Instructions(u64),
    /// At its n-th call of the system API, counted from 1, before the call has an effect.
    SystemCall(u64),
    /// After its last instruction, when everything is done and nothing is kept.
    End,
}

/// A read or a write of stable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StableAccess {
    /// Whether it writes.
    pub writes: bool,
    /// Bytes from the start of stable memory.
    pub offset: u64,
    /// Bytes of it.
    pub size: u64,
}

/// What the plan says of a message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planned {
    /// Where it traps.
    pub(crate) point: Option<TrapPoint>,
    /// The access behind which it traps, and at which system call from there on.
    pub(crate) behind: Option<(StableAccess, u64)>,
    /// Whether its accesses of stable memory are noted.
    pub(crate) watched: bool,
    /// How many times what was used its performance counters answer; 0: once.
    pub(crate) counted: u64,
}

/// What happens at a growth of stable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthFault {
    /// -1 is answered.
    Refuse,
    /// A trap for want of cycles.
    Trap,
}

#[derive(Clone)]
pub(crate) struct PlannedUpgrade {
    pub(crate) canister: Principal,
    pub(crate) wasm: Vec<u8>,
    pub(crate) arg: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Plan {
    messages: u64,
    injected: u64,
    traps: BTreeMap<u64, TrapPoint>,
    every: Option<TrapPoint>,
    behind: Option<(StableAccess, u64)>,
    watched: Option<Vec<StableAccess>>,
    counted: u64,
    growths: BTreeMap<u64, GrowthFault>,
    growths_seen: u64,
    balances: Vec<(Principal, u128)>,
    upgrades: BTreeMap<u64, PlannedUpgrade>,
    upgrade_results: Vec<Result<(), RejectResponse>>,
}

/// A handle on the faults of a host; clones share the plan.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Traps the `k`-th message from now, the next being the first.
    pub fn trap_message(&self, k: u64, point: TrapPoint) {
        let mut plan = self.plan();
        let at = plan.messages + k;
        plan.traps.insert(at, point);
    }

    /// Traps every message from now until [`Faults::clear`].
    pub fn trap_every_message(&self, point: TrapPoint) {
        self.plan().every = Some(point);
    }

    /// Traps every message that does this access of stable memory, at its `n`-th system call from the first such access on,
    /// itself being the 1st, before that call has an effect; until [`Faults::clear`]. This is how a piece of work traps
    /// whatever message it is in, when the access is one that only this piece does.
    pub fn trap_behind_access(&self, access: StableAccess, n: u64) {
        self.plan().behind = Some((access, n));
    }

    /// Notes the accesses of stable memory of every message from now until [`Faults::take_accesses`].
    pub fn watch_accesses(&self) {
        self.plan().watched = Some(Vec::new());
    }

    /// The accesses since [`Faults::watch_accesses`], in order, those of messages that trapped too.
    pub fn take_accesses(&self) -> Vec<StableAccess> {
        self.plan().watched.take().unwrap_or_default()
    }

    /// Has the performance counters of every message from now until [`Faults::clear`] answer so many times the instructions that it
    /// used: a canister that does a slice of its work in each message then does a smaller one.
    pub fn multiply_counters(&self, by: u64) {
        self.plan().counted = by;
    }

    /// Answers -1 to the `k`-th `stable_grow` from now, the next being the first.
    pub fn refuse_growth(&self, k: u64) {
        let mut plan = self.plan();
        let at = plan.growths_seen + k;
        plan.growths.insert(at, GrowthFault::Refuse);
    }

    /// Traps the `k`-th `stable_grow` from now for want of cycles (IC0532), the next being the first.
    pub fn trap_growth(&self, k: u64) {
        let mut plan = self.plan();
        let at = plan.growths_seen + k;
        plan.growths.insert(at, GrowthFault::Trap);
    }

    /// Sets the balance of a canister, in cycles, before the next message is considered.
    pub fn low_cycles(&self, canister: Principal, balance: u128) {
        self.plan().balances.push((canister, balance));
    }

    /// Upgrades a canister before the `k`-th message from now, whatever is in flight then; the sender is a
    /// controller of it. [`Faults::upgrade_results`] has the result.
    pub fn upgrade_before(&self, k: u64, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>) {
        let mut plan = self.plan();
        let at = plan.messages + k;
        plan.upgrades.insert(at, PlannedUpgrade { canister, wasm, arg });
    }

    /// The results of planned upgrades since the last call, in order.
    pub fn upgrade_results(&self) -> Vec<Result<(), RejectResponse>> {
        std::mem::take(&mut self.plan().upgrade_results)
    }

    /// Messages executed so far.
    pub fn messages(&self) -> u64 {
        self.plan().messages
    }

    /// Faults that struck so far: traps, growths, balances and upgrades.
    pub fn injected(&self) -> u64 {
        self.plan().injected
    }

    /// Forgets every fault that hasn't struck.
    pub fn clear(&self) {
        let mut plan = self.plan();
        *plan = Plan {
            messages: plan.messages,
            injected: plan.injected,
            growths_seen: plan.growths_seen,
            upgrade_results: std::mem::take(&mut plan.upgrade_results),
            watched: plan.watched.take(),
            ..Plan::default()
        };
    }

    /// Counts a message and says where it shall trap.
    pub(crate) fn next_message(&self, kind: Kind) -> Planned {
        if matches!(kind, Kind::Query | Kind::InspectMessage) {
            return Planned::default();
        }
        let mut plan = self.plan();
        plan.messages += 1;
        let number = plan.messages;
        let point = plan.traps.remove(&number).or(plan.every);
        Planned { point, behind: plan.behind, watched: plan.watched.is_some(), counted: plan.counted }
    }

    pub(crate) fn accessed(&self, access: StableAccess) {
        if let Some(watched) = &mut self.plan().watched {
            watched.push(access);
        }
    }

    pub(crate) fn next_growth(&self) -> Option<GrowthFault> {
        let mut plan = self.plan();
        plan.growths_seen += 1;
        let number = plan.growths_seen;
        let fault = plan.growths.remove(&number);
        plan.injected += u64::from(fault.is_some());
        fault
    }

    pub(crate) fn struck(&self) {
        self.plan().injected += 1;
    }

    pub(crate) fn take_balances(&self) -> Vec<(Principal, u128)> {
        let mut plan = self.plan();
        plan.injected += plan.balances.len() as u64;
        std::mem::take(&mut plan.balances)
    }

    /// A planned upgrade that is due before the next message.
    pub(crate) fn take_upgrade(&self) -> Option<PlannedUpgrade> {
        let mut plan = self.plan();
        let next = plan.messages + 1;
        let (&at, _) = plan.upgrades.range(..=next).next()?;
        plan.injected += 1;
        plan.upgrades.remove(&at)
    }

    pub(crate) fn upgraded(&self, result: Result<(), RejectResponse>) {
        self.plan().upgrade_results.push(result);
    }
}
