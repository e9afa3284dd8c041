//! A block that the canister makes itself: what appending it costs without a message that brings its bytes in.

use super::{BenchArg, key, said};
use crate::Coppice;
use crate::platform::instructions;
use ic_coppice_interface::AppendBlock;
use ic_coppice_interface::segments::{encode_index, encode_receipts};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

pub const APPEND: &str = "chain.append inside";
/// Transactions of the block.
const TRANSACTIONS: usize = 318;
/// Bytes of a receipt.
const RECEIPT: usize = 20;

/// Appends blocks of `size` bytes, and returns the average instructions of an append. Making a block is not counted.
pub fn append(arg: &BenchArg) -> Result<u64, String> {
    let mut took = 0;
    for _ in 0..arg.rounds {
        let parent = said(Coppice::head())?;
        let ids = (0..TRANSACTIONS).map(|nth| key(u64::MAX - parent.number * TRANSACTIONS as u64 - nth as u64));
        let index = said(encode_index(ids, [].into_iter()))?;
        let receipts = said(encode_receipts(&vec![vec![7; RECEIPT]; TRANSACTIONS]))?;
        let body = vec![7; (arg.size as usize).saturating_sub(index.len() + receipts.len())];
        let digests = [&body, &receipts, &index].map(|bytes| ByteBuf::from(Sha256::digest(bytes).to_vec()));
        let block = AppendBlock {
            number: parent.number + 1,
            hash: key(parent.number + 1).into(),
            parent_hash: parent.hash,
            timestamp_secs: 0,
            body: ByteBuf::from(body),
            receipts: ByteBuf::from(receipts),
            index: ByteBuf::from(index),
            sha256: digests.into(),
        };
        let begun = instructions();
        said(Coppice::append(&block))?;
        took += instructions() - begun;
    }
    Ok(took / arg.rounds)
}
