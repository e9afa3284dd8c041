//! The timers: one for blocks; and while there is a job for UTXO records one for these, so that each has a message of its own.
//! Interval timers and not chains of one-shots: a trap in a one-shot would end the chain for ever.
//!
//! Timers are lost on an upgrade, so they are armed at installation, after an upgrade, and when an interval changes. Missed
//! intervals are replayed by `ic-cdk-timers`; a firing with nothing to do costs little.

use crate::{runtime, state};

#[cfg(target_family = "wasm")]
mod timers {
    use ic_cdk_timers::TimerId;
    use std::cell::Cell;

    thread_local! {
        pub static BLOCKS: Cell<Option<TimerId>> = const { Cell::new(None) };
        pub static RECORDS: Cell<Option<TimerId>> = const { Cell::new(None) };
    }

    /// Puts a timer in the place of another one.
    pub fn replace(timer: &'static std::thread::LocalKey<Cell<Option<TimerId>>>, every: Option<u64>, tick: fn()) {
        let every = every.map(std::time::Duration::from_secs);
        let new = every.map(|every| ic_cdk_timers::set_timer_interval(every, move || async move { tick() }));
        if let Some(old) = timer.replace(new) {
            ic_cdk_timers::clear_timer(old);
        }
    }
}

/// Quarantined blobs that a tick releases.
const MAX_RELEASES: u64 = 1_000;
const NS: u64 = 1_000_000_000;

thread_local! {
    /// Seconds between two firings of the timer for records; none: it does not run.
    static RECORDS_EVERY: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Starts the timer for blocks, or starts it anew with the interval in force.
pub fn arm() {
    let interval = state::read(|state| state.pruner.interval_secs());
    state::mutate(|state| state.pruner.set_next_tick(runtime::time_ns() + interval * NS));
    #[cfg(target_family = "wasm")]
    timers::replace(&timers::BLOCKS, Some(interval), tick);
}

/// Has the timer for records run where there is a job, with the interval in force, and stops it where there is none.
pub fn arm_records() {
    run_records_every(state::read(|state| state.utxo_pruner.interval_secs()));
}

fn run_records_every(interval: Option<u64>) {
    if RECORDS_EVERY.replace(interval) == interval {
        return;
    }
    let next = interval.map_or(0, |secs| runtime::time_ns() + secs * NS);
    state::mutate(|state| state.utxo_pruner.set_next_tick(next));
    #[cfg(target_family = "wasm")]
    timers::replace(&timers::RECORDS, interval, tick_records);
}

/// Wakes the timers where one is overdue by more than an interval. The platform's timer is gone after a trap in
/// `canister_global_timer` itself; `ic-cdk-timers` believes it to be still set, so that arming anew does not help, and
/// nobody would see a daemon that silently died. Costs two comparisons of times. Producers' messages call it; they do
/// nothing of the daemon's work.
pub fn watch() {
    let late = |next: u64, secs: u64| runtime::time_ns().saturating_sub(next) > secs * NS;
    let overdue = state::read(|state| {
        let records = RECORDS_EVERY.get().is_some_and(|secs| late(state.utxo_pruner.next_tick(), secs));
        late(state.pruner.next_tick(), state.pruner.interval_secs()) || records
    });
    if overdue {
        runtime::log("prune: a timer is overdue; woken");
        runtime::wake_timers();
    }
}

/// What a firing for blocks does: drop uploads that nobody goes on with, then one bounded run if one is due.
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

/// What a firing for records does: a part of the job, if there is one.
pub fn tick_records() {
    state::mutate(|state| {
        let low_on_cycles = runtime::liquid_cycles() < state.config.min_liquid_cycles;
        let (pruner, mut records) = state.utxo_pruner();
        pruner.tick(&mut records, low_on_cycles);
    });
    arm_records();
}
