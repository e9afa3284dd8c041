//! Status of the records pruner for operators.

use super::settings::unmined_cutoff;
use super::{Stored, UtxoPruner};
use crate::deletion::DeletionQueue;
use crate::utxo::{Cursor, UtxoStore};
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{
    UtxoBlockAssemblyState, UtxoBlockedBy, UtxoPruneCounts, UtxoPruneJob, UtxoPruneJobPage, UtxoPrunerPhase,
    UtxoPrunerStatus, UtxoSettings, UtxoSkipReason, UtxoSkipped,
};

/// Maximum number of records that are counted for each age.
const MOST_COUNTED: usize = 10_000;
/// Name of each group of ages, its lowest age in blocks, and that of the next group: up to an hour, up to a day, and older.
const AGES: [(&str, u32, Option<u32>); 3] = [("0", 0, Some(6)), ("6", 6, Some(144)), ("144", 144, None)];

/// Returns the reason that parents are not preserved, without amounts of cycles.
pub fn cannot_preserve(blocked: &UtxoBlockedBy) -> String {
    format!("parents of the unmined transaction {} cannot be preserved: {}", hex(&blocked.txid), blocked.why)
}

/// Adds the increase from `before` to `now` to `counts`.
pub fn add(counts: &mut UtxoPruneCounts, now: &UtxoPruneCounts, before: &UtxoPruneCounts) {
    macro_rules! add {
        ($($field:ident),* $(,)?) => {
            // A pattern without `..` names all fields, so a new field that is not listed below does not compile.
            let UtxoPruneCounts { $($field),* } = counts;
            $(*$field += now.$field - before.$field;)*
        };
    }
    add! {
        old_unmined,
        parents_preserved,
        preservations_expired,
        processed,
        records_deleted,
        pages_deleted,
        records_deleting,
        parents_updated,
        outputs_released,
        external_files_deleted,
        external_files_missing,
        skipped_child_unmined,
        skipped_child_recent,
        skipped_child_absent,
        external_errors,
        record_errors,
        chunks,
    }
}

impl UtxoPruner {
    /// Returns the audit fields that operators change, except the settings.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let stored = &self.stored;
        let id = |job: &Option<UtxoPruneJob>| job.as_ref().map_or("none".into(), |job| format!("job {}", job.id));
        let skipped = stored.turns.skipped().iter().map(|at| &at.cursor).chain(&stored.unreadable);
        let skipped: Vec<u32> = skipped.map(|at| at.slot).collect();
        vec![
            ("current_height", stored.current.to_string()),
            ("last_persisted_height", stored.persisted.to_string()),
            ("last_processed_height", stored.processed.to_string()),
            ("pending", id(&stored.pending)),
            ("running", id(&stored.running)),
            ("records_deleted", stored.totals.records_deleted.to_string()),
            ("skipped", format!("{skipped:?}")),
        ]
    }

    /// Returns a page of jobs: the pending and the running one, then the ended ones, newest first.
    pub fn jobs(&self, cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage {
        let active = [self.stored.pending.clone(), self.stored.running.clone()].into_iter().flatten();
        let first = if cursor.is_none() { active.collect() } else { Vec::new() };
        self.stored.ended.page(&self.ended, first, cursor, limit)
    }

    /// Returns the full status for operators.
    pub fn status(&self, utxo: &UtxoSettings, deletions: &DeletionQueue) -> UtxoPrunerStatus {
        let stored = &self.stored;
        let skipped = |why, phase, at: &Cursor| UtxoSkipped { why, phase, slot: at.slot, txid: at.txid.into() };
        let trapped = stored.turns.skipped().iter().map(|at| skipped(UtxoSkipReason::Trapped, at.phase, &at.cursor));
        let unreadable = stored.unreadable.iter();
        let unreadable = unreadable.map(|at| skipped(UtxoSkipReason::Unreadable, UtxoPrunerPhase::PreserveParents, at));
        UtxoPrunerStatus {
            settings: stored.settings.clone(),
            // The endpoint fills this in, because the switch is the whole canister's.
            deletions_stopped_since_ns: None,
            block_assembly: match stored.assembly_running {
                true => UtxoBlockAssemblyState::Running,
                false => UtxoBlockAssemblyState::NotRunning,
            },
            block_assembly_height: stored.assembly_height,
            current_height: stored.current,
            most_height: self.most_height(),
            last_persisted_height: Some(stored.persisted).filter(|height| *height > 0),
            last_processed_height: stored.processed,
            safe_height: self.safe_height(utxo, stored.current),
            unmined_cutoff_height: unmined_cutoff(&stored.settings, utxo, stored.current),
            pending: stored.pending.clone(),
            running: stored.running.clone(),
            last_job: stored.ended.last(&self.ended),
            blocked_by: stored.blocked_by.clone(),
            skipped: trapped.chain(unreadable).collect(),
            blobs_pending: deletions.pending_count(),
            blobs_dead: deletions.dead_count(),
            totals: stored.totals,
            ticks: self.ticks,
            next_tick_ns: self.next_tick_ns,
            metrics: self.metrics(),
        }
    }

    /// Returns the height of the oldest record that is due at the chain's present height and is not deleted, if there is one. A kept record
    /// that the pruner examines again later is not due until then.
    pub fn overdue(&self, records: &UtxoStore) -> Option<u32> {
        records.first_due().filter(|due| *due <= self.stored.current)
    }

    /// Returns the number of due records of each age, at most 10,000, by the lowest age in blocks.
    pub fn due_by_age(&self, records: &UtxoStore) -> impl Iterator<Item = (&'static str, u64)> {
        let current = self.stored.current;
        AGES.into_iter().map(move |(name, age, next)| {
            // Ages from `age` to before `next` are heights from above `current - next` to `current - age`.
            let from = next.map_or(0, |next| (current + 1).saturating_sub(next));
            let count = current.checked_sub(age).map_or(0, |to| records.count_due((from, to), MOST_COUNTED));
            (name, count as u64)
        })
    }

    /// Returns the height that the chain has reached, at most the persister's height if one was notified; 0 if none was notified.
    pub fn reached(&self) -> u32 {
        let Stored { current, persisted, .. } = self.stored;
        if persisted == 0 { current } else { current.min(persisted) }
    }
}
