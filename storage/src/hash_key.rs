//! Secret key of the hash of all tables: SipHash-1-3, 128 bits of key, 64 bits of hash.
//!
//! **Constraint.** Users of a canister choose what its tables hold: names, topics, accounts. Choosers who can compute the hash put all
//! their keys into one bucket, and each message that walks the bucket pays for its length. Under a secret key, chosen keys are spread as
//! random ones are.
//!
//! **Design.** A canister gets secret bytes only as the reply of a call, so its tables are opened before there is a key. All clones of a
//! [`HashKey`] share one key, which is set once. The owner persists the key before setting it, and enters nothing before. Controllers of
//! a canister, and nodes that run it, can read the key.

use siphasher::sip::SipHasher13;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of a key.
pub const KEY: usize = 16;

/// The key of the hash, shared by all clones; unset at first. Not printable, because a key never leaves the canister.
#[derive(Clone, Default)]
pub struct HashKey(Rc<Cell<Option<[u64; 2]>>>);

impl HashKey {
    /// Returns a key that is set.
    pub fn of(bytes: [u8; KEY]) -> Self {
        let key = Self::default();
        key.set(bytes);
        key
    }

    /// Sets the key of all clones, and returns whether it was unset. A key that is set stays.
    pub fn set(&self, bytes: [u8; KEY]) -> bool {
        let is_first = !self.is_set();
        if is_first {
            let (halves, _) = bytes.as_chunks();
            self.0.set(Some([0, 1].map(|half: usize| u64::from_le_bytes(halves[half]))));
        }
        is_first
    }

    /// Returns the key for its owner to persist, if it is set.
    pub fn bytes(&self) -> Option<[u8; KEY]> {
        let halves = self.0.get()?.map(u64::to_le_bytes);
        halves.as_flattened().try_into().ok()
    }

    /// Returns whether the key is set.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the hash of some bytes. Under an unset key, all bytes have the hash 0: nothing is entered yet, so nothing is found.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.0.get().map_or(0, |[first, second]| SipHasher13::new_with_keys(first, second).hash(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_siphash_1_3_of_any_length() {
        // Key and messages of the reference implementation's vectors: bytes 0, 1, 2, …
        let key = HashKey::of(std::array::from_fn(|at| at as u8));
        let bytes: Vec<u8> = (0..64).collect();
        let hashes = [0, 1, 7, 8, 15, 32, 63].map(|len| key.hash(&bytes[..len]));
        let expected = [
            0xabac_0158_050f_c4dc,
            0xc9f4_9bf3_7d57_ca93,
            0xd392_7d98_9bb1_1140,
            0x3690_9511_8d29_9a8e,
            0xd320_d86d_2a51_9956,
            0x8115_7b6c_16a7_b60d,
            0x9d19_9062_b7bb_b3a8,
        ];
        assert_eq!(hashes, expected);
    }

    #[test]
    fn key_is_set_once_for_all_clones() {
        let key = HashKey::default();
        let clone = key.clone();
        assert_eq!((clone.is_set(), clone.hash(b"a"), clone.hash(b"b")), (false, 0, 0));
        assert!(key.set([1; KEY]));
        let hash = clone.hash(b"a");
        assert_eq!((clone.is_set(), hash), (true, HashKey::of([1; KEY]).hash(b"a")));
        assert!(!clone.set([2; KEY]));
        assert_eq!(key.hash(b"a"), hash);
        assert_ne!(hash, HashKey::of([2; KEY]).hash(b"a"));
    }
}
