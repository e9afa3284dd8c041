//! Endpoints for blocks: append, upload, roll back, reset, read.

use super::arming;
use crate::api::certified;
use crate::api::wire::compressed;
use crate::operation::daemon;
use crate::platform::cycles;
use crate::platform::meter::{Hot, counted};
use crate::platform::{caller, time_secs};
use crate::state::{State, mutate, read, tally};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Runs a producer's message, and arms the daemon.
fn message<T>(run: impl FnOnce(&mut State) -> T) -> T {
    mutate(|state| {
        daemon::on_call(state);
        let done = run(state);
        daemon::on_called(state);
        done
    })
}

/// Runs a message as [`message`] does, then arms the daemon for what the message leaves, such as the rest of a rollback.
pub fn message_with_work<T>(run: impl FnOnce(&mut State) -> T) -> T {
    message(|state| {
        let done = run(state);
        daemon::arm(state);
        done
    })
}

pub fn append_block(block: AppendBlock) -> Result<(), AppendError> {
    counted(Hot::AppendBlock, || append(&block))
}

/// Appends a block that another canister or this one has made.
pub fn append(block: &AppendBlock) -> Result<(), AppendError> {
    message(|state| {
        let admission = state.admission();
        state.chain.append(&mut state.blobs, block, &admission, time_secs())
    })
    .inspect_err(tally::refused)
}

pub fn append_blocks(blocks: Vec<AppendBlock>) -> AppendedBlocks {
    counted(Hot::AppendBlocks, || append_all(Ok(blocks)))
}

pub fn append_compressed(blocks: ByteBuf) -> AppendedBlocks {
    counted(Hot::AppendBlocks, || append_all(compressed::read(&blocks)))
}

/// Appends the blocks of a list in order, as far as the message goes.
fn append_all(list: Result<Vec<AppendBlock>, AppendError>) -> AppendedBlocks {
    let appended = message(|state| match list {
        Ok(blocks) => append_in_order(state, &blocks),
        Err(error) => AppendedBlocks { next: 0, stopped: Some(AppendStop::Refused(error)) },
    });
    if let Some(AppendStop::Refused(error)) = &appended.stopped {
        tally::refused(error);
    }
    appended
}

fn append_in_order(state: &mut State, blocks: &[AppendBlock]) -> AppendedBlocks {
    let (mut next, now) = (blocks.first().map_or(0, |block| block.number), time_secs());
    let mut batch = match state.chain.begin_batch(blocks) {
        Ok(batch) => batch,
        Err(error) => return AppendedBlocks { next, stopped: Some(AppendStop::Refused(error)) },
    };
    for block in blocks {
        // The block before has used its reservations.
        state.blobs.arena().end_reservations();
        // The blocks before may have reached the emergency mark, or reserved cycles for memory.
        cycles::note_liquid(cycles::between_updates());
        let admission = state.admission();
        if let Err(stop) = state.chain.append_next(&mut batch, &mut state.blobs, block, &admission, now) {
            return AppendedBlocks { next: block.number, stopped: Some(stop) };
        }
        next = block.number.saturating_add(1);
    }
    AppendedBlocks { next, stopped: None }
}

pub fn begin_block(block: BeginBlock) -> Result<UploadProgress, AppendError> {
    message_with_work(|state| {
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &block, caller(), &admission, time_secs())
    })
    .inspect_err(tally::refused)
}

pub fn put_block_chunk(chunk: PutBlockChunk) -> Result<UploadProgress, UploadError> {
    counted(Hot::PutBlockChunk, || message(|state| state.put_chunk(&chunk)))
}

pub fn commit_block(block: BlockId) -> Result<Commit, UploadError> {
    counted(Hot::CommitBlock, || message(|state| state.commit_upload(&block)).inspect_err(tally::refused_upload))
}

pub fn abort_block(number: u64) -> Result<bool, UploadError> {
    message_with_work(|state| state.abort_upload(number))
}

pub fn rollback_to(number: u64, incomplete: Option<bool>) -> Result<Rollback, RollbackError> {
    message_with_work(|state| state.rollback_to(number, incomplete == Some(true)))
}

pub fn reset_chain(reset: ResetChain) -> Result<ChainReset, ResetError> {
    arming(|state| state.reset_chain(&reset))
}

pub fn get_head() -> Result<BlockHeader, ReadError> {
    read(|state| state.chain.header(state.chain.state().head().ok_or(ReadError::NotFound)?))
}

pub fn get_tip_certificate() -> Option<TipCertificate> {
    read(|state| certified::head(&state.chain))
}

pub fn get_block(number: u64) -> Result<Block, ReadError> {
    read(|state| state.chain.block(&state.blobs, number))
}

pub fn get_block_headers(from: u64, to: u64) -> Result<HeaderPage, ReadError> {
    read(|state| state.chain.headers(from, to))
}

pub fn read_segment(number: u64, segment: u8, offset: u64, length: u64) -> Result<SegmentPart, ReadError> {
    read(|state| state.chain.segment(&state.blobs, number, segment, offset, length))
}

pub fn get_receipt(id: ByteBuf) -> Result<Receipt, ReadError> {
    read(|state| state.chain.receipt(&state.blobs, &id))
}

pub fn get_transaction_location(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    read(|state| state.chain.location(&state.blobs, &id))
}

pub fn find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32) -> Result<KeyPage, KeyError> {
    read(|state| state.chain.find_by_key(&state.blobs, &key, cursor.as_ref(), limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::access;
    use crate::platform::{cycles, native};
    use crate::{memory, state};
    use candid::Principal;
    use coppice_model::blocks::{block_id, upload};
    use ic_coppice_chain::testing;
    use ic_coppice_interface::access::{ADMINS, BLOCK_PRODUCERS, REVERTERS, UPLOADERS};
    use ic_coppice_storage::NS;

    /// Runs a message. Returns how often the message borrows the state, and the method's reply.
    fn visits<T>(roles: &[Role], method: impl FnOnce() -> T) -> (u64, T) {
        let before = state::visits();
        access::admit(roles).unwrap();
        let answer = method();
        (state::visits() - before, answer)
    }

    fn append(number: u64) -> (u64, Result<(), AppendError>) {
        let block = testing::block(number, &[testing::id(number)], 10);
        visits(BLOCK_PRODUCERS, || append_block(block))
    }

    fn fresh() {
        native::reset();
        memory::forget();
        crate::logs::forget();
        cycles::forget();
        let producer = Principal::from_slice(&[1]);
        native::with(|world| (world.caller, world.controllers) = (producer, vec![producer]));
        let init = InitArg { producers: vec![producer], ..InitArg::default() };
        state::init(&init).unwrap();
        mutate(daemon::start);
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
        assert!(matches!(append(3), (2, Err(AppendError::NoMemory(NoMemory::LowCycles { .. })))));
        native::with(|world| world.liquid_cycles = liquid);
        assert_eq!(append(3), (2, Ok(())));
    }

    #[test]
    fn each_method_of_blocks_borrows_the_state_once_after_its_guard() {
        fresh();
        append(0).1.unwrap();
        let block = testing::block(1, &[testing::id(1)], 10);
        let (begin, mut chunks) = upload(&block, 1 << 20);
        let chunk = PutBlockChunk { number: 1, chunk: 0, bytes: chunks.remove(0).into() };
        let id = block_id(&block);
        let reset = ResetChain { head_hash: testing::block(0, &[], 10).hash, drop_unexported: true };
        let all = [
            visits(BLOCK_PRODUCERS, || begin_block(begin.clone()).unwrap()).0,
            visits(UPLOADERS, || assert!(abort_block(1).unwrap())).0,
            visits(BLOCK_PRODUCERS, || begin_block(begin.clone()).unwrap()).0,
            visits(UPLOADERS, || put_block_chunk(chunk.clone()).unwrap()).0,
            visits(UPLOADERS, || assert_eq!(commit_block(id.clone()), Ok(Commit::Done))).0,
            visits(REVERTERS, || rollback_to(0, None).unwrap()).0,
            visits(ADMINS, || reset_chain(reset.clone()).unwrap()).0,
        ];
        assert_eq!(all, [2; 7]);
    }
}
