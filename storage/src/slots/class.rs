//! Size classes of slots: 128 bytes to 1 KiB in steps of 128, then four per doubling up to 128 KiB. A larger slot has whole granules.
//!
//! ```text
//! slots of         a chunk                  sizes
//! up to 1 KiB      1 granule,   64 KiB      128, 256, … 1024
//! up to 8 KiB      1 granule,   64 KiB      5, 6, 7 and 8 eighths of a power of two
//! up to 128 KiB    4 granules, 256 KiB      a chunk / 28, 24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2
//! up to 4 MiB      the slot alone           64 KiB, 128 KiB, …
//! ```
//! A full chunk is larger than the bytes that its slots hold: by half at most if they hold 300 bytes and more, and usually by a fifth.

use crate::arena::{BLOCK, Class, GRANULE};

/// Id of a slot: its offset in the arena / 128 + 1; 0 for no slot.
pub type SlotId = u32;

/// Bytes of the smallest slot, and the unit of a slot's id.
pub const UNIT: u64 = 128;
/// Bytes of a slot's header, before the owner's bytes.
pub const HEAD: u32 = 8;
/// Number of classes whose slots share chunks.
pub const CLASSES: usize = 34;
/// The class of slots that have granules of their own, as an index of lists.
pub const LARGE: usize = CLASSES;
/// Bytes that the largest slot holds.
pub const MAX_LEN: u32 = BLOCK as u32 - HEAD;
/// The first class of chunks of [`WIDE`] granules.
const FIRST_WIDE: usize = 20;
/// Granules of the chunks of larger slots.
pub const WIDE: u64 = 4;
/// Slots of a chunk, for the classes from [`FIRST_WIDE`] on. A slot of [`LARGE`] is alone.
const PARTS: [u32; LARGE - FIRST_WIDE + 1] = [28, 24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1];

/// Bytes of the slots of each class; for [`LARGE`] more than a granule.
pub const SIZES: [u32; LARGE + 1] = {
    let mut sizes = [0; LARGE + 1];
    let mut class = 0;
    while class <= LARGE {
        sizes[class] = if class < 8 {
            (class as u32 + 1) * UNIT as u32
        } else if class < FIRST_WIDE {
            (256 << ((class - 8) / 4)) * (5 + (class as u32 - 8) % 4)
        } else {
            (WIDE * GRANULE) as u32 / PARTS[class - FIRST_WIDE] / UNIT as u32 * UNIT as u32
        };
        class += 1;
    }
    sizes
};

/// Returns the smallest class that holds `len` bytes, or `None` if they need granules of their own.
#[inline]
pub fn class_for(len: u32) -> Option<usize> {
    let size = len.saturating_add(HEAD);
    if size <= 1024 {
        return Some(size.div_ceil(UNIT as u32) as usize - 1);
    }
    let log = 31 - (size - 1).leading_zeros();
    let first = 8 + 4 * (log as usize - 10);
    if first < FIRST_WIDE {
        return Some(first + ((size - 1) >> (log - 2) & 3) as usize);
    }
    (first..CLASSES.min(first + 4)).find(|class| size <= SIZES[*class])
}

/// Returns the granules of a class's chunks; 1 for [`LARGE`], whose slots begin in any granule and have their number in their line.
#[inline]
pub fn granules_of(class: usize) -> u64 {
    if class < FIRST_WIDE || class == LARGE { 1 } else { WIDE }
}

/// Returns the slots of a class's chunks.
#[inline]
pub fn slots_of(class: usize) -> u32 {
    match class.checked_sub(FIRST_WIDE) {
        Some(wide) => PARTS[wide],
        None => GRANULE as u32 / SIZES[class],
    }
}

/// Returns the arena's class of a class's chunks.
#[inline]
pub fn chunk_of(class: usize) -> Class {
    // The classes of the arena are powers of two.
    Class::for_granules(granules_of(class)).unwrap_or(Class::LARGEST)
}

/// Returns the granules of a slot that has granules of its own, or `None` above [`MAX_LEN`].
#[inline]
pub fn granules_for(len: u32) -> Option<u64> {
    (len <= MAX_LEN).then(|| u64::from(len + HEAD).div_ceil(GRANULE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_class_that_fits() {
        for (class, &size) in SIZES.iter().enumerate().take(CLASSES) {
            assert_eq!(size % UNIT as u32, 0);
            assert_eq!(class_for(size - HEAD), Some(class), "{size}");
            assert_eq!(class_for(size - HEAD + 1), Some(class + 1).filter(|next| *next < CLASSES), "{size}");
            let chunk = granules_of(class) as u32 * GRANULE as u32;
            assert_eq!(slots_of(class), chunk / size, "{size}");
            assert_eq!(u64::from(chunk_of(class).size()), granules_of(class) * GRANULE);
        }
        assert_eq!((class_for(0), SIZES[FIRST_WIDE - 1], SIZES[CLASSES - 1]), (Some(0), 8 << 10, 128 << 10));
        assert_eq!((class_for(MAX_LEN), class_for(u32::MAX)), (None, None));
        let granules = [(128 << 10) - 7, (256 << 10) - 8, MAX_LEN, MAX_LEN + 1].map(granules_for);
        assert_eq!(granules, [Some(3), Some(4), Some(64), None]);
    }

    /// Bytes of chunks for a hundred bytes that slots hold.
    fn percent(len: u32) -> u64 {
        let held = |slots: u32| u64::from(len) * u64::from(slots);
        let (chunk, held) = match class_for(len) {
            Some(class) => (granules_of(class) * GRANULE, held(slots_of(class))),
            None => (granules_for(len).unwrap() * GRANULE, held(1)),
        };
        (100 * chunk).div_ceil(held)
    }

    #[test]
    fn chunks_are_little_larger_than_what_they_hold() {
        let lengths = [300, 700, 1_700, 4_000, 9_000, 20_000, 33_000, 45_000, 70_000, 100_000, 220_000, 500_000];
        assert_eq!(lengths.map(percent), [129, 111, 108, 103, 105, 110, 114, 117, 125, 132, 120, 105]);
        for len in (300..MAX_LEN).step_by(61) {
            assert!(percent(len) <= 151, "{len}: {}", percent(len));
        }
    }
}
