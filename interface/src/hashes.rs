//! Hashes that are not to be taken for one another.

use candid::CandidType;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::ops::{Deref, DerefMut};

/// The hash of an output: SHA-256(txid ‖ VarInt(vout) ‖ locking script ‖ VarInt(satoshis)), in internal order. On the wire it may have
/// any length, and the method that takes it says what is wrong with one that has not 32 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtxoHash(ByteBuf);

impl Deref for UtxoHash {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for UtxoHash {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl From<[u8; 32]> for UtxoHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(ByteBuf::from(bytes))
    }
}

impl From<&[u8; 32]> for UtxoHash {
    fn from(bytes: &[u8; 32]) -> Self {
        Self::from(*bytes)
    }
}

impl From<UtxoHash> for ByteBuf {
    fn from(hash: UtxoHash) -> Self {
        hash.0
    }
}

/// Of any length, as it may come over the wire.
impl From<Vec<u8>> for UtxoHash {
    fn from(bytes: Vec<u8>) -> Self {
        Self(ByteBuf::from(bytes))
    }
}
