//! One record, and its form in the interface.

use crate::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A transaction's id.
pub type Id = [u8; 32];

/// An output that can ever be spent.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its hash.
    pub hash: [u8; 32],
    /// The transaction and input that hold it; kept while the output is frozen.
    pub spender: Option<(Id, u32)>,
    /// True if it is frozen.
    pub frozen: bool,
    /// True if its spender was deleted.
    pub spender_deleted: bool,
}

/// The record of a transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// The transaction.
    pub tx: Rc<Tx>,
    /// Its outputs; `None` for an output that is not a UTXO.
    pub outputs: Vec<Option<Output>>,
    /// Outputs of a page.
    pub batch: u32,
    /// The blocks that contain it.
    pub blocks: Vec<BlockRef>,
    /// The height since which the longest chain has not contained it.
    pub unmined_since: Option<u32>,
    /// The message in which it last became unmined after it was mined, or won as an unmined double spend.
    pub late: Option<u64>,
    /// True if its outputs cannot be spent yet.
    pub locked: bool,
    /// True if it is a double spend.
    pub conflicting: bool,
    /// Double spends that spend from it.
    pub conflicting_children: Vec<Id>,
    /// The height until which it is preserved.
    pub preserve_until: Option<u32>,
    /// The height at which it is deleted.
    pub delete_at: Option<u32>,
    /// The height from which a coinbase can be spent.
    pub spending_height: Option<u32>,
    /// For each reassigned output, the height from which it can be spent.
    pub spendable_in: BTreeMap<u32, u32>,
    /// Reassignments of outputs to new owners.
    pub reassignments: Vec<Reassignment>,
    /// The times between which it was created.
    pub created: (u64, u64),
    /// The fee, if it was given.
    pub fee: Option<u64>,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.shown() == other.shown() && self.created == other.created
    }
}

/// Returns whether a transaction is a coinbase.
pub fn is_coinbase(tx: &Tx) -> bool {
    matches!(tx.inputs[..], [(txid, u32::MAX)] if txid == [0; 32])
}

impl Record {
    /// Creates an unmined record without spent outputs.
    pub fn new(tx: &Rc<Tx>, batch: u32) -> Self {
        let output = |vout: usize| {
            let (satoshis, script) = &tx.outputs[vout];
            let data = script.starts_with(&[0x6A]) || script.starts_with(&[0x00, 0x6A]);
            let output = Output { hash: tx.hash(vout as u32), spender: None, frozen: false, spender_deleted: false };
            (*satoshis > 0 || !data).then_some(output)
        };
        Self {
            tx: Rc::clone(tx),
            outputs: (0..tx.outputs.len()).map(output).collect(),
            batch,
            blocks: Vec::new(),
            unmined_since: None,
            late: None,
            locked: false,
            conflicting: false,
            conflicting_children: Vec::new(),
            preserve_until: None,
            delete_at: None,
            spending_height: None,
            spendable_in: BTreeMap::new(),
            reassignments: Vec::new(),
            created: (0, 0),
            fee: None,
        }
    }

    /// Returns the outputs that its inputs spend, by input; empty for a coinbase.
    pub fn inputs(&self) -> impl Iterator<Item = (u32, Id, u32)> {
        let inputs: &[(Id, u32)] = if is_coinbase(&self.tx) { &[] } else { &self.tx.inputs[..] };
        (0..).zip(inputs).map(|(vin, (txid, vout))| (vin, *txid, *vout))
    }

    /// Returns the distinct transactions that it spends from.
    pub fn parents(&self) -> BTreeSet<Id> {
        self.inputs().map(|(_, parent, _)| parent).collect()
    }

    /// Returns its UTXOs, by number.
    pub fn utxos(&self) -> impl Iterator<Item = (u32, &Output)> {
        (0..).zip(&self.outputs).filter_map(|(vout, output)| Some((vout, output.as_ref()?)))
    }

    /// Returns one of its UTXOs.
    pub fn output(&self, vout: u32) -> Option<&Output> {
        self.outputs.get(vout as usize)?.as_ref()
    }

    /// Returns one of its UTXOs for changes.
    pub fn output_mut(&mut self, vout: u32) -> Option<&mut Output> {
        self.outputs.get_mut(vout as usize)?.as_mut()
    }

    /// Returns the number of pages after the master.
    pub fn extra_pages(&self) -> u32 {
        (self.outputs.len() as u32).div_ceil(self.batch).saturating_sub(1)
    }

    /// Returns the highest block that contains it.
    pub fn highest_block(&self) -> Option<u32> {
        self.blocks.iter().map(|block| block.height).max()
    }

    /// Sets the height since which it is unmined, in a message, or that it is mined. A height that is set stays.
    pub fn set_unmined(&mut self, since: Option<u32>, message: u64) {
        if since.is_none() {
            (self.unmined_since, self.late) = (None, None);
        } else if self.unmined_since.is_none() {
            (self.unmined_since, self.late) = (since, Some(message));
        }
    }

    /// Returns whether nothing more can happen to it: it is a double spend; or all of it is spent, nothing is frozen, it is on the longest
    /// chain, and it is not locked. Locking clears the height of deletion, and only unlocking evaluates it again.
    pub fn eligible(&self) -> bool {
        let done = |output: &Output| output.spender.is_some() && !output.frozen;
        let mined = !self.blocks.is_empty() && self.unmined_since.is_none();
        self.conflicting || mined && !self.locked && self.utxos().all(|(_, output)| done(output))
    }

    /// Sets or clears the height at which it is deleted. The height counts from the call's height or its own highest block, whichever is
    /// larger. It only rises while the record stays eligible, and stays as it is for a double spend.
    pub fn evaluate(&mut self, height: u32, retention: u32) {
        if retention == 0 || self.preserve_until.is_some() {
            return;
        }
        let due = height.max(self.highest_block().unwrap_or(0)) + retention;
        self.delete_at = match self.delete_at {
            Some(at) if self.conflicting => Some(at),
            Some(at) if self.eligible() => Some(at.max(due)),
            None if self.eligible() => Some(due),
            _ => None,
        };
    }

    /// Returns why an output cannot be spent at a height by this input: first reasons of the record, then of the output.
    pub fn refuses(&self, vout: u32, hash: Option<&UtxoHash>, by: (Id, u32), height: u32) -> Option<UtxoSpendError> {
        if self.conflicting {
            return Some(UtxoSpendError::Conflicting);
        }
        if self.locked {
            return Some(UtxoSpendError::Locked);
        }
        self.refuses_a_winner(vout, hash, by, height)
    }

    /// Returns why an output cannot be spent by a winner. Double spends and locks do not stop winners.
    pub fn refuses_a_winner(
        &self,
        vout: u32,
        hash: Option<&UtxoHash>,
        by: (Id, u32),
        height: u32,
    ) -> Option<UtxoSpendError> {
        if let Some(spendable_at) = self.spending_height.filter(|at| height < *at) {
            return Some(UtxoSpendError::CoinbaseImmature { spendable_at });
        }
        let Some(output) = self.output(vout) else { return Some(UtxoSpendError::UtxoNotFound) };
        if hash.is_some_and(|hash| hash[..] != output.hash) {
            return Some(UtxoSpendError::UtxoHashMismatch { stored: output.hash.into() });
        }
        if output.frozen {
            return Some(UtxoSpendError::Frozen);
        }
        if let Some(&at) = self.spendable_in.get(&vout).filter(|at| height < **at) {
            return Some(UtxoSpendError::FrozenUntil { height: at });
        }
        match output.spender {
            Some(held) if held == by => output.spender_deleted.then_some(UtxoSpendError::InvalidSpend),
            Some((txid, vin)) => Some(UtxoSpendError::Spent { by: Spender { txid: txid.into(), vin } }),
            None => None,
        }
    }

    /// Returns the status of an output at a height, for a new spender.
    pub fn status(&self, vout: u32, height: u32) -> SpendStatus {
        match self.refuses(vout, None, ([0; 32], 0), height) {
            None => SpendStatus::Ok,
            Some(UtxoSpendError::Conflicting) => SpendStatus::Conflicting,
            Some(UtxoSpendError::Locked) => SpendStatus::Locked,
            Some(
                UtxoSpendError::CoinbaseImmature { spendable_at }
                | UtxoSpendError::FrozenUntil { height: spendable_at },
            ) => SpendStatus::Immature { spendable_at },
            Some(UtxoSpendError::UtxoNotFound) => SpendStatus::NotFound,
            Some(UtxoSpendError::Frozen) => SpendStatus::Frozen,
            Some(_) => SpendStatus::Spent,
        }
    }

    fn page(&self, page: u32) -> UtxoPage {
        let range = page * self.batch..(page + 1) * self.batch;
        let utxos: Vec<&Output> = self.utxos().filter(|(vout, _)| range.contains(vout)).map(|(_, o)| o).collect();
        let spent = utxos.iter().filter(|output| output.spender.is_some()).count() as u32;
        UtxoPage { record_utxos: utxos.len() as u32, spent_utxos: spent }
    }

    /// Returns the TxInpoints: the parents in order of appearance, and the outputs of each.
    fn inpoints(&self) -> Vec<u8> {
        let mut parents: Vec<(Id, Vec<u32>)> = Vec::new();
        for (_, parent, vout) in self.inputs() {
            match parents.iter_mut().find(|(id, _)| *id == parent) {
                Some((_, vouts)) => vouts.push(vout),
                None => parents.push((parent, vec![vout])),
            }
        }
        let mut bytes = (parents.len() as u32).to_le_bytes().to_vec();
        parents.iter().for_each(|(id, _)| bytes.extend(id));
        for (_, vouts) in &parents {
            bytes.extend((vouts.len() as u32).to_le_bytes());
            vouts.iter().for_each(|vout| bytes.extend(vout.to_le_bytes()));
        }
        bytes
    }

    /// Returns the record as `utxo_get` shows it. Its creation time and the place of its bytes are left empty because the model does not
    /// know them.
    pub fn shown(&self) -> UtxoRecord {
        let entry = |output: &Output| {
            let spender = |(txid, vin): (Id, u32)| [&txid[..], &vin.to_le_bytes()].concat();
            let spending = if output.frozen { Some(vec![0xFF; 36]) } else { output.spender.map(spender) };
            ByteBuf::from([&output.hash[..], &spending.unwrap_or_default()].concat())
        };
        let pages: Vec<UtxoPage> = (1..=self.extra_pages()).map(|page| self.page(page)).collect();
        let master = self.page(0);
        let deleted = self.utxos().filter(|(_, output)| output.spender_deleted);
        let deleted: BTreeSet<Id> = deleted.filter_map(|(_, output)| Some(output.spender?.0)).collect();
        UtxoRecord {
            txid: self.tx.id(),
            utxos: self.outputs.iter().map(|output| output.as_ref().map(entry)).collect(),
            first: 0,
            total_outputs: self.outputs.len() as u32,
            total_utxos: self.utxos().count() as u32,
            utxo_batch_size: self.batch,
            record_utxos: master.record_utxos,
            spent_utxos: master.spent_utxos,
            total_extra_recs: self.extra_pages(),
            spent_extra_recs: pages.iter().filter(|page| page.spent_utxos == page.record_utxos).count() as u32,
            extra_pages: pages,
            extra_pages_cursor: None,
            spendable_in: self.spendable_in.iter().map(|(&vout, &height)| SpendableIn { vout, height }).collect(),
            frozen: self.utxos().any(|(_, output)| output.frozen),
            locked: self.locked,
            conflicting: self.conflicting,
            conflicting_children: self.conflicting_children.iter().map(Txid::from).collect(),
            unmined_since: self.unmined_since,
            created_at_ns: 0,
            preserve_until: self.preserve_until,
            postponed_until: None,
            delete_at_height: self.delete_at,
            spending_height: self.spending_height,
            blocks: self.blocks.clone(),
            transaction: TransactionPlace::Record,
            reassignments: self.reassignments.clone(),
            deleted_children: deleted.iter().map(Txid::from).collect(),
            fee: self.fee,
            size_in_bytes: self.tx.raw.len() as u64,
            inputs: self.inputs().count() as u32,
            inpoints: Some(ByteBuf::from(self.inpoints())),
            is_coinbase: is_coinbase(&self.tx),
            version: 2,
            lock_time: 7,
            extended: false,
            being_deleted: false,
        }
    }

    /// Returns whether its bytes lie outside the record: they do if it has more than one page.
    pub fn external(&self) -> bool {
        self.extra_pages() > 0
    }
}
