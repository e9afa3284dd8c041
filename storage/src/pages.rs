//! Number of 4 KiB pages that a message changes in a store: its payload, its lines, and its header.
//!
//! ```text
//! pages are numbered as if the memory lay in one piece
//! 0                  252 MiB                       264 MiB                    264 MiB + 8 KiB         272 MiB
//! ├ lines of chunks …├ lower levels of the sets …  ├ counters, upper levels   ├ header of the store … ├ payload of the arena …
//! ```

use crate::OS_PAGE;

/// Where the words of the arena's sets begin: of blocks of 64 granules, and of 64 such blocks. The lines of 2^23 chunks end before.
const SETS: [u64; 2] = [252 << 20, 262 << 20];
/// Where the arena's counters are, and the upper levels of its sets.
const COUNTERS: u64 = 264 << 20;
/// Where the store's header is.
const HEADER: u64 = COUNTERS + 2 * OS_PAGE;
/// Where the payload begins.
const PAYLOAD: u64 = 272 << 20;
/// Granules of a page of the sets' first level: 64 lines of 64 bytes, each of 64 granules.
const GRANULES_OF_PAGE: u64 = 64 * 64;

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
        self.add(HEADER, 1);
    }

    /// Adds the pages of the arena that taking a granule or giving it back changes, besides that of its line.
    pub fn add_granule(&mut self, granule: u64) {
        self.add(SETS[0] + granule / GRANULES_OF_PAGE * OS_PAGE, 1);
        self.add(SETS[1] + granule / GRANULES_OF_PAGE / 64 * OS_PAGE, 1);
        // The counters, and the upper levels of the sets.
        self.add(COUNTERS, 2 * OS_PAGE);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MAX_GRANULES;

    /// Returns the number of pages after each change.
    fn counts(changes: &[fn(&mut Pages)]) -> Vec<u64> {
        let mut pages = Pages::default();
        let count = |change: &fn(&mut Pages)| {
            change(&mut pages);
            pages.count
        };
        changes.iter().map(count).collect()
    }

    #[test]
    fn page_counts_once() {
        let payload: [fn(&mut Pages); 5] = [
            |pages| pages.add_payload(4_000, 96),
            |pages| pages.add_payload(0, 4_096),
            |pages| pages.add_payload(4_095, 2),
            |pages| pages.add_payload(8 * 4_096, 1),
            |pages| pages.add_payload(4_000, 8_193),
        ];
        assert_eq!(counts(&payload), [1, 1, 2, 3, 4]);
        let lines: [fn(&mut Pages); 3] =
            [|pages| pages.add_line(0), |pages| pages.add_line(127), |pages| pages.add_line(128)];
        assert_eq!(counts(&lines), [1, 1, 2]);
    }

    /// A line of a set's first level spans 64 granules, a page 64 lines; so does a page of the second level with lines of the first.
    #[test]
    fn granule_counts_a_page_of_each_level_and_the_counters() {
        let granules: [fn(&mut Pages); 5] = [
            |pages| pages.add_granule(0),
            |pages| pages.add_granule(64 * 64 - 1),
            |pages| pages.add_granule(64 * 64),
            |pages| pages.add_granule(64 * 64 * 64 - 1),
            |pages| pages.add_granule(64 * 64 * 64),
        ];
        assert_eq!(counts(&granules), [4, 4, 5, 6, 8]);
    }

    #[test]
    fn parts_share_no_page_even_at_the_end_of_the_arena() {
        let all: [fn(&mut Pages); 7] = [
            |pages| pages.add_line(0),
            |pages| pages.add_line(MAX_GRANULES - 1),
            |pages| pages.add_granule(0),
            |pages| pages.add_granule(MAX_GRANULES - 1),
            Pages::add_header,
            |pages| pages.add_payload(0, 1),
            Pages::add_other,
        ];
        assert_eq!(counts(&all), [1, 2, 6, 8, 9, 10, 11]);
    }
}
