//! Vector of four words of 32 bits, one for each lane. Native code, which runs in tests, has an array instead.

#[cfg(target_family = "wasm")]
pub use wasm::*;

#[cfg(not(target_family = "wasm"))]
pub use native::*;

#[cfg(target_family = "wasm")]
mod wasm {
    use core::arch::wasm32::*;

    pub type Word = v128;

    /// Returns the vector of these words.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn load(words: &[u32; 4]) -> Word {
        let &[a, b, c, d] = words;
        u32x4(a, b, c, d)
    }

    /// Returns the words of a vector.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn store(of: Word) -> [u32; 4] {
        [
            u32x4_extract_lane::<0>(of),
            u32x4_extract_lane::<1>(of),
            u32x4_extract_lane::<2>(of),
            u32x4_extract_lane::<3>(of),
        ]
    }

    /// Returns two vectors: the first and the second big-endian word of each lane. A shuffle of 64-bit loads reverses the bytes, too, and
    /// takes fewer instructions than loads of 32 bits.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn load_pair(lanes: [&[u8; 8]; 4]) -> [Word; 2] {
        let [a, b, c, d] = lanes.map(|bytes| u64::from_le_bytes(*bytes));
        let (x, y) = (u64x2(a, b), u64x2(c, d));
        [
            u8x16_shuffle::<3, 2, 1, 0, 11, 10, 9, 8, 19, 18, 17, 16, 27, 26, 25, 24>(x, y),
            u8x16_shuffle::<7, 6, 5, 4, 15, 14, 13, 12, 23, 22, 21, 20, 31, 30, 29, 28>(x, y),
        ]
    }

    /// Returns the words of a vector as big-endian bytes.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn to_bytes(of: Word) -> [u8; 16] {
        let swapped = u8x16_shuffle::<3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12>(of, of);
        let (low, high) = (u64x2_extract_lane::<0>(swapped), u64x2_extract_lane::<1>(swapped));
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn splat(word: u32) -> Word {
        u32x4_splat(word)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn add(a: Word, b: Word) -> Word {
        u32x4_add(a, b)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn xor(a: Word, b: Word) -> Word {
        v128_xor(a, b)
    }

    /// Returns the bits of `a` where `mask` is set, and of `b` elsewhere.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn select(mask: Word, a: Word, b: Word) -> Word {
        v128_bitselect(a, b, mask)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn shift_right<const N: u32>(of: Word) -> Word {
        u32x4_shr(of, N)
    }

    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn rotate_right<const N: u32>(of: Word) -> Word {
        v128_or(u32x4_shr(of, N), u32x4_shl(of, 32 - N))
    }
}

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::array::from_fn;

    pub type Word = [u32; 4];

    pub fn load(words: &[u32; 4]) -> Word {
        *words
    }

    pub fn store(of: Word) -> [u32; 4] {
        of
    }

    pub fn load_pair(lanes: [&[u8; 8]; 4]) -> [Word; 2] {
        let both = lanes.map(|bytes| u64::from_be_bytes(*bytes));
        [both.map(|both| (both >> 32) as u32), both.map(|both| both as u32)]
    }

    pub fn to_bytes(of: Word) -> [u8; 16] {
        of.iter().fold(0, |bytes: u128, word| bytes << 32 | u128::from(*word)).to_be_bytes()
    }

    pub fn splat(word: u32) -> Word {
        [word; 4]
    }

    pub fn add(a: Word, b: Word) -> Word {
        from_fn(|at| a[at].wrapping_add(b[at]))
    }

    pub fn xor(a: Word, b: Word) -> Word {
        from_fn(|at| a[at] ^ b[at])
    }

    pub fn select(mask: Word, a: Word, b: Word) -> Word {
        from_fn(|at| a[at] & mask[at] | b[at] & !mask[at])
    }

    pub fn shift_right<const N: u32>(of: Word) -> Word {
        of.map(|word| word >> N)
    }

    pub fn rotate_right<const N: u32>(of: Word) -> Word {
        of.map(|word| word.rotate_right(N))
    }
}
