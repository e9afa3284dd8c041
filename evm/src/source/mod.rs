//! Chain to answer from: a canister, or the database of an indexer.

pub mod canister;
pub mod database;
pub mod proved;
#[cfg(test)]
mod tests;

use crate::{Block, Wrong};
use alloy_consensus::Header;
use alloy_primitives::B256;
use anyhow::anyhow;
use ic_coppice_interface::segments::Receipts;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A chain of blocks, each of which is verified when it is read. Calls block.
pub trait Source: Send + Sync {
    /// Returns the numbers of the oldest and the newest block; `None` if there is none.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the chain cannot be read.
    fn range(&self) -> Result<Option<RangeInclusive<u64>>, Failure>;

    /// Returns the hash of a block; `None` above the newest one.
    ///
    /// # Errors
    /// [`Failure`] if the block was pruned or cannot be read.
    fn hash(&self, number: u64) -> Result<Option<B256>, Failure>;

    /// Reads blocks that exist, in any order, and leaves out those whose header `wants` refuses.
    ///
    /// # Errors
    /// [`Failure`] if one of them was pruned, does not exist, does not prove itself or cannot be read.
    fn blocks(&self, numbers: &[u64], wants: &(dyn Fn(&Header) -> bool + Sync)) -> Result<Vec<Arc<Block>>, Failure>;

    /// Returns the number of the newest block with an id: the hash of a transaction, or of the block itself.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the chain cannot be read.
    fn locate(&self, id: &B256) -> Result<Option<u64>, Failure>;

    /// Returns the numbers of the blocks of a range with one of the keys, in any order, and each once.
    ///
    /// # Errors
    /// [`Failure`] if the list is not complete, for example because it is longer than `most`.
    fn with_keys(&self, keys: &[Vec<u8>], range: RangeInclusive<u64>, most: usize) -> Result<Vec<u64>, Failure>;
}

/// The reason why a chain does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The block was pruned, or the database lacks it.
    #[error("the oldest available block is {first}")]
    Pruned {
        /// The number of the oldest available block.
        first: u64,
    },
    /// A list of blocks is longer than asked for.
    #[error("too many blocks; those above block {above} would be few enough")]
    TooMany {
        /// The newest block that does not fit in the list.
        above: u64,
    },
    /// The chain cannot be read, or a part of it does not prove itself.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        Self::Failed(wrong.into())
    }
}

/// The blocks of a range with some of the keys, at most so many, the newest of them.
struct Found {
    numbers: Vec<u64>,
    most: usize,
    /// The newest block that does not fit.
    above: Option<u64>,
}

impl Found {
    fn new(most: usize) -> Self {
        Self { numbers: Vec::new(), most, above: None }
    }

    /// Adds the blocks of another key, the newest first, each once. Older ones than `most` may be missing.
    fn add(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.extend(numbers);
        self.numbers.sort_unstable_by(|one, other| other.cmp(one));
        self.numbers.dedup();
        self.above = self.above.max(self.numbers.get(self.most).copied());
        self.numbers.retain(|number| Some(*number) > self.above);
    }

    fn done(self) -> Result<Vec<u64>, Failure> {
        match self.above {
            Some(above) => Err(Failure::TooMany { above }),
            None => Ok(self.numbers),
        }
    }
}

/// Decodes and verifies the segments of a block.
fn decode(number: u64, hash: B256, body: &[u8], receipts: &[u8]) -> Result<Arc<Block>, Failure> {
    let count = receipts.first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
    let parsed = Receipts::parse(receipts, count);
    let parsed = parsed.map_err(|bad| Wrong::unreadable(number, "the receipts segment", bad.why))?;
    let each = (0..count).map(|position| parsed.get(position).unwrap_or_default());
    let block = Block::decode(number, hash, body, each)?;
    // The block's own hash is the last id, and has an empty receipt.
    if block.receipts.len() as u64 + 1 != u64::from(count) {
        let why = format!("it has {} transactions and {count} receipts in the canister", block.receipts.len());
        return Err(Wrong::contradiction(number, why).into());
    }
    Ok(Arc::new(block))
}

/// Returns a hash of 32 bytes.
fn hash(bytes: &[u8], number: u64) -> Result<B256, Failure> {
    B256::try_from(bytes)
        .map_err(|_| anyhow!("block {number} has a hash of {} bytes: it is not of an EVM chain", bytes.len()).into())
}
