//! Jobs: which ones exist, their allowed state changes, and the heights of their runs.

use super::Outcome;
use super::machine::Machine;
use super::view::View;
use coppice_model::ensure;
use ic_coppice_interface::*;
use std::collections::BTreeSet;

/// The last message, as far as it may affect jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// A message that does not affect jobs.
    Nothing,
    /// A notification.
    Trigger,
    /// The block assembly was stopped.
    Stopped,
    /// The timer.
    Tick,
    /// An operator's `utxo_prune`: a trigger and a tick.
    Prune,
    /// An operator's `utxo_set_heights` or `utxo_cancel_prune_job`.
    Repaired,
}

impl Cause {
    fn triggers(self) -> bool {
        matches!(self, Self::Trigger | Self::Prune)
    }

    pub fn ticks(self) -> bool {
        matches!(self, Self::Tick | Self::Prune)
    }
}

/// A job before and after a message.
#[derive(Clone, Debug)]
pub struct Progress {
    pub before: Option<UtxoPruneJob>,
    pub after: UtxoPruneJob,
}

impl Progress {
    /// The job began: it was not known as running before.
    pub fn began(&self) -> bool {
        self.after.started_at_ns.is_some() && self.before.as_ref().is_none_or(|before| before.started_at_ns.is_none())
    }

    /// The job has just reached this state.
    pub fn became(&self, state: UtxoJobState) -> bool {
        self.after.state == state && self.before.as_ref().is_none_or(|before| before.state != state)
    }

    /// The growth of one of its counts.
    pub fn counted(&self, count: impl Fn(&UtxoPruneCounts) -> u64) -> u64 {
        count(&self.after.counts) - self.before.as_ref().map_or(0, |before| count(&before.counts))
    }
}

pub fn ended(job: &UtxoPruneJob) -> bool {
    !matches!(job.state, UtxoJobState::Pending | UtxoJobState::Running)
}

impl Machine {
    /// Checks each job's state change. Returns the jobs that changed.
    pub fn check_jobs(&mut self, view: &View, cause: Cause) -> Outcome<Vec<Progress>> {
        self.check_list(view)?;
        let mut all = Vec::new();
        for job in &view.jobs {
            let before = self.jobs.get(&job.id).cloned();
            if before.as_ref() != Some(job) {
                let progress = Progress { before, after: job.clone() };
                self.may_become(&progress, cause).map_err(|why| format!("{why}: {progress:?}"))?;
                all.push(progress);
            }
        }
        let newest = self.jobs.keys().next_back().copied().unwrap_or(0);
        let new: BTreeSet<u64> = view.jobs.iter().map(|job| job.id).filter(|id| *id > newest).collect();
        ensure!(new.iter().copied().eq(newest + 1..=newest + new.len() as u64), "new jobs have the numbers {new:?}");
        all.sort_by_key(|progress| (progress.after.ended_at_ns.is_none(), progress.after.id));
        for progress in &all {
            self.jobs.insert(progress.after.id, progress.after.clone());
        }
        let mut processed = self.processed;
        for progress in &all {
            self.became(view, progress)?;
            self.check_resumed(view, progress, cause)?;
            if progress.became(UtxoJobState::Completed) {
                let job = &progress.after;
                let reached = job.height.min(job.current_height.unwrap_or(0)).min(job.safe_height.unwrap_or(0));
                processed = processed.max(reached.min(self.heights.current));
            }
        }
        let shown = view.status.last_processed_height;
        ensure!(shown == processed, "{shown} is processed, expected {processed}: {all:#?}");
        self.processed = shown;
        // A height that was persisted while a job ran is due without another call.
        let safe = self.heights_of(self.heights.current).1;
        let open = view.status.pending.is_some() || view.status.running.is_some();
        let completed = all.iter().any(|progress| progress.became(UtxoJobState::Completed));
        let left = completed && self.heights.persisted > 0 && safe > shown && !open;
        ensure!(!left, "{shown} is processed, {safe} is safe, and no job waits: {all:#?}");
        Ok(all)
    }

    fn check_list(&self, view: &View) -> Outcome {
        let (open, done): (Vec<&UtxoPruneJob>, Vec<&UtxoPruneJob>) = view.jobs.iter().partition(|job| !ended(job));
        let all = || format!("{:#?}", view.jobs);
        ensure!(
            view.jobs.iter().take(open.len()).all(|job| !ended(job)),
            "ended jobs are listed before open ones: {}",
            all()
        );
        ensure!(done.is_sorted_by(|a, b| a.ended_at_ns >= b.ended_at_ns), "the newest job is not first: {}", all());
        let with = |state: UtxoJobState| open.iter().filter(move |job| job.state == state).map(|job| (*job).clone());
        let (pending, running): (Vec<_>, Vec<_>) =
            (with(UtxoJobState::Pending).collect(), with(UtxoJobState::Running).collect());
        ensure!(pending.len() <= 1 && running.len() <= 1, "more than one waits or runs: {}", all());
        let status = &view.status;
        ensure!(status.pending == pending.first().cloned(), "{:?} waits, and not {pending:?}", status.pending);
        ensure!(status.running == running.first().cloned(), "{:?} runs, and not {running:?}", status.running);
        ensure!(status.last_job.as_ref() == done.first().copied(), "the last job is {:?}", status.last_job);
        let known = |id: &u64| view.jobs.iter().any(|job| job.id == *id);
        let gone: Vec<u64> = self.jobs.keys().copied().filter(|id| !known(id)).collect();
        ensure!(gone.is_empty(), "the history has room for all, and lost {gone:?}");
        Ok(())
    }

    fn may_become(&self, Progress { before, after }: &Progress, cause: Cause) -> Outcome {
        ensure!(after.height > 0 && after.created_at_ns > 0, "a job for nothing");
        let ticks = cause.ticks() || self.timer_lost;
        let state = before.as_ref().map(|before| before.state);
        if let Some(before) = before {
            ensure!(!ended(before), "it had ended");
            let fixed = |job: &UtxoPruneJob| (job.height, job.trigger, job.created_at_ns);
            ensure!(fixed(before) == fixed(after), "the job was replaced");
        } else {
            let resumes = ticks || cause == Cause::Stopped;
            let may = match after.trigger {
                UtxoJobTrigger::Resumed => resumes,
                UtxoJobTrigger::Due => ticks || cause == Cause::Repaired,
                UtxoJobTrigger::Manual => resumes || cause.triggers(),
                _ => cause.triggers(),
            };
            ensure!(may, "the job has no trigger");
        }
        ensure!(after.ended_at_ns.is_some() == ended(after), "when did it end?");
        ensure!(after.state != UtxoJobState::Running || after.started_at_ns.is_some(), "it runs, and has not begun");
        match (after.state, &after.end) {
            (UtxoJobState::Pending, None) => ensure!(before.is_none(), "it waits, and changes"),
            (UtxoJobState::Running, None) => ensure!(ticks, "it runs without a tick"),
            (UtxoJobState::Completed, None) => ensure!(ticks, "it ends without a tick"),
            (UtxoJobState::Cancelled, Some(UtxoJobEnd::Superseded)) => {
                // A manual job that is stopped may be for a height above that of the waiting job.
                let by_higher = cause.triggers() || ticks || cause == Cause::Stopped;
                ensure!(state == Some(UtxoJobState::Pending) && by_higher, "it was not superseded");
            }
            (UtxoJobState::Cancelled, Some(UtxoJobEnd::BlockAssemblyNotRunning)) => {
                let stopped = !self.running && (ticks || cause == Cause::Stopped);
                ensure!(state == Some(UtxoJobState::Running) && stopped, "the block assembly did not stop it");
            }
            (UtxoJobState::Cancelled, Some(UtxoJobEnd::HeightsSet | UtxoJobEnd::Cancelled)) => {
                ensure!(cause == Cause::Repaired, "no operator cancelled it");
            }
            (UtxoJobState::Failed, Some(UtxoJobEnd::Trapped { .. })) => {
                ensure!(ticks && self.has_trapped && after.started_at_ns.is_some(), "nothing has trapped");
            }
            (UtxoJobState::Failed, Some(UtxoJobEnd::TimedOut)) => {
                let took = after.ended_at_ns.unwrap_or(0).saturating_sub(after.started_at_ns.unwrap_or(0));
                let limit = self.settings.pruner.job_timeout_secs * 1_000_000_000;
                ensure!(ticks && after.started_at_ns.is_some() && took >= limit, "it has not timed out");
            }
            other => return Err(format!("a job may not be {other:?}")),
        }
        if after.state == UtxoJobState::Running || after.state == UtxoJobState::Completed {
            ensure!(self.running, "the block assembly does not run");
            ensure!(cause == Cause::Prune || self.settings.pruner.pruner_enabled, "the pruner is switched off");
        }
        Ok(())
    }

    /// Checks the consequences of a job's new state: its heights, the last processed height, and the job that waits in its place.
    fn became(&mut self, view: &View, progress: &Progress) -> Outcome {
        let job = &progress.after;
        let heights = |job: &UtxoPruneJob| (job.current_height.unwrap_or(0), job.safe_height.unwrap_or(0));
        if job.started_at_ns.is_some() && progress.before.as_ref().is_none_or(|before| heights(before) != heights(job))
        {
            let at = heights(job);
            let of_operator = self.heights_for(job.height);
            let mut heights = vec![of_operator];
            if job.trigger != UtxoJobTrigger::Manual {
                // A resumed job does not show whether it resumes a manual job.
                heights.retain(|_| job.trigger == UtxoJobTrigger::Resumed);
                heights.push(self.heights_of(self.heights.current));
            }
            // The run of a job that timed out keeps its heights.
            heights.extend(self.run.iter().flat_map(|run| run.heights.iter().copied()));
            // A block persister that begins meanwhile, or another rule, lowers the safe height.
            let fall = |&(current, safe): &(u32, u32)| (current, safe.min(self.heights_of(current).1));
            let fallen: Vec<_> = heights.iter().map(fall).collect();
            heights.extend(fallen);
            ensure!(heights.contains(&at), "a job begins at {at:?}, which is not one of {heights:?}: {job:?}");
        }
        if progress.became(UtxoJobState::Completed) {
            self.seen("a job completed");
            if job.ticks > 1 {
                self.seen("a run of several ticks");
            }
        }
        let again = matches!(job.end, Some(UtxoJobEnd::TimedOut | UtxoJobEnd::BlockAssemblyNotRunning));
        if again && progress.before.as_ref().is_none_or(|before| !ended(before)) {
            let open = view.jobs.iter().filter(|other| other.id != job.id);
            let taken = open.filter(|other| !ended(other) || other.id > job.id).any(|other| other.height >= job.height);
            ensure!(taken, "the height of a job that was stopped is not pending: {job:?}");
        }
        match job.end {
            Some(UtxoJobEnd::TimedOut) => self.seen("a job timed out"),
            Some(UtxoJobEnd::Trapped { .. }) => self.seen("a job failed because ticks trapped"),
            Some(UtxoJobEnd::BlockAssemblyNotRunning) => self.seen("a run was stopped by the assembly"),
            Some(UtxoJobEnd::Superseded) => self.seen("a job was superseded"),
            _ => {}
        }
        Ok(())
    }

    /// Checks that a job without a trigger has the height of a job that was stopped. A resumed manual job may stay manual: its height need
    /// not be a notified one.
    fn check_resumed(&mut self, view: &View, progress: &Progress, cause: Cause) -> Outcome {
        let job = &progress.after;
        if job.trigger == UtxoJobTrigger::Due && progress.before.is_none() {
            let safe = self.heights_of(self.heights.current).1;
            ensure!(job.height == safe, "{safe} is due, and the job is {job:?}");
            self.seen("a height persisted meanwhile is due");
            return Ok(());
        }
        let asked = cause.triggers() && job.trigger != UtxoJobTrigger::Resumed;
        if progress.before.is_some() || asked {
            return Ok(());
        }
        let stopped = |end: &UtxoJobEnd| matches!(end, UtxoJobEnd::TimedOut | UtxoJobEnd::BlockAssemblyNotRunning);
        let of = view.jobs.iter().filter(|other| other.id < job.id && other.height == job.height);
        let mut of = of.filter(|other| other.end.as_ref().is_some_and(stopped));
        let manual = |other: &UtxoPruneJob| job.trigger == UtxoJobTrigger::Resumed || other.trigger == job.trigger;
        ensure!(of.any(manual), "no job was stopped at this height: {job:?}");
        Ok(())
    }

    /// The heights of a run at this current height if it began now.
    fn heights_of(&self, current: u32) -> (u32, u32) {
        (current, self.settings.safe_height(current, self.heights.persisted))
    }

    /// The heights of a manual run if it began now.
    fn heights_for(&self, height: u32) -> (u32, u32) {
        let current = if self.heights.current == 0 { height } else { height.min(self.heights.current) };
        (current, self.heights_of(current).1)
    }

    /// Checks the heights, the sums and the settings in the status.
    pub fn check_status(&self, status: &UtxoPrunerStatus) -> Outcome {
        let expected = (
            self.settings.pruner.pruner_enabled,
            self.running,
            self.heights.current,
            self.heights.persisted,
            self.processed,
            self.heights_of(self.heights.current).1,
            self.settings.cutoff(self.heights.current),
        );
        let shown = (
            status.settings.pruner_enabled,
            status.block_assembly == UtxoBlockAssemblyState::Running,
            status.current_height,
            status.last_persisted_height.unwrap_or(0),
            status.last_processed_height,
            status.safe_height,
            status.unmined_cutoff_height,
        );
        let what = "(enabled, running, current, persisted, processed, safe, cutoff)";
        ensure!(shown == expected, "{what} is {shown:?}, expected {expected:?}");
        ensure!(status.blocked_by.is_none() && status.skipped.is_empty(), "something cannot be read: {status:?}");
        let totals = &status.totals;
        // The first external blob creates the deletion queue.
        let rows = self.was_full || totals.external_errors == 0;
        ensure!(rows && totals.record_errors == 0, "errors: {totals:?}");
        ensure!(totals.records_deleted >= self.deleted_by_ticks, "{} were deleted: {totals:?}", self.deleted_by_ticks);
        ensure!(totals.preservations_expired >= self.expired, "{} expired: {totals:?}", self.expired);
        Ok(())
    }
}
