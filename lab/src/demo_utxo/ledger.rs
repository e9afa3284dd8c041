//! Ledger of all transactions and spends, from which it computes the expected contents of the store independently, by `docs/design/records.md`
//! and 7.

use super::blocks::Made;
use super::plan::{MATURITY, Plan};
use anyhow::{Context, Result, ensure};
use bitcoin::{OutPoint, Txid};
use coppice_testkit::single_calls::Block;
use ic_coppice_cli::utxo::set::{UtxoHash, is_utxo, utxo_hash};
use ic_coppice_interface::UtxoPrunerPhase;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The index of a transaction in the ledger.
pub type Id = u32;

/// An output that is a UTXO.
#[derive(Clone, Debug)]
pub struct Output {
    pub hash: UtxoHash,
    /// The input that spends it.
    pub spender: Option<(Id, u32)>,
    /// True if the record of the spending transaction was deleted.
    pub spender_deleted: bool,
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Entry {
    pub txid: Txid,
    /// The first height at which a coinbase can be spent; 0 for others.
    pub spendable_at: u32,
    /// The outputs it spends.
    pub inputs: Vec<(Id, u32)>,
    /// Its outputs; `None` for an output that is not a UTXO.
    pub outputs: Vec<Option<Output>>,
    /// The blocks that contain it.
    pub blocks: Vec<Block>,
    /// The height since which no block has contained it.
    pub unmined_since: Option<u32>,
    /// True if it is a double spend.
    pub conflicting: bool,
    /// The height until which it is preserved for an unmined spender.
    pub preserve_until: Option<u32>,
    /// The height at which it is due.
    pub delete_at: Option<u32>,
    /// True if its record was deleted.
    pub deleted: bool,
}

impl Entry {
    /// Returns its outputs that are UTXOs, with their numbers.
    pub fn utxos(&self) -> impl Iterator<Item = (u32, &Output)> {
        (0..).zip(&self.outputs).filter_map(|(vout, output)| Some((vout, output.as_ref()?)))
    }

    fn eligible(&self) -> bool {
        let mined = !self.blocks.is_empty() && self.unmined_since.is_none();
        self.conflicting || mined && self.utxos().all(|(_, output)| output.spender.is_some())
    }
}

/// The results of the pruner's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Deleted records.
    pub deleted: u64,
    /// Preservations that expired.
    pub expired: u64,
}

/// The ledger.
pub struct Ledger {
    retention: u32,
    unmined_retention: u32,
    preservation: u32,
    entries: Vec<Entry>,
    by_txid: HashMap<Txid, Id>,
    due: BTreeSet<(u32, Id)>,
    unmined: BTreeSet<(u32, Id)>,
    preserved: BTreeSet<(u32, Id)>,
    /// Unmined transactions that were mined before, or have won, since the last run: the next run preserves their parents.
    late: BTreeSet<Id>,
    /// The height at which phase 1 last examined all old unmined transactions, and then the limit for old ones in its last pass.
    full_pass: Option<u32>,
    cutoff: u32,
    done: Done,
    spends: u64,
}

/// Moves an entry of an index from its old key to a new one; either may be `None`.
fn enter(index: &mut BTreeSet<(u32, Id)>, id: Id, key: &mut Option<u32>, now: Option<u32>) {
    if let Some(before) = key.take() {
        index.remove(&(before, id));
    }
    if let Some(now) = now {
        index.insert((now, id));
    }
    *key = now;
}

impl Ledger {
    /// Creates an empty ledger.
    pub fn new(plan: &Plan) -> Self {
        Self {
            retention: plan.retention,
            unmined_retention: plan.unmined_retention(),
            preservation: plan.preservation,
            entries: Vec::new(),
            by_txid: HashMap::new(),
            due: BTreeSet::new(),
            unmined: BTreeSet::new(),
            preserved: BTreeSet::new(),
            late: BTreeSet::new(),
            full_pass: None,
            cutoff: 0,
            done: Done::default(),
            spends: 0,
        }
    }

    /// Returns the transactions, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = (Id, &Entry)> {
        (0..).zip(&self.entries)
    }

    pub fn entry(&self, id: Id) -> &Entry {
        &self.entries[id as usize]
    }

    /// Returns the number of transactions, including deleted ones.
    pub fn transactions(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the number of spent outputs.
    pub fn spends(&self) -> u64 {
        self.spends
    }

    /// Returns the number of records that must exist.
    pub fn records(&self) -> u64 {
        self.transactions() - self.done.deleted
    }

    /// Returns the numbers of records with `preserve_until`, with `unmined_since`, and with `delete_at_height`.
    pub fn indexed(&self) -> [u64; 3] {
        [&self.preserved, &self.unmined, &self.due].map(|index| index.len() as u64)
    }

    /// Returns the results of the pruner's runs.
    pub fn done(&self) -> Done {
        self.done
    }

    /// Returns the number of records due at the current height, but not at the safe height.
    pub fn due_above(&self, safe: u32, current: u32) -> u64 {
        self.due.range((safe + 1, 0)..=(current, Id::MAX)).count() as u64
    }

    /// Adds a transaction, with the block that contains it, if any. Returns its index.
    ///
    /// # Errors
    /// When it spends an unknown output.
    pub fn add(&mut self, made: &Made, height: u32, mined: Option<Block>, conflicting: bool) -> Result<Id> {
        let transaction = &made.transaction;
        let txid = transaction.compute_txid();
        let id = self.entries.len() as Id;
        let output = |(vout, output)| {
            let hash = utxo_hash(OutPoint { txid, vout }, output);
            is_utxo(output).then_some(Output { hash, spender: None, spender_deleted: false })
        };
        let coinbase = transaction.is_coinbase();
        let spent = |outpoint: OutPoint| {
            let parent = self.by_txid.get(&outpoint.txid);
            parent
                .map(|id| (*id, outpoint.vout))
                .with_context(|| format!("{txid} spends {outpoint}, which does not exist"))
        };
        let inputs = transaction.input.iter().filter(|_| !coinbase).map(|input| spent(input.previous_output));
        let inputs = inputs.collect::<Result<_>>()?;
        ensure!(self.by_txid.insert(txid, id).is_none(), "{txid} is added twice");
        self.entries.push(Entry {
            txid,
            spendable_at: if coinbase { mined.map_or(height, |block| block.height) + MATURITY } else { 0 },
            inputs,
            outputs: (0..).zip(&transaction.output).map(output).collect(),
            blocks: mined.into_iter().collect(),
            unmined_since: None,
            conflicting,
            preserve_until: None,
            delete_at: None,
            deleted: false,
        });
        if mined.is_none() {
            self.set_unmined(id, Some(height));
        }
        self.evaluate(id, height);
        Ok(id)
    }

    /// Spends the outputs of a transaction's inputs.
    ///
    /// # Errors
    /// When an output is spent already, or its record was deleted.
    pub fn spend(&mut self, id: Id, height: u32) -> Result<()> {
        let txid = self.entry(id).txid;
        for ((parent, vout), vin) in self.entry(id).inputs.clone().into_iter().zip(0..) {
            let entry = &mut self.entries[parent as usize];
            let (gone, parent_txid) = (entry.deleted, entry.txid);
            let output = entry.outputs.get_mut(vout as usize).and_then(Option::as_mut);
            let output = output.filter(|output| !gone && output.spender.is_none());
            let output =
                output.with_context(|| format!("{txid} spends {parent_txid}:{vout}, which is spent or deleted"))?;
            output.spender = Some((id, vin));
            self.spends += 1;
            self.evaluate(parent, height);
        }
        Ok(())
    }

    /// Spends the outputs of a transaction's inputs once more: their records stay from this height on, because a spend was just made.
    pub fn spend_again(&mut self, id: Id, height: u32) {
        for (parent, _) in self.entry(id).inputs.clone() {
            if !self.entry(parent).deleted {
                self.evaluate(parent, height);
            }
        }
    }

    /// Adds a block to a transaction or, with `unset`, removes it.
    pub fn set_mined(&mut self, id: Id, block: Block, unset: bool, height: u32) {
        let entry = &mut self.entries[id as usize];
        entry.blocks.retain(|known| *known != block);
        if !unset {
            entry.blocks.push(block);
        }
        let was_mined = entry.unmined_since.is_none();
        let since = if entry.blocks.is_empty() { entry.unmined_since.or(Some(height)) } else { None };
        self.set_unmined(id, since);
        if was_mined && since.is_some() {
            self.late.insert(id);
        }
        self.evaluate(id, height);
    }

    /// Marks a transaction, which has no spenders, as a double spend.
    pub fn set_conflicting(&mut self, id: Id, height: u32) {
        self.entries[id as usize].conflicting = true;
        self.evaluate(id, height);
    }

    /// Lets a double spend win over the holder of its outputs, which has no spenders.
    pub fn win(&mut self, winner: Id, loser: Id, height: u32) {
        self.set_conflicting(loser, height);
        self.entries[winner as usize].conflicting = false;
        if self.entry(winner).unmined_since.is_some() {
            self.late.insert(winner);
        }
        for ((parent, vout), vin) in self.entry(winner).inputs.clone().into_iter().zip(0..) {
            if let Some(output) = &mut self.entries[parent as usize].outputs[vout as usize] {
                (output.spender, output.spender_deleted) = (Some((winner, vin)), false);
            }
            self.evaluate(parent, height);
        }
        self.evaluate(winner, height);
    }

    /// Applies a run, up to the phase in which it ended. Records that an unfinished run had deleted are deleted by the run that replaces
    /// it, too.
    pub fn run(&mut self, current: u32, safe: u32, reached: UtxoPrunerPhase, completed: bool) {
        let cutoff = current.saturating_sub(self.unmined_retention);
        // A preservation lasts for a while, so most runs examine only transactions that became old since the last pass.
        let most = (self.preservation / 8).min(self.retention);
        let all = self.full_pass.is_none_or(|height| current - height >= most);
        let from = if all { 0 } else { self.cutoff.min(cutoff) };
        if all {
            self.full_pass = None;
        }
        if reached > UtxoPrunerPhase::PreserveParents || completed {
            (self.full_pass, self.cutoff) = (if all { Some(current) } else { self.full_pass }, cutoff);
            let mut old: Vec<Id> = self.unmined.range((from, 0)..(cutoff, 0)).map(|(_, id)| *id).collect();
            old.extend(std::mem::take(&mut self.late));
            let parents: BTreeSet<Id> = old.iter().flat_map(|id| &self.entry(*id).inputs).map(|(id, _)| *id).collect();
            for id in parents.into_iter().filter(|id| !self.entry(*id).deleted).collect::<Vec<_>>() {
                let entry = &mut self.entries[id as usize];
                let until = entry.preserve_until.max(Some(current + self.preservation));
                enter(&mut self.preserved, id, &mut entry.preserve_until, until);
                enter(&mut self.due, id, &mut entry.delete_at, None);
            }
        }
        if reached > UtxoPrunerPhase::ExpirePreservations || completed {
            let expired: Vec<Id> = self.preserved.range(..=(current, Id::MAX)).map(|(_, id)| *id).collect();
            self.done.expired += expired.len() as u64;
            for id in expired {
                enter(&mut self.preserved, id, &mut self.entries[id as usize].preserve_until, None);
                self.evaluate(id, current);
            }
        }
        if completed {
            let due: Vec<Id> = self.due.range(..=(safe, Id::MAX)).map(|(_, id)| *id).collect();
            due.into_iter().for_each(|id| self.delete(id, current));
        }
    }

    fn delete(&mut self, id: Id, height: u32) {
        self.done.deleted += 1;
        let entry = &mut self.entries[id as usize];
        entry.deleted = true;
        enter(&mut self.due, id, &mut entry.delete_at, None);
        self.set_unmined(id, None);
        for ((parent, vout), vin) in self.entry(id).inputs.clone().into_iter().zip(0..) {
            let conflicting = self.entries[id as usize].conflicting;
            if let Some(output) = &mut self.entries[parent as usize].outputs[vout as usize]
                && output.spender == Some((id, vin))
            {
                if conflicting {
                    output.spender = None;
                    self.evaluate(parent, height);
                } else {
                    output.spender_deleted = true;
                }
            }
        }
    }

    fn set_unmined(&mut self, id: Id, since: Option<u32>) {
        if since.is_none() {
            self.late.remove(&id);
        }
        enter(&mut self.unmined, id, &mut self.entries[id as usize].unmined_since, since);
    }

    fn evaluate(&mut self, id: Id, height: u32) {
        let entry = &mut self.entries[id as usize];
        let (before, at) = (entry.delete_at, height + self.retention);
        let now = match before {
            _ if entry.preserve_until.is_some() || !entry.eligible() => None,
            Some(before) if entry.conflicting => Some(before),
            _ => before.max(Some(at)),
        };
        enter(&mut self.due, id, &mut entry.delete_at, now);
    }

    /// Returns the double spends that each record must list.
    pub fn conflicting_children(&self) -> BTreeMap<Id, BTreeSet<Txid>> {
        let mut children: BTreeMap<Id, BTreeSet<Txid>> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.conflicting && !entry.deleted) {
            for (parent, _) in &entry.inputs {
                children.entry(*parent).or_default().insert(entry.txid);
            }
        }
        children
    }

    /// Returns a transaction, deleted or existing, whose parents all exist.
    pub fn with_parents(&self, gone: bool) -> Option<Id> {
        let survives = |(parent, _): &(Id, u32)| !self.entry(*parent).deleted;
        let mut found = self.entries().filter(|(_, entry)| {
            entry.deleted == gone && !entry.conflicting && !entry.inputs.is_empty() && entry.inputs.iter().all(survives)
        });
        found.next().map(|(id, _)| id)
    }
}
