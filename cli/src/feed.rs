//! From a block to the canister: the payload's three segments, and one message or many.

use crate::canister::{Client, Segments, Transport};
use anyhow::{Result, ensure};
use bitcoin::hashes::Hash;
use coppice_canister::chain::SLICE;
use coppice_canister::chain::segments::Index;
use coppice_interface::{AppendBlock, BeginBlock, BlockId, PutBlockChunk};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// Bytes of a transaction id.
pub const ID: usize = 32;
/// Bytes of payload that one `append_block` carries; an ingress message may have 2 MiB in all.
pub const MAX_APPEND: usize = 1_900_000;
/// Bytes of a chunk of a longer block.
pub const CHUNK: u32 = 1 << 20;

/// What a block has beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: [u8; 32],
    /// The parent's hash.
    pub parent: [u8; 32],
    /// Unix seconds.
    pub timestamp: u64,
}

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A receipts segment: `u32 n ‖ n × u32 end offset ‖ bytes`. `ends` count from the start of `bytes`.
pub fn receipts_segment(ends: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut segment = Vec::with_capacity(4 + 4 * ends.len() + bytes.len());
    segment.extend((ends.len() as u32).to_le_bytes());
    ends.iter().for_each(|end| segment.extend(end.to_le_bytes()));
    segment.extend_from_slice(bytes);
    segment
}

/// An index segment without secondary keys: `u32 n ‖ n × id ‖ u32 0`.
pub fn index_segment(ids: impl ExactSizeIterator<Item = [u8; ID]>) -> Vec<u8> {
    let mut segment = Vec::with_capacity(8 + ids.len() * ID);
    segment.extend((ids.len() as u32).to_le_bytes());
    ids.for_each(|id| segment.extend(id));
    segment.extend(0u32.to_le_bytes());
    segment
}

/// The ids of an index segment.
pub fn ids_of(index: &[u8]) -> &[[u8; ID]] {
    let Some((count, rest)) = index.split_first_chunk() else { return &[] };
    let ids = rest.as_chunks::<ID>().0;
    &ids[..ids.len().min(u32::from_le_bytes(*count) as usize)]
}

/// Receipt `position` of a receipts segment; `None` where there is no such receipt.
pub fn receipt_of(receipts: &[u8], position: u32) -> Option<&[u8]> {
    let (words, _) = receipts.as_chunks::<4>();
    let word = |at: usize| words.get(at).map(|word| u32::from_le_bytes(*word) as usize);
    let (count, position) = (word(0)?, position as usize);
    if position >= count {
        return None;
    }
    let start = if position == 0 { 0 } else { word(position)? };
    receipts.get(4 + 4 * count..)?.get(start..word(position + 1)?)
}

/// The segments of a Bitcoin block whose bytes are `raw`: the block itself; a small record for each transaction, `u32
/// inputs ‖ u32 outputs ‖ u64 satoshis of all outputs ‖ u32 bytes`, little-endian; its txid in internal byte order.
pub fn bitcoin_segments(raw: Vec<u8>, block: &bitcoin::Block) -> Segments {
    let (mut ends, mut bytes) = (Vec::with_capacity(block.txdata.len()), Vec::with_capacity(20 * block.txdata.len()));
    for transaction in &block.txdata {
        let satoshis = transaction.output.iter().fold(0u64, |sum, output| sum.saturating_add(output.value.to_sat()));
        bytes.extend((transaction.input.len() as u32).to_le_bytes());
        bytes.extend((transaction.output.len() as u32).to_le_bytes());
        bytes.extend(satoshis.to_le_bytes());
        bytes.extend((transaction.total_size() as u32).to_le_bytes());
        ends.push(bytes.len() as u32);
    }
    let ids = block.txdata.iter().map(|transaction| transaction.compute_txid().to_byte_array());
    [raw, receipts_segment(&ends, &bytes), index_segment(ids)]
}

/// A block as the canister takes it.
pub fn block(place: &Place, segments: Segments) -> AppendBlock {
    let sha256 = segments.each_ref().map(|segment| ByteBuf::from(sha256(segment))).into();
    let [body, receipts, index] = segments.map(ByteBuf::from);
    AppendBlock {
        number: place.number,
        hash: ByteBuf::from(place.hash),
        parent_hash: ByteBuf::from(place.parent),
        timestamp: place.timestamp,
        body,
        receipts,
        index,
        sha256,
    }
}

/// Bytes of a block's payload.
pub fn payload_len(block: &AppendBlock) -> usize {
    block.body.len() + block.receipts.len() + block.index.len()
}

/// Appends a block, in chunks where one message does not hold it, or could not enter all of its references. Answers whether it went
/// in chunks.
///
/// # Errors
/// When the canister refuses it, or counts other chunks than were sent.
pub fn send(client: &Client<impl Transport>, block: &AppendBlock) -> Result<bool> {
    let references = Index::parse(&block.index).map_or(0, |index| index.references());
    if payload_len(block) <= MAX_APPEND && references <= SLICE {
        client.append_block(block)?;
        return Ok(false);
    }
    let segments = [&block.body, &block.receipts, &block.index];
    let payload = segments.map(|segment| segment.as_slice()).concat();
    let mut progress = client.begin_block(&BeginBlock {
        number: block.number,
        hash: block.hash.clone(),
        parent_hash: block.parent_hash.clone(),
        timestamp: block.timestamp,
        lengths: segments.map(|segment| segment.len() as u64).into(),
        sha256: block.sha256.clone(),
        chunk_size: CHUNK,
    })?;
    for (chunk, bytes) in (0..).zip(payload.chunks(CHUNK as usize)) {
        progress =
            client.put_block_chunk(&PutBlockChunk { number: block.number, chunk, bytes: ByteBuf::from(bytes) })?;
    }
    ensure!(progress.missing == 0, "block {}: all chunks are sent, and {} are missing", block.number, progress.missing);
    client.commit_block(&BlockId { number: block.number, hash: block.hash.clone() })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_canister::chain::segments::{Index, check_receipts};

    #[test]
    fn segments_are_what_the_canister_checks() {
        let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).unwrap();
        let [body, receipts, index] = bitcoin_segments(raw.clone(), &block);
        assert_eq!(body, raw);
        let parsed = Index::parse(&index).unwrap();
        assert_eq!((parsed.transactions() as usize, parsed.keys()), (block.txdata.len(), 0));
        assert_eq!(check_receipts(&receipts, receipts.len() as u64, parsed.transactions()), Ok(()));
        assert_eq!(ids_of(&index)[0], block.txdata[0].compute_txid().to_byte_array());
        assert_eq!(ids_of(&index).len(), block.txdata.len());
        let coinbase = receipt_of(&receipts, 0).unwrap();
        assert_eq!((coinbase.len(), &coinbase[..4]), (20, &1u32.to_le_bytes()[..]));
        assert_eq!(receipt_of(&receipts, parsed.transactions() - 1).unwrap().len(), 20);
        assert_eq!(receipt_of(&receipts, parsed.transactions()), None);
    }

    #[test]
    fn odd_segments_have_nothing_in_them() {
        assert!(ids_of(&[]).is_empty() && ids_of(&[9, 0, 0, 0]).is_empty());
        assert_eq!(receipt_of(&[], 0), None);
        assert_eq!(receipt_of(&receipts_segment(&[5], b"four"), 0), None);
        assert_eq!(receipt_of(&receipts_segment(&[0, 4], b"four"), 0), Some(&[][..]));
    }
}
