//! A run: three phases over the ordered indexes at fixed heights, as far as a tick's budget goes. Its place is data, kept with
//! what it did: whoever interrupts it, the next tick goes on there.

use super::Records;
use super::delete::DeleteAtHeight;
use super::phase::{Context, Phase, Step};
use super::preserve::{ExpirePreservations, PreserveParents};
use crate::api::{JobEnd, PruneCounts, PruneProgress, PrunerPhase, PrunerSettings, StopReason};
use crate::prune::Limiter;
use crate::utxo::Place;
use serde::{Deserialize, Serialize};

/// Pages of records that a tick changes: 59 MiB, of the 75 above which the platform slows a canister down.
const MOST_PAGES: u64 = 15_104;

/// Heights and place of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Where the chain is.
    pub current: u32,
    /// Records are deleted whose height is this one or lower.
    pub safe: u32,
    /// Unmined transactions below this height are old; 0: none is.
    pub cutoff: u32,
    /// Where the run is.
    pub phase: PrunerPhase,
    /// Behind this record of the phase's index.
    place: Place,
    /// The record behind that, and which part of it comes next.
    part: Option<(Place, u32)>,
    /// When the phase began, in Unix nanoseconds.
    pub phase_since: u64,
}

/// What a message may do.
pub struct Budget {
    /// Ops and instructions.
    pub limiter: Limiter,
    /// Records of phase 2.
    pub records: u64,
}

/// Seconds that phases took which ended, and how many of each kind ended.
pub type Durations = [(u64, u64); 3];

impl Run {
    /// A run from its beginning.
    pub fn begin(records: &mut Records, current: u32, safe: u32, cutoff: u32, now_ns: u64) -> Self {
        let phase = PrunerPhase::PreserveParents;
        let mut run = Self { current, safe, cutoff, phase, place: Place::default(), part: None, phase_since: now_ns };
        run.preserve_again(records, now_ns);
        run
    }

    fn enter(&mut self, phase: PrunerPhase, now_ns: u64) {
        (self.phase, self.place, self.part, self.phase_since) = (phase, Place::default(), None, now_ns);
    }

    fn preserve_again(&mut self, records: &mut Records, now_ns: u64) {
        records.utxo.watch_unmined();
        self.enter(PrunerPhase::PreserveParents, now_ns);
    }

    /// Goes on within a budget. Being interrupted is a value, not an error.
    ///
    /// # Errors
    /// Why the run ends before its end.
    pub fn go_on(
        &mut self,
        records: &mut Records,
        (settings, set_aside): (&PrunerSettings, &[u32]),
        budget: &mut Budget,
        counts: &mut PruneCounts,
        (durations, now_ns): (&mut Durations, u64),
    ) -> Result<PruneProgress, JobEnd> {
        records.utxo.count_pages();
        loop {
            // Old unmined records that came since phase 1: their parents were not preserved.
            if self.phase > PrunerPhase::PreserveParents && records.utxo.unmined_entered_below(self.cutoff) {
                self.preserve_again(records, now_ns);
            }
            let mut context = Drive { run: self, records: &mut *records, settings, set_aside, counts: &mut *counts };
            let stopped = match context.run.phase {
                PrunerPhase::PreserveParents => context.drive::<PreserveParents>(budget)?,
                PrunerPhase::ExpirePreservations => context.drive::<ExpirePreservations>(budget)?,
                PrunerPhase::DeleteAtHeight => context.drive::<DeleteAtHeight>(budget)?,
            };
            if let Some(reason) = stopped {
                return Ok(PruneProgress::HasMore { reason });
            }
            let (seconds, ended) = &mut durations[self.phase as usize];
            *seconds += (now_ns - self.phase_since) / 1_000_000_000;
            *ended += 1;
            match self.phase {
                PrunerPhase::PreserveParents => self.enter(PrunerPhase::ExpirePreservations, now_ns),
                PrunerPhase::ExpirePreservations => self.enter(PrunerPhase::DeleteAtHeight, now_ns),
                PrunerPhase::DeleteAtHeight => return Ok(PruneProgress::Finished),
            }
        }
    }
}

/// A run with all that it works with.
struct Drive<'a, 'r> {
    run: &'a mut Run,
    records: &'a mut Records<'r>,
    settings: &'a PrunerSettings,
    set_aside: &'a [u32],
    counts: &'a mut PruneCounts,
}

impl Drive<'_, '_> {
    /// Does a phase to its end, or says why it stopped.
    fn drive<P: Phase>(&mut self, budget: &mut Budget) -> Result<Option<StopReason>, JobEnd> {
        let Some(last) = P::last(self.run, self.settings) else { return Ok(None) };
        while let Some(next) = self.records.utxo.behind(P::ORDER, &self.run.place, last) {
            let part = self.run.part.filter(|(place, _)| *place == next);
            let from = part.map_or(0, |(_, from)| from);
            let of = match self.records.utxo.candidate(next.slot) {
                Ok(of) => of,
                Err(error) => {
                    if let Err(reason) = budget.limiter.admit(1) {
                        return Ok(Some(reason));
                    }
                    self.with(|context| P::unreadable(context, &next, error))?;
                    (self.run.place, self.run.part) = (next, None);
                    continue;
                }
            };
            if let Some(reason) = self.stop::<P>(budget, part.is_none(), P::ops(&of, from, self.settings)) {
                return Ok(Some(reason));
            }
            match self.with(|context| P::step(context, &of, from))? {
                Step::Left => self.run.part = None,
                Step::Stays => (self.run.place, self.run.part) = (next, None),
                Step::More(from) => self.run.part = Some((next, from)),
            }
        }
        Ok(None)
    }

    /// Why the next step does not fit this message, if it does not.
    fn stop<P: Phase>(&self, budget: &mut Budget, new: bool, ops: u64) -> Option<StopReason> {
        let deletes = P::ORDER == DeleteAtHeight::ORDER;
        if deletes && new && budget.records == 0 {
            return Some(StopReason::Chunks);
        }
        if self.records.utxo.pages_changed() >= MOST_PAGES {
            return Some(StopReason::Pages);
        }
        if let Err(reason) = budget.limiter.admit(ops) {
            return Some(reason);
        }
        budget.records -= u64::from(deletes && new);
        None
    }

    fn with<T>(&mut self, run: impl FnOnce(&mut Context) -> T) -> T {
        let Self { records, settings, set_aside, counts, .. } = self;
        run(&mut Context { records, settings, set_aside, run: self.run, counts })
    }
}
