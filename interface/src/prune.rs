//! Policy, runs and status of pruning.

use crate::error::BadArgument;
use crate::settings::{ConfigError, settings};
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most ops of a prune message: each dropped index entry may dirty a page of 4 KiB, now and then two, and a message is to
/// dirty less than 75 MiB (`docs/design.md` 4).
pub const MAX_PRUNE_OPS: u64 = 15_000;
/// Most instructions of a prune message (`docs/design.md` 4).
pub const MAX_PRUNE_INSTRUCTIONS: u64 = 2_000_000_000;

settings! {
    /// When and how blocks are pruned: what is retained goes by age, number and bytes; `docs/design.md` 4 says how.
    pub struct PrunePolicy;
    /// A new policy; what is left out stays, and has its default where none was set before. A `target_bytes`, `retain_days`
    /// or `retain_blocks` of 0 switches that rule off.
    pub struct PrunePolicyArg;
    /// Pruning is switched on. While it is off, neither ticks nor `prune_now` prune blocks.
    pruning_enabled: bool = true;
    /// The bytes of the chain (`capacity_bytes` of the status) that the capacity trigger aims at; 0 switches it off.
    /// Low water and two blobs of the log must not be above high water.
    target_bytes: u64 = 0;
    /// The days for which blocks are retained; 0: age does not retain.
    retain_days: u64 = 0;
    /// The number of blocks behind the head that are retained; 0: count does not retain.
    retain_blocks: u64 = 0;
    /// The headroom in basis points, at most 10,000: high water is `target·(10000 − headroom/2)/10000`, low water
    /// `target·(10000 − headroom)/10000`.
    headroom_ratio_bps: u32 = 2_000, 0..=10_000;
    /// The emergency mark in basis points, at most 10,000: appends are refused once the chain has
    /// `target·emergency/10000` bytes. High water must be below it.
    emergency_ratio_bps: u32 = 9_500, 0..=10_000;
    /// The seconds within which the daemon sees to what has become due, 1 to 86,400.
    timer_interval_secs: u64 = 60, 1..=86_400;
    /// The most ops of one tick, 1 to 15,000: 1 a block, 2 a blob that becomes free, 1 an index entry that is dropped.
    max_ops_per_tick: u64 = 10_000, 1..=MAX_PRUNE_OPS;
    /// The most instructions of one tick, 1 to 2,000,000,000.
    max_instructions_per_tick: u64 = 1_000_000_000, 1..=MAX_PRUNE_INSTRUCTIONS;
    /// The number of blocks behind the head that age leaves, so that a reorg has a way back. A smaller `retain_blocks` that
    /// is not 0 counts instead. Capacity leaves the head and the block before it.
    min_kept_blocks: u64 = 16;
    /// The seconds without a producer's call to the chain after which an index is swept, at most 3,600; 0: at once.
    pause_after_secs: u64 = 5, 0..=3_600;
    /// The most ticks for which a sweep waits for such a pause; 0: it does not wait.
    max_pending_ticks: u64 = 8;
    /// The stale index entries up to which a sweep may wait for a pause, where that is more than the table's own mark; 0:
    /// the mark.
    max_collected_keys: u64 = 0;
    /// The seconds for which an exporter may hold back what is due before `health` calls it a problem.
    max_export_lag_secs: u64 = 86_400;
}

/// What a change of the policy did.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePolicyChange {
    /// The policy that was in force; none where none was set.
    pub old: Option<PrunePolicy>,
    /// The policy that is in force now.
    pub new: PrunePolicy,
}

/// Why a policy, or a run, was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum PruneError {
    /// An argument makes no sense.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// No policy was set, so there is nothing to go by.
    #[error("no policy is set: call set_prune_policy")]
    NoPolicy,
    /// Deletions are stopped (`set_deletions_stopped`): an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

impl From<ConfigError> for PruneError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::BadArgument(argument) => Self::BadArgument(argument),
            ConfigError::Other { code, message } => Self::Other { code, message },
        }
    }
}

/// Why deletions were not started again. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum DeletionsError {
    /// Operators stop deletions, and only an admin starts them again.
    #[error("only an admin starts deletions again")]
    AdminOnly,
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The reason that holds pruning back.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum HeldBy {
    /// An exporter, by its name, has not acknowledged what comes next.
    #[error("exporter {0} has not acknowledged the next block")]
    Exporter(String),
    /// An exporter, by its name, has no key since an admin revoked its role, and has not acknowledged what comes next.
    #[error("exporter {0} has no key since its role was revoked: an admin registers a principal or removes it")]
    KeylessExporter(String),
    /// `require_export` is set and no exporter is registered.
    #[error("require_export is set and no exporter is registered")]
    NoExporter,
    /// Nothing holds pruning back: the daemon has not come round yet.
    #[error("nothing holds pruning: a tick will prune")]
    PruneLag,
    /// Pruning is switched off.
    #[error("pruning is switched off")]
    Disabled,
    /// The floor keeps what age or capacity would take: `min_kept_blocks` from age, the head and the block before it from
    /// capacity. Appends are never refused in its name.
    #[error("the floor of kept blocks")]
    Floor,
    /// The daemon is paused: liquid cycles are below `min_liquid_cycles`, or do not pay for timers.
    #[error("liquid cycles are below min_liquid_cycles: top up the canister")]
    LowCycles,
    /// Deletions are stopped (`set_deletions_stopped`): an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
}

/// Why a run is due.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PruneReason {
    /// The oldest block is behind what age and count retain.
    Retention,
    /// Kept bytes are above high water, or on the way from there down to low water.
    Capacity,
}

/// Why a run stopped before its target.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum StopReason {
    /// The ops of a tick are used up.
    Ops,
    /// The instructions of a tick are used up.
    Instructions,
    /// An exporter has not acknowledged what comes next.
    Guard,
    /// More pages of memory would be changed than a message should (UTXO records).
    Pages,
    /// The chunks of a tick are used up (UTXO records).
    Chunks,
    /// Stable memory must grow first, which a message of its own does (UTXO records).
    Memory,
    /// Deletions are stopped (`set_deletions_stopped`).
    Stopped,
}

/// How far a run came.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PruneProgress {
    /// The target is reached.
    Finished,
    /// The next tick goes on.
    HasMore {
        /// The reason why the run stopped before its target; none where a later version has one that the reader does not know.
        reason: Option<StopReason>,
    },
}

/// A run: from when something is due until nothing more of it may go, over as many ticks as that takes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneRun {
    /// The moment at which the run began, in Unix nanoseconds.
    pub at: u64,
    /// The reason why the run was due; none where nothing was.
    pub reason: Option<PruneReason>,
    /// The number below which blocks were to go.
    pub target: u64,
    /// How far the run came.
    pub progress: PruneProgress,
    /// The number of ticks, and calls of `prune_now`, that the run took so far.
    pub ticks: u64,
    /// The number of blocks that went.
    pub blocks: u64,
    /// The number of index entries that sweeps dropped in the same messages.
    pub dropped: u64,
    /// The ops of the run: 1 a block, 2 a blob that became free, 1 an index entry that was dropped.
    pub ops: u64,
    /// The number of blobs that became free.
    pub blobs: u64,
    /// The payload bytes that went.
    pub bytes: u64,
    /// The number of faults: what could not be read and was skipped.
    pub faults: u64,
    /// The instructions of all ticks of the run.
    pub instructions: u64,
}

/// What the next run would do.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePlan {
    /// The policy by which the run is planned: the one in force, or the one that the change would make of it.
    pub policy: PrunePolicy,
    /// The reason why something is due; none where nothing is.
    pub reason: Option<PruneReason>,
    /// The number below which age and count no longer retain blocks.
    pub retain_min_block: u64,
    /// The number below which blocks are to go.
    pub target: u64,
    /// The number below which blocks may go: as far as the export guard allows.
    pub before: u64,
    /// The reason that holds pruning back: the daemon as a whole, or at `before`; `Floor` where nothing else does and the
    /// floor keeps blocks; none where nothing does.
    pub held_by: Option<HeldBy>,
    /// The number from which on the floor keeps blocks that age or capacity would take; none where it keeps none of them.
    pub floor_block: Option<u64>,
    /// The number of blocks that one tick with the policy's budget would take, from `pruned_before_block` on.
    pub blocks: u64,
    /// The ops of that tick: 1 a block, 2 a blob that would become free. Index entries are dropped by sweeps, which are not
    /// planned.
    pub ops: u64,
    /// The number of blobs that would become free.
    pub blobs: u64,
    /// The payload bytes that would go.
    pub bytes: u64,
    /// How far that tick would come. Instructions are reckoned generously: where they are the limit, a run may go further.
    pub progress: PruneProgress,
}

/// What the daemon does with the indexes (`docs/pruning-pipeline.md`).
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum SweepPhase {
    /// No entry is stale.
    Idle,
    /// Pruned blocks leave stale entries, fewer than are worth a sweep.
    Collecting,
    /// A sweep is due, and waits for a pause of the producers.
    Ready,
    /// A sweep is under way.
    Applying,
}

/// One of the two indexes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct IndexDebt {
    /// The number of entries, stale ones too.
    pub entries: u64,
    /// Buckets of 28 entries.
    pub buckets: u64,
    /// The most entries that may be stale.
    pub debt: u64,
    /// The debt at which a sweep begins, in a pause.
    pub begins_at: u64,
    /// The debt at which it no longer waits for a pause.
    pub forced_at: u64,
    /// The bucket with which the sweep that is under way goes on; none where none is.
    pub cursor: Option<u64>,
    /// Entries that sweeps ever dropped.
    pub dropped: u64,
    /// Sweeps that ever came to their end.
    pub sweeps: u64,
}

/// What is still to be pruned, and how fast that goes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneBacklog {
    /// The number of blocks that may go now.
    pub blocks: u64,
    /// The number of transactions and secondary keys of the blocks that may go now.
    pub references: u64,
    /// The number of blocks that are due, and that an exporter, or `set_deletions_stopped`, keeps.
    pub held_blocks: u64,
    /// The moment since when an exporter, or that there is none, has kept what is due, in Unix seconds; none where nothing
    /// is kept.
    pub held_since: Option<u64>,
    /// The most index entries that may be stale.
    pub debt: u64,
    /// The moment since when ticks have ended with work left, in Unix seconds; none where they have not.
    pub behind_since: Option<u64>,
    /// The blocks pruned an hour, over the last ten minutes or so; since the canister was started where that is less.
    pub pruned_per_hour: u64,
    /// The blocks appended an hour, over the last ten minutes or so; since the canister was started where that is less.
    pub appended_per_hour: u64,
    /// The seconds after which no block is left to prune, at these rates; none where it would never be so, and where only a
    /// sweep is left.
    pub empty_in_secs: Option<u64>,
}

/// Bytes that a kept block adds to `capacity_bytes`, its blobs apart.
pub const BLOCK_BYTES: u64 = 320;
/// Bytes that each of its transactions and keys adds: an entry of an index, with its share of what is empty.
pub const REFERENCE_BYTES: u64 = 32;

/// Bytes of `capacity_bytes` at which something happens.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct WaterMarks {
    /// The mark above which pruning for capacity begins.
    pub high: u64,
    /// The mark at which pruning for capacity ends, or below it.
    pub low: u64,
    /// The mark from which on appends are refused.
    pub emergency: u64,
}

/// Everything that an operator needs to see of pruning. All "before" bounds are exclusive.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneStatus {
    /// The policy in force; `null` before one was set.
    pub policy: Option<PrunePolicy>,
    /// A policy is set, and its `pruning_enabled` is on.
    pub enabled: bool,
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; none where they are not.
    pub deletions_stopped_since: Option<u64>,
    /// Something is due now, whether the daemon may prune or not.
    pub need_prune: bool,
    /// The reason why something is due; none where nothing is.
    pub reason: Option<PruneReason>,
    /// The number below which blocks are to go.
    pub target: u64,
    /// The reason that holds pruning back, where something is due; `Floor` where nothing else does and the floor keeps
    /// blocks; none where nothing does.
    pub held_by: Option<HeldBy>,
    /// The number below which age and count no longer retain blocks.
    pub retain_min_block: u64,
    /// The number from which on the floor keeps blocks that age or capacity would take; none where it keeps none of them.
    pub floor_block: Option<u64>,
    /// The number from which on no block may be pruned, as not every exporter has acknowledged it; none where nothing
    /// guards.
    pub exported_before_block: Option<u64>,
    /// The number below which blocks are gone.
    pub pruned_before_block: u64,
    /// The block that the next run begins with; none where nothing may go.
    pub prune_cursor: Option<u64>,
    /// The blocks that are still to be pruned, and how fast that goes.
    pub backlog: PruneBacklog,
    /// The sweep of the indexes: whether one is due, waits, or is under way.
    pub sweep: SweepPhase,
    /// The index of transaction ids.
    pub transaction_index: IndexDebt,
    /// The index of secondary keys.
    pub key_index: IndexDebt,
    /// The next tick goes on with the last run.
    pub running: bool,
    /// The number of the oldest kept block; none where there is none.
    pub oldest_kept_block: Option<u64>,
    /// The monotonic time of the oldest kept block, in Unix seconds; none where there is none.
    pub oldest_kept_timestamp: Option<u64>,
    /// The head's number; none where there is no block yet.
    pub head: Option<u64>,
    /// The kept bytes of the chain: class bytes of its blobs.
    pub estimated_kept_bytes: u64,
    /// The bytes that the water marks are compared with: `estimated_kept_bytes`, 320 bytes a kept block, and 32 for each of
    /// its transactions and keys.
    pub capacity_bytes: u64,
    /// The marks that `capacity_bytes` is compared with; none without a capacity trigger.
    pub water_marks: Option<WaterMarks>,
    /// The last run that pruned something, summed over its ticks.
    pub last_run: Option<PruneRun>,
    /// The number of runs since the canister was installed.
    pub runs: u64,
    /// The number of ticks since the canister was started; runs and idle ones.
    pub ticks: u64,
    /// The moment at which the next tick is due, in Unix nanoseconds.
    pub next_tick: u64,
    /// The number of blocks ever pruned.
    pub pruned_blocks: u64,
    /// The payload bytes of the blocks ever pruned.
    pub pruned_bytes: u64,
    /// The number of faults ever: what could not be read and was skipped.
    pub faults: u64,
    /// The number of faults that an operator has acknowledged.
    pub acknowledged_faults: u64,
    /// The work that is set aside, as ticks trapped at it again and again: blocks, parts of an index, and kinds of
    /// work.
    pub set_aside: Vec<String>,
}
