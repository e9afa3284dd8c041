//! Deletion of a record, for `pruning/delete.rs` and `external/complete.rs`, which call its steps; `free_external`, `mark_parents` and
//! `remove` count their work in [`UtxoPruneCounts`]:
//!
//! 1. `parents` finds the outputs that the record's transaction holds.
//! 2. `free_external` frees the bytes in the BlobStore, or names the external blob; then `mark_deleting` hides the record until a worker
//!    has deleted the blob.
//! 3. `mark_parents` marks the outputs found by step 1. A small double spend does this before step 2, because it may fail.
//! 4. `shrink` frees pages of a large record, some in each message.
//! 5. `remove` frees the rest.

use super::call::{Answer, Call, if_found};
use super::limits::{STEP, STEP_PAGES, meter};
use super::record::{
    self, EntryAddress, HEAD_BLOCKS, Hash, Order, SPENDER_DELETED, at, flag, inputs_from, location, page_slot, pages,
};
use super::scan::Candidate;
use super::store::{Found, UtxoStore};
use ic_coppice_interface::{ExternalStore, NoMemory, TransactionPlace, UtxoPruneCounts, UtxoRefusal};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::table::same_key;

/// Pages of parents' lists that a step may read to remove a double spend from them; the lists of one parent are read in any case.
const MOST_LISTED: u64 = 10_000;
/// Pages of a parent, its place in the table, and one of its outputs.
const PARENT_PAGES: u64 = 3;

/// Outputs of surviving parents to mark with the deletion of their spender, with their states.
pub struct Parents {
    inputs: Vec<(Hash, u32)>,
    held: Vec<(EntryAddress, u32)>,
    /// The input after these.
    pub next: u32,
}

impl UtxoStore {
    /// Returns the outputs that at most `most` inputs, from `first` on, spend from parents that have a record. Covers fewer inputs if finding
    /// the parents takes too many instructions, or if many others are listed with the parents of a double spend.
    ///
    /// # Errors
    /// `Corrupt` if a parent has a record that cannot be read, or if the record's blocks cannot be read, whose heights refuse a replay.
    pub fn parents(&mut self, of: &Candidate, (first, most): (u32, u32)) -> Answer<Parents> {
        if of.head.blocks > HEAD_BLOCKS {
            self.highest_block(&of.head)?;
        }
        let mut inputs = inputs_from(&self.slots, of.slot, &of.head, (first, most))?;
        let mut held = Vec::with_capacity(inputs.len());
        // A found record is kept as `find` returns it, because moving one costs 370 instructions.
        let mut last: Option<(&Hash, Answer<Found>)> = None;
        let (mut listed, mut end, mut meter) = (0, inputs.len(), meter(STEP));
        for (((parent, vout), vin), at) in inputs.iter().zip(first..).zip(0..) {
            if last.as_ref().is_none_or(|(known, _)| !same_key(known, parent)) {
                if !meter.has_time() {
                    end = at;
                    break;
                }
                self.used.read += PARENT_PAGES;
                match &last.insert((parent, self.find(parent))).1 {
                    Ok(found) if of.head.is(flag::CONFLICTING) => {
                        listed += self.pages_of_children(&found.head);
                        if listed > MOST_LISTED && at > 0 {
                            end = at;
                            break;
                        }
                    }
                    Ok(_) | Err(UtxoRefusal::TxNotFound) => {}
                    Err(error) => return Err(error.clone()),
                }
            }
            let Some((_, Ok(found))) = &last else { continue };
            let utxo = if_found(EntryAddress::utxo(&self.slots, found.slot, &found.head, *vout))?;
            let Some((address, entry)) = utxo else { continue };
            if entry.held_by(&of.head.txid, vin) {
                held.push((address, entry.state));
            }
        }
        inputs.truncate(end);
        Ok(Parents { next: first.saturating_add(end as u32), inputs, held })
    }

    /// Marks the outputs that a transaction holds with the deletion of their spender, so that a replay is refused. A double spend leaves
    /// its parents' lists and releases its outputs, because the chain never had them spent, and the double spend may yet win. Counts the
    /// outputs that were not marked before, and those that are released.
    ///
    /// # Errors
    /// `Corrupt`, `OutOfSpace`, `LowCycles`, only for a double spend, and nothing has changed.
    pub fn mark_parents(
        &mut self,
        of: &Candidate,
        parents: &Parents,
        call: &Call,
        counts: &mut UtxoPruneCounts,
    ) -> Answer<()> {
        if of.head.is(flag::CONFLICTING) {
            self.unspend_parents(of, parents, call)?;
            counts.outputs_released += parents.held.len() as u64;
            return Ok(());
        }
        let mut marked = 0;
        for &(address, state) in parents.held.iter().filter(|(_, state)| state & SPENDER_DELETED == 0) {
            address.set_state(&mut self.slots, state | SPENDER_DELETED);
            marked += 1;
        }
        counts.parents_updated += marked;
        Ok(())
    }

    /// Takes the outputs back that a double spend holds, and removes it from its parents' lists.
    fn unspend_parents(&mut self, of: &Candidate, parents: &Parents, call: &Call) -> Answer<()> {
        let left = self.atomically(|store| {
            record::parents(&parents.inputs).iter().try_for_each(|parent| store.remove_child(parent, &of.head.txid))
        });
        if let Err(error) = left {
            ic_coppice_storage::log::error(&format!("a double spend stays listed with a parent: {}", error));
        }
        self.atomically(|store| {
            let mut masters: Vec<SlotId> = parents.held.iter().map(|(address, _)| address.master).collect();
            for &(address, _) in &parents.held {
                let entry = address.read(&store.slots);
                address.forget_spender(&mut store.slots, &entry);
                address.count_spent(&mut store.slots, -1);
            }
            masters.sort_unstable();
            masters.dedup();
            masters.into_iter().try_for_each(|master| store.evaluate(master, call))
        })
    }

    /// Marks a record as being deleted: from now on only queries find it. The record stays in [`Order::DeleteAt`] if `listed`.
    pub fn mark_deleting(&mut self, of: &Candidate, listed: bool) {
        self.set_flags(of.slot, (of.head.flags | flag::DELETING) & !flag::CHECKED);
        for order in Order::ALL {
            if order != Order::DeleteAt || !listed {
                self.root.set(&mut self.slots, order, of.slot, of.head.link(order), None);
            }
        }
    }

    /// Enters a record that is being deleted at the front of [`Order::DeleteAt`].
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn list_deleting(&mut self, of: &Candidate) -> Answer<()> {
        self.root.reserve(&self.slots, &[(Order::DeleteAt, 1)], 0, &[]).map_err(NoMemory::from)?;
        self.root.set(&mut self.slots, Order::DeleteAt, of.slot, of.head.link(Order::DeleteAt), Some(1));
        Ok(())
    }

    /// Returns a record that is being deleted.
    ///
    /// # Errors
    /// `TxNotFound`, `Corrupt`.
    pub fn deleting(&self, txid: &Hash) -> Answer<Candidate> {
        let found = self.find_any(txid)?;
        if found.head.is(flag::DELETING) { self.candidate(found.slot, None) } else { Err(UtxoRefusal::TxNotFound) }
    }

    /// Frees the bytes that a record keeps in the BlobStore, or returns the name of its external blob. Missing bytes, which an earlier
    /// deletion had freed, are not an error, and are counted apart.
    ///
    /// # Errors
    /// `Corrupt`, and nothing has changed.
    pub fn free_external(
        &mut self,
        blobs: &mut BlobStore,
        of: &Candidate,
        counts: &mut UtxoPruneCounts,
    ) -> Answer<Option<ExternalStore>> {
        match location::of(&self.slots, of.slot, &of.head)? {
            TransactionPlace::Record | TransactionPlace::Block { .. } => {}
            TransactionPlace::External(store) => return Ok(Some(store)),
            TransactionPlace::Blobs { parts, .. } => match location::free(blobs, &parts)? {
                true => counts.external_files_deleted += 1,
                false => counts.external_files_missing += 1,
            },
        }
        Ok(None)
    }

    /// Returns whether a record has more pages than one step frees.
    #[inline]
    pub fn is_large(&self, of: &Candidate) -> bool {
        u64::from(of.head.extra_pages) > STEP_PAGES || self.pages_of_children(&of.head) > STEP_PAGES
    }

    /// Frees some pages of a large record that is being deleted and whose parents are all marked, the last pages first. Returns the number
    /// of freed pages of outputs, or `None` if the rest fits in one step. An interruption loses nothing, because the record always names
    /// the pages that are left.
    #[inline]
    pub fn shrink(&mut self, of: &Candidate) -> Option<u64> {
        self.is_large(of).then(|| self.free_some(of))
    }

    #[cold]
    fn free_some(&mut self, of: &Candidate) -> u64 {
        let slot = of.slot;
        let mut head = self.head(slot);
        if self.pages_of_children(&head) > STEP_PAGES {
            self.free_children(slot, &mut head, STEP_PAGES);
            return 0;
        }
        // The directory lists pages of inputs after pages of outputs. The address of the transaction's bytes follows the directory.
        for page in 1..=head.input_pages() {
            self.slots.free(page_slot(&self.slots, slot, &head, head.extra_pages + page));
        }
        let inputs = if head.input_pages() > 0 { 0 } else { head.inputs };
        self.slots.write(slot, at::INPUTS, [inputs, 0].map(u32::to_le_bytes).as_flattened());
        self.set_flags(slot, head.flags & !(flag::NOT_INLINE | flag::EXTERNAL | flag::KEPT));
        let left = head.extra_pages - STEP_PAGES as u32;
        for page in left..head.extra_pages {
            self.slots.free(page_slot(&self.slots, slot, &head, 1 + page));
        }
        self.slots.write_u32(slot, at::EXTRA_PAGES, left);
        self.slots.write_u32(slot, at::OUTPUTS, head.batch * (1 + left));
        self.root.pages -= STEP_PAGES;
        self.root.save_counts(&mut self.slots);
        STEP_PAGES
    }

    /// Removes a record and its pages, and counts them: the last step of a deletion.
    pub fn remove(&mut self, of: &Candidate, counts: &mut UtxoPruneCounts) {
        let &Candidate { slot, ref head } = of;
        // A parent whose output the double spend released has left the index, and may have been the record's neighbour there.
        let now = head.is(flag::CONFLICTING).then(|| self.head(slot));
        let head = now.as_ref().unwrap_or(head);
        if !head.is(flag::CONFLICTING) {
            // The default is never used: a record whose blocks cannot be read is refused before its parents are marked.
            let highest = self.highest_block(head).unwrap_or(0);
            self.root.raise_pruned(&mut self.slots, highest);
        }
        for order in Order::ALL {
            self.root.leave(&mut self.slots, order, slot, head.link(order));
        }
        for page in pages(&self.slots, slot, head).collect::<Vec<_>>() {
            self.slots.free(page);
        }
        if head.extras != 0 {
            let mut left = head.clone();
            self.free_children(slot, &mut left, u64::MAX);
            if left.extras != 0 {
                self.slots.free(left.extras);
            }
        }
        if let Some(own) = location::own_slot(&self.slots, slot, head) {
            self.slots.free(own);
        }
        self.table.remove(self.table.hash(&head.txid), u64::from(slot));
        self.slots.free(slot);
        self.root.records -= 1;
        self.root.pages -= u64::from(head.extra_pages);
        self.root.save_all(&mut self.slots);
        counts.records_deleted += 1;
        counts.pages_deleted += u64::from(head.extra_pages);
    }
}
