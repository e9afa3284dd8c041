//! Pointer to a blob.

use serde::{Deserialize, Serialize};

/// Bytes of the largest blob.
pub const MAX_BLOB: u32 = 4 << 20;

/// Location of a blob, and the allocation of the slot that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPtr {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes of data; at most `class`.
    pub len: u32,
    /// Bytes of the slot, one of the seven size classes.
    pub class: u32,
    /// Generation of the slot, from 1. A reused slot has a higher one, so an old pointer is recognised.
    #[serde(rename = "gen")]
    pub generation: u32,
}
