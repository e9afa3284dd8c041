//! Taking the oldest block out, in the fixed order of `pruning-spec-v1.md` 4 (`docs/design.md` 3).

use super::ChainStore;
use super::segments::{Index, Segment};
use crate::blob::{BlobPtr, BlobStore, Owner};

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Its number.
    pub number: u64,
    /// Index entries that went with it.
    pub entries: u64,
    /// Blobs of the log that became free.
    pub blobs: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// What could not be read and was skipped, its space accounted for.
    pub faults: Vec<String>,
}

impl ChainStore {
    /// The blobs `[first, end)` of the log that become free with the oldest block: those behind whose end the next block
    /// starts. Where that one's record is damaged they become free with a later block.
    fn freed_with_oldest(&self) -> (u64, u64) {
        let first = self.state.log_first;
        let oldest = self.records.meta(self.state.oldest);
        // Blocks lie one after the other, none behind the tail: a record that says otherwise is damaged and frees nothing.
        let next = self.records.meta(self.state.oldest + 1).filter(|next| {
            next.log_offset <= self.state.log_tail && oldest.is_none_or(|oldest| oldest.log_end() == next.log_offset)
        });
        let end = next.map_or(first, |next| self.log.blob_of(next.log_offset));
        (first, end.max(first))
    }

    /// Ops that taking the oldest block out would cost: one for each removed reference and each blob transition.
    pub fn oldest_cost(&self) -> u64 {
        let (first, end) = self.freed_with_oldest();
        let references = self.records.meta(self.state.oldest).map_or(1, |meta| u64::from(meta.prune_ops));
        references + 2 * (end - first)
    }

    /// Takes the oldest block out. The head is never taken: with one block or none this is `None`.
    ///
    /// What cannot be read never stops it: it is named in [`Removed::faults`] and skipped.
    pub fn remove_oldest(&mut self, blobs: &mut BlobStore) -> Option<Removed> {
        if !self.state.started || self.state.blocks() <= 1 {
            return None;
        }
        let number = self.state.oldest;
        let mut removed = Removed { number, ..Removed::default() };

        // 1. What refers to what.
        let meta = self.records.meta(number);
        let mut entries = Vec::new();
        match &meta {
            None => removed.faults.push(format!("block {number}: its record cannot be decoded")),
            Some(meta) => {
                removed.bytes = meta.payload_len();
                let start = meta.segment_start(Segment::Index);
                let mut bytes = Vec::new();
                let read = self.log.read_onto(blobs, &mut bytes, start..meta.log_end());
                match read.map_err(|e| format!("{e:?}")).and_then(|()| Index::parse(&bytes).map_err(|e| e.why)) {
                    // An id that occurs twice was entered once; what was not entered is not found, and that is all.
                    Ok(index) => {
                        let ids = index.ids().zip(0..);
                        entries = ids.map(|(id, at)| (self.index.hash(id), self.index_value(number, at))).collect();
                    }
                    Err(why) => removed.faults.push(format!("block {number}: its index segment: {why}")),
                }
            }
        }

        // 2. Used → Quarantine.
        let (first, end) = self.freed_with_oldest();
        let mut freed: Vec<BlobPtr> = Vec::with_capacity((end - first) as usize);
        for blob in first..end {
            let outcome = self.log.ptr(blob).ok_or_else(|| "no blob".to_string());
            match outcome.and_then(|ptr| blobs.free(&ptr).map(|_| ptr).map_err(|e| format!("{e:?}"))) {
                Ok(ptr) => freed.push(ptr),
                Err(why) => {
                    removed.faults.push(format!("block {number}: blob {blob} of the log: {why}"));
                    blobs.write_off(self.log.class(), Owner::Chain);
                }
            }
        }

        // 3. The references: index, log, record.
        for &(hash, value) in &entries {
            removed.entries += u64::from(self.index.remove(hash, value));
        }
        (first..end).for_each(|blob| self.log.clear(blob));
        self.records.remove(number, Self::ends_page(number));

        // 4. The bound.
        self.state.oldest += 1;
        self.state.log_first = end;
        self.state.pruned_blocks += 1;
        self.state.pruned_bytes += removed.bytes;
        self.save();

        // 5 and 6. Quarantine → Free, which is when the bytes are no longer kept.
        for ptr in &freed {
            match blobs.release(ptr) {
                Ok(_) => removed.blobs += 1,
                Err(error) => removed.faults.push(format!("block {number}: release of {ptr:?}: {error:?}")),
            }
        }
        Some(removed)
    }
}
