//! Errors of allocations and of pointers. Nothing has changed when one of them is returned.

use crate::GrowError;

/// Reasons why no blob was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The blob is longer than the largest class.
    #[error("the blob is longer than {limit} bytes, the largest class")]
    TooLarge {
        /// Bytes of the largest class.
        limit: u32,
    },
    /// The arena has reached 500 GiB, or memory could not be grown.
    #[error("{0}")]
    Grow(#[from] GrowError),
}

/// Reasons why a pointer does not name a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtrError {
    /// The offset was never allocated.
    #[error("the offset was never allocated")]
    NeverAllocated,
    /// The offset is not the start of a blob.
    #[error("the offset is inside a blob")]
    InsideBlob,
    /// The slot has another class.
    #[error("the slot has the class {class}")]
    WrongClass {
        /// Bytes of the slot's class.
        class: u32,
    },
    /// The slot was reused: the pointer is stale.
    #[error("the slot was reused: its generation is {current}")]
    StaleGeneration {
        /// The slot's current generation.
        current: u32,
    },
    /// The length differs from the blob's.
    #[error("the blob has {len} bytes")]
    WrongLength {
        /// Bytes of the blob.
        len: u32,
    },
    /// The blob is quarantined or free.
    #[error("the blob is quarantined or free")]
    NotUsed,
    /// The blob is in use; only quarantined blobs can be released.
    #[error("the blob is in use")]
    NotQuarantined,
    /// The range ends after the blob's end.
    #[error("the range ends after the blob, which has {len} bytes")]
    OutOfRange {
        /// Bytes of the blob.
        len: u32,
    },
    /// The granule's entry cannot be decoded. The entry's content is never guessed.
    #[error("the granule cannot be decoded")]
    Corrupt,
}
