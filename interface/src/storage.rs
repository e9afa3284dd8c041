//! Conversions between the types of `ic_coppice_storage` and those of the interface.

use crate::{BlobPtr, NoMemory, Owner, StopReason};
use ic_coppice_storage::{GrowError, Limit, arena, blob};

/// Returns an owner in the arena.
pub const fn in_arena(owner: Owner) -> arena::Owner {
    arena::Owner::new(owner as u8)
}

const _: () = assert!(Owner::COUNT <= arena::Owner::COUNT);
// The interface declares the constant again, for replies.
const _: () = assert!(ic_coppice_storage::WASM_PAGE == crate::WASM_PAGE);

impl From<GrowError> for NoMemory {
    /// A tick whose memory is deferred continues later.
    fn from(why: GrowError) -> Self {
        match why {
            GrowError::OutOfSpace | GrowError::Later => Self::OutOfSpace,
            GrowError::QuotaFull { limit } => Self::RecordsFull { limit },
            GrowError::LowCycles { missing } => Self::LowCycles { missing },
            GrowError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
        }
    }
}

impl From<Limit> for StopReason {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::Ops => Self::Ops,
            Limit::Instructions => Self::Instructions,
            Limit::Pages => Self::Pages,
            Limit::Records => Self::Chunks,
        }
    }
}

impl From<blob::BlobPtr> for BlobPtr {
    fn from(ptr: blob::BlobPtr) -> Self {
        let blob::BlobPtr { offset, len, class, generation } = ptr;
        Self { offset, len, class, generation }
    }
}

impl From<&BlobPtr> for blob::BlobPtr {
    fn from(ptr: &BlobPtr) -> Self {
        let &BlobPtr { offset, len, class, generation } = ptr;
        Self { offset, len, class, generation }
    }
}
