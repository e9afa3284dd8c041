//! A lagging block persister: it stalls occasionally, and catches up several blocks at a time.

use super::plan::{LAG, Plan};
use coppice_testkit::random::Random;
use std::ops::{Range, RangeInclusive};

/// The lag with which it starts.
const FIRST_LAG: u32 = 30;
/// Most blocks that it persists per block of the chain.
const PER_BLOCK: u32 = 6;
/// While the persister is caught up, a stall begins in one of so many blocks on average.
const STALL_EVERY: u64 = 24;
/// The length of a stall, in blocks.
const STALL: RangeInclusive<u32> = 10..=55;
/// The length of the stall that ends at the reorg, in blocks, so that there is a run to interrupt.
const STALL_BEFORE_REORG: u32 = 30;
/// Blocks before the reorg in which no other stall begins, so that the longest one is over and caught up.
const STEADY: u32 = 100;

/// The persister.
pub struct Persister {
    random: Random,
    from: u32,
    reorg_at: u32,
    persisted: u32,
    stalled: u32,
}

impl Persister {
    /// The persister of a story.
    pub fn new(plan: &Plan) -> Self {
        let (from, reorg_at) = (plan.persister_from, plan.reorg_at);
        Self { random: Random::new(!plan.seed), from, reorg_at, persisted: 0, stalled: 0 }
    }

    /// Returns the highest persisted block; 0 before it starts.
    pub fn persisted(&self) -> u32 {
        self.persisted
    }

    /// Returns the blocks that it persists while the chain is at a height.
    pub fn step(&mut self, height: u32) -> Range<u32> {
        if height < self.from {
            return 0..0;
        }
        if self.persisted == 0 {
            return self.persist(height, height - FIRST_LAG, 1);
        }
        let lag = height - self.persisted;
        if self.stalled > 0 && lag < *LAG.end() {
            self.stalled -= 1;
            return 0..0;
        }
        self.stalled = 0;
        let reorg_at = self.reorg_at;
        if height + STALL_BEFORE_REORG == reorg_at {
            self.stalled = STALL_BEFORE_REORG;
        } else if lag <= LAG.start() + 1
            && !(reorg_at - STEADY..=reorg_at).contains(&height)
            && self.random.below(STALL_EVERY) == 0
        {
            self.stalled = STALL.start() + self.random.below(u64::from(STALL.end() - STALL.start() + 1)) as u32;
        }
        self.persist(height, self.persisted + 1, PER_BLOCK)
    }

    /// Catches up at once.
    pub fn catch_up(&mut self, height: u32) -> Range<u32> {
        self.stalled = 0;
        self.persist(height, self.persisted + 1, u32::MAX)
    }

    fn persist(&mut self, height: u32, first: u32, most: u32) -> Range<u32> {
        let end = (height + 1 - LAG.start()).min(first.saturating_add(most)).max(first);
        self.persisted = end - 1;
        first..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_persisted_once_within_the_lag_bounds() {
        for seed in 0..20 {
            let plan = Plan::new(3_000, None, seed).unwrap();
            let mut persister = Persister::new(&plan);
            let (mut next, mut longest, mut bursts) = (None, 0, 0);
            for height in 1..=plan.blocks {
                let at_reorg = height == plan.reorg_at;
                let heights = if at_reorg { persister.catch_up(height) } else { persister.step(height) };
                assert_eq!(heights.is_empty() && next.is_none(), height < plan.persister_from);
                bursts += u32::from(heights.len() > 1);
                for persisted in heights.clone() {
                    assert!(next.is_none_or(|next| next == persisted));
                    next = Some(persisted + 1);
                }
                if let Some(next) = next {
                    let lag = height + 1 - next;
                    assert!(LAG.contains(&lag), "seed {seed}, {height}: {lag}");
                    longest = longest.max(lag);
                }
                assert!(!at_reorg || heights.len() >= STALL_BEFORE_REORG as usize, "seed {seed}: {heights:?}");
            }
            assert!(longest > 50 && bursts > 100, "seed {seed}: {longest}, {bursts}");
        }
    }
}
