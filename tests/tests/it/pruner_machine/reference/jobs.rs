//! Its triggers, jobs and ticks.

use super::super::rules::Heights;
use super::{Fault, Run, State};
use coppice_interface::*;
use std::collections::BTreeSet;

impl State {
    fn with(&self, state: JobState) -> Option<usize> {
        self.jobs.iter().position(|job| job.state == state)
    }

    pub fn running_job(&self) -> Option<&PruneJob> {
        self.with(JobState::Running).map(|at| &self.jobs[at])
    }

    pub fn pending_job(&self) -> Option<&PruneJob> {
        self.with(JobState::Pending).map(|at| &self.jobs[at])
    }

    fn end(&mut self, at: usize, state: JobState, end: Option<JobEnd>) {
        let job = &mut self.jobs[at];
        (job.state, job.end, job.ended_at) = (state, end, self.now);
        self.ended.push(job.id);
        if state == JobState::Completed {
            let height = job.height.min(job.current_height).min(self.heights.current).min(job.safe_height);
            self.processed = self.processed.max(height);
            self.last_completed = Some(job.clone());
            let safe = self.heights_for(self.heights.current).1;
            if self.heights.persisted > 0 && safe > self.processed && self.pending_job().is_none() {
                self.make(safe, JobTrigger::Due);
            }
        }
    }

    pub fn end_running(&mut self, state: JobState, end: Option<JobEnd>) {
        let at = self.with(JobState::Running).expect("a job runs");
        self.end(at, state, end);
    }

    /// A job for a height, in the place of one that waits.
    fn make(&mut self, height: u32, trigger: JobTrigger) -> PruneJob {
        if let Some(at) = self.with(JobState::Pending) {
            self.end(at, JobState::Cancelled, Some(JobEnd::Superseded));
        }
        let job = PruneJob {
            id: self.jobs.len() as u64 + 1,
            height,
            trigger,
            state: JobState::Pending,
            end: None,
            current_height: 0,
            safe_height: 0,
            created_at: self.now,
            started_at: 0,
            ended_at: 0,
            phase: PrunerPhase::PreserveParents,
            progress: PruneProgress::Finished,
            ticks: 0,
            instructions: 0,
            counts: PruneCounts::default(),
        };
        self.jobs.push(job.clone());
        job
    }

    fn resume(&mut self, height: u32) {
        let higher = self.pending_job().is_some_and(|job| job.height >= height);
        if !higher && !self.has(Fault::ForgetsHeights) {
            self.make(height, JobTrigger::Resumed);
        }
    }

    /// Whether it is a height, and where the chain may be.
    pub fn checked(&self, height: u32, notified: bool) -> Result<(), PrunerError> {
        let (current, most) = (self.heights.current, u32::MAX / 2);
        let limit = current.saturating_add(self.settings.pruner.max_height_jump);
        match height {
            0 => Err(PrunerError::ZeroHeight),
            _ if height > most => Err(PrunerError::BadHeight { most }),
            _ if notified
                && !self.by_operator
                && current > 0
                && height > limit
                && !self.has(Fault::BelievesAnything) =>
            {
                Err(PrunerError::HeightJump { current, most: limit })
            }
            _ => Ok(()),
        }
    }

    pub fn set_heights(
        &mut self,
        SetHeights { current, persisted, processed }: SetHeights,
    ) -> Result<HeightsSet, PrunerError> {
        let most = u32::MAX / 2;
        if current > most
            || processed > current
            || persisted.is_some_and(|persisted| persisted == 0 || persisted > current)
        {
            return Err(PrunerError::BadHeight { most });
        }
        self.run = None;
        self.again = true;
        for state in [JobState::Running, JobState::Pending] {
            if let Some(at) = self.with(state) {
                self.end(at, JobState::Cancelled, Some(JobEnd::HeightsSet));
            }
        }
        self.heights = Heights { current, persisted: persisted.unwrap_or(0) };
        self.processed = processed;
        let safe_height = self.settings.safe_height(current, self.heights.persisted);
        let due = (safe_height > processed).then(|| self.make(safe_height, JobTrigger::Due));
        Ok(HeightsSet { safe_height, unmined_cutoff_height: self.settings.cutoff(current), due })
    }

    pub fn cancel(&mut self, id: u64) -> Result<PruneJob, PrunerError> {
        let open = |job: &PruneJob| job.id == id && matches!(job.state, JobState::Pending | JobState::Running);
        let at = self.jobs.iter().position(open).ok_or(PrunerError::NotOpen)?;
        if self.jobs[at].state == JobState::Running || self.running_job().is_none() {
            self.run = None;
        }
        self.end(at, JobState::Cancelled, Some(JobEnd::Cancelled));
        Ok(self.jobs[at].clone())
    }

    /// What a trigger comes to.
    fn trigger(&mut self, height: u32, trigger: JobTrigger) -> PruneTrigger {
        let by_hand = trigger == JobTrigger::Manual;
        if height <= self.processed && !by_hand {
            return PruneTrigger::Processed(self.last_completed.clone());
        }
        let lower = self.has(Fault::LowerWins);
        let pending = self.pending_job().filter(|_| !lower);
        let running = self.running_job().filter(|job| by_hand || job.current_height >= height);
        let open = pending.into_iter().chain(running).find(|job| height <= job.height);
        match open {
            Some(job) => PruneTrigger::Underway(job.clone()),
            None => PruneTrigger::Scheduled(self.make(height, trigger)),
        }
    }

    pub fn persisted(&mut self, height: u32) -> PruneTrigger {
        let Heights { current, persisted } = self.heights;
        self.heights = Heights { current: current.max(height), persisted: persisted.max(height) };
        self.trigger(height, JobTrigger::BlockPersisted)
    }

    pub fn block(&mut self, height: u32, mined: bool) -> PruneTrigger {
        self.heights.current = self.heights.current.max(height);
        match self.heights.persisted {
            0 if mined => self.trigger(height, JobTrigger::Block),
            0 => PruneTrigger::NotMined,
            last_persisted_height => PruneTrigger::PersisterActive { last_persisted_height },
        }
    }

    pub fn prune(&mut self, height: u32) -> Result<PruneJob, PrunerError> {
        if !self.running {
            return Err(PrunerError::BlockAssemblyNotRunning);
        }
        let job = match self.trigger(height, JobTrigger::Manual) {
            PruneTrigger::Scheduled(job) | PruneTrigger::Underway(job) => job,
            other => panic!("an operator is answered {other:?}"),
        };
        self.tick(true);
        Ok(self.jobs[job.id as usize - 1].clone())
    }

    fn heights_for(&self, current: u32) -> (u32, u32) {
        let persisted = if self.has(Fault::IgnoresPersisted) { 0 } else { self.heights.persisted };
        (current, self.settings.safe_height(current, persisted))
    }

    pub fn tick(&mut self, by_hand: bool) {
        self.ticks += 1;
        let switched_on = by_hand || self.settings.pruner.pruner_enabled;
        if !switched_on || self.running_job().is_none() && self.pending_job().is_none() {
            return;
        }
        if !self.running && !self.has(Fault::RunsWhileStopped) {
            if let Some(height) = self.running_job().map(|job| job.height) {
                self.run = None;
                self.end_running(JobState::Cancelled, Some(JobEnd::BlockAssemblyNotRunning));
                self.resume(height);
            }
            return;
        }
        if self.settings.low && !by_hand && !self.has(Fault::RunsWhilePoor) {
            return;
        }
        let limit = self.settings.pruner.job_timeout * 1_000_000_000;
        let late = self.running_job().filter(|job| self.now - job.started_at >= limit).map(|job| job.height);
        if let Some(height) = late {
            self.end_running(JobState::Failed, Some(JobEnd::TimedOut));
            self.resume(height);
            if let Some(run) = &mut self.run {
                run.kept = true;
            }
        }
        if self.running_job().is_none()
            && let Some(at) = self.with(JobState::Pending)
        {
            let kept = self.run.as_ref().map(|run| run.heights);
            let heights = kept.unwrap_or_else(|| self.own_heights(at));
            let job = &mut self.jobs[at];
            (job.state, job.started_at) = (JobState::Running, self.now);
            (job.current_height, job.safe_height) = heights;
        }
        let Some(at) = self.with(JobState::Running) else { return };
        let heights = (self.jobs[at].current_height, self.jobs[at].safe_height);
        let (phase, passed) = (PrunerPhase::PreserveParents, BTreeSet::new());
        let new = Run { heights, kept: false, phase, walked: BTreeSet::new(), passed };
        let mut run = self.run.take().unwrap_or(new);
        let mut counts = self.jobs[at].counts;
        let done = self.work(&mut run, &mut counts);
        let job = &mut self.jobs[at];
        (job.phase, job.ticks, job.counts) = (run.phase, job.ticks + 1, counts);
        job.safe_height = run.heights.1;
        let own = self.own_heights(at);
        match done {
            false => self.run = Some(run),
            // The place of a job that timed out, and then what has come since.
            true if run.kept && own > heights => {
                let job = &mut self.jobs[at];
                (job.current_height, job.safe_height) = own;
            }
            true => {
                self.again &= self.settings.pruner.disable_dah_cleaner;
                self.end(at, JobState::Completed, None);
            }
        }
    }

    fn own_heights(&self, at: usize) -> (u32, u32) {
        let job = &self.jobs[at];
        let current = self.heights.current;
        if job.trigger != JobTrigger::Manual {
            return self.heights_for(current);
        }
        let lower = if current == 0 { job.height } else { job.height.min(current) };
        (lower, self.heights_for(job.height).1)
    }
}
