//! The indexer as a state machine: every step does one thing, and what it does to the database is one transaction.
//!
//! ```text
//!          ┌────────────▶ Acknowledge ◀───────────┐ every so many blocks, and at the head
//!  open ───┤                   ▼                  │
//!          └─────────────────▶ Pull ──page──▶ Store
//!                              ▲ │
//!                              │ ├──Pruned──▶ (pull from the oldest kept block; the gap is noted with the next page)
//!                              │ ├──Corrupt─▶ Skip
//!                              │ └──Reorged─▶ FindAncestor ──▶ RollBack
//!                              └────────────────────────────────────┘
//! ```
//! Data and cursor are one transaction, and only what is committed is acknowledged. So a run may end between any two steps:
//! the next one opens the database, acknowledges again what is in it (which changes nothing where it was heard), and goes on
//! at the cursor, in the middle of a block where that is where it was.

use super::assemble::{Assembly, SEGMENTS, Tip};
use super::reorg::RollBack;
use super::steps::{Checkpoint, Event, Figures, Onward, Options, Step};
use super::store::Store;
use crate::canister::{Caller, Client, Transport, Unreachable};
use anyhow::{Result, anyhow, bail, ensure};
use candid::Principal;
use coppice_canister::api::{AckError, ExportCursor, ExportError, ExportPage};

/// What the next step is.
#[derive(Debug)]
pub(super) enum Next {
    Acknowledge,
    Pull,
    /// At the head, as the last page said.
    Rest,
    Store(ExportPage),
    FindAncestor {
        up_to: Option<u64>,
        rollbacks: u64,
        told: bool,
    },
    RollBack(RollBack),
    Skip {
        number: u64,
        last: u64,
        why: String,
        cursor: ExportCursor,
    },
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
    pub(super) figures: Figures,
}

impl<'a, T: Transport, C: Checkpoint> Engine<'a, T, C> {
    /// Goes on where the database is.
    ///
    /// # Errors
    /// When the database fails.
    pub fn open(client: &'a Client<T>, mut store: Store, options: Options, checkpoint: C) -> Result<Self> {
        let (cursor, at) = store.load()?;
        let next = if options.ack_every.is_some() && at.tip.is_some() { Next::Acknowledge } else { Next::Pull };
        Ok(Self {
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
            figures: Figures::default(),
        })
    }

    /// What was done so far.
    pub fn figures(&self) -> Figures {
        self.figures
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
        if self.is_behind_with_acks() { self.acknowledge().map(drop) } else { Ok(()) }
    }

    /// Does the next step. After an error of the transport the same may be tried again.
    ///
    /// # Errors
    /// When the canister cannot be reached, hands out what does not fit or is damaged, or does not accept the
    /// acknowledgement; when the database fails.
    pub fn step(&mut self) -> Result<Event> {
        match std::mem::replace(&mut self.next, Next::Pull) {
            Next::Acknowledge => self.acknowledge(),
            Next::Pull => self.pull(),
            Next::Rest => Ok(Event::CaughtUp),
            Next::Store(page) => self.store_page(&page),
            Next::FindAncestor { up_to, rollbacks, told } => self.find_ancestor(up_to, rollbacks, told),
            Next::RollBack(plan) => self.roll_back(&plan),
            Next::Skip { number, last, why, cursor } => self.skip(number, last, &why, cursor),
        }
    }

    /// Whether the last page had the head, so that there is no need to ask for another one to know.
    pub(super) fn is_at_head(&self) -> bool {
        self.figures.head.is_some() && self.figures.head == self.tip() && self.at.block.is_none()
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
        let answer = match self.client.ack_exported(tip.number, &tip.hash) {
            // One without the role is not even heard: the status says whether that is why.
            Err(error) if !error.is::<Unreachable>() => {
                ensure_registered(self.client)?;
                return Err(error);
            }
            answer => answer?,
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
            Err(AckError::NotRegistered) => return Err(not_registered(self.client)),
            // Not this block, but a later one.
            Err(AckError::Corrupt) => self.refused = Some(tip),
            Err(error @ (AckError::AboveHead { .. } | AckError::WrongHash { .. })) => {
                ensure!(
                    self.refused.as_ref() != Some(&tip),
                    "block {} is not acknowledged ({error:?}), and yet the canister tells of no reorg",
                    tip.number
                );
                self.refused = Some(tip);
            }
        }
        self.checkpoint.reached(Step::Acknowledged)?;
        Ok(Event::Went)
    }

    fn pull(&mut self) -> Result<Event> {
        self.checkpoint.reached(Step::Pull)?;
        let answer = self.client.export_blocks(self.cursor.as_ref(), self.options.page_bytes)?;
        self.checkpoint.reached(Step::Pulled)?;
        let page = match answer {
            Ok(page) => page,
            Err(error) => return self.no_page(error),
        };
        self.figures.head = page.head;
        let Some(first) = page.chunks.first() else {
            self.measure_lag(self.at.expected);
            if self.is_behind_with_acks() {
                self.next = Next::Acknowledge;
                return Ok(Event::Went);
            }
            return Ok(Event::CaughtUp);
        };
        self.measure_lag(self.at.expected.or(Some(first.number)));
        // Where a reorg began below what is kept, the canister may know no more than `Pruned`: what is handed out then lies
        // below what was indexed, or is of another chain.
        let told = self.at.restart && self.at.expected.is_some_and(|expected| first.number < expected);
        if told || self.at.is_stranger(first) {
            let rollbacks = page.cursor.as_ref().map_or(0, |cursor| cursor.rollbacks);
            self.next = Next::FindAncestor { up_to: self.tip(), rollbacks, told };
        } else {
            self.next = Next::Store(page);
        }
        Ok(Event::Went)
    }

    fn no_page(&mut self, error: ExportError) -> Result<Event> {
        match error {
            ExportError::Pruned { first_available, common_ancestor } => {
                ensure!(
                    self.cursor.is_some(),
                    "the canister says that its oldest block, {first_available}, was pruned"
                );
                // There was a reorg as well: what is above the ancestor is not of this chain.
                if let Some(common) = common_ancestor.filter(|&common| self.tip() > Some(common)) {
                    let to = self.store.newest_up_to(common)?;
                    let first = if to.is_none() { self.store.held()?.first } else { None };
                    let gap = first.zip(first_available.checked_sub(1));
                    self.next = Next::RollBack(RollBack { to, cursor: None, gap });
                    return Ok(Event::Went);
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
            ExportError::Reorged { common_ancestor, cursor } => {
                let own = self.store.newest_up_to(common_ancestor)?;
                let is_ancestor = |tip: &Tip| {
                    (tip.number, tip.hash.as_slice()) == (common_ancestor, cursor.hash.as_slice())
                        && cursor.number == common_ancestor
                };
                self.next = match own {
                    Some(tip) if is_ancestor(&tip) => {
                        Next::RollBack(RollBack { to: Some(tip), cursor: Some(cursor), gap: None })
                    }
                    own => {
                        let up_to = own.map(|tip| tip.number);
                        Next::FindAncestor { up_to, rollbacks: cursor.rollbacks, told: true }
                    }
                };
                Ok(Event::Went)
            }
            ExportError::Behind { head } => {
                let head = head.map_or("nothing".into(), |head| format!("block {head}"));
                Ok(Event::Behind(format!(
                    "the canister answers with {head} as its head, which is behind what was indexed: a replica that is late; \
                     where it goes on, the canister was installed anew"
                )))
            }
            ExportError::BadCursor { why } => bail!(
                "the canister does not know the place where this database is ({why}): the database is of another chain, or \
                 the canister was installed anew. Nothing was changed"
            ),
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
                    return Ok(Event::CaughtUp);
                };
                let last = if usize::from(cursor.segment) >= SEGMENTS {
                    Some(cursor.number)
                } else {
                    cursor.number.checked_sub(1)
                };
                let Some(last) = last.filter(|&last| last >= number && self.at.expected.is_none_or(|e| e == number))
                else {
                    bail!("the canister cannot read block {number} and goes on with {cursor:?}, which does not fit");
                };
                self.next = Next::Skip { number, last, why, cursor };
                Ok(Event::Went)
            }
        }
    }

    fn measure_lag(&mut self, expected: Option<u64>) {
        let behind = |head: u64| head.saturating_add(1).saturating_sub(expected.unwrap_or(head));
        self.figures.lag = self.figures.head.map_or(0, behind);
        self.figures.largest_lag = self.figures.largest_lag.max(self.figures.lag);
    }
}

/// Checks that the caller may acknowledge.
///
/// # Errors
/// When it is not a registered exporter; when the canister cannot be reached.
pub fn ensure_registered<T: Transport>(client: &Client<T>) -> Result<()> {
    let principal = client.transport().principal(Caller::Exporter);
    let registered = client.export_status()?.exporters.iter().any(|exporter| exporter.principal == principal);
    if registered { Ok(()) } else { Err(not_registered(client)) }
}

fn not_registered<T: Transport>(client: &Client<T>) -> anyhow::Error {
    let principal = client.transport().principal(Caller::Exporter);
    if principal == Principal::anonymous() {
        return anyhow!(
            "nobody in particular cannot acknowledge: say who it is with --identity, or read with --no-ack"
        );
    }
    anyhow!(
        "{principal} is no registered exporter, so it may not acknowledge; the operator registers it with \
         register_exporter(record {{ name = \"indexer\"; principal = principal \"{principal}\" }}), or --no-ack reads \
         without acknowledging"
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
