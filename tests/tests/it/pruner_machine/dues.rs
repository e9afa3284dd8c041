//! What a tick owes: that it goes on; that phase 1 has preserved every parent before anything is deleted; that a run that is
//! done has left nothing that was due; and that it counted what it did.

use super::Outcome;
use super::jobs::Progress;
use super::machine::Machine;
use super::model::Records;
use super::rules::Spent;
use super::settings::Settings;
use super::sight::Sight;
use super::tick::{Done, Run, Scope};
use super::transactions::Txid;
use coppice_canister::api::*;
use std::collections::BTreeSet;

/// A tick that was, and was allowed.
pub struct Tick<'a> {
    pub before: &'a Records,
    pub scope: &'a Scope,
    pub done: &'a Done,
    /// The jobs that changed.
    pub jobs: &'a [Progress],
    /// It was the timer's own.
    pub timer: bool,
}

impl Tick<'_> {
    /// The job that did something last.
    fn last(&self) -> Option<&PruneJob> {
        self.jobs.iter().map(|job| &job.after).rfind(|job| job.started_at > 0)
    }

    fn completed(&self) -> impl Iterator<Item = &PruneJob> {
        self.jobs.iter().filter(|job| job.became(JobState::Completed)).map(|job| &job.after)
    }
}

impl Machine {
    pub fn dues(&mut self, tick: &Tick, sight: &Sight) -> Outcome {
        if tick.timer && self.settings.pruner.pruner_enabled {
            self.goes_on(sight)?;
        }
        self.parents_are_preserved(tick)?;
        let excused = self.excused(tick);
        self.nothing_is_left(tick, &excused)?;
        self.may_have_kept(tick, &excused);
        self.counts_are_right(tick)?;
        self.run_goes_on(tick, sight, excused);
        Ok(())
    }

    /// A tick of a pruner that is switched on does something where something is to be done.
    fn goes_on(&self, sight: &Sight) -> Outcome {
        let before = &self.sight.as_ref().expect("the history has begun").status;
        let now = &sight.status;
        if !self.running {
            ensure!(now.running.is_none(), "the block assembly is stopped, and a job runs: {:?}", now.running);
            let height = before.running.as_ref().or(before.pending.as_ref()).map(|job| job.height);
            let pending = now.pending.as_ref().map(|job| job.height);
            ensure!(pending >= height, "{height:?} was to be done, and {pending:?} waits");
            return Ok(());
        }
        if let Some(job) = &before.running {
            let went_on = now.running.as_ref().is_none_or(|now| now.id != job.id || now.ticks > job.ticks);
            ensure!(went_on, "a tick went by, and the job did nothing: {job:?}");
        } else if let Some(job) = &before.pending {
            let waits = now.pending.as_ref().is_some_and(|now| now.id == job.id);
            ensure!(!waits, "a tick went by, and the job was not begun: {job:?}");
        }
        Ok(())
    }

    /// Phase 1 has come by every parent, if it was done in this tick, or if anything was deleted since.
    fn parents_are_preserved(&mut self, tick: &Tick) -> Outcome {
        let Some(job) = tick.last() else { return Ok(()) };
        let behind = job.state == JobState::Completed || job.phase > PrunerPhase::PreserveParents;
        // One that ended otherwise may have done nothing in this tick: its phase is that of an earlier one.
        let behind = behind && matches!(job.state, JobState::Running | JobState::Completed);
        let before = self.run.as_ref().map_or(PrunerPhase::PreserveParents, |run| run.phase);
        let deleted = !tick.done.gone.is_empty() || !tick.done.going.is_empty();
        if !behind || before > PrunerPhase::PreserveParents && !deleted {
            return Ok(());
        }
        // What was promised lasts for a while; and a parent that came since is preserved before it may go.
        let slack = tick.scope.settings.iter().map(Settings::pass_interval).max().unwrap_or(0);
        let (until, current) = (tick.scope.preserves_until(), self.heights.current);
        let least = until.iter().min().map_or(0, |until| until.saturating_sub(slack));
        for parent in tick.scope.surely_preserved(tick.before).difference(&tick.scope.by_hand) {
            let Ok(record) = self.records.get(parent) else { continue };
            let kept = record.preserve_until.is_some_and(|until_now| until_now >= least);
            let name = self.family.name(parent);
            let came = self.came.get(parent).is_some_and(|came| current.saturating_sub(*came) < slack.max(1));
            ensure!(kept || came, "phase 1 has not preserved {name} until one of {until:?}: {record:?}");
            self.seen(if kept { "a parent is preserved" } else { "excused: a parent that came late" });
        }
        Ok(())
    }

    /// What defensive mode would have kept at the start or at the end of this tick, or in an earlier one of the run.
    fn excused(&self, tick: &Tick) -> BTreeSet<Txid> {
        let mut excused = self.run.as_ref().map_or(BTreeSet::new(), |run| run.excused.clone());
        if self.settings.pruner.utxo_defensive_enabled {
            for txid in tick.before.0.keys() {
                let all = self.spenders_in(tick, txid);
                if all.iter().any(|spent| *spent != Spent::Stably) {
                    excused.insert(*txid);
                }
            }
        }
        excused
    }

    /// Its spenders as they were before the tick, and as they are behind it.
    fn spenders_in(&self, tick: &Tick, txid: &Txid) -> BTreeSet<Spent> {
        let retention = self.settings.utxo.block_height_retention;
        let mut all = BTreeSet::new();
        for (current, _) in &tick.scope.heights {
            for records in [tick.before, &self.records] {
                if let Some(record) = records.0.get(txid) {
                    all.extend(records.spenders(record, *current, retention));
                }
            }
        }
        all
    }

    /// What this tick has ended the preservation of. Where that makes it due at or below the run's bound, which is so by hand only,
    /// above what was notified, it is left to the next run.
    fn ended(&self, tick: &Tick) -> BTreeSet<Txid> {
        let preserved =
            |records: &Records, txid: &Txid| records.0.get(txid).is_some_and(|record| record.preserve_until.is_some());
        let all = tick.before.0.keys().copied();
        all.filter(|txid| preserved(tick.before, txid) && !preserved(&self.records, txid)).collect()
    }

    /// A run that is done has ended every preservation up to its height, and deleted all that was due when it began, but what
    /// defensive mode keeps.
    fn nothing_is_left(&mut self, tick: &Tick, excused: &BTreeSet<Txid>) -> Outcome {
        for job in tick.completed() {
            // While there is no retention no preservation ends, as nothing would become due.
            let retained = tick.scope.settings.iter().all(|settings| settings.utxo.block_height_retention > 0);
            for (txid, record) in self.records.0.iter().filter(|(_, record)| retained && !record.deleting) {
                let over = record.preserve_until.is_some_and(|until| until <= job.current_height);
                let name = self.family.name(txid);
                ensure!(!over || tick.scope.by_hand.contains(txid), "the preservation of {name} is over: {record:?}");
            }
            let settings = || tick.scope.settings.iter();
            if settings().any(|settings| settings.pruner.disable_dah_cleaner) {
                continue;
            }
            let touched = self.run.as_ref().map(|run| &run.touched);
            let at = job.safe_height.min(job.current_height);
            let waits = |txid: &Txid| self.kept_until.get(txid).is_some_and(|(until, _)| at < *until);
            let ended = self.ended(tick);
            let left: BTreeSet<Txid> = self.records.due(job.safe_height).difference(&ended).copied().collect();
            for txid in &left {
                let may = excused.contains(txid) || touched.is_some_and(|touched| touched.contains(txid));
                let name = self.family.name(txid);
                ensure!(
                    may || waits(txid),
                    "the run to {} has left {name}: {:?}",
                    job.safe_height,
                    self.records.0[txid]
                );
            }
            let looked_at: BTreeSet<Txid> = left.iter().copied().filter(|txid| !waits(txid)).collect();
            let began = |progress: &Progress| progress.after.id == job.id && progress.began();
            if tick.jobs.iter().any(began) && self.run.is_none() && tick.scope.heights.len() == 1 {
                self.kept_are_counted(tick, job, &looked_at)?;
            }
            // What defensive mode keeps is looked at again after so many blocks: after how many is known of what has no spender
            // that is mined too lately, or may have had.
            let most = tick.scope.settings.iter().map(|settings| settings.utxo.block_height_retention).max();
            let until = at + most.unwrap_or(0).max(1);
            let alone = tick.scope.heights.len() == 1 && tick.scope.settings.len() == 1;
            let known = |txid: &Txid| {
                let all = self.spenders_in(tick, txid);
                alone && all.iter().all(|spent| matches!(spent, Spent::Stably | Spent::Unmined | Spent::ByNone))
            };
            // Of one whose spenders are mined too lately it is known where all are stable at the same height.
            let recent = |txid: &Txid| -> Option<u32> {
                let all = self.spenders_in(tick, txid);
                let mined = |by: &Txid| self.records.0.get(by)?.blocks.iter().map(|block| block.height).max();
                let heights: BTreeSet<u32> = self.records.0[txid].holds().filter_map(|hold| mined(&hold.by)).collect();
                let only = alone && all.iter().all(|spent| *spent == Spent::Recently) && heights.len() == 1;
                let stable_at = heights.first()? + most?;
                only.then(|| at + stable_at.saturating_sub(job.current_height))
            };
            let kept: Vec<_> = looked_at.iter().filter(|txid| excused.contains(*txid)).collect();
            let of = |txid: &Txid| recent(txid).map_or((until, known(txid)), |until| (until, true));
            let kept: Vec<_> = kept.into_iter().map(|txid| (*txid, of(txid))).collect();
            let guessed = |txid: &&Txid| waits(txid) && self.kept_until.get(*txid).is_some_and(|(_, known)| !known);
            let excuses = left.iter().filter(guessed).count();
            self.seen_often("excused: kept for some blocks", excuses as u64);
            self.seen_often("what was due was looked at", (left.len() - excuses + tick.done.gone.len()) as u64);
            self.kept_until.extend(kept);
        }
        Ok(())
    }

    /// What a run kept that may never be done waits all the same.
    fn may_have_kept(&mut self, tick: &Tick, excused: &BTreeSet<Txid>) {
        if tick.completed().next().is_some() {
            return;
        }
        let most = tick.scope.settings.iter().map(|settings| settings.utxo.block_height_retention).max();
        for (current, safe) in &tick.scope.heights {
            let until = safe.min(current) + most.unwrap_or(0).max(1);
            for txid in self.records.due(*safe).intersection(excused) {
                let (before, _) = self.kept_until.get(txid).copied().unwrap_or_default();
                if before < until {
                    self.kept_until.insert(*txid, (until, false));
                }
            }
        }
    }

    /// Of a run that was begun and done in one tick it is known what it kept, and why.
    fn kept_are_counted(&self, tick: &Tick, job: &PruneJob, left: &BTreeSet<Txid>) -> Outcome {
        let counts = &job.counts;
        let kinds = [
            (counts.skipped_child_unmined, Spent::Unmined),
            (counts.skipped_child_recent, Spent::Recently),
            (counts.skipped_child_absent, Spent::ByNone),
        ];
        let sum: u64 = kinds.iter().map(|(count, _)| count).sum();
        let names = self.family.names(left);
        // Of those that waited some may have come by their height.
        ensure!(sum >= left.len() as u64, "{names} were kept, and {sum} are counted: {counts:?}");
        for (count, kind) in kinds {
            let such = |txid: &&Txid| {
                let all = self.spenders_in(tick, txid);
                all.contains(&kind) || all.contains(&Spent::Disputed)
            };
            let such = |txid: &&Txid| tick.before.0.contains_key(*txid) && such(txid);
            let due = self.records.due(job.safe_height);
            let most = due.iter().filter(such).count() as u64;
            ensure!(count <= most, "{count} are counted as {kind:?}, and {most} of {names} are");
        }
        Ok(())
    }

    fn counts_are_right(&self, tick: &Tick) -> Outcome {
        let Done { gone, going, expired, preserved, pages, told } = tick.done;
        let sum = |count: fn(&PruneCounts) -> u64| tick.jobs.iter().map(|job| job.counted(count)).sum::<u64>();
        let inputs: u64 = gone.union(going).map(|txid| tick.before.0[txid].inputs.len() as u64).sum();
        let counted = (
            sum(|counts| counts.records_deleted),
            sum(|counts| counts.records_deleting),
            sum(|counts| counts.pages_deleted),
        );
        let expected = (gone.len() as u64, going.len() as u64, *pages);
        // A job that takes another's place may have its counts, too.
        let inherits = self.run.is_some() && tick.jobs.iter().any(Progress::began);
        let what = "(deleted, deleting, pages) counted";
        ensure!(inherits || counted == expected, "{what}: {counted:?}, and it was {expected:?}");
        let updated = sum(|counts| counts.parents_updated);
        ensure!(inherits || (*told..=inputs).contains(&updated), "{updated} outputs told, and it was {told}");
        let ended = sum(|counts| counts.preservations_expired);
        ensure!(ended >= expired.len() as u64, "{ended} preservations expired, and it was {}", expired.len());
        let kept = sum(|counts| counts.parents_preserved);
        ensure!(kept >= preserved.len() as u64, "{kept} parents preserved, and it was {}", preserved.len());
        Ok(())
    }

    /// Keeps book of the run that is under way, or was left by a job that timed out.
    fn run_goes_on(&mut self, tick: &Tick, sight: &Sight, excused: BTreeSet<Txid>) {
        let Some(last) = tick.last() else { return };
        let over = |job: &Progress| {
            job.became(JobState::Completed)
                || job.became(JobState::Cancelled) && job.after.end == Some(JobEnd::BlockAssemblyNotRunning)
        };
        let mut before = self.run.take();
        if before.as_ref().is_some_and(|run| run.upgraded) {
            self.seen("an upgrade in the middle of a run");
        }
        if tick.jobs.iter().any(over) {
            before = None;
            if sight.status.running.is_none() {
                return;
            }
        }
        if before.is_some() && tick.jobs.iter().any(Progress::began) {
            self.seen("a job took another's place");
        }
        let mut run = before.unwrap_or(Run {
            heights: BTreeSet::new(),
            phase: last.phase,
            settings: Vec::new(),
            touched: BTreeSet::new(),
            by_hand: BTreeSet::new(),
            excused: BTreeSet::new(),
            upgraded: false,
        });
        if run.settings.last() != Some(&self.settings) {
            run.settings.push(self.settings.clone());
        }
        run.heights.insert((last.current_height, last.safe_height));
        if last.phase < run.phase {
            self.seen("phase 1 is done again");
        }
        run.phase = last.phase;
        run.touched.extend(self.ended(tick));
        run.excused = excused;
        run.upgraded = false;
        self.run = Some(run);
    }

    /// What is interesting of a tick.
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
        self.seen_often("an output says that its spender was deleted", done.told);
        self.seen_often("a preservation expired", done.expired.len() as u64);
        let of = |count: fn(&PruneCounts) -> u64| jobs.iter().map(|job| job.counted(count)).sum::<u64>();
        self.seen_often("kept: a spender is unmined", of(|counts| counts.skipped_child_unmined));
        self.seen_often("kept: a spender is recent", of(|counts| counts.skipped_child_recent));
        self.seen_often("kept: a spender is absent", of(|counts| counts.skipped_child_absent));
        self.seen_often("a transaction in the BlobStore was freed", of(|counts| counts.external_files_deleted));
    }
}
