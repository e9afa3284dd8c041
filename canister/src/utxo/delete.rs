//! Taking records out. Who may go, and when, is the pruner's business.

use super::alert::pages;
use super::entry::SPENDER_DELETED;
use super::order::Order;
use super::record::{Hash, flag, inputs};
use super::{Found, UtxoStore, place};
use crate::api::{TransactionPlace, UtxoError};
use crate::blob::BlobStore;

impl UtxoStore {
    /// Takes a record out, with its pages and its blobs here. Each surviving parent is told, on the page that has the output
    /// that it spends: should the transaction be submitted again, it is refused. A double spend leaves their lists.
    /// Answers how many outputs say so now.
    ///
    /// # Errors
    /// `TxNotFound`, `Corrupt`, and nothing has changed.
    pub fn delete(&mut self, blobs: &mut BlobStore, txid: &Hash) -> Result<u32, UtxoError> {
        let Found { slot, head, .. } = self.find_any(txid)?;
        let place = self.place(slot, &head)?;
        let inputs = inputs(&self.slots, slot, &head);
        if head.is(flag::CONFLICTING)
            && let Err(error) = self.atomically(|store| store.leave_parents(txid, &inputs))
        {
            crate::runtime::log(&format!("a double spend stays listed with a parent: {error:?}"));
        }
        let mut told = 0;
        let mut last: Option<(Hash, Option<Found>)> = None;
        for ((parent, vout), vin) in inputs.into_iter().zip(0..) {
            if last.as_ref().is_none_or(|(known, _)| *known != parent) {
                last = Some((parent, self.find(&parent).ok()));
            }
            let Some((_, Some(found))) = &last else { continue };
            let Ok((place, entry)) = self.utxo(found, vout) else { continue };
            if entry.held_by(txid, vin) {
                self.set_state(place, entry.state | SPENDER_DELETED);
                told += 1;
            }
        }
        if let TransactionPlace::Blobs { parts, .. } = &place {
            place::release(blobs, parts);
        }
        for order in [Order::DeleteAt, Order::UnminedSince, Order::PreserveUntil, Order::CreatedAt] {
            self.root.set(&mut self.slots, order, slot, head.links[order as usize], None);
        }
        for page in pages(self, slot, &head).collect::<Vec<_>>() {
            self.slots.free(page);
        }
        if head.extras != 0 {
            self.slots.free(head.extras);
        }
        self.table.remove(self.table.hash(txid), u64::from(slot));
        self.slots.free(slot);
        self.root.records -= 1;
        self.root.pages -= u64::from(head.extra_pages);
        self.root.save_counts(&mut self.slots);
        Ok(told)
    }
}
