//! Taking a block out, in the fixed order of `pruning-spec-v1.md` 4 (`docs/design.md` 3): the log's blobs that become free into
//! quarantine → the references away → the chain's bound → the blobs free. All of it is one message.
//!
//! The oldest block's references go by the bound that moves, and are dropped from the indexes later, in bulk (`sweep.rs`): pruning
//! reads and changes as much for a block with one transaction as for one with 100,000. At the other end `rollback.rs` takes the
//! head out.

use super::records::{BlockMeta, PAGE_RECORDS};
use super::{ChainState, ChainStore};
use crate::storage::blob::{BlobPtr, BlobStore, Owner};
#[cfg(feature = "bench")]
use coppice_interface::segments::{Index, Segment};
use std::ops::Range;

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Its number.
    pub number: u64,
    /// Blobs of the log that became free.
    pub blobs: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// What could not be read and was skipped, its space accounted for.
    pub faults: Vec<String>,
}

/// What pruning a block costs and gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// 1, and 2 for each blob: one for the bound, one for each transition of a blob.
    pub ops: u64,
    /// Blobs of the log that become free.
    pub blobs: u64,
    /// Payload bytes.
    pub bytes: u64,
}

impl ChainStore {
    /// The blobs of the log that become free with block `number`, where it is the oldest and the log begins with blob
    /// `first`: those behind whose end the next block starts. Where that one's record is damaged they become free with a
    /// later block.
    fn freed_with(&self, number: u64, meta: Option<&BlockMeta>, first: u64) -> Range<u64> {
        // Blocks lie one after the other, none behind the tail: a record that says otherwise is damaged and frees nothing. What no
        // neighbour confirms may be wrong, too.
        let next = self.records.meta(number + 1).filter(|next| next.log_offset <= self.state.log_tail);
        let next = next.filter(|next| match meta {
            Some(meta) => self.follows(meta, next),
            None => self.goes_on_behind(next),
        });
        let end = next.map_or(first, |next| self.log.blob_of(next.log_offset));
        first..end.max(first)
    }

    /// Whether a block's payload begins where that of the one before ends, or behind the gap that its record tells of.
    pub(super) fn follows(&self, before: &BlockMeta, meta: &BlockMeta) -> bool {
        let (end, gap) = (before.log_end(), self.records.gap(meta.number));
        let is_gap = gap < u64::from(self.log.class().size());
        end == meta.log_offset || is_gap && end.checked_add(gap) == Some(meta.log_offset)
    }

    /// Whether the next block begins where a block's record says that this one ends; the log's tail, where there is none.
    fn goes_on_behind(&self, meta: &BlockMeta) -> bool {
        let after = meta.number + 1;
        if after < self.state.next {
            return self.records.meta(after).is_some_and(|after| self.follows(meta, &after));
        }
        meta.log_end() == self.state.log_tail
    }

    /// What taking out the blocks below `before` would cost, oldest first. The head is never among them.
    pub fn removals(&self, before: u64) -> impl Iterator<Item = Removal> {
        let last = before.min(self.state.next.saturating_sub(1));
        let mut first = self.state.log_first;
        (self.state.oldest..last).map(move |number| {
            let meta = self.records.meta(number);
            let freed = self.freed_with(number, meta.as_ref(), first);
            first = freed.end;
            let blobs = freed.end - freed.start;
            Removal { ops: 1 + 2 * blobs, blobs, bytes: meta.map_or(0, |meta| meta.payload_len()) }
        })
    }

    /// Takes the oldest block out. The head is never taken: with one block or none this is `None`.
    ///
    /// What cannot be read never stops it: it is named in [`Removed::faults`] and skipped.
    pub fn remove_oldest(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        if !self.state.started || self.state.blocks() <= 1 {
            return None;
        }
        let number = self.state.oldest;
        let freed = self.freed_with(number, self.records.meta(number).as_ref(), self.state.log_first);
        let last_of_page = (number + 1).is_multiple_of(PAGE_RECORDS);
        let first = freed.end;
        self.owe(number);
        Some(self.take_out(blobs, number, freed, last_of_page, |state, removed| {
            state.oldest = number + 1;
            state.log_first = first;
            state.pruned_blocks += 1;
            state.pruned_bytes += removed.bytes;
        }))
    }

    /// Takes the oldest block out without a look at its blobs, for one whose going traps: they are lost, and so is a page of records
    /// that it was the last on.
    pub fn skip_oldest(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        if !self.state.started || self.state.blocks() <= 1 {
            return None;
        }
        let number = self.state.oldest;
        let meta = self.records.meta(number);
        // As carefully as otherwise: a wrong record must not write off what other blocks lie in.
        let lost = self.freed_with(number, meta.as_ref(), self.state.log_first);
        let first = lost.end;
        for blob in lost {
            blobs.write_off(self.log.class(), Owner::Chain);
            self.log.clear(blob);
        }
        self.owe(number);
        let (keys, id_links) = meta.map_or((0, 0), |meta| (meta.keys, meta.id_links));
        self.state.keys = self.state.keys.saturating_sub(u64::from(keys));
        self.state.id_links = self.state.id_links.saturating_sub(u64::from(id_links));
        self.state.oldest = number + 1;
        self.state.log_first = first;
        self.state.pruned_blocks += 1;
        self.save();
        Some(Removed { number, ..Removed::default() })
    }

    /// What sweeps are compared with: takes the entries of the oldest block out one by one, as pruning once did, and says how
    /// many there were.
    ///
    /// # Errors
    /// A sentence where its index segment cannot be read.
    #[cfg(feature = "bench")]
    pub fn remove_one_by_one(&mut self, blobs: &BlobStore) -> Result<u64, String> {
        let meta = self.records.meta(self.state.oldest).ok_or("no block")?;
        let mut bytes = Vec::new();
        let range = meta.segment_start(Segment::Index)..meta.payload_end();
        self.log.read_onto(blobs, &mut bytes, range).map_err(|error| format!("{error:?}"))?;
        let index = Index::parse(&bytes).map_err(|error| error.why)?;
        let mut removed = 0;
        for (position, id) in (0..).zip(index.ids()) {
            let (hash, posting) = (self.id_hash(id), self.index_value(meta.number, position));
            removed += u64::from(self.index.remove(hash, posting));
        }
        for (position, key) in (0..).zip(index.each_key()) {
            let (hash, posting) = (self.key_hash(key.bytes), self.index_value(meta.number, position));
            removed += u64::from(self.keys.remove(hash, posting));
        }
        Ok(removed)
    }

    /// Takes a block out at one end, with the blobs that become free; `advance` moves the chain's bound.
    pub(super) fn take_out(
        &mut self,
        blobs: &mut BlobStore,
        number: u64,
        freed: Range<u64>,
        last_of_page: bool,
        advance: impl FnOnce(&mut ChainState, &Removed),
    ) -> Removed {
        let mut removed = Removed { number, ..Removed::default() };
        match self.records.meta(number) {
            None => removed.faults.push(format!("block {number}: its record cannot be decoded")),
            Some(meta) => {
                removed.bytes = meta.payload_len();
                self.state.keys = self.state.keys.saturating_sub(u64::from(meta.keys));
                self.state.id_links = self.state.id_links.saturating_sub(u64::from(meta.id_links));
            }
        }
        let quarantined = self.quarantine(blobs, freed.clone(), Owner::Chain, &mut removed.faults);
        freed.for_each(|blob| self.log.clear(blob));
        self.records.remove(number, last_of_page);
        advance(&mut self.state, &removed);
        self.save();
        removed.blobs = release(blobs, &quarantined, &mut removed.faults);
        removed
    }

    /// Puts blobs of the log into quarantine. One that cannot be is a fault, and written off.
    pub(super) fn quarantine(
        &self,
        blobs: &mut BlobStore,
        range: Range<u64>,
        owner: Owner,
        faults: &mut Vec<String>,
    ) -> Vec<BlobPtr> {
        let mut quarantined = Vec::with_capacity((range.end - range.start) as usize);
        for blob in range {
            let ptr = self.log.ptr(blob).ok_or_else(|| "there is none".to_string());
            match ptr.and_then(|ptr| blobs.free(&ptr).map(|_| ptr).map_err(|error| format!("{error:?}"))) {
                Ok(ptr) => quarantined.push(ptr),
                Err(why) => {
                    faults.push(format!("blob {blob} of the log: {why}"));
                    blobs.write_off(self.log.class(), owner);
                }
            }
        }
        quarantined
    }
}

/// Releases quarantined blobs and says how many. One that cannot be is a fault, and stays where it is.
pub(super) fn release(blobs: &mut BlobStore, quarantined: &[BlobPtr], faults: &mut Vec<String>) -> u64 {
    let mut released = 0;
    for ptr in quarantined {
        match blobs.release(ptr) {
            Ok(_) => released += 1,
            Err(error) => faults.push(format!("release of {ptr:?}: {error:?}")),
        }
    }
    released
}
