//! Sends transactions and blocks to the canister, and enters them into the ledger.

use super::blocks::Made;
use super::ledger::Id;
use super::plan::DEPTH;
use super::story::{Aside, OnChain, Story};
use anyhow::{Context, Result, ensure};
use bitcoin::hashes::Hash;
use bitcoin::{TxOut, Txid};
use coppice::site::Site;
use coppice::utxo::form;
use coppice::utxo::send::{self, Block, NewRecord, Outcome};
use coppice_interface::{Spend, TransactionSpends, UtxoHash};

impl<S: Site> Story<'_, S> {
    /// Returns the next block id, for a height.
    pub fn next_block(&mut self, height: u32) -> Block {
        self.blocks += 1;
        Block { id: self.blocks, height }
    }

    /// Creates the records of `made`, each with the block that contains it, or unmined.
    pub fn create(&mut self, height: u32, made: &[(&Made, Option<Block>)], conflicting: bool) -> Result<Vec<Id>> {
        let mut ids = Vec::with_capacity(made.len());
        let mut records = Vec::with_capacity(made.len());
        for (made, mined) in made {
            let id = self.ledger.add(made, height, *mined, conflicting)?;
            let spent: Vec<&TxOut> = made.spent.iter().collect();
            let known = (!made.transaction.is_coinbase()).then_some(spent.as_slice());
            let (bytes, fee) = form::of(&made.transaction, known);
            let outside = match &mut self.outside {
                Some(outside) => outside.put(made, self.ledger.entry(id))?.map(Box::new),
                None => None,
            };
            records.push(NewRecord { txid: self.txid(id), bytes, fee, mined: *mined, conflicting, outside });
            ids.push(id);
        }
        for (id, outcome) in ids.iter().zip(send::create(self.client, height, &records)?) {
            let expected = self.ledger.entry(*id).utxos().count() as u32;
            ensure!(
                outcome == Outcome::Created { utxos: expected },
                "transaction {} should be new, with {expected} UTXOs, but is {outcome:?}",
                self.txid(*id)
            );
        }
        Ok(ids)
    }

    /// Spends the outputs of the transactions' inputs.
    pub fn spend(&mut self, height: u32, ids: &[Id]) -> Result<()> {
        let spends: Vec<(Txid, Vec<Spend>)> = ids.iter().map(|id| (self.txid(*id), self.spends(*id))).collect();
        let expected: usize = spends.iter().map(|(_, spends)| spends.len()).sum();
        let new = send::spend(self.client, height, spends)?;
        ensure!(new == expected as u64, "{expected} outputs should be spent, but {new} are");
        ids.iter().try_for_each(|id| self.ledger.spend(*id, height))
    }

    /// Adds a block to transactions or, with `unset`, removes it from them.
    pub fn set_mined(&mut self, height: u32, block: Block, unset: bool, ids: &[Id]) -> Result<()> {
        let txids: Vec<Txid> = ids.iter().map(|id| self.txid(*id)).collect();
        send::set_mined(self.client, height, block, unset, &txids)?;
        ids.iter().for_each(|id| self.ledger.set_mined(*id, block, unset, height));
        Ok(())
    }

    /// Adds a block: its transactions are seen, spend, and are mined.
    pub fn block(&mut self, height: u32) -> Result<()> {
        let block = self.next_block(height);
        let coinbase = self.generator.coinbase(height, 0);
        let mut made = self.generator.block(height);
        let ordinary = made.len();
        // Two transactions of a block that will be rolled back: one loses to another that spends the same outputs, the other is left out.
        if height == self.plan.reorg_at + 2 - DEPTH {
            made.extend((0..2).filter_map(|_| self.generator.aside(height)));
            ensure!(made.len() == ordinary + 2, "there is nothing to spend at height {height}");
        }
        let records: Vec<(&Made, Option<Block>)> =
            [(&coinbase, Some(block))].into_iter().chain(made.iter().map(|made| (made, None))).collect();
        let mut ids = self.create(height, &records, false)?;
        self.spend(height, &ids[1..])?;
        self.set_aside.extend(ids[1 + ordinary..].iter().zip(&made[ordinary..]).map(Aside::new));
        // Transactions that were seen before, and are mined only now.
        ids.extend(self.mined_late(height)?);
        self.set_mined(height, block, false, &ids[1..])?;
        self.chain.push(OnChain { block, ids });
        Ok(())
    }

    /// Returns the spends of a transaction.
    pub fn spends(&self, id: Id) -> Vec<Spend> {
        let spend = |(vin, (parent, vout)): (u32, &(Id, u32))| {
            let parent = self.ledger.entry(*parent);
            let output = parent.outputs[*vout as usize].as_ref()?;
            let txid = parent.txid.to_byte_array().into();
            Some(Spend { txid, vout: *vout, utxo_hash: UtxoHash::from(output.hash), vin })
        };
        (0..).zip(&self.ledger.entry(id).inputs).filter_map(spend).collect()
    }

    /// Returns the spends of a transaction as an item of a batch.
    pub fn item(&self, id: Id) -> TransactionSpends {
        TransactionSpends { spender: self.key(id), spends: self.spends(id) }
    }

    /// Returns a transaction's id.
    pub fn txid(&self, id: Id) -> Txid {
        self.ledger.entry(id).txid
    }

    /// Returns a transaction's id as an argument.
    pub fn key(&self, id: Id) -> coppice_interface::Txid {
        coppice_interface::Txid::from(self.txid(id).to_byte_array())
    }

    /// Returns one of the two transactions that were set aside.
    pub fn aside(&self, which: usize) -> Result<Aside> {
        self.set_aside.get(which).cloned().context("no transaction was set aside")
    }
}
