//! Double spends in the model: marked with all that spends from them, and winning.

use super::model::{At, Hold, Records, hash_of, is_height};
use super::transactions::Txid;
use coppice_interface::*;
use std::collections::{BTreeSet, VecDeque};

/// What a winner has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Double spends that were none before.
    pub losers: Vec<Txid>,
    /// Outputs that were held, and were not for a moment.
    pub freed: Vec<(Txid, u32)>,
    /// Outputs that the winner holds and did not before.
    pub spent: u32,
}

impl Records {
    /// Marks a transaction and all that spend from it, breadth first; which were not marked before.
    pub fn set_conflicting(&mut self, txid: &[u8], at: At) -> Result<Vec<Txid>, UtxoError> {
        is_height(at.height, at.most)?;
        self.get(txid)?;
        let mut visited = Vec::new();
        let marked = self.mark(hash_of(txid), &mut visited);
        self.evaluate(visited, at);
        Ok(marked)
    }

    fn mark(&mut self, first: Txid, visited: &mut Vec<Txid>) -> Vec<Txid> {
        let mut marked = Vec::new();
        let mut queue = VecDeque::from([first]);
        while let Some(txid) = queue.pop_front() {
            if visited.contains(&txid) {
                continue;
            }
            let Ok(record) = self.get_mut(&txid) else { continue };
            visited.push(txid);
            if !std::mem::replace(&mut record.conflicting, true) {
                marked.push(txid);
            }
            queue.extend(record.holds().map(|hold| hold.by));
            self.enter_with_parents(&txid);
        }
        marked
    }

    /// Double spends take the place of what they conflict with, all of them or none (`docs/design.md` 6): who holds what they spend
    /// loses, with all that spends from it; what the losers hold is unspent; the winners spend what their inputs name, whether that
    /// is locked or a double spend, and are double spends no more.
    pub fn process_conflicting(&mut self, winner: &Txid, at: At) -> Result<Resolved, ConflictError> {
        let before = self.clone();
        let resolved = self.resolve(winner, at);
        if resolved.is_err() {
            *self = before;
        }
        resolved
    }

    fn resolve(&mut self, winner: &Txid, at: At) -> Result<Resolved, ConflictError> {
        let of = |txid: &Txid| {
            let txid = coppice_interface::Txid::from(*txid);
            move |error: UtxoRefusal| ConflictError { txid, error: error.into() }
        };
        is_height(at.height, at.most).map_err(of(winner))?;
        let record = self.get(winner).map_err(of(winner))?;
        if !record.conflicting {
            return Err(of(winner)(UtxoRefusal::NotConflicting));
        }
        // Of such a one nobody knows what it spends.
        if record.inputs.is_empty() {
            return Err(of(winner)(UtxoRefusal::BadArgument { field: "winners".into(), why: String::new() }));
        }
        let inputs = record.inputs.clone();
        let (mut visited, mut losers, mut contested) = (Vec::new(), Vec::new(), Vec::new());
        for (parent, vout) in &inputs {
            let hold =
                self.get(parent).ok().and_then(|record| record.outputs.get(*vout as usize)?.as_ref()?.hold.clone());
            let Some(hold) = hold.filter(|hold| hold.by != *winner) else { continue };
            if hold.deleted {
                let by = Spender { txid: hold.by.into(), vin: hold.vin };
                let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by }));
                return Err(ConflictError { txid: (*parent).into(), error });
            }
            losers.extend(self.mark(hold.by, &mut visited));
            contested.push((*parent, *vout));
        }
        if visited.contains(winner) || inputs.iter().any(|(parent, _)| visited.contains(parent)) {
            return Err(of(winner)(UtxoRefusal::WinnerLoses));
        }
        // What the losers hold, and whatever else holds what the winner spends.
        let mut freed: Vec<(Txid, u32)> = Vec::new();
        for loser in &visited {
            for (&(parent, vout), vin) in self.0[loser].inputs.iter().zip(0..) {
                let output = self.get(&parent).ok().and_then(|record| record.outputs.get(vout as usize)?.as_ref());
                if output.and_then(|output| output.hold.as_ref()).is_some_and(|hold| hold.is(loser, vin)) {
                    freed.push((parent, vout));
                }
            }
        }
        freed.extend(contested.into_iter().filter(|place| !freed.contains(place)).collect::<Vec<_>>());
        let mut touched: BTreeSet<Txid> = visited.iter().copied().chain([*winner]).collect();
        for (parent, vout) in &freed {
            let record = self.get_mut(parent).expect("something of it is held");
            record.outputs[*vout as usize].as_mut().expect("it is held").hold = None;
            touched.insert(*parent);
        }
        let mut spent = 0;
        for (&(parent, vout), vin) in inputs.iter().zip(0..) {
            let record = self.get_mut(&parent).map_err(of(&parent))?;
            if record.takes(vout, winner, vin).map_err(of(&parent))? {
                let output = record.outputs[vout as usize].as_mut().expect("it was looked at before");
                output.hold = Some(Hold { by: *winner, vin, deleted: false });
                spent += 1;
            }
            touched.insert(parent);
        }
        self.get_mut(winner).expect("it was looked at before").conflicting = false;
        for (parent, _) in &inputs {
            self.get_mut(parent).expect("it was looked at before").conflicting_children.remove(winner);
        }
        for (parent, _) in &freed {
            self.get_mut(parent).expect("something of it was held").locked = false;
        }
        self.evaluate(touched, at);
        Ok(Resolved { losers, freed, spent })
    }
}
