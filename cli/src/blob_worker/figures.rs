//! Figures of a worker.

use serde::Serialize;

/// Counts of a worker's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Leases taken.
    pub leases: u64,
    /// Blobs that are gone and were reported to the canister as completed.
    pub deleted: u64,
    /// Part of `deleted`: blobs that the store reported as absent. S3 does not report that.
    pub absent: u64,
    /// Failed deletions that count against a blob.
    pub failed: u64,
    /// Part of `failed`: dead letters, which are blobs that were given up and blobs whose record could not be updated.
    pub dead: u64,
    /// Requests for a blob that a store did not answer; the blob's row stayed leased.
    pub unknown: u64,
    /// Blobs whose rows were put back unchanged.
    pub left: u64,
    /// Blobs that are gone, but whose rows had been scheduled anew, or whose leases had ended, when the worker reported them.
    pub late: u64,
    /// Leases that were extended.
    pub extended: u64,
    /// Retried calls of the canister and retried looks at the stores.
    pub retries: u64,
    /// S3 requests without an answer or with a server error; each is retried.
    pub failed_requests: u64,
    /// Blobs not known to be deleted, for a worker that ends by itself; with `--once` this includes blobs that were put back.
    pub undone: u64,
    /// The height up to which blobs were deleted last.
    pub height: u32,
    /// Rows that were waiting, leased or backing off at the last look at the queue.
    pub waiting: u64,
}
