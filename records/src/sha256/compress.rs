//! Compression function of SHA-256, in four lanes (FIPS 180-4, 6.2.2).

use super::word::{
    Word, add, load, load_pair, rotate_right, select, shift_right, splat, store, to_bytes, turn, turns, xor,
};
use std::hint::black_box;

/// State before the first block.
pub const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
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

/// One round; `input` is the sum of the round's constant and of its word of the message schedule. The names of the working variables
/// rotate, so that no variable is copied.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $turns:ident, $input:expr) => {
        // The rotations by 6, 11 and 25, from two rotations: 11 = 8 + 3, and 25 = 6 + 16 + 3.
        let six = rotate_right::<6>($e);
        let sum = xor(six, rotate_right::<3>(xor(turn(six, $turns.by_16), turn($e, $turns.by_8))));
        let first = add(add(add($h, sum), select($e, $f, $g)), $input);
        $d = add($d, first);
        let sum = xor(xor(rotate_right::<2>($a), rotate_right::<13>($a)), rotate_right::<22>($a));
        // The majority is c where b and c are equal, and a elsewhere.
        $h = add(add(first, sum), select(xor($b, $c), $a, $c));
    };
}

/// Sixteen rounds from a number on, with their inputs.
macro_rules! rounds {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $turns:ident, $input:ident, $w:ident, $from:expr) => {
        round!($a $b $c $d $e $f $g $h, $turns, $input!($w, $from, 0));
        round!($h $a $b $c $d $e $f $g, $turns, $input!($w, $from, 1));
        round!($g $h $a $b $c $d $e $f, $turns, $input!($w, $from, 2));
        round!($f $g $h $a $b $c $d $e, $turns, $input!($w, $from, 3));
        round!($e $f $g $h $a $b $c $d, $turns, $input!($w, $from, 4));
        round!($d $e $f $g $h $a $b $c, $turns, $input!($w, $from, 5));
        round!($c $d $e $f $g $h $a $b, $turns, $input!($w, $from, 6));
        round!($b $c $d $e $f $g $h $a, $turns, $input!($w, $from, 7));
        round!($a $b $c $d $e $f $g $h, $turns, $input!($w, $from, 8));
        round!($h $a $b $c $d $e $f $g, $turns, $input!($w, $from, 9));
        round!($g $h $a $b $c $d $e $f, $turns, $input!($w, $from, 10));
        round!($f $g $h $a $b $c $d $e, $turns, $input!($w, $from, 11));
        round!($e $f $g $h $a $b $c $d, $turns, $input!($w, $from, 12));
        round!($d $e $f $g $h $a $b $c, $turns, $input!($w, $from, 13));
        round!($c $d $e $f $g $h $a $b, $turns, $input!($w, $from, 14));
        round!($b $c $d $e $f $g $h $a, $turns, $input!($w, $from, 15));
    };
}

/// The input of a round among the first 16, whose words are those of the message.
macro_rules! given {
    ($w:ident, $from:expr, $at:literal) => {
        add(splat(K[$from + $at]), $w[$at])
    };
}

/// The input of a later round, whose word takes the place of the word 16 before it. Constant places keep the words in local variables.
macro_rules! scheduled {
    ($w:ident, $from:expr, $at:literal) => {{
        let (x, y) = ($w[($at + 1) % 16], $w[($at + 14) % 16]);
        let first = xor(xor(rotate_right::<7>(x), rotate_right::<18>(x)), shift_right::<3>(x));
        let second = xor(xor(rotate_right::<17>(y), rotate_right::<19>(y)), shift_right::<10>(y));
        $w[$at] = add(add(add($w[$at], first), $w[($at + 9) % 16]), second);
        add(splat(K[$from + $at]), $w[$at])
    }};
}

/// The input of a round, if it is known, and equal in all lanes.
macro_rules! known {
    ($inputs:ident, $from:expr, $at:literal) => {
        splat($inputs[$at])
    };
}

/// All rounds of a block with these words: adds the working variables to the sums. The rounds are written out, because a loop takes 2 % more
/// instructions.
macro_rules! block {
    ($sums:ident, $turns:ident, $w:ident) => {
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = $sums;
        rounds!(a b c d e f g h, $turns, given, $w, 0);
        rounds!(a b c d e f g h, $turns, scheduled, $w, 16);
        rounds!(a b c d e f g h, $turns, scheduled, $w, 32);
        rounds!(a b c d e f g h, $turns, scheduled, $w, 48);
        for (sum, word) in $sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = add(*sum, word);
        }
    };
}

/// Hashes the first `run` blocks of four messages; all have at least as many. `state` has eight words, and of each word the four lanes.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn compress(state: &mut [[u32; 4]; 8], run: usize, lanes: [&[[u8; 64]]; 4]) {
    let [lane0, lane1, lane2, lane3] = lanes.map(|blocks| &blocks[..run]);
    let turns = turns();
    let mut sums = state.map(|word| load(&word));
    for (((block0, block1), block2), block3) in lane0.iter().zip(lane1).zip(lane2).zip(lane3) {
        let blocks = [block0, block1, block2, block3].map(|block| block.as_chunks::<8>().0);
        macro_rules! pairs {
            ($($at:literal)*) => { [$(load_pair([&blocks[0][$at], &blocks[1][$at], &blocks[2][$at], &blocks[3][$at]])),*] };
        }
        let [[w0, w1], [w2, w3], [w4, w5], [w6, w7], [w8, w9], [w10, w11], [w12, w13], [w14, w15]] =
            pairs!(0 1 2 3 4 5 6 7);
        let mut w: [Word; 16] = [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15];
        block!(sums, turns, w);
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = store(sum);
    }
}

/// Returns the inputs of the rounds of a block with these words.
pub fn inputs(block: [u32; 16]) -> [u32; 64] {
    let mut w = [0u32; 64];
    w[..16].copy_from_slice(&block);
    for at in 16..64 {
        let (x, y) = (w[at - 15], w[at - 2]);
        let first = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
        let second = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
        w[at] = [first, w[at - 7], second].iter().fold(w[at - 16], |sum, word| sum.wrapping_add(*word));
    }
    w.iter_mut().zip(K).for_each(|(word, k)| *word = word.wrapping_add(k));
    w
}

/// Hashes a block that is the same in all lanes, and of which the inputs of the rounds are known.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn compress_known(state: &mut [[u32; 4]; 8], inputs: &[u32; 64]) {
    let turns = turns();
    let mut sums = state.map(|word| load(&word));
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = sums;
    for inputs in inputs.as_chunks::<16>().0 {
        // An opaque address lets each load have its offset, which saves 2 instructions a round.
        let inputs = black_box(inputs);
        rounds!(a b c d e f g h, turns, known, inputs, 0);
    }
    for (sum, word) in sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = add(*sum, word);
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = store(sum);
    }
}

/// Replaces the digests of four messages by the digests of these digests.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn compress_digests(state: &mut [[u32; 4]; 8]) {
    let turns = turns();
    let [w0, w1, w2, w3, w4, w5, w6, w7] = state.map(|word| load(&word));
    let (end, none, bits) = (splat(1 << 31), splat(0), splat(256));
    let mut w = [w0, w1, w2, w3, w4, w5, w6, w7, end, none, none, none, none, none, none, bits];
    let mut sums = INITIAL.map(|word| load(&[word; 4]));
    block!(sums, turns, w);
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = store(sum);
    }
}

/// Returns the digests of the lanes.
#[cfg_attr(target_family = "wasm", target_feature(enable = "simd128"))]
#[inline(never)]
pub fn digests_of(state: &[[u32; 4]; 8], digests: &mut [[u8; 32]; 4]) {
    let [a, b, c, d, e, f, g, h] = state.map(|word| load(&word));
    let halves = to_bytes([a, b, c, d]).into_iter().zip(to_bytes([e, f, g, h]));
    for (digest, (first, second)) in digests.iter_mut().zip(halves) {
        digest[..16].copy_from_slice(&first);
        digest[16..].copy_from_slice(&second);
    }
}
