//! Notifications, and an operator's `utxo_prune`.

use super::Outcome;
use super::jobs::Cause;
use super::machine::Machine;
use coppice_model::ensure;
use coppice_model::records::MOST;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;

/// The source of a height. Only a producer's jumps are limited; a manual height is not the chain's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Producer,
    Operator,
    Manual,
}

/// The expected answer to a trigger.
enum Expected {
    Refused(UtxoPrunerError),
    Processed,
    Underway,
    New,
}

impl Machine {
    /// The refusal of an invalid height, or of a jump that a producer may not make; without the time at which the jump is accepted.
    fn refused(&self, height: u32, by: By, persisted: bool) -> Option<UtxoPrunerError> {
        let jump = self.settings.pruner.max_height_jump;
        let notified = [(self.heights.persisted, self.drawn.1), (self.heights.current, self.drawn.0)];
        match height {
            0 => Some(UtxoPrunerError::BadHeight(BadHeight::Zero)),
            _ if height > MOST => Some(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: MOST })),
            _ if by == By::Manual && self.heights.current > 0 && height > self.heights.current => {
                Some(UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: self.heights.current }))
            }
            _ if by != By::Producer => None,
            _ => {
                let first = usize::from(!persisted);
                let mut jumps = notified[first..].iter().map(|(highest, drawn)| (*highest, highest + (jump - drawn)));
                let (highest, most) = jumps.find(|(highest, most)| *highest > 0 && height > *most)?;
                Some(UtxoPrunerError::HeightJump { highest, most, accepted_at_ns: None })
            }
        }
    }

    /// Raises the notified heights.
    fn raise(&mut self, height: u32, by: By, persisted: bool) {
        let raise = |highest: &mut u32, drawn: &mut u32| {
            if *highest > 0 && by == By::Producer {
                *drawn += height.saturating_sub(*highest);
            }
            *highest = height.max(*highest);
        };
        raise(&mut self.heights.current, &mut self.drawn.0);
        if persisted {
            raise(&mut self.heights.persisted, &mut self.drawn.1);
        }
    }

    /// A manual height never counts as processed; and a manual job that was made before any notification may be for a height above the
    /// chain's.
    fn expected(&self, height: u32, by: By, persisted: bool) -> Expected {
        let is_manual = by == By::Manual;
        let status = &self.view.as_ref().expect("the history has begun").status;
        let mut open = status.pending.iter().chain(&status.running);
        let reached =
            |job: &UtxoPruneJob| is_manual || job.state == UtxoJobState::Pending || job.current_height >= Some(height);
        match self.refused(height, by, persisted) {
            Some(error) => Expected::Refused(error),
            None if height <= self.processed && !is_manual => Expected::Processed,
            None if open.any(|job| height <= job.height && reached(job)) => Expected::Underway,
            None => Expected::New,
        }
    }

    /// Checks that the job in an answer is one of the listed jobs.
    fn check_known(&self, job: &UtxoPruneJob) -> Outcome {
        let known = self.jobs.get(&job.id);
        ensure!(known == Some(job) || self.timer_lost, "the answer contains {job:?}, but the list has {known:?}");
        Ok(())
    }

    fn triggered(
        &mut self,
        expected: Expected,
        answer: Result<UtxoNotifyOutcome, UtxoPrunerError>,
        height: u32,
        trigger: UtxoJobTrigger,
    ) -> Outcome {
        let newest = self.jobs.keys().next_back().copied();
        self.look(Cause::Trigger)?;
        let new = self.jobs.keys().next_back().copied() != newest;
        match (expected, answer) {
            (Expected::Processed, Ok(UtxoNotifyOutcome::Processed(job))) => {
                self.seen("a trigger was processed before");
                ensure!(!new || self.timer_lost, "processed: {job:?}");
                let Some(job) = job else { return Ok(()) };
                ensure!(job.state == UtxoJobState::Completed, "processed: {job:?}");
                self.check_known(&job)
            }
            (Expected::Underway, Ok(UtxoNotifyOutcome::Underway(job))) => {
                self.seen("a trigger was underway");
                let open = matches!(job.state, UtxoJobState::Pending | UtxoJobState::Running);
                ensure!(open && job.height >= height && (!new || self.timer_lost), "underway: {job:?}");
                self.check_known(&job)
            }
            (Expected::New, Ok(UtxoNotifyOutcome::Scheduled(job))) => {
                let made = (job.state, job.height, job.trigger);
                ensure!(made == (UtxoJobState::Pending, height, trigger) && new, "scheduled: {job:?}");
                self.check_known(&job)
            }
            (_, answer) => Err(format!("the answer to a trigger for {height} is {answer:?}")),
        }
    }

    pub fn persisted(&mut self, height: u32) -> Outcome {
        self.persisted_by(Who::Producer, height)
    }

    fn persisted_by(&mut self, who: Who, height: u32) -> Outcome {
        self.note(format!("{who:?} notifies that {height} is persisted"));
        let by = if who == Who::Controller { By::Operator } else { By::Producer };
        let expected = self.expected(height, by, true);
        let answer = self.call(who, "utxo_notify_block_persisted", (height,))?;
        if let Expected::Refused(error) = expected {
            return self.check_refused(answer, error);
        }
        self.raise(height, by, true);
        self.triggered(expected, answer, height, UtxoJobTrigger::BlockPersisted)
    }

    pub fn block(&mut self, height: u32, mined: bool) -> Outcome {
        self.block_by(Who::Producer, height, mined)
    }

    fn block_by(&mut self, who: Who, height: u32, mined: bool) -> Outcome {
        self.note(format!("{who:?} notifies block {height}, mined {mined}"));
        let by = if who == Who::Controller { By::Operator } else { By::Producer };
        let expected = self.expected(height, by, false);
        let answer = self.call(who, "utxo_notify_block", (height, mined))?;
        if let Expected::Refused(error) = expected {
            return self.check_refused(answer, error);
        }
        self.raise(height, by, false);
        let last_persisted_height = self.heights.persisted;
        match answer {
            Ok(UtxoNotifyOutcome::NotMined) if !mined => self.look(Cause::Nothing),
            answer if last_persisted_height > 0 => {
                let expected = Ok(UtxoNotifyOutcome::PersisterActive { last_persisted_height });
                ensure!(answer == expected, "the answer to block {height} is {answer:?}");
                self.seen("a block while the persister is active");
                self.look(Cause::Nothing)
            }
            answer if !mined => Err(format!("the answer to block {height}, which is not mined, is {answer:?}")),
            answer => self.triggered(expected, answer, height, UtxoJobTrigger::Block),
        }
    }

    /// Returns whether this would be the first height, and above the tip. Such steps are skipped, because the chain of the history would
    /// never reach that height.
    fn is_first(&self, height: u32) -> bool {
        self.heights.current == 0 && height > self.tip && height <= MOST
    }

    pub fn persisted_at_most(&mut self, height: u32) -> Outcome {
        if self.is_first(height) { Ok(()) } else { self.persisted(height) }
    }

    pub fn block_at_most(&mut self, height: u32, mined: bool) -> Outcome {
        if self.is_first(height) { Ok(()) } else { self.block(height, mined) }
    }

    /// A manual run may be for any height; it is skipped if it would set the first height.
    pub fn prune_edge(&mut self, height: u32) -> Outcome {
        if self.is_first(height) { Ok(()) } else { self.prune(height) }
    }

    /// Checks that a wrong height was refused and that nothing has changed.
    fn check_refused<T: std::fmt::Debug>(
        &mut self,
        answer: Result<T, UtxoPrunerError>,
        error: UtxoPrunerError,
    ) -> Outcome {
        self.seen(match error {
            UtxoPrunerError::HeightJump { .. } => "a height that jumps is refused",
            _ => "an invalid height is refused",
        });
        let without_moment = |refused: &UtxoPrunerError| match refused {
            UtxoPrunerError::HeightJump { highest, most, .. } => {
                UtxoPrunerError::HeightJump { highest: *highest, most: *most, accepted_at_ns: None }
            }
            other => other.clone(),
        };
        let refused = matches!(&answer, Err(refused) if without_moment(refused) == error);
        ensure!(refused, "expected the refusal {error:?}, and the answer is {answer:?}");
        self.look(Cause::Nothing)
    }

    /// An operator notifies a height far from the chain's, ticks run, and an operator sets the heights right. Records deleted meanwhile do
    /// not come back.
    pub fn wrong(&mut self, height: u32, how: u8, ticks: u8) -> Outcome {
        let before = (self.heights, self.processed);
        match how % 3 {
            0 => self.persisted_by(Who::Controller, height)?,
            1 => self.block_by(Who::Controller, height, true)?,
            _ => self.prune(height)?,
        }
        if self.heights != before.0 {
            self.seen("a wrong height was notified");
        }
        (0..ticks).try_for_each(|_| self.tick())?;
        if how & 8 == 8 {
            self.cancel()?;
        }
        self.set_right(before.0.persisted, before.1)
    }

    /// Sets the heights back to the tip.
    pub fn set_right(&mut self, persisted: u32, processed: u32) -> Outcome {
        let current = self.tip;
        let persisted = (persisted > 0).then(|| persisted.min(current));
        self.utxo_set_heights(current, persisted, processed.min(current))
    }

    /// `utxo_set_heights`: forgets notified heights, and the run.
    pub fn utxo_set_heights(&mut self, current: u32, persisted: Option<u32>, processed: u32) -> Outcome {
        self.note(format!("utxo_set_heights({current}, {persisted:?}, {processed})"));
        let arg = UtxoSetHeights { current, persisted, processed };
        let answer: Result<UtxoHeightsSet, UtxoPrunerError> = self.call(Who::Controller, "utxo_set_heights", (arg,))?;
        let bad = [Some(current), persisted, Some(processed)].into_iter().flatten().any(|height| height > MOST);
        let wrong =
            persisted == Some(0) || persisted.is_some_and(|persisted| persisted > current) || processed > current;
        if bad || wrong {
            ensure!(answer.is_err(), "the answer is {answer:?}");
            return self.look(Cause::Nothing);
        }
        self.seen("heights are set");
        (self.heights.current, self.heights.persisted, self.processed) = (current, persisted.unwrap_or(0), processed);
        self.drawn = (0, 0);
        self.run = None;
        self.recheck_kept = true;
        self.look(Cause::Repaired)?;
        let set = answer.map_err(|error| format!("utxo_set_heights is refused: {error:?}"))?;
        let pending = self.view.as_ref().and_then(|view| view.status.pending.clone());
        let due = set.safe_height > processed;
        ensure!(
            self.timer_lost || set.due == pending && due == pending.is_some(),
            "{set:?} are set, and {pending:?} waits"
        );
        Ok(())
    }

    /// Cancels the running job, or the waiting one.
    pub fn cancel(&mut self) -> Outcome {
        let status = &self.view.as_ref().expect("the history has begun").status;
        let id = status.running.as_ref().or(status.pending.as_ref()).map_or(u64::MAX, |job| job.id);
        self.note(format!("utxo_cancel_prune_job({id})"));
        let answer: Result<UtxoPruneJob, UtxoPrunerError> =
            self.call(Who::Controller, "utxo_cancel_prune_job", (id,))?;
        if id == u64::MAX {
            ensure!(answer == Err(UtxoPrunerError::NotOpen), "there is no open job: {answer:?}");
            return self.look(Cause::Nothing);
        }
        self.seen("a job is cancelled");
        self.run = None;
        self.look(Cause::Repaired)?;
        let job = answer.map_err(|error| format!("job {id} is open: {error:?}"))?;
        ensure!(job.id == id && job.end == Some(UtxoJobEnd::Cancelled), "{id} was cancelled: {job:?}");
        self.check_known(&job)
    }

    pub fn prune(&mut self, height: u32) -> Outcome {
        self.note(format!("utxo_prune({height})"));
        let expected = self.expected(height, By::Manual, false);
        let answer: Result<UtxoPruneJob, UtxoPrunerError> = self.call(Who::Controller, "utxo_prune", (height,))?;
        let newest = self.jobs.keys().next_back().copied();
        self.look(Cause::Prune)?;
        match (answer, expected) {
            (Err(refused), Expected::Refused(error)) if refused == error => {
                self.seen("an operator's height above the notified one is refused");
                Ok(())
            }
            (Err(UtxoPrunerError::BlockAssemblyNotRunning), _) if !self.running => {
                ensure!(self.jobs.keys().next_back().copied() == newest, "it was refused, and there is a job");
                Ok(())
            }
            (Ok(job), Expected::Underway | Expected::New) if self.running => {
                self.seen("an operator prunes manually");
                ensure!(job.height >= height, "expected a run to {height}, and the job is {job:?}");
                self.check_known(&job)
            }
            (answer, _) => Err(format!("the answer to utxo_prune({height}) is {answer:?}")),
        }
    }
}
