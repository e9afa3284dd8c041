//! Removal of the head, for a reorg. The head's references are removed one by one and not left to a sweep, because another block gets
//! the head's number, and stale postings would name that block.
//!
//! A rollback may cover many blocks, and a block many references, so its progress is persisted, and later messages continue it. For
//! each block:
//!
//! 1. `next`, the count of rollbacks and the acknowledgements change.
//! 2. The block's references are removed, a slice in each message (`transit.rs`).
//! 3. The block's header and its part of the log are removed.

use super::header::BlockMeta;
use super::headers::PAGE_HEADERS;
use super::postings::Indexed;
use super::state::{Transit, Way};
use super::store::ChainStore;
use ic_coppice_interface::RollbackError;
use ic_coppice_interface::segments::{Index, Segment};
use ic_coppice_storage::Meter;
use ic_coppice_storage::blob::BlobStore;
use std::ops::Range;

/// Work that a running rollback must still do for its next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackLeft {
    /// References to remove, plus 1 for the header and the log's part.
    pub ops: u64,
    /// Pages of headers and of the arena that change with the last op.
    pub pages: u64,
}

/// Outcome of one step of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// True if the head went down by one.
    pub began: bool,
    /// References that were removed, plus 1 if the block is removed completely.
    pub ops: u64,
    /// Unreadable data that was skipped.
    pub faults: Vec<String>,
}

impl ChainStore {
    /// Checks that block `number` can become the head.
    pub fn check_rollback(&self, number: u64, upload_expiry_secs: u64) -> Result<(), RollbackError> {
        let Some(head) = self.state.head() else { return Err(RollbackError::Empty) };
        match (self.upload_opened(upload_expiry_secs), self.state.rollback_to) {
            _ if number > head => Err(RollbackError::AboveHead { head }),
            _ if number < self.state.oldest => Err(RollbackError::Pruned { first_available: self.state.oldest }),
            (Some(opened), _) => Err(opened.into()),
            (None, Some(to)) if number > to => Err(RollbackError::RollbackUnderway { to }),
            // Nothing can follow a block whose seal is unknown.
            _ if number < head && self.headers.numbers(number).is_none() => Err(RollbackError::Damaged),
            (None, _) => Ok(()),
        }
    }

    /// Checks that block `number` lies at most `blocks` below the highest head since the last reset. Repeating the call for a running or
    /// finished rollback is allowed.
    ///
    /// # Errors
    /// `TooDeep`.
    pub fn check_depth(&self, number: u64, blocks: u64) -> Result<(), RollbackError> {
        let lowest = self.state.highest.saturating_sub(1).saturating_sub(blocks);
        let is_asked_again = self.state.rollback_to == Some(number) || self.state.head() == Some(number);
        let too_deep = number < lowest && !is_asked_again;
        if too_deep { Err(RollbackError::TooDeep { lowest: lowest.max(self.state.oldest) }) } else { Ok(()) }
    }

    /// Starts a rollback, or makes a running one deeper, after [`check_rollback`](Self::check_rollback).
    pub fn begin_rollback(&mut self, number: u64) {
        if self.state.head().is_some_and(|head| number < head) || self.state.rollback_to.is_some() {
            self.state.rollback_to = Some(number);
            self.save();
        }
    }

    /// Returns the work that the running rollback must still do for its next block, or `None` if no rollback is running.
    pub fn rollback_left(&self) -> Option<RollbackLeft> {
        self.state.rollback_to?;
        let transit = self.state.transit;
        let meta = self.headers.meta(transit.map_or(self.state.next - 1, |transit| transit.number));
        let references = transit.map_or(meta.map_or(0, |meta| meta.references()), |transit| transit.references());
        // As when a block is pruned: a page for the header, and two for each blob.
        let bytes = meta.map_or(0, |meta| meta.log_end().saturating_sub(meta.log_offset));
        let blobs = bytes.div_ceil(self.log.class().size().into()) + 1;
        Some(RollbackLeft { ops: references + 1, pages: 1 + 2 * blobs })
    }

    /// Returns the block that the running rollback removes next, if its removal has not begun.
    pub fn next_to_roll_back(&self) -> Option<u64> {
        let (to, head) = (self.state.rollback_to?, self.state.head()?);
        (self.state.transit.is_none() && !self.state.rests(to)).then_some(head)
    }

    /// Continues the running rollback: lowers the head unless a block is in transit, then removes that block's references, as far as `most`
    /// ops and the meter allow. The op after the last reference removes the block's header and its part of the log.
    pub fn continue_rollback(&mut self, blobs: &mut BlobStore, most: u64, mut meter: Meter) -> RolledBack {
        let mut done = RolledBack::default();
        let Some(to) = self.state.rollback_to else { return done };
        if self.state.transit.is_none() {
            if self.state.rests(to) {
                self.state.rollback_to = None;
                self.save();
                return done;
            }
            done.began = true;
            self.lower_head();
        }
        #[cfg(any(test, feature = "testing"))]
        {
            meter = meter.of_steps(self.small_slices.unwrap_or(u64::MAX));
        }
        done.ops = self.remove_slice(blobs, most, &mut meter);
        if done.ops == most || self.state.transit.is_some_and(|transit| transit.references() > 0) {
            self.save();
        } else {
            done.ops += 1;
            self.finish_head(blobs);
        }
        done.faults = self.take_faults();
        done
    }

    /// Lowers the head by one and puts the old head in transit.
    fn lower_head(&mut self) {
        let number = self.state.next - 1;
        let own = self.headers.numbers(number);
        let before = self.headers.numbers(number - 1);
        // If the header before is damaged, the block's own one has the same sum. If both are, the sum stays.
        let below = before.map(|before| before.references_before + before.meta.references());
        let below = below.or(own.map(|own| own.references_before));
        self.rollbacks.note(&self.cells, number - 1, self.state.oldest);
        let state = &mut self.state;
        state.next = number;
        state.monotonic = before.map_or(state.monotonic, |before| before.meta.monotonic);
        state.head_hash = before.map(|before| before.hash);
        state.seal = before.map(|before| before.seal);
        state.references = below.unwrap_or(state.references);
        let (ids, keys) = own.map_or((0, 0), |own| (own.meta.transactions, own.meta.keys));
        state.transit = Some(Transit { way: Way::RolledBack, number, ids, keys, log_end: state.log_end });
    }

    /// Removes the header and the log's part of the block in transit, which has no references in the indexes any more.
    fn finish_head(&mut self, blobs: &mut BlobStore) {
        let number = self.state.next;
        let meta = self.headers.meta(number);
        // The log ends with the block before, or else at the block's own beginning.
        let tail = self.headers.meta(number - 1).map(|before| before.log_end());
        let tail = tail.or(meta.map(|own| own.log_offset)).unwrap_or_else(|| {
            let why = "its header and the one before are damaged: its space is kept until it is pruned";
            self.faults.push(format!("block {number}: {why}"));
            self.state.log_tail
        });
        let end = self.state.log_end;
        let freed = self.log.blobs_end(tail).clamp(self.state.log_first, end)..end;
        let last_of_page = number.is_multiple_of(PAGE_HEADERS);
        self.uncount(meta.as_ref());
        let state = &mut self.state;
        (state.log_tail, state.log_end, state.transit) = (tail, freed.start, None);
        state.rollback_to = state.rollback_to.filter(|&to| !state.rests(to));
        self.remove_header(blobs, (number, meta.is_some()), freed, last_of_page);
    }

    /// Removes the last references of the block in transit from the indexes, at most `most` and as far as the meter has room, and returns
    /// their number; 0 after a fault. Then all its remaining keys, or all its remaining ids, stay in the index, and are not tried again.
    pub(super) fn remove_slice(&mut self, blobs: &BlobStore, most: u64, meter: &mut Meter) -> u64 {
        let Some(mut transit) = self.state.transit else { return 0 };
        let (ids, keys) = transit.last(most);
        let before = transit.references();
        let taken = match self.headers.meta(transit.number) {
            // `remove_header` reports the damaged header later.
            None if transit.way == Way::RolledBack => Ok([Ok(keys.start), Ok(ids.start)]),
            None => Err("its header is damaged".into()),
            Some(meta) => self.remove_from_indexes(blobs, &meta, (ids, keys), meter),
        };
        let [keys_left, ids_left] = taken.unwrap_or_else(|why| [Err(why), Err(String::new())]);
        (transit.keys, transit.ids) = (*keys_left.as_ref().unwrap_or(&0), *ids_left.as_ref().unwrap_or(&0));
        self.state.transit = Some(transit);
        if let Err(why) = keys_left.and(ids_left) {
            self.faults.push(format!("block {}: {why}", transit.number));
            return 0;
        }
        before - transit.references()
    }

    /// Removes ids and keys; returns how many keys, and how many ids, are left below the removed ones.
    fn remove_from_indexes(
        &mut self,
        blobs: &BlobStore,
        meta: &BlockMeta,
        (ids, keys): (Range<u32>, Range<u32>),
        meter: &mut Meter,
    ) -> Result<[Result<u32, String>; 2], String> {
        if ids.is_empty() && keys.is_empty() {
            return Ok([Ok(keys.start), Ok(ids.start)]);
        }
        let range = meta.segment_start(Segment::Index)..meta.payload_end();
        let bytes = self.log.read(blobs, range).map_err(|error| format!("its index segment: {error}"))?;
        let index = Index::parse(&bytes).map_err(|error| format!("its index segment: {}", error.why))?;
        if (index.transactions(), index.keys()) != (meta.transactions, meta.keys) {
            return Err("its index segment: not as many transactions and keys as its header says".into());
        }
        let (first, block) = (keys.start, Indexed { blobs, meta, index: &index });
        let keys = if keys.is_empty() { Ok(first) } else { self.remove_keys(&block, keys, meter) };
        let waits = ids.is_empty() || keys.as_ref().is_ok_and(|left| *left > first);
        let ids = if waits { Ok(ids.end) } else { self.remove_ids(&block, ids, meter) };
        Ok([keys, ids])
    }
}
