//! Several blocks in one message: `append_blocks`.
//!
//! **Constraint.** A block is appended whole or not at all, and the cost of its references is known only after they are entered. A block
//! that fits into a message of its own must not be refused because blocks before it have used the message up.
//!
//! **Design.** The first block has as much of the message as in `append_block`, because reading the list does not count. Each later block
//! begins only if the message has the instructions and pages for its payload. Its references share the meter of the message with those of
//! the blocks before it; if there is no room for them, they are taken out again and the message stops with `HasMore`. The block is then the
//! first one of the next message.

use super::append::Fit;
use super::draft::{Admission, bad};
use super::store::ChainStore;
use super::transit::{INSTRUCTIONS, PAGES};
use ic_coppice_interface::segments::Segment;
use ic_coppice_interface::{AppendBlock, AppendError, AppendStop};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Counting, Ic, OS_PAGE, Platform as _, changed_pages};

/// Estimated instructions of a block besides its payload and its references.
const PER_BLOCK: u64 = 200_000;
/// Estimated instructions of a byte of payload: written, on pages that are charged.
const PER_BYTE: u64 = 4;
/// Estimated instructions of hashing a byte.
const PER_HASHED_BYTE: u64 = 80;
/// Pages that a block changes besides those of its payload and its references.
const PAGES_OF_BLOCK: u64 = 4;
/// Bytes of an index segment for each reference, at least: a key of no bytes.
const LEAST_REFERENCE: u64 = 6;

/// A message that appends several blocks.
pub struct Batch {
    /// True once a block of the message was appended, or was kept already.
    has_one: bool,
    /// Value of the instruction counter at which no other reference is entered.
    end: u64,
    /// Counts the pages that all blocks of the message change.
    _counting: Option<Counting>,
}

impl ChainStore {
    /// Begins a message that appends a list of blocks.
    ///
    /// # Errors
    /// `BadEncoding` if the list is empty or its numbers do not rise by one.
    pub fn begin_batch(&self, blocks: &[AppendBlock]) -> Result<Batch, AppendError> {
        if blocks.is_empty() {
            return Err(bad(Segment::Body, "the list of blocks is empty"));
        }
        let mut pairs = blocks.array_windows().map(|[before, block]| (before.number, block.number));
        if let Some((before, number)) = pairs.find(|(before, number)| before.checked_add(1) != Some(*number)) {
            let why = format!("block {number} follows block {before} in the list: numbers rise by one");
            return Err(bad(Segment::Body, why));
        }
        let most_references: u64 = blocks.iter().map(|block| block.index.len() as u64 / LEAST_REFERENCE).sum();
        Ok(Batch {
            has_one: false,
            end: Ic::instructions().saturating_add(INSTRUCTIONS),
            _counting: self.counting(most_references),
        })
    }

    /// Appends the next block of a message, as [`append`](Self::append) does.
    ///
    /// # Errors
    /// `HasMore` if blocks before it have left it no room, or its refusal. Nothing of the block has changed.
    pub fn append_next(
        &mut self,
        batch: &mut Batch,
        blobs: &mut BlobStore,
        block: &AppendBlock,
        admission: &Admission,
        now: u64,
    ) -> Result<(), AppendStop> {
        let payload = (block.body.len() + block.receipts.len() + block.index.len()) as u64;
        if batch.has_one && !batch.has_room(payload, admission.verify_segments) {
            return Err(AppendStop::HasMore);
        }
        match self.append_if_room(blobs, block, admission, now, batch.end).map_err(AppendStop::Refused)? {
            Fit::Kept => batch.has_one = true,
            Fit::NoRoom(_) if batch.has_one => return Err(AppendStop::HasMore),
            Fit::NoRoom(refusal) => return Err(AppendStop::Refused(refusal)),
        }
        Ok(())
    }
}

impl Batch {
    /// Returns whether the message has room for another block with so many bytes of payload.
    fn has_room(&self, payload: u64, verify: bool) -> bool {
        let per_byte = PER_BYTE + if verify { PER_HASHED_BYTE } else { 0 };
        let instructions = PER_BLOCK.saturating_add(payload.saturating_mul(per_byte));
        let pages = payload / OS_PAGE + PAGES_OF_BLOCK;
        Ic::instructions().saturating_add(instructions) <= self.end && changed_pages().saturating_add(pages) <= PAGES
    }
}
