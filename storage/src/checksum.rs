//! Checksums: a word-wise multiplicative hash of the bytes before, folded to the last four bytes of a value. Checksums find damage, not forgery.
//! The hash of 252 bytes takes some 430 instructions, and XXH3 2,900.

/// Bytes of a checksum.
pub const CHECKSUM: usize = 4;

#[inline(never)]
fn of(bytes: &[u8]) -> [u8; CHECKSUM] {
    // Each step is a bijection of the sum so far, so a change of one word always changes the sum.
    let add = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let add_all = |sum: u64, words: &[[u8; 8]]| words.iter().fold(sum, |sum, word| add(sum, u64::from_le_bytes(*word)));
    // Eight words at a time, because a loop over single words takes half as many instructions again.
    let (blocks, rest) = bytes.as_chunks::<64>();
    let sum = blocks.iter().fold(!(bytes.len() as u64), |sum, block| add_all(sum, block.as_chunks().0));
    let (words, rest) = rest.as_chunks();
    let sum = add_all(sum, words);
    // Without a copy, because one of unknown length takes 100 instructions.
    let (half, rest) = rest.as_chunks();
    let last = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let last = half.iter().fold(last, |word, half| word << 32 | u64::from(u32::from_le_bytes(*half)));
    let sum = add(sum, last);
    ((sum ^ sum >> 32) as u32).to_le_bytes()
}

/// Writes the checksum of a value to its last four bytes.
pub fn put(value: &mut [u8]) {
    if let Some((bytes, sum)) = value.split_last_chunk_mut() {
        *sum = of(bytes);
    }
}

/// Returns whether the last four bytes of a value are the checksum of those before.
pub fn is_right(value: &[u8]) -> bool {
    value.split_last_chunk().is_some_and(|(bytes, sum)| *sum == of(bytes))
}

/// Returns the check of an entry's value. The check differs for each number, so that a moved entry is found.
#[inline]
pub fn of_entry(number: u64, value: u64) -> u64 {
    // A bijection of each of the two words.
    let mixed = (value ^ number.wrapping_mul(0xC4CE_B9FE_1A85_EC53)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed ^ mixed >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_single_bit_of_a_value_is_found() {
        let mut value = [7; 300];
        put(&mut value);
        assert!(is_right(&value));
        for bit in 0..8 * value.len() {
            value[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&value), "bit {bit}");
            value[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!is_right(&[]) && !is_right(&[0; 4]));
    }

    #[test]
    fn each_single_bit_changes_the_check_of_an_entry() {
        for (number, value) in [(0, 0), (7, 1 << 40 | 9), (u64::MAX, u64::MAX)] {
            let check = of_entry(number, value);
            for bit in 0..64 {
                assert_ne!(of_entry(number, value ^ 1 << bit), check, "{number}, {value}: bit {bit} of the value");
                assert_ne!(of_entry(number ^ 1 << bit, value), check, "{number}, {value}: bit {bit} of the number");
            }
        }
    }
}
