//! Short chain of Bitcoin blocks: coinbases, spends, and a transaction that is longer than a message.

use bitcoin::absolute::LockTime;
use bitcoin::block::Version;
use bitcoin::consensus::serialize;
use bitcoin::constants::genesis_block;
use bitcoin::script::Builder;
use bitcoin::{
    Amount, Block, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness,
    transaction,
};

/// Height of the first block.
const FIRST: i64 = 1_000;

/// Returns the blocks.
pub fn chain() -> Vec<Block> {
    let mut blocks = Vec::new();
    (0..3).for_each(|_| push(&mut blocks, Vec::new()));
    let parent = spending(&blocks[0].txdata[0], 0, vec![output(30, vec![1]), output(20, vec![2])]);
    let long = spending(&parent, 0, vec![output(29, vec![3; 2_100_000])]);
    let heir = spending(&parent, 1, vec![output(19, vec![4])]);
    push(&mut blocks, vec![parent]);
    push(&mut blocks, vec![long]);
    push(&mut blocks, vec![heir]);
    blocks
}

/// Returns the blocks in the format of `blk*.dat`.
pub fn framed(blocks: &[Block]) -> Vec<u8> {
    let frame = |block: &Block| {
        let raw = serialize(block);
        [&[0xFA, 0xBF, 0xB5, 0xDA][..], &(raw.len() as u32).to_le_bytes(), &raw].concat()
    };
    blocks.iter().flat_map(frame).collect()
}

fn output(satoshis: u64, script: Vec<u8>) -> TxOut {
    TxOut { value: Amount::from_sat(satoshis), script_pubkey: ScriptBuf::from(script) }
}

fn spending(parent: &Transaction, vout: u32, output: Vec<TxOut>) -> Transaction {
    let input = TxIn {
        previous_output: OutPoint { txid: parent.compute_txid(), vout },
        script_sig: ScriptBuf::from(vec![0x51]),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    Transaction { version: transaction::Version::ONE, lock_time: LockTime::ZERO, input: vec![input], output }
}

fn push(blocks: &mut Vec<Block>, transactions: Vec<Transaction>) {
    let mut block = genesis_block(Network::Regtest);
    if let Some(parent) = blocks.last() {
        block.header.prev_blockhash = parent.block_hash();
    }
    let height = FIRST + blocks.len() as i64;
    let mut coinbase = block.txdata.remove(0);
    coinbase.input[0].script_sig = Builder::new().push_int(height).push_int(1_000).into_script();
    coinbase.output = vec![output(50, vec![0x51, height as u8])];
    block.txdata = [vec![coinbase], transactions].concat();
    // Blocks of version 2 hold their height.
    block.header.version = Version::TWO;
    block.header.bits = CompactTarget::from_consensus(0x207F_FFFF);
    block.header.merkle_root = block.compute_merkle_root().unwrap();
    while block.header.validate_pow(block.header.target()).is_err() {
        block.header.nonce += 1;
    }
    blocks.push(block);
}
