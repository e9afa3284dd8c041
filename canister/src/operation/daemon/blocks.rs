//! Duty of blocks.

use super::duty::{Duty, NEVER};
use crate::platform::meter::Hot;
use crate::state::State;

/// Most seconds between two ticks while they skip work that traps, because some ten late ones find a piece.
const TRAP_SECS: u64 = 60;

/// Returns the seconds between two ticks while they skip work that traps; `None` if they skip none.
pub fn trap_secs(state: &State) -> Option<u64> {
    let interval = state.pruner.interval_secs().min(TRAP_SECS);
    state.pruner.stored().turns.are_short().then_some(interval)
}

/// Work on blocks: uploads that have expired, what an interrupted rollback, abort or reset has left, pruning, sweeps.
pub struct Blocks;

impl Duty for Blocks {
    fn next_due(&self, state: &State, _now: u64) -> u64 {
        state.clock.blocks_at.unwrap_or(NEVER)
    }

    fn interval_secs(&self, state: &State) -> u64 {
        trap_secs(state).unwrap_or_else(|| state.pruner.interval_secs())
    }

    /// Does one piece of begun work, or one bounded run.
    fn work(&self, state: &mut State, now: u64, late: bool) {
        let next = state.tick(late);
        state.clock.blocks_worked_at = now;
        // A later time that a message has noted stays.
        state.clock.blocks_at = state.clock.blocks_at.filter(|due| *due > now);
        state.blocks_by(now, next);
    }

    /// Appends wait for the end of what was begun.
    fn goes_first(&self, state: &State, now: u64) -> bool {
        state.begun_at(now).is_some_and(|due| due <= now)
    }

    fn hot(&self) -> Option<Hot> {
        Some(Hot::TimerBlocks)
    }
}
