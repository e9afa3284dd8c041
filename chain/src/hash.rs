//! Block hashes, as the canister keeps them.

use ic_coppice_interface::BlockHash;
pub use ic_coppice_interface::seals::MAX_HASH;

/// An opaque block hash of up to 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hash {
    /// The bytes, and zeros after them.
    pub(super) bytes: [u8; MAX_HASH],
    /// The number of the bytes.
    pub(super) len: u8,
}

impl Hash {
    /// Returns `None` for more than 32 bytes.
    #[inline]
    pub fn new(hash: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_HASH];
        bytes.get_mut(..hash.len())?.copy_from_slice(hash);
        Some(Self { bytes, len: hash.len() as u8 })
    }

    /// A hash as it is stored. Copies all 32 bytes, because a copy of constant length is cheapest.
    #[inline]
    pub fn stored(bytes: &[u8; MAX_HASH], len: u8) -> Option<Self> {
        (usize::from(len) <= MAX_HASH).then_some(Self { bytes: *bytes, len })
    }

    /// A copy of the hash's bytes.
    #[inline]
    pub fn to_bytes(self) -> BlockHash {
        let mut bytes = self.bytes.to_vec();
        bytes.truncate(usize::from(self.len));
        BlockHash::from(bytes)
    }

    /// The hash's bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
