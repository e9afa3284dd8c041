//! Duty: a kind of work of the daemon.

use crate::platform::meter::Hot;
use crate::state::State;

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
