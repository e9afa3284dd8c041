//! Pruner of blocks: policy, runs and status.

use crate::error::BadArgument;
use crate::settings::{ConfigError, settings};
use ic_coppice_macros::candid_type;
use thiserror::Error;

/// Most ops of a prune message. The pages that a message changes are bounded apart from its ops (`docs/design/pruning.md`).
pub const MAX_PRUNE_OPS: u64 = 1_000_000;
/// Most instructions of a prune message (`docs/design/pruning.md`).
pub const MAX_PRUNE_INSTRUCTIONS: u64 = 2_000_000_000;

settings! {
    /// Policy of block pruning: retention by age, number and bytes (`docs/design/pruning.md`).
    pub struct PrunePolicy;
    /// A change of the policy. Absent fields are unchanged; if no policy was set, they get their defaults. A
    /// `target_bytes`, `retain_days` or `retain_blocks` of 0 switches that rule off.
    pub struct PrunePolicyArg;
    /// Pruning is switched on. While it is off, the timer prunes no block; `prune_now` still does.
    pruning_enabled: bool = true;
    /// The bytes of the chain (`capacity_bytes` of the status) at which the capacity trigger aims; 0 switches it off.
    /// Low water plus two blobs of the log must not exceed high water. A new target must fit below `max_stable_pages`.
    target_bytes: u64 = 0;
    /// The number of days for which blocks are retained; 0 switches retention by age off.
    retain_days: u64 = 0;
    /// The number of blocks below the head that are retained; 0 switches retention by number off.
    retain_blocks: u64 = 0;
    /// The headroom in basis points, at most 10,000: high water is `target·(10000 − headroom/2)/10000`, low water
    /// `target·(10000 − headroom)/10000` of the effective target (`water_marks` of the status).
    headroom_ratio_bps: u32 = 2_000, 0..=10_000;
    /// Emergency water in basis points, at most 10,000: appends are refused once the chain has `target·emergency/10000`
    /// bytes. High water must be below it.
    emergency_ratio_bps: u32 = 9_500, 0..=10_000;
    /// The seconds within which the daemon prunes what a call has made due, 1 to 86,400. The safety timer prunes every ten
    /// minutes, so 600 or more arm no timer of their own. At high water and at emergency water a tick follows at once.
    timer_interval_secs: u64 = 600, 1..=86_400;
    /// The most ops of one tick, 1 to 1,000,000: 1 for each block, 2 for each blob that is freed, 1 for each index entry
    /// that is dropped. A tick also ends before it changes more than 68 MiB of stable memory.
    max_ops_per_tick: u64 = 200_000, 1..=MAX_PRUNE_OPS;
    /// The most instructions of one tick, 1 to 2,000,000,000.
    max_instructions_per_tick: u64 = 500_000_000, 1..=MAX_PRUNE_INSTRUCTIONS;
    /// The number of blocks below the head that pruning by age keeps, so that a reorg remains possible. A smaller
    /// `retain_blocks` other than 0 is used instead. Pruning by capacity keeps the head and its parent.
    min_kept_blocks: u64 = 16;
    /// The seconds without a producer's call to the chain after which an index is swept, at most 3,600; 0: at once. A
    /// sweep waits for such a pause for at most 8 ticks.
    pause_after_secs: u64 = 5, 0..=3_600;
    /// The seconds for which an exporter may hold back due blocks before `health` reports a problem.
    max_export_lag_secs: u64 = 86_400;
}

/// Outcome of a change of the policy.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunePolicyChange {
    /// The previous policy; `null` if none was set.
    pub old: Option<PrunePolicy>,
    /// The policy in force now.
    pub new: PrunePolicy,
}

/// The reason why a policy, or a run, was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PruneError {
    /// An argument is invalid.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// No policy is set.
    #[error("no policy is set: call set_prune_policy")]
    NoPolicy,
    /// Deletions are stopped (`set_deletions_stopped`): only an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// A reason that this version does not know.
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

/// The reason why deletions were not started again. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeletionsError {
    /// Operators may stop deletions, but only an admin starts them again.
    #[error("only an admin starts deletions again")]
    AdminOnly,
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The reason that holds back pruning.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeldBy {
    /// The exporter with this name has not acknowledged the next block.
    #[error("exporter {0} has not acknowledged the next block")]
    Exporter(String),
    /// The exporter with this name has not acknowledged the next block, and has no key since an admin revoked its role.
    #[error("exporter {0} has no key since its role was revoked: an admin registers a principal or removes it")]
    KeylessExporter(String),
    /// `require_export` is set and no exporter is registered.
    #[error("require_export is set and no exporter is registered")]
    NoExporter,
    /// Nothing holds back pruning: the daemon has not pruned the due blocks yet.
    #[error("the next tick makes room: try again")]
    PruneLag,
    /// Pruning is switched off.
    #[error("pruning is switched off")]
    Disabled,
    /// The floor keeps blocks that age or capacity would prune: `min_kept_blocks` for age, the head and its parent for
    /// capacity. Appends are never refused for this reason.
    #[error("the floor keeps the newest blocks")]
    Floor,
    /// The daemon is paused: liquid cycles are below `min_liquid_cycles`, or do not pay for timers.
    #[error("liquid cycles are below min_liquid_cycles: top up the canister")]
    LowCycles,
    /// Deletions are stopped (`set_deletions_stopped`): only an admin starts them again.
    #[error("deletions are stopped: an admin starts them with set_deletions_stopped(false)")]
    Stopped,
    /// The next block is not applied to the UTXO records yet.
    #[error("the next block is not applied to the UTXO records yet: apply it, or call utxo_stop_applying")]
    UtxoApply,
}

/// The reason why a run is due.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneReason {
    /// The oldest block is no longer retained by age and number.
    Retention,
    /// Kept bytes are above high water, or were and have not yet fallen to low water.
    Capacity,
}

/// The reason why a run stopped before its target.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The ops of a tick are used up.
    Ops,
    /// The instructions of a tick are used up.
    Instructions,
    /// An exporter has not acknowledged the next block, or it is not applied to the UTXO records.
    Guard,
    /// The message would change or read more pages of memory than it should.
    Pages,
    /// The chunks of a tick are used up (UTXO records).
    Chunks,
    /// Stable memory must grow first, in a separate message (UTXO records).
    Memory,
    /// Deletions are stopped (`set_deletions_stopped`).
    Stopped,
}

/// Progress of a run.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneProgress {
    /// The target is reached.
    Finished,
    /// The next tick continues the run.
    HasMore {
        /// The reason why the run stopped before its target; `null` if a later version has a reason that the reader
        /// does not know.
        reason: Option<StopReason>,
    },
}

/// A run: from the first due block until no block is due and prunable, over as many ticks as needed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRun {
    /// The moment at which the run began, in Unix nanoseconds.
    pub started_at_ns: u64,
    /// The reason why the run was due; `null` if nothing was due.
    pub reason: Option<PruneReason>,
    /// The number below which blocks were due.
    pub target: u64,
    /// Progress of the run.
    pub progress: PruneProgress,
    /// The number of ticks, and calls of `prune_now`, of the run so far.
    pub ticks: u64,
    /// The number of pruned blocks.
    pub blocks: u64,
    /// The number of index entries that sweeps dropped in the same messages.
    pub dropped: u64,
    /// The ops of the run: 1 for each block, 2 for each blob that was freed, 1 for each index entry that was dropped.
    pub ops: u64,
    /// The number of freed blobs.
    pub blobs: u64,
    /// The payload bytes of the pruned blocks.
    pub bytes: u64,
    /// The number of faults: unreadable data that was skipped.
    pub faults: u64,
    /// The instructions of all ticks of the run.
    pub instructions: u64,
}

/// Forecast of the next run.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunePlan {
    /// The policy by which the run is planned: the policy in force, with the change of the call.
    pub policy: PrunePolicy,
    /// The reason why something is due; `null` if nothing is due.
    pub reason: Option<PruneReason>,
    /// The number below which age and number no longer retain blocks.
    pub retain_min_block: u64,
    /// The number below which blocks are due.
    pub target: u64,
    /// The number below which the export guard allows pruning.
    pub before: u64,
    /// The reason that holds back pruning, of the daemon as a whole or at `before`; `Floor` if there is no other reason
    /// and the floor keeps blocks; `null` if nothing holds back pruning.
    pub held_by: Option<HeldBy>,
    /// The number from which on the floor keeps blocks that age or capacity would prune; `null` if the floor keeps no
    /// such block.
    pub floor_block: Option<u64>,
    /// The number of blocks that one tick with the policy's budget would prune, from `pruned_before_block` on.
    pub blocks: u64,
    /// The ops of that tick: 1 for each block, 2 for each blob that would be freed. Sweeps, which drop index entries,
    /// are not planned.
    pub ops: u64,
    /// The number of blobs that would be freed.
    pub blobs: u64,
    /// The payload bytes that would be pruned.
    pub bytes: u64,
    /// Progress of that tick. Instructions are estimated generously: if they are the limit, a run may get further.
    pub progress: PruneProgress,
}

/// State of the sweep of the indexes (`docs/design/pruning.md`).
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepPhase {
    /// No entry is stale.
    Idle,
    /// Pruned blocks leave stale entries, too few for a sweep.
    Collecting,
    /// A sweep is due, and waits for a pause of the producers.
    Ready,
    /// A sweep is in progress.
    Applying,
}

/// State of one of the two indexes.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDebt {
    /// The number of entries, including stale ones.
    pub entries: u64,
    /// The number of buckets, of 28 entries each.
    pub buckets: u64,
    /// The most entries that may be stale: the debt.
    pub debt: u64,
    /// The debt at which a sweep begins during a pause.
    pub begin_debt: u64,
    /// The debt at which a sweep begins without a pause.
    pub forced_debt: u64,
    /// The bucket at which the sweep in progress continues; `null` if no sweep is in progress.
    pub cursor: Option<u64>,
    /// The number of entries ever dropped by sweeps.
    pub dropped: u64,
    /// The number of sweeps ever finished.
    pub sweeps: u64,
}

/// Blocks and index entries that are left to prune, and the rate of pruning.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneBacklog {
    /// The number of blocks that may be pruned now.
    pub blocks: u64,
    /// The number of transactions and secondary keys of the blocks that may be pruned now.
    pub references: u64,
    /// The number of due blocks that an exporter, or `set_deletions_stopped`, keeps.
    pub held_blocks: u64,
    /// The moment since which an exporter, or a missing exporter, has kept due blocks, in Unix seconds; `null` if no
    /// due block is kept.
    pub held_since_secs: Option<u64>,
    /// The most index entries that may be stale.
    pub debt: u64,
    /// The moment since which ticks have ended with work left, in Unix seconds; `null` if the last tick left none.
    pub behind_since_secs: Option<u64>,
    /// The number of blocks pruned an hour, over the last ten minutes or so, or since the canister was started if that
    /// is shorter.
    pub pruned_per_hour: u64,
    /// The number of blocks appended an hour, over the last ten minutes or so, or since the canister was started if
    /// that is shorter.
    pub appended_per_hour: u64,
    /// The seconds until no block is left to prune, at these rates; `null` if the rates never reach that, or if only a
    /// sweep is left.
    pub empty_in_secs: Option<u64>,
}

/// Bytes that a kept block adds to `capacity_bytes`, besides its blobs.
pub const BLOCK_BYTES: u64 = 256;
/// Bytes that each transaction and key of a block adds: an index entry, with its share of empty space.
pub const REFERENCE_BYTES: u64 = 32;

/// Watermarks of the capacity trigger: bytes, compared with `capacity_bytes`.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaterMarks {
    /// The effective target, of which the marks are shares: the smaller of `target_bytes` and the bytes that the chain
    /// can have under `max_stable_pages`, beside all other data and with 16 MiB left for one append.
    pub target: u64,
    /// High water: above it, pruning by capacity begins.
    pub high: u64,
    /// Low water: at or below it, pruning by capacity ends.
    pub low: u64,
    /// Emergency water: at or above it, appends are refused.
    pub emergency: u64,
}

/// Status of the pruning of blocks. All "before" bounds are exclusive.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneStatus {
    /// The policy in force; `null` before one was set.
    pub policy: Option<PrunePolicy>,
    /// A policy is set, and its `pruning_enabled` is on.
    pub enabled: bool,
    /// The moment at which deletions were stopped (`set_deletions_stopped`), in Unix nanoseconds; `null` if they are
    /// not stopped.
    pub deletions_stopped_since_ns: Option<u64>,
    /// Something is due now, even if the daemon may not prune.
    pub need_prune: bool,
    /// The reason why something is due; `null` if nothing is due.
    pub reason: Option<PruneReason>,
    /// The number below which blocks are due.
    pub target: u64,
    /// The reason that holds back pruning, if something is due; `Floor` if there is no other reason and the floor keeps
    /// blocks; `null` if nothing holds back pruning.
    pub held_by: Option<HeldBy>,
    /// The number below which age and number no longer retain blocks.
    pub retain_min_block: u64,
    /// The number from which on the floor keeps blocks that age or capacity would prune; `null` if the floor keeps no
    /// such block.
    pub floor_block: Option<u64>,
    /// The number from which on no block may be pruned, because not every exporter has acknowledged it; `null` without
    /// a guard.
    pub exported_before_block: Option<u64>,
    /// The number below which all blocks are pruned.
    pub pruned_before_block: u64,
    /// The block with which the next run begins; `null` if no block may be pruned.
    pub prune_cursor: Option<u64>,
    /// The blocks that are left to prune, and the rate of pruning.
    pub backlog: PruneBacklog,
    /// The state of the sweep of the indexes.
    pub sweep: SweepPhase,
    /// The index of transaction ids.
    pub transaction_index: IndexDebt,
    /// The index of secondary keys.
    pub key_index: IndexDebt,
    /// The last run is unfinished, and the next tick continues it.
    pub running: bool,
    /// The number of the oldest kept block; `null` if there is none.
    pub oldest_kept_block: Option<u64>,
    /// The monotonic time of the oldest kept block, in Unix seconds; `null` if there is none.
    pub oldest_kept_timestamp_secs: Option<u64>,
    /// The head's number; `null` if there is no block.
    pub head: Option<u64>,
    /// The kept bytes of the chain: class bytes of its blobs.
    pub estimated_kept_bytes: u64,
    /// The bytes that are compared with the watermarks: `estimated_kept_bytes`, plus 256 for each kept block and 32 for
    /// each of its transactions and keys.
    pub capacity_bytes: u64,
    /// The watermarks of `capacity_bytes`; `null` without a capacity trigger.
    pub water_marks: Option<WaterMarks>,
    /// The last run that pruned something, summed over its ticks.
    pub last_run: Option<PruneRun>,
    /// The number of runs since the canister was installed.
    pub runs: u64,
    /// The number of ticks since the canister was started, including idle ticks.
    pub ticks: u64,
    /// The moment at which the next tick is due, in Unix nanoseconds.
    pub next_tick_ns: u64,
    /// The number of blocks ever pruned.
    pub pruned_blocks: u64,
    /// The payload bytes of the blocks ever pruned.
    pub pruned_bytes: u64,
    /// The number of faults ever: unreadable data that was skipped.
    pub faults: u64,
    /// The number of faults that an operator has acknowledged.
    pub acknowledged_faults: u64,
    /// Work that is skipped, because ticks trapped on it repeatedly: blocks, parts of an index, and kinds of work.
    pub skipped: Vec<String>,
}
