//! Timers of the platform, one of each kind.
//!
//! `ic-cdk-timers` drops a one-shot that traps, and keeps an interval timer that traps. An upgrade drops all. The native twin notes when each
//! timer is to fire, and fires none: tests call the ticks.

#[cfg(target_family = "wasm")]
use ic_cdk_timers::TimerId;
#[cfg(target_family = "wasm")]
use std::{cell::Cell, time::Duration};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The interval timer of ten minutes.
    Net,
    /// The one-shot for blocks.
    Blocks,
    /// The one-shot that grows memory.
    Growth,
    /// The interval timer for UTXO records.
    Records,
    /// The one-shot for the deletion queue.
    Deletions,
}

#[cfg(target_family = "wasm")]
thread_local! {
    static IDS: Cell<[Option<TimerId>; Timer::KINDS]> = const { Cell::new([None; Timer::KINDS]) };
}

impl Timer {
    /// The number of kinds.
    pub const KINDS: usize = 5;

    /// Fires `tick` once, `after_ns` nanoseconds from now. `replaces` cancels the timer's earlier one-shot, which is otherwise left to fire.
    pub fn once(self, after_ns: u64, replaces: bool, tick: impl FnOnce() + 'static) {
        #[cfg(target_family = "wasm")]
        {
            let new = ic_cdk_timers::set_timer(Duration::from_nanos(after_ns), async move { tick() });
            if let Some(old) = self.replace(Some(new)).filter(|_| replaces) {
                ic_cdk_timers::clear_timer(old);
            }
        }
        #[cfg(not(target_family = "wasm"))]
        {
            let _ = (replaces, tick);
            super::native::with(|world| world.timers.insert(self as u8, world.time_ns + after_ns));
        }
    }

    /// Fires `tick` every `secs` seconds, in place of the timer's earlier interval.
    pub fn every(self, secs: u64, tick: fn()) {
        #[cfg(target_family = "wasm")]
        {
            let new = ic_cdk_timers::set_timer_interval(Duration::from_secs(secs), move || async move { tick() });
            if let Some(old) = self.replace(Some(new)) {
                ic_cdk_timers::clear_timer(old);
            }
        }
        #[cfg(not(target_family = "wasm"))]
        {
            let _ = tick;
            super::native::with(|world| world.timers.insert(self as u8, world.time_ns + secs * super::limits::NS));
        }
    }

    /// Cancels the timer, also a one-shot that has fired and waits for its message.
    pub fn cancel(self) {
        #[cfg(target_family = "wasm")]
        if let Some(old) = self.replace(None) {
            ic_cdk_timers::clear_timer(old);
        }
        #[cfg(not(target_family = "wasm"))]
        super::native::with(|world| world.timers.remove(&(self as u8)));
    }

    #[cfg(target_family = "wasm")]
    fn replace(self, new: Option<TimerId>) -> Option<TimerId> {
        let mut ids = IDS.get();
        let old = std::mem::replace(&mut ids[self as usize], new);
        IDS.set(ids);
        old
    }
}
