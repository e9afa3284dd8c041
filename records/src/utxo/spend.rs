//! Spending outputs: all spends of a transaction are checked and planned, then sorted by address, then written.

use super::call::{Answer, Call, hash_of};
use super::limits::{OPERATION, look_up, meter};
use super::record::extras::Extras;
use super::record::{Entry, EntryAddress, FROZEN, Hash, REASSIGNED, SPENDER_DELETED, SPENT, flag};
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{RefusedSpend, Spend, Spender, TransactionSpends, UtxoRefusal};
use ic_coppice_storage::Meter;
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::table::same_key;

/// Maximum refused spends of a transaction that are returned.
const MOST_ERRORS: usize = 1_000;

/// A planned spend of an output.
pub(super) struct Planned {
    pub address: EntryAddress,
    pub state: u32,
    pub vin: u32,
    /// The number of the spend in its transaction.
    pub index: u32,
    /// The input does not spend the output yet.
    pub new: bool,
}

/// Spends of one transaction, which were checked and are sorted by address.
pub(super) struct Spends {
    spender: Hash,
    planned: Vec<Planned>,
    /// Parents that may have a block above the call's height. Each may become due at a height of its own; all others at one height.
    above: u32,
}

impl Spends {
    /// Sorts the spends of a transaction. `errors` gets those that spend the output of another input.
    pub fn new(spender: Hash, mut planned: Vec<Planned>, above: u32, errors: &mut Vec<RefusedSpend>) -> Self {
        planned.sort_unstable_by_key(|plan| (plan.address.slot, plan.address.at, plan.index));
        // The same input counts once; another input is refused.
        let mut first = 0;
        for i in 1..planned.len() {
            if planned[i].address != planned[first].address {
                first = i;
                continue;
            }
            let vin = planned[first].vin;
            if planned[i].new && planned[i].vin != vin {
                let error = UtxoRefusal::Spent { by: Spender { txid: spender.into(), vin } };
                errors.push(RefusedSpend { spend: planned[i].index, error: error.into() });
            }
            planned[i].new = false;
        }
        Self { spender, planned, above }
    }

    /// Returns whether there is nothing to spend or to evaluate.
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// Returns the number of outputs that were not spent before.
    pub fn new_spends(&self) -> u32 {
        self.planned.iter().fold(0, |spends, plan| spends + u32::from(plan.new))
    }

    /// Returns the most entries in the ordered indexes that the spends make.
    pub fn entries(&self) -> u32 {
        1 + self.above
    }
}

/// Checks of a spend that apply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    All,
    /// All checks for a transaction of a block that was not applied before: a mark that its own deleted record has left on the output does not
    /// make it a replay.
    New,
    /// The checks for winners of a conflict: conflicting and locked records may be spent from.
    Winner,
}

impl UtxoStore {
    /// Returns the height from which on a reassigned output is spendable.
    pub(super) fn spendable_in(&self, found: &Found, vout: u32) -> Answer<u32> {
        if found.extras.get().is_none() {
            let _ = found.extras.set(Extras::load(&self.slots, &found.head)?);
        }
        let height = found.extras.get().and_then(|extras| extras.spendable_in.get(&vout));
        height.copied().ok_or_else(|| UtxoRefusal::Corrupt {
            why: format!("output {vout} was reassigned, and the extras do not say until when it is not spendable"),
        })
    }

    /// Checks an output before it is spent, and its hash if `hash` is given. Returns whether the spend is new.
    #[inline(always)]
    pub(super) fn check_spend(
        &self,
        found: &Found,
        vout: u32,
        hash: Option<&Hash>,
        (spender, vin): (&Hash, u32),
        call: &Call,
        strictness: Strictness,
    ) -> Answer<(EntryAddress, Entry, bool)> {
        let (address, entry) = self.check_output(found, vout, hash, call, strictness)?;
        if !entry.is(SPENT) {
            return Ok((address, entry, true));
        }
        if !entry.held_by(spender, vin) {
            let (txid, vin) = entry.spender;
            return Err(UtxoRefusal::Spent { by: Spender { txid: txid.into(), vin } });
        }
        // The same spender may spend again, unless the spender was deleted: then this is a replay.
        if entry.is(SPENDER_DELETED) && strictness != Strictness::New {
            return Err(UtxoRefusal::InvalidSpend);
        }
        Ok((address, entry, false))
    }

    /// Checks an output before it is spent, whatever transaction holds the output. Inlined, because moving the result would cost 360
    /// instructions.
    #[inline(always)]
    pub(super) fn check_output(
        &self,
        found: &Found,
        vout: u32,
        hash: Option<&Hash>,
        call: &Call,
        strictness: Strictness,
    ) -> Answer<(EntryAddress, Entry)> {
        let head = &found.head;
        if strictness != Strictness::Winner {
            if head.is(flag::CONFLICTING) {
                return Err(UtxoRefusal::Conflicting);
            }
            if head.is(flag::LOCKED) {
                return Err(UtxoRefusal::Locked);
            }
        }
        if call.height < head.spending_height {
            return Err(UtxoRefusal::CoinbaseImmature { spendable_at: head.spending_height });
        }
        let (address, entry) = EntryAddress::utxo(&self.slots, found.slot, head, vout)?;
        hash.map_or(Ok(()), |hash| entry.check_hash(hash))?;
        if entry.is(FROZEN) {
            return Err(UtxoRefusal::Frozen);
        }
        if entry.is(REASSIGNED) {
            let height = self.spendable_in(found, vout)?;
            if call.height < height {
                return Err(UtxoRefusal::FrozenUntil { height });
            }
        }
        Ok((address, entry))
    }

    /// Spends all outputs that a transaction spends, or none, and returns the number of outputs that were not spent before.
    ///
    /// # Errors
    /// The refused spends, at most 1,000, with their reasons. Nothing has changed.
    pub fn spend(&mut self, transaction: &TransactionSpends, call: &Call) -> Result<u32, Vec<RefusedSpend>> {
        let whole = |error: UtxoRefusal| vec![RefusedSpend { spend: 0, error: error.into() }];
        call.check().map_err(whole)?;
        let spender = hash_of("spender", &transaction.spender).map_err(whole)?;
        let mut planned: Vec<Planned> = Vec::with_capacity(transaction.spends.len());
        let mut errors = Vec::new();
        let (mut last, mut above, mut meter): (Option<Found>, u32, _) = (None, 0, meter(OPERATION));
        for (spend, index) in transaction.spends.iter().zip(0..u32::MAX) {
            match self.plan((spend, index), &spender, call, (&mut last, &mut above, &mut meter)) {
                Ok(plan) => planned.push(plan),
                Err(error) => errors.push(RefusedSpend { spend: index, error: error.into() }),
            }
            if errors.len() == MOST_ERRORS || meter.is_over() {
                break;
            }
        }
        let spends = Spends::new(spender, planned, above, &mut errors);
        if !errors.is_empty() {
            errors.sort_unstable_by_key(|error| error.spend);
            errors.truncate(MOST_ERRORS);
            return Err(errors);
        }
        self.changing(spends.entries(), |store| store.make(&spends, call)).map_err(whole)
    }

    /// Spends outputs that were checked, and returns the number of outputs that were not spent before. Memory is reserved, or a journal has
    /// begun.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, only in a journal.
    pub(super) fn make(&mut self, spends: &Spends, call: &Call) -> Answer<u32> {
        let Spends { spender, planned, .. } = spends;
        let mut spent = 0;
        // Most transactions spend from one or two records, so the first record takes no memory.
        let first = planned.first().map(|plan| plan.address.master);
        let mut others: Vec<SlotId> = Vec::new();
        for of_page in planned.chunk_by(|a, b| a.address.slot == b.address.slot) {
            let address = of_page[0].address;
            let mut new = 0;
            for plan in of_page.iter().filter(|plan| plan.new || plan.state & SPENDER_DELETED != 0) {
                new += i32::from(plan.new);
                plan.address.write(&mut self.slots, (plan.state | SPENT) & !SPENDER_DELETED, (spender, plan.vin));
            }
            if new > 0 {
                address.count_spent(&mut self.slots, new);
                spent += new as u32;
            }
            if Some(address.master) != first {
                others.push(address.master);
            }
        }
        others.sort_unstable();
        others.dedup();
        first.into_iter().chain(others).try_for_each(|master| self.evaluate(master, call))?;
        Ok(spent)
    }

    fn plan(
        &self,
        (spend, index): (&Spend, u32),
        spender: &Hash,
        call: &Call,
        (last, above, meter): (&mut Option<Found>, &mut u32, &mut Meter),
    ) -> Answer<Planned> {
        let txid = hash_of("txid", &spend.txid)?;
        let hash = hash_of("utxo_hash", &spend.utxo_hash)?;
        // Inputs often spend several outputs of one transaction.
        let found = match last {
            Some(found) if same_key(&found.head.txid, &txid) => found,
            _ => {
                look_up(meter)?;
                let found = last.insert(self.find(&txid)?);
                // All others become due at one height, which is one entry of the index.
                *above += u32::from(found.head.may_be_above(call.height));
                found
            }
        };
        let (address, entry, new) =
            self.check_spend(found, spend.vout, Some(&hash), (spender, spend.vin), call, Strictness::All)?;
        Ok(Planned { address, state: entry.state, vin: spend.vin, index, new })
    }
}
