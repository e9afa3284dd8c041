//! The pruner's settings, with the names of `pruner-service.md` 7.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// How long an unmined transaction may be unmined before its parents are preserved (`utxostore_unminedTxRetention`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoUnminedRetention {
    /// Half of `block_height_retention`.
    HalfOfRetention,
    /// A number of blocks.
    Blocks(u32),
}

/// Up to which height records are deleted once blocks are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UtxoSafeHeightRule {
    /// `min(current, persisted)`: a block that is not persisted has nothing deleted.
    Persisted,
    /// `min(current, persisted + the smallest block_height_retention ever in force)`: records that a persisted block
    /// made eligible are deleted as soon as they are due.
    PersistedPlusRetention,
}

/// The pruner's settings in force.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
#[serde(default)]
pub struct UtxoPrunerSettings {
    /// Whether the timer prunes UTXO records (`startPruner`).
    pub pruner_enabled: bool,
    /// Skip phase 2, for tests (`utxostore_disableDAHCleaner`).
    pub disable_dah_cleaner: bool,
    /// Seconds after which a job ends, and the next one goes on where it was (`pruner_jobTimeout`), 1 to 31,536,000.
    pub job_timeout: u64,
    /// Records of a chunk (`pruner_utxoChunkSize`), 1 to 100,000.
    pub utxo_chunk_size: u32,
    /// Chunks of a tick (`pruner_utxoChunkGroupLimit`), 1 to 10,000.
    pub utxo_chunk_group_limit: u32,
    /// Seconds between two lines of progress in the log; 0: none (`pruner_utxoProgressLogInterval`).
    pub utxo_progress_log_interval: u64,
    /// Keep a record until all that spend from it are mined and stable (`pruner_utxoDefensiveEnabled`).
    pub utxo_defensive_enabled: bool,
    /// Spenders that are looked up at a time (`pruner_utxoDefensiveBatchReadSize`), 1 to 100,000.
    pub utxo_defensive_batch_read_size: u32,
    /// How long an unmined transaction may be unmined before its parents are preserved (`utxostore_unminedTxRetention`).
    pub unmined_tx_retention: UtxoUnminedRetention,
    /// Blocks for which parents of old unmined transactions are preserved (`utxostore_parentPreservationBlocks`).
    pub parent_preservation_blocks: u32,
    /// Up to which height records are deleted once blocks are persisted.
    pub safe_height_rule: UtxoSafeHeightRule,
    /// Seconds between two ticks, 1 to 86,400.
    pub tick_interval: u64,
    /// References that a tick removes or changes, 1 to 10,000,000: a record, each of its pages, each parent that is told or
    /// preserved, and each spender that is looked up is one.
    pub max_ops_per_tick: u64,
    /// Instructions after which a tick begins nothing more, 1,000,000 to 2,000,000,000.
    pub max_instructions_per_tick: u64,
    /// Jobs that ended and are kept, 1 to 1,000.
    pub max_job_history: u32,
    /// Blocks by which a producer may raise a height at once, 1 to 2^31 - 1; they come back by `heights_per_day`. The first
    /// height, and an operator's, may be any.
    pub max_height_jump: u32,
    /// Blocks by which a producer may raise a height in a day for long, 0 to 2^31 - 1; 0: it may raise a height as it
    /// likes, for a replay.
    pub heights_per_day: u32,
    /// Heights are the numbers of the chain's blocks: a producer's height that is more than `max_height_jump` above
    /// the head is refused.
    pub heights_are_block_numbers: bool,
    /// Seconds that a blob's deletion backs off when it has failed once under a lease, doubling up to 3,600; 0: it does not. 0 to 3,600.
    pub retry_base_secs: u64,
}

impl Default for UtxoPrunerSettings {
    fn default() -> Self {
        Self {
            pruner_enabled: true,
            disable_dah_cleaner: false,
            job_timeout: 600,
            utxo_chunk_size: 1_000,
            utxo_chunk_group_limit: 10,
            utxo_progress_log_interval: 30,
            utxo_defensive_enabled: false,
            utxo_defensive_batch_read_size: 10_000,
            unmined_tx_retention: UtxoUnminedRetention::HalfOfRetention,
            parent_preservation_blocks: 1_440,
            safe_height_rule: UtxoSafeHeightRule::Persisted,
            tick_interval: 10,
            max_ops_per_tick: 200_000,
            max_instructions_per_tick: 1_000_000_000,
            max_job_history: 1_000,
            max_height_jump: 10_000,
            heights_per_day: 10_000,
            heights_are_block_numbers: false,
            retry_base_secs: 10,
        }
    }
}

/// A change of the pruner's settings; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoPrunerSettingsChange {
    /// Whether the timer prunes UTXO records (`startPruner`); none: as it was.
    pub pruner_enabled: Option<bool>,
    /// Skip phase 2, for tests (`utxostore_disableDAHCleaner`); none: as it was.
    pub disable_dah_cleaner: Option<bool>,
    /// Seconds after which a job ends, and the next one goes on where it was (`pruner_jobTimeout`), 1 to 31,536,000; none:
    /// as it was.
    pub job_timeout: Option<u64>,
    /// Records of a chunk (`pruner_utxoChunkSize`), 1 to 100,000; none: as it was.
    pub utxo_chunk_size: Option<u32>,
    /// Chunks of a tick (`pruner_utxoChunkGroupLimit`), 1 to 10,000; none: as it was.
    pub utxo_chunk_group_limit: Option<u32>,
    /// Seconds between two lines of progress in the log; 0: none (`pruner_utxoProgressLogInterval`); none: as it was.
    pub utxo_progress_log_interval: Option<u64>,
    /// Keep a record until all that spend from it are mined and stable (`pruner_utxoDefensiveEnabled`); none: as it was.
    pub utxo_defensive_enabled: Option<bool>,
    /// Spenders that are looked up at a time (`pruner_utxoDefensiveBatchReadSize`), 1 to 100,000; none: as it was.
    pub utxo_defensive_batch_read_size: Option<u32>,
    /// How long an unmined transaction may be unmined before its parents are preserved (`utxostore_unminedTxRetention`);
    /// none: as it was.
    pub unmined_tx_retention: Option<UtxoUnminedRetention>,
    /// Blocks for which parents of old unmined transactions are preserved (`utxostore_parentPreservationBlocks`); none: as
    /// it was.
    pub parent_preservation_blocks: Option<u32>,
    /// Up to which height records are deleted once blocks are persisted; none: as it was.
    pub safe_height_rule: Option<UtxoSafeHeightRule>,
    /// Seconds between two ticks, 1 to 86,400; none: as it was.
    pub tick_interval: Option<u64>,
    /// References that a tick removes or changes, 1 to 10,000,000: a record, each of its pages, each parent that is told or
    /// preserved, and each spender that is looked up is one; none: as it was.
    pub max_ops_per_tick: Option<u64>,
    /// Instructions after which a tick begins nothing more, 1,000,000 to 2,000,000,000; none: as it was.
    pub max_instructions_per_tick: Option<u64>,
    /// Jobs that ended and are kept, 1 to 1,000; none: as it was.
    pub max_job_history: Option<u32>,
    /// Blocks by which a producer may raise a height at once, 1 to 2^31 - 1; they come back by `heights_per_day`. The first
    /// height, and an operator's, may be any; none: as it was.
    pub max_height_jump: Option<u32>,
    /// Blocks by which a producer may raise a height in a day for long, 0 to 2^31 - 1; 0: it may raise a height as it
    /// likes, for a replay; none: as it was.
    pub heights_per_day: Option<u32>,
    /// Heights are the numbers of the chain's blocks: a producer's height that is more than `max_height_jump` above
    /// the head is refused; none: as it was.
    pub heights_are_block_numbers: Option<bool>,
    /// Seconds that a blob's deletion backs off when it has failed once under a lease, doubling up to 3,600; 0: it does
    /// not. 0 to 3,600; none: as it was.
    pub retry_base_secs: Option<u64>,
}
