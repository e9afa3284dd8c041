//! Double spends, in slices: continued at once, later, or never.

use super::super::history::Random;
use super::super::player::{Open, Player};
use super::names;
use coppice_model::documents::{Id, Verdict, hex};
use coppice_tests::client::Answered;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

impl Player {
    pub(super) fn conflict(&mut self, random: &mut Random) -> Verdict {
        let Some(tx) = self.any(random) else { return Ok(()) };
        let slices = 1 + random.below(4);
        self.mark(random, tx, slices)
    }

    /// Makes the slice of the next message end after some transactions, or not. Returns whether it does.
    fn hasten(&mut self, random: &mut Random) -> bool {
        self.haste = [1, 20_000, 50_000, 100_000][random.below(4) as usize];
        self.haste > 1
    }

    /// `utxo_set_conflicting`, in at most `slices` slices.
    pub(super) fn mark(&mut self, random: &mut Random, tx: Rc<Tx>, slices: u64) -> Verdict {
        for _ in 0..slices {
            let height = self.height(random);
            self.note(format!("  utxo_set_conflicting at {height}: {}", hex(&tx.txid)));
            let call = UtxoSetConflictingBatch { height, txids: vec![tx.id()] };
            let hasty = self.hasten(random);
            let answer = self.call(|coppice| coppice.producer().utxo_set_conflicting(&call).try_answer())?;
            let Some(answer) = answer else { continue };
            let [result] = &answer.results[..] else { return Err(format!("the answer to one item is {answer:?}")) };
            if hasty && *result == Err(UtxoError::TooMuchWork) {
                self.saw("a slice that nothing fits", 1);
                self.judge()?;
                continue;
            }
            let before = self.store.clone();
            self.store.set_conflicting(height, &tx.id(), result)?;
            self.store.note_changes(&before);
            self.judge()?;
            if let Ok(conflict) = result {
                self.saw("a marked double spend", conflict.marked.len() as u64);
                self.saw("a slice of marking", u64::from(conflict.has_more));
                if !conflict.has_more {
                    return Ok(());
                }
            } else {
                return Ok(());
            }
        }
        self.open.push(Open::Conflict(tx));
        Ok(())
    }

    pub(super) fn win(&mut self, random: &mut Random) -> Verdict {
        let conflicting = |id: &Id| self.store.records[id].conflicting;
        let mut rivals: Vec<Id> = self.store.records.keys().filter(|id| conflicting(id)).copied().collect();
        if rivals.is_empty() || random.below(12) == 0 {
            rivals = self.store.records.keys().copied().collect();
        }
        let mut winners: Vec<Id> = Vec::new();
        for _ in 0..=random.below(5) / 4 {
            let Some(at) = random.next().checked_rem(rivals.len() as u64) else { return Ok(()) };
            if !winners.contains(&rivals[at as usize]) {
                winners.push(rivals[at as usize]);
            }
        }
        let slices = 1 + random.below(4);
        self.resolve(random, winners, slices)
    }

    /// `utxo_process_conflicting`, in at most `slices` slices.
    pub(super) fn resolve(&mut self, random: &mut Random, winners: Vec<Id>, slices: u64) -> Verdict {
        for _ in 0..slices {
            let height = self.height(random);
            let call = UtxoProcessConflicting { height, winners: winners.iter().map(Txid::from).collect() };
            self.note(format!("  utxo_process_conflicting at {height}: {}", names(&call.winners)));
            let hasty = self.hasten(random);
            let answer = self.call(|coppice| coppice.producer().utxo_process_conflicting(&call).try_answer())?;
            let Some(answer) = answer else { continue };
            self.note(match &answer {
                Ok(done) => {
                    format!("    losers {}, {} spent, has_more {}", names(&done.losers), done.spent, done.has_more)
                }
                Err(refused) => format!("    refused: {:?}", refused.error),
            });
            if hasty && answer.as_ref().is_err_and(|refused| refused.error == UtxoError::TooMuchWork) {
                self.saw("a slice that nothing fits", 1);
                self.judge()?;
                continue;
            }
            let before = self.store.clone();
            self.store.process_conflicting(&call, &answer)?;
            self.store.note_changes(&before);
            self.judge()?;
            match answer {
                Ok(resolution) => {
                    self.saw("a slice of winning", u64::from(resolution.has_more));
                    self.saw("a winner", u64::from(!resolution.has_more));
                    self.saw("a loser", resolution.losers.len() as u64);
                    if !resolution.has_more {
                        return Ok(());
                    }
                }
                Err(_) => {
                    self.saw("winners that are refused", 1);
                    return Ok(());
                }
            }
        }
        self.open.push(Open::Win(winners));
        Ok(())
    }

    pub(super) fn continue_open(&mut self, random: &mut Random) -> Verdict {
        if self.open.is_empty() {
            return Ok(());
        }
        let open = self.open.swap_remove(random.below(self.open.len() as u64) as usize);
        self.saw("slices that are continued later", 1);
        match open {
            Open::Conflict(tx) => self.mark(random, tx, 8),
            Open::Win(winners) => self.resolve(random, winners, 8),
        }
    }
}
