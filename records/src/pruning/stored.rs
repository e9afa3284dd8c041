//! Persisted state of the records pruner: settings, heights, jobs and the place of the run, as CBOR in one cell. A new field must be an
//! `Option`, so that the cells of earlier releases can be read.

use super::jobs::Ended;
use super::notified::Feeds;
use super::place::{At, Durations, FullPass, Run};
use crate::places;
use crate::utxo::Cursor;
use ic_coppice_interface::{UtxoBlockedBy, UtxoPruneCounts, UtxoPruneJob, UtxoPrunerPhase, UtxoPrunerSettings};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::turns::Turns;
use serde::{Deserialize, Serialize};

/// Cell of the pruner's state.
pub(super) const CELL: Cell = Cell {
    at: places::UTXO_PRUNER,
    capacity: 32 << 10,
    header: Header { name: "pruner of UTXO records", magic: *b"CPUR", version: 4 },
};
/// Counts of triggers that did not start a job, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedTriggers {
    pub assembly_not_running: u64,
    pub already_processed: u64,
    pub superseded: u64,
    pub persister_active: u64,
    pub not_mined: u64,
}

/// Persisted fields of the pruner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The settings in force.
    pub settings: UtxoPrunerSettings,
    /// True while the block assembly runs, as a feeder has reported.
    pub assembly_running: bool,
    /// The height of the block assembly, as a feeder has reported.
    pub assembly_height: Option<u32>,
    /// The highest height ever notified, by either method.
    pub current: u32,
    /// The highest height notified as persisted; 0 if none was.
    pub persisted: u32,
    /// The highest height up to which a completed job has pruned.
    pub processed: u32,
    /// Buckets and anomalies of the notified and the persisted height.
    pub feeds: Feeds,
    /// The smallest retention except 0 that was in force before the present one; 0 if there was none.
    pub smallest_retention: u32,
    /// The job that waits for a tick.
    pub pending: Option<UtxoPruneJob>,
    /// The pending job could not start, and this was counted.
    pub pending_skipped: bool,
    /// The job that a tick has started.
    pub running: Option<UtxoPruneJob>,
    /// Run of the running job, or of a job that timed out.
    pub run: Option<Run>,
    /// Number of runs that ever began.
    pub runs: u32,
    /// Heights were set: records that were postponed by the old heights may be examined too late, until a run has examined all of them.
    pub look_again: bool,
    /// The last full pass of phase 1; `None` if there was none, or while the next one is not done.
    pub full_pass: Option<FullPass>,
    /// Unmined records below this height were old when phase 1 last ended.
    pub cutoff: u32,
    /// Number in the ring of the job that completed last.
    pub last_completed: Option<u64>,
    /// Position of the ring of ended jobs.
    pub ended: Ended,
    /// Jobs that were ever made; the last one's id.
    pub jobs: u64,
    /// The record because of which phase 1 failed last; `None` once a job has completed.
    pub blocked_by: Option<UtxoBlockedBy>,
    /// The job that failed because finding the next record trapped, and its phase; `None` once a job has completed.
    pub trapped: Option<(u64, UtxoPrunerPhase)>,
    /// Unmined records that phase 1 skips for an operator, because they or a parent of theirs cannot be read.
    pub unreadable: Vec<Cursor>,
    /// Turns of the ticks, and the records that are skipped because examining them traps.
    pub turns: Turns<At>,
    /// Counts of all jobs.
    pub totals: UtxoPruneCounts,
    /// Seconds of each phase, and how often it ended.
    pub durations: Durations,
    /// Triggers that did not start a job.
    pub unused: UnusedTriggers,
    /// Jobs that timed out.
    pub timed_out: u64,
    /// Jobs that failed for another reason.
    pub failed: u64,
    /// Time of the last line of progress, in Unix nanoseconds.
    pub reported_at: u64,
}
