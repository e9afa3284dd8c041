//! Exporters, pages of blocks, acknowledgements.

use candid::{CandidType, Principal};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// How far a reader of `export_blocks` is: everything before this place was handed out.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportCursor {
    /// The block that was read last.
    pub number: u64,
    /// Its hash: should the chain have another block there, it was reorganised.
    pub hash: ByteBuf,
    /// The segment that comes next: 0 body, 1 receipts, 2 index; 3: the block was handed out whole.
    pub segment: u8,
    /// Bytes of that segment that were handed out.
    pub offset: u64,
    /// Blocks that had ever been rolled back when the block was read. 0 where that is not known: after a reorg the reader
    /// is then sent further back than need be, at worst to the oldest block.
    pub rollbacks: u64,
}

/// Part of a segment of a block, or all of it. A block's chunks come in order, each segment at least once, an empty one as
/// an empty chunk: the block is complete with the chunk that ends segment 2.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportChunk {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: ByteBuf,
    /// The hash of the block before.
    pub parent_hash: ByteBuf,
    /// Unix seconds, as the chain says.
    pub timestamp: u64,
    /// 0 body, 1 receipts, 2 index.
    pub segment: u8,
    /// Bytes of the segment before this chunk.
    pub offset: u64,
    /// Bytes of the whole segment.
    pub total: u64,
    /// SHA-256 of the whole segment, as the producer declared it.
    pub sha256: ByteBuf,
    /// The bytes.
    pub bytes: ByteBuf,
}

/// What `export_blocks` hands out at a time.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportPage {
    /// In order, without a gap behind the cursor that was given. Empty where the reader is at the head.
    pub chunks: Vec<ExportChunk>,
    /// Where the next page starts. The one that was given where there are no chunks.
    pub cursor: Option<ExportCursor>,
    /// The head's number.
    pub head: Option<u64>,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum ExportError {
    /// What comes next was pruned.
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
        /// The chain was reorganised as well since the cursor was made: what the reader has above this block is not part of
        /// it, or not surely.
        common_ancestor: Option<u64>,
    },
    /// The answer is of a replica that has not come as far as the cursor yet: ask again.
    Behind {
        /// Its head's number.
        head: Option<u64>,
    },
    /// The cursor's block is no longer part of the chain.
    Reorged {
        /// The newest block that the reader's chain and this one surely have in common.
        common_ancestor: u64,
        /// Where to go on, behind that block.
        cursor: ExportCursor,
    },
    /// The chain was reset since the cursor was made: what the reader has is of another chain. Begin again, without a cursor.
    Reset {
        /// The oldest block that is kept; none where there is none yet.
        first_available: Option<u64>,
    },
    /// No page ever ended with this cursor.
    BadCursor {
        /// A sentence.
        why: String,
    },
    /// A kept block cannot be read.
    Corrupt {
        /// Its number.
        number: u64,
        /// A sentence.
        why: String,
        /// Where to go on without it; none where it is the head.
        next: Option<ExportCursor>,
    },
}

/// Somebody who copies the chain. What an exporter has not acknowledged is not pruned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub struct Exporter {
    /// 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Who acknowledges. It gets the role `Exporter`.
    pub principal: Principal,
}

/// Which exporter goes.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct RemoveExporter {
    /// Its name.
    pub name: String,
    /// Must be true where it is the last one, as then nothing guards what was not exported. Only an admin may take that one out.
    pub drop_guard: bool,
}

/// Why an exporter was not registered, or not removed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum ExporterError {
    /// The name is not one.
    BadName {
        /// A sentence.
        why: String,
    },
    /// The anonymous principal cannot acknowledge anything: anyone can be it.
    Anonymous,
    /// Another principal exports under this name.
    NameTaken {
        /// Which.
        principal: Principal,
    },
    /// This principal exports under another name.
    PrincipalTaken {
        /// Which.
        name: String,
    },
    /// There are as many exporters, or grants of roles, as there may be.
    TooMany {
        /// The most.
        limit: u64,
    },
    /// No exporter has this name.
    Unknown,
    /// It is the last one: say `drop_guard = true`.
    LastExporter,
    /// It is the last one, and only an admin may take that out: nothing would guard what was not exported.
    AdminOnly,
}

/// Why an acknowledgement was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum AckError {
    /// The caller is not a registered exporter: an operator's `register_exporter` makes it one.
    NotRegistered {
        /// The same as a sentence.
        why: String,
    },
    /// There is no such block yet, or no more after a rollback.
    AboveHead {
        /// The head's number.
        head: Option<u64>,
    },
    /// The chain has another block under this number.
    WrongHash {
        /// Its hash.
        expected: ByteBuf,
    },
    /// The block's record cannot be decoded; a later one can be acknowledged.
    Corrupt,
}

/// How far an exporter is.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExporterStatus {
    /// Its name.
    pub name: String,
    /// Who acknowledges.
    pub principal: Principal,
    /// It has acknowledged all blocks below this number.
    pub exported_before_block: u64,
    /// Kept blocks that it has not acknowledged.
    pub lag_blocks: u64,
    /// Seconds since it acknowledged last, or was registered; 0 where no block waits for it.
    pub lag_seconds: u64,
    /// When it acknowledged last, in nanoseconds since the Unix epoch.
    pub acknowledged_at: Option<u64>,
    /// When it was registered, in nanoseconds since the Unix epoch.
    pub registered_at: u64,
}

/// How far all exporters are.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ExportStatus {
    /// In the order of their names.
    pub exporters: Vec<ExporterStatus>,
    /// No block from this number on is pruned; none where nothing guards.
    pub exported_before_block: Option<u64>,
    /// Whether without an exporter nothing is pruned at all.
    pub require_export: bool,
    /// The head's number.
    pub head: Option<u64>,
}
