//! Runs of the pruner. The canister decides how far a message goes: the model judges each step that was taken, and at a job's end that
//! none is missing.

use super::{Id, Store, Verdict, hex};
use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// The heights of a run, and what it takes for old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heights {
    /// The height at which the chain is for it.
    pub current: u32,
    /// The height up to which it deletes.
    pub safe: u32,
    /// `unmined_tx_retention` as it was when the run began.
    pub unmined: u32,
}

impl Heights {
    /// The height below which unmined transactions are old.
    fn cutoff(&self) -> u32 {
        self.current.saturating_sub(self.unmined)
    }
}

/// A run that may have done something in the message that is judged.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its heights.
    pub heights: Heights,
    /// The message with which it began; none where that is not known.
    pub began: Option<u64>,
    /// It is done now.
    pub completed: bool,
    /// It preserves the parents of all old unmined transactions. Within an eighth of `parent_preservation_blocks` after such a run,
    /// `docs/design.md` 7 has a run preserve those of transactions that became old since.
    pub whole: bool,
}

impl Store {
    /// The transactions from which old unmined ones spend.
    fn protected(&self, run: &Run) -> BTreeSet<Id> {
        let cutoff = run.heights.cutoff();
        let old = self.records.values().filter(|record| record.unmined_since.is_some_and(|since| since < cutoff));
        old.flat_map(|record| record.parents()).collect()
    }

    /// Takes over what a message of the pruner has done, by the records after it. Returns the number of deleted records.
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
                        "{} is preserved until {until}, which nothing asks for",
                        hex(id)
                    );
                    ensure!(was.is_none_or(|was| was < until), "{} is preserved for less than it was", hex(id));
                    let record = self.records.get_mut(id).expect("it is there");
                    (record.preserve_until, record.delete_at) = (Some(until), None);
                }
                (Some(until), None) => {
                    let run = runs.iter().find(|run| until <= run.heights.current);
                    let Some(run) = run else {
                        return Err(format!("{} was preserved until {until}, and is not", hex(id)));
                    };
                    self.records.get_mut(id).expect("it is there").preserve_until = None;
                    self.evaluate(id, run.heights.current);
                }
                (None, None) => unreachable!("they are the same"),
            }
        }
        let gone: Vec<Id> = before.records.keys().filter(|id| !seen.contains_key(*id)).copied().collect();
        for id in &gone {
            let why: Vec<String> = runs.iter().filter_map(|run| before.spares(id, run)).collect();
            ensure!(!runs.is_empty() && why.len() < runs.len(), "{} is deleted: {why:?}", hex(id));
        }
        let current = runs.iter().map(|run| run.heights.current).max().unwrap_or(0);
        gone.iter().for_each(|id| self.delete(id, current));
        for run in runs.iter().filter(|run| run.completed) {
            self.left_over(run)?;
        }
        Ok(gone.len() as u64)
    }

    /// The reason why a run may not delete a record, if there is one.
    fn spares(&self, id: &Id, run: &Run) -> Option<String> {
        let record = &self.records[id];
        match record.delete_at {
            None => return Some("it has no height".into()),
            Some(at) if at > run.heights.safe => {
                return Some(format!("it is due at {at}, and {} is safe", run.heights.safe));
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

    /// Deletes a record: surviving parents are told, or get back what a double spend held.
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

    /// Checks that a completed job has left nothing of what was there from its beginning.
    fn left_over(&self, run: &Run) -> Verdict {
        let Some(began) = run.began else { return Ok(()) };
        let settled = |id: &Id| self.touched.get(id).is_none_or(|&at| at < began);
        for (id, record) in self.records.iter().filter(|(id, _)| settled(id)) {
            let due = record.delete_at.is_some_and(|at| at <= run.heights.safe);
            ensure!(!due, "{} is due at {:?} and was not deleted", hex(id), record.delete_at);
            let expired = record.preserve_until.is_some_and(|until| until <= run.heights.current);
            ensure!(!expired, "{} was preserved until {:?}, and still is", hex(id), record.preserve_until);
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
                let told = kept.is_none_or(|kept| kept >= Some(until));
                ensure!(told, "{}, from which {} spends, is preserved until {kept:?}", hex(&parent), hex(id));
            }
        }
        Ok(())
    }
}
