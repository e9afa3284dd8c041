//! Update calls, whose answers the subnet vouches for, where no header proves what a replica answers:
//!
//! | the subnet is asked for | because |
//! |---|---|
//! | the page after the position | a replica cannot read the next block, or keeps no block of which the position is proved |
//! | the header after a damaged block | its parent's hash is lost, so that its leaf is unknown |
//! | the header before a damaged block | no certificate reaches it |
//!
//! A caller without a role may not make these calls: its reader ends there.

use super::trust::Counts;
use super::{Engine, Task};
use crate::client::{BELIEVED, CanisterClient, Wait, is_rejected};
use crate::exit::why;
use crate::index::change::PRUNED;
use crate::index::header::{Header, SEGMENTS};
use crate::index::steps::{Checkpoint, Event, Step};
use anyhow::{Result, anyhow, bail, ensure};
use ic_coppice_interface::{BlockHeader, ExportCursor, ExportError, ReadError, Role};

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    /// Asks the subnet for the page after the position.
    pub(super) fn ask_subnet(&mut self) -> Result<Event> {
        self.checkpoint.reached(Step::Pull)?;
        let first = self.trust.certified().and_then(|certified| certified.kept).map(|kept| kept.first);
        let is_gap = self.at.expected < first && self.at.expected.is_some();
        let cursor = if is_gap && self.trust.counts() == Counts::Same { None } else { self.cursor() };
        let answer = match self.client.replicated().export_blocks(cursor, 1).wait() {
            Err(error) => return self.not_asked(error),
            Ok(answer) => answer,
        };
        self.trust.asked();
        self.checkpoint.reached(Step::Pulled)?;
        let error = match answer {
            Ok(_) => {
                self.trust.prove();
                return Ok(match self.trust.take_claim() {
                    Some(claim) => self.refuted(&format!("{claim}; but the subnet has the next block")),
                    None => Event::Went,
                });
            }
            Err(error) => error,
        };
        match error {
            ExportError::Corrupt { number, why, next } => self.damaged(number, &why, next),
            ExportError::Pruned { common_ancestor, .. } => match common_ancestor.filter(|&of| self.tip() > Some(of)) {
                Some(common) => self.reorganised(common),
                None => {
                    // The stored blocks are in the chain.
                    self.trust.prove();
                    self.task = Task::Certify;
                    Ok(Event::Went)
                }
            },
            ExportError::Reorged { common_ancestor, cursor } => {
                let own = self.store.hash_of(common_ancestor)?;
                if own.is_some_and(|own| !cursor.hash.is_empty() && *cursor.hash != own) {
                    let why = format!(
                        "the canister names block {common_ancestor} as the newest common block, but this database has another block there"
                    );
                    self.ensure_may_restore(&why)?;
                    return Err(self.nothing_in_common(&why));
                }
                self.reorganised(common_ancestor)
            }
            ExportError::Restored { head } => {
                let head = head.map_or("nothing".into(), |head| format!("block {head}"));
                let why = format!("the canister, which has {head} as its head, does not know this database's position");
                self.ensure_may_restore(&why)?;
                Err(self.nothing_in_common(&why))
            }
            ExportError::BadCursor { why } => bail!(
                "the canister does not know this database's position in the chain ({why}): the database holds another chain, \
                 or the canister was installed anew. Nothing was changed"
            ),
            ExportError::Other { code, message } => bail!("the canister refuses the page ({code}): {message}"),
            error @ (ExportError::Behind { .. } | ExportError::Reset { .. }) => Ok(Event::Behind(error.to_string())),
        }
    }

    /// Handles a call that only callers with a role may make.
    fn not_asked(&mut self, error: anyhow::Error) -> Result<Event> {
        if !is_rejected(&error) {
            return Err(error);
        }
        let principal = self.client.transport().principal(Role::Exporter);
        let text = format!(
            "no certificate proves what comes next, because a block is damaged or the position is pruned; {principal} may not ask the \
             subnet, which needs a role on the canister (--identity): {}. Nothing was changed",
            why(&error)
        );
        if self.trust.refused() < BELIEVED { Ok(Event::Behind(text)) } else { Err(anyhow!(text)) }
    }

    /// Follows a rollback that the subnet names, below blocks of which no header is kept.
    fn reorganised(&mut self, common: u64) -> Result<Event> {
        let first = self.trust.stored_first();
        ensure!(
            common.saturating_add(1) >= first,
            "the canister names block {common} as the newest common block, but had certified before that blocks below {first} are pruned, \
             which no reorg reaches: it was installed anew. Nothing was changed"
        );
        self.roll_back(Some(common))
    }

    /// Skips blocks that the canister cannot read, if the options allow it.
    fn damaged(&mut self, number: u64, why: &str, next: Option<ExportCursor>) -> Result<Event> {
        let kept = self.trust.certified().and_then(|certified| certified.kept).map(|kept| kept.first);
        let is_next = self.at.expected.max(kept).is_none_or(|next| next == number);
        let last = next.as_ref().map(|cursor| match usize::from(cursor.segment) >= SEGMENTS {
            true => cursor.number,
            false => cursor.number.saturating_sub(1),
        });
        if !is_next || last.is_some_and(|last| last < number) {
            let place = next.map_or("no block".into(), |cursor| format!("block {}", cursor.number));
            return Ok(Event::Behind(format!(
                "the canister cannot read block {number}: {why}; it continues at {place}, which does not fit"
            )));
        }
        ensure!(
            self.options.skip_damaged,
            "the canister cannot read block {number}: {why}; use --skip-damaged to skip it"
        );
        let Some(last) = last else {
            // The head may be replaced, and can be skipped as soon as another block follows.
            if self.is_behind_with_acks() {
                self.task = Task::Acknowledge;
                return Ok(Event::Went);
            }
            return Ok(Event::Behind(format!("the canister cannot read its head, block {number}: {why}")));
        };
        self.checkpoint.reached(Step::Write)?;
        let (checkpoint, pruned) = (&mut self.checkpoint, self.at.expected.filter(|&next| next < number));
        let pruned = pruned.map(|first| (first, number - 1));
        self.store.change(|change| {
            change.drop_incomplete()?;
            if let Some((first, last)) = pruned {
                change.add_gap(first, last, PRUNED)?;
            }
            change.add_gap(number, last, why)?;
            checkpoint.reached(Step::Written)
        })?;
        (self.at.block, self.at.expected) = (None, last.checked_add(1));
        for (first, last) in pruned.into_iter().chain([(number, last)]) {
            self.figures.count_gap(first, last);
        }
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(format!("block {number} is skipped, because the canister cannot read it: {why}")))
    }

    /// Asks the subnet for a header; returns an event if there is none.
    fn header(&mut self, number: u64) -> Result<Result<BlockHeader, Event>> {
        self.checkpoint.reached(Step::Prove)?;
        let page = match self.client.replicated().get_block_headers(number, number).wait() {
            Err(error) => return self.not_asked(error).map(Err),
            Ok(page) => page,
        };
        self.trust.asked();
        self.checkpoint.reached(Step::Proved)?;
        match page {
            Ok(page) => match page.headers.into_iter().find(|header| header.number == number) {
                Some(header) => Ok(Ok(header)),
                None => bail!("the canister answers with other headers than that of block {number}"),
            },
            Err(ReadError::Corrupt { .. }) if self.at.expected == Some(number) => {
                self.task = Task::Ask;
                Ok(Err(Event::Went))
            }
            Err(why) => Ok(Err(Event::Behind(format!("the header of block {number} cannot be read: {why}")))),
        }
    }

    /// Goes on after a damaged block.
    pub(super) fn follow(&mut self) -> Result<Event> {
        let Some(next) = self.at.expected else { return Ok(Event::Went) };
        let header = match self.header(next)? {
            Ok(header) => header,
            Err(event) => return Ok(event),
        };
        let Ok(seal) = header.seal.as_slice().try_into() else {
            bail!("the canister has a seal of {} bytes for block {next}", header.seal.len())
        };
        self.ahead.begin_alone(Header::of(&header, None)?, seal);
        self.task = Task::Pull;
        Ok(Event::Went)
    }

    /// Proves the headers before a damaged block.
    pub(super) fn anchor(&mut self) -> Result<Event> {
        let Some(last) = self.ahead.next().checked_sub(1) else { return Ok(Event::Went) };
        let header = match self.header(last)? {
            Ok(header) => header,
            Err(event) => return Ok(event),
        };
        if header.seal.as_slice() == self.ahead.end() {
            return self.proved();
        }
        self.ahead.rewind();
        Ok(Event::Behind(format!("replicas disagree about block {last}, before a damaged one")))
    }
}
