//! Taking a block out, at either end, in the fixed order of `pruning-spec-v1.md` 4 (`docs/design.md` 3): the log's blobs that
//! become free into quarantine → the references away → the chain's bound → the blobs free. All of it is one message.
//!
//! The oldest block's references go by the bound that moves, and are dropped from the indexes later, in bulk (`sweep.rs`): pruning
//! reads and changes as much for a block with one transaction as for one with 100,000. The head's references are taken out of the
//! indexes at once, as those of a reorg's blocks come in their place.

use super::records::{BlockMeta, PAGE_RECORDS};
use super::segments::{Index, Segment};
use super::{ChainState, ChainStore};
use crate::api::RollbackError;
use crate::blob::{BlobPtr, BlobStore, Owner};
use std::ops::Range;

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Its number.
    pub number: u64,
    /// Entries of the indexes that went with it.
    pub entries: u64,
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
        // Blocks lie one after the other, none behind the tail: a record that says otherwise is damaged and frees nothing.
        let next = self.records.meta(number + 1).filter(|next| {
            next.log_offset <= self.state.log_tail && meta.is_none_or(|meta| meta.log_end() == next.log_offset)
        });
        let end = next.map_or(first, |next| self.log.blob_of(next.log_offset));
        first..end.max(first)
    }

    /// Where the log ends without the head: behind the block before it. Where both records are damaged it stays as it is.
    fn tail_without_head(&self) -> u64 {
        let before = self.records.meta(self.state.next - 2).map(|meta| meta.log_end());
        let start = before.or_else(|| self.records.meta(self.state.next - 1).map(|meta| meta.log_offset));
        start.filter(|&start| start <= self.state.log_tail).unwrap_or(self.state.log_tail)
    }

    fn freed_with_head(&self) -> Range<u64> {
        let end = self.state.log_end;
        self.log.blobs_end(self.tail_without_head()).clamp(self.state.log_first, end)..end
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

    /// Checks that block `number` can become the head.
    ///
    /// # Errors
    /// [`RollbackError`].
    pub fn check_rollback(&self, number: u64) -> Result<(), RollbackError> {
        match self.state.head() {
            None => Err(RollbackError::Empty),
            Some(head) if number > head => Err(RollbackError::AboveHead { head }),
            Some(_) if number < self.state.oldest => Err(RollbackError::Pruned { first_available: self.state.oldest }),
            Some(_) if self.upload().is_some() => Err(RollbackError::UploadOpen),
            Some(_) => Ok(()),
        }
    }

    /// Ops that taking the head out would cost: one for each entry of the indexes, and those of pruning it.
    pub fn head_cost(&self) -> u64 {
        let freed = self.freed_with_head();
        let references = self.records.meta(self.state.next - 1).map_or(0, |meta| meta.references());
        1 + references + 2 * (freed.end - freed.start)
    }

    /// Takes the head out, for a reorg: the block before it is the head then, and of repeated ids the one before is found
    /// again. The oldest kept block is never taken: with one block or none this is `None`.
    pub fn remove_head(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        if !self.state.started || self.state.blocks() <= 1 {
            return None;
        }
        let number = self.state.next - 1;
        let freed = self.freed_with_head();
        let (tail, end) = (self.tail_without_head(), freed.start);
        let monotonic = self.records.meta(number - 1).map(|meta| meta.monotonic);
        let references = self.references_below(number);
        self.rollbacks.note(&self.cells, number - 1, self.state.oldest);
        let entries = self.records.meta(number).map(|meta| self.remove_references(blobs, &meta));
        let last_of_page = number.is_multiple_of(PAGE_RECORDS);
        let mut removed = self.take_out(blobs, number, freed, last_of_page, |state, _| {
            state.next -= 1;
            state.log_tail = tail;
            state.log_end = end;
            state.monotonic = monotonic.unwrap_or(state.monotonic);
            state.references = references;
        });
        match entries {
            Some(Ok(entries)) => removed.entries = entries,
            Some(Err(why)) => removed.faults.push(format!("block {number}: {why}")),
            // `take_out` has named it.
            None => {}
        }
        Some(removed)
    }

    /// References of the blocks below a kept one. Where its record is damaged the one before it speaks for it; where both are,
    /// nothing is taken off.
    fn references_below(&self, number: u64) -> u64 {
        let before = || {
            let meta = self.records.meta(number.checked_sub(1)?)?;
            Some(self.records.references_before(meta.number)? + meta.references())
        };
        let below = self.records.references_before(number).or_else(before);
        below.filter(|&below| below <= self.state.references).unwrap_or(self.state.references)
    }

    /// Takes the references of the head out of the indexes, and says how many entries went.
    fn remove_references(&mut self, blobs: &BlobStore, meta: &BlockMeta) -> Result<u64, String> {
        let mut bytes = Vec::new();
        let range = meta.segment_start(Segment::Index)..meta.payload_end();
        self.log.read_onto(blobs, &mut bytes, range).map_err(|error| format!("its index segment: {error:?}"))?;
        let index = Index::parse(&bytes).map_err(|error| format!("its index segment: {}", error.why))?;
        if (index.transactions(), index.keys()) != (meta.transactions, meta.keys) {
            return Err("its index segment: not as many transactions and keys as its record says".into());
        }
        let ids = self.remove_ids(blobs, meta, &index);
        let keys = if meta.keys == 0 { Ok(0) } else { self.remove_keys(blobs, meta, &index) };
        Ok(ids? + keys?)
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
    fn take_out(
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
