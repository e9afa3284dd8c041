//! Superblock: the roots of all spaces, in two copies at the start of stable memory.
//!
//! ```text
//! copies at 0 and 4,096
//! 0 magic "CPSB"   4 version u16   6 reserved u16   8 64 spaces: root u32 (granule; 0 for none) ‖ leaves u32   520 checksum u32
//! ```
//! The second copy replaces a first one whose checksum is wrong.

use crate::bytes::u32_at;
use crate::checksum::{self, CHECKSUM};
use crate::header::{HEADER, Header};
use crate::{OpenError, Platform, Raw};

/// Number of spaces.
pub const SPACES: usize = 64;
const LAYOUT: Header = Header { name: "stable memory", magic: *b"CPSB", version: 2 };
const COPIES: [u64; 2] = [0, 4_096];
const BYTES: usize = HEADER + 8 * SPACES + CHECKSUM;

/// Place of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The only leaf, or the granule that lists the leaves; 0 for none.
    pub granule: u32,
    /// Number of leaves, holes included.
    pub leaves: u32,
}

/// The places of all spaces, mirrored on the heap and written through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub spaces: [Root; SPACES],
}

impl Superblock {
    /// Writes a superblock without spaces.
    pub fn create(raw: Raw<impl Platform>) -> Self {
        let new = Self { spaces: [Root::default(); SPACES] };
        new.save(raw);
        new
    }

    /// Reads the first copy that is whole.
    ///
    /// # Errors
    /// [`OpenError::Header`] if the memory has another layout, and [`OpenError::Corrupt`] if both copies are damaged.
    pub fn open(raw: Raw<impl Platform>) -> Result<Self, OpenError> {
        let [first, second] = COPIES;
        let read = |at| raw.read_with(at, Self::decode);
        read(first).or_else(|why| read(second).map_err(|_| why))
    }

    fn decode(bytes: &[u8; BYTES]) -> Result<Self, OpenError> {
        LAYOUT.check(bytes.first_chunk().expect("a superblock is longer than a header"))?;
        if !checksum::is_right(bytes) {
            return Err(LAYOUT.corrupt("both copies of the superblock are damaged".into()));
        }
        let root = |space: usize| {
            let at = HEADER + 8 * space;
            Root { granule: u32_at(bytes, at), leaves: u32_at(bytes, at + 4) }
        };
        Ok(Self { spaces: std::array::from_fn(root) })
    }

    /// Writes both copies.
    pub fn save(&self, raw: Raw<impl Platform>) {
        let mut bytes = [0; BYTES];
        bytes[..HEADER].copy_from_slice(&LAYOUT.encode());
        let roots = self.spaces.map(|root| u64::from(root.granule) | u64::from(root.leaves) << 32);
        bytes[HEADER..BYTES - CHECKSUM].copy_from_slice(roots.map(u64::to_le_bytes).as_flattened());
        checksum::put(&mut bytes);
        COPIES.into_iter().for_each(|at| raw.write(at, &bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twin::{self, Twin};
    use ic_stable_structures::Memory;

    const RAW: Raw<Twin> = Raw::new();

    fn saved() -> Superblock {
        twin::reset();
        <Twin as Platform>::Memory::default().grow(1);
        let mut block = Superblock::create(RAW);
        block.spaces[3] = Root { granule: 70, leaves: 2 };
        block.save(RAW);
        block
    }

    #[test]
    fn one_whole_copy_suffices_and_two_damaged_ones_are_refused() {
        let block = saved();
        assert_eq!(RAW.read(0), *b"CPSB\x02\0\0\0");
        for bit in 0..8 * BYTES as u64 {
            for copy in COPIES {
                let at = copy + bit / 8;
                let [byte] = RAW.read::<1>(at);
                RAW.write(at, &[byte ^ 1 << (bit % 8)]);
                assert_eq!(Superblock::open(RAW).unwrap(), block, "bit {bit} of the copy at {copy}");
                RAW.write(at, &[byte]);
            }
        }
        COPIES.into_iter().for_each(|copy| RAW.write(copy + 40, &[1]));
        assert!(matches!(Superblock::open(RAW), Err(OpenError::Corrupt { .. })));
    }

    #[test]
    fn memory_of_another_layout_is_refused_by_its_magic() {
        saved();
        COPIES.into_iter().for_each(|copy| RAW.write(copy, b"MGR\x01\x02\0\0\x01"));
        let why = Superblock::open(RAW).unwrap_err().to_string();
        assert!(why.starts_with("stable memory: magic \"MGR\\x01\", version 2"), "{why}");
    }
}
