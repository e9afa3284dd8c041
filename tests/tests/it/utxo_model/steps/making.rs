//! Making records: new transactions, double spends, chains, and replays of earlier ones.

use super::super::history::Random;
use super::super::player::Player;
use super::items;
use coppice_model::documents::{Id, Verdict, hex};
use coppice_tests::blocks::id;
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

impl Player {
    /// `utxo_create`.
    pub fn create(&mut self, height: u32, made: Vec<(Rc<Tx>, UtxoCreate)>) -> Verdict {
        let created: Vec<UtxoCreate> = made.iter().map(|(_, item)| item.clone()).collect();
        for (tx, item) in made.iter().take(4) {
            let UtxoCreate { mined, locked, conflicting, is_new, .. } = item;
            self.note(format!(
                "  utxo_create at {height}: {} spends {}, {} outputs, {mined:?}, locked {locked:?}, conflicting {conflicting}, is_new {is_new}",
                hex(&tx.txid),
                tx.inputs.iter().map(|(txid, vout)| format!("{}:{vout}", hex(txid))).collect::<Vec<_>>().join(" "),
                tx.outputs.len(),
            ));
        }
        let from = self.coppice.ic.now();
        let answer = self
            .call(|coppice| coppice.producer().utxo_create(&UtxoCreateBatch { height, items: created }).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        let moment = (from, self.coppice.ic.now());
        for (tx, _) in &made {
            if self.tx(&tx.txid).is_none() {
                self.txs.push(Rc::clone(tx));
            }
        }
        items(self, made.len(), &answer, |player, number, result| {
            let (tx, item) = &made[number];
            let expected = player.store.create(height, tx, item, moment);
            player.saw("a replay that is refused", u64::from(expected == Err(UtxoCreateError::Pruned)));
            Ok((expected, result.clone()))
        })
    }

    /// A number that no other transaction uses.
    fn salt(&self) -> u64 {
        self.txs.len() as u64 + 1
    }

    /// An output to spend, mostly an unspent one.
    fn outpoint(&self, random: &mut Random) -> (Id, u32) {
        for attempt in 0..6 {
            let Some(tx) = self.any(random) else { break };
            let vout = random.below(tx.outputs.len() as u64) as u32;
            let output = self.store.records.get(&tx.txid).and_then(|record| record.output(vout));
            if output.is_some_and(|output| output.spender.is_none()) || attempt == 5 {
                return (tx.txid, vout);
            }
        }
        (id(random.below(4) ^ 0xF00D), random.below(2) as u32)
    }

    fn some_mined(&mut self, random: &mut Random) -> Option<MinedIn> {
        let count = [0, 0, 0, 1, 1, 2][random.below(6) as usize];
        let mut blocks: Vec<BlockRef> = Vec::new();
        for _ in 0..count {
            let (block_id, height) = self.block(random);
            if blocks.iter().all(|block| block.block_id != block_id) {
                blocks.push(BlockRef { block_id, height, subtree: random.below(3) as u32 });
            }
        }
        (!blocks.is_empty()).then(|| MinedIn { blocks, on_longest_chain: random.below(4) > 0 })
    }

    fn item(&mut self, tx: &Tx, random: &mut Random) -> UtxoCreate {
        UtxoCreate {
            mined: self.some_mined(random),
            locked: [None, Some(false), Some(false), Some(false), Some(true)][random.below(5) as usize],
            conflicting: random.below(12) == 0,
            fee: [None, Some(7)][random.below(2) as usize],
            is_new: random.below(2) == 0,
            ..tx.record()
        }
    }

    /// Outputs of a new transaction, some of which are data.
    fn outputs(&self, random: &mut Random) -> Vec<(u64, Vec<u8>)> {
        let salt = self.salt();
        let output = |vout: u64, random: &mut Random| match random.below(8) {
            0 => (0, [&[0x6A][..], &salt.to_le_bytes()].concat()),
            _ => (1_000 + vout, [&[0x51][..], &salt.to_le_bytes()].concat()),
        };
        let count = [1, 1, 2, 2, 3, 5][random.below(6) as usize];
        (0..count).map(|vout| output(vout, random)).collect()
    }

    pub(super) fn create_some(&mut self, random: &mut Random) -> Verdict {
        let height = self.height(random);
        let mut made: Vec<Rc<Tx>> = Vec::new();
        for _ in 0..=random.below(3) {
            let coinbase = random.below(8) == 0;
            let mut inputs: Vec<(Id, u32)> = Vec::new();
            for _ in 0..=random.below(3) {
                let input = match made.last() {
                    Some(last) if random.below(2) == 0 => (last.txid, random.below(last.outputs.len() as u64) as u32),
                    _ => self.outpoint(random),
                };
                if !inputs.contains(&input) {
                    inputs.push(input);
                }
            }
            if coinbase {
                inputs = vec![([0; 32], u32::MAX)];
            }
            let mut outputs = self.outputs(random);
            // The transactions of a batch are all different.
            outputs[0].1.push(made.len() as u8);
            let tx = Rc::new(Tx::new(&inputs, &outputs));
            made.push(tx);
        }
        let items: Vec<_> = made.iter().map(|tx| (Rc::clone(tx), self.item(tx, random))).collect();
        self.create(height, items)?;
        if random.below(4) == 0 {
            return Ok(());
        }
        let height = self.height(random);
        self.spend_inputs(height, &made)
    }

    pub(super) fn replay(&mut self, random: &mut Random) -> Verdict {
        // Mostly a transaction without a record.
        let gone: Vec<Rc<Tx>> =
            self.txs.iter().filter(|tx| !self.store.records.contains_key(&tx.txid)).cloned().collect();
        let tx = match gone.len() as u64 {
            0 => self.any(random),
            count => Some(Rc::clone(&gone[random.below(count) as usize])),
        };
        let Some(tx) = tx else { return Ok(()) };
        let mut item = self.item(&tx, random);
        if random.below(3) > 0 {
            let height = self.store.pruned.unwrap_or(1).saturating_sub(random.below(3) as u32).max(1);
            let blocks = vec![BlockRef { block_id: 1_000 + height, height, subtree: 0 }];
            item.mined = Some(MinedIn { blocks, on_longest_chain: true });
        }
        let height = self.height(random);
        self.create(height, vec![(Rc::clone(&tx), item)])?;
        if random.below(2) == 0 { self.spend_inputs(height, &[tx]) } else { Ok(()) }
    }

    pub(super) fn rival(&mut self, random: &mut Random) -> Verdict {
        let Some(other) = self.any(random) else { return Ok(()) };
        let mut inputs: Vec<(Id, u32)> =
            other.inputs.iter().filter(|_| random.below(3) > 0).copied().filter(|(_, vout)| *vout < 100).collect();
        if random.below(3) == 0 {
            let more = self.outpoint(random);
            if !inputs.contains(&more) {
                inputs.push(more);
            }
        }
        if inputs.is_empty() {
            return Ok(());
        }
        let tx = Rc::new(Tx::new(&inputs, &self.outputs(random)));
        let item = UtxoCreate { conflicting: random.below(6) > 0, ..self.item(&tx, random) };
        let height = self.height(random);
        self.create(height, vec![(tx, item)])
    }

    pub(super) fn chain(&mut self, random: &mut Random) -> Verdict {
        if std::mem::replace(&mut self.chained, true) {
            return Ok(());
        }
        let length = 20 + random.below(60);
        let height = self.tip;
        let mut contested = self.outpoint(random);
        if random.below(4) > 0 {
            let parent = Rc::new(Tx::orphan(1 << 42 | self.salt(), 1));
            contested = (parent.txid, 0);
            self.create(height, vec![(Rc::clone(&parent), parent.record())])?;
        }
        let mut last = contested;
        let mut all: Vec<Rc<Tx>> = Vec::new();
        for link in 0..length {
            let tx = Rc::new(Tx::of(1 << 40 | self.salt() << 20 | link, &[last], 1 + u32::from(link % 3 == 0)));
            last = match all.last() {
                Some(before) if before.outputs.len() > 1 && random.below(3) == 0 => (before.txid, 1),
                _ => (tx.txid, 0),
            };
            all.push(tx);
        }
        for some in all.chunks(16) {
            self.create(height, some.iter().map(|tx| (Rc::clone(tx), tx.record())).collect())?;
        }
        for some in all.chunks(16) {
            self.spend_inputs(height, some)?;
        }
        self.saw("a long chain", 1);
        let slices = 1 + random.below(12);
        if random.below(2) == 0 {
            return self.mark(random, Rc::clone(&all[0]), slices);
        }
        let rival = Rc::new(Tx::of(1 << 41 | self.salt(), &[contested], 1));
        let item = UtxoCreate { conflicting: true, ..rival.record() };
        self.create(height, vec![(Rc::clone(&rival), item)])?;
        self.resolve(random, vec![rival.txid], slices)
    }
}
