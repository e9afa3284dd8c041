//! `eth_getLogs`.
//!
//! | range | read |
//! |---|---|
//! | at most 1,000 blocks, or one block by its hash | the header of each block; the whole block where the bloom may match |
//! | more | the index of the emitters or first topics that the filter names, and then the blocks with these keys |

use super::error::Refusal;
use super::reader::Reader;
use crate::Block;
use crate::answer::value;
use crate::index::{emitter, topic};
use crate::source::Failure;
use alloy_eips::BlockNumberOrTag;
use alloy_rpc_types_eth::{Filter, FilterBlockOption};
use anyhow::anyhow;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Blocks of a range that are read without an index.
pub const MOST_BLOCKS: u64 = 1_000;
/// Most addresses or first topics for which more blocks are searched, each by a query of the canister.
const MOST_KEYS: usize = 50;
/// Blocks with a key that are read.
const MOST_FOUND: usize = 10_000;
/// Logs of an answer.
const MOST_LOGS: usize = 20_000;
/// Blocks that are read in one step.
const STEP: usize = 64;

impl Reader {
    /// Returns all logs that match a filter, the oldest first.
    pub fn logs(&self, filter: &Filter) -> Result<Value, Refusal> {
        let FilterBlockOption::Range { from_block, to_block } = filter.block_option else {
            let hash = filter.get_block_hash().unwrap_or_default();
            let block = self.with_hash(&hash)?.ok_or(Refusal::Unknown("unknown block"))?;
            return Ok(Value::Array(matching(&block, filter).collect()));
        };
        let head = self.head()?;
        let number = |tag: Option<BlockNumberOrTag>| self.number(tag.unwrap_or_default());
        let (from, to) = (number(from_block)?, number(to_block)?);
        if from > to {
            return Err(Refusal::Invalid(format!("fromBlock, {from}, is above toBlock, {to}")));
        }
        if to > head {
            return Err(Refusal::Invalid(format!("toBlock, {to}, is above {head}, the newest block")));
        }
        // A pruned beginning would make the answer partial.
        self.source.hash(from)?;
        let before = self.source.hash(to)?;
        let logs = self.in_blocks(&self.candidates(filter, from..=to)?, filter, from)?;
        if self.source.hash(to)? != before {
            return Err(anyhow!("a reorg replaced blocks of the range meanwhile: ask again").into());
        }
        Ok(Value::Array(logs))
    }

    /// Returns the numbers of the blocks that may have matching logs, the oldest first.
    fn candidates(&self, filter: &Filter, range: RangeInclusive<u64>) -> Result<Vec<u64>, Refusal> {
        let (from, to) = range.clone().into_inner();
        if to - from < MOST_BLOCKS {
            return Ok(range.collect());
        }
        let keys: Vec<Vec<u8>> = match filter.address.is_empty() {
            false => filter.address.iter().map(emitter).collect(),
            true => filter.topics[0].iter().map(|value| topic(0, value)).collect(),
        };
        if keys.is_empty() {
            let why = format!("more than {MOST_BLOCKS} blocks need an address or a first topic");
            return Err(Refusal::Limit(why, from..=from + MOST_BLOCKS - 1));
        }
        if keys.len() > MOST_KEYS {
            let why = format!(
                "more than {MOST_BLOCKS} blocks are searched for at most {MOST_KEYS} addresses or first topics"
            );
            return Err(Refusal::Limit(why, from..=from + MOST_BLOCKS - 1));
        }
        let mut numbers = match self.source.with_keys(&keys, range, MOST_FOUND) {
            Ok(numbers) => numbers,
            Err(Failure::TooMany { above, .. }) => {
                let why = format!("more than {MOST_FOUND} blocks have the addresses or topics");
                return Err(Refusal::Limit(why, above + 1..=to));
            }
            Err(failure) => return Err(failure.into()),
        };
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Returns the matching logs of blocks.
    fn in_blocks(&self, numbers: &[u64], filter: &Filter, from: u64) -> Result<Vec<Value>, Refusal> {
        let mut logs = Vec::new();
        for some in numbers.chunks(STEP) {
            let mut blocks = self.source.blocks(some, &|header| filter.matches_bloom(header.logs_bloom))?;
            blocks.sort_unstable_by_key(|block| block.number());
            for block in blocks {
                logs.extend(matching(&block, filter));
                // The logs of the first block are always answered, because no smaller range exists.
                if logs.len() > MOST_LOGS && block.number() > from {
                    let why = format!("more than {MOST_LOGS} logs match");
                    return Err(Refusal::Limit(why, from..=block.number() - 1));
                }
            }
        }
        Ok(logs)
    }
}

/// Returns the logs of a block that match the addresses and topics of a filter.
fn matching<'a>(block: &'a Block, filter: &'a Filter) -> impl Iterator<Item = Value> + 'a {
    let logs = (0..block.receipts.len()).flat_map(|position| block.logs(position));
    logs.filter(|log| filter.matches(&log.inner)).map(value)
}
