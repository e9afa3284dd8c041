//! Places of the chain in stable memory: ids of spaces, and offsets of cells in the space of cells.

/// Space of the log's directory: the blob that holds each part.
pub const LOG_DIRECTORY: u8 = 1;
/// Space of the directory of headers: the page that holds each part.
pub const HEADERS: u8 = 2;
/// Space of the directory of the transaction index.
pub const TRANSACTION_INDEX: u8 = 3;
/// Space of the directory of the index from each secondary key to its newest posting.
pub const KEY_INDEX: u8 = 4;

/// The chain's state; up to 4 KiB.
pub const CHAIN: u64 = 4_096;
/// The open upload; up to 8 KiB.
pub const UPLOAD: u64 = 8_192;
/// Policy and state of the block pruner, as CBOR after its length; up to 16 KiB.
pub const PRUNE: u64 = 16_384;
/// A cell of 320 bytes for each exporter, with its acknowledged bound; up to 32 KiB.
pub const EXPORTERS: u64 = 32_768;
/// The history of rollbacks; up to 4 KiB.
pub const ROLLBACKS: u64 = 131_072;

/// All spaces, for tests.
#[cfg(any(test, feature = "testing"))]
pub const SPACES: [u8; 4] = [LOG_DIRECTORY, HEADERS, TRANSACTION_INDEX, KEY_INDEX];
/// All cells, for tests: the first byte, and the number of bytes.
#[cfg(any(test, feature = "testing"))]
pub const CELLS: [(u64, u64); 5] =
    [(CHAIN, 4_096), (UPLOAD, 8_192), (PRUNE, 16_384), (EXPORTERS, 32_768), (ROLLBACKS, 4_096)];
