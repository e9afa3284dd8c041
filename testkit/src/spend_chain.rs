//! Chain of Bitcoin blocks for UTXO records, from a seed: transactions of two inputs and two outputs, which spend outputs of earlier
//! blocks and of their own block, and one transaction of thousands of inputs.
//!
//! The first block's coinbase has the outputs that the chain begins with, so a coinbase must be spendable in the next block
//! (`coinbase_maturity` 1). The number of spendable outputs stays the same from then on.

use crate::random::Random;
use bitcoin::absolute::LockTime;
use bitcoin::block::Version as BlockVersion;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash;
use bitcoin::script::Builder;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, Block, BlockHash, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness,
};
use std::collections::HashSet;

/// Blocks until a coinbase of the chain can be spent.
pub const MATURITY: u32 = 1;
/// Height of the first block.
pub const FIRST: u32 = 1_000;
/// Satoshis of an output.
const SATOSHIS: u64 = 1_000;
/// Bytes of a signature and a public key.
const UNLOCKING: usize = 107;
/// Percentage of inputs that spend an output of the same block, if there is one.
const IN_BLOCK: u64 = 40;

/// Shape of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub seed: u64,
    /// Blocks after the first one.
    pub blocks: u32,
    /// Transactions of a block besides its coinbase.
    pub per_block: usize,
    /// Spendable outputs.
    pub pool: usize,
    /// Inputs of the one wide transaction, which the block in the middle has; 0 for none.
    pub wide: usize,
}

/// The chain that is measured: 6,000 transactions, 1,000 a block, and one of 5,000 inputs.
pub const MEASURED: Shape = Shape { seed: 1, blocks: 6, per_block: 1_000, pool: 2_500, wide: 5_000 };

/// Returns the blocks of a chain, the first at height [`FIRST`].
pub fn blocks(shape: Shape) -> Vec<Block> {
    let mut random = Random::new(shape.seed);
    let first = coinbase(FIRST, 0, shape.pool + shape.wide);
    let mut old: Vec<OutPoint> = outpoints(&first).collect();
    let reserved = old.split_off(shape.pool);
    let mut blocks = vec![mined(BlockHash::all_zeros(), vec![first])];
    for at in 1..=shape.blocks {
        let mut transactions = vec![coinbase(FIRST + at, 0, 1)];
        let mut new = Vec::new();
        if at == shape.blocks.div_ceil(2) && shape.wide > 0 {
            transactions.push(spending(&mut random, &reserved, 1));
        }
        for _ in 0..shape.per_block {
            let taken = [(); 2].map(|()| take(&mut random, &mut old, &mut new));
            let transaction = spending(&mut random, &taken, 2);
            new.extend(outpoints(&transaction));
            transactions.push(transaction);
        }
        old.append(&mut new);
        let parent = blocks.last().map_or_else(BlockHash::all_zeros, Block::block_hash);
        blocks.push(mined(parent, transactions));
    }
    blocks
}

/// Returns another branch for the last `depth` blocks, one block longer. The branch leaves out each `leave`-th transaction and all that
/// spend from it, and has the others one block later.
pub fn branch(blocks: &[Block], depth: usize, leave: usize) -> Vec<Block> {
    let (trunk, rolled_back) = blocks.split_at(blocks.len() - depth);
    let mut left_out = HashSet::new();
    let mut later: Vec<Vec<Transaction>> = vec![Vec::new()];
    let mut count = 0;
    for block in rolled_back {
        let mut stays = Vec::new();
        for transaction in &block.txdata[1..] {
            count += 1;
            let orphaned = transaction.input.iter().any(|input| left_out.contains(&input.previous_output.txid));
            if orphaned || count % leave == 0 {
                left_out.insert(transaction.compute_txid());
            } else {
                stays.push(transaction.clone());
            }
        }
        later.push(stays);
    }
    let mut parent = trunk.last().map_or_else(BlockHash::all_zeros, Block::block_hash);
    let mut branch = Vec::with_capacity(later.len());
    for (height, transactions) in (FIRST + trunk.len() as u32..).zip(later) {
        let block = mined(parent, [vec![coinbase(height, 1, 1)], transactions].concat());
        parent = block.block_hash();
        branch.push(block);
    }
    branch
}

/// Takes an output of the same block, or of an earlier one.
fn take(random: &mut Random, old: &mut Vec<OutPoint>, new: &mut Vec<OutPoint>) -> OutPoint {
    let from = if !new.is_empty() && (old.is_empty() || random.below(100) < IN_BLOCK) { new } else { old };
    from.swap_remove(random.below(from.len() as u64) as usize)
}

fn outpoints(transaction: &Transaction) -> impl Iterator<Item = OutPoint> {
    let (txid, outputs) = (transaction.compute_txid(), transaction.output.len() as u32);
    (0..outputs).map(move |vout| OutPoint { txid, vout })
}

/// Returns a script that pays to a hash.
fn locking(bytes: &[u8]) -> ScriptBuf {
    ScriptBuf::from([&[0x76, 0xA9, 20][..], &bytes[..20], &[0x88, 0xAC]].concat())
}

fn spending(random: &mut Random, taken: &[OutPoint], outputs: u64) -> Transaction {
    let input = |previous_output: &OutPoint| TxIn {
        previous_output: *previous_output,
        script_sig: ScriptBuf::from(random.bytes(UNLOCKING)),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let input = taken.iter().map(input).collect();
    let value = Amount::from_sat(SATOSHIS * taken.len() as u64 / outputs);
    let output = (0..outputs).map(|_| TxOut { value, script_pubkey: locking(&random.bytes(20)) });
    Transaction { version: Version::ONE, lock_time: LockTime::ZERO, input, output: output.collect() }
}

/// Returns the coinbase of a height; `branch` tells those of one height apart.
fn coinbase(height: u32, branch: i64, outputs: usize) -> Transaction {
    let script = Builder::new().push_int(height.into()).push_int(1_000 + branch).into_script();
    let mut coinbase = genesis_block(Network::Regtest).txdata.remove(0);
    coinbase.input[0].script_sig = script;
    let output = TxOut { value: Amount::from_sat(SATOSHIS), script_pubkey: locking(&[branch as u8; 20]) };
    coinbase.output = vec![output; outputs];
    coinbase
}

fn mined(parent: BlockHash, txdata: Vec<Transaction>) -> Block {
    let mut block = genesis_block(Network::Regtest);
    block.txdata = txdata;
    // Blocks of version 2 hold their height.
    block.header.version = BlockVersion::TWO;
    block.header.prev_blockhash = parent;
    block.header.bits = CompactTarget::from_consensus(0x207F_FFFF);
    if let Some(root) = block.compute_merkle_root() {
        block.header.merkle_root = root;
    }
    while block.header.validate_pow(block.header.target()).is_err() {
        block.header.nonce += 1;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SMALL: Shape = Shape { seed: 3, blocks: 8, per_block: 20, pool: 30, wide: 50 };

    /// Returns the number of spends from the same block, after a check that each input spends an output once.
    fn checked(blocks: &[Block]) -> usize {
        let mut outputs: HashMap<OutPoint, u32> = HashMap::new();
        let mut in_block = 0;
        for (at, block) in (0..).zip(blocks) {
            assert_eq!(block.bip34_block_height().unwrap(), u64::from(FIRST + at));
            for transaction in &block.txdata {
                for input in transaction.input.iter().filter(|_| !transaction.is_coinbase()) {
                    let made = outputs.remove(&input.previous_output).expect("an unspent output");
                    in_block += usize::from(made == at);
                }
                outputs.extend(outpoints(transaction).map(|outpoint| (outpoint, at)));
            }
        }
        for pair in blocks.windows(2) {
            assert_eq!(pair[1].header.prev_blockhash, pair[0].block_hash());
        }
        in_block
    }

    #[test]
    fn chain_spends_each_output_once_within_blocks_too() {
        let chain = blocks(SMALL);
        assert!(chain == blocks(SMALL) && chain != blocks(Shape { seed: 4, ..SMALL }));
        assert!(checked(&chain) > 60);
        let sizes: Vec<usize> = chain.iter().map(|block| block.txdata.len()).collect();
        assert_eq!(sizes, [1, 21, 21, 21, 22, 21, 21, 21, 21]);
        assert_eq!(chain[4].txdata[1].input.len(), 50);
    }

    #[test]
    fn branch_has_most_transactions_one_block_later() {
        let chain = blocks(SMALL);
        let branch = branch(&chain, 5, 10);
        assert_eq!(branch.len(), 6);
        checked(&[&chain[..4], &branch].concat());
        let count = |blocks: &[Block]| blocks.iter().map(|block| block.txdata.len() - 1).sum::<usize>();
        assert!((20..count(&chain[4..])).contains(&count(&branch)), "{}", count(&branch));
        assert_ne!(branch[0].txdata[0].compute_txid(), chain[4].txdata[0].compute_txid());
    }
}
