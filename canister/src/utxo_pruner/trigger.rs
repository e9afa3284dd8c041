//! Policy: which heights make a job (`pruner-service.md` 2.2, 2.4, 2.7).

use super::UtxoPruner;
use super::run::Heights;
use crate::api::{
    JobEnd, JobState, JobTrigger, PruneCounts, PruneJob, PruneProgress, PruneTrigger, PrunerError, PrunerPhase,
    SafeHeightRule, UtxoSettings,
};
use crate::runtime;

fn not_zero(height: u32) -> Result<(), PrunerError> {
    if height == 0 { Err(PrunerError::ZeroHeight) } else { Ok(()) }
}

/// What a trigger came to.
enum Triggered {
    Scheduled(PruneJob),
    Underway(PruneJob),
    Processed(PruneJob),
}

impl From<Triggered> for PruneTrigger {
    fn from(triggered: Triggered) -> Self {
        match triggered {
            Triggered::Scheduled(job) => Self::Scheduled(job),
            Triggered::Underway(job) => Self::Underway(job),
            Triggered::Processed(job) => Self::Processed(job),
        }
    }
}

impl UtxoPruner {
    /// The primary trigger: blocks up to this height are persisted.
    ///
    /// # Errors
    /// `ZeroHeight`.
    pub fn notify_persisted(&mut self, height: u32) -> Result<PruneTrigger, PrunerError> {
        not_zero(height)?;
        self.stored.current = self.stored.current.max(height);
        self.stored.persisted = self.stored.persisted.max(height);
        let answer = self.trigger(height, JobTrigger::BlockPersisted).into();
        self.save();
        Ok(answer)
    }

    /// The fallback, while nothing was persisted: a block was validated, and its transactions marked as mined.
    ///
    /// # Errors
    /// `ZeroHeight`.
    pub fn notify_block(&mut self, height: u32, mined_set: bool) -> Result<PruneTrigger, PrunerError> {
        not_zero(height)?;
        self.stored.current = self.stored.current.max(height);
        let answer = if self.stored.persisted > 0 {
            self.stored.skipped.persister_active += 1;
            PruneTrigger::PersisterActive { last_persisted_height: self.stored.persisted }
        } else if !mined_set {
            self.stored.skipped.not_mined += 1;
            PruneTrigger::NotMined
        } else {
            self.trigger(height, JobTrigger::Block).into()
        };
        self.save();
        Ok(answer)
    }

    /// An operator's: a job for this height, as if the chain were there. Answers it, and whether there is something to do.
    ///
    /// # Errors
    /// `ZeroHeight`, `BlockAssemblyNotRunning`.
    pub(super) fn trigger_by_hand(&mut self, height: u32) -> Result<(PruneJob, bool), PrunerError> {
        not_zero(height)?;
        if !self.stored.assembly_running {
            return Err(PrunerError::BlockAssemblyNotRunning);
        }
        match self.trigger(height, JobTrigger::Manual) {
            Triggered::Processed(job) => Ok((job, false)),
            Triggered::Underway(job) | Triggered::Scheduled(job) => Ok((job, true)),
        }
    }

    /// A slot of one: the highest height wins.
    fn trigger(&mut self, height: u32, by: JobTrigger) -> Triggered {
        let again = |job: &PruneJob| by == JobTrigger::Manual && job.height == height;
        if let Some(job) = self.stored.last_completed.clone()
            && (height <= self.stored.processed || again(&job))
        {
            self.stored.skipped.already_processed += 1;
            return Triggered::Processed(job);
        }
        let active = [&self.stored.running, &self.stored.pending];
        if let Some(job) = active.into_iter().flatten().find(|job| job.height >= height) {
            return Triggered::Underway(job.clone());
        }
        Triggered::Scheduled(self.make_pending(height, by))
    }

    /// Makes a job wait, in the place of the one that waits.
    pub(super) fn make_pending(&mut self, height: u32, trigger: JobTrigger) -> PruneJob {
        if let Some(job) = self.stored.pending.take() {
            self.stored.skipped.superseded += 1;
            self.end(job, JobState::Cancelled, Some(JobEnd::Superseded));
        }
        self.stored.jobs += 1;
        let job = PruneJob {
            id: self.stored.jobs,
            height,
            trigger,
            state: JobState::Pending,
            end: None,
            current_height: 0,
            safe_height: 0,
            created_at: runtime::time_ns(),
            started_at: 0,
            ended_at: 0,
            phase: PrunerPhase::PreserveParents,
            progress: PruneProgress::Finished,
            ticks: 0,
            instructions: 0,
            counts: PruneCounts::default(),
        };
        self.stored.pending_skipped = false;
        self.stored.pending = Some(job.clone());
        job
    }

    /// Writes a job into the history.
    pub(super) fn end(&mut self, mut job: PruneJob, state: JobState, end: Option<JobEnd>) {
        (job.state, job.end, job.ended_at) = (state, end, runtime::time_ns());
        if state == JobState::Completed {
            // What was not persisted is not done, and an operator's height may be far above the chain's.
            let reached = job.height.min(job.safe_height).min(self.stored.current);
            self.stored.processed = self.stored.processed.max(reached);
            self.stored.last_completed = Some(job.clone());
        }
        let most = self.stored.settings.max_job_history;
        self.stored.ended.push(&self.cells, &job, most);
    }

    /// Records are deleted whose height is this one or lower, when the chain is at `current`.
    pub(super) fn safe_height(&self, utxo: &UtxoSettings, current: u32) -> u32 {
        let stored = &self.stored;
        let retentions = [stored.smallest_retention, utxo.block_height_retention];
        let smallest = retentions.into_iter().filter(|retention| *retention != 0).min().unwrap_or(0);
        match (stored.persisted, stored.settings.safe_height_rule) {
            (0, _) => current,
            (persisted, SafeHeightRule::Persisted) => current.min(persisted),
            (persisted, SafeHeightRule::PersistedPlusRetention) => current.min(persisted.saturating_add(smallest)),
        }
    }

    /// The heights of a job that began at `current`, as they are now.
    pub(super) fn heights(&self, utxo: &UtxoSettings, current: u32) -> Heights {
        let cutoff = self.stored.settings.unmined_cutoff(utxo, current);
        Heights { current, safe: self.safe_height(utxo, current), cutoff }
    }
}
