//! Kept blocks as the source of UTXO records: the functions of a chain's store that applying calls.

use crate::segments::Segment;
use crate::{BlockHash, ReadError};
use ic_coppice_storage::blob::BlobStore;

/// Bytes of a note.
pub const NOTE: usize = 17;

/// A note about a kept block, kept with the block. The first four bytes of a note are not all zero.
pub type Note = [u8; NOTE];

/// A kept block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBlock {
    /// The block's number.
    pub number: u64,
    /// Bytes of its body.
    pub body: u64,
    /// Number of its transactions.
    pub transactions: u32,
}

/// The kept blocks of a chain.
pub trait Blocks {
    /// Returns a kept block.
    ///
    /// # Errors
    /// `NotFound`, `Pruned`; `Corrupt` if the block's header is damaged.
    fn kept(&self, number: u64) -> Result<KeptBlock, ReadError>;

    /// Returns the hash of a kept block; an empty one if its header is damaged.
    fn hash_of(&self, number: u64) -> BlockHash;

    /// Reads `len` bytes of a segment of a kept block, from byte `at` of the segment on.
    ///
    /// # Errors
    /// As [`kept`](Self::kept); `Corrupt` if a blob of the log is damaged.
    fn bytes(&self, blobs: &BlobStore, number: u64, part: (Segment, u64, u64)) -> Result<Vec<u8>, ReadError>;

    /// Returns the note about a kept block, or `None` without one.
    fn note(&self, number: u64) -> Option<Note>;

    /// Writes the note about a kept block, or removes it. A damaged header stays as it is.
    fn set_note(&mut self, number: u64, note: Option<&Note>);

    /// Returns the block to which a rollback goes that is under way.
    fn rolling_back_to(&self) -> Option<u64>;
}
