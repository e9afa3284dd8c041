//! Blocks, uploads and reads.

use crate::error::{NoMemory, UploadOpen};
use crate::{BlobPtr, BlockHash, BySegment, HeldBy};
use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// A whole block, as `append_block` takes it.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct AppendBlock {
    /// The block's number: one above the head's; any number for the first block.
    pub number: u64,
    /// The block's hash: opaque, 1 to 32 bytes.
    pub hash: BlockHash,
    /// The hash of the block before, which is the head; not checked for the first block.
    pub parent_hash: BlockHash,
    /// The block's time as the chain says, in Unix seconds.
    pub timestamp: u64,
    /// The body segment: opaque bytes.
    pub body: ByteBuf,
    /// The receipts segment: empty, or u32 n ‖ n × u32 end offset ‖ bytes, all little-endian. n is the number of
    /// transactions; the end offset of a receipt counts from the start of `bytes`, where the first receipt begins and each
    /// begins where the one before ends.
    pub receipts: ByteBuf,
    /// The index segment: empty, or u32 n ‖ n × 32-byte transaction id ‖ u32 m ‖ m × (u32 transaction ‖ u16 length ‖ key),
    /// all little-endian. `transaction` is a position among the n ids, from 0; a key has 64 bytes at most.
    pub index: ByteBuf,
    /// The SHA-256 of each segment. Checked where the setting `verify_segments` is on, and stored and exported in any case.
    pub sha256: BySegment<ByteBuf>,
}

/// A block that comes in chunks, because it is longer than an ingress message.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BeginBlock {
    /// The block's number: one above the head's; any number for the first block.
    pub number: u64,
    /// The block's hash: opaque, 1 to 32 bytes.
    pub hash: BlockHash,
    /// The hash of the block before, which is the head; not checked for the first block.
    pub parent_hash: BlockHash,
    /// The block's time as the chain says, in Unix seconds.
    pub timestamp: u64,
    /// The bytes of each segment.
    pub lengths: BySegment<u64>,
    /// The SHA-256 of each segment.
    pub sha256: BySegment<ByteBuf>,
    /// Bytes of each chunk but the last: from 1 to 1 MiB, and so many that there are 16,384 chunks at most. Chunks cut
    /// body ‖ receipts ‖ index as one run of bytes.
    pub chunk_size: u32,
}

/// A chunk of the block upload that is open.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct PutBlockChunk {
    /// The number of the block that is uploaded.
    pub number: u64,
    /// The chunk's number, from 0; chunks come in any order.
    pub chunk: u32,
    /// The chunk's bytes: `chunk_size` of them; the last chunk has the rest.
    pub bytes: ByteBuf,
}

/// The block upload that is open.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OpenBlock {
    /// The number of the block that is uploaded.
    pub number: u64,
    /// How many chunks there are, and how many are still to come.
    pub progress: UploadProgress,
}

/// How far an upload is.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct UploadProgress {
    /// The number of chunks in all.
    pub chunks: u32,
    /// The number of chunks that are still to come.
    pub missing: u32,
}

/// A block, by its number and hash: what `commit_block` takes.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockId {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
}

/// Why a block was not appended. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum AppendError {
    /// The number is that of another block, which is kept; a reorg is a rollback and new appends.
    #[error("a block with another hash has this number: roll back before appending it")]
    Conflict,
    /// The number is too high.
    #[error("the number is too high: the next block is {expected}")]
    Gap {
        /// The number that comes next.
        expected: u64,
    },
    /// The parent is not the head.
    #[error("the parent is not the head: roll back to the common ancestor first")]
    WrongParent {
        /// The head's hash.
        expected: BlockHash,
    },
    /// The number was pruned.
    #[error("the number was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// A part of the block is longer than allowed, or has more items.
    #[error("too large: {what}; at most {limit}")]
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The most that is allowed, in what `what` says: bytes of a block, segment, hash or chunk; the number of
        /// chunks, or of transactions and keys; the block's number itself.
        limit: u64,
    },
    /// A segment is not encoded as it should be, or is not what its SHA-256 says; also where a SHA-256 does not have 32
    /// bytes, the block's hash is empty, or the `chunk_size` of an upload is 0.
    #[error("segment {segment} is wrong at byte {at}: {why}")]
    BadEncoding {
        /// The segment: 0 body, 1 receipts, 2 index; 0 where the hash or `chunk_size` is at fault.
        segment: u8,
        /// The first byte that is wrong, counted from the segment's start.
        at: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// Kept bytes have reached emergency water.
    #[error("the chain has reached the emergency mark: {held_by}")]
    CapacityExhausted {
        /// The reason why pruning does not make room.
        held_by: HeldBy,
    },
    /// Memory was refused.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// An upload of a block is open; one that was aborted stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback is under way, which ticks bring to its end: try again, or call `rollback_to` once more to go on with it.
    #[error("a rollback to block {to} is under way: try again")]
    RollbackUnderway {
        /// The block that will be the head.
        to: u64,
    },
    /// The chain was reset, and ticks still clear what it kept: try again.
    #[error("a reset is under way ({left} blocks and blobs are left): try again")]
    ResetUnderway {
        /// Blocks and blobs that are left.
        left: u64,
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

/// How far a commit came.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Commit {
    /// The block is the head, or was kept already.
    Done,
    /// The block is too large for one message: call again with the same argument. It is not there until it is done.
    HasMore {
        /// The number of transactions and keys of the block that are entered; 0 while its segments are still compared with
        /// their SHA-256.
        entered: u64,
        /// The number of transactions and keys that the block has.
        of: u64,
    },
}

/// Why a step of an upload was refused. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum UploadError {
    /// No upload is open (it may have expired).
    #[error("no upload is open; it may have expired: begin again")]
    NoUpload,
    /// An upload of a block is open; one that was aborted stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// The open upload is of another block.
    #[error("the open upload is of another block, {number}")]
    OtherUpload {
        /// The number of the block that is uploaded.
        number: u64,
        /// The hash of the block that is uploaded.
        hash: BlockHash,
    },
    /// The upload has no chunk with this number.
    #[error("the upload has only {chunks} chunks")]
    ChunkOutOfRange {
        /// The number of chunks that it has.
        chunks: u32,
    },
    /// The chunk does not have as many bytes as it must.
    #[error("the chunk must have {expected} bytes")]
    WrongLength {
        /// The number of bytes that the chunk must have.
        expected: u32,
    },
    /// The chunk is there already, with other bytes.
    #[error("the chunk is there already, with other bytes")]
    ChunkMismatch,
    /// Chunks are still to come.
    #[error("{missing} chunks are missing, the first is {first}")]
    Incomplete {
        /// The number of chunks that are still to come.
        missing: u32,
        /// The first chunk that is still to come.
        first: u32,
    },
    /// The block itself is not acceptable.
    #[error(transparent)]
    Append(AppendError),
    /// The reserved range cannot be read or written; the upload must be aborted.
    #[error("the upload cannot be read: abort it ({why})")]
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// The upload was aborted, or has expired in the middle of its commit, and is being undone; then it is open no more.
    #[error("the upload is being undone: try again")]
    Aborting,
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

impl From<AppendError> for UploadError {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

/// What is known of a block beside its payload.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockHeader {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block before.
    pub parent_hash: BlockHash,
    /// The block's time as the chain says, in Unix seconds.
    pub timestamp: u64,
    /// `min(now, max(previous, timestamp))` at append, in Unix seconds: the time that retention goes by.
    pub monotonic_timestamp: u64,
    /// The number of transactions in the block.
    pub transactions: u32,
    /// The number of secondary keys in the block.
    pub keys: u32,
    /// The bytes of each segment.
    pub lengths: BySegment<u64>,
    /// The SHA-256 of each segment, as the producer declared them.
    pub sha256: BySegment<ByteBuf>,
}

/// A page of `get_block_headers`.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct HeaderPage {
    /// The headers of consecutive blocks, the oldest first: at most 1,000, which have less than 1 MiB.
    pub headers: Vec<BlockHeader>,
    /// The block with which the next page begins; none where this page reaches `to` or the head.
    pub next: Option<u64>,
}

/// A whole block.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Block {
    /// All that is known of the block beside its payload.
    pub header: BlockHeader,
    /// The body segment.
    pub body: ByteBuf,
    /// The receipts segment.
    pub receipts: ByteBuf,
    /// The index segment.
    pub index: ByteBuf,
}

/// Why something cannot be read.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum ReadError {
    /// There is no such block, transaction or receipt.
    #[error("there is no such block, transaction or receipt")]
    NotFound,
    /// The block was pruned.
    #[error("the block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// The answer would be longer than a reply may be; `read_segment` gives it in parts.
    #[error("the answer would have {size} bytes, and a reply has at most {limit}: read it in parts with read_segment")]
    TooLarge {
        /// The bytes that the answer would have.
        size: u64,
        /// The most bytes that a reply may have.
        limit: u64,
    },
    /// A block has no segment with this number: 0 is the body, 1 the receipts, 2 the index.
    #[error("there is no such segment: 0 is the body, 1 the receipts, 2 the index")]
    NoSuchSegment,
    /// The offset lies behind the segment's end.
    #[error("the offset is after the end: the segment has {length} bytes")]
    OutOfRange {
        /// The bytes that the segment has.
        length: u64,
    },
    /// The block's header, or a blob of its payload, cannot be read.
    #[error("kept data cannot be read: {why}")]
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

/// A part of a segment.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct SegmentPart {
    /// The bytes from the offset that was asked for; at most as many as a reply may have.
    pub bytes: ByteBuf,
    /// The bytes that the whole segment has.
    pub total: u64,
}

/// Where a transaction is.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct TransactionLocation {
    /// The number of the transaction's block.
    pub block_number: u64,
    /// The hash of the transaction's block.
    pub block_hash: BlockHash,
    /// The transaction's position in the block, from 0.
    pub position: u32,
}

/// A transaction's receipt.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Receipt {
    /// The block and the position of the transaction that the receipt is of.
    pub location: TransactionLocation,
    /// The receipt's bytes.
    pub bytes: ByteBuf,
}

/// Where a block's payload lies.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BlockStorage {
    /// Bytes from the log's start to the block's first byte.
    pub log_offset: u64,
    /// The bytes of each segment; the segments lie one after the other.
    pub lengths: BySegment<u64>,
    /// The log's blobs that the block touches, in order. Neighbours may share the first and the last.
    pub blobs: Vec<BlobPtr>,
}

/// Why nothing was rolled back.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum RollbackError {
    /// There are no blocks.
    #[error("there are no blocks")]
    Empty,
    /// The number is above the head's.
    #[error("the number is above the head, {head}")]
    AboveHead {
        /// The head's number.
        head: u64,
    },
    /// The block was pruned, so nothing could stand on it.
    #[error("the block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The oldest block that is kept.
        first_available: u64,
    },
    /// Only an admin may roll back as deep (`max_rollback_blocks`).
    #[error("only an admin may roll back below block {lowest} (max_rollback_blocks)")]
    TooDeep {
        /// The lowest block that a producer may make the head.
        lowest: u64,
    },
    /// An upload of a block is open; one that was aborted stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback that goes deeper is under way.
    #[error("a deeper rollback, to block {to}, is under way: try again")]
    RollbackUnderway {
        /// The block that it makes the head.
        to: u64,
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

/// How far a rollback came.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Rollback {
    /// The number of the block that is the head now.
    pub head: u64,
    /// The number of blocks that this call took out.
    pub removed: u64,
    /// Work is left: call again, or let ticks go on with it.
    pub has_more: bool,
}

/// Empties the chain, which may then begin at any number.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ResetChain {
    /// The head's hash, so that nobody resets another chain than the one in mind. Where the head's header cannot be
    /// decoded, nobody knows the hash, and it is empty here and in `WrongHash`.
    pub head_hash: BlockHash,
    /// True where the chain is to go though an exporter has not acknowledged all blocks, which are lost to it then.
    pub drop_unexported: bool,
}

/// What a reset did.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ChainReset {
    /// The number of blocks that were kept.
    pub blocks: u64,
    /// The number of blocks and blobs that ticks have still to clear before a block can be appended.
    pub left: u64,
}

/// Why the chain was not reset. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum ResetError {
    /// There are no blocks.
    #[error("there are no blocks")]
    Empty,
    /// The head is another block.
    #[error("the head has another hash")]
    WrongHash {
        /// The hash of the head.
        expected: BlockHash,
    },
    /// An upload of a block is open; one that was aborted stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback is under way.
    #[error("a rollback to block {to} is under way: try again")]
    RollbackUnderway {
        /// The block that it makes the head.
        to: u64,
    },
    /// An exporter has not acknowledged all blocks: say `drop_unexported = true`.
    #[error(
        "the exporter {exporter} has acknowledged only blocks before {exported_before_block}: wait, or set drop_unexported"
    )]
    NotExported {
        /// The exporter's name.
        exporter: String,
        /// The number below which the exporter has acknowledged all blocks.
        exported_before_block: u64,
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
