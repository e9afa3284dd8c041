//! Blocks, uploads and reads.

use super::prune::HeldBy;
use crate::blob::BlobPtr;
use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A whole block, as `append_block` takes it. `docs/design.md` 2.2 says how `receipts` and `index` are encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AppendBlock {
    /// One above the head's; any number for the first block.
    pub number: u64,
    /// Opaque, 1 to 32 bytes.
    pub hash: ByteBuf,
    /// The head's hash; not checked for the first block.
    pub parent_hash: ByteBuf,
    /// Unix seconds, as the chain says.
    pub timestamp: u64,
    /// Opaque.
    pub body: ByteBuf,
    /// One receipt a transaction, or empty.
    pub receipts: ByteBuf,
    /// Transaction ids and secondary keys.
    pub index: ByteBuf,
    /// SHA-256 of body, receipts and index.
    pub sha256: Vec<ByteBuf>,
}

/// A block that comes in chunks, because it is longer than an ingress message.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BeginBlock {
    /// One above the head's; any number for the first block.
    pub number: u64,
    /// Opaque, 1 to 32 bytes.
    pub hash: ByteBuf,
    /// The head's hash; not checked for the first block.
    pub parent_hash: ByteBuf,
    /// Unix seconds, as the chain says.
    pub timestamp: u64,
    /// Bytes of body, receipts and index.
    pub lengths: Vec<u64>,
    /// SHA-256 of body, receipts and index.
    pub sha256: Vec<ByteBuf>,
    /// Bytes of each chunk but the last, at most 1 MiB. Chunks cut body ‖ receipts ‖ index as one run of bytes.
    pub chunk_size: u32,
}

/// Chunk `chunk` of the open upload.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PutBlockChunk {
    /// The number of the block that is uploaded.
    pub number: u64,
    /// From 0; in any order.
    pub chunk: u32,
    /// `chunk_size` bytes; the last one has the rest.
    pub bytes: ByteBuf,
}

/// How far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UploadProgress {
    /// Chunks in all.
    pub chunks: u32,
    /// Chunks still to come.
    pub missing: u32,
}

/// The block that `commit_block` and `abort_block` mean.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockId {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: ByteBuf,
}

/// Why a block was not appended. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum AppendError {
    /// Another block is kept under this number; a reorg is a rollback and new appends.
    Conflict,
    /// The number is too high.
    Gap {
        /// The number that comes next.
        expected: u64,
    },
    /// The parent is not the head.
    WrongParent {
        /// The head's hash.
        expected: ByteBuf,
    },
    /// The number was pruned.
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// Something is longer, or more, than allowed.
    TooLarge {
        /// What.
        what: String,
        /// The most that is allowed: bytes of a block, segment, hash or chunk; else chunks, entries, or a number.
        limit: u64,
    },
    /// A segment is not encoded as it should be, or is not what its SHA-256 says.
    BadEncoding {
        /// 0 body, 1 receipts, 2 index.
        segment: u8,
        /// Bytes from the segment's start.
        at: u64,
        /// A sentence.
        why: String,
    },
    /// Kept bytes have reached emergency water.
    CapacityExhausted {
        /// Who holds pruning back.
        held_by: HeldBy,
    },
    /// Stable memory has reached the operator's cap (`max_stable_pages`), the platform's limit or the subnet's capacity.
    OutOfSpace,
    /// The canister's liquid cycles would not pay for growing.
    LowCycles,
    /// An upload is open; commit or abort it first.
    UploadOpen,
}

/// Why a step of an upload failed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UploadError {
    /// No upload is open (it may have expired).
    NoUpload,
    /// The open upload is of another block.
    OtherUpload {
        /// Its number.
        number: u64,
        /// Its hash.
        hash: ByteBuf,
    },
    /// There is no such chunk.
    ChunkOutOfRange {
        /// Chunks in all.
        chunks: u32,
    },
    /// The chunk has not as many bytes as it must.
    WrongLength {
        /// Bytes that it must have.
        expected: u32,
    },
    /// The chunk is there already, with other bytes.
    ChunkMismatch,
    /// Chunks are still to come.
    Incomplete {
        /// How many.
        missing: u32,
        /// The first of them.
        first: u32,
    },
    /// The block itself is not acceptable.
    Append(AppendError),
    /// The reserved range cannot be read or written; the upload must be aborted.
    Damaged,
}

impl From<AppendError> for UploadError {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

/// What is known of a block beside its payload.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockHeader {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: ByteBuf,
    /// The parent's hash.
    pub parent_hash: ByteBuf,
    /// Unix seconds, as the chain says.
    pub timestamp: u64,
    /// `min(now, max(previous, timestamp))` at append, in Unix seconds: the time that retention goes by.
    pub monotonic_timestamp: u64,
    /// Transactions.
    pub transactions: u32,
    /// Secondary keys.
    pub keys: u32,
    /// Bytes of body, receipts and index.
    pub lengths: Vec<u64>,
    /// SHA-256 of body, receipts and index, as the producer declared them.
    pub sha256: Vec<ByteBuf>,
}

/// A whole block.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Block {
    /// Everything but the payload.
    pub header: BlockHeader,
    /// The body segment.
    pub body: ByteBuf,
    /// The receipts segment.
    pub receipts: ByteBuf,
    /// The index segment.
    pub index: ByteBuf,
}

/// Why something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum ReadError {
    /// There is no such block, transaction or receipt.
    NotFound,
    /// The block was pruned.
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// The answer would be longer than a reply may be; `read_segment` gives it in parts.
    TooLarge {
        /// Bytes that the answer would have.
        size: u64,
        /// Bytes that a reply may have.
        limit: u64,
    },
    /// There is no such segment: 0 body, 1 receipts, 2 index.
    NoSuchSegment,
    /// The offset lies behind the segment's end.
    OutOfRange {
        /// Bytes of the segment.
        length: u64,
    },
    /// The record, or the blob that it names, cannot be read.
    Corrupt {
        /// A sentence.
        why: String,
    },
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct SegmentPart {
    /// Its bytes, from the offset that was asked for; at most as many as a reply may have.
    pub bytes: ByteBuf,
    /// Bytes of the whole segment.
    pub total: u64,
}

/// Where a transaction is.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct TransactionLocation {
    /// Its block's number.
    pub block_number: u64,
    /// Its block's hash.
    pub block_hash: ByteBuf,
    /// Its position in the block, from 0.
    pub position: u32,
}

/// A transaction's receipt.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Receipt {
    /// Where its transaction is.
    pub location: TransactionLocation,
    /// The receipt.
    pub bytes: ByteBuf,
}

/// Where a block's payload lies.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockStorage {
    /// Bytes from the log's start to the block's first byte.
    pub log_offset: u64,
    /// Bytes of body, receipts and index, which lie one after the other.
    pub lengths: Vec<u64>,
    /// The log's blobs that the block touches, in order. Neighbours may share the first and the last.
    pub blobs: Vec<BlobPtr>,
}

/// Why nothing was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum RollbackError {
    /// There are no blocks.
    Empty,
    /// The number is above the head's.
    AboveHead {
        /// The head's number.
        head: u64,
    },
    /// The block was pruned, so nothing could stand on it.
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// An upload is open; abort it first.
    UploadOpen,
}

/// How far a rollback came.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Rollback {
    /// The head now.
    pub head: u64,
    /// Blocks that this call took out.
    pub removed: u64,
    /// Whether the head is not yet the block that was asked for: call again.
    pub has_more: bool,
}
