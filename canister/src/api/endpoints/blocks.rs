//! Blocks: append, upload, roll back, reset, read.

use crate::api::access::{admin, block_producer, reverter, uploader};
use crate::api::wire;
use crate::operation::daemon;
use crate::platform::meter::{Hot, counted};
use crate::platform::time_secs;
use crate::state::{State, mutate, read, tally};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};
use serde_bytes::ByteBuf;

/// Runs a producer's message after arming the timer for blocks.
fn message<T>(run: impl FnOnce(&mut State) -> T) -> T {
    mutate(|state| {
        daemon::on_call(state);
        run(state)
    })
}

/// Appends a block in one message; a producer's. The argument has two megabytes at most. A block of more than 12,500
/// transactions and keys, or 100,000 while the index is small, answers `TooLarge`: larger blocks go through
/// `begin_block`. An empty hash answers `BadEncoding`. Appending the same block again answers `Ok` and changes nothing,
/// so a caller may repeat it when an answer was lost.
#[candid_method(update)]
#[update(guard = "block_producer", hidden = true, decode_with = "wire::known_arg", encode_with = "wire::answer")]
pub fn append_block(block: AppendBlock) -> Result<(), AppendError> {
    counted(Hot::AppendBlock, || {
        message(|state| {
            let admission = state.admission();
            state.chain.append(&mut state.blobs, &block, &admission, time_secs())
        })
        .inspect_err(tally::refused)
    })
}

/// Begins the upload of a block that is larger than a message; a producer's. One upload is open at a time; the block
/// has 256 MiB at most, 16,384 chunks, and 100,000 transactions and keys. Beginning the same upload again answers its
/// progress; of a block that is kept already, that nothing is missing. A `chunk_size` of 0 and an empty hash answer
/// `BadEncoding`.
#[candid_method(update)]
#[update(
    guard = "block_producer",
    guard = "wire::readable::<(BeginBlock,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn begin_block(block: BeginBlock) -> Result<UploadProgress, AppendError> {
    message(|state| {
        let admission = state.admission();
        let begun = state.chain.begin(&mut state.blobs, &block, &admission, time_secs());
        daemon::arm_uploads(state);
        begun
    })
    .inspect_err(tally::refused)
}

/// Stores a chunk of the open upload; for the producer that began it, or an operator. Chunks come in any order. The
/// same chunk again answers `Ok`; other bytes under the same number are refused.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(PutBlockChunk,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn put_block_chunk(chunk: PutBlockChunk) -> Result<UploadProgress, UploadError> {
    counted(Hot::PutBlockChunk, || message(|state| state.put_chunk(&chunk)))
}

/// Makes the uploaded block the head, over as many calls as that takes; for the producer that began the upload, or an
/// operator. `HasMore` asks for the same call again. Of a block that is kept already the answer is `Done`.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(BlockId,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn commit_block(block: BlockId) -> Result<Commit, UploadError> {
    counted(Hot::CommitBlock, || message(|state| state.commit_upload(&block)).inspect_err(tally::refused_upload))
}

/// Gives up the open upload of the block with this number, and says whether there was one; for the producer that began
/// it, or an operator. What was entered of the block is taken out a slice a call, or by ticks: until then a repeated
/// call answers `true`, and after that `false`.
#[candid_method(update)]
#[update(
    guard = "uploader",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn abort_block(number: u64) -> Result<bool, UploadError> {
    message(|state| {
        let aborted = state.abort_upload(number);
        daemon::arm_undo(state);
        aborted
    })
}

/// Makes the block with this number the head, for a reorg. A producer may go as deep as `max_rollback_blocks`, an admin
/// to the oldest kept block. One call does a bounded part: while `has_more`, the caller repeats it or lets ticks go on.
/// Nobody may append meanwhile: ticks may bring the rollback to its end between two calls, and a repeated call takes
/// out what was appended since. Rolling back to the head changes nothing.
#[candid_method(update)]
#[update(
    guard = "reverter",
    guard = "wire::readable::<(u64,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn rollback_to(number: u64) -> Result<Rollback, RollbackError> {
    message(|state| {
        let rolled_back = state.rollback_to(number);
        daemon::arm_undo(state);
        rolled_back
    })
}

/// Empties the chain, which may then begin again with any number; an admin's. It asks for the hash of the head, and for
/// `drop_unexported` where an exporter has not acknowledged all blocks. Ticks clear what was kept; until then appends
/// answer `ResetUnderway`. A second call finds the chain empty and answers `Empty`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(ResetChain,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn reset_chain(reset: ResetChain) -> Result<ChainReset, ResetError> {
    mutate(|state| {
        let done = state.reset_chain(&reset);
        daemon::arm_undo(state);
        done
    })
}

/// The block upload that is open, if one is; for anyone.
#[query]
pub fn get_upload() -> Option<OpenBlock> {
    read(|state| state.chain.upload_progress())
}

/// The header of the newest block; for anyone. `NotFound` where there is no block yet.
#[query]
pub fn get_head() -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(state.chain.state().head().ok_or(ReadError::NotFound)?))
}

/// A whole kept block; for anyone. One that is longer than a reply answers `TooLarge`: `read_segment` gives it in parts.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
pub fn get_block(number: u64) -> Result<Block, ReadError> {
    read(|state| state.chain.block(&state.blobs, number))
}

/// The header of a kept block; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
pub fn get_block_header(number: u64) -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(number))
}

/// The headers of kept blocks, the oldest first, from block `from` to block `to`, both included; for anyone. A page has
/// at most 1,000 headers and less than 1 MiB; `next` continues it. The page ends at the head if `to` is above the head,
/// and is empty if `from` is above `to`. Otherwise the block `from` answers as in `get_block_header`: `NotFound` above
/// the head and on an empty chain, `Pruned`, or `Corrupt`. A later block that is damaged ends the page before it, and
/// is its `next`.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64, u64,)>", hidden = true, decode_with = "wire::args")]
pub fn get_block_headers(from: u64, to: u64) -> Result<HeaderPage, ReadError> {
    read(|state| state.chain.headers(from, to))
}

/// Bytes of a segment of a kept block: 0 body, 1 receipts, 2 index; for anyone. The answer has as many of the `length`
/// bytes from `offset` on as there are and as a reply holds, some 2,000,000; a length of 0 asks for none, and learns how
/// long the segment is.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64, u8, u64, u64,)>", hidden = true, decode_with = "wire::args")]
pub fn read_segment(number: u64, segment: u8, offset: u64, length: u64) -> Result<SegmentPart, ReadError> {
    read(|state| state.chain.segment(&state.blobs, number, segment, offset, length))
}

/// The receipt of the newest kept transaction with this id; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf,)>", hidden = true, decode_with = "wire::arg")]
pub fn get_receipt(id: ByteBuf) -> Result<Receipt, ReadError> {
    read(|state| state.chain.receipt(&state.blobs, &id))
}

/// Where the newest kept transaction with this id is; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf,)>", hidden = true, decode_with = "wire::arg")]
pub fn get_transaction_location(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    read(|state| state.chain.location(&state.blobs, &id))
}

/// Transactions that have a secondary key, the newest first; for anyone. A page has `limit` transactions at most; 0 and
/// more than 1,000: 1,000. A page may have fewer, even none, and a cursor: there is more while there is a cursor.
#[candid_method(query)]
#[query(guard = "wire::readable::<(ByteBuf, Option<KeyCursor>, u32,)>", hidden = true, decode_with = "wire::args")]
pub fn find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32) -> Result<KeyPage, KeyError> {
    read(|state| state.chain.find_by_key(&state.blobs, &key, cursor.as_ref(), limit))
}

/// Where the payload of a kept block lies in stable memory; for anyone.
#[candid_method(query)]
#[query(guard = "wire::readable::<(u64,)>", hidden = true, decode_with = "wire::arg")]
pub fn get_block_storage(number: u64) -> Result<BlockStorage, ReadError> {
    read(|state| state.chain.storage(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::limits::NS;
    use crate::platform::{cycles, native};
    use crate::storage::memory;
    use crate::{state, testing};
    use candid::Principal;

    /// Runs a message. Returns how often the message enters the state, and the method's answer.
    fn visits<T>(guard: fn() -> Result<(), String>, method: impl FnOnce() -> T) -> (u64, T) {
        let before = state::visits();
        guard().unwrap();
        let answer = method();
        (state::visits() - before, answer)
    }

    fn append(number: u64) -> (u64, Result<(), AppendError>) {
        let block = testing::block(number, &[testing::id(number)], 10);
        visits(block_producer, || append_block(block))
    }

    fn fresh() {
        native::reset();
        memory::forget();
        crate::logs::forget();
        cycles::forget();
        let producer = Principal::from_slice(&[1]);
        native::with(|world| (world.caller, world.controllers) = (producer, vec![producer]));
        let init = InitArg { producers: vec![producer], ..InitArg::default() };
        state::init(Some(CanisterArg::Init(init))).unwrap();
        mutate(daemon::arm);
    }

    #[test]
    fn append_enters_the_state_in_the_guard_and_in_the_method() {
        fresh();
        assert_eq!(append(0), (2, Ok(())));
        assert_eq!(append(1), (2, Ok(())));
        // A sample is due, and the timers are overdue.
        native::with(|world| world.time_ns += 86_400 * NS);
        assert_eq!(append(2), (2, Ok(())));
        assert_eq!(native::with(|world| world.log.iter().filter(|line| line.contains("overdue; woken")).count()), 1);
        assert_eq!(append(7), (2, Err(AppendError::Gap { expected: 3 })));
        // The guard stops all timers, then starts them again.
        let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
        assert!(matches!(append(3), (2, Err(AppendError::LowCycles { .. }))));
        native::with(|world| world.liquid_cycles = liquid);
        assert_eq!(append(3), (2, Ok(())));
    }

    #[test]
    fn each_method_of_blocks_enters_the_state_once_after_its_guard() {
        fresh();
        append(0).1.unwrap();
        let block = testing::block(1, &[testing::id(1)], 10);
        let payload = [&block.body[..], &block.receipts, &block.index].concat();
        let begin = BeginBlock {
            number: block.number,
            hash: block.hash.clone(),
            parent_hash: block.parent_hash.clone(),
            timestamp: block.timestamp,
            lengths: [&block.body, &block.receipts, &block.index].map(|bytes| bytes.len() as u64).into(),
            sha256: block.sha256.clone(),
            chunk_size: payload.len() as u32,
        };
        let chunk = PutBlockChunk { number: 1, chunk: 0, bytes: payload.into() };
        let id = BlockId { number: 1, hash: block.hash.clone() };
        let reset = ResetChain { head_hash: testing::block(0, &[], 10).hash, drop_unexported: true };
        let all = [
            visits(block_producer, || begin_block(begin.clone()).unwrap()).0,
            visits(uploader, || assert!(abort_block(1).unwrap())).0,
            visits(block_producer, || begin_block(begin.clone()).unwrap()).0,
            visits(uploader, || put_block_chunk(chunk.clone()).unwrap()).0,
            visits(uploader, || assert_eq!(commit_block(id.clone()), Ok(Commit::Done))).0,
            visits(reverter, || rollback_to(0).unwrap()).0,
            visits(admin, || reset_chain(reset.clone()).unwrap()).0,
        ];
        assert_eq!(all, [2; 7]);
    }
}
