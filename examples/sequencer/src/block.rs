//! Blocks of this sequencer: the body holds the transactions, each after its length; the index holds their SHA-256 as ids.

use coppice_interface::segments::encode_index;
use coppice_interface::{AppendBlock, BlockHash};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// Bytes of a length in a body.
pub const LENGTH: usize = 4;

/// A block that is ready to send; Coppice may already have it.
#[derive(Clone)]
pub struct Sealed {
    /// The block.
    pub block: AppendBlock,
    /// The number of its transactions.
    pub transactions: usize,
}

/// Makes the block after a parent from transactions, each found by its SHA-256. Returns `None` if there are no transactions.
pub fn seal((number, parent_hash): (u64, BlockHash), transactions: &[ByteBuf]) -> Option<Sealed> {
    let mut body = Vec::new();
    for transaction in transactions {
        body.extend((transaction.len() as u32).to_le_bytes());
        body.extend_from_slice(transaction);
    }
    let ids = transactions.iter().map(|transaction| Sha256::digest(transaction.as_slice()).into());
    let index = encode_index(ids, [].into_iter()).expect("the number of transactions is small");
    let block = AppendBlock {
        number: number + 1,
        parent_hash,
        timestamp_secs: ic_cdk::api::time() / 1_000_000_000,
        body: ByteBuf::from(body),
        index: ByteBuf::from(index),
        ..AppendBlock::default()
    };
    let mut block = block.sealed();
    let hash = Sha256::new_with_prefix(&block.parent_hash).chain_update(&block.sha256.body).finalize();
    block.hash = <[u8; 32]>::from(hash).into();
    (!transactions.is_empty()).then_some(Sealed { block, transactions: transactions.len() })
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
