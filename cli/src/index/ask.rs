//! The engine's calls for pages: accepts or rejects answers of queries, and asks again by update calls.
//!
//! One replica answers a query, and it may lag or lie; all replicas of the subnet must agree on the answer of an update call.
//!
//! | answer of a query | treatment |
//! |---|---|
//! | nothing new, or the replica lags | accepted for ten minutes (`rest.rs`), except after an update call that named a later block: nothing changes, and the engine asks again |
//! | blocks, in a run that acknowledges nothing | stored as unconfirmed, except the first block after a gap |
//! | everything else, and answers that do not fit | asked again as an update call, whose answer alone counts |
//!
//! So the answer of a query alone never removes a block, leaves a gap, acknowledges anything or sets the lag.

use super::acknowledge::ensure_registered;
use super::assemble::Misfit;
use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Word};
use crate::client::{BELIEVED, Reach, Wait, is_hearsay, is_rejected, may_pass};
use crate::exit::why;
use anyhow::Result;
use coppice_interface::{ExportCursor, ExportError, ExportPage, Role};
use std::mem::discriminant;

type Answer = Result<ExportPage, ExportError>;

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Asks for the page after the cursor.
    pub(super) fn ask(&mut self) -> Result<(Answer, Word)> {
        let by_query = self.options.by_query() && !self.doubt;
        if !by_query && !self.at_rest {
            return Ok((self.ask_next()?, Word::Update));
        }
        let mut due = self.rest.is_due((self.clock)());
        // A run starts with an update call, so that the lag is known.
        if self.rest.is_new() {
            if let Some(answer) = self.ask_where_allowed()? {
                return Ok((answer, Word::Update));
            }
            due = false;
        }
        // At the head a query only needs to show that there is something new.
        let page_bytes = if by_query { self.options.page_bytes } else { 1 };
        let queried = match self.client.export_blocks(&self.cursor, page_bytes).wait() {
            Err(error) if may_pass(&error) => return Err(error),
            // An answer that is not even valid Candid is treated as one that does not fit.
            queried => queried.ok(),
        };
        let Some(queried) = queried else { return self.ask_again(None) };
        let rollbacks = |cursor: Option<&ExportCursor>| cursor.map_or(0, |cursor| cursor.rollbacks);
        let is_nothing_new = match &queried {
            Ok(page) if page.chunks.is_empty() => true,
            Ok(page) => by_query && rollbacks(page.cursor.as_ref()) < rollbacks(self.cursor.as_ref()),
            Err(error) => matches!(error, ExportError::Behind { .. }),
        };
        if is_nothing_new {
            let is_known_to_lag = self.figures.lag.is_some_and(|lag| lag > 0);
            if (due || is_known_to_lag)
                && let Some(answer) = self.ask_where_allowed()?
            {
                return Ok(self.instead_of(Some(&queried), answer));
            }
            return Ok((queried, Word::Query));
        }
        if by_query && queried.is_ok() && !self.begins_anew() {
            return Ok((queried, Word::Query));
        }
        self.ask_again(Some(queried))
    }

    /// Asks again by an update call, because the query's answer is not trusted.
    fn ask_again(&mut self, queried: Option<Answer>) -> Result<(Answer, Word)> {
        let answer = self.ask_next().map_err(|error| match is_rejected(&error) {
            true => error.context(said(queried.as_ref())),
            false => error,
        })?;
        Ok(self.instead_of(queried.as_ref(), answer))
    }

    /// Replaces a query's answer with the canister's, and counts the query's answer if the two differ.
    fn instead_of(&mut self, queried: Option<&Answer>, answer: Answer) -> (Answer, Word) {
        self.figures.unconfirmed += u64::from(!queried.is_some_and(|queried| is_confirmed(queried, &answer)));
        (answer, Word::Update)
    }

    /// Asks for the page after the cursor by an update call, and records the time of the call.
    fn ask_next(&mut self) -> Result<Answer> {
        let answer = self.ask_canister(self.cursor.as_ref(), self.options.page_bytes)?;
        self.rest.note((self.clock)(), answer.as_ref().ok().and_then(|page| page.head));
        Ok(answer)
    }

    /// Does the same, but returns `None` if the caller has no permission for update calls; then the answers of queries count. The refusal
    /// is not certified either, because it comes from a gateway or the ingress filter. So until it was repeated [`BELIEVED`] times in a
    /// row, the next "nothing new" of a query leads to another update call.
    fn ask_where_allowed(&mut self) -> Result<Option<Answer>> {
        match self.ask_next() {
            Err(error) if self.options.by_query() && is_rejected(&error) => {
                if self.refusals == 0 || self.figures.head.take().is_some() {
                    self.figures.lag = None;
                    self.note =
                        Some(format!("the lag is unknown, and \"nothing new\" is not confirmed: {}", why(&error)));
                }
                self.refusals = self.refusals.saturating_add(1);
                if !is_hearsay(&error) || self.refusals >= BELIEVED {
                    self.rest.note((self.clock)(), None);
                }
                Ok(None)
            }
            answer => {
                self.refusals = 0;
                answer.map(Some)
            }
        }
    }

    /// Returns whether the next block decides which blocks before it are missing, after which they are never asked for again.
    fn begins_anew(&self) -> bool {
        self.at.restart && self.at.expected.is_some()
    }

    /// Asks for a page by an update call.
    pub(super) fn ask_canister(&self, cursor: Option<&ExportCursor>, max_bytes: u64) -> Result<Answer> {
        match self.client.replicated().export_blocks(cursor.cloned(), max_bytes).wait() {
            Err(error) if is_rejected(&error) => {
                if self.options.ack_every.is_some() {
                    // The ingress filter refuses callers without the role; the status shows whether that is the reason.
                    ensure_registered(self.client, Word::Update)?;
                    return Err(error);
                }
                let principal = self.client.transport().principal(Role::Exporter);
                Err(error.context(format!(
                    "a query's answer counts only if an update call confirms it, and {principal} may not make that call: use \
                     --identity with a key that has a role on the canister. Nothing was changed"
                )))
            }
            answer => answer,
        }
    }

    /// Handles an answer that does not fit. A query's answer is asked for again by an update call. An update call's answer ends the run,
    /// unless it continues a block that was begun by a query: then the whole block is asked for again.
    pub(super) fn misfit(&mut self, word: Word, why: Misfit) -> Result<Event> {
        if word == Word::Update && !self.forget_unconfirmed()? {
            return Err(why.into());
        }
        let note = format!("the answer of a query does not fit, so it is asked again as an update call: {why}");
        self.figures.unconfirmed += 1;
        self.doubt();
        Ok(Event::Note(note))
    }

    /// Discards the parts of a block that was begun by a query. Returns whether there was such a block.
    pub(super) fn forget_unconfirmed(&mut self) -> Result<bool> {
        let Some(block) = self.at.block.take_if(|block| !block.confirmed) else { return Ok(false) };
        let start = self.at.start_of(&block, self.cursor.as_ref().map_or(0, |cursor| cursor.rollbacks));
        self.store.change(|change| {
            change.drop_incomplete()?;
            Ok(((), start))
        })?;
        (self.cursor, self.at) = self.store.load()?;
        Ok(true)
    }

    /// Asks for the next block by update calls.
    pub(super) fn doubt(&mut self) {
        (self.doubt, self.at_rest, self.next) = (true, false, Next::Pull);
    }
}

/// Returns a query's answer that an update call must confirm, in words.
fn said(queried: Option<&Answer>) -> String {
    match queried {
        Some(Err(error)) => format!("one replica says: {error}"),
        Some(Ok(page)) => match page.chunks.first() {
            Some(chunk) => {
                format!("one replica says that the next block is {}, so blocks before it are missing", chunk.number)
            }
            None => "one replica says that there is nothing new".into(),
        },
        None => "one replica's answer does not fit".into(),
    }
}

/// Returns whether an update call confirms a query's answer, as far as the query's answer mattered.
fn is_confirmed(queried: &Answer, answer: &Answer) -> bool {
    match (queried, answer) {
        (Ok(queried), Ok(answer)) => {
            let first = |page: &ExportPage| page.chunks.first().map(|chunk| chunk.number);
            first(queried) == first(answer)
        }
        (Err(queried), Err(answer)) => discriminant(queried) == discriminant(answer),
        _ => false,
    }
}
