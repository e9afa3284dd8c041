//! Blocks and chains for tests.

pub mod pruning;

use crate::ChainStore;
pub use coppice_model::blocks::{id, with_keys};
use ic_coppice_interface::AppendBlock;
use ic_coppice_interface::segments::{encode_index, encode_receipts};
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::testing::{self, arena, cells, hash_key};
use serde_bytes::ByteBuf;

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
    testing::fresh();
    reopen(log_class)
}

/// The chain in memory, reopened as after an upgrade.
pub fn reopen(log_class: u32) -> (ChainStore, BlobStore) {
    testing::reopen();
    let class = Class::of_size(log_class).unwrap();
    arena().set_log_class(class);
    (ChainStore::open(&arena(), cells(), class, hash_key()).unwrap(), BlobStore::open(arena()))
}
