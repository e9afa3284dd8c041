//! Notifications, and an operator's `prune_utxos`.

use super::Outcome;
use super::jobs::Cause;
use super::machine::Machine;
use coppice_canister::api::*;
use coppice_tests::coppice::Who;

/// What a trigger for a height comes to.
enum Expected {
    Processed,
    Underway,
    New,
}

impl Machine {
    /// `processed` is the height at or below which there is nothing to do.
    fn expected(&self, height: u32, processed: u32) -> Expected {
        let status = &self.sight.as_ref().expect("the history has begun").status;
        let mut open = status.pending.iter().chain(&status.running);
        match () {
            () if height <= processed => Expected::Processed,
            () if open.any(|job| height <= job.height) => Expected::Underway,
            () => Expected::New,
        }
    }

    /// A job that an answer names is one of those that are listed now.
    fn is_known(&self, job: &PruneJob) -> Outcome {
        let known = self.jobs.get(&job.id);
        ensure!(known == Some(job), "the answer names {job:?}, which is {known:?}");
        Ok(())
    }

    fn triggered(&mut self, answer: Result<PruneTrigger, PrunerError>, height: u32, trigger: JobTrigger) -> Outcome {
        let expected = self.expected(height, self.processed);
        let newest = self.jobs.keys().next_back().copied();
        self.look(Cause::Trigger)?;
        let new = self.jobs.keys().next_back().copied() != newest;
        match (expected, answer) {
            (Expected::Processed, Ok(PruneTrigger::Processed(job))) => {
                self.seen("a trigger was processed before");
                ensure!(job.state == JobState::Completed && !new, "processed: {job:?}");
                self.is_known(&job)
            }
            (Expected::Underway, Ok(PruneTrigger::Underway(job))) => {
                self.seen("a trigger was underway");
                let open = matches!(job.state, JobState::Pending | JobState::Running);
                ensure!(open && job.height >= height && !new, "underway: {job:?}");
                self.is_known(&job)
            }
            (Expected::New, Ok(PruneTrigger::Scheduled(job))) => {
                let made = (job.state, job.height, job.trigger);
                ensure!(made == (JobState::Pending, height, trigger) && new, "scheduled: {job:?}");
                self.is_known(&job)
            }
            (_, answer) => Err(format!("a trigger for {height} is answered {answer:?}")),
        }
    }

    pub fn persisted(&mut self, height: u32) -> Outcome {
        self.note(format!("{height} is persisted"));
        let answer = self.call(Who::Producer, "notify_block_persisted", (height,))?;
        self.heights.current = self.heights.current.max(height);
        self.heights.persisted = self.heights.persisted.max(height);
        self.triggered(answer, height, JobTrigger::BlockPersisted)
    }

    pub fn block(&mut self, height: u32, mined: bool) -> Outcome {
        self.note(format!("block {height}, mined {mined}"));
        let answer = self.call(Who::Producer, "notify_block", (height, mined))?;
        self.heights.current = self.heights.current.max(height);
        let last_persisted_height = self.heights.persisted;
        match answer {
            Ok(PruneTrigger::NotMined) if !mined => self.look(Cause::Nothing),
            answer if last_persisted_height > 0 => {
                let expected = Ok(PruneTrigger::PersisterActive { last_persisted_height });
                ensure!(answer == expected, "block {height} is answered {answer:?}");
                self.seen("a block while the persister is active");
                self.look(Cause::Nothing)
            }
            answer if !mined => Err(format!("block {height}, which is not mined, is answered {answer:?}")),
            answer => self.triggered(answer, height, JobTrigger::Block),
        }
    }

    pub fn prune(&mut self, height: u32) -> Outcome {
        self.note(format!("prune_utxos({height})"));
        // Whether what is below the last completed height, and was not processed, is done again is left open.
        let again = height < self.last_completed && height > self.processed;
        let processed = if height == self.last_completed { height } else { self.processed };
        let expected = self.expected(height, processed);
        let answer: Result<PruneJob, PrunerError> = self.call(Who::Controller, "prune_utxos", (height,))?;
        let newest = self.jobs.keys().next_back().copied();
        self.look(Cause::Prune)?;
        match (answer, expected) {
            (Err(PrunerError::BlockAssemblyNotRunning), _) if !self.running => {
                ensure!(self.jobs.keys().next_back().copied() == newest, "it was refused, and there is a job");
                Ok(())
            }
            (Ok(job), Expected::Processed) => {
                ensure!(job.state == JobState::Completed, "processed: {job:?}");
                self.is_known(&job)
            }
            (Ok(job), _) if again && job.state == JobState::Completed => self.is_known(&job),
            (Ok(job), Expected::Underway | Expected::New) if self.running => {
                self.seen("an operator has records pruned");
                ensure!(job.height >= height, "{height} was to be pruned, and it was {job:?}");
                self.is_known(&job)
            }
            (answer, _) => Err(format!("prune_utxos({height}) is answered {answer:?}")),
        }
    }
}
