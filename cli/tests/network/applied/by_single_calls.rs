//! Feeds blocks by the single calls: append, create, set mined, spend.

use bitcoin::consensus::serialize;
use bitcoin::hashes::Hash;
use bitcoin::{Block, OutPoint, Transaction, TxOut, Txid};
use coppice_testkit::encodings;
use coppice_testkit::single_calls::{self, NewRecord, Outcome};
use ic_coppice_cli::client::{Client, Transport, Wait as _};
use ic_coppice_cli::feed;
use ic_coppice_cli::utxo::set::utxo_hash;
use ic_coppice_interface::{AppendBlock, MinedTransaction, Spend, UtxoSetMinedBatch};
use std::collections::HashMap;

/// The form in which a transaction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As in its block.
    Standard,
    /// Extended, or with its fee, if the outputs that it spends are known.
    Extended,
}

/// Returns a Bitcoin block as it is appended.
pub fn payload(number: u64, block: &Block) -> AppendBlock {
    feed::bitcoin_block(number, serialize(block), block).unwrap()
}

/// Bytes of a block as it is appended.
pub fn payload_len(block: &Block) -> usize {
    feed::payload_len(&payload(0, block))
}

/// Feeds blocks, the first at height `first`. The height of a block is its number and its id.
pub fn replay(client: &Client<impl Transport>, first: u32, blocks: &[Block], form: Form) {
    let mut outputs: HashMap<OutPoint, TxOut> = HashMap::new();
    for (height, block) in (first..).zip(blocks) {
        client.send_block(&payload(height.into(), block)).done().unwrap();
        for transaction in &block.txdata {
            let txid = transaction.compute_txid();
            let of = (0..).zip(&transaction.output);
            outputs.extend(of.map(|(vout, output)| (OutPoint { txid, vout }, output.clone())));
        }
        create(client, height, block, form, &outputs);
        spend(client, height, block, &outputs);
    }
}

fn create(client: &Client<impl Transport>, height: u32, block: &Block, form: Form, outputs: &HashMap<OutPoint, TxOut>) {
    let record = |transaction: &Transaction| {
        let spent: Option<Vec<&TxOut>> =
            transaction.input.iter().map(|input| outputs.get(&input.previous_output)).collect();
        let (bytes, fee) = encodings::of(transaction, spent.as_deref().filter(|_| form == Form::Extended));
        let mined = Some(single_calls::Block { id: height, height });
        let txid = transaction.compute_txid();
        NewRecord { txid, bytes, fee, mined, conflicting: false, external: None }
    };
    let records: Vec<NewRecord> = block.txdata.iter().map(record).collect();
    let outcomes = single_calls::create(client, height, &records).unwrap();
    let existed = records.iter().zip(outcomes).filter(|(_, outcome)| *outcome == Outcome::Existed);
    let items: Vec<MinedTransaction> =
        existed.map(|(record, _)| MinedTransaction { txid: id(record.txid), subtree: 0 }).collect();
    let batch = UtxoSetMinedBatch {
        height,
        block_id: height,
        block_height: height,
        on_longest_chain: true,
        unset: false,
        items,
    };
    let answers = pollster::block_on(client.utxo_set_mined_all(batch)).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

fn spend(client: &Client<impl Transport>, height: u32, block: &Block, outputs: &HashMap<OutPoint, TxOut>) {
    let spends = block.txdata.iter().filter(|transaction| !transaction.is_coinbase()).map(|transaction| {
        let spends = (0..).zip(&transaction.input).filter_map(|(vin, input)| {
            let OutPoint { txid, vout } = input.previous_output;
            let utxo_hash = utxo_hash(input.previous_output, outputs.get(&input.previous_output)?);
            Some(Spend { txid: id(txid), vout, utxo_hash: utxo_hash.into(), vin })
        });
        (transaction.compute_txid(), spends.collect())
    });
    single_calls::spend(client, height, spends.collect()).unwrap();
}

fn id(txid: Txid) -> ic_coppice_interface::Txid {
    txid.to_byte_array().into()
}
