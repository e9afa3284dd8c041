//! A run: three phases over the ordered indexes at fixed heights, as far as a tick's budget goes. Its place is data, kept with
//! what it did: whoever interrupts it, the next tick goes on there.

use super::Records;
use super::delete::DeleteAtHeight;
use super::phase::{Context, Phase, Step};
use super::preserve::{ExpirePreservations, PreserveParents};
use crate::api::{JobEnd, PruneCounts, PruneProgress, PrunerPhase, PrunerSettings, StopReason, UtxoError};
use crate::prune::Limiter;
use crate::utxo::{Cursor, Next};
use serde::{Deserialize, Serialize};

/// Pages of records and of their table that a tick changes: 68 MiB, of the 75 above which the platform slows a canister down.
const MOST_PAGES: u64 = 17_408;

/// The heights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heights {
    /// Where the chain is.
    pub current: u32,
    /// Records are deleted whose height is this one or lower.
    pub safe: u32,
    /// Unmined transactions below this height are old; 0: none is.
    pub cutoff: u32,
}

/// Heights and place of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// See there.
    pub heights: Heights,
    /// Where the run is.
    pub phase: PrunerPhase,
    /// Behind this record of the phase's index.
    cursor: Cursor,
    /// The record behind that, and from which input on it goes on.
    part: Option<(Cursor, u32)>,
    /// When the phase began, in Unix nanoseconds.
    phase_since: u64,
}

impl std::ops::Deref for Run {
    type Target = Heights;

    fn deref(&self) -> &Heights {
        &self.heights
    }
}

/// What a message may do.
pub struct Budget {
    /// Ops and instructions.
    pub limiter: Limiter,
    /// Records of phase 2.
    pub records: u64,
    /// Records that the job had deleted before.
    pub deleted: u64,
}

/// What a run goes by, beside its heights.
pub struct Terms<'a> {
    /// The settings in force.
    pub settings: &'a PrunerSettings,
    /// Unmined records that cannot be read and were set aside.
    pub set_aside: &'a [Cursor],
    /// Unix nanoseconds.
    pub now_ns: u64,
}

/// Seconds that phases took which ended, and how many of each kind ended.
pub type Durations = [(u64, u64); 3];

impl Run {
    /// A run from its beginning.
    pub fn begin(records: &mut Records, heights: Heights, now_ns: u64) -> Self {
        records.utxo.watch();
        let phase = PrunerPhase::PreserveParents;
        Self { heights, phase, cursor: Cursor::default(), part: None, phase_since: now_ns }
    }

    fn enter(&mut self, phase: PrunerPhase, now_ns: u64) {
        (self.phase, self.cursor, self.part, self.phase_since) = (phase, Cursor::default(), None, now_ns);
    }

    /// What has come since phase 1 looked: old unmined records, or records to delete whose children it may have passed by.
    /// Phase 1 looks again, from the lowest height of them on.
    fn look_again(&mut self, records: &mut Records, now_ns: u64) {
        if self.phase > PrunerPhase::PreserveParents
            && let Some(key) = records.utxo.entered_since(self.cutoff, self.safe)
        {
            records.utxo.watch();
            self.enter(PrunerPhase::PreserveParents, now_ns);
            self.cursor.key = key;
        }
    }

    /// Goes on within a budget. Being interrupted is a value, not an error.
    ///
    /// # Errors
    /// Why the run ends before its end.
    pub fn go_on(
        &mut self,
        records: &mut Records,
        terms: &Terms,
        budget: &mut Budget,
        counts: &mut PruneCounts,
        durations: &mut Durations,
    ) -> Result<PruneProgress, JobEnd> {
        loop {
            self.look_again(records, terms.now_ns);
            let mut driver = Driver { run: self, records: &mut *records, terms, counts: &mut *counts };
            let stopped = match driver.run.phase {
                PrunerPhase::PreserveParents => driver.drive::<PreserveParents>(budget)?,
                PrunerPhase::ExpirePreservations => driver.drive::<ExpirePreservations>(budget)?,
                PrunerPhase::DeleteAtHeight => driver.drive::<DeleteAtHeight>(budget)?,
            };
            if let Some(reason) = stopped {
                return Ok(PruneProgress::HasMore { reason });
            }
            let (seconds, ended) = &mut durations[self.phase as usize];
            *seconds += terms.now_ns.saturating_sub(self.phase_since) / 1_000_000_000;
            *ended += 1;
            match self.phase {
                PrunerPhase::PreserveParents => self.enter(PrunerPhase::ExpirePreservations, terms.now_ns),
                PrunerPhase::ExpirePreservations => self.enter(PrunerPhase::DeleteAtHeight, terms.now_ns),
                PrunerPhase::DeleteAtHeight => return Ok(PruneProgress::Finished),
            }
        }
    }
}

/// A run with all that it works with.
struct Driver<'a, 'r> {
    run: &'a mut Run,
    records: &'a mut Records<'r>,
    terms: &'a Terms<'a>,
    counts: &'a mut PruneCounts,
}

impl Driver<'_, '_> {
    /// Does a phase to its end, or says why it stopped.
    fn drive<P: Phase>(&mut self, budget: &mut Budget) -> Result<Option<StopReason>, JobEnd> {
        let Some(last) = P::last(self.run, self.terms.settings) else { return Ok(None) };
        // The cursor's record may have moved since the last message: its key begins anew. In this message nobody moves it.
        let mut moved = None;
        if self.records.utxo.behind(P::ORDER, &self.run.cursor, last) == Next::Moved {
            moved = Some(self.run.cursor);
            self.run.cursor.slot = 0;
        }
        loop {
            let next = match self.records.utxo.behind(P::ORDER, &self.run.cursor, last) {
                Next::End => return Ok(None),
                Next::Record(next) if moved != Some(next) => next,
                Next::Record(_) | Next::Moved | Next::Broken => {
                    let at = moved.unwrap_or(self.run.cursor);
                    let why = format!("what follows it under {} in the index {:?}", at.key, P::ORDER);
                    self.with(|context| P::unreadable(context, &at, UtxoError::Corrupt { why }, true))?;
                    let Some(key) = self.run.cursor.key.checked_add(1) else { return Ok(None) };
                    (self.run.cursor, self.run.part) = (Cursor { key, ..Cursor::default() }, None);
                    continue;
                }
            };
            let part = self.run.part.filter(|(cursor, _)| *cursor == next);
            let from = part.map_or(0, |(_, from)| from);
            let candidate = self.records.utxo.candidate(next.slot, Some((P::ORDER, next.key)));
            let ops = candidate.as_ref().map_or(1, |of| P::ops(of, from, self.terms.settings));
            if let Some(reason) = self.stop::<P>(budget, part.is_none(), ops) {
                return Ok(Some(reason));
            }
            let step = match candidate {
                Ok(of) => self.with(|context| P::step(context, &of, from))?,
                Err(error) => {
                    self.with(|context| P::unreadable(context, &next, error, false))?;
                    Step::Stays
                }
            };
            match step {
                Step::Left => self.run.part = None,
                Step::Stays => (self.run.cursor, self.run.part) = (next, None),
                Step::More(from) => self.run.part = Some((next, from)),
            }
        }
    }

    /// Why the next step does not fit this message, if it does not.
    fn stop<P: Phase>(&self, budget: &mut Budget, new: bool, ops: u64) -> Option<StopReason> {
        let deletes = P::ORDER == DeleteAtHeight::ORDER;
        if deletes && new && budget.records == 0 {
            return Some(StopReason::Chunks);
        }
        if self.records.utxo.pages_changed(self.counts.records_deleted - budget.deleted) >= MOST_PAGES {
            return Some(StopReason::Pages);
        }
        if let Err(reason) = budget.limiter.admit(ops) {
            return Some(reason);
        }
        budget.records -= u64::from(deletes && new);
        None
    }

    fn with<T>(&mut self, run: impl FnOnce(&mut Context) -> T) -> T {
        let Self { records, terms: Terms { settings, set_aside, .. }, counts, .. } = self;
        run(&mut Context { records, settings, set_aside, run: self.run, counts })
    }
}
