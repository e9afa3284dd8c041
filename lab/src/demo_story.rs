//! The story of a demonstration: the indexer stops for a while, and rows say in order what follows.
//!
//! ```text
//! blocks ──▶ the indexer stops ──▶ pruning waits ──▶ high water ──▶ the indexer resumes ──▶ memory stops growing
//! ```

use anyhow::Result;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ic_coppice_cli::client::{Client, Transport, Wait};
use ic_coppice_cli::report::{blocks, count};
use ic_coppice_interface::{PrunePolicyArg, PruneStatus};
use serde::Serialize;

/// Bytes of an average block of the generated chain, with its index and receipts.
const AVERAGE: u64 = 172_000;
/// The least target, so that the longest block fits between high water and emergency water.
const MIN_TARGET: u64 = 36 << 20;
/// Headroom in basis points: high water at 80 % of the target, low water at 60 %.
const HEADROOM: u32 = 4_000;
/// Emergency water in basis points.
const EMERGENCY: u32 = 10_000;

/// A step of the story.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The number of the head.
    pub block: u64,
    pub event: String,
    /// Blocks that the indexer has not acknowledged.
    pub lag: u64,
    /// Pruned blocks.
    pub pruned: u64,
    /// Bytes of the chain, which the watermarks bound.
    pub kept_bytes: u64,
    /// Bytes of stable memory that the platform bills.
    pub billed_bytes: u64,
}

/// The next event to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    First,
    Pruned,
    Stop,
    Waits,
    HighWater,
    Resumes,
    Pruning,
    Nothing,
}

/// A story that is being told.
#[derive(Debug)]
pub struct Story {
    steps: Vec<Step>,
    next: Next,
    /// Blocks appended so far.
    appended: u64,
    /// Blocks after which the indexer stops, and after which it resumes at the latest.
    pause: (u64, u64),
    /// Pruned blocks when the indexer resumed.
    pruned: u64,
}

/// Returns the policy of a demonstration that retains `retain_blocks`. High water is a third above the bytes of these blocks, so that the
/// chain reaches high water only while the indexer is stopped.
pub fn policy(retain_blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg {
        retain_blocks: Some(retain_blocks),
        target_bytes: Some((AVERAGE * 17 / 10).saturating_mul(retain_blocks).max(MIN_TARGET)),
        headroom_ratio_bps: Some(HEADROOM),
        emergency_ratio_bps: Some(EMERGENCY),
        timer_interval_secs: Some(60),
        ..PrunePolicyArg::default()
    }
}

impl Story {
    /// Begins the story of a chain of `length` blocks. The indexer stops after a quarter of them, for at most another quarter.
    pub fn new(length: u64) -> Self {
        let stop = length / 4;
        Self { steps: Vec::new(), next: Next::First, appended: 0, pause: (stop, stop + length / 4), pruned: 0 }
    }

    /// Looks at the canister after blocks were appended, and returns whether the indexer runs.
    ///
    /// # Errors
    /// When the canister does not answer.
    pub fn appended(&mut self, client: &Client<impl Transport>, blocks: usize, billed_bytes: u64) -> Result<bool> {
        let status = client.get_prune_status().wait()?;
        self.appended += blocks as u64;
        let at = (self.appended, status.backlog.held_blocks);
        while let Some(event) = self.event(at, &status) {
            let head = status.head.unwrap_or_default();
            let acknowledged = status.exported_before_block.or(status.oldest_kept_block).unwrap_or_default();
            self.steps.push(Step {
                block: head,
                event,
                lag: (head + 1).saturating_sub(acknowledged),
                pruned: status.pruned_blocks,
                kept_bytes: status.capacity_bytes,
                billed_bytes,
            });
        }
        Ok(!matches!(self.next, Next::Waits | Next::HighWater | Next::Resumes))
    }

    /// Returns the next event if it has happened.
    fn event(&mut self, (appended, held): (u64, u64), status: &PruneStatus) -> Option<String> {
        let high = status.water_marks.as_ref().map_or(u64::MAX, |marks| marks.high);
        let is_high = status.capacity_bytes >= high;
        let (stop, resume) = self.pause;
        let (next, event) = match self.next {
            Next::First => (Next::Pruned, "the first block is appended".to_string()),
            Next::Pruned if status.pruned_blocks > 0 => {
                (Next::Stop, "the timer prunes the first blocks, behind the indexer".into())
            }
            // With a long retention nothing is due before the indexer stops.
            Next::Pruned | Next::Stop if appended >= stop => {
                (Next::Waits, "the indexer stops; blocks are appended as before".into())
            }
            Next::Waits if held > 0 => {
                (Next::HighWater, format!("pruning waits for the indexer: {} due and not acknowledged", blocks(held)))
            }
            Next::Waits | Next::HighWater if is_high => {
                (Next::Resumes, format!("high water: {} wait; appends are refused at emergency water", blocks(held)))
            }
            // A short chain does not reach high water.
            Next::Waits | Next::HighWater if appended < resume => return None,
            Next::Waits | Next::HighWater | Next::Resumes => {
                self.pruned = status.pruned_blocks;
                (Next::Pruning, "the indexer resumes, and copies what it has missed".into())
            }
            Next::Pruning if held == 0 && status.pruned_blocks > self.pruned => {
                let pruned = blocks(status.pruned_blocks - self.pruned);
                (Next::Nothing, format!("the timer has pruned {pruned} since"))
            }
            _ => return None,
        };
        self.next = next;
        Some(event)
    }

    /// Ends the story: stable memory has not grown since a block, or never did.
    pub fn end(mut self, last: &PruneStatus, billed_bytes: u64, growth_stopped: Option<u64>) -> Vec<Step> {
        let since = growth_stopped.map_or("the first".to_string(), count);
        self.steps.push(Step {
            block: last.head.unwrap_or_default(),
            event: format!("the last block: stable memory has not grown since block {since}"),
            lag: 0,
            pruned: last.pruned_blocks,
            kept_bytes: last.capacity_bytes,
            billed_bytes,
        });
        self.steps
    }
}

pub fn table(steps: &[Step]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["block", "what happened", "lag", "pruned", "kept MB", "billed MB"]);
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for step in steps {
        table.add_row([
            count(step.block),
            step.event.clone(),
            count(step.lag),
            count(step.pruned),
            mb(step.kept_bytes),
            mb(step.billed_bytes),
        ]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if at == 1 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.to_string()
}
