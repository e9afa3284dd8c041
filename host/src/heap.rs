//! The committed state of a canister's heap and globals: what a trap goes back to.
//!
//! A live instance is kept from message to message, so a message writes straight into its memory. The image is the
//! shadow copy: after a successful message the chunks that differ are copied into it, after a trap they are copied
//! back. Comparing first makes the untouched bulk of a heap cost a read and no write, and lets snapshots share chunks.

use std::sync::Arc;

/// Bytes of a chunk: one Wasm page.
const CHUNK: usize = 65_536;

/// The value of a mutable global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobalValue {
    I32(i32),
    I64(i64),
    /// Bits, so that every NaN survives.
    F32(u32),
    F64(u64),
    V128(u128),
}

/// A copy of a heap and its globals as of the last message that succeeded.
#[derive(Clone, Default)]
pub(crate) struct HeapImage {
    chunks: Vec<Arc<[u8]>>,
    pub(crate) globals: Vec<GlobalValue>,
}

impl HeapImage {
    /// The size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// Takes over what changed in `memory`, which is never smaller than the image.
    pub(crate) fn commit(&mut self, memory: &[u8]) {
        let mut parts = memory.chunks_exact(CHUNK);
        for (chunk, part) in self.chunks.iter_mut().zip(&mut parts) {
            if **chunk != *part {
                match Arc::get_mut(chunk) {
                    Some(chunk) => chunk.copy_from_slice(part),
                    None => *chunk = part.into(),
                }
            }
        }
        self.chunks.extend(memory.chunks_exact(CHUNK).skip(self.chunks.len()).map(Arc::from));
    }

    /// Puts the image back into `memory`, which has the image's size.
    pub(crate) fn restore(&self, memory: &mut [u8]) {
        for (chunk, part) in self.chunks.iter().zip(memory.chunks_exact_mut(CHUNK)) {
            if **chunk != *part {
                part.copy_from_slice(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_and_restore() {
        let mut memory = vec![1; CHUNK * 2];
        let mut image = HeapImage::default();
        image.commit(&memory);
        let old = image.clone();
        memory[CHUNK] = 2;
        memory.resize(CHUNK * 3, 3);
        image.commit(&memory);
        assert_eq!((old.bytes(), image.bytes()), (CHUNK as u64 * 2, CHUNK as u64 * 3));
        let mut target = vec![0; CHUNK * 3];
        image.restore(&mut target);
        assert!(target == memory);
        old.restore(&mut target[..CHUNK * 2]);
        assert_eq!(target[CHUNK], 1);
    }
}
