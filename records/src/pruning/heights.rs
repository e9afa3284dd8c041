//! Policy: triggers, the jobs that they create, and the heights of a job (`pruner-service.md` 2.2, 2.4, 2.7).
//!
//! ```text
//! notify_persisted, notify_block ─▶ note (notified.rs) ─▶ answer ─▶ Processed
//! trigger_manually ──────────────────────────────────────────┴─▶ open_job ─▶ Underway
//!                                                                   └─▶ make_pending ─▶ Scheduled ─▶ a tick starts the job
//! finish (tick.rs) ─▶ end: into the history, `processed` rises ─▶ make_due: a job for what a lower bound has left
//! ```

use super::notified::NotifiedHeight;
use super::place::Heights;
use super::settings::unmined_cutoff;
use super::{Answer, UtxoPruner};
use ic_coppice_interface::{
    BadHeight, MAX_HEIGHT, PruneProgress, UtxoJobEnd, UtxoJobState, UtxoJobTrigger, UtxoNotifyOutcome, UtxoPruneCounts,
    UtxoPruneJob, UtxoPrunerError, UtxoPrunerPhase, UtxoSafeHeightRule, UtxoSettings,
};
use ic_coppice_storage::{Ic, Platform as _};

/// Checks that a height is one of 1 to [`MAX_HEIGHT`].
///
/// # Errors
/// `BadHeight`.
pub(super) fn is_height(height: u32) -> Answer<()> {
    match height {
        0 => Err(UtxoPrunerError::BadHeight(BadHeight::Zero)),
        1..=MAX_HEIGHT => Ok(()),
        _ => Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: MAX_HEIGHT })),
    }
}

impl UtxoPruner {
    /// Handles the primary trigger: blocks up to this height are persisted.
    ///
    /// # Errors
    /// `BadHeight`, `HeightJump`; nothing has changed.
    pub fn notify_persisted(&mut self, height: u32, by_operator: bool) -> Answer<UtxoNotifyOutcome> {
        self.note(height, NotifiedHeight::Persisted, by_operator)?;
        let answer = self.answer(height, UtxoJobTrigger::BlockPersisted);
        self.save();
        Ok(answer)
    }

    /// Handles the fallback trigger, used while no persisted height was notified: a block was validated, and its transactions marked as
    /// mined.
    ///
    /// # Errors
    /// `BadHeight`, `HeightJump`; nothing has changed.
    pub fn notify_block(&mut self, height: u32, mined_set: bool, by_operator: bool) -> Answer<UtxoNotifyOutcome> {
        self.note(height, NotifiedHeight::Current, by_operator)?;
        let answer = if self.stored.persisted > 0 {
            self.stored.unused.persister_active += 1;
            UtxoNotifyOutcome::PersisterActive { last_persisted_height: self.stored.persisted }
        } else if !mined_set {
            self.stored.unused.not_mined += 1;
            UtxoNotifyOutcome::NotMined
        } else {
            self.answer(height, UtxoJobTrigger::Block)
        };
        self.save();
        Ok(answer)
    }

    /// Returns an operator's job for this height, even if the height was processed. A repeated call returns the same job while it is open.
    ///
    /// # Errors
    /// `BadHeight` above the highest notified height, `BlockAssemblyNotRunning`.
    pub(super) fn trigger_manually(&mut self, height: u32) -> Answer<UtxoPruneJob> {
        is_height(height)?;
        if !self.stored.assembly_running {
            return Err(UtxoPrunerError::BlockAssemblyNotRunning);
        }
        let most = self.stored.current;
        if most > 0 && height > most {
            return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most }));
        }
        Ok(self.open_job(height, true).unwrap_or_else(|| self.make_pending(height, UtxoJobTrigger::Manual)))
    }

    /// Returns the running or pending job that covers a trigger for this height. Only one job is pending; the highest height wins. An
    /// operator's job that was made before any notification may be for a height that the chain has not reached.
    fn open_job(&self, height: u32, by_hand: bool) -> Option<UtxoPruneJob> {
        let covers = |job: &&UtxoPruneJob| {
            let reached = job.state != UtxoJobState::Running || job.current_height >= Some(height);
            job.height >= height && (by_hand || reached)
        };
        [&self.stored.running, &self.stored.pending].into_iter().flatten().find(covers).cloned()
    }

    /// Returns the outcome of a trigger, after creating a job if one is needed.
    fn answer(&mut self, height: u32, by: UtxoJobTrigger) -> UtxoNotifyOutcome {
        if height <= self.stored.processed {
            self.stored.unused.already_processed += 1;
            let last = self.stored.last_completed.and_then(|which| self.stored.ended.get(&self.ended, which));
            return UtxoNotifyOutcome::Processed(last);
        }
        match self.open_job(height, false) {
            Some(job) => UtxoNotifyOutcome::Underway(job),
            None => UtxoNotifyOutcome::Scheduled(self.make_pending(height, by)),
        }
    }

    /// Creates a pending job, which supersedes the present one.
    pub(super) fn make_pending(&mut self, height: u32, trigger: UtxoJobTrigger) -> UtxoPruneJob {
        if let Some(job) = self.stored.pending.take() {
            self.stored.unused.superseded += 1;
            self.end(job, UtxoJobState::Cancelled, Some(UtxoJobEnd::Superseded));
        }
        self.stored.jobs += 1;
        let job = UtxoPruneJob {
            id: self.stored.jobs,
            height,
            trigger,
            state: UtxoJobState::Pending,
            end: None,
            current_height: None,
            safe_height: None,
            created_at_ns: Ic::now_ns(),
            started_at_ns: None,
            ended_at_ns: None,
            phase: UtxoPrunerPhase::PreserveParents,
            progress: PruneProgress::Finished,
            ticks: 0,
            instructions: 0,
            counts: UtxoPruneCounts::default(),
        };
        self.stored.pending_skipped = false;
        self.stored.pending = Some(job.clone());
        job
    }

    /// Ends a job and adds it to the history.
    pub(super) fn end(&mut self, mut job: UtxoPruneJob, state: UtxoJobState, end: Option<UtxoJobEnd>) -> UtxoPruneJob {
        (job.state, job.end, job.ended_at_ns) = (state, end, Some(Ic::now_ns()));
        let most = self.stored.settings.max_job_history;
        let which = self.stored.ended.push(&self.ended, &job, most);
        if state == UtxoJobState::Completed {
            // A job has processed nothing above its safe height or the notified height, even if an operator named a higher one.
            let [safe, current] = [job.safe_height, job.current_height].map(Option::unwrap_or_default);
            let reached = job.height.min(safe).min(current).min(self.stored.current);
            self.stored.processed = self.stored.processed.max(reached);
            self.stored.last_completed = Some(which);
        }
        job
    }

    /// Creates a job for records that may be deleted and were not. A job deletes only up to the safe height when it began, and triggers that
    /// arrived while it was open created no other job.
    pub(super) fn make_due(&mut self, utxo: &UtxoSettings) {
        let safe = self.safe_height(utxo, self.stored.current);
        if safe > self.stored.processed && self.stored.pending.is_none() {
            self.make_pending(safe, UtxoJobTrigger::Due);
        }
    }

    /// Returns the safe height when the chain is at `current`: records with at most this height are deleted.
    pub fn safe_height(&self, utxo: &UtxoSettings, current: u32) -> u32 {
        let stored = &self.stored;
        let retentions = [stored.smallest_retention, utxo.block_height_retention];
        let smallest = retentions.into_iter().filter(|retention| *retention != 0).min().unwrap_or(0);
        let persisted = match (stored.persisted, stored.settings.safe_height_rule) {
            (0, _) => None,
            (persisted, UtxoSafeHeightRule::Persisted) => Some(persisted),
            (persisted, UtxoSafeHeightRule::PersistedPlusRetention) => Some(persisted.saturating_add(smallest)),
        };
        [persisted, stored.assembly_height].into_iter().flatten().fold(current, u32::min)
    }

    /// Returns the chain height that all phases of a starting job use. For an operator's job this is the given height, at most the notified
    /// one, if any. A separate bound for deletions would delete parents whose children are not old yet.
    pub(super) fn current_for(&self, job: &UtxoPruneJob) -> u32 {
        match (job.trigger, self.stored.current) {
            (UtxoJobTrigger::Manual, 0) => job.height,
            (UtxoJobTrigger::Manual, current) => current.min(job.height),
            (_, current) => current,
        }
    }

    /// Returns the present heights of a started job.
    pub(super) fn heights(&self, utxo: &UtxoSettings, job: &UtxoPruneJob) -> Heights {
        let current = job.current_height.unwrap_or(0);
        let cutoff = unmined_cutoff(&self.stored.settings, utxo, current);
        Heights { current, safe: self.safe_height(utxo, current), cutoff }
    }
}
