//! The engine's questions: what a query may answer, and what is asked again as an update call.
//!
//! A query is answered by one replica, which may be late, or lie; an update call by the canister, as all replicas must agree on it.
//!
//! | answered by query | is |
//! |---|---|
//! | nothing new; a replica that is late | believed for ten minutes (`rest.rs`), and not where an update call has named a later block: nothing changes, and it is asked again |
//! | blocks, in a run that acknowledges nothing | stored as one replica's word, except the first behind a gap |
//! | all else, and what does not fit | asked again as an update call, and that answer alone counts |
//!
//! So nothing leaves the database, nothing is left out, and nothing is acknowledged on a query's word; nor does the lag go by it.

use super::assemble::Misfit;
use super::engine::{Engine, Next, ensure_registered};
use super::steps::{Checkpoint, Event};
use crate::client::{BELIEVED, Reach, Wait, is_hearsay, is_rejected, may_pass};
use anyhow::Result;
use coppice_interface::{ExportCursor, ExportError, ExportPage, Role};
use std::mem::discriminant;

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// One replica.
    Query,
    /// The canister, certified by its subnet.
    Update,
}

type Answer = Result<ExportPage, ExportError>;

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Asks for the page behind the cursor.
    pub(super) fn ask(&mut self) -> Result<(Answer, Word)> {
        let by_query = self.options.by_query() && !self.doubt;
        if !by_query && !self.at_rest {
            return Ok((self.ask_next()?, Word::Update));
        }
        let mut due = self.rest.is_due((self.clock)());
        // A run begins with the canister's word, so that the lag is known.
        if self.rest.is_new() {
            if let Some(answer) = self.ask_where_allowed()? {
                return Ok((answer, Word::Update));
            }
            due = false;
        }
        // At the head a query need only say that there is something.
        let page_bytes = if by_query { self.options.page_bytes } else { 1 };
        let said = match self.client.export_blocks(&self.cursor, page_bytes).wait() {
            Err(error) if may_pass(&error) => return Err(error),
            // What is not even Candid is an answer that does not fit.
            said => said.ok(),
        };
        let Some(said) = said else { return self.ask_again(None) };
        let rollbacks = |cursor: Option<&ExportCursor>| cursor.map_or(0, |cursor| cursor.rollbacks);
        let says_nothing_new = match &said {
            Ok(page) if page.chunks.is_empty() => true,
            Ok(page) => by_query && rollbacks(page.cursor.as_ref()) < rollbacks(self.cursor.as_ref()),
            Err(error) => matches!(error, ExportError::Behind { .. }),
        };
        if says_nothing_new {
            let is_known_to_lag = self.figures.lag.is_some_and(|lag| lag > 0);
            if (due || is_known_to_lag)
                && let Some(answer) = self.ask_where_allowed()?
            {
                return Ok(self.instead_of(Some(&said), answer));
            }
            return Ok((said, Word::Query));
        }
        if by_query && said.is_ok() && !self.begins_anew() {
            return Ok((said, Word::Query));
        }
        self.ask_again(Some(said))
    }

    /// Asks as an update call where a query's answer is not believed.
    fn ask_again(&mut self, said: Option<Answer>) -> Result<(Answer, Word)> {
        let answer = self.ask_next()?;
        Ok(self.instead_of(said.as_ref(), answer))
    }

    /// The canister's answer instead of a query's, which is counted where the two differ.
    fn instead_of(&mut self, said: Option<&Answer>, answer: Answer) -> (Answer, Word) {
        self.figures.unconfirmed += u64::from(!said.is_some_and(|said| is_confirmed(said, &answer)));
        (answer, Word::Update)
    }

    /// Asks for the page behind the cursor as an update call, and remembers when that was.
    fn ask_next(&mut self) -> Result<Answer> {
        let answer = self.ask_canister(self.cursor.as_ref(), self.options.page_bytes)?;
        self.rest.note((self.clock)(), answer.as_ref().ok().and_then(|page| page.head));
        Ok(answer)
    }

    /// The same; without an answer where a reader may not make update calls, who goes by what queries say. The refusal itself is a gateway's word,
    /// as the ingress filter has no other: until so many in a row are heard, the next query that says "nothing new" has the subnet asked again.
    fn ask_where_allowed(&mut self) -> Result<Option<Answer>> {
        match self.ask_next() {
            Err(error) if self.options.by_query() && is_rejected(&error) => {
                if self.refusals == 0 || self.figures.head.take().is_some() {
                    self.figures.lag = None;
                    self.note =
                        Some(format!("the lag is not known, and \"nothing new\" is one replica's word: {error:#}"));
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

    /// Whether the next block says what is missing before it, which nobody asks for any more then.
    fn begins_anew(&self) -> bool {
        self.at.restart && self.at.expected.is_some()
    }

    /// Asks as an update call.
    pub(super) fn ask_canister(&self, cursor: Option<&ExportCursor>, max_bytes: u64) -> Result<Answer> {
        match self.client.replicated().export_blocks(cursor.cloned(), max_bytes).wait() {
            Err(error) if is_rejected(&error) => {
                if self.options.ack_every.is_some() {
                    // A caller without the role is not even heard: the status says whether that is why.
                    ensure_registered(self.client, Word::Update)?;
                    return Err(error);
                }
                let principal = self.client.transport().principal(Role::Exporter);
                Err(error.context(format!(
                    "what a query was answered is believed only where an update call is answered the same, and {principal} is \
                     refused that: say with --identity who has a role there. Nothing was changed"
                )))
            }
            answer => answer,
        }
    }

    /// An answer does not fit: that of a query is asked for again as an update call. That of an update call ends the run, but where it
    /// goes on with a block that was begun by query: all of that block is then asked for anew.
    pub(super) fn misfit(&mut self, word: Word, why: Misfit) -> Result<Event> {
        if word == Word::Update && !self.forget_unconfirmed()? {
            return Err(why.into());
        }
        let note = format!("a query was answered with what does not fit, and is asked again as an update call: {why}");
        self.figures.unconfirmed += 1;
        self.doubt();
        Ok(Event::Note(note))
    }

    /// Forgets what has come of a block that was begun by query. Answers whether there was any.
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

    /// The next block comes as the answer of update calls.
    pub(super) fn doubt(&mut self) {
        (self.doubt, self.at_rest, self.next) = (true, false, Next::Pull);
    }
}

/// Whether both say the same, as far as a query's answer matters then.
fn is_confirmed(said: &Answer, answer: &Answer) -> bool {
    match (said, answer) {
        (Ok(said), Ok(answer)) => {
            let first = |page: &ExportPage| page.chunks.first().map(|chunk| chunk.number);
            first(said) == first(answer)
        }
        (Err(said), Err(answer)) => discriminant(said) == discriminant(answer),
        _ => false,
    }
}
