//! Hash table in stable memory: maps a 64-bit hash to one 64-bit value, or to any number of values.
//!
//! **Constraint.** An index entry must cost a small multiple of a raw write at any size, an insertion must never rebuild
//! the table, and newer replicas charge for each 4 KiB page touched. A B-tree reads and rewrites several nodes for a key.
//!
//! **Design.** Linear hashing: an insertion splits one bucket if the table is fuller than `LOAD` percent, so no operation
//! depends on the table's size. A bucket has 512 bytes (eight to a page). A bucket's head has a 16-bit tag for each entry, so that
//! a search reads 64 bytes and the entries whose tag matches. Keys are not stored: an entry is the key's 64-bit hash under a
//! secret [`HashKey`] and a word of the owner, who verifies a candidate against the key where the key is stored anyway. Several
//! entries may share a hash, so a key may occur several times.
//! Buckets that fill up before their turn to split get overflow buckets. A chain is packed: only its primary bucket (after a
//! sweep) and the overflow bucket added last may have room, so an insertion looks at no more than two buckets.
//! Buckets lie in pages of the arena. Splits are undone below 25 percent, one by each [`remove`](HashTable::remove) and some by each slice
//! of a sweep, and a page without a bucket in use is given back.
//!
//! The hash key is a secret, because users of a chain choose keys. A chooser who knew the hash could fill one bucket, whose chain each
//! insertion and look-up of that bucket walks. The owner of the table stores the hash key and sets it before the first insertion.
//!
//! There are two ways to use a table, and an owner uses only one of them. [`put`](HashTable::put), [`get`](HashTable::get) and
//! [`sweep`](HashTable::sweep) keep one value per hash. [`insert`](HashTable::insert), [`find`](HashTable::find) and
//! [`remove`](HashTable::remove) keep any number; removing the oldest of `n` equal hashes reads up to `n / 28` buckets.

mod bucket;
mod overflow;
mod pool;
mod resize;
mod sweep;

pub use sweep::Slice;

use crate::arena::{Arena, Owner};
use crate::{GrowError, HashKey, Meter, OpenError, Platform, Space};
use bucket::{BUCKET, Entry, Head, SLOTS, next_of, search, set_count};
use pool::{BucketRef, Header, PAGE_BUCKETS, Pool};

/// Buckets of a slice of a sweep.
pub const SLICE_BUCKETS: u64 = PAGE_BUCKETS;
/// Entries per hundred primary slots at which the table grows.
const LOAD: u64 = 60;

/// Returns whether two 32-byte keys are equal. Compares words, because comparing bytes takes several times as many instructions.
#[inline(always)]
pub fn same_key(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let mut words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    words.all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
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
pub struct HashTable<P: Platform = crate::Ic> {
    pool: Pool<P>,
    key: HashKey,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) hooks: crate::testing::TableHooks,
}

impl<P: Platform> HashTable<P> {
    /// Opens the table of a space, or creates an empty one there. Its pages are granules of the arena that `owner` takes; an owner has one
    /// table. `key` is the hash key, which may be set after the table is opened.
    ///
    /// # Errors
    /// [`OpenError`]; `Corrupt` if the table has entries and the hash key is not set, because no entry could be found again.
    pub fn open(space: Space<P>, arena: Arena<P>, owner: Owner, key: HashKey) -> Result<Self, OpenError> {
        let pool = if space.is_empty() {
            Pool::create(space, arena, owner).map_err(|why| OpenError::Grow { name: pool::LAYOUT.name, why })?
        } else {
            Pool::open(space, arena, owner)?
        };
        if pool.header.entries > 0 && !key.is_set() {
            return Err(pool::LAYOUT.corrupt("entries without a hash key".into()));
        }
        Ok(Self {
            pool,
            key,
            #[cfg(any(test, feature = "testing"))]
            hooks: Default::default(),
        })
    }

    /// Returns whether the hash key is set: before, nothing may be entered.
    pub fn is_keyed(&self) -> bool {
        self.key.is_set()
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let hash = self.key.hash(key);
        #[cfg(any(test, feature = "testing"))]
        let hash = self.hooks.masked(hash);
        hash
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.pool.rewrite();
    }

    /// Returns the fill statistics.
    pub fn stats(&self) -> TableStats {
        let Header { entries, buckets, overflow_used, .. } = self.pool.header;
        TableStats { entries, buckets, overflow_buckets: overflow_used.into() }
    }

    /// Pages of 4 KiB that hold entries.
    pub fn pages(&self) -> u64 {
        let header = self.pool.header;
        (header.buckets + u64::from(header.overflow_used)) * BUCKET / 4_096
    }

    /// Reserves pages for `count` more entries with evenly distributed hashes, in place of what the owner reserved before.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed, except that the owner has nothing reserved.
    pub fn reserve(&self, count: u64) -> Result<(), GrowError> {
        let header = &self.pool.header;
        let buckets = (header.entries + count) * 100 / (LOAD * SLOTS as u64) + 1;
        let all = buckets.max(header.buckets).div_ceil(PAGE_BUCKETS);
        let more = all - header.buckets.div_ceil(PAGE_BUCKETS);
        if more > 0 {
            self.pool.reserve_directory(all)?;
        }
        // No more than one bucket in eight overflows, and fewer for small counts.
        let pages = more + count / 8 / PAGE_BUCKETS + 1;
        self.pool.arena.reserve(self.pool.owner, &[(1, pages)])
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
        let primary = self.pool.primary(self.bucket_of(hash));
        let head = self.pool.head(primary);
        self.add(primary, head, Entry { hash, value })
    }

    /// Adds an entry to the chain of a primary bucket with this head.
    #[inline]
    fn add(&mut self, primary: BucketRef, head: Head, entry: Entry) -> Result<(), GrowError> {
        #[cfg(any(test, feature = "testing"))]
        if self.hooks.refuses() {
            return Err(GrowError::OutOfSpace);
        }
        if head.count() < SLOTS {
            self.push(primary, head, entry);
        } else {
            self.insert_overflow(primary, head, entry)?;
        }
        self.pool.header.entries += 1;
        self.pool.save_entries();
        if self.is_dense() {
            self.split();
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, bucket: BucketRef, mut head: Head, entry: Entry) {
        let slot = head.push(entry.hash);
        self.pool.set_entry(bucket, slot, entry);
        self.pool.set_head(bucket, &head);
    }

    fn insert_overflow(&mut self, primary: BucketRef, mut head: Head, entry: Entry) -> Result<(), GrowError> {
        if head.next() != 0 && self.pool.owns(head.next()) {
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

    /// Passes the values under `hash` to `each`, in no particular order, until it returns something.
    #[inline(always)]
    pub fn find<T>(&self, hash: u64, mut each: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let mut at = self.pool.primary(self.bucket_of(hash));
        loop {
            let (found, next) = self.pool.head_with(at, |head| {
                let found = search(head, hash, |slot| {
                    let entry = self.pool.entry(at, slot);
                    if entry.hash == hash { each(entry.value) } else { None }
                });
                (found, next_of(head))
            });
            if found.is_some() || next == 0 {
                return found;
            }
            at = next;
        }
    }

    /// Removes one entry, and returns whether it existed. Undoes a split if the table is sparse, so a table that is not swept shrinks with
    /// its entries. During a walk of [`sweep`](Self::sweep), entries are removed by [`change`](Self::change): only a slice of the walk may
    /// undo splits.
    pub fn remove(&mut self, hash: u64, value: u64) -> bool {
        let removed = self.change(hash, |there| if there == value { Change::Out } else { Change::Keep }).is_some();
        if removed && self.is_sparse() {
            self.unsplit(0, &Meter::unlimited());
        }
        removed
    }

    /// Applies `decide` to the values under `hash` until one is changed, and returns that value. Nothing is written if all are kept.
    #[inline]
    pub fn change(&mut self, hash: u64, decide: impl FnMut(u64) -> Change) -> Option<u64> {
        self.change_or_first(hash, decide).ok()
    }

    /// Does the same; returns the primary bucket and its head if no value is changed.
    #[inline(always)]
    fn change_or_first(&mut self, hash: u64, mut decide: impl FnMut(u64) -> Change) -> Result<u64, (BucketRef, Head)> {
        let primary = self.pool.primary(self.bucket_of(hash));
        let first = self.pool.head(primary);
        let (mut at, mut head) = (primary, first);
        loop {
            let changed = search(&head.0, hash, |slot| {
                let entry = self.pool.entry(at, slot);
                let change = if entry.hash == hash { decide(entry.value) } else { Change::Keep };
                (change != Change::Keep).then_some((slot, entry.value, change))
            });
            if let Some((slot, before, change)) = changed {
                if let Change::To(value) = change {
                    self.pool.set_entry(at, slot, Entry { hash, value });
                } else {
                    self.fill_hole((primary, first), (at, head, slot));
                    self.pool.drop_entries(1);
                    self.pool.save_entries();
                }
                return Ok(before);
            }
            at = head.next();
            if at == 0 {
                return Err((primary, first));
            }
            head = self.pool.head(at);
        }
    }

    /// Returns the value under `hash`, in a table with one value per hash.
    #[inline]
    pub fn get(&self, hash: u64) -> Option<u64> {
        self.find(hash, Some)
    }

    /// Replaces the value under `hash`, or adds it, and returns the previous value. Replacing is never refused.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); nothing has changed.
    #[inline]
    pub fn put(&mut self, hash: u64, value: u64) -> Result<Option<u64>, GrowError> {
        match self.change_or_first(hash, |_| Change::To(value)) {
            Ok(before) => Ok(Some(before)),
            Err((primary, first)) => self.add(primary, first, Entry { hash, value }).map(|()| None),
        }
    }

    /// Moves the chain's last-added entry into the hole, so that the chain stays packed. Behind a damaged link, the hole's own bucket is
    /// packed.
    #[inline(always)]
    fn fill_hole(&mut self, (primary, mut first): (BucketRef, Head), hole: (BucketRef, Head, usize)) {
        let (at, mut head, slot) = hole;
        let behind = first.next();
        let tail = (behind != 0 && self.pool.owns(behind)).then(|| (behind, self.pool.head(behind)));
        let (tail, mut tail_head) = match tail.filter(|(_, head)| head.count() > 0) {
            Some(tail) => tail,
            None if behind == 0 || at == primary => (primary, first),
            // Nothing is written behind a damaged link, or a bucket with a damaged count.
            None => return,
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
        if last == 0 && tail == first.next() {
            first.set_next(tail_head.next());
            self.pool.set_head(primary, &first);
            self.pool.give_overflow(tail);
            self.pool.save();
        } else {
            set_count(&mut tail_head.0, last);
            self.pool.set_head(tail, &tail_head);
        }
    }
}

#[cfg(test)]
mod tests;
