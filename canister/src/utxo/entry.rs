//! An output's entry: its hash, its state, and who spends it.

use super::record::{ENTRY, Hash};
use crate::storage::table::same_key;
use coppice_interface::Spender;
use serde_bytes::ByteBuf;

/// Bytes from an entry's start to its state.
pub const STATE: u32 = 32;

/// The output is a UTXO.
pub const UTXO: u32 = 1;
/// It is spent.
pub const SPENT: u32 = 2;
/// It is frozen, spent or not.
pub const FROZEN: u32 = 4;
/// Its spender was deleted since.
pub const SPENDER_DELETED: u32 = 8;
/// It was reassigned: the extras say from which height on it is spendable.
pub const REASSIGNED: u32 = 16;
/// Its spender was marked as a double spend.
pub const SPENDER_CONFLICTING: u32 = 32;

/// Bytes of spending data.
const SPENDING: usize = 36;

/// An output's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub hash: Hash,
    pub state: u32,
    /// The spender's id, and which of its inputs; meaningless while not spent.
    pub spender: (Hash, u32),
}

impl Entry {
    #[inline]
    pub fn decode(b: &[u8; ENTRY as usize]) -> Self {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Self {
            hash: *b.first_chunk().expect("32 bytes"),
            state: word(32),
            spender: (*b[36..].first_chunk().expect("32 bytes"), word(68)),
        }
    }

    /// State and spending data, as they lie behind the hash.
    #[inline]
    pub fn encode_state(state: u32, (txid, vin): (&Hash, u32)) -> [u8; ENTRY as usize - STATE as usize] {
        let mut bytes = [0; ENTRY as usize - STATE as usize];
        bytes[..4].copy_from_slice(&state.to_le_bytes());
        bytes[4..36].copy_from_slice(txid);
        bytes[36..].copy_from_slice(&vin.to_le_bytes());
        bytes
    }

    /// Whether all of these bits are set.
    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.state & bits == bits
    }

    /// Whether it is spent by this input.
    #[inline]
    pub fn held_by(&self, spender: &Hash, vin: u32) -> bool {
        self.is(SPENT) && self.spender.1 == vin && same_key(&self.spender.0, spender)
    }

    /// Who spends it.
    pub fn spent_by(&self) -> Option<Spender> {
        let (txid, vin) = self.spender;
        self.is(SPENT).then(|| Spender { txid: txid.into(), vin })
    }

    /// As the document shows it: 32 bytes unspent, 68 spent or frozen; none where the output is no UTXO.
    pub fn shown(&self) -> Option<ByteBuf> {
        if !self.is(UTXO) {
            return None;
        }
        let mut bytes = self.hash.to_vec();
        if self.is(FROZEN) {
            bytes.extend([0xFF; SPENDING]);
        } else if self.is(SPENT) {
            bytes.extend(self.spender.0);
            bytes.extend(self.spender.1.to_le_bytes());
        }
        Some(ByteBuf::from(bytes))
    }
}
