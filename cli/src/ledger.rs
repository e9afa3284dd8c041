//! Record of the appended blocks, to compare with the canister's answers.

use crate::feed;
use ic_coppice_interface::segments::ID;
use ic_coppice_interface::{AppendBlock, BlockHash, BlockHeader, BySegment};
use serde_bytes::ByteBuf;
use std::collections::HashMap;

/// The expected answers for a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    pub hash: BlockHash,
    pub parent_hash: BlockHash,
    /// Unix seconds.
    pub timestamp_secs: u64,
    /// Bytes of body, receipts and index.
    pub lengths: BySegment<u64>,
    /// SHA-256 of body, receipts and index.
    pub sha256: BySegment<ByteBuf>,
    pub transactions: u32,
    /// SHA-256 of their ids, one after the other.
    pub ids_sha256: [u8; 32],
}

impl Entry {
    /// Bytes of the block's payload.
    pub fn bytes(&self) -> u64 {
        self.lengths.sum()
    }

    /// Returns whether a header belongs to this block.
    pub fn is(&self, header: &BlockHeader) -> bool {
        let Self { number, hash, parent_hash, timestamp_secs, lengths, sha256, transactions, ids_sha256: _ } = self;
        let parent = header.parent_hash.as_ref().unwrap_or(parent_hash);
        (number, hash, parent_hash, timestamp_secs) == (&header.number, &header.hash, parent, &header.timestamp_secs)
            && (lengths, sha256, transactions) == (&header.lengths, &header.sha256, &header.transactions)
    }
}

/// All appended blocks, and the last occurrence of each transaction id.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    newest: HashMap<[u8; ID], (u64, u32)>,
}

impl Ledger {
    /// Records an appended block. Blocks must come in the order of their numbers.
    pub fn record(&mut self, block: &AppendBlock) {
        let ids = feed::ids_of(&block.index);
        self.newest.extend((0..).zip(ids).map(|(position, id)| (*id, (block.number, position))));
        self.entries.push(Entry {
            number: block.number,
            hash: block.hash.clone(),
            parent_hash: block.parent_hash.clone(),
            timestamp_secs: block.timestamp_secs,
            lengths: [&block.body, &block.receipts, &block.index].map(|segment| segment.len() as u64).into(),
            sha256: block.sha256.clone(),
            transactions: ids.len() as u32,
            ids_sha256: feed::sha256(ids.as_flattened()),
        });
    }

    /// Returns the blocks, by number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the block number and the position of an id's last occurrence.
    pub fn newest(&self, id: &[u8; ID]) -> Option<(u64, u32)> {
        self.newest.get(id).copied()
    }

    /// Returns the ids that occur in no block from `number` on, sorted.
    pub fn gone_before(&self, number: u64) -> Vec<[u8; ID]> {
        let gone = self.newest.iter().filter(|(_, at)| at.0 < number);
        let mut ids: Vec<[u8; ID]> = gone.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the number of different ids in blocks from `number` on.
    pub fn different_from(&self, number: u64) -> u64 {
        self.newest.values().filter(|at| at.0 >= number).count() as u64
    }

    /// Returns the bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(Entry::bytes).sum()
    }

    /// Returns the number of transactions in all blocks.
    pub fn transactions(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.transactions)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Block;

    #[test]
    fn repeated_id_is_found_at_its_last_occurrence() {
        let mut ledger = Ledger::default();
        for (number, ids) in [(5, [[1; 32], [2; 32]]), (6, [[3; 32], [1; 32]])] {
            let block = Block::new(number, [number as u8; 32], [0; 32], 9).body([0; 10]);
            let block = ids.into_iter().fold(block, |block, id| block.transaction(id, None, &[]));
            ledger.record(&block.seal().unwrap());
        }
        assert_eq!((ledger.newest(&[1; 32]), ledger.newest(&[2; 32])), (Some((6, 1)), Some((5, 1))));
        assert_eq!(ledger.gone_before(6), [[2; 32]]);
        assert_eq!([5, 6, 7].map(|number| ledger.different_from(number)), [3, 2, 0]);
        assert_eq!((ledger.transactions(), ledger.bytes()), (4, 2 * (10 + 8 + 64)));
    }
}
