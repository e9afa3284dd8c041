//! Dropping entries in bulk: a walk over the buckets in their order, a segment at a time.
//!
//! An entry that is dropped by itself costs a search and a page. A walk reads a segment of 128 buckets (64 KiB) at once and
//! writes each bucket from which something goes once, whatever goes from it: with one entry in nine to drop that is two a
//! bucket and fifteen a page. Only what is left of a bucket is written.
//!
//! A walk may stop behind any bucket and go on later, over upgrades too, while entries come and go. Nothing is missed, as
//! entries move in one way only: a split moves some to the bucket behind all others, which the walk has still before it.

use super::bucket::{BUCKET, ENTRY, HEAD, Head, entry_offset};
use super::pool::PAGE_BUCKETS;
use super::{Entry, HashTable};

/// What a part of a walk did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The bucket with which the walk goes on; `None` where it was at its end.
    pub next: Option<u64>,
    /// Entries that were dropped.
    pub dropped: u64,
}

impl HashTable {
    /// Drops the entries of one segment, from bucket `from` on, whose value `is_stale`.
    pub fn sweep(&mut self, from: u64, mut is_stale: impl FnMut(u64) -> bool) -> Slice {
        let buckets = self.pool.header.buckets;
        let end = ((from / PAGE_BUCKETS + 1) * PAGE_BUCKETS).min(buckets);
        if from >= end {
            return Slice { next: None, dropped: 0 };
        }
        let first = self.pool.primary(from);
        let mut bytes = self.pool.buckets(first, end - from);
        let (mut dropped, mut overflows) = (0, false);
        for (bucket, bytes) in (first..).zip(bytes.as_chunks_mut::<{ BUCKET as usize }>().0) {
            let head = Head::decode(*bytes.first_chunk::<HEAD>().expect("a bucket begins with its head"));
            if head.next() != 0 {
                let gone = self.sweep_chain(bucket, &mut is_stale);
                overflows |= gone > 0;
                dropped += gone;
                continue;
            }
            let left = drop_from(bytes, head, &mut is_stale);
            if left < head.count() {
                dropped += (head.count() - left) as u64;
                self.pool.write_bucket(bucket, &bytes[..HEAD + left * ENTRY]);
            }
        }
        if dropped > 0 {
            self.pool.header.entries -= dropped;
            if overflows { self.pool.save() } else { self.pool.save_entries() }
        }
        Slice { next: (end < buckets).then_some(end), dropped }
    }

    /// The same of one chain with overflow buckets, which stays packed.
    #[cold]
    fn sweep_chain(&mut self, primary: u32, is_stale: &mut impl FnMut(u64) -> bool) -> u64 {
        let (all, mut spare) = self.read_chain(primary);
        let kept: Vec<Entry> = all.iter().copied().filter(|entry| !is_stale(entry.value)).collect();
        let dropped = (all.len() - kept.len()) as u64;
        if dropped > 0 {
            self.write_chain(primary, &kept, &mut spare);
            spare.into_iter().for_each(|bucket| self.pool.give_overflow(bucket));
        }
        dropped
    }
}

/// Takes entries out of a bucket that has no overflow, puts the last ones into the holes, and says how many are left.
fn drop_from(bytes: &mut [u8; BUCKET as usize], mut head: Head, is_stale: &mut impl FnMut(u64) -> bool) -> usize {
    let count = head.count();
    let (mut slot, mut left) = (0, count);
    while slot < left {
        let at = entry_offset(slot) as usize;
        let entry = Entry::decode(*bytes[at..].first_chunk().expect("a slot lies in its bucket"));
        if !is_stale(entry.value) {
            slot += 1;
            continue;
        }
        left -= 1;
        head.pop();
        if slot < left {
            let last = entry_offset(left) as usize;
            let moved: [u8; ENTRY] = *bytes[last..].first_chunk().expect("a slot lies in its bucket");
            bytes[at..at + ENTRY].copy_from_slice(&moved);
            head.replace(slot, Entry::decode(moved).hash);
        }
    }
    if left < count {
        bytes[..HEAD].copy_from_slice(head.bytes());
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::TableStats;
    use super::*;
    use crate::memory::{self, TRANSACTION_INDEX};
    use crate::runtime::native;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn open() -> HashTable {
        HashTable::open(memory::region(TRANSACTION_INDEX), 1).unwrap()
    }

    fn fresh() -> HashTable {
        native::reset();
        memory::forget();
        open()
    }

    #[test]
    fn a_walk_drops_what_is_stale_and_nothing_else() {
        let mut table = fresh();
        let n = 50_000u64;
        let hash = |table: &HashTable, i: u64| table.hash(&i.to_le_bytes());
        for i in 0..n {
            table.put(hash(&table, i), i).unwrap();
        }
        let TableStats { buckets, .. } = table.stats();
        let (mut from, mut slices, mut dropped) = (0, 0, 0);
        loop {
            let slice = table.sweep(from, |value| value < n / 9);
            slices += 1;
            dropped += slice.dropped;
            let Some(next) = slice.next else { break };
            assert!(next > from);
            from = next;
        }
        assert_eq!((slices, dropped), (buckets.div_ceil(PAGE_BUCKETS), n / 9));
        for i in 0..n {
            assert_eq!(table.get(hash(&table, i)), (i >= n / 9).then_some(i));
        }
        assert_eq!(table.sweep(buckets, |_| true), Slice { next: None, dropped: 0 });
        while table.sweep(0, |_| true).dropped > 0 {}
        let mut from = Some(0);
        while let Some(at) = from {
            from = table.sweep(at, |_| true).next;
        }
        assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, buckets });
    }

    proptest! {
        /// Entries come, change and go while a walk goes on, with long chains and short ones, re-opened in between: what is
        /// not stale is there, and when the walk is at its end nothing is there that was stale when it began.
        #[test]
        fn a_walk_among_changes_agrees_with_a_map(
            narrow in any::<bool>(),
            steps in prop::collection::vec((0u8..8, any::<u64>()), 1..3000),
        ) {
            let mut table = fresh();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            let (mut clock, mut walk) = (0u64, None);
            // Enough for walks of several slices.
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
                        let slice = table.sweep(from, |value| value < bound);
                        // The table may drop a stale entry sooner or later, but no other.
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
                        memory::forget();
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
