//! What can be wrong with an allocation or a pointer. Whenever one of these is returned, nothing has changed.

use super::ptr::Owner;
use crate::GrowError;

/// Why no blob was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateError {
    /// Longer than the largest class.
    TooLarge {
        /// Bytes of the largest class.
        limit: u32,
    },
    /// The arena has reached 500 GiB, or memory could not be grown.
    Grow(GrowError),
}

impl From<GrowError> for AllocateError {
    fn from(error: GrowError) -> Self {
        Self::Grow(error)
    }
}

/// Why a pointer does not name a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtrError {
    /// The offset was never allocated.
    NeverAllocated,
    /// The offset is no blob's start.
    InsideBlob,
    /// The slot is of another class.
    WrongClass {
        /// Bytes of the slot's class.
        class: u32,
    },
    /// The slot was reused since: the pointer is stale.
    StaleGeneration {
        /// The slot's generation now.
        current: u32,
    },
    /// The length is not the blob's.
    WrongLength {
        /// Bytes that the blob has.
        len: u32,
    },
    /// The blob is quarantined or free.
    NotUsed,
    /// The blob is in use, and only a quarantined one is released.
    NotQuarantined,
    /// The range ends after the blob's end.
    OutOfRange {
        /// Bytes that the blob has.
        len: u32,
    },
    /// The granule's entry cannot be decoded. Nothing is ever assumed of it.
    Corrupt,
}

/// What [`free`](super::BlobStore::free) found (`pruning-spec-v1.md` 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The blob was in use and is now quarantined.
    Quarantined,
    /// It was quarantined already.
    AlreadyQuarantined,
    /// It was free already.
    AlreadyFree,
}

/// What [`release`](super::BlobStore::release) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The blob was quarantined and is now free; this owner no longer keeps it.
    Freed(Owner),
    /// It was free already.
    AlreadyFree,
}
