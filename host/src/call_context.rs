//! Calls in progress: the origin that waits for an answer, and the outstanding callbacks.

use candid::Principal;

use crate::context::Closure;

/// The id of a call that was submitted from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub(crate) u64);

/// The receiver of a call's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client outside the subnet.
    Ingress(MessageId),
    /// A callback of a canister. `bounded`: the call waits for a bounded time.
    Canister { caller: Principal, callback: u64, bounded: bool },
    /// No receiver: a timer or a hook.
    System,
}

/// A call a canister has begun to execute.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) origin: Origin,
    pub(crate) caller: Vec<u8>,
    pub(crate) method: String,
    pub(crate) deadline: u64,
    /// Cycles that came with the call and have not been accepted.
    pub(crate) cycles: u128,
    pub(crate) answered: bool,
    /// Callbacks still to come.
    pub(crate) outstanding: u64,
    /// Instructions of its messages so far.
    pub(crate) instructions: u64,
}

/// The callbacks of an outgoing call, with its deadline and prepaid cycles.
#[derive(Clone, Debug)]
pub(crate) struct Callback {
    pub(crate) context: u64,
    /// The time when the caller stops waiting, in nanoseconds since 1970; 0: never.
    pub(crate) deadline: u64,
    pub(crate) on_reply: Closure,
    pub(crate) on_reject: Closure,
    pub(crate) on_cleanup: Option<Closure>,
    /// Cycles paid in advance for the longest reply and its execution.
    pub(crate) prepaid: u128,
}
