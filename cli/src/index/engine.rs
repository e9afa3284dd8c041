//! The indexer as a state machine: every step asks the canister once at most, and what it does to the database is one transaction.
//!
//! ```text
//!          ┌────▶ Acknowledge ◀────┐ every so many blocks, and at the head
//!  open ───┤           ▼           │
//!          └─────────▶ Pull ──▶ a page ──────────▶ stored
//!                                Pruned ─────────▶ the next pull is from the oldest kept block; the gap is noted with that page
//!                                Corrupt ────────▶ the block is left out
//!                                Reorged, Reset ─▶ rolled back
//! ```
//! What a query answers is not believed but where nothing depends on it (`ask.rs`). Data and cursor are one transaction, and only what is committed is acknowledged. So a run may end between any two steps:
//! the next one opens the database, acknowledges again what is in it (which changes nothing where it was heard), and goes on
//! at the cursor, in the middle of a block where that is where it was.

use super::ask::Word;
use super::assemble::{Assembly, Misfit, SEGMENTS, Tip};
use super::reorg::RollBack;
use super::rest::Rest;
use super::steps::{Checkpoint, Event, Figures, Onward, Options, Step};
use super::store::Store;
use crate::client::{Client, Hearsay, Reach, Wait, is_rejected};
use anyhow::{Result, anyhow, bail, ensure};
use candid::Principal;
use coppice_interface::{AckError, BlockHeader, ExportCursor, ExportError, Role};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the next step is.
#[derive(Debug)]
pub(super) enum Next {
    Acknowledge,
    /// A page is to be asked for, and what it says to be done.
    Pull,
    /// At the head, as the last page said.
    Rest,
    /// Headers of blocks that came by query are to be asked for.
    Confirm,
    /// These headers are to be held against what is stored.
    Compare(VecDeque<BlockHeader>),
}

/// Pulls, verifies, stores and acknowledges.
pub struct Engine<'a, T, C = Onward> {
    pub(super) client: &'a Client<T>,
    pub(super) store: Store,
    pub(super) checkpoint: C,
    pub(super) options: Options,
    pub(super) next: Next,
    pub(super) cursor: Option<ExportCursor>,
    pub(super) at: Assembly,
    pub(super) acknowledged: Option<Tip>,
    /// Blocks since then.
    pub(super) pending: u64,
    /// What the canister did not want acknowledged, although it may be a reorg that the next page tells of.
    pub(super) refused: Option<Tip>,
    /// The canister has said that there is nothing behind the cursor: until a query says otherwise, or always, that holds.
    pub(super) at_rest: bool,
    /// A query was answered with what does not fit: the next block is asked for as an update call.
    pub(super) doubt: bool,
    /// The first block that may stand on one replica's word and that the canister may still have. Nothing is acknowledged
    /// before there is none.
    pub(super) unconfirmed: Option<u64>,
    /// The canister does not know the cursor, as this sentence says, and blocks that came by query may be why.
    pub(super) lost: Option<String>,
    /// The last block that was not the subnet's although the one below it was confirmed: the next page has been asked about it.
    pub(super) disputed: Option<u64>,
    /// The head as the last page said, where that was the answer of an update call.
    pub(super) head: Option<u64>,
    pub(super) rest: Rest,
    /// Update calls in a row that were refused, without the subnet's word for it.
    pub(super) refusals: u32,
    /// Time since any moment.
    pub(super) clock: Clock,
    /// A user should read this next.
    pub(super) note: Option<String>,
    pub(super) figures: Figures,
}

/// Time since any moment.
pub type Clock = Box<dyn Fn() -> Duration + Send>;

impl<'a, T: Reach, C: Checkpoint> Engine<'a, T, C> {
    /// Opens an engine that continues at the database's cursor. A run that acknowledges begins a block anew if parts of the block
    /// came by query, and confirms whole blocks that came by query before it acknowledges anything.
    ///
    /// # Errors
    /// When the database fails.
    pub fn open(client: &'a Client<T>, mut store: Store, options: Options, checkpoint: C) -> Result<Self> {
        let (cursor, at) = store.load()?;
        let unconfirmed = match options.by_query() {
            true => None,
            false => store.unconfirmed_from(0, 1)?.map(|(first, _)| first),
        };
        // The canister has the first word on blocks that came by query, because there may have been a reorg.
        let heard = options.ack_every.is_some() && at.tip.is_some() && unconfirmed.is_none();
        let next = if heard { Next::Acknowledge } else { Next::Pull };
        let began = Instant::now();
        let mut engine = Self {
            client,
            store,
            checkpoint,
            options,
            next,
            cursor,
            at,
            acknowledged: None,
            pending: 0,
            refused: None,
            at_rest: false,
            doubt: false,
            unconfirmed,
            lost: None,
            disputed: None,
            head: None,
            rest: Rest::default(),
            refusals: 0,
            clock: Box::new(move || began.elapsed()),
            note: None,
            figures: Figures::default(),
        };
        if !options.by_query() {
            engine.forget_unconfirmed()?;
        }
        Ok(engine)
    }

    /// Uses another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// What was done so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Counts steps that were tried again.
    pub fn count_retried(&mut self, steps: u64) {
        self.figures.retried += steps;
    }

    /// The database.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Number of the newest stored block.
    pub fn tip(&self) -> Option<u64> {
        self.at.tip.as_ref().map(|tip| tip.number)
    }

    /// Goes on until there is nothing to pull. Answers what a user should read.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn catch_up(&mut self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        loop {
            match self.step()? {
                Event::CaughtUp => return Ok(notes),
                Event::Behind(note) => {
                    notes.push(note);
                    return Ok(notes);
                }
                Event::Note(note) => notes.push(note),
                Event::Went | Event::Stored => {}
            }
        }
    }

    /// Acknowledges what is stored and was not acknowledged yet, where acknowledging is asked for.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn acknowledge_all(&mut self) -> Result<()> {
        let may = self.unconfirmed.is_none() && self.is_behind_with_acks();
        if may { self.acknowledge().map(drop) } else { Ok(()) }
    }

    /// Does the next step. After an error of the transport the same may be tried again.
    ///
    /// # Errors
    /// When the canister cannot be reached, hands out what does not fit or is damaged, or does not accept the
    /// acknowledgement; when the database fails.
    pub fn step(&mut self) -> Result<Event> {
        match std::mem::replace(&mut self.next, Next::Pull) {
            Next::Acknowledge if self.unconfirmed.is_some() => self.confirm(),
            Next::Acknowledge => self.acknowledge(),
            Next::Pull => self.pull(),
            Next::Confirm => self.confirm(),
            Next::Compare(headers) => self.compare(headers),
            Next::Rest => {
                self.at_rest = true;
                Ok(Event::CaughtUp)
            }
        }
    }

    /// True if the last page had the head, as an update call said: then no other page need be asked for.
    pub(super) fn is_at_head(&self) -> bool {
        self.head.is_some() && self.head == self.tip() && self.at.block.is_none()
    }

    pub(super) fn is_behind_with_acks(&self) -> bool {
        self.options.ack_every.is_some()
            && self.at.tip.is_some()
            && self.at.tip != self.acknowledged
            && self.at.tip != self.refused
    }

    fn acknowledge(&mut self) -> Result<Event> {
        let Some(tip) = self.at.tip.clone() else { return Ok(Event::Went) };
        self.checkpoint.reached(Step::Acknowledge)?;
        let answer = match self.client.ack_exported(tip.number, &tip.hash[..].into()).wait() {
            Err(error) => {
                // Acknowledge again: the error may pass.
                self.next = Next::Acknowledge;
                // A caller without the role is not even heard: the status says whether that is why.
                if is_rejected(&error) {
                    ensure_registered(self.client, Word::Update)?;
                }
                return Err(error);
            }
            Ok(answer) => answer,
        };
        self.pending = 0;
        match answer {
            Ok(bound) => {
                self.figures.acks += 1;
                self.figures.acknowledged_before = Some(bound);
                self.acknowledged = Some(tip);
                self.refused = None;
                self.next = if self.is_at_head() { Next::Rest } else { Next::Pull };
            }
            Err(AckError::NotRegistered { .. }) => return Err(not_registered(self.client)),
            // Either the next page tells of a reorg, or a later block can be acknowledged.
            Err(error) => {
                let note = format!("block {} is not acknowledged yet: {error:?}", tip.number);
                self.refused = Some(tip);
                self.checkpoint.reached(Step::Acknowledged)?;
                return Ok(Event::Note(note));
            }
        }
        self.checkpoint.reached(Step::Acknowledged)?;
        Ok(Event::Went)
    }

    fn pull(&mut self) -> Result<Event> {
        self.checkpoint.reached(Step::Pull)?;
        let (answer, word) = self.ask()?;
        self.checkpoint.reached(Step::Pulled)?;
        if word == Word::Update {
            self.at_rest = answer.as_ref().is_ok_and(|page| page.chunks.is_empty());
        }
        let page = match answer {
            Ok(page) => page,
            Err(error) => return self.no_page(error, word),
        };
        let rollbacks = |cursor: Option<&ExportCursor>| cursor.map_or(0, |cursor| cursor.rollbacks);
        if word == Word::Query && rollbacks(page.cursor.as_ref()) < rollbacks(self.cursor.as_ref()) {
            // It would hand out what was rolled back since.
            return Ok(Event::Behind("a replica that has not come to the last reorg answers: it is late".into()));
        }
        self.head = page.head.filter(|_| word == Word::Update);
        if word == Word::Update {
            self.figures.head = page.head;
        }
        let Some(first) = page.chunks.first() else {
            self.measure_lag(self.at.expected);
            if self.is_behind_with_acks() {
                self.next = Next::Acknowledge;
                return Ok(Event::Went);
            }
            return Ok(self.note.take().map_or(Event::CaughtUp, Event::Note));
        };
        self.measure_lag(self.at.expected.or(Some(first.number)));
        if word == Word::Update && self.cursor.is_none() {
            self.store.hear_pruned(first.number);
        }
        if self.at.restart && self.at.expected.is_some_and(|expected| first.number < expected) {
            // What was asked for before was pruned, says the canister, and now it hands out what lies before that.
            return Ok(Event::Behind(late(page.head)));
        }
        let whole = self.cursor.as_ref().filter(|at| usize::from(at.segment) >= SEGMENTS);
        if whole.is_some_and(|at| at.number.checked_add(1) == Some(first.number) && at.hash != first.parent_hash) {
            let number = first.number;
            let why = format!("block {number} was handed out with another parent than the block that was read last");
            return self.misfit(word, Misfit(why));
        }
        if let Some(tip) = self.at.tip.as_ref().filter(|_| self.at.restart && self.at.is_stranger(first)) {
            // Of the blocks before the oldest kept one no more is known than the last one's hash.
            let ancestor = tip.number.saturating_sub(1);
            self.refuse_below_pruned(ancestor)?;
            return self.roll_back(&RollBack::above(Some(ancestor), None));
        }
        self.store_page(&page, word)
    }

    fn no_page(&mut self, error: ExportError, word: Word) -> Result<Event> {
        match error {
            ExportError::Pruned { first_available, common_ancestor } => {
                ensure!(
                    self.cursor.is_some(),
                    "the canister says that its oldest block, {first_available}, was pruned"
                );
                self.store.hear_pruned(first_available);
                // There was a reorg as well: what is above the ancestor is not of this chain.
                let common_ancestor = common_ancestor.filter(|&common| self.tip() > Some(common));
                let ancestor = common_ancestor.map(|common| self.shared(common)).transpose()?;
                if let Some(ancestor) = ancestor.filter(|&ancestor| self.tip() > Some(ancestor)) {
                    self.refuse_below_pruned(ancestor)?;
                    return self.roll_back(&RollBack::above(Some(ancestor), None));
                }
                self.cursor = None;
                self.at.block = None;
                self.at.restart = true;
                let next = self.at.expected.unwrap_or_default();
                Ok(Event::Note(format!(
                    "block {next} was pruned before it was indexed: a gap is left, and block {first_available} or the \
                     oldest kept one is the next"
                )))
            }
            ExportError::Reorged { common_ancestor, cursor } => self.reorged(common_ancestor, cursor),
            ExportError::Reset { .. } => self.reset(),
            // Blocks that came by query may never have been.
            ExportError::Behind { .. } if word == Word::Update && self.unconfirmed.is_some() => {
                self.next = Next::Confirm;
                Ok(Event::Went)
            }
            ExportError::Behind { head } => Ok(Event::Behind(late(head))),
            ExportError::BadCursor { why } => {
                let why = format!(
                    "the canister does not know the place where this database is ({why}): the database is of another chain, \
                     or the canister was installed anew. Nothing was changed"
                );
                if self.unconfirmed.is_some() {
                    (self.lost, self.next) = (Some(why), Next::Confirm);
                    return Ok(Event::Went);
                }
                self.misfit(Word::Update, Misfit(why))
            }
            ExportError::Corrupt { number, why, next } => {
                ensure!(
                    self.options.skip_damaged,
                    "the canister cannot read block {number}: {why}; --skip-damaged leaves it out"
                );
                let Some(cursor) = next else {
                    // It may be replaced, and is passed as soon as another one follows.
                    if self.is_behind_with_acks() {
                        self.next = Next::Acknowledge;
                        return Ok(Event::Went);
                    }
                    return Ok(Event::Behind(format!("the canister cannot read its head, block {number}: {why}")));
                };
                let last = if usize::from(cursor.segment) >= SEGMENTS {
                    Some(cursor.number)
                } else {
                    cursor.number.checked_sub(1)
                };
                let fits = |expected: u64| expected == number || self.at.restart && expected < number;
                let Some(last) = last.filter(|&last| last >= number && self.at.expected.is_none_or(fits)) else {
                    bail!("the canister cannot read block {number} and goes on with {cursor:?}, which does not fit");
                };
                self.skip(number, last, &why, cursor)
            }
        }
    }

    /// Blocks from here to the head, as an update call said last.
    pub(super) fn measure_lag(&mut self, expected: Option<u64>) {
        let behind = |head: u64| head.saturating_add(1).saturating_sub(expected.unwrap_or(head));
        self.figures.lag = self.figures.head.map(behind);
        self.figures.largest_lag = self.figures.largest_lag.max(self.figures.lag);
    }
}

pub(super) fn late(head: Option<u64>) -> String {
    let head = head.map_or("nothing".into(), |head| format!("block {head}"));
    format!(
        "the canister answers with {head} as its head, which is behind what was indexed: a replica that is late, or, where it \
         goes on, a canister that was installed anew"
    )
}

/// Checks that the caller may acknowledge, by one replica's word or the canister's.
///
/// # Errors
/// When the caller is not a registered exporter, as [`Hearsay`] where that is one replica's word; when the canister cannot be reached.
pub(super) fn ensure_registered<T: Reach>(client: &Client<T>, word: Word) -> Result<()> {
    let principal = client.transport().principal(Role::Exporter);
    if principal == Principal::anonymous() {
        return Err(not_registered(client));
    }
    let status = match word {
        Word::Query => client.get_export_status().wait(),
        Word::Update => client.replicated().get_export_status().wait(),
    };
    match status {
        Ok(status) if status.exporters.iter().any(|exporter| exporter.principal == Some(principal)) => Ok(()),
        Ok(_) if word == Word::Update => Err(not_registered(client)),
        Ok(_) => Err(Hearsay(format!("a replica says that {:#}", not_registered(client))).into()),
        // The ingress filter lets nobody without a role ask.
        Err(error) if is_rejected(&error) => Err(error.context(not_registered(client))),
        Err(error) => Err(error),
    }
}

fn not_registered<T: Reach>(client: &Client<T>) -> anyhow::Error {
    let principal = client.transport().principal(Role::Exporter);
    if principal == Principal::anonymous() {
        return anyhow!(
            "nobody in particular cannot acknowledge: say who it is with --identity, or read with --no-ack"
        );
    }
    anyhow!(
        "{principal} is no registered exporter, so it may not acknowledge; the operator registers it with \
         register_exporter(record {{ name = \"indexer\"; \"principal\" = principal \"{principal}\" }}), an admin under a name whose key was \
         revoked (get_export_status); or --no-ack reads without acknowledging"
    )
}
