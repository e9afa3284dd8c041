//! Helpers for tests: blocks and chains.

use crate::chain::ChainStore;
use crate::platform::native;
use crate::storage::HashKey;
use crate::storage::blob::{BlobStore, Class};
use crate::storage::memory;
use crate::storage::owners;
use crate::storage::places;
use crate::storage::slots::{SlotId, Slots, radix};
use coppice_interface::AppendBlock;
use coppice_interface::segments::{encode_index, encode_receipts};
pub use coppice_model::blocks::{id, with_keys};
use coppice_storage::arena::{GRANULE, Owner, SlotState};
use serde_bytes::ByteBuf;
use std::rc::Rc;

/// Number of random histories: `PROPTEST_CASES` (`scripts/soak`), otherwise `few`, which takes about a second.
pub fn histories(few: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few);
    proptest::test_runner::Config { cases, ..Default::default() }
}

/// Finds no bytes of blocks.
pub fn no_block(_: &BlobStore, _: u64, _: (u64, u64)) -> Option<Vec<u8>> {
    None
}

/// A hash key.
pub fn hash_key() -> HashKey {
    HashKey::of([7; 16])
}

/// The hash of block `number` on fork `fork`.
pub fn hash(number: u64, fork: u8) -> [u8; 32] {
    let mut bytes = id(number ^ 0xB10C);
    bytes[0] = fork;
    bytes
}

/// A well-formed block with these ids and a body of `body` bytes.
pub fn block(number: u64, ids: &[[u8; 32]], body: usize) -> AppendBlock {
    let receipts: Vec<[u8; 5]> = (0..ids.len()).map(|i| [i as u8; 5]).collect();
    let period: Vec<u8> = (0..256).map(|i: u64| i.wrapping_mul(number + 31) as u8).collect();
    let mut bytes = period.repeat(body.div_ceil(256));
    bytes.truncate(body);
    let block = AppendBlock {
        number,
        hash: hash(number, 0).into(),
        parent_hash: hash(number.wrapping_sub(1), 0).into(),
        timestamp_secs: 1_600_000_000 + number,
        body: ByteBuf::from(bytes),
        receipts: ByteBuf::from(encode_receipts(&receipts).unwrap()),
        index: ByteBuf::from(encode_index(ids.iter().copied(), [].into_iter()).unwrap()),
        ..AppendBlock::default()
    };
    block.sealed()
}

/// An empty chain over blobs of `log_class` bytes.
pub fn fresh(log_class: u32) -> (ChainStore, BlobStore) {
    native::reset();
    memory::forget();
    reopen(log_class)
}

/// Returns the offset in the arena of byte `at` of a slot.
pub fn place(slot: SlotId, at: u64) -> u64 {
    (u64::from(slot) - 1) * 128 + 8 + at
}

/// Writes into a slot, as damage would.
pub fn overwrite(slot: SlotId, at: u64, bytes: &[u8]) {
    memory::arena().unwrap().payload().write(place(slot, at), bytes);
}

/// Returns the bytes of the arena that an owner has, granule by granule, with their lines.
pub fn bytes_of(owner: Owner) -> Vec<u8> {
    let arena = memory::arena().unwrap();
    let mut bytes = Vec::new();
    let mut granule = 0;
    while let Some(entry) = arena.entry(granule) {
        let entry = entry.unwrap();
        let granules = if entry.state == SlotState::Inside { 1 } else { entry.granules() };
        if entry.state == SlotState::Taken && entry.owner == owner {
            arena.payload().read_onto(&mut bytes, granule * GRANULE, (granules * GRANULE) as usize);
            bytes.extend(arena.line(granule));
        }
        granule += granules;
    }
    bytes
}

/// Checks that the arena's counters agree with its entries.
pub fn audit() {
    let arena = memory::arena().unwrap();
    let (mut kept, mut free) = (vec![0; Owner::COUNT], vec![0; Class::COUNT]);
    let mut granule = 0;
    while let Some(entry) = arena.entry(granule) {
        let entry = entry.unwrap();
        // The front of an extent.
        if granule % 4_096 < 3 {
            granule += 1;
            continue;
        }
        assert_ne!(entry.state, SlotState::Inside, "granule {granule} begins no slot");
        match entry.state {
            SlotState::Free => free[entry.class.index()] += 1,
            _ => kept[entry.owner.index()] += entry.granules() * GRANULE,
        }
        granule += entry.granules();
    }
    assert_eq!(Owner::all().map(|owner| arena.kept_bytes(owner)).collect::<Vec<_>>(), kept);
    assert_eq!(Class::all().map(|class| arena.class_counters(class).free).collect::<Vec<_>>(), free);
}

/// Takes all memory up to the end of the last block, except `granules` granules that counted owners may take, the last ones of a block, and room
/// for `nodes` nodes of ordered indexes in the chunks of `slots`. Forbids growth; work that creates records finds the reserve in place if `reserve`.
pub fn fill(slots: &mut Slots, granules: usize, nodes: usize, reserve: bool) {
    // Whole blocks, so that the reserve has slots of all classes.
    let pages = memory::billed_pages().next_multiple_of(64);
    memory::set_max_pages(pages);
    let arena = memory::arena().unwrap();
    arena.end_reservations();
    let mut taken = Vec::new();
    while let Ok(granule) = arena.take_granules(owners::UTXO_INDEX, 1) {
        taken.push(granule);
    }
    while arena.take_granules(owners::KEY_INDEX, 1).is_ok() {}
    let mut spare = Vec::new();
    for len in (1..1_024).map(|units| 128 * units - 8) {
        while let Ok(slot) = slots.allocate(len) {
            if (radix::NODE..radix::NODE + 256).contains(&slots.capacity(slot)) {
                spare.push(slot);
            }
        }
    }
    spare.into_iter().rev().take(nodes).for_each(|slot| slots.free(slot));
    for granule in taken.split_off(taken.len() - granules) {
        arena.give_granules(owners::UTXO_INDEX, granule, 1);
    }
    if reserve {
        memory::set_max_pages(pages + (64 << 20) / memory::WASM_PAGE);
    }
}

/// Opens a space; that of the cells has all its memory.
pub fn space(id: u8) -> memory::Space {
    let space = memory::space(id).unwrap();
    if id == memory::CELLS {
        space.reserve(places::END).unwrap();
    }
    space
}

/// The chain in memory, reopened as after an upgrade.
pub fn reopen(log_class: u32) -> (ChainStore, BlobStore) {
    let pages = memory::max_pages();
    memory::forget();
    memory::set_max_pages(pages);
    let class = Class::of_size(log_class).unwrap();
    memory::set_log_class(class);
    let cells = Rc::new(space(memory::CELLS));
    let blobs = BlobStore::open(memory::arena().unwrap());
    (ChainStore::open(cells, class, hash_key()).unwrap(), blobs)
}
