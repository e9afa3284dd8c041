//! Dry run of the next run: the same policy, removals and budget, without changes.

use super::constraints::Constraints;
use super::due::{due_and_floor, retain_min_block};
use super::{Pruner, policy, run};
use crate::ChainStore;
use ic_coppice_interface::{Config, HeldBy, PruneError, PrunePlan, PrunePolicyArg, PruneProgress};
use ic_coppice_storage::Budget;
use ic_coppice_storage::blob::BlobStore;

impl Pruner {
    /// Returns the plan of the next run with the policy's budget: by the policy in force, or by that policy after `change`.
    ///
    /// # Errors
    /// `NoPolicy` if there is neither a policy nor a change; `BadArgument` for an invalid change.
    pub fn plan(
        &self,
        chain: &ChainStore,
        blobs: &BlobStore,
        constraints: &Constraints,
        change: Option<(&PrunePolicyArg, &Config)>,
    ) -> Result<PrunePlan, PruneError> {
        let guard = constraints.guard();
        let (policy, to_low_water) = match change {
            None => (self.policy().cloned().ok_or(PruneError::NoPolicy)?, self.stored.to_low_water),
            Some((change, config)) => {
                let changed = policy::changed(&self.policy_or_default(), change, config)?;
                let to_low_water = self.to_low_water_after(&changed);
                (changed, to_low_water)
            }
        };
        let (due, floor_block) = due_and_floor(Some(&policy), chain, blobs, guard.as_ref(), to_low_water);
        let held_by = due.as_ref().and_then(|due| self.held_by(policy.pruning_enabled, Some(due), constraints));
        let oldest = chain.state().oldest;
        let mut budget = Budget::for_a_plan(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        let mut plan = PrunePlan {
            reason: due.as_ref().map(|due| due.reason),
            retain_min_block: retain_min_block(&policy, chain),
            target: due.as_ref().map_or(oldest, |due| due.target),
            before: due.as_ref().map_or(oldest, |due| due.before.max(oldest)),
            held_by: held_by.or(floor_block.map(|_| HeldBy::Floor)),
            floor_block,
            blocks: 0,
            ops: 0,
            blobs: 0,
            bytes: 0,
            progress: run::end(due.as_ref()),
            policy,
        };
        let mut removals = chain.removals(plan.before);
        while let Some(removal) = removals.next(chain) {
            if let Err(reason) = budget.admit(removal.ops()) {
                plan.progress = PruneProgress::HasMore { reason: Some(reason.into()) };
                break;
            }
            plan.ops += removal.ops();
            plan.blocks += 1;
            plan.blobs += removal.blobs();
            plan.bytes += removal.bytes();
        }
        Ok(plan)
    }
}
