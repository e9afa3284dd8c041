//! Duties in the build without UTXO records: the functions of `records.rs`, for no duties.

use super::duty::Duty;
use crate::state::State;

pub(super) static DUTIES: &[&dyn Duty] = &[];

pub(super) fn job_secs(_state: &State) -> Option<u64> {
    None
}

pub(super) fn follow(_state: &mut State, _interval: Option<u64>) {}

pub(super) fn due_now(_state: &mut State, _now: u64) {}
