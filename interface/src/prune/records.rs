//! Pruner of UTXO records (`pruner-service.md`): triggers, jobs, status. Heights are block heights; 0 means no height.

mod settings;

pub use settings::*;

use super::blocks::PruneProgress;
use crate::Txid;
use crate::error::{BadArgument, BadHeight};
use crate::settings::ConfigError;
use ic_coppice_macros::candid_type;
use thiserror::Error;

/// The state of the block assembly.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoBlockAssemblyState {
    /// The block assembly runs: records may be pruned.
    Running,
    /// The block assembly does not run, because of a reorg, a reset, or because it has not started: records may not be
    /// pruned.
    NotRunning,
}

/// Outcome of a notification. The height is recorded in any case.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoNotifyOutcome {
    /// A job was created, and waits for the next tick.
    Scheduled(UtxoPruneJob),
    /// A job for the height or a higher one is already waiting or running.
    Underway(UtxoPruneJob),
    /// The height, or a higher one, was already pruned: by this job, the last that completed, if the history has it.
    Processed(Option<UtxoPruneJob>),
    /// A block was persisted before, so that only `utxo_notify_block_persisted` triggers pruning.
    PersisterActive {
        /// The highest persisted block.
        last_persisted_height: u32,
    },
    /// The block's transactions are not marked as mined yet.
    NotMined,
}

/// The reason why a call was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UtxoPrunerError {
    /// The height was refused.
    #[error(transparent)]
    BadHeight(#[from] BadHeight),
    /// A feeder may not raise the height this far: `max_height_jump` limits one call, `heights_per_day` a day. An
    /// operator sets the height with `utxo_set_heights`.
    #[error("the height is too far above {highest}: at most {most} now; an operator may set it")]
    HeightJump {
        /// The highest notified or persisted height.
        highest: u32,
        /// The highest height that is accepted now.
        most: u32,
        /// The moment from which on the refused height is accepted, in Unix nanoseconds; `null`: `max_height_jump` is
        /// too small for it.
        accepted_at_ns: Option<u64>,
    },
    /// No job with this number waits or runs.
    #[error("no job with this number is pending or running")]
    NotOpen,
    /// The block assembly is not running: `utxo_set_block_assembly_state`.
    #[error("the block assembly is not running")]
    BlockAssemblyNotRunning,
    /// Deletions are stopped (`set_deletions_stopped`): only an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// An argument is invalid.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The slot contains no record that stops pruning or is skipped.
    #[error("no record in this slot blocks pruning")]
    NotBlocking,
    /// The number of unreadable records that are skipped has reached its limit.
    #[error("limit of unreadable records that are skipped ({limit}) reached")]
    TooMany {
        /// The most unreadable records that may be skipped.
        limit: u64,
    },
    /// A reason that this version does not know.
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

/// The reason why a job was created.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoJobTrigger {
    /// `utxo_notify_block_persisted` created the job.
    BlockPersisted,
    /// `utxo_notify_block` created the job, while no block was ever persisted.
    Block,
    /// `utxo_prune` created the job.
    Manual,
    /// A job for the same height timed out, or was ended because the block assembly or deletions stopped. A job of
    /// `utxo_prune` keeps its trigger.
    Resumed,
    /// The job was due when another job completed, or when an operator set the heights, because blocks were persisted
    /// in the meantime.
    Due,
}

/// The state of a job.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoJobState {
    /// The job waits for the next tick.
    Pending,
    /// The job runs, a part in each tick.
    Running,
    /// The job is done.
    Completed,
    /// The job timed out, trapped, or could not preserve a parent.
    Failed,
    /// The job was cancelled by a call, replaced by a job for a higher height before it began, or ended because the
    /// block assembly or deletions stopped.
    Cancelled,
}

/// The reason why a job ended before it was done.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UtxoJobEnd {
    /// A job for a higher height was created.
    Superseded,
    /// The block assembly no longer runs. The job's height is pending again.
    BlockAssemblyNotRunning,
    /// Deletions were stopped (`set_deletions_stopped`). The job's height is pending again.
    Stopped,
    /// `utxo_cancel_prune_job` ended the job: its height is neither processed nor pending.
    Cancelled,
    /// `utxo_set_heights` ended the job, because it changed the heights.
    HeightsSet,
    /// `reset_chain` emptied the chain.
    ChainReset,
    /// The job took longer than `job_timeout_secs`. The job's height is pending again, and the next job continues where this
    /// one stopped.
    TimedOut,
    /// A parent of an old unmined transaction could not be preserved: nothing was deleted, or nothing more if phase 1
    /// was repeated.
    PreserveParents(UtxoBlockedBy),
    /// The search for the next record trapped repeatedly.
    Trapped {
        /// The phase in which the search trapped.
        phase: UtxoPrunerPhase,
    },
}

/// The record that prevents the preservation of parents.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoBlockedBy {
    /// The slot of the unmined record: the argument of `utxo_skip_record`.
    pub slot: u32,
    /// The unmined record's id, which may be wrong if the record is damaged.
    pub txid: Txid,
    /// The parent that cannot be preserved; `null` if the unmined record itself cannot be read.
    pub parent: Option<Txid>,
    /// The reason as a stable word, such as `OutOfSpace`, `LowCycles` or `Corrupt`.
    pub code: String,
    /// The reason as a sentence.
    pub why: String,
}

/// The reason why a record is skipped.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoSkipReason {
    /// Reading the record trapped repeatedly.
    Trapped,
    /// The record or a parent of it cannot be read, and an operator skips the record.
    Unreadable,
}

/// A record that is skipped.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoSkipped {
    /// The reason.
    pub why: UtxoSkipReason,
    /// The phase that skips the record.
    pub phase: UtxoPrunerPhase,
    /// The record's slot: the argument of `utxo_skip_record`.
    pub slot: u32,
    /// The record's id.
    pub txid: Txid,
}

/// A phase of a job.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UtxoPrunerPhase {
    /// Phase 1: preserves parents of old unmined transactions.
    #[default]
    PreserveParents,
    /// Between the phases: clears preservations that have expired.
    ExpirePreservations,
    /// Phase 2: deletes records whose height has come.
    DeleteAtHeight,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counts of a job's work. A count of zero is not stored.
#[candid_type]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct UtxoPruneCounts {
    /// Phase 1: examined unmined transactions: old ones, and those that were mined before or have won as double spends.
    #[serde(skip_serializing_if = "is_zero")]
    pub old_unmined: u64,
    /// Phase 1: preserved parents; a parent counts once for each transaction that needs it.
    #[serde(skip_serializing_if = "is_zero")]
    pub parents_preserved: u64,
    /// Expired preservations that were cleared between the phases.
    #[serde(skip_serializing_if = "is_zero")]
    pub preservations_expired: u64,
    /// Phase 2: records that were examined.
    #[serde(skip_serializing_if = "is_zero")]
    pub processed: u64,
    /// Deleted records.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_deleted: u64,
    /// Pages of the deleted records.
    #[serde(skip_serializing_if = "is_zero")]
    pub pages_deleted: u64,
    /// Records that wait for the deletion of their external blob.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_deleting: u64,
    /// Outputs of surviving parents whose spender is now marked as deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub parents_updated: u64,
    /// Outputs of surviving parents that a double spend held, and that are now unspent.
    #[serde(skip_serializing_if = "is_zero")]
    pub outputs_released: u64,
    /// Transactions in the BlobStore that were deleted with their records.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_files_deleted: u64,
    /// Transactions in the BlobStore that should have been deleted with their records, but no longer existed.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_files_missing: u64,
    /// Records that defensive mode keeps, because a spender is unmined.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_child_unmined: u64,
    /// Records that defensive mode keeps, because a spender was not mined long enough ago.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_child_recent: u64,
    /// Records that defensive mode keeps, because a spender has no record, and the parent does not mark it as deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_child_absent: u64,
    /// Records that are kept, because their data in the BlobStore or their row in the deletion queue could not be
    /// removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_errors: u64,
    /// Records that are kept, because the record or a parent cannot be decoded or does not match the index, or because
    /// memory was missing to list the record under another height.
    #[serde(skip_serializing_if = "is_zero")]
    pub record_errors: u64,
    /// Chunks of `utxo_chunk_size` records, including partial chunks at the end of ticks.
    #[serde(skip_serializing_if = "is_zero")]
    pub chunks: u64,
}

/// A job: the pruning of records for a height, over as many ticks as needed, and its outcome.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoPruneJob {
    /// The job's number, from 1.
    pub id: u64,
    /// The height for which the job was created.
    pub height: u32,
    /// The reason why the job was created.
    pub trigger: UtxoJobTrigger,
    /// The job's state.
    pub state: UtxoJobState,
    /// The reason why the job ended before it was done; `null` otherwise.
    pub end: Option<UtxoJobEnd>,
    /// The chain's height when the job began, for an operator's job at most the job's height; `null` until the job
    /// begins.
    pub current_height: Option<u32>,
    /// The height up to which records are deleted; `null` until the job begins. It falls if the block persister starts
    /// in the meantime.
    pub safe_height: Option<u32>,
    /// The moment at which the job was created, in Unix nanoseconds.
    pub created_at_ns: u64,
    /// The moment at which the job began, in Unix nanoseconds; `null` until then.
    pub started_at_ns: Option<u64>,
    /// The moment at which the job ended, in Unix nanoseconds; `null` until then.
    pub ended_at_ns: Option<u64>,
    /// The current phase of the job, or its last one.
    pub phase: UtxoPrunerPhase,
    /// The progress of the job's last tick.
    pub progress: PruneProgress,
    /// The number of the job's ticks.
    pub ticks: u64,
    /// The instructions of the job's ticks.
    pub instructions: u64,
    /// The counts of the job's work.
    pub counts: UtxoPruneCounts,
}

/// The heights that an operator sets.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtxoSetHeights {
    /// The height that counts as the highest notified one, from 0.
    pub current: u32,
    /// The highest persisted block; `null`: the block persister does not run.
    pub persisted: Option<u32>,
    /// The height up to which records count as pruned, from 0.
    pub processed: u32,
}

/// The heights that were set, and the due work.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoHeightsSet {
    /// The heights that are in force now.
    pub heights: UtxoSetHeights,
    /// The height up to which records are due.
    pub safe_height: u32,
    /// The height below which unmined transactions are old.
    pub unmined_cutoff_height: u32,
    /// The waiting job; `null` if the heights are already processed.
    pub due: Option<UtxoPruneJob>,
}

/// A page of jobs: waiting and running jobs, then ended jobs, the last first.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtxoPruneJobPage {
    /// The jobs of the page.
    pub jobs: Vec<UtxoPruneJob>,
    /// The cursor of the next page; `null` at the end.
    pub cursor: Option<u64>,
}

/// A label of a metric.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricLabel {
    /// The label's name.
    pub name: String,
    /// The label's value.
    pub value: String,
}

/// A metric.
#[candid_type]
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The metric's name.
    pub name: String,
    /// The metric's labels.
    pub labels: Vec<MetricLabel>,
    /// The metric's value. Durations are seconds across ticks, because time does not advance during a message.
    pub value: f64,
}

/// Status of the pruner of UTXO records.
#[candid_type]
#[derive(Clone, Debug, PartialEq)]
pub struct UtxoPrunerStatus {
    /// The settings in force; `pruner_enabled` switches the timer on.
    pub settings: UtxoPrunerSettings,
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; `null` if they are
    /// not stopped.
    pub deletions_stopped_since_ns: Option<u64>,
    /// The state of the block assembly, as last reported.
    pub block_assembly: UtxoBlockAssemblyState,
    /// The height of the block assembly, as last reported: no record is deleted above it; `null` if it was not reported.
    pub block_assembly_height: Option<u32>,
    /// The highest height ever notified.
    pub current_height: u32,
    /// The highest height that a feeder may notify now, by `max_height_jump` and `heights_per_day`. It also bounds
    /// heights in calls on records, and of the blocks that they name.
    pub most_height: u32,
    /// The highest persisted block; `null`: the block persister does not run.
    pub last_persisted_height: Option<u32>,
    /// The height up to which records were pruned.
    pub last_processed_height: u32,
    /// The height up to which records would be deleted now.
    pub safe_height: u32,
    /// The height below which unmined transactions are old, so that their parents are preserved.
    pub unmined_cutoff_height: u32,
    /// The waiting job; `null` if there is none.
    pub pending: Option<UtxoPruneJob>,
    /// The running job; `null` if there is none.
    pub running: Option<UtxoPruneJob>,
    /// The last ended job; `null` if there is none.
    pub last_job: Option<UtxoPruneJob>,
    /// The record that stopped phase 1 of the last job; `null` if none did.
    pub blocked_by: Option<UtxoBlockedBy>,
    /// Records that are skipped: `utxo_skip_record` with `skip = false` tries them again.
    pub skipped: Vec<UtxoSkipped>,
    /// External blobs that wait for deletion.
    pub blobs_pending: u64,
    /// External blobs that were given up, and whose records still exist.
    pub blobs_dead: u64,
    /// The counts of all jobs' work.
    pub totals: UtxoPruneCounts,
    /// The number of ticks since the canister was started, including idle ticks.
    pub ticks: u64,
    /// The moment at which the next tick is due, in Unix nanoseconds.
    pub next_tick_ns: u64,
    /// Metrics: counts, heights and durations, each with a name and labels.
    pub metrics: Vec<Metric>,
}
