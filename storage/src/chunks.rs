//! Chunks of an upload: their number, their ranges, and the expiry of the upload.

use std::ops::Range;

/// An upload of `length` bytes in chunks of `size` bytes; the last chunk has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Bytes of the upload.
    pub length: u64,
    /// Bytes of each chunk except the last; at least 1.
    pub size: u32,
}

/// The reason why a chunk is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The upload has fewer chunks.
    OutOfRange {
        /// Chunks of the upload.
        chunks: u32,
    },
    /// The chunk has another length.
    WrongLength {
        /// The required bytes of the chunk.
        expected: u32,
    },
}

impl Chunks {
    /// Returns the number of chunks.
    pub fn count(self) -> u64 {
        self.length.div_ceil(u64::from(self.size))
    }

    /// Returns the range of a chunk's bytes in the upload, if the chunk exists and `len` is its length.
    pub fn place(self, chunk: u32, len: usize) -> Result<Range<u64>, ChunkError> {
        if u64::from(chunk) >= self.count() {
            return Err(ChunkError::OutOfRange { chunks: self.count() as u32 });
        }
        let start = u64::from(chunk) * u64::from(self.size);
        let end = (start + u64::from(self.size)).min(self.length);
        let expected = end - start;
        if len as u64 == expected { Ok(start..end) } else { Err(ChunkError::WrongLength { expected: expected as u32 }) }
    }
}

/// Returns whether an upload that was last touched at `touched` has expired, all in Unix seconds.
pub fn is_expired(touched: u64, now: u64, expiry: u64) -> bool {
    now.saturating_sub(touched) >= expiry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_has_the_rest_and_others_are_refused() {
        let chunks = Chunks { length: 25, size: 10 };
        assert_eq!(chunks.count(), 3);
        assert_eq!((chunks.place(0, 10), chunks.place(2, 5)), (Ok(0..10), Ok(20..25)));
        assert_eq!(chunks.place(2, 10), Err(ChunkError::WrongLength { expected: 5 }));
        assert_eq!(chunks.place(3, 0), Err(ChunkError::OutOfRange { chunks: 3 }));
        assert_eq!(Chunks { length: 0, size: 10 }.place(0, 0), Err(ChunkError::OutOfRange { chunks: 0 }));
        assert!(Chunks { length: u64::MAX, size: u32::MAX }.place(u32::MAX, 0).is_err());
    }

    #[test]
    fn upload_expires_after_its_time_and_not_while_the_clock_is_behind() {
        assert_eq!([9, 10, u64::MAX].map(|now| is_expired(0, now, 10)), [false, true, true]);
        assert!(!is_expired(100, 50, 10));
    }
}
