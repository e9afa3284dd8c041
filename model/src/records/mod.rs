//! UTXO records as `docs/design.md` 6 has them, over ordinary collections: the effect of a history's messages on them, and of a
//! deletion. `rules` says which records are deleted, and when; `family` makes the transactions of a history.

mod conflicts;
mod family;
mod rules;
mod settings;
mod shown;

pub use conflicts::Resolved;
pub use family::{Blob, Family, Template, Transaction, Txid};
pub use rules::{Heights, Spent};
pub use settings::{Change, FLOOR, Setting, Settings};

use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// The spender.
    pub by: Txid,
    /// The input of the spender.
    pub vin: u32,
    /// Its record was deleted since.
    pub deleted: bool,
}

/// An output that is a UTXO.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The UTXO hash.
    pub hash: [u8; 32],
    /// Who holds it, if it is spent.
    pub hold: Option<Hold>,
    /// It is frozen.
    pub frozen: bool,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The outputs that it spends, by input.
    pub inputs: Vec<(Txid, u32)>,
    /// Its outputs; `None` for one that is no UTXO.
    pub outputs: Vec<Option<Output>>,
    /// Outputs of a page.
    pub batch: u32,
    /// The blob outside that its bytes are in.
    pub blob: Option<ExternalStore>,
    /// Nothing of it can be spent.
    pub locked: bool,
    /// It is a double spend.
    pub conflicting: bool,
    /// Double spends that spend from it.
    pub conflicting_children: BTreeSet<Txid>,
    /// The blocks that have it.
    pub blocks: Vec<BlockRef>,
    /// The height since which the longest chain has not had it.
    pub unmined_since: Option<u32>,
    /// The height until which it is kept.
    pub preserve_until: Option<u32>,
    /// The height at which it is deleted.
    pub delete_at_height: Option<u32>,
    /// It is going: its blob outside is waited for.
    pub deleting: bool,
}

/// Inputs above which a record goes over several messages.
const MANY: usize = 1_000;
/// The largest height.
pub const MOST: u32 = u32::MAX / 2;

/// The height that an operation names, the retention in force, and the largest height that is accepted.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The height that the operation names.
    pub height: u32,
    /// `block_height_retention`.
    pub retention: u32,
    /// The largest height that is accepted.
    pub most: u32,
}

/// All records, and the highest block of any that was deleted as spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records(pub BTreeMap<Txid, Record>, pub u32);

/// A txid as the model has it.
pub fn hash_of(txid: &[u8]) -> Txid {
    txid.try_into().expect("the history's hashes have 32 bytes")
}

/// # Errors
/// Where it is no height.
pub fn is_height(height: u32, most: u32) -> Result<(), UtxoRefusal> {
    match height {
        0 => Err(UtxoRefusal::ZeroHeight),
        _ if height > most => Err(UtxoRefusal::BadHeight { most }),
        _ => Ok(()),
    }
}

impl Hold {
    /// Whether this input holds the output.
    pub fn is(&self, by: &Txid, vin: u32) -> bool {
        (&self.by, self.vin) == (by, vin)
    }

    fn spender(&self) -> Spender {
        Spender { txid: self.by.into(), vin: self.vin }
    }
}

impl Output {
    /// It can be spent, if its record can.
    pub fn free(&self) -> bool {
        self.hold.is_none() && !self.frozen
    }
}

impl Record {
    /// Something of it can be spent.
    pub fn sweepable(&self) -> bool {
        !self.deleting && !self.locked && !self.conflicting && self.utxos().any(Output::free)
    }

    /// Its outputs that are UTXOs.
    pub fn utxos(&self) -> impl Iterator<Item = &Output> {
        self.outputs.iter().flatten()
    }

    /// The spends of its outputs.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.utxos().filter_map(|output| output.hold.as_ref())
    }

    /// The transactions that it spends from.
    pub fn parents(&self) -> BTreeSet<Txid> {
        self.inputs.iter().map(|(parent, _)| *parent).collect()
    }

    /// Its parents are told over several messages.
    pub fn is_large(&self) -> bool {
        self.inputs.len() > MANY
    }

    /// Pages after the master.
    pub fn pages(&self) -> u64 {
        self.outputs.len().div_ceil(self.batch as usize) as u64 - 1
    }

    /// Every UTXO is spent, and none frozen.
    pub fn spent(&self) -> bool {
        self.utxos().all(|output| output.hold.is_some() && !output.frozen)
    }

    /// Nothing more can happen to it.
    pub fn eligible(&self) -> bool {
        let on_longest_chain = !self.blocks.is_empty() && self.unmined_since.is_none();
        self.conflicting || !self.locked && on_longest_chain && self.spent()
    }

    /// Sets, keeps or takes away the height at which it is deleted.
    pub fn evaluate(&mut self, At { height, retention, .. }: At) {
        let highest = self.blocks.iter().map(|block| block.height).max().unwrap_or(0);
        self.delete_at_height = match self.delete_at_height {
            _ if self.preserve_until.is_some() || !self.eligible() => None,
            before if retention == 0 => before,
            Some(before) if self.conflicting => Some(before),
            before => before.max(Some(height.max(highest) + retention)),
        };
    }

    fn utxo(&self, vout: u32) -> Result<&Output, UtxoRefusal> {
        self.outputs.get(vout as usize).and_then(Option::as_ref).ok_or(UtxoRefusal::UtxoNotFound)
    }

    /// Whether an output becomes spent by this input: `false` if the input holds it already.
    pub fn takes(&self, vout: u32, by: &Txid, vin: u32) -> Result<bool, UtxoRefusal> {
        match &self.utxo(vout)?.hold {
            _ if self.utxo(vout)?.frozen => Err(UtxoRefusal::Frozen),
            None => Ok(true),
            Some(hold) if hold.is(by, vin) && hold.deleted => Err(UtxoRefusal::InvalidSpend),
            Some(hold) if hold.is(by, vin) => Ok(false),
            Some(hold) => Err(UtxoRefusal::Spent { by: hold.spender() }),
        }
    }
}

impl Records {
    /// A record that operations find: one that is going they do not.
    pub fn get(&self, txid: &[u8]) -> Result<&Record, UtxoRefusal> {
        self.0.get(&hash_of(txid)).filter(|record| !record.deleting).ok_or(UtxoRefusal::TxNotFound)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, txid: &[u8]) -> Result<&mut Record, UtxoRefusal> {
        self.0.get_mut(&hash_of(txid)).filter(|record| !record.deleting).ok_or(UtxoRefusal::TxNotFound)
    }

    /// Evaluates those of these records that operations find.
    pub fn evaluate(&mut self, touched: impl IntoIterator<Item = Txid>, at: At) {
        touched.into_iter().for_each(|txid| {
            if let Ok(record) = self.get_mut(&txid) {
                record.evaluate(at);
            }
        });
    }

    /// `utxo_create`.
    pub fn create(
        &mut self,
        one: &Transaction,
        item: &UtxoCreate,
        batch: u32,
        at: At,
        is_queued: bool,
    ) -> Result<(), UtxoCreateError> {
        is_height(at.height, at.most)?;
        let mut blocks = item.mined.iter().flat_map(|mined| &mined.blocks);
        if blocks.any(|block| block.height > at.most) {
            return Err(UtxoCreateError::BadHeight { most: at.most });
        }
        match self.0.get(&one.tx.txid) {
            Some(record) if record.deleting => return Err(UtxoCreateError::BeingDeleted),
            Some(_) => return Err(UtxoCreateError::TxExists),
            None if one.blob.is_some() && is_queued => return Err(UtxoCreateError::BeingDeleted),
            None if one.blob.is_some() && self.0.values().any(|record| !record.deleting && record.blob == one.blob) => {
                return Err(UtxoCreateError::BlobTaken);
            }
            None => {}
        }
        if item.mined.as_ref().is_some_and(|mined| mined.blocks.iter().all(|block| block.height <= self.1)) {
            self.check_replay(one, item)?;
        }
        let output = |vout: usize| Output { hash: one.hashes[vout], hold: None, frozen: false };
        let record = Record {
            inputs: one.tx.inputs.clone(),
            outputs: (0..one.tx.outputs.len()).map(|vout| one.is_utxo(vout).then(|| output(vout))).collect(),
            batch,
            blob: one.blob.clone(),
            locked: item.locked.unwrap_or(item.mined.is_none()),
            conflicting: item.conflicting,
            conflicting_children: BTreeSet::new(),
            blocks: item.mined.as_ref().map_or(Vec::new(), |mined| mined.blocks.clone()),
            unmined_since: (!item.mined.as_ref().is_some_and(|mined| mined.on_longest_chain)).then_some(at.height),
            preserve_until: None,
            delete_at_height: None,
            deleting: false,
        };
        self.0.insert(one.tx.txid, record);
        if item.conflicting {
            self.enter_with_parents(&one.tx.txid);
        }
        self.evaluate([one.tx.txid], at);
        Ok(())
    }

    /// A replay from where records were pruned is refused, unless a parent is there that does not say so.
    fn check_replay(&self, one: &Transaction, item: &UtxoCreate) -> Result<(), UtxoCreateError> {
        let is_told = |(&(parent, vout), vin): (&(Txid, u32), u32)| {
            let output = self.0.get(&parent).and_then(|parent| parent.outputs.get(vout as usize)?.as_ref());
            let hold = output.and_then(|output| output.hold.as_ref());
            hold.is_some_and(|hold| hold.deleted && hold.is(&one.tx.txid, vin))
        };
        let has_parent = one.tx.inputs.iter().any(|(parent, _)| self.get(parent).is_ok());
        let is_replay = one.tx.inputs.iter().zip(0..).any(is_told) || !has_parent && !item.is_new;
        if is_replay { Err(UtxoCreateError::Pruned) } else { Ok(()) }
    }

    /// Adds a double spend to the lists of its parents.
    pub fn enter_with_parents(&mut self, txid: &Txid) {
        for parent in self.0[txid].parents() {
            if let Ok(record) = self.get_mut(&parent) {
                record.conflicting_children.insert(*txid);
            }
        }
    }

    fn check_spend(&self, spend: &Spend, by: &Txid) -> Result<bool, UtxoRefusal> {
        let record = self.get(&spend.txid)?;
        match record {
            _ if record.conflicting => Err(UtxoRefusal::Conflicting),
            _ if record.locked => Err(UtxoRefusal::Locked),
            _ => record.takes(spend.vout, by, spend.vin),
        }
    }

    /// `utxo_spend`: the outputs that were unspent before.
    pub fn spend(&mut self, item: &TransactionSpends, at: At) -> Result<u32, Vec<RefusedSpend>> {
        is_height(at.height, at.most).map_err(|error| vec![RefusedSpend { spend: 0, error: error.into() }])?;
        let by = hash_of(&item.spender);
        let checked = item.spends.iter().zip(0..).map(|(spend, number)| (number, self.check_spend(spend, &by)));
        let (mut errors, mut new) = (Vec::new(), Vec::new());
        for (number, checked) in checked {
            match checked {
                Ok(true) => new.push(&item.spends[number as usize]),
                Ok(false) => {}
                Err(error) => errors.push(RefusedSpend { spend: number, error: error.into() }),
            }
        }
        if !errors.is_empty() {
            errors.truncate(1_000);
            return Err(errors);
        }
        for spend in &new {
            let outputs = &mut self.get_mut(&spend.txid).expect("it was looked at before").outputs;
            let output = outputs[spend.vout as usize].as_mut().expect("it was looked at before");
            output.hold = Some(Hold { by, vin: spend.vin, deleted: false });
        }
        self.evaluate(item.spends.iter().map(|spend| hash_of(&spend.txid)), at);
        Ok(new.len() as u32)
    }

    /// `utxo_unspend`: whether the spender held the output.
    pub fn unspend(&mut self, item: &Unspend, at: At) -> Result<bool, UtxoError> {
        is_height(at.height, at.most)?;
        let record = self.get_mut(&item.outpoint.txid)?;
        let vout = item.outpoint.vout;
        let by = hash_of(&item.spender.txid);
        let held = record.utxo(vout)?.hold.as_ref().is_some_and(|hold| hold.is(&by, item.spender.vin));
        if held {
            record.outputs[vout as usize].as_mut().expect("it was looked at before").hold = None;
        }
        record.evaluate(at);
        Ok(held)
    }

    /// `utxo_set_mined`: the blocks that have it now.
    pub fn set_mined(
        &mut self,
        set: &UtxoSetMinedBatch,
        item: &MinedTransaction,
        at: At,
    ) -> Result<Vec<u32>, UtxoError> {
        is_height(at.height, at.most)?;
        is_height(set.block_height.max(1), at.most)?;
        let record = self.get_mut(&item.txid)?;
        let there = record.blocks.iter().any(|block| block.block_id == set.block_id);
        if set.unset {
            record.blocks.retain(|block| block.block_id != set.block_id);
        } else if !there {
            let (block_id, height, subtree) = (set.block_id, set.block_height, item.subtree);
            record.blocks.push(BlockRef { block_id, height, subtree });
        }
        if set.unset && !there {
            // The record does not have the block, so nothing is removed.
        } else if record.blocks.is_empty() {
            record.unmined_since = Some(at.height);
        } else if set.on_longest_chain {
            record.unmined_since = None;
        }
        record.locked = false;
        record.evaluate(at);
        Ok(record.blocks.iter().map(|block| block.block_id).collect())
    }

    /// `utxo_set_locked`.
    pub fn set_locked(&mut self, txid: &[u8], locked: bool, at: At) -> Result<(), UtxoError> {
        is_height(at.height, at.most)?;
        let record = self.get_mut(txid)?;
        record.locked = locked;
        if locked {
            record.delete_at_height = None;
        } else {
            record.evaluate(at);
        }
        Ok(())
    }

    /// `utxo_set_on_longest_chain`.
    pub fn set_on_longest_chain(&mut self, txid: &[u8], is: bool, at: At) -> Result<(), UtxoError> {
        is_height(at.height, at.most)?;
        let record = self.get_mut(txid)?;
        if !is {
            record.unmined_since.get_or_insert(at.height);
        } else if record.blocks.is_empty() {
            return Err(UtxoError::NotMined);
        } else {
            record.unmined_since = None;
        }
        record.evaluate(at);
        Ok(())
    }

    /// `utxo_freeze` and `utxo_unfreeze`: outputs that changed.
    pub fn set_frozen(&mut self, target: &FreezeTarget, frozen: bool, at: At) -> Result<u32, UtxoError> {
        is_height(at.height, at.most)?;
        let record = self.get_mut(&target.txid)?;
        let meant = (0..).zip(&mut record.outputs).filter(|(vout, _)| target.vout.is_none_or(|meant| meant == *vout));
        let mut outputs: Vec<&mut Output> = meant.filter_map(|(_, output)| output.as_mut()).collect();
        if outputs.is_empty() {
            return Err(UtxoError::UtxoNotFound);
        }
        outputs.retain(|output| output.frozen != frozen);
        if outputs.is_empty() {
            return Err(if frozen { UtxoError::AlreadyFrozen } else { UtxoError::UtxoNotFrozen });
        }
        let changed = outputs.len() as u32;
        outputs.into_iter().for_each(|output| output.frozen = frozen);
        record.evaluate(at);
        Ok(changed)
    }

    /// What a caller asks for.
    pub fn preserve_at(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoError> {
        is_height(until, MOST)?;
        Ok(self.preserve(txid, until))
    }

    /// Keeps a record until a height: whether there is one.
    pub fn preserve(&mut self, txid: &[u8], until: u32) -> bool {
        let Ok(record) = self.get_mut(txid) else { return false };
        record.preserve_until = Some(until);
        record.delete_at_height = None;
        true
    }

    /// Phase 1's: a longer promise stays.
    pub fn promise(&mut self, txid: &[u8], until: u32) -> bool {
        let longer = self.get(txid).ok().and_then(|record| record.preserve_until).is_some_and(|before| before >= until);
        longer || self.preserve(txid, until)
    }

    /// A record goes: its parents say that their spender was deleted, and list it no more; what a double spend held they have
    /// back. Answers how many outputs say so that did not before.
    pub fn remove(&mut self, txid: &Txid, at: At) -> u64 {
        let record = self.0.remove(txid).expect("it is there");
        if !record.conflicting {
            self.1 = self.1.max(record.blocks.iter().map(|block| block.height).max().unwrap_or(0));
        }
        for parent in record.parents() {
            if let Ok(parent) = self.get_mut(&parent) {
                parent.conflicting_children.remove(txid);
            }
        }
        let mut told = 0;
        for (&(parent, vout), vin) in record.inputs.iter().zip(0..) {
            let output = self.get_mut(&parent).ok().and_then(|parent| parent.outputs.get_mut(vout as usize));
            if record.conflicting {
                let held = |output: &&mut Output| output.hold.as_ref().is_some_and(|hold| hold.is(txid, vin));
                if let Some(output) = output.and_then(Option::as_mut).filter(held) {
                    output.hold = None;
                    self.evaluate([parent], at);
                }
                continue;
            }
            let hold = output.and_then(Option::as_mut).and_then(|output| output.hold.as_mut());
            if let Some(hold) = hold.filter(|hold| hold.is(txid, vin)) {
                told += u64::from(!std::mem::replace(&mut hold.deleted, true));
            }
        }
        told
    }
}
