//! Timers for UTXO records and for the deletion queue, and the growth of memory that ticks for records need.

use super::{fire, judge, wake};
use crate::operation::sampling;
use crate::platform::cycles;
use crate::platform::meter::{Hot, count};
use crate::platform::timers::Timer;
use crate::platform::{self};
use crate::state::clock::QUEUE_SECS;
use crate::state::{State, mutate};
use crate::{logs, memory};
use coppice_storage::{Growth, NS};
use std::mem::replace;

/// Seconds between two attempts to grow memory for a tick if growing traps.
const GROWTH_SECS: u64 = 600;

/// Runs the timer for records at the interval in force if there is a job. Stops the timer if there is no job, or if records must stay: while
/// deletions are stopped, and until a rollback has ended, because the rollback has compared its blocks with the pruned height.
pub fn arm_records(state: &mut State) {
    let interval = state.records.pruner.interval_secs().filter(|_| may_prune_records(state));
    let interval = interval.filter(|_| cycles::pause().is_none());
    if replace(&mut state.clock.records_every, interval) == interval {
        return;
    }
    state.records.pruner.next_tick_ns = interval.map_or(0, |secs| platform::time_ns() + secs * NS);
    match interval {
        Some(secs) => Timer::Records.every(secs, || mutate(tick_records)),
        None => Timer::Records.cancel(),
    }
}

fn may_prune_records(state: &State) -> bool {
    state.deletions_stopped.is_none() && state.chain.state().rollback_to.is_none()
}

/// Arms the timer for the deletion queue for the next expiry or end of a back-off. While cycles are low only calls to the queue notice
/// these.
pub fn arm_deletions(state: &mut State) {
    if cycles::pause().is_some() {
        return;
    }
    let now = platform::time_ns();
    // The platform's timer may be lost: see `watch`. A worker's call wakes only the queue's timer.
    if let Some(due) = state.clock.deletions_at.filter(|at| now.saturating_sub(*at) > QUEUE_SECS * NS) {
        wake(&mut state.clock, due, "deletion queue: its timer is overdue; woken");
    }
    let Some(at) = state.records.deletions.next_event() else { return };
    let at = at.max(now);
    let armed = state.clock.deletions_at.filter(|armed| now <= armed.saturating_add(QUEUE_SECS * NS));
    if armed.is_some_and(|armed| armed <= at) {
        return;
    }
    let before = state.clock.deletions_at.replace(at);
    Timer::Deletions.once(at - now, before.is_some_and(|before| before > now), || mutate(tick_deletions));
}

/// Does the work of a firing for the deletion queue: expires leases and ends back-offs.
fn tick_deletions(state: &mut State) {
    fire(state, Timer::Deletions, |state| {
        state.clock.deletions_at = None;
        judge(state, 0);
        state.records.deletions.tick(platform::time_ns());
        arm_deletions(state);
        sampling::note(state);
    });
}

/// Does the work of a firing for records: a part of the job, if there is one.
fn tick_records(state: &mut State) {
    fire(state, Timer::Records, |state| {
        judge(state, 0);
        let low_on_cycles = cycles::pause().is_some();
        // Growth is deferred, because if growing traps, every firing of the interval timer would trap.
        memory::growth(|growth| {
            growth.put_off(|| {
                // The firing may have been scheduled before deletions were stopped, or a rollback began.
                if may_prune_records(state) {
                    let (pruner, mut records) = state.utxo_pruner();
                    pruner.tick(&mut records, low_on_cycles);
                }
            })
        });
        arm_growth(state);
        arm_records(state);
        sampling::note(state);
    });
    count(Hot::TimerRecords, platform::instructions());
}

/// Arms a one-shot that grows the memory that the tick wanted. If growing traps, the one-shot is lost and the next attempt waits
/// `GROWTH_SECS`.
fn arm_growth(state: &mut State) {
    let now = platform::time_ns();
    let tried = |at: u64| now < at.saturating_add(GROWTH_SECS * NS);
    if !memory::growth(Growth::is_wanted) || state.clock.growth_at.is_some_and(tried) {
        return;
    }
    state.clock.growth_at = Some(now);
    Timer::Growth.once(0, false, || mutate(grow));
}

/// Grows the memory that ticks wanted; logs the first refusal.
pub fn grow(state: &mut State) {
    let clock = &mut state.clock;
    match memory::growth(Growth::grow_wanted) {
        Ok(()) => (clock.growth_at, clock.logged_refused) = (None, false),
        Err(why) if !replace(&mut clock.logged_refused, true) => {
            logs::error(&format!("memory that the pruner of UTXO records needs cannot be grown: {why}"));
        }
        Err(_) => {}
    }
}
