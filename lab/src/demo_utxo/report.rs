//! The output of the demonstration: the story by height, then the figures.

use super::external::ExternalFigures;
use super::verify::Verified;
use crate::costs::UtxoInstructions;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ic_coppice_cli::report::{Report, bytes, count};
use serde::Serialize;

/// An event of the story.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    pub height: u32,
    pub event: String,
    /// The highest persisted block; 0 before the block persister starts.
    pub persisted_height: u32,
    /// Records due at this height or below may be deleted.
    pub safe_height: u32,
    pub records: u64,
    /// Records deleted so far.
    pub deleted: u64,
    /// Records with `preserve_until`.
    pub preserved: u64,
}

/// The figures of all jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobFigures {
    /// Completed jobs.
    pub completed: u64,
    /// Jobs cancelled before they began, because a greater height was notified.
    pub superseded: u64,
    /// Jobs cancelled, before or during their run, because the block assembly stopped.
    pub stopped: u64,
    /// Ticks of all jobs.
    pub ticks: u64,
    /// Ticks of the longest job.
    pub most_ticks: u64,
    /// Instructions of all jobs.
    pub instructions: u64,
}

/// The figures of a demonstration.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UtxoDemoReport {
    /// "demo --utxo".
    pub command: &'static str,
    pub seed: u64,
    pub blocks: u32,
    pub block_height_retention: u32,
    pub parent_preservation_blocks: u32,
    pub story: Vec<Row>,
    /// Transactions of all branches.
    pub transactions: u64,
    /// Their outputs that can be spent.
    pub outputs: u64,
    /// Transactions of the blocks that were applied; those of both branches count twice.
    pub applied: u64,
    /// Outputs that were spent.
    pub spends: u64,
    /// Records at the end.
    pub records_kept: u64,
    pub records_deleted: u64,
    /// Deleted pages after the master.
    pub pages_deleted: u64,
    /// Outputs of surviving parents that recorded the deletion.
    pub parents_updated: u64,
    /// Preservations of parents; each run counts anew.
    pub parents_preserved: u64,
    pub preservations_expired: u64,
    pub jobs: JobFigures,
    /// Instructions of all jobs, per deleted record.
    pub instructions_per_record_deleted: u64,
    /// Instructions of applying the blocks, if the canister runs in this process.
    pub instructions: Option<UtxoInstructions>,
    /// Bytes of stable memory that records use.
    pub record_bytes: u64,
    /// Bytes freed by deleted records, for use by new ones.
    pub reusable_bytes: u64,
    /// Bytes of stable memory that the platform bills.
    pub billed_bytes: u64,
    /// The last height at which the billed bytes rose, or `None` if they never rose.
    pub growth_stopped_at_height: Option<u32>,
    /// Figures of external transactions, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalFigures>,
    pub verified: Verified,
    /// Wall-clock seconds, without the build.
    pub elapsed_secs: f64,
}

impl Report for UtxoDemoReport {
    fn preface(&self) -> Option<String> {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["height", "what happened", "persisted (lag)", "safe", "records", "deleted", "preserved"]);
        for row in &self.story {
            let persisted = match row.persisted_height {
                0 => "-".to_string(),
                persisted => format!("{persisted} ({})", row.height.saturating_sub(persisted)),
            };
            table.add_row([
                row.height.to_string(),
                row.event.clone(),
                persisted,
                row.safe_height.to_string(),
                count(row.records),
                count(row.deleted),
                count(row.preserved),
            ]);
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_cell_alignment(if at == 1 { CellAlignment::Left } else { CellAlignment::Right });
        }
        Some(table.to_string())
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let JobFigures { completed, superseded, stopped, ticks, most_ticks, instructions: _ } = self.jobs;
        let Verified { kept, due, preserved, gone, unspent, spent } = self.verified;
        let growth = match self.growth_stopped_at_height {
            None => "before the first block".to_string(),
            Some(height) => format!("{} of {}", count(height.into()), count(self.blocks.into())),
        };
        let retention = (count(self.block_height_retention.into()), count(self.parent_preservation_blocks.into()));
        let mut rows = vec![
            ("blocks", count(self.blocks.into())),
            ("records retained, parents preserved", format!("for {}, for {} blocks", retention.0, retention.1)),
            ("transactions", count(self.transactions)),
            ("outputs", count(self.outputs)),
            ("outputs spent", count(self.spends)),
            ("records kept", count(self.records_kept)),
            (
                "records pruned by the timer",
                format!("{}, {} pages", count(self.records_deleted), count(self.pages_deleted)),
            ),
            ("surviving parents told, outputs", count(self.parents_updated)),
            ("parents preserved, in each run anew", count(self.parents_preserved)),
            ("preservations expired", count(self.preservations_expired)),
            ("jobs completed", count(completed)),
            ("jobs given up for a higher height", count(superseded)),
            ("jobs stopped by the reorg", count(stopped)),
            ("ticks of jobs", format!("{} of at most {}", count(ticks), count(most_ticks))),
            ("instructions per record pruned", count(self.instructions_per_record_deleted)),
        ];
        rows.extend(self.instructions.iter().flat_map(UtxoInstructions::rows));
        if let Some(ExternalFigures { written, deleted, leases, left }) = &self.external {
            rows.push(("external transactions, a file each", count(*written)));
            rows.push(("deleted by the blob worker", format!("{}, in {} leases", count(*deleted), count(*leases))));
            rows.push(("verified: files left, of the records kept", count(*left)));
        }
        rows.extend([
            ("record bytes in use", bytes(self.record_bytes)),
            ("record bytes to be used again", bytes(self.reusable_bytes)),
            ("billed", bytes(self.billed_bytes)),
            ("stable memory stopped growing at height", growth),
            (
                "verified: there, as the ledger has it",
                format!("{} records, {} due, {} preserved", count(kept), count(due), count(preserved)),
            ),
            ("verified: gone", format!("{} records", count(gone))),
            ("verified: unspent, with its hash", format!("{} outputs", count(unspent))),
            ("verified: spent by the right input", format!("{} outputs", count(spent))),
            ("seconds", format!("{:.1}", self.elapsed_secs)),
        ]);
        rows
    }
}
