//! The pruner's settings, with the names of `pruner-service.md` 7.

use crate::settings::ConfigError;
use crate::settings::settings;
use crate::{MAX_HEIGHT, MAX_PRUNE_INSTRUCTIONS};
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// How long an unmined transaction may be unmined before its parents are preserved (`utxostore_unminedTxRetention`).
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoUnminedRetention {
    /// Half of `block_height_retention`.
    HalfOfRetention,
    /// A number of blocks.
    Blocks(u32),
}

/// Up to which height records are deleted once blocks are persisted.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoSafeHeightRule {
    /// `min(current, persisted)`: a block that is not persisted has nothing deleted.
    Persisted,
    /// `min(current, persisted + the smallest block_height_retention ever in force)`: records that a persisted block
    /// made eligible are deleted as soon as they are due.
    PersistedPlusRetention,
}

settings! {
    /// The pruner's settings in force.
    pub struct UtxoPrunerSettings;
    /// A change of the pruner's settings; what is left out stays.
    pub struct UtxoPrunerSettingsChange;
    /// Whether the timer prunes UTXO records (`startPruner`).
    pruner_enabled: bool = true;
    /// Skip phase 2, for tests (`utxostore_disableDAHCleaner`).
    disable_dah_cleaner: bool = false;
    /// Seconds after which a job ends, and the next one goes on where it was (`pruner_jobTimeout`), 1 to 31,536,000.
    job_timeout: u64 = 600, 1..=31_536_000;
    /// Records of a chunk (`pruner_utxoChunkSize`), 1 to 100,000.
    utxo_chunk_size: u32 = 1_000, 1..=100_000;
    /// Chunks of a tick (`pruner_utxoChunkGroupLimit`), 1 to 10,000.
    utxo_chunk_group_limit: u32 = 10, 1..=10_000;
    /// Seconds between two lines of progress in the log; 0: none (`pruner_utxoProgressLogInterval`).
    utxo_progress_log_interval: u64 = 30, 0..=31_536_000;
    /// Keep a record until all that spend from it are mined and stable (`pruner_utxoDefensiveEnabled`).
    utxo_defensive_enabled: bool = false;
    /// Spenders that are looked up at a time (`pruner_utxoDefensiveBatchReadSize`), 1 to 100,000.
    utxo_defensive_batch_read_size: u32 = 10_000, 1..=100_000;
    /// How long an unmined transaction may be unmined before its parents are preserved (`utxostore_unminedTxRetention`).
    unmined_tx_retention: UtxoUnminedRetention = UtxoUnminedRetention::HalfOfRetention;
    /// Blocks for which parents of old unmined transactions are preserved (`utxostore_parentPreservationBlocks`).
    parent_preservation_blocks: u32 = 1_440, 0..=MAX_HEIGHT;
    /// Up to which height records are deleted once blocks are persisted.
    safe_height_rule: UtxoSafeHeightRule = UtxoSafeHeightRule::Persisted;
    /// Seconds between two ticks, 1 to 86,400.
    tick_interval: u64 = 10, 1..=86_400;
    /// References that a tick removes or changes, 1 to 10,000,000: a record, each of its pages, each parent that is told or
    /// preserved, and each spender that is looked up is one.
    max_ops_per_tick: u64 = 200_000, 1..=10_000_000;
    /// Instructions after which a tick begins nothing more, 1,000,000 to 2,000,000,000.
    max_instructions_per_tick: u64 = 1_000_000_000, 1_000_000..=MAX_PRUNE_INSTRUCTIONS;
    /// Jobs that ended and are kept, 1 to 1,000.
    max_job_history: u32 = 1_000, 1..=1_000;
    /// Blocks by which a producer may raise a height at once, 1 to 2^31 - 1; they come back by `heights_per_day`. The first
    /// height, and an operator's, may be any.
    max_height_jump: u32 = 10_000, 1..=MAX_HEIGHT;
    /// Blocks by which a producer may raise a height in a day for long, 0 to 2^31 - 1; 0: it may raise a height as it
    /// likes, for a replay.
    heights_per_day: u32 = 10_000, 0..=MAX_HEIGHT;
    /// Heights are the numbers of the chain's blocks: a producer's height that is more than `max_height_jump` above
    /// the head is refused.
    heights_are_block_numbers: bool = false;
    /// Seconds that a blob's deletion backs off when it has failed once under a lease, doubling up to 3,600; 0: it does not. 0 to 3,600.
    retry_base_secs: u64 = 10, 0..=3_600;
}
