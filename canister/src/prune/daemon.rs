//! The timer. An interval timer and not a chain of one-shots: a trap in a one-shot would end the chain for ever.
//!
//! Timers are lost on an upgrade, so [`arm`] is called at installation, after an upgrade, and when the interval changes.
//! Missed intervals are replayed by `ic-cdk-timers`; a firing with nothing to do costs little.

use crate::{runtime, state};

#[cfg(target_family = "wasm")]
thread_local! {
    static TIMER: std::cell::Cell<Option<ic_cdk_timers::TimerId>> = const { std::cell::Cell::new(None) };
}

/// Quarantined blobs that a tick releases.
const MAX_RELEASES: u64 = 1_000;

/// Starts the timer, or starts it anew with the interval in force.
pub fn arm() {
    let interval = state::read(|state| state.pruner.interval_secs());
    state::mutate(|state| state.pruner.set_next_tick(runtime::time_ns() + interval * 1_000_000_000));
    #[cfg(target_family = "wasm")]
    {
        if let Some(timer) = TIMER.take() {
            ic_cdk_timers::clear_timer(timer);
        }
        let interval = std::time::Duration::from_secs(interval);
        TIMER.set(Some(ic_cdk_timers::set_timer_interval(interval, || async { tick() })));
    }
}

/// Wakes the timers where the daemon is overdue by more than an interval. The platform's timer is gone after a trap in
/// `canister_global_timer` itself; `ic-cdk-timers` believes it to be still set, so that arming anew does not help, and
/// nobody would see a daemon that silently died. Costs one comparison of times. Producers' messages call it; they do
/// nothing of the daemon's work.
pub fn watch() {
    let overdue = state::read(|state| {
        let interval = state.pruner.interval_secs() * 1_000_000_000;
        runtime::time_ns().saturating_sub(state.pruner.next_tick()) > interval
    });
    if overdue {
        runtime::log("prune: the timer is overdue; woken");
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
