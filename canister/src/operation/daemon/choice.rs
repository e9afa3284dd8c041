//! Choice between the duties that are due.

use super::blocks::Blocks;
use super::duty::{Duty, NEVER};
use super::records;
use crate::platform::cycles;
use crate::state::State;
use crate::state::clock::QUEUE_SECS;
use crate::state::records::KEPT;
use ic_coppice_storage::NS;

/// All duties. The first group is also worked on below `min_liquid_cycles`.
static DUTIES: [&[&dyn Duty]; 2] = [&[&Blocks], if KEPT { records::DUTIES } else { &[] }];

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
    let due = || paid().filter(|duty| duty.next_due(state, now) <= now);
    let is_late = |duty: &dyn Duty| {
        let (due, patience) = (duty.next_due(state, now), (2 * duty.interval_secs(state)).max(2 * QUEUE_SECS));
        now >= due.saturating_add(patience * NS) && at > due
    };
    let mut duty = due().min_by_key(|duty| (!duty.goes_first(state, now), duty.next_due(state, now)))?;
    if is_late(duty) {
        let turn = now / (state.clock.safety_secs * NS) % due().count() as u64;
        duty = due().nth(turn as usize)?;
    }
    Some(Chosen { duty, late: is_late(duty) })
}
