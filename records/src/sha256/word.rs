//! Vector of four words of 32 bits, one for each lane. Native code, which runs in tests, has an array instead.

#[cfg(target_family = "wasm")]
pub use wasm::*;

#[cfg(not(target_family = "wasm"))]
pub use native::*;

#[cfg(target_family = "wasm")]
mod wasm {
    use core::arch::wasm32::*;
    pub use core::arch::wasm32::{
        u8x16_swizzle as turn, u32x4_add as add, u32x4_splat as splat, v128 as Word, v128_xor as xor,
    };
    use core::hint::black_box;

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

    /// Returns for each lane the big-endian bytes of its four words.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn to_bytes([a, b, c, d]: [Word; 4]) -> [[u8; 16]; 4] {
        let first = |x, y| u8x16_shuffle::<3, 2, 1, 0, 19, 18, 17, 16, 7, 6, 5, 4, 23, 22, 21, 20>(x, y);
        let second = |x, y| u8x16_shuffle::<11, 10, 9, 8, 27, 26, 25, 24, 15, 14, 13, 12, 31, 30, 29, 28>(x, y);
        let bytes = |low, high| (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        let both = |x, y| {
            [
                bytes(u64x2_extract_lane::<0>(x), u64x2_extract_lane::<0>(y)),
                bytes(u64x2_extract_lane::<1>(x), u64x2_extract_lane::<1>(y)),
            ]
        };
        let [lane0, lane1] = both(first(a, b), first(c, d));
        let [lane2, lane3] = both(second(a, b), second(c, d));
        [lane0, lane1, lane2, lane3]
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

    /// Rotations by whole bytes, which `turn` does in 3 instructions: for each byte of a vector, the place that it is taken from. A rotation by a
    /// number of bits takes 9 instructions.
    pub struct Turns {
        /// Right, by 8 bits.
        pub by_8: v128,
        /// Right, by 16 bits.
        pub by_16: v128,
    }

    /// Returns the rotations by whole bytes. The rotations are opaque, because the compiler takes a shuffle for known places, which has a price of 3
    /// and needs the vector twice.
    #[target_feature(enable = "simd128")]
    #[inline]
    pub fn turns() -> Turns {
        black_box(Turns {
            by_8: u8x16(1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12),
            by_16: u8x16(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13),
        })
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

    pub fn to_bytes(words: [Word; 4]) -> [[u8; 16]; 4] {
        from_fn(|lane| words.iter().fold(0, |bytes: u128, word| bytes << 32 | u128::from(word[lane])).to_be_bytes())
    }

    pub fn splat(word: u32) -> Word {
        [word; 4]
    }

    // Written out and inlined, because the unit tests, which hash millions of words, are optimised little.
    #[inline(always)]
    fn lanes(of: impl Fn(usize) -> u32) -> Word {
        [of(0), of(1), of(2), of(3)]
    }

    #[inline(always)]
    pub fn add(a: Word, b: Word) -> Word {
        lanes(|at| a[at].wrapping_add(b[at]))
    }

    #[inline(always)]
    pub fn xor(a: Word, b: Word) -> Word {
        lanes(|at| a[at] ^ b[at])
    }

    #[inline(always)]
    pub fn select(mask: Word, a: Word, b: Word) -> Word {
        lanes(|at| a[at] & mask[at] | b[at] & !mask[at])
    }

    #[inline(always)]
    pub fn shift_right<const N: u32>(of: Word) -> Word {
        lanes(|at| of[at] >> N)
    }

    #[inline(always)]
    pub fn rotate_right<const N: u32>(of: Word) -> Word {
        lanes(|at| of[at].rotate_right(N))
    }

    /// Rotations by whole bytes.
    pub struct Turns {
        /// Right, by 8 bits.
        pub by_8: u32,
        /// Right, by 16 bits.
        pub by_16: u32,
    }

    pub fn turns() -> Turns {
        Turns { by_8: 8, by_16: 16 }
    }

    #[inline(always)]
    pub fn turn(of: Word, by: u32) -> Word {
        lanes(|at| of[at].rotate_right(by))
    }
}
