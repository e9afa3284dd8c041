//! Blocks, locks and preservations, and everything that makes a record due.

use super::super::history::Random;
use super::super::player::Player;
use super::{items, names};
use coppice_model::documents::{Verdict, hex};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

impl Player {
    /// A block: a new one at the tip, or an earlier one.
    pub(super) fn block(&mut self, random: &mut Random) -> (u32, u32) {
        let old = self.blocks.len() as u64;
        if old > 0 && random.below(2) == 0 {
            return self.blocks[random.below(old) as usize];
        }
        let block = (old as u32 + 1, (self.tip + 1).saturating_sub(random.below(4) as u32).max(1));
        self.blocks.push(block);
        block
    }

    /// `utxo_set_mined`.
    fn set_mined(&mut self, call: UtxoSetMinedBatch) -> Verdict {
        let UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset, items: txs } = &call;
        let txids: Vec<String> = txs.iter().map(|item| hex(&item.txid)).collect();
        self.note(format!(
            "  utxo_set_mined at {height}: block {block_id} of {block_height}, on_longest_chain {on_longest_chain}, unset {unset}: {txids:?}"
        ));
        let answer = self.call(|coppice| coppice.producer().utxo_set_mined(&call).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, call.items.len(), &answer, |player, number, result| {
            Ok((player.store.set_mined(&call, &call.items[number]), result.clone()))
        })
    }

    fn mined_in(
        &mut self,
        random: &mut Random,
        (block_id, block_height): (u32, u32),
        txs: &[Rc<Tx>],
        unset: bool,
    ) -> Verdict {
        let height = self.height(random);
        let items = txs.iter().map(|tx| MinedTransaction { txid: tx.id(), subtree: random.below(4) as u32 }).collect();
        let on_longest_chain = if unset { random.below(2) == 0 } else { random.below(5) > 0 };
        self.set_mined(UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset, items })
    }

    pub(super) fn mine(&mut self, random: &mut Random, unset: bool) -> Verdict {
        let txs = self.some(random, 5);
        // Mostly a block that one of them has.
        let has = txs.first().and_then(|tx| self.store.records.get(&tx.txid)).and_then(|record| record.blocks.first());
        let has = has.filter(|_| unset && random.below(4) > 0).map(|block| (block.block_id, block.height));
        let mut block = has.unwrap_or_else(|| self.block(random));
        if self.store.current > 0 && random.below(40) == 0 {
            block.1 = self.store.most + 1;
        }
        if txs.is_empty() { Ok(()) } else { self.mined_in(random, block, &txs, unset) }
    }

    pub(super) fn reorg(&mut self, random: &mut Random) -> Verdict {
        let all = self.blocks.len();
        if all == 0 {
            return Ok(());
        }
        let depth = if random.below(3) == 0 { all } else { 1 + random.below(all as u64) as usize };
        let mut unmined: Vec<Rc<Tx>> = Vec::new();
        let taken_back = self.blocks[all - depth..].to_vec();
        for from in taken_back.into_iter().rev() {
            let had = |tx: &&Rc<Tx>| {
                let record = self.store.records.get(&tx.txid);
                record.is_some_and(|record| record.blocks.iter().any(|block| block.block_id == from.0))
            };
            let txs: Vec<Rc<Tx>> = self.txs.iter().filter(had).cloned().collect();
            if txs.is_empty() {
                continue;
            }
            self.mined_in(random, from, &txs, true)?;
            unmined.retain(|tx| txs.iter().all(|other| other.txid != tx.txid));
            unmined.extend(txs);
        }
        if unmined.is_empty() {
            return Ok(());
        }
        self.saw("a reorg", 1);
        self.saw("a reorg of several blocks", u64::from(depth > 1));
        self.tip += 1;
        let to = (all as u32 + 1, self.tip);
        self.blocks.push(to);
        let some: Vec<Rc<Tx>> = unmined.into_iter().filter(|_| random.below(3) > 0).collect();
        if some.is_empty() { Ok(()) } else { self.mined_in(random, to, &some, false) }
    }

    pub(super) fn longest(&mut self, random: &mut Random) -> Verdict {
        let height = self.height(random);
        let txids: Vec<Txid> = self.some(random, 3).iter().map(|tx| tx.id()).collect();
        let on_longest_chain = random.below(2) == 0;
        self.note(format!("  utxo_set_on_longest_chain at {height}: {on_longest_chain} {}", names(&txids)));
        let call = UtxoSetOnLongestChainBatch { height, txids, on_longest_chain };
        let answer = self.call(|coppice| coppice.producer().utxo_set_on_longest_chain(&call).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, call.txids.len(), &answer, |player, number, result| {
            let expected = player.store.set_on_longest_chain(height, &call.txids[number], on_longest_chain);
            Ok((expected, result.clone()))
        })
    }

    pub(super) fn lock(&mut self, random: &mut Random) -> Verdict {
        let height = self.height(random);
        let txids: Vec<Txid> = self.some(random, 3).iter().map(|tx| tx.id()).collect();
        let locked = random.below(3) == 0;
        self.note(format!("  utxo_set_locked at {height}: {locked} {}", names(&txids)));
        let call = UtxoSetLockedBatch { height, locked, txids };
        let answer = self.call(|coppice| coppice.producer().utxo_set_locked(&call).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, call.txids.len(), &answer, |player, number, result| {
            Ok((player.store.set_locked(height, &call.txids[number], locked), result.clone()))
        })
    }

    pub(super) fn preserve(&mut self, random: &mut Random) -> Verdict {
        let until = match random.below(6) {
            0 => 1 + random.below(u64::from(self.tip)) as u32,
            1 => MAX_HEIGHT,
            _ => self.tip + random.below(15) as u32,
        };
        let txids: Vec<Txid> = self.some(random, 3).iter().map(|tx| tx.id()).collect();
        self.note(format!("  utxo_preserve until {until}: {}", names(&txids)));
        let call = UtxoPreserveBatch { until_height: until, txids };
        let answer = self.call(|coppice| coppice.producer().utxo_preserve(&call).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, call.txids.len(), &answer, |player, number, result| {
            Ok((player.store.preserve(until, &call.txids[number]), result.clone()))
        })
    }

    /// Mines some transactions, and spends their unspent outputs by transactions without a record.
    pub(super) fn finish(&mut self, random: &mut Random) -> Verdict {
        let txs = self.some(random, 4);
        if txs.is_empty() {
            return Ok(());
        }
        let height = self.tip;
        let block = self.block(random);
        let items = txs.iter().map(|tx| MinedTransaction { txid: tx.id(), subtree: 0 }).collect();
        let (block_id, block_height) = block;
        self.set_mined(UtxoSetMinedBatch {
            height,
            block_id,
            block_height,
            on_longest_chain: true,
            unset: false,
            items,
        })?;
        let mut batch = Vec::new();
        for tx in &txs {
            let Some(record) = self.store.records.get(&tx.txid) else { continue };
            let open = record.utxos().filter(|(_, output)| output.spender.is_none());
            let spends: Vec<Spend> = open
                .map(|(vout, output)| Spend { txid: tx.id(), vout, utxo_hash: output.hash.into(), vin: vout })
                .collect();
            let spender = Txid::from(std::array::from_fn::<u8, 32, _>(|i| tx.txid[31 - i]));
            if !spends.is_empty() {
                batch.push(TransactionSpends { spender, spends });
            }
        }
        if !batch.is_empty() {
            self.spend(height, batch)?;
        }
        // A frozen output keeps an otherwise finished record.
        let frozen = txs.iter().filter(|_| random.below(5) == 0);
        let targets: Vec<_> = frozen.map(|tx| FreezeTarget { txid: tx.id(), vout: Some(0), utxo_hash: None }).collect();
        if targets.is_empty() { Ok(()) } else { self.set_frozen(height, targets, true) }
    }
}
