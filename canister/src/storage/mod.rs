//! The canister's stable memory: `coppice_storage` on the platform, with its spaces and cells.

mod ids;
pub mod memory;
pub mod owners;
pub mod places;

use crate::platform::Ic;

pub use coppice_storage::table::{SLICE_BUCKETS, Slice};
pub use coppice_storage::{Counting, HashKey, OpenError, changed_pages, table};

/// The arena of the canister's stable memory.
pub type Arena = coppice_storage::arena::Arena<Ic>;

/// Blobs in stable memory.
pub mod blob {
    pub use coppice_storage::blob::*;

    /// Blobs in the canister's stable memory.
    pub type BlobStore = coppice_storage::blob::BlobStore<super::Ic>;
}

/// Converts a blob pointer into the form used in replies.
pub fn named(ptr: blob::BlobPtr) -> coppice_interface::BlobPtr {
    let blob::BlobPtr { offset, len, class, generation } = ptr;
    coppice_interface::BlobPtr { offset, len, class, generation }
}

/// Converts a blob pointer from the form used in replies.
pub fn pointer(ptr: &coppice_interface::BlobPtr) -> blob::BlobPtr {
    let &coppice_interface::BlobPtr { offset, len, class, generation } = ptr;
    blob::BlobPtr { offset, len, class, generation }
}

/// Slots in stable memory.
pub mod slots {
    pub use coppice_storage::slots::*;

    /// Slots in the canister's stable memory.
    pub type Slots = coppice_storage::slots::Slots<super::Ic>;
}

/// The meter of a message.
pub type Meter = coppice_storage::Meter<Ic>;

/// A hash table in the canister's stable memory.
pub type HashTable = table::HashTable<Ic>;
