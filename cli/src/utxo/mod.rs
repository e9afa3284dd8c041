//! `coppice ingest --utxo`: applies each block to the UTXO records, after the block was appended.
//!
//! ```text
//! block ─▶ set: outputs in, outputs spent
//!   └────▶ utxo_apply_block, slice after slice ... after the last block: verify, against the set
//! ```
//! **Constraint.** Blocks are applied in order, and the canister knows the next one. An interrupted replay starts again from the first
//! block: blocks that an earlier run has applied enter only the set. A replay that begins in the middle of a chain skips inputs whose
//! parents have no record.

mod encodings;
pub mod set;
pub mod states;
mod stopped;
mod store;
mod verify;

use crate::blk::Found;
use crate::client::{CanisterClient, Client, Wait};
use crate::report::{bytes, count};
use crate::rules::NetworkRules;
use anyhow::{Context, Result, ensure};
use bitcoin::hashes::Hash;
use bitcoin::{Amount, Block, Denomination, OutPoint, Transaction, Txid};
use ic_coppice_client::Error;
use ic_coppice_interface::{
    MissingParents, Role, UtxoApplied, UtxoApplyBlock, UtxoApplyError, UtxoApplyPosition, UtxoStorage,
};
use serde::Serialize;
use set::{Foreign, Input, RecordId, Set, UtxoHash};
use states::states;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use stopped::BlockToApply;
pub use store::{settings, storage};
pub use verify::Verified;

/// The report of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Blocks before the first applied one: they were pruned, or other blocks were applied, before their turn.
    pub left_out_blocks: u64,
    /// Transactions of the other blocks.
    pub transactions: u64,
    /// Part of `transactions`: those that had a record from an earlier run.
    pub already_there: u64,
    /// Part of `transactions`: those of which no record was created, because the canister may have pruned it.
    pub maybe_pruned: u64,
    /// Transactions of the blocks that the records leave out, by `--leave-out`.
    pub left_out: u64,
    /// Transactions that a later block repeated (BIP 30); each has one record.
    pub repeated: u64,
    /// Outputs of the blocks that are unspent.
    pub unspent_outputs: u64,
    /// The satoshis of these outputs.
    pub unspent_satoshis: u64,
    /// Outputs that the blocks spend.
    pub spent_outputs: u64,
    /// Part of `spent_outputs`: those that an earlier run had spent.
    pub already_spent: u64,
    /// Inputs that this run skipped, because the transactions of their outputs have no record.
    pub spends_without_record: u64,
    /// Records in the store at the end.
    pub records: u64,
    /// Bytes of stable memory that records use, without transactions in the BlobStore.
    pub record_bytes: u64,
    pub verified: Verified,
    /// Wall-clock seconds of the replay, without the verification.
    pub elapsed_secs: f64,
}

impl Replayed {
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
            ("transactions left out, because their records may be pruned", self.maybe_pruned),
            ("transactions left out by --leave-out", self.left_out),
            ("blocks skipped, because they precede the applied ones", self.left_out_blocks),
            ("transactions without a record, because it was pruned", self.verified.pruned),
            ("transactions whose bytes were pruned with their block", self.verified.not_kept),
        ] {
            if number > 0 {
                rows.push((name, count(number)));
            }
        }
        let Verified { unspent, held, spent, transactions, bytes: read, .. } = self.verified;
        rows.push(("verified: unspent, with its hash", format!("{} outputs", count(unspent))));
        if held > 0 {
            let outputs = if held == 1 { "output" } else { "outputs" };
            rows.push(("of which held by transactions in no block", format!("{} {outputs}", count(held))));
        }
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
        first_block > 0 || NetworkRules::ALL.iter().any(|rules| first.hash == rules.genesis()),
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
pub fn check_maturity(client: &Client<impl CanisterClient>, asked: Option<u32>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let there = settings(client)?.coinbase_maturity;
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
    /// The first block that enters the records.
    from: u64,
    /// The first block that no earlier run has applied.
    next: u64,
    coinbase_maturity: u32,
    height: u32,
    /// Records that this run has created.
    created: u64,
    /// Outputs that this run has spent.
    newly_spent: u64,
    /// Transactions that the records leave out.
    leave_out: HashSet<Txid>,
    /// The choice that a first block brings; later blocks have the store's.
    missing_parents: Option<MissingParents>,
    /// Spent outputs of transactions that are in none of the blocks.
    unknown: Vec<(OutPoint, Input)>,
    spent: Duration,
}

impl Replay {
    /// Starts a replay of the blocks from number `first_block` on, which leaves some transactions out. The canister may have some of the
    /// blocks.
    ///
    /// # Errors
    /// When the canister does not answer, or the next block to apply comes before these blocks.
    pub fn start(client: &Client<impl CanisterClient>, first_block: u64, leave_out: &[Txid]) -> Result<Self> {
        let before = storage(client)?;
        // Height 0 is none of the store's, so genesis is left out.
        let first = first_block.max(1);
        let (from, next) = match before.applying {
            Some(UtxoApplyPosition { base, next, height, .. }) => {
                ensure!(
                    first <= next,
                    "the next block to apply to the UTXO records is {next}, but the first of these blocks is {first}; begin with block \
                     {next}, or end applying with utxo_stop_applying"
                );
                ensure!(
                    u64::from(height) == next,
                    "block {next} is to be applied at height {height}, but this command applies blocks at their numbers; end applying \
                     with utxo_stop_applying"
                );
                (base.max(first), next)
            }
            // Only a kept block can be applied.
            None => {
                let oldest = client.get_prune_status().wait()?.oldest_kept_block.unwrap_or(first).max(first);
                (oldest, oldest)
            }
        };
        // A store that begins after block 1 has no records of the blocks before.
        let starts_midway = before.applying.is_none() && next > 1;
        Ok(Self {
            set: Set::default(),
            figures: Replayed::default(),
            before,
            from,
            next,
            leave_out: leave_out.iter().copied().collect(),
            missing_parents: starts_midway.then_some(MissingParents::Skip),
            coinbase_maturity: settings(client)?.coinbase_maturity,
            height: 0,
            created: 0,
            newly_spent: 0,
            unknown: Vec::new(),
            spent: Duration::ZERO,
        })
    }

    /// Replays a block that the canister has.
    ///
    /// # Errors
    /// When the canister refuses something, or the blocks contradict each other.
    pub fn block(&mut self, client: &Client<impl CanisterClient>, number: u64, block: &Block) -> Result<()> {
        let started = Instant::now();
        if number < self.from {
            self.figures.left_out_blocks += u64::from(number > 0);
            return Ok(());
        }
        self.height = u32::try_from(number).context("heights have 32 bits")?;
        let (left_out, kept): (Vec<&Transaction>, _) =
            block.txdata.iter().partition(|transaction| self.is_left_out(transaction));
        let added: Vec<(RecordId, bool)> =
            kept.iter().map(|transaction| self.set.add(transaction, self.height)).collect();
        self.figures.left_out += left_out.len() as u64;
        let parents =
            left_out.iter().flat_map(|transaction| &transaction.input).map(|input| input.previous_output.txid);
        self.set.refused.extend(parents);
        self.spend(&kept, &added)?;
        let applied = match number < self.next {
            true => UtxoApplied::default(),
            false => self.apply(client, number, block).with_context(|| format!("block {number}"))?,
        };
        self.note(&applied, &added);
        self.spent += started.elapsed();
        Ok(())
    }

    fn is_left_out(&self, transaction: &Transaction) -> bool {
        !self.leave_out.is_empty() && self.leave_out.contains(&transaction.compute_txid())
    }

    /// Spends the outputs of the transactions' inputs in the set.
    fn spend(&mut self, transactions: &[&Transaction], added: &[(RecordId, bool)]) -> Result<()> {
        let spenders = transactions.iter().zip(added).filter(|(transaction, _)| !transaction.is_coinbase());
        for (transaction, &(id, _)) in spenders {
            for (input, vin) in transaction.input.iter().zip(0..) {
                match self.set.spend(&input.previous_output, (id, vin))? {
                    Some(_) => self.figures.spent_outputs += 1,
                    None => self.unknown.push((input.previous_output, (id, vin))),
                }
            }
        }
        Ok(())
    }

    /// Applies the block, without the transactions to leave out. All blocks are of one chain, so the height identifies the block.
    fn apply(&self, client: &Client<impl CanisterClient>, number: u64, block: &Block) -> Result<UtxoApplied> {
        let height = self.height;
        let hash = block.block_hash().to_byte_array().into();
        let missing_parents = self.missing_parents;
        let mut arg =
            UtxoApplyBlock { number, hash, height, block_id: height, missing_parents, skip: None, skip_rest: false };
        loop {
            let why = match client.apply(&arg).wait()? {
                Ok(applied) => return Ok(applied),
                Err(why) => why,
            };
            if let UtxoApplyError::Stopped(stop) = &why
                && Txid::from_slice(&stop.txid).is_ok_and(|txid| self.leave_out.contains(&txid))
                && arg.skip.as_ref() != Some(&stop.txid)
            {
                arg.skip = Some(stop.txid.clone());
                continue;
            }
            let sentence = Error::Refused(why.clone()).to_string();
            let (coinbase_maturity, caller) = (self.coinbase_maturity, client.transport().principal(Role::UtxoFeeder));
            return Err(BlockToApply { number, height, block, coinbase_maturity, caller }.explained(&why, &sentence));
        }
    }

    /// Adds the counts of a block.
    fn note(&mut self, applied: &UtxoApplied, added: &[(RecordId, bool)]) {
        let new = added.iter().filter(|(_, new)| *new).count() as u64;
        let made = u64::from(applied.created) + u64::from(applied.pruned);
        self.created += u64::from(applied.created);
        self.newly_spent += u64::from(applied.spent);
        let figures = &mut self.figures;
        figures.transactions += new;
        figures.repeated += added.len() as u64 - new;
        figures.already_there += new.saturating_sub(made);
        figures.maybe_pruned += u64::from(applied.pruned);
        figures.spends_without_record += u64::from(applied.missing_parents);
        if u64::from(applied.created) < new {
            // The answer does not tell which of them.
            added.iter().for_each(|&(id, _)| self.set.record_mut(id).existed = true);
        }
    }

    /// Compares the store with the set, and returns the report.
    ///
    /// # Errors
    /// When they differ.
    pub fn finish(mut self, client: &Client<impl CanisterClient>) -> Result<Replayed> {
        let storage = storage(client)?;
        let expected = self.before.records + self.created;
        // There may be fewer records, because the canister prunes meanwhile, and more, because other feeders create some.
        let is_pruning = storage.pruned_height > self.before.pruned_height;
        ensure!(
            storage.records >= expected || is_pruning,
            "the store should have {} records, but has {}",
            count(expected),
            count(storage.records)
        );
        self.find_foreign(client)?;
        let Self { set, mut figures, height, newly_spent, spent, .. } = self;
        // The record of an earlier run may be pruned after this run has spent its last output.
        figures.spent_outputs = (figures.spent_outputs + set.foreign.len() as u64).max(newly_spent);
        figures.already_spent = figures.spent_outputs - newly_spent;
        (figures.unspent_outputs, figures.unspent_satoshis) = set.unspent();
        (figures.records, figures.record_bytes) = (storage.records, storage.used_bytes);
        figures.verified = verify::verify(client, &set, height, storage.pruned_height)?;
        figures.elapsed_secs = spent.as_millis() as f64 / 1e3;
        Ok(figures)
    }

    /// Finds the outputs of earlier runs that the blocks spend.
    fn find_foreign(&mut self, client: &Client<impl CanisterClient>) -> Result<()> {
        if self.before.records == 0 {
            return Ok(());
        }
        let outpoints: Vec<OutPoint> = self.unknown.iter().map(|(outpoint, _)| *outpoint).collect();
        let states = states(client, self.height, &outpoints)?;
        for (&(outpoint, by), state) in self.unknown.iter().zip(states) {
            let hash = state.utxo_hash.and_then(|hash| UtxoHash::try_from(hash.as_slice()).ok());
            self.set.foreign.extend(hash.map(|hash| Foreign { outpoint, hash, by }));
        }
        Ok(())
    }
}
