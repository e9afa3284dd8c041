//! Platform timers, one of each kind.
//!
//! `ic-cdk-timers` drops a one-shot that traps, and keeps an interval timer that traps. An upgrade drops all timers. The native twin only
//! records when each timer fires; tests call the functions.

#[cfg(target_family = "wasm")]
use ic_cdk_timers::TimerId;
#[cfg(target_family = "wasm")]
use std::{cell::Cell, time::Duration};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The safety timer.
    Safety,
    /// The one-shot of the duty that is due first.
    Work,
    /// The one-shot that draws the hash key.
    Key,
}

#[cfg(target_family = "wasm")]
thread_local! {
    static IDS: Cell<[Option<TimerId>; Timer::KINDS]> = const { Cell::new([None; Timer::KINDS]) };
}

impl Timer {
    /// The number of kinds.
    pub const KINDS: usize = 3;

    /// Calls `fire` once, `after_ns` nanoseconds from now. `replaces` cancels the timer's earlier one-shot, which otherwise still fires.
    pub fn once(self, after_ns: u64, replaces: bool, fire: impl FnOnce() + 'static) {
        #[cfg(target_family = "wasm")]
        self.set(Some(ic_cdk_timers::set_timer(Duration::from_nanos(after_ns), async move { fire() })), replaces);
        #[cfg(not(target_family = "wasm"))]
        self.set(Some(after_ns), (replaces, fire));
    }

    /// Calls `fire` every `secs` seconds, replacing the timer's earlier interval.
    pub fn every(self, secs: u64, fire: fn()) {
        #[cfg(target_family = "wasm")]
        {
            let fire = move || async move { fire() };
            self.set(Some(ic_cdk_timers::set_timer_interval(Duration::from_secs(secs), fire)), true);
        }
        #[cfg(not(target_family = "wasm"))]
        self.set(Some(secs * ic_coppice_storage::NS), fire);
    }

    /// Cancels the timer, including a one-shot that has fired and waits for its message.
    pub fn cancel(self) {
        self.set(None, true);
    }

    /// Stores the new timer's id; cancels the earlier one, if any, if `clears`.
    #[cfg(target_family = "wasm")]
    fn set(self, new: Option<TimerId>, clears: bool) {
        let mut ids = IDS.get();
        let old = std::mem::replace(&mut ids[self as usize], new);
        IDS.set(ids);
        if let Some(old) = old.filter(|_| clears) {
            ic_cdk_timers::clear_timer(old);
        }
    }

    /// Records when the timer fires, or that it is cancelled. Only the platform needs `_rest`.
    #[cfg(not(target_family = "wasm"))]
    fn set<T>(self, after_ns: Option<u64>, _rest: T) {
        super::native::with(|world| match after_ns {
            Some(after_ns) => world.timers.insert(self as u8, world.time_ns + after_ns),
            None => world.timers.remove(&(self as u8)),
        });
    }
}
