//! Pages of 4 KiB of stable memory that a message changes, each counted once, in the one place through which all writes go.
//!
//! Counting adds some 40 instructions to a write, so a message counts only while a limit of its work depends on the number.

use crate::OS_PAGE;
use std::cell::{Cell, RefCell};

/// Places of a new set.
const PLACES: usize = 256;

/// A set of pages: open addressing in a table that doubles when it is half full.
#[derive(Default)]
struct Pages {
    /// Pages + 1; 0 for a free place.
    places: Vec<u32>,
    /// The page added last for each remainder, + 1: most writes hit one of these pages.
    recent: [u32; 32],
    /// Number of pages.
    count: u64,
}

thread_local! {
    /// Number of [`Counting`]s.
    static COUNTING: Cell<u32> = const { Cell::new(0) };
    /// The page noted last: neighbouring writes often hit one page.
    static LAST: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The changed pages since counting began.
    static PAGES: RefCell<Pages> =
        const { RefCell::new(Pages { places: Vec::new(), recent: [0; 32], count: 0 }) };
}

/// Counts changed pages until it is dropped. Another one that begins meanwhile leaves the count as it is.
#[derive(Debug)]
#[must_use = "pages are counted until this is dropped"]
pub struct Counting(());

impl Counting {
    /// Begins to count, from 0 on if this is the only one.
    pub fn begin() -> Self {
        if COUNTING.replace(COUNTING.get() + 1) == 0 {
            LAST.set(u64::MAX);
            PAGES.set(Pages { places: vec![0; PLACES], ..Pages::default() });
        }
        Self(())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.set(COUNTING.get() - 1);
    }
}

/// Returns the number of pages that have changed since counting began; 0 while pages are not counted.
pub fn changed_pages() -> u64 {
    if COUNTING.get() > 0 { PAGES.with_borrow(|pages| pages.count) } else { 0 }
}

/// Counts so many pages as changed, for tests of limits.
#[cfg(test)]
pub fn pretend_changes(pages: u64) {
    (0..pages).for_each(|_| note(changed_pages() * OS_PAGE, 1));
}

/// Notes that `len` bytes from `at` on are written.
#[inline(always)]
pub(crate) fn note(at: u64, len: usize) {
    if COUNTING.get() > 0 {
        note_pages(at, len);
    }
}

#[inline(never)]
fn note_pages(at: u64, len: usize) {
    let (first, last) = (at / OS_PAGE, at.wrapping_add(len as u64).saturating_sub(1) / OS_PAGE);
    if first != LAST.get() || last != first {
        PAGES.with_borrow_mut(|pages| (first..=last).for_each(|page| pages.add(page as u32 + 1)));
        LAST.set(last);
    }
}

impl Pages {
    #[inline]
    fn add(&mut self, page: u32) {
        if self.recent[page as usize % self.recent.len()] != page {
            self.add_other(page);
        }
    }

    fn add_other(&mut self, page: u32) {
        self.recent[page as usize % self.recent.len()] = page;
        if enter(&mut self.places, page) {
            self.count += 1;
            if 2 * self.count > self.places.len() as u64 {
                let old = std::mem::take(&mut self.places);
                self.places = vec![0; 2 * old.len()];
                old.into_iter().filter(|page| *page > 0).for_each(|page| _ = enter(&mut self.places, page));
            }
        }
    }
}

/// Enters a page, and returns whether it is new. The table has a free place, and a power of two of them.
fn enter(places: &mut [u32], page: u32) -> bool {
    let last = places.len() - 1;
    let mut at = (u64::from(page).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & last;
    while places[at] != 0 && places[at] != page {
        at = at.wrapping_add(1) & last;
    }
    std::mem::replace(&mut places[at], page) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn pages_count_once_and_only_while_somebody_counts() {
        note(0, 9);
        assert_eq!(changed_pages(), 0);
        let counting = Counting::begin();
        let counts: Vec<u64> = [(4_000, 96), (0, 4_096), (4_095, 2), (8, 0), (4_000, 8_193), (500 << 30, 1)]
            .into_iter()
            .map(|(at, len)| {
                note(at, len);
                changed_pages()
            })
            .collect();
        assert_eq!(counts, [1, 1, 2, 2, 3, 4]);
        drop(Counting::begin());
        note(1 << 20, 1);
        assert_eq!(changed_pages(), 5, "the first one counts on");
        drop(counting);
        assert_eq!(changed_pages(), 0);
        let _counting = Counting::begin();
        assert_eq!(changed_pages(), 0);
    }

    proptest! {
        /// Compared with a `BTreeSet`: few pages, neighbours, and pages far from each other, until the table has doubled several times.
        #[test]
        fn count_agrees_with_a_model(ranges in prop::collection::vec((0u64..1 << 27, 0u32..27, 1usize..40_000), 1..400)) {
            let _counting = Counting::begin();
            let mut model = BTreeSet::new();
            for (page, shift, len) in ranges {
                let at = (page >> shift) * OS_PAGE + page % OS_PAGE;
                note(at, len);
                model.extend(at / OS_PAGE..(at + len as u64).div_ceil(OS_PAGE));
                prop_assert_eq!(changed_pages(), model.len() as u64);
            }
        }
    }
}
