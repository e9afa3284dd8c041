//! Run: three phases over the ordered indexes at fixed heights, as far as a tick's budget goes. An interrupted run continues at its place
//! (`place.rs`) in the next tick.

use super::delete::DeleteAtHeight;
use super::phase::{Context, Done, Phase, Step};
use super::place::{At, Durations, Run};
use super::preserve::{ExpirePreservations, PreserveLate, PreserveParents};
use super::stores::Records;
use crate::pruning::blocks::Limiter;
use crate::storage::memory::growth;
use crate::utxo::{Candidate, Cursor, LATE, LOOKUP_PAGES, Next};
use coppice_interface::{
    PruneProgress, StopReason, UtxoJobEnd, UtxoPruneCounts, UtxoPrunerPhase, UtxoPrunerSettings, UtxoRefusal,
};

/// Pages of records and of their table that a tick changes: 68 MiB, of the 75 above which the platform slows a canister down.
pub const MOST_PAGES: u64 = 17_408;
/// Pages that a tick reads of records, of their table and of lists of double spends: the platform lets a message read 524,288, and some of
/// what is read lies on one page more.
const MOST_READ: u64 = 310_000;

/// What a message may do.
pub struct Budget {
    /// Ops and instructions.
    pub limiter: Limiter,
    /// Records of phase 2.
    pub records: u64,
    /// Steps.
    pub pieces: u64,
    /// Only this one, if it is the next.
    pub only: Option<At>,
    /// The next one, which was not done.
    pub found: Option<At>,
}

impl Budget {
    /// What the settings allow.
    pub fn new(settings: &UtxoPrunerSettings) -> Self {
        Self {
            limiter: Limiter::new(settings.max_ops_per_tick, settings.max_instructions_per_tick),
            records: u64::from(settings.utxo_chunk_size) * u64::from(settings.utxo_chunk_group_limit),
            pieces: u64::MAX,
            only: None,
            found: None,
        }
    }

    /// Whether a step is not to be done in this message: then it is noted.
    fn leaves(&mut self, at: At) -> bool {
        let another = self.only.is_some_and(|only| only != at);
        if self.pieces == 0 || another {
            self.found = Some(at);
            return true;
        }
        self.pieces -= 1;
        false
    }
}

/// What a run goes by, beside its heights.
pub struct Terms<'a> {
    /// The settings in force.
    pub settings: &'a UtxoPrunerSettings,
    /// Unmined records that cannot be read and were set aside.
    pub set_aside: &'a [Cursor],
    /// Records that are left alone.
    pub passed_over: &'a [At],
    /// Unix nanoseconds.
    pub now_ns: u64,
}

/// Continues a run within a budget. Being interrupted is a value, not an error.
///
/// # Errors
/// Why the run ends before its end.
pub fn go_on(
    run: &mut Run,
    records: &mut Records,
    terms: &Terms,
    budget: &mut Budget,
    counts: &mut UtxoPruneCounts,
    durations: &mut Durations,
) -> Result<PruneProgress, UtxoJobEnd> {
    loop {
        // What is old and unmined goes first, whenever it came.
        if records.utxo.has_late(run.cutoff) {
            let mut driver = Driver { run: &mut *run, records: &mut *records, terms, counts: &mut *counts };
            if let Some(reason) = driver.late(budget)? {
                return Ok(PruneProgress::HasMore { reason: Some(reason) });
            }
        }
        let mut driver = Driver { run: &mut *run, records: &mut *records, terms, counts: &mut *counts };
        let stopped = match driver.run.phase {
            UtxoPrunerPhase::PreserveParents => driver.drive::<PreserveParents>(budget)?,
            UtxoPrunerPhase::ExpirePreservations => driver.drive::<ExpirePreservations>(budget)?,
            UtxoPrunerPhase::DeleteAtHeight => driver.drive::<DeleteAtHeight>(budget)?,
        };
        if let Some(reason) = stopped {
            return Ok(PruneProgress::HasMore { reason: Some(reason) });
        }
        let (seconds, ended) = &mut durations[run.phase as usize];
        *seconds += terms.now_ns.saturating_sub(run.phase_since) / 1_000_000_000;
        *ended += 1;
        match run.phase {
            UtxoPrunerPhase::PreserveParents => run.enter(UtxoPrunerPhase::ExpirePreservations, terms.now_ns),
            UtxoPrunerPhase::ExpirePreservations => run.enter(UtxoPrunerPhase::DeleteAtHeight, terms.now_ns),
            UtxoPrunerPhase::DeleteAtHeight => return Ok(PruneProgress::Finished),
        }
    }
}

/// A run with all that it works with.
struct Driver<'a, 'r> {
    run: &'a mut Run,
    records: &'a mut Records<'r>,
    terms: &'a Terms<'a>,
    counts: &'a mut UtxoPruneCounts,
}

impl Driver<'_, '_> {
    /// Looks at the old unmined records that entered late, at a place of their own.
    fn late(&mut self, budget: &mut Budget) -> Result<Option<StopReason>, UtxoJobEnd> {
        let first = Cursor { key: LATE, ..Cursor::default() };
        let (cursor, part) = (std::mem::replace(&mut self.run.cursor, first), self.run.part.take());
        self.run.part = self.run.late.take();
        self.run.come_to = Some(cursor.key);
        let stopped = self.drive::<PreserveLate>(budget);
        self.run.late = self.run.part.take();
        (self.run.cursor, self.run.part, self.run.come_to) = (cursor, part, None);
        stopped
    }

    /// Whether a record is left alone. Its key may have changed since.
    fn is_passed_over(&self, at: &At) -> bool {
        let is = |other: &At| {
            let (cursor, known) = (&at.cursor, &other.cursor);
            at.phase == other.phase && cursor.slot == known.slot && cursor.txid == known.txid
        };
        self.terms.passed_over.iter().any(is)
    }

    /// How far a record is.
    fn done(&self, at: Cursor) -> Done {
        let inputs = self.run.part.filter(|(cursor, _)| *cursor == at).map_or(0, |(_, inputs)| inputs);
        let outputs = self
            .run
            .checked
            .filter(|(cursor, _, taken_back)| *cursor == at && *taken_back == self.records.utxo.taken_back());
        Done { inputs, outputs: outputs.map_or(0, |(_, outputs, _)| outputs) }
    }

    /// Does a phase to its end, or says why it stopped.
    fn drive<P: Phase>(&mut self, budget: &mut Budget) -> Result<Option<StopReason>, UtxoJobEnd> {
        let Some(last) = P::last(self.run, self.terms.settings) else { return Ok(None) };
        // The cursor's record may have moved since the last message: its key begins anew. In this message nobody moves it.
        let mut moved = None;
        if self.records.utxo.behind(P::ORDER, &self.run.cursor, last) == Next::Moved {
            moved = Some(self.run.cursor);
            self.run.cursor.slot = 0;
        }
        // The record behind one that has left, if it is the first under its key.
        let mut hint = None;
        loop {
            let first = hint.take().and_then(|hint| self.records.utxo.first_now(P::ORDER, hint)).map(Next::Record);
            let next = match first.unwrap_or_else(|| self.records.utxo.behind(P::ORDER, &self.run.cursor, last)) {
                Next::End => return Ok(None),
                Next::Record(next) if moved != Some(next) => next,
                Next::Record(_) | Next::Moved | Next::Broken => {
                    let at = moved.unwrap_or(self.run.cursor);
                    let why = format!("what follows it under {} in the index {:?}", at.key, P::ORDER);
                    self.with(|context| P::unreadable(context, &at, UtxoRefusal::Corrupt { why }, true))?;
                    let Some(key) = self.run.cursor.key.checked_add(1) else { return Ok(None) };
                    (self.run.cursor, self.run.part) = (Cursor { key, ..Cursor::default() }, None);
                    continue;
                }
            };
            let at = At { phase: P::PHASE, cursor: next };
            if budget.leaves(at) {
                return Ok(Some(StopReason::Ops));
            }
            self.records.utxo.note_read(LOOKUP_PAGES);
            let candidate = match self.is_passed_over(&at) {
                true => Err(UtxoRefusal::Corrupt { why: "looking at it trapped again and again".into() }),
                false => self.records.utxo.candidate(next.slot, Some((P::ORDER, next.key))),
            };
            let mut done = self.done(next);
            if done.outputs > 0 && candidate.as_ref().is_ok_and(|of| !self.records.utxo.is_checked(of)) {
                done.outputs = 0;
            }
            let new = done.outputs == 0 && self.run.part.is_none_or(|(cursor, _)| cursor != next);
            if let Some(reason) = self.stop::<P>(budget, candidate.as_ref().ok(), done, new) {
                return Ok(Some(reason));
            }
            let step = match &candidate {
                Ok(of) => {
                    let counts = *self.counts;
                    let step = self.with(|context| P::step(context, of, done));
                    // What had no room changed nothing, and is done again when there is some.
                    if growth::is_wanted() && matches!(step, Ok(Step::Stays) | Err(_)) {
                        *self.counts = counts;
                        return Ok(Some(StopReason::Memory));
                    }
                    step?
                }
                Err(error) => {
                    self.with(|context| P::unreadable(context, &next, error.clone(), false))?;
                    Step::Stays
                }
            };
            match (step, &candidate) {
                (Step::Left, of) => {
                    self.run.part = None;
                    let alone = self.run.cursor.slot == 0;
                    hint = of.as_ref().ok().filter(|_| alone).and_then(|of| of.next_in(P::ORDER));
                }
                (Step::More(inputs), _) => self.run.part = Some((next, inputs)),
                (Step::Checked(outputs), Ok(of)) => {
                    let taken_back = self.records.utxo.taken_back();
                    if done.outputs == 0 {
                        self.records.utxo.begin_check(of);
                    }
                    self.run.checked = Some((next, outputs, taken_back));
                }
                _ => (self.run.cursor, self.run.part) = (next, None),
            }
        }
    }

    /// Why the next step does not fit this message, if it does not.
    fn stop<P: Phase>(&self, budget: &mut Budget, of: Option<&Candidate>, done: Done, new: bool) -> Option<StopReason> {
        let settings = self.terms.settings;
        let ops = of.map_or(1, |of| P::ops(of, done, settings));
        let reads = of.map_or(0, |of| P::reads(of, done, settings));
        let changes = of.map_or(1, |of| P::changes(of, done));
        let counted = P::ORDER == DeleteAtHeight::ORDER && new;
        if counted && budget.records == 0 {
            return Some(StopReason::Chunks);
        }
        // No step reads or changes as much by itself.
        let utxo = &self.records.utxo;
        if utxo.pages_changed() + changes > MOST_PAGES || utxo.pages_read() + reads > MOST_READ {
            return Some(StopReason::Pages);
        }
        if let Err(reason) = budget.limiter.admit(ops) {
            return Some(reason);
        }
        budget.records -= u64::from(counted);
        None
    }

    fn with<T>(&mut self, run: impl FnOnce(&mut Context) -> T) -> T {
        let Self { records, terms: Terms { settings, set_aside, .. }, counts, .. } = self;
        let skipped = self.run.skipped.take();
        let mut context = Context { records, settings, set_aside, run: self.run, counts, skipped };
        let done = run(&mut context);
        self.run.skipped = context.skipped;
        done
    }
}
