//! Figures of a worker.

use serde::Serialize;

/// What a worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Leases.
    pub leases: u64,
    /// Blobs that are gone, and of which the canister knows.
    pub deleted: u64,
    /// Of them, those of which the store said that they were not there. S3 does not say it.
    pub absent: u64,
    /// Times a blob could not be deleted, which count against it.
    pub failed: u64,
    /// Of these, those after which it was given up, and those whose record made difficulties: dead letters.
    pub dead: u64,
    /// Times a store was asked for a blob and did not answer: its row stayed leased.
    pub unknown: u64,
    /// Times a blob was put back as it was.
    pub left: u64,
    /// Blobs that went, and whose rows were scheduled anew, or whose leases had ended, when the canister was told.
    pub late: u64,
    /// Leases that were extended.
    pub extended: u64,
    /// Calls that were tried again, and looks at the stores.
    pub retries: u64,
    /// Requests to an S3 that had no answer, or an error of the server's; each is tried again.
    pub failed_requests: u64,
    /// Blobs of which it is not known that they are gone, where the worker ends by itself; of `--once` also what was put back.
    pub undone: u64,
    /// Up to which height blobs went last.
    pub height: u32,
    /// Rows that waited, were leased, or backed off when the queue was looked at last.
    pub waiting: u64,
}
