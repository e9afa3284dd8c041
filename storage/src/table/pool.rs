//! Storage of a table's buckets: one region, allocated in pages of 128 buckets.
//!
//! ```text
//! ┌─ header ─┬─ directory: 2^19 × u32 ─┬─ page 0 ─┬─ page 1 ─┬─ …
//! │ 64 KiB   │ segment → page + 1      │ 128 buckets each, of one segment or for overflow
//! └──────────┴─────────────────────────┴──────────┴──────────┴─ …
//! header: 0 magic "CPHT"  4 version u16  8 buckets u64  16 entries u64  24 pages u32
//!         28 overflow: next never used u32  32 overflow: first free u32  36 overflow in use u32  40 hash seed u64
//! ```
//! Segment `s` holds the primary buckets `128·s …`. A free overflow bucket's `next` names the next free one.

use super::bucket::{BUCKET, ENTRY, Entry, Head, bucket_of, entry_offset};
use crate::header::Header as Layout;
use crate::{GrowError, OpenError, Platform, Region, WASM_PAGE};

/// The header of a table.
pub const LAYOUT: Layout = Layout { name: "hash table", magic: *b"CPHT", version: 1 };
/// Buckets of a page, and of a segment.
pub const PAGE_BUCKETS: u64 = WASM_PAGE / BUCKET;
const SEGMENTS: u64 = 1 << 19;
const DIRECTORY: u64 = WASM_PAGE;
const POOL: u64 = DIRECTORY + SEGMENTS * 4;

/// Location of a bucket: page · 128 + index in the page. 0 is always a primary bucket, so for an overflow bucket it means none.
pub type BucketRef = u32;

/// The table's persisted words, mirrored on the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Primary buckets.
    pub buckets: u64,
    /// Entries in the table.
    pub entries: u64,
    /// Pages handed out.
    pub pages: u32,
    /// The next unused overflow bucket of the newest overflow page; 0 or a multiple of 128 if none is left.
    pub overflow_fresh: BucketRef,
    /// The first freed overflow bucket.
    pub overflow_free: BucketRef,
    /// Overflow buckets in use.
    pub overflow_used: u32,
    /// Seed of the hash function.
    pub hash_seed: u64,
}

/// The region of a table.
pub struct Pool<P: Platform> {
    region: Region<P>,
    pub header: Header,
}

impl<P: Platform> Pool<P> {
    /// Creates a pool with its first segment.
    pub fn create(region: Region<P>, hash_seed: u64) -> Result<Self, GrowError> {
        region.reserve(POOL + WASM_PAGE)?;
        let header = Header { hash_seed, ..Header::default() };
        LAYOUT.write(&region, 0);
        let mut pool = Self { region, header };
        pool.add_segment(0)?;
        pool.header.buckets = PAGE_BUCKETS;
        pool.save();
        Ok(pool)
    }

    /// Reads the header.
    pub fn open(region: Region<P>) -> Result<Self, OpenError> {
        LAYOUT.read(&region, 0)?;
        let header = Header {
            buckets: region.read_u64(8),
            entries: region.read_u64(16),
            pages: region.read_u32(24),
            overflow_fresh: region.read_u32(28),
            overflow_free: region.read_u32(32),
            overflow_used: region.read_u32(36),
            hash_seed: region.read_u64(40),
        };
        Ok(Self { region, header })
    }

    /// Writes the whole header.
    pub fn save(&self) {
        let Header { buckets, entries, pages, overflow_fresh, overflow_free, overflow_used, hash_seed } = self.header;
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [buckets, entries, both(pages, overflow_fresh), both(overflow_free, overflow_used), hash_seed];
        self.region.write(8, words.map(u64::to_le_bytes).as_flattened());
    }

    /// Writes the number of entries only.
    #[inline]
    pub fn save_entries(&self) {
        self.region.write_u64(16, self.header.entries);
    }

    /// Grows memory so that `pages` more pages can be allocated.
    pub fn reserve(&self, pages: u64) -> Result<(), GrowError> {
        self.region.reserve(POOL + (u64::from(self.header.pages) + pages) * WASM_PAGE)
    }

    fn add_page(&mut self) -> Result<u32, GrowError> {
        self.reserve(1)?;
        self.header.pages += 1;
        Ok(self.header.pages - 1)
    }

    /// Allocates the page of a segment.
    pub fn add_segment(&mut self, segment: u64) -> Result<(), GrowError> {
        if segment >= SEGMENTS {
            return Err(GrowError::OutOfSpace);
        }
        let page = self.add_page()?;
        self.region.write_u32(DIRECTORY + segment * 4, page + 1);
        Ok(())
    }

    /// Location of a primary bucket.
    #[inline]
    pub fn primary(&self, bucket: u64) -> BucketRef {
        // A table has at most 2^19 pages, so neither operation overflows.
        let page = self.region.read_u32(DIRECTORY + bucket / PAGE_BUCKETS * 4).wrapping_sub(1);
        page.wrapping_mul(PAGE_BUCKETS as u32).wrapping_add((bucket % PAGE_BUCKETS) as u32)
    }

    /// Allocates an overflow bucket: a freed one, or else an unused one. The caller saves the header.
    pub fn take_overflow(&mut self) -> Result<BucketRef, GrowError> {
        let bucket = if self.header.overflow_free != 0 {
            let bucket = self.header.overflow_free;
            self.header.overflow_free = self.head(bucket).next();
            bucket
        } else {
            if self.header.overflow_fresh.is_multiple_of(PAGE_BUCKETS as u32) {
                self.header.overflow_fresh = self.add_page()? * PAGE_BUCKETS as u32;
            }
            self.header.overflow_fresh += 1;
            self.header.overflow_fresh - 1
        };
        self.header.overflow_used += 1;
        Ok(bucket)
    }

    /// Frees an overflow bucket. The caller saves the header.
    pub fn give_overflow(&mut self, bucket: BucketRef) {
        self.set_head(bucket, &Head::new(self.header.overflow_free));
        self.header.overflow_free = bucket;
        self.header.overflow_used -= 1;
    }

    #[inline]
    fn address(bucket: BucketRef) -> u64 {
        POOL + u64::from(bucket) * BUCKET
    }

    #[inline]
    pub fn head(&self, bucket: BucketRef) -> Head {
        Head(self.region.read(Self::address(bucket)))
    }

    #[inline]
    pub fn set_head(&self, bucket: BucketRef, head: &Head) {
        self.region.write(Self::address(bucket), &head.0);
    }

    #[inline]
    pub fn entry(&self, bucket: BucketRef, slot: usize) -> Entry {
        Entry::decode(self.region.read(Self::address(bucket) + entry_offset(slot)))
    }

    #[inline]
    pub fn set_entry(&self, bucket: BucketRef, slot: usize, entry: Entry) {
        self.region.write(Self::address(bucket) + entry_offset(slot), &entry.encode());
    }

    /// Appends the entries of a bucket to `out`.
    pub fn entries_onto(&self, bucket: BucketRef, count: usize, out: &mut Vec<Entry>) {
        let mut bytes = Vec::new();
        self.region.read_onto(&mut bytes, Self::address(bucket) + entry_offset(0), count * ENTRY);
        out.extend(bytes.as_chunks::<ENTRY>().0.iter().map(|entry| Entry::decode(*entry)));
    }

    /// Returns the bytes of `count` buckets of one segment, starting at `first`.
    pub fn buckets(&self, first: BucketRef, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.region.read_onto(&mut bytes, Self::address(first), (count * BUCKET) as usize);
        bytes
    }

    /// Writes the first bytes of a bucket: its head and the remaining entries.
    pub fn write_bucket(&self, bucket: BucketRef, bytes: &[u8]) {
        self.region.write(Self::address(bucket), bytes);
    }

    /// Writes a whole bucket.
    pub fn set_bucket(&self, bucket: BucketRef, entries: &[Entry], next: BucketRef) {
        self.region.write(Self::address(bucket), &bucket_of(entries, next));
    }
}
