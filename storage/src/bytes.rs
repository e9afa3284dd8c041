//! Little-endian numbers at fixed offsets of a byte slice.

/// Returns the 16 bits at `at`.
///
/// # Panics
/// If they lie outside the slice, which cannot happen for constant layouts.
#[inline(always)]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// Returns the 32 bits at `at`.
///
/// # Panics
/// As [`u16_at`].
#[inline(always)]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// Returns the 64 bits at `at`.
///
/// # Panics
/// As [`u16_at`].
#[inline(always)]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Returns `N` bytes at `at`.
///
/// # Panics
/// As [`u16_at`].
#[inline(always)]
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the layout is as long as its fields")
}
