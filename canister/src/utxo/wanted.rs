//! Slots of a new record.

use super::record::{ENTRY, HEAD_BLOCKS, Head, INPUT, INPUTS_OF_PAGE, PAGE_HEAD};

/// The slots of a new record, as pairs of bytes and count; not a vector, because that would be allocated and freed for each record.
#[derive(Default)]
pub struct Wanted {
    all: [(u32, u32); 5],
    len: usize,
}

impl Wanted {
    /// Returns the slots of a record with this head.
    pub fn of(head: &Head) -> Self {
        let mut wanted = Self::default();
        wanted.push((head.len(), 1));
        if head.extra_pages > 0 {
            let last = head.outputs - head.batch * head.extra_pages;
            wanted.push((PAGE_HEAD + ENTRY * head.batch, head.extra_pages - 1));
            wanted.push((PAGE_HEAD + ENTRY * last, 1));
        }
        if head.input_pages() > 0 {
            wanted.push((INPUT * INPUTS_OF_PAGE, head.input_pages()));
        }
        if head.blocks > HEAD_BLOCKS {
            wanted.push((64 * (1 + head.blocks - HEAD_BLOCKS), 1));
        }
        wanted
    }

    fn push(&mut self, pair: (u32, u32)) {
        self.all[self.len] = pair;
        self.len += 1;
    }

    /// Returns the pairs.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.all[..self.len]
    }
}
