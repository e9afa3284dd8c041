//! Removal of the oldest block, in the fixed order of `pruning-spec-v1.md` 4 (`docs/design/pruning.md`): the log's blobs that become free go
//! into quarantine → the references are removed → the chain's bound rises → the blobs are released. All steps are in one message.
//!
//! The block's references become stale when the bound rises, and are dropped from the indexes later, in bulk
//! (`postings/sweep.rs`). So pruning reads and changes as much for a block with one transaction as for a block with 100,000. The head
//! is removed by `rollback.rs`.

use super::header::{BlockMeta, Numbers};
use super::headers::PAGE_HEADERS;
use super::store::ChainStore;
use crate::owners;
use ic_coppice_storage::blob::{BlobPtr, BlobStore, Owner};
use std::ops::Range;

/// Outcome of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The block's number.
    pub number: u64,
    /// Blobs of the log that were released.
    pub blobs: u64,
    /// The block's payload bytes.
    pub bytes: u64,
    /// Unreadable data that was skipped; its space is accounted for.
    pub faults: Vec<String>,
}

/// Plan for removing the oldest block: computed once, checked against a budget, then carried out.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The block's number.
    pub number: u64,
    /// `None` if the block's header is damaged.
    header: Option<Numbers>,
    /// Blobs of the log that become free.
    freed: Range<u64>,
    /// References before the next block according to that block's header.
    references_below: Option<u64>,
}

impl Removal {
    /// Ops of the removal: 1 for the bound, and 2 for each blob (one for each change of its state).
    pub fn ops(&self) -> u64 {
        1 + 2 * self.blobs()
    }

    /// Blobs of the log that become free.
    pub fn blobs(&self) -> u64 {
        self.freed.end - self.freed.start
    }

    /// Payload bytes.
    pub fn bytes(&self) -> u64 {
        self.header.map_or(0, |header| header.meta.payload_len())
    }
}

/// Plans for removing the oldest blocks, oldest first. Each header is read once, because the next block's header, which gives the end of
/// the one before it, serves the next plan too.
pub struct Removals {
    /// The block of the next plan.
    number: u64,
    /// Blocks from this number on stay.
    before: u64,
    /// The first blob of the log once the previous plan is carried out.
    first: u64,
    /// The header of block `number`, if already read.
    header: Option<Option<Numbers>>,
}

impl Removals {
    /// The next plan. Between two calls the previous plan may be carried out, but nothing else may change.
    pub fn next(&mut self, chain: &ChainStore) -> Option<Removal> {
        let number = self.number;
        if number >= self.before {
            return None;
        }
        let header = self.header.take().unwrap_or_else(|| chain.headers.numbers(number));
        let next = chain.headers.numbers(number + 1);
        // If the next block's header is damaged, the blobs become free with a later block.
        let end = next.map_or(self.first, |next| chain.log.blob_of(next.meta.log_offset));
        let freed = self.first..end.max(self.first);
        *self = Self { number: number + 1, before: self.before, first: freed.end, header: Some(next) };
        Some(Removal { number, header, freed, references_below: next.map(|next| next.references_before) })
    }
}

impl ChainStore {
    /// Plans for removing the blocks below `before`. The head is never removed.
    pub fn removals(&self, before: u64) -> Removals {
        let before = before.min(self.state.next.saturating_sub(1));
        Removals { number: self.state.oldest, before, first: self.state.log_first, header: None }
    }

    /// Removes the oldest block according to its plan.
    ///
    /// Unreadable data never stops the removal: it is listed in [`Removed::faults`] and skipped.
    pub fn remove(&mut self, blobs: &mut BlobStore, removal: Removal) -> Removed {
        let (number, bytes) = (removal.number, removal.bytes());
        self.pass(&removal);
        self.state.pruned_bytes += bytes;
        let last_of_page = (number + 1).is_multiple_of(PAGE_HEADERS);
        let blobs = self.remove_header(blobs, (number, removal.header.is_some()), removal.freed, last_of_page);
        Removed { number, blobs, bytes, faults: self.take_faults() }
    }

    /// Removes the oldest block without reading its blobs, for a block whose removal traps. The blobs are lost, and so is a page of headers
    /// if the block was the last on it.
    pub fn skip(&mut self, blobs: &mut BlobStore, removal: Removal) -> Removed {
        self.pass(&removal);
        for blob in removal.freed {
            blobs.arena().lose(self.log.class(), owners::CHAIN);
            self.log.clear(blob);
        }
        self.save();
        Removed { number: removal.number, ..Removed::default() }
    }

    /// Moves the chain's beginning past its oldest block, whose references are stale from now on.
    fn pass(&mut self, removal: &Removal) {
        debug_assert_eq!(removal.number, self.state.oldest);
        let meta = removal.header.map(|header| header.meta);
        self.owe(meta.as_ref(), removal.references_below);
        self.uncount(meta.as_ref());
        let state = &mut self.state;
        state.oldest = removal.number + 1;
        state.parent = removal.header.map(|header| header.hash);
        state.seal_before = removal.header.map(|header| header.seal);
        state.log_first = removal.freed.end;
        state.pruned_blocks += 1;
    }

    /// Subtracts a removed block's keys and links of ids from the counts.
    pub(super) fn uncount(&mut self, meta: Option<&BlockMeta>) {
        let (keys, id_links) = meta.map_or((0, 0), |meta| (meta.keys, meta.id_links));
        self.state.keys = self.state.keys.saturating_sub(u64::from(keys));
        self.state.id_links = self.state.id_links.saturating_sub(u64::from(id_links));
    }

    /// Removes a block's header, whole or damaged, and the blobs that become free, and saves the state, in which the block is outside the
    /// chain's bounds and its references are stale or removed. Returns the number of released blobs.
    pub(super) fn remove_header(
        &mut self,
        blobs: &mut BlobStore,
        (number, is_whole): (u64, bool),
        freed: Range<u64>,
        last_of_page: bool,
    ) -> u64 {
        if !is_whole {
            self.faults.push(format!("block {number}: its header is damaged"));
        }
        let quarantined = self.quarantine(blobs, freed, owners::CHAIN);
        self.headers.remove(number, last_of_page);
        self.save();
        self.release_freed(blobs, &quarantined)
    }

    /// Quarantines blobs of the log and removes them from the directory. A blob that cannot be quarantined is a fault, and is written off.
    pub(super) fn quarantine(&mut self, blobs: &mut BlobStore, range: Range<u64>, owner: Owner) -> Vec<BlobPtr> {
        let mut quarantined = Vec::with_capacity((range.end - range.start) as usize);
        for blob in range {
            let ptr = self.log.ptr(blob).ok_or_else(|| "not in the directory".to_string());
            match ptr.and_then(|ptr| blobs.free(&ptr).map(|_| ptr).map_err(|error| error.to_string())) {
                Ok(ptr) => quarantined.push(ptr),
                Err(why) => {
                    self.faults.push(format!("blob {blob} of the log: {why}"));
                    blobs.arena().lose(self.log.class(), owner);
                }
            }
            self.log.clear(blob);
        }
        quarantined
    }

    /// Releases quarantined blobs and returns their number. A blob that cannot be released is a fault, and stays in quarantine.
    pub(super) fn release_freed(&mut self, blobs: &mut BlobStore, quarantined: &[BlobPtr]) -> u64 {
        let mut released = 0;
        for ptr in quarantined {
            match blobs.release(ptr) {
                Ok(_) => released += 1,
                Err(error) => self.faults.push(format!("release of {ptr:?}: {error}")),
            }
        }
        released
    }
}
