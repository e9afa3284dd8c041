//! Token of a lease: a secret with which the holder completes or extends the lease.

use candid::Principal;
use sha2::{Digest, Sha256};

/// Token of a lease: its number and a hash that cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub number: u64,
    pub digest: [u8; 32],
}

impl Token {
    pub fn new(secret: u64, number: u64, now_ns: u64, holder: Principal) -> Self {
        let mut hash = Sha256::new();
        [secret, number, now_ns].iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.update(holder.as_slice());
        Self { number, digest: hash.finalize().into() }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (number, digest) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), digest: digest.try_into().ok()? })
    }

    pub fn bytes(&self) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], &self.digest].concat()
    }
}
