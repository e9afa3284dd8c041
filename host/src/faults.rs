//! Injected faults, which a real platform does not let a test cause.
//!
//! A canister must survive a trap, a refused growth, an empty balance and an upgrade at any point. A [`Faults`] is a handle on the host's
//! plan of faults. Each execution counts as a message: updates, timers, callbacks, and the hooks of installations and upgrades; queries and
//! `canister_inspect_message` do not count. An injected trap rolls back exactly as a real one; its message contains
//! [`INJECTED_FAULT`](crate::INJECTED_FAULT).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candid::Principal;

use crate::execution::Kind;
use crate::reject::RejectResponse;

/// The point in a message at which a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapPoint {
    /// Before the first instruction.
    Start,
    /// As soon as the message has used this many instructions; a message that uses fewer is not affected. Like every limit, it is checked
    /// at the next loop, function or system call.
    Instructions(u64),
    /// At the n-th system call, counted from 1, before the call has an effect.
    SystemCall(u64),
    /// After the last instruction. All work is done, and nothing is kept.
    End,
}

/// A read or a write of stable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StableAccess {
    /// True for a write.
    pub writes: bool,
    /// Offset in stable memory, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

/// The plan for one message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planned {
    /// The point at which the message traps.
    pub(crate) point: Option<TrapPoint>,
    /// The access after which the message traps, and the number of the system call from that access on.
    pub(crate) after_access: Option<(StableAccess, u64)>,
    /// True if the message's accesses of stable memory are recorded.
    pub(crate) watched: bool,
    /// Factor applied to the performance counters; 0: 1.
    pub(crate) counted: u64,
}

/// The fault at a growth of stable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthFault {
    /// The growth returns -1.
    Refuse,
    /// The growth traps for lack of cycles.
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
    after_access: Option<(StableAccess, u64)>,
    watched: Option<Vec<StableAccess>>,
    counted: u64,
    growths: BTreeMap<u64, GrowthFault>,
    growths_seen: u64,
    balances: Vec<(Principal, u128)>,
    upgrades: BTreeMap<u64, PlannedUpgrade>,
    upgrade_results: Vec<Result<(), RejectResponse>>,
    random: VecDeque<Result<Vec<u8>, String>>,
}

/// A handle on the faults of a host; clones share the plan.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Traps the `k`-th message from now; the next message is the first.
    pub fn trap_message(&self, k: u64, point: TrapPoint) {
        let mut plan = self.plan();
        let at = plan.messages + k;
        plan.traps.insert(at, point);
    }

    /// Traps every message from now until [`Faults::clear`].
    pub fn trap_every_message(&self, point: TrapPoint) {
        self.plan().every = Some(point);
    }

    /// Traps every message that makes this access of stable memory, until [`Faults::clear`]. The trap strikes at the `n`-th system call
    /// from the first such access, which itself is the 1st, before that call has an effect. If only one piece of work makes this access,
    /// that piece traps in whichever message it runs.
    pub fn trap_after_access(&self, access: StableAccess, n: u64) {
        self.plan().after_access = Some((access, n));
    }

    /// Records the accesses of stable memory of every message from now until [`Faults::take_accesses`].
    pub fn watch_accesses(&self) {
        self.plan().watched = Some(Vec::new());
    }

    /// Returns the accesses since [`Faults::watch_accesses`], in order, including those of messages that trapped.
    pub fn take_accesses(&self) -> Vec<StableAccess> {
        self.plan().watched.take().unwrap_or_default()
    }

    /// Multiplies the performance counters of every message by a factor, until [`Faults::clear`]. A canister that measures a slice of its
    /// work in each message then does a smaller slice.
    pub fn multiply_counters(&self, by: u64) {
        self.plan().counted = by;
    }

    /// Makes the `k`-th `stable_grow` from now return -1; the next call is the first.
    pub fn refuse_growth(&self, k: u64) {
        let mut plan = self.plan();
        let at = plan.growths_seen + k;
        plan.growths.insert(at, GrowthFault::Refuse);
    }

    /// Makes the `k`-th `stable_grow` from now trap for lack of cycles (IC0532); the next call is the first.
    pub fn trap_growth(&self, k: u64) {
        let mut plan = self.plan();
        let at = plan.growths_seen + k;
        plan.growths.insert(at, GrowthFault::Trap);
    }

    /// Sets the balance of a canister, in cycles, before the next message.
    pub fn low_cycles(&self, canister: Principal, balance: u128) {
        self.plan().balances.push((canister, balance));
    }

    /// Upgrades a canister before the `k`-th message from now, even with calls in flight. The sender is one of its controllers.
    /// [`Faults::upgrade_results`] returns the result.
    pub fn upgrade_before(&self, k: u64, canister: Principal, wasm: Vec<u8>, arg: Vec<u8>) {
        let mut plan = self.plan();
        let at = plan.messages + k;
        plan.upgrades.insert(at, PlannedUpgrade { canister, wasm, arg });
    }

    /// Answers the next `raw_rand` without a planned answer with this reply, which need not be Candid, or with a reject.
    pub fn answer_random(&self, reply: Result<Vec<u8>, String>) {
        self.plan().random.push_back(reply);
    }

    pub(crate) fn take_random(&self) -> Option<Result<Vec<u8>, String>> {
        let mut plan = self.plan();
        let planned = plan.random.pop_front();
        plan.injected += u64::from(planned.is_some());
        planned
    }

    /// Returns the results of planned upgrades since the last call, in order.
    pub fn upgrade_results(&self) -> Vec<Result<(), RejectResponse>> {
        std::mem::take(&mut self.plan().upgrade_results)
    }

    /// Returns the number of messages executed so far.
    pub fn messages(&self) -> u64 {
        self.plan().messages
    }

    /// Returns the number of faults that struck so far: traps, growths, balances and upgrades.
    pub fn injected(&self) -> u64 {
        self.plan().injected
    }

    /// Forgets every fault that has not struck.
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

    /// Counts a message and returns its plan.
    pub(crate) fn next_message(&self, kind: Kind) -> Planned {
        if matches!(kind, Kind::Query | Kind::InspectMessage) {
            return Planned::default();
        }
        let mut plan = self.plan();
        plan.messages += 1;
        let number = plan.messages;
        let point = plan.traps.remove(&number).or(plan.every);
        Planned { point, after_access: plan.after_access, watched: plan.watched.is_some(), counted: plan.counted }
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

    /// Returns a planned upgrade that is due before the next message.
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
