//! Taking records out. Who may go, and when, is the pruner's business.

use super::alert::pages;
use super::order::Order;
use super::place;
use super::prune::Candidate;
use super::record::{at, flag, page_slot};
use super::{STEP_PAGES, UtxoStore};
use crate::storage::blob::BlobStore;
use coppice_interface::{ExternalStore, TransactionPlace, UtxoRefusal};

/// What has to go before the record.
pub enum ExternalData {
    /// Nothing: the transaction lies in the record.
    None,
    /// It was in the BlobStore, and is free now; or nothing was there any more.
    Freed {
        /// How it was found.
        missing: bool,
    },
    /// It is outside.
    Outside(ExternalStore),
}

impl UtxoStore {
    /// Frees what a record keeps in the BlobStore, or says what it keeps outside. What is gone already is no error.
    ///
    /// # Errors
    /// `Corrupt`, and nothing has changed.
    pub fn free_external(&mut self, blobs: &mut BlobStore, of: &Candidate) -> Result<ExternalData, UtxoRefusal> {
        match self.place(of.slot, &of.head)? {
            TransactionPlace::Record => Ok(ExternalData::None),
            TransactionPlace::Outside(store) => Ok(ExternalData::Outside(store)),
            TransactionPlace::Blobs { parts, .. } => {
                self.changed.blobs += 4 * parts.len() as u64;
                Ok(ExternalData::Freed { missing: !place::free(blobs, &parts)? })
            }
        }
    }

    /// All of a deletion at once, as tests have it.
    #[cfg(test)]
    pub fn delete_by_id(
        &mut self,
        blobs: &mut BlobStore,
        txid: &super::Hash,
        call: &super::Call,
    ) -> Result<u32, UtxoRefusal> {
        let of = self.candidate(self.find_any(txid)?.slot, None)?;
        let parents = self.parents(&of, (0, u32::MAX))?;
        self.free_external(blobs, &of)?;
        let told = self.tell(&of, &parents, call)?;
        self.remove(&of);
        Ok((told.marked + told.released) as u32)
    }

    /// Returns whether a record has more pages than one step frees.
    #[inline]
    pub fn is_large(&self, of: &Candidate) -> bool {
        u64::from(of.pages()) > STEP_PAGES || self.pages_of_children(&of.head) > STEP_PAGES
    }

    /// Frees some pages of a large record that is being deleted and whose parents were all told, the last pages first. Returns the
    /// number of freed pages of outputs, or `None` if the rest fits one step. An interruption loses nothing, because the record always
    /// names the pages that are left.
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
        self.set_flags(slot, head.flags & !(flag::EXTERNAL | flag::OUTSIDE));
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

    /// Takes a record out, with its pages: the last of a deletion.
    pub fn remove(&mut self, of: &Candidate) {
        let Candidate { slot, head } = of;
        let slot = *slot;
        // A parent that has back what a double spend held has left the index, and may have been its neighbour there.
        let now = head.is(flag::CONFLICTING).then(|| self.head(slot));
        let head = now.as_ref().unwrap_or(head);
        if !head.is(flag::CONFLICTING) {
            // The default is never used: a record whose blocks cannot be read is refused before its parents are told.
            let highest = self.highest_block(head).unwrap_or(0);
            self.root.raise_pruned(&mut self.slots, highest);
        }
        for order in [Order::DeleteAt, Order::UnminedSince, Order::PreserveUntil, Order::CreatedAt] {
            self.root.leave(&mut self.slots, order, slot, head.links[order as usize]);
        }
        for page in pages(self, slot, head).collect::<Vec<_>>() {
            self.slots.free(page);
        }
        if head.extras != 0 {
            let mut left = head.clone();
            self.free_children(slot, &mut left, u64::MAX);
            if left.extras != 0 {
                self.slots.free(left.extras);
            }
        }
        self.table.remove(self.table.hash(&head.txid), u64::from(slot));
        self.slots.free(slot);
        self.root.records -= 1;
        self.root.pages -= u64::from(head.extra_pages);
        self.root.save_all(&mut self.slots);
        self.changed.table += 1;
    }

    /// Where a record lies.
    #[cfg(test)]
    pub fn slot_of(&self, txid: &super::Hash) -> crate::storage::slots::SlotId {
        self.find_any(txid).expect("it is there").slot
    }

    /// Takes all memory that is there but `bytes`, and what is kept for the pruner where that is to stay.
    #[cfg(test)]
    pub fn fill(&mut self, bytes: u64, spare: bool) {
        self.slots.set_pruning(!spare);
        for len in [1 << 20, 64 << 10, 4 << 10, 56] {
            while self.slots.has_room(bytes + 2 * u64::from(len), 2) {
                self.slots.allocate(len).expect("there is room");
            }
        }
        self.slots.set_pruning(false);
    }
}
