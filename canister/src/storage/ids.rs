//! Ids of spaces.

/// Small cells at fixed places: configuration, the chain's state, the open uploads, the pruners' state, samples.
pub const CELLS: u8 = 0;
/// Directory of the chain's log: the blob that holds each part.
pub const LOG_DIRECTORY: u8 = 1;
/// Directory of block records: the page that holds each part.
pub const BLOCK_RECORDS: u8 = 2;
/// Directory of the transaction index.
pub const TRANSACTION_INDEX: u8 = 3;
/// Directory of the index from each secondary key to its newest posting.
pub const KEY_INDEX: u8 = 4;
/// Directory of the index from a txid to the slot of its UTXO record.
pub const UTXO_INDEX: u8 = 5;
/// Size classes of the slots of UTXO records.
pub const UTXO_SLOTS: u8 = 6;
/// Size classes of the slots of the deletion queue.
pub const DELETIONS: u8 = 7;
/// Finished jobs of the record pruner.
pub const JOBS: u8 = 8;
/// The audit log: changes by admins, changes by other callers, and calls that changed nothing.
pub const AUDIT: [u8; 3] = [9, 10, 11];
/// Lines of the log.
pub const LOG_LINES: u8 = 12;
/// The first of the bench's spaces, which have other data structures.
#[cfg(feature = "bench")]
pub const BENCH: u8 = 32;
