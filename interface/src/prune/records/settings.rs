//! The pruner's settings, with the names of `pruner-service.md` 7.

use crate::settings::{ConfigError, settings};
use crate::{MAX_HEIGHT, MAX_PRUNE_INSTRUCTIONS};
use ic_coppice_macros::candid_type;

/// The time for which a transaction must be unmined before its parents are preserved (`utxostore_unminedTxRetention`).
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoUnminedRetention {
    /// Half of `block_height_retention`.
    HalfOfRetention,
    /// A number of blocks.
    Blocks(u32),
}

/// The height up to which records are deleted once blocks are persisted.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtxoSafeHeightRule {
    /// `min(current, persisted)`: a block that is not persisted causes no deletion.
    Persisted,
    /// `min(current, persisted + the smallest block_height_retention ever in force)`: records that a persisted block
    /// made eligible are deleted as soon as they are due.
    PersistedPlusRetention,
}

settings! {
    /// The pruner's settings in force.
    pub struct UtxoPrunerSettings;
    /// A change of the pruner's settings; absent fields are unchanged.
    pub struct UtxoPrunerSettingsChange;
    /// The timer prunes UTXO records (`startPruner`).
    pruner_enabled: bool = true;
    /// Skip phase 2, for tests (`utxostore_disableDAHCleaner`).
    disable_dah_cleaner: bool = false;
    /// Seconds after which a job ends, and the next job continues where it stopped (`pruner_jobTimeout`), 1 to
    /// 31,536,000.
    job_timeout_secs: u64 = 600, 1..=31_536_000;
    /// Records of a chunk (`pruner_utxoChunkSize`), 1 to 100,000.
    utxo_chunk_size: u32 = 1_000, 1..=100_000;
    /// Chunks of a tick (`pruner_utxoChunkGroupLimit`), 1 to 10,000.
    utxo_chunk_group_limit: u32 = 10, 1..=10_000;
    /// Seconds between two progress lines in the log; 0: none (`pruner_utxoProgressLogInterval`).
    utxo_progress_log_interval_secs: u64 = 30, 0..=31_536_000;
    /// Keep a record until all its spenders are mined and stable (`pruner_utxoDefensiveEnabled`).
    utxo_defensive_enabled: bool = false;
    /// Spenders that are looked up at a time (`pruner_utxoDefensiveBatchReadSize`), 1 to 100,000.
    utxo_defensive_batch_read_size: u32 = 10_000, 1..=100_000;
    /// The time for which a transaction must be unmined before its parents are preserved
    /// (`utxostore_unminedTxRetention`).
    unmined_tx_retention: UtxoUnminedRetention = UtxoUnminedRetention::HalfOfRetention;
    /// Blocks for which parents of old unmined transactions are preserved (`utxostore_parentPreservationBlocks`).
    parent_preservation_blocks: u32 = 1_440, 0..=MAX_HEIGHT;
    /// The height up to which records are deleted once blocks are persisted.
    safe_height_rule: UtxoSafeHeightRule = UtxoSafeHeightRule::Persisted;
    /// Seconds between two ticks, 1 to 86,400.
    tick_interval_secs: u64 = 10, 1..=86_400;
    /// Instructions after which a tick begins no more work, 1 to 2,000,000,000.
    max_instructions_per_tick: u64 = 1_000_000_000, 1..=MAX_PRUNE_INSTRUCTIONS;
    /// Ended jobs that are kept, 1 to 1,000.
    max_job_history: u32 = 1_000, 1..=1_000;
    /// Blocks by which a feeder may raise a height in one call, 1 to 2^31 - 1; the allowance is refilled by
    /// `heights_per_day`. The first height, and heights set by an operator, are not limited.
    max_height_jump: u32 = 10_000, 1..=MAX_HEIGHT;
    /// Blocks a day by which the allowance of `max_height_jump` is refilled, 0 to 2^31 - 1; 0: a feeder may raise
    /// heights without limit, for a replay.
    heights_per_day: u32 = 10_000, 0..=MAX_HEIGHT;
    /// Heights are the numbers of the chain's blocks: a feeder's height that is more than `max_height_jump` above the
    /// head is refused.
    heights_are_block_numbers: bool = false;
    /// Seconds of delay after a blob's first failed deletion under a lease, doubling with each failure up to 3,600; 0:
    /// no delay. 0 to 3,600.
    retry_base_secs: u64 = 10, 0..=3_600;
}
