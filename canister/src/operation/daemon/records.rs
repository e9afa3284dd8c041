//! Duties of UTXO records: jobs of their pruner, leases of the deletion queue, and growth of the memory that jobs need.

use super::duty::{Duty, NEVER};
use crate::logs;
use crate::platform::cycles;
use crate::platform::meter::Hot;
use crate::state::State;
use crate::state::clock::QUEUE_SECS;
use crate::state::records::KEPT;
use ic_coppice_storage::NS;
use std::mem::replace;

/// Seconds between two attempts to grow memory, if growing traps or is refused.
const GROWTH_SECS: u64 = 600;

/// A job of the record pruner; each part has its own message.
struct Job;
/// Leases that expire, and rows whose back-off ends.
struct Leases;
/// Growth of memory, in a message of its own, because each part of a job would trap if growing traps.
struct Grow;

/// The duties.
pub const DUTIES: &[&dyn Duty] = &[&Job, &Leases, &Grow];

/// Returns the seconds between two parts of the job; `None` if there is no job, or if records must stay: while deletions are stopped, and
/// until a rollback has ended, because the rollback has compared its blocks with the pruned height.
pub fn job_secs(state: &State) -> Option<u64> {
    // A build that keeps no records may have the job of one that kept some.
    state.records.pruner.interval_secs().filter(|_| KEPT && may_prune(state))
}

fn may_prune(state: &State) -> bool {
    state.deletions_stopped.is_none() && state.chain.state().rollback_to.is_none()
}

/// Makes the next part of a job due if the safety timer fires at the job's interval, because it replays the firings that it has missed.
pub fn due_now(state: &mut State, now: u64) {
    if state.clock.job_secs == Some(state.clock.safety_secs) {
        let next = &mut state.records.pruner.next_tick_ns;
        *next = now.min(*next);
    }
}

impl Duty for Job {
    fn next_due(&self, state: &State, _now: u64) -> u64 {
        state.clock.job_secs.map_or(NEVER, |_| state.records.pruner.next_tick_ns)
    }

    fn interval_secs(&self, state: &State) -> u64 {
        state.clock.job_secs.unwrap_or_default()
    }

    fn work(&self, state: &mut State, now: u64, late: bool) {
        let low_on_cycles = cycles::pause().is_some();
        let arena = state.blobs.arena().clone();
        arena.growth().put_off(|| {
            // The last message may have begun a rollback, or stopped deletions.
            if may_prune(state) {
                let (pruner, mut records) = state.utxo_pruner();
                pruner.tick(&mut records, low_on_cycles, late);
            }
        });
        if state.clock.growth_at.is_none() && arena.growth().is_wanted() {
            state.clock.growth_at = Some(now);
        }
    }

    fn hot(&self) -> Option<Hot> {
        Some(Hot::TimerRecords)
    }
}

/// Returns the due time of an event of the queue, of which 0 is one that is due at once, since an unknown time. Such an event goes before a backlog
/// of blocks, and is not late, because lateness is a sign of traps.
fn due_of(event: u64, now: u64) -> u64 {
    if event > 0 { event } else { now.saturating_sub((2 * QUEUE_SECS - 1) * NS) }
}

impl Duty for Leases {
    fn next_due(&self, state: &State, now: u64) -> u64 {
        state.records.deletions.next_event().map_or(NEVER, |event| due_of(event, now))
    }

    fn interval_secs(&self, _state: &State) -> u64 {
        QUEUE_SECS
    }

    fn work(&self, state: &mut State, now: u64, _late: bool) {
        state.records.deletions.tick(now);
    }
}

impl Duty for Grow {
    /// Only during the first seconds of each period, because an attempt that traps cannot record that it was made.
    fn next_due(&self, state: &State, now: u64) -> u64 {
        let Some(first) = state.clock.growth_at else { return NEVER };
        let (period, window) = (GROWTH_SECS * NS, 2 * QUEUE_SECS * NS);
        let since = now.saturating_sub(first);
        let begun = first + since / period * period;
        if now.saturating_sub(begun) < window { begun } else { begun + period }
    }

    fn interval_secs(&self, _state: &State) -> u64 {
        GROWTH_SECS
    }

    fn work(&self, state: &mut State, now: u64, _late: bool) {
        grow(state, now);
    }
}

/// Grows the memory that a job needs, and logs the first refusal.
pub fn grow(state: &mut State, now: u64) {
    let clock = &mut state.clock;
    match state.blobs.arena().grow_wanted() {
        Ok(()) => (clock.growth_at, clock.logged_refused) = (None, false),
        Err(why) => {
            clock.growth_at = Some(now + GROWTH_SECS * NS);
            if !replace(&mut clock.logged_refused, true) {
                logs::error(&format!("memory that the pruner of UTXO records needs cannot be grown: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_that_is_due_at_once_goes_before_a_backlog_and_is_not_late() {
        let now = 1_700_000_000 * NS;
        let due = due_of(0, now);
        assert!(due < now - NS && now < due + 2 * QUEUE_SECS * NS);
        assert_eq!([due_of(1, now), due_of(now + 1, now)], [1, now + 1]);
    }
}
