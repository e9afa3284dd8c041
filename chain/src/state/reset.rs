//! Leftovers of resets: words of the chain's cell (`src/reset.rs`).

/// State that resets leave behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Number inside postings of this chain's first block; 0 if there was no reset.
    pub start: u64,
    /// One above the highest block number that postings ever used, even of blocks that were undone.
    pub used: u64,
    /// Count of rolled-back blocks including the last reset itself; 0 if there was no reset.
    pub rollbacks: u64,
    /// Resets since the installation.
    pub count: u64,
    /// The first block whose header must still be cleared.
    pub(crate) clear_from: u64,
    /// One above the last block whose header must still be cleared.
    pub(crate) clear_to: u64,
}

words! { Reset: start used rollbacks clear_from clear_to count }
