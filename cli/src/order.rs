//! Sorts blocks into parent order, whatever their order in the files.

use crate::blk::Found;
use bitcoin::BlockHash;
use std::collections::HashMap;

/// Blocks in parent order, and the blocks that are left out.
#[derive(Debug)]
pub struct Ordered {
    /// The longest chain, from its first block on.
    pub chain: Vec<Found>,
    /// The runs of blocks that are left out, each with the reason.
    pub left_out: Vec<LeftOut>,
    /// Blocks that were found again.
    pub duplicates: usize,
}

/// A run of blocks that are not part of the longest chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The first block.
    pub first: BlockHash,
    /// The last block.
    pub last: BlockHash,
    /// Number of blocks.
    pub blocks: usize,
    /// The reason.
    pub why: Why,
}

/// The reason why blocks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// They branch off after this block.
    Fork(BlockHash),
    /// The parent of the first block is not in the files, and the chain that begins there is not the longest.
    UnknownParent(BlockHash),
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, last, blocks, .. } = self;
        match blocks {
            1 => write!(f, "block {first} is left out: ")?,
            _ => write!(f, "{blocks} blocks from {first} to {last} are left out: ")?,
        }
        match self.why {
            Why::Fork(parent) => write!(f, "a fork after {parent}"),
            Why::UnknownParent(parent) => write!(f, "the parent {parent} is not in the files"),
        }
    }
}

/// Orders blocks by their parents. Chooses the chain with the most blocks; of equally long chains the one whose tip was found first.
pub fn order(found: Vec<Found>) -> Ordered {
    let mut by_hash: HashMap<BlockHash, usize> = HashMap::with_capacity(found.len());
    let mut blocks: Vec<Found> = Vec::with_capacity(found.len());
    let all = found.len();
    for block in found {
        by_hash.entry(block.hash).or_insert_with(|| {
            blocks.push(block);
            blocks.len() - 1
        });
    }
    let parents: Vec<Option<usize>> =
        blocks.iter().map(|block| by_hash.get(&block.header.prev_blockhash).copied()).collect();
    let heights = heights(&parents);

    let mut chosen = vec![false; blocks.len()];
    let tip = (0..blocks.len()).max_by_key(|&block| (heights[block], std::cmp::Reverse(block)));
    let mut chain: Vec<usize> = std::iter::successors(tip, |&block| parents[block]).collect();
    chain.reverse();
    chain.iter().for_each(|&block| chosen[block] = true);
    let left_out = left_out(&blocks, &parents, &heights, &mut chosen);
    Ordered {
        duplicates: all - blocks.len(),
        left_out,
        chain: chain.into_iter().map(|block| blocks[block].clone()).collect(),
    }
}

/// Returns the height of each block in its chain, starting at 1. Ends, because no block can be its own ancestor.
fn heights(parents: &[Option<usize>]) -> Vec<u32> {
    let mut heights = vec![0; parents.len()];
    for block in 0..parents.len() {
        let unknown: Vec<usize> = std::iter::successors(Some(block), |&block| parents[block])
            .take_while(|&block| heights[block] == 0)
            .collect();
        for &block in unknown.iter().rev() {
            heights[block] = 1 + parents[block].map_or(0, |parent| heights[parent]);
        }
    }
    heights
}

/// Returns the blocks that were not chosen as runs, the longest chain first.
fn left_out(blocks: &[Found], parents: &[Option<usize>], heights: &[u32], seen: &mut [bool]) -> Vec<LeftOut> {
    let mut tips: Vec<usize> = (0..blocks.len()).filter(|&block| !seen[block]).collect();
    tips.sort_by_key(|&block| (std::cmp::Reverse(heights[block]), block));
    let mut runs = Vec::new();
    for tip in tips {
        let run: Vec<usize> =
            std::iter::successors(Some(tip), |&block| parents[block]).take_while(|&block| !seen[block]).collect();
        let Some(&first) = run.last() else { continue };
        run.iter().for_each(|&block| seen[block] = true);
        let parent = blocks[first].header.prev_blockhash;
        let why = if parents[first].is_some() { Why::Fork(parent) } else { Why::UnknownParent(parent) };
        runs.push(LeftOut { first: blocks[first].hash, last: blocks[tip].hash, blocks: run.len(), why });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blk;
    use crate::blk::tests::{child, framed};
    use bitcoin::Block;
    use bitcoin::hashes::Hash;

    fn chain(parent: BlockHash, blocks: u32, salt: u32) -> Vec<Block> {
        let mut all: Vec<Block> = Vec::new();
        for block in 0..blocks {
            all.push(child(all.last().map_or(parent, Block::block_hash), salt + block));
        }
        all
    }

    fn ordered(blocks: &[Block]) -> Ordered {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blk00000.dat");
        std::fs::write(&path, framed(blocks)).unwrap();
        order(blk::scan(&[path]).unwrap().blocks)
    }

    fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
        blocks.iter().map(Block::block_hash).collect()
    }

    #[test]
    fn shuffled_blocks_are_sorted_and_duplicates_dropped() {
        let blocks = chain(BlockHash::all_zeros(), 6, 0);
        let shuffled = [4, 1, 5, 0, 3, 2, 1, 5].map(|block: usize| blocks[block].clone());
        let ordered = ordered(&shuffled);
        assert_eq!(ordered.chain.iter().map(|found| found.hash).collect::<Vec<_>>(), hashes(&blocks));
        assert_eq!((ordered.duplicates, ordered.left_out), (2, vec![]));
    }

    #[test]
    fn forks_and_unknown_parents_are_left_out_and_listed() {
        let main = chain(BlockHash::all_zeros(), 5, 0);
        let fork = chain(main[1].block_hash(), 2, 100);
        let orphan = chain(BlockHash::from_byte_array([7; 32]), 1, 200);
        let ordered = ordered(&[orphan.clone(), fork.clone(), main.clone()].concat());
        assert_eq!(ordered.chain.iter().map(|found| found.hash).collect::<Vec<_>>(), hashes(&main));
        let expected = [
            LeftOut {
                first: fork[0].block_hash(),
                last: fork[1].block_hash(),
                blocks: 2,
                why: Why::Fork(main[1].block_hash()),
            },
            LeftOut {
                first: orphan[0].block_hash(),
                last: orphan[0].block_hash(),
                blocks: 1,
                why: Why::UnknownParent(BlockHash::from_byte_array([7; 32])),
            },
        ];
        assert_eq!(ordered.left_out, expected);
        assert!(expected[0].to_string().contains("2 blocks") && expected[1].to_string().contains("not in the files"));
    }

    #[test]
    fn first_found_of_equally_long_chains_is_chosen() {
        let root = chain(BlockHash::all_zeros(), 1, 0);
        let (a, b) = (chain(root[0].block_hash(), 1, 10), chain(root[0].block_hash(), 1, 20));
        let ordered = ordered(&[root.clone(), b.clone(), a].concat());
        assert_eq!(ordered.chain[1].hash, b[0].block_hash());
        assert_eq!(ordered.left_out.len(), 1);
    }
}
