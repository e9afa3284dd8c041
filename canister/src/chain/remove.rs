//! Taking a block out, at either end, in the fixed order of `pruning-spec-v1.md` 4 (`docs/design.md` 3): what refers to
//! what → the log's blobs that become free into quarantine → the references away → the chain's bound → the blobs free.
//!
//! All of it is one message, but for one case: each index entry lies on a page of its own where the indexes are large, and a
//! message that prunes is to dirty less than 75 MiB (`docs/design.md` 3). There the entries of a large block, ids before
//! keys, go in several messages, with a persisted cursor; from the first of them on the block is pruned for readers. A rollback takes a head out
//! in one message always.

use super::keys::GoingKey;
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
    /// The rest of its index entries are still to go, in another message: nothing else of it went.
    pub has_more: bool,
}

/// Pages of 4 KiB that a message's index entries may dirty: 59 of the 75 MiB. The rest is for the block's ids on the heap, and
/// for everything else that a block's going touches.
pub(super) const MOST_PAGES: u64 = 15_000;

/// At which end of the chain a block is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Oldest,
    Head,
}

/// What refers to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reference {
    /// An entry of the transaction index.
    Id {
        hash: u64,
        value: u64,
    },
    Key(GoingKey),
}

/// What taking a block out costs and gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// One for each removed reference and each blob transition.
    pub ops: u64,
    /// Blobs of the log that become free.
    pub blobs: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Only so many of its index entries go in this message, and nothing else.
    pub has_more: bool,
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
        let mut swept = self.state.swept;
        self.state.sweeping().into_iter().chain(self.state.oldest..last).map(move |number| {
            let meta = self.records.meta(number);
            let freed = self.freed_with(number, meta.as_ref(), first);
            first = freed.end;
            let swept = std::mem::take(&mut swept);
            if let Some(most) = self.most_entries().filter(|most| entries(meta.as_ref()) > swept + most) {
                return Removal { ops: most, has_more: true, ..Removal::default() };
            }
            let mut removal = removal(meta.as_ref(), &freed);
            removal.ops -= swept.min(removal.ops - 1);
            removal
        })
    }

    /// Takes the oldest block out. The head is never taken: with one block or none this is `None`.
    ///
    /// What cannot be read never stops it: it is named in [`Removed::faults`] and skipped.
    pub fn remove_oldest(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        let resumed = self.state.sweeping();
        if resumed.is_none() && (!self.state.started || self.state.blocks() <= 1) {
            return None;
        }
        let number = resumed.unwrap_or(self.state.oldest);
        let swept = self.state.swept;
        if let Some(part) = self.sweep(blobs, number) {
            return Some(part);
        }
        let freed = self.freed_with(number, self.records.meta(number).as_ref(), self.state.log_first);
        let last_of_page = (number + 1).is_multiple_of(PAGE_RECORDS);
        let first = freed.end;
        Some(self.take_out(blobs, (End::Oldest, number, swept), freed, last_of_page, |state, removed| {
            state.oldest = number + 1;
            state.swept = 0;
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

    /// Ops that taking the head out would cost.
    pub fn head_cost(&self) -> u64 {
        removal(self.records.meta(self.state.next - 1).as_ref(), &self.freed_with_head()).ops
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
        self.rollbacks.note(&self.cells, number - 1, self.state.oldest);
        let last_of_page = number.is_multiple_of(PAGE_RECORDS);
        Some(self.take_out(blobs, (End::Head, number, 0), freed, last_of_page, |state, _| {
            state.next -= 1;
            state.log_tail = tail;
            state.log_end = end;
            state.monotonic = monotonic.unwrap_or(state.monotonic);
        }))
    }

    /// The most index entries that a message may take out; none where both indexes are small enough to be dirtied whole.
    fn most_entries(&self) -> Option<u64> {
        // Taking an entry out dirties its page, and now and then another.
        (self.index.pages() + self.keys.pages() > self.most_pages)
            .then(|| (self.most_pages - self.most_pages / 6).max(1))
    }

    /// Takes index entries of block `number` out, as many as one message may, where they are more than that.
    fn sweep(&mut self, blobs: &mut BlobStore, number: u64) -> Option<Removed> {
        let most = self.most_entries()?;
        let meta = self.records.meta(number).filter(|meta| entries(Some(meta)) > self.state.swept + most)?;
        // What cannot be read has no entries to take out, and is named when the rest of the block goes.
        let references = self.references_of(blobs, &meta, End::Oldest).ok()?;
        let mut removed = Removed { number, has_more: true, ..Removed::default() };
        for reference in references.iter().skip(self.state.swept as usize).take(most as usize) {
            removed.entries += u64::from(self.drop_reference(number, reference));
        }
        if self.state.swept == 0 {
            self.state.keys = self.state.keys.saturating_sub(u64::from(meta.keys));
        }
        self.state.oldest = number + 1;
        self.state.swept += most;
        self.save();
        Some(removed)
    }

    /// Takes a block out at one end, of which `swept` index entries are out, with the blobs that become free; `advance`
    /// moves the chain's bound.
    fn take_out(
        &mut self,
        blobs: &mut BlobStore,
        (end, number, swept): (End, u64, u64),
        freed: Range<u64>,
        last_of_page: bool,
        advance: impl FnOnce(&mut ChainState, &Removed),
    ) -> Removed {
        let mut removed = Removed { number, ..Removed::default() };
        let references = match self.records.meta(number) {
            None => Err("its record cannot be decoded".into()),
            Some(meta) => {
                removed.bytes = meta.payload_len();
                if swept == 0 {
                    self.state.keys = self.state.keys.saturating_sub(u64::from(meta.keys));
                }
                self.references_of(blobs, &meta, end)
            }
        };
        let references = references.unwrap_or_else(|why: String| {
            removed.faults.push(format!("block {number}: {why}"));
            Vec::new()
        });
        let quarantined = self.quarantine(blobs, freed.clone(), Owner::Chain, &mut removed.faults);
        for reference in references.iter().skip(swept as usize) {
            removed.entries += u64::from(self.drop_reference(number, reference));
        }
        freed.for_each(|blob| self.log.clear(blob));
        self.records.remove(number, last_of_page);
        advance(&mut self.state, &removed);
        self.save();
        removed.blobs = release(blobs, &quarantined, &mut removed.faults);
        removed
    }

    /// Takes a reference to block `number` out, and says whether an entry went with it.
    fn drop_reference(&mut self, number: u64, reference: &Reference) -> bool {
        match *reference {
            Reference::Id { hash, value } => self.index.remove(hash, value),
            Reference::Key(key) => self.drop_key(number, key),
        }
    }

    /// What refers to the block at one end: ids before keys.
    fn references_of(&self, blobs: &BlobStore, meta: &BlockMeta, end: End) -> Result<Vec<Reference>, String> {
        let mut bytes = Vec::new();
        let range = meta.segment_start(Segment::Index)..meta.payload_end();
        self.log.read_onto(blobs, &mut bytes, range).map_err(|error| format!("its index segment: {error:?}"))?;
        let index = Index::parse(&bytes).map_err(|error| format!("its index segment: {}", error.why))?;
        if (index.transactions(), index.keys()) != (meta.transactions, meta.keys) {
            return Err("its index segment: not as many transactions and keys as its record says".into());
        }
        // An id that occurs twice was entered once; what was not entered is not found, and that is all.
        let ids = index.ids().zip(0..).map(|(id, at)| {
            let (hash, value) = (self.index.hash(id), self.index_value(meta.number, at));
            Reference::Id { hash, value }
        });
        let mut references = Vec::with_capacity(entries(Some(meta)) as usize);
        references.extend(ids);
        match end {
            _ if meta.keys == 0 => {}
            End::Oldest => references.extend(self.keys_of_oldest(&index).map(Reference::Key)),
            End::Head => references.extend(self.keys_of_head(blobs, meta, &index)?.into_iter().map(Reference::Key)),
        }
        Ok(references)
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

/// Ids and keys of a block.
fn entries(meta: Option<&BlockMeta>) -> u64 {
    meta.map_or(0, |meta| u64::from(meta.transactions) + u64::from(meta.keys))
}

/// What taking out a block costs with which these blobs become free. A damaged record is one reference.
fn removal(meta: Option<&BlockMeta>, freed: &Range<u64>) -> Removal {
    let blobs = freed.end - freed.start;
    Removal {
        ops: meta.map_or(1, |meta| u64::from(meta.prune_ops)) + 2 * blobs,
        blobs,
        bytes: meta.map_or(0, BlockMeta::payload_len),
        has_more: false,
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
