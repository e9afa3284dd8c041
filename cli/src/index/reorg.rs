//! The engine's step that follows a reorg.
//!
//! What was indexed may be gone from the canister and be the only copy, so that nothing is taken out but what the canister
//! says is not part of its chain, and never for a doubt: an ancestor that it names and that has another hash here is another
//! chain's, and ends the run.

use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Step};
use crate::canister::Transport;
use anyhow::{Result, ensure};
use coppice_canister::api::ExportCursor;

/// What stays, and where the copy goes on.
#[derive(Debug)]
pub(super) struct RollBack {
    /// The newest block that stays; it need not be stored. None: nothing stays.
    pub ancestor: Option<u64>,
    /// The cursor behind it; none: from the oldest kept block.
    pub cursor: Option<ExportCursor>,
}

impl<T: Transport, C: Checkpoint> Engine<'_, T, C> {
    /// The canister tells of a reorg above a block.
    pub(super) fn reorged(&mut self, ancestor: u64, cursor: ExportCursor) -> Result<Event> {
        let own = self.store.hash_of(ancestor)?;
        ensure!(
            cursor.number == ancestor && own.is_none_or(|own| *cursor.hash == own),
            "the canister names block {ancestor} as the newest that both have, and this database has another one there: it \
             is of another chain, or the canister was installed anew. Nothing was changed"
        );
        self.next = Next::RollBack(RollBack { ancestor: Some(ancestor), cursor: Some(cursor) });
        Ok(Event::Went)
    }

    /// Takes out what is above a block.
    pub(super) fn roll_back(&mut self, plan: &RollBack) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        let removed = self.store.change(|change| {
            let removed = change.remove_above(plan.ancestor)?;
            checkpoint.reached(Step::Written)?;
            Ok((removed, plan.cursor.clone()))
        })?;
        (self.cursor, self.at) = self.store.load()?;
        (self.acknowledged, self.refused, self.pending) = (None, None, 0);
        self.figures.reorgs += 1;
        self.figures.removed_blocks += removed;
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
        self.next = Next::RollBack(RollBack { ancestor: None, cursor: None });
        Ok(Event::Went)
    }
}
