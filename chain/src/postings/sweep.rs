//! Stale index entries of pruned blocks, and the sweeps that drop them in bulk (`etl-parallel-pruning.md`, `docs/design/pruning.md`).
//!
//! **Constraint.** Removing the entries of a block one by one, in the message that prunes the block, costs a search and a page for
//! each: with a million entries each lies on a page of its own.
//!
//! **Design.** Pruning a block only raises the bound, and readers ignore postings below the bound. The block's entries in a table
//! become *debt*: an upper bound of the stale entries, because entries that newer postings have replaced count too. A *sweep* walks
//! the table's buckets in order, in slices, and drops each entry whose posting is below the bound. Blocks that are pruned during a
//! sweep may have entries in buckets it has passed, so their references are counted apart and become the debt of the next sweep.
//!
//! The progress is a few words of the chain's state, committed with each slice; nothing is on the heap, so nothing can be lost. The
//! pruner decides when a sweep begins (`pruning/sweep.rs`).

use crate::header::BlockMeta;
use crate::state::Sweep;
use crate::store::ChainStore;
use ic_coppice_storage::Meter;
use ic_coppice_storage::table::{HashTable, SLICE_BUCKETS, Slice, TableStats};
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
    /// Both indexes.
    pub const ALL: [Self; 2] = [Self::Ids, Self::Keys];
}

/// Entries and debt of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDebt {
    /// Entries, including stale ones.
    pub entries: u64,
    /// Primary buckets.
    pub buckets: u64,
    /// Upper bound of the stale entries.
    pub debt: u64,
    /// True while a sweep is running.
    pub sweeping: bool,
}

impl TableDebt {
    /// Lower bound of the entries that belong to kept blocks.
    pub fn live(&self) -> u64 {
        self.entries.saturating_sub(self.debt)
    }
}

impl ChainStore {
    /// Progress of a table's sweep.
    pub fn sweep_state(&self, table: IndexTable) -> &Sweep {
        &self.state.sweeps[table as usize]
    }

    /// Entries and debt of a table.
    pub fn debt(&self, table: IndexTable) -> TableDebt {
        let TableStats { entries, buckets, .. } = match table {
            IndexTable::Ids => self.index.stats(),
            IndexTable::Keys => self.keys.stats(),
        };
        let sweep = self.sweep_state(table);
        TableDebt { entries, buckets, debt: sweep.debt(), sweeping: sweep.cursor().is_some() }
    }

    /// Returns a table and its sweep; starts a sweep if none is running.
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

    /// Returns the first bucket of the slice with which a table's sweep begins or continues.
    pub fn next_slice(&self, table: IndexTable) -> u64 {
        self.sweep_state(table).cursor().unwrap_or(0) / SLICE_BUCKETS * SLICE_BUCKETS
    }

    /// Sweeps one slice of 64 KiB, starting a sweep if none is running. The slice ends early if the meter has no room for a chain, or, while
    /// pages are counted, for a change that is not the table's first one.
    pub fn sweep(&mut self, table: IndexTable, meter: Meter) -> Slice {
        // Newer blocks have higher postings, so one comparison of words decides.
        let stale_below = self.state.bound() << 24;
        let (entries, sweep) = self.swept(table);
        let late_from = sweep.bound << 24;
        let slice = entries.sweep(sweep.cursor - 1, stale_below, late_from, meter);
        sweep.dropped += slice.dropped;
        sweep.since = sweep.since.saturating_sub(slice.late);
        sweep.before = sweep.before.saturating_sub(slice.dropped - slice.late);
        sweep.advance(slice.next);
        self.save();
        slice
    }

    /// Skips the rest of the sweep's next slice without reading it, for a slice that traps. Stale entries in the slice stay until the next sweep.
    pub fn skip_slice(&mut self, table: IndexTable) {
        let (entries, sweep) = self.swept(table);
        sweep.advance(entries.slice_after(sweep.cursor - 1));
        self.save();
    }

    /// Adds a pruned block to the debt: its references, and those of damaged blocks before it whose number was unknown. `below`: references
    /// before the next block according to that block's header, which include those of damaged blocks.
    pub(crate) fn owe(&mut self, meta: Option<&BlockMeta>, below: Option<u64>) {
        let below = below.filter(|&below| below <= self.state.references);
        let known = meta.map_or(0, BlockMeta::references);
        let below = below.unwrap_or(self.state.pruned_references + known).max(self.state.pruned_references);
        let owed = below - self.state.pruned_references;
        self.state.pruned_references = below;
        let (ids, keys) = match meta {
            Some(meta) if meta.references() == owed => (u64::from(meta.transactions), u64::from(meta.keys)),
            // The split into ids and keys is unknown, so both tables count all references.
            _ => (owed, owed),
        };
        self.state.sweeps[0].owe(ids);
        if self.keys.stats().entries > 0 {
            self.state.sweeps[1].owe(keys);
        }
    }

    /// Reduces the debt if the replaced posting was stale.
    pub(crate) fn settle(&mut self, table: IndexTable, posting: u64) {
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
    fn blocks_pruned_during_a_sweep_count_for_the_next_sweep() {
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
