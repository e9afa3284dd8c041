//! Spending and unspending outputs.

use super::{Store, id};
use ic_coppice_interface::*;

impl Store {
    /// An item of `utxo_spend`, completely or not at all.
    pub fn spend(&mut self, height: u32, item: &TransactionSpends) -> Result<u32, Vec<RefusedSpend>> {
        // An error of the call itself is reported once.
        let whole = |error| Err(vec![RefusedSpend { spend: 0, error }]);
        match self.check_heights(&[height]) {
            Ok(()) => {}
            Err(UtxoError::BadHeight(BadHeight::Zero)) => return whole(UtxoSpendError::BadHeight(BadHeight::Zero)),
            Err(_) => return whole(UtxoSpendError::BadHeight(BadHeight::TooHigh { most: self.most_height() })),
        }
        let mut after = self.clone();
        let mut counted = 0;
        let mut refused = Vec::new();
        for (number, spend) in (0..).zip(&item.spends) {
            let by = (id(&item.spender), spend.vin);
            let error = match after.records.get(&id(&spend.txid)) {
                None => Some(UtxoSpendError::TxNotFound),
                Some(record) => record.refuses(spend.vout, Some(&spend.utxo_hash), by, height),
            };
            if let Some(error) = error {
                refused.push(RefusedSpend { spend: number, error });
                continue;
            }
            counted += u32::from(after.take(&id(&spend.txid), spend.vout, by));
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        for spend in &item.spends {
            after.evaluate(&id(&spend.txid), height);
        }
        *self = after;
        Ok(counted)
    }

    /// Gives an output to a transaction, and returns whether the transaction did not hold it before.
    pub(super) fn take(&mut self, txid: &super::Id, vout: u32, by: (super::Id, u32)) -> bool {
        let output =
            self.records.get_mut(txid).and_then(|record| record.output_mut(vout)).expect("it was checked before");
        let new = output.spender != Some(by);
        output.spender = Some(by);
        new
    }

    /// An item of `utxo_unspend`. Returns whether the spender held the output.
    pub fn unspend(&mut self, height: u32, item: &Unspend) -> Result<bool, UtxoError> {
        self.check_heights(&[height])?;
        let by = (id(&item.spender.txid), item.spender.vin);
        let output = self.find(&item.outpoint.txid)?.output_mut(item.outpoint.vout).ok_or(UtxoError::UtxoNotFound)?;
        if item.utxo_hash[..] != output.hash {
            return Err(UtxoError::UtxoHashMismatch { stored: output.hash.into() });
        }
        let held = output.spender == Some(by);
        if held {
            output.spender = None;
            output.spender_deleted = false;
        }
        self.evaluate(&id(&item.outpoint.txid), height);
        Ok(held)
    }
}
