//! Blocks of the chain: appends, uploads, reads, rollbacks and resets.

use crate::error::{NoMemory, NotReady, UploadOpen};
use crate::segments::{BadSegment, digests};
use crate::{BlobPtr, BlockHash, BySegment, HeldBy, UtxoError};
use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use thiserror::Error;

/// A whole block: the argument of `append_block`.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendBlock {
    /// The block's number: the head's number plus one; any number for the first block. At most 2^63 - 1, because an
    /// index database holds no greater number.
    pub number: u64,
    /// The block's hash: opaque, 1 to 32 bytes.
    pub hash: BlockHash,
    /// The parent block's hash: the head's hash; not checked for the first block.
    pub parent_hash: BlockHash,
    /// The block's time as its producer declared it, in Unix seconds.
    pub timestamp_secs: u64,
    /// The body segment: any bytes. Applying the block to UTXO records reads an 80-byte header, a VarInt count and the
    /// transactions.
    pub body: ByteBuf,
    /// The receipts segment: empty, or u32 n ‖ n × u32 end offset ‖ bytes, all little-endian. n is the number of
    /// transactions. Each end offset counts from the start of `bytes`; receipts follow each other without gaps.
    pub receipts: ByteBuf,
    /// The index segment: empty, or u32 n ‖ n × 32-byte transaction id ‖ u32 m ‖ m × (u32 transaction ‖ u16 length ‖
    /// key), all little-endian. `transaction` is a position among the n ids, from 0; a key has at most 64 bytes.
    pub index: ByteBuf,
    /// The SHA-256 of each segment: checked if the setting `verify_segments` is on, and always stored and exported.
    pub sha256: BySegment<ByteBuf>,
}

impl AppendBlock {
    /// Returns the block with the SHA-256 of its segments.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.sha256 = digests([&self.body, &self.receipts, &self.index]);
        self
    }
}

/// A block that is uploaded in chunks, because it is longer than an ingress message.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginBlock {
    /// The block's number: the head's number plus one; any number for the first block. At most 2^63 - 1, because an
    /// index database holds no greater number.
    pub number: u64,
    /// The block's hash: opaque, 1 to 32 bytes.
    pub hash: BlockHash,
    /// The parent block's hash: the head's hash; not checked for the first block.
    pub parent_hash: BlockHash,
    /// The block's time as its producer declared it, in Unix seconds.
    pub timestamp_secs: u64,
    /// The length of each segment, in bytes.
    pub lengths: BySegment<u64>,
    /// The SHA-256 of each segment.
    pub sha256: BySegment<ByteBuf>,
    /// Bytes of each chunk except the last: from 1 to 1 MiB, and large enough for at most 16,384 chunks. Chunks cut
    /// body ‖ receipts ‖ index as one sequence of bytes.
    pub chunk_size: u32,
}

/// A chunk of the open block upload.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBlockChunk {
    /// The number of the uploaded block.
    pub number: u64,
    /// The chunk's number, from 0; chunks may arrive in any order.
    pub chunk: u32,
    /// The chunk's bytes: `chunk_size` bytes, or the rest for the last chunk.
    pub bytes: ByteBuf,
}

/// The open block upload.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// The number of the uploaded block.
    pub number: u64,
    /// The number of chunks, and of missing chunks.
    pub progress: UploadProgress,
}

/// Progress of an upload.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadProgress {
    /// The number of all chunks.
    pub chunks: u32,
    /// The number of missing chunks.
    pub missing: u32,
}

/// A block, by its number and hash: the argument of `commit_block`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockId {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
}

/// A field in which a block differs from the kept block with its number.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockField {
    /// The hash: another block has the number.
    Hash,
    /// The parent's hash.
    ParentHash,
    /// The time.
    Timestamp,
    /// The length or the SHA-256 of the body.
    Body,
    /// The length or the SHA-256 of the receipts.
    Receipts,
    /// The length or the SHA-256 of the index.
    Index,
    /// The header of the kept block with this number, or of the head before it, is damaged, so nothing can be compared.
    Unreadable,
}

impl BlockField {
    /// Returns whether a block with this difference is another one than the kept block, as far as that is known.
    pub fn is_of_another_block(self) -> bool {
        matches!(self, Self::Hash | Self::Unreadable)
    }
}

fn conflict(differs: &[BlockField]) -> String {
    if differs.contains(&BlockField::Hash) {
        return "a block with another hash has this number: roll back before appending it".into();
    }
    if differs.contains(&BlockField::Unreadable) {
        return "the kept block with this number, or the head before it, is damaged: roll back to the block before the damaged one, or reset \
                the chain if none is left".into();
    }
    let named = differs.iter().map(|field| match field {
        BlockField::Hash => "hash",
        BlockField::ParentHash => "parent",
        BlockField::Timestamp => "time",
        BlockField::Body => "body",
        BlockField::Receipts => "receipts",
        BlockField::Index => "index",
        BlockField::Unreadable => "header",
    });
    format!(
        "the block is kept with another {}: to replace it, roll back to its parent and append it again",
        named.collect::<Vec<_>>().join(", ")
    )
}

/// The reason why a block was not appended. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The block that is kept under this number differs. After a reorg, roll back first and then append; the same holds
    /// to replace a block by one with the same hash.
    #[error("{}", conflict(differs))]
    Conflict {
        /// The fields in which the block differs from the kept one.
        differs: Vec<BlockField>,
    },
    /// The number is too high.
    #[error("the number is too high: the next block is {expected}")]
    Gap {
        /// The number of the next block.
        expected: u64,
    },
    /// The parent is not the head.
    #[error("the parent is not the head: roll back to the common ancestor first")]
    WrongParent {
        /// The head's hash.
        expected: BlockHash,
    },
    /// The block with this number was pruned.
    #[error("the number was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The number of the oldest kept block.
        first_available: u64,
    },
    /// A part of the block is too long, or has too many items.
    #[error("too large: {what}; at most {limit}")]
    TooLarge {
        /// The name of the part that is too large.
        what: String,
        /// The bound that was exceeded, in the unit of `what`: bytes of a block, segment, hash or chunk; the number of
        /// chunks, or of transactions and keys; the block's number itself.
        limit: u64,
    },
    /// The encoding of a segment is invalid, or its SHA-256 does not match. Also: a SHA-256 does not have 32 bytes, the
    /// block's hash is empty, the `chunk_size` of an upload is 0, or the numbers of a list of blocks do not rise by
    /// one.
    #[error("segment {segment} is invalid at byte {offset}: {why}")]
    BadEncoding {
        /// The segment: 0 body, 1 receipts, 2 index; 0 if the error is in none of them.
        segment: u8,
        /// The first invalid byte, counted from the segment's start.
        offset: u64,
        /// The reason as a sentence.
        why: String,
    },
    /// Kept bytes have reached emergency water.
    #[error("the chain has reached the emergency mark: {held_by}")]
    CapacityExhausted {
        /// The reason why pruning does not free space.
        held_by: HeldBy,
    },
    /// The canister enters nothing yet: send the call again.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Memory was refused.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// A block upload is open; after an abort it stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback is in progress, and ticks will finish it: try again later, or continue it with `rollback_to`.
    #[error("a rollback to block {to} is under way: try again")]
    RollbackUnderway {
        /// The number of the block that will be the head.
        to: u64,
    },
    /// The chain was reset, and ticks are still clearing the old blocks: try again later.
    #[error("a reset is under way ({left} blocks and blobs are left): try again")]
    ResetUnderway {
        /// The number of blocks and blobs that are left to clear.
        left: u64,
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

impl From<BadSegment> for AppendError {
    fn from(bad: BadSegment) -> Self {
        Self::BadEncoding { segment: bad.segment as u8, offset: bad.at, why: bad.why }
    }
}

/// The blocks of a list that are kept after a message.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedBlocks {
    /// The number of the first block of the list that is not kept; the number after the last one if all are kept. If the
    /// whole list is refused, the number of its first block; 0 if it has none, or cannot be read.
    pub next: u64,
    /// The reason why the block `next`, or the whole list, was not appended; `null` if all blocks are kept.
    pub stopped: Option<AppendStop>,
}

/// The reason why a message appended no further block of its list.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendStop {
    /// The message has no room for the block: send the list from this block on.
    HasMore,
    /// The block was refused, or the whole list.
    Refused(AppendError),
}

/// Progress of a commit.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The block is the head, or was kept already.
    Done,
    /// The block is too large for one message: repeat the call with the same argument. Until `Done`, reads do not find
    /// the block.
    HasMore {
        /// The number of the block's transactions and keys that are entered; 0 while segments are compared with their
        /// SHA-256.
        entered: u64,
        /// The number of the block's transactions and keys.
        of: u64,
    },
}

/// The reason why a step of an upload was refused. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UploadError {
    /// No upload is open. The upload may have expired.
    #[error("no upload is open; it may have expired: begin again")]
    NoUpload,
    /// A block upload is open; after an abort it stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// The open upload belongs to another block.
    #[error("another block is being uploaded: {number}")]
    OtherUpload {
        /// The number of the uploaded block.
        number: u64,
        /// The hash of the uploaded block.
        hash: BlockHash,
    },
    /// The upload has no chunk with this number.
    #[error("the upload has only {chunks} chunks")]
    ChunkOutOfRange {
        /// The number of the upload's chunks.
        chunks: u32,
    },
    /// The chunk has the wrong length.
    #[error("the chunk must have {expected} bytes")]
    WrongLength {
        /// The required length of the chunk, in bytes.
        expected: u32,
    },
    /// The chunk was stored already, with other bytes.
    #[error("the chunk was received before, with other bytes")]
    ChunkMismatch,
    /// Chunks are missing.
    #[error("{missing} chunks are missing, the first is {first}")]
    Incomplete {
        /// The number of missing chunks.
        missing: u32,
        /// The first missing chunk.
        first: u32,
    },
    /// The block itself was refused.
    #[error(transparent)]
    Append(AppendError),
    /// The memory reserved for the upload cannot be read or written; abort the upload.
    #[error("the upload cannot be read: abort it ({why})")]
    Corrupt {
        /// The reason as a sentence.
        why: String,
    },
    /// The upload was aborted, or expired during its commit, and is being undone; afterwards no upload is open.
    #[error("the upload is being undone: try again")]
    Aborting,
    /// A reason that this version does not know.
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

/// Data of a block besides its payload.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: BlockHash,
    /// The parent block's hash; null if the parent's header is damaged.
    pub parent_hash: Option<BlockHash>,
    /// The block's time as its producer declared it, in Unix seconds.
    pub timestamp_secs: u64,
    /// `min(now, max(previous, timestamp_secs))` at append, in Unix seconds: the time by which age retention is computed.
    pub monotonic_timestamp_secs: u64,
    /// The number of transactions in the block.
    pub transactions: u32,
    /// The number of secondary keys in the block.
    pub keys: u32,
    /// The length of each segment, in bytes.
    pub lengths: BySegment<u64>,
    /// The SHA-256 of each segment, as the producer declared it.
    pub sha256: BySegment<ByteBuf>,
    /// The block's seal: a SHA-256 over this block's header and the seal before it. See `get_tip_certificate`.
    pub seal: ByteBuf,
}

/// The subnet's certificate of the newest block.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TipCertificate {
    /// The certificate, as CBOR. It proves the root of `hash_tree`.
    pub certificate: ByteBuf,
    /// The hash tree of the certified data, as CBOR.
    pub hash_tree: ByteBuf,
}

/// A page of `get_block_headers`.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPage {
    /// The headers of consecutive blocks, oldest first: at most 1,000, with less than 1 MiB in all.
    pub headers: Vec<BlockHeader>,
    /// The first block of the next page; `null` if this page reaches `to` or the head.
    pub next: Option<u64>,
}

/// A whole block.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's data besides its payload.
    pub header: BlockHeader,
    /// The body segment.
    pub body: ByteBuf,
    /// The receipts segment.
    pub receipts: ByteBuf,
    /// The index segment.
    pub index: ByteBuf,
}

/// The reason why something cannot be read.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// There is no such block, transaction or receipt. A transaction of a pruned block is not found, either.
    #[error("there is no such block, transaction or receipt; transactions of pruned blocks are not found, either")]
    NotFound,
    /// The block was pruned.
    #[error("the block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The number of the oldest kept block.
        first_available: u64,
    },
    /// The answer would be longer than a reply; `read_segment` returns it in parts.
    #[error("the answer would have {size} bytes, and a reply has at most {limit}: read it in parts with read_segment")]
    TooLarge {
        /// The length of the answer, in bytes.
        size: u64,
        /// The length of the longest reply, in bytes.
        limit: u64,
    },
    /// A block has no segment with this number: the segments are 0 body, 1 receipts, 2 index.
    #[error("there is no such segment: 0 is the body, 1 the receipts, 2 the index")]
    NoSuchSegment,
    /// The offset is after the segment's end.
    #[error("the offset is after the end: the segment has {length} bytes")]
    OutOfRange {
        /// The length of the segment, in bytes.
        length: u64,
    },
    /// The block's header, or a blob of its payload, cannot be read.
    #[error("kept data cannot be read: {why}")]
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

/// A part of a segment.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPart {
    /// The bytes from the requested offset on; at most as many as a reply holds.
    pub bytes: ByteBuf,
    /// The length of the whole segment, in bytes.
    pub total: u64,
}

/// Block and position of a transaction.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLocation {
    /// The number of the transaction's block.
    pub block_number: u64,
    /// The hash of the transaction's block.
    pub block_hash: BlockHash,
    /// The transaction's position in the block, from 0.
    pub position: u32,
}

/// A transaction's receipt.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Block and position of the receipt's transaction.
    pub location: TransactionLocation,
    /// The receipt's bytes.
    pub bytes: ByteBuf,
}

/// The place of a block's payload in stable memory.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockStorage {
    /// Bytes from the log's start to the block's first byte.
    pub log_offset: u64,
    /// The length of each segment, in bytes; the segments follow each other.
    pub lengths: BySegment<u64>,
    /// The blobs of the log that contain the block, in order. The first and the last blob may also contain neighbouring
    /// blocks.
    pub blobs: Vec<BlobPtr>,
}

/// The reason why nothing was rolled back.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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
    /// The block was pruned, so it cannot become the head.
    #[error("the block was pruned; the oldest kept block is {first_available}")]
    Pruned {
        /// The number of the oldest kept block.
        first_available: u64,
    },
    /// The block's header is damaged, so no block can follow it: roll back to the block before it.
    #[error("the block's header is damaged, so no block can follow it: roll back to the block before it")]
    Damaged,
    /// Only an admin may roll back this far (`max_rollback_blocks`).
    #[error("only an admin may roll back below block {lowest} (max_rollback_blocks)")]
    TooDeep {
        /// The lowest block that a producer may make the head.
        lowest: u64,
    },
    /// A block upload is open; after an abort it stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback to a lower block is in progress.
    #[error("a deeper rollback, to block {to}, is under way: try again")]
    RollbackUnderway {
        /// The number of the block that will be the head.
        to: u64,
    },
    /// A block that would be removed is applied to the UTXO records, and some of its records may be pruned, so that it cannot be taken back
    /// without loss: only an admin who sets `incomplete` may roll back this far.
    #[error(
        "records of the applied blocks up to {lowest} may be pruned (pruned height {pruned_height}): roll back to block {lowest} or above, \
         or let an admin set incomplete"
    )]
    Incomplete {
        /// The lowest block to which a rollback restores all records, but at most 200,000 blocks below the head, which are
        /// what one call checks.
        lowest: u64,
        /// Records of blocks at or below this height may be pruned.
        pruned_height: u32,
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

/// Progress of a rollback.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// The number of the head after this call.
    pub head: u64,
    /// The number of blocks that this call removed.
    pub removed: u64,
    /// The number of transactions of applied blocks that this call took back although their records had been pruned: nothing of them
    /// is left to restore. The outputs that they had spent count as unspent. `null` in a build without UTXO records.
    pub not_restored: Option<u64>,
    /// Work is left: repeat the call, or wait for ticks to finish.
    pub has_more: bool,
    /// The reason why the rollback waits for memory, which taking an applied block back needs; ticks try again, and
    /// `reset_chain` ends it.
    pub waits: Option<UtxoError>,
}

/// Argument of `reset_chain`, which empties the chain. Afterwards the chain may start at any number.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetChain {
    /// The head's hash, which protects against resetting the wrong chain. If it is unknown, because a rollback has reached
    /// a block whose header is damaged, it is empty here and in `WrongHash`.
    pub head_hash: BlockHash,
    /// Resets the chain even if an exporter has not acknowledged all blocks. The exporter then loses these blocks.
    pub drop_unexported: bool,
}

/// Outcome of a reset.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainReset {
    /// The number of blocks that were kept.
    pub blocks: u64,
    /// The number of blocks and blobs that ticks must clear before a block can be appended.
    pub left: u64,
    /// The number of UTXO records that stay; `null` in a build without UTXO records.
    pub utxo_records: Option<u64>,
}

/// The reason why the chain was not reset. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResetError {
    /// There are no blocks.
    #[error("there are no blocks")]
    Empty,
    /// The head has another hash.
    #[error("the head has another hash")]
    WrongHash {
        /// The hash of the head.
        expected: BlockHash,
    },
    /// A block upload is open; after an abort it stays open until ticks have undone it.
    #[error(transparent)]
    UploadOpen(#[from] UploadOpen),
    /// A rollback is in progress.
    #[error("a rollback to block {to} is under way: try again")]
    RollbackUnderway {
        /// The number of the block that will be the head.
        to: u64,
    },
    /// An exporter has not acknowledged all blocks: set `drop_unexported = true` to reset anyway.
    #[error(
        "the exporter {exporter} has acknowledged only blocks before {exported_before_block}: wait, or set drop_unexported"
    )]
    NotExported {
        /// The exporter's name.
        exporter: String,
        /// The number below which the exporter has acknowledged all blocks.
        exported_before_block: u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_sealed_with_what_its_segments_are() {
        let block = AppendBlock { body: ByteBuf::from(b"abc"), ..AppendBlock::default() }.sealed();
        let of_abc = [0xBA, 0x78, 0x16, 0xBF, 0x8F, 0x01, 0xCF, 0xEA];
        assert_eq!(block.sha256.body[..8], of_abc);
        assert_eq!(block.sha256.receipts, block.sha256.index);
        assert_eq!(block.sha256[1].len(), 32);
    }
}
