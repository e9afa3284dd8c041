//! Freezing and reassigning outputs.

use super::{Store, id};
use ic_coppice_interface::*;

impl Store {
    /// An item of `utxo_freeze` or `utxo_unfreeze`. Returns how many outputs changed.
    pub fn freeze(&mut self, height: u32, target: &FreezeTarget, freeze: bool) -> Result<u32, UtxoError> {
        self.check_heights(&[height])?;
        let record = self.find(&target.txid)?;
        let outputs: Vec<_> = match target.vout {
            Some(vout) => vec![record.output_mut(vout).ok_or(UtxoError::UtxoNotFound)?],
            None => record.outputs.iter_mut().flatten().collect(),
        };
        if outputs.is_empty() {
            return Err(UtxoError::UtxoNotFound);
        }
        if let (Some(hash), Some(output)) = (&target.utxo_hash, outputs.first())
            && hash[..] != output.hash
        {
            return Err(UtxoError::UtxoHashMismatch { stored: output.hash.into() });
        }
        let mut changed = 0;
        for output in outputs {
            changed += u32::from(output.frozen != freeze);
            output.frozen = freeze;
        }
        if changed == 0 {
            return Err(if freeze { UtxoError::AlreadyFrozen } else { UtxoError::UtxoNotFrozen });
        }
        self.evaluate(&id(&target.txid), height);
        Ok(changed)
    }

    /// An item of `utxo_reassign`. Returns the height from which the output is spendable.
    pub fn reassign(&mut self, height: u32, item: &Reassign) -> Result<u32, UtxoError> {
        self.check_heights(&[height])?;
        let after = self.rules.reassign_after;
        let vout = item.outpoint.vout;
        let record = self.find(&item.outpoint.txid)?;
        let output = record.output_mut(vout).ok_or(UtxoError::UtxoNotFound)?;
        if item.utxo_hash[..] != output.hash {
            return Err(UtxoError::UtxoHashMismatch { stored: output.hash.into() });
        }
        if !output.frozen {
            return Err(UtxoError::UtxoNotFrozen);
        }
        if let Some((txid, vin)) = output.spender {
            return Err(UtxoError::Spent { by: Spender { txid: txid.into(), vin } });
        }
        output.frozen = false;
        output.hash = id(&Txid::from(item.new_utxo_hash.as_slice()));
        record.spendable_in.insert(vout, height + after);
        record.reassignments.push(Reassignment {
            offset: vout,
            utxo_hash: item.utxo_hash.clone(),
            new_utxo_hash: item.new_utxo_hash.clone(),
            block_height: height,
        });
        self.evaluate(&id(&item.outpoint.txid), height);
        Ok(height + after)
    }
}
