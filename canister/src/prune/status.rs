//! What is said of pruning, and who holds it back.

use super::policy::{Due, retain_min_block};
use super::{Constraints, Pruner, is_possible};
use crate::api::{HeldBy, PrunePolicy, PruneStatus};
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
        constraints: impl FnOnce() -> Constraints,
    ) -> Option<HeldBy> {
        if !self.at_emergency(chain, blobs) {
            return None;
        }
        let constraints = constraints();
        let due = self.due(chain, blobs, constraints.guard.as_ref());
        // What may go has only not gone yet.
        let stuck = due.filter(|due| !is_possible(due, chain));
        Some(self.held_by(stuck.as_ref(), &constraints).unwrap_or(HeldBy::PruneLag))
    }

    /// Who holds back what is due.
    pub(super) fn held_by(&self, due: Option<&Due>, constraints: &Constraints) -> Option<HeldBy> {
        if !self.stored.enabled {
            return Some(HeldBy::Disabled);
        }
        let paused = || constraints.low_on_cycles().then_some(HeldBy::LowCycles);
        due.and_then(|due| due.held_by.clone()).or_else(paused)
    }

    /// Everything that an operator needs to see.
    pub fn status(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> PruneStatus {
        let state = chain.state();
        let due = self.due(chain, blobs, constraints.guard.as_ref());
        let oldest = state.started.then_some(state.oldest);
        let water = |f: fn(&PrunePolicy) -> u64| self.policy().map_or(0, f);
        PruneStatus {
            enabled: self.stored.enabled,
            need_prune: due.is_some(),
            reason: due.as_ref().map(|due| due.reason),
            target: due.as_ref().map_or(state.oldest, |due| due.target),
            held_by: due.as_ref().and_then(|due| self.held_by(Some(due), constraints)),
            retain_min_block: self.policy().map_or(0, |policy| retain_min_block(policy, chain)),
            exported_before_block: constraints.guard.as_ref().map(|guard| guard.before.max(state.oldest)),
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
