//! The engine's step that follows a reorg.
//!
//! What was indexed may be gone from the canister and be the only copy, so that nothing is taken out but what the canister
//! says is not part of its chain, and never for a doubt: an ancestor that it names and that has another hash here is another
//! chain's, and ends the run. What it says is always the answer of an update call (`ask.rs`), and what is taken out goes to
//! `orphaned`.

use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Step};
use crate::client::Reach;
use anyhow::{Result, ensure};
use coppice_interface::ExportCursor;

/// What stays, and where the copy goes on.
#[derive(Debug)]
pub(super) struct RollBack {
    /// The newest block that stays; it need not be stored. None: nothing stays.
    pub ancestor: Option<u64>,
    /// The cursor behind it; none: from the oldest kept block.
    pub cursor: Option<ExportCursor>,
    /// A sentence, where what goes came by query and the subnet has something else.
    pub forged: Option<String>,
    /// A block that goes and that the canister no longer has.
    pub gap: Option<u64>,
}

impl RollBack {
    /// The canister says that its chain is another one above a block.
    pub fn above(ancestor: Option<u64>, cursor: Option<ExportCursor>) -> Self {
        Self { ancestor, cursor, forged: None, gap: None }
    }
}

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// The canister tells of a reorg above a block.
    pub(super) fn reorged(&mut self, ancestor: u64, cursor: ExportCursor) -> Result<Event> {
        let own = self.store.hash_of(ancestor)?;
        ensure!(
            cursor.number == ancestor && own.is_none_or(|own| *cursor.hash == own),
            "the canister names block {ancestor} as the newest that both have, and this database has another one there: it \
             is of another chain, or the canister was installed anew. Nothing was changed"
        );
        self.refuse_below_pruned(ancestor)?;
        self.roll_back(&RollBack::above(Some(ancestor), Some(cursor)))
    }

    /// The newest block that both surely have, where the canister names one and has pruned beyond it. It answers by the lowest head that it
    /// had since, which may be lower than need be; where its oldest block stands on one that is stored, all below is of its chain.
    pub(super) fn shared(&mut self, named: u64) -> Result<u64> {
        let oldest = self.ask_canister(None, 1)?.ok().and_then(|page| page.chunks.into_iter().next());
        let Some((oldest, before)) = oldest.and_then(|chunk| Some((chunk.number.checked_sub(1)?, chunk.parent_hash)))
        else {
            return Ok(named);
        };
        let is_stored = self.store.hash_of(oldest)?.is_some_and(|own| own == before.as_slice());
        Ok(if is_stored { named.max(oldest) } else { named })
    }

    /// Blocks that the canister had said to have pruned cannot have been rolled back since.
    pub(super) fn refuse_below_pruned(&self, ancestor: u64) -> Result<()> {
        let before = self.store.pruned_before().filter(|&before| ancestor.saturating_add(1) < before);
        ensure!(
            before.is_none(),
            "the canister names block {ancestor} as the newest that both have, and had said before that blocks below {} are pruned, \
             which no reorg reaches: it was installed anew, or is not the one that this database is of. Nothing was changed",
            before.unwrap_or_default()
        );
        Ok(())
    }

    /// Takes out what is above a block. The next page is asked for then.
    pub(super) fn roll_back(&mut self, plan: &RollBack) -> Result<Event> {
        self.next = Next::Pull;
        self.checkpoint.reached(Step::Write)?;
        let (checkpoint, keep) = (&mut self.checkpoint, self.options.keep_orphaned);
        let removed = self.store.change(|change| {
            let removed = change.remove_above(plan.ancestor, keep)?;
            if let Some(gap) = plan.gap {
                change.add_gap(gap, gap, "one replica named another block, and the canister has pruned its own")?;
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
            return Ok(Event::Note(format!(
                "{removed} blocks that came by query are taken out, and come again: {why}"
            )));
        }
        self.figures.reorgs += 1;
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(match plan.ancestor {
            Some(ancestor) => {
                format!("the chain was reorganised above block {ancestor}: {removed} blocks are taken out")
            }
            None => format!("the chain was reset: {removed} blocks of the one before are taken out"),
        }))
    }

    /// The canister tells that its chain was emptied: what is stored is of another one, and may exist nowhere else.
    pub(super) fn reset(&mut self) -> Result<Event> {
        ensure!(
            self.options.accept_reset,
            "the canister's chain was reset, and what this database has is of the one before. --accept-reset takes all of it out, \
             and begins with the chain that is there now; keep a copy of the database, or use another one. Nothing was changed"
        );
        self.roll_back(&RollBack::above(None, None))
    }
}
