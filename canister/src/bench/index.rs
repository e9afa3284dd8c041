//! Peers of the index: a `StableBTreeMap` from id to block and position, and [`HeapIndex`]. Both are made of the blocks that the chain has.

use super::heap::HeapIndex;
use super::{IDS, PREPARED, Prepared, key, said};
use crate::api::{access, wire};
use crate::memory;
use crate::platform::{self, instructions};
use crate::state::{State, read};
use ic_cdk::{query, update};
use ic_coppice_interface::segments::{ID, Index, Segment};
use ic_coppice_interface::{ReadError, TransactionLocation};
use ic_coppice_storage::Space;
use ic_stable_structures::StableBTreeMap;
use serde_bytes::ByteBuf;

/// Entries inserted into the B-tree in one message.
const BTREE_STEP: u64 = 20_000;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

pub type BTree = StableBTreeMap<[u8; ID], [u8; 12], Space>;

/// Block and position as the B-tree has them.
fn place(number: u64, position: u32) -> [u8; 12] {
    let mut place = [0; 12];
    place[..8].copy_from_slice(&number.to_be_bytes());
    place[8..].copy_from_slice(&position.to_be_bytes());
    place
}

/// Enters ids of the chain's blocks into the B-tree until it has `n`. Returns whether it has them; call it until then.
#[update(guard = "access::bench")]
fn bench_fill_btree(n: u64) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        let btree = prepared.btree.get_or_insert_with(|| StableBTreeMap::init(memory::bench(0)));
        let first = btree.len();
        for i in first..n.min(first + BTREE_STEP) {
            btree.insert(key(i), place(i / IDS, (i % IDS) as u32));
        }
        Ok(btree.len() == n)
    })
}

/// Makes the index on the heap from the index segments of all blocks, as an upgrade would. Returns the average instructions of an id.
#[update(guard = "access::bench")]
fn bench_rebuild_heap(n: u64) -> Result<u64, String> {
    PREPARED.with_borrow_mut(|prepared| {
        read(|state| {
            let start = instructions();
            let (first, next) = (state.chain.state().oldest, state.chain.state().next);
            let mut heap = HeapIndex::new(next - first, SEED);
            for number in first..next {
                let meta = said(state.chain.find(number))?;
                let part = (Segment::Index, 0, u64::from(meta.lengths[Segment::Index.index()]));
                let bytes = said(state.chain.read_part(&state.blobs, &meta, part))?;
                heap.insert(number, Index::parse(&bytes).map_err(|error| error.why)?.ids());
            }
            prepared.heap = Some(heap);
            Ok((instructions() - start) / n)
        })
    })
}

/// Bytes of memory that an index takes.
#[update(guard = "access::bench")]
fn bench_index_bytes(of: String) -> Result<u64, String> {
    PREPARED.with_borrow(|prepared| match of.as_str() {
        "btree" => Ok(memory::bench(0).size()),
        "heap" => Ok(prepared.heap.as_ref().ok_or("not prepared")?.bytes()),
        _ => Ok(read(|state| state.chain.index_bytes())),
    })
}

/// Returns the answer of a whole look-up as `get_transaction_location` does.
fn located(find: impl FnOnce(&Prepared, &State) -> Option<(u64, u32)>) -> Result<TransactionLocation, ReadError> {
    PREPARED.with_borrow(|prepared| {
        read(|state| {
            let (block_number, position) = find(prepared, state).ok_or(ReadError::NotFound)?;
            let block_hash = state.chain.hash(block_number).ok_or(ReadError::NotFound)?.to_bytes();
            Ok(TransactionLocation { block_number, block_hash, position })
        })
    })
}

/// Decodes the id of a look-up as the canister's own queries do.
fn id(argument: Vec<u8>) -> ByteBuf {
    let (id,) = wire::read(&argument).unwrap_or_else(|why| platform::trap(&why));
    id
}

/// Encodes the answer of a look-up as the canister's own queries do.
fn answer(location: Result<TransactionLocation, ReadError>) -> Vec<u8> {
    wire::answer(wire::tables::replies::get_transaction_location, location)
}

/// `get_transaction_location` over the B-tree.
#[query(decode_with = "id", encode_with = "answer")]
fn bench_locate_btree(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    located(|prepared, state| {
        let place = prepared.btree.as_ref()?.get(id.as_slice().first_chunk()?)?;
        let number = u64::from_be_bytes(*place.first_chunk()?);
        Some((number, u32::from_be_bytes(*place.last_chunk()?))).filter(|_| number >= state.chain.state().oldest)
    })
}

/// `get_transaction_location` over the index on the heap.
#[query(decode_with = "id", encode_with = "answer")]
fn bench_locate_heap(id: ByteBuf) -> Result<TransactionLocation, ReadError> {
    located(|prepared, state| prepared.heap.as_ref()?.get(id.as_slice().first_chunk()?, state.chain.state().oldest))
}

/// Makes what [`run`] with the same operation needs.
pub(super) fn prepare(prepared: &mut Prepared, op: &str, rounds: u64) -> Result<(), String> {
    prepared.ids = match op {
        "btree.insert" | "heap.insert" => (0..rounds).map(|i| key(prepared.entries + i)).collect(),
        // Spread over all that is there.
        "btree.get" | "btree.remove" | "heap.get" => {
            let step = (prepared.entries / rounds).max(1);
            (0..rounds).map(|i| key(i * step)).collect()
        }
        "heap.remove" => Vec::new(),
        other => return Err(format!("no such operation: {other}")),
    };
    Ok(())
}

/// Runs an operation `rounds` times.
pub(super) fn run(state: &State, prepared: &mut Prepared, op: &str, rounds: u64) -> Result<(), String> {
    let number = prepared.entries / IDS;
    if let Some(op) = op.strip_prefix("heap.") {
        let heap = prepared.heap.as_mut().ok_or("not prepared")?;
        return match op {
            "insert" => {
                heap.insert(number, prepared.ids.iter());
                Ok(())
            }
            "get" => {
                let oldest = state.chain.state().oldest;
                let missing = prepared.ids.iter().filter(|id| heap.get(id, oldest).is_none()).count();
                if missing == 0 { Ok(()) } else { Err(format!("{missing} ids are not found")) }
            }
            _ => {
                // The oldest generation goes, once the blocks that it began with are pruned.
                let dropped = heap.prune(rounds / IDS);
                if dropped == rounds { Ok(()) } else { Err(format!("{dropped} of {rounds} ids were dropped")) }
            }
        };
    }
    let btree = prepared.btree.as_mut().ok_or("not prepared")?;
    for (position, id) in (0..).zip(&prepared.ids) {
        let done = match op {
            "btree.insert" => btree.insert(*id, place(number, position)).is_none(),
            "btree.get" => btree.get(id).is_some(),
            _ => btree.remove(id).is_some(),
        };
        if !done {
            return Err("the B-tree disagrees".into());
        }
    }
    Ok(())
}
