//! The host's report about every execution.

use candid::Principal;

use crate::reject::ErrorCode;

/// The kind of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The module's `start` function, at install and upgrade.
    Start,
    /// `canister_init`.
    Init,
    /// `canister_pre_upgrade`.
    PreUpgrade,
    /// `canister_post_upgrade`.
    PostUpgrade,
    /// `canister_inspect_message`.
    InspectMessage,
    /// An update method.
    Update,
    /// A query method, called as a query: its changes are thrown away.
    Query,
    /// A query method in a replicated call: its changes are thrown away too.
    ReplicatedQuery,
    /// `canister_global_timer`.
    Timer,
    /// The callback of a call that was replied to.
    ReplyCallback,
    /// The callback of a call that was rejected.
    RejectCallback,
    /// The cleanup after a callback that trapped.
    Cleanup,
}

impl Kind {
    /// The platform's name of the mode, as in its messages.
    pub(crate) fn mode(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::Init | Kind::PostUpgrade => "init",
            Kind::PreUpgrade => "pre upgrade",
            Kind::InspectMessage => "inspect message",
            Kind::Update => "update",
            Kind::Query => "non replicated query",
            Kind::ReplicatedQuery => "replicated query",
            Kind::Timer => "system task",
            Kind::ReplyCallback => "reply callback",
            Kind::RejectCallback => "reject callback",
            Kind::Cleanup => "cleanup",
        }
    }

    /// Returns true if its changes are kept, unless it traps.
    pub fn keeps_changes(self) -> bool {
        !matches!(self, Kind::InspectMessage | Kind::Query | Kind::ReplicatedQuery)
    }
}

/// The outcome of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The execution ran to its end.
    Completed,
    /// The execution trapped; all its changes were undone.
    Trapped {
        /// The code a caller sees.
        code: ErrorCode,
        /// The reason, without the canister's name.
        message: String,
    },
}

/// One execution: a message, a timer, a callback or a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The canister that ran.
    pub canister: Principal,
    /// The kind of execution.
    pub kind: Kind,
    /// The method's name, or that of the method whose callback this is; empty for timers and hooks.
    pub method: String,
    /// Instructions of the whole execution, by the platform's prices: the value of `performance_counter` at its end.
    pub instructions: u64,
    /// Distinct 4 KiB pages of the heap whose content changed, even if the change was undone. A page rewritten with the same bytes does not
    /// count. New pages count if they hold anything but zeros.
    pub heap_pages_written: u64,
    /// Instructions that are paid for: `instructions` plus 1,000 for each heap page, at most the limit. The platform charges nothing for
    /// heap pages changed by queries.
    pub instructions_charged: u64,
    /// Distinct 4 KiB pages of stable memory read.
    pub stable_pages_read: u64,
    /// Distinct 4 KiB pages of stable memory written.
    pub stable_pages_written: u64,
    /// Calls of the system API.
    pub system_calls: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// Sums over all executions of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Executions, queries included.
    pub executions: u64,
    /// Executions that trapped.
    pub trapped: u64,
    /// Sum of [`Execution::instructions`].
    pub instructions: u128,
    /// 4 KiB pages of the heap whose content changed, summed over the executions.
    pub heap_pages_written: u128,
    /// Instructions that are paid for, heap pages included.
    pub instructions_charged: u128,
    /// Distinct 4 KiB stable pages read, summed over the executions.
    pub stable_pages_read: u128,
    /// Distinct 4 KiB stable pages written, summed over the executions.
    pub stable_pages_written: u128,
}

impl Totals {
    /// Counts an execution.
    pub fn add(&mut self, execution: &Execution) {
        self.executions += 1;
        self.trapped += u64::from(execution.outcome != Outcome::Completed);
        self.instructions += u128::from(execution.instructions);
        self.heap_pages_written += u128::from(execution.heap_pages_written);
        self.instructions_charged += u128::from(execution.instructions_charged);
        self.stable_pages_read += u128::from(execution.stable_pages_read);
        self.stable_pages_written += u128::from(execution.stable_pages_written);
    }
}

/// Most executions kept until they are taken; the oldest are dropped.
const KEPT: usize = 10_000;

/// Bounded record of executions.
#[derive(Default)]
pub(crate) struct History {
    recent: std::collections::VecDeque<Execution>,
    last: Option<Execution>,
    pub(crate) totals: Totals,
    /// Changed 4 KiB pages of stable memory and heaps, in executions whose changes were kept.
    pub(crate) pages_dirtied: u64,
}

impl History {
    pub(crate) fn push(&mut self, execution: Execution) {
        self.totals.add(&execution);
        if execution.outcome == Outcome::Completed && execution.kind.keeps_changes() {
            self.pages_dirtied += execution.stable_pages_written + execution.heap_pages_written;
        }
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.last = Some(execution.clone());
        self.recent.push_back(execution);
    }

    pub(crate) fn last(&self) -> Option<Execution> {
        self.last.clone()
    }

    pub(crate) fn take(&mut self) -> Vec<Execution> {
        self.recent.drain(..).collect()
    }
}
