//! Rollback of the copy after a reorg.
//!
//! The database may hold the only copy of a block, because the canister prunes. So the engine removes only blocks that the canister, in the
//! answer of an update call (`ask.rs`), reports as not part of its chain, and never removes on a doubt: an ancestor with another hash in
//! the database belongs to another chain, and ends the run. Removed blocks go to `orphaned`.

use super::change::Keep;
use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, RollBack, Step};
use crate::client::Reach;
use anyhow::{Result, ensure};
use coppice_interface::ExportCursor;

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Follows a reorg above a block.
    pub(super) fn reorged(&mut self, ancestor: u64, cursor: ExportCursor) -> Result<Event> {
        let own = self.store.hash_of(ancestor)?;
        // The hash is empty if the canister has lost it.
        let is_other = |own: Vec<u8>| !cursor.hash.is_empty() && *cursor.hash != own;
        if cursor.number != ancestor || own.is_some_and(is_other) {
            return self.restore(&format!(
                "the canister names block {ancestor} as the newest common block, but this database has another block there"
            ));
        }
        if let Some(why) = self.below_pruned(ancestor) {
            return self.restore(&why);
        }
        self.roll_back(&RollBack::above(Some(ancestor), Some(cursor)))
    }

    /// Returns the newest block that is surely common, if the canister names one and has pruned beyond it. The canister names the lowest
    /// head since, which may be lower than necessary; if its oldest block follows a stored one, all blocks below are common.
    pub(super) fn shared(&mut self, named: u64) -> Result<u64> {
        let oldest = self.ask_canister(None, 1)?.ok().and_then(|page| page.chunks.into_iter().next());
        let Some((oldest, before)) = oldest.and_then(|chunk| Some((chunk.number.checked_sub(1)?, chunk.parent_hash?)))
        else {
            return Ok(named);
        };
        let is_stored = self.store.hash_of(oldest)?.is_some_and(|own| own == before.as_slice());
        Ok(if is_stored { named.max(oldest) } else { named })
    }

    /// Refuses a rollback below blocks that the canister had reported as pruned, because these cannot be rolled back.
    pub(super) fn refuse_below_pruned(&self, ancestor: u64) -> Result<()> {
        let why = self.below_pruned(ancestor);
        ensure!(
            why.is_none(),
            "{}: it was installed anew, or is not the canister of this database. Nothing was changed",
            why.unwrap_or_default()
        );
        Ok(())
    }

    /// Returns why blocks above an ancestor cannot have been rolled back, if the canister had reported higher blocks as pruned.
    fn below_pruned(&self, ancestor: u64) -> Option<String> {
        let before = self.store.pruned_before().filter(|&before| ancestor.saturating_add(1) < before)?;
        Some(format!(
            "the canister names block {ancestor} as the newest common block, but had reported before that blocks below {before} are pruned, \
             which no reorg reaches"
        ))
    }

    /// Removes the blocks above an ancestor. The next step asks for the next page.
    pub(super) fn roll_back(&mut self, plan: &RollBack) -> Result<Event> {
        self.next = Next::Pull;
        self.checkpoint.reached(Step::Write)?;
        let (checkpoint, newest) = (&mut self.checkpoint, Keep::Newest(self.options.keep_orphaned));
        let keep = if self.restored || plan.restored { Keep::All } else { newest };
        let removed = self.store.change(|change| {
            let removed = change.remove_above(plan.ancestor, keep)?;
            if let Some(gap) = plan.gap {
                change.add_gap(gap, gap, "one replica had sent another block, and the canister has pruned its own")?;
            }
            checkpoint.reached(Step::Written)?;
            Ok((removed, plan.cursor.clone()))
        })?;
        (self.cursor, self.at) = self.store.load()?;
        (self.acknowledged, self.refused, self.pending) = (None, None, 0);
        self.at_rest = false;
        self.figures.removed_blocks += removed;
        if let Some(why) = &plan.forged {
            self.lost = None;
            self.figures.unconfirmed += 1;
            self.checkpoint.reached(Step::Committed)?;
            return Ok(Event::Note(format!("{removed} unconfirmed blocks are removed and asked for again: {why}")));
        }
        if let (true, Some(ancestor)) = (plan.restored, plan.ancestor) {
            (self.restored, self.lost) = (false, None);
            self.checkpoint.reached(Step::Committed)?;
            return Ok(Event::Note(format!(
                "the canister was restored from a snapshot: {removed} blocks above block {ancestor} moved to the table orphaned, where they \
                 stay"
            )));
        }
        self.figures.reorgs += 1;
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(match plan.ancestor {
            Some(ancestor) => {
                format!("the chain was reorganised above block {ancestor}: {removed} blocks are removed")
            }
            None => format!("the chain was reset: {removed} blocks of the old chain are removed"),
        }))
    }

    /// Handles a reset of the canister's chain: the stored blocks are of the old chain, and may exist nowhere else.
    pub(super) fn reset(&mut self) -> Result<Event> {
        ensure!(
            self.options.accept_reset,
            "the canister's chain was reset, and this database holds the old chain. --accept-reset removes all of its blocks and \
             starts with the new chain; keep a copy of the database first, or use another database. Nothing was changed"
        );
        self.roll_back(&RollBack::above(None, None))
    }
}
