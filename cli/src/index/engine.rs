//! The indexer as a state machine: each step asks the canister at most once, and changes the database in one transaction.
//!
//! ```text
//!  open ───┬─▶ Fill: rows of stored blocks that lack them
//!          ├────▶ Acknowledge ◀────┐ every `ack_every` blocks, and at the head
//!          │           ▼           │
//!          └─────────▶ Pull ──▶ a page ──────────▶ stored
//!                                Pruned ─────────▶ the next pull is from the oldest kept block; the gap is noted with that page
//!                                Corrupt ────────▶ the block is skipped
//!                                Reorged, Reset ─▶ rolled back
//!                                Restored ───────▶ blocks above the newest common one move to `orphaned` (`restore.rs`)
//! ```
//! Answers of queries are trusted only where nothing depends on them (`ask.rs`). Data and cursor are committed in one transaction, and only
//! committed blocks are acknowledged. So a run may end between any two steps: the next run opens the database, acknowledges its blocks
//! again (which changes nothing if the first acknowledgement arrived), and continues at the cursor, even in the middle of a block. After the
//! connection to the database has ended, the next step does the same, whatever became of the last commit.

use super::assemble::{Assembly, Misfit, SEGMENTS, Tip};
use super::rest::Rest;
use super::steps::{Checkpoint, Event, Figures, Onward, Options, RollBack, Step, Word};
use super::store::Store;
use crate::client::{Client, Reach};
use crate::report::blocks;
use anyhow::{Result, bail, ensure};
use coppice_interface::{BlockHeader, ExportCursor, ExportError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The next step.
#[derive(Debug)]
pub(super) enum Next {
    /// Make the rows of stored blocks that lack them.
    Fill,
    Acknowledge,
    /// Ask for a page and process it.
    Pull,
    /// The last page was at the head.
    Rest,
    /// Ask for the headers of blocks that came by query.
    Confirm,
    /// Compare these headers with the stored blocks.
    Compare(VecDeque<BlockHeader>),
}

/// The indexer: pulls, verifies, stores and acknowledges.
pub struct Engine<'a, T, C = Onward> {
    pub(super) client: &'a Client<T>,
    pub(super) store: Store,
    pub(super) checkpoint: C,
    pub(super) options: Options,
    pub(super) next: Next,
    pub(super) cursor: Option<ExportCursor>,
    pub(super) at: Assembly,
    pub(super) acknowledged: Option<Tip>,
    /// Blocks since the last acknowledgement.
    pub(super) pending: u64,
    /// The block whose acknowledgement the canister refused; the cause may be a reorg, which the next page reports.
    pub(super) refused: Option<Tip>,
    /// The last update call returned nothing after the cursor. Holds until a query reports something new.
    pub(super) at_rest: bool,
    /// A query's answer did not fit, so the next block is asked for by an update call.
    pub(super) doubt: bool,
    /// The first block that may be unconfirmed and that the canister may still have. Nothing is acknowledged before this is `None`.
    pub(super) unconfirmed: Option<u64>,
    /// The cursor's block was never part of the canister's chain, perhaps because a replica forged blocks; else this is the reason to
    /// [`restore`](Self::restore).
    pub(super) lost: Option<String>,
    /// The canister's last page was `Restored`.
    pub(super) restored: bool,
    /// The last block that differed from the subnet's although the block below was confirmed, and the page after it was already requested.
    pub(super) disputed: Option<u64>,
    /// The head in the last page, if an update call returned the page.
    pub(super) head: Option<u64>,
    pub(super) rest: Rest,
    /// Consecutive update calls that were refused without the subnet's certificate.
    pub(super) refusals: u32,
    /// Monotonic time since an arbitrary moment.
    pub(super) clock: Clock,
    /// A note for the user, to be returned next.
    pub(super) note: Option<String>,
    pub(super) figures: Figures,
}

/// Monotonic time since an arbitrary moment.
pub type Clock = Box<dyn Fn() -> Duration + Send>;

impl<'a, T: Reach, C: Checkpoint> Engine<'a, T, C> {
    /// Opens an engine that continues at the database's cursor. A run that acknowledges discards a block whose parts came by query, and
    /// confirms whole blocks that came by query before it acknowledges anything.
    ///
    /// # Errors
    /// When the database fails.
    pub fn open(client: &'a Client<T>, store: Store, options: Options, checkpoint: C) -> Result<Self> {
        let began = Instant::now();
        let mut engine = Self {
            client,
            store,
            checkpoint,
            options,
            next: Next::Pull,
            cursor: None,
            at: Assembly::default(),
            acknowledged: None,
            pending: 0,
            refused: None,
            at_rest: false,
            doubt: false,
            unconfirmed: None,
            lost: None,
            restored: false,
            disputed: None,
            head: None,
            rest: Rest::default(),
            refusals: 0,
            clock: Box::new(move || began.elapsed()),
            note: None,
            figures: Figures::default(),
        };
        engine.begin()?;
        Ok(engine)
    }

    /// Reads the position of the copy from the database, and plans the first step.
    fn begin(&mut self) -> Result<()> {
        (self.cursor, self.at) = self.store.load()?;
        self.unconfirmed = match self.options.by_query() {
            true => None,
            false => self.store.unconfirmed_from(0, 1)?.map(|(first, _)| first),
        };
        (self.acknowledged, self.refused, self.lost, self.disputed) = (None, None, None, None);
        (self.at_rest, self.restored, self.head) = (false, false, None);
        self.store.fill_tables(self.options.tables);
        let unfilled = self.store.count_unfilled()?;
        self.next = if unfilled == 0 { self.after_fill() } else { Next::Fill };
        if unfilled > 0 {
            self.note = Some(format!(
                "{} in the database lack rows in the tables keys or receipts: the rows are made from the stored segments before new \
                 blocks come",
                blocks(unfilled)
            ));
        }
        if !self.options.by_query() {
            self.forget_unconfirmed()?;
        }
        Ok(())
    }

    /// Opens the database again, after which the copy continues at the position that is committed there.
    fn reopen(&mut self) -> Result<Event> {
        self.store.reopen()?;
        self.begin()?;
        self.measure_lag(self.at.expected);
        let place = self.tip().map_or("its first block".into(), |tip| format!("block {tip}"));
        Ok(Event::Note(format!("the database is open again: the copy has reached {place}")))
    }

    /// Uses another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the run's counts so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Adds retried steps to the counts.
    pub fn count_retried(&mut self, steps: u64) {
        self.figures.retried += steps;
    }

    /// Returns the database.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Returns whether the next step makes rows of blocks that were stored earlier.
    pub fn is_filling(&self) -> bool {
        matches!(self.next, Next::Fill)
    }

    /// Returns the number of the newest stored block.
    pub fn tip(&self) -> Option<u64> {
        self.at.tip.as_ref().map(|tip| tip.number)
    }

    /// Runs steps until there is nothing to pull. Returns notes for the user.
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

    /// Runs the next step. After an error of the transport the step may be repeated. After the connection to the database has ended, the
    /// next step opens it again.
    ///
    /// # Errors
    /// When the canister cannot be reached, hands out data that does not fit or is damaged, or refuses the acknowledgement; when the
    /// database fails.
    pub fn step(&mut self) -> Result<Event> {
        if self.store.is_lost() {
            return self.reopen();
        }
        match std::mem::replace(&mut self.next, Next::Pull) {
            Next::Fill => self.fill(),
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

    /// Makes the rows of some stored blocks that lack them, in one transaction.
    fn fill(&mut self) -> Result<Event> {
        self.next = Next::Fill;
        if let Some(note) = self.note.take() {
            return Ok(Event::Note(note));
        }
        self.checkpoint.reached(Step::Write)?;
        let (checkpoint, cursor) = (&mut self.checkpoint, self.cursor.clone());
        let filled = self.store.change(|change| {
            let filled = change.fill()?;
            checkpoint.reached(Step::Written)?;
            Ok((filled, cursor))
        })?;
        self.figures.filled_blocks += filled;
        if !self.store.has_unfilled()? {
            self.next = self.after_fill();
        }
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Went)
    }

    /// Returns the first step that asks the canister. A run with unconfirmed blocks pulls first, because there may have been a reorg.
    fn after_fill(&self) -> Next {
        let may_acknowledge = self.options.ack_every.is_some() && self.at.tip.is_some() && self.unconfirmed.is_none();
        if may_acknowledge { Next::Acknowledge } else { Next::Pull }
    }

    /// Returns whether an update call's last page ended at the head, so that no other page is needed.
    pub(super) fn is_at_head(&self) -> bool {
        self.head.is_some() && self.head == self.tip() && self.at.block.is_none()
    }

    fn pull(&mut self) -> Result<Event> {
        self.checkpoint.reached(Step::Pull)?;
        let (answer, word) = self.ask()?;
        self.checkpoint.reached(Step::Pulled)?;
        if word == Word::Update {
            self.at_rest = answer.as_ref().is_ok_and(|page| page.chunks.is_empty());
            self.restored = matches!(answer, Err(ExportError::Restored { .. }));
        }
        let page = match answer {
            Ok(page) => page,
            Err(error) => return self.no_page(error),
        };
        let rollbacks = |cursor: Option<&ExportCursor>| cursor.map_or(0, |cursor| cursor.rollbacks);
        if word == Word::Query && rollbacks(page.cursor.as_ref()) < rollbacks(self.cursor.as_ref()) {
            // The late replica would hand out blocks that were rolled back since.
            return Ok(Event::Behind("the replica that answered is late: it has not processed the last reorg".into()));
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
            self.store.note_pruned(first.number);
        }
        if self.at.restart && self.at.expected.is_some_and(|expected| first.number < expected) {
            // The canister reported blocks as pruned, but now hands out older ones.
            return Ok(Event::Behind(late(page.head)));
        }
        let whole = self.cursor.as_ref().filter(|at| usize::from(at.segment) >= SEGMENTS);
        let is_other = |at: &&ExportCursor| first.parent_hash.as_ref().is_some_and(|parent| at.hash != *parent);
        if whole.filter(is_other).is_some_and(|at| at.number.checked_add(1) == Some(first.number)) {
            let number = first.number;
            let why = format!("block {number} was handed out with a parent other than the block that was read last");
            return self.misfit(word, Misfit(why));
        }
        if let Some(tip) = self.at.tip.as_ref().filter(|_| self.at.restart && self.at.is_stranger(first)) {
            // The canister has pruned all blocks before its oldest one; only the hash of the last of them is known.
            let ancestor = tip.number.saturating_sub(1);
            self.refuse_below_pruned(ancestor)?;
            return self.roll_back(&RollBack::above(Some(ancestor), None));
        }
        self.store_page(&page, word)
    }

    fn no_page(&mut self, error: ExportError) -> Result<Event> {
        match error {
            ExportError::Pruned { first_available, common_ancestor } => {
                ensure!(self.cursor.is_some(), "the canister reports its oldest block, {first_available}, as pruned");
                self.store.note_pruned(first_available);
                // There was also a reorg: blocks above the ancestor are not part of this chain.
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
                    "block {next} was pruned before it was indexed: a gap is recorded, and the index continues at block \
                     {first_available} or the oldest kept block"
                )))
            }
            ExportError::Reorged { common_ancestor, cursor } => {
                // Without an end, the run would roll back to the same cursor.
                ensure!(
                    self.cursor.as_ref() != Some(&cursor),
                    "the canister reports a reorg above block {common_ancestor}, and again after the cursor that it named"
                );
                self.reorged(common_ancestor, cursor)
            }
            ExportError::Reset { .. } => {
                ensure!(
                    self.cursor.is_some(),
                    "the canister reports a reset, although it was asked for its oldest block"
                );
                self.reset()
            }
            ExportError::Behind { head } => Ok(Event::Behind(late(head))),
            ExportError::Restored { head } => self.is_restored(head),
            ExportError::BadCursor { why } => {
                let why = format!(
                    "the canister does not know this database's position in the chain ({why}): the database holds another chain, \
                     or the canister was installed anew. Nothing was changed"
                );
                self.misfit(Word::Update, Misfit(why))
            }
            ExportError::Other { code, message } => bail!("the canister refuses the page ({code}): {message}"),
            ExportError::Corrupt { number, why, next } => {
                ensure!(
                    self.options.skip_damaged,
                    "the canister cannot read block {number}: {why}; use --skip-damaged to skip it"
                );
                let Some(cursor) = next else {
                    // The head may be replaced, and can be skipped as soon as another block follows.
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
                    bail!(
                        "the canister cannot read block {number}: {why}; it continues at {}, which does not fit",
                        place(&cursor)
                    );
                };
                self.skip(number, last, &why, cursor)
            }
        }
    }

    /// Measures the lag: blocks from `expected` to the head that the last update call named.
    pub(super) fn measure_lag(&mut self, expected: Option<u64>) {
        let behind = |head: u64| head.saturating_add(1).saturating_sub(expected.unwrap_or(head));
        self.figures.lag = self.figures.head.map(behind);
        self.figures.largest_lag = self.figures.largest_lag.max(self.figures.lag);
    }
}

/// Returns a cursor's place as a text for the user.
pub(super) fn place(cursor: &ExportCursor) -> String {
    format!("block {}, segment {}, byte {}", cursor.number, cursor.segment, cursor.offset)
}

pub(super) fn late(head: Option<u64>) -> String {
    let head = head.map_or("nothing".into(), |head| format!("block {head}"));
    format!(
        "the canister reports {head} as its head, which is lower than the indexed blocks: the replica is late or, if this lasts, \
         the canister was installed anew"
    )
}
