//! Batches of operations: run in order, within the instructions of a message, the pages that it may change, and the bytes of its reply.

use super::limits::{OUTPUT, PARENT};
use super::record::{ENTRY, INPUT};
use super::store::UtxoStore;
use ic_coppice_interface::{
    Batch, Conflict, FreezeTarget, MinedTransaction, Reassign, RefusedSpend, TransactionSource, TransactionSpends,
    Txid, Unspend, UtxoCreate,
};
use ic_coppice_storage::{Counting, Ic, MOST_PAGES, Platform as _};

/// Maximum results of one batch.
const MAX_RESULTS: usize = 10_000;
/// Instructions after which a batch begins no other item: a quarter of what a message may execute.
const INSTRUCTIONS: u64 = 10_000_000_000;
/// Bytes of results after which a batch ends, because one more result may be as long again, and a reply has at most 2 MiB.
const MAX_BYTES: usize = 1 << 20;

/// Maximum pages that a change of a record's head and of its places in the ordered indexes takes.
const RECORD: u64 = 24;
/// Maximum pages of a list of reassignments, which a change rewrites.
const LIST: u64 = 200;

/// An item of a batch; `A` is the item's result.
pub trait BatchItem<A> {
    /// Returns the estimated pages that the item changes.
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD
    }

    /// Returns the estimated bytes of a result; 0 for a short result.
    fn weight(_: &A) -> usize {
        0
    }
}

/// The id of a transaction that is marked as a double spend, with all its descendants.
pub struct Conflicting(pub Txid);

impl<A> BatchItem<A> for Txid {}
impl<A> BatchItem<A> for Unspend {}

impl<E> BatchItem<Result<Conflict, E>> for Conflicting {
    fn pages(&self, store: &UtxoStore) -> u64 {
        let found = || store.find(self.0.as_slice().try_into().ok()?).ok();
        RECORD + PARENT * found().map_or(0, |found| u64::from(found.head.inputs))
    }

    fn weight(answer: &Result<Conflict, E>) -> usize {
        answer.as_ref().map_or(0, |done| 40 * done.marked.len() + 130 * done.parent_spends.len())
    }
}

/// A transaction that gets a block, or loses it if the second field is true.
pub struct Mined<'a>(pub &'a MinedTransaction, pub bool);

impl<E> BatchItem<Result<Vec<u32>, E>> for Mined<'_> {
    fn pages(&self, store: &UtxoStore) -> u64 {
        2 * RECORD + if self.1 { store.pages_to_keep_of(&self.0.txid) } else { 0 }
    }

    fn weight(answer: &Result<Vec<u32>, E>) -> usize {
        answer.as_ref().map_or(0, |blocks| 4 * blocks.len())
    }
}

/// A transaction that the longest chain has, or does not have if the second field is true.
pub struct Chained<'a>(pub &'a Txid, pub bool);

impl<A> BatchItem<A> for Chained<'_> {
    fn pages(&self, store: &UtxoStore) -> u64 {
        RECORD + if self.1 { store.pages_to_keep_of(self.0) } else { 0 }
    }
}

impl<A> BatchItem<A> for Reassign {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD + LIST
    }
}

impl BatchItem<Result<u32, Vec<RefusedSpend>>> for TransactionSpends {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD + 4 * self.spends.len() as u64
    }

    fn weight(answer: &Result<u32, Vec<RefusedSpend>>) -> usize {
        answer.as_ref().err().map_or(0, |refused| 100 * refused.len())
    }
}

impl<A> BatchItem<A> for FreezeTarget {
    fn pages(&self, store: &UtxoStore) -> u64 {
        let all = || Some(store.find(self.txid.as_slice().try_into().ok()?).ok()?.head);
        let outputs = if self.vout.is_some() { None } else { all().map(|head| head.pages()) };
        RECORD + outputs.unwrap_or(0)
    }
}

impl<A> BatchItem<A> for UtxoCreate {
    fn pages(&self, _: &UtxoStore) -> u64 {
        // Heap counts for an item with many outputs; an item with few reuses the heap of the item before.
        let heap = |outputs: usize| if outputs > 1_000 { OUTPUT as usize * outputs } else { 0 };
        // Bytes of the argument, outputs, and inputs; an output of a transaction has at least 9 bytes, and an input 41.
        let (bytes, outputs, inputs) = match &self.source {
            TransactionSource::Raw(raw) => (raw.len(), raw.len() / 9, raw.len() / 41),
            TransactionSource::Outputs(partial) => {
                let known = partial.outputs.iter().map(|output| 16 + output.script.len());
                let outputs = partial.total_outputs as usize;
                (known.sum::<usize>() + heap(outputs), outputs, 0)
            }
            TransactionSource::External(external) => {
                let outputs = external.utxo_hashes.len();
                (heap(outputs), outputs, external.inputs.len())
            }
            // An uploaded transaction, or one in a block, may take all pages of a message.
            TransactionSource::Uploaded(_) | TransactionSource::Kept(_) => return u64::MAX,
        };
        let record = (bytes + ENTRY as usize * outputs + INPUT as usize * inputs) as u64 / 4_096;
        let parents = if self.conflicting { PARENT * inputs as u64 } else { 0 };
        2 * RECORD + record + parents
    }
}

impl UtxoStore {
    /// Runs a batch.
    pub fn batch<I: BatchItem<A>, A>(&mut self, items: &[I], mut each: impl FnMut(&mut Self, &I) -> A) -> Batch<A> {
        let end = Ic::instructions().saturating_add(INSTRUCTIONS);
        let mut results = Vec::with_capacity(items.len().min(MAX_RESULTS));
        let mut bytes = 0;
        self.begin_message();
        // No item follows a single one.
        let _counting = (items.len() > 1).then(Counting::begin);
        for item in items.iter().take(MAX_RESULTS) {
            // The first item always runs, so that the smallest budget makes progress.
            if !results.is_empty() {
                let full = self.pages_changed().saturating_add(item.pages(self)) > MOST_PAGES;
                if full || bytes > MAX_BYTES || Ic::instructions() > end {
                    break;
                }
            }
            let result = each(self, item);
            bytes += I::weight(&result);
            results.push(result);
        }
        Batch { remaining: (items.len() - results.len()) as u32, results }
    }
}

#[cfg(test)]
mod tests;
