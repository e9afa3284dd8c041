//! Taking records out. Who may go, and when, is the pruner's business.

use super::UtxoStore;
use super::alert::pages;
use super::order::Order;
use super::place;
use super::prune::Candidate;
use super::record::flag;
use crate::blob::BlobStore;
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

    /// Takes a record out, with its pages: the last of a deletion.
    pub fn remove(&mut self, of: &Candidate) {
        let Candidate { slot, head } = of;
        let slot = *slot;
        // A parent that has back what a double spend held has left the index, and may have been its neighbour there.
        let now = head.is(flag::CONFLICTING).then(|| self.head(slot));
        let head = now.as_ref().unwrap_or(head);
        if !head.is(flag::CONFLICTING) {
            // What cannot be read is not deleted: its parents would not have been told.
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
            self.free_children(head);
            self.slots.free(head.extras);
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
    pub fn slot_of(&self, txid: &super::Hash) -> crate::slots::SlotId {
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
