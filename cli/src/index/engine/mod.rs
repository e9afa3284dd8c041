//! The indexer as a state machine: each step asks the canister for one thing, and changes the database in one transaction.
//!
//! ```text
//!  open ──▶ Fill ──▶ Acknowledge ◀── every `ack_every` blocks, and at the head
//!                        ▼
//!            ┌──▶ Certify: the subnet's certificate ──▶ its head is the newest stored block: caught up
//!            │           ▼
//!            │       Headers, up to the certified seal; or Search for the newest common block, then Headers from there
//!            │           ▼ proved: rows that are not in the chain move to `orphaned`
//!            └────── Pull: pages of proved blocks ──▶ stored
//! ```
//! No row is stored or moved by the word of a replica. Four answers of update calls count besides certificates (`subnet.rs`): a block that
//! cannot be read, the header after it, the header before it, and a position of which no header is kept.
//!
//! Only committed blocks are acknowledged. A run may end between any two steps: the next run acknowledges its blocks again, which changes
//! nothing if the first acknowledgement arrived, and continues at the position in the database, even in the middle of a block. After the
//! connection to the database has ended, the next step does the same, whatever became of the last commit.

mod acknowledge;
mod certify;
mod headers;
mod pull;
mod remove;
mod subnet;
mod trust;

pub(super) use acknowledge::ensure_registered;

use super::ahead::Ahead;
use super::assemble::{Position, Tip, cursor_after};
use super::steps::{Checkpoint, Event, Figures, Onward, Options, Step};
use super::store::Store;
use crate::client::{CanisterClient, Client};
use crate::report::blocks;
use acknowledge::Acks;
use anyhow::Result;
use ic_coppice_interface::ExportCursor;
use pull::Misses;
use trust::Trust;

/// The next step.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Make the rows of stored blocks that lack them.
    Fill,
    Acknowledge,
    /// Ask for a certificate.
    Certify,
    /// Ask for headers up to the certified head.
    Headers,
    /// Compare headers with the stored blocks, from this block down.
    Search(u64),
    /// Ask for a page of proved blocks.
    Pull,
    /// Ask the subnet about the position.
    Ask,
    /// Ask the subnet for the header after a damaged block.
    Follow,
    /// Ask the subnet for the header before a damaged block.
    Anchor,
}

/// The indexer: proves, pulls, stores and acknowledges.
pub struct Engine<'a, T, C = Onward> {
    client: &'a Client<T>,
    store: Store,
    checkpoint: C,
    options: Options,
    task: Task,
    at: Position,
    ahead: Ahead,
    trust: Trust,
    acks: Acks,
    misses: Misses,
    figures: Figures,
}

impl<'a, T: CanisterClient, C: Checkpoint> Engine<'a, T, C> {
    /// Opens an engine that continues at the database's position.
    ///
    /// # Errors
    /// When the database fails.
    pub fn open(client: &'a Client<T>, store: Store, options: Options, checkpoint: C) -> Result<Self> {
        let mut engine = Self {
            client,
            store,
            checkpoint,
            options,
            task: Task::Certify,
            at: Position::default(),
            ahead: Ahead::default(),
            trust: Trust::default(),
            acks: Acks::default(),
            misses: Misses::default(),
            figures: Figures::default(),
        };
        engine.begin()?;
        Ok(engine)
    }

    /// Reads the position of the copy from the database, and plans the first step.
    fn begin(&mut self) -> Result<()> {
        self.at = self.store.load()?;
        (self.acks, self.ahead, self.misses) = (Acks::default(), Ahead::default(), Misses::default());
        self.trust = Trust::since(self.store.proof());
        self.store.fill_tables(self.options.tables);
        let unfilled = self.store.count_unfilled()?;
        self.task = if unfilled == 0 { self.after_fill() } else { Task::Fill };
        if unfilled > 0 {
            self.trust.note(format!(
                "{} in the database lack rows in the tables keys or receipts: the rows are made from the stored segments before new \
                 blocks come",
                blocks(unfilled)
            ));
        }
        Ok(())
    }

    /// Opens the database again, after which the copy continues at the position that is committed there.
    fn reopen(&mut self) -> Result<Event> {
        self.store.reopen()?;
        self.begin()?;
        let place = self.tip().map_or("its first block".into(), |tip| format!("block {tip}"));
        Ok(Event::Note(format!("the database is open again: the copy has reached {place}")))
    }

    /// Returns the run's counts so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    pub fn count_retried(&mut self, steps: u64) {
        self.figures.retried += steps;
    }

    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Returns whether the next step makes rows of blocks that were stored earlier.
    pub fn is_filling(&self) -> bool {
        matches!(self.task, Task::Fill)
    }

    /// Returns the number of blocks whose headers have come and whose payload has not.
    pub fn known_headers(&self) -> u64 {
        self.ahead.next() - self.ahead.from()
    }

    /// Returns the number of the newest stored block.
    pub fn tip(&self) -> Option<u64> {
        self.at.tip.as_ref().map(|tip| tip.number)
    }

    /// Returns the time of the newest certificate, in Unix nanoseconds.
    pub fn certified_at_ns(&self) -> Option<u64> {
        self.trust.certified().map(|certified| certified.time_ns)
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
    /// When the canister cannot be reached, its blocks are damaged, or it refuses the acknowledgement; when the chain is another one than
    /// the options allow; when the database fails.
    pub fn step(&mut self) -> Result<Event> {
        if self.store.is_lost() {
            return self.reopen();
        }
        match std::mem::replace(&mut self.task, Task::Certify) {
            Task::Fill => self.fill(),
            Task::Acknowledge => self.acknowledge(),
            Task::Certify => self.certify(),
            Task::Headers => self.headers(),
            Task::Search(from) => self.search(from),
            Task::Pull => self.pull(),
            Task::Ask => self.ask_subnet(),
            Task::Follow => self.follow(),
            Task::Anchor => self.anchor(),
        }
    }

    /// Makes the rows of some stored blocks that lack them, in one transaction.
    fn fill(&mut self) -> Result<Event> {
        self.task = Task::Fill;
        if let Some(note) = self.trust.take_note() {
            return Ok(Event::Note(note));
        }
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        let filled = self.store.change(|change| {
            let filled = change.fill()?;
            checkpoint.reached(Step::Written)?;
            Ok(filled)
        })?;
        self.figures.filled_blocks += filled;
        if !self.store.has_unfilled()? {
            self.task = self.after_fill();
        }
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Went)
    }

    /// Returns the first step that asks the canister.
    fn after_fill(&self) -> Task {
        if self.is_behind_with_acks() { Task::Acknowledge } else { Task::Certify }
    }

    /// Counts a lie, an answer that a certificate, a seal or a digest refutes, and names it.
    fn refuted(&mut self, why: &str) -> Event {
        self.figures.refuted += 1;
        Event::Behind(format!("an answer of a replica does not hold: {why}"))
    }

    fn cursor(&self) -> Option<ExportCursor> {
        let rollbacks = self.trust.proof().map_or(0, |proof| proof.rollbacks);
        if let Some(block) = &self.at.block {
            let (segment, offset) = (block.segment, block.received);
            let header = &block.header;
            return Some(ExportCursor { segment, offset, ..cursor_after(header.number, &header.hash, rollbacks) });
        }
        let next = if self.ahead.is_proved() { Some(self.ahead.from()) } else { self.at.expected };
        let before = next?.checked_sub(1)?;
        let own = self.at.tip.as_ref().filter(|tip| tip.number == before).map(|Tip { hash, .. }| &hash[..]);
        let hash = match own.or(self.ahead.parent().filter(|_| self.ahead.is_proved())) {
            Some(hash) => hash,
            // The copy begins with the canister's oldest block.
            None if self.at.expected.is_none() => return None,
            // The block before is damaged.
            None => &[],
        };
        Some(cursor_after(before, hash, rollbacks))
    }

    /// Measures the lag: blocks from the next one to the certified head.
    fn measure_lag(&mut self) {
        let expected = self.at.expected.or_else(|| self.trust.certified()?.kept.map(|kept| kept.first));
        let behind = |head: u64| head.saturating_add(1).saturating_sub(expected.unwrap_or(head));
        self.figures.lag = self.figures.head.map(behind);
        self.figures.largest_lag = self.figures.largest_lag.max(self.figures.lag);
    }
}
