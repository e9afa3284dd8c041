//! Helpers for tests: blocks and chains.

use crate::chain::ChainStore;
use crate::platform::native;
use crate::storage::blob::{BlobStore, Class};
use crate::storage::memory;
use crate::storage::places;
use coppice_interface::AppendBlock;
use coppice_interface::segments::{encode_index, encode_receipts};
pub use coppice_model::blocks::{id, with_keys};
use serde_bytes::ByteBuf;
use std::rc::Rc;

/// Number of random histories: `PROPTEST_CASES` (`scripts/soak`), otherwise `few`, which takes about a second.
pub fn histories(few: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few);
    proptest::test_runner::Config { cases, ..Default::default() }
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
    let body: Vec<u8> = (0..body).map(|i| (i as u64).wrapping_mul(number + 31) as u8).collect();
    let block = AppendBlock {
        number,
        hash: hash(number, 0).into(),
        parent_hash: hash(number.wrapping_sub(1), 0).into(),
        timestamp_secs: 1_600_000_000 + number,
        body: ByteBuf::from(body),
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

/// The chain in memory, reopened as after an upgrade.
pub fn reopen(log_class: u32) -> (ChainStore, BlobStore) {
    let pages = memory::manager().max_pages();
    memory::forget();
    memory::manager().set_max_pages(pages);
    let cells = Rc::new(memory::region(memory::CELLS));
    cells.reserve(places::END).unwrap();
    let blobs = BlobStore::open(memory::arena().unwrap());
    (ChainStore::open(cells, Class::of_size(log_class).unwrap(), 3).unwrap(), blobs)
}
