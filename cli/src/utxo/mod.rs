//! `coppice ingest --utxo`: creates a record for each transaction of a block, and spends the outputs of its inputs.
//!
//! ```text
//! block ─▶ set: outputs in ─▶ utxo_create ─▶ (those that existed) utxo_set_mined
//!                      └────▶ spent outputs ─▶ utxo_spend ... after the last block: verify, against the set
//! ```
//! **Constraint.** An interrupted replay starts again from the first block: every step can be repeated, and a repeated step changes
//! nothing. Blocks at or below the canister's `pruned_height` are skipped, because their records may have been pruned; so is a block that
//! this height reaches while the block is being sent. A spend is only sent if the transaction of its output has a record, either created
//! from these blocks or already in the store.

pub mod form;
pub mod send;
pub mod set;
pub mod states;
mod verify;

use crate::blk::Found;
use crate::client::{Client, Wait};
use crate::report::{bytes, count};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash;
use bitcoin::{Amount, Block, Denomination, Network, OutPoint, Txid};
use coppice_interface::{Spend, UtxoStorage};
use send::{Immature, NewRecord, Outcome};
use serde::Serialize;
use set::{Foreign, RecordId, Set, UtxoHash};
use states::states;
use std::collections::HashSet;
use std::time::{Duration, Instant};
pub use verify::Verified;

/// The report of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Blocks at or below the canister's `pruned_height`, of which nothing was sent.
    pub left_out_blocks: u64,
    /// Transactions of the other blocks; each has a record.
    pub transactions: u64,
    /// Part of `transactions`: those that had a record from an earlier run.
    pub already_there: u64,
    /// Transactions that a later block repeated (BIP 30); each has one record.
    pub repeated: u64,
    /// Transactions that were too long for an ingress message and were uploaded in chunks.
    pub uploaded_in_chunks: u64,
    /// Outputs of the blocks that are unspent.
    pub unspent_outputs: u64,
    /// The satoshis of these outputs.
    pub unspent_satoshis: u64,
    /// Outputs that the blocks spend.
    pub spent_outputs: u64,
    /// Part of `spent_outputs`: those that an earlier run had spent.
    pub already_spent: u64,
    /// Inputs that spend outputs of transactions without a record; they were not sent.
    pub spends_without_record: u64,
    /// Records in the store at the end.
    pub records: u64,
    /// Bytes of stable memory that records use, without transactions in the BlobStore.
    pub record_bytes: u64,
    /// The result of the verification.
    pub verified: Verified,
    /// Wall-clock seconds of the replay, without the verification.
    pub elapsed_secs: f64,
}

impl Replayed {
    /// Returns the table's rows.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let bitcoin = Amount::from_sat(self.unspent_satoshis).display_in(Denomination::Bitcoin);
        let mut rows = vec![
            ("UTXO records", format!("{} transactions, {}", count(self.transactions), bytes(self.record_bytes))),
            ("unspent outputs", format!("{}, {bitcoin} BTC", count(self.unspent_outputs))),
            ("spent outputs", count(self.spent_outputs)),
            ("spent outputs without a record", count(self.spends_without_record)),
        ];
        for (name, number) in [
            ("UTXO records there already", self.already_there),
            ("outputs spent already", self.already_spent),
            ("transactions repeated by a later block", self.repeated),
            ("transactions uploaded in chunks", self.uploaded_in_chunks),
            ("blocks skipped, because their records may be pruned", self.left_out_blocks),
            ("their transactions without a record", self.verified.pruned),
        ] {
            if number > 0 {
                rows.push((name, count(number)));
            }
        }
        let Verified { unspent, spent, transactions, bytes: read, .. } = self.verified;
        rows.push(("verified: unspent, with its hash", format!("{} outputs", count(unspent))));
        rows.push(("verified: spent by the right input", format!("{} outputs", count(spent))));
        let read = format!("{} transactions, {}", count(transactions), bytes(read));
        rows.push(("verified: transactions read back", read));
        rows.push(("seconds of the UTXO replay", format!("{:.1}", self.elapsed_secs)));
        rows
    }
}

/// Checks that the block numbers can be heights. Genesis may be among the blocks, because its output cannot be spent.
///
/// # Errors
/// When they cannot.
pub fn check_numbers(first: &Found, first_block: u64, last_block: u64) -> Result<()> {
    ensure!(
        first_block > 0 || first.hash == genesis_block(Network::Bitcoin).block_hash(),
        "the UTXO store needs heights, but the first block, {}, is not genesis: set its height with --first-number",
        first.hash
    );
    ensure!(u32::try_from(last_block).is_ok(), "the UTXO store has heights of 32 bits; {last_block} does not fit");
    Ok(())
}

/// Checks that the canister's `coinbase_maturity` is the expected one. The setting is the operator's, and is not changed here.
///
/// # Errors
/// When it is different.
pub fn check_maturity(client: &Client<impl Site>, asked: Option<u32>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let there = client.get_config().wait()?.utxo.coinbase_maturity;
    ensure!(
        there == asked,
        "--coinbase-maturity {asked}, but the canister's coinbase_maturity is {there}; an operator may change it before the first \
         block: set_config '(record {{ utxo = opt record {{ coinbase_maturity = opt {asked} }} }})'"
    );
    Ok(())
}

/// A replay in progress.
#[derive(Debug)]
pub struct Replay {
    set: Set,
    figures: Replayed,
    /// The store's state before the replay.
    before: UtxoStorage,
    /// The highest block of a record that the canister has pruned, as far as known.
    pruned_height: Option<u32>,
    coinbase_maturity: u32,
    height: u32,
    spent: Duration,
}

impl Replay {
    /// Starts a replay.
    ///
    /// # Errors
    /// When the canister does not answer.
    pub fn start(client: &Client<impl Site>) -> Result<Self> {
        let before = client.get_storage_status(None).wait()?.utxo;
        Ok(Self {
            set: Set::default(),
            figures: Replayed::default(),
            before,
            pruned_height: before.pruned_height,
            coinbase_maturity: client.get_config().wait()?.utxo.coinbase_maturity,
            height: 0,
            spent: Duration::ZERO,
        })
    }

    /// Replays a block.
    ///
    /// # Errors
    /// When the canister refuses something, or the blocks contradict each other.
    pub fn block(&mut self, client: &Client<impl Site>, number: u64, block: &Block) -> Result<()> {
        let started = Instant::now();
        self.height = u32::try_from(number).context("heights have 32 bits")?;
        if self.height > 0 {
            let added: Vec<(RecordId, bool)> =
                block.txdata.iter().map(|transaction| self.set.add(transaction, self.height)).collect();
            if !self.is_left_out() {
                let sent = self.send(client, block, &added);
                if let Err(error) = sent {
                    // The canister may have pruned records that this block needs.
                    self.pruned_height = client.get_storage_status(None).wait()?.utxo.pruned_height;
                    ensure!(self.is_left_out(), error.context(format!("block {number}")));
                }
            }
            if self.is_left_out() {
                self.skip(block, &added)?;
            }
        }
        self.spent += started.elapsed();
        Ok(())
    }

    /// Returns whether records of the block may have been pruned.
    fn is_left_out(&self) -> bool {
        Some(self.height) <= self.pruned_height
    }

    /// Records the spends of a skipped block in the set, and sends nothing.
    fn skip(&mut self, block: &Block, added: &[(RecordId, bool)]) -> Result<()> {
        self.figures.left_out_blocks += 1;
        for (transaction, &(id, _)) in block.txdata.iter().zip(added) {
            self.set.record_mut(id).existed = true;
            for (input, vin) in transaction.input.iter().zip(0..).filter(|_| !transaction.is_coinbase()) {
                self.set.spend(&input.previous_output, (id, vin))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, client: &Client<impl Site>, block: &Block, added: &[(RecordId, bool)]) -> Result<()> {
        self.create(client, block, added).context("its records")?;
        self.spend(client, block, added).context("its spends")
    }

    fn block_at(&self) -> send::Block {
        // All blocks are of one chain, so the height identifies the block.
        send::Block::only(self.height)
    }

    /// Creates the block's records.
    fn create(&mut self, client: &Client<impl Site>, block: &Block, added: &[(RecordId, bool)]) -> Result<()> {
        let mut records = Vec::with_capacity(added.len());
        for (transaction, &(id, new)) in block.txdata.iter().zip(added) {
            let (bytes, fee) = match new {
                true => self.set.form(id, transaction),
                false => (bitcoin::consensus::serialize(transaction), None),
            };
            let txid = self.set.records()[id as usize].txid;
            records.push(NewRecord {
                txid,
                bytes,
                fee,
                mined: Some(self.block_at()),
                conflicting: false,
                outside: None,
            });
        }
        let outcomes = send::create(client, self.height, &records)?;
        let mut existed = Vec::new();
        for ((sent, outcome), &(id, new)) in records.iter().zip(outcomes).zip(added) {
            let record = self.set.record_mut(id);
            self.figures.transactions += u64::from(new);
            self.figures.repeated += u64::from(!new);
            match outcome {
                Outcome::Created { utxos } => {
                    ensure!(new, "transaction {} already had a record, but another was created", sent.txid);
                    ensure!(
                        utxos == record.utxos(),
                        "transaction {} has {utxos} UTXOs in the canister, not as many as here",
                        sent.txid
                    );
                    self.figures.uploaded_in_chunks += u64::from(sent.is_long());
                }
                Outcome::Existed => {
                    record.existed |= new;
                    self.figures.already_there += u64::from(new);
                    existed.push(sent.txid);
                }
            }
        }
        send::set_mined(client, self.height, self.block_at(), false, &existed)
    }

    /// Spends the outputs of the block's inputs.
    fn spend(&mut self, client: &Client<impl Site>, block: &Block, added: &[(RecordId, bool)]) -> Result<()> {
        let mut known: Vec<(OutPoint, UtxoHash, (RecordId, u32))> = Vec::new();
        let mut unknown = Vec::new();
        let spenders = block.txdata.iter().zip(added).filter(|(transaction, _)| !transaction.is_coinbase());
        for (transaction, &(id, _)) in spenders {
            for (input, vin) in transaction.input.iter().zip(0..) {
                match self.set.spend(&input.previous_output, (id, vin))? {
                    Some(hash) => known.push((input.previous_output, hash, (id, vin))),
                    None => unknown.push((input.previous_output, (id, vin))),
                }
            }
        }
        self.figures.spends_without_record += unknown.len() as u64;
        // A record of a skipped block may be gone; its outputs were spent before.
        let doubtful = known.iter().map(|(outpoint, ..)| *outpoint);
        let doubtful: Vec<OutPoint> =
            doubtful.filter(|outpoint| self.set.height_of(&outpoint.txid) <= self.pruned_height).collect();
        let doubtful = doubtful.iter().zip(states(client, self.height, &doubtful)?);
        let gone: HashSet<OutPoint> =
            doubtful.filter(|(_, state)| state.utxo_hash.is_none()).map(|(outpoint, _)| *outpoint).collect();
        known.retain(|(outpoint, ..)| !gone.contains(outpoint));
        self.figures.spends_without_record += gone.len() as u64;
        // Records of transactions outside these blocks are from an earlier run.
        if self.before.records > 0 {
            let outpoints: Vec<OutPoint> = unknown.iter().map(|(outpoint, _)| *outpoint).collect();
            let states = states(client, self.height, &outpoints)?;
            for ((outpoint, by), state) in unknown.into_iter().zip(states) {
                let Some(hash) = state.utxo_hash.and_then(|hash| UtxoHash::try_from(hash.as_slice()).ok()) else {
                    continue;
                };
                self.set.foreign.push(Foreign { outpoint, hash, by });
                self.figures.spends_without_record -= 1;
                known.push((outpoint, hash, by));
            }
            known.sort_by_key(|(_, _, by)| *by);
        }
        let sent = known.len() as u64;
        let spends = known.chunk_by(|(_, _, a), (_, _, b)| a.0 == b.0).map(|spends| {
            let spend = |&(outpoint, hash, (_, vin)): &(OutPoint, UtxoHash, (RecordId, u32))| Spend {
                txid: outpoint.txid.to_byte_array().into(),
                vout: outpoint.vout,
                utxo_hash: hash.into(),
                vin,
            };
            (self.txid(spends[0].2.0), spends.iter().map(spend).collect())
        });
        let new = send::spend(client, self.height, spends.collect()).map_err(|error| self.explained(error))?;
        self.figures.spent_outputs += sent;
        self.figures.already_spent += sent - new;
        Ok(())
    }

    /// Adds advice to an error, if there is any.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(immature) = error.downcast_ref::<Immature>() else { return error };
        let maturity = self.coinbase_maturity;
        // A record that was created before the setting changed has a height by the old setting.
        let coinbase = immature.spendable_at.checked_sub(maturity);
        let depth = coinbase.and_then(|coinbase| self.height.checked_sub(coinbase));
        let depth = depth.map_or(String::new(), |depth| format!("{depth} blocks after it was made, "));
        error.context(format!(
            "a coinbase is spent {depth}but the canister's coinbase_maturity is {maturity}; for a test chain, set the \
             chain's own value with --coinbase-maturity"
        ))
    }

    fn txid(&self, id: RecordId) -> Txid {
        self.set.records()[id as usize].txid
    }

    /// Compares the store with the set, and returns the report.
    ///
    /// # Errors
    /// When they differ.
    pub fn finish(self, client: &Client<impl Site>) -> Result<Replayed> {
        let Self { set, mut figures, before, height, spent, .. } = self;
        let storage = client.get_storage_status(None).wait()?.utxo;
        let expected = before.records + figures.transactions - figures.already_there;
        // There may be fewer records, because the canister prunes meanwhile.
        let is_pruning = storage.pruned_height > before.pruned_height;
        ensure!(
            storage.records == expected || is_pruning,
            "the store should have {expected} records, but has {}",
            storage.records
        );
        (figures.unspent_outputs, figures.unspent_satoshis) = set.unspent();
        (figures.records, figures.record_bytes) = (storage.records, storage.used_bytes);
        figures.verified = verify::verify(client, &set, height, storage.pruned_height)?;
        figures.elapsed_secs = spent.as_millis() as f64 / 1e3;
        Ok(figures)
    }
}
