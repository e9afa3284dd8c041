//! Sorts blocks into parent order, whatever their order in the files, and chooses the chain with the most work.
//!
//! A block without a good copy keeps its place, because its header proves its work: the chain ends before the block.

use crate::blk::{Foreign, Found, Scan};
use crate::report::blocks;
use crate::rules::{Fault, NetworkRules};
use anyhow::{Result, bail};
use bitcoin::BlockHash;
use bitcoin::hashes::Hash;
use bitcoin::pow::Work;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

/// Blocks in parent order, and the blocks that are left out.
#[derive(Debug)]
pub struct Ordered {
    /// The chain with the most work, from its first block on, up to a block without a good copy.
    pub chain: Vec<Found>,
    /// The runs of blocks that are left out, each with the reason.
    pub left_out: Vec<LeftOut>,
    /// Good copies of blocks that have another one.
    pub duplicates: usize,
    /// The files none of whose blocks connects to the chain.
    pub strangers: Vec<Stranger>,
    /// The block before which the chain ends, because no copy of it is good.
    pub broken: Option<Found>,
    /// The place, as file and byte, that may have held the missing parent of blocks that are left out.
    pub lost: Option<(Rc<Path>, usize)>,
    /// The first bytes of the files that may be blocks in another form.
    pub foreign: Option<Foreign>,
}

/// A run of blocks that are not part of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub first: BlockHash,
    pub last: BlockHash,
    pub blocks: usize,
    pub why: Why,
}

/// The reason why blocks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// They branch off after this block.
    Fork(BlockHash),
    /// The parent of the first block is not in the files, and the chain that begins there is not the chosen one.
    UnknownParent(BlockHash),
    /// No copy of the first block is good.
    NoGoodCopy(Fault),
}

/// A file none of whose blocks connects to the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    pub file: String,
    pub blocks: u64,
    /// The first of their chain, if it has no parent.
    pub genesis: Option<BlockHash>,
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
            Why::NoGoodCopy(_) => write!(f, "the first has no good copy"),
        }
    }
}

impl std::fmt::Display for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, blocks: number, genesis } = self;
        let number = blocks(*number);
        match genesis {
            Some(genesis) => write!(f, "{file}: another chain with the same magic, {number} that begin with {genesis}"),
            None => write!(
                f,
                "{file}: {number} without a connection to the chain: another chain with the same magic, or blocks between are missing"
            ),
        }
    }
}

/// The parents and the work of blocks.
struct Tree<'a> {
    blocks: &'a [Found],
    parents: Vec<Option<usize>>,
    /// The work of each block and of its ancestors in the files.
    work: Vec<Work>,
    /// The first ancestor of each block; of branches that continue the same block outside the files, the first found.
    roots: Vec<usize>,
}

impl<'a> Tree<'a> {
    fn new(blocks: &'a [Found]) -> Self {
        let by_hash: HashMap<BlockHash, usize> = blocks.iter().zip(0..).map(|(block, at)| (block.hash, at)).collect();
        let parents = blocks.iter().map(|block| by_hash.get(&block.header.prev_blockhash).copied()).collect();
        let work = blocks.iter().map(|block| block.header.work()).collect();
        let mut tree = Self { blocks, parents, work, roots: vec![usize::MAX; blocks.len()] };
        let mut outside: HashMap<BlockHash, usize> = HashMap::new();
        for block in 0..blocks.len() {
            // Ends, because no block can be its own ancestor.
            let new: Vec<usize> = tree.branch(block, |block| tree.roots[block] == usize::MAX);
            for &block in new.iter().rev() {
                let before = blocks[block].header.prev_blockhash;
                tree.roots[block] = match tree.parents[block] {
                    Some(parent) => {
                        tree.work[block] = tree.work[block] + tree.work[parent];
                        tree.roots[parent]
                    }
                    // Blocks without a parent begin chains of their own.
                    None if before == BlockHash::all_zeros() => block,
                    None => *outside.entry(before).or_insert(block),
                };
            }
        }
        tree
    }

    /// Returns a block and its ancestors, as long as they are wanted.
    fn branch(&self, tip: usize, is_wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        std::iter::successors(Some(tip), |&block| self.parents[block]).take_while(|&block| is_wanted(block)).collect()
    }

    /// Returns for each block whether its chain begins with the genesis of a network, or follows one.
    fn rooted(&self) -> Vec<bool> {
        let geneses = NetworkRules::ALL.map(NetworkRules::genesis);
        let is_rooted = |&root: &usize| {
            let root = &self.blocks[root];
            geneses.contains(&root.hash) || geneses.contains(&root.header.prev_blockhash)
        };
        self.roots.iter().map(is_rooted).collect()
    }

    /// Returns the blocks that were not chosen as runs, the ones with the most work first. The chosen chain has this root.
    fn left_out(&self, seen: &mut [bool], root: Option<usize>) -> Vec<LeftOut> {
        let mut tips: Vec<usize> = (0..self.blocks.len()).filter(|&block| !seen[block]).collect();
        tips.sort_by_key(|&block| (Reverse(self.work[block]), block));
        let mut runs = Vec::new();
        for tip in tips {
            let run = self.branch(tip, |block| !seen[block]);
            let Some(&first) = run.last() else { continue };
            run.iter().for_each(|&block| seen[block] = true);
            let block = &self.blocks[first];
            let parent = block.header.prev_blockhash;
            let why = match (block.fault, self.parents[first]) {
                (Some(fault), _) => Why::NoGoodCopy(fault),
                (None, Some(_)) => Why::Fork(parent),
                (None, None) if Some(self.roots[first]) == root => Why::Fork(parent),
                (None, None) => Why::UnknownParent(parent),
            };
            runs.push(LeftOut { first: block.hash, last: self.blocks[tip].hash, blocks: run.len(), why });
        }
        runs
    }

    /// Returns the files without a block in the tree of this root.
    fn strangers(&self, root: usize) -> Vec<Stranger> {
        let mut files: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
        for (block, found) in self.blocks.iter().enumerate() {
            files.entry(found.path()).or_default().push(block);
        }
        files.retain(|_, blocks| blocks.iter().all(|&block| self.roots[block] != root));
        let stranger = |(path, blocks): (&Path, Vec<usize>)| {
            let roots = blocks.iter().map(|&block| &self.blocks[self.roots[block]]);
            let genesis = roots.into_iter().find(|root| root.header.prev_blockhash == BlockHash::all_zeros());
            Stranger {
                file: path.display().to_string(),
                blocks: blocks.len() as u64,
                genesis: genesis.map(|root| root.hash),
            }
        };
        files.into_iter().map(stranger).collect()
    }
}

/// Orders blocks by their parents. Chooses the chain with the most work in the files; of chains with equal work the one whose tip was found
/// first. A chain from a genesis on goes before a chain that begins elsewhere, because the work before that is unknown.
pub fn order(scan: Scan) -> Ordered {
    let tree = Tree::new(&scan.blocks);
    let rooted = tree.rooted();
    let tip = (0..scan.blocks.len()).max_by_key(|&block| (rooted[block], tree.work[block], Reverse(block)));
    let mut chain = tip.map(|tip| tree.branch(tip, |_| true)).unwrap_or_default();
    chain.reverse();
    let root = tip.map(|tip| tree.roots[tip]);
    let strangers = root.map(|root| tree.strangers(root)).unwrap_or_default();
    let good = chain.iter().position(|&block| scan.blocks[block].fault.is_some()).unwrap_or(chain.len());
    let broken = chain.get(good).map(|&block| scan.blocks[block].clone());
    chain.truncate(good);
    let mut seen = vec![false; scan.blocks.len()];
    chain.iter().for_each(|&block| seen[block] = true);
    let left_out = tree.left_out(&mut seen, root);
    let is_torn = left_out.iter().any(|run| matches!(run.why, Why::UnknownParent(_)));
    Ordered {
        left_out,
        chain: chain.into_iter().map(|block| scan.blocks[block].clone()).collect(),
        duplicates: scan.duplicates,
        strangers,
        broken,
        lost: scan.lost.clone().filter(|_| is_torn),
        foreign: scan.foreign.clone(),
    }
}

impl Ordered {
    pub fn left_out_blocks(&self) -> u64 {
        self.left_out.iter().map(|run| run.blocks as u64).sum()
    }

    /// Checks that the chain does not end before a block without a good copy, or before one of which nothing is left, and that all bytes of
    /// the files were read.
    ///
    /// # Errors
    /// When it does, or some were not.
    pub fn check_whole(&self) -> Result<()> {
        let Some(block) = &self.broken else {
            if let Some((path, at)) = &self.lost {
                bail!(
                    "the chain may end too early, after {}: byte {at} of {} is not the block that may have been there, and blocks are left \
                     out because their parent is in no file; name a file with that block, and start the command again",
                    blocks(self.chain.len() as u64),
                    path.display()
                );
            }
            return self.foreign.clone().map_or(Ok(()), |foreign| Err(foreign.into()));
        };
        let (hash, place, length) = (block.hash, block.place(), blocks(self.chain.len() as u64));
        let fault = block.fault.map(|fault| format!(": {fault}")).unwrap_or_default();
        bail!(
            "the chain ends after {length}, because no copy of block {hash} is good, {place}{fault}; name a file with a good copy, and \
             start the command again"
        );
    }
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

    fn ordered_files(files: &[&[Block]]) -> Ordered {
        let dir = tempfile::tempdir().unwrap();
        for (number, blocks) in files.iter().enumerate() {
            std::fs::write(dir.path().join(format!("blk{number:05}.dat")), framed(blocks)).unwrap();
        }
        order(blk::scan(&[dir.path().into()], None).unwrap())
    }

    fn ordered(blocks: &[Block]) -> Ordered {
        ordered_files(&[blocks])
    }

    fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
        blocks.iter().map(Block::block_hash).collect()
    }

    fn chosen(ordered: &Ordered) -> Vec<BlockHash> {
        ordered.chain.iter().map(|found| found.hash).collect()
    }

    /// Damages a block, which keeps its header.
    fn damaged(block: &Block) -> Block {
        let mut block = block.clone();
        block.txdata[0].lock_time = bitcoin::absolute::LockTime::from_consensus(7_777);
        block
    }

    #[test]
    fn shuffled_blocks_are_sorted_and_duplicates_dropped() {
        let blocks = chain(BlockHash::all_zeros(), 6, 0);
        let shuffled = [4, 1, 5, 0, 3, 2, 1, 5].map(|block: usize| blocks[block].clone());
        let ordered = ordered(&shuffled);
        assert_eq!(chosen(&ordered), hashes(&blocks));
        assert_eq!((ordered.duplicates, &ordered.left_out[..], &ordered.strangers[..]), (2, &[][..], &[][..]));
        ordered.check_whole().unwrap();
    }

    #[test]
    fn forks_and_unknown_parents_are_left_out_and_listed() {
        let main = chain(BlockHash::all_zeros(), 5, 0);
        let fork = chain(main[1].block_hash(), 2, 100);
        let orphan = chain(BlockHash::from_byte_array([7; 32]), 1, 200);
        let ordered = ordered(&[orphan.clone(), fork.clone(), main.clone()].concat());
        assert_eq!(chosen(&ordered), hashes(&main));
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
        // The orphan's file also has blocks of the chain.
        assert_eq!(ordered.strangers, []);
    }

    #[test]
    fn file_of_another_chain_is_named_also_with_children_before_parents() {
        let main = chain(BlockHash::all_zeros(), 6, 0);
        let mut others = [chain(BlockHash::all_zeros(), 4, 100), chain(BlockHash::from_byte_array([7; 32]), 3, 200)];
        others.iter_mut().for_each(|blocks| blocks.reverse());
        let ordered = ordered_files(&[&others[0], &others[1], &main]);
        assert_eq!(chosen(&ordered), hashes(&main));
        let names: Vec<String> = ordered.strangers.iter().map(Stranger::to_string).collect();
        let [first, second] = &names[..] else { panic!("{names:?}") };
        let genesis = others[0][3].block_hash().to_string();
        assert!(first.contains("blk00000.dat: another chain") && first.contains(&genesis), "{first}");
        assert!(second.contains("blk00001.dat: 3 blocks without a connection"), "{second}");
    }

    #[test]
    fn first_found_of_chains_with_equal_work_is_chosen() {
        let root = chain(BlockHash::all_zeros(), 1, 0);
        let (a, b) = (chain(root[0].block_hash(), 1, 10), chain(root[0].block_hash(), 1, 20));
        let ordered = ordered(&[root.clone(), b.clone(), a].concat());
        assert_eq!(ordered.chain[1].hash, b[0].block_hash());
        assert_eq!(ordered.left_out.len(), 1);
    }

    #[test]
    fn branches_after_the_first_blocks_parent_are_forks_of_one_chain() {
        let parent = BlockHash::from_byte_array([7; 32]);
        let (short, long) = (chain(parent, 1, 10), chain(parent, 2, 20));
        let files = |files: &[&[Block]]| ordered_files(files);
        // A frame of random bytes at the end, which could be the missing parent of nothing.
        let junk = [&NetworkRules::Regtest.magic()[..], &[200, 0, 0, 0], &[9; 200]].concat();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one.dat"), [framed(&short), framed(&long), junk].concat()).unwrap();
        let one = order(blk::scan(&[dir.path().into()], None).unwrap());
        for ordered in [one, files(&[&short, &long]), files(&[&long, &short])] {
            assert_eq!(chosen(&ordered), hashes(&long));
            let [left_out] = &ordered.left_out[..] else { panic!("{:?}", ordered.left_out) };
            let expected = format!("block {} is left out: a fork after {parent}", short[0].block_hash());
            assert_eq!((left_out.to_string(), &ordered.strangers[..]), (expected, &[][..]));
            ordered.check_whole().unwrap();
        }
    }

    #[test]
    fn chain_ends_before_a_block_without_a_good_copy() {
        let main = chain(BlockHash::all_zeros(), 6, 0);
        let fork = chain(main[1].block_hash(), 2, 100);
        let mut blocks = main.clone();
        blocks[3] = damaged(&main[3]);
        let ordered = ordered_files(&[&blocks, &fork]);
        // The fork has less work than the chain that goes on after the damaged block.
        assert_eq!(chosen(&ordered), hashes(&main[..3]));
        let error = ordered.check_whole().unwrap_err().to_string();
        assert!(error.contains(&main[3].block_hash().to_string()) && error.contains("blk00000.dat"), "{error}");
        assert!(error.contains("damaged") && error.contains("after 3 blocks"), "{error}");
        assert_eq!((ordered.left_out[0].blocks, ordered.left_out[0].why), (3, Why::NoGoodCopy(Fault::Damaged)));
        assert_eq!(ordered.left_out_blocks(), 5);
        // Nothing is left of a block, so its children have no parent.
        let mut bytes = framed(&main);
        let frame = bytes.len() / main.len();
        bytes[3 * frame + 20] ^= 1;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("torn.dat"), bytes).unwrap();
        let torn = order(blk::scan(&[dir.path().into()], None).unwrap());
        assert_eq!(chosen(&torn), hashes(&main[..3]));
        let error = torn.check_whole().unwrap_err().to_string();
        assert!(error.contains("torn.dat") && error.contains(&format!("byte {}", 3 * frame)), "{error}");
        // A good copy anywhere makes it whole, and a damaged block of a fork is only left out.
        ordered_files(&[&blocks, &main[3..4]]).check_whole().unwrap();
        let ordered = ordered_files(&[&main, &[damaged(&fork[0]), fork[1].clone()]]);
        assert_eq!(chosen(&ordered), hashes(&main));
        ordered.check_whole().unwrap();
        // The first block.
        blocks[0] = damaged(&main[0]);
        let ordered = ordered_files(&[&blocks]);
        assert!(ordered.chain.is_empty() && ordered.check_whole().is_err());
    }

    #[test]
    fn chain_from_a_genesis_goes_before_a_block_with_more_work_that_floats() {
        let dir = tempfile::tempdir().unwrap();
        let rooted = chain(NetworkRules::Regtest.genesis(), 3, 0);
        std::fs::write(dir.path().join("blk00000.dat"), framed(&rooted)).unwrap();
        std::fs::write(dir.path().join("real.raw"), bitcoin_test_data::blocks::mainnet_702861()).unwrap();
        let scan = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| dir.path().join(name)).collect();
            order(blk::scan(&paths, None).unwrap())
        };
        assert_eq!(chosen(&scan(&["real.raw", "blk00000.dat"])), hashes(&rooted));
        // Between chains that float, work decides.
        let floating = chain(BlockHash::from_byte_array([7; 32]), 3, 0);
        std::fs::write(dir.path().join("blk00000.dat"), framed(&floating)).unwrap();
        assert_eq!(scan(&["blk00000.dat", "real.raw"]).chain.len(), 1);
    }
}
