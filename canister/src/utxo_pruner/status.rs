//! What an operator sees.

use super::run::At;
use super::skipped::hex;
use super::{Stored, UtxoPruner};
use crate::audit::{Fields, field};
use crate::deletion::DeletionQueue;
use crate::health::{Action, Command, Finding, finding, refusal, remedy};
use crate::utxo_pruner::settings::Settings as _;
use coppice_interface::{
    ProblemCode, UtxoBlockAssemblyState, UtxoBlockedBy, UtxoError, UtxoJobEnd, UtxoJobTrigger, UtxoPassedOver,
    UtxoPruneCounts, UtxoPruneJob, UtxoPruneJobPage, UtxoPrunerStatus, UtxoSettings,
};

/// Seconds for which a job may wait for the block assembly before `health` calls it a problem: it stops for a reorg, or to be started anew.
const ASSEMBLY_PATIENCE_SECS: u64 = 3_600;
/// Seconds for which the pruner may be switched off while there is a job before `health` calls it a problem: somebody looks at something.
const OFF_PATIENCE_SECS: u64 = 3_600;

fn passed_over(at: &At) -> UtxoPassedOver {
    UtxoPassedOver { phase: at.phase, slot: at.cursor.slot, txid: at.cursor.txid.into() }
}

/// Why parents are not preserved, without figures of cycles.
pub fn cannot_preserve(blocked: &UtxoBlockedBy) -> String {
    let why = refusal(blocked.error.clone());
    format!("parents of the unmined transaction {} cannot be preserved: {why}", hex(&blocked.txid))
}

/// Why parents were not preserved, as a job keeps it: everybody may read jobs, and how many cycles are missing gives the balance away.
pub fn without_cycles(mut blocked: UtxoBlockedBy) -> UtxoBlockedBy {
    if let UtxoError::LowCycles { missing } | UtxoError::ReservedCyclesLimit { missing } = &mut blocked.error {
        *missing = 0;
    }
    blocked
}

/// The same of a job, as code before this one may have kept it.
pub fn job_without_cycles(mut job: UtxoPruneJob) -> UtxoPruneJob {
    job.end = job.end.map(|end| match end {
        UtxoJobEnd::PreserveParents(blocked) => UtxoJobEnd::PreserveParents(without_cycles(blocked)),
        other => other,
    });
    job
}

/// Adds to `counts` what has become more since `before`.
pub fn add(counts: &mut UtxoPruneCounts, now: &UtxoPruneCounts, before: &UtxoPruneCounts) {
    let all: [fn(&mut UtxoPruneCounts) -> &mut u64; 17] = [
        |c| &mut c.old_unmined,
        |c| &mut c.parents_preserved,
        |c| &mut c.preservations_expired,
        |c| &mut c.processed,
        |c| &mut c.records_deleted,
        |c| &mut c.pages_deleted,
        |c| &mut c.records_deleting,
        |c| &mut c.parents_updated,
        |c| &mut c.outputs_released,
        |c| &mut c.external_files_deleted,
        |c| &mut c.external_files_missing,
        |c| &mut c.skipped_child_unmined,
        |c| &mut c.skipped_child_recent,
        |c| &mut c.skipped_child_absent,
        |c| &mut c.external_errors,
        |c| &mut c.record_errors,
        |c| &mut c.chunks,
    ];
    let (mut now, mut before) = (*now, *before);
    for field in all {
        *field(counts) += *field(&mut now) - *field(&mut before);
    }
}

impl UtxoPruner {
    /// What operators change of it, but for the settings.
    pub fn shown(&self) -> Fields {
        let stored = &self.stored;
        let id = |job: &Option<UtxoPruneJob>| job.as_ref().map_or("none".into(), |job| format!("job {}", job.id));
        let slots = |slots: Vec<u32>| format!("{slots:?}");
        vec![
            field("current_height", stored.current),
            field("last_persisted_height", stored.persisted),
            field("last_processed_height", stored.processed),
            field("pending", id(&stored.pending)),
            field("running", id(&stored.running)),
            field("records_deleted", stored.totals.records_deleted),
            field("set_aside", slots(stored.set_aside.iter().map(|at| at.slot).collect())),
            field("passed_over", slots(stored.passed_over.iter().map(|at| at.cursor.slot).collect())),
        ]
    }

    /// Jobs: those that wait or run, then those that ended, the last first.
    pub fn jobs(&self, cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
        let active = [self.stored.pending.clone(), self.stored.running.clone()].into_iter().flatten();
        self.stored.ended.page(&self.cells, active, cursor, limit)
    }

    /// Everything that an operator needs to see.
    pub fn status(&self, utxo: &UtxoSettings, deletions: &DeletionQueue) -> UtxoPrunerStatus {
        let stored = &self.stored;
        UtxoPrunerStatus {
            enabled: stored.settings.pruner_enabled,
            // The endpoint fills this in, because the switch is the whole canister's.
            deletions_stopped_since: None,
            block_assembly: match stored.assembly_running {
                true => UtxoBlockAssemblyState::Running,
                false => UtxoBlockAssemblyState::NotRunning,
            },
            current_height: stored.current,
            most_height: self.most_height(),
            last_persisted_height: Some(stored.persisted).filter(|height| *height > 0),
            last_processed_height: stored.processed,
            safe_height: self.safe_height(utxo, stored.current),
            unmined_cutoff_height: stored.settings.unmined_cutoff(utxo, stored.current),
            pending: stored.pending.clone(),
            running: stored.running.clone(),
            last_job: stored.ended.last(&self.cells),
            blocked_by: stored.blocked_by.clone(),
            set_aside: stored.set_aside.iter().map(|aside| aside.slot).collect(),
            passed_over: stored.passed_over.iter().map(passed_over).collect(),
            blobs_pending: deletions.pending_count(),
            blobs_dead: deletions.dead_count(),
            totals: stored.totals,
            ticks: self.ticks,
            next_tick: self.next_tick,
            metrics: self.metrics(),
        }
    }

    /// The height that the chain has reached, or its persister, where one runs; 0: none was told.
    pub fn reached(&self) -> u32 {
        let Stored { current, persisted, .. } = self.stored;
        if persisted == 0 { current } else { current.min(persisted) }
    }

    /// What is wrong, also what has not lasted for long enough yet.
    pub fn problems(&self, utxo: &UtxoSettings, deletions: &DeletionQueue) -> Vec<Finding> {
        let mut found = Vec::new();
        let stored = &self.stored;
        if let Some(first) = stored.passed_over.first() {
            let (many, slot, txid) = (stored.passed_over.len(), first.cursor.slot, hex(&first.cursor.txid));
            let message = match many {
                1 => format!("1 UTXO record is left alone, as looking at it trapped: that of transaction {txid}"),
                _ => {
                    format!(
                        "{many} UTXO records are left alone, as looking at them trapped, the first that of transaction {txid}"
                    )
                }
            };
            let text = "Look at `passed_over` of get_pruner_status, and have the record looked at again.";
            let action = Action::new(text, Command::call("retry_record", format!("({slot})")));
            found.push(finding(ProblemCode::RecordsPassedOver, message).with_action(action));
        }
        if let Some(first) = stored.set_aside.first() {
            let (many, slot, txid) = (stored.set_aside.len(), first.slot, hex(&first.txid));
            let message = match many {
                1 => format!("1 unmined UTXO record that cannot be read is set aside: that of transaction {txid}"),
                _ => format!(
                    "{many} unmined UTXO records that cannot be read are set aside, the first that of transaction {txid}"
                ),
            };
            let text = "Its parents are not preserved: set its transaction as mined, or create it again; then have it looked at again.";
            let action = Action::new(text, Command::call("retry_record", format!("({slot})")));
            found.push(finding(ProblemCode::UnminedSetAside, message).with_action(action));
        }
        if let Some(blocked) = &stored.blocked_by {
            let message = format!("UTXO records are not pruned: {}", cannot_preserve(blocked));
            let action = remedy(blocked.error.clone());
            found.push(finding(ProblemCode::PreservationBlocked, message).with_action(action));
        }
        if let Some((id, phase)) = stored.trapped {
            let message = format!(
                "UTXO records are not pruned: job {id} failed, as finding what comes next in {phase:?} trapped again and again"
            );
            found.push(finding(ProblemCode::PrunerTrapped, message));
        }
        let mut jobs = stored.running.iter().chain(&stored.pending);
        if let Some(job) = jobs.clone().next()
            && !stored.assembly_running
        {
            let message = format!(
                "UTXO records are not pruned: job {} for height {} waits for the block assembly, of which nobody says that it runs",
                job.id, job.height
            );
            found.push(finding(ProblemCode::UtxoPrunerWaits, message).lasting(ASSEMBLY_PATIENCE_SECS));
        }
        // An operator's own job is done, switched off or not.
        if !stored.settings.pruner_enabled
            && let Some(job) = jobs.find(|job| job.trigger != UtxoJobTrigger::Manual)
        {
            let message = format!(
                "job {} for height {} of UTXO records is to be done, and pruner_enabled is off",
                job.id, job.height
            );
            found.push(finding(ProblemCode::UtxoPrunerOff, message).lasting(OFF_PATIENCE_SECS));
        }
        found.extend(self.problems_of_heights(utxo));
        match deletions.dead_count() {
            0 => {}
            1 => found.push(finding(ProblemCode::DeadBlobDeletions, "1 blob outside was given up")),
            dead => found.push(finding(ProblemCode::DeadBlobDeletions, format!("{dead} blobs outside were given up"))),
        }
        found
    }
}
