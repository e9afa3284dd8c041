//! Answers of the methods that name a block or a transaction.

use super::error::Refusal;
use crate::Block;
use crate::answer::quantity;
use crate::source::Source;
use alloy_eips::{BlockId, BlockNumberOrTag};
use alloy_primitives::B256;
use anyhow::anyhow;
use serde_json::Value;
use std::sync::Arc;

/// The chain, and its id.
pub struct Reader {
    /// The chain to answer from.
    pub source: Box<dyn Source>,
    /// The chain's id, which no block holds.
    pub chain_id: u64,
}

/// A block in which something was found.
type Found = Result<Option<Arc<Block>>, Refusal>;

impl Reader {
    /// The number of the newest block.
    pub fn head(&self) -> Result<u64, Refusal> {
        let range = self.source.range()?;
        range.map(|range| *range.end()).ok_or(Refusal::Unknown("there is no block yet"))
    }

    /// Returns the number that a tag stands for.
    pub fn number(&self, tag: BlockNumberOrTag) -> Result<u64, Refusal> {
        match tag {
            BlockNumberOrTag::Number(number) => Ok(number),
            BlockNumberOrTag::Earliest => Ok(0),
            BlockNumberOrTag::Latest | BlockNumberOrTag::Pending => self.head(),
            BlockNumberOrTag::Safe | BlockNumberOrTag::Finalized => Err(Refusal::Invalid(format!(
                "the tag {tag} is not known here, because the canister does not know it: name a number, or latest"
            ))),
        }
    }

    fn read(&self, number: u64) -> Result<Arc<Block>, Refusal> {
        let block = self.source.blocks(&[number], &|_| true)?.pop();
        block.ok_or_else(|| anyhow!("block {number} was not read").into())
    }

    /// Returns the block that a number or tag names; `None` above the newest one.
    pub fn at(&self, tag: BlockNumberOrTag) -> Found {
        let number = self.number(tag)?;
        // Pruned blocks are an error, and blocks above the newest one are not.
        if self.source.hash(number)?.is_none() {
            return Ok(None);
        }
        self.read(number).map(Some)
    }

    /// Returns the block with an id: its own hash, or that of a transaction.
    fn with_id(&self, id: &B256) -> Found {
        let Some(number) = self.source.locate(id)? else { return Ok(None) };
        if self.source.hash(number)?.is_none() {
            return Ok(None);
        }
        let block = self.read(number)?;
        if block.hash == *id || block.position(id).is_some() {
            return Ok(Some(block));
        }
        Err(anyhow!(
            "block {number} should have {id}, and does not: a reorg replaced it meanwhile, or the replica lies"
        )
        .into())
    }

    /// Returns the block with a hash.
    pub fn with_hash(&self, hash: &B256) -> Found {
        Ok(self.with_id(hash)?.filter(|block| block.hash == *hash))
    }

    /// Returns the block that a number, a tag or a hash names.
    pub fn named(&self, id: BlockId) -> Found {
        match id {
            BlockId::Number(tag) => self.at(tag),
            BlockId::Hash(hash) => self.with_hash(&hash.block_hash),
        }
    }

    /// Returns the block with a transaction, and the transaction's position.
    pub fn transaction(&self, id: &B256) -> Result<Option<(Arc<Block>, usize)>, Refusal> {
        let found = self.with_id(id)?;
        Ok(found.and_then(|block| block.position(id).map(|position| (block, position))))
    }
}

/// Returns the transaction at a position of a block; null if the block has none there.
pub fn at_position(block: Option<Arc<Block>>, position: u64) -> Result<Value, Refusal> {
    let found = block.zip(usize::try_from(position).ok());
    match found.filter(|(block, position)| *position < block.body.transactions.len()) {
        Some((block, position)) => Ok(block.transaction(position)?),
        None => Ok(Value::Null),
    }
}

/// Returns the receipts of a block; null without a block.
pub fn receipts(block: Option<Arc<Block>>) -> Result<Value, Refusal> {
    let Some(block) = block else { return Ok(Value::Null) };
    let receipts = (0..block.receipts.len()).map(|position| block.receipt(position));
    Ok(Value::Array(receipts.collect::<Result<_, _>>()?))
}

/// Returns a number in the form of the execution API.
pub fn number(number: u64) -> Result<Value, Refusal> {
    Ok(quantity(number))
}
