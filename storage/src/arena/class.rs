//! Size classes of the arena's slots, owners of its memory, and sides of its free slots.

use crate::WASM_PAGE;

/// Bytes of a granule, the unit of the arena: every class is a multiple of it.
pub const GRANULE: u64 = WASM_PAGE;
/// Granules of a block: the largest class, and the unit by which the arena grows.
pub const BLOCK_GRANULES: u64 = 64;
/// Bytes of a block.
pub const BLOCK: u64 = BLOCK_GRANULES * GRANULE;
/// Granules of the largest arena: a canister may have 500 GiB of stable memory.
pub const MAX_GRANULES: u64 = 500 * (1 << 30) / GRANULE;

/// One of the seven size classes, 64 KiB to 4 MiB (`pruning-spec-v1.md` 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 7;
    /// The class of a granule.
    pub const SMALLEST: Self = Self(0);
    /// The class of a block.
    pub const LARGEST: Self = Self(Self::COUNT as u8 - 1);

    /// All classes, from the smallest.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The smallest class that holds `len` bytes, or `None` above 4 MiB.
    #[inline]
    pub fn for_len(len: u32) -> Option<Self> {
        Self::for_granules(u64::from(len).div_ceil(GRANULE))
    }

    /// The smallest class that has `granules` granules, or `None` above 64.
    #[inline]
    pub fn for_granules(granules: u64) -> Option<Self> {
        (granules <= BLOCK_GRANULES).then(|| Self(granules.max(1).next_power_of_two().trailing_zeros() as u8))
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

    /// The next larger class, or `None` above 4 MiB.
    #[inline]
    pub fn larger(self) -> Option<Self> {
        Self::from_index(self.0 + 1)
    }
}

/// The side of a free slot: who may take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Whole units for all owners, and pieces of units for owners that are not counted.
    Shared,
    /// Pieces of units that counted owners touch, for these owners.
    Counted,
}

impl Side {
    /// Both sides, by index.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Counted];

    /// Index of the class.
    #[inline(always)]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// A number for each class.
pub type ByClass = [u32; Class::COUNT];

/// Owner of memory of the arena, by an index that the canister chooses. Kept bytes are counted by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u8);

impl Owner {
    /// Number of owners.
    pub const COUNT: usize = 12;

    /// The owner with this index, below [`COUNT`](Self::COUNT).
    pub const fn new(index: u8) -> Self {
        assert!((index as usize) < Self::COUNT);
        Self(index)
    }

    /// All owners, by index.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Returns the owner with this stored index.
    #[inline]
    pub fn from_index(index: u8) -> Option<Self> {
        (usize::from(index) < Self::COUNT).then_some(Self(index))
    }

    /// Returns the index, as it is stored.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
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
        assert_eq!(class(u32::MAX), None);
        assert_eq!(
            Class::all().map(Class::size).collect::<Vec<_>>(),
            [64, 128, 256, 512, 1024, 2048, 4096].map(|k| k << 10)
        );
        assert_eq!(Class::of_size(100), None);
        assert_eq!(Class::of_size(131_072).map(Class::index), Some(1));
        assert_eq!(u64::from(Class::LARGEST.size()), BLOCK);
        assert_eq!(MAX_GRANULES % BLOCK_GRANULES, 0, "the arena ends with a whole block");
    }
}
