//! Ids and names of regions.

/// Small cells at fixed places: configuration, the chain's state, the open upload, the pruner's state.
pub const CELLS: u8 = 0;
/// Contents of the blobs.
pub const BLOB_ARENA: u8 = 1;
/// Generation, state, class, owner and length of each 64 KiB granule of the arena.
pub const BLOB_GRANULES: u8 = 2;
/// The BlobStore's counters, free lists and quarantine.
pub const BLOB_SETS: u8 = 3;
/// Directory of the chain's log: the blob that holds each part.
pub const LOG_DIRECTORY: u8 = 4;
/// Block records.
pub const BLOCK_RECORDS: u8 = 5;
/// The transaction index.
pub const TRANSACTION_INDEX: u8 = 6;
/// Newest posting of each secondary key.
pub const KEY_INDEX: u8 = 7;
/// From a txid to the slot of its UTXO record.
pub const UTXO_INDEX: u8 = 8;
/// UTXO records and the data that belongs to them.
pub const UTXO_SLOTS: u8 = 9;
/// Deletion queue of external blobs.
pub const DELETIONS: u8 = 10;

/// Names of the regions by id, for `get_storage_status`.
pub const NAMES: [&str; DELETIONS as usize + 1] = [
    "cells",
    "blob_arena",
    "blob_granules",
    "blob_sets",
    "log_directory",
    "block_records",
    "transaction_index",
    "key_index",
    "utxo_index",
    "utxo_slots",
    "deletions",
];
