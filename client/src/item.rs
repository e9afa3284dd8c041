//! Items of a batch, and upper bounds of what each takes of a message.

use ic_coppice_interface::*;
use std::ops::Add;

/// Most bytes of the items in one message; a message may have 2 MiB in all.
const MAX_BYTES: usize = 1_500_000;
/// Most decoding cost of the items in one message, by `candid`'s measure. The canister allows 2,800,000, including the message's type
/// table.
const MAX_UNITS: usize = 2_700_000;
/// Most items in one message.
pub(crate) const MAX_ITEMS: usize = 5_000;
/// An item of a few hashes and numbers.
const SMALL: Size = Size { bytes: 128, units: 216 };
/// A transaction id with at most a few more bytes.
const ID: Size = Size { bytes: 48, units: 68 };
/// A record without its transaction.
const RECORD: Size = Size { bytes: 64, units: 144 };

/// Upper bound of what an item takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of Candid.
    pub(crate) bytes: usize,
    /// Decoding cost, with field names, although a message does not contain them.
    pub(crate) units: usize,
}

impl Size {
    /// The size of a byte string.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len(), units: bytes.len() }
    }

    /// Returns whether one message holds `count` items that have this size together.
    pub(crate) fn fits(self, count: usize) -> bool {
        count <= MAX_ITEMS && self.bytes <= MAX_BYTES && self.units <= MAX_UNITS
    }

    /// The size of `count` such items.
    fn times(self, count: usize) -> Self {
        Self { bytes: self.bytes.saturating_mul(count), units: self.units.saturating_mul(count) }
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), units: self.units.saturating_add(other.units) }
    }
}

/// An item of a batch.
pub(crate) trait Item: Clone {
    fn size(&self) -> Size;
}

impl Item for UtxoCreate {
    fn size(&self) -> Size {
        const BLOCK: Size = Size { bytes: 12, units: 59 };
        const OUTPUT: Size = Size { bytes: 24, units: 58 };
        const OUTPOINT: Size = Size { bytes: 44, units: 64 };
        const HASH: Size = Size { bytes: 40, units: 38 };
        const EXTERNAL: Size = Size { bytes: 128, units: 272 };
        let blocks = self.mined.as_ref().map_or(0, |mined| mined.blocks.len());
        let source = match &self.source {
            TransactionSource::Raw(bytes) => Size::of(bytes),
            TransactionSource::Uploaded(txid) => Size::of(txid),
            TransactionSource::Kept(_) => SMALL,
            TransactionSource::Outputs(PartialTransaction { outputs, .. }) => {
                outputs.iter().fold(SMALL, |sum, output| sum + OUTPUT + Size::of(&output.script))
            }
            TransactionSource::External(ExternalTransaction { store, inputs, utxo_hashes, .. }) => {
                EXTERNAL + Size::of(&store.blob_key) + OUTPOINT.times(inputs.len()) + HASH.times(utxo_hashes.len())
            }
        };
        RECORD + BLOCK.times(blocks) + source
    }
}

impl Item for TransactionSpends {
    fn size(&self) -> Size {
        ID + Size { bytes: 80, units: 128 }.times(self.spends.len())
    }
}

/// Sets a constant size for these items.
macro_rules! small {
    ($($item:ty = $size:expr),*) => {
        $(impl Item for $item {
            fn size(&self) -> Size {
                $size
            }
        })*
    };
}
small!(MinedTransaction = ID, Unspend = SMALL, FreezeTarget = SMALL, Reassign = SMALL, Txid = ID);
