//! [`ChainStore`], which owns the chain's data structures: opening them, simple look-ups, and the format of postings.

use super::certified::Certified;
use super::hash::Hash;
use super::header::{BlockMeta, Numbers};
use super::headers::HeaderStore;
use super::log::Log;
use super::postings::links::LINK;
use super::reorgs::Rollbacks;
use super::state::ChainState;
use super::upload::cell::Upload;
use crate::{owners, places};
use ic_coppice_interface::blocks::{Blocks as _, Note};
use ic_coppice_interface::{APPEND_ROOM, BLOCK_BYTES, REFERENCE_BYTES};
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::table::HashTable;
use ic_coppice_storage::{HashKey, Space};
use std::cell::Cell;
use std::rc::Rc;

/// Number of blocks that can follow the first one: the index has 40-bit block numbers.
pub(super) const MAX_SPAN: u64 = 1 << 40;

/// The kept blocks. The BlobStore, which holds the log's bytes, is an argument of the methods that need it, because others share it.
pub struct ChainStore {
    pub(super) state: ChainState,
    /// Space of the cells of the state, the open upload and the history of rollbacks.
    pub(super) cells: Rc<Space>,
    pub(super) log: Log,
    pub(super) headers: HeaderStore,
    /// The transaction index: hash of an id → newest posting.
    pub(super) index: HashTable,
    /// The key index: hash of a secondary key → newest posting.
    pub(super) keys: HashTable,
    pub(super) rollbacks: Rollbacks,
    pub(super) certified: Certified,
    /// True if the state was saved since the last call of [`certify`](Self::certify).
    pub(super) saved: Cell<bool>,
    /// The open upload.
    pub(super) open: Option<Upload>,
    /// Unreadable data that an operation has skipped, until [`take_faults`](Self::take_faults) collects the sentences.
    pub(super) faults: Vec<String>,
    /// Time of the last append in Unix seconds; 0 if there was none since the canister started.
    pub(super) appended_at: u64,
    /// Limits a slice to so many references.
    #[cfg(any(test, feature = "testing"))]
    pub small_slices: Option<u64>,
}

/// Returns the bytes that the capacity trigger counts for blocks: those of their blobs or payloads, headers and index entries.
pub(crate) fn counted_bytes(payload: u64, blocks: u64, references: u64) -> u64 {
    payload + blocks * BLOCK_BYTES + references * REFERENCE_BYTES
}

impl ChainStore {
    /// Opens the chain over its spaces, or creates an empty one. The cost does not depend on the number of kept blocks.
    ///
    /// # Errors
    /// A sentence: memory could not be grown, or a header was not written by this code.
    pub fn open(arena: &Arena, cells: Rc<Space>, log_class: Class, key: HashKey) -> Result<Self, String> {
        let space = |id| Space::open(arena, id);
        let table = |id, owner| HashTable::open(space(id)?, arena.clone(), owner, key.clone());
        let mut chain = Self {
            certified: Certified::default(),
            saved: Cell::new(true),
            state: ChainState::load(&cells)?,
            rollbacks: Rollbacks::load(&cells)?,
            open: Upload::load(&cells)?,
            faults: Vec::new(),
            appended_at: 0,
            #[cfg(any(test, feature = "testing"))]
            small_slices: None,
            cells,
            log: Log::open(space(places::LOG_DIRECTORY)?, arena.clone(), log_class)?,
            headers: HeaderStore::open(space(places::HEADERS)?, arena.clone())?,
            index: table(places::TRANSACTION_INDEX, owners::TRANSACTION_INDEX)?,
            keys: table(places::KEY_INDEX, owners::KEY_INDEX)?,
        };
        chain.open_certified();
        Ok(chain)
    }

    /// Returns the chain's state.
    pub fn state(&self) -> &ChainState {
        &self.state
    }

    /// Time of the last append in Unix seconds; `None` if there was none since the canister started.
    pub fn appended_at(&self) -> Option<u64> {
        Some(self.appended_at).filter(|&at| at > 0)
    }

    /// The size class of the log's blobs.
    pub fn log_class(&self) -> Class {
        self.log.class()
    }

    /// Numbers, sizes and times of a kept block; `None` if its header is damaged.
    pub fn meta(&self, number: u64) -> Option<BlockMeta> {
        self.headers.meta(number)
    }

    /// The hash of a kept block; `None` if its header is damaged.
    pub fn hash(&self, number: u64) -> Option<Hash> {
        self.headers.numbers(number).map(|header| header.hash)
    }

    /// Returns the newest block above `above` whose note `counts` accepts. At most `most` blocks are read, and the newest other one counts as
    /// accepted.
    pub fn newest_noted(&self, above: u64, most: u64, counts: impl Fn(&Note) -> bool) -> Option<u64> {
        let first = self.state.next.saturating_sub(most).max(above.saturating_add(1));
        let found = (first..self.state.next).rev().find(|&number| self.note(number).as_ref().is_some_and(&counts));
        found.or_else(|| first.checked_sub(1).filter(|unread| *unread > above))
    }

    /// Returns whether an upload is being undone, a rollback is under way, or a reset has left something to clear.
    pub fn is_under_way(&self) -> bool {
        self.is_aborting() || self.state.rollback_to.is_some() || self.to_clear() > 0
    }

    /// Returns whether a kept block has this hash.
    pub fn hash_is(&self, number: u64, hash: &[u8]) -> bool {
        let kept = self.state.started && (self.state.oldest..self.state.next).contains(&number);
        kept && self.hash(number).is_some_and(|kept| kept.as_slice() == hash)
    }

    /// Returns the history of rollbacks.
    pub fn rollbacks(&self) -> &Rollbacks {
        &self.rollbacks
    }

    /// Returns `Some` if the chain was reset after a cursor with this count of rollbacks was made; the inner value is the oldest kept
    /// block.
    pub fn reset_since(&self, rollbacks: u64) -> Option<Option<u64>> {
        (rollbacks < self.state.reset.rollbacks).then(|| self.first_available())
    }

    /// The oldest kept block, or `None` for an empty chain.
    pub fn first_available(&self) -> Option<u64> {
        self.state.started.then_some(self.state.oldest)
    }

    /// Payload bytes of the kept blocks.
    pub fn payload_bytes(&self) -> u64 {
        let first = (self.state.oldest..self.state.next).find_map(|number| self.meta(number));
        let links = self.state.keys * LINK as u64 + self.state.id_links * LINK as u64;
        first.map_or(0, |meta| self.state.log_tail.saturating_sub(meta.log_offset).saturating_sub(links))
    }

    /// Bytes that pruning all blocks below a kept one would free, headers and index entries included.
    pub fn freed_below(&self, Numbers { meta, references_before, .. }: &Numbers) -> u64 {
        let state = &self.state;
        let blobs = self.log.blob_of(meta.log_offset).saturating_sub(state.log_first);
        let references = references_before.saturating_sub(state.pruned_references);
        counted_bytes(blobs * u64::from(self.log.class().size()), meta.number - state.oldest, references)
    }

    /// Bytes of the chain as the capacity trigger counts them: its blobs, and a header and index entries for each kept block.
    pub fn capacity_bytes(&self, blobs: &BlobStore) -> u64 {
        counted_bytes(blobs.arena().kept_bytes(owners::CHAIN), self.state.blocks(), self.state.kept_references())
    }

    /// Bytes that the chain can have under the cap on stable memory, as [`capacity_bytes`](Self::capacity_bytes) counts them: those that it
    /// has, those of an open upload, and those that its log can still take, with room left for one append. Cycles do not count.
    pub fn most_bytes(&self, blobs: &BlobStore) -> u64 {
        let class = self.log.class();
        let of_upload = self.open.as_ref().map_or(0..0, |upload| self.upload_blobs(upload));
        let more = (of_upload.end - of_upload.start)
            .saturating_add(blobs.arena().room(class))
            .saturating_mul(u64::from(class.size()));
        self.capacity_bytes(blobs).saturating_add(more).saturating_sub(APPEND_ROOM)
    }

    /// References of the blocks below a kept one. If the block's header is damaged, the next readable header after it is used.
    pub fn references_before(&self, number: u64) -> u64 {
        let found = (number.max(self.state.oldest)..self.state.next).find_map(|n| self.headers.numbers(n));
        found.map_or(self.state.references, |header| header.references_before)
    }

    /// Posting of a transaction or a key of a block, as an index stores it: the block's number inside postings
    /// ([`ChainState::counted`]) in the upper 40 bits, the position in the lower 24. Newer blocks have higher values.
    pub(super) fn index_value(&self, number: u64, position: u32) -> u64 {
        self.state.counted(number) << 24 | u64::from(position)
    }

    /// Block and position of a posting, or `None` for a posting from before the last reset. A damaged posting may name any block.
    #[inline]
    pub(super) fn index_position(&self, value: u64) -> Option<(u64, u32)> {
        let since_first = (value >> 24).checked_sub(self.state.reset.start)?;
        Some((self.state.base.checked_add(since_first)?, (value & 0xFF_FFFF) as u32))
    }

    /// Block and position of a posting if the block is kept or in transit.
    #[inline]
    pub(super) fn reachable(&self, value: u64) -> Option<(u64, u32)> {
        let position = self.index_position(value)?;
        let kept = self.state.started && (self.state.oldest..self.state.next).contains(&position.0);
        (kept || self.in_transit(position.0)).then_some(position)
    }

    /// Returns whether block `number` is the block after the head that is partly in the indexes.
    #[inline]
    pub(super) fn in_transit(&self, number: u64) -> bool {
        self.state.transit.is_some_and(|transit| transit.number == number)
    }

    pub(super) fn save(&self) {
        self.state.save(&self.cells);
        self.saved.set(true);
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&self) {
        self.save();
        self.rollbacks.save(&self.cells);
        if let Some(upload) = &self.open {
            upload.save(&self.cells);
        }
        self.log.rewrite();
        self.headers.rewrite();
        self.index.rewrite();
        self.keys.rewrite();
    }

    /// Clears all other bits of the hashes of ids and keys.
    #[cfg(test)]
    pub(crate) fn mask_hashes(&mut self, mask: u64) {
        self.index.mask_hashes(mask);
        self.keys.mask_hashes(mask);
    }
}
