//! A chain, as `coppice size` and the bench assume it.

use serde::Serialize;

/// A chain, and how long it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Payload of a block in bytes: body, receipts and index.
    pub block_bytes: u64,
    /// Transactions of a block.
    pub transactions: u64,
    /// Secondary keys of a block, each another one.
    pub keys: u64,
    /// UTXO records kept at a time; unless 0, each transaction creates one.
    pub records: u64,
    /// True if segments are compared with their digests.
    pub verify: bool,
    /// Milliseconds between two blocks.
    pub interval_ms: u64,
    /// Days for which blocks are retained.
    pub days: u64,
    /// Bytes of a blob of the log.
    pub log_class: u64,
    /// Seconds between two ticks of the daemon.
    pub timer_interval_secs: u64,
}

impl Workload {
    /// Seconds between two blocks.
    pub(super) fn interval_secs(&self) -> f64 {
        self.interval_ms as f64 / 1_000.0
    }
}
