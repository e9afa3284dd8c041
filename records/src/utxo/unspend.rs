//! Unspending: takes outputs back from their spenders.

use super::call::{Answer, Call, hash_of};
use super::record::EntryAddress;
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{Batch, Unspend, UtxoRefusal};
use ic_coppice_storage::table::same_key;
use ic_coppice_storage::{Ic, Platform as _};

/// The record whose outputs were unspent last.
pub(super) struct UnspentRun {
    found: Found,
    /// An output of the record was named, held or not.
    touched: bool,
    /// A page, and the number of its unspent outputs that are not counted yet.
    page: Option<(EntryAddress, i32)>,
}

impl UtxoStore {
    /// Takes outputs from their spenders, and returns for each whether the spender held it. Outputs of one record that follow each other
    /// are found, counted and evaluated as one run.
    pub fn unspend_batch<E: From<UtxoRefusal>>(&mut self, items: &[Unspend], call: &Call) -> Batch<Result<bool, E>> {
        let mut last = None;
        let done = self.batch(items, |store, item| store.unspend(item, call, &mut last).map_err(E::from));
        self.end_run(call, &mut last);
        done
    }

    /// Takes an output from its spender, and returns whether the spender held it. The caller ends the run
    /// ([`end_run`](Self::end_run)) after the last item.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub(super) fn unspend(&mut self, item: &Unspend, call: &Call, last: &mut Option<UnspentRun>) -> Answer<bool> {
        // One entry for the run that this item may end, and one for the item's own.
        if self.reserve_entries(2) {
            return self.unspend_next(item, call, last);
        }
        self.end_run(call, last);
        self.atomically(|store| {
            let mut alone = None;
            let held = store.unspend_next(item, call, &mut alone)?;
            store.finish(call, &mut alone)?;
            Ok(held)
        })
    }

    fn unspend_next(&mut self, item: &Unspend, call: &Call, last: &mut Option<UnspentRun>) -> Answer<bool> {
        call.check()?;
        let txid = hash_of("txid", &item.outpoint.txid)?;
        let hash = hash_of("utxo_hash", &item.utxo_hash)?;
        let spender = hash_of("spender", &item.spender.txid)?;
        if last.as_ref().is_none_or(|run| !same_key(&run.found.head.txid, &txid)) {
            self.end_run(call, last);
            let found = self.find(&txid)?;
            *last = Some(UnspentRun { found, touched: false, page: None });
        }
        let Some(run) = last else { return Err(UtxoRefusal::TxNotFound) };
        let (address, entry) = EntryAddress::utxo(&self.slots, run.found.slot, &run.found.head, item.outpoint.vout)?;
        entry.check_hash(&hash)?;
        run.touched = true;
        let held = entry.held_by(&spender, item.spender.vin);
        if held {
            address.forget_spender(&mut self.slots, &entry);
            match &mut run.page {
                Some((page, count)) if page.slot == address.slot => *count += 1,
                page => {
                    if let Some((page, count)) = page.replace((address, 1)) {
                        page.count_spent(&mut self.slots, -count);
                    }
                }
            }
        }
        Ok(held)
    }

    /// Counts and evaluates the outputs that were unspent last.
    pub(super) fn end_run(&mut self, call: &Call, last: &mut Option<UnspentRun>) {
        // The last item of the run reserved the memory.
        self.finish(call, last).unwrap_or_else(|error| Ic::trap(&format!("unspend: {error}")));
    }

    fn finish(&mut self, call: &Call, last: &mut Option<UnspentRun>) -> Answer<()> {
        let Some(run) = last.take() else { return Ok(()) };
        if let Some((page, count)) = run.page {
            page.count_spent(&mut self.slots, -count);
        }
        if run.touched { self.evaluate(run.found.slot, call) } else { Ok(()) }
    }
}
