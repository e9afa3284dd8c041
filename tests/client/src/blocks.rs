//! Blocks to append after the current head.

use coppice_client::{Client, Error, Transport};
use coppice_interface::segments::{encode_index, encode_receipts};
use coppice_interface::*;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A transaction id that is unique to the block number and position.
pub fn id(number: u64, position: u32) -> [u8; 32] {
    sha256(&[&number.to_le_bytes()[..], &position.to_le_bytes()].concat())
}

/// The number and the parent hash of the next block.
pub async fn next<T: Transport>(client: &Client<T>) -> (u64, BlockHash) {
    match client.get_head().await {
        Ok(head) => (head.number + 1, head.hash),
        Err(Error::Refused(ReadError::NotFound)) => (7, [0; 32].into()),
        Err(error) => panic!("get_head: {error:?}"),
    }
}

/// A block with a body of `body` bytes and two transactions, the second of which has the key.
pub fn block((number, parent_hash): (u64, BlockHash), body: usize, key: &[u8]) -> AppendBlock {
    let body: Vec<u8> = (0..body).map(|at| (at as u64 ^ number) as u8).collect();
    let ids = [id(number, 0), id(number, 1)];
    seal(AppendBlock {
        number,
        parent_hash,
        timestamp_secs: 1_700_000_000 + number,
        body: ByteBuf::from(body),
        receipts: ByteBuf::from(encode_receipts(&["one", "two!"]).unwrap()),
        index: ByteBuf::from(encode_index(ids.into_iter(), [(1, key)].into_iter()).unwrap()),
        ..AppendBlock::default()
    })
}

/// The block with the digests of its segments, and a hash of these.
pub fn seal(block: AppendBlock) -> AppendBlock {
    let mut block = block.sealed();
    block.hash = sha256(&[&block.parent_hash[..], &block.sha256.each().map(|sum| &sum[..]).concat()].concat()).into();
    block
}

/// Appends `count` blocks and returns them.
pub async fn append<T: Transport>(client: &Client<T>, count: usize, key: &[u8]) -> Vec<AppendBlock> {
    let (mut at, mut blocks) = (next(client).await, Vec::new());
    for _ in 0..count {
        let block = block(at, 1_000, key);
        client.append_block(&block).await.unwrap();
        at = (block.number + 1, block.hash.clone());
        blocks.push(block);
    }
    blocks
}
