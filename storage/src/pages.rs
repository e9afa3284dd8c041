//! Number of 4 KiB pages that a message changes in a store: its payload, its lines, and its header.
//!
//! ```text
//! pages are numbered as if the memory lay in one piece
//! 0          250 MiB          256 MiB - 4 KiB        256 MiB
//! ├ lines of chunks ┤ …       ├ header ┤             ├ payload of the arena …
//! ```

use crate::OS_PAGE;

/// Where the payload begins.
const PAYLOAD: u64 = 256 << 20;
/// Pages of the arena's sets and counters that change when granules are taken or given back.
const OF_ARENA: u64 = 3;

/// A bit for each of 4,096 pages.
type Bits = [u64; 64];

/// Changed pages, as bitmaps of the parts of 16 MiB that have changed pages.
pub struct Pages {
    parts: Vec<Option<Box<Bits>>>,
    /// The page added last, for each remainder: most changes hit one of these pages.
    recent: [u64; 8],
    /// Number of changed pages.
    pub count: u64,
}

impl Default for Pages {
    fn default() -> Self {
        Self { parts: Vec::new(), recent: [u64::MAX; 8], count: 0 }
    }
}

impl Pages {
    /// Adds the pages of `len` bytes of payload from `at` on.
    #[inline(always)]
    pub fn add_payload(&mut self, at: u64, len: u64) {
        self.add(PAYLOAD + at, len);
    }

    /// Adds the page of a granule's line.
    #[inline]
    pub fn add_line(&mut self, granule: u64) {
        // Two blocks of 64 granules have their entries and lines in one page.
        self.add(granule / 128 * OS_PAGE, 1);
    }

    /// Adds the header.
    #[inline]
    pub fn add_header(&mut self) {
        self.add(PAYLOAD - OS_PAGE, 1);
    }

    /// Adds the pages of the arena that taking or giving back granules changes, besides that of their lines.
    pub fn add_granules(&mut self) {
        self.count += OF_ARENA;
    }

    /// Adds a page that is in none of the parts above.
    pub fn add_other(&mut self) {
        self.count += 1;
    }

    #[inline(always)]
    fn add(&mut self, at: u64, len: u64) {
        let (first, last) = (at / OS_PAGE, (at + len - 1) / OS_PAGE);
        if first != last || self.recent[(first % 8) as usize] != first {
            self.add_all(first, last);
        }
    }

    #[inline(never)]
    fn add_all(&mut self, first: u64, last: u64) {
        for page in first..=last {
            let (part, word, bit) = ((page / 4_096) as usize, (page / 64 % 64) as usize, 1 << (page % 64));
            if part >= self.parts.len() {
                self.parts.resize_with(part + 1, || None);
            }
            let bits = self.parts[part].get_or_insert_with(|| Box::new([0; 64]));
            self.count += u64::from(bits[word] & bit == 0);
            bits[word] |= bit;
        }
        self.recent[(last % 8) as usize] = last;
    }
}
