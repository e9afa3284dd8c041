//! Memory of a table: a space with header and directory, and pages of 128 buckets, which are granules of the arena.
//!
//! ```text
//! space                                                   arena
//! ┌─ header ─┬─ directory: 2^19 × u32 ─┐                   ┌─ granule ─┐     ┌─ granule ─┐
//! │ 64 bytes │ segment → granule + 1   │ ────────────────▶ │ 128 × 512 │ …   │ 128 × 512 │ …
//! └──────────┴─────────────────────────┘                   └───────────┘     └───────────┘
//! header: 0 magic "CPHT"  4 version u16  8 buckets u64  16 entries u64  24 first overflow page with room u32
//!         28 overflow buckets in use u32
//! ```
//! Segment `s` holds the primary buckets `128·s …`. Overflow pages have a list of their own (`overflow`).
//!
//! **Trust.** A flipped bit in a word of the directory, or in a link between buckets, shows ([`to_word`]). The line of a page's granule names
//! its segment, so the arena's entries are searched for the page of a damaged word, which is then mended. Apart from that a search trusts the
//! directory, because checking the granule's entry would read one more page in each operation. A link to an overflow bucket lies in payload memory. A search trusts it too, because the owner verifies the
//! entries that it finds, and an entry is changed only where its whole hash was found. Before anything else is written behind a link, and
//! before a page is swept or given back, the arena must have its granule as taken by the table's owner ([`Pool::owns`]).

use super::bucket::{BUCKET, ENTRY, Entry, HEAD, Head, SLOTS, entry_offset, to_link, to_word};
use crate::arena::{Arena, GRANULE, Owner};
use crate::header::Header as Layout;
use crate::{GrowError, OpenError, Platform, Space};

/// The header of a table.
pub const LAYOUT: Layout = Layout { name: "hash table", magic: *b"CPHT", version: 5 };
/// Buckets of a page, and of a segment.
pub const PAGE_BUCKETS: u64 = GRANULE / BUCKET;
const SEGMENTS: u64 = 1 << 19;
const DIRECTORY: u64 = 64;
const BUCKETS: u64 = 8;
const ENTRIES: u64 = 16;
const ROOM: u64 = 24;
const OVERFLOW_USED: u64 = 28;

/// Location of a page: granule + 1. 0 is none.
pub type PageRef = u32;
/// Location of a bucket: page · 128 + index in the page. 0 is none.
pub type BucketRef = u32;

/// The page of a bucket.
#[inline]
pub fn page_of(bucket: BucketRef) -> PageRef {
    bucket / PAGE_BUCKETS as u32
}

/// Returns the line of the granule that has a segment. No overflow page has such a line.
fn line_of(segment: u64) -> [u8; 16] {
    let mut line = [0; 16];
    line[..8].copy_from_slice(&segment.to_le_bytes());
    line[12..].fill(0xFF);
    line
}

/// The table's persisted words, mirrored on the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Primary buckets.
    pub buckets: u64,
    /// Entries in the table.
    pub entries: u64,
    /// The first overflow page that has a free bucket.
    pub room: PageRef,
    /// Overflow buckets in use.
    pub overflow_used: u32,
}

/// The memory of a table.
pub struct Pool<P: Platform> {
    space: Space<P>,
    pub(super) arena: Arena<P>,
    pub(super) owner: Owner,
    pub header: Header,
}

impl<P: Platform> Pool<P> {
    /// Creates a pool with its first segment, whose buckets are empty.
    pub fn create(space: Space<P>, arena: Arena<P>, owner: Owner) -> Result<Self, GrowError> {
        let mut pool = Self { space, arena, owner, header: Header::default() };
        let first = pool.take_page(line_of(0))?;
        pool.reserve_directory(1).inspect_err(|_| pool.give_page(first))?;
        pool.set_page(0, first);
        (0..PAGE_BUCKETS).for_each(|bucket| pool.set_head(pool.primary(bucket), &Head::new(0)));
        pool.header.buckets = PAGE_BUCKETS;
        pool.rewrite();
        Ok(pool)
    }

    /// Reads the header.
    pub fn open(space: Space<P>, arena: Arena<P>, owner: Owner) -> Result<Self, OpenError> {
        space.check_header(0, &LAYOUT)?;
        let header = Header {
            buckets: space.read_u64(BUCKETS),
            entries: space.read_u64(ENTRIES),
            room: space.read_u32(ROOM),
            overflow_used: space.read_u32(OVERFLOW_USED),
        };
        if !(PAGE_BUCKETS..=SEGMENTS * PAGE_BUCKETS).contains(&header.buckets) {
            return Err(LAYOUT.corrupt(format!("{} buckets", header.buckets)));
        }
        if header.entries > (header.buckets + u64::from(header.overflow_used)) * SLOTS as u64 {
            return Err(LAYOUT.corrupt(format!("{} entries", header.entries)));
        }
        // A damaged page does not keep the others from being opened: it is found when it is used.
        Ok(Self { space, arena, owner, header })
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.space.rewrite_with(&LAYOUT);
        self.save();
    }

    /// Writes the words of the header.
    pub fn save(&self) {
        let Header { buckets, entries, room, overflow_used } = self.header;
        let words = [buckets, entries, u64::from(room) | u64::from(overflow_used) << 32];
        self.space.write(BUCKETS, words.map(u64::to_le_bytes).as_flattened());
    }

    /// Subtracts removed entries; after damage there may be more of them than were counted.
    #[inline]
    pub fn drop_entries(&mut self, count: u64) {
        self.header.entries = self.header.entries.saturating_sub(count);
    }

    /// Writes the number of entries only.
    #[inline]
    pub fn save_entries(&self) {
        self.space.write_u64(ENTRIES, self.header.entries);
    }

    /// Takes a page of the arena, and writes the line of its granule.
    pub fn take_page(&mut self, line: [u8; 16]) -> Result<PageRef, GrowError> {
        let granule = self.arena.take_granules(self.owner, 1)?;
        self.arena.set_line(granule, &line);
        // The arena has fewer than 2^23 granules.
        Ok(granule as PageRef + 1)
    }

    /// Gives a page back to the arena.
    pub fn give_page(&mut self, page: PageRef) {
        self.arena.give_granules(self.owner, u64::from(page) - 1, 1);
    }

    /// Returns whether the page of a bucket is one that the owner took.
    pub fn owns(&self, bucket: BucketRef) -> bool {
        let granule = page_of(bucket).checked_sub(1);
        granule.is_some_and(|granule| self.arena.taken(self.owner, granule.into()).is_some())
    }

    /// Makes room in the directory for so many segments.
    pub fn reserve_directory(&self, segments: u64) -> Result<(), GrowError> {
        if segments > SEGMENTS { Err(GrowError::OutOfSpace) } else { self.space.reserve(DIRECTORY + segments * 4) }
    }

    /// Takes the page of a segment.
    pub fn add_segment(&mut self, segment: u64) -> Result<(), GrowError> {
        self.reserve_directory(segment + 1)?;
        let page = self.take_page(line_of(segment))?;
        self.set_page(segment, page);
        Ok(())
    }

    /// Gives back the page of the last segment, in which no bucket is in use.
    pub fn drop_segment(&mut self, segment: u64) {
        self.give_page(page_of(self.primary(segment * PAGE_BUCKETS)));
        self.set_page(segment, 0);
        self.space.release(DIRECTORY + segment * 4..self.space.size());
    }

    fn set_page(&self, segment: u64, page: PageRef) {
        self.space.write_u32(DIRECTORY + segment * 4, to_word(page));
    }

    /// Finds the page of a segment whose word in the directory is damaged, and mends the word. Traps if no granule's line names the segment.
    #[cold]
    #[inline(never)]
    fn find_page(&self, segment: u64) -> PageRef {
        let Some(found) = self.arena.find(&[self.owner], &line_of(segment)) else {
            P::trap(&format!("hash table: the page of segment {segment} is lost"))
        };
        let page = found.granule as PageRef + 1;
        self.set_page(segment, page);
        page
    }

    /// Location of a primary bucket.
    #[inline]
    pub fn primary(&self, bucket: u64) -> BucketRef {
        // The arena has fewer than 2^23 granules, so neither operation overflows.
        let word = self.space.read_u32(DIRECTORY + bucket / PAGE_BUCKETS * 4);
        let page: PageRef = to_link(word).unwrap_or_else(|| self.find_page(bucket / PAGE_BUCKETS));
        page.wrapping_mul(PAGE_BUCKETS as u32).wrapping_add((bucket % PAGE_BUCKETS) as u32)
    }

    /// Offset of a bucket in the payload. An address without a page lies after every payload, so that accessing it traps.
    #[inline]
    fn address(bucket: BucketRef) -> u64 {
        u64::from(bucket).wrapping_sub(PAGE_BUCKETS).wrapping_mul(BUCKET)
    }

    #[inline]
    fn entry_address(bucket: BucketRef, slot: usize) -> u64 {
        // An address without a page stays after every payload.
        Self::address(bucket).wrapping_add(entry_offset(slot))
    }

    #[inline]
    pub fn head(&self, bucket: BucketRef) -> Head {
        Head(self.arena.payload().read(Self::address(bucket)))
    }

    /// Reads the head of a bucket and looks at it where it is.
    #[inline(always)]
    pub fn head_with<T>(&self, bucket: BucketRef, look: impl FnOnce(&[u8; HEAD]) -> T) -> T {
        self.arena.payload().read_with(Self::address(bucket), look)
    }

    #[inline]
    pub fn set_head(&self, bucket: BucketRef, head: &Head) {
        self.arena.payload().write(Self::address(bucket), &head.0);
    }

    #[inline]
    pub fn entry(&self, bucket: BucketRef, slot: usize) -> Entry {
        Entry::decode(self.arena.payload().read(Self::entry_address(bucket, slot)))
    }

    #[inline]
    pub fn set_entry(&self, bucket: BucketRef, slot: usize, entry: Entry) {
        self.arena.payload().write(Self::entry_address(bucket, slot), &entry.encode());
    }

    /// Appends the entries of a bucket to `out`.
    pub fn entries_onto(&self, bucket: BucketRef, count: usize, out: &mut Vec<Entry>) {
        let mut bytes = Vec::new();
        self.arena.payload().read_onto(&mut bytes, Self::address(bucket) + entry_offset(0), count * ENTRY);
        out.extend(bytes.as_chunks::<ENTRY>().0.iter().map(|entry| Entry::decode(*entry)));
    }

    /// Returns the bytes of `count` buckets of one segment, starting at `first`.
    pub fn buckets(&self, first: BucketRef, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.arena.payload().read_onto(&mut bytes, Self::address(first), (count * BUCKET) as usize);
        bytes
    }

    /// Writes a bucket, or its first bytes: its head and the remaining entries.
    pub fn write_bucket(&self, bucket: BucketRef, bytes: &[u8]) {
        self.arena.payload().write(Self::address(bucket), bytes);
    }
}
