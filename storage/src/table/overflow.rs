//! Overflow pages: each counts its buckets in use, and is given back with the last of them.
//!
//! ```text
//! line of the page's granule
//! ┌──────────────┬──────────┬────────┬──────────┬──────────┬──────────┐
//! │ previous u32 │ next u32 │ used u8│ freed u8 │ fresh u8 │ reserved │
//! └──────────────┴──────────┴────────┴──────────┴──────────┴──────────┘
//! 0              4          8        9          10         11         16
//! ```
//! `used` is the number of buckets in use, and those from `fresh` on were never used. `freed` is the first freed bucket, as index + 1; its
//! `next` is the index + 1 of the next one. Pages with a free bucket are linked through `previous` and `next`, as granule + 1; the header
//! names the first. A page that was full joins the list at its start, so buckets are taken from pages that are nearly full, and the others
//! become empty.
//!
//! A page that contradicts the arena or its own line is never written: its free buckets are lost, and the list is begun anew.

use super::bucket::Head;
use super::pool::{BucketRef, PAGE_BUCKETS, PageRef, Pool, page_of};
use crate::bytes::u32_at;
use crate::{GrowError, Platform};

const ALL: u8 = PAGE_BUCKETS as u8;
/// Pages of 4 KiB that an overflow bucket of a chain adds to a change at most: its own, and if it is freed, those of three lines and of the
/// arena.
pub const OF_OVERFLOW: u64 = 7;

/// The line of an overflow page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The page before this one in the list of pages with room.
    pub previous: PageRef,
    /// The page after this one.
    pub next: PageRef,
    /// Buckets in use.
    pub used: u8,
    /// Index + 1 of the first freed bucket.
    pub freed: u8,
    /// Index of the first bucket that was never used.
    pub fresh: u8,
}

impl Line {
    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice([self.previous, self.next].map(u32::to_le_bytes).as_flattened());
        [bytes[8], bytes[9], bytes[10]] = [self.used, self.freed, self.fresh];
        bytes
    }

    /// Returns `None` for a line that no overflow page has.
    fn decode(bytes: [u8; 16]) -> Option<Self> {
        let [.., used, freed, fresh, _, _, _, _, _] = bytes;
        let line = Self { previous: u32_at(&bytes, 0), next: u32_at(&bytes, 4), used, freed, fresh };
        let agrees = used > 0 && used <= fresh && fresh <= ALL && freed <= fresh && (freed == 0) == (used == fresh);
        agrees.then_some(line)
    }
}

impl<P: Platform> Pool<P> {
    /// Returns the line of an overflow page, or `None` if the owner has no such page.
    pub fn line(&self, page: PageRef) -> Option<Line> {
        let first = page.checked_mul(PAGE_BUCKETS as u32)?;
        if self.owns(first) { Line::decode(self.arena.line(u64::from(page) - 1)) } else { None }
    }

    fn set_line(&mut self, page: PageRef, line: Line) {
        self.arena.set_line(u64::from(page) - 1, &line.encode());
    }

    /// Takes an overflow bucket, of a page with room if there is one. The caller saves the header.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn take_overflow(&mut self) -> Result<BucketRef, GrowError> {
        let (page, mut line) = match self.line(self.header.room) {
            Some(line) if line.used < ALL => (self.header.room, line),
            _ => (self.take_page([0; 16])?, Line::default()),
        };
        let first = page * PAGE_BUCKETS as u32;
        let index = match line.freed.checked_sub(1) {
            Some(index) => {
                // A link that is out of range spoils the line, so that the page is not used further.
                line.freed = u8::try_from(self.head(first + BucketRef::from(index)).next()).unwrap_or(u8::MAX);
                index
            }
            None => {
                line.fresh += 1;
                line.fresh - 1
            }
        };
        line.used += 1;
        self.header.room = page;
        if line.used == ALL {
            self.unlink(&line);
        }
        self.set_line(page, line);
        self.header.overflow_used += 1;
        Ok(first + BucketRef::from(index))
    }

    /// Frees an overflow bucket, and gives back its page if the page is empty. The caller saves the header.
    pub fn give_overflow(&mut self, bucket: BucketRef) {
        self.header.overflow_used = self.header.overflow_used.saturating_sub(1);
        let page = page_of(bucket);
        let Some(mut line) = self.line(page) else { return };
        if line.used == 1 {
            self.unlink(&line);
            return self.give_page(page);
        }
        self.set_head(bucket, &Head::new(line.freed.into()));
        line.freed = (bucket % PAGE_BUCKETS as u32) as u8 + 1;
        if line.used == ALL {
            (line.previous, line.next) = (0, self.header.room);
            self.relink(line.next, |next| next.previous = page);
            self.header.room = page;
        }
        line.used -= 1;
        self.set_line(page, line);
    }

    /// Takes a page out of the list.
    fn unlink(&mut self, line: &Line) {
        match line.previous {
            0 => self.header.room = line.next,
            previous => self.relink(previous, |previous| previous.next = line.next),
        }
        self.relink(line.next, |next| next.previous = line.previous);
    }

    fn relink(&mut self, page: PageRef, change: impl FnOnce(&mut Line)) {
        if let Some(mut line) = self.line(page) {
            change(&mut line);
            self.set_line(page, line);
        }
    }
}
