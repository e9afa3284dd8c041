//! The duties of a tick: it makes progress; phase 1 preserves every parent before a record is deleted; a run that is done leaves no due
//! record; and the counts are right.

use super::Outcome;
use super::jobs::Progress;
use super::kept::{Kept, Verdicts};
use super::machine::Machine;
use super::tick::{Done, Run, Scope};
use super::view::View;
use coppice_model::ensure;
use coppice_model::records::{Records, Settings, Spent, Txid};
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// A tick whose changes were allowed.
pub struct Tick<'a> {
    pub before: &'a Records,
    pub scope: &'a Scope,
    pub done: &'a Done,
    /// The jobs that changed.
    pub jobs: &'a [Progress],
    /// The tick was the timer's own.
    pub timer: bool,
}

impl Tick<'_> {
    /// The job that ran last.
    fn last(&self) -> Option<&UtxoPruneJob> {
        self.jobs.iter().map(|job| &job.after).rfind(|job| job.started_at_ns.is_some())
    }

    fn completed(&self) -> impl Iterator<Item = &UtxoPruneJob> {
        self.jobs.iter().filter(|job| job.became(UtxoJobState::Completed)).map(|job| &job.after)
    }
}

impl Machine {
    pub fn check_duties(&mut self, tick: &Tick, view: &View) -> Outcome {
        if tick.timer && self.settings.pruner.pruner_enabled {
            self.check_progress(view)?;
        }
        self.check_parents_preserved(tick)?;
        self.check_late_parents_preserved(tick)?;
        let now = self.verdicts(tick.before, tick.scope, tick.done);
        let mut verdicts = self.run.as_ref().map_or(BTreeMap::new(), |run| run.verdicts.clone());
        for (txid, more) in &now {
            verdicts.entry(*txid).or_default().extend(more);
        }
        let kept_before = self.run.as_ref().map_or(&self.kept_until, |run| &run.kept_before).clone();
        self.check_run_is_complete(tick, &verdicts, &kept_before)?;
        if tick.completed().next().is_none() {
            self.remember_kept(&now, |_| false);
        }
        self.check_counts(tick)?;
        self.note_examined(tick);
        self.update_run(tick, view, verdicts, kept_before);
        Ok(())
    }

    /// Checks that a tick of an enabled pruner makes progress if there is work.
    fn check_progress(&mut self, view: &View) -> Outcome {
        let before = &self.view.as_ref().expect("the history has begun").status;
        let now = &view.status;
        // A trap may have lost the timer, and later ticks do less.
        if self.has_trapped || self.coppice.ic.now() < before.next_tick_ns {
            return Ok(());
        }
        if !self.running {
            ensure!(now.running.is_none(), "the block assembly is stopped, and a job runs: {:?}", now.running);
            let height = before.running.as_ref().or(before.pending.as_ref()).map(|job| job.height);
            let pending = now.pending.as_ref().map(|job| job.height);
            ensure!(pending >= height, "the job for {height:?} must wait, and {pending:?} waits");
            return Ok(());
        }
        if self.settings.low {
            let same = now.running == before.running && now.pending == before.pending;
            ensure!(same, "cycles are low, and a tick continued: {:?}, {:?}", now.running, now.pending);
            self.seen("a tick while cycles are low");
            return Ok(());
        }
        if let Some(job) = &before.running {
            let went_on = now.running.as_ref().is_none_or(|now| now.id != job.id || now.ticks > job.ticks);
            ensure!(went_on, "the job made no progress in a tick: {job:?}");
        } else if let Some(job) = &before.pending {
            let waits = now.pending.as_ref().is_some_and(|now| now.id == job.id);
            ensure!(!waits, "a tick did not begin the job: {job:?}");
        }
        Ok(())
    }

    /// Checks that phase 1 has preserved every parent, if it was done in this tick, or if a record was deleted since.
    fn check_parents_preserved(&mut self, tick: &Tick) -> Outcome {
        let Some(job) = tick.last() else { return Ok(()) };
        let past_phase_1 = job.state == UtxoJobState::Completed || job.phase > UtxoPrunerPhase::PreserveParents;
        // A job that ended otherwise may have done nothing in this tick: its phase is that of an earlier tick.
        let past_phase_1 = past_phase_1 && matches!(job.state, UtxoJobState::Running | UtxoJobState::Completed);
        let before = self.run.as_ref().map_or(UtxoPrunerPhase::PreserveParents, |run| run.phase);
        let deleted = !tick.done.gone.is_empty() || !tick.done.going.is_empty();
        if !past_phase_1 || before > UtxoPrunerPhase::PreserveParents && !deleted {
            return Ok(());
        }
        // A preservation is renewed only at intervals; and a parent that was made since is preserved before it may be deleted.
        let slack = tick.scope.settings.iter().map(Settings::pass_interval).max().unwrap_or(0);
        let (until, current) = (tick.scope.preserves_until(), self.heights.current);
        let least = until.iter().min().map_or(0, |until| until.saturating_sub(slack));
        for parent in &tick.scope.surely_preserved(tick.before) {
            let Ok(record) = self.records.get(parent) else { continue };
            let kept = record.preserve_until.is_some_and(|until_now| until_now >= least);
            let name = self.family.name(parent);
            if tick.scope.set_by_operation.contains(parent) && !kept {
                self.seen("excused: a parent that was made or preserved in the middle of a run");
                continue;
            }
            let is_new = self.new_since.get(parent).is_some_and(|since| current.saturating_sub(*since) < slack.max(1));
            ensure!(kept || is_new, "phase 1 has not preserved {name} until one of {until:?}: {record:?}");
            self.seen(if kept { "a parent is preserved" } else { "excused: a new parent" });
        }
        Ok(())
    }

    /// Checks that a run that has deleted a record, or is done, has preserved the parents of transactions that became old and unmined in
    /// the middle of it.
    fn check_late_parents_preserved(&mut self, tick: &Tick) -> Outcome {
        let deleted = !tick.done.gone.is_empty() || !tick.done.going.is_empty();
        if !deleted && tick.completed().next().is_none() {
            return Ok(());
        }
        let until = tick.scope.preserves_until();
        let least = until.iter().min().copied().unwrap_or(0);
        for parent in tick.scope.preserved_late(tick.before).difference(&tick.scope.set_by_operation) {
            let Ok(record) = self.records.get(parent) else { continue };
            let kept = record.preserve_until.is_some_and(|until_now| until_now >= least);
            let name = self.family.name(parent);
            ensure!(
                kept,
                "{name} has a child that became old meanwhile, and is not preserved until {until:?}: {record:?}"
            );
            self.seen("a parent is preserved in the middle of a run");
        }
        Ok(())
    }

    /// Forgets that records are late once all their parents are preserved.
    fn note_examined(&mut self, tick: &Tick) {
        let Some(until) = tick.scope.preserves_until().first().copied() else { return };
        let is_kept = |parent: &Txid| {
            let Ok(record) = self.records.get(parent) else { return true };
            record.preserve_until.is_some_and(|until_now| until_now >= until)
        };
        let late = self.records.0.iter().filter(|(_, record)| record.late && record.parents().iter().all(is_kept));
        let examined: Vec<Txid> = late.map(|(txid, _)| *txid).collect();
        self.seen_often("a late record is examined", examined.len() as u64);
        examined.iter().for_each(|txid| self.records.0.get_mut(txid).expect("it is there").late = false);
    }

    /// Records whose preservation this tick ended. If the end makes a record due at or below the run's bound, which only a manual run above
    /// the notified height can do, the record is left to the next run.
    fn ended(&self, tick: &Tick) -> BTreeSet<Txid> {
        let preserved =
            |records: &Records, txid: &Txid| records.0.get(txid).is_some_and(|record| record.preserve_until.is_some());
        let all = tick.before.0.keys().copied();
        all.filter(|txid| preserved(tick.before, txid) && !preserved(&self.records, txid)).collect()
    }

    /// Checks that a run that is done has ended every preservation up to its height, and deleted every record that was due when it began,
    /// except those that defensive mode keeps.
    fn check_run_is_complete(
        &mut self,
        tick: &Tick,
        verdicts: &BTreeMap<Txid, Verdicts>,
        kept_before: &BTreeMap<Txid, Kept>,
    ) -> Outcome {
        for job in tick.completed() {
            // Without a retention no preservation ends, because no record would become due.
            let retained = tick.scope.settings.iter().all(|settings| settings.utxo.block_height_retention > 0);
            for (txid, record) in self.records.0.iter().filter(|(_, record)| retained && !record.deleting) {
                let over = record.preserve_until.is_some_and(|until| Some(until) <= job.current_height);
                let name = self.family.name(txid);
                ensure!(
                    !over || tick.scope.set_by_operation.contains(txid),
                    "the preservation of {name} is over: {record:?}"
                );
            }
            if tick.scope.settings.iter().any(|settings| settings.pruner.disable_dah_cleaner) {
                self.remember_kept(verdicts, |_| false);
                continue;
            }
            let at = job.safe_height.min(job.current_height).unwrap_or(0);
            let waits = |machine: &Self, txid: &Txid| {
                let due = machine.records.0.get(txid).and_then(|record| record.delete_at_height);
                let kept = kept_before.get(txid).filter(|kept| kept.due == due);
                kept.map_or((false, false), |kept| machine.waits(kept, at))
            };
            let ended = self.ended(tick);
            let became = self.run.as_ref().map_or(BTreeSet::new(), |run| run.became.clone());
            let left: BTreeSet<Txid> =
                self.records.due(job.safe_height.unwrap_or(0)).difference(&ended).copied().collect();
            let (mut looked_at, mut perhaps) = (BTreeSet::new(), BTreeSet::new());
            let mut excuses = 0;
            for txid in &left {
                let (surely_waits, may_wait) = waits(self, txid);
                if surely_waits {
                    self.seen("a kept record waits");
                    continue;
                }
                if became.contains(txid) {
                    self.seen("a record that became due in the middle of a run waits");
                    continue;
                }
                if self.full && job.counts.external_errors > 0 && self.records.0[txid].blob.is_some() {
                    self.seen("excused: no memory for the row of a blob");
                    perhaps.insert(*txid);
                    continue;
                }
                let kept = verdicts.contains_key(txid);
                let name = self.family.name(txid);
                let record = &self.records.0[txid];
                ensure!(kept || may_wait, "the run to {:?} has left {name}: {record:?}", job.safe_height);
                excuses += u64::from(!kept);
                if may_wait { &mut perhaps } else { &mut looked_at }.insert(*txid);
            }
            self.seen_often("excused: kept for some blocks", excuses);
            let checks = (looked_at.len() + perhaps.len() + tick.done.gone.len()) as u64;
            self.seen_often("a due record was examined", checks - excuses);
            let began = |progress: &Progress| progress.after.id == job.id && progress.began();
            if tick.jobs.iter().any(began) && self.run.is_none() && tick.scope.heights.len() == 1 {
                self.check_kept_counts(job, &looked_at, &perhaps, verdicts)?;
            }
            let looked_at = |txid: &Txid| looked_at.contains(txid);
            let of_left: BTreeMap<Txid, Verdicts> = verdicts
                .iter()
                .filter(|(txid, _)| !waits(self, txid).0)
                .map(|(txid, of)| (*txid, of.clone()))
                .collect();
            self.remember_kept(&of_left, looked_at);
            if !self.settings.pruner.disable_dah_cleaner {
                self.recheck_kept = false;
            }
        }
        Ok(())
    }

    /// For a run that began and ended in one tick, the kept records and their reasons are known. The counts are exact if it is known of
    /// each record whether it was examined, and because of which spender it was kept.
    fn check_kept_counts(
        &mut self,
        job: &UtxoPruneJob,
        looked_at: &BTreeSet<Txid>,
        perhaps: &BTreeSet<Txid>,
        verdicts: &BTreeMap<Txid, Verdicts>,
    ) -> Outcome {
        let counts = &job.counts;
        let kinds = [
            (counts.skipped_child_unmined, Spent::Unmined),
            (counts.skipped_child_recent, Spent::Recently),
            (counts.skipped_child_absent, Spent::ByNone),
        ];
        let none = Verdicts::new();
        let of = |txid: &Txid| -> BTreeSet<Spent> {
            verdicts.get(txid).unwrap_or(&none).iter().map(|(spent, _)| *spent).collect()
        };
        let names = self.family.names(looked_at.union(perhaps));
        let mut exact = true;
        for (count, kind) in kinds {
            let may = |txid: &&Txid| of(txid).contains(&kind) || of(txid).contains(&Spent::Disputed);
            let surely = looked_at.iter().filter(|txid| of(txid).iter().eq([&kind])).count() as u64;
            let most = looked_at.union(perhaps).filter(may).count() as u64;
            exact &= surely == most;
            ensure!(
                (surely..=most).contains(&count),
                "{count} are counted as {kind:?}, and {surely} to {most} of {names} are: {counts:?}"
            );
        }
        self.seen(if exact { "kept are counted" } else { "excused: kept are counted roughly" });
        Ok(())
    }

    fn check_counts(&self, tick: &Tick) -> Outcome {
        let Done { gone, going, expired, preserved, pages, marked } = tick.done;
        let sum = |count: fn(&UtxoPruneCounts) -> u64| tick.jobs.iter().map(|job| job.counted(count)).sum::<u64>();
        let inputs: u64 = gone.union(going).map(|txid| tick.before.0[txid].inputs.len() as u64).sum();
        let counted = (
            sum(|counts| counts.records_deleted),
            sum(|counts| counts.records_deleting),
            sum(|counts| counts.pages_deleted),
        );
        // A record with many inputs and no external blob is being deleted without being counted.
        let external = going.iter().filter(|txid| tick.before.0[*txid].blob.is_some()).count() as u64;
        let expected = (gone.len() as u64, external, *pages);
        // A job that takes over a run may inherit its counts, too.
        let inherits = self.run.is_some() && tick.jobs.iter().any(Progress::began);
        let what = "(deleted, deleting, pages) counted";
        ensure!(inherits || counted == expected, "{what}: {counted:?}, expected {expected:?}");
        let updated = sum(|counts| counts.parents_updated);
        let spread = self.family.has_large();
        ensure!(
            inherits || spread || (*marked..=inputs).contains(&updated),
            "{updated} outputs updated, expected {marked}"
        );
        let ended = sum(|counts| counts.preservations_expired);
        ensure!(ended >= expired.len() as u64, "{ended} preservations expired, expected {}", expired.len());
        let kept = sum(|counts| counts.parents_preserved);
        ensure!(kept >= preserved.len() as u64, "{kept} parents preserved, expected {}", preserved.len());
        Ok(())
    }

    /// Updates the model's run: the one that is under way, or was left by a job that timed out.
    fn update_run(
        &mut self,
        tick: &Tick,
        view: &View,
        verdicts: BTreeMap<Txid, Verdicts>,
        kept_before: BTreeMap<Txid, Kept>,
    ) {
        let Some(last) = tick.last() else { return };
        let over = |job: &Progress| {
            job.became(UtxoJobState::Completed)
                || job.became(UtxoJobState::Failed) && job.after.end != Some(UtxoJobEnd::TimedOut)
                || job.became(UtxoJobState::Cancelled) && job.after.started_at_ns.is_some()
        };
        let mut before = self.run.take();
        if before.as_ref().is_some_and(|run| run.upgraded) {
            self.seen("an upgrade in the middle of a run");
        }
        if tick.jobs.iter().any(over) {
            before = None;
            if view.status.running.is_none() {
                return;
            }
        }
        if before.is_some() && tick.jobs.iter().any(Progress::began) {
            self.seen("a job took over a run");
        }
        let mut run = before.unwrap_or(Run {
            heights: BTreeSet::new(),
            phase: last.phase,
            settings: Vec::new(),
            touched: BTreeSet::new(),
            became: BTreeSet::new(),
            set_by_operation: BTreeSet::new(),
            late: BTreeSet::new(),
            verdicts: BTreeMap::new(),
            kept_before,
            upgraded: false,
        });
        if run.settings.last() != Some(&self.settings) {
            run.settings.push(self.settings.clone());
        }
        run.heights.insert((last.current_height.unwrap_or(0), last.safe_height.unwrap_or(0)));
        if last.phase < run.phase {
            self.seen("phase 1 is done again");
        }
        run.phase = last.phase;
        run.became.extend(self.ended(tick));
        run.verdicts = verdicts;
        run.upgraded = false;
        self.run = Some(run);
    }

    /// Counts the events of a tick.
    pub fn count(&mut self, before: &Records, done: &Done, jobs: &[Progress]) {
        let record = |txid: &Txid| &before.0[txid];
        let (gone, going) = (done.gone.len() as u64, done.going.len() as u64);
        let conflicting = done.gone.iter().filter(|txid| record(txid).conflicting).count() as u64;
        let defensive = if self.settings.pruner.utxo_defensive_enabled { gone } else { 0 };
        self.seen_often("a record was deleted", gone);
        self.seen_often("a record waits for its blob", going);
        self.seen_often("a double spend was deleted", conflicting);
        self.seen_often("a record was deleted in defensive mode", defensive);
        self.seen_often("a page was deleted", done.pages);
        self.seen_often("an output names a deleted spender", done.marked);
        self.seen_often("a preservation expired", done.expired.len() as u64);
        let of = |count: fn(&UtxoPruneCounts) -> u64| jobs.iter().map(|job| job.counted(count)).sum::<u64>();
        self.seen_often("kept: a spender is unmined", of(|counts| counts.skipped_child_unmined));
        self.seen_often("kept: a spender is recent", of(|counts| counts.skipped_child_recent));
        self.seen_often("kept: a spender is absent", of(|counts| counts.skipped_child_absent));
        self.seen_often("a transaction in the BlobStore was freed", of(|counts| counts.external_files_deleted));
    }
}
