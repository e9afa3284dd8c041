//! The pruner: a daemon that does one bounded run a tick (`pruning-spec-v1.md` 5, `docs/design.md` 4).
//!
//! ```text
//! timer ──▶ daemon ──▶ policy: what is due? ──▶ pipeline ◀── limiter: how much?
//!                                                  │
//!                                                  ▼
//!                                       segment: one piece, whole ──▶ chain ──▶ blobs
//! ```
//! Policy, mechanism and budget know nothing of each other. The checkpoint is the chain's own `oldest`, committed with
//! the data, so a run that is interrupted anywhere goes on where it was. What pruned blocks leave in the indexes is dropped in
//! bulk, by sweeps that wait for a pause of the producers (`sweeper.rs`).

mod aside;
mod backlog;
mod constraints;
mod limiter;
mod piece;
mod pipeline;
mod plan;
pub mod policy;
mod run;
mod segment;
mod status;
mod sweeper;

use backlog::Rates;
use run::{goes_on, sum};
use sweeper::{Need, Swept, Which};

pub use constraints::Constraints;
use constraints::is_possible;
pub use limiter::Limiter;
pub use piece::Piece;
pub use policy::{Due, MAX_OPS, Policy, due};
pub use segment::{Blocks, PruneSegment, Pruned};
pub use status::ExportHeld;

use crate::chain::ChainStore;
use crate::export::{Guard, is_of_exporters};
use crate::logs;
use crate::logs::audit::{Fields, field};
use crate::platform;
use crate::platform::limits::NS;
use crate::pruning::marker::Marker;
use crate::storage::blob::BlobStore;
use crate::storage::memory::{Region, cell};
use coppice_interface::{PruneError, PrunePolicy, PruneProgress, PruneReason, PruneRun};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CPPR";
const VERSION: u16 = 2;
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
    /// Ticks that a sweep has waited for a pause.
    pending_ticks: u64,
    /// Unix seconds since when what is due is held back by an exporter, or by there being none.
    held_since: Option<u64>,
    /// Messages do less than they might, as ticks have trapped.
    #[serde(default)]
    marker: Option<Marker<Piece>>,
    /// What traps, and is passed over.
    #[serde(default)]
    set_aside: Vec<Piece>,
    /// Of `faults`, those that an operator has seen.
    #[serde(default)]
    acknowledged_faults: u64,
    /// Slots of the blob store that were lost when an operator last acknowledged all faults.
    #[serde(default)]
    acknowledged_lost: u64,
}

/// When the daemon wants to come round again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: work is left, and nothing holds it.
    AtOnce,
    /// At this time, in nanoseconds since the Unix epoch.
    At(u64),
    /// When something makes work due.
    Whenever,
}

/// Damaged entries that were skipped, and work that is passed over.
#[derive(Clone, Copy, Debug)]
pub struct Damage<'a> {
    /// Damaged entries ever skipped.
    pub faults: u64,
    /// Faults that an operator has acknowledged.
    pub seen: u64,
    /// Slots of the blob store that were lost when an operator last acknowledged all faults.
    pub lost_seen: u64,
    /// Work that traps, which ticks pass over.
    pub passed_over: &'a [Piece],
}

/// Policy and progress.
pub struct Pruner {
    cells: Rc<Region>,
    stored: Stored,
    /// On the heap: an upgrade starts counting again.
    ticks: u64,
    next_tick: u64,
    rates: Rates,
    /// Nanoseconds since the Unix epoch of the last producer's call to the chain.
    last_call: u64,
    /// Unix seconds since when ticks have ended with work left.
    behind_since: Option<u64>,
    /// The log says that it is paused.
    paused: bool,
}

impl Pruner {
    /// Reads the cell.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn open(cells: Rc<Region>) -> Result<Self, String> {
        let stored = cell::load(&cells, cell::PRUNE, MAGIC, VERSION)?.unwrap_or_default();
        let rates = Rates::default();
        Ok(Self { cells, stored, ticks: 0, next_tick: 0, rates, last_call: 0, behind_since: None, paused: false })
    }

    /// After an upgrade: ticks have ended with work left since this moment, in Unix seconds, as far as that was noticed.
    pub fn set_behind_since(&mut self, noticed: Option<u64>) {
        self.behind_since = noticed;
    }

    fn save(&self) {
        if let Err(why) = cell::save(&self.cells, (cell::PRUNE, CAPACITY), MAGIC, VERSION, &self.stored) {
            platform::trap(&format!("pruner's state: {why}"));
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Option<&PrunePolicy> {
        self.stored.policy.as_ref()
    }

    /// Whether the daemon may prune.
    pub fn is_enabled(&self) -> bool {
        self.stored.enabled
    }

    /// The fields of the state that an acknowledgement of faults changes.
    pub fn shown_faults(&self) -> Fields {
        let aside: Vec<String> = self.stored.set_aside.iter().map(ToString::to_string).collect();
        vec![
            field("acknowledged_faults", self.stored.acknowledged_faults),
            field("acknowledged_lost_slots", self.stored.acknowledged_lost),
            field("set_aside", format!("[{}]", aside.join(", "))),
        ]
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
        due(self.policy()?, chain, blobs, guard, self.stored.to_low_water)
    }

    /// The blocks that are due and that the daemon may prune: none while pruning is switched off.
    fn wanted(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Due> {
        if self.stored.enabled { self.due(chain, blobs, constraints.guard().as_ref()) } else { None }
    }

    /// The policy of sweeps: the default one where none is set. A reset leaves stale entries whether blocks are pruned or not, so sweeps ask
    /// neither for a policy nor for the switch.
    fn sweep_policy(&self) -> Cow<'_, PrunePolicy> {
        self.policy().map_or_else(|| Cow::Owned(PrunePolicy::default()), Cow::Borrowed)
    }

    /// Notes a producer's call to the chain, at `now` in nanoseconds: a sweep waits until there is none for a while.
    pub fn note_call(&mut self, now: u64) {
        self.last_call = now;
    }

    /// Notes that kept bytes have become fewer in some other way than by a run, and how much of it was damaged and skipped: where
    /// low water is reached, the capacity trigger is done; and a run that was under way has ended.
    pub fn rolled_back(&mut self, chain: &ChainStore, blobs: &BlobStore, faults: u64) {
        let to_low_water = self.above_low_water(chain, blobs) && self.stored.to_low_water;
        if to_low_water != self.stored.to_low_water || self.stored.running || faults > 0 {
            (self.stored.to_low_water, self.stored.running) = (to_low_water, false);
            self.stored.faults += faults;
            self.save();
        }
    }

    fn above_low_water(&self, chain: &ChainStore, blobs: &BlobStore) -> bool {
        self.policy().is_some_and(|policy| chain.capacity_bytes(blobs) > policy.low_water())
    }

    /// Notes that an operator has seen the first `up_to` faults, with all of them also the slots that were lost, and has what was set aside
    /// tried again. Answers how many are acknowledged.
    pub fn acknowledge_faults(&mut self, up_to: u64, lost: u64) -> u64 {
        self.stored.acknowledged_faults = self.stored.acknowledged_faults.max(up_to.min(self.stored.faults));
        if up_to >= self.stored.faults {
            self.stored.acknowledged_lost = lost;
            self.stored.set_aside.clear();
        }
        self.save();
        self.stored.acknowledged_faults
    }

    /// Returns what was damaged, and what is passed over.
    pub fn damage(&self) -> Damage<'_> {
        let Stored { faults, acknowledged_faults, acknowledged_lost, set_aside, .. } = &self.stored;
        Damage { faults: *faults, seen: *acknowledged_faults, lost_seen: *acknowledged_lost, passed_over: set_aside }
    }

    /// Unix seconds since when ticks have ended with work left; `None` if the last one left none.
    pub fn behind_since(&self) -> Option<u64> {
        self.behind_since
    }

    /// Ends the run that is under way: what comes next is another.
    fn end_run(&mut self) {
        if self.stored.running {
            self.stored.running = false;
            self.save();
        }
    }

    /// One bounded run, whether the daemon may prune or not; never past the guard. With what is left of its budget the indexes are
    /// swept, however little of them is stale.
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
        let mut limiter = Limiter::new(max_ops.min(MAX_OPS), max_instructions);
        let set_aside = self.stored.set_aside.clone();
        let sweep =
            |chain: &mut ChainStore, limiter: &mut Limiter| sweeper::run(chain, Which::Any, limiter, &set_aside);
        Ok(self.run(chain, blobs, due.as_ref(), &mut limiter, Swept::default(), sweep).0)
    }

    /// Prunes what is due, then sweeps; answers what was done, what was swept before among it.
    fn run(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        due: Option<&Due>,
        limiter: &mut Limiter,
        before: Swept,
        sweep: impl FnOnce(&mut ChainStore, &mut Limiter) -> Swept,
    ) -> (PruneRun, Swept) {
        let start = platform::instructions();
        let set_aside = &self.stored.set_aside;
        let mut run = pipeline::run(&mut Blocks { chain: &mut *chain, blobs: &mut *blobs, set_aside }, due, limiter);
        let after = sweep(chain, limiter);
        let swept = Swept { slices: before.slices + after.slices, dropped: before.dropped + after.dropped, ..after };
        run.dropped = swept.dropped;
        run.ops += swept.dropped;
        run.instructions = platform::instructions() - start;
        if let (PruneProgress::Finished, Some(reason)) = (run.progress, swept.stopped) {
            run.progress = PruneProgress::HasMore { reason: Some(reason) };
        }
        if run.blocks > 0 || self.stored.running && swept.slices > 0 {
            let fired = self.stored.to_low_water || run.reason == Some(PruneReason::Capacity);
            self.stored.to_low_water = fired && self.above_low_water(chain, blobs);
            self.stored.faults += run.faults;
            let last = self.stored.last_run.take().filter(|_| self.stored.running);
            let run = sum(last, &run);
            self.stored.running = goes_on(&run);
            self.stored.runs += u64::from(run.ticks == 1);
            self.stored.last_run = Some(run);
            self.save();
        }
        (run, swept)
    }

    /// One firing of the timer, for at most so many blocks and slices, and when the next is wanted. Sweeps go on where pruning is switched off.
    /// Does next to nothing where nothing is due.
    pub fn tick(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        constraints: &Constraints,
        pieces: u64,
    ) -> Next {
        let now = platform::time_secs();
        self.rates.note(chain.state(), now);
        let low_on_cycles = constraints.low_on_cycles();
        self.paused &= low_on_cycles;
        let policy = self.sweep_policy().into_owned();
        let due = self.wanted(chain, blobs, constraints);
        if self.stored.enabled {
            self.note_held(due.as_ref(), now);
        }
        let due = due.filter(|due| is_possible(due, chain));
        let need = sweeper::need(chain, &policy);
        let sweep = self.sweep_now(need, &policy);
        self.note_pending(need == Need::Pause && sweep.is_none());
        if due.is_none() && sweep.is_none() {
            self.end_run();
            self.behind_since = None;
            return self.next_without_work(chain, &policy, need);
        }
        if low_on_cycles {
            if !std::mem::replace(&mut self.paused, true) {
                logs::error("prune: paused, liquid cycles are below min_liquid_cycles");
            }
            return Next::Whenever;
        }
        let mut limiter = Limiter::new(policy.max_ops_per_tick, policy.max_instructions_per_tick).of_pieces(pieces);
        let set_aside = self.stored.set_aside.clone();
        let before = match sweep {
            Some(Need::First) => sweeper::run(chain, Which::Due, &mut limiter, &set_aside),
            _ => Swept::default(),
        };
        // What pruning adds to a debt may be enough to begin with.
        let (run, swept) = self.run(chain, blobs, due.as_ref(), &mut limiter, before, |chain, limiter| match sweep {
            Some(_) => sweeper::run(chain, Which::Due, limiter, &set_aside),
            None => Swept::default(),
        });
        self.rates.note(chain.state(), now);
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        let need = sweeper::need(chain, &policy);
        let sweep = self.sweep_now(need, &policy);
        if due.is_none() && sweep.is_none() {
            self.behind_since = None;
            return self.next_without_work(chain, &policy, need);
        }
        self.behind_since = self.behind_since.or(Some(now));
        // Where a tick could do nothing, neither could one that comes at once.
        if run.blocks > 0 || swept.slices > 0 { Next::AtOnce } else { Next::Whenever }
    }

    /// What of the indexes may be swept now; `None` also where a sweep waits for a pause.
    fn sweep_now(&self, need: Need, policy: &PrunePolicy) -> Option<Need> {
        let pause = self.last_call.saturating_add(policy.pause_after_secs * NS);
        let waits =
            need == Need::Pause && platform::time_ns() < pause && self.stored.pending_ticks < policy.max_pending_ticks;
        (need != Need::Nothing && !waits).then_some(need)
    }

    /// Counts a tick in which a sweep waited for a pause, and forgets them where none does.
    fn note_pending(&mut self, waits: bool) {
        let pending = if waits { self.stored.pending_ticks + 1 } else { 0 };
        if pending != self.stored.pending_ticks {
            self.stored.pending_ticks = pending;
            self.save();
        }
    }

    /// When to come round where nothing is left to do but to wait.
    fn next_without_work(&self, chain: &ChainStore, policy: &PrunePolicy, need: Need) -> Next {
        let pause = (need == Need::Pause).then(|| self.last_call.saturating_add(policy.pause_after_secs * NS));
        let now = platform::time_ns();
        let age = if self.stored.enabled { policy::next_age(policy, chain) } else { None };
        let age = age.map(|secs| secs.saturating_mul(NS)).filter(|&at| at > now);
        // Blocks that become due one after the other share a firing.
        let age = age.map(|at| at.max(now.saturating_add(policy.timer_interval_secs * NS)));
        pause.into_iter().chain(age).min().map_or(Next::Whenever, Next::At)
    }

    /// Notes since when what is due is held back by those who copy.
    fn note_held(&mut self, due: Option<&Due>, now: u64) {
        let held = due.and_then(|due| due.held_by.as_ref()).is_some_and(is_of_exporters);
        if held != self.stored.held_since.is_some() {
            self.stored.held_since = held.then_some(now);
            self.save();
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
}

#[cfg(test)]
mod tests;
