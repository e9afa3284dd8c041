//! Growing and shrinking: a split moves entries of one bucket to a new last bucket, and undoing it moves them back.
//!
//! ```text
//! buckets = 2^k + i        0 … i-1      i          … 2^k-1      2^k … 2^k+i-1
//!                          split        next to split           their other halves
//! ```
//! The chain of bucket `b` is split to `b` and `b + 2^k` by bit `k` of the hash. A table is split above [`LOAD`] percent, and undone below
//! [`SPARSE`] percent, so that no entry makes both necessary in turn.

use super::bucket::{Entry, SLOTS, bucket_of};
use super::overflow::OF_OVERFLOW;
use super::pool::{BucketRef, PAGE_BUCKETS};
use super::{HashTable, LOAD};
use crate::{Meter, Platform};

/// Entries per hundred primary slots below which splits are undone.
const SPARSE: u64 = 25;

/// Pages that undoing a split changes at most, besides those of overflow buckets: two buckets, an overflow page that is taken, a segment
/// that is given back, and the header.
const OF_UNSPLIT: u64 = 15;

/// Result of undoing a split.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsplit {
    /// The split is undone.
    Done {
        /// Dropped entries.
        gone: Vec<Entry>,
        /// Overflow buckets that both chains had or have.
        overflows: u64,
    },
    /// The step would change more pages than the message has room for. Nothing has changed.
    Full,
    /// A page is damaged, or memory is refused: the joined chain may need one overflow bucket more. Nothing has changed.
    Refused,
}

impl<P: Platform> HashTable<P> {
    /// Returns whether the table is full enough for a split. A table has at most 2^33 entries, so the products do not overflow. Checked
    /// 64-bit products are calls of a hundred instructions.
    #[inline(always)]
    pub(super) fn is_dense(&self) -> bool {
        let header = &self.pool.header;
        header.entries.wrapping_mul(100) > header.buckets.wrapping_mul(LOAD * SLOTS as u64)
    }

    /// Returns whether a split is to be undone.
    #[inline(always)]
    pub(super) fn is_sparse(&self) -> bool {
        let header = &self.pool.header;
        header.entries.wrapping_mul(100) < header.buckets.wrapping_mul(SPARSE * SLOTS as u64)
            && header.buckets > PAGE_BUCKETS
    }

    /// Splits the next bucket in turn. If memory is refused, the split is left to a later insertion, and the table only gets denser.
    pub(super) fn split(&mut self) {
        let new = self.pool.header.buckets;
        let round = 1 << (63 - new.leading_zeros());
        let old = self.pool.primary(new - round);
        let (all, mut spare) = self.read_chain(old);
        if new.is_multiple_of(PAGE_BUCKETS) && self.pool.add_segment(new / PAGE_BUCKETS).is_err() {
            return;
        }
        let (stay, go): (Vec<Entry>, Vec<Entry>) = all.iter().partition(|entry| entry.hash & round == 0);
        self.write_chain(old, &stay, &mut spare);
        self.write_chain(self.pool.primary(new), &go, &mut spare);
        spare.into_iter().for_each(|bucket| self.pool.give_overflow(bucket));
        self.pool.header.buckets += 1;
        self.pool.save();
    }

    /// Undoes the last split, drops the entries of both chains whose value is below `bound`, and returns them. Gives back the page of the
    /// last segment if it has no bucket left. No effect if the meter is full.
    pub(super) fn unsplit(&mut self, bound: u64, meter: &Meter<P>) -> Unsplit {
        let last = self.pool.header.buckets - 1;
        let round = 1 << (63 - last.leading_zeros());
        let (old, new) = (self.pool.primary(last - round), self.pool.primary(last));
        if !self.pool.owns(old) || !self.pool.owns(new) {
            return Unsplit::Refused;
        }
        let ((mut all, mut spare), (more, others)) = (self.read_chain(old), self.read_chain(new));
        all.extend(more);
        spare.extend(others);
        let mut overflows = spare.len() as u64;
        if meter.is_full(OF_UNSPLIT + OF_OVERFLOW * overflows) {
            return Unsplit::Full;
        }
        let (kept, gone): (Vec<Entry>, Vec<Entry>) = all.into_iter().partition(|entry| entry.value >= bound);
        if kept.len() > SLOTS * (1 + spare.len()) {
            let Ok(more) = self.pool.take_overflow() else { return Unsplit::Refused };
            spare.push(more);
            overflows += 1;
        }
        self.write_chain(old, &kept, &mut spare);
        spare.into_iter().for_each(|bucket| self.pool.give_overflow(bucket));
        if last.is_multiple_of(PAGE_BUCKETS) {
            self.pool.drop_segment(last / PAGE_BUCKETS);
        }
        self.pool.header.buckets = last;
        self.pool.drop_entries(gone.len() as u64);
        self.pool.save();
        Unsplit::Done { gone, overflows }
    }

    /// Reads a chain. A link that leads to a page that is not the table's, or makes the chain longer than all chains, ends it: the entries
    /// behind it are lost, but nothing else waits for them.
    pub(super) fn read_chain(&self, primary: BucketRef) -> (Vec<Entry>, Vec<BucketRef>) {
        let mut all = Vec::with_capacity(2 * SLOTS);
        let (mut overflow, mut at) = (Vec::new(), primary);
        loop {
            let head = self.pool.head(at);
            self.pool.entries_onto(at, head.count(), &mut all);
            at = head.next();
            if at == 0 || !self.pool.owns(at) || overflow.len() >= self.pool.header.overflow_used as usize {
                return (all, overflow);
            }
            overflow.push(at);
        }
    }

    /// Writes a chain from its end, with overflow buckets from `spare`. Two packed chains never need more overflow buckets than the one
    /// they came from.
    pub(super) fn write_chain(&mut self, primary: BucketRef, entries: &[Entry], spare: &mut Vec<BucketRef>) {
        let (first, rest) = entries.split_at(entries.len().min(SLOTS));
        let mut next = 0;
        // Full buckets lie after the bucket that has room.
        for chunk in rest.chunks(SLOTS) {
            let Some(bucket) = spare.pop() else {
                P::trap("hash table: a split needs more buckets than its chain had")
            };
            self.pool.write_bucket(bucket, &bucket_of(chunk, next));
            next = bucket;
        }
        self.pool.write_bucket(primary, &bucket_of(first, next));
    }
}
