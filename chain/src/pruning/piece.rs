//! Piece of a tick's work, with a name, so that a piece that traps repeatedly can be skipped.

use crate::IndexTable;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A piece of a tick's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// Dropping the upload of a block that has expired.
    Upload,
    /// Dropping the upload of a transaction that has expired.
    Transaction,
    /// Releasing quarantined blobs.
    Quarantine,
    /// Undoing an upload, rolling back, or clearing after a reset.
    Undo,
    /// Pruning this block.
    Block(u64),
    /// Sweeping the 128 buckets of an index that begin with this one.
    Slice(IndexTable, u64),
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upload => f.write_str("dropping an upload that has expired"),
            Self::Transaction => f.write_str("dropping the upload of a transaction that has expired"),
            Self::Quarantine => f.write_str("releasing quarantined blobs"),
            Self::Undo => f.write_str("undoing an upload, a rollback or a reset"),
            Self::Block(number) => write!(f, "block {number}: its part of the log is lost"),
            Self::Slice(table, bucket) => {
                let of = if *table == IndexTable::Ids { "transaction" } else { "key" };
                write!(f, "buckets {bucket} to {} of the {of} index", bucket + 127)
            }
        }
    }
}
