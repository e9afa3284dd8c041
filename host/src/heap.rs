//! Committed state of a canister's heap and globals, to which a trap rolls back.
//!
//! A live instance is kept from message to message, so a message writes directly into its memory. The image is a shadow copy: after a
//! successful message the chunks that differ are copied into it, after a trap they are copied back. Comparing first costs an untouched
//! chunk a read and no write, and lets snapshots share chunks. Differing chunks are compared once more by pages of 4 KiB, because the
//! platform charges for each page whose content a message changed. New pages are compared with zeros, because a page that only grew is
//! free.

use std::sync::Arc;

use wasmtime::Val;

use crate::limits::OS_PAGE;

/// Bytes of a chunk: one Wasm page.
const CHUNK: usize = 65_536;

/// The initial content of a Wasm page.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

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

    /// Returns how many 4 KiB pages of `memory` differ from the image. `memory` is never smaller than the image.
    pub(crate) fn pages_changed(&self, memory: &[u8]) -> u64 {
        let before = self.chunks.iter().map(|chunk| &**chunk).chain(std::iter::repeat(&ZEROS[..]));
        before.zip(memory.chunks_exact(CHUNK)).map(|(chunk, part)| differing_pages(chunk, part)).sum()
    }

    /// Copies the changes in `memory` into the image, and returns how many 4 KiB pages changed. `memory` is never smaller than the image.
    pub(crate) fn commit(&mut self, memory: &[u8]) -> u64 {
        let mut pages = 0;
        for (chunk, part) in self.chunks.iter_mut().zip(memory.chunks_exact(CHUNK)) {
            let differing = differing_pages(chunk, part);
            if differing > 0 {
                match Arc::get_mut(chunk) {
                    Some(chunk) => chunk.copy_from_slice(part),
                    None => *chunk = part.into(),
                }
            }
            pages += differing;
        }
        for part in memory.chunks_exact(CHUNK).skip(self.chunks.len()) {
            pages += differing_pages(&ZEROS, part);
            self.chunks.push(part.into());
        }
        pages
    }

    /// Copies the image back into `memory`, which has the same size, and returns how many 4 KiB pages that changed.
    pub(crate) fn restore(&self, memory: &mut [u8]) -> u64 {
        let mut pages = 0;
        for (chunk, part) in self.chunks.iter().zip(memory.chunks_exact_mut(CHUNK)) {
            let differing = differing_pages(chunk, part);
            if differing > 0 {
                part.copy_from_slice(chunk);
            }
            pages += differing;
        }
        pages
    }
}

/// Returns how many 4 KiB pages of two chunks differ. Whole chunks are compared first because most are equal, and that is fastest.
fn differing_pages(chunk: &[u8], part: &[u8]) -> u64 {
    if chunk == part {
        return 0;
    }
    chunk.chunks_exact(OS_PAGE).zip(part.chunks_exact(OS_PAGE)).filter(|(before, after)| before != after).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_and_restore() {
        let mut memory = vec![1; CHUNK * 2];
        let mut image = HeapImage::default();
        assert_eq!(image.commit(&memory), 32);
        let old = image.clone();
        memory[CHUNK] = 2;
        memory.resize(CHUNK * 3, 3);
        assert_eq!(image.commit(&memory), 17);
        assert_eq!((old.bytes(), image.bytes()), (CHUNK as u64 * 2, CHUNK as u64 * 3));
        let mut target = vec![0; CHUNK * 3];
        assert_eq!(image.restore(&mut target), 48);
        assert!(target == memory);
        assert_eq!(old.restore(&mut target[..CHUNK * 2]), 1);
        assert_eq!(target[CHUNK], 1);
    }

    #[test]
    fn pages_are_counted_by_their_content() {
        let mut memory = vec![1; CHUNK];
        let mut image = HeapImage::default();
        image.commit(&memory);
        assert_eq!(image.pages_changed(&memory), 0);
        // Three neighbouring pages, and the last byte of the chunk.
        for byte in [OS_PAGE - 1, OS_PAGE, 2 * OS_PAGE, CHUNK - 1] {
            memory[byte] = 2;
        }
        assert_eq!(image.pages_changed(&memory), 4);
        memory[OS_PAGE] = 1;
        assert_eq!(image.pages_changed(&memory), 3, "rewriting the same bytes is no change");
        // New pages count if they hold anything.
        memory.resize(3 * CHUNK, 0);
        assert_eq!(image.pages_changed(&memory), 3);
        memory[2 * CHUNK + OS_PAGE] = 1;
        assert_eq!(image.pages_changed(&memory), 4);
        assert_eq!(image.commit(&memory), 4);
        assert_eq!(image.commit(&memory), 0);
    }
}
