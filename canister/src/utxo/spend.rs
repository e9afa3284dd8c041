//! Spending and unspending.

use super::entry::{Entry, FROZEN, REASSIGNED, SPENDER_CONFLICTING, SPENDER_DELETED, SPENT, STATE, UTXO};
use super::extras::Extras;
use super::record::{ENTRY, HEAD, Hash, Head, PAGE_HEAD, at, flag, page_at, page_slot};
use super::{Call, Found, UtxoStore, hash_of};
use crate::storage::slots::SlotId;
use crate::storage::table::same_key;
use coppice_interface::{RefusedSpend, Spend, Spender, TransactionSpends, Unspend, UtxoHash, UtxoRefusal};

/// Refused spends of a transaction that are named.
const MOST_ERRORS: usize = 1_000;

/// Where an output's entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryAddress {
    pub master: SlotId,
    /// 0: the master.
    pub page: u32,
    /// The page's slot.
    pub slot: SlotId,
    /// Bytes from the slot's start.
    pub at: u32,
}

/// An output that a transaction is to spend.
struct Planned {
    address: EntryAddress,
    state: u32,
    vin: u32,
    /// Which of the transaction's spends.
    index: u32,
    /// It is not spent yet, by this input.
    new: bool,
}

/// What a spend may overlook: conflicting and locked records, and another hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    All,
    /// For winners of a conflict.
    Winner,
}

/// The record of which outputs were unspent last.
#[derive(Default)]
pub struct LastUnspent(Option<UnspentRun>);

struct UnspentRun {
    found: Found,
    /// An output of it was named, held or not.
    touched: bool,
    /// How many outputs of a page were unspent that are not counted yet.
    page: Option<(EntryAddress, i32)>,
}

/// Returns the offset of an entry in its slot. Nothing overflows, because a slot has at most 4 MiB.
#[inline]
fn entry_at(head: u32, number: u32) -> u32 {
    head.wrapping_add(ENTRY.wrapping_mul(number))
}

/// Finds outputs that one transaction spends twice, in its spends by address: by the same input that is once, and by another it
/// is refused.
fn find_twice(planned: &mut [Planned], spender: &Hash, errors: &mut Vec<RefusedSpend>) {
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
}

impl UtxoStore {
    /// Where an output's entry lies; none behind the last output.
    #[inline]
    pub(super) fn entry_address(&self, master: SlotId, head: &Head, vout: u32) -> Option<EntryAddress> {
        if vout >= head.outputs {
            return None;
        }
        if vout < head.batch {
            return Some(EntryAddress { master, page: 0, slot: master, at: entry_at(HEAD, vout) });
        }
        let page = vout / head.batch;
        let slot = page_slot(&self.slots, master, head, page);
        Some(EntryAddress { master, page, slot, at: entry_at(PAGE_HEAD, vout % head.batch) })
    }

    #[inline]
    pub(super) fn entry(&self, address: EntryAddress) -> Entry {
        self.slots.read_with(address.slot, address.at, Entry::decode)
    }

    /// The entry of an output that is a UTXO.
    #[inline]
    pub(super) fn utxo(&self, found: &Found, vout: u32) -> Result<(EntryAddress, Entry), UtxoRefusal> {
        let address = self.entry_address(found.slot, &found.head, vout).ok_or(UtxoRefusal::UtxoNotFound)?;
        let entry = self.entry(address);
        if entry.is(UTXO) { Ok((address, entry)) } else { Err(UtxoRefusal::UtxoNotFound) }
    }

    /// Writes an entry's state and spending data.
    #[inline]
    pub(super) fn set_entry(&mut self, address: EntryAddress, state: u32, spender: (&Hash, u32)) {
        self.slots.write(address.slot, address.at + STATE, &Entry::encode_state(state, spender));
    }

    /// Writes an entry's state alone.
    pub(super) fn set_state(&mut self, address: EntryAddress, state: u32) {
        self.slots.write_u32(address.slot, address.at + STATE, state);
    }

    /// Changes how many UTXOs of a page are spent, and with it how many pages are.
    pub(super) fn count_spent(&mut self, address: EntryAddress, change: i32) {
        if address.page == 0 {
            let spent = self.slots.read_u32(address.slot, at::SPENT).wrapping_add_signed(change);
            self.slots.write_u32(address.slot, at::SPENT, spent);
            return;
        }
        let utxos = self.slots.read_u32(address.slot, page_at::UTXOS);
        let before = self.slots.read_u32(address.slot, page_at::SPENT);
        let after = before.wrapping_add_signed(change);
        self.slots.write_u32(address.slot, page_at::SPENT, after);
        // The master hears of it only when that changes.
        let pages = i32::from(after == utxos) - i32::from(before == utxos);
        if pages != 0 {
            let spent = self.slots.read_u32(address.master, at::SPENT_EXTRA).wrapping_add_signed(pages);
            self.slots.write_u32(address.master, at::SPENT_EXTRA, spent);
        }
    }

    /// Checks a record from which outputs are to be spent.
    fn check_record(head: &Head, call: &Call, strictness: Strictness) -> Result<(), UtxoRefusal> {
        if strictness == Strictness::All {
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
        Ok(())
    }

    /// The height from which on a reassigned output is spendable.
    pub(super) fn spendable_in(&self, found: &Found, vout: u32) -> Result<u32, UtxoRefusal> {
        if found.extras.get().is_none() {
            let _ = found.extras.set(Extras::load(&self.slots, &found.head)?);
        }
        let height = found.extras.get().and_then(|extras| extras.spendable_in.get(&vout));
        height.copied().ok_or_else(|| UtxoRefusal::Corrupt {
            why: format!("output {vout} was reassigned, and the extras do not say until when it is not spendable"),
        })
    }

    /// Checks an output that is to be spent; `hash` none: whatever its hash is. Answers whether that is new.
    #[inline(always)]
    pub(super) fn check_spend(
        &self,
        found: &Found,
        vout: u32,
        hash: Option<&Hash>,
        (spender, vin): (&Hash, u32),
        call: &Call,
        strictness: Strictness,
    ) -> Result<(EntryAddress, Entry, bool), UtxoRefusal> {
        let (address, entry) = self.check_output(found, vout, hash, call, strictness)?;
        if !entry.is(SPENT) {
            return Ok((address, entry, true));
        }
        if !entry.held_by(spender, vin) {
            let (txid, vin) = entry.spender;
            return Err(UtxoRefusal::Spent { by: Spender { txid: txid.into(), vin } });
        }
        // The same spender may spend again, unless the spender was deleted: then this is a replay.
        if entry.is(SPENDER_DELETED) { Err(UtxoRefusal::InvalidSpend) } else { Ok((address, entry, false)) }
    }

    /// Checks an output that is to be spent, whichever transaction holds it. Inlined, because moving the result would cost
    /// 360 instructions.
    #[inline(always)]
    pub(super) fn check_output(
        &self,
        found: &Found,
        vout: u32,
        hash: Option<&Hash>,
        call: &Call,
        strictness: Strictness,
    ) -> Result<(EntryAddress, Entry), UtxoRefusal> {
        Self::check_record(&found.head, call, strictness)?;
        let (address, entry) = self.utxo(found, vout)?;
        if hash.is_some_and(|hash| !same_key(hash, &entry.hash)) {
            return Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(entry.hash) });
        }
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

    /// Spends all that a transaction spends, or nothing, and answers how many outputs were not spent before.
    ///
    /// # Errors
    /// Every spend that is refused, a thousand at most, with the reason. Nothing has changed.
    pub fn spend(&mut self, transaction: &TransactionSpends, call: &Call) -> Result<u32, Vec<RefusedSpend>> {
        let whole = |error: UtxoRefusal| vec![RefusedSpend { spend: 0, error: error.into() }];
        call.check().map_err(whole)?;
        let spender = hash_of("spender", &transaction.spender).map_err(whole)?;
        let mut planned: Vec<Planned> = Vec::with_capacity(transaction.spends.len());
        let mut errors = Vec::new();
        let mut last: Option<Found> = None;
        for (spend, index) in transaction.spends.iter().zip(0..u32::MAX) {
            match self.plan((spend, index), &spender, call, &mut last) {
                Ok(plan) => planned.push(plan),
                Err(error) => errors.push(RefusedSpend { spend: index, error: error.into() }),
            }
            if errors.len() == MOST_ERRORS {
                break;
            }
        }
        planned.sort_unstable_by_key(|plan| (plan.address.slot, plan.address.at, plan.index));
        find_twice(&mut planned, &spender, &mut errors);
        if !errors.is_empty() {
            errors.sort_unstable_by_key(|error| error.spend);
            errors.truncate(MOST_ERRORS);
            return Err(errors);
        }
        self.changing(|store| store.apply(&planned, &spender, call)).map_err(whole)
    }

    /// Spends what was checked, by address.
    fn apply(&mut self, planned: &[Planned], spender: &Hash, call: &Call) -> Result<u32, UtxoRefusal> {
        let mut spent = 0;
        // Most transactions spend from one or two records: the first takes no memory.
        let first = planned.first().map(|plan| plan.address.master);
        let mut others: Vec<SlotId> = Vec::new();
        for of_page in planned.chunk_by(|a, b| a.address.slot == b.address.slot) {
            let address = of_page[0].address;
            let mut new = 0;
            for plan in of_page.iter().filter(|plan| plan.new) {
                new += 1;
                self.set_entry(plan.address, (plan.state | SPENT) & !SPENDER_DELETED, (spender, plan.vin));
            }
            if new > 0 {
                self.count_spent(address, new);
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
        last: &mut Option<Found>,
    ) -> Result<Planned, UtxoRefusal> {
        let txid = hash_of("txid", &spend.txid)?;
        let hash = hash_of("utxo_hash", &spend.utxo_hash)?;
        // Inputs often spend several outputs of one transaction.
        let found = match last {
            Some(found) if same_key(&found.head.txid, &txid) => found,
            _ => last.insert(self.find(&txid)?),
        };
        let (address, entry, new) =
            self.check_spend(found, spend.vout, Some(&hash), (spender, spend.vin), call, Strictness::All)?;
        Ok(Planned { address, state: entry.state, vin: spend.vin, index, new })
    }

    /// Takes an output from its spender, and says whether that held it. Outputs of one record that follow each other are found,
    /// counted and evaluated as one: [`unspent`](Self::unspent) ends that, and must be called at the end.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn unspend(&mut self, item: &Unspend, call: &Call, last: &mut LastUnspent) -> Result<bool, UtxoRefusal> {
        // For the run that this item may end, and for its own.
        if self.has_room(2) {
            return self.unspend_next(item, call, last);
        }
        self.unspent(call, last);
        self.atomically(|store| {
            let mut alone = LastUnspent::default();
            let held = store.unspend_next(item, call, &mut alone)?;
            store.finish(call, &mut alone)?;
            Ok(held)
        })
    }

    fn unspend_next(&mut self, item: &Unspend, call: &Call, last: &mut LastUnspent) -> Result<bool, UtxoRefusal> {
        call.check()?;
        let txid = hash_of("txid", &item.outpoint.txid)?;
        let hash = hash_of("utxo_hash", &item.utxo_hash)?;
        let spender = hash_of("spender", &item.spender.txid)?;
        if last.0.as_ref().is_none_or(|run| !same_key(&run.found.head.txid, &txid)) {
            self.unspent(call, last);
            let found = self.find(&txid)?;
            last.0 = Some(UnspentRun { found, touched: false, page: None });
        }
        let Some(run) = &mut last.0 else { return Err(UtxoRefusal::TxNotFound) };
        let (address, entry) = self.utxo(&run.found, item.outpoint.vout)?;
        if !same_key(&entry.hash, &hash) {
            return Err(UtxoRefusal::UtxoHashMismatch { stored: UtxoHash::from(entry.hash) });
        }
        run.touched = true;
        let held = entry.held_by(&spender, item.spender.vin);
        if held {
            self.forget_spender(address, &entry);
            match &mut run.page {
                Some((page, count)) if page.slot == address.slot => *count += 1,
                page => {
                    if let Some((page, count)) = page.replace((address, 1)) {
                        self.count_spent(page, -count);
                    }
                }
            }
        }
        Ok(held)
    }

    /// Counts and evaluates what was unspent last.
    pub fn unspent(&mut self, call: &Call, last: &mut LastUnspent) {
        // There was room for it when its last item came, and it has allocated nothing since.
        if let Err(error) = self.finish(call, last) {
            crate::platform::trap(&format!("unspend: {error:?}"));
        }
    }

    fn finish(&mut self, call: &Call, last: &mut LastUnspent) -> Result<(), UtxoRefusal> {
        let Some(run) = last.0.take() else { return Ok(()) };
        if let Some((page, count)) = run.page {
            self.count_spent(page, -count);
        }
        if run.touched { self.evaluate(run.found.slot, call) } else { Ok(()) }
    }

    /// Makes an entry unspent. A frozen one stays frozen; its page is still to be counted.
    pub(super) fn forget_spender(&mut self, address: EntryAddress, entry: &Entry) {
        self.set_entry(address, entry.state & !(SPENT | SPENDER_DELETED | SPENDER_CONFLICTING), (&[0; 32], 0));
    }
}
