//! Endpoints that measure the stores from inside (feature `bench`); never part of the product's wasm.
//!
//! A measurement takes two messages: one prepares, the other runs `rounds` operations between two readings of the instruction counter and
//! returns the average. So the second message touches only the pages of the measured operations. A failed operation is an error and not a
//! figure.

mod deletion;
mod heap;
mod index;
mod inside;
mod keys;
mod utxo;

use crate::api::access;
use crate::platform::instructions;
use crate::state::{State, mutate};
use ic_coppice_chain::{Admission, owners};
use ic_coppice_storage::Meter;
use ic_coppice_storage::blob::{BlobPtr, Class};

use candid::CandidType;
use ic_cdk::update;
use ic_coppice_interface::AppendBlock;
use ic_coppice_interface::seals::{self, Leaf};
use ic_coppice_interface::segments::encode_index;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::hint::black_box;

/// A measurement.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct BenchArg {
    /// The operation, as `family.op`.
    pub op: String,
    /// Bytes of a blob.
    pub size: u32,
    /// Operations.
    pub rounds: u64,
}

/// Ids per block when an index is filled.
const IDS: u64 = 10_000;

#[derive(Default)]
struct Prepared {
    ptrs: Vec<BlobPtr>,
    data: Vec<u8>,
    ids: Vec<[u8; 32]>,
    block: Option<AppendBlock>,
    entries: u64,
    btree: Option<index::BTree>,
    heap: Option<heap::HeapIndex>,
}

thread_local! {
    static PREPARED: RefCell<Prepared> = RefCell::default();
}

/// A pseudo-random, reproducible key.
fn key(i: u64) -> [u8; 32] {
    let mut out = [0u8; 32];
    let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for chunk in out.chunks_mut(8) {
        x ^= x >> 29;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        chunk.copy_from_slice(&x.to_be_bytes());
    }
    out
}

fn said<T, E: std::fmt::Debug>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|of| format!("{of:?}"))
}

/// A block that has only ids.
fn block(number: u64, ids: impl ExactSizeIterator<Item = [u8; 32]>) -> AppendBlock {
    let index = encode_index(ids, [].into_iter()).expect("a block's ids fit");
    let digest = ByteBuf::from(vec![0; 32]);
    AppendBlock {
        number,
        hash: key(number).into(),
        parent_hash: key(number.wrapping_sub(1)).into(),
        timestamp_secs: 0,
        body: ByteBuf::new(),
        receipts: ByteBuf::new(),
        index: ByteBuf::from(index),
        sha256: [digest.clone(), digest.clone(), digest].into(),
    }
}

fn append(state: &mut State, block: &AppendBlock) -> Result<(), String> {
    said(state.chain.append(&mut state.blobs, block, &Admission::default(), 0))
}

/// Appends one block of `ids` new ids, as a producer's message does.
#[update(guard = "access::bench")]
fn bench_append(ids: u64) -> Result<(), String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            crate::operation::daemon::on_call(state);
            let first = prepared.entries;
            let number = state.chain.state().next;
            append(state, &block(number, (0..ids as usize).map(|i| key(first + i as u64))))?;
            crate::operation::daemon::on_called(state);
            prepared.entries += ids;
            Ok(())
        })
    })
}

/// Allocates `n` live blobs of 64 KiB; nothing is written to them.
#[update(guard = "access::bench")]
fn bench_fill_blobs(n: u64) -> Result<(), String> {
    mutate(|state| (0..n).try_for_each(|_| said(state.blobs.allocate(65_536, owners::CHAIN)).map(drop)))
}

/// Instructions after which a message that fills an index appends no other block: an append has room for 1 G of its message.
const FILL: u64 = 500_000_000;

/// Appends blocks until the chain's index has `n` entries. Returns whether it has; call it repeatedly until true.
#[update(guard = "access::bench")]
fn bench_fill_index(n: u64) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            while instructions() < FILL {
                let first = prepared.entries;
                let ids = IDS.min(n - first);
                if ids == 0 {
                    return Ok(true);
                }
                let number = state.chain.state().next;
                append(state, &block(number, (0..ids as usize).map(|i| key(first + i as u64))))?;
                prepared.entries += ids;
            }
            Ok(prepared.entries == n)
        })
    })
}

/// Prepares what `bench_run` needs for the same argument.
#[update(guard = "access::bench")]
fn bench_prepare(arg: BenchArg) -> Result<(), String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            prepared.data = vec![7; arg.size as usize];
            prepared.ptrs.clear();
            let allocate = |state: &mut State| said(state.blobs.allocate(arg.size, owners::CHAIN));
            match arg.op.as_str() {
                "blob.store" | "blob.allocate_fresh" | "meter.count" => {}
                "blob.read" => {
                    for _ in 0..arg.rounds {
                        prepared.ptrs.push(said(state.blobs.store(&prepared.data, owners::CHAIN))?);
                    }
                }
                "blob.release" => {
                    for _ in 0..arg.rounds {
                        prepared.ptrs.push(allocate(state)?);
                    }
                }
                "blob.allocate_reuse" => {
                    for _ in 0..arg.rounds {
                        let ptr = allocate(state)?;
                        said(state.blobs.free(&ptr))?;
                        // Released later, so that all blobs are quarantined at once.
                        prepared.ptrs.push(ptr);
                    }
                    prepared.ptrs.iter().try_for_each(|ptr| said(state.blobs.release(ptr)).map(drop))?;
                }
                "blob.split_join" => {
                    // Takes every free slot below 4 MiB, so that the smallest blob splits a whole block.
                    for class in Class::all().rev().skip(1) {
                        let larger = u64::from(Class::LARGEST.size() / class.size());
                        let arena = state.blobs.arena().clone();
                        while arena.available(class) > arena.available(Class::LARGEST) * larger {
                            said(state.blobs.allocate(class.size(), owners::CHAIN))?;
                        }
                    }
                    let spare = said(state.blobs.allocate(Class::LARGEST.size(), owners::CHAIN))?;
                    said(state.blobs.free(&spare).and_then(|_| state.blobs.release(&spare)))?;
                }
                "index.insert" => {
                    let first = prepared.entries;
                    let number = state.chain.state().next;
                    prepared.block = Some(block(number, (0..arg.rounds as usize).map(|i| key(first + i as u64))));
                }
                "index.get" => {
                    // Spread over all entries.
                    let step = (prepared.entries / arg.rounds).max(1);
                    prepared.ids = (0..arg.rounds).map(|i| key(i * step)).collect();
                }
                "index.remove" => {
                    // The head is never removed, so another block must come after the removed one.
                    let number = state.chain.state().next;
                    append(state, &block(number, std::iter::once(key(u64::MAX))))?;
                }
                "chain.seal" | inside::APPEND => {}
                "chain.certified data" => {
                    for _ in 0..=arg.rounds {
                        let number = state.chain.state().next;
                        append(state, &block(number, std::iter::empty()))?;
                    }
                }
                op if op.starts_with("index.key_") => keys::prepare(state, prepared, op, arg.rounds)?,
                op => index::prepare(prepared, op, arg.rounds)?,
            }
            Ok(())
        })
    })
}

/// Runs the operation `rounds` times, and returns the average instructions of one operation.
#[update(guard = "access::bench")]
fn bench_run(arg: BenchArg) -> Result<u64, String> {
    if arg.op == inside::APPEND {
        return inside::append(&arg);
    }
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            let start = instructions();
            match arg.op.as_str() {
                "meter.count" => {
                    // Every method in every bucket, so that a scrape shows the maximum.
                    for (round, of) in (0..arg.rounds).zip(crate::platform::meter::HOT_ALL.into_iter().cycle()) {
                        let bound = crate::platform::meter::BOUNDS.get((round / 12 % 8) as usize);
                        crate::platform::meter::count(of, bound.map_or(u64::MAX / 4, |bound| bound - round % 12));
                    }
                }
                "blob.store" => {
                    for _ in 0..arg.rounds {
                        black_box(said(state.blobs.store(&prepared.data, owners::CHAIN))?);
                    }
                }
                "blob.read" => {
                    for ptr in &prepared.ptrs {
                        black_box(said(state.blobs.read(ptr))?);
                    }
                }
                "blob.allocate_fresh" | "blob.allocate_reuse" => {
                    for _ in 0..arg.rounds {
                        black_box(said(state.blobs.allocate(arg.size, owners::CHAIN))?);
                    }
                }
                "blob.split_join" => {
                    for _ in 0..arg.rounds {
                        let ptr = said(state.blobs.allocate(arg.size, owners::CHAIN))?;
                        said(state.blobs.free(&ptr).and_then(|_| state.blobs.release(&ptr)))?;
                    }
                }
                "blob.release" => {
                    for ptr in &prepared.ptrs {
                        said(state.blobs.free(ptr))?;
                        said(state.blobs.release(ptr))?;
                    }
                }
                "index.insert" => {
                    let block = prepared.block.take().ok_or("not prepared")?;
                    append(state, &block)?;
                }
                "index.get" => {
                    for id in &prepared.ids {
                        black_box(said(state.chain.location(&state.blobs, id))?);
                    }
                }
                "index.remove" => {
                    let removed = state.chain.remove_one_by_one(&state.blobs)?;
                    if removed != arg.rounds {
                        return Err(format!("{removed} of {} entries were there", arg.rounds));
                    }
                }
                "chain.seal" => {
                    for number in 0..arg.rounds {
                        let (hash, sha256) = (key(number), [key(number); 3]);
                        let leaf = Leaf {
                            number,
                            timestamp_secs: number,
                            lengths: [1; 3],
                            hash: &hash,
                            parent_hash: &hash,
                            sha256: &sha256,
                        };
                        let leaf = leaf.digest().ok_or("a hash is too long")?;
                        black_box(seals::seal(&hash, &leaf));
                    }
                }
                "chain.certified data" => {
                    let mut took = 0;
                    for _ in 0..arg.rounds {
                        // A rollback changes the labels of the head and the canister's own.
                        let to = state.chain.state().next - 2;
                        state.chain.begin_rollback(to);
                        while state.chain.is_under_way() {
                            state.chain.continue_rollback(&mut state.blobs, 1_000, Meter::unlimited());
                        }
                        let (before, begun) = (state.chain.state().certified, instructions());
                        black_box(state.chain.certify());
                        took += instructions() - begun;
                        if state.chain.state().certified == before {
                            return Err("the certified data have not changed".into());
                        }
                    }
                    return Ok(took / arg.rounds);
                }
                op if op.starts_with("index.key_") => keys::run(state, prepared, op, arg.rounds)?,
                op => index::run(state, prepared, op, arg.rounds)?,
            }
            Ok((instructions() - start) / arg.rounds)
        })
    })
}
