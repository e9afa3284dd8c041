//! What pruning leaves in the indexes, and how that is dropped in bulk (`etl-parallel-pruning.md`, `docs/pruning-pipeline.md`).
//!
//! **Constraint.** Taking the entries of a block out one by one costs a search and a page for each, in the message that prunes
//! the block: with a million entries each lies on a page of its own.
//!
//! **Design.** Pruning a block only moves the bound, and readers take nothing below it for kept. What the block has in a table is
//! its *debt*: an upper bound of the entries that are stale, as those that newer postings have replaced count too. A *sweep* walks
//! the table's buckets in order, in slices, and drops each entry whose posting is below the bound. What is pruned while a sweep is
//! under way may lie behind it, so it is counted apart and is the debt of the next one.
//!
//! All of it is a few words of the chain's state, committed with each slice: nothing is on the heap, and nothing can be lost.

use crate::chain::records::BlockMeta;
use crate::chain::state::Sweep;
use crate::chain::store::ChainStore;
use crate::storage::HashTable;
use serde::{Deserialize, Serialize};

/// One of the two indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexTable {
    /// Transaction ids.
    Ids,
    /// Secondary keys.
    Keys,
}

impl IndexTable {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ids, Self::Keys];
}

/// What a table holds, and owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDebt {
    /// Entries, stale ones too.
    pub entries: u64,
    /// Primary buckets.
    pub buckets: u64,
    /// Entries at most that are stale.
    pub debt: u64,
    /// Whether a sweep is under way.
    pub sweeping: bool,
}

impl TableDebt {
    /// Entries at least that are of kept blocks.
    pub fn live(&self) -> u64 {
        self.entries.saturating_sub(self.debt)
    }
}

impl ChainStore {
    /// How far the sweep of a table is.
    pub fn sweep_state(&self, table: IndexTable) -> &Sweep {
        &self.state.sweeps[table as usize]
    }

    /// What a table holds, and owes.
    pub fn debt(&self, table: IndexTable) -> TableDebt {
        let stats = match table {
            IndexTable::Ids => self.index.stats(),
            IndexTable::Keys => self.keys.stats(),
        };
        let sweep = self.sweep_state(table);
        TableDebt {
            entries: stats.entries,
            buckets: stats.buckets,
            debt: sweep.debt(),
            sweeping: sweep.cursor().is_some(),
        }
    }

    /// Bytes of the buckets that ids lie in.
    #[cfg(feature = "bench")]
    pub fn index_bytes(&self) -> u64 {
        self.index.pages() * 4_096
    }

    /// A table and its sweep, which begins where none is under way.
    fn swept(&mut self, table: IndexTable) -> (&mut HashTable, &mut Sweep) {
        let bound = self.state.bound();
        let entries = match table {
            IndexTable::Ids => &mut self.index,
            IndexTable::Keys => &mut self.keys,
        };
        let sweep = &mut self.state.sweeps[table as usize];
        if sweep.cursor == 0 {
            (sweep.cursor, sweep.bound) = (1, bound);
        }
        (entries, sweep)
    }

    /// Goes on with the sweep of a table by one slice of 64 KiB, or begins one, and says how many entries went.
    pub fn sweep(&mut self, table: IndexTable) -> u64 {
        // Postings rise with their blocks, so one comparison of words decides.
        let stale_below = self.state.bound() << 24;
        let (entries, sweep) = self.swept(table);
        let late_from = sweep.bound << 24;
        let slice = entries.sweep(sweep.cursor - 1, stale_below, late_from);
        sweep.dropped += slice.dropped;
        sweep.since = sweep.since.saturating_sub(slice.late);
        sweep.before = sweep.before.saturating_sub(slice.dropped - slice.late);
        sweep.go_on(slice.next);
        self.save();
        slice.dropped
    }

    /// Has the sweep of a table go on behind the slice that comes next, without a look at it: for one that traps. What is stale in it stays
    /// until the next sweep.
    pub fn skip_slice(&mut self, table: IndexTable) {
        let (entries, sweep) = self.swept(table);
        sweep.go_on(entries.slice_behind(sweep.cursor - 1));
        self.save();
    }

    /// Notes the debt of a block that is pruned: of its references, and of those of damaged blocks before it that could not be told.
    /// `below`: references before the next block, by that one's record, which covers whatever is damaged before it.
    pub(in crate::chain) fn owe(&mut self, meta: Option<&BlockMeta>, below: Option<u64>) {
        let below = below.filter(|&below| below <= self.state.references);
        let known = meta.map_or(0, BlockMeta::references);
        let below = below.unwrap_or(self.state.pruned_references + known).max(self.state.pruned_references);
        let owed = below - self.state.pruned_references;
        self.state.pruned_references = below;
        let (ids, keys) = match meta {
            Some(meta) if meta.references() == owed => (u64::from(meta.transactions), u64::from(meta.keys)),
            // Which of them are ids nobody knows any more.
            _ => (owed, owed),
        };
        self.state.sweeps[0].owe(ids);
        if self.keys.stats().entries > 0 {
            self.state.sweeps[1].owe(keys);
        }
    }

    /// Notes that the posting was replaced, if it was stale.
    pub(in crate::chain) fn settle(&mut self, table: IndexTable, posting: u64) {
        let counted = posting >> 24;
        if counted < self.state.bound() {
            self.state.sweeps[table as usize].settle(counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pruned_during_a_sweep_is_the_next_ones_debt() {
        let mut sweep = Sweep::default();
        sweep.owe(10);
        (sweep.cursor, sweep.bound) = (1, 5);
        sweep.owe(4);
        assert_eq!((sweep.before, sweep.since, sweep.debt()), (10, 4, 14));
        sweep.settle(4);
        sweep.settle(5);
        assert_eq!((sweep.before, sweep.since), (9, 3));
        sweep.cursor = 0;
        sweep.settle(7);
        assert_eq!((sweep.before, sweep.since), (8, 3));
        let words = sweep.words();
        assert_eq!(Sweep::from_words(|i| words[i]), sweep);
        sweep.owe(u64::MAX);
        sweep.owe(u64::MAX);
        assert_eq!(sweep.debt(), u64::MAX, "nothing wraps");
    }
}
