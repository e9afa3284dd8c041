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
mod plan;
mod policy;
mod run;
mod segment;
mod status;

use run::{goes_on, sum};

pub use limiter::Limiter;
pub use policy::{Due, MAX_OPS, due};
pub use segment::{Blocks, PruneSegment, Pruned};

use crate::api::{PruneError, PrunePolicy, PruneReason, PruneRun};
use crate::blob::{BlobStore, Owner};
use crate::chain::ChainStore;
use crate::export::Guard;
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
    /// The next tick goes on with it.
    running: bool,
    runs: u64,
    faults: u64,
}

/// What stands constraints the policy, and above it.
pub struct Constraints {
    /// What was not exported.
    pub guard: Option<Guard>,
    /// Liquid cycles below which the daemon pauses.
    pub min_liquid_cycles: u128,
}

impl Constraints {
    fn low_on_cycles(&self) -> bool {
        runtime::liquid_cycles() < self.min_liquid_cycles
    }
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
        self.stored.running = false;
        self.stored.policy = Some(policy);
        self.save();
    }

    /// The kill switch.
    pub fn set_enabled(&mut self, enabled: bool) -> Result<(), PruneError> {
        if enabled && self.stored.policy.is_none() {
            return Err(PruneError::NoPolicy);
        }
        self.stored.enabled = enabled;
        self.stored.running = false;
        self.save();
        Ok(())
    }

    /// Seconds between two ticks.
    pub fn interval_secs(&self) -> u64 {
        self.policy().map_or(PrunePolicy::default().timer_interval_secs, |policy| policy.timer_interval_secs)
    }

    /// What is due now.
    pub fn due(&self, chain: &ChainStore, blobs: &BlobStore, guard: Option<&Guard>) -> Option<Due> {
        let due = due(self.policy()?, chain, blobs, guard, self.stored.to_low_water);
        // What was begun is finished, whatever has become of the reason for it.
        due.or_else(|| {
            let target = chain.state().sweeping()? + 1;
            let begun = self.stored.last_run.as_ref().and_then(|run| run.reason);
            let reason = begun.unwrap_or(PruneReason::Retention);
            Some(Due { reason, target, before: target, held_by: None })
        })
    }

    /// Notes that kept bytes have become fewer in some other way than by a run: where low water is reached, the capacity
    /// trigger is done; and a run that was under way has ended.
    pub fn rolled_back(&mut self, blobs: &BlobStore) {
        let to_low_water = self.above_low_water(blobs) && self.stored.to_low_water;
        if to_low_water != self.stored.to_low_water || self.stored.running {
            (self.stored.to_low_water, self.stored.running) = (to_low_water, false);
            self.save();
        }
    }

    fn above_low_water(&self, blobs: &BlobStore) -> bool {
        self.policy().is_some_and(|policy| blobs.kept_bytes(Owner::Chain) > policy.low_water())
    }

    /// Ends the run that is under way: what comes next is another.
    fn end_run(&mut self) {
        if self.stored.running {
            self.stored.running = false;
            self.save();
        }
    }

    /// One bounded run, whether the daemon may prune or not; never past the guard.
    ///
    /// # Errors
    /// `NoPolicy`, or `Invalid` for a budget of no ops.
    pub fn prune_now(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        guard: Option<&Guard>,
        max_ops: u64,
    ) -> Result<PruneRun, PruneError> {
        if max_ops == 0 {
            let why = "a run without ops prunes nothing".into();
            return Err(PruneError::Invalid { field: "max_ops".into(), why });
        }
        let max_instructions = self.policy().ok_or(PruneError::NoPolicy)?.max_instructions_per_tick;
        let due = self.due(chain, blobs, guard);
        Ok(self.run(chain, blobs, due.as_ref(), Limiter::new(max_ops.min(MAX_OPS), max_instructions)))
    }

    fn run(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        due: Option<&Due>,
        mut limiter: Limiter,
    ) -> PruneRun {
        let run = pipeline::run(&mut Blocks { chain, blobs: &mut *blobs }, due, &mut limiter);
        if run.blocks + run.parts > 0 {
            let fired = self.stored.to_low_water || run.reason == Some(PruneReason::Capacity);
            self.stored.to_low_water = fired && self.above_low_water(blobs);
            self.stored.faults += run.faults;
            let last = self.stored.last_run.take().filter(|_| self.stored.running);
            let run = sum(last, &run);
            self.stored.running = goes_on(&run);
            self.stored.runs += u64::from(run.ticks == 1);
            self.stored.last_run = Some(run);
            self.save();
        }
        run
    }

    /// One firing of the timer. Does next to nothing where nothing is due.
    pub fn tick(&mut self, chain: &mut ChainStore, blobs: &mut BlobStore, constraints: &Constraints) {
        self.ticks += 1;
        self.next_tick = runtime::time_ns() + self.interval_secs() * 1_000_000_000;
        if !self.stored.enabled {
            return;
        }
        let due = self.due(chain, blobs, constraints.guard.as_ref()).filter(|due| is_possible(due, chain));
        let (Some(due), Some(policy)) = (due, self.policy()) else { return self.end_run() };
        let limiter = Limiter::new(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        if constraints.low_on_cycles() {
            runtime::log("prune: paused, liquid cycles are below min_liquid_cycles");
            return;
        }
        self.run(chain, blobs, Some(&due), limiter);
    }

    /// When the next tick comes, in nanoseconds since the Unix epoch.
    pub fn next_tick(&self) -> u64 {
        self.next_tick
    }

    /// Says when the next tick comes, in nanoseconds since the Unix epoch.
    pub fn set_next_tick(&mut self, at: u64) {
        self.next_tick = at;
    }
}

/// Whether any of what is due may go.
fn is_possible(due: &Due, chain: &ChainStore) -> bool {
    due.before > chain.state().oldest || chain.state().sweeping().is_some()
}

#[cfg(test)]
mod tests;
