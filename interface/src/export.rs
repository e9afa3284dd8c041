//! Exporters, pages of blocks, acknowledgements.

use crate::BlockHash;
use candid::{CandidType, Principal};
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// How far a reader of `export_blocks` is: everything before this point was handed out.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportCursor {
    /// The number of the block that was read last.
    pub number: u64,
    /// The hash of the block that was read last: should the chain have another block there, it was reorganised.
    pub hash: BlockHash,
    /// The segment that comes next: 0 body, 1 receipts, 2 index; 3: the block was handed out whole.
    pub segment: u8,
    /// Bytes of that segment that were handed out.
    pub offset: u64,
    /// The number of blocks that had ever been rolled back when the block was read. Any smaller number is safe, and 0
    /// the safest: after a reorg the reader is then sent further back than need be, at worst to the oldest block.
    pub rollbacks: u64,
}

/// Part of a segment of a block, or all of it. A block's chunks come in order, each segment at least once, an empty one as
/// an empty chunk: the block is complete with the chunk that ends segment 2.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportChunk {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block before.
    pub parent_hash: BlockHash,
    /// The block's time as the chain says, in Unix seconds.
    pub timestamp: u64,
    /// The segment: 0 body, 1 receipts, 2 index.
    pub segment: u8,
    /// The bytes of the segment before this chunk.
    pub offset: u64,
    /// The bytes that the whole segment has.
    pub total: u64,
    /// SHA-256 of the whole segment, as the producer declared it.
    pub sha256: ByteBuf,
    /// The chunk's bytes.
    pub bytes: ByteBuf,
}

/// What `export_blocks` hands out at a time.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportPage {
    /// The chunks in order, without a gap behind the cursor that was given. Empty where the reader is at the head.
    pub chunks: Vec<ExportChunk>,
    /// The cursor with which the next page is asked for: the one that was given where there are no chunks.
    pub cursor: Option<ExportCursor>,
    /// The head's number; none where there is no block yet.
    pub head: Option<u64>,
}

/// Why there is no page.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum ExportError {
    /// The block that comes next was pruned.
    #[error("the next block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
        /// The chain was reorganised as well since the cursor was made: what the reader has above this block is not part of
        /// it, or not surely.
        common_ancestor: Option<u64>,
    },
    /// The answer is of a replica that has not come as far as the cursor yet: ask again.
    #[error("the replica lags behind the cursor: ask again")]
    Behind {
        /// The number of that replica's head; none where it has no block.
        head: Option<u64>,
    },
    /// The cursor's block is no longer part of the chain.
    #[error("the chain was reorganised above block {common_ancestor}: continue at the cursor of this error")]
    Reorged {
        /// The newest block that the reader's chain and this one surely have in common.
        common_ancestor: u64,
        /// The cursor behind the common ancestor, to go on with.
        cursor: ExportCursor,
    },
    /// The chain was reset since the cursor was made: what the reader has is of another chain. Begin again, without a cursor.
    #[error("the chain was reset: begin again without a cursor")]
    Reset {
        /// The oldest block that is kept; none where there is none yet.
        first_available: Option<u64>,
    },
    /// No page ever ended with this cursor.
    #[error("the cursor is of no page: {why}")]
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
        /// The cursor with which reading goes on without the block; none where the block is the head.
        next: Option<ExportCursor>,
    },
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Somebody who copies the chain. What an exporter has not acknowledged is not pruned.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub struct Exporter {
    /// The exporter's name: 1 to 32 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// The principal that acknowledges. It gets the role `Exporter`.
    pub principal: Principal,
}

/// The exporter that goes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct RemoveExporter {
    /// The exporter's name.
    pub name: String,
    /// True where the last exporter is to go, after which nothing guards what was not exported.
    pub drop_guard: bool,
}

/// Why an exporter was not registered, or not removed. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum ExporterError {
    /// The name is not one.
    #[error("the name is not valid: {why}")]
    BadName {
        /// The reason as a sentence.
        why: String,
    },
    /// The anonymous principal cannot acknowledge anything: anyone can be it.
    #[error("the anonymous principal cannot be an exporter")]
    Anonymous,
    /// The name is that of an exporter with another principal.
    #[error("the name belongs to {principal}")]
    NameTaken {
        /// The principal that has the name.
        principal: Principal,
    },
    /// The principal exports under another name.
    #[error("the principal exports as {name}")]
    PrincipalTaken {
        /// The name that the principal has.
        name: String,
    },
    /// There are as many exporters, or grants of roles, as there may be.
    #[error("there are {limit} exporters or grants, which is the most")]
    TooMany {
        /// The most exporters, or grants, that there may be.
        limit: u64,
    },
    /// No exporter has this name.
    #[error("no exporter has this name")]
    Unknown,
    /// The exporter is the last one: say `drop_guard = true`.
    #[error("this is the last exporter: set drop_guard to remove it")]
    LastExporter,
    /// The name is that of an exporter whose key was revoked: an admin registers a principal under it, or removes it.
    #[error("the key of this exporter was revoked: only an admin registers or removes it")]
    Keyless,
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Why an acknowledgement was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum AckError {
    /// The caller is not a registered exporter: an operator's `register_exporter` makes it one.
    #[error("the caller is not a registered exporter: {why}")]
    NotRegistered {
        /// The reason as a sentence.
        why: String,
    },
    /// There is no such block yet, or no more after a rollback.
    #[error("the block is above the head")]
    AboveHead {
        /// The head's number; none where there is no block yet.
        head: Option<u64>,
    },
    /// The chain has another block under this number.
    #[error("the block has another hash: the chain was reorganised")]
    WrongHash {
        /// The hash of the chain's block.
        expected: BlockHash,
    },
    /// The block's header cannot be decoded; a later block can be acknowledged.
    #[error("the header of the block cannot be read: acknowledge a later block ({why})")]
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// How far an exporter is.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExporterStatus {
    /// The exporter's name.
    pub name: String,
    /// The principal that acknowledges; none since an admin revoked its role. The exporter then holds pruning at its bound
    /// until an admin registers a principal under its name, which goes on at that bound, or removes the exporter.
    pub principal: Option<Principal>,
    /// The number below which the exporter has acknowledged all blocks.
    pub exported_before_block: u64,
    /// The number of kept blocks that the exporter has not acknowledged.
    pub lag_blocks: u64,
    /// The seconds since the exporter acknowledged last, or was registered; 0 where no block waits for it.
    pub lag_seconds: u64,
    /// The moment at which the exporter acknowledged last, in Unix nanoseconds; none before the first time.
    pub acknowledged_at: Option<u64>,
    /// The moment at which the exporter was registered, in Unix nanoseconds.
    pub registered_at: u64,
}

/// How far all exporters are.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The exporters, in the order of their names.
    pub exporters: Vec<ExporterStatus>,
    /// No block from this number on is pruned; none where nothing guards.
    pub exported_before_block: Option<u64>,
    /// Nothing is pruned while no exporter is registered.
    pub require_export: bool,
    /// The head's number; none where there is no block yet.
    pub head: Option<u64>,
}
