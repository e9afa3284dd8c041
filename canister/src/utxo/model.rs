//! The UTXO store as `docs/design.md` 6 says it, over ordinary collections and with no cleverness: what the real one is
//! compared with.

mod conflict;
mod read;
pub mod source;
mod upload;

use coppice_interface::*;
use serde_bytes::ByteBuf;
use source::{Given, given};
use std::collections::{BTreeMap, BTreeSet};
use upload::Upload;

/// What every operation is told.
#[derive(Clone, Debug)]
pub struct Call {
    /// The height at which the chain is.
    pub height: u32,
    /// Unix nanoseconds.
    pub now_ns: u64,
    /// The settings in force.
    pub settings: UtxoSettings,
    /// The largest height that the call, or a block that it names, may have.
    pub most: u32,
}

impl Call {
    fn check(&self) -> Result<(), UtxoRefusal> {
        if self.height == 0 { Err(UtxoRefusal::ZeroHeight) } else { self.check_block(self.height) }
    }

    fn check_block(&self, height: u32) -> Result<(), UtxoRefusal> {
        if height > self.most { Err(UtxoRefusal::BadHeight { most: self.most }) } else { Ok(()) }
    }
}

/// A txid or a UTXO hash.
pub type Hash = [u8; 32];

/// Who spends an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub by: Hash,
    pub vin: u32,
    /// The spender's record was deleted since.
    pub deleted: bool,
}

/// An output that is a UTXO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub hash: Hash,
    pub hold: Option<Hold>,
    pub frozen: bool,
}

/// A record.
#[derive(Clone, Debug)]
pub struct Record {
    pub given: Given,
    pub outputs: Vec<Option<Output>>,
    pub batch: u32,
    pub spendable_in: BTreeMap<u32, u32>,
    pub reassignments: Vec<Reassignment>,
    pub locked: bool,
    pub conflicting: bool,
    pub conflicting_children: Vec<Hash>,
    pub unmined_since: Option<u32>,
    pub created_at: u64,
    pub preserve_until: Option<u32>,
    pub delete_at_height: Option<u32>,
    pub spending_height: u32,
    pub blocks: Vec<BlockRef>,
    pub fee: Option<u64>,
}

/// The ordered indexes: records by height.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    pub deletable: BTreeMap<u32, BTreeSet<Hash>>,
    pub unmined: BTreeMap<u32, BTreeSet<Hash>>,
    pub preserved: BTreeMap<u32, BTreeSet<Hash>>,
}

/// The store.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub records: BTreeMap<Hash, Record>,
    /// The highest block of any record that was deleted as spent.
    pub pruned: u32,
    /// The transaction that is being uploaded.
    pub upload: Option<Upload>,
}

fn buf<T: From<Hash>>(hash: &Hash) -> T {
    T::from(*hash)
}

/// A hash that an argument gives.
pub fn hash_argument(field: &str, bytes: &[u8]) -> Result<Hash, UtxoRefusal> {
    bytes.try_into().map_err(|_| UtxoRefusal::BadArgument { field: field.into(), why: "it has not 32 bytes".into() })
}

impl Hold {
    fn spender(&self) -> Spender {
        Spender { txid: buf(&self.by), vin: self.vin }
    }

    fn is(&self, by: &Hash, vin: u32) -> bool {
        (&self.by, self.vin) == (by, vin)
    }
}

impl Output {
    fn check_hash(&self, hash: &Hash) -> Result<(), UtxoRefusal> {
        let stored = UtxoHash::from(self.hash);
        if self.hash == *hash { Ok(()) } else { Err(UtxoRefusal::UtxoHashMismatch { stored }) }
    }

    /// 32 bytes, or 68.
    fn encoded(&self) -> ByteBuf {
        let mut bytes = self.hash.to_vec();
        match &self.hold {
            _ if self.frozen => bytes.extend([0xff; 36]),
            Some(hold) => {
                bytes.extend(hold.by);
                bytes.extend(hold.vin.to_le_bytes());
            }
            None => {}
        }
        ByteBuf::from(bytes)
    }
}

impl Record {
    fn utxo(&self, vout: u32) -> Result<&Output, UtxoRefusal> {
        self.outputs.get(vout as usize).and_then(Option::as_ref).ok_or(UtxoRefusal::UtxoNotFound)
    }

    fn utxo_mut(&mut self, vout: u32) -> &mut Output {
        self.outputs[vout as usize].as_mut().expect("the output was looked at before")
    }

    fn utxos(&self) -> impl Iterator<Item = &Output> {
        self.outputs.iter().flatten()
    }

    /// Its parents, each once.
    fn parents(&self) -> Vec<Hash> {
        let mut parents = Vec::new();
        for (parent, _) in &self.given.inputs {
            if !parents.contains(parent) {
                parents.push(*parent);
            }
        }
        parents
    }

    fn mature(&self, height: u32) -> Result<(), UtxoRefusal> {
        let spendable_at = self.spending_height;
        if height < spendable_at { Err(UtxoRefusal::CoinbaseImmature { spendable_at }) } else { Ok(()) }
    }

    /// What stands between an output and its spending, but for another spender.
    fn thawed(&self, vout: u32, height: u32) -> Result<(), UtxoRefusal> {
        match self.spendable_in.get(&vout) {
            _ if self.utxo(vout)?.frozen => Err(UtxoRefusal::Frozen),
            Some(&from) if height < from => Err(UtxoRefusal::FrozenUntil { height: from }),
            _ => Ok(()),
        }
    }

    /// Whether the output is free for this input; `Ok(false)` where it holds it already.
    fn takes(&self, vout: u32, by: &Hash, vin: u32) -> Result<bool, UtxoRefusal> {
        match &self.utxo(vout)?.hold {
            None => Ok(true),
            Some(hold) if hold.is(by, vin) && hold.deleted => Err(UtxoRefusal::InvalidSpend),
            Some(hold) if hold.is(by, vin) => Ok(false),
            Some(hold) => Err(UtxoRefusal::Spent { by: hold.spender() }),
        }
    }

    /// The last one takes the place of a double spend that leaves.
    fn forget_child(&mut self, txid: &Hash) {
        if let Some(at) = self.conflicting_children.iter().position(|child| child == txid) {
            self.conflicting_children.swap_remove(at);
        }
    }

    fn eligible(&self) -> bool {
        let on_longest_chain = !self.blocks.is_empty() && self.unmined_since.is_none();
        let spent = self.utxos().all(|output| output.hold.is_some() && !output.frozen);
        self.conflicting || !self.locked && on_longest_chain && spent
    }

    fn evaluate(&mut self, call: &Call) {
        let retention = call.settings.block_height_retention;
        let highest = self.blocks.iter().map(|block| block.height).max().unwrap_or(0);
        let at = call.height.max(highest) + retention;
        self.delete_at_height = match self.delete_at_height {
            _ if self.preserve_until.is_some() || !self.eligible() => None,
            before if retention == 0 => before,
            Some(before) if self.conflicting => Some(before),
            before => before.max(Some(at)),
        };
    }

    fn counters(&self) -> Vec<UtxoPage> {
        let page = |outputs: &[Option<Output>]| UtxoPage {
            record_utxos: outputs.iter().flatten().count() as u32,
            spent_utxos: outputs.iter().flatten().filter(|output| output.hold.is_some()).count() as u32,
        };
        self.outputs.chunks(self.batch as usize).map(page).collect()
    }
}

impl Model {
    fn get(&self, txid: &[u8]) -> Result<&Record, UtxoRefusal> {
        self.records.get(&hash_argument("txid", txid)?).ok_or(UtxoRefusal::TxNotFound)
    }

    fn get_mut(&mut self, txid: &[u8]) -> Result<&mut Record, UtxoRefusal> {
        self.records.get_mut(&hash_argument("txid", txid)?).ok_or(UtxoRefusal::TxNotFound)
    }

    fn evaluate(&mut self, touched: impl IntoIterator<Item = Hash>, call: &Call) {
        for txid in touched {
            if let Some(record) = self.records.get_mut(&txid) {
                record.evaluate(call);
            }
        }
    }

    pub fn create(&mut self, item: &UtxoCreate, call: &Call) -> Result<UtxoCreated, UtxoRefusal> {
        call.check()?;
        let blocks = item.mined.as_ref().map_or(Vec::new(), |mined| mined.blocks.clone());
        let first_height = blocks.first().map_or(call.height, |block| block.height);
        if let TransactionSource::Uploaded(txid) = &item.source
            && self.records.contains_key(&hash_argument("txid", txid)?)
        {
            return Err(UtxoRefusal::TxExists);
        }
        let given = given(&item.source, first_height, call, self.uploaded(&item.source))?;
        let whole = matches!(item.source, TransactionSource::Raw(_) | TransactionSource::Uploaded(_));
        if call.settings.require_extended && whole && !given.extended && !given.coinbase {
            return Err(UtxoRefusal::NotExtended { input: 0 });
        }
        let ids: BTreeSet<u32> = blocks.iter().map(|block| block.block_id).collect();
        blocks.iter().try_for_each(|block| call.check_block(block.height))?;
        if item.mined.is_some() && blocks.is_empty() || ids.len() < blocks.len() {
            return Err(UtxoRefusal::BadArgument { field: "mined".into(), why: "no blocks, or one twice".into() });
        }
        if self.records.contains_key(&given.txid) {
            return Err(UtxoRefusal::TxExists);
        }
        if !blocks.is_empty() && blocks.iter().all(|block| block.height <= self.pruned) {
            let output =
                |&(parent, vout): &(Hash, u32)| self.records.get(&parent)?.outputs.get(vout as usize)?.as_ref();
            let is_told = |(input, vin): (&(Hash, u32), u32)| {
                let hold = output(input).and_then(|output| output.hold.as_ref());
                hold.is_some_and(|hold| hold.deleted && hold.is(&given.txid, vin))
            };
            let has_parent = given.inputs.iter().any(|(parent, _)| self.records.contains_key(parent));
            if given.inputs.iter().zip(0..).any(is_told) || !has_parent && !item.is_new {
                return Err(UtxoRefusal::Pruned);
            }
        }
        let limit = call.settings.max_external_bytes;
        if self.external_bytes() + given.class_bytes() > limit && given.class_bytes() > 0 {
            return Err(UtxoRefusal::ExternalFull { limit });
        }

        let on_longest_chain = item.mined.as_ref().is_some_and(|mined| mined.on_longest_chain);
        let unspent = |hash: &Option<Hash>| hash.map(|hash| Output { hash, hold: None, frozen: false });
        let record = Record {
            outputs: given.outputs.iter().map(unspent).collect(),
            batch: call.settings.utxo_batch_size,
            spendable_in: BTreeMap::new(),
            reassignments: Vec::new(),
            locked: item.locked.unwrap_or(item.mined.is_none()),
            conflicting: item.conflicting,
            conflicting_children: Vec::new(),
            unmined_since: (!on_longest_chain).then_some(call.height),
            created_at: call.now_ns,
            preserve_until: None,
            delete_at_height: None,
            spending_height: if given.coinbase { first_height + call.settings.coinbase_maturity } else { 0 },
            blocks,
            fee: given.fee.or(item.fee),
            given,
        };
        let txid = record.given.txid;
        let created = UtxoCreated {
            txid: buf(&txid),
            utxos: record.utxos().count() as u32,
            extra_pages: record.counters().len() as u32 - 1,
            external: record.given.place != TransactionPlace::Record,
        };
        if matches!(item.source, TransactionSource::Uploaded(_)) {
            self.upload = None;
        }
        self.records.insert(txid, record);
        if item.conflicting {
            self.enter_with_parents(&txid);
        }
        self.evaluate([txid], call);
        Ok(created)
    }

    fn enter_with_parents(&mut self, txid: &Hash) {
        for parent in self.records[txid].parents() {
            if let Some(record) = self.records.get_mut(&parent)
                && !record.conflicting_children.contains(txid)
            {
                record.conflicting_children.push(*txid);
            }
        }
    }

    fn check_spend(&self, spend: &Spend, by: &Hash, height: u32) -> Result<bool, UtxoRefusal> {
        hash_argument("txid", &spend.txid)?;
        let hash = hash_argument("utxo_hash", &spend.utxo_hash)?;
        let record = self.get(&spend.txid)?;
        if record.conflicting {
            return Err(UtxoRefusal::Conflicting);
        }
        if record.locked {
            return Err(UtxoRefusal::Locked);
        }
        record.mature(height)?;
        record.utxo(spend.vout)?.check_hash(&hash)?;
        record.thawed(spend.vout, height)?;
        record.takes(spend.vout, by, spend.vin)
    }

    pub fn spend(&mut self, item: &TransactionSpends, call: &Call) -> Result<u32, Vec<RefusedSpend>> {
        let alone = |error: UtxoRefusal| vec![RefusedSpend { spend: 0, error: error.into() }];
        call.check().map_err(alone)?;
        let by = hash_argument("spender", &item.spender).map_err(alone)?;
        let mut taken: BTreeMap<(Hash, u32), u32> = BTreeMap::new();
        let mut errors = Vec::new();
        for (spend, number) in item.spends.iter().zip(0..) {
            let checked = self.check_spend(spend, &by, call.height).and_then(|new| {
                let outpoint = (hash_argument("txid", &spend.txid)?, spend.vout);
                match taken.get(&outpoint) {
                    Some(&vin) if vin != spend.vin => {
                        return Err(UtxoRefusal::Spent { by: Spender { txid: buf(&by), vin } });
                    }
                    None if new => drop(taken.insert(outpoint, spend.vin)),
                    _ => {}
                }
                Ok(())
            });
            errors.extend(checked.err().map(|error| RefusedSpend { spend: number, error: error.into() }));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        for ((txid, vout), &vin) in &taken {
            let record = self.records.get_mut(txid).expect("it was looked at before");
            record.utxo_mut(*vout).hold = Some(Hold { by, vin, deleted: false });
        }
        let touched: BTreeSet<Hash> = item.spends.iter().flat_map(|spend| (&spend.txid[..]).try_into().ok()).collect();
        self.evaluate(touched, call);
        Ok(taken.len() as u32)
    }

    pub fn unspend(&mut self, item: &Unspend, call: &Call) -> Result<bool, UtxoRefusal> {
        call.check()?;
        hash_argument("txid", &item.outpoint.txid)?;
        let hash = hash_argument("utxo_hash", &item.utxo_hash)?;
        let by = hash_argument("spender", &item.spender.txid)?;
        let vout = item.outpoint.vout;
        let record = self.get_mut(&item.outpoint.txid)?;
        record.utxo(vout)?.check_hash(&hash)?;
        let held = record.utxo(vout)?.hold.as_ref().is_some_and(|hold| hold.is(&by, item.spender.vin));
        if held {
            record.utxo_mut(vout).hold = None;
        }
        record.evaluate(call);
        Ok(held)
    }

    /// `of` says which block; its items are not looked at.
    pub fn set_mined(
        &mut self,
        item: &MinedTransaction,
        of: &UtxoSetMinedBatch,
        call: &Call,
    ) -> Result<Vec<u32>, UtxoRefusal> {
        call.check()?;
        call.check_block(of.block_height)?;
        let record = self.get_mut(&item.txid)?;
        let there = record.blocks.iter().any(|block| block.block_id == of.block_id);
        if of.unset {
            record.blocks.retain(|block| block.block_id != of.block_id);
        } else if !there {
            let (block_id, height, subtree) = (of.block_id, of.block_height, item.subtree);
            record.blocks.push(BlockRef { block_id, height, subtree });
        }
        if of.unset && !there {
            // What it has not cannot be taken from it.
        } else if record.blocks.is_empty() {
            record.unmined_since = Some(call.height);
        } else if of.on_longest_chain {
            record.unmined_since = None;
        }
        record.locked = false;
        record.evaluate(call);
        Ok(record.blocks.iter().map(|block| block.block_id).collect())
    }

    pub fn set_locked(&mut self, txid: &[u8], locked: bool, call: &Call) -> Result<(), UtxoRefusal> {
        call.check()?;
        let record = self.get_mut(txid)?;
        record.locked = locked;
        if locked {
            record.delete_at_height = None;
        } else {
            record.evaluate(call);
        }
        Ok(())
    }

    pub fn set_on_longest_chain(&mut self, txid: &[u8], is: bool, call: &Call) -> Result<(), UtxoRefusal> {
        call.check()?;
        let record = self.get_mut(txid)?;
        if !is {
            record.unmined_since.get_or_insert(call.height);
        } else if record.blocks.is_empty() {
            return Err(UtxoRefusal::NotMined);
        } else {
            record.unmined_since = None;
        }
        record.evaluate(call);
        Ok(())
    }

    pub fn freeze(&mut self, target: &FreezeTarget, call: &Call) -> Result<u32, UtxoRefusal> {
        self.set_frozen(target, true, UtxoRefusal::AlreadyFrozen, call)
    }

    pub fn unfreeze(&mut self, target: &FreezeTarget, call: &Call) -> Result<u32, UtxoRefusal> {
        self.set_frozen(target, false, UtxoRefusal::UtxoNotFrozen, call)
    }

    fn set_frozen(
        &mut self,
        target: &FreezeTarget,
        frozen: bool,
        all_are: UtxoRefusal,
        call: &Call,
    ) -> Result<u32, UtxoRefusal> {
        call.check()?;
        hash_argument("txid", &target.txid)?;
        let record = self.get_mut(&target.txid)?;
        match (target.vout, &target.utxo_hash) {
            (Some(vout), Some(hash)) => record.utxo(vout)?.check_hash(&hash_argument("utxo_hash", hash)?)?,
            (None, Some(_)) => {
                return Err(UtxoRefusal::BadArgument { field: "utxo_hash".into(), why: "of which output?".into() });
            }
            (_, None) => {}
        }
        let meant = (0..).zip(&mut record.outputs).filter(|(vout, _)| target.vout.is_none_or(|meant| meant == *vout));
        let mut outputs: Vec<&mut Output> = meant.filter_map(|(_, output)| output.as_mut()).collect();
        if outputs.is_empty() {
            return Err(UtxoRefusal::UtxoNotFound);
        }
        outputs.retain(|output| output.frozen != frozen);
        if outputs.is_empty() {
            return Err(all_are);
        }
        let changed = outputs.len() as u32;
        outputs.into_iter().for_each(|output| output.frozen = frozen);
        record.evaluate(call);
        Ok(changed)
    }

    pub fn reassign(&mut self, item: &Reassign, call: &Call) -> Result<u32, UtxoRefusal> {
        call.check()?;
        hash_argument("txid", &item.outpoint.txid)?;
        let hash = hash_argument("utxo_hash", &item.utxo_hash)?;
        let new = hash_argument("new_utxo_hash", &item.new_utxo_hash)?;
        let vout = item.outpoint.vout;
        let record = self.get_mut(&item.outpoint.txid)?;
        let output = record.utxo(vout)?;
        output.check_hash(&hash)?;
        if !output.frozen {
            return Err(UtxoRefusal::UtxoNotFrozen);
        }
        if let Some(hold) = &output.hold {
            return Err(UtxoRefusal::Spent { by: hold.spender() });
        }
        *record.utxo_mut(vout) = Output { hash: new, hold: None, frozen: false };
        let from = call.height + call.settings.reassign_spendable_after;
        record.spendable_in.insert(vout, from);
        record.reassignments.push(Reassignment {
            offset: vout,
            utxo_hash: UtxoHash::from(hash),
            new_utxo_hash: UtxoHash::from(new),
            block_height: call.height,
        });
        record.evaluate(call);
        Ok(from)
    }

    pub fn preserve(&mut self, txid: &[u8], until: u32) -> Result<bool, UtxoRefusal> {
        match until {
            0 => return Err(UtxoRefusal::ZeroHeight),
            _ if until > MAX_HEIGHT => return Err(UtxoRefusal::BadHeight { most: MAX_HEIGHT }),
            _ => {}
        }
        let Some(record) = self.records.get_mut(&hash_argument("txid", txid)?) else { return Ok(false) };
        record.preserve_until = Some(until);
        record.delete_at_height = None;
        Ok(true)
    }

    /// Deletes a record; its parents remember that it spent from them, or get back what a double spend held. Answers how many
    /// outputs that changes.
    pub fn delete(&mut self, txid: &Hash, call: &Call) -> Result<u32, UtxoRefusal> {
        let record = self.records.remove(txid).ok_or(UtxoRefusal::TxNotFound)?;
        if !record.conflicting {
            let highest = record.blocks.iter().map(|block| block.height).max();
            self.pruned = self.pruned.max(highest.unwrap_or(0));
        }
        if record.conflicting {
            for parent in record.parents() {
                if let Some(parent) = self.records.get_mut(&parent) {
                    parent.forget_child(txid);
                }
            }
        }
        let mut told = 0;
        for (&(parent, vout), vin) in record.given.inputs.iter().zip(0..) {
            let output = self.records.get_mut(&parent).and_then(|parent| parent.outputs.get_mut(vout as usize));
            if record.conflicting {
                let held = output.and_then(Option::as_mut);
                if let Some(output) = held.filter(|output| output.hold.as_ref().is_some_and(|hold| hold.is(txid, vin)))
                {
                    output.hold = None;
                    told += 1;
                    self.evaluate([parent], call);
                }
                continue;
            }
            if let Some(hold) = output.and_then(Option::as_mut).and_then(|output| output.hold.as_mut())
                && hold.is(txid, vin)
            {
                told += u32::from(!hold.deleted);
                hold.deleted = true;
            }
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests;
