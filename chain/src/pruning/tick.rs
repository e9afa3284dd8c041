//! Ticks of the daemon, and manual runs: prune due blocks, then sweep, within one budget. Pieces that trap are skipped.
//!
//! The canister's `State::tick` calls `turn`, then `tick` with the pieces that the turn allows, then `ended`.

use super::Pruner;
use super::constraints::{Constraints, is_possible};
use super::due::{self, Due};
use super::piece::Piece;
use super::run::{self, is_continued, sum};
use super::stored::Stored;
use super::sweep::{self, Need, Swept, begin_debt};
use crate::export::{Guard, is_of_guard};
use crate::{ChainStore, TableDebt};
use ic_coppice_interface::{BadArgument, MAX_PRUNE_OPS, PruneError, PrunePolicy, PruneProgress, PruneReason, PruneRun};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::turns::Turn;
use ic_coppice_storage::{Budget, Ic, NS, Platform as _, log};

/// Time of the next tick if work is left that nothing holds back.
pub const AT_ONCE: u64 = 0;
/// Time of the next tick if something else makes work due.
pub const WHENEVER: u64 = u64::MAX;

impl Pruner {
    /// Returns the work of the next message. `late`: the message begins so late that earlier ones must have trapped.
    pub fn turn(&mut self, late: bool) -> Turn<Piece> {
        self.ticks += 1;
        let turn = self.stored.turns.next(late);
        match turn {
            Turn::Nothing => log::error("prune: ticks trap: the next ones do less work"),
            Turn::Skip(Some(piece)) => {
                log::error(&format!("prune: skipped because it traps: {piece}"));
                self.stored.faults += 1;
            }
            Turn::Skip(None) => log::error("prune: finding the next piece of work traps"),
            Turn::All | Turn::Few(_) | Turn::Find | Turn::Only(_) => return turn,
        }
        self.save();
        turn
    }

    /// Records that a message did its turn and ended; `next` is the next piece of work.
    pub fn ended(&mut self, next: Option<Piece>) {
        self.stored.turns.ended(next);
        self.save();
    }

    /// Records that the chain was emptied: forgets its skipped blocks.
    pub fn reset(&mut self) {
        self.stored.turns.try_again(|piece| matches!(piece, Piece::Block(_) | Piece::Undo));
        self.save();
    }

    /// Returns whether a piece is skipped, because it trapped repeatedly.
    pub fn is_skipped(&self, piece: Piece) -> bool {
        self.stored.turns.skipped().contains(&piece)
    }

    /// Returns the piece that the daemon would prune or sweep next.
    pub fn next_piece(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Piece> {
        let need = self.need_now(chain, &self.policy_or_default());
        if need == Need::First {
            return sweep::next(chain);
        }
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        let block = due.map(|_| Piece::Block(chain.state().oldest));
        block.or_else(|| if need >= Need::Continue { sweep::next(chain) } else { None })
    }

    /// Returns the due blocks, or `None` while pruning is switched off.
    fn wanted(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Due> {
        if self.is_enabled() { self.due(chain, blobs, constraints.guard().as_ref()) } else { None }
    }

    /// Sets a field of the persisted state, and saves the state if that changes it.
    fn store<T: PartialEq>(&mut self, field: fn(&mut Stored) -> &mut T, value: T) {
        let field = field(&mut self.stored);
        if *field != value {
            *field = value;
            self.save();
        }
    }

    /// Does one bounded run even if pruning is switched off, never past the guard. The rest of the budget sweeps the indexes, however few
    /// entries are stale.
    ///
    /// # Errors
    /// `NoPolicy`, or `BadArgument` for a budget of no ops.
    pub fn prune_now(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        guard: Option<&Guard>,
        max_ops: u64,
    ) -> Result<PruneRun, PruneError> {
        if max_ops == 0 {
            return Err(BadArgument::new("max_ops", "a run without ops prunes nothing").into());
        }
        let max_instructions = self.policy().ok_or(PruneError::NoPolicy)?.max_instructions_per_tick;
        let due = self.due(chain, blobs, guard);
        let mut budget = Budget::new(max_ops.min(MAX_PRUNE_OPS), max_instructions);
        Ok(self.run(chain, blobs, due.as_ref(), &mut budget, Need::Continue, |_| 1).0)
    }

    /// Prunes due blocks, then sweeps the indexes with the `least` debt if the need is at least `Continue`, and adds the message's part to
    /// the run in progress. The need `First` sweeps before, too. Returns this message's part, with all dropped entries, and the sum of the
    /// sweeps.
    fn run(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        due: Option<&Due>,
        budget: &mut Budget,
        need: Need,
        least: fn(&TableDebt) -> u64,
    ) -> (PruneRun, Swept) {
        let (skipped, mut swept) = (self.stored.turns.skipped(), Swept::default());
        if need == Need::First {
            swept.stopped = sweep::run(chain, least, budget, skipped, &mut swept).err();
        }
        let start = Ic::instructions();
        let mut run = run::run(chain, blobs, due, budget, skipped);
        // Pruning adds to the debt, which may then be enough for a sweep to begin.
        if need >= Need::Continue {
            swept.stopped = sweep::run(chain, least, budget, skipped, &mut swept).err();
        }
        run.dropped = swept.dropped;
        run.ops += swept.dropped;
        run.instructions = Ic::instructions() - start;
        if let (PruneProgress::Finished, Some(reason)) = (run.progress, swept.stopped) {
            run.progress = PruneProgress::HasMore { reason: Some(reason) };
        }
        if run.blocks > 0 || self.stored.running && swept.slices > 0 {
            let fired = self.stored.to_low_water || run.reason == Some(PruneReason::Capacity);
            self.stored.to_low_water = fired && self.above_low_water(chain, blobs);
            self.stored.faults += run.faults;
            let last = self.stored.last_run.take().filter(|_| self.stored.running);
            let run = sum(last, &run);
            self.stored.running = is_continued(&run);
            self.stored.runs += u64::from(run.ticks == 1);
            self.stored.last_run = Some(run);
            self.save();
        }
        (run, swept)
    }

    /// Does the work of one tick, at most `pieces` blocks and slices, and returns the time of the next one. Sweeps run even while pruning
    /// is switched off. Does almost nothing if nothing is due.
    pub fn tick(
        &mut self,
        chain: &mut ChainStore,
        blobs: &mut BlobStore,
        constraints: &Constraints,
        pieces: u64,
    ) -> u64 {
        let now = Ic::now_secs();
        self.rates.note(chain.state(), now);
        self.paused &= constraints.low_on_cycles;
        let policy = self.policy_or_default();
        let due = self.wanted(chain, blobs, constraints);
        if self.is_enabled() {
            // The time since which the guard holds due blocks back.
            let held = due.as_ref().and_then(|due| due.held_by.as_ref()).is_some_and(is_of_guard);
            let since = held.then(|| self.stored.held_since.unwrap_or(now));
            self.store(|stored| &mut stored.held_since, since);
        }
        let due = due.filter(|due| is_possible(due, chain));
        let need = self.need_now(chain, &policy);
        // Counts the successive ticks in which a sweep waits for a pause.
        let pending = if need == Need::Pause { self.stored.pending_ticks + 1 } else { 0 };
        self.store(|stored| &mut stored.pending_ticks, pending);
        if due.is_none() && need < Need::Continue {
            // Later work belongs to a new run.
            self.store(|stored| &mut stored.running, false);
            return self.next_without_work(chain, &policy, need);
        }
        if constraints.low_on_cycles {
            if !std::mem::replace(&mut self.paused, true) {
                log::error("prune: paused, liquid cycles are below min_liquid_cycles");
            }
            return WHENEVER;
        }
        let mut budget = Budget::new(policy.max_ops_per_tick, policy.max_instructions_per_tick);
        budget.pieces = pieces;
        let (run, swept) = self.run(chain, blobs, due.as_ref(), &mut budget, need, begin_debt);
        self.rates.note(chain.state(), now);
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        let need = self.need_now(chain, &policy);
        if due.is_none() && need < Need::Continue {
            return self.next_without_work(chain, &policy, need);
        }
        self.behind_since_secs = self.behind_since_secs.or(Some(now));
        // If this tick could do nothing, another one at once could do nothing either.
        if run.blocks > 0 || swept.slices > 0 { AT_ONCE } else { WHENEVER }
    }

    /// Returns the need of a sweep: `Pause` only while the sweep waits for a pause, `Continue` if it need not wait.
    fn need_now(&self, chain: &ChainStore, policy: &PrunePolicy) -> Need {
        let need = sweep::need(chain);
        let pause = self.last_call.saturating_add(policy.pause_after_secs * NS);
        let may_begin = || Ic::now_ns() >= pause || self.stored.pending_ticks >= sweep::MOST_PENDING_TICKS;
        if need == Need::Pause && may_begin() { Need::Continue } else { need }
    }

    /// Records that no work is left, and returns the time of the next tick: the end of the pause, or the next block that becomes due by age.
    fn next_without_work(&mut self, chain: &ChainStore, policy: &PrunePolicy, need: Need) -> u64 {
        self.behind_since_secs = None;
        let pause = (need == Need::Pause).then(|| self.last_call.saturating_add(policy.pause_after_secs * NS));
        let now = Ic::now_ns();
        let age = if self.is_enabled() { due::next_age(policy, chain) } else { None };
        let age = age.map(|secs| secs.saturating_mul(NS)).filter(|&at| at > now);
        // Blocks that become due within one interval share a tick.
        let age = age.map(|at| at.max(now.saturating_add(policy.timer_interval_secs * NS)));
        pause.into_iter().chain(age).min().unwrap_or(WHENEVER)
    }
}
