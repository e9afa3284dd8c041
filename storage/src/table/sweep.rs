//! Bulk removal of entries: a walk over the buckets in order, a segment at a time.
//!
//! Removing an entry on its own costs a search and a page. A walk reads a segment of 128 buckets (64 KiB) at once, and writes
//! each changed bucket once, whatever the number of dropped entries: if one entry in nine is dropped, that is two per
//! bucket and fifteen per page. Only the changed part of a bucket is written. Overflow buckets lie on other pages, which
//! are not written unless one of their entries is dropped too.
//!
//! A walk may stop after any bucket and continue later, even after upgrades, while entries are added and removed. No entry is
//! missed: a split moves entries only forward, to the last bucket, which the walk has yet to reach. So a slice can stop at any bucket, too,
//! before it changes more pages than a message should. The number of pages is known before a bucket is changed, because its chain was read.
//!
//! If the table is sparse, a slice also undoes splits, from the last bucket backwards. Entries come from a bucket that the walk has yet to
//! reach to one that it may have passed, so the stale entries of both are dropped on the way. A walk that has passed the last bucket goes on
//! until the table is not sparse any more:
//!
//! ```text
//! buckets  ├── swept ──▶│ from ……………… │◀── undone ──┤
//! ```

use super::bucket::{self, BUCKET, ENTRY, HEAD, SLOTS, TAGS};
use super::overflow::OF_OVERFLOW;
use super::pool::{BucketRef, PAGE_BUCKETS};
use super::resize::Unsplit;
use super::{Entry, HashTable};
use crate::{Meter, OS_PAGE, Platform};

/// Most splits that one slice undoes. These splits read two segments and write one, as splits and sweeps of as many buckets do.
const UNSPLITS: u64 = PAGE_BUCKETS;
/// Buckets in a page of 4 KiB.
const PAGE_OF_BUCKETS: BucketRef = (OS_PAGE / BUCKET) as BucketRef;
/// Pages of the bucket and of the header that dropping entries of one bucket changes at most.
const OF_BUCKET: u64 = 2;

/// Result of one part of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The bucket at which the walk continues; `None` at the end. After a walk that has passed the last bucket of a sparse table, it is the
    /// number of buckets, which falls with each slice. The bucket at which the slice began, if there was no room for its first change.
    pub next: Option<u64>,
    /// Entries that were dropped.
    pub dropped: u64,
    /// Dropped entries whose value was not below the walk's first bound.
    pub late: u64,
    /// Pages of 4 KiB that were read; a page may count several times.
    pub read: u64,
}

impl Slice {
    // Inlined, because the counts of the hot loop then stay out of memory.
    #[inline(always)]
    fn add(&mut self, gone: &[Entry], first_bound: u64) {
        self.dropped += gone.len() as u64;
        self.late += gone.iter().filter(|entry| entry.value >= first_bound).count() as u64;
    }
}

impl<P: Platform> HashTable<P> {
    /// Drops the entries of one segment, from bucket `from` on, whose value is below `bound`. Also counts the dropped entries whose value
    /// is not below `first_bound`. Then undoes some splits if the table is sparse.
    ///
    /// The slice stops at a chain, or at a split, for which the meter has no time. While changed pages are counted
    /// ([`Counting`](crate::Counting)), the slice also stops before it changes more pages than the meter has room for, unless it is about
    /// to make the loop's first change. So a chain that is longer than any room is swept all the same.
    pub fn sweep(&mut self, from: u64, bound: u64, first_bound: u64, mut meter: Meter<P>) -> Slice {
        let mut slice = self.sweep_segment(from, bound, first_bound, &mut meter);
        if slice.next.is_some() {
            return slice;
        }
        for _ in 0..UNSPLITS {
            if !self.is_sparse() || !meter.has_time() {
                break;
            }
            match self.unsplit(bound, &meter) {
                Unsplit::Done { gone, overflows } => {
                    slice.add(&gone, first_bound);
                    slice.read += 4 + 2 * overflows;
                }
                Unsplit::Full => break,
                Unsplit::Refused => return Slice { next: self.slice_after(from), ..slice },
            }
        }
        let rest = || self.is_sparse().then_some(self.pool.header.buckets);
        slice.next = self.slice_after(from).or_else(rest);
        slice
    }

    /// Sweeps one segment, from bucket `from` on. The result continues at a bucket of the segment if there was no room for its change.
    fn sweep_segment(&mut self, from: u64, bound: u64, first_bound: u64, meter: &mut Meter<P>) -> Slice {
        let end = ((from / PAGE_BUCKETS + 1) * PAGE_BUCKETS).min(self.pool.header.buckets);
        if from >= end {
            return Slice::default();
        }
        let first = self.pool.primary(from);
        if !self.pool.owns(first) {
            // Its entries stay, but the others are swept.
            return Slice::default();
        }
        let mut bytes = self.pool.buckets(first, end - from);
        let mut slice = Slice { read: bytes.len() as u64 / OS_PAGE + 3, ..Slice::default() };
        let (mut overflows, mut counted, mut stopped) = (false, None, None);
        for (bucket, bytes) in (first..).zip(bytes.as_chunks_mut::<{ BUCKET as usize }>().0) {
            let next = bucket::next_of(bytes);
            if next != 0 {
                slice.read += 1;
                if !meter.has_time() {
                    stopped = Some(bucket);
                    break;
                }
                if !self.is_left_alone(next, bound) {
                    let Some((gone, overflow)) = self.sweep_chain(bucket, bound, meter) else {
                        stopped = Some(bucket);
                        break;
                    };
                    overflows = true;
                    slice.add(&gone, first_bound);
                    slice.read += 2 * overflow;
                    continue;
                }
            }
            let stale = stale(bytes, bound);
            if stale != 0 {
                let page = Some(bucket / PAGE_OF_BUCKETS);
                if page != counted {
                    if meter.is_full(OF_BUCKET) {
                        stopped = Some(bucket);
                        break;
                    }
                    counted = page;
                }
                slice.dropped += u64::from(stale.count_ones());
                slice.late += late_among(bytes, stale, first_bound);
                let changed = drop_from(bytes, stale);
                self.pool.write_bucket(bucket, &bytes[..changed]);
            }
        }
        if slice.dropped > 0 {
            self.pool.drop_entries(slice.dropped);
            if overflows { self.pool.save() } else { self.pool.save_entries() }
        }
        Slice { next: stopped.map(|bucket| from + u64::from(bucket - first)), ..slice }
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

    /// Drops entries of one chain with overflow buckets, packs the chain, and returns the dropped entries and the number of overflow buckets.
    /// Returns `None`, and changes nothing, if there is no room.
    #[cold]
    fn sweep_chain(&mut self, primary: BucketRef, bound: u64, meter: &Meter<P>) -> Option<(Vec<Entry>, u64)> {
        let (all, mut spare) = self.read_chain(primary);
        let overflow = spare.len() as u64;
        let (kept, gone): (Vec<Entry>, Vec<Entry>) = all.into_iter().partition(|entry| entry.value >= bound);
        if !gone.is_empty() {
            if meter.is_full(OF_BUCKET + OF_OVERFLOW * overflow) {
                return None;
            }
            self.write_chain(primary, &kept, &mut spare);
            spare.into_iter().for_each(|bucket| self.pool.give_overflow(bucket));
        }
        Some((gone, overflow))
    }
}

/// Returns the entries of a bucket.
fn entries(bytes: &[u8; BUCKET as usize]) -> &[[u8; ENTRY]] {
    &bytes[HEAD..].as_chunks().0[..bucket::count_of(bytes)]
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
    let count = bucket::count_of(bytes);
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
    bucket::set_count(bytes, left);
    HEAD + end * ENTRY
}
