//! What defensive mode keeps, for how long, and why: the first output decides whose spender is not stable. A run may look at a record
//! at any moment of a tick, and of several ticks; where that makes a difference, all that may be is kept in mind.

use super::machine::Machine;
use super::tick::{Done, Scope};
use coppice_model::records::{Hold, Record, Records, Spent, Txid};
use std::collections::{BTreeMap, BTreeSet};

/// Why a record is kept, and until which height it is not looked at again.
pub type Verdicts = BTreeSet<(Spent, u32)>;

/// Until when a record is not looked at: surely, and perhaps. The height at which it may be deleted was this one all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub least: u32,
    pub most: u32,
    pub due: Option<u32>,
}

impl Machine {
    /// The verdicts of this tick on every record that may be due in it.
    pub fn verdicts(&self, before: &Records, scope: &Scope, done: &Done) -> BTreeMap<Txid, Verdicts> {
        let mut all: BTreeMap<Txid, Verdicts> = BTreeMap::new();
        if !self.settings.pruner.utxo_defensive_enabled {
            return all;
        }
        let retention = self.settings.utxo.block_height_retention;
        let kept = self.run.as_ref().map_or(&self.kept_until, |run| &run.kept_before);
        // Who goes in this tick may have gone before a record was looked at that it spends from, and who was touched since the run
        // began may have been another's when the first outputs were looked at.
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

    /// Whether a record that was kept surely, and whether it perhaps, is not looked at by a run that goes as far as this. Where the
    /// heights were set, one that would wait for longer than what is kept now is looked at.
    pub fn waits(&self, kept: &Kept, at: u32) -> (bool, bool) {
        let longest = at.saturating_add(self.settings.utxo.block_height_retention.max(1));
        match (kept.least, kept.most) {
            (least, _) if self.again && least > longest => (false, false),
            (_, most) if self.again && most > longest => (false, true),
            (least, most) => (at < least, at < most),
        }
    }

    /// What is known of records whose height has changed is known no more; and those that became due while a run is under way are
    /// left to the next one. Those that became old and unmined are not.
    pub fn heights_changed(&mut self, by_tick: bool) {
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
    }

    /// A run that has come by what is due, or may have, keeps what it keeps until then. `surely`: it has, all of it.
    pub fn keeps(&mut self, verdicts: &BTreeMap<Txid, Verdicts>, surely: impl Fn(&Txid) -> bool) {
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
