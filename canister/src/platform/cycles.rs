//! Cycles available between messages, and whether they pay for timers.
//!
//! A message sets cycles aside for everything it may execute, and gets the unused ones back, so fewer cycles are liquid inside a message
//! than between messages. A timer's work runs in a call that the canister makes to itself: then two messages have set cycles aside, about
//! 84 G on 13 nodes, and each other timer that fires together adds one more. Settings are compared with the cycles that are liquid
//! *between messages*, because that is what an operator sees, and because it does not depend on where it is read. Units are cycles.
//!
//! Every kind of message sets aside slightly less than a timer's call does ([`platform::timer_call_cycles`]).

use crate::platform;
use ic_coppice_storage::{Ic, Platform as _};
use std::cell::Cell;

/// Timer calls that the balance must pay for: the firing, the call that it makes to itself, and one for a message in between.
const CALLS: u32 = 3;

/// Reason why timers are paused, by what ends the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Until a firing of the safety timer, or a call, finds more liquid cycles than `min_liquid_cycles`.
    UntilSafety,
    /// Until a call finds cycles for timers: the safety timer is paused too.
    UntilACall,
}

thread_local! {
    /// Cycles that a timer's call sets aside.
    static A_CALL: Cell<u64> = const { Cell::new(0) };
    /// The pause as of the last message that checked.
    static PAUSE: Cell<Option<Pause>> = const { Cell::new(None) };
    /// Liquid cycles below which feeding calls (blocks, records, blobs) are refused.
    static FEED_MIN: Cell<u128> = const { Cell::new(0) };
    /// Liquid cycles missing below `FEED_MIN` at the last [`note_liquid`]; 0 if there were enough.
    static MISSING: Cell<u128> = const { Cell::new(0) };
    /// Timer calls under way: this message's own, and those of other timers that fire together; 0 outside timers.
    static IN_TIMERS: Cell<u32> = const { Cell::new(0) };
}

/// Reads from the platform what a timer's call sets aside.
pub fn learn() {
    A_CALL.set(u64::try_from(platform::timer_call_cycles()).unwrap_or(u64::MAX));
}

/// Returns the cycles that this many timer calls set aside. A call sets aside some 42 G on 13 nodes, so the product does not overflow; a
/// checked one of 128 bits takes 180 instructions, and each message computes three.
fn set_aside(calls: u32) -> u128 {
    A_CALL.get().wrapping_mul(calls.into()).into()
}

/// Cycles that an installation or an upgrade on `nodes` nodes sets aside for its hooks, beyond those of a message: for 300 billion
/// instructions, where a message may take 40 billion. Unused cycles come back.
pub fn set_aside_by_hooks(nodes: u32) -> u128 {
    20_000_000_000 * u128::from(nodes)
}

/// Runs a timer's work while `others` other timers fire. A trap undoes the mark along with everything else.
pub fn in_timer<T>(others: u32, work: impl FnOnce() -> T) -> T {
    IN_TIMERS.set(1 + others);
    let done = work();
    IN_TIMERS.set(0);
    done
}

/// Liquid cycles between messages, callable in any message.
pub fn between_messages() -> u128 {
    if IN_TIMERS.get() > 0 || Ic::is_replicated() { between_updates() } else { Ic::liquid_cycles() }
}

/// As [`between_messages`], for an update or a timer's work only; saves asking the platform for the kind of message.
pub fn between_updates() -> u128 {
    Ic::liquid_cycles().saturating_add(set_aside(1 + IN_TIMERS.get()))
}

/// Returns whether `liquid` cycles between messages pay for timers. Calls of other timers that fire together are not counted as set aside,
/// because they may not have been made.
pub fn pay_timers(liquid: u128) -> bool {
    let uncertain = set_aside(IN_TIMERS.get().saturating_sub(1));
    liquid.saturating_sub(uncertain) >= set_aside(CALLS)
}

/// Sets or clears the pause of timers; returns the previous value.
pub fn set_pause(pause: Option<Pause>) -> Option<Pause> {
    PAUSE.replace(pause)
}

/// The pause of timers. The platform does not report that cycles have arrived, so a pause lasts until a message checks the balance.
pub fn pause() -> Option<Pause> {
    PAUSE.get()
}

/// Sets the liquid cycles below which feeding calls are refused.
pub fn set_feed_min(cycles: u128) {
    FEED_MIN.set(cycles);
}

/// Returns the liquid cycles below which feeding calls are refused.
pub fn feed_min() -> u128 {
    FEED_MIN.get()
}

/// Records the cycles that are liquid between messages, for [`missing_to_feed`]: when a message begins, and before each block of a list.
pub fn note_liquid(liquid: u128) {
    MISSING.set(FEED_MIN.get().saturating_sub(liquid));
}

/// Returns the liquid cycles that feeding lacked at the last [`note_liquid`], or `None` if there were enough.
pub fn missing_to_feed() -> Option<u128> {
    Some(MISSING.get()).filter(|&missing| missing > 0)
}

/// Returns the liquid cycles that feeding lacks now, callable in any message.
pub fn feed_missing() -> Option<u128> {
    Some(feed_min().saturating_sub(between_messages())).filter(|&missing| missing > 0)
}

/// Returns the liquid cycles that timers need.
pub fn timers_need() -> u128 {
    set_aside(CALLS)
}

/// Returns whether liquid cycles are too low for pruning.
pub fn are_low(min_liquid_cycles: u128) -> bool {
    let liquid = between_messages();
    liquid < min_liquid_cycles || !pay_timers(liquid) || pause().is_some()
}

/// Resets the state of this module, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    A_CALL.set(0);
    PAUSE.set(None);
    FEED_MIN.set(0);
    MISSING.set(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    #[test]
    fn cycles_between_messages_are_the_same_in_every_kind_of_message() {
        native::reset();
        forget();
        learn();
        let a_call = platform::timer_call_cycles();
        let set = |liquid, replicated| {
            native::with(|world| (world.liquid_cycles, world.replicated) = (liquid, replicated));
        };
        set(5 * a_call, false);
        assert_eq!(between_messages(), 5 * a_call);
        set(4 * a_call, true);
        assert_eq!((between_messages(), between_updates()), (5 * a_call, 5 * a_call));
        for others in 0..=3u32 {
            set(u128::from(3 - others) * a_call, true);
            assert_eq!(in_timer(others, || (between_messages(), between_updates())), (5 * a_call, 5 * a_call));
        }
        assert_eq!(between_messages(), a_call, "the timer's work is done");
        set(3 * a_call, false);
        assert_eq!(in_timer(0, between_messages), 5 * a_call, "a timer is not a query, whatever the platform says");
        set(u128::MAX, true);
        assert_eq!(between_messages(), u128::MAX);
    }

    #[test]
    fn balance_of_three_calls_pays_timers_and_unsure_calls_do_not_count() {
        native::reset();
        forget();
        assert!(pay_timers(0), "nothing is known yet");
        learn();
        let a_call = platform::timer_call_cycles();
        assert!(pay_timers(3 * a_call) && !pay_timers(3 * a_call - 1));
        let in_three = |liquid| in_timer(2, || pay_timers(liquid));
        assert!(in_three(5 * a_call) && !in_three(5 * a_call - 1));
        native::with(|world| world.liquid_cycles = 5 * a_call);
        assert!(are_low(5 * a_call + 1) && !are_low(5 * a_call));
        set_pause(Some(Pause::UntilSafety));
        assert!(are_low(0));
        set_pause(None);
        native::with(|world| world.liquid_cycles = 3 * a_call - 1);
        assert!(are_low(0), "no timer runs");
        forget();
    }
}
