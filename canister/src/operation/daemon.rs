//! Daemon: arms the timers, and does their work when they fire.
//!
//! | timer | kind | armed |
//! |---|---|---|
//! | blocks | one-shot | by work that is due or left |
//! | safety timer | every ten minutes | always, because a one-shot that traps is lost and an interval timer is not |
//! | UTXO records | interval, so that each step has its own message | while there is a job |
//! | deletion queue | one-shot | while there is a lease, or a row that backs off |
//! | growth | one-shot | by memory that a tick for records needs |
//! | hash key | one-shot | until a key is stored: by the hooks, by a draw that failed, and by each firing of the safety timer |
//!
//! An idle canister pays only for the safety timer.
//!
//! Below `min_liquid_cycles` only the safety timer runs. No timer runs if the cycles do not pay for three calls of a timer, because
//! `ic-cdk-timers` re-arms a timer at its original, already past time when its call cannot be paid, so it fires every round until the
//! canister is frozen. The safety timer notices a top-up; without it the next message does, because the platform runs no code of the
//! canister at a top-up.
//!
//! An upgrade loses all timers, so installation and upgrade arm them. `ic-cdk-timers` replays missed intervals; a firing with nothing to do
//! costs little.
//!
//! Each function takes the state. Only the closures of timers borrow the global one.

mod key;
#[cfg(feature = "records")]
pub mod records;
#[cfg(not(feature = "records"))]
#[path = "daemon/no_records.rs"]
mod records;

use crate::logs;
use crate::operation::sampling;
use crate::platform::cycles::{self, Pause};
use crate::platform::meter::{Hot, count};
use crate::platform::timers::Timer;
use crate::platform::{self};
use crate::state::clock::Clock;
use crate::state::{State, mutate};
use coppice_interface::{HeldBy, SAFETY_SECS};
use coppice_storage::NS;
pub use records::{arm_deletions, arm_records};
use std::mem::replace;

/// Starts the safety timer and arms the block timer within one interval. The hooks of installation and upgrade call it.
pub fn arm(state: &mut State) {
    cycles::set_pause(None);
    arm_safety(state);
    arm_soon(state);
    key::arm(state, 0);
    judge(state, cycles::set_aside_by_hooks(state.config.nodes));
}

fn arm_safety(state: &mut State) {
    Timer::Safety.every(SAFETY_SECS, || mutate(tick_safety));
    state.clock.safety_at = platform::time_ns() + SAFETY_SECS * NS;
    cycles::learn();
}

/// Stops the timers that the balance does not pay for, restarts them when it does, and takes a sample. Each message that changes state
/// calls it, because the platform runs no code of the canister at a top-up. Ticks take the sample after their work.
pub fn watch_cycles(state: &mut State) {
    judge(state, 0);
    sampling::note(state);
}

/// Stops or starts timers by the cycles that are liquid between messages. `set_aside`: cycles that this message reserves beyond those of an
/// ordinary update.
fn judge(state: &mut State, set_aside: u128) {
    let liquid = cycles::between_updates().saturating_add(set_aside);
    cycles::note_liquid(liquid);
    let pause = if !cycles::pay_timers(liquid) {
        Some(Pause::UntilACall)
    } else if liquid < state.config.min_liquid_cycles {
        Some(Pause::UntilSafety)
    } else {
        None
    };
    let before = cycles::set_pause(pause);
    if pause != before {
        change_pause(state, before, pause);
    }
}

#[cold]
fn change_pause(state: &mut State, before: Option<Pause>, pause: Option<Pause>) {
    match pause {
        None => logs::info("daemon: cycles suffice again: all timers run"),
        Some(Pause::UntilSafety) => {
            logs::error("daemon: liquid cycles are below min_liquid_cycles: only the ten-minute timer runs")
        }
        Some(Pause::UntilACall) => logs::error("daemon: liquid cycles do not pay for timers: no timer runs"),
    }
    if pause.is_some() {
        Timer::Blocks.cancel();
        Timer::Deletions.cancel();
        Timer::Key.cancel();
        (state.clock.blocks_at, state.clock.due, state.clock.deletions_at) = (None, None, None);
    }
    if pause == Some(Pause::UntilACall) {
        Timer::Safety.cancel();
        state.clock.safety_at = u64::MAX;
    } else if before == Some(Pause::UntilACall) {
        arm_safety(state);
    }
    arm_soon(state);
    key::arm(state, 0);
    arm_uploads(state);
    arm_undo(state);
    arm_records(state);
    arm_deletions(state);
}

/// Arms the block timer to fire within `timer_interval_secs` and wakes overdue timers. Call after any change that may create work.
pub fn arm_work(state: &mut State) {
    // First, because arming clears the overdue time and would hide that the platform's timer is lost.
    watch(state);
    arm_soon(state);
}

/// Arms the block timer after an acknowledgement: at once if pruning can end a refusal of appends. Wakes no overdue timer, because that
/// would make each of many acknowledgements 1.3 % more expensive.
pub fn on_ack(state: &mut State) {
    match state.admission().exhausted {
        Some(HeldBy::PruneLag) => arm_at(state, platform::time_ns()),
        _ => arm_soon(state),
    }
}

fn arm_soon(state: &mut State) {
    let interval = state.pruner.interval_secs();
    arm_at(state, platform::time_ns() + interval * NS);
}

/// Arms the block timer to fire at `at`, in nanoseconds since the Unix epoch, or sooner. If the safety timer fires before, its firing arms
/// the block timer instead.
pub fn arm_at(state: &mut State, at: u64) {
    let now = platform::time_ns();
    let safety = state.clock.next_safety(now);
    // A newly armed tick is not overdue, whatever its nominal time.
    let at = if cycles::pause().is_none() { at.max(now) } else { at.max(safety) };
    if at < safety && state.blocks_armed(now).is_none_or(|armed| at < armed) {
        let before = state.clock.blocks_at.replace(at);
        state.clock.note_due(at);
        Timer::Blocks.once(at - now, before.is_some_and(|before| before > now), move || {
            mutate(|state| tick(state, Timer::Blocks, at));
        });
    }
    if at >= safety && at < u64::MAX {
        // A firing of the safety timer does the work, at most one interval after `at`.
        state.clock.note_due(at.saturating_add(SAFETY_SECS * NS));
    }
    let next = state.blocks_armed(now).map_or(safety, |armed| armed.min(safety));
    state.pruner.next_tick_ns = next;
}

/// Records a producer's call to the chain: wakes overdue timers, and arms the block timer for the work that the call makes due.
pub fn on_call(state: &mut State) {
    let now = platform::time_ns();
    watch_at(state, now);
    state.pruner.last_call = now;
    // A tick that is armed for the next block's age would be too late for this work.
    let soon = now.saturating_add(state.pruner.interval_secs() * NS);
    if state.blocks_armed(now).is_none_or(|armed| armed > soon) {
        arm_at(state, soon);
    }
}

/// Arms the block timer for the first expiry of an open upload.
pub fn arm_uploads(state: &mut State) {
    if let Some(secs) = state.next_expiry() {
        arm_at(state, secs.saturating_mul(NS));
    }
}

/// Arms the block timer to fire at once if the chain has an unfinished operation.
pub fn arm_undo(state: &mut State) {
    if state.chain.is_under_way() {
        arm_at(state, platform::time_ns());
    }
}

/// Wakes the timers if one is overdue by more than an interval. After a trap in `canister_global_timer` the platform's timer is gone while
/// `ic-cdk-timers` assumes that it is set, so arming anew does not help and the daemon would stop unnoticed. The check only compares times.
/// Messages of producers and operators call it; they do none of the daemon's work.
pub fn watch(state: &mut State) {
    watch_at(state, platform::time_ns());
}

fn watch_at(state: &mut State, now: u64) {
    if let Some((_, due)) = state.overdue(now) {
        wake(&mut state.clock, due, "prune: a timer is overdue; woken");
    }
}

/// Wakes the timers. Logs `line` once for each time `due`.
#[cold]
fn wake(clock: &mut Clock, due: u64, line: &str) {
    if replace(&mut clock.logged_overdue, due) != due {
        logs::error(line);
    }
    platform::wake_timers();
}

/// Does a timer's work.
fn fire(state: &mut State, timer: Timer, work: impl FnOnce(&mut State)) {
    let others = state.note_fired(timer, platform::time_ns());
    cycles::in_timer(others, || work(state));
}

/// Does the work of a firing of the safety timer. `ic-cdk-timers` skips some of many missed intervals and counts the next interval from the
/// last firing, so the next firing is at most one interval from now.
fn tick_safety(state: &mut State) {
    let now = platform::time_ns();
    let planned = replace(&mut state.clock.safety_at, now + SAFETY_SECS * NS);
    cycles::learn();
    key::arm(state, 0);
    // Firings between `planned` and now trapped or were missed.
    tick(state, Timer::Safety, planned + now.saturating_sub(planned) / (SAFETY_SECS * NS) * (SAFETY_SECS * NS));
}

/// Does the work of a firing for blocks, which was to fire at `at`: checks the cycles, then does one piece of begun work
/// or one bounded run (`State::tick`); then arms the next tick.
pub fn tick(state: &mut State, timer: Timer, at: u64) {
    fire(state, timer, |state| tick_blocks(state, at));
    count(Hot::TimerBlocks, platform::instructions());
}

fn tick_blocks(state: &mut State, at: u64) {
    judge(state, 0);
    let now = platform::time_ns();
    if state.clock.blocks_at.is_some_and(|armed| armed <= now) {
        state.clock.blocks_at = None;
        // Otherwise, if several timers fire together, each would keep arming its own one-shot while there is a backlog.
        Timer::Blocks.cancel();
    }
    let was_rolling_back = state.chain.state().rollback_to.is_some();
    let next = state.tick(state.is_tick_late(at, now));
    // Only here, because a tick that traps must leave its due time to the next tick. If a tick is still armed, its time is the due time.
    state.clock.due = state.clock.blocks_at;
    arm_at(state, next);
    arm_uploads(state);
    arm_deletions(state);
    if was_rolling_back {
        arm_records(state);
    }
    // After the work, because pruned blocks no longer count as backlog.
    sampling::note(state);
}

#[cfg(test)]
mod tests;
