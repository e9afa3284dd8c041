//! Double spends: marking them with everything that spends from them, and having them win.

use super::entry::{Entry, SPENDER_DELETED, SPENT};
use super::record::{Hash, flag, inputs, parents};
use super::spend::{EntryAddress, Strictness};
use super::{Call, Found, UtxoStore, bad, hash_of};
use crate::runtime;
use crate::slots::SlotId;
use coppice_interface::{
    Conflict, ConflictError, ConflictResolution, Outpoint, Spender, Txid, Unspend, UtxoError, UtxoHash,
    UtxoProcessConflicting, UtxoRefusal, UtxoSpendError,
};
use std::collections::{BTreeMap, HashSet};

/// Transactions that one call marks, and outputs that it reports: more would not fit the answer.
const MOST: usize = 5_000;
/// Instructions after which a call gives up, with nothing changed: a message has 40 billion.
const MOST_INSTRUCTIONS: u64 = 15_000_000_000;

/// A transaction that is marked, or was.
struct Visited {
    txid: Hash,
    slot: SlotId,
    inputs: Vec<(Hash, u32)>,
    /// It was not conflicting before.
    new: bool,
}

/// A double spend that is to win.
struct Winner {
    txid: Hash,
    slot: SlotId,
    inputs: Vec<(Hash, u32)>,
}

/// Everything that spends from some transactions, breadth first, with them.
#[derive(Default)]
struct Family {
    members: Vec<Visited>,
    known: HashSet<Hash>,
}

/// An output that a transaction holds.
struct Hold {
    master: SlotId,
    address: EntryAddress,
    entry: Entry,
    outpoint: (Hash, u32),
}

impl Hold {
    fn report(&self) -> Unspend {
        let ((txid, vout), (spender, vin)) = (self.outpoint, self.entry.spender);
        Unspend {
            outpoint: Outpoint { txid: txid.into(), vout },
            utxo_hash: UtxoHash::from(self.entry.hash),
            spender: Spender { txid: spender.into(), vin },
        }
    }
}

fn too_large(what: &str) -> UtxoRefusal {
    UtxoRefusal::TooLarge { what: what.into(), limit: MOST as u64 }
}

fn of(txid: &Hash, error: UtxoRefusal) -> ConflictError {
    ConflictError { txid: txid.into(), error: error.into() }
}

impl UtxoStore {
    /// Adds a transaction that has a record, and all that spend from it, to a family.
    fn add_family(&self, family: &mut Family, txid: &Hash, deadline: u64) -> Result<(), UtxoRefusal> {
        let mut next = family.members.len();
        self.add_member(family, txid)?;
        while next < family.members.len() {
            if runtime::instructions() > deadline {
                return Err(UtxoRefusal::TooMuchWork);
            }
            let slot = family.members[next].slot;
            let mut spenders = Vec::new();
            self.entries(slot, &self.head(slot), (0, u32::MAX), |_, _, entry| {
                if entry.is(SPENT) {
                    spenders.push(entry.spender.0);
                }
            });
            for spender in spenders {
                self.add_member(family, &spender)?;
            }
            next += 1;
        }
        Ok(())
    }

    fn add_member(&self, family: &mut Family, txid: &Hash) -> Result<(), UtxoRefusal> {
        if !family.known.insert(*txid) {
            return Ok(());
        }
        let Found { slot, head, .. } = match self.find(txid) {
            Ok(found) => found,
            Err(UtxoRefusal::TxNotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        if family.members.len() == MOST {
            return Err(too_large("transactions that spend from each other"));
        }
        let inputs = inputs(&self.slots, slot, &head);
        family.members.push(Visited { txid: *txid, slot, inputs, new: !head.is(flag::CONFLICTING) });
        Ok(())
    }

    /// Who holds an output, whoever that is.
    fn hold(&self, outpoint: (Hash, u32)) -> Result<Option<Hold>, UtxoRefusal> {
        let found = match self.find(&outpoint.0) {
            Ok(found) => found,
            Err(UtxoRefusal::TxNotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok((address, entry)) = self.utxo(&found, outpoint.1) else { return Ok(None) };
        Ok(entry.is(SPENT).then_some(Hold { master: found.slot, address, entry, outpoint }))
    }

    /// The outputs that a family holds.
    fn holds(&self, family: &Family, deadline: u64) -> Result<Vec<Hold>, UtxoRefusal> {
        let mut holds = Vec::new();
        for member in &family.members {
            if runtime::instructions() > deadline {
                return Err(UtxoRefusal::TooMuchWork);
            }
            for (outpoint, vin) in member.inputs.iter().zip(0..) {
                holds.extend(self.hold(*outpoint)?.filter(|hold| hold.entry.held_by(&member.txid, vin)));
            }
            if holds.len() > MOST {
                return Err(too_large("outputs that double spends hold"));
            }
        }
        Ok(holds)
    }

    /// Marks a family as double spends, and enters each with its parents: each parent's list is read and written once. This
    /// may fail in its middle.
    fn mark(&mut self, family: &Family, deadline: u64) -> Result<(), UtxoRefusal> {
        let mut children: BTreeMap<Hash, Vec<Hash>> = BTreeMap::new();
        for member in &family.members {
            if member.new {
                let flags = self.head(member.slot).flags;
                self.set_flags(member.slot, flags | flag::CONFLICTING);
            }
            for parent in parents(&member.inputs) {
                children.entry(parent).or_default().push(member.txid);
            }
        }
        for (parent, new) in children {
            if runtime::instructions() > deadline {
                return Err(UtxoRefusal::TooMuchWork);
            }
            self.check_pages()?;
            self.change_children(&parent, |children| {
                let known: HashSet<Txid> = children.iter().cloned().collect();
                let before = children.len();
                children.extend(new.iter().map(Txid::from).filter(|child| !known.contains(child)));
                children.len() != before
            })?;
        }
        Ok(())
    }

    /// Marks a transaction as a double spend, with everything that spends from it.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn set_conflicting(&mut self, txid: &[u8], call: &Call) -> Result<Conflict, UtxoRefusal> {
        call.check()?;
        let txid = hash_of("txid", txid)?;
        self.find(&txid)?;
        let deadline = runtime::instructions().saturating_add(MOST_INSTRUCTIONS);
        let mut family = Family::default();
        self.add_family(&mut family, &txid, deadline)?;
        let holds = self.holds(&family, deadline)?;
        self.atomically(|store| {
            store.mark(&family, deadline)?;
            for member in &family.members {
                store.check_pages()?;
                store.evaluate(member.slot, call)?;
            }
            Ok::<_, UtxoRefusal>(())
        })?;
        Ok(Conflict {
            marked: family.members.iter().filter(|m| m.new).map(|m| m.txid.into()).collect(),
            parent_spends: holds.iter().map(Hold::report).collect(),
        })
    }

    /// Has double spends take the place of what they conflict with, all of them or none.
    ///
    /// # Errors
    /// [`ConflictError`], and nothing has changed.
    pub fn process_conflicting(
        &mut self,
        arg: &UtxoProcessConflicting,
        call: &Call,
    ) -> Result<ConflictResolution, ConflictError> {
        let unnamed = |error: UtxoRefusal| {
            let txid = arg.winners.first().cloned().unwrap_or_default();
            ConflictError { txid, error: error.into() }
        };
        call.check().map_err(unnamed)?;
        let mut winners: Vec<Winner> = Vec::new();
        let mut known = HashSet::new();
        for winner in &arg.winners {
            let named = |error: UtxoRefusal| ConflictError { txid: winner.clone(), error: error.into() };
            let txid = hash_of("txid", winner).map_err(named)?;
            let Found { slot, head, .. } = self.find(&txid).map_err(named)?;
            if !head.is(flag::CONFLICTING) {
                return Err(named(UtxoRefusal::NotConflicting));
            }
            if head.inputs == 0 && !head.is(flag::COINBASE) {
                return Err(named(bad("winners", "only its outputs are known, and not what it spends")));
            }
            if known.insert(txid) {
                winners.push(Winner { txid, slot, inputs: inputs(&self.slots, slot, &head) });
            }
        }
        let deadline = runtime::instructions().saturating_add(MOST_INSTRUCTIONS);
        self.atomically(|store| store.win(&winners, call, deadline))
    }

    /// The five steps (`docs/design.md` 6). This may fail in its middle.
    fn win(&mut self, winners: &[Winner], call: &Call, deadline: u64) -> Result<ConflictResolution, ConflictError> {
        // 1: who holds what the winners spend loses, with everything that spends from it.
        let unnamed = |error| of(&winners[0].txid, error);
        let mut family = Family::default();
        let mut contested = Vec::new();
        for winner in winners {
            for outpoint in &winner.inputs {
                let hold = self.hold(*outpoint).map_err(|error| of(&outpoint.0, error))?;
                let Some(hold) = hold.filter(|hold| hold.entry.spender.0 != winner.txid) else { continue };
                let (holder, vin) = hold.entry.spender;
                if hold.entry.is(SPENDER_DELETED) {
                    // It was mined, and what it had was spent: it does not lose any more.
                    let by = Spender { txid: holder.into(), vin };
                    let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by }));
                    return Err(ConflictError { txid: outpoint.0.into(), error });
                }
                self.add_family(&mut family, &holder, deadline).map_err(|error| of(&holder, error))?;
                contested.push(hold);
            }
        }
        let members: HashSet<Hash> = family.members.iter().map(|member| member.txid).collect();
        let loses = |winner: &&Winner| {
            members.contains(&winner.txid) || winner.inputs.iter().any(|(parent, _)| members.contains(parent))
        };
        if let Some(winner) = winners.iter().find(loses) {
            return Err(of(&winner.txid, UtxoRefusal::WinnerLoses));
        }
        let mut holds = self.holds(&family, deadline).map_err(unnamed)?;
        // A holder may have no record, or one that does not say what it spends.
        let mut addresses: HashSet<(SlotId, u32)> =
            holds.iter().map(|hold| (hold.address.slot, hold.address.at)).collect();
        holds.extend(contested.into_iter().filter(|hold| addresses.insert((hold.address.slot, hold.address.at))));
        if holds.len() > MOST {
            return Err(unnamed(too_large("outputs that double spends hold")));
        }
        self.mark(&family, deadline).map_err(unnamed)?;

        // 2: what they hold is unspent. Locking its records until step 5 would be seen by nobody: this is one message.
        let mut touched: Vec<SlotId> = family.members.iter().map(|member| member.slot).collect();
        let mut freed = Vec::new();
        if !holds.is_empty() {
            self.root.take_back(&mut self.slots);
        }
        for hold in &holds {
            self.forget_spender(hold.address, &hold.entry);
            self.count_spent(hold.address, -1);
            freed.push(hold.master);
        }

        // 3: the winners spend it.
        let mut spent = 0;
        for Winner { txid, inputs, .. } in winners {
            for (outpoint, vin) in inputs.iter().zip(0..) {
                if runtime::instructions() > deadline {
                    return Err(of(txid, UtxoRefusal::TooMuchWork));
                }
                let named = |error| of(&outpoint.0, error);
                let parent = self.find(&outpoint.0).map_err(named)?;
                let by = (txid, vin);
                let checked = self.check_spend(&parent, outpoint.1, None, by, call, Strictness::Winner);
                let (address, entry, new) = checked.map_err(named)?;
                if new {
                    self.set_entry(address, entry.state | SPENT, by);
                    self.count_spent(address, 1);
                    spent += 1;
                }
                touched.push(parent.slot);
            }
        }

        // 4: they are double spends no more.
        for Winner { txid, slot, inputs } in winners {
            let flags = self.head(*slot).flags;
            self.set_flags(*slot, flags & !flag::CONFLICTING);
            self.leave_parents(txid, inputs).map_err(|error| of(txid, error))?;
            touched.push(*slot);
        }

        // 5: the records of step 2 can be spent from.
        for slot in freed {
            let head = self.head(slot);
            self.lock(slot, &head, false);
            touched.push(slot);
        }
        touched.sort_unstable();
        touched.dedup();
        for slot in touched {
            self.evaluate(slot, call).map_err(unnamed)?;
        }
        Ok(ConflictResolution {
            losers: family.members.iter().filter(|m| m.new).map(|m| m.txid.into()).collect(),
            unspent: holds.iter().map(Hold::report).collect(),
            spent,
        })
    }
}
