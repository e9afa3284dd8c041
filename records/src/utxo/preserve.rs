//! Preserving records until a height: by a call, and for phase 1 of the pruner, which preserves parents and later lets it expire.

use super::call::{Answer, Call, check_height, hash_of, if_found};
use super::limits::{STEP, meter};
use super::record::{Hash, Head, Order, inputs_from, parents};
use super::scan::{Candidate, LOOKUP_PAGES};
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{BadHeight, MAX_HEIGHT, NoMemory, UtxoRefusal};
use ic_coppice_storage::table::same_key;

/// Parents of a new unmined transaction that a message looks up at most, because each parent has separate pages.
const MOST_LOOKED_UP: u32 = 10_000;

impl UtxoStore {
    /// Keeps a transaction from being deleted until a height, and returns whether the transaction has a record.
    ///
    /// # Errors
    /// [`UtxoRefusal`], and nothing has changed.
    pub fn preserve(&mut self, txid: &[u8], until: u32) -> Answer<bool> {
        if until == 0 {
            return Err(UtxoRefusal::BadHeight(BadHeight::Zero));
        }
        check_height(until, MAX_HEIGHT)?;
        Ok(self.preserve_found(&hash_of("txid", txid)?, until, |_| true)?.is_some())
    }

    /// Preserves a record that `wanted` accepts. Returns whether it does, or `None` if the transaction has no record.
    fn preserve_found(&mut self, txid: &Hash, until: u32, wanted: impl Fn(&Head) -> bool) -> Answer<Option<bool>> {
        let Some(Found { slot, head, .. }) = if_found(self.find(txid))? else { return Ok(None) };
        if !wanted(&head) {
            return Ok(Some(false));
        }
        self.check_links(slot, &head, [Order::PreserveUntil, Order::DeleteAt])?;
        self.root.reserve(&self.slots, &[(Order::PreserveUntil, until)], 0, &[]).map_err(NoMemory::from)?;
        let preserved = head.link(Order::PreserveUntil);
        if head.delete_at().is_some() {
            self.set_delete_at(slot, head.due(), None);
        }
        self.root.set(&mut self.slots, Order::PreserveUntil, slot, preserved, Some(until));
        Ok(Some(true))
    }

    /// Preserves the parents of an unmined record's inputs from `first` on, at most `most`; with `due_by` only those that are due at or below
    /// that height. Returns the number of preserved parents, those that were preserved before included, and the next input: an earlier one than
    /// `first + most` if finding the parents takes too many instructions. Skips parents that cannot be read if `skips_unreadable`.
    ///
    /// # Errors
    /// The parent that cannot be preserved, and the reason; earlier parents may be preserved.
    pub fn preserve_parents(
        &mut self,
        of: &Candidate,
        (first, most): (u32, u32),
        (until, due_by): (u32, Option<u32>),
        skips_unreadable: bool,
    ) -> Result<(u64, u32), (Hash, UtxoRefusal)> {
        let (mut preserved, mut meter) = (0, meter(STEP));
        // Until this height, which may be above every block's; a later height stays.
        let inputs = match inputs_from(&self.slots, of.slot, &of.head, (first, most)) {
            Ok(inputs) => inputs,
            Err(_) if skips_unreadable => Vec::new(),
            Err(error) => return Err((of.head.txid, error)),
        };
        let parents = parents(&inputs);
        let mut is_done = vec![false; parents.len()];
        for ((parent, _), input) in inputs.iter().zip(first..) {
            match parents.binary_search(parent) {
                Ok(nth) if !std::mem::replace(&mut is_done[nth], true) => {}
                _ => continue,
            }
            if !meter.has_time() {
                return Ok((preserved, input));
            }
            self.used.read += LOOKUP_PAGES;
            let wanted = |head: &Head| match due_by {
                None => head.key(Order::PreserveUntil) < Some(until),
                Some(height) => head.delete_at().is_some_and(|due| due <= height),
            };
            match self.preserve_found(parent, until, wanted) {
                Ok(Some(now)) => preserved += u64::from(now || due_by.is_none()),
                Ok(None) => {}
                Err(UtxoRefusal::Corrupt { .. }) if skips_unreadable => {}
                Err(error) => return Err((*parent, error)),
            }
        }
        Ok((preserved, first.saturating_add(most)))
    }

    /// Returns whether a new unmined transaction has a parent that is due at or below a height. A transaction with more than
    /// [`MOST_LOOKED_UP`] parents counts as one that has.
    pub(super) fn has_parent_due_by(&self, inputs: &[(Hash, u32)], height: u32) -> bool {
        let (mut meter, mut last, mut known) = (meter(STEP), None, 0);
        inputs.iter().any(|(parent, _)| {
            if last.replace(parent).is_some_and(|last| same_key(last, parent)) {
                return false;
            }
            known += 1;
            // A parent that cannot be read is not deleted.
            known > MOST_LOOKED_UP || !meter.has_time() || self.due(parent).is_some_and(|due| due <= height)
        })
    }

    /// Clears an expired preservation, and enters the record in [`Order::DeleteAt`] if it is eligible.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn expire_preservation(&mut self, of: &Candidate, call: &Call) -> Answer<()> {
        self.changing(1, |store| {
            let link = of.head.link(Order::PreserveUntil);
            store.root.set(&mut store.slots, Order::PreserveUntil, of.slot, link, None);
            store.evaluate(of.slot, call)
        })
    }
}
