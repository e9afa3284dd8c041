//! Set of page numbers, for counting the distinct pages that a message touches.

use std::collections::HashMap;

/// Words of a block. A block has 4,096 pages (16 MiB of memory), so that neighbouring pages, the common case, share one look-up entry.
const WORDS: usize = 64;

/// A set of page numbers that counts its elements.
#[derive(Default)]
pub(crate) struct PageSet {
    blocks: HashMap<u64, Box<[u64; WORDS]>>,
    len: u64,
}

impl PageSet {
    fn locate(page: u64) -> (u64, usize, u64) {
        (page / (WORDS as u64 * 64), (page / 64) as usize % WORDS, 1 << (page % 64))
    }

    /// Adds a page and returns whether it is new.
    pub(crate) fn insert(&mut self, page: u64) -> bool {
        let (block, word, bit) = Self::locate(page);
        let word = &mut self.blocks.entry(block).or_insert_with(|| Box::new([0; WORDS]))[word];
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(new);
        new
    }

    pub(crate) fn contains(&self, page: u64) -> bool {
        let (block, word, bit) = Self::locate(page);
        self.blocks.get(&block).is_some_and(|words| words[word] & bit != 0)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_distinct_pages() {
        let mut set = PageSet::default();
        for page in [0, 63, 64, 4_095, 4_096, 131_071_999, 64] {
            set.insert(page);
        }
        assert_eq!(set.len(), 6);
        assert!(set.contains(4_096) && !set.contains(4_097));
    }
}
