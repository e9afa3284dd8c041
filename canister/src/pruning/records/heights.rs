//! Policy: which heights make a job (`pruner-service.md` 2.2, 2.4, 2.7).

use super::UtxoPruner;
use super::feeds::NotifiedHeight;
use super::place::Heights;
use crate::platform;
use crate::pruning::records::settings::Settings as _;
use coppice_interface::{
    MAX_HEIGHT, PruneProgress, UtxoJobEnd, UtxoJobState, UtxoJobTrigger, UtxoNotifyOutcome, UtxoPruneCounts,
    UtxoPruneJob, UtxoPrunerError, UtxoPrunerPhase, UtxoSafeHeightRule, UtxoSettings,
};

/// # Errors
/// `ZeroHeight`, `BadHeight`.
pub(super) fn is_height(height: u32) -> Result<(), UtxoPrunerError> {
    match height {
        0 => Err(UtxoPrunerError::ZeroHeight),
        1..=MAX_HEIGHT => Ok(()),
        _ => Err(UtxoPrunerError::BadHeight { most: MAX_HEIGHT }),
    }
}

impl UtxoPruner {
    /// The primary trigger: blocks up to this height are persisted.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`, `HeightJump`, and nothing has changed.
    pub fn notify_persisted(&mut self, height: u32, by_operator: bool) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
        self.note(height, NotifiedHeight::Persisted, by_operator)?;
        let answer = self.answer(height, UtxoJobTrigger::BlockPersisted);
        self.save();
        Ok(answer)
    }

    /// The fallback, while nothing was persisted: a block was validated, and its transactions marked as mined.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`, `HeightJump`, and nothing has changed.
    pub fn notify_block(
        &mut self,
        height: u32,
        mined_set: bool,
        by_operator: bool,
    ) -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
        self.note(height, NotifiedHeight::Current, by_operator)?;
        let answer = if self.stored.persisted > 0 {
            self.stored.skipped.persister_active += 1;
            UtxoNotifyOutcome::PersisterActive { last_persisted_height: self.stored.persisted }
        } else if !mined_set {
            self.stored.skipped.not_mined += 1;
            UtxoNotifyOutcome::NotMined
        } else {
            self.answer(height, UtxoJobTrigger::Block)
        };
        self.save();
        Ok(answer)
    }

    /// An operator's: a job for this height, whether it was processed or not. Doing so again finds what there is.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight` where it is above what was notified, `BlockAssemblyNotRunning`.
    pub(super) fn trigger_by_hand(&mut self, height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
        is_height(height)?;
        if !self.stored.assembly_running {
            return Err(UtxoPrunerError::BlockAssemblyNotRunning);
        }
        let most = self.stored.current;
        if most > 0 && height > most {
            return Err(UtxoPrunerError::BadHeight { most });
        }
        Ok(self.open_job(height, true).unwrap_or_else(|| self.make_pending(height, UtxoJobTrigger::Manual)))
    }

    /// The job that runs or waits and does what a trigger for this height would: a slot of one, the highest height wins. An
    /// operator's job that was made before a height was notified may be for one that the chain has not reached.
    fn open_job(&self, height: u32, by_hand: bool) -> Option<UtxoPruneJob> {
        let covers = |job: &&UtxoPruneJob| {
            let reached = job.state != UtxoJobState::Running || job.current_height >= Some(height);
            job.height >= height && (by_hand || reached)
        };
        [&self.stored.running, &self.stored.pending].into_iter().flatten().find(covers).cloned()
    }

    /// What a trigger comes to.
    fn answer(&mut self, height: u32, by: UtxoJobTrigger) -> UtxoNotifyOutcome {
        if height <= self.stored.processed {
            self.stored.skipped.already_processed += 1;
            return UtxoNotifyOutcome::Processed(self.stored.last_completed.clone());
        }
        match self.open_job(height, false) {
            Some(job) => UtxoNotifyOutcome::Underway(job),
            None => UtxoNotifyOutcome::Scheduled(self.make_pending(height, by)),
        }
    }

    /// Makes a job wait, in the place of the one that waits.
    pub(super) fn make_pending(&mut self, height: u32, trigger: UtxoJobTrigger) -> UtxoPruneJob {
        if let Some(job) = self.stored.pending.take() {
            self.stored.skipped.superseded += 1;
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
            created_at: platform::time_ns(),
            started_at: None,
            ended_at: None,
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

    /// Writes a job into the history.
    pub(super) fn end(&mut self, mut job: UtxoPruneJob, state: UtxoJobState, end: Option<UtxoJobEnd>) -> UtxoPruneJob {
        (job.state, job.end, job.ended_at) = (state, end, Some(platform::time_ns()));
        if state == UtxoJobState::Completed {
            // A job has processed nothing above its safe height or the notified height, even if an operator named a higher one.
            let reached = job
                .height
                .min(job.safe_height.unwrap_or(0))
                .min(job.current_height.unwrap_or(0))
                .min(self.stored.current);
            self.stored.processed = self.stored.processed.max(reached);
            self.stored.last_completed = Some(job.clone());
        }
        let most = self.stored.settings.max_job_history;
        self.stored.ended.push(&self.cells, &job, most);
        job
    }

    /// Makes a job for what may be deleted and was not: a job deletes only what was persisted when it began, and triggers that
    /// came while it waited or ran made no other one.
    pub(super) fn make_due(&mut self, utxo: &UtxoSettings) {
        let safe = self.safe_height(utxo, self.stored.current);
        if self.stored.persisted > 0 && safe > self.stored.processed && self.stored.pending.is_none() {
            self.make_pending(safe, UtxoJobTrigger::Due);
        }
    }

    /// Records are deleted whose height is this one or lower, when the chain is at `current`.
    pub(super) fn safe_height(&self, utxo: &UtxoSettings, current: u32) -> u32 {
        let stored = &self.stored;
        let retentions = [stored.smallest_retention, utxo.block_height_retention];
        let smallest = retentions.into_iter().filter(|retention| *retention != 0).min().unwrap_or(0);
        match (stored.persisted, stored.settings.safe_height_rule) {
            (0, _) => current,
            (persisted, UtxoSafeHeightRule::Persisted) => current.min(persisted),
            (persisted, UtxoSafeHeightRule::PersistedPlusRetention) => current.min(persisted.saturating_add(smallest)),
        }
    }

    /// The height of a job that begins, by which all its phases go: an operator's is the one that was named, and no higher than
    /// what was notified, if anything was. A bound of its own for deletions would have parents go whose children are not old yet.
    pub(super) fn current_for(&self, job: &UtxoPruneJob) -> u32 {
        match (job.trigger, self.stored.current) {
            (UtxoJobTrigger::Manual, 0) => job.height,
            (UtxoJobTrigger::Manual, current) => current.min(job.height),
            (_, current) => current,
        }
    }

    /// The heights of a job that has begun, as they are now.
    pub(super) fn heights(&self, utxo: &UtxoSettings, job: &UtxoPruneJob) -> Heights {
        let current = job.current_height.unwrap_or(0);
        let cutoff = self.stored.settings.unmined_cutoff(utxo, current);
        Heights { current, safe: self.safe_height(utxo, current), cutoff }
    }
}
