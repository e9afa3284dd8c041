//! Duties: the kinds of work of the daemon, and the choice between those that are due.

use super::records;
use crate::platform::cycles;
use crate::platform::meter::Hot;
use crate::state::State;
use crate::state::clock::QUEUE_SECS;
use coppice_storage::NS;

/// Due time of a duty that nothing makes due.
pub const NEVER: u64 = u64::MAX;

/// A kind of work of the daemon.
pub trait Duty: Sync {
    /// Returns when the work is due, in Unix nanoseconds; [`NEVER`] if nothing makes it due. A firing that traps leaves the time as it was.
    fn next_due(&self, state: &State, now: u64) -> u64;

    /// Seconds between two parts of the work.
    fn interval_secs(&self, state: &State) -> u64;

    /// Does a part of the work that fits a message. `late`: earlier firings must have trapped.
    fn work(&self, state: &mut State, now: u64, late: bool);

    /// Returns whether the work goes before that of all other duties.
    fn goes_first(&self, _state: &State, _now: u64) -> bool {
        false
    }

    /// The name under which `coppice_message_instructions` counts the work.
    fn hot(&self) -> Option<Hot> {
        None
    }
}

/// Work on blocks: uploads that have expired, what an interrupted rollback, abort or reset has left, pruning, sweeps.
struct Blocks;

/// All duties. Those of the first group are also worked on below `min_liquid_cycles`.
static DUTIES: [&[&dyn Duty]; 2] = [&[&Blocks], records::DUTIES];

impl Duty for Blocks {
    fn next_due(&self, state: &State, _now: u64) -> u64 {
        state.clock.blocks_at.unwrap_or(NEVER)
    }

    fn interval_secs(&self, state: &State) -> u64 {
        state.pruner.interval_secs()
    }

    /// Does one piece of begun work, or one bounded run.
    fn work(&self, state: &mut State, now: u64, late: bool) {
        let next = state.tick(late);
        state.clock.blocks_worked_at = now;
        // What a message has made due for later stays.
        state.clock.blocks_at = state.clock.blocks_at.filter(|due| *due > now);
        state.clock.blocks_by(next.max(now));
    }

    /// Appends wait for the end of what was begun.
    fn goes_first(&self, state: &State, now: u64) -> bool {
        state.begun_at(now).is_some_and(|due| due <= now)
    }

    fn hot(&self) -> Option<Hot> {
        Some(Hot::TimerBlocks)
    }
}

/// The duty that a firing works on.
pub struct Chosen {
    /// The duty.
    pub duty: &'static dyn Duty,
    /// Earlier firings that were to do the work must have trapped.
    pub late: bool,
}

/// Returns the duties that the balance pays for.
fn paid() -> impl Iterator<Item = &'static dyn Duty> {
    let groups = if cycles::pause().is_none() { &DUTIES[..] } else { &DUTIES[..1] };
    groups.iter().flat_map(|group| group.iter().copied())
}

/// Returns when the first duty is due; [`NEVER`] if none is.
pub fn first_due(state: &State, now: u64) -> u64 {
    paid().map(|duty| duty.next_due(state, now)).min().unwrap_or(NEVER)
}

/// Returns the duty of a firing that was to come at `at`: one that goes first, otherwise the one that has been due longest. If that one is late,
/// firings have trapped: then the duties that are due take turns, so that one that traps delays no other.
pub fn choose(state: &State, now: u64, at: u64) -> Option<Chosen> {
    let mut due: Vec<(bool, u64, &'static dyn Duty)> = paid()
        .map(|duty| (!duty.goes_first(state, now), duty.next_due(state, now), duty))
        .filter(|(_, due, _)| *due <= now)
        .collect();
    due.sort_by_key(|(is_later, due, _)| (*is_later, *due));
    let is_late = |&(_, due, duty): &(bool, u64, &'static dyn Duty)| {
        let patience = (2 * duty.interval_secs(state)).max(2 * QUEUE_SECS);
        now >= due.saturating_add(patience * NS) && at > due
    };
    let first = due.first()?;
    let turn = if is_late(first) { (now / (state.clock.safety_secs * NS)) as usize % due.len() } else { 0 };
    let chosen = &due[turn];
    Some(Chosen { duty: chosen.2, late: is_late(chosen) })
}
