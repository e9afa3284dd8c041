//! Progress of a sweep: words of the chain's cell, which `postings/sweep.rs` advances.
//!
//! A sweep's *debt* is `before + since`, an upper bound of the stale entries. The fields with block numbers count as postings do.

/// Progress of the sweep of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Upper bound of the stale entries of blocks that were pruned before the sweep began; of all pruned blocks if no sweep is running.
    pub(crate) before: u64,
    /// Upper bound of the stale entries of blocks that were pruned since the sweep began.
    pub(crate) since: u64,
    /// One above the sweep's next bucket; 0 if no sweep is running.
    pub(crate) cursor: u64,
    /// Number inside postings of the oldest kept block when the sweep began.
    pub(crate) bound: u64,
    /// Entries that sweeps have ever dropped.
    pub dropped: u64,
    /// Sweeps that have ever finished.
    pub finished: u64,
}

words! { Sweep: before since cursor bound dropped finished }

impl Sweep {
    /// Upper bound of the stale entries.
    pub fn debt(&self) -> u64 {
        self.before.saturating_add(self.since)
    }

    /// The next bucket of the running sweep.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.checked_sub(1)
    }

    /// Sets the next bucket, or ends the running sweep.
    pub(crate) fn advance(&mut self, next: Option<u64>) {
        match next {
            Some(bucket) => self.cursor = bucket + 1,
            None => {
                (self.before, self.since, self.cursor) = (self.since, 0, 0);
                self.finished += 1;
            }
        }
    }

    /// Adds the references of a pruned block to the debt.
    pub(crate) fn owe(&mut self, references: u64) {
        let debt = if self.cursor == 0 { &mut self.before } else { &mut self.since };
        *debt = debt.saturating_add(references);
    }

    /// Subtracts a stale entry that is gone, whose posting has block number `counted`.
    pub(crate) fn settle(&mut self, counted: u64) {
        let debt = if self.cursor == 0 || counted < self.bound { &mut self.before } else { &mut self.since };
        *debt = debt.saturating_sub(1);
    }
}
