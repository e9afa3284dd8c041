//! Progress of a sweep: words of the chain's cell, which `postings/sweep.rs` moves on.

/// Progress of the sweep of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Entries at most that are stale, of blocks that were pruned before the sweep began; of all pruned blocks where none is
    /// under way.
    pub(in crate::chain) before: u64,
    /// The same of blocks that were pruned since.
    pub(in crate::chain) since: u64,
    /// One above the bucket with which the sweep goes on; 0: none is under way.
    pub(in crate::chain) cursor: u64,
    /// What postings counted the oldest kept block as when it began.
    pub(in crate::chain) bound: u64,
    /// Entries that sweeps ever dropped.
    pub dropped: u64,
    /// Sweeps that ever came to their end.
    pub finished: u64,
}

impl Sweep {
    /// Words of the chain's cell.
    pub(in crate::chain) const WORDS: usize = 6;

    pub(in crate::chain) fn from_words(word: impl Fn(usize) -> u64) -> Self {
        Self { before: word(0), since: word(1), cursor: word(2), bound: word(3), dropped: word(4), finished: word(5) }
    }

    pub(in crate::chain) fn words(&self) -> [u64; Self::WORDS] {
        [self.before, self.since, self.cursor, self.bound, self.dropped, self.finished]
    }

    /// Entries at most that are stale.
    pub fn debt(&self) -> u64 {
        self.before.saturating_add(self.since)
    }

    /// The bucket with which the sweep that is under way goes on.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.checked_sub(1)
    }

    /// Goes on with a bucket, or ends the sweep that is under way.
    pub(in crate::chain) fn go_on(&mut self, next: Option<u64>) {
        match next {
            Some(bucket) => self.cursor = bucket + 1,
            None => {
                (self.before, self.since, self.cursor) = (self.since, 0, 0);
                self.finished += 1;
            }
        }
    }

    /// Notes that a block with so many references was pruned.
    pub(in crate::chain) fn owe(&mut self, references: u64) {
        let debt = if self.cursor == 0 { &mut self.before } else { &mut self.since };
        *debt = debt.saturating_add(references);
    }

    /// Notes that a stale entry is gone, of a block that postings count as `counted`.
    pub(in crate::chain) fn settle(&mut self, counted: u64) {
        let debt = if self.cursor == 0 || counted < self.bound { &mut self.before } else { &mut self.since };
        *debt = debt.saturating_sub(1);
    }
}
