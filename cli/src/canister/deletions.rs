//! The client's calls of the deletion queue.

use super::{Caller, Client, Transport};
use anyhow::{Result, anyhow};
use coppice_interface::*;
use serde_bytes::Bytes;

/// What the queue answers, or its own reason why not.
pub type Deletion<T> = Result<Result<T, BlobDeletionError>>;

impl<T: Transport> Client<T> {
    /// `grant_role`.
    ///
    /// # Errors
    /// Also when the canister refuses.
    pub fn grant_role(&self, grant: &Grant) -> Result<()> {
        let result: Result<(), RoleError> = self.update(Caller::Operator, "grant_role", (grant,))?;
        result.map_err(|error| anyhow!("the canister does not grant the role: {error:?}"))
    }

    /// `get_blob_deletion_status`.
    pub fn blob_deletion_status(&self) -> Result<BlobDeletionStatus> {
        self.query("get_blob_deletion_status", ())
    }

    /// `get_pending_blob_deletions`: the first rows that wait and whose height is this one or a lower one.
    pub fn pending_blob_deletions(&self, height: u32, limit: u32) -> Result<Vec<BlobDeletion>> {
        self.query("get_pending_blob_deletions", (height, limit))
    }

    /// `get_pruner_status` as an update call by a blob worker: slower, and the answer of the canister, not of one replica.
    pub fn pruner_status_replicated(&self) -> Result<PrunerStatus> {
        self.update(Caller::BlobWorker, "get_pruner_status", ())
    }

    /// `acquire_blob_deletion_batch`.
    pub fn acquire_blob_deletions(&self, arg: &AcquireBlobDeletions) -> Deletion<Option<BlobDeletionLease>> {
        self.update(Caller::BlobWorker, "acquire_blob_deletion_batch", (arg,))
    }

    /// `extend_blob_deletion_batch`.
    pub fn extend_blob_deletions(&self, token: &[u8], secs: u64) -> Deletion<u64> {
        self.update(Caller::BlobWorker, "extend_blob_deletion_batch", (Bytes::new(token), secs))
    }

    /// `complete_blob_deletion_batch`.
    pub fn complete_blob_deletions(&self, arg: &CompleteBlobDeletionBatch) -> Deletion<CompletedBlobDeletions> {
        self.update(Caller::BlobWorker, "complete_blob_deletion_batch", (arg,))
    }
}
