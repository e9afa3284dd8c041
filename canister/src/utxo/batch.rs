//! Batches: worked through in order, within the instructions of a message and the bytes of its answer.

use crate::api::{Batch, Conflict, SpendError, UtxoCreated, UtxoError, UtxoSettings};
use crate::runtime;

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
impl Weight for UtxoError {}

impl Weight for Vec<u32> {
    fn weight(&self) -> usize {
        4 * self.len()
    }
}

impl Weight for Vec<SpendError> {
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

/// Works through a batch.
pub fn batch<I, T: Weight>(items: &[I], settings: &UtxoSettings, mut each: impl FnMut(&I) -> T) -> Batch<T> {
    let end = runtime::instructions().saturating_add(settings.batch_instructions);
    let mut results = Vec::with_capacity(items.len().min(MAX_RESULTS));
    let mut bytes = 0;
    for item in items.iter().take(MAX_RESULTS) {
        // The first is always begun, so that the smallest budget makes progress.
        if !results.is_empty() && (bytes > MAX_BYTES || runtime::instructions() > end) {
            break;
        }
        let result = each(item);
        bytes += result.weight();
        results.push(result);
    }
    let remaining = (items.len() - results.len()) as u32;
    Batch { results, remaining }
}
