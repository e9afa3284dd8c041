//! Endpoints for the pruner of UTXO records (`docs/design/record-pruning.md`).

use super::arming;
use crate::logs::audit::{field, fields, named};
use crate::state::records::settings_of;
use crate::state::{State, mutate, read};
use ic_coppice_interface::*;
use ic_coppice_records::pruning::NotifiedHeight;
use std::fmt::Debug;

/// Runs an operator's change and writes it to the audit log with the pruner's heights, jobs and records.
pub(super) fn noting<T, E: Debug + std::fmt::Display>(
    state: &mut State,
    method: &str,
    argument: impl ToString,
    change: impl FnOnce(&mut State) -> Result<T, E>,
) -> Result<T, E> {
    let shown = |state: &State| {
        let mut shown = named(state.records.pruner.shown());
        shown.push(field("pending blob deletions", state.records.deletions.pending_count()));
        shown.push(field("dead blob deletions", state.records.deletions.dead_count()));
        shown
    };
    state.noting(method, argument.to_string(), shown, change)
}

/// Notifies the pruner of a height. A height that a feeder may not notify is an operator's change, which the audit log records.
fn notifying<T: Debug>(
    method: &str,
    (height, which): (u32, NotifiedHeight),
    notify: impl FnOnce(&mut State, bool) -> Result<T, UtxoPrunerError>,
) -> Result<T, UtxoPrunerError> {
    arming(|state| {
        let by_operator = state.caller_is(Role::Operator);
        match state.records.pruner.check_feeder(height, which, state.chain.state().head()) {
            Err(_) if by_operator => noting(state, method, height, |state| notify(state, true)),
            Err(error) => {
                state.records.pruner.note_refused(height, which, &error);
                Err(error)
            }
            Ok(()) => notify(state, by_operator),
        }
    })
}

pub fn utxo_notify_block_persisted(height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    notifying("utxo_notify_block_persisted", (height, NotifiedHeight::Persisted), |state, by_operator| {
        state.records.pruner.notify_persisted(height, by_operator)
    })
}

pub fn utxo_notify_block(height: u32, mined_set: bool) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    notifying("utxo_notify_block", (height, NotifiedHeight::Current), |state, by_operator| {
        state.records.pruner.notify_block(height, mined_set, by_operator)
    })
}

pub fn utxo_set_block_assembly_state(assembly: UtxoBlockAssemblyState, height: Option<u32>) {
    arming(|state| state.records.pruner.set_assembly(assembly, height, settings_of(&state.config)));
}

pub fn utxo_prune(height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
    arming(|state| {
        noting(state, "utxo_prune", height, |state| {
            if state.deletions_stopped.is_some() {
                return Err(UtxoPrunerError::Stopped);
            }
            // Ticks, too, wait for the end of a rollback.
            if state.chain.state().rollback_to.is_some() {
                return state.records.pruner.enqueue(height);
            }
            let (pruner, mut records) = state.utxo_pruner();
            pruner.prune(height, &mut records)
        })
    })
}

pub fn utxo_set_heights(heights: UtxoSetHeights) -> Result<UtxoHeightsSet, UtxoPrunerError> {
    arming(|state| {
        noting(state, "utxo_set_heights", format!("{heights:?}"), |state| {
            state.records.pruner.set_heights(&heights, settings_of(&state.config))
        })
    })
}

pub fn utxo_cancel_prune_job(id: u64) -> Result<UtxoPruneJob, UtxoPrunerError> {
    arming(|state| noting(state, "utxo_cancel_prune_job", id, |state| state.records.pruner.cancel(id)))
}

pub fn utxo_set_pruner_settings(change: UtxoPrunerSettingsChange) -> Result<UtxoPrunerSettings, UtxoPrunerError> {
    let shown = |state: &State| fields(&state.records.pruner.stored().settings);
    arming(|state| {
        state.noting("utxo_set_pruner_settings", format!("{change:?}"), shown, |state| {
            state.records.pruner.set_settings(&change, settings_of(&state.config))
        })
    })
}

pub fn utxo_skip_record(slot: u32, skip: bool) -> Result<(), UtxoPrunerError> {
    let argument = if skip { format!("{slot}") } else { format!("{slot}, look again") };
    mutate(|state| {
        noting(state, "utxo_skip_record", argument, |state| match skip {
            true => state.records.pruner.skip(slot),
            false => state.records.pruner.retry(slot),
        })
    })
}

pub fn utxo_get_pruner_status() -> UtxoPrunerStatus {
    read(|state| UtxoPrunerStatus {
        deletions_stopped_since_ns: state.deletions_stopped,
        ..state.records.pruner.status(settings_of(&state.config), &state.records.deletions)
    })
}

pub fn utxo_list_prune_jobs(cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
    read(|state| state.records.pruner.jobs(cursor, limit))
}
