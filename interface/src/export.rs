//! Exporters, pages of blocks, acknowledgements.

use crate::BlockHash;
use candid::Principal;
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use thiserror::Error;

/// The point that a reader of `export_blocks` has reached: everything before it was returned.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportCursor {
    /// The number of the block that was read last.
    pub number: u64,
    /// The hash of the block that was read last, by which the canister detects a reorg.
    pub hash: BlockHash,
    /// The next segment: 0 body, 1 receipts, 2 index; 3: the whole block was returned.
    pub segment: u8,
    /// Bytes of that segment that were returned.
    pub offset: u64,
    /// The number of blocks that had ever been rolled back when the block was read. Any smaller number is safe, and 0
    /// is the safest, but after a reorg the reader may then be sent back further than necessary, at worst to the oldest
    /// block.
    pub rollbacks: u64,
}

/// Part of a segment of a block, or all of it. A block's chunks come in order, at least one for each segment; an empty
/// segment is an empty chunk. The block is complete with the chunk that ends segment 2.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportChunk {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
    /// The parent block's hash; null if the parent's header is damaged.
    pub parent_hash: Option<BlockHash>,
    /// The block's time as its producer declared it, in Unix seconds.
    pub timestamp_secs: u64,
    /// The segment: 0 body, 1 receipts, 2 index.
    pub segment: u8,
    /// The bytes of the segment before this chunk.
    pub offset: u64,
    /// The length of the whole segment, in bytes.
    pub total: u64,
    /// SHA-256 of the whole segment, as the producer declared it.
    pub sha256: ByteBuf,
    /// The chunk's bytes.
    pub bytes: ByteBuf,
}

/// A page of `export_blocks`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportPage {
    /// The chunks in order, directly after the given cursor. Empty if the reader is at the head.
    pub chunks: Vec<ExportChunk>,
    /// The cursor of the next page: the given cursor if there are no chunks.
    pub cursor: Option<ExportCursor>,
    /// The head's number; `null` if there is no block.
    pub head: Option<u64>,
}

/// The reason why there is no page.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The next block was pruned.
    #[error("the next block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The number of the oldest kept block.
        first_available: u64,
        /// Set if the chain was also reorganised since the cursor was made: the reader's blocks above this one are not
        /// part of the chain, or may not be.
        common_ancestor: Option<u64>,
    },
    /// The answer to a query comes from a replica that has not reached the cursor yet: ask again, and after a while by an
    /// update call, which never answers this.
    #[error("the replica lags behind the cursor: ask again")]
    Behind {
        /// The number of that replica's head; `null` if it has no block.
        head: Option<u64>,
    },
    /// The cursor's block is no longer part of the chain.
    #[error("the chain was reorganised above block {common_ancestor}: continue at the cursor of this error")]
    Reorged {
        /// The newest block that the reader's chain and this chain certainly share.
        common_ancestor: u64,
        /// The cursor directly after the common ancestor, with which the reader continues.
        cursor: ExportCursor,
    },
    /// The chain was reset since the cursor was made: the reader's blocks belong to another chain. Start again without
    /// a cursor.
    #[error("the chain was reset: begin again without a cursor")]
    Reset {
        /// The number of the oldest kept block; `null` if there is none.
        first_available: Option<u64>,
    },
    /// The answer to an update call: the cursor is ahead of the chain, or its block was never part of the chain, and no
    /// prune, rollback or reset explains this. The canister was restored from a snapshot, or the reader's blocks belong to
    /// another canister: find the newest common block by `get_block_headers`, and keep the blocks above it, which may exist
    /// nowhere else.
    #[error(
        "the chain does not have the cursor's block: the canister was restored, or the cursor belongs to another chain"
    )]
    Restored {
        /// The head's number; `null` if there is no block.
        head: Option<u64>,
    },
    /// The cursor is invalid. A query also answers this if the replica does not know the cursor's block.
    #[error("invalid cursor: {why}")]
    BadCursor {
        /// The reason as a sentence.
        why: String,
    },
    /// A kept block cannot be read.
    #[error("block {number} cannot be read: {why}")]
    Corrupt {
        /// The block's number.
        number: u64,
        /// The reason as a sentence.
        why: String,
        /// The cursor with which reading continues after the block, with an empty hash because the block's is unknown;
        /// `null` if the block is the head.
        next: Option<ExportCursor>,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// A program that copies the chain. Blocks that an exporter has not acknowledged are not pruned.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exporter {
    /// The exporter's name: 1 to 32 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// The principal that acknowledges. Registration grants it the role `Exporter`.
    pub principal: Principal,
}

/// The exporter to remove.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveExporter {
    /// The exporter's name.
    pub name: String,
    /// Set to true to remove the last exporter, after which no guard protects blocks that were not exported.
    pub drop_guard: bool,
}

/// The reason why an exporter was not registered, or not removed. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExporterError {
    /// The name is invalid.
    #[error("invalid name: {why}")]
    BadName {
        /// The reason as a sentence.
        why: String,
    },
    /// The anonymous principal cannot acknowledge, because every caller can be anonymous.
    #[error("the anonymous principal cannot be an exporter")]
    Anonymous,
    /// An exporter with another principal has this name.
    #[error("the name belongs to {principal}")]
    NameTaken {
        /// The principal of the exporter with this name.
        principal: Principal,
    },
    /// The principal is registered under another name.
    #[error("the principal is the exporter {name}")]
    PrincipalTaken {
        /// The name under which the principal is registered.
        name: String,
    },
    /// The number of exporters, or of grants of roles, has reached its limit.
    #[error("limit of exporters and grants ({limit}) reached")]
    TooMany {
        /// The most exporters, or grants.
        limit: u64,
    },
    /// No exporter has this name.
    #[error("no exporter has this name")]
    Unknown,
    /// The exporter is the last one: set `drop_guard = true` to remove it.
    #[error("this is the last exporter: set drop_guard to remove it")]
    LastExporter,
    /// The key of the exporter with this name was revoked: only an admin registers a principal under the name, or
    /// removes the exporter.
    #[error("the key of this exporter was revoked: only an admin registers or removes it")]
    Keyless,
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// The reason why an acknowledgement was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AckError {
    /// The caller is not a registered exporter: `register_exporter` registers it.
    #[error("the caller is not a registered exporter: {why}")]
    NotRegistered {
        /// The reason as a sentence.
        why: String,
    },
    /// There is no such block yet, or a rollback removed it.
    #[error("the block is above the head")]
    AboveHead {
        /// The head's number; `null` if there is no block.
        head: Option<u64>,
    },
    /// The chain has another block with this number.
    #[error("the block has another hash: the chain was reorganised")]
    WrongHash {
        /// The hash of the chain's block.
        expected: BlockHash,
    },
    /// The block's header is damaged; acknowledge a later block instead.
    #[error("the header of the block cannot be read: acknowledge a later block ({why})")]
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Progress of an exporter.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExporterStatus {
    /// The exporter's name.
    pub name: String,
    /// The principal that acknowledges; `null` since an admin revoked its role. The exporter then holds back pruning at
    /// its bound until an admin registers a principal under its name, which continues at that bound, or removes the
    /// exporter.
    pub principal: Option<Principal>,
    /// The number below which the exporter has acknowledged all blocks.
    pub exported_before_block: u64,
    /// The number of kept blocks that the exporter has not acknowledged.
    pub lag_blocks: u64,
    /// The seconds since the exporter's last acknowledgement, or since its registration; 0 if no block waits for it.
    pub lag_secs: u64,
    /// The moment of the exporter's last acknowledgement, in Unix nanoseconds; `null` before the first one.
    pub acknowledged_at_ns: Option<u64>,
    /// The moment at which the exporter was registered, in Unix nanoseconds.
    pub registered_at_ns: u64,
}

/// Progress of all exporters.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStatus {
    /// The exporters, in the order of their names.
    pub exporters: Vec<ExporterStatus>,
    /// The number from which on no block is pruned; `null` without a guard.
    pub exported_before_block: Option<u64>,
    /// Nothing is pruned while no exporter is registered.
    pub require_export: bool,
    /// The head's number; `null` if there is no block.
    pub head: Option<u64>,
}
