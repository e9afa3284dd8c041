//! The UTXO store's settings.

use crate::settings::{ConfigError, settings};
use candid::CandidType;
use serde::{Deserialize, Serialize};

settings! {
    /// The UTXO store's settings in force.
    pub struct UtxoSettings;
    /// A change of the UTXO store's settings; what is left out stays.
    pub struct UtxoSettingsChange;
    /// Outputs of a page (`utxoBatchSize`), 1 to 20,000. A record keeps the size with which it was made.
    utxo_batch_size: u32 = 20_000, 1..=20_000;
    /// Blocks for which a record is kept once it is eligible for deletion; 0: none ever becomes it.
    block_height_retention: u32 = 288, 0..=u32::MAX / 2;
    /// Blocks until a coinbase can be spent.
    coinbase_maturity: u32 = 100, 0..=u32::MAX / 2;
    /// Blocks until a reassigned output can be spent.
    reassign_spendable_after: u32 = 1_000, 0..=u32::MAX / 2;
    /// Bytes of the longest transaction that is kept in its record (`MaxTxSizeInStoreInBytes`), at most 1 MiB.
    max_tx_size_in_store: u32 = 1 << 20, 0..=1 << 20;
    /// Keep every transaction's bytes in the BlobStore (`ExternalizeAllTransactions`).
    externalize_all: bool = false;
    /// Class bytes that transactions may keep in the BlobStore.
    max_external_bytes: u64 = 64 << 30;
    /// Bytes of stable memory that may be billed for new records, the deletion queue and their data in the BlobStore; 0: what
    /// `max_stable_pages` leaves beside `target_bytes` and a reserve of 64 MiB, or without a target half of it.
    max_utxo_bytes: u64 = 0;
    /// Rows of the deletion queue above which no new ones come in.
    max_deletion_rows: u64 = 10_000_000;
    /// Dead letters of the deletion queue that no record waits for; above it the oldest are dropped.
    max_dead_blob_deletions: u64 = 100_000;
    /// Leases of the deletion queue that one worker may hold at a time, 1 to 256.
    max_leases_per_holder: u32 = 32, 1..=256;
    /// How often deleting a blob has to fail at least until its row is given up, whatever its worker says.
    least_retries: u32 = 0;
    /// Refuse a transaction whose inputs do not say what they spend.
    require_extended: bool = false;
    /// Instructions after which a message begins no other item of a batch, 1 million to 20 billion.
    batch_instructions: u64 = 10_000_000_000, 1_000_000..=20_000_000_000;
}
