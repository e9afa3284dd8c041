//! Bitcoin blocks in the form that the canister accepts, and the sending of blocks, many in a message or one in chunks.

pub use ic_coppice_client::{CHUNK, MAX_APPEND};

use crate::client::{Block, CanisterClient, Client};
use anyhow::{Context, Result};
use ic_coppice_client::{Error, Unsent};
use ic_coppice_interface::segments::{ID, Index};
use ic_coppice_interface::{AppendBlock, AppendError, UploadError};
use sha2::{Digest, Sha256};
use std::time::Duration;

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns the ids of an index segment, or no ids if the segment is malformed.
pub fn ids_of(index: &[u8]) -> &[[u8; ID]] {
    Index::parse(index).map_or(&[], |index| index.all_ids())
}

/// Returns a Bitcoin block whose bytes are `raw`, as [`Block::from_bitcoin`] has it.
///
/// # Errors
/// When the canister would refuse the block, for example because it has more than 100,000 transactions.
pub fn bitcoin_block(number: u64, raw: Vec<u8>, decoded: &bitcoin::Block) -> Result<AppendBlock> {
    let block = Block::from_bitcoin(number, raw, decoded).seal();
    block.with_context(|| format!("block {number} cannot be appended"))
}

pub fn payload_len(block: &AppendBlock) -> usize {
    block.body.len() + block.receipts.len() + block.index.len()
}

/// Waits of a second for a new canister to draw its hash key. A lost draw is repeated after ten minutes: the command then ends with the refusal.
const WAITS: u32 = 30;

/// Appends consecutive blocks, as many in a message as fit, to a canister that may have been installed a moment ago: waits until it is ready.
/// Returns how many went in chunks.
///
/// # Errors
/// When the canister cannot be reached or refuses a block.
pub fn send(client: &Client<impl CanisterClient>, blocks: &[AppendBlock]) -> Result<u64> {
    let mut waits = 0;
    loop {
        match pollster::block_on(client.send_blocks(blocks)) {
            Err(Unsent { error: Error::Refused(UploadError::Append(AppendError::NotReady(_))), .. })
                if waits < WAITS =>
            {
                client.transport().await_timer(Duration::from_secs(1))?;
                waits += 1;
            }
            sent => return Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::hashes::Hash;
    use ic_coppice_interface::segments::{Receipts, check_receipts};

    #[test]
    fn segments_of_a_bitcoin_block_pass_the_canisters_checks() {
        let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).unwrap();
        let AppendBlock { number, hash, body, receipts, index, .. } =
            bitcoin_block(702_861, raw.clone(), &block).unwrap();
        assert_eq!((number, &hash[..], &*body), (702_861, &block.block_hash().to_byte_array()[..], &raw));
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
