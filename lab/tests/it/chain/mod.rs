//! Bitcoin blocks generated here, and the UTXO set that any blocks imply, computed only with the `bitcoin` crate.

use bitcoin::absolute::LockTime;
use bitcoin::consensus::{Encodable, serialize};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::{Hash, sha256};
use bitcoin::script::Builder;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, Block, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, VarInt,
    Witness,
};
use candid::Encode;
use ic_coppice_cli::client::{Client, Transport};
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Returns a txid's bytes in the canister's order.
pub fn internal(txid: Txid) -> [u8; 32] {
    txid.to_byte_array()
}

/// An output of the set.
#[derive(Clone, Debug)]
pub struct Output {
    pub hash: [u8; 32],
    pub satoshis: u64,
    pub coinbase: bool,
    pub height: u32,
}

/// The expected contents of the store.
#[derive(Debug, Default)]
pub struct Expected {
    pub height: u32,
    /// Blocks until a coinbase can be spent.
    pub maturity: u32,
    /// Transactions, with the heights of their blocks: before BIP 30 a coinbase could be repeated.
    pub transactions: BTreeMap<Txid, (Transaction, Vec<u32>)>,
    pub unspent: BTreeMap<OutPoint, Output>,
    /// Spent outputs, with the spending input.
    pub spent: BTreeMap<OutPoint, (Output, Txid, u32)>,
    /// Inputs that spend outputs of transactions in none of the blocks.
    pub without_record: usize,
}

impl Expected {
    /// Computes the set after these blocks, the first at height `first`.
    pub fn of(first: u32, blocks: &[Block]) -> Self {
        let mut set = Self { height: first + blocks.len() as u32 - 1, maturity: 100, ..Self::default() };
        for (height, block) in (first..).zip(blocks) {
            for transaction in &block.txdata {
                set.apply(transaction, height);
            }
        }
        set
    }

    fn apply(&mut self, transaction: &Transaction, height: u32) {
        let (txid, coinbase) = (transaction.compute_txid(), transaction.is_coinbase());
        if let Some((_, heights)) = self.transactions.get_mut(&txid) {
            heights.push(height);
            // A repeated coinbase can be spent once the higher block is mature.
            for output in self.unspent.iter_mut().filter(|(at, _)| at.txid == txid).map(|(_, output)| output) {
                output.height = output.height.max(height);
            }
            return;
        }
        for (vin, input) in (0..).zip(&transaction.input).filter(|_| !coinbase) {
            match self.unspent.remove(&input.previous_output) {
                Some(output) => {
                    self.spent.insert(input.previous_output, (output, txid, vin));
                }
                None => {
                    assert!(!self.transactions.contains_key(&input.previous_output.txid), "a double spend");
                    self.without_record += 1;
                }
            }
        }
        for (vout, output) in (0..).zip(&transaction.output) {
            let unspendable = output.script_pubkey.as_bytes().starts_with(&[0x6A])
                || output.script_pubkey.as_bytes().starts_with(&[0x00, 0x6A]);
            if output.value == Amount::ZERO && unspendable {
                continue;
            }
            let mut bytes = serialize(&txid);
            VarInt(vout.into()).consensus_encode(&mut bytes).unwrap();
            bytes.extend(output.script_pubkey.as_bytes());
            VarInt(output.value.to_sat()).consensus_encode(&mut bytes).unwrap();
            let hash = sha256::Hash::hash(&bytes).to_byte_array();
            let output = Output { hash, satoshis: output.value.to_sat(), coinbase, height };
            self.unspent.insert(OutPoint { txid, vout }, output);
        }
        self.transactions.insert(txid, (transaction.clone(), vec![height]));
    }

    /// Returns the sum of all unspent outputs.
    pub fn satoshis(&self) -> u64 {
        self.unspent.values().map(|output| output.satoshis).sum()
    }

    /// Compares a canister's store: each outpoint, each record, each transaction's bytes.
    pub fn check(&self, client: &Client<impl Transport>) {
        let storage: StorageStatus = ask(client, "get_storage_status", candid::encode_args(()).unwrap());
        assert_eq!(storage.utxo.unwrap().records, self.transactions.len() as u64);
        assert_eq!((storage.utxo.unwrap().unmined, storage.utxo.unwrap().preserved), (0, 0));
        let all: Vec<(&OutPoint, &Output, Option<Spender>)> = self
            .unspent
            .iter()
            .map(|(outpoint, output)| (outpoint, output, None))
            .chain(self.spent.iter().map(|(outpoint, (output, txid, vin))| {
                (outpoint, output, Some(Spender { txid: internal(*txid).into(), vin: *vin }))
            }))
            .collect();
        for some in all.chunks(1_000) {
            let outpoint = |outpoint: &OutPoint| Outpoint { txid: internal(outpoint.txid).into(), vout: outpoint.vout };
            let outpoints = some.iter().map(|(at, ..)| outpoint(at)).collect();
            let arg = Encode!(&UtxoGetSpend { height: self.height, outpoints }).unwrap();
            let states: Result<Vec<UtxoSpendState>, UtxoError> = ask(client, "utxo_get_spend", arg);
            let states = states.unwrap();
            assert_eq!(states.len(), some.len());
            for ((outpoint, output, spender), state) in some.iter().zip(states) {
                let mature = output.height + self.maturity;
                let status = match spender {
                    Some(_) => SpendStatus::Spent,
                    None if output.coinbase && self.height < mature => SpendStatus::Immature { spendable_at: mature },
                    None => SpendStatus::Ok,
                };
                let utxo_hash = Some(output.hash.into());
                assert_eq!(state, UtxoSpendState { status, utxo_hash, spender: spender.clone() }, "{outpoint}");
            }
        }
        for (txid, (transaction, heights)) in &self.transactions {
            self.check_record(client, *txid, transaction, heights);
        }
    }

    fn check_record(&self, client: &Client<impl Transport>, txid: Txid, transaction: &Transaction, heights: &[u32]) {
        let key = ic_coppice_interface::Txid::from(internal(txid));
        let arg = Encode!(&UtxoGet { txid: key.clone(), first: 0, limit: 0, extra_pages_cursor: None }).unwrap();
        let record: Result<UtxoRecord, UtxoError> = ask(client, "utxo_get", arg);
        let record = record.unwrap();
        let of = |at: &OutPoint| at.txid == txid;
        let range = OutPoint { txid, vout: 0 }..=OutPoint { txid, vout: u32::MAX };
        let unspent = self.unspent.range(range.clone()).filter(|(at, _)| of(at)).count() as u32;
        let spent = self.spent.range(range).filter(|(at, _)| of(at)).count() as u32;
        assert_eq!((record.total_utxos, record.spent_utxos), (unspent + spent, spent), "{txid}");
        assert_eq!(record.total_outputs, transaction.output.len() as u32);
        let blocks = heights.iter().map(|&height| BlockRef { block_id: height, height, subtree: 0 });
        assert_eq!(record.blocks, blocks.collect::<Vec<_>>());
        assert_eq!((record.locked, record.conflicting, record.unmined_since), (false, false, None));
        assert_eq!(record.is_coinbase, transaction.is_coinbase());
        // The bytes of a block do not tell the values of the outputs that it spends.
        assert_eq!((record.fee, record.extended), (None, false), "{txid}");
        assert_eq!(record.delete_at_height.is_some(), unspent == 0, "{txid}");

        let mut bytes = Vec::new();
        let file_type = loop {
            let part = UtxoGetPart {
                txid: key.clone(),
                part: UtxoPart::Transaction,
                offset: bytes.len() as u64,
                length: 1 << 20,
            };
            let part: Result<TransactionPart, UtxoError> = ask(client, "utxo_get_transaction", Encode!(&part).unwrap());
            let part = part.unwrap();
            bytes.extend_from_slice(&part.bytes);
            if bytes.len() as u64 == part.total {
                break part.file_type;
            }
        };
        assert_eq!(file_type, FileType::Tx);
        assert_eq!(bytes, serialize(transaction), "{txid}");
    }
}

fn ask<R: candid::CandidType + DeserializeOwned>(client: &Client<impl Transport>, method: &str, arg: Vec<u8>) -> R {
    let reply = pollster::block_on(client.transport().query(method, arg));
    candid::decode_one(&reply.unwrap()).unwrap()
}

/// Returns blocks in the format of regtest's `blk*.dat`.
pub fn framed(blocks: &[Block]) -> Vec<u8> {
    let frame = |block: &Block| {
        let raw = serialize(block);
        [&[0xFA, 0xBF, 0xB5, 0xDA][..], &(raw.len() as u32).to_le_bytes(), &raw].concat()
    };
    blocks.iter().flat_map(frame).collect()
}

/// Blocks at the end of [`Chain`] with more than their own coinbase.
pub const EVENTFUL: u32 = 4;

/// Height of the first block of [`Chain`].
pub const FIRST: u32 = 1_000;

/// A chain from height [`FIRST`] on: coinbases until the first of them can be spent, then all kinds of transactions.
pub struct Chain {
    pub blocks: Vec<Block>,
}

fn output(satoshis: u64, script: Vec<u8>) -> TxOut {
    TxOut { value: Amount::from_sat(satoshis), script_pubkey: ScriptBuf::from(script) }
}

/// Returns a transaction in no block, with one output.
pub fn spending_one(outpoint: OutPoint) -> Transaction {
    spending(&[outpoint], vec![output(1, vec![7])])
}

fn spending(outpoints: &[OutPoint], outputs: Vec<TxOut>) -> Transaction {
    let input = |outpoint: &OutPoint| TxIn {
        previous_output: *outpoint,
        script_sig: ScriptBuf::from(vec![0x51]),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let input = outpoints.iter().map(input).collect();
    Transaction { version: Version::ONE, lock_time: LockTime::ZERO, input, output: outputs }
}

fn of(transaction: &Transaction, vout: u32) -> OutPoint {
    OutPoint { txid: transaction.compute_txid(), vout }
}

/// Adds the output that commits to the block's witnesses, if there are any.
fn commit_to_witnesses(block: &mut Block) {
    let mut inputs = block.txdata.iter().flat_map(|transaction| &transaction.input);
    if inputs.all(|input| input.witness.is_empty()) {
        return;
    }
    let root = block.witness_root().unwrap();
    let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
    let script = [&[0x6A, 0x24, 0xAA, 0x21, 0xA9, 0xED][..], commitment.as_byte_array()].concat();
    let coinbase = &mut block.txdata[0];
    coinbase.input[0].witness = Witness::from_slice(&[[0; 32]]);
    coinbase.output.push(output(0, script));
}

impl Chain {
    pub fn new() -> Self {
        let mut chain = Self { blocks: Vec::new() };
        while chain.blocks.len() < 101 {
            chain.push(Vec::new());
        }
        chain.push_with(chain.blocks[40].txdata[0].clone(), Vec::new());
        let coinbase = |block: usize| of(&chain.blocks[block].txdata[0], 0);
        // In one block: a coinbase's outputs, spent by a child and a grandchild, which spends from two generations; outputs that are
        // not UTXOs; an output of 0 satoshis that is one; a witness; an input that spends an output of no block.
        let parent = spending(
            &[coinbase(0), coinbase(1)],
            vec![
                output(70, vec![1]),
                output(20, vec![2; 300]),
                output(0, vec![0x6A, 1]),
                output(0, vec![0x51]),
                output(9, vec![0x6A]),
            ],
        );
        let mut child = spending(&[of(&parent, 0)], vec![output(60, vec![3]), output(0, vec![0, 0x6A])]);
        child.input[0].witness.push([7; 20]);
        let grandchild = spending(&[of(&child, 0), of(&parent, 3), of(&parent, 4)], vec![output(50, vec![4])]);
        let stranger = spending(
            &[OutPoint { txid: Txid::from_byte_array([8; 32]), vout: 1 }, of(&parent, 1)],
            vec![output(1, vec![5])],
        );
        // A script longer than an ingress message.
        let long = spending(&[of(&grandchild, 0)], vec![output(40, vec![6; 2_100_000]), output(5, vec![7])]);
        let heir = spending(&[of(&long, 0)], vec![output(30, vec![8]), output(0, vec![0x6A])]);
        // It has no UTXOs, so none is left unspent.
        let burnt = spending(&[of(&long, 1), of(&stranger, 0)], vec![output(0, vec![0x6A])]);
        chain.push(vec![parent, child, grandchild, stranger]);
        chain.push(vec![long]);
        chain.push(vec![heir, burnt]);
        chain
    }

    /// Creates a chain for test networks: ten coinbases, then a block for each depth, which spends the coinbase of the block that many
    /// before it, or its own for 0.
    pub fn young(depths: &[usize]) -> Self {
        let mut chain = Self { blocks: Vec::new() };
        (0..10).for_each(|_| chain.push(Vec::new()));
        for &depth in depths {
            let coinbase = match chain.blocks.len().checked_sub(depth) {
                Some(at) if depth > 0 => chain.blocks[at].txdata[0].clone(),
                _ => chain.coinbase(),
            };
            chain.push(vec![spending(&[of(&coinbase, 0)], vec![output(49, vec![depth as u8])])]);
        }
        chain
    }

    /// Returns the height of the last block.
    pub fn height(&self) -> u32 {
        FIRST + self.blocks.len() as u32 - 1
    }

    /// Returns the block after the last one; it spends an output of the last block.
    pub fn next(&self) -> Block {
        let heir = &self.blocks[self.blocks.len() - 1].txdata[1];
        let mut longer = Self { blocks: self.blocks.clone() };
        longer.push(vec![spending(&[of(heir, 0)], vec![output(29, vec![9])])]);
        longer.blocks.pop().unwrap()
    }

    fn push(&mut self, transactions: Vec<Transaction>) {
        self.push_with(self.coinbase(), transactions);
    }

    /// Returns the next block's coinbase.
    fn coinbase(&self) -> Transaction {
        let height = i64::from(FIRST) + self.blocks.len() as i64;
        let mut coinbase = genesis_block(Network::Regtest).txdata.remove(0);
        coinbase.input[0].script_sig = Builder::new().push_int(height).push_int(1_000).into_script();
        coinbase.output = vec![output(50, vec![0x51, height as u8])];
        coinbase
    }

    fn push_with(&mut self, coinbase: Transaction, transactions: Vec<Transaction>) {
        let mut block = genesis_block(Network::Regtest);
        if let Some(parent) = self.blocks.last() {
            block.header.prev_blockhash = parent.block_hash();
        }
        block.txdata = vec![coinbase];
        block.txdata.extend(transactions);
        commit_to_witnesses(&mut block);
        // Blocks of version 2 state their height.
        block.header.version = bitcoin::block::Version::TWO;
        block.header.bits = CompactTarget::from_consensus(0x207F_FFFF);
        block.header.merkle_root = block.compute_merkle_root().unwrap();
        while block.header.validate_pow(block.header.target()).is_err() {
            block.header.nonce += 1;
        }
        self.blocks.push(block);
    }

    /// Returns the chain in the format of `blk*.dat`.
    pub fn bytes(&self) -> Vec<u8> {
        framed(&self.blocks)
    }
}
