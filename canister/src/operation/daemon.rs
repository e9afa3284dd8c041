//! Daemon: one loop over the duties (`choice.rs` has the list), which two timers run.
//!
//! | timer | kind | fires |
//! |---|---|---|
//! | work | one-shot | when the first duty is due |
//! | safety timer | interval | every ten minutes; during a job of the record pruner at the job's interval, and at most each minute while ticks for blocks skip work that traps |
//! | hash key | one-shot | until a key is stored: armed by the hooks, by a draw that failed, and by each firing of the safety timer |
//!
//! A firing does the work of one duty, as far as a message goes, and arms the one-shot for the duty that is due first. The safety timer is there
//! because `ic-cdk-timers` drops a one-shot that traps, and keeps an interval timer. An idle canister pays only for the safety timer.
//!
//! Below `min_liquid_cycles` only the safety timer runs, and ends only what was begun. No timer runs if the cycles do not pay for three calls of a
//! timer, because `ic-cdk-timers` re-arms a timer at its original, already past time when its call cannot be paid, so it fires every round
//! until the canister is frozen. The safety timer notices a top-up; without it the next message does, because the platform runs no code of
//! the canister at a top-up.
//!
//! An upgrade loses all timers, so installation and upgrade start them. `ic-cdk-timers` replays missed intervals; a firing with nothing to do
//! costs little.
//!
//! Each function takes the state. Only the closures of timers borrow the global one.

mod blocks;
mod choice;
mod duty;
mod key;
pub mod records;

use crate::logs;
use crate::operation::sampling;
use crate::platform::cycles::{self, Pause};
use crate::platform::meter::count;
use crate::platform::timers::Timer;
use crate::platform::{self};
use crate::state::{State, mutate};
use choice::Chosen;
use ic_coppice_interface::{HeldBy, SAFETY_SECS};
use ic_coppice_storage::NS;
use std::mem::replace;

/// Starts the timers. The hooks of installation and upgrade call it.
pub fn start(state: &mut State) {
    cycles::set_pause(None);
    start_safety(state);
    begin(state);
    judge(state, cycles::set_aside_by_hooks(state.config.nodes));
}

/// Arms the one-shots. Work on blocks that was due before is not late.
fn begin(state: &mut State) {
    let now = platform::time_ns();
    state.clock.blocks_at = None;
    state.blocks_by(now, now + state.pruner.interval_secs() * NS);
    rearm(state, now);
    key::arm(state, 0);
}

/// Starts the safety timer.
fn start_safety(state: &mut State) {
    let secs = safety_secs(state);
    Timer::Safety.every(secs, || mutate(fire_safety));
    (state.clock.safety_secs, state.clock.safety_at) = (secs, platform::time_ns() + secs * NS);
    cycles::learn();
}

/// Returns the interval of the safety timer: ten minutes, or that of a job, or at most a minute while ticks for blocks skip work that traps.
fn safety_secs(state: &State) -> u64 {
    state.clock.job_secs.into_iter().chain(blocks::trap_secs(state)).fold(SAFETY_SECS, u64::min)
}

/// Stops the timers that the balance does not pay for, restarts them when it does, and takes a sample. Each message that changes state
/// calls it, because the platform runs no code of the canister at a top-up. Firings take the sample after their work.
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
            logs::error("daemon: liquid cycles are below min_liquid_cycles: only the safety timer runs");
        }
        Some(Pause::UntilACall) => logs::error("daemon: liquid cycles do not pay for timers: no timer runs"),
    }
    state.clock.marks_reached = 0;
    if pause.is_some() {
        Timer::Work.cancel();
        Timer::Key.cancel();
        state.clock.fires_at = None;
    }
    if pause == Some(Pause::UntilACall) {
        Timer::Safety.cancel();
        state.clock.safety_at = u64::MAX;
    } else if before == Some(Pause::UntilACall) {
        start_safety(state);
    }
    begin(state);
}

/// Arms the one-shot for what a message has made due: an upload, a rollback, a reset, a job, a lease. Wakes overdue timers.
pub fn arm(state: &mut State) {
    let now = platform::time_ns();
    watch(state, now);
    rearm(state, now);
}

/// Arms the one-shot for pruning within `timer_interval_secs`, and for anything else that is due. Call after any change that may create work.
/// At a watermark the next call of a producer arms it at once.
pub fn arm_work(state: &mut State) {
    let now = platform::time_ns();
    state.clock.marks_reached = 0;
    // First, because arming hides that the platform's timer is lost.
    watch(state, now);
    state.blocks_by(now, now + state.pruner.interval_secs() * NS);
    rearm(state, now);
}

/// Arms the one-shot for pruning after an acknowledgement: at once if pruning can end a refusal of appends. Wakes no overdue timer, because
/// that would make each of many acknowledgements 1.3 % more expensive.
pub fn on_ack(state: &mut State) {
    let now = platform::time_ns();
    let is_refusing = state.admission().exhausted == Some(HeldBy::PruneLag);
    prune_by(state, now, if is_refusing { now } else { now + state.pruner.interval_secs() * NS });
}

/// Records a producer's call to the chain: wakes overdue timers, and arms the one-shot for the pruning that the call makes due, which is not
/// before the safety timer by default. Call [`on_called`] after the call's work.
pub fn on_call(state: &mut State) {
    let now = platform::time_ns();
    watch(state, now);
    state.pruner.last_call = now;
    prune_by(state, now, now.saturating_add(state.pruner.interval_secs() * NS));
}

/// Arms the one-shot for pruning at once if a producer's call has brought the chain to high water or emergency water.
pub fn on_called(state: &mut State) {
    let reached = state.pruner.marks_reached(&state.chain, &state.blobs);
    if reached > replace(&mut state.clock.marks_reached, reached) {
        let now = platform::time_ns();
        prune_by(state, now, now);
    }
}

/// Arms the one-shot for pruning at `at` or before.
fn prune_by(state: &mut State, now: u64, at: u64) {
    state.blocks_by(now, at);
    // Other duties are not asked, because each block would pay for them.
    if state.one_shot_at(now).is_none_or(|armed| at < armed) {
        arm_at(state, now, at);
    }
}

/// Arms the one-shot for the duty that is due first, and sets the interval of the safety timer.
fn rearm(state: &mut State, now: u64) {
    let interval = records::job_secs(state).filter(|_| cycles::pause().is_none());
    if replace(&mut state.clock.job_secs, interval) != interval {
        // The first part of a job is due after an interval; without a job nothing is.
        state.records.pruner.next_tick_ns = interval.map_or(0, |secs| now + secs * NS);
    }
    if safety_secs(state) != state.clock.safety_secs && cycles::pause() != Some(Pause::UntilACall) {
        start_safety(state);
    }
    if let Some(due) = state.begun_at(now) {
        state.blocks_by(now, due);
    }
    arm_at(state, now, choice::first_due(state, now));
}

/// Arms the one-shot to fire at `at`, in nanoseconds since the Unix epoch, or sooner, unless the safety timer fires before.
fn arm_at(state: &mut State, now: u64, at: u64) {
    let (safety, at) = (state.clock.next_safety(now), at.max(now));
    if cycles::pause().is_none() && at < safety && state.one_shot_at(now).is_none_or(|armed| at < armed) {
        let before = state.clock.fires_at.replace(at);
        // A one-shot that is due waits for its message, and still fires.
        Timer::Work.once(at - now, before.is_some_and(|before| before > now), move || {
            mutate(|state| fire(state, Timer::Work, at));
        });
    }
    state.pruner.next_tick_ns = state.one_shot_at(now).map_or(safety, |armed| armed.min(safety));
}

/// Wakes the timers if one is overdue by more than an interval. After a trap in `canister_global_timer` the platform's timer is gone while
/// `ic-cdk-timers` assumes that it is set, so arming anew does not help and the daemon would stop unnoticed. The check only compares times.
/// Messages of producers, workers and operators call it; they do none of the daemon's work.
fn watch(state: &mut State, now: u64) {
    if let Some(due) = state.overdue(now) {
        wake(state, due);
    }
}

/// Wakes the timers. Logs a line once for each time `due`.
#[cold]
fn wake(state: &mut State, due: u64) {
    if replace(&mut state.clock.logged_overdue, due) != due {
        logs::error("daemon: a timer is overdue; woken");
    }
    platform::wake_timers();
}

/// Does the work of a firing of the safety timer. `ic-cdk-timers` skips some of many missed intervals and counts the next interval from the
/// last firing, so the next firing is at most one interval from now.
fn fire_safety(state: &mut State) {
    let (now, interval) = (platform::time_ns(), state.clock.safety_secs * NS);
    let planned = replace(&mut state.clock.safety_at, now + interval);
    cycles::learn();
    key::arm(state, 0);
    // Firings between `planned` and now trapped or were missed.
    fire(state, Timer::Safety, planned + now.saturating_sub(planned) / interval * interval);
}

/// Does the work of a firing that was to come at `at`: checks the cycles, does the work of one duty, and arms the one-shot for the next.
pub fn fire(state: &mut State, timer: Timer, at: u64) {
    let now = platform::time_ns();
    let others = state.note_fired(timer, now);
    let chosen = cycles::in_timer(others, || {
        judge(state, 0);
        if timer == Timer::Safety {
            // Blocks not at the interval of a job, because each part of the job would then take two firings.
            if state.clock.safety_secs == SAFETY_SECS || now >= state.clock.blocks_worked_at + SAFETY_SECS * NS {
                state.clock.blocks_at = Some(state.clock.blocks_at.map_or(now, |due| due.min(now)));
            }
            records::due_now(state, now);
        }
        if state.clock.fires_at.is_some_and(|armed| armed <= now) {
            state.clock.fires_at = None;
            // Otherwise, if both timers fire together, each would keep arming a one-shot of its own while there is a backlog.
            Timer::Work.cancel();
        }
        let chosen = choice::choose(state, now, at);
        if let Some(Chosen { duty, late }) = &chosen {
            duty.work(state, now, *late);
        }
        rearm(state, now);
        // Otherwise an append that reaches a watermark again would find it reached before.
        state.clock.marks_reached = state.pruner.marks_reached(&state.chain, &state.blobs);
        // After the work, because pruned blocks no longer count as backlog.
        sampling::note(state);
        chosen
    });
    if let Some(hot) = chosen.and_then(|chosen| chosen.duty.hot()) {
        count(hot, platform::instructions());
    }
}

#[cfg(test)]
mod tests;
