//! Double spends in the model: marked together with everything that spends from them, and resolved in favour of a winner.

use super::{At, Hold, Record, Records, Txid, hash_of, is_height};
use ic_coppice_interface::*;
use std::collections::BTreeSet;

/// The outcome for a winner.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Transactions newly marked as double spends.
    pub losers: Vec<Txid>,
    /// Outputs that were held and became free for a moment.
    pub freed: Vec<(Txid, u32)>,
    /// Number of outputs that the winner newly holds.
    pub spent: u32,
}

impl Records {
    /// Marks a transaction and everything that spends from it, spenders first. Returns the newly marked ones, the transaction itself first.
    pub fn set_conflicting(&mut self, txid: &[u8], at: At) -> Result<Vec<Txid>, UtxoError> {
        is_height(at.height, at.most)?;
        self.get(txid)?;
        let first = hash_of(txid);
        let mut all = Default::default();
        self.descend(first, &|record| !record.conflicting, &[], &mut all);
        let rest = all.1.into_iter().filter(|txid| *txid != first);
        let family: Vec<Txid> = [first].into_iter().chain(rest).collect();
        let marked = family.iter().copied().filter(|txid| self.mark(txid)).collect();
        self.evaluate(family, at);
        Ok(marked)
    }

    /// Collects a transaction and everything that spends from it, spenders first: the set of visited transactions, and their order.
    fn descend(
        &self,
        txid: Txid,
        enters: &impl Fn(&Record) -> bool,
        winners: &[Txid],
        all: &mut (BTreeSet<Txid>, Vec<Txid>),
    ) {
        if !all.0.insert(txid) {
            return;
        }
        for hold in self.0[&txid].holds() {
            if self.get(&hold.by).is_ok_and(enters) && !winners.contains(&hold.by) {
                self.descend(hold.by, enters, winners, all);
            }
        }
        all.1.push(txid);
    }

    fn mark(&mut self, txid: &Txid) -> bool {
        let new = !std::mem::replace(&mut self.get_mut(txid).expect("it was found").conflicting, true);
        if new {
            self.enter_with_parents(txid);
        }
        new
    }

    /// Replaces the transactions that conflict with double spends by the double spends, all or none (`docs/design/records.md`):
    ///
    /// 1. The holders of the outputs that the winners spend lose, together with everything that spends from them.
    /// 2. Outputs that losers hold become unspent.
    /// 3. The winners spend the outputs of their inputs, even if those records are locked or double spends, and are no longer double spends
    ///    themselves.
    pub fn process_conflicting(&mut self, winner: &Txid, at: At) -> Result<Resolved, ConflictError> {
        let before = self.clone();
        let resolved = self.resolve(winner, at);
        if resolved.is_err() {
            *self = before;
        }
        resolved
    }

    /// Returns whether a transaction spends from one of `from`, directly or through double spends.
    fn descends(&self, txid: &Txid, from: &BTreeSet<Txid>, winner: &Txid, known: &mut BTreeSet<Txid>) -> bool {
        self.0[txid].parents().into_iter().any(|parent| {
            let Ok(record) = self.get(&parent) else { return false };
            parent != *winner
                && known.insert(parent)
                && (from.contains(&parent) || record.conflicting && self.descends(&parent, from, winner, known))
        })
    }

    fn resolve(&mut self, winner: &Txid, at: At) -> Result<Resolved, ConflictError> {
        let of = |txid: &Txid| {
            let txid = ic_coppice_interface::Txid::from(*txid);
            move |error: UtxoRefusal| ConflictError { txid, error: error.into() }
        };
        is_height(at.height, at.most).map_err(of(winner))?;
        let record = self.get(winner).map_err(of(winner))?;
        if !record.conflicting {
            return Err(of(winner)(UtxoRefusal::NotConflicting));
        }
        // The inputs of such a winner are unknown.
        if record.inputs.is_empty() {
            return Err(of(winner)(UtxoRefusal::BadArgument(BadArgument {
                field: "winners".into(),
                why: String::new(),
            })));
        }
        let inputs = record.inputs.clone();
        let (mut first, mut contested) = (Vec::new(), Vec::new());
        for ((parent, vout), vin) in inputs.iter().zip(0..) {
            let record = self.get(parent).map_err(of(parent))?;
            let hold = match record.takes(*vout, winner, vin) {
                Err(UtxoRefusal::Spent { by }) if hash_of(&by.txid) != *winner => by,
                other => {
                    other.map_err(of(parent))?;
                    continue;
                }
            };
            let by = hash_of(&hold.txid);
            let deleted = record.holds().any(|hold| hold.by == by && hold.deleted);
            if deleted {
                let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by: hold }));
                return Err(ConflictError { txid: (*parent).into(), error });
            }
            contested.push((*parent, *vout));
            if self.get(&by).is_ok() && !first.contains(&by) {
                first.push(by);
            }
        }
        let mut all = Default::default();
        for loser in &first {
            self.descend(*loser, &|_| true, &[*winner], &mut all);
        }
        let (visited, family) = all;
        let met = visited.iter().any(|txid| self.0[txid].holds().any(|hold| hold.by == *winner));
        if met || self.descends(winner, &visited, winner, &mut BTreeSet::new()) {
            return Err(of(winner)(UtxoRefusal::WinnerLoses));
        }
        let losers = first.iter().chain(&family).copied().filter(|txid| self.mark(txid)).collect();
        // The outputs to release: first those that losers hold, then the contested ones.
        let mut freed: Vec<(Txid, u32)> = Vec::new();
        for loser in &family {
            for (&(parent, vout), vin) in self.0[loser].inputs.iter().zip(0..) {
                let output = self.get(&parent).ok().and_then(|record| record.outputs.get(vout as usize)?.as_ref());
                let holds = output.and_then(|output| output.hold.as_ref()).is_some_and(|hold| hold.is(loser, vin));
                if holds && !contested.contains(&(parent, vout)) {
                    freed.push((parent, vout));
                }
            }
        }
        freed.extend(contested);
        let mut touched: BTreeSet<Txid> = visited.iter().copied().chain([*winner]).collect();
        for (parent, vout) in &freed {
            let record = self.get_mut(parent).expect("one of its outputs is held");
            record.outputs[*vout as usize].as_mut().expect("it is held").hold = None;
            record.locked = false;
            touched.insert(*parent);
        }
        let mut spent = 0;
        for (&(parent, vout), vin) in inputs.iter().zip(0..) {
            let record = self.get_mut(&parent).map_err(of(&parent))?;
            if record.takes(vout, winner, vin).map_err(of(&parent))? {
                let output = record.outputs[vout as usize].as_mut().expect("it was checked before");
                output.hold = Some(Hold { by: *winner, vin, deleted: false });
                spent += 1;
            }
            touched.insert(parent);
        }
        let record = self.get_mut(winner).expect("it was checked before");
        record.conflicting = false;
        record.late = record.unmined_since.is_some();
        for (parent, _) in &inputs {
            self.get_mut(parent).expect("it was checked before").conflicting_children.remove(winner);
        }
        self.evaluate(touched, at);
        Ok(Resolved { losers, freed, spent })
    }
}
