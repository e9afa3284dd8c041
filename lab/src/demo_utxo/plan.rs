//! The heights of the story's events, computed from its length and the retention.

use anyhow::{Context, Result, ensure};

/// Blocks until a coinbase can be spent.
pub const MATURITY: u32 = 100;
/// Blocks that the reorg rolls back. The persister's lag is always larger.
pub const DEPTH: u32 = 4;
/// Lag of the persister, once it runs.
pub const LAG: std::ops::RangeInclusive<u32> = 5..=60;
const _: () = assert!(DEPTH < *LAG.start());

/// Default number of blocks.
pub const BLOCKS: u64 = 3_000;
/// Numbers of blocks that are accepted.
const LENGTHS: std::ops::RangeInclusive<u64> = 600..=100_000;
/// The canister's defaults; a short story has smaller values.
const RETENTION: u64 = 288;
const PRESERVATION: u32 = 1_440;
/// Blocks between consecutive events: a run begins when a block is persisted.
const SLACK: u32 = 10;
/// Fewest blocks for which parents are preserved.
const MIN_PRESERVATION: u32 = 20;

/// A story's heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the chain and of the persister.
    pub seed: u64,
    /// Blocks, from height 1 on.
    pub blocks: u32,
    /// `block_height_retention`.
    pub retention: u32,
    /// `parent_preservation_blocks`.
    pub preservation: u32,
    /// The height at which the block persister starts.
    pub persister_from: u32,
    /// The height at which a transaction is seen that stays unmined…
    pub old_seen: u32,
    /// …until this height.
    pub old_mined: u32,
    /// The height of the tip that is rolled back, [`DEPTH`] blocks deep.
    pub reorg_at: u32,
    /// The height at which the transaction is mined that the new branch left out.
    pub left_out_mined: u32,
    /// The height at which the spends of a pruned transaction are sent again.
    pub replay_at: u32,
}

impl Plan {
    /// Creates the plan of a story.
    ///
    /// # Errors
    /// When there are too few blocks for the retention to see all events.
    pub fn new(blocks: u64, retain_blocks: Option<u64>, seed: u64) -> Result<Self> {
        let (fewest, most) = (LENGTHS.start(), LENGTHS.end());
        ensure!(LENGTHS.contains(&blocks), "with --utxo, --blocks must be {fewest} to {most}, not {blocks}");
        let retention = retain_blocks.unwrap_or(RETENTION.min(blocks * 96 / 1_000));
        let too_long = || {
            format!(
                "{blocks} blocks are too few to see records deleted, and parents preserved and deleted, with {retention} blocks \
                 retained: --blocks, --retain-blocks"
            )
        };
        ensure!(retention >= 8 && retention < blocks, too_long());
        let (length, retention) = (blocks as u32, retention as u32);
        let lag = *LAG.end();
        // The first records are due a retention after the first spend.
        let persister_from = MATURITY + retention + retention / 8 + 2 * SLACK;
        let old_seen = (persister_from + SLACK).max(length / 20 * 3);
        // Long enough for its parents to become deletable, even with the persister's largest lag.
        let old_mined = old_seen + retention + retention.max(lag + SLACK) + SLACK;
        let reorg_at = old_seen + retention + retention / 2;
        // The parents' preservation expires in one run, and a later run deletes them after the retention.
        let gone = old_mined + lag + retention + lag + 2 * SLACK;
        let room = length.checked_sub(gone).filter(|room| *room >= MIN_PRESERVATION).with_context(too_long)?;
        Ok(Self {
            seed,
            blocks: length,
            retention,
            preservation: room.min(PRESERVATION),
            persister_from,
            old_seen,
            old_mined,
            reorg_at,
            left_out_mined: reorg_at + SLACK,
            replay_at: old_mined + SLACK,
        })
    }

    /// Returns the blocks after which an unmined transaction is old.
    pub fn unmined_retention(&self) -> u32 {
        self.retention / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_story_has_the_default_settings_and_a_short_one_smaller() {
        let plan = Plan::new(BLOCKS, None, 1).unwrap();
        assert_eq!((plan.retention, plan.preservation, plan.unmined_retention()), (288, 1_440, 144));
        let short = Plan::new(600, None, 1).unwrap();
        assert!(short.retention < 288 && short.preservation < 1_440);
        for plan in [plan, short] {
            assert!(MATURITY < plan.persister_from && plan.persister_from < plan.old_seen);
            assert!(plan.old_seen + plan.unmined_retention() < plan.reorg_at);
            assert!(plan.left_out_mined < plan.reorg_at + plan.unmined_retention());
            assert!(plan.reorg_at + DEPTH < plan.old_mined && plan.old_mined < plan.replay_at);
            assert!(plan.replay_at < plan.blocks);
        }
    }

    #[test]
    fn too_short_story_is_refused_before_the_run() {
        for (blocks, retain) in
            [(599, None), (100_001, None), (600, Some(288)), (600, Some(7)), (3_000, Some(u64::MAX))]
        {
            let error = Plan::new(blocks, retain, 1).unwrap_err().to_string();
            assert!(error.contains("--blocks"), "{error}");
        }
    }
}
