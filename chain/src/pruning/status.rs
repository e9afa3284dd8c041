//! Status of pruning: what holds it back, its backlog and its problems.

use super::constraints::{Constraints, is_possible};
use super::due::{CAPACITY_FLOOR, Due, due_and_floor, retain_min_block};
use super::{Pruner, sweep};
use crate::export::is_of_guard;
use crate::{ChainStore, IndexTable, owners};
use ic_coppice_interface::{HeldBy, PruneBacklog, PruneStatus, WaterMarks};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, NS, Platform as _};

/// Due blocks that exporters, or the lack of one, hold back for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportHeld {
    /// Unix seconds since when they are held back.
    pub since: Option<u64>,
    /// Seconds for which they have been held back.
    pub secs: u64,
    /// True if kept bytes are above high water.
    pub is_full: bool,
    /// True if the policy has a capacity trigger.
    pub is_limited: bool,
    /// Seconds until kept bytes reach emergency water at the last hour's rate: 0 if reached already, `None` if unknown or never.
    pub until_emergency: Option<u64>,
    /// True if the rate is known.
    pub is_rate_known: bool,
}

/// Returns whether there is a block that the capacity trigger could prune.
fn can_free(chain: &ChainStore) -> bool {
    let state = chain.state();
    state.coming_head().is_some_and(|head| state.oldest < head.saturating_sub(CAPACITY_FLOOR))
}

impl Pruner {
    /// Returns whether kept bytes have reached emergency water while pruning could still free some.
    ///
    /// The capacity trigger never frees the newest blocks, so refusing appends because of these blocks alone would last for ever. The
    /// reservation of an open upload does not count.
    pub fn at_emergency(&self, chain: &ChainStore, blobs: &BlobStore) -> bool {
        can_free(chain) && self.marks(chain, blobs).is_some_and(|marks| chain.capacity_bytes(blobs) >= marks.emergency)
    }

    /// Returns how many of the marks high water and emergency water the kept bytes have reached while pruning could still free some.
    pub fn marks_reached(&self, chain: &ChainStore, blobs: &BlobStore) -> u8 {
        let Some(marks) = self.marks(chain, blobs).filter(|_| self.is_enabled() && can_free(chain)) else { return 0 };
        let kept = chain.capacity_bytes(blobs);
        u8::from(kept > marks.high) + u8::from(kept >= marks.emergency)
    }

    /// Returns the kept bytes and the watermarks if the bytes are above high water although only the head and the block before it are kept.
    /// Appends go on then.
    pub fn above_smallest_target(&self, chain: &ChainStore, blobs: &BlobStore) -> Option<(u64, WaterMarks)> {
        let (marks, kept) = (self.marks(chain, blobs)?, chain.capacity_bytes(blobs));
        (kept > marks.high && !can_free(chain)).then_some((kept, marks))
    }

    /// Returns the reason that appends are refused at the emergency mark, if they are.
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
        let due = self.due(chain, blobs, constraints.guard().as_ref());
        // Due blocks that may be pruned are only waiting for a tick.
        let stuck = due.filter(|due| !is_possible(due, chain));
        Some(self.held_by(self.is_enabled(), stuck.as_ref(), &constraints).unwrap_or(HeldBy::PruneLag))
    }

    /// Returns the reason that due blocks are held back; `enabled` is the switch of the daemon.
    pub(super) fn held_by(&self, enabled: bool, due: Option<&Due>, constraints: &Constraints) -> Option<HeldBy> {
        // Manual runs prune nothing either while deletions are stopped.
        if constraints.stopped_since.is_some() {
            return Some(HeldBy::Stopped);
        }
        if !enabled {
            return Some(HeldBy::Disabled);
        }
        let paused = || constraints.low_on_cycles.then_some(HeldBy::LowCycles);
        due.and_then(|due| due.held_by.clone()).or_else(paused)
    }

    /// Returns the backlog and the rate at which it shrinks.
    fn backlog(&self, chain: &ChainStore, due: Option<&Due>) -> PruneBacklog {
        let (state, now) = (chain.state(), Ic::now_secs());
        let before = due.map_or(state.oldest, |due| due.before.max(state.oldest));
        let target = due.map_or(state.oldest, |due| due.target.max(before));
        let blocks = before - state.oldest;
        let below = if blocks == 0 { 0 } else { chain.references_before(before) };
        let (pruned_per_hour, appended_per_hour) = self.rates.per_hour(state, now);
        let empty_in_secs = match self.behind_since_secs {
            // The next tick prunes the backlog.
            None => Some((self.next_tick_ns / NS).saturating_sub(now)).filter(|_| blocks > 0).or(Some(0)),
            Some(_) if blocks == 0 => None,
            Some(_) => pruned_per_hour
                .checked_sub(appended_per_hour)
                .and_then(|net| (u128::from(blocks) * 3_600).checked_div(u128::from(net)))
                .map(|secs| u64::try_from(secs).unwrap_or(u64::MAX)),
        };
        PruneBacklog {
            blocks,
            references: below.saturating_sub(state.pruned_references),
            held_blocks: target - before,
            held_since_secs: self.stored.held_since,
            debt: IndexTable::ALL.iter().map(|&table| chain.debt(table).debt).sum(),
            behind_since_secs: self.behind_since_secs,
            pruned_per_hour,
            appended_per_hour,
            empty_in_secs,
        }
    }

    /// Returns the due blocks that exporters, or the lack of one, hold back, if that is a problem: kept bytes are above high water; or the
    /// blocks have been held back for more than `max_export_lag_secs`; or emergency water is nearer than that. Unless a sentence is
    /// `wanted`, the first of these that is true ends the check.
    pub fn export_held(&self, chain: &ChainStore, blobs: &BlobStore, due: &Due, wanted: bool) -> Option<ExportHeld> {
        let held_by = due.held_by.as_ref().filter(|held_by| is_of_guard(held_by));
        // While pruning is switched off, the switch holds the blocks back, not an exporter.
        let (policy, _) = self.policy().zip(held_by).filter(|_| self.is_enabled())?;
        let (now, kept) = (Ic::now_secs(), chain.capacity_bytes(blobs));
        let secs = self.stored.held_since.map_or(0, |since| now.saturating_sub(since));
        let (marks, patience) = (self.marks(chain, blobs), policy.max_export_lag_secs);
        let is_full = marks.is_some_and(|marks| kept > marks.high);
        let is_raised = is_full || secs > patience;
        let until_emergency = match marks.filter(|_| wanted || !is_raised) {
            Some(marks) if kept >= marks.emergency => Some(0),
            Some(marks) => self.rates.secs_until(chain.state(), marks.emergency - kept, now),
            None => None,
        };
        let soon = until_emergency.is_some_and(|secs| secs < patience);
        (is_raised || soon).then(|| ExportHeld {
            since: self.stored.held_since,
            secs,
            is_full,
            is_limited: marks.is_some(),
            until_emergency,
            is_rate_known: self.rates.are_known(now),
        })
    }

    /// Returns the full status for operators.
    pub fn status(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> PruneStatus {
        let state = chain.state();
        let (guard, to_low_water) = (constraints.guard(), self.stored.to_low_water);
        let (due, floor_block) = due_and_floor(self.policy(), chain, blobs, guard.as_ref(), to_low_water);
        let held_by = due.as_ref().and_then(|due| self.held_by(self.is_enabled(), Some(due), constraints));
        let oldest = state.started.then_some(state.oldest);
        PruneStatus {
            policy: self.stored.policy.clone(),
            enabled: self.is_enabled(),
            deletions_stopped_since_ns: constraints.stopped_since,
            need_prune: due.is_some(),
            reason: due.as_ref().map(|due| due.reason),
            target: due.as_ref().map_or(state.oldest, |due| due.target),
            held_by: held_by.or(floor_block.map(|_| HeldBy::Floor)),
            retain_min_block: self.policy().map_or(0, |policy| retain_min_block(policy, chain)),
            floor_block,
            exported_before_block: constraints.exported.as_ref().map(|guard| guard.before.max(state.oldest)),
            pruned_before_block: state.oldest,
            prune_cursor: oldest.filter(|_| due.as_ref().is_some_and(|due| is_possible(due, chain))),
            backlog: self.backlog(chain, due.as_ref()),
            sweep: sweep::phase(chain),
            transaction_index: sweep::status(chain, IndexTable::Ids),
            key_index: sweep::status(chain, IndexTable::Keys),
            running: self.stored.running,
            oldest_kept_block: oldest,
            oldest_kept_timestamp_secs: oldest.and_then(|number| chain.meta(number)).map(|header| header.monotonic),
            head: state.head(),
            estimated_kept_bytes: blobs.arena().kept_bytes(owners::CHAIN),
            capacity_bytes: chain.capacity_bytes(blobs),
            water_marks: self.marks(chain, blobs),
            last_run: self.stored.last_run.clone(),
            runs: self.stored.runs,
            ticks: self.ticks,
            next_tick_ns: self.next_tick_ns,
            pruned_blocks: state.pruned_blocks,
            pruned_bytes: state.pruned_bytes,
            faults: self.stored.faults,
            acknowledged_faults: self.stored.acknowledged_faults,
            skipped: self.stored.turns.skipped().iter().map(ToString::to_string).collect(),
        }
    }
}
