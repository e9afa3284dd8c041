//! Blocks: appending, uploading, rolling back, reading.

use super::methods;
use coppice_interface::*;

methods! {
    /// Appends a block behind the head. For producers. A block that no message holds is uploaded:
    /// [`send_block`](crate::Client::send_block) does whichever is needed.
    ///
    /// Repeating it is Ok: a block that is kept already changes nothing.
    update append_block(block: &AppendBlock) -> (), or AppendError;

    /// Begins a block that comes in chunks. For producers; one upload is open at a time, and expires when nobody goes on with it.
    ///
    /// Repeating it answers how far the upload is.
    update begin_block(block: &BeginBlock) -> UploadProgress, or AppendError;

    /// Puts a chunk of the open upload, in any order. For its producer, and operators.
    ///
    /// Repeating it with the same bytes changes nothing.
    update put_block_chunk(chunk: &PutBlockChunk) -> UploadProgress, or UploadError;

    /// Appends the block that was uploaded, or as much of it as a message can: [`commit`](crate::Client::commit) goes on until it is done.
    /// For its producer, and operators.
    ///
    /// Repeating it goes on; of a block that is kept already it is `Done`.
    update commit_block(block: &BlockId) -> Commit, or UploadError;

    /// Drops the open upload of this number. For its producer, and operators. Answers whether there was one.
    ///
    /// Repeating it answers `true` while what was entered of the block is taken out, and then that there is none.
    update abort_block(number: u64) -> bool, or UploadError;

    /// Makes this block the head, or comes nearer to that: [`roll_back_to`](crate::Client::roll_back_to) goes on until it is done. For
    /// producers, as deep as `max_rollback_blocks`; deeper for admins.
    ///
    /// Repeating it goes on; where the block is the head nothing changes. Nobody may append meanwhile: a repeated call takes out what was
    /// appended since.
    update rollback_to(number: u64) -> Rollback, or RollbackError;

    /// Empties the chain, which may then begin at any number. For admins.
    ///
    /// Repeated, it is refused as there is no chain, or another head.
    update reset_chain(reset: &ResetChain) -> ChainReset, or ResetError;

    /// The block that is being uploaded, and how far that is.
    query get_upload() -> Option<OpenBlock>;

    /// The newest block.
    query get_head() -> BlockHeader, or ReadError;

    /// A block without its payload.
    query get_block_header(number: u64) -> BlockHeader, or ReadError;

    /// Blocks without their payload, from `from` to `to`, both included; at most 1,000.
    /// [`HeaderPager`](crate::HeaderPager) goes through all of them.
    query get_block_headers(from: u64, to: u64) -> HeaderPage, or ReadError;

    /// A block, where a reply holds it: [`whole_block`](crate::Client::whole_block) reads any.
    query get_block(number: u64) -> Block, or ReadError;

    /// A part of a segment: 0 body, 1 receipts, 2 index; `offset` and `length` in bytes, as many as a reply holds at most.
    query read_segment(number: u64, segment: u8, offset: u64, length: u64) -> SegmentPart, or ReadError;

    /// The receipt of the newest transaction with this id.
    query get_receipt(id: &[u8]) -> Receipt, or ReadError;

    /// Where the newest transaction with this id is.
    query get_transaction_location(id: &[u8]) -> TransactionLocation, or ReadError;

    /// The newest transactions with a secondary key, older than the cursor; `limit` of them or, for 0, as many as a page holds.
    /// [`KeyPager`](crate::KeyPager) goes through all of them.
    query find_by_index_key(key: &[u8], cursor: Option<&KeyCursor>, limit: u32) -> KeyPage, or KeyError;

    /// Where a block's payload lies.
    query get_block_storage(number: u64) -> BlockStorage, or ReadError;
}
