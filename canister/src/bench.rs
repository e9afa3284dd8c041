//! Endpoints that measure the stores from inside (feature `bench`), never part of the product's wasm.
//!
//! A measurement is two messages: one prepares, one runs `rounds` operations between two readings of the instruction
//! counter and answers the average. So the pages that the second message touches are those of what it measured.

use crate::blob::{BlobPtr, BlobStore, Owner};
use crate::chain::open_blobs;
use crate::memory::{self, Region};
use crate::runtime::instructions;
use crate::table::HashTable;
use candid::CandidType;
use ic_cdk::update;
use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
use ic_stable_structures::{DefaultMemoryImpl, StableBTreeMap};
use serde::Deserialize;
use std::cell::RefCell;
use std::hint::black_box;

/// What is measured.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct BenchArg {
    /// The operation.
    pub op: String,
    /// Bytes of a blob.
    pub size: u32,
    /// Other live blobs, or entries of the table.
    pub n: u64,
    /// Operations.
    pub rounds: u64,
}

type BTree = StableBTreeMap<[u8; 32], [u8; 12], VirtualMemory<DefaultMemoryImpl>>;

/// Blobs and tables of the bench have the whole of stable memory to themselves; it is never the chain's.
struct Bench {
    blobs: BlobStore,
    live: Vec<BlobPtr>,
    table: HashTable,
    entries: u64,
    ids: Region,
    btree: Option<BTree>,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

fn with<T>(f: impl FnOnce(&mut Bench) -> Result<T, String>) -> Result<T, String> {
    BENCH.with_borrow_mut(|bench| {
        if bench.is_none() {
            *bench = Some(Bench {
                blobs: open_blobs()?,
                live: Vec::new(),
                table: HashTable::open(memory::region(memory::TRANSACTION_INDEX), (5, 6))?,
                entries: 0,
                ids: memory::region(memory::BLOCK_RECORDS),
                btree: None,
            });
        }
        f(bench.as_mut().expect("just made"))
    })
}
