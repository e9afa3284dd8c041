//! Records that defensive mode keeps, for how long, and why: the first output with an unstable spender decides. A run may examine a record
//! at any moment of one or several ticks; if that changes the result, all possible results are remembered.

use super::machine::Machine;
use super::tick::{Done, Scope};
use coppice_model::records::{Hold, Record, Records, Spent, Txid};
use std::collections::{BTreeMap, BTreeSet};

/// Why a record is kept, and the height below which it is not examined again.
pub type Verdicts = BTreeSet<(Spent, u32)>;

/// The height below which a record is not examined: at least, and at most. Valid while `due` is the record's height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub least: u32,
    pub most: u32,
    pub due: Option<u32>,
}

impl Machine {
    /// The possible verdicts of this tick on every record that may be due in it.
    pub fn verdicts(&self, before: &Records, scope: &Scope, done: &Done) -> BTreeMap<Txid, Verdicts> {
        let mut all: BTreeMap<Txid, Verdicts> = BTreeMap::new();
        if !self.settings.pruner.utxo_defensive_enabled {
            return all;
        }
        let retention = self.settings.utxo.block_height_retention;
        let kept = self.run.as_ref().map_or(&self.kept_until, |run| &run.kept_before);
        // A spender that is deleted in this tick may have been deleted before its parent was examined. A spender that was touched since the
        // run began may have been in another state when the first outputs were examined.
        let unsettled = |hold: &Hold| {
            let touched = self.run.as_ref().is_some_and(|run| run.touched.contains(&hold.by));
            touched || done.gone.contains(&hold.by) || done.going.contains(&hold.by)
        };
        for &(current, safe) in &scope.heights {
            let at = safe.min(current);
            for txid in before.due(safe) {
                if kept.get(&txid).is_some_and(|kept| self.waits(kept, at).0) {
                    continue;
                }
                for records in [before, &self.records] {
                    let Some(record) = records.0.get(&txid) else { continue };
                    let seen = record.holds().map(|hold| records.spender(hold, current, retention));
                    let seen: Vec<(Spent, u32)> = seen.filter(|(spent, _)| *spent != Spent::Stably).collect();
                    let any = record.holds().any(unsettled) || seen.iter().any(|(spent, _)| *spent == Spent::Disputed);
                    let verdicts = seen.iter().take(if any { usize::MAX } else { 1 }).map(|(spent, lacks)| {
                        let blocks = if *spent == Spent::Recently { *lacks } else { retention.max(1) };
                        (*spent, at.saturating_add(blocks))
                    });
                    all.entry(txid).or_default().extend(verdicts);
                }
            }
        }
        all.retain(|_, verdicts| !verdicts.is_empty());
        all
    }

    /// Returns whether a run up to `at` surely skips a kept record, and whether it may skip it. After `utxo_set_heights`, a record that would
    /// wait for longer than a newly kept one is examined.
    pub fn waits(&self, kept: &Kept, at: u32) -> (bool, bool) {
        let longest = at.saturating_add(self.settings.utxo.block_height_retention.max(1));
        match (kept.least, kept.most) {
            (least, _) if self.recheck_kept && least > longest => (false, false),
            (_, most) if self.recheck_kept && most > longest => (false, true),
            (least, most) => (at < least, at < most),
        }
    }

    /// Forgets the verdicts on records whose height has changed. Records that became due while a run is under way are left to the next run;
    /// transactions that became old and unmined are not.
    pub fn note_changed_heights(&mut self, by_tick: bool) {
        let of = |field: fn(&Record) -> Option<u32>| -> BTreeMap<Txid, Option<u32>> {
            self.records.0.iter().map(|(txid, record)| (*txid, field(record))).collect()
        };
        let (now, unmined) = (of(|record| record.delete_at_height), of(|record| record.unmined_since));
        self.kept_until.retain(|txid, kept| now.get(txid) == Some(&kept.due));
        if let Some(run) = self.run.as_mut().filter(|_| !by_tick) {
            let became = now.iter().filter(|(txid, due)| due.is_some() && self.dues.get(*txid) != Some(due));
            run.became.extend(became.map(|(txid, _)| *txid));
            let settings = run.settings.iter().chain([&self.settings]);
            let cutoffs =
                settings.flat_map(|settings| run.heights.iter().map(|(current, _)| settings.cutoff(*current)));
            let cutoff = cutoffs.min().unwrap_or(0);
            let is_old = |since: Option<u32>| since.is_some_and(|since| since < cutoff);
            let was_old = |txid: &Txid| is_old(self.unmined.get(txid).copied().flatten());
            let late = unmined.iter().filter(|(txid, since)| is_old(**since) && !was_old(txid));
            run.late.extend(late.map(|(txid, _)| *txid));
        }
        (self.dues, self.unmined) = (now, unmined);
        self.note_endangered();
    }

    /// Notes the unmined transactions with a parent that is due before they are old.
    fn note_endangered(&mut self) {
        self.longest_unmined = self.longest_unmined.max(self.settings.unmined_retention());
        let is_due_by = |parent: &Txid, height: u32| {
            self.records.0.get(parent).and_then(|parent| parent.delete_at_height).is_some_and(|due| due <= height)
        };
        let is_endangered = |record: &Record| {
            let old = record.unmined_since.map(|since| since + self.longest_unmined);
            old.is_some_and(|old| record.parents().iter().any(|parent| is_due_by(parent, old)))
        };
        let endangered = self.records.0.iter().filter(|(_, record)| is_endangered(record));
        self.endangered.extend(endangered.map(|(txid, _)| *txid));
    }

    /// Remembers the records that a run has kept, or may have kept. `surely`: the run has examined the record.
    pub fn remember_kept(&mut self, verdicts: &BTreeMap<Txid, Verdicts>, surely: impl Fn(&Txid) -> bool) {
        for (txid, verdicts) in verdicts {
            let Some(record) = self.records.0.get(txid).filter(|record| !record.deleting) else { continue };
            let heights = || verdicts.iter().map(|(_, until)| *until);
            let (least, most) = (heights().min().unwrap_or(0), heights().max().unwrap_or(0));
            let before = self.kept_until.get(txid).copied();
            let (least, most) = match before {
                _ if surely(txid) => (least, most),
                None => (0, most),
                Some(before) => (before.least.min(least), before.most.max(most)),
            };
            self.kept_until.insert(*txid, Kept { least, most, due: record.delete_at_height });
        }
    }
}
