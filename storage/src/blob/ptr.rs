//! Pointer, size class and owner of a blob.

use crate::WASM_PAGE;
use serde::{Deserialize, Serialize};

/// Bytes of a granule, the unit of the arena: every class is a multiple of it.
pub const GRANULE: u64 = WASM_PAGE;
/// Granules of the largest arena: a canister may have 500 GiB of stable memory.
pub const MAX_GRANULES: u64 = 500 * (1 << 30) / GRANULE;
/// Bytes of the largest blob.
pub const MAX_BLOB: u32 = 4 << 20;

/// One of the seven size classes, 64 KiB to 4 MiB (`pruning-spec-v1.md` 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 7;

    /// All classes, from the smallest.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The smallest class that holds `len` bytes, or `None` above 4 MiB.
    #[inline]
    pub fn for_len(len: u32) -> Option<Self> {
        if len > MAX_BLOB {
            return None;
        }
        let granules = len.div_ceil(GRANULE as u32).max(1);
        Some(Self(granules.next_power_of_two().trailing_zeros() as u8))
    }

    /// The class of exactly `bytes` bytes, or `None`.
    #[inline]
    pub fn of_size(bytes: u32) -> Option<Self> {
        Self::for_len(bytes).filter(|class| class.size() == bytes)
    }

    /// The class with this stored index, or `None`.
    #[inline]
    pub fn from_index(index: u8) -> Option<Self> {
        (usize::from(index) < Self::COUNT).then_some(Self(index))
    }

    /// The stored index: 0 for 64 KiB … 6 for 4 MiB.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of a slot.
    #[inline]
    pub fn size(self) -> u32 {
        // An index is below 7.
        (GRANULE as u32).wrapping_shl(u32::from(self.0))
    }

    /// Granules of a slot.
    #[inline]
    pub fn granules(self) -> u64 {
        1_u64.wrapping_shl(u32::from(self.0))
    }
}

/// Location of a blob, and the allocation of the slot that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPtr {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Bytes of data; at most `class`.
    pub len: u32,
    /// Bytes of the slot, one of the seven size classes.
    pub class: u32,
    /// Number of the slot's allocation, from 1. A reused slot has a higher one, so an old pointer is recognised.
    #[serde(rename = "gen")]
    pub generation: u32,
}

/// Owner of a blob. Kept bytes are counted by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The log: see [`BlobStore::set_log_class`](super::BlobStore::set_log_class).
    Log,
    /// An open upload.
    Upload,
    /// Other data.
    External,
}

impl Owner {
    /// Number of owners.
    pub const COUNT: usize = 3;
    /// All owners, in the order in which they are stored.
    pub const ALL: [Self; Self::COUNT] = [Self::Log, Self::Upload, Self::External];

    /// Returns the owner with this index, as it is stored.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Returns the index under which the owner is stored.
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_class_that_fits() {
        let class = |len| Class::for_len(len).map(Class::size);
        assert_eq!(class(0), Some(65_536));
        assert_eq!(class(65_536), Some(65_536));
        assert_eq!(class(65_537), Some(131_072));
        assert_eq!(class(1 << 20), Some(1 << 20));
        assert_eq!(class(4 << 20), Some(4 << 20));
        assert_eq!(class((4 << 20) + 1), None);
        assert_eq!(
            Class::all().map(Class::size).collect::<Vec<_>>(),
            [64, 128, 256, 512, 1024, 2048, 4096].map(|k| k << 10)
        );
        assert_eq!(Class::of_size(100), None);
        assert_eq!(Class::of_size(131_072).map(Class::index), Some(1));
    }
}
