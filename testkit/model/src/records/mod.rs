//! Model of UTXO records by `docs/design/records.md`, over ordinary collections: the effects of a history's messages, and of deletions. `rules`
//! tells which records are deleted, and when; `family` creates the transactions of a history.

mod conflicts;
mod family;
mod rules;
mod settings;
mod shown;

pub use conflicts::Resolved;
pub use family::{Blob, Family, Template, Transaction, Txid};
pub use rules::{Heights, Spent};
pub use settings::{Change, FLOOR, Setting, Settings};

use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// The holder of a spent output.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// The spender.
    pub by: Txid,
    /// The input of the spender.
    pub vin: u32,
    /// True if the spender's record was deleted since.
    pub deleted: bool,
}

/// An output that is a UTXO.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The UTXO hash.
    pub hash: [u8; 32],
    /// The holder, if it is spent.
    pub hold: Option<Hold>,
    /// True if it is frozen.
    pub frozen: bool,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The outputs that it spends, by input.
    pub inputs: Vec<(Txid, u32)>,
    /// Its outputs; `None` for one that is not a UTXO.
    pub outputs: Vec<Option<Output>>,
    /// Outputs of a page.
    pub batch: u32,
    /// The external blob that its bytes are in.
    pub blob: Option<ExternalStore>,
    /// True if none of its outputs can be spent.
    pub locked: bool,
    /// True if it is a double spend.
    pub conflicting: bool,
    /// Double spends that spend from it.
    pub conflicting_children: BTreeSet<Txid>,
    /// The blocks that contain it.
    pub blocks: Vec<BlockRef>,
    /// The height since which the longest chain has not contained it.
    pub unmined_since: Option<u32>,
    /// It was mined before, or has won as a double spend, and no run has examined it since.
    pub late: bool,
    /// The height until which it is preserved.
    pub preserve_until: Option<u32>,
    /// The height at which it is deleted.
    pub delete_at_height: Option<u32>,
    /// True while its deletion waits for its external blob.
    pub deleting: bool,
}

/// Inputs above which a record is processed in several messages.
const MANY: usize = 1_000;
/// The largest height.
pub const MOST: u32 = u32::MAX / 2;

/// The height named by an operation, the retention in force, and the largest height that is accepted.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The height that the operation names.
    pub height: u32,
    /// `block_height_retention`.
    pub retention: u32,
    /// The largest height that is accepted.
    pub most: u32,
}

/// All records, and the highest block of any record that was deleted as spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records(pub BTreeMap<Txid, Record>, pub u32);

/// Converts a txid.
pub fn hash_of(txid: &[u8]) -> Txid {
    txid.try_into().expect("the history's hashes have 32 bytes")
}

/// Checks that a height can be named.
///
/// # Errors
/// When it cannot.
pub fn is_height(height: u32, most: u32) -> Result<(), UtxoRefusal> {
    match height {
        0 => Err(UtxoRefusal::BadHeight(BadHeight::Zero)),
        _ if height > most => Err(UtxoRefusal::BadHeight(BadHeight::TooHigh { most })),
        _ => Ok(()),
    }
}

impl Hold {
    /// Returns true if this input holds the output.
    pub fn is(&self, by: &Txid, vin: u32) -> bool {
        (&self.by, self.vin) == (by, vin)
    }

    fn spender(&self) -> Spender {
        Spender { txid: self.by.into(), vin: self.vin }
    }
}

impl Output {
    /// Returns true if it can be spent, unless its record forbids it.
    pub fn free(&self) -> bool {
        self.hold.is_none() && !self.frozen
    }
}

impl Record {
    /// Returns true if any of its outputs can be spent.
    pub fn sweepable(&self) -> bool {
        !self.deleting && !self.locked && !self.conflicting && self.utxos().any(Output::free)
    }

    /// Returns its outputs that are UTXOs.
    pub fn utxos(&self) -> impl Iterator<Item = &Output> {
        self.outputs.iter().flatten()
    }

    /// Returns the holders of its spent outputs.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.utxos().filter_map(|output| output.hold.as_ref())
    }

    /// Returns the transactions that it spends from.
    pub fn parents(&self) -> BTreeSet<Txid> {
        self.inputs.iter().map(|(parent, _)| *parent).collect()
    }

    /// Returns true if its parents are updated over several messages.
    pub fn is_large(&self) -> bool {
        self.inputs.len() > MANY
    }

    /// Returns the number of pages after the master.
    pub fn pages(&self) -> u64 {
        self.outputs.len().div_ceil(self.batch as usize) as u64 - 1
    }

    /// Returns true if every UTXO is spent, and none is frozen.
    pub fn spent(&self) -> bool {
        self.utxos().all(|output| output.hold.is_some() && !output.frozen)
    }

    /// Sets the height since which it is unmined, or that it is mined. A height that is set stays.
    fn set_unmined(&mut self, since: Option<u32>) {
        self.late = since.is_some() && (self.late || self.unmined_since.is_none());
        self.unmined_since = since.and(self.unmined_since.or(since));
    }

    /// Returns true if it spends in no block of the longest chain, and may still come into one.
    pub fn is_live_unmined(&self) -> bool {
        self.unmined_since.is_some() && !self.conflicting && !self.deleting
    }

    /// Returns true if nothing more can happen to it.
    pub fn eligible(&self) -> bool {
        let on_longest_chain = !self.blocks.is_empty() && self.unmined_since.is_none();
        self.conflicting || !self.locked && on_longest_chain && self.spent()
    }

    /// Sets, keeps or clears the height at which it is deleted.
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

    /// Returns whether this input newly spends the output: `false` if it holds the output already.
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
    /// Returns a record that operations can find. A record being deleted is not found.
    pub fn get(&self, txid: &[u8]) -> Result<&Record, UtxoRefusal> {
        self.0.get(&hash_of(txid)).filter(|record| !record.deleting).ok_or(UtxoRefusal::TxNotFound)
    }

    /// Returns such a record for changes.
    pub fn get_mut(&mut self, txid: &[u8]) -> Result<&mut Record, UtxoRefusal> {
        self.0.get_mut(&hash_of(txid)).filter(|record| !record.deleting).ok_or(UtxoRefusal::TxNotFound)
    }

    /// Evaluates those of these records that operations can find.
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
            return Err(UtxoCreateError::BadHeight(BadHeight::TooHigh { most: at.most }));
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
            late: false,
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

    /// Refuses a replay from before the pruned blocks, unless one of its parents exists and does not record the transaction's deletion.
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

    /// `utxo_spend`. Returns how many outputs were unspent before.
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
            let outputs = &mut self.get_mut(&spend.txid).expect("it was checked before").outputs;
            let output = outputs[spend.vout as usize].as_mut().expect("it was checked before");
            output.hold = Some(Hold { by, vin: spend.vin, deleted: false });
        }
        self.evaluate(item.spends.iter().map(|spend| hash_of(&spend.txid)), at);
        Ok(new.len() as u32)
    }

    /// `utxo_unspend`. Returns whether the spender held the output.
    pub fn unspend(&mut self, item: &Unspend, at: At) -> Result<bool, UtxoError> {
        is_height(at.height, at.most)?;
        let record = self.get_mut(&item.outpoint.txid)?;
        let vout = item.outpoint.vout;
        let by = hash_of(&item.spender.txid);
        let held = record.utxo(vout)?.hold.as_ref().is_some_and(|hold| hold.is(&by, item.spender.vin));
        if held {
            record.outputs[vout as usize].as_mut().expect("it was checked before").hold = None;
        }
        record.evaluate(at);
        Ok(held)
    }

    /// `utxo_set_mined`. Returns the blocks that contain the transaction afterwards.
    pub fn set_mined(
        &mut self,
        set: &UtxoSetMinedBatch,
        item: &MinedTransaction,
        at: At,
    ) -> Result<Vec<u32>, UtxoError> {
        is_height(at.height, at.most)?;
        is_height(set.block_height.max(1), at.most)?;
        let record = self.get_mut(&item.txid)?;
        let block = BlockRef { block_id: set.block_id, height: set.block_height, subtree: item.subtree };
        let there = record.blocks.iter().find(|known| known.block_id == set.block_id).copied();
        match there {
            _ if set.unset => record.blocks.retain(|block| block.block_id != set.block_id),
            Some(known) if known != block => return Err(UtxoError::OtherBlock { block: known }),
            Some(_) => {}
            None => record.blocks.push(block),
        }
        if set.unset && there.is_none() {
            // The record does not have the block, so nothing is removed.
        } else if record.blocks.is_empty() {
            record.set_unmined(Some(at.height));
        } else if set.on_longest_chain {
            record.set_unmined(None);
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
            record.set_unmined(Some(at.height));
        } else if record.blocks.is_empty() {
            return Err(UtxoError::NotMined);
        } else {
            record.set_unmined(None);
        }
        record.evaluate(at);
        Ok(())
    }

    /// `utxo_freeze` and `utxo_unfreeze`. Returns how many outputs changed.
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

    /// Preserves a record until a height, for a caller.
    pub fn preserve_at(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoError> {
        is_height(until, MOST)?;
        Ok(self.preserve(txid, until))
    }

    /// Preserves a record until a height. Returns whether there is one.
    pub fn preserve(&mut self, txid: &[u8], until: u32) -> bool {
        let Ok(record) = self.get_mut(txid) else { return false };
        record.preserve_until = Some(until);
        record.delete_at_height = None;
        true
    }

    /// Preserves a record until a height, for phase 1: a longer preservation stays.
    pub fn promise(&mut self, txid: &[u8], until: u32) -> bool {
        let longer = self.get(txid).ok().and_then(|record| record.preserve_until).is_some_and(|before| before >= until);
        longer || self.preserve(txid, until)
    }

    /// Deletes a record. Its parents record that their spender was deleted, and remove it from their lists; outputs that a double spend
    /// held become unspent. Returns how many outputs newly record a deleted spender.
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
        let mut marked = 0;
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
                marked += u64::from(!std::mem::replace(&mut hold.deleted, true));
            }
        }
        marked
    }
}
