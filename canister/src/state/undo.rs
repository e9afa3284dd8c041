//! Work that is undone over several messages: rollbacks, aborted uploads, and the leftovers of a reset.

use super::State;
use super::records::KEPT;
use crate::logs;
use ic_coppice_interface::UtxoError;
use ic_coppice_records::apply::TakenBack;
use ic_coppice_storage::Budget;

/// A message's part of a rollback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RolledBack {
    /// Blocks that the head went down.
    pub blocks: u64,
    /// Transactions of blocks that were taken back whose records had been pruned.
    pub not_restored: u64,
}

impl State {
    /// Continues the running rollback within the budget of a tick: from the newest block on, each is taken back from the UTXO records if it
    /// is applied, and then removed.
    pub(super) fn continue_rollback(&mut self) -> RolledBack {
        let policy = self.pruner.policy_or_default();
        let mut budget = Budget::new(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        let mut done = RolledBack::default();
        let (mut is_fresh, mut faults) = (true, Vec::new());
        let mut waits = None;
        if KEPT {
            self.records.utxo.begin_message();
        }
        while let Some(left) = self.chain.rollback_left() {
            if KEPT
                && let Some(number) = self.chain.next_to_roll_back()
                && self.records.applier.is_applied(&self.chain, number)
            {
                let (applier, mut stores) = self.applying();
                let (taken, lost) = applier.take_back(&mut stores, number, is_fresh, &mut faults);
                done.not_restored += lost;
                match taken {
                    TakenBack::Whole => {}
                    TakenBack::Part => break,
                    TakenBack::Waits(why) => {
                        waits = Some((number, UtxoError::from(why)));
                        break;
                    }
                }
                if !budget.has_room(left.pages) {
                    break;
                }
            }
            let Ok((ops, meter)) = budget.admit_part(left.ops, left.pages) else { break };
            let removed = self.chain.continue_rollback(&mut self.blobs, ops, meter);
            budget.charge(removed.ops, 0);
            if removed.began {
                done.blocks += 1;
                if KEPT {
                    self.records.applier.lower(self.chain.state().next, None);
                }
            }
            is_fresh = false;
            faults.extend(removed.faults);
        }
        self.set_rollback_waits(waits);
        if done.blocks > 0 {
            self.exporters.rolled_back(self.chain.state().next);
        }
        faults.iter().for_each(|fault| logs::error(&format!("rollback: skipped: {fault}")));
        self.pruner.freed_outside_runs(&self.chain, &self.blobs, faults.len() as u64);
        done
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
