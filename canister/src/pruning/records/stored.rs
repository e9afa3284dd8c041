//! Persisted state of the records pruner: settings, heights, jobs, and the place of the run.

use super::feeds::Feeds;
use super::jobs::Ended;
use super::place::{At, Durations, FullPass, Run};
use crate::pruning::work::marker::Marker;
use crate::storage::places;
use crate::utxo::Cursor;
use coppice_interface::{UtxoBlockedBy, UtxoPruneCounts, UtxoPruneJob, UtxoPrunerPhase, UtxoPrunerSettings};
use coppice_storage::cell::Cell;
use coppice_storage::header::Header;
use serde::{Deserialize, Serialize};

/// The cell of the pruner's state.
pub(super) const CELL: Cell = Cell {
    at: places::UTXO_PRUNER,
    capacity: 32 << 10,
    header: Header { name: "pruner of UTXO records", magic: *b"CPUR", version: 1 },
};
/// Why something was not pruned, and how often: runs, not records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Skipped {
    pub assembly_not_running: u64,
    pub already_processed: u64,
    pub superseded: u64,
    pub persister_active: u64,
    pub not_mined: u64,
}

/// What is persisted of the pruner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Stored {
    pub settings: UtxoPrunerSettings,
    pub assembly_running: bool,
    /// The highest heights that were notified, persisted, pruned.
    pub current: u32,
    pub persisted: u32,
    pub processed: u32,
    /// The notifications of both: their buckets, and low heights among them.
    pub feeds: Feeds,
    /// The smallest retention, but 0, that was in force before the one that is; 0: there was none.
    pub smallest_retention: u32,
    pub pending: Option<UtxoPruneJob>,
    /// The pending job could not begin, which was counted.
    pub pending_skipped: bool,
    pub running: Option<UtxoPruneJob>,
    /// The place of the job that runs, or of one that timed out.
    pub run: Option<Run>,
    /// Runs that ever began.
    pub runs: u32,
    /// The heights were set: what was kept by others may be looked at too late, until a run has come by all of it.
    pub look_again: bool,
    /// How phase 1 looked at all old unmined records last, if it did since then what it went by has changed.
    pub full_pass: Option<FullPass>,
    /// Unmined records below this height were old when phase 1 was done last.
    pub cutoff: u32,
    pub last_completed: Option<UtxoPruneJob>,
    pub ended: Ended,
    pub jobs: u64,
    pub blocked_by: Option<UtxoBlockedBy>,
    /// The job that ended as finding what comes next trapped, and in which phase, if none was completed since.
    pub trapped: Option<(u64, UtxoPrunerPhase)>,
    pub set_aside: Vec<Cursor>,
    /// How a tick gets past what traps.
    pub marker: Option<Marker<At>>,
    /// Records that are left alone, as looking at them trapped.
    pub passed_over: Vec<At>,
    pub totals: UtxoPruneCounts,
    pub durations: Durations,
    pub skipped: Skipped,
    pub timed_out: u64,
    pub failed: u64,
    /// When the log had a line of progress, in Unix nanoseconds.
    pub reported_at: u64,
}
