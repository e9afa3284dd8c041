//! Block pruner: one bounded run per tick of the daemon (`pruning-spec-v1.md` 5, `docs/design/pruning.md`).
//!
//! ```text
//! timer ──▶ daemon ──▶ policy: what is due? ──▶ run ◀── budget: how much?
//!                                                │
//!                                                ▼
//!                                        chain: one block, whole ──▶ blobs
//! ```
//! Policy, mechanism and budget are independent of each other. The checkpoint is the chain's own `oldest`, committed with the data, so an
//! interrupted run resumes where it stopped. Stale index entries of pruned blocks are dropped in bulk, by sweeps that wait for a pause of
//! the producers (`sweep.rs`).
//!
//! **One message.** The canister (`canister/src/operation/daemon.rs`) calls its `State::tick` (`canister/src/state/tick.rs`), which asks
//! [`Turns`](ic_coppice_storage::turns::Turns) for the message's work. Work that was begun comes first: an upload that has expired, a rollback, a reset. Otherwise [`Pruner::tick`] prunes
//! (`run` calls `ChainStore::remove` for each block) and sweeps (`ChainStore::sweep` for each slice) within one budget.
//!
//! **Between messages** a cell (`stored`) keeps the policy, the last run and the state of the capacity trigger. The position is not
//! among them, because the chain has it. No message prunes the head, or a block from the guard or from a rollback's target on.
//!
//! **Files, in reading order**
//!
//! - `policy`, `due`, `constraints`: the settings, the blocks that are due by them, and the limits that override them.
//! - `tick`: a tick, and a manual run. It calls `run` (prunes blocks) and `sweep` (sweeps the indexes).
//! - `stored`, `piece`: the persisted state, and the names of work that can be skipped.
//! - `plan`: a dry run. `status`, `rates`: for operators and `health`.
//!
//! A new trigger belongs in `due`, a new reason that holds pruning back in `constraints`, new work of a tick in `piece` and
//! `canister/src/state/tick.rs`.

mod constraints;
mod due;
pub mod fit;
mod piece;
mod plan;
pub mod policy;
mod rates;
mod run;
mod status;
mod stored;
mod sweep;
mod tick;

pub use constraints::Constraints;
pub use due::Due;
pub use piece::Piece;
use rates::Rates;
pub use status::ExportHeld;
pub use stored::Stored;
pub use tick::{AT_ONCE, WHENEVER};

use crate::export::Guard;
use crate::{ChainStore, places};
use ic_coppice_interface::{PrunePolicy, WaterMarks};
use ic_coppice_storage::Space;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use std::rc::Rc;

/// Cell of the pruner's policy and state.
const CELL: Cell = Cell {
    at: places::PRUNE,
    capacity: 16 << 10,
    header: Header { name: "pruner of blocks", magic: *b"CPPR", version: 4 },
};

/// Policy and progress.
pub struct Pruner {
    cells: Rc<Space>,
    stored: Stored,
    /// Ticks since the last upgrade: the counter is on the heap.
    ticks: u64,
    /// Time of the next tick, in nanoseconds since the Unix epoch.
    pub next_tick_ns: u64,
    rates: Rates,
    /// Time of the last call of a producer to the chain, in nanoseconds since the Unix epoch. A sweep waits for a pause after it.
    pub last_call: u64,
    /// Unix seconds since when ticks have ended with work left, or `None` if the last one left none. Starts anew after an upgrade.
    pub behind_since_secs: Option<u64>,
    /// True if the pause of the pruner was logged.
    paused: bool,
}

impl Pruner {
    /// Reads the cell.
    ///
    /// # Errors
    /// A sentence that names the fault of the cell.
    pub fn open(cells: Rc<Space>) -> Result<Self, String> {
        let stored = CELL.load(&cells)?.unwrap_or_default();
        Ok(Self {
            cells,
            stored,
            ticks: 0,
            next_tick_ns: 0,
            rates: Rates::default(),
            last_call: 0,
            behind_since_secs: None,
            paused: false,
        })
    }

    fn save(&self) {
        CELL.keep(&self.cells, &self.stored);
    }

    /// Writes the cell anew if it is damaged.
    pub fn rewrite(&self) {
        if CELL.is_damaged(&self.cells, self.stored.policy.is_some()) {
            self.save();
        }
    }

    /// Returns the persisted state.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> Option<&PrunePolicy> {
        self.stored.policy.as_ref()
    }

    /// Returns whether the daemon may prune.
    pub fn is_enabled(&self) -> bool {
        self.policy().is_some_and(|policy| policy.pruning_enabled)
    }

    /// Returns the audit fields that an acknowledgement of faults changes.
    pub fn shown_faults(&self) -> Vec<(&'static str, String)> {
        let skipped: Vec<String> = self.stored.turns.skipped().iter().map(ToString::to_string).collect();
        vec![
            ("acknowledged_faults", self.stored.acknowledged_faults.to_string()),
            ("acknowledged_lost_slots", self.stored.acknowledged_lost.to_string()),
            ("skipped", format!("[{}]", skipped.join(", "))),
        ]
    }

    /// Returns whether a capacity run goes on to low water under a new policy: only switching pruning on or off keeps it.
    fn to_low_water_after(&self, policy: &PrunePolicy) -> bool {
        let old = self.policy_or_default();
        self.stored.to_low_water && PrunePolicy { pruning_enabled: policy.pruning_enabled, ..old } == *policy
    }

    /// Puts a policy in force.
    pub fn set_policy(&mut self, policy: PrunePolicy) {
        self.stored.to_low_water = self.to_low_water_after(&policy);
        self.stored.running = false;
        self.stored.policy = Some(policy);
        self.save();
    }

    /// Returns the seconds between two ticks.
    pub fn interval_secs(&self) -> u64 {
        self.policy().map_or(PrunePolicy::default().timer_interval_secs, |policy| policy.timer_interval_secs)
    }

    /// Returns the blocks that are due now.
    pub fn due(&self, chain: &ChainStore, blobs: &BlobStore, guard: Option<&Guard>) -> Option<Due> {
        due::due_and_floor(self.policy(), chain, blobs, guard, self.stored.to_low_water).0
    }

    /// Returns the policy, or the default one if none is set. A reset leaves stale entries even if blocks are never pruned, so
    /// sweeps need neither a policy nor the switch.
    pub fn policy_or_default(&self) -> PrunePolicy {
        self.policy().cloned().unwrap_or_default()
    }

    /// Records that something other than a run (a rollback, a reset, an aborted upload) freed kept bytes, and skipped `faults` damaged
    /// entries. Clears the capacity trigger if low water is reached, and ends the run in progress.
    pub fn freed_outside_runs(&mut self, chain: &ChainStore, blobs: &BlobStore, faults: u64) {
        let to_low_water = self.above_low_water(chain, blobs) && self.stored.to_low_water;
        if to_low_water != self.stored.to_low_water || self.stored.running || faults > 0 {
            (self.stored.to_low_water, self.stored.running) = (to_low_water, false);
            self.stored.faults += faults;
            self.save();
        }
    }

    /// Returns the watermarks in force, or `None` without the capacity trigger.
    pub fn marks(&self, chain: &ChainStore, blobs: &BlobStore) -> Option<WaterMarks> {
        policy::marks(self.policy()?, || chain.most_bytes(blobs))
    }

    fn above_low_water(&self, chain: &ChainStore, blobs: &BlobStore) -> bool {
        self.marks(chain, blobs).is_some_and(|marks| chain.capacity_bytes(blobs) > marks.low)
    }

    /// Acknowledges the first `up_to` faults. If these are all faults, also acknowledges the lost slots and lets ticks retry skipped
    /// work. Returns the number of acknowledged faults.
    pub fn acknowledge_faults(&mut self, up_to: u64, lost: u64) -> u64 {
        self.stored.acknowledged_faults = self.stored.acknowledged_faults.max(up_to.min(self.stored.faults));
        if up_to >= self.stored.faults {
            self.stored.acknowledged_lost = lost;
            self.stored.turns.try_again(|_| true);
        }
        self.save();
        self.stored.acknowledged_faults
    }
}

#[cfg(test)]
mod tests;
