//! The UTXO store's settings.

use crate::settings::{ConfigError, settings};

settings! {
    /// The UTXO store's settings in force.
    pub struct UtxoSettings;
    /// A change of the UTXO store's settings; absent fields are unchanged.
    pub struct UtxoSettingsChange;
    /// Outputs of a page (`utxoBatchSize`), 1 to 20,000. An existing record keeps the size with which it was created.
    utxo_batch_size: u32 = 20_000, 1..=20_000;
    /// Blocks for which a record is kept once it is eligible for deletion; 0: no record becomes eligible.
    block_height_retention: u32 = 288, 0..=u32::MAX / 2;
    /// Blocks until a coinbase can be spent.
    coinbase_maturity: u32 = 100, 0..=u32::MAX / 2;
    /// Blocks until a reassigned output can be spent.
    reassign_spendable_after: u32 = 1_000, 0..=u32::MAX / 2;
    /// Bytes of the longest transaction that is stored in its record (`MaxTxSizeInStoreInBytes`), at most 1 MiB.
    max_tx_size_in_store: u32 = 1 << 20, 0..=1 << 20;
    /// Store every transaction's bytes in the BlobStore (`ExternalizeAllTransactions`).
    externalize_all: bool = false;
    /// Class bytes that transactions and their open uploads may use in the BlobStore.
    max_external_bytes: u64 = 64 << 30;
    /// Bytes of stable memory (`kept_bytes` of `get_storage_status`) above which new records, rows and uploads are refused;
    /// 0: `max_stable_pages` less the reserve, less `target_bytes` and the chain's initial memory; without a target, half
    /// of `max_stable_pages` less the reserve. The reserve is an eighth of `max_stable_pages`, at most 64 MiB.
    max_utxo_bytes: u64 = 0;
    /// Rows of the deletion queue above which new rows are refused.
    max_deletion_rows: u64 = 10_000_000;
    /// Dead letters of the deletion queue for which no record waits; above this number the oldest are dropped.
    max_dead_blob_deletions: u64 = 100_000;
    /// Leases of the deletion queue that one worker may hold at a time, 1 to 256.
    max_leases_per_holder: u32 = 32, 1..=256;
    /// The least number of failed attempts before a blob's row is given up, even if its worker reports a smaller
    /// `max_retries`.
    least_retries: u32 = 0;
    /// Copy the bytes of a transaction into its record when its block is applied. Otherwise the record names their place
    /// in the block, and they are lost once the block is pruned.
    copy_applied_transactions: bool = true;
    /// Refuse a transaction whose inputs do not contain the outputs that they spend.
    require_extended: bool = false;
}
