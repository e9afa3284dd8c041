//! Drain rate of the backlog and growth rate of the chain, over the last minutes and the last hour.
//!
//! The counters are the chain's own and persisted. The samples are on the heap, so measuring starts anew after an upgrade.

use crate::ChainState;
use crate::store::counted_bytes;
use std::collections::VecDeque;

/// Seconds between two samples.
const EVERY: u64 = 60;
/// Kept samples: those of an hour.
const KEPT: usize = 61;
/// Seconds over which blocks are counted.
const MINUTES: u64 = 10 * EVERY;
/// Seconds over which bytes are counted.
const HOUR: u64 = 60 * EVERY;

struct Sample {
    at: u64,
    pruned: u64,
    appended: u64,
    grown: u64,
}

/// Samples of the last hour.
#[derive(Default)]
pub struct Rates {
    samples: VecDeque<Sample>,
}

impl Rates {
    /// Takes a sample of the chain at `now`, in Unix seconds; at most one a minute.
    pub fn note(&mut self, state: &ChainState, now: u64) {
        if self.samples.back().is_some_and(|last| now < last.at.saturating_add(EVERY)) {
            return;
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        let (pruned, appended) = (state.pruned_blocks, state.appended_blocks);
        self.samples.push_back(Sample { at: now, pruned, appended, grown: grown(state) });
    }

    /// Returns the first sample of the last `secs` seconds before `now`. Without a sample in these, returns the last one before them.
    fn first(&self, now: u64, secs: u64) -> Option<&Sample> {
        let mut before = self.samples.iter().filter(|sample| sample.at < now);
        let within = before.clone().find(|sample| sample.at.saturating_add(secs) >= now);
        within.or_else(|| before.next_back())
    }

    /// Returns whether there is a sample from before `now`, in Unix seconds. Right after an upgrade there is no sample.
    pub fn are_known(&self, now: u64) -> bool {
        self.samples.front().is_some_and(|first| first.at < now)
    }

    /// Returns the blocks pruned and appended per hour; 0 without a sample.
    pub fn per_hour(&self, state: &ChainState, now: u64) -> (u64, u64) {
        let Some(first) = self.first(now, MINUTES) else { return (0, 0) };
        let secs = u128::from(now - first.at);
        let rate = |from: u64, to: u64| (u128::from(to.saturating_sub(from)) * 3_600 / secs) as u64;
        (rate(first.pruned, state.pruned_blocks), rate(first.appended, state.appended_blocks))
    }

    /// Returns the seconds until appended blocks take `bytes` more bytes at the last hour's rate, or `None` if the rate is unknown or 0.
    pub fn secs_until(&self, state: &ChainState, bytes: u64, now: u64) -> Option<u64> {
        let first = self.first(now, HOUR)?;
        let came = u128::from(grown(state).saturating_sub(first.grown));
        let secs = (u128::from(bytes) * u128::from(now - first.at)).checked_div(came)?;
        Some(u64::try_from(secs).unwrap_or(u64::MAX))
    }
}

/// Returns the bytes that blocks have ever added to the capacity that is compared with the watermarks.
fn grown(state: &ChainState) -> u64 {
    counted_bytes(state.appended_bytes, state.appended_blocks, state.references)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minutes() {
        let mut rates = Rates::default();
        let state =
            |pruned_blocks, appended_blocks| ChainState { pruned_blocks, appended_blocks, ..ChainState::default() };
        assert_eq!((rates.per_hour(&state(5, 5), 100), rates.are_known(100)), ((0, 0), false));
        rates.note(&state(0, 0), 100);
        rates.note(&state(9, 9), 159);
        assert_eq!(rates.per_hour(&state(10, 20), 100), (0, 0), "no time has passed");
        assert_eq!((rates.are_known(100), rates.are_known(101)), (false, true));
        assert_eq!(rates.per_hour(&state(10, 20), 200), (360, 720));
        for minute in 1..100 {
            rates.note(&state(minute, 2 * minute), 100 + 60 * minute);
        }
        assert_eq!(rates.samples.len(), KEPT);
        assert_eq!(rates.per_hour(&state(99, 198), 100 + 60 * 99), (60, 120));
        // The clock was set back.
        assert_eq!(rates.per_hour(&state(99, 198), 5), (0, 0));
    }
}
