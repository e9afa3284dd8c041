//! Size classes of slots: 64 to 512 bytes in steps of 64, then four per doubling, up to 4 MiB.

/// Bytes of the smallest slot, and the unit of a slot's id.
pub const UNIT: u64 = 64;
/// Bytes of a slot's header, before the owner's bytes.
pub const HEAD: u32 = 8;
/// Number of classes.
pub const CLASSES: usize = 60;
/// Bytes of the largest slot.
const MAX: u32 = 4 << 20;
/// Bytes that the largest slot holds.
pub const MAX_LEN: u32 = MAX - HEAD;

/// Returns the smallest class that holds `len` bytes, or `None` above [`MAX_LEN`].
#[inline]
pub fn class_for(len: u32) -> Option<usize> {
    if len > MAX_LEN {
        return None;
    }
    let size = len + HEAD;
    if size <= 512 {
        return Some(size.div_ceil(UNIT as u32) as usize - 1);
    }
    let log = 31 - (size - 1).leading_zeros();
    Some(8 + 4 * (log as usize - 9) + ((size - 1) >> (log - 2) & 3) as usize)
}

/// Returns the bytes of a class's slots.
#[inline]
pub fn size_of(class: usize) -> u32 {
    if class < 8 {
        return (class as u32 + 1) * UNIT as u32;
    }
    let (doubling, quarter) = ((class - 8) / 4, (class - 8) % 4);
    (128 << doubling) * (5 + quarter as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_class_that_fits() {
        for class in 0..CLASSES {
            let size = size_of(class);
            assert_eq!(size % UNIT as u32, 0);
            assert_eq!(class_for(size - HEAD), Some(class), "{size}");
            if class + 1 < CLASSES {
                assert_eq!(class_for(size - HEAD + 1), Some(class + 1), "{size}");
                assert!(u64::from(size_of(class + 1) - size) <= u64::from(size / 4).max(UNIT));
            }
        }
        assert_eq!((class_for(0), size_of(CLASSES - 1)), (Some(0), MAX));
        assert_eq!(class_for(MAX_LEN + 1), None);
    }
}
