//! Double spends: marked together with everything that spends from them, and resolved in favour of winners. The canister chooses the extent
//! of a slice; the model follows its answer, and checks each step.

use super::{Id, Store, Verdict, hex, id};
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};

/// The most spends that an answer lists.
const NAMED: usize = 5_000;

impl Store {
    /// Returns the transactions with a record that hold an output of this transaction.
    pub fn spenders(&self, of: &Id) -> BTreeSet<Id> {
        let Some(record) = self.records.get(of) else { return BTreeSet::new() };
        let spenders = record.utxos().filter_map(|(_, output)| Some(output.spender?.0));
        spenders.filter(|spender| spender != of && self.records.contains_key(spender)).collect()
    }

    /// Returns everything that spends from these transactions, directly or through transactions that `enters` accepts.
    fn descendants_by(&self, roots: &BTreeSet<Id>, enters: impl Fn(&Id) -> bool) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        let mut open: Vec<Id> = roots.iter().copied().collect();
        while let Some(next) = open.pop() {
            for child in self.spenders(&next) {
                if !roots.contains(&child) && enters(&child) && found.insert(child) {
                    open.push(child);
                }
            }
        }
        found
    }

    /// Returns the unmarked transactions that spend from these. Marking skips transactions that are conflicting already.
    fn descendants(&self, roots: &BTreeSet<Id>) -> BTreeSet<Id> {
        self.descendants_by(roots, |id| !self.is_conflicting(id))
    }

    /// Returns everything that loses with these losers. A double spend among them may have been marked without everything that spends from
    /// it.
    fn lost(&self, losers: &BTreeSet<Id>, winners: &[Id]) -> BTreeSet<Id> {
        self.descendants_by(losers, |id| !winners.contains(id))
    }

    fn is_conflicting(&self, id: &Id) -> bool {
        self.records.get(id).is_some_and(|record| record.conflicting)
    }

    fn mark(&mut self, id: &Id, height: u32) {
        self.records.get_mut(id).expect("it has a record").conflicting = true;
        self.list_with_parents(id);
        self.evaluate(id, height);
    }

    /// Marks what the canister reports as marked: the named transactions at any time, their spenders leaves first.
    fn mark_all(
        &mut self,
        marked: &[Txid],
        (roots, descendants): (&BTreeSet<Id>, &BTreeSet<Id>),
        height: u32,
    ) -> Verdict {
        for txid in marked {
            let id = id(txid);
            ensure!(!self.is_conflicting(&id), "{} is marked again", hex(&id));
            if !roots.contains(&id) {
                ensure!(descendants.contains(&id), "{} is marked, but spends from none of the double spends", hex(&id));
                let open = self.spenders(&id).into_iter().find(|spender| !self.is_conflicting(spender));
                ensure!(open.is_none(), "{} is marked before its spenders", hex(&id));
            }
            self.mark(&id, height);
        }
        Ok(())
    }

    /// An item of `utxo_set_conflicting`, checked with the canister's answer.
    pub fn set_conflicting(&mut self, height: u32, txid: &Txid, answer: &Result<Conflict, UtxoError>) -> Verdict {
        let refused = self.check_heights(&[height]).and_then(|()| self.find(txid).map(drop)).err();
        let conflict = match (refused, answer) {
            (None, Ok(conflict)) => conflict,
            (Some(expected), Err(error)) if *error == expected => return Ok(()),
            (expected, _) => return Err(format!("answered {answer:?}, expected refusal {expected:?}")),
        };
        let root = id(txid);
        let first = !self.is_conflicting(&root);
        let begins = conflict.marked.first() == Some(txid);
        ensure!(begins == first, "the named transaction is marked first, unless it was marked before");
        let roots = BTreeSet::from([root]);
        let descendants = self.descendants(&roots);
        self.mark_all(&conflict.marked, (&roots, &descendants), height)?;
        // A repeated call evaluates the double spend again because a lock may have cleared its height.
        self.evaluate(&root, height);
        let open = self.descendants(&roots).len();
        ensure!(conflict.has_more == (open > 0), "has_more is {}, but {open} are unmarked", conflict.has_more);
        ensure!(first || !conflict.has_more || !conflict.marked.is_empty(), "a slice that marks nothing");
        let holders: BTreeSet<Id> = conflict.marked.iter().map(id).chain([root]).collect();
        let held: Vec<(Id, u32)> = holders.iter().flat_map(|holder| self.held_by(holder)).collect();
        let mut expected: Vec<Unspend> = held.into_iter().filter_map(|output| self.named(output)).collect();
        let mut named = conflict.parent_spends.clone();
        let key = |of: &Unspend| (of.outpoint.txid.clone(), of.outpoint.vout);
        expected.sort_by_key(key);
        named.sort_by_key(key);
        let all = expected.len() <= NAMED;
        ensure!(!all || named == expected, "parent_spends are {named:?}, expected {expected:?}");
        Ok(())
    }

    /// Returns every error with which winners may be refused.
    fn objections(&self, height: u32, winners: &[Id]) -> Vec<UtxoError> {
        if let Err(error) = self.check_heights(&[height]) {
            return vec![error];
        }
        let mut all = Vec::new();
        let losers = self.losers(winners);
        let lost = self.lost(&losers, winners);
        for winner in winners {
            let Some(record) = self.records.get(winner) else {
                all.push(UtxoError::TxNotFound);
                continue;
            };
            if !record.conflicting {
                all.push(UtxoError::NotConflicting);
            }
            if losers.contains(winner) || lost.contains(winner) {
                all.push(UtxoError::WinnerLoses);
            }
            for (vin, parent, vout) in record.inputs() {
                if losers.contains(&parent) || lost.contains(&parent) {
                    all.push(UtxoError::WinnerLoses);
                }
                let Some(parent) = self.records.get(&parent) else {
                    all.push(UtxoError::TxNotFound);
                    continue;
                };
                let pruned = parent.output(vout).is_some_and(|output| output.spender_deleted);
                let refuses = parent.refuses_a_winner(vout, None, (*winner, vin), height);
                all.extend(refuses.and_then(|error| match error {
                    // The output is held by another winner, or by this one through another input.
                    UtxoSpendError::Spent { by } if !pruned => {
                        winners.contains(&id(&by.txid)).then_some(UtxoError::Spent { by })
                    }
                    UtxoSpendError::UtxoNotFound => Some(UtxoError::UtxoNotFound),
                    other => Some(UtxoError::NotSpendable(Box::new(other))),
                }));
            }
        }
        // If two winners spend one output, the error is either that the other winner spends it, or that a winner loses.
        let mut claims: BTreeMap<(Id, u32), Vec<Spender>> = BTreeMap::new();
        for record in winners.iter().filter_map(|winner| self.records.get(winner)) {
            for (vin, parent, vout) in record.inputs() {
                claims.entry((parent, vout)).or_default().push(Spender { txid: record.tx.id(), vin });
            }
        }
        for by in claims.into_values().filter(|claims| claims.len() > 1).flatten() {
            all.extend([UtxoError::WinnerLoses, UtxoError::Spent { by }]);
        }
        all
    }

    /// Returns the outputs that the winners spend.
    fn contested(&self, winners: &[Id]) -> Vec<(Id, u32)> {
        let records = winners.iter().filter_map(|winner| self.records.get(winner));
        records.flat_map(|record| record.inputs().map(|(_, parent, vout)| (parent, vout)).collect::<Vec<_>>()).collect()
    }

    /// Returns the transactions with a record that hold outputs which the winners spend.
    fn losers(&self, winners: &[Id]) -> BTreeSet<Id> {
        let holder = |(parent, vout): &(Id, u32)| Some(self.records.get(parent)?.output(*vout)?.spender?.0);
        let holders = self.contested(winners);
        let holders = holders.iter().filter_map(holder);
        holders.filter(|holder| !winners.contains(holder) && self.records.contains_key(holder)).collect()
    }

    /// `utxo_process_conflicting`, checked with the canister's answer.
    pub fn process_conflicting(
        &mut self,
        call: &UtxoProcessConflicting,
        answer: &Result<ConflictResolution, ConflictError>,
    ) -> Verdict {
        let winners: Vec<Id> = call.winners.iter().map(id).collect();
        let objections = self.objections(call.height, &winners);
        let resolution = match answer {
            Ok(resolution) if objections.is_empty() => resolution,
            Ok(_) => return Err(format!("answered {answer:?}, expected a refusal of {objections:?}")),
            Err(refused) if objections.contains(&refused.error) => return Ok(()),
            Err(_) => return Err(format!("answered {answer:?}, expected a refusal of {objections:?}")),
        };
        let contested: BTreeSet<(Id, u32)> = self.contested(&winners).into_iter().collect();
        let losers = self.losers(&winners);
        let lost = self.lost(&losers, &winners);
        self.mark_all(&resolution.losers, (&losers, &lost), call.height)?;
        let open = losers.iter().filter(|loser| !self.is_conflicting(loser)).count();
        ensure!(open == 0, "{open} losers can still be spent from");
        let open = lost.iter().filter(|id| !self.is_conflicting(id)).count();
        ensure!(
            resolution.has_more || open == 0,
            "the winners have won, but {open} descendants of losers are unmarked"
        );
        let idle = resolution.losers.is_empty() && resolution.unspent.is_empty();
        ensure!(!resolution.has_more || !idle, "a slice that does nothing");
        let mut touched = losers.clone();
        for given_back in &resolution.unspent {
            let outpoint = (id(&given_back.outpoint.txid), given_back.outpoint.vout);
            ensure!(
                self.named(outpoint).as_ref() == Some(given_back),
                "{given_back:?} is released, but is not held that way"
            );
            let by = id(&given_back.spender.txid);
            let takes = contested.contains(&outpoint);
            ensure!(!takes || !resolution.has_more, "{given_back:?} is released in a slice that is not the last");
            ensure!(takes || self.is_conflicting(&by), "{given_back:?} is released, but its spender does not lose");
            self.give_back(outpoint);
            self.records.get_mut(&outpoint.0).expect("it is named").locked = false;
            touched.extend([outpoint.0, by]);
        }
        let holds = |of: &BTreeSet<Id>| of.iter().flat_map(|loser| self.held_by(loser)).collect::<Vec<_>>();
        let others = resolution.losers.iter().map(id).filter(|loser| !losers.contains(loser)).collect();
        let kept = holds(&others);
        ensure!(kept.is_empty(), "marked descendants of losers still hold {kept:?}");
        if resolution.has_more {
            ensure!(resolution.spent == 0, "{} spent before the winners have won", resolution.spent);
            touched.iter().for_each(|id| self.evaluate(id, call.height));
            return Ok(());
        }
        let kept = holds(&losers.union(&lost).copied().collect());
        ensure!(kept.is_empty(), "losers still hold {kept:?}");
        let mut spent = 0;
        for winner in &winners {
            let record = &self.records[winner];
            let inputs: Vec<_> = record.inputs().collect();
            let parents_of = record.parents();
            for (vin, parent, vout) in inputs {
                let holder = self.records[&parent].output(vout).and_then(|output| output.spender);
                let free = holder.is_none_or(|holder| holder == (*winner, vin));
                ensure!(free, "{}:{vout} is taken from {holder:?} without being reported", hex(&parent));
                spent += u32::from(self.take(&parent, vout, (*winner, vin)));
                touched.insert(parent);
            }
            self.unlist_with(winner, &parents_of);
        }
        for winner in &winners {
            let record = self.records.get_mut(winner).expect("it has a record");
            record.conflicting = false;
            record.late = record.unmined_since.map(|_| self.message);
        }
        touched.extend(&winners);
        touched.iter().for_each(|id| self.evaluate(id, call.height));
        ensure!(resolution.spent == spent, "{} spent, expected {spent}", resolution.spent);
        Ok(())
    }

    /// Makes an output unspent that a double spend held. The record is evaluated at the end of the call, because the height of its deletion
    /// counts from the call that makes it eligible: a record that is eligible before and after a call keeps a later height.
    pub(super) fn give_back(&mut self, (txid, vout): (Id, u32)) {
        if let Some(output) = self.records.get_mut(&txid).and_then(|record| record.output_mut(vout)) {
            output.spender = None;
            output.spender_deleted = false;
        }
    }
}
