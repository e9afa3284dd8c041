//! Blocks of this sequencer: the body holds the transactions, each after its length. A transaction is found by its SHA-256, and by its
//! sender as the secondary key; its receipt is the time at which it was accepted, and the sender.

use crate::queue::{LENGTH, Sealed, Waiting};
use ic_coppice_client::Block;
use ic_coppice_interface::AppendBlock;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// Makes the block of a sealed header and its transactions: always the same block, so that it can be sent again after an upgrade.
pub fn seal(sealed: &Sealed, transactions: &[Waiting]) -> AppendBlock {
    let mut body = Vec::new();
    for Waiting { transaction, .. } in transactions {
        body.extend((transaction.len() as u32).to_le_bytes());
        body.extend_from_slice(transaction);
    }
    let ids: Vec<[u8; 32]> = transactions.iter().map(|of| Sha256::digest(&of.transaction).into()).collect();
    let hash: [u8; 32] = Sha256::new_with_prefix(&sealed.parent).chain_update(ids.concat()).finalize().into();
    let block = Block::new(sealed.number, hash, &sealed.parent[..], sealed.timestamp_secs).body(body);
    let block = ids.into_iter().zip(transactions).fold(block, |block, (id, Waiting { accepted, .. })| {
        block.transaction(id, Some(&accepted.to_bytes()), &[accepted.sender.as_slice()])
    });
    block.seal().expect("the queue is smaller than a block may be")
}

/// Returns the transactions of a body, or `None` if the body is malformed.
pub fn split(mut body: &[u8]) -> Option<Vec<ByteBuf>> {
    let mut transactions = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<LENGTH>()?;
        let (transaction, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        transactions.push(ByteBuf::from(transaction));
        body = rest;
    }
    Some(transactions)
}
