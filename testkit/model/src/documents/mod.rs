//! Model of UTXO records, written only from the documents: `utxo-data-model.md`, `pruner-service.md` and the interface.
//!
//! Each method of the interface is a method of [`Store`] that returns the answer expected of the canister. The documents leave the order
//! and the extent of work open (a slice, a tick). There the model takes the canister's work as given, and checks it.

mod alert;
mod conflict;
mod create;
mod mined;
mod prune;
mod record;
mod spend;

pub use prune::{Heights, Run};
pub use record::{Id, Record};

use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// A check of the canister. The error is the difference found.
pub type Verdict<T = ()> = Result<T, String>;

/// Converts an id of the interface.
pub fn id(txid: &Txid) -> Id {
    txid.as_slice().try_into().expect("32 bytes")
}

/// Returns the first bytes of an id, for reports.
pub fn hex(id: &[u8]) -> String {
    id.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The settings that the rules use.
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

/// All records, and the heights that apply to them.
#[derive(Clone, Debug)]
pub struct Store {
    /// The records, by transaction.
    pub records: BTreeMap<Id, Record>,
    /// The settings in force.
    pub rules: Rules,
    /// The highest height that was notified; 0: none.
    pub current: u32,
    /// The highest persisted block.
    pub persisted: Option<u32>,
    /// The height of the block assembly.
    pub assembly: Option<u32>,
    /// The largest height that a call may name, by the status.
    pub most: u32,
    /// The highest block of any record that was deleted as spent.
    pub pruned: Option<u32>,
    /// The number of the message being checked.
    pub message: u64,
    /// For each record, the last message that changed it, except by pruning.
    pub touched: BTreeMap<Id, u64>,
    /// The times between which the last record was created; each record is created later than the one before.
    pub last_created: (u64, u64),
    /// The last message in which a run was done: it has examined all late records.
    pub examined: u64,
    /// Transactions that were created when one of their parents was due before they are old: a run may preserve all their parents.
    pub endangered: BTreeSet<Id>,
}

impl Store {
    /// Creates a store without records.
    pub fn new(rules: Rules) -> Self {
        Self {
            records: BTreeMap::new(),
            rules,
            current: 0,
            persisted: None,
            assembly: None,
            most: MAX_HEIGHT,
            pruned: None,
            message: 0,
            touched: BTreeMap::new(),
            last_created: (0, 0),
            examined: 0,
            endangered: BTreeSet::new(),
        }
    }

    /// Returns the largest height that a call may name: any height until one was notified.
    fn most_height(&self) -> u32 {
        if self.current == 0 { MAX_HEIGHT } else { self.most.min(MAX_HEIGHT) }
    }

    /// Checks the heights that a call names.
    fn check_heights(&self, heights: &[u32]) -> Result<(), UtxoError> {
        if heights[0] == 0 {
            return Err(UtxoError::BadHeight(BadHeight::Zero));
        }
        let most = self.most_height();
        if heights.iter().any(|height| *height > most) {
            Err(UtxoError::BadHeight(BadHeight::TooHigh { most }))
        } else {
            Ok(())
        }
    }

    /// Returns a record that calls can find.
    fn find(&mut self, txid: &Txid) -> Result<&mut Record, UtxoError> {
        self.records.get_mut(&id(txid)).ok_or(UtxoError::TxNotFound)
    }

    /// Sets or clears the height at which a record is deleted, by the record's state.
    fn evaluate(&mut self, id: &Id, height: u32) {
        let retention = self.rules.retention;
        if let Some(record) = self.records.get_mut(id) {
            record.evaluate(height, retention);
        }
    }

    /// Returns the distinct transactions that a record spends from.
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

    /// Removes a transaction from the lists of its parents.
    fn unlist_with(&mut self, child: &Id, parents: &BTreeSet<Id>) {
        for parent in parents {
            if let Some(parent) = self.records.get_mut(parent) {
                parent.conflicting_children.retain(|listed| listed != child);
            }
        }
    }

    /// Returns the outputs that a transaction's inputs hold: parent and output number.
    fn held_by(&self, spender: &Id) -> Vec<(Id, u32)> {
        let Some(record) = self.records.get(spender) else { return Vec::new() };
        let holds = |(vin, parent, vout): &(u32, Id, u32)| {
            let output = self.records.get(parent).and_then(|parent| parent.output(*vout));
            output.is_some_and(|output| output.spender == Some((*spender, *vin)))
        };
        record.inputs().filter(holds).map(|(_, parent, vout)| (parent, vout)).collect()
    }

    /// Returns an output and its spender, in the form of answers.
    fn named(&self, (txid, vout): (Id, u32)) -> Option<Unspend> {
        let output = self.records.get(&txid)?.output(vout)?;
        let (by, vin) = output.spender?;
        Some(Unspend {
            outpoint: Outpoint { txid: txid.into(), vout },
            utxo_hash: output.hash.into(),
            spender: Spender { txid: by.into(), vin },
        })
    }

    /// Returns the five counters of the status.
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

    /// Records which records differ from those in `before`.
    pub fn note_changes(&mut self, before: &Self) {
        let changed = |id: &&Id| before.records.get(*id) != self.records.get(*id);
        let ids: Vec<Id> = self.records.keys().chain(before.records.keys()).filter(changed).copied().collect();
        self.touched.extend(ids.into_iter().map(|id| (id, self.message)));
    }
}
