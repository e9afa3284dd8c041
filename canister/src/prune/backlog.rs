//! How fast the backlog drains: what was pruned and appended over the last minutes.
//!
//! Counts are the chain's own and persisted; when they were how large is on the heap, so an upgrade starts measuring again.

use crate::chain::ChainState;
use std::collections::VecDeque;

/// Seconds between two samples.
const EVERY: u64 = 60;
/// Samples that are kept: those of ten minutes.
const KEPT: usize = 11;

struct Sample {
    at: u64,
    pruned: u64,
    appended: u64,
}

/// Counts of the last minutes.
#[derive(Default)]
pub struct Rates {
    samples: VecDeque<Sample>,
}

impl Rates {
    /// Notes how far the chain is at `now`, in Unix seconds; at most once a minute.
    pub fn note(&mut self, state: &ChainState, now: u64) {
        if self.samples.back().is_some_and(|last| now < last.at.saturating_add(EVERY)) {
            return;
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at: now, pruned: state.pruned_blocks, appended: state.appended_blocks });
    }

    /// Whether something was noted before `now`, in Unix seconds: an upgrade begins anew.
    pub fn are_known(&self, now: u64) -> bool {
        self.samples.front().is_some_and(|first| first.at < now)
    }

    /// Blocks pruned and appended an hour; 0 where nothing was noted yet.
    pub fn per_hour(&self, state: &ChainState, now: u64) -> (u64, u64) {
        let Some(first) = self.samples.front().filter(|first| first.at < now) else { return (0, 0) };
        let secs = u128::from(now - first.at);
        let rate = |from: u64, to: u64| (u128::from(to.saturating_sub(from)) * 3_600 / secs) as u64;
        (rate(first.pruned, state.pruned_blocks), rate(first.appended, state.appended_blocks))
    }
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
        // A clock that was set back.
        assert_eq!(rates.per_hour(&state(99, 198), 5), (0, 0));
    }
}
