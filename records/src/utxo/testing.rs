//! Functions that only tests and the bench call.

use super::call::Call;
use super::store::UtxoStore;
use ic_coppice_interface::{Unspend, UtxoRefusal};

impl UtxoStore {
    /// Does a batch of unspends without the limits of a message, and passes each result to `each`.
    pub fn unspend_all(&mut self, items: &[Unspend], call: &Call, mut each: impl FnMut(Result<bool, UtxoRefusal>)) {
        let mut last = None;
        items.iter().for_each(|item| each(self.unspend(item, call, &mut last)));
        self.end_run(call, &mut last);
    }

    /// Returns the bytes of slots and buckets in use.
    #[cfg(feature = "bench")]
    pub fn used_bytes(&self) -> u64 {
        self.slots.stats().used_bytes + self.table.pages() * 4_096
    }
}

#[cfg(any(test, feature = "testing"))]
mod tests_only {
    use super::{Call, UtxoRefusal, UtxoStore};
    use crate::utxo::record::{Hash, Order};
    use ic_coppice_interface::UtxoPruneCounts;
    use ic_coppice_storage::blob::BlobStore;
    use ic_coppice_storage::slots::SlotId;

    impl UtxoStore {
        /// Runs all steps of a deletion.
        pub fn delete_by_id(&mut self, blobs: &mut BlobStore, txid: &Hash, call: &Call) -> Result<u32, UtxoRefusal> {
            let of = self.candidate(self.find_any(txid)?.slot, None)?;
            let parents = self.parents(&of, (0, u32::MAX))?;
            let mut counts = UtxoPruneCounts::default();
            self.free_external(blobs, &of, &mut counts)?;
            self.mark_parents(&of, &parents, call, &mut counts)?;
            self.remove(&of, &mut counts);
            Ok((counts.parents_updated + counts.outputs_released) as u32)
        }

        /// Returns the slot of a record.
        pub fn slot_of(&self, txid: &Hash) -> SlotId {
            self.find_any(txid).expect("it is there").slot
        }

        /// Returns the records of an ordered index by rising height: each height with its transactions.
        pub fn index(&self, order: Order) -> Vec<(u32, Vec<Hash>)> {
            let under = |key| {
                let records = self.root.under(&self.slots, order, key);
                (key, records.filter_map(|slot| self.read_head(slot)).map(|head| head.txid).collect())
            };
            self.root.keys(&self.slots, order, 0).map(under).collect()
        }

        /// Lists a double spend that has no record.
        pub fn list_child(&mut self, parent: &Hash, child: &Hash) {
            self.add_child(parent, child).expect("there is room");
        }

        /// Clears all other bits of the hashes of ids.
        pub fn mask_hashes(&mut self, mask: u64) {
            self.table.mask_hashes(mask);
        }

        /// Takes all memory: see [`fill`](ic_coppice_storage::testing::fill).
        pub fn fill(&mut self, granules: usize, nodes: usize, reserve: bool) {
            ic_coppice_storage::testing::fill(&mut self.slots, granules, nodes, reserve);
        }
    }
}
