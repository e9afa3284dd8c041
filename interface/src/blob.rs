//! What a blob is called: its pointer and its owner.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};

/// Bytes of a slot, by size class.
pub const SIZE_CLASSES: [u32; 7] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

/// Where a blob lies, and which of the allocations that were ever there is meant.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlobPtr {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes of data; at most `class`.
    pub len: u32,
    /// Bytes of the slot, one of the seven size classes.
    pub class: u32,
    /// The allocation of the slot that is meant, from 1. A reused slot has a higher one, so an old pointer is recognised.
    #[serde(rename = "gen")]
    pub generation: u32,
}

/// The owner of a blob. Kept bytes are counted by owner, so that block pruning is never driven by data that it cannot
/// remove (`docs/design.md` 2.1).
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Owner {
    /// The log of committed blocks.
    Chain,
    /// The range reserved for an open upload.
    Upload,
    /// Transaction data of UTXO records.
    External,
}

impl Owner {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, in the order in which they are stored.
    pub const ALL: [Self; Self::COUNT] = [Self::Chain, Self::Upload, Self::External];

    /// The owner with this index, as it is stored.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// The index under which it is stored.
    pub fn index(self) -> usize {
        self as usize
    }
}
