//! Steps of a history, played on the canister and on the model.

mod alerts;
mod chain;
mod making;
mod slices;
mod spending;
mod turns;

use super::history::{Kind, Random, Step};
use super::player::Player;
use coppice_model::documents::{Id, Verdict, hex};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

/// Compares the answers of a batch with the model's, and then everything else.
fn items<A, T: PartialEq + std::fmt::Debug>(
    player: &mut Player,
    count: usize,
    answer: &Batch<A>,
    mut each: impl FnMut(&mut Player, usize, &A) -> Verdict<(T, T)>,
) -> Verdict {
    let done = answer.results.len();
    if done + answer.remaining as usize != count || (done == 0 && count > 0) {
        return Err(format!("{done} of {count} items are done, and {} remain", answer.remaining));
    }
    let before = player.store.clone();
    for (number, result) in answer.results.iter().enumerate() {
        let (expected, seen) = each(player, number, result)?;
        if expected != seen {
            return Err(format!("the answer to item {number} is {seen:?}, expected {expected:?}"));
        }
    }
    player.store.note_changes(&before);
    player.judge()
}

/// Transactions by their names in the journal.
fn names(txids: &[Txid]) -> String {
    txids.iter().map(|txid| hex(txid)).collect::<Vec<_>>().join(" ")
}

impl Player {
    /// Plays a step.
    pub fn step(&mut self, step: &Step) -> Verdict {
        self.note(format!("{step}"));
        let random = &mut Random::new(step.seed);
        match step.kind {
            Kind::Create => self.create_some(random),
            Kind::Replay => self.replay(random),
            Kind::Rival => self.rival(random),
            Kind::Chain => self.chain(random),
            Kind::Spend => self.spend_one(random),
            Kind::Unspend => self.unspend_one(random),
            Kind::Mine => self.mine(random, false),
            Kind::Unmine => self.mine(random, true),
            Kind::Reorg => self.reorg(random),
            Kind::Longest => self.longest(random),
            Kind::Lock => self.lock(random),
            Kind::Freeze => self.freeze(random, true),
            Kind::Unfreeze => self.freeze(random, false),
            Kind::Reassign => self.reassign(random),
            Kind::Preserve => self.preserve(random),
            Kind::Conflict => self.conflict(random),
            Kind::Win => self.win(random),
            Kind::Continue => self.continue_open(random),
            Kind::Notify => self.notify(random),
            Kind::SetHeights => self.utxo_set_heights(random),
            Kind::Prune => self.prune(random),
            Kind::Cancel => self.cancel(),
            Kind::Assembly => self.assembly(random),
            Kind::Pass => self.some_time(random),
            Kind::Finish => self.finish(random),
            Kind::Settings => self.settings(random),
            Kind::Upgrade => self.upgrade(),
            Kind::Trap => {
                self.set_trap(random);
                Ok(())
            }
        }
    }

    /// A height for a call: mostly the chain's or near it, sometimes an invalid one.
    fn height(&self, random: &mut Random) -> u32 {
        let notified = self.store.current > 0;
        match random.below(24) {
            0 => 1 + random.below(u64::from(self.tip)) as u32,
            1 | 2 => self.tip.saturating_sub(random.below(12) as u32).max(1),
            3 => self.tip + 1 + random.below(4) as u32,
            4 if notified => [0, self.store.most + 1, 1_700_000_000, 1 << 31][random.below(4) as usize],
            _ => self.tip,
        }
    }

    /// Any transaction, more likely a recent one.
    fn any(&self, random: &mut Random) -> Option<Rc<Tx>> {
        let all = self.txs.len() as u64;
        let from = if random.below(2) == 0 { all.saturating_sub(10) } else { 0 };
        (all > 0).then(|| Rc::clone(&self.txs[(from + random.below(all - from)) as usize]))
    }

    /// Some different transactions.
    fn some(&self, random: &mut Random, most: u64) -> Vec<Rc<Tx>> {
        let mut some: Vec<Rc<Tx>> = Vec::new();
        for _ in 0..=random.below(most) {
            let one = self.any(random).filter(|one| some.iter().all(|other| other.txid != one.txid));
            some.extend(one);
        }
        some
    }

    /// A transaction by its id.
    fn tx(&self, id: &Id) -> Option<Rc<Tx>> {
        self.txs.iter().find(|tx| tx.txid == *id).cloned()
    }

    /// The hash of an output from the record, or else from the transaction.
    fn hash(&self, txid: &Id, vout: u32) -> UtxoHash {
        let stored = self.store.records.get(txid).and_then(|record| record.output(vout)).map(|output| output.hash);
        let own = || self.tx(txid).filter(|tx| (vout as usize) < tx.outputs.len()).map(|tx| tx.hash(vout));
        stored.or_else(own).unwrap_or([7; 32]).into()
    }
}
