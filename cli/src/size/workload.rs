//! A chain's workload, as `coppice size` and the bench assume it.

use serde::Serialize;

/// A chain, and the time for which it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Payload bytes per block: body, receipts and index.
    pub block_bytes: u64,
    /// Transactions per block.
    pub transactions: u64,
    /// Secondary keys per block, all different.
    pub keys: u64,
    /// UTXO records kept at a time; unless 0, each transaction creates one.
    pub records: u64,
    /// True if segments are compared with their digests.
    pub verify: bool,
    /// Nanoseconds between two blocks.
    pub interval_ns: u64,
    /// Days for which blocks are retained.
    pub days: u64,
    /// Bytes per blob of the log.
    pub log_class: u64,
    /// Seconds between two ticks of the daemon.
    pub timer_interval_secs: u64,
}

impl Workload {
    /// Seconds between two blocks.
    pub(super) fn interval_secs(&self) -> f64 {
        self.interval_ns as f64 / 1e9
    }
}
