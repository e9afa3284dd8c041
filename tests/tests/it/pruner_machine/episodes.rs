//! Steps of several messages, which single random messages would seldom form.

use super::Outcome;
use super::machine::Machine;
use super::operations::block_id;
use super::steps::{Kind, Pick};
use coppice_model::records::{Record, Txid};
use std::collections::BTreeSet;

impl Machine {
    /// Removes everything that keeps a record, in the order in which a chain would.
    pub fn retire(&mut self, pick: Pick, by: Option<Pick>, height: u32) -> Outcome {
        let may = |record: &Record| !record.deleting && !record.eligible();
        let txid = self.pick(pick, |txid| self.is(txid, may));
        let frozen = self.is(&txid, |record| !record.deleting && record.utxos().any(|output| output.frozen));
        if frozen {
            self.set_frozen(txid, None, false, height)?;
        }
        let block = block_id(self.tip, 0);
        let lacks = |record: &Record| record.blocks.is_empty() || record.unmined_since.is_some();
        let unmined = |machine: &Self, txid: &Txid| machine.is(txid, |record| !record.deleting && lacks(record));
        if unmined(self, &txid) {
            self.mine(&[txid], (block, self.tip), false, true, height)?;
        }
        self.sweep(txid, pick, by, height)?;
        let holds = self.records.0.get(&txid).map_or(Vec::new(), |record| record.holds().map(|hold| hold.by).collect());
        let spenders: BTreeSet<Txid> = holds.into_iter().filter(|by| unmined(self, by)).collect();
        // The spenders are often mined later.
        self.tip += u32::from(pick.0 % 4);
        let spenders: Vec<Txid> = spenders.into_iter().collect();
        self.mine(&spenders, (block_id(self.tip, 0), self.tip), false, true, self.tip)
    }

    /// Begins a run, makes a child of a due record unmined with a height long past, and continues the run.
    pub fn unsettle(&mut self, pick: Pick) -> Outcome {
        if self.heights.persisted > 0 {
            self.persisted(self.tip)?
        } else {
            self.block(self.tip, true)?
        }
        self.tick()?;
        self.unmine_child(pick)?;
        self.tick()
    }

    fn unmine_child(&mut self, pick: Pick) -> Outcome {
        let all = self.records.due(self.settings.safe_height(self.heights.current, self.heights.persisted));
        let due = |txid: &Txid| all.contains(txid);
        let of = |txid: &Txid| {
            let spends = |inputs: &[(Txid, u32)]| inputs.iter().any(|(parent, _)| parent == txid);
            self.family.all.iter().find(|one| spends(&one.tx.inputs)).map(|one| one.tx.txid)
        };
        let parent = self.pick(pick, |txid| due(txid) && of(txid).is_some());
        let Some(child) = of(&parent) else { return Ok(()) };
        let height = self.tip - 50;
        let Some(record) = self.records.0.get(&child) else { return self.create(child, Kind::Unmined, height) };
        let blocks: Vec<(u32, u32)> = record.blocks.iter().map(|block| (block.block_id, block.height)).collect();
        blocks.into_iter().try_for_each(|block| self.mine(&[child], block, true, false, height))
    }

    /// Begins a run, and then starts the block persister, which lags.
    pub fn persister(&mut self, behind: u8) -> Outcome {
        if self.heights.persisted == 0 {
            self.block(self.tip, true)?;
            self.tick()?;
            if self.run.is_some() {
                self.seen("the block persister begins in the middle of a run");
            }
        }
        self.persisted(self.tip - u32::from(behind))?;
        self.tick()
    }

    /// Stops the assembly, removes the last blocks, mines most of their transactions in other blocks, and starts the assembly.
    pub fn reorg(&mut self, depth: u8, ticks: u8, again: u16) -> Outcome {
        self.seen("a reorg");
        self.assembly(false)?;
        let from = self.tip - u32::from(depth);
        let (mut back, mut taken) = (Vec::new(), Vec::new());
        for (txid, record) in self.records.0.iter().filter(|(_, record)| !record.deleting) {
            let recent = record.blocks.iter().filter(|block| block.height > from);
            taken.extend(recent.map(|block| (block.block_id, block.height, *txid)));
        }
        taken.sort_unstable();
        for of_block in taken.chunk_by(|a, b| a.0 == b.0) {
            let (block, block_height, _) = of_block[0];
            let txids: Vec<Txid> = of_block.iter().map(|(.., txid)| *txid).collect();
            self.mine(&txids, (block, block_height), true, false, self.tip)?;
            back.push((block ^ 1, block_height, txids));
        }
        (0..ticks).try_for_each(|_| self.tick())?;
        for ((block, block_height, mut txids), number) in back.into_iter().zip(0u32..) {
            let skips = |txid: &Txid| again >> ((number + u32::from(txid[0])) % 16) & 1 == 1;
            txids.retain(|txid| !skips(txid) || again & 1 == 0);
            self.mine(&txids, (block, block_height), false, true, self.tip)?;
        }
        self.assembly(true)
    }
}
