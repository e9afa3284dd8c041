//! Ticks of the daemon, and runs by hand: prune what is due, then sweep, within one budget; pieces that trap are passed over.

use super::constraints::{Constraints, is_possible};
use super::due::Due;
use super::piece::Piece;
use super::run::{self, goes_on, sum};
use super::sweep::{self, Need, Swept, Which};
use super::{Pruner, due};
use crate::chain::ChainStore;
use crate::export::{Guard, is_of_exporters};
use crate::logs;
use crate::platform;
use crate::platform::limits::NS;
use crate::pruning::work::budget::Budget;
use crate::pruning::work::marker::{self, Turn};
use crate::storage::blob::BlobStore;
use coppice_interface::{MAX_PRUNE_OPS, PruneError, PrunePolicy, PruneProgress, PruneReason, PruneRun};

/// Pieces that are passed over at most; the oldest are tried again.
const MOST: usize = 100;

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

impl Pruner {
    /// What the next message is to do; `late`: it begins so late that those before it have trapped.
    pub fn turn(&mut self, late: bool) -> Turn<Piece> {
        self.ticks += 1;
        let turn = marker::turn(&mut self.stored.marker, late);
        match turn {
            Turn::Nothing => logs::error("prune: ticks do not end: the next ones do less"),
            Turn::PassOver(Some(piece)) => {
                logs::error(&format!("prune: passed over, as it traps: {piece}"));
                self.stored.faults += 1;
                marker::pass_over(&mut self.stored.set_aside, piece, MOST);
            }
            Turn::PassOver(None) => logs::error("prune: what comes next cannot be found: it traps"),
            Turn::All | Turn::Few(_) | Turn::Find | Turn::Only(_) => return turn,
        }
        self.save();
        turn
    }

    /// Notes that a message ended that did its turn; `next` is the piece that comes next.
    pub fn ended(&mut self, next: Option<Piece>) {
        marker::ended(&mut self.stored.marker, next);
        self.save();
    }

    /// Notes that the chain was emptied: what was set aside of it is no more.
    pub fn reset(&mut self) {
        self.stored.set_aside.retain(|piece| !matches!(piece, Piece::Block(_) | Piece::Undo));
        self.save();
    }

    /// Whether a piece has trapped again and again.
    pub fn is_set_aside(&self, piece: Piece) -> bool {
        self.stored.set_aside.contains(&piece)
    }

    /// What the daemon would prune or sweep next.
    pub fn next_piece(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Piece> {
        let policy = self.sweep_policy();
        let sweep = self.sweep_now(sweep::need(chain, &policy), &policy);
        let slice = || sweep::next(chain).map(|(table, bucket)| Piece::Slice(table, bucket));
        if sweep == Some(Need::First) {
            return slice();
        }
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        due.map(|_| Piece::Block(chain.state().oldest)).or_else(|| sweep.and_then(|_| slice()))
    }

    /// The blocks that are due and that the daemon may prune: none while pruning is switched off.
    fn wanted(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Due> {
        if self.stored.enabled { self.due(chain, blobs, constraints.guard().as_ref()) } else { None }
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
        let mut budget = Budget::new(max_ops.min(MAX_PRUNE_OPS), max_instructions);
        let set_aside = self.stored.set_aside.clone();
        let sweep = |chain: &mut ChainStore, budget: &mut Budget| sweep::run(chain, Which::Any, budget, &set_aside);
        Ok(self.run(chain, blobs, due.as_ref(), &mut budget, Swept::default(), sweep).0)
    }

    /// Prunes what is due, then sweeps; answers what was done, what was swept before among it.
    fn run(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        due: Option<&Due>,
        budget: &mut Budget,
        before: Swept,
        sweep: impl FnOnce(&mut ChainStore, &mut Budget) -> Swept,
    ) -> (PruneRun, Swept) {
        let start = platform::instructions();
        let mut run = run::run(chain, blobs, due, budget, &self.stored.set_aside);
        let after = sweep(chain, budget);
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
        let need = sweep::need(chain, &policy);
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
        let mut budget = Budget::new(policy.max_ops_per_tick, policy.max_instructions_per_tick).of_pieces(pieces);
        let set_aside = self.stored.set_aside.clone();
        let before = match sweep {
            Some(Need::First) => sweep::run(chain, Which::Due, &mut budget, &set_aside),
            _ => Swept::default(),
        };
        // What pruning adds to a debt may be enough to begin with.
        let (run, swept) = self.run(chain, blobs, due.as_ref(), &mut budget, before, |chain, budget| match sweep {
            Some(_) => sweep::run(chain, Which::Due, budget, &set_aside),
            None => Swept::default(),
        });
        self.rates.note(chain.state(), now);
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        let need = sweep::need(chain, &policy);
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
        let age = if self.stored.enabled { due::next_age(policy, chain) } else { None };
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
}
