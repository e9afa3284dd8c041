//! Runs of the pruner. The canister decides how far a message goes. The model checks each step, and at the end of a job that none is
//! missing.

use super::{Id, Record, Store, Verdict, hex};
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// The heights of a run, and its limit for old transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heights {
    /// The height of the chain for this run.
    pub current: u32,
    /// The height up to which the run deletes.
    pub safe: u32,
    /// `unmined_tx_retention` at the beginning of the run.
    pub unmined: u32,
}

impl Heights {
    /// Returns the height below which unmined transactions are old.
    fn cutoff(&self) -> u32 {
        self.current.saturating_sub(self.unmined)
    }
}

/// A run that may have acted in the message being checked.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its heights.
    pub heights: Heights,
    /// The message in which it began, or `None` if unknown.
    pub began: Option<u64>,
    /// True if it has completed.
    pub completed: bool,
    /// True if it preserves the parents of all old unmined transactions. Within an eighth of `parent_preservation_blocks` after such a run,
    /// a run preserves only the parents of transactions that became old since (`docs/design/record-pruning.md`).
    pub whole: bool,
}

impl Store {
    /// Returns the transactions that old unmined ones spend from, and those that late ones spend from which no run has examined.
    fn protected(&self, run: &Run) -> BTreeSet<Id> {
        let cutoff = run.heights.cutoff();
        let late = |record: &Record| record.late.is_some_and(|late| late > self.examined);
        let old = |record: &&Record| record.unmined_since.is_some_and(|since| since < cutoff) || late(record);
        self.records.values().filter(old).flat_map(|record| record.parents()).collect()
    }

    /// Returns whether a record is due before a transaction that is unmined since a height is old.
    pub(super) fn is_due_by(&self, id: &Id, since: u32) -> bool {
        let due = self.records.get(id).and_then(|record| record.delete_at);
        due.is_some_and(|due| due <= since + self.rules.unmined)
    }

    /// Returns whether a run may preserve a record.
    fn may_preserve(&self, id: &Id, run: &Run) -> bool {
        let endangers = |(child, record): (&Id, &Record)| {
            let due = record.unmined_since.is_some_and(|since| self.is_due_by(id, since));
            (due || self.endangered.contains(child)) && record.parents().contains(id)
        };
        self.protected(run).contains(id) || self.records.iter().any(endangers)
    }

    /// Returns a live unmined transaction that spends from a record. A feeder may name a spender that has no such input.
    fn live_child(&self, id: &Id) -> Option<Id> {
        let lives = |spender: &Id| {
            let child = self.records.get(spender).filter(|child| !child.conflicting && child.unmined_since.is_some());
            child.is_some_and(|child| child.parents().contains(id))
        };
        let holds = self.records[id].utxos().filter(|(_, output)| !output.spender_deleted);
        holds.filter_map(|(_, output)| Some(output.spender?.0)).find(lives)
    }

    /// Applies the work of a pruner's message, by the records after it. Returns the number of deleted records.
    pub fn ran(&mut self, runs: &[Run], seen: &BTreeMap<Id, UtxoRecord>) -> Verdict<u64> {
        let before = self.clone();
        for (id, old) in &before.records {
            let Some(now) = seen.get(id) else { continue };
            match (old.preserve_until, now.preserve_until) {
                (was, is) if was == is => {}
                (was, Some(until)) => {
                    let asks = |run: &&Run| {
                        until == run.heights.current + self.rules.preservation && before.may_preserve(id, run)
                    };
                    ensure!(
                        runs.iter().any(|run| asks(&run)),
                        "{} is preserved until {until} without a reason",
                        hex(id)
                    );
                    ensure!(was.is_none_or(|was| was < until), "{} is preserved for less time than before", hex(id));
                    let record = self.records.get_mut(id).expect("it is there");
                    (record.preserve_until, record.delete_at) = (Some(until), None);
                }
                (Some(until), None) => {
                    let run = runs.iter().find(|run| until <= run.heights.current);
                    let Some(run) = run else {
                        return Err(format!("{} was preserved until {until}, but no longer is", hex(id)));
                    };
                    self.records.get_mut(id).expect("it is there").preserve_until = None;
                    self.evaluate(id, run.heights.current);
                }
                (None, None) => unreachable!("they are the same"),
            }
        }
        let gone: Vec<Id> = before.records.keys().filter(|id| !seen.contains_key(*id)).copied().collect();
        for id in &gone {
            if let Some(child) = before.live_child(id) {
                return Err(format!("{} is deleted, and the live unmined {} spends from it", hex(id), hex(&child)));
            }
            let why: Vec<String> = runs.iter().filter_map(|run| before.reason_to_keep(id, run)).collect();
            ensure!(!runs.is_empty() && why.len() < runs.len(), "{} is deleted: {why:?}", hex(id));
        }
        let current = runs.iter().map(|run| run.heights.current).max().unwrap_or(0);
        gone.iter().for_each(|id| self.delete(id, current));
        for run in runs.iter().filter(|run| run.completed) {
            self.check_complete(run)?;
        }
        if runs.iter().any(|run| run.completed) {
            self.examined = self.message;
        }
        Ok(gone.len() as u64)
    }

    /// Returns the reason why a run may not delete a record, if there is one.
    fn reason_to_keep(&self, id: &Id, run: &Run) -> Option<String> {
        let record = &self.records[id];
        match record.delete_at {
            None => return Some("it has no height".into()),
            Some(at) if at > run.heights.safe => {
                return Some(format!("it is due at {at}, but the safe height is {}", run.heights.safe));
            }
            _ => {}
        }
        if let Some(until) = record.preserve_until {
            return Some(format!("it is preserved until {until}"));
        }
        if !record.eligible() {
            return Some("it is not eligible".into());
        }
        self.protected(run).contains(id).then(|| "an old or late unmined transaction spends from it".into())
    }

    /// Deletes a record. Its surviving parents record the deletion, or get back outputs that a double spend held.
    fn delete(&mut self, id: &Id, current: u32) {
        let record = self.records.remove(id).expect("it is there");
        for (vin, parent, vout) in record.inputs() {
            let output = self.records.get_mut(&parent).and_then(|parent| parent.output_mut(vout));
            let Some(output) = output.filter(|output| output.spender == Some((*id, vin))) else { continue };
            if record.conflicting {
                self.give_back((parent, vout));
                self.evaluate(&parent, current);
            } else {
                output.spender_deleted = true;
            }
        }
        self.unlist_with(id, &record.parents());
        if !record.conflicting {
            self.pruned = self.pruned.max(record.highest_block());
        }
    }

    /// Checks that a completed job has left no work that existed at its beginning.
    fn check_complete(&self, run: &Run) -> Verdict {
        let Some(began) = run.began else { return Ok(()) };
        let settled = |id: &Id| self.touched.get(id).is_none_or(|&at| at < began);
        for (id, record) in self.records.iter().filter(|(id, _)| settled(id)) {
            let due = record.delete_at.is_some_and(|at| at <= run.heights.safe);
            ensure!(!due, "{} is due at {:?} but was not deleted", hex(id), record.delete_at);
            let expired = record.preserve_until.is_some_and(|until| until <= run.heights.current);
            ensure!(!expired, "{} was preserved until {:?} and still is preserved", hex(id), record.preserve_until);
        }
        let cutoff = run.heights.cutoff();
        let until = run.heights.current + self.rules.preservation;
        for (id, record) in self.records.iter().filter(|(id, _)| settled(id)) {
            let old = run.whole && record.unmined_since.is_some_and(|since| since < cutoff);
            let late = record.late.filter(|late| *late > self.examined);
            // A run that was dropped may have examined a late record at a lower height, and a call may have changed the parent since.
            let (least, changed) = match late {
                _ if old => (until, u64::MAX),
                Some(late) => (run.heights.current + 1, late),
                None => continue,
            };
            let unchanged = |id: &Id| settled(id) && self.touched.get(id).is_none_or(|at| *at <= changed);
            for parent in record.parents().into_iter().filter(unchanged) {
                let kept = self.records.get(&parent).map(|parent| parent.preserve_until);
                let is_kept = kept.is_none_or(|kept| kept >= Some(least));
                ensure!(is_kept, "{}, a parent of {}, is preserved until {kept:?}", hex(&parent), hex(id));
            }
        }
        Ok(())
    }
}
