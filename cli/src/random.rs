//! Numbers that are random enough to choose by, and the same for a seed for ever.

/// Small, fast, and the same for ever: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// The next card of a deck that is shuffled anew each time it is used up; `left` is what is left of it.
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

    /// So many random bytes.
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
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut random = Random::new(3);
        let seen: HashSet<u64> = (0..200).map(|_| random.below(5)).collect();
        assert_eq!(seen, HashSet::from([0, 1, 2, 3, 4]));
        assert_eq!(random.below(0), 0);
    }
}
