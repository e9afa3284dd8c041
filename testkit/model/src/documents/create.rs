//! Creation of records.

use super::record::is_coinbase;
use super::{Id, Record, Store};
use crate::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

impl Store {
    /// An item of `utxo_create`.
    pub fn create(
        &mut self,
        height: u32,
        tx: &Rc<Tx>,
        item: &UtxoCreate,
        moment: (u64, u64),
    ) -> Result<UtxoCreated, UtxoCreateError> {
        let blocks = item.mined.as_ref().map(|mined| &mined.blocks[..]).unwrap_or_default();
        let heights: Vec<u32> = [height].into_iter().chain(blocks.iter().map(|block| block.height)).collect();
        match self.check_heights(&heights) {
            Ok(()) => {}
            Err(UtxoError::BadHeight(BadHeight::Zero)) => return Err(UtxoCreateError::BadHeight(BadHeight::Zero)),
            Err(_) => return Err(UtxoCreateError::BadHeight(BadHeight::TooHigh { most: self.most_height() })),
        }
        if self.records.contains_key(&tx.txid) {
            return Err(UtxoCreateError::TxExists);
        }
        if self.was_pruned(tx, blocks, item.is_new) {
            return Err(UtxoCreateError::Pruned);
        }
        let mut record = Record::new(tx, self.rules.batch);
        record.blocks = blocks.to_vec();
        let on_longest_chain = item.mined.as_ref().is_some_and(|mined| mined.on_longest_chain);
        record.unmined_since = (!on_longest_chain).then_some(height);
        record.locked = item.locked.unwrap_or(blocks.is_empty());
        record.conflicting = item.conflicting;
        record.fee = item.fee;
        let (from, to) = self.last_created;
        record.created = (moment.0.max(from + 1), moment.1.max(to + 1));
        self.last_created = record.created;
        // `coinbase_block_height + 100`, by its highest block; without a block, by the height of the call.
        let own = record.highest_block().unwrap_or(height);
        record.spending_height = is_coinbase(tx).then_some(own + self.rules.maturity);
        let created = UtxoCreated {
            txid: tx.id(),
            utxos: record.utxos().count() as u32,
            extra_pages: record.extra_pages(),
            external: record.external(),
        };
        let endangered = !on_longest_chain && record.parents().iter().any(|parent| self.is_due_by(parent, height));
        if endangered {
            self.endangered.insert(tx.txid);
        }
        self.records.insert(tx.txid, record);
        if item.conflicting {
            self.list_with_parents(&tx.txid);
        }
        self.evaluate(&tx.txid, height);
        Ok(created)
    }

    /// Returns whether a transaction in blocks had a record before that was deleted, or may have had one. This needs all its blocks to be
    /// at or below the highest block of any record that was deleted as spent.
    fn was_pruned(&self, tx: &Tx, blocks: &[BlockRef], is_new: bool) -> bool {
        let Some(pruned) = self.pruned else { return false };
        if blocks.is_empty() || blocks.iter().any(|block| block.height > pruned) {
            return false;
        }
        let inputs: &[(Id, u32)] = if is_coinbase(tx) { &[] } else { &tx.inputs[..] };
        let mut has_parent = false;
        for (parent, vout) in inputs {
            let Some(parent) = self.records.get(parent) else { continue };
            has_parent = true;
            let deleted = parent.output(*vout).filter(|output| output.spender_deleted);
            if deleted.and_then(|output| output.spender).is_some_and(|(by, _)| by == tx.txid) {
                return true;
            }
        }
        !has_parent && !is_new
    }
}
