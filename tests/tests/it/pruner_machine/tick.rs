//! Check of a tick. The model does not predict how much a tick does: each change is compared with the model ("was this allowed at this
//! moment?") and adopted. The duties of a tick and of a run are checked in `duties`.

use super::Outcome;
use super::duties::Tick;
use super::jobs::{Cause, Progress};
use super::kept::{Kept, Verdicts};
use super::machine::Machine;
use super::view::{Replies, View};
use coppice_model::ensure;
use coppice_model::records::{At, Records, Settings, Spent, Txid};
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// A run that is under way, or whose position is kept.
#[derive(Clone, Debug)]
pub struct Run {
    /// The current height and the safe one; several if a job took over the run of a job that timed out, and may have begun its own run
    /// since.
    pub heights: BTreeSet<(u32, u32)>,
    pub phase: UtxoPrunerPhase,
    /// The settings that were in force in any of its ticks.
    pub settings: Vec<Settings>,
    /// Records that were touched between its ticks.
    pub touched: BTreeSet<Txid>,
    /// Touched records that became due meanwhile, and those whose preservation the run has ended: they are left to the next run.
    pub became: BTreeSet<Txid>,
    /// Touched records that were made, and those whose `preserve_until` an operation has set: the run need not preserve them again.
    pub set_by_operation: BTreeSet<Txid>,
    /// Transactions that became old and unmined between its ticks.
    pub late: BTreeSet<Txid>,
    /// The possible reasons why defensive mode kept a record in one of its ticks.
    pub verdicts: BTreeMap<Txid, Verdicts>,
    /// The kept records when the run began.
    pub kept_before: BTreeMap<Txid, Kept>,
    /// The canister was upgraded between its ticks.
    pub upgraded: bool,
}

/// The changes of a tick.
#[derive(Debug, Default)]
pub struct Done {
    pub gone: BTreeSet<Txid>,
    /// Records that wait for their blob.
    pub going: BTreeSet<Txid>,
    pub preserved: BTreeSet<Txid>,
    pub expired: BTreeSet<Txid>,
    /// Pages of the deleted records.
    pub pages: u64,
    /// Outputs of surviving parents that were marked.
    pub marked: u64,
}

/// The heights and settings that a tick may have used.
pub struct Scope {
    /// Current and safe heights.
    pub heights: BTreeSet<(u32, u32)>,
    /// The settings in force, and those in force earlier in the run.
    pub settings: Vec<Settings>,
    /// Records made or preserved by an operation after phase 1 may have examined them.
    pub set_by_operation: BTreeSet<Txid>,
    /// Transactions that became old and unmined in the middle of the run.
    pub late: BTreeSet<Txid>,
}

impl Scope {
    fn cutoffs(&self) -> impl Iterator<Item = u32> {
        let of = |(current, _): &(u32, u32)| -> Vec<u32> {
            self.settings.iter().map(|settings| settings.cutoff(*current)).collect()
        };
        self.heights.iter().flat_map(of)
    }

    /// The cutoff below which a transaction is old by all possible settings and heights.
    fn surely_old(&self) -> u32 {
        self.cutoffs().min().unwrap_or(0)
    }

    /// Parents of old unmined transactions by all possible cutoffs, and of late ones: phase 1 preserves them.
    pub fn surely_preserved(&self, records: &Records) -> BTreeSet<Txid> {
        records.parents_of_old(self.surely_old(), |_, record| !record.deleting)
    }

    /// Surely preserved parents with a child that was old and unmined when the run began.
    fn preserved_at_first(&self, records: &Records) -> BTreeSet<Txid> {
        records.parents_of_old(self.surely_old(), |txid, record| {
            !record.deleting && !record.late && !self.late.contains(txid)
        })
    }

    /// Surely preserved parents with a child that became so in the middle of the run, or is late.
    pub fn preserved_late(&self, records: &Records) -> BTreeSet<Txid> {
        records.parents_of_old(self.surely_old(), |txid, record| {
            !record.deleting && (record.late || self.late.contains(txid))
        })
    }

    /// Parents that phase 1 may preserve.
    fn perhaps_preserved(&self, records: &Records) -> BTreeSet<Txid> {
        records.parents_of_old(self.cutoffs().max().unwrap_or(0), |_, _| true)
    }

    /// The heights until which phase 1 may preserve.
    pub fn preserves_until(&self) -> BTreeSet<u32> {
        let of = |(current, _): &(u32, u32)| -> Vec<u32> {
            self.settings.iter().map(|settings| current + settings.pruner.parent_preservation_blocks).collect()
        };
        self.heights.iter().flat_map(of).collect()
    }
}

impl Machine {
    /// Looks at the canister and compares it with the model.
    pub fn look(&mut self, cause: Cause) -> Outcome {
        let view = Replies::new(&self.coppice, &mut self.replies).look(&self.family)?;
        let jobs = self.check_jobs(&view, cause)?;
        if cause.ticks() || self.timer_lost {
            self.check_tick(&view, &jobs, cause)?;
        } else if jobs.iter().any(|job| job.became(UtxoJobState::Cancelled) && job.after.started_at_ns.is_some()) {
            self.run = None;
        }
        self.note_changed_heights(cause.ticks());
        view.differs(&self.records, &self.family)?;
        self.check_queue(&view)?;
        view.counts(&self.records, self.fillers)?;
        self.check_status(&view.status)?;
        self.view = Some(view);
        Ok(())
    }

    fn check_tick(&mut self, view: &View, jobs: &[Progress], cause: Cause) -> Outcome {
        let before = self.records.clone();
        let begun = jobs.iter().filter(|job| job.after.started_at_ns.is_some()).map(|job| &job.after);
        let mut scope = Scope {
            heights: begun.map(|job| (job.current_height.unwrap_or(0), job.safe_height.unwrap_or(0))).collect(),
            settings: vec![self.settings.clone()],
            set_by_operation: BTreeSet::new(),
            late: BTreeSet::new(),
        };
        let worked = !scope.heights.is_empty();
        if let Some(run) = &self.run {
            scope.heights.extend(run.heights.iter().copied());
            scope.settings.extend(run.settings.iter().cloned());
            scope.set_by_operation.clone_from(&run.set_by_operation);
            scope.late.clone_from(&run.late);
        }
        // A block persister that begins meanwhile, or another rule, lowers the safe height, whatever a job shows.
        let smallest_retention = scope.settings.iter().map(|settings| settings.smallest_retention).max();
        let smallest_retention = smallest_retention.expect("there are settings");
        let in_force = Settings { smallest_retention, ..self.settings.clone() };
        let limit = |current: u32| in_force.safe_height(current, self.heights.persisted);
        let fallen = |&(current, safe): &(u32, u32)| (current, safe.min(limit(current)));
        scope.heights = scope.heights.iter().map(fallen).collect();
        let done = if worked && self.running { self.adopt(view, &scope)? } else { Done::default() };
        self.deleted_by_ticks += done.gone.len() as u64;
        self.expired += done.expired.len() as u64;
        self.count(&before, &done, jobs);
        self.check_duties(
            &Tick { before: &before, scope: &scope, done: &done, jobs, timer: cause == Cause::Tick },
            view,
        )
    }

    /// Adopts the changes into the model, if they are allowed.
    fn adopt(&mut self, view: &View, scope: &Scope) -> Outcome<Done> {
        let before = self.records.clone();
        let mut done = Done::default();
        // Parents that got back the outputs held by a deleted double spend.
        let lost = before.0.iter().filter(|(txid, record)| record.conflicting && !view.records.contains_key(*txid));
        let released: BTreeSet<Txid> = lost.flat_map(|(_, record)| record.parents()).collect();
        for (txid, record) in before.0.iter().filter(|(_, record)| !record.deleting) {
            let name = self.family.name(txid);
            match view.records.get(txid) {
                None => {
                    ensure!(record.blob.is_none(), "{name} is deleted, and its external blob is not");
                    done.gone.insert(*txid);
                }
                Some(seen) if seen.being_deleted => {
                    ensure!(record.blob.is_some() || record.is_large(), "{name} is in deletion without a cause");
                    done.going.insert(*txid);
                }
                Some(seen) => {
                    let shown = (seen.preserve_until, seen.delete_at_height);
                    let unspent = released.contains(txid) && shown == (record.preserve_until, None);
                    if shown != (record.preserve_until, record.delete_at_height) && !unspent {
                        let released = released.contains(txid);
                        self.may_change(&before, txid, (shown, released), scope, &mut done)
                            .map_err(|why| format!("{name}: {why} (now {shown:?}): {record:?}"))?;
                    }
                }
            }
        }
        for txid in done.gone.union(&done.going) {
            self.may_go(&before, txid, scope, &done).map_err(|why| {
                format!("{} must not be deleted: {why}: {:?}", self.family.name(txid), before.0[txid])
            })?;
        }
        for txid in &done.going {
            self.records.0.get_mut(txid).expect("it is there").deleting = true;
        }
        // The deletion of a record with many inputs, once begun, is finished.
        for (txid, record) in before.0.iter().filter(|(_, record)| record.deleting && record.is_large()) {
            let waits = view
                .pending
                .values()
                .chain(view.dead.values())
                .any(|row| row.txid.as_ref().is_some_and(|of| of[..] == txid[..]));
            if !view.records.contains_key(txid) {
                ensure!(!waits, "{} is gone, and its blob waits: {record:?}", self.family.name(txid));
                self.seen("a record of many inputs is gone");
                done.gone.insert(*txid);
            }
        }
        done.pages = done.gone.iter().map(|txid| before.0[txid].pages()).sum();
        let retention = self.settings.utxo.block_height_retention;
        let height = scope.heights.iter().map(|(current, _)| *current).min().unwrap_or(1);
        for txid in &done.gone {
            self.records.remove(txid, At { height, retention, most: height });
            self.deleted.insert(*txid);
        }
        // Counts the outputs of remaining records that now name a deleted spender and did not before.
        let marks = |records: &Records, txid: &Txid| -> usize {
            records.0.get(txid).map_or(0, |record| record.holds().filter(|hold| hold.deleted).count())
        };
        let marked = self.records.0.keys().map(|txid| marks(&self.records, txid).saturating_sub(marks(&before, txid)));
        done.marked = marked.sum::<usize>() as u64;
        Ok(done)
    }

    /// Checks the new `preserve_until` and `delete_at_height`. For a parent that gets back an output from a double spend, the preservation
    /// may have ended before that.
    fn may_change(
        &mut self,
        before: &Records,
        txid: &Txid,
        (shown, released): ((Option<u32>, Option<u32>), bool),
        scope: &Scope,
        done: &mut Done,
    ) -> Outcome {
        let record = &before.0[txid];
        match shown {
            (Some(until), None) => {
                ensure!(scope.preserves_until().contains(&until), "nothing is preserved until then");
                let spends_from =
                    |child: &Txid| before.0.get(child).is_some_and(|child| child.parents().contains(txid));
                ensure!(
                    scope.perhaps_preserved(before).contains(txid) || self.endangered.iter().any(spends_from),
                    "it is neither the parent of an old unmined transaction, nor due before a young one is old"
                );
                done.preserved.insert(*txid);
            }
            (None, delete_at) => {
                let until = record.preserve_until.ok_or("nothing of it was to change")?;
                if scope.surely_preserved(before).contains(txid) && !scope.set_by_operation.contains(txid) {
                    // The parent is preserved again before another record is deleted, and before the run is done.
                    let late = !scope.preserved_at_first(before).contains(txid);
                    ensure!(late, "it is the parent of an old unmined transaction");
                    self.seen("excused: a parent of one that became old in the middle of a run");
                } else {
                    self.seen("a preservation may expire");
                }
                let retention = self.settings.utxo.block_height_retention;
                ensure!(retention > 0, "there is no retention, and it would never be due");
                let expires = |&(current, _): &(u32, u32)| {
                    let mut record = record.clone();
                    record.preserve_until = None;
                    record.evaluate(At { height: current, retention, most: current });
                    let given_back = released && delete_at.is_none();
                    until <= current && (given_back || record.delete_at_height == delete_at)
                };
                ensure!(scope.heights.iter().any(expires), "its preservation does not end so at {:?}", scope.heights);
                done.expired.insert(*txid);
            }
            _ => return Err("preserved, and to be deleted".into()),
        }
        let record = self.records.0.get_mut(txid).expect("it is there");
        (record.preserve_until, record.delete_at_height) = shown;
        Ok(())
    }

    /// Checks that a record may be deleted in this tick. `done` contains the other deleted records.
    fn may_go(&self, before: &Records, txid: &Txid, scope: &Scope, done: &Done) -> Outcome {
        let (record, settings) = (&before.0[txid], &self.settings);
        let retention = settings.utxo.block_height_retention;
        ensure!(!settings.pruner.disable_dah_cleaner, "deletion is switched off");
        ensure!(record.eligible(), "it is not eligible");
        let is_due = |(_, safe): &(u32, u32)| record.delete_at_height.is_some_and(|height| height <= *safe);
        // One run may end the preservation, and a next, higher run may delete the record in the same tick.
        let expires = |until: u32| {
            let deadline = scope.heights.iter().filter(|(current, _)| until <= *current).map(|(current, _)| *current);
            let deadline = deadline.min().filter(|_| retention > 0).map(|current| current + retention);
            deadline.is_some_and(|deadline| scope.heights.iter().any(|(_, safe)| deadline <= *safe))
        };
        let preserved = record.preserve_until.is_some_and(|until| !expires(until));
        ensure!(!preserved, "it is preserved");
        let due = record.preserve_until.is_some() || scope.heights.iter().any(is_due);
        ensure!(due, "its height is above every safe one of {:?}", scope.heights);
        let parent = scope.surely_preserved(before).contains(txid);
        ensure!(!parent, "it is the parent of an old or late unmined transaction");
        let spender = before.live_unmined_spenders(txid, record).next();
        ensure!(spender.is_none(), "a live unmined transaction spends from it: {spender:?}");
        if !settings.pruner.utxo_defensive_enabled {
            return Ok(());
        }
        for hold in record.holds() {
            // A spender that is deleted in this tick may have been deleted first.
            let first = (done.gone.contains(&hold.by) || done.going.contains(&hold.by))
                && before.0[&hold.by].delete_at_height <= record.delete_at_height;
            let mut alone = record.clone();
            alone.outputs.retain(|output| output.as_ref().is_some_and(|output| output.hold.as_ref() == Some(hold)));
            let stable = |&(current, _): &(u32, u32)| {
                let seen = before.spenders(&alone, current, retention);
                seen.iter().all(|spent| matches!(spent, Spent::Stably | Spent::Disputed))
            };
            // The check may take several ticks: a spender that moves to another block meanwhile still counts as mined.
            let touched = self.run.as_ref().is_some_and(|run| run.touched.contains(&hold.by));
            let mined = |&(current, _): &(u32, u32)| {
                let seen = before.spenders(&alone, current, retention);
                seen.iter().all(|spent| matches!(spent, Spent::Stably | Spent::Disputed | Spent::Recently))
            };
            let stable = first || scope.heights.iter().any(|at| stable(at) || touched && mined(at));
            ensure!(stable, "{} spends from it, and is not stable", self.family.name(&hold.by));
        }
        Ok(())
    }
}
