//! Batches: worked through in order, within the instructions of a message, the pages that it may change, and the bytes of its
//! answer.

use super::footprint::{self, PARENT};
use super::record::{ENTRY, INPUT};
use super::{Changed, UtxoStore};
use crate::platform;
use coppice_interface::{
    Batch, Conflict, FreezeTarget, MinedTransaction, Reassign, RefusedSpend, TransactionSource, TransactionSpends,
    Txid, Unspend, UtxoCreate, UtxoCreateError, UtxoCreated, UtxoError, UtxoRefusal, UtxoSettings,
};

/// Answers of one batch.
const MAX_RESULTS: usize = 10_000;
/// Bytes of answers after which a batch goes no further. One more may be as long again, and a reply has 2 MiB.
const MAX_BYTES: usize = 1 << 20;

/// About how many bytes an answer takes, where that is not always a few.
pub trait Weight {
    /// Bytes.
    fn weight(&self) -> usize {
        0
    }
}

impl Weight for () {}
impl Weight for bool {}
impl Weight for u32 {}
impl Weight for UtxoCreated {}
impl Weight for UtxoRefusal {}
impl Weight for UtxoCreateError {}
impl Weight for UtxoError {}

impl Weight for Vec<u32> {
    fn weight(&self) -> usize {
        4 * self.len()
    }
}

impl Weight for Vec<RefusedSpend> {
    fn weight(&self) -> usize {
        100 * self.len()
    }
}

impl Weight for Conflict {
    fn weight(&self) -> usize {
        40 * self.marked.len() + 130 * self.parent_spends.len()
    }
}

impl<T: Weight, E: Weight> Weight for Result<T, E> {
    fn weight(&self) -> usize {
        match self {
            Ok(answer) => answer.weight(),
            Err(error) => error.weight(),
        }
    }
}

/// Pages that a message changes, beside those of one item that is larger: 68 MiB of the 75 above which the platform slows a
/// canister down.
const MOST_PAGES: u64 = 17_408;
/// Pages that changing a record's head and its places in the ordered indexes takes, at most.
const RECORD: u64 = 24;
/// The longest list of reassignments that is written anew.
const LIST: u64 = 200;

/// What is done one after the other in a batch.
pub trait Item {
    /// Pages that it changes, at most or nearly so.
    fn pages(&self, store: &UtxoStore) -> u64;
}

/// A transaction that is marked as a double spend, with all that spends from it.
pub struct Marked(pub Txid);

impl Item for Marked {
    fn pages(&self, store: &UtxoStore) -> u64 {
        let found = || store.find(self.0.as_slice().try_into().ok()?).ok();
        RECORD + PARENT * found().map_or(0, |found| u64::from(found.head.inputs))
    }
}

impl Item for Txid {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD
    }
}

impl Item for Unspend {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD
    }
}

impl Item for MinedTransaction {
    fn pages(&self, _: &UtxoStore) -> u64 {
        2 * RECORD
    }
}

impl Item for Reassign {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD + LIST
    }
}

impl Item for TransactionSpends {
    fn pages(&self, _: &UtxoStore) -> u64 {
        RECORD + 4 * self.spends.len() as u64
    }
}

impl Item for FreezeTarget {
    fn pages(&self, store: &UtxoStore) -> u64 {
        let all = || Some(store.find(self.txid.as_slice().try_into().ok()?).ok()?.head);
        let outputs = if self.vout.is_some() { None } else { all().map(|head| head.pages()) };
        RECORD + outputs.unwrap_or(0)
    }
}

impl Item for UtxoCreate {
    fn pages(&self, _: &UtxoStore) -> u64 {
        // Heap counts for an item with many outputs; an item with few reuses the heap of the item before.
        let heap = |outputs: usize| if outputs > 1_000 { footprint::OUTPUT as usize * outputs } else { 0 };
        // Bytes of the argument, outputs, and inputs; an output of a transaction has nine bytes at least, and an input 41.
        let (bytes, outputs, inputs) = match &self.source {
            TransactionSource::Raw(raw) => (raw.len(), raw.len() / 9, raw.len() / 41),
            TransactionSource::Outputs(partial) => {
                let known = partial.outputs.iter().map(|output| 16 + output.script.len());
                let outputs = partial.total_outputs as usize;
                (known.sum::<usize>() + heap(outputs), outputs, 0)
            }
            TransactionSource::Outside(outside) => {
                let outputs = outside.utxo_hashes.len();
                (heap(outputs), outputs, outside.inputs.len())
            }
            // It may be as large as a message holds.
            TransactionSource::Uploaded(_) => return u64::MAX,
        };
        let record = (bytes + ENTRY as usize * outputs + INPUT as usize * inputs) as u64 / 4_096;
        let parents = if self.conflicting { PARENT * inputs as u64 } else { 0 };
        2 * RECORD + record + parents
    }
}

impl UtxoStore {
    /// Works through a batch.
    pub fn batch<I: Item, T: Weight>(
        &mut self,
        items: &[I],
        settings: &UtxoSettings,
        mut each: impl FnMut(&mut Self, &I) -> T,
    ) -> Batch<T> {
        let end = platform::instructions().saturating_add(settings.batch_instructions);
        let mut results = Vec::with_capacity(items.len().min(MAX_RESULTS));
        let mut bytes = 0;
        self.changed = Changed::default();
        self.slots.count_pages(true);
        for item in items.iter().take(MAX_RESULTS) {
            // The first is always begun, so that the smallest budget makes progress.
            if !results.is_empty() {
                let full = self.pages_changed().saturating_add(item.pages(self)) > MOST_PAGES;
                if full || bytes > MAX_BYTES || platform::instructions() > end {
                    break;
                }
            }
            let result = each(self, item);
            bytes += result.weight();
            results.push(result);
        }
        self.slots.count_pages(false);
        self.changed = Changed::default();
        let remaining = (items.len() - results.len()) as u32;
        Batch { results, remaining }
    }
}

#[cfg(test)]
mod tests;
