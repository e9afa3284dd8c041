//! Policy, runs and status of pruning.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// When and how blocks are pruned (`pruning-spec-v1.md` 5 and 6, `docs/design.md` 4).
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PrunePolicy {
    /// Kept bytes of the chain that the capacity trigger aims at; 0 switches it off.
    pub target_bytes: u64,
    /// Days for which blocks are retained; 0: age does not retain.
    pub retain_days: u64,
    /// Blocks behind the head that are retained; 0: count does not retain.
    pub retain_blocks: u64,
    /// High water is `target·(10000 − headroom/2)/10000`, low water `target·(10000 − headroom)/10000`. Basis points.
    pub headroom_ratio_bps: u32,
    /// At `target·emergency/10000` kept bytes appends are refused. Basis points.
    pub emergency_ratio_bps: u32,
    /// Seconds between two ticks of the daemon.
    pub timer_interval_secs: u64,
    /// Removed references and blob transitions of one tick.
    pub max_ops_per_tick: u64,
    /// Instructions of one tick.
    pub max_instructions_per_tick: u64,
}

/// A policy with defaults for what is left out.
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
    /// More pages of memory would be changed than a message should. Of a large block the index entries go in several.
    Pages,
    /// The chunks of a tick are used up (UTXO records).
    Chunks,
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
    /// Messages that took out index entries of a block too large for one.
    pub parts: u64,
    /// Removed references and blob transitions.
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
    /// 1 where it would take out index entries of a block too large for one message.
    pub parts: u64,
    /// Removed references and blob transitions.
    pub ops: u64,
    /// Blobs that would become free.
    pub blobs: u64,
    /// Payload bytes that would go.
    pub bytes: u64,
    /// How far it would come. Instructions are reckoned generously: where they are the limit, a run may go further.
    pub progress: PruneProgress,
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
    /// Water marks in bytes; 0 without a capacity trigger.
    pub high_water_bytes: u64,
    /// See there.
    pub low_water_bytes: u64,
    /// See there.
    pub emergency_bytes: u64,
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
}
