//! Calls in progress: who waits for an answer, and which callbacks are still to come.

use candid::Principal;

use crate::context::Closure;

/// Names a call that was submitted from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub(crate) u64);

/// Who is to get the answer of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Someone outside.
    Ingress(MessageId),
    /// A canister, by a callback of it; `bounded` where it waits for a bounded time.
    Canister { caller: Principal, callback: u64, bounded: bool },
    /// Nobody: a timer or a hook.
    System,
}

/// A call a canister has begun to execute.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) origin: Origin,
    pub(crate) caller: Vec<u8>,
    pub(crate) method: String,
    pub(crate) deadline: u64,
    /// Cycles that came with the call and haven't been accepted.
    pub(crate) cycles: u128,
    pub(crate) answered: bool,
    /// Callbacks still to come.
    pub(crate) outstanding: u64,
    /// Instructions of its messages so far.
    pub(crate) instructions: u64,
}

/// What a canister does when a call it made is answered.
#[derive(Clone, Debug)]
pub(crate) struct Callback {
    pub(crate) context: u64,
    /// When the caller gives an answer up, in nanoseconds since 1970; 0: never.
    pub(crate) deadline: u64,
    pub(crate) on_reply: Closure,
    pub(crate) on_reject: Closure,
    pub(crate) on_cleanup: Option<Closure>,
    /// Cycles paid in advance for the longest reply and its execution.
    pub(crate) prepaid: u128,
}
