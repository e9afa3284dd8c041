//! The pruner of UTXO records (`pruner-service.md`): triggers, jobs, status. Heights are block heights; 0 is none.

mod settings;

pub use settings::*;

use super::PruneProgress;
use crate::Txid;
use crate::error::{BadArgument, BadHeight};
use crate::settings::ConfigError;
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Whether the block assembly runs, or something else is going on: a reorg, a reset, nothing yet.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoBlockAssemblyState {
    /// The block assembly runs: records may be pruned.
    Running,
    /// The block assembly does not run: records may not be pruned.
    NotRunning,
}

/// The outcome of a notification. The height is noted in any case.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoNotifyOutcome {
    /// A job was made, and waits for the next tick.
    Scheduled(UtxoPruneJob),
    /// A job for the height or a higher one waits or runs already.
    Underway(UtxoPruneJob),
    /// The height, or a higher one, was pruned: by the last job that completed, if one did.
    Processed(Option<UtxoPruneJob>),
    /// A block was persisted before: only `utxo_notify_block_persisted` has records pruned.
    PersisterActive {
        /// The highest block that is persisted.
        last_persisted_height: u32,
    },
    /// The block's transactions are not marked as mined yet.
    NotMined,
}

/// Why something was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum UtxoPrunerError {
    /// The height was refused.
    #[error(transparent)]
    BadHeight(#[from] BadHeight),
    /// A producer may not raise the height so far: by `max_height_jump` at once, and by `heights_per_day` in a day. An
    /// operator's `utxo_set_heights` says where the chain is.
    #[error("the height is too far above {highest}: at most {most} now; an operator may set it")]
    HeightJump {
        /// The highest height that was notified, or persisted.
        highest: u32,
        /// The highest height that is accepted now.
        most: u32,
        /// The moment from which on the refused height is accepted, in Unix nanoseconds; none: `max_height_jump` is too
        /// small for it.
        accepted_at: Option<u64>,
    },
    /// No job with this number waits or runs.
    #[error("no such job waits or runs")]
    NotOpen,
    /// The block assembly is not running: `utxo_set_block_assembly_state`.
    #[error("the block assembly does not run")]
    BlockAssemblyNotRunning,
    /// Deletions are stopped (`set_deletions_stopped`): an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// An argument makes no sense.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// No record lies in the slot that cannot be read, was set aside, or is left alone.
    #[error("no record in this slot blocks pruning")]
    NotBlocking,
    /// As many records are set aside as may be.
    #[error("{limit} records are set aside, which is the most")]
    TooMany {
        /// The most records that may be set aside.
        limit: u64,
    },
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

impl From<ConfigError> for UtxoPrunerError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::BadArgument(argument) => Self::BadArgument(argument),
            ConfigError::Other { code, message } => Self::Other { code, message },
        }
    }
}

/// The reason why a job was made.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobTrigger {
    /// `utxo_notify_block_persisted` made the job.
    BlockPersisted,
    /// `utxo_notify_block` made the job, while nothing was persisted.
    Block,
    /// `utxo_prune` made the job.
    Manual,
    /// A job for the same height timed out, or the block assembly stopped it.
    Resumed,
    /// The job was due when another one completed, or when an operator set the heights: blocks were persisted meanwhile.
    Due,
}

/// The state of a job.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobState {
    /// The job waits for the next tick.
    Pending,
    /// The job runs, a part in each tick.
    Running,
    /// The job is done.
    Completed,
    /// The job ended before it was done.
    Failed,
    /// The job was given up: a higher height came before it was begun, or the block assembly stopped.
    Cancelled,
}

/// Why a job ended before it was done.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobEnd {
    /// A job for a higher height was made.
    Superseded,
    /// The block assembly is not running any more. The job's height is pending again.
    BlockAssemblyNotRunning,
    /// Deletions were stopped (`set_deletions_stopped`). The job's height is pending again.
    Stopped,
    /// `utxo_cancel_prune_job` ended the job: its height is neither processed nor pending.
    Cancelled,
    /// `utxo_set_heights` ended the job: its heights were others.
    HeightsSet,
    /// The job took longer than `job_timeout`. The job's height is pending again, and the next job goes on where this
    /// one was.
    TimedOut,
    /// A parent of an old unmined transaction could not be preserved: nothing was deleted, or nothing more where phase 1 was done
    /// again.
    PreserveParents(UtxoBlockedBy),
    /// Finding what comes next trapped again and again.
    Trapped {
        /// The phase in which that trapped.
        phase: UtxoPrunerPhase,
    },
}

/// The record that stands in the way of preserving parents.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoBlockedBy {
    /// The slot of the unmined record: the argument of `utxo_set_aside`.
    pub slot: u32,
    /// The unmined record's id, as far as its bytes can be believed.
    pub txid: Txid,
    /// The parent that cannot be preserved; none where the unmined record itself cannot be read.
    pub parent: Option<Txid>,
    /// The reason as a stable word, such as `OutOfSpace`, `LowCycles` or `Corrupt`.
    pub code: String,
    /// The reason as a sentence.
    pub why: String,
}

/// A record that is left alone, as looking at it trapped again and again.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPassedOver {
    /// The phase in which looking at the record trapped.
    pub phase: UtxoPrunerPhase,
    /// The record's slot: the argument of `utxo_set_aside`.
    pub slot: u32,
    /// The record's id.
    pub txid: Txid,
}

/// A phase of a job.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum UtxoPrunerPhase {
    /// Phase 1: parents of old unmined transactions are preserved.
    PreserveParents,
    /// The phase between: preservations that have expired are cleared.
    ExpirePreservations,
    /// Phase 2: records are deleted whose height has come.
    DeleteAtHeight,
}

/// The work of a job, in numbers.
#[native_docs]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
#[serde(default)]
pub struct UtxoPruneCounts {
    /// Phase 1: old unmined transactions that were looked at.
    pub old_unmined: u64,
    /// Phase 1: parents that were preserved, each as often as a transaction asks for it.
    pub parents_preserved: u64,
    /// The preservations that had expired, and were cleared between the phases.
    pub preservations_expired: u64,
    /// Phase 2: records that were looked at.
    pub processed: u64,
    /// Records that were deleted.
    pub records_deleted: u64,
    /// The pages of the records that were deleted.
    pub pages_deleted: u64,
    /// Records that wait until their blob outside is gone.
    pub records_deleting: u64,
    /// Outputs of surviving parents that say now that their spender was deleted.
    pub parents_updated: u64,
    /// Outputs of surviving parents that a double spend held, and that are unspent now.
    pub outputs_released: u64,
    /// Transactions in the BlobStore that went with their records.
    pub external_files_deleted: u64,
    /// The transactions in the BlobStore that were to go with their records, and were not there any more.
    pub external_files_missing: u64,
    /// Records that are kept in defensive mode: a spender is unmined.
    pub skipped_child_unmined: u64,
    /// Records that are kept in defensive mode: a spender was not mined for long enough.
    pub skipped_child_recent: u64,
    /// Records that are kept in defensive mode: a spender has no record, and was not deleted as far as its parent knows.
    pub skipped_child_absent: u64,
    /// Records that are kept: their data in the BlobStore or their row in the deletion queue made difficulties.
    pub external_errors: u64,
    /// Records that are kept: one or a parent of it cannot be decoded, is not what the index says, or there was no
    /// memory to list it under another height.
    pub record_errors: u64,
    /// Chunks of `utxo_chunk_size` records, and what was left at the end of a tick.
    pub chunks: u64,
}

/// The pruning of records for a height, over as many ticks as that takes, and its outcome.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPruneJob {
    /// The job's number, from 1.
    pub id: u64,
    /// The height for which the job was made.
    pub height: u32,
    /// The reason why the job was made.
    pub trigger: UtxoJobTrigger,
    /// The job's state.
    pub state: UtxoJobState,
    /// The reason why the job ended before it was done; none where it did not.
    pub end: Option<UtxoJobEnd>,
    /// The height at which the chain was when the job began, for an operator's job at most its own height; none before it
    /// begins.
    pub current_height: Option<u32>,
    /// The height up to which records are deleted; none before the job begins. It falls where the block persister begins
    /// meanwhile.
    pub safe_height: Option<u32>,
    /// The moment at which the job was made, in Unix nanoseconds.
    pub created_at: u64,
    /// The moment at which the job began, in Unix nanoseconds; none before.
    pub started_at: Option<u64>,
    /// The moment at which the job ended, in Unix nanoseconds; none before.
    pub ended_at: Option<u64>,
    /// The phase that the job is in, or was in when it ended.
    pub phase: UtxoPrunerPhase,
    /// How far the job's last tick came.
    pub progress: PruneProgress,
    /// The number of ticks that the job took.
    pub ticks: u64,
    /// The instructions of the job's ticks.
    pub instructions: u64,
    /// The job's work, in numbers.
    pub counts: UtxoPruneCounts,
}

/// The heights, as an operator sets them.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetHeights {
    /// The highest height that counts as notified, from 0.
    pub current: u32,
    /// The highest block that is persisted; none: the block persister does not run.
    pub persisted: Option<u32>,
    /// The height up to which records count as pruned, from 0.
    pub processed: u32,
}

/// The heights that were set, and the work that is due at them.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoHeightsSet {
    /// The heights that are in force now.
    pub heights: UtxoSetHeights,
    /// The height up to which records are due.
    pub safe_height: u32,
    /// The height below which unmined transactions are old.
    pub unmined_cutoff_height: u32,
    /// The job that waits now; none where the heights were processed.
    pub due: Option<UtxoPruneJob>,
}

/// A page of jobs: those that wait or run, then those that ended, the last first.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPruneJobPage {
    /// The jobs of the page.
    pub jobs: Vec<UtxoPruneJob>,
    /// The cursor with which the next page is asked for; none at the end.
    pub cursor: Option<u64>,
}

/// A label of a figure.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct MetricLabel {
    /// The label's name.
    pub name: String,
    /// The label's value.
    pub value: String,
}

/// A figure for a monitor.
#[native_docs]
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct Metric {
    /// The figure's name.
    pub name: String,
    /// The figure's labels.
    pub labels: Vec<MetricLabel>,
    /// The figure's value. Durations are seconds across ticks: time stands still in a message.
    pub value: f64,
}

/// Everything that an operator needs to see of the pruner.
#[native_docs]
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct UtxoPrunerStatus {
    /// The settings in force; `pruner_enabled` says whether the timer prunes records.
    pub settings: UtxoPrunerSettings,
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; none where they are not.
    pub deletions_stopped_since: Option<u64>,
    /// The state of the block assembly, as it was told.
    pub block_assembly: UtxoBlockAssemblyState,
    /// The highest height ever notified.
    pub current_height: u32,
    /// The highest height that `max_height_jump` and `heights_per_day` let a producer notify now, and that calls on records,
    /// and blocks that they name, may have.
    pub most_height: u32,
    /// The highest block that is persisted; none: the block persister does not run.
    pub last_persisted_height: Option<u32>,
    /// The height up to which records were pruned.
    pub last_processed_height: u32,
    /// The height up to which records would be deleted now.
    pub safe_height: u32,
    /// The height below which unmined transactions are old: their parents are preserved.
    pub unmined_cutoff_height: u32,
    /// The job that waits; none where none does.
    pub pending: Option<UtxoPruneJob>,
    /// The job that runs; none where none does.
    pub running: Option<UtxoPruneJob>,
    /// The last job that ended; none where none did.
    pub last_job: Option<UtxoPruneJob>,
    /// The record that stopped phase 1 of the last job; none where none did.
    pub blocked_by: Option<UtxoBlockedBy>,
    /// Slots of unmined records that cannot be read, or a parent of which cannot, and were set aside.
    pub set_aside: Vec<u32>,
    /// Records that are left alone, as looking at them trapped again and again: `utxo_set_aside`.
    pub passed_over: Vec<UtxoPassedOver>,
    /// Blobs outside that wait to be deleted.
    pub blobs_pending: u64,
    /// Blobs outside that were given up, whose records are still there.
    pub blobs_dead: u64,
    /// The work of all jobs, in numbers.
    pub totals: UtxoPruneCounts,
    /// The number of ticks since the canister was started; those with nothing to do, too.
    pub ticks: u64,
    /// The moment at which the next tick is due, in Unix nanoseconds.
    pub next_tick: u64,
    /// Figures for a monitor: counts, heights and durations, each by its name and labels.
    pub metrics: Vec<Metric>,
}
