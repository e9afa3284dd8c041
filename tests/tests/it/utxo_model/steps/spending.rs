//! Spending the outputs that transactions name, and reverting the spends.

use super::super::history::Random;
use super::super::player::Player;
use super::items;
use coppice_model::documents::{Id, Verdict, hex};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

impl Player {
    /// `utxo_spend`.
    pub fn spend(&mut self, height: u32, batch: Vec<TransactionSpends>) -> Verdict {
        for item in batch.iter().take(4) {
            let spends = item.spends.iter().map(|spend| format!("{}:{}/{}", hex(&spend.txid), spend.vout, spend.vin));
            self.note(format!(
                "  utxo_spend at {height} by {}: {}",
                hex(&item.spender),
                spends.collect::<Vec<_>>().join(" ")
            ));
        }
        let sent = batch.clone();
        let answer =
            self.call(|coppice| coppice.producer().utxo_spend(&UtxoSpendBatch { height, items: sent }).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, batch.len(), &answer, |player, number, result| {
            let expected = player.store.spend(height, &batch[number]);
            for refused in expected.as_ref().err().into_iter().flatten() {
                player.saw("a refused spend", 1);
                player.saw("a spend by a pruned transaction", u64::from(refused.error == UtxoSpendError::InvalidSpend));
            }
            Ok((expected, result.clone()))
        })
    }

    /// All spends of this transaction whose parents were ever recorded.
    pub(super) fn spends_of(&self, tx: &Tx) -> TransactionSpends {
        let known = |(_, (txid, _)): &(u32, &(Id, u32))| self.tx(txid).is_some();
        let spend = |(vin, (txid, vout)): (u32, &(Id, u32))| Spend {
            txid: txid.into(),
            vout: *vout,
            utxo_hash: self.hash(txid, *vout),
            vin,
        };
        TransactionSpends { spender: tx.id(), spends: (0..).zip(&tx.inputs).filter(known).map(spend).collect() }
    }

    /// Spends the outputs that these transactions' inputs name.
    pub(super) fn spend_inputs(&mut self, height: u32, txs: &[Rc<Tx>]) -> Verdict {
        let batch: Vec<_> = txs.iter().map(|tx| self.spends_of(tx)).filter(|item| !item.spends.is_empty()).collect();
        if batch.is_empty() { Ok(()) } else { self.spend(height, batch) }
    }

    pub(super) fn spend_one(&mut self, random: &mut Random) -> Verdict {
        let mut batch = Vec::new();
        for tx in self.some(random, 3) {
            let mut item = self.spends_of(&tx);
            let count = item.spends.len() as u64;
            if count > 0 && random.below(4) == 0 {
                let spend = &mut item.spends[random.below(count) as usize];
                match random.below(4) {
                    0 => spend.vin += 1,
                    1 => spend.vout += 1,
                    2 => spend.utxo_hash = UtxoHash::from([9; 32]),
                    _ => spend.txid = Txid::from([8; 32]),
                }
            }
            if count > 0 && random.below(8) == 0 {
                // One output spent by two inputs.
                let mut again = item.spends[0].clone();
                again.vin += 5;
                item.spends.push(again);
            }
            if count > 0 {
                batch.push(item);
            }
        }
        let height = self.height(random);
        if batch.is_empty() { Ok(()) } else { self.spend(height, batch) }
    }

    /// `utxo_unspend`.
    pub fn unspend(&mut self, height: u32, batch: Vec<Unspend>) -> Verdict {
        for item in &batch {
            self.note(format!(
                "  utxo_unspend at {height}: {}:{} of {}/{}",
                hex(&item.outpoint.txid),
                item.outpoint.vout,
                hex(&item.spender.txid),
                item.spender.vin
            ));
        }
        let sent = UtxoUnspendBatch { height, items: batch.clone() };
        let answer = self.call(|coppice| coppice.producer().utxo_unspend(&sent).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, batch.len(), &answer, |player, number, result| {
            Ok((player.store.unspend(height, &batch[number]), result.clone()))
        })
    }

    pub(super) fn unspend_one(&mut self, random: &mut Random) -> Verdict {
        let height = self.height(random);
        let mut batch = Vec::new();
        for tx in self.some(random, 2) {
            for spend in self.spends_of(&tx).spends {
                let mut vin = spend.vin;
                let mut utxo_hash = spend.utxo_hash;
                match random.below(10) {
                    0 => vin += 1,
                    1 => utxo_hash = UtxoHash::from([9; 32]),
                    2..=4 => continue,
                    _ => {}
                }
                let outpoint = Outpoint { txid: spend.txid, vout: spend.vout };
                batch.push(Unspend { outpoint, utxo_hash, spender: Spender { txid: tx.id(), vin } });
            }
        }
        if batch.is_empty() { Ok(()) } else { self.unspend(height, batch) }
    }
}
