//! Tests with ids and keys that share a bucket of their table, as an attacker with the hash key could choose them: no message exceeds its
//! limits.

use super::{Admission, ChainStore, IndexTable};
use crate::owners;
use crate::testing::{block, fresh, id, with_keys};
use candid::Principal;
use coppice_model::blocks::{block_id, upload};
use ic_coppice_interface::{AppendBlock, AppendError, Commit, PutBlockChunk};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Counting, MOST_PAGES, Meter, twin};
use serde_bytes::ByteBuf;

/// References of the large block: a chain of 430 buckets.
const MANY: u64 = 12_000;
/// Instructions of an access to stable memory, so that walking the chain costs as many as walking one of 100,000 entries on the platform.
const OF_ACCESS: u64 = 25_000;
/// Limit of a message.
const INSTRUCTIONS: u64 = 2_000_000_000;
/// Budget of a tick, the default one.
const OF_TICK: u64 = 500_000_000;

struct World {
    chain: ChainStore,
    blobs: BlobStore,
}

fn key(i: u64) -> [u8; 32] {
    id(i | 1 << 40)
}

/// A block with so many ids and keys of its own.
fn with_references(number: u64, ids: u64, keys: u64) -> AppendBlock {
    let ids: Vec<_> = (0..ids.max(1)).map(|i| id(number << 20 | i)).collect();
    let keys: Vec<_> = (0..keys).map(|i| key(number << 20 | i)).collect();
    let keys: Vec<(u32, &[u8])> = keys.iter().map(|key| (0, key.as_slice())).collect();
    with_keys(block(number, &ids, 10), &keys)
}

impl World {
    /// A chain whose ids and keys all share a bucket.
    fn new() -> Self {
        let (mut chain, blobs) = fresh(64 << 10);
        chain.mask_hashes(!0xF_FFFF);
        twin::with(|world| world.instructions_per_access = OF_ACCESS);
        Self { chain, blobs }
    }

    /// Runs a message, and asserts that it stays within the limits.
    fn message<T>(&mut self, what: &str, run: impl FnOnce(&mut ChainStore, &mut BlobStore) -> T) -> T {
        twin::with(|world| world.instructions = 0);
        let (answer, touched) = twin::touching(|| run(&mut self.chain, &mut self.blobs));
        let (instructions, dirtied) = (twin::with(|world| world.instructions), touched.dirtied.len() as u64);
        assert!(instructions <= INSTRUCTIONS, "{what}: {instructions} instructions");
        assert!(dirtied <= MOST_PAGES, "{what}: {dirtied} pages");
        answer
    }

    fn append(&mut self, block: &AppendBlock) -> Result<(), AppendError> {
        self.message("an append", |chain, blobs| chain.append(blobs, block, &Admission::default(), 0))
    }

    /// Uploads a block, and returns how many references each message of the commit has entered.
    fn upload(&mut self, block: &AppendBlock) -> Vec<u64> {
        let (begin, chunks) = upload(block, 1 << 20);
        self.chain.begin(&mut self.blobs, &begin, Principal::anonymous(), &Admission::default(), 0).unwrap();
        for (chunk, bytes) in (0..).zip(chunks) {
            let put = PutBlockChunk { number: block.number, chunk, bytes: ByteBuf::from(bytes) };
            self.chain.put_chunk(&mut self.blobs, &put, 0).unwrap();
        }
        let mut all = Vec::new();
        loop {
            let commit = |chain: &mut ChainStore, blobs: &mut BlobStore| {
                chain.commit_upload(blobs, &block_id(block), &Admission::default(), 0)
            };
            match self.message("a commit", commit).unwrap() {
                Commit::HasMore { entered, .. } => all.push(entered),
                Commit::Done => return all,
            }
        }
    }

    fn roll_back(&mut self, to: u64) {
        self.chain.begin_rollback(to);
        while let Some(left) = self.chain.rollback_left() {
            let meter = Meter::new(OF_TICK, MOST_PAGES);
            let done = self.message("a rollback", |chain, blobs| chain.continue_rollback(blobs, left.ops, meter));
            assert_eq!(done.faults, Vec::<String>::new());
        }
    }

    fn sweep(&mut self, table: IndexTable) {
        loop {
            self.message("a sweep", |chain, _| {
                let _counting = Counting::begin();
                chain.sweep(table, Meter::new(OF_TICK, MOST_PAGES));
            });
            if !self.chain.debt(table).sweeping {
                return;
            }
        }
    }
}

#[test]
fn colliding_references_come_are_found_swept_and_rolled_back_within_each_message() {
    let mut world = World::new();
    assert_eq!(world.append(&with_references(0, 1, 1)), Ok(()));
    let large = with_references(1, MANY / 2, MANY / 2);
    let entered = world.upload(&large);
    assert!(entered.len() > 10 && entered.is_sorted(), "{entered:?}");
    assert!(world.chain.index_stats().overflow_buckets > 200, "{:?}", world.chain.index_stats());

    // An append that is too large for a message changes nothing, and says how many references would have had room.
    let stats = (world.chain.index_stats().entries, world.chain.key_stats().entries);
    let refused = world.append(&with_references(2, 500, 500));
    let Err(AppendError::TooLarge { what, limit }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("upload the block") && (16..1_000).contains(&limit), "{what}: {limit}");
    assert_eq!((world.chain.index_stats().entries, world.chain.key_stats().entries), stats);
    assert_eq!(world.append(&with_references(2, 8, 8)), Ok(()), "a small block");
    world.upload(&with_references(3, 500, 500));

    for (number, of) in [(0, 1), (1, MANY / 2), (2, 8), (3, 500)] {
        for i in [0, of / 2, of - 1] {
            let (id, key) = (id(number << 20 | i), key(number << 20 | i));
            let found = world.message("an id", |chain, blobs| chain.location(blobs, &id)).unwrap();
            assert_eq!((found.block_number, u64::from(found.position)), (number, i));
            let page = world.message("a key", |chain, blobs| chain.find_by_key(blobs, &key, None, 0)).unwrap();
            assert_eq!(page.transactions.iter().map(|found| found.block_number).collect::<Vec<_>>(), [number]);
        }
    }
    assert!(world.message("no key", |chain, blobs| chain.find_by_key(blobs, &key(9), None, 0)).is_ok());

    world.roll_back(2);
    assert_eq!((world.chain.index_stats().entries, world.chain.key_stats().entries), (stats.0 + 8, stats.1 + 8));
    world.upload(&with_references(3, 500, 500));
    for _ in 0..3 {
        world.chain.remove_oldest(&mut world.blobs).unwrap();
    }
    for table in IndexTable::ALL {
        world.sweep(table);
    }
    assert_eq!((world.chain.index_stats().entries, world.chain.key_stats().entries), (500, 500));
}

/// An upload that is aborted in the middle of its commit is taken out in as many messages as it needs.
#[test]
fn aborted_upload_of_colliding_references_is_undone_within_each_message() {
    let mut world = World::new();
    assert_eq!(world.append(&with_references(0, 1, 1)), Ok(()));
    world.upload(&with_references(1, MANY / 3, MANY / 3));
    let large = with_references(2, 1_000, 1_000);
    let (begin, chunks) = upload(&large, 1 << 20);
    world.chain.begin(&mut world.blobs, &begin, Principal::anonymous(), &Admission::default(), 0).unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        let put = PutBlockChunk { number: 2, chunk, bytes: ByteBuf::from(bytes) };
        world.chain.put_chunk(&mut world.blobs, &put, 0).unwrap();
    }
    for _ in 0..5 {
        let commit = |chain: &mut ChainStore, blobs: &mut BlobStore| {
            chain.commit_upload(blobs, &block_id(&large), &Admission::default(), 0)
        };
        assert!(matches!(world.message("a commit", commit), Ok(Commit::HasMore { .. })));
    }
    assert_eq!(world.message("an abort", |chain, blobs| chain.abort_upload(blobs, 2)), Ok(true));
    while world.chain.is_aborting() {
        world.message("an abort", ChainStore::continue_abort);
    }
    let own = MANY / 3 + 1;
    assert_eq!((world.chain.index_stats().entries, world.chain.key_stats().entries), (own, own));
    assert_eq!(world.blobs.arena().kept_bytes(owners::UPLOAD), 0);
}

/// A walk over many long chains stops between two of them.
#[test]
fn sweep_over_many_chains_stops_between_them() {
    let mut world = World::new();
    world.chain.mask_hashes(!0xFFFF | 0x3F);
    world.upload(&with_references(0, 1, MANY));
    assert_eq!(world.append(&with_references(1, 1, 0)), Ok(()));
    twin::with(|world| world.instructions_per_access = 1_000_000);
    world.chain.remove_oldest(&mut world.blobs).unwrap();
    world.sweep(IndexTable::Keys);
    assert_eq!(world.chain.key_stats().entries, 0);
}
