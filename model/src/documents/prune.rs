//! Runs of the pruner. The canister decides how far a message goes. The model checks each step, and at the end of a job that none is
//! missing.

use super::{Id, Store, Verdict, hex};
use coppice_interface::*;
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
    /// a run preserves only the parents of transactions that became old since (`docs/design.md` 7).
    pub whole: bool,
}

impl Store {
    /// Returns the transactions that old unmined ones spend from.
    fn protected(&self, run: &Run) -> BTreeSet<Id> {
        let cutoff = run.heights.cutoff();
        let old = self.records.values().filter(|record| record.unmined_since.is_some_and(|since| since < cutoff));
        old.flat_map(|record| record.parents()).collect()
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
                        until == run.heights.current + self.rules.preservation && before.protected(run).contains(id)
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
            let why: Vec<String> = runs.iter().filter_map(|run| before.reason_to_keep(id, run)).collect();
            ensure!(!runs.is_empty() && why.len() < runs.len(), "{} is deleted: {why:?}", hex(id));
        }
        let current = runs.iter().map(|run| run.heights.current).max().unwrap_or(0);
        gone.iter().for_each(|id| self.delete(id, current));
        for run in runs.iter().filter(|run| run.completed) {
            self.check_complete(run)?;
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
        self.protected(run).contains(id).then(|| "an old unmined transaction spends from it".into())
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
        if !run.whole {
            return Ok(());
        }
        let cutoff = run.heights.cutoff();
        let until = run.heights.current + self.rules.preservation;
        for (id, record) in self.records.iter().filter(|(id, _)| settled(id)) {
            if record.unmined_since.is_none_or(|since| since >= cutoff) {
                continue;
            }
            for parent in record.parents().into_iter().filter(settled) {
                let kept = self.records.get(&parent).map(|parent| parent.preserve_until);
                let is_kept = kept.is_none_or(|kept| kept >= Some(until));
                ensure!(is_kept, "{}, a parent of {}, is preserved until {kept:?}", hex(&parent), hex(id));
            }
        }
        Ok(())
    }
}
