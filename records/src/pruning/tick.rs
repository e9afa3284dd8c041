//! Ticks: each does a part of a job within a budget (`pruner-service.md` 2.3, 2.7).

use super::place::At;
use super::settings::unmined_retention;
use super::status::cannot_preserve;
use super::step::Message;
use super::{Answer, UtxoPruner, run};
use crate::external::Records;
use crate::utxo::{Cursor, RunWindow};
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{
    PruneProgress, UtxoBlockedBy, UtxoJobEnd, UtxoJobState, UtxoJobTrigger, UtxoPruneCounts, UtxoPruneJob, UtxoSettings,
};
use ic_coppice_storage::turns::Turn;
use ic_coppice_storage::{Budget, Ic, NS, Platform as _, log};

/// Maximum ops of a tick: a record, each of its pages, each parent that is marked or preserved, and each spender that is looked up is one.
const OPS: u64 = 200_000;

impl UtxoPruner {
    /// Does the work of one tick, and makes the next one due. Does almost nothing if nothing is due. `late`: earlier firings must have trapped.
    pub fn tick(&mut self, records: &mut Records, low_on_cycles: bool, late: bool) {
        self.ticks += 1;
        self.next_tick_ns = Ic::now_ns() + self.stored.settings.tick_interval_secs * NS;
        if !self.stored.settings.pruner_enabled || (self.stored.running.is_none() && self.stored.pending.is_none()) {
            return;
        }
        let paused = std::mem::replace(&mut self.paused, low_on_cycles);
        if !self.stored.assembly_running {
            self.stop_for_assembly();
        } else if low_on_cycles {
            if !paused {
                log::error("pruner: paused, liquid cycles are below min_liquid_cycles");
            }
        } else {
            self.take_turn(records, late);
        }
    }

    /// Does as much work as the marker allows.
    fn take_turn(&mut self, records: &mut Records, late: bool) {
        match self.stored.turns.next(late) {
            Turn::All => self.work(records, u64::MAX, None),
            Turn::Few(few) => self.work(records, u64::from(few), None),
            Turn::Find => self.work(records, 0, None),
            Turn::Only(at) => self.work(records, 1, Some(at)),
            Turn::Nothing => {
                log::error("pruner: ticks trap: the next ones do less work");
                self.save();
            }
            Turn::Skip(at) => self.skip_trapping(at),
        }
    }

    /// Skips a record that trapped repeatedly. Fails the job if finding the next record traps.
    fn skip_trapping(&mut self, at: Option<At>) {
        if let Some(At { phase, cursor: Cursor { txid, key, .. } }) = at {
            let txid = hex(&txid);
            log::error(&format!("pruner: the record of transaction {txid}, at {key} in {phase:?}, traps: skipped"));
        } else if let Some(job) = self.stored.running.take() {
            let phase = self.stored.run.as_ref().map_or(job.phase, |run| run.phase);
            self.end_run();
            log::error(&format!("pruner: job {} failed: finding the next record in {phase:?} traps", job.id));
            self.stored.failed += 1;
            self.stored.trapped = Some((job.id, phase));
            self.end(job, UtxoJobState::Failed, Some(UtxoJobEnd::Trapped { phase }));
        }
        self.save();
    }

    /// Does the first tick of an operator's job, or the next tick of a job that covers the height.
    ///
    /// # Errors
    /// `BadHeight`, `BlockAssemblyNotRunning`; nothing has changed.
    pub fn prune(&mut self, height: u32, records: &mut Records) -> Answer<UtxoPruneJob> {
        let job = self.trigger_manually(height)?;
        self.work(records, u64::MAX, None);
        let still = self.stored.running.iter().chain(&self.stored.pending).find(|now| now.id == job.id).cloned();
        Ok(still.or_else(|| self.stored.ended.find(&self.ended, job.id)).unwrap_or(job))
    }

    /// Makes an operator's job, or returns the one that covers the height, and leaves its work to ticks.
    ///
    /// # Errors
    /// `BadHeight`, `BlockAssemblyNotRunning`; nothing has changed.
    pub fn enqueue(&mut self, height: u32) -> Answer<UtxoPruneJob> {
        let job = self.trigger_manually(height)?;
        self.save();
        Ok(job)
    }

    /// Ends the running job because deletions were stopped, and requeues its height. The next job starts with the first phase.
    pub fn stop(&mut self) {
        if self.requeue(UtxoJobEnd::Stopped, "deletions are stopped") {
            self.save();
        }
    }

    /// Ends the running job, if any, and requeues its height. Returns whether there was one.
    fn requeue(&mut self, end: UtxoJobEnd, why: &str) -> bool {
        let Some(job) = self.stored.running.take() else { return false };
        self.end_run();
        log::info(&format!("pruner: job {} stopped: {why}", job.id));
        self.end_and_requeue(job, UtxoJobState::Cancelled, end);
        true
    }

    /// Ends the running job because the block assembly is not running, and requeues its height.
    fn stop_for_assembly(&mut self) {
        let ended = self.requeue(UtxoJobEnd::BlockAssemblyNotRunning, "the block assembly is not running");
        if ended || !self.stored.pending_skipped {
            self.stored.unused.assembly_not_running += 1;
            self.stored.pending_skipped = true;
            self.save();
        }
    }

    /// Drops the run in progress, if any.
    pub(super) fn end_run(&mut self) {
        if let Some(run) = self.stored.run.take() {
            run.report();
        }
    }

    /// Ends a job, and requeues its height.
    fn end_and_requeue(&mut self, job: UtxoPruneJob, state: UtxoJobState, end: UtxoJobEnd) {
        let UtxoPruneJob { height, trigger, .. } = self.end(job, state, Some(end));
        if self.stored.pending.as_ref().is_none_or(|pending| pending.height < height) {
            let by_hand = trigger == UtxoJobTrigger::Manual;
            self.make_pending(height, if by_hand { trigger } else { UtxoJobTrigger::Resumed });
        }
    }

    /// Ends the running job if it took too long. Its run stays for the next job.
    fn time_out(&mut self, now_ns: u64) {
        let timeout = self.stored.settings.job_timeout_secs * NS;
        let is_over = |job: &mut UtxoPruneJob| now_ns.saturating_sub(job.started_at_ns.unwrap_or(now_ns)) >= timeout;
        let Some(job) = self.stored.running.take_if(is_over) else { return };
        log::error(&format!("pruner: job {} timed out in {:?}: the next job resumes there", job.id, job.phase));
        self.stored.timed_out += 1;
        self.end_and_requeue(job, UtxoJobState::Failed, UtxoJobEnd::TimedOut);
    }

    /// Returns the running job, or starts the pending one.
    fn job(&mut self, now_ns: u64) -> Option<UtxoPruneJob> {
        self.time_out(now_ns);
        if let Some(job) = self.stored.running.take() {
            return Some(job);
        }
        let mut job = self.stored.pending.take()?;
        (job.state, job.started_at_ns) = (UtxoJobState::Running, Some(now_ns));
        (job.current_height, job.safe_height) = (Some(self.current_for(&job)), None);
        self.stored.reported_at = now_ns;
        Some(job)
    }

    /// Does a part of the running or pending job: at most `pieces` steps, or only the step `only` if it is the next one.
    fn work(&mut self, records: &mut Records, pieces: u64, only: Option<At>) {
        let (start, now_ns) = (Ic::instructions(), Ic::now_ns());
        let Some(mut job) = self.job(now_ns) else { return };
        let settings = self.stored.settings.clone();
        let chunk = u64::from(settings.utxo_chunk_size);
        let mut budget = Budget::new(OPS, settings.max_instructions_per_tick);
        (budget.pieces, budget.records) = (pieces, chunk * u64::from(settings.utxo_chunk_group_limit));
        let before = job.counts;
        let mut wanted = self.heights(records.settings, &job);
        // The safe height may have fallen, for example because a block persister has started or the rule has changed.
        wanted.safe = wanted.safe.min(job.safe_height.unwrap_or(u32::MAX));
        job.safe_height = Some(wanted.safe);
        self.stored.unreadable.retain(|at| records.utxo.is_at(at));
        self.stored.turns.try_again(|at| !records.utxo.is_at(&at.cursor));
        records.utxo.begin_message();
        let (unreadable, skipped) = (self.stored.unreadable.clone(), self.stored.turns.skipped().to_vec());
        let mut message = Message { records, settings, unreadable, skipped, budget, only, found: None, counts: before };
        let result = loop {
            let known = self.stored.run.take();
            let mut run = known.unwrap_or_else(|| self.begin_run(message.records, wanted, now_ns));
            run.heights.safe = run.heights.safe.min(wanted.safe);
            let result = run::continue_run(&mut run, &mut message, &mut self.stored.durations, now_ns);
            job.phase = run.phase;
            self.note_pass(&mut run);
            if run.again && !message.settings.disable_dah_cleaner && matches!(result, Ok(PruneProgress::Finished)) {
                self.stored.look_again = false;
            }
            if matches!(result, Ok(PruneProgress::HasMore { .. })) {
                self.stored.run = Some(run);
                break result;
            }
            let is_last = result.is_err() || run.heights == wanted;
            run.report();
            if is_last {
                break result;
            }
        };
        let Message { records, found, counts, .. } = message;
        job.counts = counts;
        if self.stored.run.is_none() {
            let retention = unmined_retention(&self.stored.settings, records.settings);
            records.utxo.set_window(RunWindow { run: 0, bound: 0, cutoff: self.stored.cutoff, retention });
        }
        self.stored.turns.ended(found);
        job.ticks += 1;
        job.counts.chunks += (job.counts.processed - before.processed).div_ceil(chunk);
        job.instructions += Ic::instructions() - start;
        super::status::add(&mut self.stored.totals, &job.counts, &before);
        self.finish(job, result, records.settings);
        self.save();
    }

    /// Ends the job after a tick, or keeps it running.
    fn finish(&mut self, mut job: UtxoPruneJob, result: Result<PruneProgress, UtxoBlockedBy>, utxo: &UtxoSettings) {
        match result {
            Ok(PruneProgress::Finished) => {
                job.progress = PruneProgress::Finished;
                (self.stored.blocked_by, self.stored.trapped) = (None, None);
                self.end(job, UtxoJobState::Completed, None);
                // Without a bound, only triggers make jobs: a notified block may not be mined yet.
                if self.stored.persisted > 0 || self.stored.assembly_height.is_some() {
                    self.make_due(utxo);
                }
            }
            Ok(more) => {
                job.progress = more;
                self.report(&job);
                self.stored.running = Some(job);
            }
            Err(blocked) => {
                self.stored.blocked_by = Some(blocked.clone());
                log::error(&format!("pruner: job {} failed: {}", job.id, cannot_preserve(&blocked)));
                self.stored.failed += 1;
                self.end(job, UtxoJobState::Failed, Some(UtxoJobEnd::PreserveParents(blocked)));
            }
        }
    }

    /// Ends the pending job as if phase 1 could not preserve parents.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail(&mut self, by: UtxoBlockedBy, utxo: &UtxoSettings) {
        let job = self.job(Ic::now_ns()).expect("a job waits");
        self.finish(job, Err(by), utxo);
    }

    /// Logs a line of progress every `utxo_progress_log_interval_secs` seconds. The line goes to the platform's log only, because in the
    /// canister's own log it would displace reports of damage.
    fn report(&mut self, job: &UtxoPruneJob) {
        let (interval, now_ns) = (self.stored.settings.utxo_progress_log_interval_secs, Ic::now_ns());
        if interval == 0 || now_ns.saturating_sub(self.stored.reported_at) < interval * NS {
            return;
        }
        self.stored.reported_at = now_ns;
        let UtxoPruneJob { id, height, phase, ticks, .. } = job;
        let UtxoPruneCounts { parents_preserved, processed, records_deleted, .. } = job.counts;
        Ic::log(&format!(
            "pruner: job {id} for height {height} in {phase:?} after {ticks} ticks: {parents_preserved} parents preserved, \
             {processed} records examined, {records_deleted} deleted"
        ));
    }
}
