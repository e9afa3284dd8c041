//! Pointer and owner of a blob.

use ic_coppice_macros::candid_type;

/// Bytes of a slot, by size class.
pub const SIZE_CLASSES: [u32; 7] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

/// Place of a blob: its slot, and the allocation of that slot.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobPtr {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes of data; at most `class`.
    pub len: u32,
    /// Bytes of the slot, one of the seven size classes.
    pub class: u32,
    /// The allocation of the slot, from 1. A reused slot has a higher number, so that an old pointer is recognised.
    #[serde(rename = "gen")]
    pub generation: u32,
}

/// Owner of memory. Kept bytes are counted by owner, so that block pruning is never caused by data that it cannot
/// remove (`docs/design/memory.md`).
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The log of committed blocks.
    Chain,
    /// The blobs of the open upload of a block.
    Upload,
    /// Transaction data of UTXO records and of their open uploads, in blobs.
    External,
    /// UTXO records.
    Records,
    /// Rows of the deletion queue.
    Deletions,
    /// The index of UTXO records.
    UtxoIndex,
    /// Headers of kept blocks: hashes, lengths, times.
    Headers,
    /// The index of transaction ids.
    TransactionIndex,
    /// The index of secondary keys.
    KeyIndex,
    /// Settings, state, directories of the indexes, logs and samples.
    Spaces,
    /// Other code of the canister, which has grown these pages. They are billed, and never read or written.
    Stray,
}

impl Owner {
    /// Number of owners.
    pub const COUNT: usize = 11;
    /// All owners, in the order in which they are stored.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Chain,
        Self::Upload,
        Self::External,
        Self::Records,
        Self::Deletions,
        Self::UtxoIndex,
        Self::Headers,
        Self::TransactionIndex,
        Self::KeyIndex,
        Self::Spaces,
        Self::Stray,
    ];

    /// Returns the owner with this stored index.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Returns the index under which the owner is stored.
    pub fn index(self) -> usize {
        self as usize
    }
}
