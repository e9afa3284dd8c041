//! Policy, runs and status of pruning.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// When and how blocks are pruned (`pruning-spec-v1.md` 5 and 6, `docs/design.md` 4).
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePolicy {
    /// Bytes of the chain (`capacity_bytes` of the status) that the capacity trigger aims at; 0 switches it off.
    pub target_bytes: u64,
    /// Days for which blocks are retained; 0: age does not retain.
    pub retain_days: u64,
    /// Blocks behind the head that are retained; 0: count does not retain.
    pub retain_blocks: u64,
    /// High water is `target·(10000 − headroom/2)/10000`, low water `target·(10000 − headroom)/10000`. Basis points.
    pub headroom_ratio_bps: u32,
    /// At `target·emergency/10000` kept bytes appends are refused. Basis points.
    pub emergency_ratio_bps: u32,
    /// Seconds within which the daemon sees to what has become due.
    pub timer_interval_secs: u64,
    /// Ops of one tick: 1 a block, 2 a blob that becomes free, 1 an index entry that is dropped.
    pub max_ops_per_tick: u64,
    /// Instructions of one tick.
    pub max_instructions_per_tick: u64,
    /// Blocks behind the head that capacity and age leave, so that a reorg has a way back. A smaller `retain_blocks` that is not
    /// 0 takes its place.
    pub min_kept_blocks: u64,
    /// Seconds without a producer's call to the chain after which an index is swept. 0: at once.
    pub pause_after_secs: u64,
    /// Ticks for which a sweep waits for such a pause at most. 0: it does not wait.
    pub max_pending_ticks: u64,
    /// Stale index entries up to which a sweep may wait for a pause, where that is more than the table's own mark. 0: the mark.
    pub max_collected_keys: u64,
    /// Seconds for which an exporter may hold back what is due before `health` calls it a problem.
    pub max_export_lag_secs: u64,
}

impl Default for PrunePolicy {
    fn default() -> Self {
        Self {
            target_bytes: 0,
            retain_days: 0,
            retain_blocks: 0,
            headroom_ratio_bps: 2_000,
            emergency_ratio_bps: 9_500,
            timer_interval_secs: 60,
            max_ops_per_tick: 10_000,
            max_instructions_per_tick: 1_000_000_000,
            min_kept_blocks: 128,
            pause_after_secs: 5,
            max_pending_ticks: 8,
            max_collected_keys: 0,
            max_export_lag_secs: 86_400,
        }
    }
}

/// A new policy; what is left out stays, and has its default where none was set before. 0 switches a limit off.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePolicyArg {
    /// Default 0: no capacity trigger.
    pub target_bytes: Option<u64>,
    /// Default 0: age does not retain.
    pub retain_days: Option<u64>,
    /// Default 0: count does not retain.
    pub retain_blocks: Option<u64>,
    /// Default 2000.
    pub headroom_ratio_bps: Option<u32>,
    /// Default 9500.
    pub emergency_ratio_bps: Option<u32>,
    /// Default 60.
    pub timer_interval_secs: Option<u64>,
    /// Default 10,000.
    pub max_ops_per_tick: Option<u64>,
    /// Default 1,000,000,000.
    pub max_instructions_per_tick: Option<u64>,
    /// Default 128.
    pub min_kept_blocks: Option<u64>,
    /// Default 5.
    pub pause_after_secs: Option<u64>,
    /// Default 8.
    pub max_pending_ticks: Option<u64>,
    /// Default 0.
    pub max_collected_keys: Option<u64>,
    /// Default 86,400.
    pub max_export_lag_secs: Option<u64>,
}

/// What a change of the policy did.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePolicyChange {
    /// The policy before; none where none was set.
    pub old: Option<PrunePolicy>,
    /// The policy in force.
    pub new: PrunePolicy,
}

/// Why a policy, or a run, was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PruneError {
    /// A field's value makes no sense.
    Invalid {
        /// Which field.
        field: String,
        /// A sentence.
        why: String,
    },
    /// No policy was set, so there is nothing to go by.
    NoPolicy,
}

/// Who holds pruning back.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum HeldBy {
    /// An exporter that has not acknowledged.
    Exporter(String),
    /// `require_export` is set and no exporter is registered.
    NoExporter,
    /// Nobody: the daemon has not come round yet.
    PruneLag,
    /// Pruning is switched off.
    Disabled,
    /// The daemon is paused: liquid cycles are below `min_liquid_cycles`.
    LowCycles,
}

/// Why a run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PruneReason {
    /// The oldest block is behind what age and count retain.
    Retention,
    /// Kept bytes are above high water, or on the way from there down to low water.
    Capacity,
}

/// Why a run stopped before its target.
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
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PruneProgress {
    /// Its target is reached.
    Finished,
    /// The next tick goes on.
    HasMore {
        /// Why it stopped.
        reason: StopReason,
    },
}

/// A run: from when something is due until nothing more of it may go, over as many ticks as that takes.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneRun {
    /// When it began, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// Why it was due; none where nothing was.
    pub reason: Option<PruneReason>,
    /// Blocks below this number were to go.
    pub target: u64,
    /// How far it came.
    pub progress: PruneProgress,
    /// Ticks, and calls of `prune_now`, that it took so far.
    pub ticks: u64,
    /// Blocks that went.
    pub blocks: u64,
    /// Index entries that sweeps dropped in the same messages.
    pub dropped: u64,
    /// 1 a block, 2 a blob that became free, 1 an index entry that was dropped.
    pub ops: u64,
    /// Blobs that became free.
    pub blobs: u64,
    /// Payload bytes that went.
    pub bytes: u64,
    /// What could not be read and was skipped.
    pub faults: u64,
    /// Instructions of all its ticks.
    pub instructions: u64,
}

/// What the next run would do.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePlan {
    /// Why something is due; none where nothing is.
    pub reason: Option<PruneReason>,
    /// Blocks below this number are no longer retained by age or count; 0 where neither retains.
    pub retain_min_block: u64,
    /// Blocks below this number are to go.
    pub target: u64,
    /// Blocks below this number may go: as far as the export guard allows.
    pub before: u64,
    /// What holds pruning back: the daemon as a whole, or at `before`.
    pub held_by: Option<HeldBy>,
    /// Blocks that one tick with the policy's budget would take, from `pruned_before_block` on.
    pub blocks: u64,
    /// 1 a block, 2 a blob that would become free. Index entries are dropped by sweeps, which are not planned.
    pub ops: u64,
    /// Blobs that would become free.
    pub blobs: u64,
    /// Payload bytes that would go.
    pub bytes: u64,
    /// How far it would come. Instructions are reckoned generously: where they are the limit, a run may go further.
    pub progress: PruneProgress,
}

/// What the daemon does with the indexes (`docs/pruning-pipeline.md`).
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
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct IndexDebt {
    /// Entries, stale ones too.
    pub entries: u64,
    /// Buckets of 28 entries.
    pub buckets: u64,
    /// Entries at most that are stale.
    pub debt: u64,
    /// The debt at which a sweep begins, in a pause.
    pub begins_at: u64,
    /// The debt at which it no longer waits for a pause.
    pub forced_at: u64,
    /// The bucket with which the sweep that is under way goes on.
    pub cursor: Option<u64>,
    /// Entries that sweeps ever dropped.
    pub dropped: u64,
    /// Sweeps that ever came to their end.
    pub sweeps: u64,
}

/// What is still to be pruned, and how fast that goes.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneBacklog {
    /// Blocks that may go now.
    pub blocks: u64,
    /// Their references: transactions and secondary keys.
    pub references: u64,
    /// Blocks that are due, and that an exporter keeps.
    pub held_blocks: u64,
    /// Unix seconds since when an exporter, or that there is none, has kept what is due.
    pub held_since: Option<u64>,
    /// Index entries at most that are stale.
    pub debt: u64,
    /// Unix seconds since when ticks have ended with work left.
    pub behind_since: Option<u64>,
    /// Blocks pruned an hour, over the last ten minutes or so; since the canister was started where that is less.
    pub pruned_per_hour: u64,
    /// Blocks appended an hour, over the same time.
    pub appended_per_hour: u64,
    /// Seconds after which no block is left, at these rates; none where it would never be so, and where only a sweep is left.
    pub empty_in_secs: Option<u64>,
}

/// Bytes of `capacity_bytes` at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct WaterMarks {
    /// Pruning for capacity begins above this mark.
    pub high: u64,
    /// It ends at this mark, or below it.
    pub low: u64,
    /// From this mark on appends are refused.
    pub emergency: u64,
}

/// Everything that an operator needs to see of pruning. All "before" bounds are exclusive.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PruneStatus {
    /// Whether the daemon may prune.
    pub enabled: bool,
    /// Whether something is due now, whether the daemon may prune or not.
    pub need_prune: bool,
    /// Why.
    pub reason: Option<PruneReason>,
    /// Blocks below this number are to go.
    pub target: u64,
    /// What holds pruning back, where something is due.
    pub held_by: Option<HeldBy>,
    /// Blocks below this number are no longer retained by age or count; 0 where neither retains.
    pub retain_min_block: u64,
    /// No block from this number on may be pruned, as not everybody has acknowledged it; none where nothing guards.
    pub exported_before_block: Option<u64>,
    /// Blocks below this number are gone.
    pub pruned_before_block: u64,
    /// The block that the next run begins with; none where nothing may go.
    pub prune_cursor: Option<u64>,
    /// What is still to be pruned, and how fast that goes.
    pub backlog: PruneBacklog,
    /// What the daemon does with the indexes.
    pub sweep: SweepPhase,
    /// The transaction index.
    pub transaction_index: IndexDebt,
    /// The index of secondary keys.
    pub key_index: IndexDebt,
    /// Whether the next tick goes on with the last run.
    pub running: bool,
    /// The oldest kept block.
    pub oldest_kept_block: Option<u64>,
    /// Its monotonic time, in Unix seconds.
    pub oldest_kept_timestamp: Option<u64>,
    /// The head.
    pub head: Option<u64>,
    /// Kept bytes of the chain: class bytes of its blobs.
    pub estimated_kept_bytes: u64,
    /// What the water marks are compared with: these, 320 bytes a kept block, and 32 for each of its transactions and keys.
    pub capacity_bytes: u64,
    /// The marks that they are compared with; none without a capacity trigger.
    pub water_marks: Option<WaterMarks>,
    /// The last run that pruned something, summed over its ticks.
    pub last_run: Option<PruneRun>,
    /// Runs since the canister was installed.
    pub runs: u64,
    /// Ticks since the canister was started; runs and idle ones.
    pub ticks: u64,
    /// Nanoseconds since the Unix epoch at which the next tick is due.
    pub next_tick: u64,
    /// Blocks ever pruned.
    pub pruned_blocks: u64,
    /// Their payload bytes.
    pub pruned_bytes: u64,
    /// What could not be read and was skipped, ever.
    pub faults: u64,
    /// How many of them an operator has acknowledged.
    pub acknowledged_faults: u64,
    /// What trapped again and again and is passed over: blocks, parts of an index, and kinds of work.
    pub set_aside: Vec<String>,
}
