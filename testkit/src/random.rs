//! Pseudo-random numbers, with the same sequence for the same seed in all versions.

/// A SplitMix64 generator: small, fast, and stable over versions.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// Returns a number below `bound`, or 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns the next card of a deck that is shuffled anew whenever it is used up; `left` holds the remaining cards.
    pub fn draw(&mut self, deck: &[u64], left: &mut Vec<u64>) -> u64 {
        if left.is_empty() {
            left.extend(deck);
            for last in (1..left.len()).rev() {
                let other = self.below(last as u64 + 1) as usize;
                left.swap(last, other);
            }
        }
        left.pop().unwrap_or_default()
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn below_returns_every_number_under_the_bound() {
        let mut random = Random::new(3);
        let seen: HashSet<u64> = (0..200).map(|_| random.below(5)).collect();
        assert_eq!(seen, HashSet::from([0, 1, 2, 3, 4]));
        assert_eq!(random.below(0), 0);
    }
}
