//! What is said of pruning: status, plan, and who holds it back.

use super::policy::{Due, retain_min_block};
use super::{Limiter, Outside, Pruner, is_possible, pipeline};
use crate::api::{HeldBy, PruneError, PrunePlan, PrunePolicy, PruneProgress, PruneStatus};
use crate::blob::{BlobStore, Owner};
use crate::chain::ChainStore;

impl Pruner {
    /// Whether kept bytes have reached emergency water.
    ///
    /// What an upload reserves is not the chain's yet, and a block that alone is over the mark can only be pruned once
    /// another stands behind it: where pruning could free nothing, refusing appends would be for ever.
    fn at_emergency(&self, chain: &ChainStore, blobs: &BlobStore) -> bool {
        let emergency = self.policy().map_or(0, PrunePolicy::emergency);
        emergency > 0 && blobs.kept_bytes(Owner::Chain) >= emergency && chain.freeable_blobs() > 0
    }

    /// Who makes appends be refused: kept bytes have reached emergency water.
    pub fn exhausted(
        &self,
        chain: &ChainStore,
        blobs: &BlobStore,
        outside: impl FnOnce() -> Outside,
    ) -> Option<HeldBy> {
        if !self.at_emergency(chain, blobs) {
            return None;
        }
        let outside = outside();
        let due = self.due(chain, blobs, outside.guard.as_ref());
        // What may go has only not gone yet.
        let stuck = due.filter(|due| !is_possible(due, chain));
        Some(self.held_by(stuck.as_ref(), &outside).unwrap_or(HeldBy::PruneLag))
    }

    /// Who holds back what is due.
    fn held_by(&self, due: Option<&Due>, outside: &Outside) -> Option<HeldBy> {
        if !self.stored.enabled {
            return Some(HeldBy::Disabled);
        }
        let paused = || outside.low_on_cycles().then_some(HeldBy::LowCycles);
        due.and_then(|due| due.held_by.clone()).or_else(paused)
    }

    /// What the next run with the policy's budget would do.
    ///
    /// # Errors
    /// `NoPolicy`.
    pub fn plan(&self, chain: &ChainStore, blobs: &BlobStore, outside: &Outside) -> Result<PrunePlan, PruneError> {
        let policy = self.policy().ok_or(PruneError::NoPolicy)?;
        let due = self.due(chain, blobs, outside.guard.as_ref());
        let oldest = chain.state().oldest;
        let mut plan = PrunePlan {
            reason: due.as_ref().map(|due| due.reason),
            retain_min_block: retain_min_block(policy, chain),
            target: due.as_ref().map_or(oldest, |due| due.target),
            before: due.as_ref().map_or(oldest, |due| due.before.max(oldest)),
            held_by: due.as_ref().and_then(|due| self.held_by(Some(due), outside)),
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
            plan.blocks += 1;
            plan.ops += block.ops;
            plan.blobs += block.blobs;
            plan.bytes += block.bytes;
        }
        Ok(plan)
    }

    /// Everything that an operator needs to see.
    pub fn status(&self, chain: &ChainStore, blobs: &BlobStore, outside: &Outside) -> PruneStatus {
        let state = chain.state();
        let due = self.due(chain, blobs, outside.guard.as_ref());
        let oldest = state.started.then_some(state.oldest);
        let water = |f: fn(&PrunePolicy) -> u64| self.policy().map_or(0, f);
        PruneStatus {
            enabled: self.stored.enabled,
            need_prune: due.is_some(),
            reason: due.as_ref().map(|due| due.reason),
            target: due.as_ref().map_or(state.oldest, |due| due.target),
            held_by: due.as_ref().and_then(|due| self.held_by(Some(due), outside)),
            retain_min_block: self.policy().map_or(0, |policy| retain_min_block(policy, chain)),
            exported_before_block: outside.guard.as_ref().map(|guard| guard.before.max(state.oldest)),
            pruned_before_block: state.oldest,
            prune_cursor: state.sweeping().or(oldest.filter(|_| due.is_some_and(|due| is_possible(&due, chain)))),
            running: self.stored.running,
            oldest_kept_block: oldest,
            oldest_kept_timestamp: oldest.and_then(|number| chain.meta(number)).map(|record| record.monotonic),
            head: state.head(),
            estimated_kept_bytes: blobs.kept_bytes(Owner::Chain),
            high_water_bytes: water(PrunePolicy::high_water),
            low_water_bytes: water(PrunePolicy::low_water),
            emergency_bytes: water(PrunePolicy::emergency),
            last_run: self.stored.last_run.clone(),
            runs: self.stored.runs,
            ticks: self.ticks,
            next_tick: self.next_tick,
            pruned_blocks: state.pruned_blocks,
            pruned_bytes: state.pruned_bytes,
            faults: self.stored.faults,
        }
    }
}
