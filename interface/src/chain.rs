//! Blocks, uploads and reads.

use crate::{BlobPtr, BySegment, HeldBy};
use candid::{CandidType, Principal};
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
    pub sha256: BySegment<ByteBuf>,
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
    pub lengths: BySegment<u64>,
    /// SHA-256 of body, receipts and index.
    pub sha256: BySegment<ByteBuf>,
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

/// The block upload that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OpenBlock {
    /// The number of the block that is uploaded.
    pub number: u64,
    /// How far it is.
    pub progress: UploadProgress,
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
    /// The balance would not pay for growing.
    LowCycles {
        /// Cycles that are missing.
        missing: u128,
    },
    /// Growing would reserve more cycles for storage than the canister's `reserved_cycles_limit` allows.
    ReservedCyclesLimit {
        /// By so many.
        missing: u128,
    },
    /// An upload is open: who began it, or an operator, commits or aborts it. One that was aborted stays open until all of it is undone: try
    /// again.
    UploadOpen {
        /// The producer that began it; `aaaaa-aa` where that was not noted.
        by: Principal,
        /// When it expires, in Unix seconds, unless somebody goes on with it before.
        expires_at: u64,
    },
    /// A rollback is under way, which ticks bring to its end: try again, or call `rollback_to` once more to go on with it.
    RollbackUnderway {
        /// The block that will be the head.
        to: u64,
    },
    /// The chain was reset, and ticks still clear what it kept: try again.
    ResetUnderway {
        /// Blocks and blobs that are left.
        left: u64,
    },
}

/// How far a commit came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Commit {
    /// The block is the head, or was kept already.
    Done,
    /// The block is too large for one message: call again with the same argument. It is not there until it is done.
    HasMore {
        /// Transactions and keys of the block that are entered; 0 while its segments are still compared with their SHA-256.
        entered: u64,
        /// All of them.
        of: u64,
    },
}

/// Why a step of an upload failed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum UploadError {
    /// No upload is open (it may have expired).
    NoUpload,
    /// The open upload is another producer's.
    UploadOpen {
        /// Who began it.
        by: Principal,
        /// When it expires, in Unix seconds, unless somebody goes on with it before.
        expires_at: u64,
    },
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
    /// The upload was aborted, or has expired in the middle of its commit, and is being undone; then it is open no more.
    Aborting,
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
    pub lengths: BySegment<u64>,
    /// SHA-256 of body, receipts and index, as the producer declared them.
    pub sha256: BySegment<ByteBuf>,
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
    pub lengths: BySegment<u64>,
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
    /// So deep only an admin may roll back (`max_rollback_blocks`).
    TooDeep {
        /// The lowest block that a producer may make the head.
        lowest: u64,
    },
    /// An upload is open; abort it first.
    UploadOpen {
        /// Who began it.
        by: Principal,
        /// When it expires, in Unix seconds, unless somebody goes on with it before.
        expires_at: u64,
    },
    /// Another rollback, that goes deeper, is under way.
    RollbackUnderway {
        /// The block that it makes the head.
        to: u64,
    },
}

/// How far a rollback came.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Rollback {
    /// The head now.
    pub head: u64,
    /// Blocks that this call took out.
    pub removed: u64,
    /// Whether something is left to do: call again, or let ticks go on with it.
    pub has_more: bool,
}

/// Empties the chain, which may then begin at any number.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ResetChain {
    /// The head's hash; empty where its record cannot be decoded.
    pub head_hash: ByteBuf,
    /// Must be true where an exporter has not acknowledged all blocks: they are gone then.
    pub drop_unexported: bool,
}

/// What a reset did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ChainReset {
    /// Blocks that were kept.
    pub blocks: u64,
    /// Blocks and blobs that ticks have still to clear before a block can be appended.
    pub left: u64,
}

/// Why the chain was not reset. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum ResetError {
    /// There are no blocks.
    Empty,
    /// The head is another block.
    WrongHash {
        /// Its hash.
        expected: ByteBuf,
    },
    /// An upload is open; abort it first.
    UploadOpen {
        /// Who began it.
        by: Principal,
        /// When it expires, in Unix seconds, unless somebody goes on with it before.
        expires_at: u64,
    },
    /// A rollback is under way.
    RollbackUnderway {
        /// The block that it makes the head.
        to: u64,
    },
    /// An exporter has not acknowledged all blocks: say `drop_unexported = true`.
    NotExported {
        /// Its name.
        exporter: String,
        /// It has acknowledged all blocks below this number.
        exported_before_block: u64,
    },
}
