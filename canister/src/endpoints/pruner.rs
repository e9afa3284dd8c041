//! The pruner of UTXO records (`docs/design.md` 7).

use crate::access::{operator, producer};
use crate::api::*;
use crate::daemon;
use crate::state::{mutate, read};
use ic_cdk::{query, update};

#[update(guard = "producer")]
fn notify_block_persisted(height: u32) -> Result<PruneTrigger, PrunerError> {
    daemon::watch();
    let by_operator = operator().is_ok();
    let answer = mutate(|state| state.utxo_pruner.notify_persisted(height, by_operator));
    daemon::arm_records();
    answer
}

#[update(guard = "producer")]
fn notify_block(height: u32, mined_set: bool) -> Result<PruneTrigger, PrunerError> {
    daemon::watch();
    let by_operator = operator().is_ok();
    let answer = mutate(|state| state.utxo_pruner.notify_block(height, mined_set, by_operator));
    daemon::arm_records();
    answer
}

#[update(guard = "producer")]
fn set_block_assembly_state(assembly: BlockAssemblyState) {
    mutate(|state| state.utxo_pruner.set_assembly(assembly));
    daemon::arm_records();
}

#[update(guard = "operator")]
fn prune_utxos(height: u32) -> Result<PruneJob, PrunerError> {
    let job = mutate(|state| {
        let (pruner, mut records) = state.utxo_pruner();
        pruner.prune(height, &mut records)
    });
    daemon::arm_records();
    job
}

#[update(guard = "operator")]
fn set_heights(heights: SetHeights) -> Result<HeightsSet, PrunerError> {
    let set = mutate(|state| state.utxo_pruner.set_heights(&heights, &state.config.utxo))?;
    daemon::arm_records();
    Ok(set)
}

#[update(guard = "operator")]
fn cancel_prune_job(id: u64) -> Result<PruneJob, PrunerError> {
    let job = mutate(|state| state.utxo_pruner.cancel(id))?;
    daemon::arm_records();
    Ok(job)
}

#[update(guard = "operator")]
fn set_pruner_settings(change: PrunerSettingsChange) -> Result<PrunerSettings, PrunerError> {
    let settings = mutate(|state| state.utxo_pruner.set_settings(&change))?;
    daemon::arm_records();
    Ok(settings)
}

#[query]
fn get_pruner_settings() -> PrunerSettings {
    read(|state| state.utxo_pruner.settings().clone())
}

#[update(guard = "operator")]
fn set_aside_unmined(slot: u32) -> Result<(), PrunerError> {
    mutate(|state| state.utxo_pruner.set_aside(slot))
}

#[update(guard = "operator")]
fn retry_record(slot: u32) -> Result<(), PrunerError> {
    mutate(|state| state.utxo_pruner.retry(slot))
}

#[query]
fn get_pruner_status() -> PrunerStatus {
    read(|state| state.utxo_pruner.status(&state.config.utxo, &state.deletions))
}

#[query]
fn list_prune_jobs(cursor: Option<u64>, limit: u32) -> PruneJobPage {
    read(|state| state.utxo_pruner.jobs(cursor, limit))
}
