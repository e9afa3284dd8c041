//! The pruner: an interval timer that does one bounded run a tick (`pruning-spec-v1.md` 5, `docs/design.md` 4).
//!
//! ```text
//! timer ──▶ daemon ──▶ policy: what is due? ──▶ pipeline ◀── limiter: how much?
//!                                                  │
//!                                                  ▼
//!                                       segment: one piece, whole ──▶ chain ──▶ blobs
//! ```
//! Policy, mechanism and budget know nothing of each other. The checkpoint is the chain's own `oldest`, committed with
//! the data, so a run that is interrupted anywhere goes on where it was.

mod limiter;
mod pipeline;
mod policy;
mod segment;

pub mod daemon;

pub use limiter::Limiter;
pub use policy::{Due, MAX_OPS, due};
pub use segment::{Blocks, PruneSegment, Pruned};

use crate::api::{HeldBy, PruneError, PrunePolicy, PruneProgress, PruneReason, PruneRun, PruneStatus};
use crate::blob::{BlobStore, Owner};
use crate::chain::ChainStore;
use crate::memory::{Region, cell};
use crate::runtime;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CPPR";
const VERSION: u16 = 1;
const CAPACITY: usize = 16 << 10;

/// What is persisted of the pruner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    policy: Option<PrunePolicy>,
    enabled: bool,
    /// The capacity trigger has fired and low water was not reached yet.
    to_low_water: bool,
    last_run: Option<PruneRun>,
    runs: u64,
    faults: u64,
}

/// Policy and progress.
pub struct Pruner {
    cells: Rc<Region>,
    stored: Stored,
    /// On the heap: an upgrade starts counting again.
    ticks: u64,
    next_tick: u64,
}

impl Pruner {
    /// Reads the cell.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(cells: Rc<Region>) -> Result<Self, String> {
        let stored = cell::load(&cells, cell::PRUNE, MAGIC, VERSION)?.unwrap_or_default();
        Ok(Self { cells, stored, ticks: 0, next_tick: 0 })
    }

    fn save(&self) {
        if let Err(why) = cell::save(&self.cells, (cell::PRUNE, CAPACITY), MAGIC, VERSION, &self.stored) {
            runtime::trap(&format!("pruner's state: {why}"));
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Option<&PrunePolicy> {
        self.stored.policy.as_ref()
    }

    /// Puts a policy in force. The first one also switches the daemon on.
    pub fn set_policy(&mut self, policy: PrunePolicy) {
        self.stored.enabled |= self.stored.policy.is_none();
        self.stored.to_low_water = false;
        self.stored.policy = Some(policy);
        self.save();
    }

    /// The kill switch.
    pub fn set_enabled(&mut self, enabled: bool) -> Result<(), PruneError> {
        if enabled && self.stored.policy.is_none() {
            return Err(PruneError::NoPolicy);
        }
        self.stored.enabled = enabled;
        self.save();
        Ok(())
    }

    /// Seconds between two ticks.
    pub fn interval_secs(&self) -> u64 {
        self.policy().map_or(PrunePolicy::default().timer_interval_secs, |policy| policy.timer_interval_secs)
    }

    /// What is due now.
    pub fn due(&self, chain: &ChainStore, blobs: &BlobStore) -> Option<Due> {
        due(self.policy()?, chain, blobs, runtime::time_secs(), self.stored.to_low_water)
    }

    /// Who makes appends be refused: kept bytes have reached emergency water.
    ///
    /// What an upload reserves is not the chain's yet, and a block that alone is over the mark can only be pruned once
    /// another stands behind it: where pruning could free nothing, refusing appends would be for ever.
    pub fn exhausted(&self, chain: &ChainStore, blobs: &BlobStore) -> Option<HeldBy> {
        let emergency = self.policy()?.emergency();
        let reached = emergency > 0 && blobs.kept_bytes(Owner::Chain) >= emergency;
        let held_by = if self.stored.enabled { HeldBy::PruneLag } else { HeldBy::Disabled };
        (reached && chain.freeable_blobs() > 0).then_some(held_by)
    }

    /// One bounded run, whether the daemon may prune or not.
    ///
    /// # Errors
    /// `NoPolicy`, or `Invalid` for a budget of no ops.
    pub fn prune_now(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        max_ops: u64,
    ) -> Result<PruneRun, PruneError> {
        if max_ops == 0 {
            let why = "a run without ops prunes nothing".into();
            return Err(PruneError::Invalid { field: "max_ops".into(), why });
        }
        let max_instructions = self.policy().ok_or(PruneError::NoPolicy)?.max_instructions_per_tick;
        let due = self.due(chain, blobs);
        Ok(self.run(chain, blobs, due, Limiter::new(max_ops.min(MAX_OPS), max_instructions)))
    }

    fn run(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        due: Option<Due>,
        mut limiter: Limiter,
    ) -> PruneRun {
        let run = pipeline::run(&mut Blocks { chain, blobs }, due, &mut limiter);
        if due.is_some() {
            self.stored.to_low_water =
                run.reason == Some(PruneReason::Capacity) && run.progress != PruneProgress::Finished;
            self.stored.runs += 1;
            self.stored.faults += run.faults;
            self.stored.last_run = Some(run.clone());
            self.save();
        }
        run
    }

    /// One firing of the timer. Does next to nothing where nothing is due.
    fn tick(&mut self, chain: &mut ChainStore, blobs: &mut BlobStore, min_liquid_cycles: u128) {
        self.ticks += 1;
        self.next_tick = runtime::time_ns() + self.interval_secs() * 1_000_000_000;
        if !self.stored.enabled {
            return;
        }
        let Some(due) = self.due(chain, blobs) else { return };
        if runtime::liquid_cycles() < min_liquid_cycles {
            runtime::log("prune: paused, liquid cycles are below min_liquid_cycles");
            return;
        }
        if let Some(policy) = self.policy() {
            let limiter = Limiter::new(policy.max_ops_per_tick, policy.max_instructions_per_tick);
            self.run(chain, blobs, Some(due), limiter);
        }
    }

    /// When the next tick comes, in nanoseconds since the Unix epoch.
    pub fn next_tick(&self) -> u64 {
        self.next_tick
    }

    /// Says when the next tick comes, in nanoseconds since the Unix epoch.
    pub fn set_next_tick(&mut self, at: u64) {
        self.next_tick = at;
    }

    /// Everything that an operator needs to see.
    pub fn status(&self, chain: &ChainStore, blobs: &BlobStore) -> PruneStatus {
        let state = chain.state();
        let due = self.due(chain, blobs);
        let oldest = state.started.then_some(state.oldest);
        let water = |f: fn(&PrunePolicy) -> u64| self.policy().map_or(0, f);
        PruneStatus {
            enabled: self.stored.enabled,
            need_prune: due.is_some(),
            reason: due.map(|due| due.reason),
            target: due.map_or(state.oldest, |due| due.before),
            held_by: (due.is_some() && !self.stored.enabled).then_some(HeldBy::Disabled),
            pruned_before_block: state.oldest,
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

#[cfg(test)]
mod tests;
