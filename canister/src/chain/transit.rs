//! A block that is entered into the indexes, or taken out of them, over several messages.
//!
//! **Constraint.** A block has up to 100,000 references. In a large index each lies on a page of its own. Entering all of them, or
//! taking them out, would change 500 MiB in one message, and the platform allows a fraction of that.
//!
//! **Design.** A message enters, or takes out, a *slice* of [`SLICE`] references. At most one block, the one after the head, is partly
//! in the indexes: the block *in transit*. Its number is `next` (for a first block, its own number), so readers do not see the block.
//! A reader that finds one of its postings follows the posting's link to older ones, so the block hides nothing.
//!
//! ```text
//! in    record, links of the slice, its postings │ … │ the last slice, next rises
//! out   next and acknowledgements fall, rollback counted │ its last postings … its first │ record and log are freed
//! ```
//! Ids are entered first, by position, then keys, by transaction. They are taken out in the opposite order, and each restores the
//! posting that it has replaced. Commits (`upload/commit.rs`) enter slices; rollbacks and aborts take them out (`rollback.rs`). The
//! persisted progress is [`Transit`](super::state::Transit).

use super::postings::ids::EnteredIds;
use super::postings::keys::EnteredKeys;
use super::store::ChainStore;
use crate::storage::memory::GrowError;
use coppice_interface::segments::{MAX_ENTRIES, SLICE};

/// Pages of 4 KiB in both tables up to which a slice is a whole block, because even changing all of them fits a message.
const SMALL_TABLES: u64 = 15_000;

/// Index entries of a block's slice, and what they replaced.
pub(super) struct Entered {
    pub ids: EnteredIds,
    pub keys: EnteredKeys,
}

/// Reasons why a slice was not entered. Nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnterError {
    Grow(GrowError),
    /// The links of earlier slices cannot be read.
    Unreadable(String),
}

impl From<GrowError> for EnterError {
    fn from(error: GrowError) -> Self {
        Self::Grow(error)
    }
}

impl ChainStore {
    /// References that one message may enter or take out.
    pub(super) fn slice(&self) -> u64 {
        #[cfg(test)]
        if let Some(small) = self.small_slices {
            return small;
        }
        if self.index.pages() + self.keys.pages() > SMALL_TABLES { SLICE } else { MAX_ENTRIES }
    }
}
