//! The timers: one for blocks, one for UTXO records, so that each has a message of its own. Interval timers and not chains of
//! one-shots: a trap in a one-shot would end the chain for ever.
//!
//! Timers are lost on an upgrade, so [`arm`] is called at installation, after an upgrade, and when an interval changes.
//! Missed intervals are replayed by `ic-cdk-timers`; a firing with nothing to do costs little.

use crate::{runtime, state};

#[cfg(target_family = "wasm")]
thread_local! {
    static TIMERS: std::cell::RefCell<Vec<ic_cdk_timers::TimerId>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Quarantined blobs that a tick releases.
const MAX_RELEASES: u64 = 1_000;
const NS: u64 = 1_000_000_000;

/// Starts the timers, or starts them anew with the intervals in force.
pub fn arm() {
    let (blocks, records) = state::mutate(|state| {
        let intervals = (state.pruner.interval_secs(), state.utxo_pruner.interval_secs());
        state.pruner.set_next_tick(runtime::time_ns() + intervals.0 * NS);
        state.utxo_pruner.set_next_tick(runtime::time_ns() + intervals.1 * NS);
        intervals
    });
    #[cfg(target_family = "wasm")]
    {
        let every = std::time::Duration::from_secs;
        let timers = vec![
            ic_cdk_timers::set_timer_interval(every(blocks), || async { tick() }),
            ic_cdk_timers::set_timer_interval(every(records), || async { tick_records() }),
        ];
        TIMERS.replace(timers).into_iter().for_each(ic_cdk_timers::clear_timer);
    }
    #[cfg(not(target_family = "wasm"))]
    let _ = (blocks, records);
}

/// Wakes the timers where one is overdue by more than an interval. The platform's timer is gone after a trap in
/// `canister_global_timer` itself; `ic-cdk-timers` believes it to be still set, so that arming anew does not help, and
/// nobody would see a daemon that silently died. Costs two comparisons of times. Producers' messages call it; they do
/// nothing of the daemon's work.
pub fn watch() {
    let overdue = state::read(|state| {
        let late = |next: u64, secs: u64| runtime::time_ns().saturating_sub(next) > secs * NS;
        late(state.pruner.next_tick(), state.pruner.interval_secs())
            || late(state.utxo_pruner.next_tick(), state.utxo_pruner.interval_secs())
    });
    if overdue {
        runtime::log("prune: a timer is overdue; woken");
        runtime::wake_timers();
    }
}

/// What a firing does: drop uploads that nobody goes on with, then one bounded run if one is due.
pub fn tick() {
    state::mutate(|state| {
        let expiry = state.config.upload_expiry_secs;
        if let Some(number) = state.chain.expire_upload(&mut state.blobs, runtime::time_secs(), expiry) {
            runtime::log(&format!("upload of block {number} expired after {expiry} s"));
        }
        if state.utxo.uploads.expire(&mut state.blobs, runtime::time_secs(), expiry) {
            runtime::log(&format!("upload of a transaction expired after {expiry} s"));
        }
        // Normally there is none: a blob is released in the message that frees it, unless its entry is damaged.
        if let Err(error) = state.blobs.release_quarantined(MAX_RELEASES) {
            runtime::log(&format!("quarantine: {error:?}"));
        }
        let constraints = state.constraints();
        state.pruner.tick(&mut state.chain, &mut state.blobs, &constraints);
    });
}

/// A part of the job for UTXO records, if there is one.
pub fn tick_records() {
    state::mutate(|state| {
        let low_on_cycles = runtime::liquid_cycles() < state.config.min_liquid_cycles;
        let (pruner, mut records) = state.utxo_pruner();
        pruner.tick(&mut records, low_on_cycles);
    });
}
