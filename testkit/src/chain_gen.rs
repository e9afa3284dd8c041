//! Generator of a realistic chain from a seed, with realistic block sizes, around mainnet's block 702,861.
//!
//! Sizes come from a deck of cards that is reshuffled when used up. So any stretch of a few dozen blocks has the whole distribution, and
//! the bytes of a retained window vary little.

use crate::random::Random;
use anyhow::{Context, Result};
use ic_coppice_client::Block;
use ic_coppice_interface::{AppendBlock, BlockHash};
use sha2::{Digest, Sha256};

/// Number of the one block that is mainnet's own, with its hash and parent.
pub const REAL_NUMBER: u64 = 702_861;
/// One block in this many has the payload of block 702,861.
pub const REAL_EVERY: u64 = 250;
/// One block in this many is longer than an ingress message.
pub const LONG_EVERY: u64 = 500;
/// Body of a long block, in bytes.
const LONG: u64 = 3 << 20;

/// Body sizes in KiB, equally likely: about log-normal, half of them below 40 KiB, 15 % above 200 KiB, 5 % of about 1 MB.
const DECK: [u64; 20] = [2, 4, 6, 9, 12, 16, 20, 25, 30, 36, 43, 52, 62, 75, 92, 115, 150, 210, 340, 1_000];
/// Bytes of body for each transaction.
const BYTES_PER_TRANSACTION: u64 = 400;
/// Bytes of a receipt.
const RECEIPT: std::ops::RangeInclusive<u64> = 40..=200;

/// Returns mainnet's block 702,861.
fn real() -> Result<AppendBlock> {
    let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
    let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).context("block 702,861 cannot be decoded")?;
    Ok(Block::from_bitcoin(REAL_NUMBER, raw, &block).seal()?)
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Generates the blocks one after the other.
pub struct Generator {
    seed: u64,
    random: Random,
    deck: Vec<u64>,
    real: AppendBlock,
    first: u64,
    end: u64,
    next: u64,
    parent: BlockHash,
    start_secs: u64,
    interval_secs: u64,
}

impl Generator {
    /// Creates a chain of `blocks` blocks, one every `interval_secs` seconds from `start_secs` on, in Unix seconds. With more than half of
    /// [`REAL_EVERY`] blocks, one is number 702,861.
    ///
    /// # Errors
    /// When block 702,861 cannot be decoded.
    pub fn new(seed: u64, blocks: u64, start_secs: u64, interval_secs: u64) -> Result<Self> {
        // The last block with the real payload gets the real number, so that it is kept at the end.
        let last_real = (blocks.saturating_sub(1 + REAL_EVERY / 2)) / REAL_EVERY * REAL_EVERY + REAL_EVERY / 2;
        let first = REAL_NUMBER - last_real.min(REAL_NUMBER);
        Ok(Self {
            seed,
            random: Random::new(seed),
            deck: Vec::new(),
            real: real()?,
            first,
            end: first + blocks,
            next: first,
            parent: sha256(&seed.to_le_bytes()).into(),
            start_secs,
            interval_secs,
        })
    }

    /// Returns the number of the first block.
    pub fn first(&self) -> u64 {
        self.first
    }

    fn body_len(&mut self) -> u64 {
        let bytes = self.random.draw(&DECK, &mut self.deck) << 10;
        // Varies the size by 10 % up or down.
        bytes * 9 / 10 + self.random.below(bytes / 5)
    }

    /// Adds a body and transactions to a block.
    fn fill(&mut self, block: Block, body_len: u64) -> Block {
        let (seed, number) = (self.seed.to_le_bytes(), self.next.to_le_bytes());
        let body = self.random.bytes(body_len as usize);
        let transactions = (body_len / BYTES_PER_TRANSACTION).max(1);
        let lengths: Vec<usize> = (0..transactions)
            .map(|_| (RECEIPT.start() + self.random.below(RECEIPT.end() - RECEIPT.start() + 1)) as usize)
            .collect();
        let bytes = self.random.bytes(lengths.iter().sum());
        let mut rest = &bytes[..];
        let receipts = lengths.into_iter().filter_map(|length| rest.split_off(..length));
        // Hashes of distinct inputs, so no id occurs twice.
        let id = |position: u32| sha256(&[&seed[..], &number, &position.to_le_bytes()].concat());
        let with = |block: Block, (position, receipt)| block.transaction(id(position), Some(receipt), &[]);
        (0..).zip(receipts).fold(block.body(body), with)
    }
}

impl Iterator for Generator {
    type Item = AppendBlock;

    fn next(&mut self) -> Option<AppendBlock> {
        if self.next == self.end {
            return None;
        }
        let (number, position) = (self.next, self.next - self.first);
        let hash: BlockHash = match number {
            REAL_NUMBER => self.real.hash.clone(),
            // The real block's parent gets its real hash.
            _ if number + 1 == REAL_NUMBER => self.real.parent_hash.clone(),
            _ => sha256(&[&self.parent[..], &number.to_le_bytes()].concat()).into(),
        };
        let timestamp_secs = self.start_secs + position * self.interval_secs;
        let parent_hash = self.parent.clone();
        let block = if position % REAL_EVERY == REAL_EVERY / 2 {
            AppendBlock { number, hash: hash.clone(), parent_hash, timestamp_secs, ..self.real.clone() }
        } else {
            let long = position % LONG_EVERY == LONG_EVERY / 2;
            let len = if long { LONG } else { self.body_len() };
            let block = Block::new(number, hash.clone(), parent_hash, timestamp_secs);
            self.fill(block, len).seal().expect("a generated block is within the limits")
        };
        self.parent = hash;
        self.next += 1;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::hashes::Hash;
    use ic_coppice_client::MAX_APPEND;
    use ic_coppice_interface::segments::Index;
    use std::collections::HashSet;

    fn chain(seed: u64, blocks: u64) -> Generator {
        Generator::new(seed, blocks, 1_000, 15).unwrap()
    }

    fn payload_len(block: &AppendBlock) -> usize {
        block.body.len() + block.receipts.len() + block.index.len()
    }

    #[test]
    fn blocks_are_linked_and_include_the_real_block() {
        let blocks: Vec<AppendBlock> = chain(1, 600).collect();
        assert_eq!(blocks.len(), 600);
        for pair in blocks.windows(2) {
            assert_eq!((pair[0].number + 1, &pair[0].hash), (pair[1].number, &pair[1].parent_hash));
        }
        let real: Vec<&AppendBlock> =
            blocks.iter().filter(|block| *block.body == *bitcoin_test_data::blocks::mainnet_702861()).collect();
        assert_eq!(real.len(), 2);
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&real[1].body).unwrap();
        assert_eq!(real[1].number, REAL_NUMBER);
        assert_eq!(*real[1].hash, block.block_hash().to_byte_array());
        assert_eq!(*real[1].parent_hash, block.header.prev_blockhash.to_byte_array());
        assert_ne!(real[0].hash, real[1].hash);
        assert_eq!(blocks.iter().filter(|block| payload_len(block) > MAX_APPEND).count(), 1);
    }

    #[test]
    fn same_seed_gives_the_same_chain_without_repeated_ids() {
        let (a, b): (Vec<_>, Vec<_>) = (chain(7, 60).collect(), chain(7, 60).collect());
        assert!(a == b);
        let other: Vec<_> = chain(8, 60).collect();
        assert_ne!(a[0].hash, other[0].hash);
        let index = |block: &AppendBlock| Index::parse(&block.index).unwrap().all_ids().to_vec();
        let ids: Vec<_> = a.iter().chain(&other).flat_map(index).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
