//! Seals: a chain of SHA-256 over the headers of all blocks, so that one trusted seal proves every header before it
//! (`docs/design/export.md`).
//!
//! ```text
//! leaf(n)  = SHA-256("coppice block 1" ‖ number u64 ‖ timestamp u64 ‖ 3 × length u32
//!                    ‖ length u8 ‖ hash ‖ length u8 ‖ parent's hash ‖ 3 × SHA-256 of a segment)
//! seal(n)  = SHA-256("coppice seal 1" ‖ seal(n − 1) ‖ leaf(n))        before the first block: 32 zero bytes
//! after a reset, seal(n − 1) of the first block is SHA-256("coppice reset 1" ‖ the last seal ‖ resets u64)
//! ```
//! All integers are big-endian. The transactions' ids, the keys and the monotonic time are not in a leaf, so a seal does not prove the
//! fields `transactions`, `keys` and `monotonic_timestamp_secs`; the SHA-256 of the index segment proves what it contains.

use sha2::{Digest, Sha256};

/// A seal or a leaf: a SHA-256.
pub type Seal = [u8; 32];

/// Seal before the first block of a chain that was never reset.
pub const FIRST: Seal = [0; 32];

/// Bytes of the longest hash of a block.
pub const MAX_HASH: usize = 32;

const BLOCK: &[u8; 15] = b"coppice block 1";
const SEAL: &[u8; 14] = b"coppice seal 1";
const RESET: &[u8; 15] = b"coppice reset 1";
/// Bytes of the longest message of a leaf.
const LONGEST: usize = BLOCK.len() + 8 + 8 + 3 * 4 + 2 * (1 + MAX_HASH) + 3 * 32;

/// The fields of a block that a leaf proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// The block's number.
    pub number: u64,
    /// The producer's timestamp, in Unix seconds.
    pub timestamp_secs: u64,
    /// The length of each segment, in bytes.
    pub lengths: [u32; 3],
    /// The block's hash.
    pub hash: &'a [u8],
    /// The parent block's hash.
    pub parent_hash: &'a [u8],
    /// The SHA-256 of each segment, as the producer declared it.
    pub sha256: &'a [[u8; 32]; 3],
}

impl Leaf<'_> {
    /// Returns the SHA-256 of the fields; `None` if a hash has more than 32 bytes.
    pub fn digest(&self) -> Option<Seal> {
        let (mut message, mut end) = ([0; LONGEST], 0);
        let mut put = |bytes: &[u8]| {
            message[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        };
        put(BLOCK);
        put(&self.number.to_be_bytes());
        put(&self.timestamp_secs.to_be_bytes());
        self.lengths.iter().for_each(|length| put(&length.to_be_bytes()));
        for hash in [self.hash, self.parent_hash] {
            if hash.len() > MAX_HASH {
                return None;
            }
            put(&[hash.len() as u8]);
            put(hash);
        }
        put(self.sha256.as_flattened());
        Some(Sha256::digest(&message[..end]).into())
    }
}

/// Returns the seal of a block from the seal before it and its leaf.
pub fn seal(before: &Seal, leaf: &Seal) -> Seal {
    let mut message = [0; SEAL.len() + 64];
    message[..SEAL.len()].copy_from_slice(SEAL);
    message[SEAL.len()..][..32].copy_from_slice(before);
    message[SEAL.len() + 32..].copy_from_slice(leaf);
    Sha256::digest(message).into()
}

/// Returns the seal with which a chain begins again: `last` is the head's seal, and `resets` counts the reset itself.
pub fn after_reset(last: &Seal, resets: u64) -> Seal {
    let mut message = [0; RESET.len() + 40];
    message[..RESET.len()].copy_from_slice(RESET);
    message[RESET.len()..][..32].copy_from_slice(last);
    message[RESET.len() + 32..].copy_from_slice(&resets.to_be_bytes());
    Sha256::digest(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The vectors of `docs/design/export.md`, which a program of another language computed.
    #[test]
    fn seals_have_the_documented_values() {
        let sha256 = [&b"body"[..], b"", b"index!"].map(|segment| Sha256::digest(segment).into());
        let first = Leaf {
            number: 7,
            timestamp_secs: 1_700_000_000,
            lengths: [4, 0, 6],
            hash: &[7; 32],
            parent_hash: &[6; 32],
            sha256: &sha256,
        };
        let second = Leaf { number: 8, timestamp_secs: 1_700_000_015, hash: &[8], parent_hash: &[7; 32], ..first };
        let empty = [Sha256::digest(b"").into(); 3];
        let third =
            Leaf { number: 0, timestamp_secs: 0, lengths: [0; 3], hash: &[0xff; 20], parent_hash: &[], sha256: &empty };
        let leaves = [first, second, third].map(|leaf| leaf.digest().unwrap());
        let one = seal(&FIRST, &leaves[0]);
        let two = seal(&one, &leaves[1]);
        let again = after_reset(&two, 1);
        let values = [leaves[0], one, leaves[1], two, again, leaves[2], seal(&again, &leaves[2])];
        let documented = [
            "66f2394fe526586de80e8d6207666131d2e86eb9a9dc22a13494174fea9cda01",
            "0d6ecc7750c7ee9b7d3608ba04909791e952e8b9972e86395121970e06d4e389",
            "1c302410d4166bb535b08a9bfb11f685d1ec72bdc6e5ec110c03717777328d90",
            "fd7384b8f5592d4e2e2b47439432427d2f535508ff7889ae0289e12c8d846912",
            "b7f5a1adc713e43e3b36b8ccdea7acb32f8d1c5381d5ce837899f9101d421081",
            "f0366480f7455ee3e577da3493068d2439177b1f146a6e28a182e8f0234dc950",
            "ab490c8889814bae45ca8895aab176cc07350c59386827e93cec726f03dacdd1",
        ];
        assert_eq!(values.map(|value| hex(&value)), documented);
    }

    #[test]
    fn hash_of_33_bytes_has_no_leaf() {
        let sha256 = [[0; 32]; 3];
        let of = |hash: &[u8], parent_hash: &[u8]| {
            Leaf { number: 0, timestamp_secs: 0, lengths: [0; 3], hash, parent_hash, sha256: &sha256 }.digest()
        };
        let (longest, longer) = ([1; 32], [1; 33]);
        assert!(of(&longest, &longest).is_some());
        assert_eq!((of(&longer, &[]), of(&[], &longer)), (None, None));
        assert_ne!(of(&[1], &[2, 3]), of(&[1, 2], &[3]), "lengths are part of it");
    }
}
