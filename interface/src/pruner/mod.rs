//! The pruner of UTXO records (`pruner-service.md`): triggers, jobs, status. Heights are block heights; 0 is none.

mod settings;

pub use settings::*;

use super::{PruneProgress, UtxoError};
use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Whether the block assembly runs, or something else is going on: a reorg, a reset, nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoBlockAssemblyState {
    /// Records may be pruned.
    Running,
    /// They may not.
    NotRunning,
}

/// What a notification came to. The height is noted in any case.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoNotifyOutcome {
    /// This job waits for the next tick.
    Scheduled(UtxoPruneJob),
    /// This job, for the height or a higher one, waits or runs already.
    Underway(UtxoPruneJob),
    /// The height, or a higher one, was pruned: the last job that completed, if one did.
    Processed(Option<UtxoPruneJob>),
    /// A block was persisted before: only `notify_block_persisted` has records pruned.
    PersisterActive {
        /// The highest block that is persisted.
        last_persisted_height: u32,
    },
    /// The block's transactions are not marked as mined yet.
    NotMined,
}

/// Why something was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoPrunerError {
    /// The height is 0, which means "none".
    ZeroHeight,
    /// The height is no block's: 2^31 or more.
    BadHeight {
        /// The largest one.
        most: u32,
    },
    /// The height is more than `max_height_jump` above the highest one that was notified. An operator's `set_heights` says
    /// where the chain is.
    HeightJump {
        /// The highest that was notified.
        current: u32,
        /// The highest that may be notified now.
        most: u32,
    },
    /// No job with this number waits or runs.
    NotOpen,
    /// The block assembly is not running: `set_block_assembly_state`.
    BlockAssemblyNotRunning,
    /// A setting's value makes no sense.
    Invalid {
        /// Which setting.
        field: String,
        /// A sentence.
        why: String,
    },
    /// No record lies there that cannot be read, was set aside, or is left alone.
    NotBlocking,
    /// So many records are set aside already.
    TooMany {
        /// The most of them.
        limit: u64,
    },
}

/// What had a job made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobTrigger {
    /// `notify_block_persisted`.
    BlockPersisted,
    /// `notify_block`, while nothing was persisted.
    Block,
    /// `prune_utxos`.
    Manual,
    /// A job for the same height timed out, or the block assembly stopped it.
    Resumed,
    /// It was due when another job completed, or when an operator set the heights: blocks were persisted meanwhile.
    Due,
}

/// What becomes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobState {
    /// It waits for the next tick.
    Pending,
    /// It runs, a part in each tick.
    Running,
    /// It is done.
    Completed,
    /// It ended before it was done.
    Failed,
    /// It was given up: a higher height came before it was begun, or the block assembly stopped.
    Cancelled,
}

/// Why a job ended before it was done.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoJobEnd {
    /// A job for a higher height took its place.
    Superseded,
    /// The block assembly is not running any more. Its height is pending again.
    BlockAssemblyNotRunning,
    /// `cancel_prune_job`: its height is neither processed nor pending.
    Cancelled,
    /// `set_heights`: its heights were others.
    HeightsSet,
    /// It took longer than `job_timeout`. Its height is pending again, and its place kept.
    TimedOut,
    /// A parent of an old unmined transaction could not be preserved: nothing was deleted, or nothing more where phase 1 was done
    /// again.
    PreserveParents(UtxoBlockedBy),
    /// Finding what comes next trapped again and again.
    Trapped {
        /// In this phase.
        phase: UtxoPrunerPhase,
    },
}

/// What stands in the way of preserving parents.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoBlockedBy {
    /// Where the unmined record lies: the argument of `set_aside_unmined`.
    pub slot: u32,
    /// Its id, as far as its bytes can be believed.
    pub txid: ByteBuf,
    /// Of its parents the one in whose way it stands; none where the unmined record itself cannot be read.
    pub parent: Option<ByteBuf>,
    /// What is wrong.
    pub error: UtxoError,
}

/// A record that is left alone, as looking at it trapped again and again.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPassedOver {
    /// In this phase.
    pub phase: UtxoPrunerPhase,
    /// Where it lies: the argument of `retry_record`, and for phase 1, which it stops, of `set_aside_unmined`.
    pub slot: u32,
    /// Its id.
    pub txid: ByteBuf,
}

/// Which phase a run is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum UtxoPrunerPhase {
    /// 1: parents of old unmined transactions are preserved.
    PreserveParents,
    /// Between: preservations that have expired are cleared.
    ExpirePreservations,
    /// 2: records are deleted whose height has come.
    DeleteAtHeight,
}

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
#[serde(default)]
pub struct UtxoPruneCounts {
    /// Phase 1: old unmined transactions that were looked at.
    pub old_unmined: u64,
    /// Phase 1: parents that were preserved, each as often as a transaction asks for it.
    pub parents_preserved: u64,
    /// Between: preservations that had expired.
    pub preservations_expired: u64,
    /// Phase 2: records that were looked at.
    pub processed: u64,
    /// Records that were deleted.
    pub records_deleted: u64,
    /// Pages behind them.
    pub pages_deleted: u64,
    /// Records that wait until their blob outside is gone.
    pub records_deleting: u64,
    /// Outputs of surviving parents that say now that their spender was deleted.
    pub parents_updated: u64,
    /// Outputs of surviving parents that a double spend held, and that are unspent now.
    pub outputs_released: u64,
    /// Transactions in the BlobStore that went with their records.
    pub external_files_deleted: u64,
    /// …of which nothing was there any more.
    pub external_files_missing: u64,
    /// Kept: a spender is unmined (defensive mode).
    pub skipped_child_unmined: u64,
    /// Kept: a spender was not mined for long enough (defensive mode).
    pub skipped_child_recent: u64,
    /// Kept: a spender has no record, and was not deleted as far as its parent knows (defensive mode).
    pub skipped_child_absent: u64,
    /// Kept: its data in the BlobStore or its place in the deletion queue made difficulties.
    pub external_errors: u64,
    /// Kept: it or a parent cannot be decoded, it is not what the index says, or there was no memory for its place in another.
    pub record_errors: u64,
    /// Chunks of `utxo_chunk_size` records, and what was left at the end of a tick.
    pub chunks: u64,
}

/// A run for a height, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPruneJob {
    /// Its number, from 1.
    pub id: u64,
    /// The height for which it was made.
    pub height: u32,
    /// By what.
    pub trigger: UtxoJobTrigger,
    /// What became of it.
    pub state: UtxoJobState,
    /// Why it ended before it was done.
    pub end: Option<UtxoJobEnd>,
    /// The height at which the chain was when it began, for an operator's job at most its own height; none before it begins.
    pub current_height: Option<u32>,
    /// Records are deleted whose height is this one or lower; none before it begins. It falls where the block persister begins meanwhile.
    pub safe_height: Option<u32>,
    /// When it was made, in Unix nanoseconds.
    pub created_at: u64,
    /// When it began, in Unix nanoseconds; none before.
    pub started_at: Option<u64>,
    /// When it ended, in Unix nanoseconds; none before.
    pub ended_at: Option<u64>,
    /// The phase it is in, or was in when it ended.
    pub phase: UtxoPrunerPhase,
    /// How far its last tick came.
    pub progress: PruneProgress,
    /// Ticks that it took.
    pub ticks: u64,
    /// Their instructions.
    pub instructions: u64,
    /// What it did.
    pub counts: UtxoPruneCounts,
}

/// The heights, as an operator sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSetHeights {
    /// The highest height that was notified; 0: none was.
    pub current: u32,
    /// The highest block that is persisted; none: the block persister does not run.
    pub persisted: Option<u32>,
    /// The height up to which records were pruned; 0: none were.
    pub processed: u32,
}

/// What is due at the heights that were set.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoHeightsSet {
    /// Records are due whose height is this one or lower.
    pub safe_height: u32,
    /// Unmined transactions older than this are old; 0: none is.
    pub unmined_cutoff_height: u32,
    /// The job that waits now; none where the heights were processed.
    pub due: Option<UtxoPruneJob>,
}

/// A page of jobs: those that wait or run, then those that ended, the last first.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPruneJobPage {
    /// The jobs.
    pub jobs: Vec<UtxoPruneJob>,
    /// Where to go on; none at the end.
    pub cursor: Option<u64>,
}

/// A label of a figure.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct MetricLabel {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A figure for a monitor, with the name that `pruner-service.md` gives it.
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Vec<MetricLabel>,
    /// Its value. Durations are seconds across ticks: time stands still in a message.
    pub value: f64,
}

/// Everything that an operator needs to see of the pruner.
#[derive(Clone, Debug, PartialEq, CandidType, Serialize, Deserialize)]
pub struct UtxoPrunerStatus {
    /// `pruner_enabled`.
    pub enabled: bool,
    /// As it was told.
    pub block_assembly: UtxoBlockAssemblyState,
    /// The highest height ever notified.
    pub current_height: u32,
    /// The highest block that is persisted; none: the block persister does not run.
    pub last_persisted_height: Option<u32>,
    /// The height up to which records were pruned.
    pub last_processed_height: u32,
    /// Records would be deleted now whose height is this one or lower.
    pub safe_height: u32,
    /// Unmined transactions older than this are old: their parents are preserved. 0: none is.
    pub unmined_cutoff_height: u32,
    /// The job that waits.
    pub pending: Option<UtxoPruneJob>,
    /// The job that runs.
    pub running: Option<UtxoPruneJob>,
    /// The last job that ended.
    pub last_job: Option<UtxoPruneJob>,
    /// What stopped phase 1 of the last run, if it did.
    pub blocked_by: Option<UtxoBlockedBy>,
    /// Slots of unmined records that cannot be read, or a parent of which cannot, and were set aside.
    pub set_aside: Vec<u32>,
    /// Records that are left alone, as looking at them trapped again and again: `retry_record`.
    pub passed_over: Vec<UtxoPassedOver>,
    /// Blobs outside that wait to be deleted.
    pub blobs_pending: u64,
    /// Blobs outside that were given up, whose records are still there.
    pub blobs_dead: u64,
    /// Sums over all jobs.
    pub totals: UtxoPruneCounts,
    /// Ticks since the canister was started; those with nothing to do, too.
    pub ticks: u64,
    /// Unix nanoseconds at which the next tick is due.
    pub next_tick: u64,
    /// With the names of `pruner-service.md` 2.3 and 4.
    pub metrics: Vec<Metric>,
}
