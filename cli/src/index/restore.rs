//! A canister that was restored from a snapshot: it lacks blocks that the database holds, and its chain may continue along another branch.
//!
//! The canister answers `Restored` to a position that it does not know, and that no prune, rollback or reset explains. Only the answer of an
//! update call counts (`ask.rs`). The cause may also be a replica that forged blocks, or a database of another chain, so the engine
//!
//! 1. confirms blocks that came by query, which removes forged ones (`confirm.rs`),
//! 2. ends the run, unless the option `accept_restore` is set,
//! 3. finds the newest common block by the subnet's headers, and ends the run if there is none, and
//! 4. moves all rows above that block to `orphaned`, where they stay, because they may be the only copy.

use super::acknowledge::ensure_registered;
use super::assemble::cursor_after;
use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, RollBack, Word};
use crate::client::{Reach, Wait, is_rejected};
use anyhow::{Context, Result, bail, ensure};
use coppice_interface::{BlockHeader, ExportError, ReadError};

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Handles the answer `Restored`, with the canister's head.
    pub(super) fn is_restored(&mut self, head: Option<u64>) -> Result<Event> {
        ensure!(
            self.cursor.is_some(),
            "the canister reports that it was restored, although it was asked for its oldest block"
        );
        let position = self.cursor.as_ref().map_or(0, |cursor| cursor.number);
        let its_head = head.map_or("nothing".into(), |head| format!("block {head}"));
        let why = format!(
            "the canister, which has {its_head} as its head, does not know this database's position in the chain, block {position}"
        );
        if self.unconfirmed.is_some() {
            self.lost = head.is_some_and(|head| head >= position).then_some(why);
            self.next = Next::Confirm;
            return Ok(Event::Went);
        }
        if self.forget_unconfirmed()? {
            self.figures.unconfirmed += 1;
            self.doubt();
            return Ok(Event::Note(format!(
                "{why}: the block that was begun by query is asked for again by update calls"
            )));
        }
        self.restore(&why)
    }

    /// Moves all blocks above the newest common block to `orphaned`, if the options allow it.
    ///
    /// # Errors
    /// When the options do not allow it, or there is no common block.
    pub(super) fn restore(&mut self, why: &str) -> Result<Event> {
        ensure!(
            self.options.accept_restore,
            "{why}: the canister was restored from a snapshot or installed anew, or this database holds another chain. Nothing was changed. \
             If the canister was restored, use --accept-restore: blocks that the canister lacks move to the table orphaned, where they stay, \
             and the copy continues after the newest common block"
        );
        let (ancestor, hash, rollbacks) = self.newest_common(why)?;
        let cursor = Some(cursor_after(ancestor, &hash, rollbacks));
        self.roll_back(&RollBack { restored: true, ..RollBack::above(Some(ancestor), cursor) })
    }

    /// Returns the newest stored block that is part of the canister's chain, its hash, and the canister's count of rollbacks, which is read
    /// first, so that a rollback during the search is reported later. If a block is common, so are all blocks below it.
    fn newest_common(&mut self, why: &str) -> Result<(u64, Vec<u8>, u64)> {
        let page = match self.ask_canister(None, 1)? {
            Ok(page) => page,
            Err(ExportError::Corrupt { number, why, .. }) => {
                bail!(
                    "the canister cannot read its oldest block, {number}, so the newest common block is unknown: {why}"
                )
            }
            Err(error) => bail!("the canister refuses its oldest block: {error}"),
        };
        let rollbacks = page.cursor.as_ref().map_or(0, |cursor| cursor.rollbacks);
        let (mut common, tip) = (None, self.tip());
        if let (Some(oldest), Some(head), Some(tip)) = (page.chunks.first(), page.head, tip) {
            // The oldest block names the hash of the block before, which is pruned.
            if let Some(before) = oldest.number.checked_sub(1)
                && let (Some(own), Some(parent)) = (self.store.hash_of(before)?, &oldest.parent_hash)
                && own == parent.as_slice()
            {
                common = Some((before, own));
            }
            let (mut low, mut end) = (oldest.number, head.min(tip).saturating_add(1));
            while low < end {
                let middle = low + (end - low) / 2;
                match self.store.newest_of(low, middle)? {
                    None => low = middle + 1,
                    Some((number, own)) if self.is_common(number, &own, head)? => {
                        (common, low) = (Some((number, own)), middle + 1);
                    }
                    Some((number, _)) => end = number,
                }
            }
        }
        let (number, hash) = common.with_context(|| {
            format!(
                "{why}, and no block that it keeps is in this database. Either the database holds another chain, or the canister was \
                 installed anew, or it has pruned the newest common block. Start with another database (--database). Nothing was changed"
            )
        })?;
        Ok((number, hash, rollbacks))
    }

    /// Returns whether the canister's block has this hash. If its header is damaged, the next block decides, whose parent it is; a head that
    /// cannot be read counts as another block, and so does a block without a next one in the database.
    fn is_common(&mut self, number: u64, own: &[u8], head: u64) -> Result<bool> {
        match self.header(number)? {
            Ok(header) => return Ok(header.hash.as_slice() == own),
            Err(ReadError::Corrupt { .. }) if number == head => return Ok(false),
            Err(ReadError::Corrupt { .. }) => {}
            Err(error) => bail!("the canister refuses the header of block {number}: {error}"),
        }
        match self.header(number + 1)? {
            Ok(next) => Ok(self.store.hash_of(number + 1)?.is_some_and(|own| own == next.hash.as_slice())),
            Err(error) => bail!("the canister cannot read the headers of blocks {number} and {}: {error}", number + 1),
        }
    }

    /// Asks for a header by an update call.
    fn header(&mut self, number: u64) -> Result<Result<BlockHeader, ReadError>> {
        let page = match self.client.replicated().get_block_headers(number, number).wait() {
            // The ingress filter refuses callers without the role; the status shows whether that is the reason.
            Err(error) if is_rejected(&error) && !self.options.by_query() => {
                ensure_registered(self.client, Word::Update)?;
                return Err(error);
            }
            page => page?,
        };
        let page = match page {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let header = page.headers.into_iter().next().filter(|header| header.number == number);
        header.map(Ok).with_context(|| format!("the canister answers with other headers than that of block {number}"))
    }
}
