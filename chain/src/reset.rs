//! Reset: removes all blocks, so that the chain can begin again at any number.
//!
//! Readers see no blocks from the message that resets on. Later messages remove the headers and blobs, each within its limits, and appends
//! are refused until then. The index entries become debt of the next sweeps, like those of pruned blocks: postings count blocks from
//! `start`, which only a reset raises, above all numbers used so far. So an old posting is never mistaken for one of the next chain:
//!
//! ```text
//! numbers inside postings   0 … first chain … │ start … second chain …        first block's number (`base`) ↔ start
//! ```

use super::state::{Reset, Way};
use super::store::ChainStore;
use crate::owners;
use ic_coppice_interface::{ResetError, seals};
use ic_coppice_storage::blob::BlobStore;

/// Headers that one message clears: their pages have 32 MiB.
const MOST_RECORDS: u64 = 100_000;
/// Blobs that one message frees.
const MOST_BLOBS: u64 = 5_000;

impl ChainStore {
    /// Checks that the chain may be emptied. `head_hash` must be the head's hash, or empty if it is unknown. With `gives_up`
    /// the reset may also drop a running rollback or abort, for the case that it traps.
    pub fn check_reset(&self, head_hash: &[u8], gives_up: bool, upload_expiry_secs: u64) -> Result<(), ResetError> {
        if !self.state.started {
            return Err(ResetError::Empty);
        }
        let expected = self.state.head_hash.unwrap_or_default();
        if expected.as_slice() != head_hash {
            return Err(ResetError::WrongHash { expected: expected.to_bytes() });
        }
        // An upload that is being committed can still be aborted.
        let undone =
            self.state.transit.map_or(self.state.rollback_to.is_some(), |transit| transit.way != Way::Entering);
        match (self.upload_opened(upload_expiry_secs), self.state.rollback_to) {
            _ if gives_up && undone => Ok(()),
            (Some(opened), _) => Err(opened.into()),
            (None, Some(to)) => Err(ResetError::RollbackUnderway { to }),
            (None, None) => Ok(()),
        }
    }

    /// Empties the chain after [`check_reset`](Self::check_reset), and returns the number of kept blocks. [`clear`](Self::clear) frees the
    /// rest.
    pub fn reset(&mut self) -> u64 {
        if self.open.is_some() {
            self.close_upload();
        }
        // All index entries are stale from now on.
        let stale = [self.index.stats().entries, self.keys.stats().entries];
        let state = &mut self.state;
        let kept = state.blocks();
        for (sweep, entries) in state.sweeps.iter_mut().zip(stale) {
            sweep.owe(entries.saturating_sub(sweep.debt()));
        }
        if let Some(transit) = state.transit.take() {
            // The header and the blobs of the block in transit are cleared with those of the chain.
            state.log_end = state.log_end.max(transit.log_end);
            state.next = state.next.max(transit.number + 1);
        }
        // A seal that damage made unknown counts as zeros.
        let last = state.seal.unwrap_or(seals::FIRST);
        state.reset.count += 1;
        let first = seals::after_reset(&last, state.reset.count);
        (state.seal, state.seal_before) = (Some(first), Some(first));
        state.rollback_to = None;
        state.pruned_references = state.references;
        (state.reset.clear_from, state.reset.clear_to) = (state.oldest, state.next);
        // Postings left by a damaged block may have higher numbers than the head.
        state.reset.start = state.reset.used.max(state.counted(state.next));
        (state.started, state.base, state.oldest, state.next) = (false, 0, 0, 0);
        (state.keys, state.id_links, state.monotonic, state.highest) = (0, 0, 0, 0);
        (state.head_hash, state.parent) = (None, None);
        // The next chain begins in a new blob.
        state.log_tail = self.log.start_of(state.log_end);
        state.reset.rollbacks = self.rollbacks.reset(&self.cells);
        self.save();
        kept
    }

    /// Blocks and blobs that must still be cleared after a reset.
    pub fn to_clear(&self) -> u64 {
        if self.state.started {
            return 0;
        }
        let Reset { clear_from, clear_to, .. } = self.state.reset;
        clear_to - clear_from + (self.state.log_end - self.state.log_first)
    }

    /// Clears more of what a reset has left, as far as one message may. Returns what could not be read and was skipped.
    pub fn clear(&mut self, blobs: &mut BlobStore) -> Vec<String> {
        let Reset { clear_from, clear_to, .. } = self.state.reset;
        let until = clear_to.min(clear_from.saturating_add(MOST_RECORDS));
        for number in clear_from..until {
            let last_of_page = (number + 1).is_multiple_of(super::headers::PAGE_HEADERS) || number + 1 == clear_to;
            self.headers.remove(number, last_of_page);
        }
        self.state.reset.clear_from = until;
        if until == clear_to {
            let first = self.state.log_first;
            self.state.log_first = self.state.log_end.min(first + MOST_BLOBS);
            let quarantined = self.quarantine(blobs, first..self.state.log_first, owners::CHAIN);
            self.release_freed(blobs, &quarantined);
        }
        self.save();
        self.take_faults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block, fresh, hash, id, reopen};
    use crate::{Admission, IndexTable};
    use ic_coppice_interface::AppendError;
    use ic_coppice_storage::{Meter, testing};

    /// More headers and blobs than one message clears: the rest is reported, and all memory is reused.
    #[test]
    fn a_long_chain_is_cleared_over_several_messages() {
        const CLASS: u32 = 64 << 10;
        const BLOCKS: u64 = MOST_RECORDS + 300;
        const FIRST: u64 = 50_000;
        let (mut chain, mut blobs) = fresh(CLASS);
        let admission = Admission::default();
        for number in FIRST..FIRST + BLOCKS {
            let body = if number % 20 == 0 { CLASS as usize } else { 0 };
            let new = block(number, &[id(number)], body);
            chain.append(&mut blobs, &new, &admission, 1_700_000_000).unwrap();
        }
        let log = chain.state.log_end - chain.state.log_first;
        assert!(log > MOST_BLOBS);
        assert_eq!(chain.check_reset(&hash(FIRST + BLOCKS - 1, 0), false, 120), Ok(()));
        assert_eq!(chain.reset(), BLOCKS);
        let mut left = Vec::new();
        while chain.to_clear() > 0 {
            left.push(chain.to_clear());
            let waits = chain.append(&mut blobs, &block(3, &[], 0), &admission, 0);
            assert_eq!(waits, Err(AppendError::ResetUnderway { left: chain.to_clear() }));
            assert_eq!(chain.clear(&mut blobs), Vec::<String>::new());
            (chain, blobs) = reopen(CLASS);
        }
        assert_eq!(left, [BLOCKS + log, 300 + log, log - MOST_BLOBS]);
        assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), 0);
        while chain.debt(IndexTable::Ids).debt > 0 || chain.debt(IndexTable::Ids).sweeping {
            chain.sweep(IndexTable::Ids, Meter::unlimited());
        }
        assert_eq!(chain.index_stats().entries, 0, "all of it was stale");
        let billed = testing::billed_pages();
        for number in 7..7 + 5_000 {
            let new = block(number, &[id(number)], CLASS as usize / 2);
            chain.append(&mut blobs, &new, &admission, 1_700_000_000).unwrap();
        }
        assert_eq!(testing::billed_pages(), billed, "what was cleared is used again");
    }

    /// Before the first append and after a reset there is no oldest block.
    #[test]
    fn first_available_is_the_oldest_block_or_none() {
        let (mut chain, mut blobs) = fresh(64 << 10);
        assert_eq!(chain.first_available(), None);
        for number in 7..10 {
            chain.append(&mut blobs, &block(number, &[id(number)], 10), &Admission::default(), 1_700_000_000).unwrap();
        }
        assert_eq!(chain.first_available(), Some(7));
        chain.remove_oldest(&mut blobs).unwrap();
        assert_eq!(chain.first_available(), Some(8));
        chain.reset();
        assert_eq!(chain.first_available(), None);
    }
}
