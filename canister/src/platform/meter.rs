//! Histograms of the instructions used by the thirteen hottest methods and timers, not persisted: an upgrade resets them.
//!
//! A message is counted when its work is done; encoding the reply comes after that and is not included. A query's count is undone with the
//! query, so only replicated queries are counted.

use crate::platform;
use std::cell::RefCell;

/// Number of counted methods and timers.
const HOT: usize = 13;

/// Declares the counted methods and timers with their names.
macro_rules! hot {
    ($($(#[$doc:meta])* $hot:ident $name:literal)*) => {
        /// A counted method or timer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Hot {
            $($(#[$doc])* $hot),*
        }

        /// All counted methods and timers, in order.
        #[cfg(any(test, feature = "bench"))]
        pub const HOT_ALL: [Hot; HOT] = [$(Hot::$hot),*];
        /// Names of the hot methods, in order: a label of the metrics.
        pub const NAMES: [&str; HOT] = [$($name),*];
    };
}

hot! {
    /// `append_block`.
    AppendBlock "append_block"
    /// `append_blocks`.
    AppendBlocks "append_blocks"
    /// `put_block_chunk`.
    PutBlockChunk "put_block_chunk"
    /// `commit_block`.
    CommitBlock "commit_block"
    /// `export_blocks`, as a replicated query.
    ExportBlocks "export_blocks"
    /// `ack_exported`.
    AckExported "ack_exported"
    /// `utxo_create`.
    UtxoCreate "utxo_create"
    /// `utxo_spend`.
    UtxoSpend "utxo_spend"
    /// `utxo_set_mined`.
    UtxoSetMined "utxo_set_mined"
    /// `acquire_blob_deletion_batch`.
    AcquireDeletions "acquire_blob_deletion_batch"
    /// `complete_blob_deletion_batch`.
    CompleteDeletions "complete_blob_deletion_batch"
    /// A firing of the daemon for blocks.
    TimerBlocks "timer_blocks"
    /// A firing of the daemon for UTXO records.
    TimerRecords "timer_records"
}

/// Upper bounds of the first seven buckets, inclusive; the eighth has none.
pub const BOUNDS: [u64; 7] = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Histogram of one method's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Messages by bucket.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Sum of their instructions.
    pub sum: u64,
}

thread_local! {
    static ALL: RefCell<[Histogram; HOT]> = const { RefCell::new([Histogram { buckets: [0; BOUNDS.len() + 1], sum: 0 }; HOT]) };
}

/// Runs `run`, and counts the instructions that the message has executed by then.
#[inline]
pub fn counted<T>(of: Hot, run: impl FnOnce() -> T) -> T {
    let result = run();
    count(of, platform::instructions());
    result
}

/// Counts a message with this number of instructions.
pub fn count(of: Hot, instructions: u64) {
    let bucket = BOUNDS.iter().position(|&bound| instructions <= bound).unwrap_or(BOUNDS.len());
    ALL.with_borrow_mut(|all| {
        let histogram = &mut all[of as usize];
        histogram.buckets[bucket] += 1;
        histogram.sum = histogram.sum.saturating_add(instructions);
    });
}

/// All histograms, in the order of [`NAMES`].
pub fn histograms() -> [Histogram; HOT] {
    ALL.with_borrow(|all| *all)
}

/// Instructions of all counted messages.
pub fn instructions() -> u64 {
    ALL.with_borrow(|all| all.iter().fold(0u64, |sum, histogram| sum.saturating_add(histogram.sum)))
}

/// Resets the histograms, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    ALL.with_borrow_mut(|all| *all = Default::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_in_one_bucket_and_in_the_sum() {
        forget();
        for n in [0, 1, 100_000, 100_001, 1_000_000_000, 1_000_000_001, u64::MAX] {
            count(Hot::UtxoSpend, n);
        }
        let found = histograms()[Hot::UtxoSpend as usize];
        assert_eq!(found.buckets, [3, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!((found.sum, instructions()), (u64::MAX, u64::MAX), "a sum that is full stays full");
        assert_eq!(histograms().iter().filter(|histogram| **histogram != Histogram::default()).count(), 1);
        assert_eq!(NAMES[Hot::TimerRecords as usize], "timer_records");
        forget();
        assert_eq!(instructions(), 0);
    }
}
