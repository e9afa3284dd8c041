//! Committed state of a canister's heap and globals, to which a trap rolls back.
//!
//! A live instance is kept from message to message, so a message writes directly into its memory. The image is a shadow copy: after a
//! successful message the pages of 4 KiB that differ are copied into it, after a trap they are copied back. Only pages that the message
//! has written ([`crate::written`]) are compared; comparing is needed because the platform charges for each page whose content changed,
//! and because snapshots share the chunks that are never copied. New pages are compared with zeros, because a page that only grew is free.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use wasmtime::Val;

use crate::limits::OS_PAGE;

/// Bytes of a chunk: one Wasm page.
const CHUNK: usize = 65_536;

/// The initial content of a Wasm page.
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// The chunk of a Wasm page that was never written, which all images share.
static ZERO_CHUNK: LazyLock<Arc<[u8]>> = LazyLock::new(|| ZEROS[..].into());

/// Copy of a heap and its globals after the last successful message.
#[derive(Clone, Default)]
pub(crate) struct HeapImage {
    chunks: Vec<Arc<[u8]>>,
    /// The values of the mutable globals, none of them a reference.
    pub(crate) globals: Vec<Val>,
}

impl HeapImage {
    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// Returns how many 4 KiB pages of `memory` differ from the image, among those in `written`. `memory` is never smaller than the image.
    pub(crate) fn pages_changed(&self, memory: &[u8], written: &[Range<usize>]) -> u64 {
        let chunk = |at: usize| self.chunks.get(at).map_or(&ZEROS[..], |chunk| chunk);
        written_pages(written).filter(|at| memory[at.clone()] != chunk(at.start / CHUNK)[within(at)]).count() as u64
    }

    /// Copies the changes in `memory` into the image, and returns how many 4 KiB pages changed. Pages outside `written` are equal. `memory`
    /// is never smaller than the image.
    pub(crate) fn commit(&mut self, memory: &[u8], written: &[Range<usize>]) -> u64 {
        self.chunks.resize_with(memory.len() / CHUNK, || ZERO_CHUNK.clone());
        let mut pages = 0;
        for at in written_pages(written) {
            let (chunk, page) = (&mut self.chunks[at.start / CHUNK], &memory[at.clone()]);
            if chunk[within(&at)] != *page {
                Arc::make_mut(chunk)[within(&at)].copy_from_slice(page);
                pages += 1;
            }
        }
        pages
    }

    /// Copies the image back into `memory`, which has the same size, and returns how many 4 KiB pages that changed. Pages outside `written`
    /// are equal.
    pub(crate) fn restore(&self, memory: &mut [u8], written: &[Range<usize>]) -> u64 {
        let mut pages = 0;
        for at in written_pages(written) {
            let (page, part) = (&self.chunks[at.start / CHUNK][within(&at)], &mut memory[at.clone()]);
            if part != page {
                part.copy_from_slice(page);
                pages += 1;
            }
        }
        pages
    }
}

/// Returns the byte ranges of the 4 KiB pages in these ranges of whole pages.
fn written_pages(written: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    written.iter().flat_map(|range| range.clone().step_by(OS_PAGE)).map(|from| from..from + OS_PAGE)
}

/// Returns where a page of the memory lies in its chunk.
fn within(page: &Range<usize>) -> Range<usize> {
    let from = page.start % CHUNK;
    from..from + OS_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(memory: &[u8]) -> Vec<Range<usize>> {
        std::iter::once(0..memory.len()).collect()
    }

    #[test]
    fn only_written_pages_are_compared() {
        let mut memory = vec![1; CHUNK];
        let mut image = HeapImage::default();
        image.commit(&memory, &all(&memory));
        let pages = [3, 7].map(|page| page * OS_PAGE..(page + 1) * OS_PAGE);
        pages.iter().for_each(|page| memory[page.start] = 2);
        assert_eq!(image.pages_changed(&memory, &pages[1..]), 1);
        assert_eq!(image.commit(&memory, &pages[..1]), 1);
        assert_eq!(image.restore(&mut memory, &pages), 1);
        assert_eq!([3, 7].map(|page| memory[page * OS_PAGE]), [2, 1]);
    }

    #[test]
    fn commit_and_restore() {
        let mut memory = vec![1; CHUNK * 2];
        let mut image = HeapImage::default();
        assert_eq!(image.commit(&memory, &all(&memory)), 32);
        let old = image.clone();
        memory[CHUNK] = 2;
        memory.resize(CHUNK * 3, 3);
        assert_eq!(image.commit(&memory, &all(&memory)), 17);
        assert_eq!((old.bytes(), image.bytes()), (CHUNK as u64 * 2, CHUNK as u64 * 3));
        let mut target = vec![0; CHUNK * 3];
        assert_eq!(image.restore(&mut target, &all(&memory)), 48);
        assert!(target == memory);
        assert_eq!(old.restore(&mut target[..CHUNK * 2], &all(&memory[..CHUNK * 2])), 1);
        assert_eq!(target[CHUNK], 1);
    }

    #[test]
    fn pages_are_counted_by_their_content() {
        let mut memory = vec![1; CHUNK];
        let mut image = HeapImage::default();
        image.commit(&memory, &all(&memory));
        assert_eq!(image.pages_changed(&memory, &all(&memory)), 0);
        // Three neighbouring pages, and the last byte of the chunk.
        for byte in [OS_PAGE - 1, OS_PAGE, 2 * OS_PAGE, CHUNK - 1] {
            memory[byte] = 2;
        }
        assert_eq!(image.pages_changed(&memory, &all(&memory)), 4);
        memory[OS_PAGE] = 1;
        assert_eq!(image.pages_changed(&memory, &all(&memory)), 3, "rewriting the same bytes is not a change");
        // New pages count if they hold anything.
        memory.resize(3 * CHUNK, 0);
        assert_eq!(image.pages_changed(&memory, &all(&memory)), 3);
        memory[2 * CHUNK + OS_PAGE] = 1;
        assert_eq!(image.pages_changed(&memory, &all(&memory)), 4);
        assert_eq!(image.commit(&memory, &all(&memory)), 4);
        assert_eq!(image.commit(&memory, &all(&memory)), 0);
    }
}
