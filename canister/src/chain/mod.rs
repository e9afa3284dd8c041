//! The chain: blocks, their receipts and their index, from the oldest kept block to the head.
//!
//! A block's payload goes to the append `log`, what is known of it to a fixed-size `records` entry, and each of its
//! transaction ids and secondary keys to a [`HashTable`], whose values are verified against the index segment. Five
//! structures, one order: whatever can be refused is refused, and all memory reserved, before the first of them is changed.
//!
//! ```text
//! append ──▶ table (id → newest posting)
//!        ──▶ table (key → newest posting)
//!        ──▶ log ──▶ blobs        body ‖ receipts ‖ index ‖ links of keys and ids, over equal blobs
//!        ──▶ records              lengths, hashes, times
//!        ──▶ state                next, log tail
//! ```

mod append;
mod ids;
mod key_pages;
mod keys;
mod log;
mod read;
mod records;
mod remove;
mod rollbacks;
pub mod segments;
mod state;
mod sweep;
mod upload;

pub use append::{Admission, MAX_BLOCK, MAX_ENTRIES};
pub use key_pages::MAX_KEY_PAGE;
pub use read::MAX_REPLY;
pub use records::{BlockMeta, BlockRecord, Hash, MAX_HASH};
pub use remove::{Removal, Removed};
pub use rollbacks::Rollbacks;
pub use segments::Segment;
pub use state::ChainState;
pub use sweep::{IndexTable, Sweep, TableDebt};
pub use upload::MAX_CHUNK;

use crate::blob::Class;
use crate::memory::{self, Region};
use crate::table::{HashTable, TableStats};
use log::Log;
use records::RecordStore;
use std::rc::Rc;

/// Blocks behind the first that the index's 40-bit block numbers can name.
const MAX_SPAN: u64 = 1 << 40;

/// The kept blocks.
pub struct ChainStore {
    state: ChainState,
    cells: Rc<Region>,
    log: Log,
    records: RecordStore,
    index: HashTable,
    keys: HashTable,
    rollbacks: Rollbacks,
    /// Has all ids and keys share four hashes.
    #[cfg(test)]
    few_hashes: bool,
}

impl ChainStore {
    /// Opens the chain over its regions, or makes an empty one. The cost does not depend on what is kept.
    ///
    /// # Errors
    /// A sentence that says what is wrong: memory could not be grown, or a header is not one that this code wrote.
    pub fn open(cells: Rc<Region>, log_class: Class, hash_seed: u64) -> Result<Self, String> {
        upload::check(&cells)?;
        Ok(Self {
            state: ChainState::load(&cells)?,
            rollbacks: Rollbacks::load(&cells)?,
            #[cfg(test)]
            few_hashes: false,
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

    /// Which blocks were rolled back.
    pub fn rollbacks(&self) -> &Rollbacks {
        &self.rollbacks
    }

    /// How full the transaction index is: an entry for each different id, and those that wait to be dropped.
    pub fn index_stats(&self) -> TableStats {
        self.index.stats()
    }

    /// How full the key index is: an entry for each different key, and those that wait to be dropped.
    pub fn key_stats(&self) -> TableStats {
        self.keys.stats()
    }

    /// Payload bytes of the kept blocks.
    pub fn payload_bytes(&self) -> u64 {
        let first = (self.state.oldest..self.state.next).find_map(|number| self.meta(number));
        let links = self.state.keys * keys::LINK as u64 + self.state.id_links * ids::LINK as u64;
        first.map_or(0, |meta| self.state.log_tail.saturating_sub(meta.log_offset).saturating_sub(links))
    }

    /// Blobs of the log that pruning could free which leaves block `first` and all behind it: those that end before it. Where its
    /// record is damaged, the nearest one before it speaks for it.
    pub fn freeable_blobs(&self, first: u64) -> u64 {
        let last = (self.state.oldest..self.state.next.min(first.saturating_add(1)))
            .rev()
            .find_map(|number| self.meta(number));
        last.map_or(0, |meta| self.log.blob_of(meta.log_offset).saturating_sub(self.state.log_first))
    }

    /// References of the blocks below a kept one; the nearest readable record behind it speaks for a damaged one.
    pub fn references_before(&self, number: u64) -> u64 {
        let found = (number.max(self.state.oldest)..self.state.next).find_map(|n| self.records.references_before(n));
        found.unwrap_or(self.state.references)
    }

    /// What an index keeps for a transaction, or for a key, of a block: newer blocks have higher values.
    fn index_value(&self, number: u64, position: u32) -> u64 {
        (number - self.state.base) << 24 | u64::from(position)
    }

    fn index_place(&self, value: u64) -> (u64, u32) {
        place(self.state.base, value)
    }

    /// The blobs that a log range touches.
    fn log_ptrs(&self, start: u64, end: u64) -> impl Iterator<Item = Option<crate::blob::BlobPtr>> {
        (self.log.blob_of(start)..self.log.blobs_end(end).max(self.log.blob_of(start))).map(|blob| self.log.ptr(blob))
    }

    fn save(&self) {
        self.state.save(&self.cells);
    }

    /// Makes the log's pointer to blob `blob` one that was never allocated.
    #[cfg(test)]
    pub(crate) fn poison_log(&mut self, blob: u64) {
        self.log.poison(blob);
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

/// Block and position that an index names, where blocks count from `base`. What is damaged may name any.
fn place(base: u64, value: u64) -> (u64, u32) {
    (base.wrapping_add(value >> 24), (value & 0xFF_FFFF) as u32)
}

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
