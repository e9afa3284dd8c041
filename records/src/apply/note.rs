//! Note about a kept block that is applied to the UTXO records, completely or partly.

use ic_coppice_interface::blocks::{Blocks, Note};
use ic_coppice_storage::bytes::u32_at;

/// The note is written when applying the block begins, and goes when the block is taken back whole.
///
/// ```text
/// 0 height u32  4 block id u32  8 transactions u32  12 offset u32  16 is a replay u8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedNote {
    /// The block's height, more than 0.
    pub height: u32,
    /// The chain's own number of the block.
    pub block_id: u32,
    /// Transactions that were applied when the block was finished, or when applying last ended in its middle.
    pub transactions: u32,
    /// The byte of the body at which applying last ended in the block's middle; 0: the block is finished, or nothing of it is applied.
    pub offset: u32,
    /// The block may have been applied before its note was written: records at or below the pruned height that are absent count as pruned.
    pub is_replay: bool,
}

impl AppliedNote {
    /// Returns the note about a kept block; `None` if nothing of the block is applied.
    pub fn of(blocks: &dyn Blocks, number: u64) -> Option<Self> {
        blocks.note(number).as_ref().map(Self::from)
    }

    /// Writes the note about a kept block.
    pub(super) fn put(&self, blocks: &mut dyn Blocks, number: u64) {
        let mut note = Note::default();
        let words = [self.height, self.block_id, self.transactions, self.offset];
        note[..16].copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        note[16] = u8::from(self.is_replay);
        blocks.set_note(number, Some(&note));
    }
}

impl From<&Note> for AppliedNote {
    fn from(note: &Note) -> Self {
        let [height, block_id, transactions, offset] = [0, 4, 8, 12].map(|at| u32_at(note, at));
        Self { height, block_id, transactions, offset, is_replay: note[16] == 1 }
    }
}
