//! Compression function of SHA-256, in four lanes (FIPS 180-4, 6.2.2).

use super::word::{Word, add, load, load_pair, rotate_right, select, shift_right, splat, store, to_bytes, xor};
use std::hint::black_box;

/// Constants of the 64 rounds.
const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
];

/// One round. The names of the working variables rotate, so that no variable is copied.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $k:expr, $w:expr) => {
        let sum = xor(xor(rotate_right::<6>($e), rotate_right::<11>($e)), rotate_right::<25>($e));
        let first = add(add(add(add($h, sum), select($e, $f, $g)), splat($k)), $w);
        $d = add($d, first);
        let sum = xor(xor(rotate_right::<2>($a), rotate_right::<13>($a)), rotate_right::<22>($a));
        // The majority is c where b and c are equal, and a elsewhere.
        $h = add(add(first, sum), select(xor($b, $c), $a, $c));
    };
}

/// Sixteen rounds with these constants and these words of the message schedule.
macro_rules! rounds {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $k:expr, $w:expr) => {
        round!($a $b $c $d $e $f $g $h, $k[0], $w[0]);
        round!($h $a $b $c $d $e $f $g, $k[1], $w[1]);
        round!($g $h $a $b $c $d $e $f, $k[2], $w[2]);
        round!($f $g $h $a $b $c $d $e, $k[3], $w[3]);
        round!($e $f $g $h $a $b $c $d, $k[4], $w[4]);
        round!($d $e $f $g $h $a $b $c, $k[5], $w[5]);
        round!($c $d $e $f $g $h $a $b, $k[6], $w[6]);
        round!($b $c $d $e $f $g $h $a, $k[7], $w[7]);
        round!($a $b $c $d $e $f $g $h, $k[8], $w[8]);
        round!($h $a $b $c $d $e $f $g, $k[9], $w[9]);
        round!($g $h $a $b $c $d $e $f, $k[10], $w[10]);
        round!($f $g $h $a $b $c $d $e, $k[11], $w[11]);
        round!($e $f $g $h $a $b $c $d, $k[12], $w[12]);
        round!($d $e $f $g $h $a $b $c, $k[13], $w[13]);
        round!($c $d $e $f $g $h $a $b, $k[14], $w[14]);
        round!($b $c $d $e $f $g $h $a, $k[15], $w[15]);
    };
}

/// The next words of the message schedule, in the places of the words 16 before them. Constant places keep the words in local variables.
macro_rules! schedule {
    ($w:ident, $($at:literal)*) => { $(
        let (x, y) = ($w[($at + 1) % 16], $w[($at + 14) % 16]);
        let first = xor(xor(rotate_right::<7>(x), rotate_right::<18>(x)), shift_right::<3>(x));
        let second = xor(xor(rotate_right::<17>(y), rotate_right::<19>(y)), shift_right::<10>(y));
        $w[$at] = add(add(add($w[$at], first), $w[($at + 9) % 16]), second);
    )* };
}

/// Hashes the first `run` blocks of four messages; all have at least as many. `state` has eight words, and of each word the four lanes.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn compress(state: &mut [[u32; 4]; 8], run: usize, lanes: [&[[u8; 64]]; 4]) {
    let [lane0, lane1, lane2, lane3] = lanes.map(|blocks| &blocks[..run]);
    let mut sums = state.map(|word| load(&word));
    for (((block0, block1), block2), block3) in lane0.iter().zip(lane1).zip(lane2).zip(lane3) {
        let blocks = [block0, block1, block2, block3].map(|block| block.as_chunks::<8>().0);
        macro_rules! pairs {
            ($($at:literal)*) => { [$(load_pair([&blocks[0][$at], &blocks[1][$at], &blocks[2][$at], &blocks[3][$at]])),*] };
        }
        let [[w0, w1], [w2, w3], [w4, w5], [w6, w7], [w8, w9], [w10, w11], [w12, w13], [w14, w15]] =
            pairs!(0 1 2 3 4 5 6 7);
        let mut w: [Word; 16] = [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15];
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = sums;
        let (first, rest) = K.split_at(16);
        rounds!(a b c d e f g h, first, w);
        // The rounds are not written out, because that saves 2 % of the instructions, and takes twice the bytes.
        for k in rest.as_chunks::<16>().0 {
            // An opaque address lets each load have its offset, which saves 2 instructions a round.
            let k = black_box(k);
            schedule!(w, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            rounds!(a b c d e f g h, k, w);
        }
        for (sum, word) in sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = add(*sum, word);
        }
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = store(sum);
    }
}

/// Returns the digest of a lane.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn digest(state: &[[u32; 4]; 8], lane: usize) -> [u8; 32] {
    let of = |first: usize| to_bytes(load(&[0, 1, 2, 3].map(|at| state[first + at][lane])));
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&of(0));
    digest[16..].copy_from_slice(&of(4));
    digest
}
