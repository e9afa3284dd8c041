//! Findings about UTXO records: their pruning, notified heights, memory, applying, the deletion queue.

mod applying;
mod deletions;
mod memory;

use super::action::{Action, Command};
use super::advice::{PAGES, RESERVED, UTXO_BYTES, more};
use super::finding::{Finding, finding};
use crate::state::State;
use crate::state::records::{KEPT, settings_of};
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{MAX_STABLE_PAGES, ProblemCode, UtxoJobTrigger, UtxoPrunerSettings, UtxoSettings};
use ic_coppice_records::pruning::{Stored, UtxoPruner, cannot_preserve};
use ic_coppice_records::utxo::{Cursor, UtxoStore};
use ic_coppice_storage::WASM_PAGE;

pub(super) use applying::with_stop;

/// Words for what stops while deletions are stopped.
pub(super) const STOPPED: &str = match KEPT {
    true => "no block and no UTXO record is pruned, and workers get no blob to delete",
    false => "no block is pruned",
};
/// Words for a canister that nothing feeds.
pub(super) const NO_FEEDER: &str = match KEPT {
    true => "no principal has a role that feeds blocks or UTXO records",
    false => "no principal has a role that feeds blocks",
};

/// Seconds for which a job may wait for the block assembly, which stops during a reorg or a restart.
const ASSEMBLY_PATIENCE_SECS: u64 = 3_600;
/// Seconds for which the pruner may be switched off while there is a job, for example during an operator's investigation.
const OFF_PATIENCE_SECS: u64 = 3_600;

/// Blocks since a record was due, before it is reported: a day's.
const OVERDUE_BLOCKS: u32 = 144;
/// Seconds for which there may be such a record, for example while a chain is ingested.
const OVERDUE_PATIENCE_SECS: u64 = 3_600;

/// Returns all findings about records. `deep`: also those that read the first rows of the deletion queue.
pub(super) fn findings(state: &State, deep: bool) -> Vec<Finding> {
    let (pruner, utxo, is_stopped) =
        (&state.records.pruner, settings_of(&state.config), state.deletions_stopped.is_some());
    let mut found = of(pruner.stored());
    // While deletions are stopped, which is a finding of its own, nothing is deleted, and workers get no blob.
    if !is_stopped {
        found.extend(overdue(pruner, &state.records.utxo, utxo));
        found.extend(if deep { deletions::overdue(state) } else { None });
        found.extend(deletions::idle_holder(state));
    }
    heights(pruner, utxo.block_height_retention, &mut found);
    match state.records.deletions.dead_count() {
        0 => {}
        1 => found.push(finding(ProblemCode::DeadBlobDeletions, "1 external blob was given up")),
        dead => found.push(finding(ProblemCode::DeadBlobDeletions, format!("{dead} external blobs were given up"))),
    }
    found.extend(applying::stopped_applying(state));
    found.extend(applying::records_of_blocks(state));
    found.extend(memory::external(state));
    found.extend(memory::records(state));
    found.extend(memory::stuck_transaction(state));
    found
}

/// Returns findings about what the pruner has stored.
pub(super) fn of(stored: &Stored) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(of_records(
        ProblemCode::RecordsSkipped,
        (stored.turns.skipped().len(), stored.turns.skipped().first().map(|at| &at.cursor)),
        [
            "UTXO record is skipped because examining it trapped",
            "UTXO records are skipped because examining them trapped",
        ],
        "See `skipped` of utxo_get_pruner_status, then retry the record.",
    ));
    found.extend(of_records(
        ProblemCode::UnminedSkipped,
        (stored.unreadable.len(), stored.unreadable.first()),
        ["unmined UTXO record that cannot be read is skipped", "unmined UTXO records that cannot be read are skipped"],
        "Its parents are not preserved: set its transaction as mined, or create it again; then retry the record.",
    ));
    if let Some(blocked) = &stored.blocked_by {
        let message = format!("UTXO records are not pruned: {}", cannot_preserve(blocked));
        let action = remedy(&blocked.code, stored.current);
        found.push(finding(ProblemCode::PreservationBlocked, message).with_action(action));
    }
    if let Some((id, phase)) = stored.trapped {
        let message = format!(
            "UTXO records are not pruned: job {id} failed because finding the next record in {phase:?} trapped repeatedly"
        );
        found.push(finding(ProblemCode::PrunerTrapped, message));
    }
    let mut jobs = stored.running.iter().chain(&stored.pending);
    if let Some(job) = jobs.clone().next().filter(|_| !stored.assembly_running) {
        let message = format!(
            "UTXO records are not pruned: job {} for height {} waits for the block assembly, which was not reported as running",
            job.id, job.height
        );
        found.push(finding(ProblemCode::UtxoPrunerWaits, message).lasting(ASSEMBLY_PATIENCE_SECS));
    }
    // An operator's own job runs even while the pruner is switched off.
    let triggered = jobs.find(|job| job.trigger != UtxoJobTrigger::Manual);
    if let Some(job) = triggered.filter(|_| !stored.settings.pruner_enabled) {
        let message =
            format!("job {} for height {} of UTXO records is due, and pruner_enabled is off", job.id, job.height);
        found.push(finding(ProblemCode::UtxoPrunerOff, message).lasting(OFF_PATIENCE_SECS));
    }
    found
}

/// Returns a finding about `count` records, which names the first, or `None` without records.
fn of_records(
    code: ProblemCode,
    (count, first): (usize, Option<&Cursor>),
    [one, many]: [&str; 2],
    text: &'static str,
) -> Option<Finding> {
    let Cursor { slot, txid, .. } = first?;
    let message = match count {
        1 => format!("1 {one}: that of transaction {}", hex(txid)),
        _ => format!("{count} {many}, the first that of transaction {}", hex(txid)),
    };
    let action = Action::new(text, Command::call("utxo_skip_record", format!("({slot}, false)")));
    Some(finding(code, message).with_action(action))
}

/// Returns a finding about records that are due and not deleted, with the reason if a setting or a height is one.
fn overdue(pruner: &UtxoPruner, records: &UtxoStore, utxo: &UtxoSettings) -> Option<Finding> {
    let Stored { settings, assembly_running, current, persisted, assembly_height, .. } = pruner.stored();
    let due = pruner.overdue(records)?;
    let blocks = current - due;
    if blocks < OVERDUE_BLOCKS {
        return None;
    }
    let persisted = Some(*persisted).filter(|height| (1..due).contains(height));
    let reason = match (persisted, assembly_height.filter(|height| *height < due)) {
        _ if settings.disable_dah_cleaner => "disable_dah_cleaner is on".into(),
        _ if !settings.pruner_enabled => "pruner_enabled is off".into(),
        _ if !assembly_running => "the block assembly was not reported as running".into(),
        (_, Some(height)) => format!("the block assembly is at height {height}"),
        (Some(height), None) => format!("blocks are persisted up to height {height}"),
        (None, None) => {
            format!("the safe height is {}, and no run has deleted them", pruner.safe_height(utxo, *current))
        }
    };
    let message = format!(
        "UTXO records that were due at height {due} exist at height {current}, {blocks} blocks later: {reason}"
    );
    Some(finding(ProblemCode::RecordsOverdue, message).lasting(OVERDUE_PATIENCE_SECS))
}

fn heights(pruner: &UtxoPruner, retention: u32, found: &mut Vec<Finding>) {
    let UtxoPrunerSettings { max_height_jump: max_jump, heights_per_day: per_day, .. } = pruner.stored().settings;
    if let Some((height, highest)) = pruner.low_height() {
        // An attacker may have notified either height, so the operator must set the height of a trusted node.
        let message = format!(
            "height {height} was notified after {highest}: no UTXO record is pruned until the chain reaches the higher one"
        );
        found.push(finding(ProblemCode::HeightsAhead, message));
    }
    if let Some(height) = pruner.refused_height() {
        let message = format!(
            "a feeder's height {height} was refused, because max_height_jump = {max_jump} and heights_per_day = {per_day} do not let it raise \
             heights that far: records are kept until the height is accepted"
        );
        found.push(finding(ProblemCode::HeightsRefused, message));
    }
    if per_day == 0 {
        let message = "heights_per_day is 0: a producer may raise heights without limit and thereby have all spent records deleted";
        found.push(finding(ProblemCode::HeightsUnlimited, message));
    } else if pruner.stored().current > 0 && retention > 0 && max_jump > retention {
        let message = format!(
            "max_height_jump = {max_jump} is above block_height_retention = {retention}: a producer may at once have records deleted that retention \
             would keep"
        );
        found.push(finding(ProblemCode::HeightJumpWide, message));
    }
}

/// Returns the remedy if parents are not preserved for a reason other than a damaged record. In this case the parents are intact, and
/// skipping the record would have them pruned.
pub(super) fn remedy(code: &str, current: u32) -> Option<Action> {
    let (text, command) = match code {
        "LowCycles" => ("Top the canister up.", Command::TopUp),
        "ReservedCyclesLimit" => {
            ("Raise reserved_cycles_limit of the canister on the platform.", Command::ReservedLimit)
        }
        "RecordsFull" => ("Raise max_utxo_bytes of the UTXO settings.", UTXO_BYTES),
        "OutOfSpace" => ("Raise max_stable_pages, or keep less (set_prune_policy).", PAGES),
        _ => return None,
    };
    let action = Action::new(text, command);
    let action = if code == "ReservedCyclesLimit" { action.then(RESERVED.0, RESERVED.1) } else { action };
    Some(action.then("Then prune the records.", Command::call("utxo_prune", format!("({current})"))))
}

/// Returns the value of a name in a command, about records.
pub(super) fn value(state: &State, name: &str) -> String {
    let (settings, quota) = (settings_of(&state.config), state.blobs.arena().quota());
    let number = match name {
        "max_external_bytes" => settings.max_external_bytes.saturating_mul(2),
        "max_utxo_bytes" => more(quota),
        "pages_for_records" => {
            (state.config.max_stable_pages + (quota / 4 + quota / 16).div_ceil(WASM_PAGE)).min(MAX_STABLE_PAGES)
        }
        "max_deletion_rows" => settings.max_deletion_rows.saturating_mul(2),
        "heights_per_day" => u64::from(state.records.pruner.stored().settings.heights_per_day).saturating_mul(2),
        _ => {
            let holder = state.records.deletions.idle_holder().map(|(holder, _)| holder);
            return holder.unwrap_or(candid::Principal::anonymous()).to_text();
        }
    };
    number.to_string()
}
