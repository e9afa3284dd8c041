//! Sparse stable memory with an undo log per message.
//!
//! A canister may address 500 GiB, most of it never touched, and a message that traps must leave no trace. Pages of 4 KiB hang off a
//! two-level table (a leaf covers 2 MiB) that grows only up to the highest written page; an absent page reads as zeros, so growing costs
//! nothing. Pages and leaves are shared by reference count: cloning the memory (for a snapshot, or before an upgrade) copies only the top
//! table. The first write to a page within a message puts the page's old content into the undo log, which is also the record of distinct
//! pages written.

use std::sync::Arc;

use crate::limits::{OS_PAGE, StablePagePrices, WASM_PAGE};
use crate::page_set::PageSet;

const LEAF_PAGES: usize = 512;

type Page = [u8; OS_PAGE];

#[derive(Clone)]
struct Leaf([Option<Arc<Page>>; LEAF_PAGES]);

impl Default for Leaf {
    fn default() -> Self {
        Leaf([const { None }; LEAF_PAGES])
    }
}

/// An access past the end of the memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfBounds;

/// The stable memory of one canister.
#[derive(Clone, Default)]
pub(crate) struct StableMemory {
    leaves: Vec<Option<Arc<Leaf>>>,
    wasm_pages: u64,
}

/// One message's changes to a stable memory, for undo and for counting.
#[derive(Default)]
pub(crate) struct Journal {
    undo: Vec<(u64, Option<Arc<Page>>)>,
    written: PageSet,
    read: PageSet,
    wasm_pages_before: u64,
}

impl Journal {
    /// Creates a journal for a message that starts on `memory`.
    pub(crate) fn start(memory: &StableMemory) -> Self {
        Journal { wasm_pages_before: memory.wasm_pages, ..Journal::default() }
    }

    /// Returns the number of distinct 4 KiB pages written so far.
    pub(crate) fn pages_written(&self) -> u64 {
        self.written.len()
    }

    /// Returns the number of distinct 4 KiB pages read so far.
    pub(crate) fn pages_read(&self) -> u64 {
        self.read.len()
    }

    /// Returns the instructions charged for the pages of a read.
    pub(crate) fn price_of_reading(&self, prices: StablePagePrices, offset: u64, size: u64) -> u64 {
        if prices.first_access == 0 {
            return 0;
        }
        let pages = pages_of(offset, size).filter(|page| !self.accessed(*page)).count() as u64;
        prices.first_access.saturating_mul(pages)
    }

    /// Returns the instructions charged for the pages of a write.
    pub(crate) fn price_of_writing(&self, prices: StablePagePrices, offset: u64, size: u64) -> u64 {
        let written = pages_of(offset, size).filter(|page| !self.written.contains(*page)).count() as u64;
        prices.first_write.saturating_mul(written).saturating_add(self.price_of_reading(prices, offset, size))
    }

    fn accessed(&self, page: u64) -> bool {
        self.written.contains(page) || self.read.contains(page)
    }
}

fn pages_of(offset: u64, size: u64) -> std::ops::Range<u64> {
    if size == 0 { 0..0 } else { offset / OS_PAGE as u64..(offset + size - 1) / OS_PAGE as u64 + 1 }
}

impl StableMemory {
    /// Returns the size in Wasm pages of 64 KiB.
    pub(crate) fn wasm_pages(&self) -> u64 {
        self.wasm_pages
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.wasm_pages * WASM_PAGE
    }

    /// Sets the size; the caller has checked it against every limit.
    pub(crate) fn set_wasm_pages(&mut self, wasm_pages: u64) {
        self.wasm_pages = wasm_pages;
    }

    /// Checks that a range lies within the memory.
    pub(crate) fn check_range(&self, offset: u64, size: u64) -> Result<(), OutOfBounds> {
        match offset.checked_add(size) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(OutOfBounds),
        }
    }

    fn page(&self, page: u64) -> Option<&Page> {
        let leaf = self.leaves.get(page as usize / LEAF_PAGES)?.as_ref()?;
        leaf.0[page as usize % LEAF_PAGES].as_deref()
    }

    fn slot(&mut self, page: u64) -> &mut Option<Arc<Page>> {
        let index = page as usize / LEAF_PAGES;
        if self.leaves.len() <= index {
            self.leaves.resize(index + 1, None);
        }
        &mut Arc::make_mut(self.leaves[index].get_or_insert_default()).0[page as usize % LEAF_PAGES]
    }

    /// Copies from the memory into `target`.
    pub(crate) fn read(&self, journal: &mut Journal, offset: u64, target: &mut [u8]) -> Result<(), OutOfBounds> {
        self.check_range(offset, target.len() as u64)?;
        for page in pages_of(offset, target.len() as u64) {
            journal.read.insert(page);
        }
        self.copy_out(offset, target);
        Ok(())
    }

    fn copy_out(&self, mut offset: u64, mut target: &mut [u8]) {
        while !target.is_empty() {
            let start = (offset % OS_PAGE as u64) as usize;
            let (part, rest) = target.split_at_mut((OS_PAGE - start).min(target.len()));
            match self.page(offset / OS_PAGE as u64) {
                Some(page) => part.copy_from_slice(&page[start..start + part.len()]),
                None => part.fill(0),
            }
            offset += part.len() as u64;
            target = rest;
        }
    }

    /// Copies `source` into the memory, and keeps the old pages in the undo log.
    pub(crate) fn write(
        &mut self,
        journal: &mut Journal,
        mut offset: u64,
        mut source: &[u8],
    ) -> Result<(), OutOfBounds> {
        self.check_range(offset, source.len() as u64)?;
        while !source.is_empty() {
            let start = (offset % OS_PAGE as u64) as usize;
            let (part, rest) = source.split_at((OS_PAGE - start).min(source.len()));
            let index = offset / OS_PAGE as u64;
            let slot = self.slot(index);
            if journal.written.insert(index) {
                journal.undo.push((index, slot.clone()));
            }
            match slot.as_mut() {
                Some(page) if part.len() < OS_PAGE => {
                    Arc::make_mut(page)[start..start + part.len()].copy_from_slice(part);
                }
                // A page that is overwritten completely need not be copied first, even if a snapshot or the undo log shares it.
                _ => {
                    let mut page = [0; OS_PAGE];
                    page[start..start + part.len()].copy_from_slice(part);
                    *slot = Some(Arc::new(page));
                }
            }
            offset += part.len() as u64;
            source = rest;
        }
        Ok(())
    }

    /// Undoes all changes of the journal's message.
    pub(crate) fn roll_back(&mut self, journal: &mut Journal) {
        for (index, page) in journal.undo.drain(..) {
            *self.slot(index) = page;
        }
        self.wasm_pages = journal.wasm_pages_before;
    }

    /// Returns the whole content.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes() as usize];
        self.copy_out(0, &mut out);
        out
    }

    /// Creates a memory that holds `data`, padded with zeros to whole Wasm pages.
    pub(crate) fn from_slice(data: &[u8]) -> Self {
        let wasm_pages = (data.len() as u64).div_ceil(WASM_PAGE);
        let mut memory = StableMemory { wasm_pages, ..StableMemory::default() };
        let mut journal = Journal::start(&memory);
        // Cannot fail: the size was set to fit.
        let _ = memory.write(&mut journal, 0, data);
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_pages_read_as_zeros_and_cost_nothing() {
        let mut memory = StableMemory::default();
        memory.set_wasm_pages(crate::limits::MAX_WASM_PAGES);
        let mut journal = Journal::start(&memory);
        let last = memory.bytes() - 5;
        let mut target = [9; 5];
        memory.read(&mut journal, last, &mut target).unwrap();
        assert_eq!(target, [0; 5]);
        assert_eq!(memory.read(&mut journal, last + 1, &mut target), Err(OutOfBounds));
        assert_eq!(memory.read(&mut journal, u64::MAX, &mut target), Err(OutOfBounds));
        assert!(memory.leaves.is_empty());
    }

    #[test]
    fn rollback_restores_content_and_size() {
        let mut memory = StableMemory::from_slice(&[1; 10_000]);
        let mut journal = Journal::start(&memory);
        memory.set_wasm_pages(2);
        memory.write(&mut journal, 4_090, &[2; 20]).unwrap();
        memory.write(&mut journal, 4_090, &[3; 20]).unwrap();
        memory.write(&mut journal, 70_000, &[4; 1]).unwrap();
        assert_eq!(journal.pages_written(), 3);
        memory.roll_back(&mut journal);
        let mut expected = vec![1; 10_000];
        expected.resize(65_536, 0);
        assert!(memory.to_vec() == expected);
    }

    #[test]
    fn clone_keeps_its_content_when_the_original_changes() {
        let mut memory = StableMemory::from_slice(&[1; 8_192]);
        let copy = memory.clone();
        let mut journal = Journal::start(&memory);
        memory.write(&mut journal, 0, &[2; 8_000]).unwrap();
        assert_eq!(copy.to_vec()[..8_192], [1; 8_192]);
        assert_eq!(memory.to_vec()[..8_000], [2; 8_000]);
        assert_eq!(memory.to_vec()[8_000..8_192], [1; 192]);
    }
}
