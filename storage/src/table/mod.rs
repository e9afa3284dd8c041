//! Hash table in stable memory: maps a 64-bit hash to one 64-bit value, or to any number of values.
//!
//! **Constraint.** An index entry must cost a small multiple of a raw write at any size, an insertion must never rebuild
//! the table, and newer replicas charge for each 4 KiB page touched. A B-tree reads and rewrites several nodes for a key.
//!
//! **Design.** Linear hashing: an insertion splits one bucket if the table is fuller than `LOAD` percent, so no operation
//! depends on the table's size. A bucket has 512 bytes (eight to a page). Its head has a 16-bit tag for each entry, so that
//! a search reads 64 bytes and the entries whose tag matches. Keys are not stored: an entry is the key's seeded 64-bit hash
//! (XXH3) and a word of the owner, who verifies a candidate against the key where the key is stored anyway. Several entries
//! may share a hash, so a key may occur several times.
//! Buckets that fill up before their turn to split get overflow buckets. A chain is packed: only its primary bucket (after a
//! sweep) and the overflow bucket added last may have room, so an insertion looks at no more than two buckets. Memory of splits
//! and overflow is never given back to the region, but reused.
//!
//! The seed is derived at creation from time and canister id. It is not a secret: a producer that searches for colliding ids
//! only makes its own chains longer.
//!
//! There are two ways to use a table, and an owner uses only one of them. [`put`](HashTable::put), [`get`](HashTable::get) and
//! [`sweep`](HashTable::sweep) keep one value per hash. [`insert`](HashTable::insert), [`visit`](HashTable::visit) and
//! [`remove`](HashTable::remove) keep any number; removing the oldest of `n` equal hashes reads up to `n / 28` buckets.

mod bucket;
mod pool;
mod sweep;

pub use sweep::Slice;

use crate::{GrowError, OpenError, Platform, Region};
use bucket::{BUCKET, Entry, Head, SLOTS};
use pool::{BucketRef, Header, PAGE_BUCKETS, Pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries per hundred primary slots at which the table grows.
const LOAD: u64 = 60;

/// Returns whether two 32-byte keys are equal. Compares words, because comparing bytes takes several times as many instructions.
#[inline(always)]
pub fn same_key(a: &[u8; 32], b: &[u8; 32]) -> bool {
    fn words(key: &[u8; 32]) -> impl Iterator<Item = u64> {
        key.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
    }
    words(a).zip(words(b)).all(|(a, b)| a == b)
}

/// Fill statistics of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Entries.
    pub entries: u64,
    /// Primary buckets of 28 entries.
    pub buckets: u64,
    /// Overflow buckets in use.
    pub overflow_buckets: u64,
}

/// Decision about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Keep the value.
    Keep,
    /// Replace the value.
    To(u64),
    /// Remove the value.
    Out,
}

/// A table from hashes to words.
pub struct HashTable<P: Platform> {
    pool: Pool<P>,
    /// Number of insertions before one is refused.
    #[cfg(any(test, feature = "testing"))]
    failing_in: Option<u64>,
}

impl<P: Platform> HashTable<P> {
    /// Opens the table of a region, or creates an empty one there.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(region: Region<P>, hash_seed: u64) -> Result<Self, OpenError> {
        let pool = if region.is_empty() {
            Pool::create(region, hash_seed).map_err(|why| OpenError::Grow { name: pool::LAYOUT.name, why })?
        } else {
            Pool::open(region)?
        };
        Ok(Self {
            pool,
            #[cfg(any(test, feature = "testing"))]
            failing_in: None,
        })
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.pool.header.hash_seed)
    }

    /// Returns the fill statistics.
    pub fn stats(&self) -> TableStats {
        let header = self.pool.header;
        TableStats {
            entries: header.entries,
            buckets: header.buckets,
            overflow_buckets: u64::from(header.overflow_used),
        }
    }

    /// Pages of 4 KiB that hold entries.
    pub fn pages(&self) -> u64 {
        let header = self.pool.header;
        (header.buckets + u64::from(header.overflow_used)) * BUCKET / 4_096
    }

    /// Grows memory for `count` more entries with evenly distributed hashes.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn reserve(&self, count: u64) -> Result<(), GrowError> {
        let buckets = (self.pool.header.entries + count) * 100 / (LOAD * SLOTS as u64) + 1;
        let splits = buckets.saturating_sub(self.pool.header.buckets);
        // No more than one bucket in eight overflows, and fewer for small counts.
        self.pool.reserve(splits.div_ceil(PAGE_BUCKETS) + count / 8 / PAGE_BUCKETS + 2)
    }

    /// The primary bucket of a hash: its low bits, with one more bit for buckets that are already split.
    #[inline]
    fn bucket_of(&self, hash: u64) -> u64 {
        let buckets = self.pool.header.buckets;
        // A table has from 128 to 2^26 buckets, so the arithmetic does not overflow.
        let round = 1_u64.wrapping_shl(63_u32.wrapping_sub(buckets.leading_zeros()));
        let wide = hash & round.wrapping_mul(2).wrapping_sub(1);
        if wide < buckets { wide } else { hash & round.wrapping_sub(1) }
    }

    /// Adds an entry. An equal entry may exist already.
    ///
    /// # Errors
    /// [`GrowError`] if an overflow bucket is needed and memory has no room for it (very unlikely after `reserve`); nothing has changed.
    pub fn insert(&mut self, hash: u64, value: u64) -> Result<(), GrowError> {
        #[cfg(any(test, feature = "testing"))]
        if self.refuses() {
            return Err(GrowError::OutOfSpace);
        }
        let primary = self.pool.primary(self.bucket_of(hash));
        let head = self.pool.head(primary);
        self.add(primary, head, Entry { hash, value })
    }

    /// Adds an entry to the chain of a primary bucket with this head.
    #[inline]
    fn add(&mut self, primary: BucketRef, head: Head, entry: Entry) -> Result<(), GrowError> {
        if head.count() < SLOTS {
            self.push(primary, head, entry);
        } else {
            self.insert_overflow(primary, head, entry)?;
        }
        self.pool.header.entries += 1;
        self.pool.save_entries();
        // A table has at most 2^33 entries, so these products do not overflow. Checked 64-bit products are calls of a hundred instructions.
        let Header { entries, buckets, .. } = self.pool.header;
        if entries.wrapping_mul(100) > buckets.wrapping_mul(LOAD * SLOTS as u64) {
            self.split();
        }
        Ok(())
    }

    /// Refuses insertions after `count` more.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail_after(&mut self, count: u64) {
        self.failing_in = Some(count);
    }

    #[cfg(any(test, feature = "testing"))]
    fn refuses(&mut self) -> bool {
        let refuses = self.failing_in == Some(0);
        self.failing_in = self.failing_in.and_then(|left| left.checked_sub(1));
        refuses
    }

    #[inline]
    fn push(&self, bucket: BucketRef, mut head: Head, entry: Entry) {
        let slot = head.push(entry.hash);
        self.pool.set_entry(bucket, slot, entry);
        self.pool.set_head(bucket, &head);
    }

    fn insert_overflow(&mut self, primary: BucketRef, mut head: Head, entry: Entry) -> Result<(), GrowError> {
        if head.next() != 0 {
            let first = self.pool.head(head.next());
            if first.count() < SLOTS {
                self.push(head.next(), first, entry);
                return Ok(());
            }
        }
        let new = self.pool.take_overflow()?;
        self.push(new, Head::new(head.next()), entry);
        head.set_next(new);
        self.pool.set_head(primary, &head);
        self.pool.save();
        Ok(())
    }

    /// Calls `visit` with every value under `hash`, in no particular order.
    #[inline(always)]
    pub fn visit(&self, hash: u64, mut visit: impl FnMut(u64)) {
        let mut at = self.pool.primary(self.bucket_of(hash));
        loop {
            let head = self.pool.head(at);
            for slot in head.candidates(hash) {
                let entry = self.pool.entry(at, slot);
                if entry.hash == hash {
                    visit(entry.value);
                }
            }
            at = head.next();
            if at == 0 {
                return;
            }
        }
    }

    /// Removes one entry, and returns whether it existed.
    pub fn remove(&mut self, hash: u64, value: u64) -> bool {
        self.change(hash, |there| if there == value { Change::Out } else { Change::Keep }).is_some()
    }

    /// Applies `decide` to the values under `hash` until one is changed, and returns that value. Nothing is written if all are kept.
    #[inline]
    pub fn change(&mut self, hash: u64, mut decide: impl FnMut(u64) -> Change) -> Option<u64> {
        let primary = self.pool.primary(self.bucket_of(hash));
        let first = self.pool.head(primary);
        let (mut at, mut head) = (primary, first);
        loop {
            for slot in head.candidates(hash) {
                let entry = self.pool.entry(at, slot);
                if entry.hash != hash {
                    continue;
                }
                match decide(entry.value) {
                    Change::Keep => continue,
                    Change::To(value) => self.pool.set_entry(at, slot, Entry { hash, value }),
                    Change::Out => {
                        self.fill_hole((primary, first), (at, head, slot));
                        self.pool.header.entries -= 1;
                        self.pool.save_entries();
                    }
                }
                return Some(entry.value);
            }
            at = head.next();
            if at == 0 {
                return None;
            }
            head = self.pool.head(at);
        }
    }

    /// Returns the value under `hash`, in a table with one value per hash.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u64> {
        let mut found = None;
        self.visit(hash, |value| found = Some(value));
        found
    }

    /// Replaces the value under `hash`, or adds it, and returns the previous value. Replacing is never refused.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); nothing has changed.
    #[inline]
    pub fn put(&mut self, hash: u64, value: u64) -> Result<Option<u64>, GrowError> {
        let primary = self.pool.primary(self.bucket_of(hash));
        let first = self.pool.head(primary);
        let (mut at, mut head) = (primary, first);
        loop {
            for slot in head.candidates(hash) {
                let entry = self.pool.entry(at, slot);
                if entry.hash == hash {
                    self.pool.set_entry(at, slot, Entry { hash, value });
                    return Ok(Some(entry.value));
                }
            }
            at = head.next();
            if at == 0 {
                break;
            }
            head = self.pool.head(at);
        }
        #[cfg(any(test, feature = "testing"))]
        if self.refuses() {
            return Err(GrowError::OutOfSpace);
        }
        self.add(primary, first, Entry { hash, value }).map(|()| None)
    }

    /// Moves the chain's last-added entry into the hole, so that the chain stays packed.
    #[inline(always)]
    fn fill_hole(&mut self, (primary, mut first): (BucketRef, Head), hole: (BucketRef, Head, usize)) {
        let (at, mut head, slot) = hole;
        let (tail, mut tail_head) = match first.next() {
            0 => (primary, first),
            next => (next, self.pool.head(next)),
        };
        let last = tail_head.count() - 1;
        if (tail, last) != (at, slot) {
            let moved = self.pool.entry(tail, last);
            self.pool.set_entry(at, slot, moved);
            if tail == at {
                tail_head.replace(slot, moved.hash);
            } else {
                head.replace(slot, moved.hash);
                self.pool.set_head(at, &head);
                if at == primary {
                    first = head;
                }
            }
        }
        if last == 0 && tail != primary {
            first.set_next(tail_head.next());
            self.pool.set_head(primary, &first);
            self.pool.give_overflow(tail);
            self.pool.save();
        } else {
            tail_head.pop();
            self.pool.set_head(tail, &tail_head);
        }
    }

    /// Splits the next bucket in turn. If memory is refused, the split is left to a later insertion, and the table only gets denser.
    fn split(&mut self) {
        let new = self.pool.header.buckets;
        if new.is_multiple_of(PAGE_BUCKETS) && self.pool.add_segment(new / PAGE_BUCKETS).is_err() {
            return;
        }
        let round = 1 << (63 - new.leading_zeros());
        let old = new - round;
        let (old_ref, new_ref) = (self.pool.primary(old), self.pool.primary(new));

        let (all, mut spare) = self.read_chain(old_ref);
        let (stay, go): (Vec<Entry>, Vec<Entry>) = all.iter().partition(|entry| entry.hash & round == 0);
        self.write_chain(old_ref, &stay, &mut spare);
        self.write_chain(new_ref, &go, &mut spare);
        for bucket in spare {
            self.pool.give_overflow(bucket);
        }
        self.pool.header.buckets += 1;
        self.pool.save();
    }

    /// Returns the entries of a chain, and its overflow buckets.
    fn read_chain(&self, primary: BucketRef) -> (Vec<Entry>, Vec<BucketRef>) {
        let mut all = Vec::with_capacity(2 * SLOTS);
        let mut overflow = Vec::new();
        let mut at = primary;
        loop {
            let head = self.pool.head(at);
            self.pool.entries_onto(at, head.count(), &mut all);
            if at != primary {
                overflow.push(at);
            }
            at = head.next();
            if at == 0 {
                return (all, overflow);
            }
        }
    }

    /// Writes a chain from its end, with overflow buckets from `spare`. Two packed chains never need more overflow buckets than the one
    /// they came from.
    fn write_chain(&mut self, primary: BucketRef, entries: &[Entry], spare: &mut Vec<BucketRef>) {
        let (first, rest) = entries.split_at(entries.len().min(SLOTS));
        let mut next = 0;
        // Full buckets lie after the bucket that has room.
        for chunk in rest.chunks(SLOTS) {
            let Some(bucket) = spare.pop() else {
                P::trap("hash table: a split needs more buckets than its chain had")
            };
            self.pool.set_bucket(bucket, chunk, next);
            next = bucket;
        }
        self.pool.set_bucket(primary, first, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::twin::Twin;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn open() -> HashTable<Twin> {
        HashTable::open(fixture::region(fixture::INDEX), 1).unwrap()
    }

    fn fresh() -> HashTable<Twin> {
        crate::twin::reset();
        fixture::forget();
        open()
    }

    fn values(table: &HashTable<Twin>, hash: u64) -> BTreeSet<u64> {
        let mut values = BTreeSet::new();
        table.visit(hash, |value| {
            assert!(values.insert(value), "{value} twice");
        });
        values
    }

    #[test]
    fn hundred_thousand_entries_are_found_and_removed() {
        let mut table = fresh();
        let n = 100_000u64;
        let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
        for i in 0..n {
            table.insert(hash(&table, i), i).unwrap();
        }
        let stats = table.stats();
        assert_eq!(stats.entries, n);
        assert!(stats.overflow_buckets * 5 < stats.buckets, "{stats:?}");
        for i in 0..n {
            assert_eq!(values(&table, hash(&table, i)), BTreeSet::from([i]));
        }
        assert_eq!(values(&table, hash(&table, n)), BTreeSet::new());
        for i in 0..n {
            assert!(table.remove(hash(&table, i), i));
            assert!(!table.remove(hash(&table, i), i));
        }
        assert_eq!(table.stats(), TableStats { entries: 0, overflow_buckets: 0, ..stats });
    }

    #[test]
    fn moving_window_of_entries_does_not_grow_memory() {
        let mut table = fresh();
        let hash = |table: &HashTable<Twin>, i: u64| table.hash(&i.to_le_bytes());
        let (window, mut pages) = (20_000u64, 0);
        for i in 0..10 * window {
            table.insert(hash(&table, i), i).unwrap();
            if i >= window {
                assert!(table.remove(hash(&table, i - window), i - window));
            }
            if i == 5 * window {
                pages = table.pool.header.pages;
            }
        }
        assert_eq!(table.pool.header.pages, pages);
    }

    #[test]
    fn refused_growth_leaves_the_table_as_it_was() {
        let mut table = fresh();
        fixture::manager().set_max_pages(fixture::manager().billed_pages());
        let mut inserted = 0u64;
        // With a single hash splits do not help, and every entry needs overflow.
        while table.insert(7, inserted).is_ok() {
            inserted += 1;
        }
        assert!(inserted > 100_000, "a bucket of memory holds more than {inserted}");
        assert_eq!(table.stats().entries, inserted);
        assert_eq!(values(&table, 7).len() as u64, inserted);
        fixture::manager().set_max_pages(u64::MAX);
        table.insert(7, inserted).unwrap();
        assert!(table.remove(7, 0));
    }

    proptest! {
        /// With one value per hash, compared with a map.
        #[test]
        fn one_value_a_hash_agrees_with_a_map(
            narrow in any::<bool>(),
            steps in prop::collection::vec((0u8..6, any::<u64>(), 1u64..40), 1..2000),
        ) {
            let mut table = fresh();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            for (kind, hash, value) in steps {
                let hash = if narrow { hash % 60 * 128 } else { hash % 3000 };
                let there = model.get(&hash).copied();
                prop_assert_eq!(table.get(hash), there);
                match kind {
                    0..=2 => prop_assert_eq!(table.put(hash, value).unwrap(), model.insert(hash, value)),
                    3 => {
                        table.fail_after(0);
                        let put = table.put(hash, value);
                        table.failing_in = None;
                        prop_assert_eq!(put, there.map(Some).ok_or(GrowError::OutOfSpace), "only adding is refused");
                        model.entry(hash).and_modify(|there| *there = value);
                    }
                    4 => {
                        prop_assert_eq!(table.change(hash, |_| Change::Out), there);
                        model.remove(&hash);
                    }
                    _ => {
                        prop_assert_eq!(table.change(hash, |_| Change::Keep), None);
                        prop_assert_eq!(table.change(hash, |there| Change::To(there + value)), there);
                        model.entry(hash).and_modify(|there| *there += value);
                    }
                }
                prop_assert_eq!(table.get(hash), model.get(&hash).copied());
            }
            prop_assert_eq!(table.stats().entries, model.len() as u64);
            for (&hash, &value) in &model {
                prop_assert_eq!(values(&table, hash), BTreeSet::from([value]));
            }
        }

        /// Compared with a set, with few hashes (long chains) and many, reopened in between.
        #[test]
        fn agrees_with_a_model(
            narrow in any::<bool>(),
            steps in prop::collection::vec((0u8..8, any::<u64>(), 0u64..40), 1..4000),
        ) {
            let mut table = fresh();
            let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
            for (kind, hash, value) in steps {
                let hash = if narrow { hash % 5 * 128 } else { hash % 3000 };
                match kind {
                    0..=4 => {
                        if model.insert((hash, value)) {
                            table.insert(hash, value).unwrap();
                        }
                    }
                    5 | 6 => {
                        // Mostly an existing entry.
                        let (hash, value) = model.range((hash, value)..).next().copied().unwrap_or((hash, value));
                        prop_assert_eq!(table.remove(hash, value), model.remove(&(hash, value)));
                    }
                    _ if value == 0 => {
                        drop(table);
                        fixture::forget();
                        table = open();
                    }
                    _ => {
                        let expected: BTreeSet<u64> = model.range((hash, 0)..=(hash, u64::MAX)).map(|e| e.1).collect();
                        prop_assert_eq!(values(&table, hash), expected);
                    }
                }
            }
            prop_assert_eq!(table.stats().entries, model.len() as u64);
            for &(hash, value) in &model {
                prop_assert!(table.remove(hash, value));
            }
            prop_assert_eq!(table.stats().entries, 0);
            prop_assert_eq!(table.stats().overflow_buckets, 0);
        }
    }
}
