//! Double spends, each call in one slice.

use super::{Call, Hash, Hold, Model, Record, buf, hash_argument};
use coppice_interface::*;
use std::collections::BTreeSet;

impl Model {
    /// A transaction and what spends from it, spenders before what they spend from, of those that are entered.
    fn descend(&self, txid: Hash, enters: &impl Fn(&Hash, &Record) -> bool, all: &mut (Vec<Hash>, Vec<Hash>)) {
        if all.0.contains(&txid) {
            return;
        }
        all.0.push(txid);
        for spender in self.spenders(&txid) {
            if self.records.get(&spender).is_some_and(|record| enters(&spender, record)) {
                self.descend(spender, enters, all);
            }
        }
        all.1.push(txid);
    }

    fn spenders(&self, txid: &Hash) -> Vec<Hash> {
        self.records[txid].utxos().filter_map(|output| Some(output.hold.as_ref()?.by)).collect()
    }

    /// Marks a transaction, and says whether it was not marked before.
    fn mark(&mut self, txid: &Hash) -> bool {
        let new = !std::mem::replace(&mut self.records.get_mut(txid).expect("it was found").conflicting, true);
        if new {
            self.enter_with_parents(txid);
        }
        new
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

    /// What a transaction holds of what its inputs name.
    fn held_by(&self, txid: &Hash) -> Vec<Unspend> {
        let spends = self.spends(txid).into_iter();
        let own = |(parent, vout, vin): (Hash, u32, u32)| {
            self.hold(&parent, vout).filter(|hold| hold.spender == Spender { txid: buf(txid), vin })
        };
        spends.filter_map(own).collect()
    }

    pub fn set_conflicting(&mut self, txid: &[u8], call: &Call) -> Result<Conflict, UtxoRefusal> {
        call.check()?;
        let first = self.get(txid)?.given.txid;
        let mut all = Default::default();
        self.descend(first, &|_, record| !record.conflicting, &mut all);
        let rest = all.1.into_iter().filter(|txid| *txid != first);
        let family: Vec<Hash> = [first].into_iter().chain(rest).collect();
        let (mut marked, mut parent_spends) = (Vec::new(), Vec::new());
        for txid in &family {
            marked.extend(self.mark(txid).then(|| buf(txid)));
            parent_spends.extend(self.held_by(txid));
        }
        self.evaluate(family, call);
        Ok(Conflict { marked, parent_spends, has_more: false })
    }

    pub fn process_conflicting(&mut self, winners: &[Txid], call: &Call) -> Result<ConflictResolution, ConflictError> {
        let before = self.clone();
        let resolved = self.resolve(winners, call);
        if resolved.is_err() {
            *self = before;
        }
        resolved
    }

    /// Who else holds what the winners spend, if these may spend it.
    fn contest(&self, winners: &[Hash], call: &Call) -> Result<Vec<Unspend>, ConflictError> {
        let (mut contested, mut taken) = (Vec::new(), Vec::<((Hash, u32), Spender)>::new());
        for winner in winners {
            for (parent, vout, vin) in self.spends(winner) {
                let of = |error: UtxoRefusal| ConflictError { txid: buf(&parent), error: error.into() };
                let record = self.get(&parent).map_err(of)?;
                record.mature(call.height).map_err(of)?;
                record.utxo(vout).map_err(of)?;
                record.thawed(vout, call.height).map_err(of)?;
                if let Some((_, by)) = taken.iter().find(|(outpoint, _)| *outpoint == (parent, vout)) {
                    return Err(of(UtxoRefusal::Spent { by: by.clone() }));
                }
                taken.push(((parent, vout), Spender { txid: buf(winner), vin }));
                let Some(hold) = &record.utxo(vout).map_err(of)?.hold else { continue };
                if hold.by == *winner {
                    record.takes(vout, winner, vin).map_err(of)?;
                } else if hold.deleted {
                    let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by: hold.spender() }));
                    return Err(ConflictError { txid: buf(&parent), error });
                } else {
                    contested.extend(self.hold(&parent, vout));
                }
            }
        }
        Ok(contested)
    }

    /// Whether a transaction spends from one of these, or from a double spend that does.
    fn descends(&self, txid: &Hash, from: &[Hash], winners: &[Hash], known: &mut Vec<Hash>) -> bool {
        self.spends(txid).into_iter().any(|(parent, ..)| {
            if winners.contains(&parent) || known.contains(&parent) {
                return false;
            }
            known.push(parent);
            let Some(record) = self.records.get(&parent) else { return false };
            from.contains(&parent) || record.conflicting && self.descends(&parent, from, winners, known)
        })
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
        let contested = self.contest(&winners, call)?;
        let mut first: Vec<Hash> = Vec::new();
        for hold in &contested {
            let loser = hash_argument("txid", &hold.spender.txid).expect("it is a txid");
            if self.records.contains_key(&loser) && !first.contains(&loser) {
                first.push(loser);
            }
        }
        let mut all = Default::default();
        for loser in first.iter().filter(|loser| !winners.contains(loser)) {
            self.descend(*loser, &|txid, _| !winners.contains(txid), &mut all);
        }
        let (visited, family) = all;
        let loses = |winner: &&Hash| {
            first.contains(winner)
                || visited.iter().any(|txid| self.spenders(txid).contains(winner))
                || self.descends(winner, &visited, &winners, &mut Vec::new())
        };
        if let Some(winner) = winners.iter().find(loses) {
            return Err(with(winner)(UtxoRefusal::WinnerLoses));
        }

        let (mut losers, mut unspent): (Vec<Txid>, Vec<Unspend>) = Default::default();
        for txid in first.iter().chain(&family) {
            losers.extend(self.mark(txid).then(|| buf(txid)));
        }
        for txid in &family {
            let held = self.held_by(txid).into_iter();
            unspent.extend(held.filter(|hold| contested.iter().all(|other| other.outpoint != hold.outpoint)));
        }
        unspent.extend(contested);
        let mut touched: BTreeSet<Hash> = visited.iter().chain(&winners).copied().collect();
        for hold in &unspent {
            let parent = hash_argument("txid", &hold.outpoint.txid).expect("it is a txid");
            let record = self.records.get_mut(&parent).expect("it has a hold");
            record.utxo_mut(hold.outpoint.vout).hold = None;
            record.locked = false;
            touched.insert(parent);
        }

        let mut spent = 0;
        for winner in &winners {
            for (parent, vout, vin) in self.spends(winner) {
                let record = self.get_mut(&parent).map_err(with(&parent))?;
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
                    parent.forget_child(winner);
                }
            }
        }
        self.evaluate(touched, call);
        Ok(ConflictResolution { losers, unspent, spent, has_more: false })
    }
}
