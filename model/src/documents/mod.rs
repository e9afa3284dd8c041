//! Model of UTXO records, written from the documents alone: `utxo-data-model.md`, `pruner-service.md` and the interface.
//!
//! Each method of the interface is a method of [`Store`] that answers what the canister is to answer. The
//! documents leave the order and the extent of work open (a slice, a tick): there the model takes from the canister what was done, and judges it.

mod alert;
mod conflict;
mod create;
mod mined;
mod prune;
mod record;
mod spend;

pub use prune::{Heights, Run};
pub use record::{Id, Record};

use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// Why the canister is not as it is to be.
pub type Verdict<T = ()> = Result<T, String>;

/// An id as the interface has it.
pub fn id(txid: &Txid) -> Id {
    txid.as_slice().try_into().expect("32 bytes")
}

/// The first bytes of an id, as reports have them.
pub fn hex(id: &[u8]) -> String {
    id.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The settings that the rules go by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `block_height_retention`.
    pub retention: u32,
    /// `coinbase_maturity`.
    pub maturity: u32,
    /// `reassign_spendable_after`.
    pub reassign_after: u32,
    /// `utxo_batch_size`.
    pub batch: u32,
    /// `unmined_tx_retention`.
    pub unmined: u32,
    /// `parent_preservation_blocks`.
    pub preservation: u32,
}

/// All records, and the heights by which they are judged.
#[derive(Clone, Debug)]
pub struct Store {
    /// The records, by transaction.
    pub records: BTreeMap<Id, Record>,
    /// The settings in force.
    pub rules: Rules,
    /// The highest height that was notified; 0: none.
    pub current: u32,
    /// The highest block that is persisted.
    pub persisted: Option<u32>,
    /// The largest height that a call may name, as the status says.
    pub most: u32,
    /// The highest block of any record that was deleted as spent.
    pub pruned: Option<u32>,
    /// The message that is judged, counted from the first.
    pub message: u64,
    /// The last message that changed a record, other than by pruning.
    pub touched: BTreeMap<Id, u64>,
}

impl Store {
    /// One without records.
    pub fn new(rules: Rules) -> Self {
        Self {
            records: BTreeMap::new(),
            rules,
            current: 0,
            persisted: None,
            most: MAX_HEIGHT,
            pruned: None,
            message: 0,
            touched: BTreeMap::new(),
        }
    }

    /// The largest height that a call may name: any block's until one was notified.
    fn most_height(&self) -> u32 {
        if self.current == 0 { MAX_HEIGHT } else { self.most.min(MAX_HEIGHT) }
    }

    /// Checks the heights that a call names.
    fn believed(&self, heights: &[u32]) -> Result<(), UtxoError> {
        if heights[0] == 0 {
            return Err(UtxoError::ZeroHeight);
        }
        let most = self.most_height();
        if heights.iter().any(|height| *height > most) { Err(UtxoError::BadHeight { most }) } else { Ok(()) }
    }

    /// A record that calls find.
    fn find(&mut self, txid: &Txid) -> Result<&mut Record, UtxoError> {
        self.records.get_mut(&id(txid)).ok_or(UtxoError::TxNotFound)
    }

    /// Gives a record a height at which it is deleted, or takes it away, by what the record is now.
    fn evaluate(&mut self, id: &Id, height: u32) {
        let retention = self.rules.retention;
        if let Some(record) = self.records.get_mut(id) {
            record.evaluate(height, retention);
        }
    }

    /// The distinct transactions that a record spends from.
    fn parents(&self, id: &Id) -> BTreeSet<Id> {
        self.records.get(id).map(|record| record.parents()).unwrap_or_default()
    }

    /// Adds a double spend to the list of each transaction that it spends from.
    fn list_with_parents(&mut self, child: &Id) {
        for parent in self.parents(child) {
            if let Some(parent) = self.records.get_mut(&parent)
                && !parent.conflicting_children.contains(child)
            {
                parent.conflicting_children.push(*child);
            }
        }
    }

    /// Takes a transaction from the lists of those that it spends from.
    fn unlist_with(&mut self, child: &Id, parents: &BTreeSet<Id>) {
        for parent in parents {
            if let Some(parent) = self.records.get_mut(parent) {
                parent.conflicting_children.retain(|listed| listed != child);
            }
        }
    }

    /// The outputs that a transaction holds by its inputs: with the record that has them, and their number.
    fn held_by(&self, spender: &Id) -> Vec<(Id, u32)> {
        let Some(record) = self.records.get(spender) else { return Vec::new() };
        let holds = |(vin, parent, vout): &(u32, Id, u32)| {
            let output = self.records.get(parent).and_then(|parent| parent.output(*vout));
            output.is_some_and(|output| output.spender == Some((*spender, *vin)))
        };
        record.inputs().filter(holds).map(|(_, parent, vout)| (parent, vout)).collect()
    }

    /// An output and its spender, as answers name them.
    fn named(&self, (txid, vout): (Id, u32)) -> Option<Unspend> {
        let output = self.records.get(&txid)?.output(vout)?;
        let (by, vin) = output.spender?;
        Some(Unspend {
            outpoint: Outpoint { txid: txid.into(), vout },
            utxo_hash: output.hash.into(),
            spender: Spender { txid: by.into(), vin },
        })
    }

    /// The five counters of the status.
    pub fn counters(&self) -> [u64; 5] {
        let count = |is: fn(&Record) -> bool| self.records.values().filter(|record| is(record)).count() as u64;
        [
            self.records.len() as u64,
            self.records.values().map(|record| u64::from(record.extra_pages())).sum(),
            count(|record| record.delete_at.is_some()),
            count(|record| record.unmined_since.is_some()),
            count(|record| record.preserve_until.is_some()),
        ]
    }

    /// Notes which records are not as they were in `before`.
    pub fn note_changes(&mut self, before: &Self) {
        let changed = |id: &&Id| before.records.get(*id) != self.records.get(*id);
        let ids: Vec<Id> = self.records.keys().chain(before.records.keys()).filter(changed).copied().collect();
        self.touched.extend(ids.into_iter().map(|id| (id, self.message)));
    }
}
