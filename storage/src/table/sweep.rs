//! Bulk removal of entries: a walk over the buckets in order, a segment at a time.
//!
//! Removing an entry on its own costs a search and a page. A walk reads a segment of 128 buckets (64 KiB) at once, and writes
//! each changed bucket once, whatever the number of dropped entries: if one entry in nine is dropped, that is two per
//! bucket and fifteen per page. Only the changed part of a bucket is written. Overflow buckets lie on other pages, which
//! are not written unless one of their entries is dropped too.
//!
//! A walk may stop after any bucket and continue later, even after upgrades, while entries are added and removed. No entry is
//! missed, because entries move only forward: a split moves some to the last bucket, which the walk has yet to reach.

use super::bucket::{self, BUCKET, ENTRY, HEAD, SLOTS, TAGS};
use super::pool::{BucketRef, PAGE_BUCKETS};
use super::{Entry, HashTable};
use crate::Platform;

/// Result of one part of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The bucket at which the walk continues; `None` at the end.
    pub next: Option<u64>,
    /// Entries that were dropped.
    pub dropped: u64,
    /// Dropped entries whose value was not below the walk's first bound.
    pub late: u64,
}

impl<P: Platform> HashTable<P> {
    /// Drops the entries of one segment, from bucket `from` on, whose value is below `bound`. Also counts the dropped entries whose value
    /// is not below `first_bound`.
    pub fn sweep(&mut self, from: u64, bound: u64, first_bound: u64) -> Slice {
        let buckets = self.pool.header.buckets;
        let end = ((from / PAGE_BUCKETS + 1) * PAGE_BUCKETS).min(buckets);
        if from >= end {
            return Slice { next: None, dropped: 0, late: 0 };
        }
        let first = self.pool.primary(from);
        let mut bytes = self.pool.buckets(first, end - from);
        let (mut dropped, mut late, mut overflows) = (0, 0, false);
        for (bucket, bytes) in (first..).zip(bytes.as_chunks_mut::<{ BUCKET as usize }>().0) {
            let next = bucket::next_in(bytes);
            if next != 0 && !self.is_left_alone(next, bound) {
                let gone = self.sweep_chain(bucket, bound);
                overflows = true;
                dropped += gone.len() as u64;
                late += gone.iter().filter(|entry| entry.value >= first_bound).count() as u64;
                continue;
            }
            let stale = stale(bytes, bound);
            if stale != 0 {
                dropped += u64::from(stale.count_ones());
                late += late_among(bytes, stale, first_bound);
                let changed = drop_from(bytes, stale);
                self.pool.write_bucket(bucket, &bytes[..changed]);
            }
        }
        if dropped > 0 {
            self.pool.header.entries -= dropped;
            if overflows { self.pool.save() } else { self.pool.save_entries() }
        }
        Slice { next: (end < buckets).then_some(end), dropped, late }
    }

    /// Returns the bucket at which a walk continues after the segment of bucket `from`, or `None` at the end.
    pub fn slice_after(&self, from: u64) -> Option<u64> {
        let end = (from / PAGE_BUCKETS + 1) * PAGE_BUCKETS;
        (end < self.pool.header.buckets).then_some(end)
    }

    /// Returns whether an overflow bucket is the only one of its chain, and has no entry to drop.
    fn is_left_alone(&self, overflow: BucketRef, bound: u64) -> bool {
        let head = self.pool.head(overflow);
        if head.next() != 0 {
            return false;
        }
        let mut entries = Vec::with_capacity(SLOTS);
        self.pool.entries_onto(overflow, head.count(), &mut entries);
        entries.iter().all(|entry| entry.value >= bound)
    }

    /// Drops entries of one chain with overflow buckets, packs the chain, and returns the dropped entries.
    #[cold]
    fn sweep_chain(&mut self, primary: BucketRef, bound: u64) -> Vec<Entry> {
        let (all, mut spare) = self.read_chain(primary);
        let (kept, gone): (Vec<Entry>, Vec<Entry>) = all.into_iter().partition(|entry| entry.value >= bound);
        if !gone.is_empty() {
            self.write_chain(primary, &kept, &mut spare);
            spare.into_iter().for_each(|bucket| self.pool.give_overflow(bucket));
        }
        gone
    }
}

/// Returns the entries of a bucket.
fn entries(bytes: &[u8; BUCKET as usize]) -> &[[u8; ENTRY]] {
    &bytes[HEAD..].as_chunks().0[..bucket::count_in(bytes)]
}

/// Returns a bit for each slot of a bucket whose value is below `bound`.
fn stale(bytes: &[u8; BUCKET as usize], bound: u64) -> u32 {
    const { assert!(SLOTS <= 32) };
    let each = (0..SLOTS as u32).zip(entries(bytes));
    each.fold(0, |stale, (slot, entry)| stale | u32::from(Entry::decode(*entry).value < bound).wrapping_shl(slot))
}

/// Returns the number of these slots whose value is not below `first_bound`.
fn late_among(bytes: &[u8; BUCKET as usize], mut slots: u32, first_bound: u64) -> u64 {
    let (entries, mut late) = (entries(bytes), 0);
    while slots != 0 {
        late += u64::from(Entry::decode(entries[slots.trailing_zeros() as usize]).value >= first_bound);
        slots &= slots - 1;
    }
    late
}

/// Removes the entries in these slots from a bucket, fills the holes with its last entries, and returns the number of changed bytes.
fn drop_from(bytes: &mut [u8; BUCKET as usize], mut stale: u32) -> usize {
    let count = bucket::count_in(bytes);
    let (head, entries) = bytes.split_at_mut(HEAD);
    let entries = &mut entries.as_chunks_mut::<ENTRY>().0[..count];
    let tags = &mut head[TAGS..].as_chunks_mut::<2>().0[..count];
    let (mut left, mut end) = (count, 0);
    while stale != 0 {
        left -= 1;
        if stale & 1 << left == 0 {
            let hole = stale.trailing_zeros() as usize;
            (entries[hole], tags[hole]) = (entries[left], tags[left]);
            end = hole + 1;
            stale &= stale - 1;
        } else {
            stale &= !(1 << left);
        }
    }
    bucket::set_count_in(bytes, left);
    HEAD + end * ENTRY
}

#[cfg(test)]
mod tests {
    use super::super::TableStats;
    use super::*;
    use crate::fixture;
    use crate::twin::Twin;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn open() -> HashTable<Twin> {
        HashTable::open(fixture::region(fixture::INDEX), 1).unwrap()
    }

    fn fresh() -> HashTable<Twin> {
        crate::twin::reset();
        fixture::forget();
        open()
    }

    #[test]
    fn walk_drops_stale_entries_only() {
        let mut table = fresh();
        let n = 50_000u64;
        let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
        for i in 0..n {
            table.put(hash(&table, i), i).unwrap();
        }
        let TableStats { buckets, .. } = table.stats();
        let (mut from, mut slices, mut dropped, mut late) = (0, 0, 0, 0);
        loop {
            let slice = table.sweep(from, n / 9, n / 18);
            slices += 1;
            (dropped, late) = (dropped + slice.dropped, late + slice.late);
            let Some(next) = slice.next else { break };
            assert!(next > from);
            from = next;
        }
        assert_eq!((slices, dropped, late), (buckets.div_ceil(PAGE_BUCKETS), n / 9, n / 9 - n / 18));
        for i in 0..n {
            assert_eq!(table.get(hash(&table, i)), (i >= n / 9).then_some(i));
        }
        assert_eq!(table.sweep(buckets, u64::MAX, 0), Slice { next: None, dropped: 0, late: 0 });
        while table.sweep(0, u64::MAX, 0).dropped > 0 {}
        let mut from = Some(0);
        while let Some(at) = from {
            from = table.sweep(at, u64::MAX, 0).next;
        }
        assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets });
    }

    proptest! {
        /// Entries are added, changed and removed during a walk, with long and short chains, reopened in between. Entries that are not
        /// stale are kept, and at the end of the walk no entry is left that was stale when it began.
        #[test]
        fn a_walk_among_changes_agrees_with_a_map(
            narrow in any::<bool>(),
            steps in prop::collection::vec((0u8..8, any::<u64>()), 1..3000),
        ) {
            let mut table = fresh();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            let (mut clock, mut walk) = (0u64, None);
            // Enough entries for walks of several slices.
            for hash in (0..6000 * u64::from(!narrow)).step_by(2) {
                clock += 1;
                table.put(hash, clock).unwrap();
                model.insert(hash, clock);
            }
            for (kind, random) in steps {
                let hash = if narrow { random % 97 * 128 } else { random % 6000 };
                clock += 1;
                match kind {
                    0..=4 => prop_assert_eq!(table.put(hash, clock).unwrap(), model.insert(hash, clock)),
                    5 => {
                        table.change(hash, |_| super::super::Change::Out);
                        model.remove(&hash);
                    }
                    6 => {
                        let (from, bound) = walk.unwrap_or((0, clock.saturating_sub(random % 400)));
                        let slice = table.sweep(from, bound, bound);
                        prop_assert_eq!(slice.late, 0);
                        // The table may drop a stale entry at any time, but no other entry.
                        let before = model.len();
                        model.retain(|&hash, &mut value| value >= bound || table.get(hash).is_some());
                        prop_assert_eq!((before - model.len()) as u64, slice.dropped);
                        walk = slice.next.map(|next| (next, bound));
                        if walk.is_none() {
                            prop_assert!(model.values().all(|&value| value >= bound), "a stale entry was missed");
                        }
                    }
                    _ => {
                        drop(table);
                        fixture::forget();
                        table = open();
                    }
                }
            }
            prop_assert_eq!(table.stats().entries, model.len() as u64);
            for (&hash, &value) in &model {
                prop_assert_eq!(table.get(hash), Some(value));
            }
        }
    }
}
