//! Bitcoin blocks in the form that the canister accepts.

use crate::Block;
use bitcoin::hashes::Hash;

impl Block {
    /// Creates a block from a Bitcoin block whose bytes are `raw`. The body is the block itself; a transaction's id is the txid in internal
    /// byte order; its receipt is a record `u32 inputs ‖ u32 outputs ‖ u64 satoshis of all outputs ‖ u32 bytes`, little-endian.
    pub fn from_bitcoin(number: u64, raw: Vec<u8>, decoded: &bitcoin::Block) -> Self {
        let (hash, parent) = (decoded.block_hash().to_byte_array(), decoded.header.prev_blockhash.to_byte_array());
        let block = Self::new(number, hash, parent, decoded.header.time.into()).body(raw);
        let with = |block: Self, transaction: &bitcoin::Transaction| {
            let satoshis =
                transaction.output.iter().fold(0u64, |sum, output| sum.saturating_add(output.value.to_sat()));
            let receipt = [
                &(transaction.input.len() as u32).to_le_bytes()[..],
                &(transaction.output.len() as u32).to_le_bytes(),
                &satoshis.to_le_bytes(),
                &(transaction.total_size() as u32).to_le_bytes(),
            ];
            block.transaction(transaction.compute_txid().to_byte_array(), Some(&receipt.concat()), &[])
        };
        decoded.txdata.iter().fold(block, with)
    }
}
