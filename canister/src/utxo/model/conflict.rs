//! Double spends.

use super::{Call, Hash, Hold, Model, buf, hash_argument};
use coppice_interface::*;
use std::collections::{BTreeSet, VecDeque};

impl Model {
    /// Marks a transaction and what spends from it, breadth first, and says which were not marked before.
    fn mark(&mut self, first: Hash, visited: &mut Vec<Hash>) -> Vec<Hash> {
        let mut marked = Vec::new();
        let mut queue = VecDeque::from([first]);
        while let Some(txid) = queue.pop_front() {
            let Some(record) = self.records.get_mut(&txid).filter(|_| !visited.contains(&txid)) else { continue };
            visited.push(txid);
            if !record.conflicting {
                record.conflicting = true;
                marked.push(txid);
            }
            queue.extend(record.utxos().filter_map(|output| Some(output.hold.as_ref()?.by)));
            self.enter_with_parents(&txid);
        }
        marked
    }

    /// What a transaction spends, with what there is of it.
    fn spends(&self, txid: &Hash) -> Vec<(Hash, u32, u32)> {
        self.records[txid].given.inputs.iter().zip(0..).map(|(&(parent, vout), vin)| (parent, vout, vin)).collect()
    }

    fn hold(&self, txid: &Hash, vout: u32) -> Option<Unspend> {
        let output = self.records.get(txid)?.utxo(vout).ok()?;
        let spender = output.hold.as_ref()?.spender();
        Some(Unspend { outpoint: Outpoint { txid: buf(txid), vout }, utxo_hash: UtxoHash::from(output.hash), spender })
    }

    /// What these transactions hold of what their inputs name.
    fn parent_spends(&self, txids: &[Hash]) -> Vec<Unspend> {
        let mut held = Vec::new();
        for txid in txids {
            for (parent, vout, vin) in self.spends(txid) {
                let own = Spender { txid: buf(txid), vin };
                held.extend(self.hold(&parent, vout).filter(|hold| hold.spender == own));
            }
        }
        held
    }

    pub fn set_conflicting(&mut self, txid: &[u8], call: &Call) -> Result<Conflict, UtxoRefusal> {
        call.check()?;
        let first = self.get(txid)?.given.txid;
        let mut visited = Vec::new();
        let marked = self.mark(first, &mut visited);
        let parent_spends = self.parent_spends(&visited);
        self.evaluate(visited, call);
        Ok(Conflict { marked: marked.iter().map(buf).collect(), parent_spends })
    }

    pub fn process_conflicting(&mut self, winners: &[Txid], call: &Call) -> Result<ConflictResolution, ConflictError> {
        let before = self.clone();
        let resolved = self.resolve(winners, call);
        if resolved.is_err() {
            *self = before;
        }
        resolved
    }

    fn resolve(&mut self, named: &[Txid], call: &Call) -> Result<ConflictResolution, ConflictError> {
        let with = |txid: &[u8]| {
            let txid = Txid::from(txid);
            move |error: UtxoRefusal| ConflictError { txid, error: error.into() }
        };
        let mut winners: Vec<Hash> = Vec::new();
        call.check().map_err(with(named.first().map_or(&[], |first| &first[..])))?;
        for txid in named {
            let record = self.get(txid).map_err(with(txid))?;
            if !record.conflicting {
                return Err(with(txid)(UtxoRefusal::NotConflicting));
            }
            if record.given.inputs.is_empty() && !record.given.coinbase {
                return Err(with(txid)(UtxoRefusal::BadArgument { field: "winners".into(), why: "no inputs".into() }));
            }
            if !winners.contains(&record.given.txid) {
                winners.push(record.given.txid);
            }
        }

        // Who holds what the winners spend, and what spends from them.
        let (mut visited, mut losers) = (Vec::new(), Vec::new());
        let mut contested = Vec::new();
        for winner in &winners {
            for (parent, vout, _) in self.spends(winner) {
                let Some(hold) = self.hold(&parent, vout) else { continue };
                let loser = hash_argument("txid", &hold.spender.txid).expect("it is a txid");
                if loser == *winner {
                    continue;
                }
                let record = &self.records[&parent];
                if record
                    .utxo(hold.outpoint.vout)
                    .is_ok_and(|output| output.hold.as_ref().is_some_and(|hold| hold.deleted))
                {
                    let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by: hold.spender }));
                    return Err(ConflictError { txid: buf(&parent), error });
                }
                losers.extend(self.mark(loser, &mut visited));
                contested.push(hold);
            }
        }
        let loses = |txid: &&Hash| {
            visited.contains(txid) || self.spends(txid).iter().any(|(parent, ..)| visited.contains(parent))
        };
        if let Some(winner) = winners.iter().find(loses) {
            return Err(with(winner)(UtxoRefusal::WinnerLoses));
        }

        let mut unspent = self.parent_spends(&visited);
        for hold in contested {
            if unspent.iter().all(|known| known.outpoint != hold.outpoint) {
                unspent.push(hold);
            }
        }
        let mut touched: BTreeSet<Hash> = visited.iter().chain(&winners).copied().collect();
        let mut unlocked = BTreeSet::new();
        for hold in &unspent {
            let parent = hash_argument("txid", &hold.outpoint.txid).expect("it is a txid");
            self.records.get_mut(&parent).expect("it has a hold").utxo_mut(hold.outpoint.vout).hold = None;
            unlocked.insert(parent);
        }

        let mut spent = 0;
        for winner in &winners {
            for (parent, vout, vin) in self.spends(winner) {
                let record = self.get_mut(&parent).map_err(with(&parent))?;
                record.mature(call.height).map_err(with(&parent))?;
                record.thawed(vout, call.height).map_err(with(&parent))?;
                if record.takes(vout, winner, vin).map_err(with(&parent))? {
                    record.utxo_mut(vout).hold = Some(Hold { by: *winner, vin, deleted: false });
                    spent += 1;
                }
                touched.insert(parent);
            }
        }

        for winner in &winners {
            let record = self.records.get_mut(winner).expect("it was looked at before");
            record.conflicting = false;
            for parent in record.parents() {
                if let Some(parent) = self.records.get_mut(&parent) {
                    parent.conflicting_children.retain(|child| child != winner);
                }
            }
        }
        for txid in &unlocked {
            self.records.get_mut(txid).expect("it has outputs").locked = false;
        }
        touched.extend(unlocked);
        self.evaluate(touched, call);
        Ok(ConflictResolution { losers: losers.iter().map(buf).collect(), unspent, spent })
    }
}
