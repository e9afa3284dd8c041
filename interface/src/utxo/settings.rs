//! The UTXO store's settings.

use candid::CandidType;
use serde::{Deserialize, Serialize};

/// The UTXO store's settings in force.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
#[serde(default)]
pub struct UtxoSettings {
    /// Outputs of a page (`utxoBatchSize`), 1 to 20,000. A record keeps the size with which it was made.
    pub utxo_batch_size: u32,
    /// Blocks for which a record is kept once it is eligible for deletion; 0: none ever becomes it.
    pub block_height_retention: u32,
    /// Blocks until a coinbase can be spent.
    pub coinbase_maturity: u32,
    /// Blocks until a reassigned output can be spent.
    pub reassign_spendable_after: u32,
    /// Bytes of the longest transaction that is kept in its record (`MaxTxSizeInStoreInBytes`), at most 1 MiB.
    pub max_tx_size_in_store: u32,
    /// Keep every transaction's bytes in the BlobStore (`ExternalizeAllTransactions`).
    pub externalize_all: bool,
    /// Class bytes that transactions may keep in the BlobStore.
    pub max_external_bytes: u64,
    /// Bytes of stable memory that may be billed for new records, the deletion queue and their data in the BlobStore; 0: what
    /// `max_stable_pages` leaves beside `target_bytes` and a reserve of 64 MiB, or without a target half of it.
    pub max_utxo_bytes: u64,
    /// Rows of the deletion queue above which no new ones come in.
    pub max_deletion_rows: u64,
    /// Dead letters of the deletion queue that no record waits for; above it the oldest are dropped.
    pub max_dead_blob_deletions: u64,
    /// Leases of the deletion queue that one worker may hold at a time, 1 to 256.
    pub max_leases_per_holder: u32,
    /// How often deleting a blob has to fail at least until its row is given up, whatever its worker says.
    pub least_retries: u32,
    /// Refuse a transaction whose inputs do not say what they spend.
    pub require_extended: bool,
    /// Instructions after which a message begins no other item of a batch, 1 million to 20 billion.
    pub batch_instructions: u64,
}

impl Default for UtxoSettings {
    fn default() -> Self {
        Self {
            utxo_batch_size: 20_000,
            block_height_retention: 288,
            coinbase_maturity: 100,
            reassign_spendable_after: 1_000,
            max_tx_size_in_store: 1 << 20,
            externalize_all: false,
            max_external_bytes: 64 << 30,
            max_utxo_bytes: 0,
            max_deletion_rows: 10_000_000,
            max_dead_blob_deletions: 100_000,
            max_leases_per_holder: 32,
            least_retries: 0,
            require_extended: false,
            batch_instructions: 10_000_000_000,
        }
    }
}

/// A change of the UTXO store's settings; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UtxoSettingsChange {
    /// Outputs of a page (`utxoBatchSize`), 1 to 20,000. A record keeps the size with which it was made; none: as it was.
    pub utxo_batch_size: Option<u32>,
    /// Blocks for which a record is kept once it is eligible for deletion; 0: none ever becomes it; none: as it was.
    pub block_height_retention: Option<u32>,
    /// Blocks until a coinbase can be spent; none: as it was.
    pub coinbase_maturity: Option<u32>,
    /// Blocks until a reassigned output can be spent; none: as it was.
    pub reassign_spendable_after: Option<u32>,
    /// Bytes of the longest transaction that is kept in its record (`MaxTxSizeInStoreInBytes`), at most 1 MiB; none: as it
    /// was.
    pub max_tx_size_in_store: Option<u32>,
    /// Keep every transaction's bytes in the BlobStore (`ExternalizeAllTransactions`); none: as it was.
    pub externalize_all: Option<bool>,
    /// Class bytes that transactions may keep in the BlobStore; none: as it was.
    pub max_external_bytes: Option<u64>,
    /// Bytes of stable memory that may be billed for new records, the deletion queue and their data in the BlobStore; 0: what
    /// `max_stable_pages` leaves beside `target_bytes` and a reserve of 64 MiB, or without a target half of it; none: as it
    /// was.
    pub max_utxo_bytes: Option<u64>,
    /// Rows of the deletion queue above which no new ones come in; none: as it was.
    pub max_deletion_rows: Option<u64>,
    /// Dead letters of the deletion queue that no record waits for; above it the oldest are dropped; none: as it was.
    pub max_dead_blob_deletions: Option<u64>,
    /// Leases of the deletion queue that one worker may hold at a time, 1 to 256; none: as it was.
    pub max_leases_per_holder: Option<u32>,
    /// How often deleting a blob has to fail at least until its row is given up, whatever its worker says; none: as it was.
    pub least_retries: Option<u32>,
    /// Refuse a transaction whose inputs do not say what they spend; none: as it was.
    pub require_extended: Option<bool>,
    /// Instructions after which a message begins no other item of a batch, 1 million to 20 billion; none: as it was.
    pub batch_instructions: Option<u64>,
}
