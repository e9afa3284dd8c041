//! Times of the timers: when each is to fire, and which is overdue.

use crate::platform::limits::NS;
use crate::state::State;
use coppice_interface::NET_SECS;
use std::cell::Cell;

/// Seconds that a timer may stand in the queue of a busy subnet.
pub const QUEUE_SECS: u64 = 10;

thread_local! {
    /// Nanoseconds since the Unix epoch at which the one-shot for blocks fires; `None` if it is not armed.
    pub static ARMED: Cell<Option<u64>> = const { Cell::new(None) };
    /// Nanoseconds since the Unix epoch at which the ten-minute timer fires next, or somewhat later; 0 before it is armed.
    pub static NET_AT: Cell<u64> = const { Cell::new(0) };
    /// Seconds between two firings of the timer for records; `None` if it does not run.
    pub static RECORDS_EVERY: Cell<Option<u64>> = const { Cell::new(None) };
    /// Nanoseconds since the Unix epoch at which the one-shot for the deletion queue fires; `None` if it is not armed.
    pub static DELETIONS_AT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the timer that is overdue, and when it was due, in nanoseconds since the Unix epoch.
pub fn overdue(state: &State, now: u64) -> Option<(&'static str, u64)> {
    let late = |next: u64, secs: u64| (now.saturating_sub(next) > secs * NS).then_some(next);
    let blocks = ARMED.get().and_then(|armed| late(armed, QUEUE_SECS + state.pruner.interval_secs()));
    // 0: the timer was never armed.
    let net = || late(NET_AT.get(), NET_SECS).filter(|&net| net > 0);
    let records = || RECORDS_EVERY.get().and_then(|secs| late(state.utxo_pruner.next_tick(), secs));
    let deletions = || DELETIONS_AT.get().and_then(|at| late(at, QUEUE_SECS));
    let blocks = blocks.or_else(net).map(|due| ("blocks", due));
    let records = || records().map(|due| ("UTXO records", due));
    blocks.or_else(records).or_else(|| deletions().map(|due| ("the deletion queue", due)))
}
