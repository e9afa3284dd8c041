//! Work that is undone over several messages: rollbacks, aborted uploads, and the leftovers of a reset.

use super::State;
use crate::logs;
use crate::pruning::work::budget::Budget;

impl State {
    /// Continues the running rollback: removes blocks from the newest on, within the budget of a tick. Returns how many blocks the head
    /// went down.
    pub(super) fn continue_rollback(&mut self) -> u64 {
        let policy = self.pruner.policy().cloned().unwrap_or_default();
        let mut budget = Budget::new(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        let (mut fell, mut faults) = (0, 0);
        self.chain.count_pages(true);
        while let Some(left) = self.chain.rollback_left() {
            let Ok((ops, meter)) = budget.admit_part(left.ops, left.pages) else { break };
            let changed = self.chain.pages_changed();
            let done = self.chain.continue_rollback(&mut self.blobs, ops, meter);
            let end = if done.finished { left.pages } else { 0 };
            budget.charge(done.ops, self.chain.pages_changed() - changed + end, 0);
            fell += u64::from(done.began);
            faults += done.faults.len() as u64;
            for fault in &done.faults {
                logs::error(&format!("rollback: skipped: {fault}"));
            }
        }
        self.chain.count_pages(false);
        if fell > 0 {
            self.exporters.rolled_back(self.chain.state().next);
        }
        self.pruner.freed_outside_runs(&self.chain, &self.blobs, faults);
        fell
    }

    /// Counts and logs what could not be read while an upload was undone.
    pub(super) fn count_faults(&mut self) {
        let faults = self.chain.take_faults();
        if !faults.is_empty() {
            faults.iter().for_each(|fault| logs::error(&format!("upload: skipped: {fault}")));
            self.pruner.freed_outside_runs(&self.chain, &self.blobs, faults.len() as u64);
        }
    }

    /// Continues an abort, a rollback or the clearing after a reset, as far as one message may.
    pub(super) fn undo(&mut self) {
        if self.chain.is_aborting() {
            self.chain.continue_abort(&mut self.blobs);
        } else if self.chain.state().rollback_to.is_some() {
            self.continue_rollback();
        } else if self.chain.to_clear() > 0 {
            let faults = self.chain.clear(&mut self.blobs);
            faults.iter().for_each(|fault| logs::error(&format!("reset: skipped: {fault}")));
            self.pruner.freed_outside_runs(&self.chain, &self.blobs, faults.len() as u64);
        }
    }
}
