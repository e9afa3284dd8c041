//! The engine's steps that follow a reorg.

use super::assemble::{Tip, behind};
use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Step};
use crate::canister::Transport;
use anyhow::{Result, bail, ensure};
use coppice_canister::api::{ExportCursor, ReadError};

/// What stays, and where the copy goes on.
#[derive(Debug)]
pub(super) struct RollBack {
    /// The newest block that stays.
    pub to: Option<Tip>,
    /// The cursor behind it; none: from the oldest kept block.
    pub cursor: Option<ExportCursor>,
    /// Numbers, both inclusive, of which nothing is held then, and nothing will be.
    pub gap: Option<(u64, u64)>,
}

impl<T: Transport, C: Checkpoint> Engine<'_, T, C> {
    /// Compares the newest stored block up to a number with the canister's: what is the same stays, and what is not, or
    /// cannot be known to be, goes. `told`: the canister itself says that there was a reorg.
    pub(super) fn find_ancestor(&mut self, up_to: Option<u64>, rollbacks: u64, told: bool) -> Result<Event> {
        let own = match up_to {
            Some(up_to) => self.store.newest_up_to(up_to)?,
            None => None,
        };
        let Some(own) = own else {
            self.next = Next::RollBack(RollBack { to: None, cursor: None, gap: None });
            return Ok(Event::Went);
        };
        self.checkpoint.reached(Step::Compare)?;
        let again = Next::FindAncestor { up_to: own.number.checked_sub(1), rollbacks, told };
        self.next = match self.client.block_header(own.number)? {
            Ok(header) if *header.hash == own.hash => {
                ensure!(
                    told || self.at.tip.as_ref() != Some(&own),
                    "the block behind {} was handed out with another parent, and yet both have the same block {0}",
                    own.number
                );
                let cursor = Some(behind(own.number, &own.hash, rollbacks));
                Next::RollBack(RollBack { to: Some(own), cursor, gap: None })
            }
            Ok(_) | Err(ReadError::NotFound | ReadError::Corrupt { .. }) => again,
            Err(ReadError::Pruned { first_available }) => {
                // The oldest kept block still names its parent.
                let parent = match self.client.block_header(first_available)? {
                    Ok(header) => Some(header.parent_hash),
                    Err(_) => None,
                };
                let own_parent = first_available.checked_sub(1).map(|number| self.store.hash_of(number)).transpose()?;
                let same = parent.is_some_and(|parent| own_parent.flatten().is_some_and(|own| *parent == own));
                if same {
                    let to = self.store.newest_up_to(first_available - 1)?;
                    Next::RollBack(RollBack { to, cursor: None, gap: None })
                } else {
                    let gap = self.store.held()?.first.zip(first_available.checked_sub(1));
                    Next::RollBack(RollBack { to: None, cursor: None, gap })
                }
            }
            Err(error) => bail!("get_block_header of {} answers {error:?}", own.number),
        };
        Ok(Event::Went)
    }

    /// Takes out what is above a block.
    pub(super) fn roll_back(&mut self, plan: &RollBack) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        let removed = self.store.change(|change| {
            let removed = change.remove_above(plan.to.as_ref().map(|tip| tip.number))?;
            if let Some((first, last)) = plan.gap.filter(|(first, last)| first <= last) {
                change.add_gap(first, last, "of another chain, and pruned before this one was indexed")?;
            }
            checkpoint.reached(Step::Written)?;
            Ok((removed, plan.cursor.clone()))
        })?;
        (self.cursor, self.at) = self.store.load()?;
        (self.acknowledged, self.refused, self.pending) = (None, None, 0);
        self.figures.reorgs += 1;
        self.figures.removed_blocks += removed;
        if let Some((first, last)) = plan.gap.filter(|(first, last)| first <= last) {
            self.figures.gaps += 1;
            self.figures.gap_blocks += last - first + 1;
        }
        self.checkpoint.reached(Step::Committed)?;
        let kept = match &plan.to {
            Some(tip) => format!("block {} is the newest that stays", tip.number),
            None => "nothing of what was indexed is known to be part of it".into(),
        };
        Ok(Event::Note(format!("the chain was reorganised: {removed} blocks are taken out, {kept}")))
    }
}
