//! Double spends that take the place of the transactions that they conflict with (`docs/design/records.md` has the steps). The call names the
//! *winners*. An output that a winner spends and another transaction holds is *contested*; its holder is a *loser*.

use super::walk::Walk;
use super::{Hold, MOST_INSTRUCTIONS, SLICE_PAGES, Slice};
use crate::utxo::call::{Answer, Call, bad, hash_of, if_found};
use crate::utxo::record::{EntryAddress, Hash, SPENDER_CONFLICTING, SPENDER_DELETED, SPENT, flag, inputs, parents};
use crate::utxo::spend::Strictness;
use crate::utxo::store::{Found, UtxoStore};
use ic_coppice_interface::{
    ConflictError, ConflictResolution, MissingParents, Spender, Txid, UtxoError, UtxoProcessConflicting, UtxoRefusal,
    UtxoSpendError,
};
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::{Counting, Ic, Platform as _};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of lists that the last step reads to remove the winners; the walk before may read the rest of the pages that the platform lets a
/// message read.
const MOST_LISTED: u64 = 100_000;

/// A double spend that a call names as winner.
struct Winner {
    txid: Hash,
    slot: SlotId,
    inputs: Vec<(Hash, u32)>,
}

/// The winners, the outputs that they claim, and the losers that hold these outputs.
struct Contest {
    winners: Vec<Winner>,
    /// Outputs that winners spend and other transactions hold.
    contested: Vec<Hold>,
    /// The holders of contested outputs that have records.
    losers: Vec<(Hash, SlotId)>,
}

/// The outcome of a call for winners.
type Resolved = Result<ConflictResolution, ConflictError>;

fn of(txid: impl Into<Txid>, error: UtxoRefusal) -> ConflictError {
    ConflictError { txid: txid.into(), error: error.into() }
}

impl UtxoStore {
    /// Resolves conflicts in favour of the given double spends, one slice at a call. The double spends win only in the last slice, all
    /// of them or none.
    ///
    /// # Errors
    /// [`ConflictError`], and nothing has changed.
    pub fn process_conflicting(&mut self, arg: &UtxoProcessConflicting, call: &Call) -> Resolved {
        self.begin_message();
        let _counting = Counting::begin();
        call.check().map_err(|error| of(arg.winners.first().cloned().unwrap_or_default(), error))?;
        let mut winners: Vec<Winner> = Vec::new();
        let mut names = BTreeSet::new();
        for winner in &arg.winners {
            let named = |error| of(winner.clone(), error);
            let txid = hash_of("txid", winner).map_err(named)?;
            let Found { slot, head, .. } = self.find(&txid).map_err(named)?;
            if !head.is(flag::CONFLICTING) {
                return Err(named(UtxoRefusal::NotConflicting));
            }
            if head.inputs == 0 && !head.is(flag::COINBASE) {
                return Err(named(bad("winners", "only its outputs are known, and not what it spends")));
            }
            if names.insert(txid) {
                let inputs = inputs(&self.slots, slot, &head).map_err(named)?;
                winners.push(Winner { txid, slot, inputs });
            }
        }
        let mut slice = Slice::new(MOST_INSTRUCTIONS);
        let inputs = winners.iter().map(|winner| winner.inputs.len()).sum();
        slice.reads(inputs, inputs);
        let contest = self.contest(winners, &slice, call)?;
        let mut walk = Walk::new(Some(&names), slice.deadline);
        for loser in &contest.losers {
            if names.contains(&loser.0) {
                walk.met.insert(loser.0);
            } else {
                self.walk(&mut walk, *loser).map_err(|error| of(loser.0, error))?;
            }
        }
        for winner in &contest.winners {
            // An earlier slice may have released the output that links a winner to a loser, so once all losers are known
            // the ancestors of the winner are searched, too.
            let loses = walk.met.contains(&winner.txid)
                || (walk.complete
                    && self.descends(winner, &names, &mut walk).map_err(|error| of(winner.txid, error))?);
            if loses {
                return Err(of(winner.txid, UtxoRefusal::WinnerLoses));
            }
        }
        self.atomically(|store| store.win(&contest, &walk, slice, call))
    }

    /// Checks the winners' inputs. Other transactions that hold these outputs are the losers.
    fn contest(&self, winners: Vec<Winner>, slice: &Slice, call: &Call) -> Result<Contest, ConflictError> {
        let (mut contested, mut losers, mut taken) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut known = BTreeSet::new();
        for Winner { txid, inputs, .. } in &winners {
            for (outpoint, vin) in inputs.iter().zip(0_u32..) {
                let named = |error| of(outpoint.0, error);
                slice.check(self).map_err(|error| of(txid, error))?;
                let Some(parent) = self.parent(&outpoint.0, call).map_err(named)? else { continue };
                let (address, entry) =
                    self.check_output(&parent, outpoint.1, None, call, Strictness::Winner).map_err(named)?;
                let spent = |(txid, vin): (Hash, u32)| UtxoRefusal::Spent { by: Spender { txid: txid.into(), vin } };
                if let Some(by) = taken.insert(address, (*txid, vin)) {
                    return Err(named(spent(by)));
                }
                let (holder, held) = entry.spender;
                match (holder == *txid, entry.is(SPENDER_DELETED)) {
                    _ if !entry.is(SPENT) => {}
                    (true, _) if held != vin => return Err(named(spent(entry.spender))),
                    (true, true) => return Err(named(UtxoRefusal::InvalidSpend)),
                    (true, false) => {}
                    (false, true) => {
                        // The holder was mined, and all its outputs were spent, so that it cannot lose any more.
                        let by = Spender { txid: holder.into(), vin: held };
                        let error = UtxoError::NotSpendable(Box::new(UtxoSpendError::Spent { by }));
                        return Err(ConflictError { txid: outpoint.0.into(), error });
                    }
                    (false, false) => {
                        contested.push(Hold { address, entry, outpoint: *outpoint });
                        let loser = if_found(self.find(&holder)).map_err(|error| of(holder, error))?;
                        losers.extend(loser.filter(|loser| known.insert(loser.slot)).map(|loser| (holder, loser.slot)));
                    }
                }
            }
        }
        Ok(Contest { winners, contested, losers })
    }

    /// Returns the parent of a winner's input; `None` if it has no record and the input is skipped.
    fn parent(&self, txid: &Hash, call: &Call) -> Answer<Option<Found>> {
        match call.missing {
            MissingParents::Skip => if_found(self.find(txid)),
            MissingParents::Refuse => self.find(txid).map(Some),
        }
    }

    /// Returns whether a winner spends from a loser, directly or through other double spends.
    fn descends(&self, winner: &Winner, names: &BTreeSet<Hash>, walk: &mut Walk) -> Answer<bool> {
        let mut known = BTreeSet::new();
        let mut next: Vec<Hash> = winner.inputs.iter().map(|(parent, _)| *parent).collect();
        while let Some(txid) = next.pop() {
            if names.contains(&txid) || !known.insert(txid) {
                continue;
            }
            if !walk.reads(2) {
                return Err(UtxoRefusal::TooMuchWork);
            }
            let Some(found) = if_found(self.find(&txid))? else { continue };
            if walk.seen.contains(&found.slot) {
                return Ok(true);
            }
            if found.head.is(flag::CONFLICTING) {
                let inputs = inputs(&self.slots, found.slot, &found.head)?;
                next.extend(inputs.into_iter().map(|(parent, _)| parent));
            }
        }
        Ok(false)
    }

    /// Takes an output from its holder, unlocks the record of the output, and reports the output.
    fn take(&mut self, hold: &Hold, slice: &mut Slice) -> Answer<()> {
        slice.check(self)?;
        let entry = hold.address.read(&self.slots);
        hold.address.forget_spender(&mut self.slots, &entry);
        hold.address.count_spent(&mut self.slots, -1);
        let master = hold.address.master;
        let head = self.head(master);
        self.lock(master, &head, false);
        slice.touched.push(master);
        slice.report(hold);
        Ok(())
    }

    /// Does the steps of `docs/design/records.md` within the slice. May fail in the middle.
    fn win(&mut self, contest: &Contest, walk: &Walk, mut slice: Slice, call: &Call) -> Resolved {
        let Contest { winners, contested, losers } = contest;
        let first = winners.first().map_or(Hash::default(), |winner| winner.txid);
        let unnamed = |error| of(first, error);
        let mut has_more = !walk.complete;
        // 1: mark the holders of contested outputs as losers.
        for (txid, slot) in losers {
            self.mark(txid, *slot, &mut slice).map_err(unnamed)?;
        }
        if has_more && slice.marked.is_empty() && walk.done.is_empty() {
            // There is a path to a leaf that no message walks.
            return Err(unnamed(UtxoRefusal::TooMuchWork));
        }
        // 2: mark the losers' descendants, and release what losers and descendants hold. Only the last slice releases contested outputs.
        let is_contested: BTreeSet<EntryAddress> = contested.iter().map(|hold| hold.address).collect();
        for (number, (txid, slot)) in walk.done.iter().enumerate() {
            let begun = number > 0 || !slice.marked.is_empty();
            if begun && slice.is_full(self, *slot) {
                has_more = true;
                break;
            }
            let holds = self.mark(txid, *slot, &mut slice).map_err(unnamed)?;
            for hold in holds.iter().filter(|hold| !is_contested.contains(&hold.address)) {
                self.take(hold, &mut slice).map_err(unnamed)?;
            }
        }
        // The last step gets a separate message if it might not fit in this one.
        has_more |= 2 * self.pages_changed() > SLICE_PAGES || Ic::instructions() > slice.deadline;
        if !slice.reported.is_empty() || (!has_more && !contested.is_empty()) {
            self.root.count_revert(&mut self.slots);
        }
        let mut spent = 0;
        if !has_more {
            for hold in contested {
                self.take(hold, &mut slice).map_err(unnamed)?;
            }
            spent = self.finish_contest(winners, &mut slice, call)?;
        }
        self.evaluate_touched(&mut slice, call).map_err(unnamed)?;
        Ok(ConflictResolution { losers: slice.marked, unspent: slice.reported, spent, has_more })
    }

    /// Spends the winners' inputs, and removes their mark as double spends. Returns the number of outputs that are newly spent.
    fn finish_contest(&mut self, winners: &[Winner], slice: &mut Slice, call: &Call) -> Result<u32, ConflictError> {
        let mut spent = 0;
        for Winner { txid, inputs, .. } in winners {
            for (outpoint, vin) in inputs.iter().zip(0..) {
                slice.check(self).map_err(|error| of(txid, error))?;
                let named = |error| of(outpoint.0, error);
                let Some(parent) = self.parent(&outpoint.0, call).map_err(named)? else { continue };
                let by = (txid, vin);
                let checked = self.check_spend(&parent, outpoint.1, None, by, call, Strictness::Winner);
                let (address, entry, new) = checked.map_err(named)?;
                if new {
                    address.write(&mut self.slots, entry.state | SPENT, by);
                    address.count_spent(&mut self.slots, 1);
                    spent += 1;
                } else if entry.is(SPENDER_CONFLICTING) {
                    address.set_state(&mut self.slots, entry.state & !SPENDER_CONFLICTING);
                }
                slice.touched.push(parent.slot);
            }
        }
        for Winner { txid, slot, inputs } in winners {
            let head = self.head(*slot);
            self.set_flags(*slot, head.flags & !flag::CONFLICTING);
            self.mark_late(*slot, &head).map_err(|error| of(txid, error))?;
            for parent in parents(inputs) {
                let listed =
                    if self.used.read > MOST_LISTED { Err(UtxoRefusal::TooMuchWork) } else { slice.check(self) };
                let left = listed.and_then(|()| self.remove_child(&parent, txid));
                left.map_err(|error| of(txid, error))?;
            }
            slice.touched.push(*slot);
        }
        Ok(spent)
    }
}
