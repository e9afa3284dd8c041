//! Blocks as input for the canister and the models.

use ic_coppice_interface::{AppendBlock, BeginBlock, BlockId, BySegment};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// Returns a pseudorandom id.
pub fn id(of: u64) -> [u8; 32] {
    Sha256::digest(of.to_le_bytes()).into()
}

/// Returns the hash of block `number`.
pub fn hash(number: u64) -> [u8; 32] {
    id(number ^ 0xB10C)
}

/// Returns the receipt of transaction `position` of block `number`.
pub fn receipt(number: u64, position: usize) -> Vec<u8> {
    vec![number as u8 ^ position as u8; position % 7 + 1]
}

/// Returns the index segment of these ids, without secondary keys.
pub fn index(ids: &[[u8; 32]]) -> Vec<u8> {
    let mut index = (ids.len() as u32).to_le_bytes().to_vec();
    ids.iter().for_each(|id| index.extend(id));
    index.extend(0u32.to_le_bytes());
    index
}

/// Adds secondary keys to a block: pairs of a transaction's position and a key, in the order of the segment.
pub fn with_keys(mut block: AppendBlock, keys: &[(u32, &[u8])]) -> AppendBlock {
    let mut index = block.index.into_vec();
    index.truncate(index.len() - 4);
    index.extend((keys.len() as u32).to_le_bytes());
    for (transaction, key) in keys {
        index.extend(transaction.to_le_bytes());
        index.extend((key.len() as u16).to_le_bytes());
        index.extend(*key);
    }
    block.index = ByteBuf::from(index);
    seal(&mut block);
    block
}

/// Returns the receipts segment of block `number` with `transactions` transactions.
pub fn receipts(number: u64, transactions: usize) -> Vec<u8> {
    let receipts: Vec<Vec<u8>> = (0..transactions).map(|position| receipt(number, position)).collect();
    let mut bytes = (transactions as u32).to_le_bytes().to_vec();
    let mut end = 0u32;
    for receipt in &receipts {
        end += receipt.len() as u32;
        bytes.extend(end.to_le_bytes());
    }
    bytes.extend(receipts.concat());
    bytes
}

/// Returns a well-formed block with these ids and a body of `body` bytes.
pub fn block(number: u64, ids: &[[u8; 32]], body: usize) -> AppendBlock {
    let body: Vec<u8> = (0..body).map(|i| (i as u64).wrapping_mul(number | 1).to_le_bytes()[1]).collect();
    let mut block = AppendBlock {
        number,
        hash: hash(number).into(),
        parent_hash: hash(number.wrapping_sub(1)).into(),
        timestamp_secs: 1_600_000_000u64.wrapping_add(number),
        body: ByteBuf::from(body),
        receipts: ByteBuf::from(receipts(number, ids.len())),
        index: ByteBuf::from(index(ids)),
        sha256: BySegment::default(),
    };
    seal(&mut block);
    block
}

/// Sets a block's digests of its segments.
pub fn seal(block: &mut AppendBlock) {
    block.sha256 = [&block.body, &block.receipts, &block.index]
        .map(|bytes| ByteBuf::from(Sha256::digest(bytes.as_slice()).to_vec()))
        .into();
}

/// Returns a block with `transactions` transactions, whose ids occur in no other block.
pub fn plain(number: u64, transactions: usize, body: usize) -> AppendBlock {
    let ids: Vec<_> = (0..transactions as u64).map(|i| id(number << 20 | i)).collect();
    block(number, &ids, body)
}

/// Returns an id of [`plain`].
pub fn plain_id(number: u64, position: u64) -> [u8; 32] {
    id(number << 20 | position)
}

/// Returns the argument that begins the upload of a block, and its chunks.
pub fn upload(block: &AppendBlock, chunk_size: usize) -> (BeginBlock, Vec<Vec<u8>>) {
    let begin = BeginBlock {
        number: block.number,
        hash: block.hash.clone(),
        parent_hash: block.parent_hash.clone(),
        timestamp_secs: block.timestamp_secs,
        lengths: [&block.body, &block.receipts, &block.index].map(|bytes| bytes.len() as u64).into(),
        sha256: block.sha256.clone(),
        chunk_size: chunk_size as u32,
    };
    let payload = [block.body.as_slice(), &block.receipts, &block.index].concat();
    (begin, payload.chunks(chunk_size).map(<[u8]>::to_vec).collect())
}

/// Returns the argument of `commit_block`.
pub fn block_id(block: &AppendBlock) -> BlockId {
    BlockId { number: block.number, hash: block.hash.clone() }
}
