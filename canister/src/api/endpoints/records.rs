//! The pruner of UTXO records (`docs/design.md` 7).

use crate::api::access::{operator, utxo_feeder};
use crate::api::wire;
use crate::logs::audit::{field, fields};
use crate::operation::daemon;
use crate::pruning::records::NotifiedHeight;
use crate::state::{State, mutate, read};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};
use std::fmt::Debug;

/// Runs a message that may change the jobs, then arms or cancels the timer for records.
fn message<T>(run: impl FnOnce(&mut State) -> T) -> T {
    mutate(|state| {
        let result = run(state);
        daemon::arm_records(state);
        result
    })
}

/// Changes something for an operator, and notes that in the audit log with the pruner's heights, jobs and records.
pub(super) fn noting<T, E: Debug>(
    state: &mut State,
    method: &str,
    argument: impl ToString,
    change: impl FnOnce(&mut State) -> Result<T, E>,
) -> Result<T, E> {
    let shown = |state: &State| {
        let mut shown = state.utxo_pruner.shown();
        shown.push(field("pending blob deletions", state.deletions.pending_count()));
        shown.push(field("dead blob deletions", state.deletions.dead_count()));
        shown
    };
    state.noting(method, argument.to_string(), shown, change)
}

/// Tells the pruner a height. A height that a producer may not tell is an operator's change, and noted.
fn notifying<T: Debug>(
    method: &str,
    (height, which): (u32, NotifiedHeight),
    notify: impl FnOnce(&mut State, bool) -> Result<T, UtxoPrunerError>,
) -> Result<T, UtxoPrunerError> {
    message(|state| {
        daemon::watch(state);
        let by_operator = state.caller_is(Role::Operator);
        match state.utxo_pruner.check_feeder(height, which, state.chain.state().head()) {
            Err(_) if by_operator => noting(state, method, height, |state| notify(state, true)),
            Err(error) => {
                state.utxo_pruner.note_refused(height, which, &error);
                Err(error)
            }
            Ok(()) => notify(state, by_operator),
        }
    })
}

/// Says that blocks up to this height are persisted, and schedules the pruning of what is due; a feeder's, as far as
/// `max_height_jump` and `heights_per_day` let it raise the height, or an operator's; 0 is refused. The same height again
/// answers what became of it.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(u32,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn notify_block_persisted(height: u32) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    notifying("notify_block_persisted", (height, NotifiedHeight::Persisted), |state, by_operator| {
        state.utxo_pruner.notify_persisted(height, by_operator)
    })
}

/// Says that a block of this height was validated, and whether its transactions are marked as mined; a feeder's, as far
/// as `max_height_jump` and `heights_per_day` let it raise the height, or an operator's; 0 is refused. It schedules pruning
/// while nothing was ever persisted. The same height again answers what became of it.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(u32, bool,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
fn notify_block(height: u32, mined_set: bool) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
    notifying("notify_block", (height, NotifiedHeight::Current), |state, by_operator| {
        state.utxo_pruner.notify_block(height, mined_set, by_operator)
    })
}

/// Says whether the block assembly runs: records are pruned only then; a feeder's. Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "utxo_feeder",
    guard = "wire::readable::<(UtxoBlockAssemblyState,)>",
    hidden = true,
    decode_with = "wire::arg"
)]
fn set_block_assembly_state(assembly: UtxoBlockAssemblyState) {
    message(|state| state.utxo_pruner.set_assembly(assembly));
}

/// Prunes records as if the chain were at this height at once, over as many ticks as that takes, also where the timer is
/// switched off; an operator's. The block assembly has to run. 0 is refused, and a height above the highest that was
/// notified, if one was. Calling again finds what is left.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u32,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn prune_utxos(height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
    message(|state| {
        noting(state, "prune_utxos", height, |state| {
            if state.deletions_stopped.is_some() {
                return Err(UtxoPrunerError::Stopped);
            }
            let (pruner, mut records) = state.utxo_pruner();
            pruner.prune(height, &mut records)
        })
    })
}

/// Sets the heights by which records are pruned, in whichever direction; an operator's. A height of 0 is the one before
/// any was notified, or pruned. Producers may raise them by `max_height_jump` again. Jobs that wait or run are cancelled,
/// and one is made for what is due, by a repeated call as well.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(UtxoSetHeights,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_heights(heights: UtxoSetHeights) -> Result<UtxoHeightsSet, UtxoPrunerError> {
    message(|state| {
        noting(state, "set_heights", format!("{heights:?}"), |state| {
            state.utxo_pruner.set_heights(&heights, &state.config.utxo)
        })
    })
}

/// Cancels the job with this number while it waits or runs; an operator's. A second call answers `NotOpen`.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn cancel_prune_job(id: u64) -> Result<UtxoPruneJob, UtxoPrunerError> {
    message(|state| noting(state, "cancel_prune_job", id, |state| state.utxo_pruner.cancel(id)))
}

/// Changes the settings by which records are pruned; an operator's. What is left out stays; repeating the call changes
/// nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(UtxoPrunerSettingsChange,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_pruner_settings(change: UtxoPrunerSettingsChange) -> Result<UtxoPrunerSettings, UtxoPrunerError> {
    let shown = |state: &State| fields(state.utxo_pruner.settings());
    message(|state| {
        state.noting("set_pruner_settings", format!("{change:?}"), shown, |state| {
            state.utxo_pruner.set_settings(&change, &state.config.utxo)
        })
    })
}

/// The settings by which records are pruned; for anyone.
#[query]
fn get_pruner_settings() -> UtxoPrunerSettings {
    read(|state| state.utxo_pruner.settings().clone())
}

/// Sets aside the unmined record in this slot, which cannot be read and stops pruning; an operator's. 100 records at most.
/// Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u32,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_aside_unmined(slot: u32) -> Result<(), UtxoPrunerError> {
    mutate(|state| noting(state, "set_aside_unmined", slot, |state| state.utxo_pruner.set_aside(slot)))
}

/// Takes back that the record in this slot is set aside or left alone: it is looked at again; an operator's. A second call
/// answers `NotBlocking`.
#[candid_method(update)]
#[update(
    guard = "operator",
    guard = "wire::readable::<(u32,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn retry_record(slot: u32) -> Result<(), UtxoPrunerError> {
    mutate(|state| noting(state, "retry_record", slot, |state| state.utxo_pruner.retry(slot)))
}

/// Everything that an operator needs to see of the pruning of records; for anyone.
#[query]
fn get_pruner_status() -> UtxoPrunerStatus {
    read(|state| UtxoPrunerStatus {
        deletions_stopped_since: state.deletions_stopped,
        ..state.utxo_pruner.status(&state.config.utxo, &state.deletions)
    })
}

/// Jobs that wait or run, then those that ended, the last first, from the cursor on; for anyone. A page has `limit` jobs at
/// most, and 500; 0: 100. There is more while there is a cursor.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<u64>, u32,)>", hidden = true, decode_with = "wire::args")]
fn list_prune_jobs(cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
    read(|state| state.utxo_pruner.jobs(cursor, limit))
}
