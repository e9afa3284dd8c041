//! Confirmation of blocks that came by query, before anything is acknowledged.
//!
//! A run that acknowledges nothing stores blocks that only one replica vouches for. A run that acknowledges first compares these blocks
//! with the subnet's headers:
//!
//! 1. It asks for the headers of up to 1,000 blocks, as an update call.
//! 2. It compares them with the rows, and the payload with the digests, and marks rows that are the same.
//! 3. It moves a row that differs, with all rows above it, to `orphaned`, as after a reorg, and asks for these blocks again by update
//!    calls. If the row below was confirmed, the run asks for the next page first, because that page reports any reorg since.
//!
//! Marks are committed with each step, so that a run continues where the previous one ended. Blocks that the canister has pruned stay
//! unchanged, are listed, and delay nothing. As after a reorg, a doubt removes nothing: if nothing proves that the database holds the
//! canister's chain, the run ends without a change.

use super::acknowledge::ensure_registered;
use super::assemble::cursor_after;
use super::change::Compared;
use super::engine::{Engine, Next, late};
use super::steps::{Checkpoint, Event, RollBack, Step, Word};
use crate::client::{Reach, Wait, is_rejected};
use crate::report::ranges;
use anyhow::{Result, bail, ensure};
use coppice_interface::{BlockHeader, ExportError, ReadError};
use std::collections::VecDeque;

/// Blocks per call: the headers that fit into a reply.
const HEADERS: u64 = 1_000;
/// Payload bytes after which a transaction is committed.
const STEP_BYTES: u64 = 32 << 20;
/// Maximum number of ranges in a note.
const RANGES: i64 = 21;

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Asks for the headers of the next unconfirmed blocks.
    pub(super) fn confirm(&mut self) -> Result<Event> {
        let from = self.unconfirmed.unwrap_or(u64::MAX);
        let Some((first, last)) = self.store.unconfirmed_from(from, HEADERS)? else { return self.all_confirmed() };
        self.next = Next::Confirm;
        self.checkpoint.reached(Step::Confirm)?;
        let answer = match self.client.replicated().get_block_headers(first, last).wait() {
            // The ingress filter refuses callers without the role; the status shows whether that is the reason.
            Err(error) if is_rejected(&error) => {
                ensure_registered(self.client, Word::Update)?;
                return Err(error);
            }
            answer => answer?,
        };
        self.checkpoint.reached(Step::Confirmed)?;
        match answer {
            Ok(page) => {
                let fits = page.headers.iter().map(|header| header.number).eq((first..=last).take(page.headers.len()));
                ensure!(fits && !page.headers.is_empty(), "headers from block {first} on are not in order");
                self.next = Next::Compare(page.headers.into());
            }
            Err(ReadError::Pruned { first_available }) if first_available > first => {
                self.unconfirmed = Some(first_available);
            }
            Err(ReadError::NotFound) => return self.outside(first),
            Err(ReadError::Corrupt { why }) => {
                ensure!(
                    self.options.skip_damaged,
                    "the canister cannot read the header of block {first}, so the block cannot be confirmed: {why}; \
                     use --skip-damaged to leave it unconfirmed"
                );
                self.unconfirmed = Some(first + 1);
                return Ok(Event::Note(format!(
                    "block {first} stays unconfirmed, because the canister cannot read its header: {why}"
                )));
            }
            Err(error) => bail!("the canister refuses the headers from block {first} on: {error}"),
        }
        Ok(Event::Went)
    }

    /// Compares stored blocks with the subnet's headers, up to [`STEP_BYTES`] of payload in one transaction.
    pub(super) fn compare(&mut self, mut headers: VecDeque<BlockHeader>) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let (checkpoint, cursor) = (&mut self.checkpoint, self.cursor.clone());
        let (compared, same, other) = self.store.change(|change| {
            let (mut compared, mut same, mut bytes, mut other) = (0, 0, 0u64, None);
            for header in &headers {
                match change.confirm(header)? {
                    Compared::Absent => {}
                    Compared::Same => {
                        same += 1;
                        bytes = bytes.saturating_add(header.lengths.sum());
                    }
                    differs => {
                        other = Some(differs);
                        break;
                    }
                }
                compared += 1;
                if bytes >= STEP_BYTES {
                    break;
                }
            }
            checkpoint.reached(Step::Written)?;
            Ok(((compared, same, other), cursor))
        })?;
        self.figures.confirmed += same;
        let after = headers.drain(..compared).next_back().map(|header| header.number + 1);
        self.unconfirmed = after.or(self.unconfirmed);
        let plan = match (other, headers.front()) {
            (Some(other), Some(header)) => self.replace(header, &other)?,
            (_, front) => {
                self.next = if front.is_some() { Next::Compare(headers) } else { Next::Confirm };
                None
            }
        };
        self.checkpoint.reached(Step::Committed)?;
        plan.map_or(Ok(Event::Went), |plan| self.roll_back(&plan))
    }

    /// Plans the removal of a block that differs from the subnet's: the block, all blocks above it, and the block below if that is of
    /// another chain. If the block below was confirmed, there is no plan at first, because the next page reports whether there was a reorg
    /// since.
    fn replace(&mut self, header: &BlockHeader, differs: &Compared) -> Result<Option<RollBack>> {
        let number = header.number;
        let why = match differs {
            Compared::Differs { why } => format!("block {number}: {why}"),
            _ => format!("the subnet has another block {number}"),
        };
        let Some(before) = number.checked_sub(1) else {
            return Ok(Some(RollBack { forged: Some(why), ..RollBack::above(None, None) }));
        };
        let parent = header.parent_hash.as_deref().map(Vec::as_slice);
        let below = self.store.hash_and_confirmed(before)?;
        let below = below.filter(|(hash, _)| parent.is_some_and(|parent| hash != parent));
        let is_above_confirmed = below.as_ref().is_some_and(|(_, confirmed)| *confirmed);
        if is_above_confirmed && self.lost.is_none() && self.disputed.replace(number) != Some(number) {
            return Ok(None);
        }
        let is_joined = below.is_none() && self.store.hash_of(before)?.is_some();
        let is_doubtful = match (&below, differs) {
            (Some((_, confirmed)), _) => *confirmed || self.lost.is_some(),
            (None, Compared::Another) => !is_joined && self.lost.is_some(),
            (None, _) => false,
        };
        ensure!(
            !is_doubtful,
            "{why}, and nothing proves that this database holds the canister's chain. Either it holds another chain, or the canister was \
             installed anew, or one replica made up the blocks from there down, which are pruned. Start with another database \
             (--database). Nothing was changed"
        );
        let rollbacks = self.cursor.as_ref().map_or(0, |cursor| cursor.rollbacks);
        let cursor = Some(cursor_after(before, parent.unwrap_or_default(), rollbacks));
        let (ancestor, gap) = match below {
            None => (Some(before), None),
            Some(_) => (before.checked_sub(1), Some(before)),
        };
        Ok(Some(RollBack { forged: Some(why), gap, ..RollBack::above(ancestor, cursor) }))
    }

    /// Handles a block number that the canister does not have: it is above the head, or below the start of the chain.
    fn outside(&mut self, first: u64) -> Result<Event> {
        let head = match self.client.replicated().get_head().wait()? {
            Ok(head) => head,
            Err(ReadError::NotFound) => {
                self.next = Next::Pull;
                return Ok(Event::Behind(late(None)));
            }
            Err(error) => bail!("the canister's head cannot be read: {error}"),
        };
        if head.number >= first {
            let oldest = match self.ask_canister(None, 1)? {
                Ok(page) => page.chunks.first().map(|chunk| chunk.number),
                Err(ExportError::Corrupt { number, .. }) => Some(number),
                Err(_) => None,
            };
            return match oldest.filter(|&oldest| oldest > first) {
                Some(oldest) => {
                    self.unconfirmed = Some(oldest);
                    Ok(Event::Went)
                }
                // The block was appended meanwhile.
                None => Ok(Event::Behind(late(Some(head.number)))),
            };
        }
        let is_ours = self.store.hash_of(head.number)?.is_some_and(|own| own == head.hash.as_slice());
        if is_ours && !self.store.has_confirmed_from(first)? {
            let rollbacks = self.cursor.as_ref().map_or(0, |cursor| cursor.rollbacks);
            let cursor = Some(cursor_after(head.number, &head.hash, rollbacks));
            let forged = Some(format!("the subnet's chain ends at block {}", head.number));
            return self.roll_back(&RollBack { forged, ..RollBack::above(Some(head.number), cursor) });
        }
        if self.restored {
            return self.restore(&late(Some(head.number)));
        }
        // The next page shows whether this is a reorg or a reset.
        self.next = Next::Pull;
        Ok(Event::Behind(late(Some(head.number))))
    }

    /// Ends the confirmation: every block that the canister still has is confirmed.
    fn all_confirmed(&mut self) -> Result<Event> {
        self.unconfirmed = None;
        if let Some(why) = self.lost.take() {
            return self.restore(&why);
        }
        self.next = if self.is_behind_with_acks() { Next::Acknowledge } else { Next::Pull };
        let left = self.store.unconfirmed_ranges(RANGES)?;
        if left.is_empty() {
            return Ok(Event::Went);
        }
        Ok(Event::Note(format!(
            "these blocks stay unconfirmed, because the canister has pruned them or cannot read them: {}",
            ranges(&left)
        )))
    }
}
