//! A block on its way into the indexes, or out of them, over several messages.
//!
//! **Constraint.** A block has up to 100,000 references. In a large index each lies on a page of its own: entering them all, or
//! taking them out, would change 500 MiB in one message, and the platform allows a fraction of that.
//!
//! **Design.** A message enters, or takes out, a *slice* of [`SLICE`] references. Behind the head is at most one block of which some
//! are in the indexes: the block *in transit*. Its number is `next` (of a first block, its own), so to readers it is not there; what
//! they find of it in a table leads them on by its links, so it hides nothing.
//!
//! ```text
//! in    record, links of the slice, its postings │ … │ the last slice, next rises
//! out   next, rollbacks, acknowledgements fall │ its last postings … its first │ record and log go
//! ```
//! Ids come first, by position, then keys, by transaction. They go in the opposite order, each leaving what it has replaced.

use super::postings::ids::EnteredIds;
use super::postings::keys::EnteredKeys;
use super::store::ChainStore;
use crate::storage::memory::GrowError;
use coppice_interface::segments::{MAX_ENTRIES, SLICE};

/// Pages of 4 KiB of both tables up to which a slice is a whole block: all of them may change.
const SMALL_TABLES: u64 = 15_000;

/// What a slice of a block has in the two indexes, and what was there before.
pub(super) struct Entered {
    pub ids: EnteredIds,
    pub keys: EnteredKeys,
}

/// Why a slice was not entered. Nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnterError {
    Grow(GrowError),
    /// The links of slices before cannot be read.
    Unreadable(String),
}

impl From<GrowError> for EnterError {
    fn from(error: GrowError) -> Self {
        Self::Grow(error)
    }
}

impl ChainStore {
    /// References that one message may enter, or take out.
    pub(super) fn slice(&self) -> u64 {
        #[cfg(test)]
        if let Some(small) = self.small_slices {
            return small;
        }
        if self.index.pages() + self.keys.pages() > SMALL_TABLES { SLICE } else { MAX_ENTRIES }
    }
}
