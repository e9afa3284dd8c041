//! Blocks to append after the current head.

use ic_coppice_client::{Block, Client, Error, Transport};
use ic_coppice_interface::{AppendBlock, BlockHash, ReadError};
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
    branch(0, (number, parent_hash), body, key)
}

/// A [`block`] whose hash also depends on a branch, so that several blocks may follow a parent.
pub fn branch(branch: u8, (number, parent_hash): (u64, BlockHash), body: usize, key: &[u8]) -> AppendBlock {
    let body: Vec<u8> = (0..body).map(|at| (at as u64 ^ number) as u8).collect();
    let hash = sha256(&[&parent_hash[..], &[branch], &body, key].concat());
    Block::new(number, hash, parent_hash, 1_700_000_000 + number)
        .body(body)
        .transaction(id(number, 0), Some(b"one"), &[])
        .transaction(id(number, 1), Some(b"two!"), &[key])
        .seal()
        .expect("the block is small")
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
