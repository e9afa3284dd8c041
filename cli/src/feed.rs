//! Builds the three segments of a block's payload, and sends the block to the canister in one message or in chunks.

pub use coppice_client::{CHUNK, MAX_APPEND};

use crate::client::{Client, Segments, Sent, Transport, Wait};
use anyhow::{Context, Result};
use bitcoin::hashes::Hash;
use coppice_interface::segments::{ID, Index, encode_index, encode_receipts};
use coppice_interface::{AppendBlock, BySegment};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// The fields of a block besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: [u8; 32],
    /// The parent's hash.
    pub parent: [u8; 32],
    /// Unix seconds.
    pub timestamp_secs: u64,
}

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// An index segment without secondary keys: `u32 n ‖ n × id ‖ u32 0`.
pub fn index_segment(ids: impl ExactSizeIterator<Item = [u8; ID]>) -> Vec<u8> {
    encode_index(ids, [].into_iter()).expect("a block has fewer transactions than 32 bits count")
}

/// Returns the ids of an index segment, or no ids if the segment is malformed.
pub fn ids_of(index: &[u8]) -> &[[u8; ID]] {
    Index::parse(index).map_or(&[], |index| index.all_ids())
}

/// Returns the segments of a Bitcoin block whose bytes are `raw`: the block itself; for each transaction a record `u32 inputs ‖ u32 outputs
/// ‖ u64 satoshis of all outputs ‖ u32 bytes`, little-endian; the txids in internal byte order.
pub fn bitcoin_segments(raw: Vec<u8>, block: &bitcoin::Block) -> Segments {
    let receipt = |transaction: &bitcoin::Transaction| {
        let satoshis = transaction.output.iter().fold(0u64, |sum, output| sum.saturating_add(output.value.to_sat()));
        let mut receipt = Vec::with_capacity(20);
        receipt.extend((transaction.input.len() as u32).to_le_bytes());
        receipt.extend((transaction.output.len() as u32).to_le_bytes());
        receipt.extend(satoshis.to_le_bytes());
        receipt.extend((transaction.total_size() as u32).to_le_bytes());
        receipt
    };
    let receipts: Vec<Vec<u8>> = block.txdata.iter().map(receipt).collect();
    let receipts = encode_receipts(&receipts).expect("a block is shorter than 32 bits count");
    let ids = block.txdata.iter().map(|transaction| transaction.compute_txid().to_byte_array());
    [raw, receipts, index_segment(ids)]
}

/// Returns a block in the form that the canister accepts.
pub fn block(header: &Header, segments: Segments) -> AppendBlock {
    let [body, receipts, index] = segments.map(ByteBuf::from);
    AppendBlock {
        number: header.number,
        hash: header.hash.into(),
        parent_hash: header.parent.into(),
        timestamp_secs: header.timestamp_secs,
        body,
        receipts,
        index,
        sha256: BySegment::default(),
    }
    .sealed()
}

/// Returns a Bitcoin block whose bytes are `raw`, with its [`bitcoin_segments`], in the form that the canister accepts.
pub fn bitcoin_block(number: u64, raw: Vec<u8>, decoded: &bitcoin::Block) -> AppendBlock {
    let header = Header {
        number,
        hash: decoded.block_hash().to_byte_array(),
        parent: decoded.header.prev_blockhash.to_byte_array(),
        timestamp_secs: u64::from(decoded.header.time),
    };
    block(&header, bitcoin_segments(raw, decoded))
}

/// Bytes of a block's payload.
pub fn payload_len(block: &AppendBlock) -> usize {
    block.body.len() + block.receipts.len() + block.index.len()
}

/// Appends a block, in chunks if one message cannot hold it or enter all of its references. Returns whether it went in chunks.
///
/// # Errors
/// When the canister cannot be reached or refuses the block.
pub fn send(client: &Client<impl Transport>, block: &AppendBlock) -> Result<bool> {
    let sent = client.send_block(block).done().with_context(|| format!("block {}", block.number))?;
    Ok(sent == Sent::InChunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_interface::segments::{Receipts, check_receipts};

    #[test]
    fn bitcoin_segments_pass_the_canisters_checks() {
        let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).unwrap();
        let [body, receipts, index] = bitcoin_segments(raw.clone(), &block);
        assert_eq!(body, raw);
        let parsed = Index::parse(&index).unwrap();
        assert_eq!((parsed.transactions() as usize, parsed.keys()), (block.txdata.len(), 0));
        assert_eq!(check_receipts(&receipts, receipts.len() as u64, parsed.transactions()), Ok(()));
        assert_eq!(ids_of(&index)[0], block.txdata[0].compute_txid().to_byte_array());
        assert_eq!(ids_of(&index).len(), block.txdata.len());
        let count = parsed.transactions();
        let receipts = Receipts::parse(&receipts, count).unwrap();
        let coinbase = receipts.get(0).unwrap();
        assert_eq!((coinbase.len(), &coinbase[..4]), (20, &1u32.to_le_bytes()[..]));
        assert_eq!(receipts.get(count - 1).unwrap().len(), 20);
        assert_eq!(receipts.get(count), None);
    }

    #[test]
    fn malformed_index_has_no_ids() {
        assert!(ids_of(&[]).is_empty() && ids_of(&[9, 0, 0, 0]).is_empty());
    }
}
