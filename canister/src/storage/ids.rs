//! Ids and names of regions.

/// Small cells at fixed places: configuration, the chain's state, the open upload, the pruner's state.
pub const CELLS: u8 = 0;
/// The arena: memory of blobs, slots and pages.
pub const ARENA: u8 = 1;
/// Generation, state, class, owner and length of each 64 KiB granule of the arena.
pub const GRANULES: u8 = 2;
/// The arena's counters, free slots and quarantine.
pub const ARENA_SETS: u8 = 3;
/// Directory of the chain's log: the blob that holds each part.
pub const LOG_DIRECTORY: u8 = 4;
/// Directory of block records: the page that holds each part.
pub const BLOCK_RECORDS: u8 = 5;
/// Directory of the transaction index.
pub const TRANSACTION_INDEX: u8 = 6;
/// Directory of the index from each secondary key to its newest posting.
pub const KEY_INDEX: u8 = 7;
/// Directory of the index from a txid to the slot of its UTXO record.
pub const UTXO_INDEX: u8 = 8;
/// Size classes of the slots of UTXO records.
pub const UTXO_SLOTS: u8 = 9;
/// Size classes of the slots of the deletion queue.
pub const DELETIONS: u8 = 10;

/// Names of the regions by id, for `get_storage_status`.
pub const NAMES: [&str; DELETIONS as usize + 1] = [
    "cells",
    "arena",
    "granules",
    "arena_sets",
    "log_directory",
    "block_records",
    "transaction_index",
    "key_index",
    "utxo_index",
    "utxo_slots",
    "deletions",
];
