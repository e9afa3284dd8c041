//! Sends transactions and blocks to the canister, and enters them into the ledger.

use super::blocks::Made;
use super::external::External;
use super::ledger::Id;
use super::plan::DEPTH;
use super::story::{Aside, OnChain, Story};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bitcoin::block::{Header, Version};
use bitcoin::consensus::serialize;
use bitcoin::hashes::Hash;
use bitcoin::{BlockHash, CompactTarget, Transaction, TxMerkleNode, TxOut, Txid};
use coppice_testkit::encodings;
use coppice_testkit::single_calls::{self, Block, NewRecord, Outcome};
use ic_coppice_cli::client::{BLOCK_INTERVAL, CanisterClient, Wait};
use ic_coppice_cli::feed;
use ic_coppice_interface::{
    MissingParents, Spend, TransactionSpends, UtxoApplied, UtxoApplyBlock, UtxoApplyError, UtxoHash,
};
use std::collections::HashSet;

/// One transaction in this many is seen before its block, and has a record then.
const SEEN_EVERY: usize = 4;
/// Unix seconds of height 0.
const BEGINS_AT: u64 = 1_700_000_000;

/// A transaction of a block.
#[derive(Clone, Debug)]
pub struct InBlock {
    /// The transaction.
    pub made: Made,
    /// Its index in the ledger, if it has a record already.
    pub id: Option<Id>,
}

impl InBlock {
    fn new(made: Made) -> Self {
        Self { made, id: None }
    }
}

impl From<Aside> for InBlock {
    fn from(aside: Aside) -> Self {
        Self { made: aside.made, id: Some(aside.id) }
    }
}

impl<C: CanisterClient> Story<'_, C> {
    /// Returns the next block id, for a height.
    pub fn next_block(&mut self, height: u32) -> Block {
        self.blocks += 1;
        Block { id: self.blocks, height }
    }

    /// Creates the records of transactions that no block has yet.
    pub fn create(&mut self, height: u32, made: &[&Made]) -> Result<Vec<Id>> {
        let mut ids = Vec::with_capacity(made.len());
        let mut records = Vec::with_capacity(made.len());
        for made in made {
            let id = self.ledger.add(made, height, None, false)?;
            let spent: Vec<&TxOut> = made.spent.iter().collect();
            let (bytes, fee) = encodings::of(&made.transaction, Some(&spent));
            let external = match &mut self.external {
                Some(external) => external.put(made, self.ledger.entry(id))?.map(Box::new),
                None => None,
            };
            records.push(NewRecord { txid: self.txid(id), bytes, fee, mined: None, conflicting: false, external });
            ids.push(id);
        }
        for (id, outcome) in ids.iter().zip(single_calls::create(self.client, height, &records)?) {
            let (txid, expected) = (self.txid(*id), self.ledger.entry(*id).utxos().count() as u32);
            match outcome {
                Outcome::Existed => bail!("{txid} should be new, but the transaction has a record already"),
                Outcome::Created { utxos } => {
                    ensure!(utxos == expected, "{txid} should have {expected} UTXOs, but has {utxos}");
                }
            }
        }
        Ok(ids)
    }

    /// Spends the outputs of the transactions' inputs.
    pub fn spend(&mut self, height: u32, ids: &[Id]) -> Result<()> {
        let spends: Vec<(Txid, Vec<Spend>)> = ids.iter().map(|id| (self.txid(*id), self.spends(*id))).collect();
        let expected: usize = spends.iter().map(|(_, spends)| spends.len()).sum();
        let new = single_calls::spend(self.client, height, spends)?;
        ensure!(new == expected as u64, "{expected} outputs should be spent, but {new} are");
        ids.iter().try_for_each(|id| self.ledger.spend(*id, height))
    }

    /// Adds a block: some of its transactions are seen before it, with their spends; the others come with it.
    pub fn block(&mut self, height: u32) -> Result<()> {
        let coinbase = self.generator.coinbase(height, 0);
        let mut made = self.generator.block(height);
        let ordinary = made.len();
        // Two transactions of a block that will be rolled back: one loses to another that spends the same outputs, the other is left out.
        if height == self.plan.reorg_at + 2 - DEPTH {
            made.extend((0..2).filter_map(|_| self.generator.aside(height)));
            ensure!(made.len() == ordinary + 2, "there is nothing to spend at height {height}");
        }
        let seen: Vec<Made> = self.seen_before(&made);
        let ids = self.create(height, &seen.iter().collect::<Vec<_>>())?;
        self.spend(height, &ids)?;
        let mut transactions = vec![InBlock::new(coinbase)];
        let mut ids = seen.iter().map(|made| made.transaction.compute_txid()).zip(ids).peekable();
        for made in made {
            let txid = made.transaction.compute_txid();
            let id = ids.next_if(|(seen, _)| *seen == txid).map(|(_, id)| id);
            transactions.push(InBlock { made, id });
        }
        // Transactions that were seen long before, and are mined only now.
        transactions.extend(self.mined_late(height)?.into_iter().map(InBlock::from));
        let aside = 1 + ordinary..transactions.len();
        self.append_and_apply(height, transactions)?;
        if height == self.plan.reorg_at + 2 - DEPTH {
            let OnChain { transactions, .. } = self.chain.last().context("there is no block")?;
            self.set_aside.extend_from_slice(&transactions[aside]);
        }
        Ok(())
    }

    /// Returns the transactions of a block that are seen before it, each after its parents.
    fn seen_before(&self, made: &[Made]) -> Vec<Made> {
        let mut needed = HashSet::new();
        let mut seen = Vec::new();
        for (at, made) in made.iter().enumerate().rev() {
            let external = self.external.is_some() && External::<C>::takes(&made.transaction);
            if external || at.is_multiple_of(SEEN_EVERY) || needed.contains(&made.transaction.compute_txid()) {
                needed.extend(made.transaction.input.iter().map(|input| input.previous_output.txid));
                seen.push(made.clone());
            }
        }
        seen.reverse();
        seen
    }

    /// Appends a block after the last one, and applies it.
    pub fn append_and_apply(&mut self, height: u32, transactions: Vec<InBlock>) -> Result<()> {
        let block = self.append(height, &transactions)?;
        self.apply(block, transactions, 0)
    }

    /// Appends a block after the last one, and returns it.
    pub fn append(&mut self, height: u32, transactions: &[InBlock]) -> Result<(Block, BlockHash)> {
        let parent = self.chain.last().map_or_else(BlockHash::all_zeros, |block| block.hash);
        let txdata: Vec<Transaction> = transactions.iter().map(|of| of.made.transaction.clone()).collect();
        let timestamp_secs = BEGINS_AT + u64::from(height) * BLOCK_INTERVAL.as_secs();
        let header = Header {
            version: Version::TWO,
            prev_blockhash: parent,
            merkle_root: TxMerkleNode::all_zeros(),
            time: u32::try_from(timestamp_secs)?,
            bits: CompactTarget::from_consensus(0x207F_FFFF),
            nonce: 0,
        };
        let mut block = bitcoin::Block { header, txdata };
        block.header.merkle_root = block.compute_merkle_root().context("a block without transactions")?;
        let hash = block.block_hash();
        feed::send(self.client, &[feed::bitcoin_block(height.into(), serialize(&block), &block)?])?;
        Ok((self.next_block(height), hash))
    }

    /// Applies the last block of the chain, of which the first `before` transactions are applied already, and enters all of them into the
    /// ledger.
    pub fn apply(
        &mut self,
        (block, hash): (Block, BlockHash),
        transactions: Vec<InBlock>,
        before: usize,
    ) -> Result<()> {
        let height = block.height;
        self.applied += transactions.len() as u64;
        let applied = self.ask_to_apply(block, hash)?.map_err(|why| anyhow!("block {height}: {why}"))?;
        let mut on_chain = Vec::with_capacity(transactions.len());
        let mut expected = UtxoApplied { transactions: transactions.len() as u32, ..UtxoApplied::default() };
        for (at, InBlock { made, id }) in transactions.into_iter().enumerate() {
            let is_new = u32::from(at >= before);
            let id = match id {
                Some(id) => {
                    expected.existed += is_new;
                    self.ledger.set_mined(id, block, false, height);
                    self.ledger.spend_again(id, height);
                    id
                }
                None => {
                    let id = self.ledger.add(&made, height, Some(block), false)?;
                    self.ledger.spend(id, height)?;
                    expected.created += is_new;
                    expected.spent += is_new * self.ledger.entry(id).inputs.len() as u32;
                    id
                }
            };
            on_chain.push(Aside { id, made });
        }
        ensure!(applied == expected, "block {height} should be applied as {expected:?}, but was as {applied:?}");
        self.chain.push(OnChain { block, hash, transactions: on_chain });
        self.note_applied(height);
        Ok(())
    }

    /// Applies the last block, and returns the canister's answer.
    pub fn ask_to_apply(&self, block: Block, hash: BlockHash) -> Result<Result<UtxoApplied, UtxoApplyError>> {
        let arg = UtxoApplyBlock {
            number: block.height.into(),
            hash: hash.to_byte_array().into(),
            height: block.height,
            block_id: block.id,
            missing_parents: Some(MissingParents::Refuse),
            skip: None,
            skip_rest: false,
        };
        self.client.apply(&arg).wait()
    }

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

    pub fn txid(&self, id: Id) -> Txid {
        self.ledger.entry(id).txid
    }

    /// Returns a transaction's id as an argument.
    pub fn key(&self, id: Id) -> ic_coppice_interface::Txid {
        ic_coppice_interface::Txid::from(self.txid(id).to_byte_array())
    }

    /// Returns one of the two transactions that were set aside.
    pub fn aside(&self, which: usize) -> Result<Aside> {
        self.set_aside.get(which).cloned().context("no transaction was set aside")
    }
}
