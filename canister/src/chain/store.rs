//! The chain's store: its structures, opened once, and plain look-ups.

use super::log::Log;
use super::postings::links::LINK;
use super::records::{BlockMeta, Hash, RecordStore};
use super::reorgs::Rollbacks;
use super::state::ChainState;
use super::upload;
use crate::storage::HashTable;
use crate::storage::blob::{BlobStore, Class, Owner};
use crate::storage::memory::{self, Region};
use coppice_interface::{BLOCK_BYTES, REFERENCE_BYTES};
use std::rc::Rc;

/// Blocks behind the first that the index's 40-bit block numbers can name.
pub(super) const MAX_SPAN: u64 = 1 << 40;

/// The kept blocks.
pub struct ChainStore {
    pub(super) state: ChainState,
    pub(super) cells: Rc<Region>,
    pub(super) log: Log,
    pub(super) records: RecordStore,
    pub(super) index: HashTable,
    pub(super) keys: HashTable,
    pub(super) rollbacks: Rollbacks,
    /// What could not be read where an upload was undone, until somebody counts it.
    pub(super) faults: Vec<String>,
    /// When a block was last appended, in Unix seconds; 0 where none was since the canister was started.
    pub(super) appended_at: u64,
    /// Has all ids and keys share four hashes.
    #[cfg(test)]
    pub(super) few_hashes: bool,
    /// Has a slice be so many references at most.
    #[cfg(test)]
    pub(crate) small_slices: Option<u64>,
}

impl ChainStore {
    /// Opens the chain over its regions, or makes an empty one. The cost does not depend on what is kept.
    ///
    /// # Errors
    /// A sentence that says what is wrong: memory could not be grown, or a header is not one that this code wrote.
    pub fn open(cells: Rc<Region>, log_class: Class, hash_seed: u64) -> Result<Self, String> {
        upload::cell::check(&cells)?;
        Ok(Self {
            state: ChainState::load(&cells)?,
            rollbacks: Rollbacks::load(&cells)?,
            faults: Vec::new(),
            appended_at: 0,
            #[cfg(test)]
            few_hashes: false,
            #[cfg(test)]
            small_slices: None,
            cells,
            log: Log::open(memory::region(memory::LOG_DIRECTORY), log_class)?,
            records: RecordStore::open(memory::region(memory::BLOCK_RECORDS))?,
            index: HashTable::open(memory::region(memory::TRANSACTION_INDEX), hash_seed)?,
            keys: HashTable::open(memory::region(memory::KEY_INDEX), hash_seed)?,
        })
    }

    /// Which blocks are kept.
    pub fn state(&self) -> &ChainState {
        &self.state
    }

    /// When a block was last appended, in Unix seconds; none where none was since the canister was started.
    pub fn appended_at(&self) -> Option<u64> {
        Some(self.appended_at).filter(|&at| at > 0)
    }

    /// The size class of the log's blobs.
    pub fn log_class(&self) -> Class {
        self.log.class()
    }

    /// Numbers, sizes and times of a kept block; `None` where its record cannot be decoded.
    pub fn meta(&self, number: u64) -> Option<BlockMeta> {
        self.records.meta(number)
    }

    /// The hash of a kept block; `None` where its record cannot be decoded.
    pub fn hash(&self, number: u64) -> Option<Hash> {
        self.records.meta_and_hash(number).map(|(_, hash)| hash)
    }

    /// Whether an upload is being undone, a rollback is under way, or a reset has left something to clear.
    pub fn is_under_way(&self) -> bool {
        self.is_aborting() || self.state.rollback_to.is_some() || self.to_clear() > 0
    }

    /// Whether a kept block has this hash.
    pub fn hash_is(&self, number: u64, hash: &[u8]) -> bool {
        self.find(number).is_ok() && self.hash(number).is_some_and(|kept| kept.as_slice() == hash)
    }

    /// Which blocks were rolled back.
    pub fn rollbacks(&self) -> &Rollbacks {
        &self.rollbacks
    }

    /// The oldest kept block, where a cursor that was made after so many rollbacks is of a chain that was reset since; 0: not known.
    pub fn reset_since(&self, rollbacks: u64) -> Option<Option<u64>> {
        let is = rollbacks > 0 && rollbacks < self.state.reset.rollbacks;
        is.then(|| self.first_available())
    }

    /// The oldest kept block.
    pub fn first_available(&self) -> Option<u64> {
        self.state.started.then_some(self.state.oldest)
    }

    /// Whether the chain was ever reset.
    pub fn was_reset(&self) -> bool {
        self.state.reset.rollbacks > 0
    }

    /// How full the transaction index is: an entry for each different id, and those that wait to be dropped.
    #[cfg(test)]
    pub fn index_stats(&self) -> crate::storage::table::TableStats {
        self.index.stats()
    }

    /// How full the key index is: an entry for each different key, and those that wait to be dropped.
    #[cfg(test)]
    pub fn key_stats(&self) -> crate::storage::table::TableStats {
        self.keys.stats()
    }

    /// Payload bytes of the kept blocks.
    pub fn payload_bytes(&self) -> u64 {
        let first = (self.state.oldest..self.state.next).find_map(|number| self.meta(number));
        let links = self.state.keys * LINK as u64 + self.state.id_links * LINK as u64;
        first.map_or(0, |meta| self.state.log_tail.saturating_sub(meta.log_offset).saturating_sub(links))
    }

    /// Bytes that pruning the blocks below a kept one would give back, records and index entries included.
    pub fn freed_below(&self, meta: &BlockMeta) -> u64 {
        let state = &self.state;
        let blobs = self.log.blob_of(meta.log_offset).saturating_sub(state.log_first);
        let references = self.references_before(meta.number).saturating_sub(state.pruned_references);
        blobs * u64::from(self.log.class().size())
            + (meta.number - state.oldest) * BLOCK_BYTES
            + references * REFERENCE_BYTES
    }

    /// Bytes that the chain takes, as the capacity trigger counts them: its blobs, and a record and index entries for what is kept.
    pub fn capacity_bytes(&self, blobs: &BlobStore) -> u64 {
        blobs.kept_bytes(Owner::Log)
            + self.state.blocks() * BLOCK_BYTES
            + self.state.kept_references() * REFERENCE_BYTES
    }

    /// References of the blocks below a kept one; the nearest readable record behind it speaks for a damaged one.
    pub fn references_before(&self, number: u64) -> u64 {
        let found = (number.max(self.state.oldest)..self.state.next).find_map(|n| self.records.references_before(n));
        found.unwrap_or(self.state.references)
    }

    /// What an index keeps for a transaction, or for a key, of a block: newer blocks have higher values.
    pub(super) fn index_value(&self, number: u64, position: u32) -> u64 {
        self.state.counted(number) << 24 | u64::from(position)
    }

    /// Block and position that an index names; none of this chain where a reset came in between. What is damaged may name any.
    #[inline]
    pub(super) fn index_position(&self, value: u64) -> Option<(u64, u32)> {
        let behind_first = (value >> 24).checked_sub(self.state.reset.start)?;
        Some((self.state.base.checked_add(behind_first)?, (value & 0xFF_FFFF) as u32))
    }

    /// Block and position that an index names, if the block is kept, or is in transit.
    #[inline]
    pub(super) fn reachable(&self, value: u64) -> Option<(u64, u32)> {
        let position = self.index_position(value)?;
        let kept = self.state.started && (self.state.oldest..self.state.next).contains(&position.0);
        (kept || self.in_transit(position.0)).then_some(position)
    }

    /// Whether block `number` is behind the head, and some of its references are in the indexes.
    #[inline]
    pub(super) fn in_transit(&self, number: u64) -> bool {
        self.state.transit.is_some_and(|transit| transit.number == number)
    }

    /// The blobs that a log range touches.
    pub(super) fn log_ptrs(&self, start: u64, end: u64) -> impl Iterator<Item = Option<crate::storage::blob::BlobPtr>> {
        (self.log.blob_of(start)..self.log.blobs_end(end).max(self.log.blob_of(start))).map(|blob| self.log.ptr(blob))
    }

    pub(super) fn save(&self) {
        self.state.save(&self.cells);
    }

    /// Makes the log's pointer to blob `blob` one that was never allocated.
    #[cfg(test)]
    pub(crate) fn poison_log(&mut self, blob: u64) {
        self.log.poison(blob);
    }

    /// Makes the entry of blob `blob` of the log undecodable, as damage would.
    #[cfg(test)]
    pub(crate) fn poison_blob(&self, blobs: &BlobStore, blob: u64) {
        if let Some(ptr) = self.log.ptr(blob).filter(|_| self.log.is_used(blobs, blob)) {
            blobs.poison(&ptr);
        }
    }

    /// The blobs of the log, with those of an open upload.
    #[cfg(test)]
    pub(crate) fn log_blobs(&self) -> std::ops::Range<u64> {
        let end = self.upload().map_or(self.state.log_end, |upload| self.upload_blobs(&upload).end);
        self.state.log_first..end
    }

    /// The blob in which the log ends.
    #[cfg(test)]
    pub(crate) fn tail_blob(&self) -> u64 {
        self.log.blob_of(self.state.log_tail)
    }

    /// The blobs that a block lies in, as its record says.
    #[cfg(test)]
    pub(crate) fn blobs_of(&self, number: u64) -> Option<std::ops::Range<u64>> {
        let meta = self.records.meta(number)?;
        Some(self.log.blob_of(meta.log_offset)..self.log.blobs_end(meta.log_end()))
    }

    /// Makes a block's record say that its payload starts elsewhere.
    #[cfg(test)]
    pub(crate) fn misplace_record(&mut self, number: u64, log_offset: u64) {
        let mut record = self.records.get(number).expect("a kept block");
        record.meta.log_offset = log_offset;
        self.records.put(&record);
    }

    /// Makes a block's record undecodable, as damage would.
    #[cfg(test)]
    pub(crate) fn poison_record(&self, number: u64) {
        self.records.poison(number);
    }
}
