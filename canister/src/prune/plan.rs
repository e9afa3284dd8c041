//! What the next run would do: the same policy, pieces and limiter, and nothing changed.

use super::policy::retain_min_block;
use super::{Constraints, Limiter, Pruner, pipeline};
use crate::api::{PruneError, PrunePlan, PruneProgress};
use crate::blob::BlobStore;
use crate::chain::ChainStore;

impl Pruner {
    /// What the next run with the policy's budget would do.
    ///
    /// # Errors
    /// `NoPolicy`.
    pub fn plan(
        &self,
        chain: &ChainStore,
        blobs: &BlobStore,
        constraints: &Constraints,
    ) -> Result<PrunePlan, PruneError> {
        let policy = self.policy().ok_or(PruneError::NoPolicy)?;
        let due = self.due(chain, blobs, constraints.guard.as_ref());
        let oldest = chain.state().oldest;
        let mut plan = PrunePlan {
            reason: due.as_ref().map(|due| due.reason),
            retain_min_block: retain_min_block(policy, chain),
            target: due.as_ref().map_or(oldest, |due| due.target),
            before: due.as_ref().map_or(oldest, |due| due.before.max(oldest)),
            held_by: due.as_ref().and_then(|due| self.held_by(Some(due), constraints)),
            blocks: 0,
            ops: 0,
            blobs: 0,
            bytes: 0,
            progress: pipeline::end(due.as_ref()),
        };
        let mut limiter = Limiter::for_a_plan(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        for block in chain.removals(plan.before) {
            if let Err(reason) = limiter.admit(block.ops) {
                plan.progress = PruneProgress::HasMore { reason };
                break;
            }
            plan.ops += block.ops;
            plan.blocks += 1;
            plan.blobs += block.blobs;
            plan.bytes += block.bytes;
        }
        Ok(plan)
    }
}
