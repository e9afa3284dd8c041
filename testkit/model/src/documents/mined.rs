//! Blocks, locks and preservations.

use super::{Store, id};
use ic_coppice_interface::*;

impl Store {
    /// An item of `utxo_set_mined`. Returns the blocks that contain the transaction afterwards.
    pub fn set_mined(&mut self, call: &UtxoSetMinedBatch, item: &MinedTransaction) -> Result<Vec<u32>, UtxoError> {
        self.check_heights(&[call.height, call.block_height])?;
        let (message, maturity) = (self.message, self.rules.maturity);
        let record = self.find(&item.txid)?;
        let block = BlockRef { block_id: call.block_id, height: call.block_height, subtree: item.subtree };
        let there = record.blocks.iter().find(|known| known.block_id == call.block_id).copied();
        if let Some(known) = there.filter(|known| !call.unset && *known != block) {
            return Err(UtxoError::OtherBlock { block: known });
        }
        record.locked = false;
        let has = there.is_some();
        if call.unset && has {
            record.blocks.retain(|block| block.block_id != call.block_id);
            if record.blocks.is_empty() {
                record.set_unmined(Some(call.height), message);
            } else if call.on_longest_chain {
                record.set_unmined(None, message);
            }
        } else if !call.unset {
            if !has {
                record.blocks.push(block);
                // A coinbase that another block repeats can be spent once the higher block is mature.
                record.spending_height = record.spending_height.map(|at| at.max(block.height + maturity));
            }
            if call.on_longest_chain {
                record.set_unmined(None, message);
            }
        }
        let blocks = record.blocks.iter().map(|block| block.block_id).collect();
        self.evaluate(&id(&item.txid), call.height);
        Ok(blocks)
    }

    /// An item of `utxo_set_on_longest_chain`.
    pub fn set_on_longest_chain(&mut self, height: u32, txid: &Txid, on_longest_chain: bool) -> Result<(), UtxoError> {
        self.check_heights(&[height])?;
        let message = self.message;
        let record = self.find(txid)?;
        if on_longest_chain && record.blocks.is_empty() {
            return Err(UtxoError::NotMined);
        }
        record.set_unmined((!on_longest_chain).then_some(height), message);
        self.evaluate(&id(txid), height);
        Ok(())
    }

    /// An item of `utxo_set_locked`. Locking clears the height at which the record is deleted; unlocking evaluates it.
    pub fn set_locked(&mut self, height: u32, txid: &Txid, locked: bool) -> Result<(), UtxoError> {
        self.check_heights(&[height])?;
        let record = self.find(txid)?;
        record.locked = locked;
        if locked {
            record.delete_at = None;
        } else {
            self.evaluate(&id(txid), height);
        }
        Ok(())
    }

    /// An item of `utxo_preserve`. Returns whether there is such a record. A later call overwrites.
    pub fn preserve(&mut self, until: u32, txid: &Txid) -> Result<bool, UtxoError> {
        let Ok(record) = self.find(txid) else { return Ok(false) };
        record.preserve_until = Some(until);
        record.delete_at = None;
        Ok(true)
    }
}
