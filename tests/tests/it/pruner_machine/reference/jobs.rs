//! The reference's triggers, jobs and ticks.

use super::{Fault, Run, State};
use coppice_model::records::Heights;
use ic_coppice_interface::*;
use std::collections::BTreeSet;

impl State {
    fn with(&self, state: UtxoJobState) -> Option<usize> {
        self.jobs.iter().position(|job| job.state == state)
    }

    pub fn running_job(&self) -> Option<&UtxoPruneJob> {
        self.with(UtxoJobState::Running).map(|at| &self.jobs[at])
    }

    pub fn pending_job(&self) -> Option<&UtxoPruneJob> {
        self.with(UtxoJobState::Pending).map(|at| &self.jobs[at])
    }

    fn end(&mut self, at: usize, state: UtxoJobState, end: Option<UtxoJobEnd>) {
        let job = &mut self.jobs[at];
        (job.state, job.end, job.ended_at_ns) = (state, end, Some(self.now));
        self.ended.push(job.id);
        if state == UtxoJobState::Completed {
            let height = job
                .height
                .min(job.current_height.unwrap_or(0))
                .min(self.heights.current)
                .min(job.safe_height.unwrap_or(0));
            self.processed = self.processed.max(height);
            self.last_completed = Some(job.clone());
            let safe = self.heights_for(self.heights.current).1;
            if self.heights.persisted > 0 && safe > self.processed && self.pending_job().is_none() {
                self.make(safe, UtxoJobTrigger::Due);
            }
        }
    }

    pub fn end_running(&mut self, state: UtxoJobState, end: Option<UtxoJobEnd>) {
        let at = self.with(UtxoJobState::Running).expect("a job runs");
        self.end(at, state, end);
    }

    /// Makes a job for a height, which replaces a waiting one.
    fn make(&mut self, height: u32, trigger: UtxoJobTrigger) -> UtxoPruneJob {
        if let Some(at) = self.with(UtxoJobState::Pending) {
            self.end(at, UtxoJobState::Cancelled, Some(UtxoJobEnd::Superseded));
        }
        let job = UtxoPruneJob {
            id: self.jobs.len() as u64 + 1,
            height,
            trigger,
            state: UtxoJobState::Pending,
            end: None,
            current_height: None,
            safe_height: None,
            created_at_ns: self.now,
            started_at_ns: None,
            ended_at_ns: None,
            phase: UtxoPrunerPhase::PreserveParents,
            progress: PruneProgress::Finished,
            ticks: 0,
            instructions: 0,
            counts: UtxoPruneCounts::default(),
        };
        self.jobs.push(job.clone());
        job
    }

    fn resume(&mut self, height: u32) {
        let higher = self.pending_job().is_some_and(|job| job.height >= height);
        if !higher && !self.has(Fault::ForgetsHeights) {
            self.make(height, UtxoJobTrigger::Resumed);
        }
    }

    /// Checks that the height is valid.
    pub fn checked(&self, height: u32) -> Result<(), UtxoPrunerError> {
        match (height, u32::MAX / 2) {
            (0, _) => Err(UtxoPrunerError::BadHeight(BadHeight::Zero)),
            (height, most) if height > most => Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most })),
            _ => Ok(()),
        }
    }

    /// Checks that the caller may raise the height so far, and draws the difference from the allowance.
    pub fn raised(&mut self, height: u32, persisted: bool) -> Result<(), UtxoPrunerError> {
        self.checked(height)?;
        if self.by_operator || self.has(Fault::AcceptsAnyJump) {
            return Ok(());
        }
        let jump = self.settings.pruner.max_height_jump;
        let mut drawn = self.drawn;
        let both = [(self.heights.persisted, &mut drawn.1), (self.heights.current, &mut drawn.0)];
        for (highest, drawn) in both.into_iter().skip(usize::from(!persisted)).filter(|(highest, _)| *highest > 0) {
            let most = highest + (jump - *drawn);
            if height > most {
                return Err(UtxoPrunerError::HeightJump { highest, most, accepted_at_ns: None });
            }
            *drawn += height.saturating_sub(highest);
        }
        self.drawn = drawn;
        Ok(())
    }

    pub fn utxo_set_heights(&mut self, heights: UtxoSetHeights) -> Result<UtxoHeightsSet, UtxoPrunerError> {
        let UtxoSetHeights { current, persisted, processed } = heights;
        let most = u32::MAX / 2;
        if current > most
            || processed > current
            || persisted.is_some_and(|persisted| persisted == 0 || persisted > current)
        {
            return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most }));
        }
        self.drawn = (0, 0);
        self.run = None;
        self.recheck_kept = true;
        for state in [UtxoJobState::Running, UtxoJobState::Pending] {
            if let Some(at) = self.with(state) {
                self.end(at, UtxoJobState::Cancelled, Some(UtxoJobEnd::HeightsSet));
            }
        }
        self.heights = Heights { current, persisted: persisted.unwrap_or(0) };
        self.processed = processed;
        let safe_height = self.settings.safe_height(current, self.heights.persisted);
        let due = (safe_height > processed).then(|| self.make(safe_height, UtxoJobTrigger::Due));
        Ok(UtxoHeightsSet { heights, safe_height, unmined_cutoff_height: self.settings.cutoff(current), due })
    }

    pub fn cancel(&mut self, id: u64) -> Result<UtxoPruneJob, UtxoPrunerError> {
        let open =
            |job: &UtxoPruneJob| job.id == id && matches!(job.state, UtxoJobState::Pending | UtxoJobState::Running);
        let at = self.jobs.iter().position(open).ok_or(UtxoPrunerError::NotOpen)?;
        if self.jobs[at].state == UtxoJobState::Running || self.running_job().is_none() {
            self.run = None;
        }
        self.end(at, UtxoJobState::Cancelled, Some(UtxoJobEnd::Cancelled));
        Ok(self.jobs[at].clone())
    }

    /// The answer to a trigger.
    fn trigger(&mut self, height: u32, trigger: UtxoJobTrigger) -> UtxoNotifyOutcome {
        let is_manual = trigger == UtxoJobTrigger::Manual;
        if height <= self.processed && !is_manual {
            return UtxoNotifyOutcome::Processed(self.last_completed.clone());
        }
        let lower = self.has(Fault::LowerWins);
        let pending = self.pending_job().filter(|_| !lower);
        let running = self.running_job().filter(|job| is_manual || job.current_height >= Some(height));
        let open = pending.into_iter().chain(running).find(|job| height <= job.height);
        match open {
            Some(job) => UtxoNotifyOutcome::Underway(job.clone()),
            None => UtxoNotifyOutcome::Scheduled(self.make(height, trigger)),
        }
    }

    pub fn persisted(&mut self, height: u32) -> UtxoNotifyOutcome {
        let Heights { current, persisted } = self.heights;
        self.heights = Heights { current: current.max(height), persisted: persisted.max(height) };
        self.trigger(height, UtxoJobTrigger::BlockPersisted)
    }

    pub fn block(&mut self, height: u32, mined: bool) -> UtxoNotifyOutcome {
        self.heights.current = self.heights.current.max(height);
        match self.heights.persisted {
            0 if mined => self.trigger(height, UtxoJobTrigger::Block),
            0 => UtxoNotifyOutcome::NotMined,
            last_persisted_height => UtxoNotifyOutcome::PersisterActive { last_persisted_height },
        }
    }

    pub fn prune(&mut self, height: u32) -> Result<UtxoPruneJob, UtxoPrunerError> {
        if !self.running {
            return Err(UtxoPrunerError::BlockAssemblyNotRunning);
        }
        let most = self.heights.current;
        if most > 0 && height > most {
            return Err(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most }));
        }
        let job = match self.trigger(height, UtxoJobTrigger::Manual) {
            UtxoNotifyOutcome::Scheduled(job) | UtxoNotifyOutcome::Underway(job) => job,
            other => panic!("the answer to an operator is {other:?}"),
        };
        self.tick(true);
        Ok(self.jobs[job.id as usize - 1].clone())
    }

    fn heights_for(&self, current: u32) -> (u32, u32) {
        let persisted = if self.has(Fault::IgnoresPersisted) { 0 } else { self.heights.persisted };
        (current, self.settings.safe_height(current, persisted))
    }

    pub fn tick(&mut self, is_manual: bool) {
        self.ticks += 1;
        let switched_on = is_manual || self.settings.pruner.pruner_enabled;
        if !switched_on || self.running_job().is_none() && self.pending_job().is_none() {
            return;
        }
        if !self.running && !self.has(Fault::RunsWhileStopped) {
            if let Some(height) = self.running_job().map(|job| job.height) {
                self.run = None;
                self.end_running(UtxoJobState::Cancelled, Some(UtxoJobEnd::BlockAssemblyNotRunning));
                self.resume(height);
            }
            return;
        }
        if self.settings.low && !is_manual && !self.has(Fault::RunsOnLowCycles) {
            return;
        }
        let limit = self.settings.pruner.job_timeout_secs * 1_000_000_000;
        let late = self
            .running_job()
            .filter(|job| self.now - job.started_at_ns.unwrap_or(self.now) >= limit)
            .map(|job| job.height);
        if let Some(height) = late {
            self.end_running(UtxoJobState::Failed, Some(UtxoJobEnd::TimedOut));
            self.resume(height);
            if let Some(run) = &mut self.run {
                run.kept = true;
            }
        }
        if self.running_job().is_none()
            && let Some(at) = self.with(UtxoJobState::Pending)
        {
            let kept = self.run.as_ref().map(|run| run.heights);
            let heights = kept.unwrap_or_else(|| self.own_heights(at));
            let job = &mut self.jobs[at];
            (job.state, job.started_at_ns) = (UtxoJobState::Running, Some(self.now));
            (job.current_height, job.safe_height) = (Some(heights.0), Some(heights.1));
        }
        let Some(at) = self.with(UtxoJobState::Running) else { return };
        let heights = (self.jobs[at].current_height.unwrap_or(0), self.jobs[at].safe_height.unwrap_or(0));
        let (phase, passed) = (UtxoPrunerPhase::PreserveParents, BTreeSet::new());
        let new = Run { heights, kept: false, phase, walked: BTreeSet::new(), passed };
        let mut run = self.run.take().unwrap_or(new);
        let mut counts = self.jobs[at].counts;
        let done = self.work(&mut run, &mut counts);
        let job = &mut self.jobs[at];
        (job.phase, job.ticks, job.counts) = (run.phase, job.ticks + 1, counts);
        job.safe_height = Some(run.heights.1);
        let own = self.own_heights(at);
        match done {
            false => self.run = Some(run),
            // The position of a job that timed out is finished first, and then the job's own run.
            true if run.kept && own > heights => {
                let job = &mut self.jobs[at];
                (job.current_height, job.safe_height) = (Some(own.0), Some(own.1));
            }
            true => {
                self.recheck_kept &= self.settings.pruner.disable_dah_cleaner;
                self.end(at, UtxoJobState::Completed, None);
            }
        }
    }

    fn own_heights(&self, at: usize) -> (u32, u32) {
        let job = &self.jobs[at];
        let current = self.heights.current;
        if job.trigger != UtxoJobTrigger::Manual {
            return self.heights_for(current);
        }
        let lower = if current == 0 { job.height } else { job.height.min(current) };
        self.heights_for(lower)
    }
}
