//! Append of a block: all checks that can refuse the block, then all changes. Two refusals come later, because only entering the references
//! shows whether a message has room for them, and how many links they need. The tables are reverted if the message has no room for the
//! references, or the log none for the links. Uploads (`upload/`) use the same checks and the same `commit`.

use super::draft::{Admission, Draft, too_large};
use super::header::{BlockMeta, StoredHeader};
use super::postings::Indexed;
use super::postings::ids::EnterError;
use super::postings::keys::EnteredKeys;
use super::postings::links::links_len;
use super::store::{ChainStore, MAX_SPAN};
use super::transit::{Entered, INSTRUCTIONS};
use crate::owners;
use ic_coppice_interface::seals::{self, Leaf, Seal};
use ic_coppice_interface::segments::{Index, Segment, check_receipts};
use ic_coppice_interface::{AppendBlock, AppendError, BlockField, NoMemory, NotReady};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Meter, Platform as _, log};
use sha2::{Digest, Sha256};

/// Result of an append that was not refused.
pub(super) enum Fit {
    /// The block is kept.
    Kept,
    /// The message has no room for all of the block's references, which refuses a block that is alone in it. Nothing has changed.
    NoRoom(AppendError),
}

/// Traps because the part of the log that was reserved for a block cannot be written.
fn cannot_write(why: impl std::fmt::Display) -> ! {
    Ic::trap(&format!("append: the reserved part of the log cannot be written: {why}"))
}

impl ChainStore {
    /// Appends a block. Appending the same block again returns Ok and changes nothing; a block that differs from the kept one is refused.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed.
    pub fn append(
        &mut self,
        blobs: &mut BlobStore,
        block: &AppendBlock,
        admission: &Admission,
        now: u64,
    ) -> Result<(), AppendError> {
        match self.append_if_room(blobs, block, admission, now, INSTRUCTIONS)? {
            Fit::Kept => Ok(()),
            Fit::NoRoom(refusal) => Err(refusal),
        }
    }

    /// As [`append`](Self::append), but distinguishes a message without room from a refusal. Enters no reference after the instruction
    /// counter has reached `end`.
    pub(super) fn append_if_room(
        &mut self,
        blobs: &mut BlobStore,
        block: &AppendBlock,
        admission: &Admission,
        now: u64,
        end: u64,
    ) -> Result<Fit, AppendError> {
        let segments = [&block.body, &block.receipts, &block.index];
        let lengths = segments.map(|bytes| bytes.len() as u64);
        let hashes = (block.hash.as_slice(), block.parent_hash.as_slice());
        let draft = Draft::new(block.number, hashes, block.timestamp_secs, lengths, &block.sha256)?;
        let verify = || {
            let mut verified = Segment::ALL.into_iter().zip(segments).filter(|_| admission.verify_segments);
            verified.try_for_each(|(segment, bytes)| draft.verify(segment, Sha256::digest(bytes).into()))
        };
        if self.is_kept(&draft)? {
            return verify().map(|()| Fit::Kept);
        }
        self.check_no_upload_or_reset(admission)?;
        let index = Index::parse(&block.index)?;
        draft.check_entries(&index)?;
        check_receipts(&block.receipts, block.receipts.len() as u64, index.transactions())?;
        verify()?;
        self.admit(draft.number, admission)?;

        self.pass_damaged_tail(blobs);
        let start = self.state.log_tail;
        let least = self.log_end_of(start + draft.payload_len() + links_len(index.keys()));
        let reserved = self.log.reserve(blobs, owners::CHAIN, self.state.log_first, self.state.log_end..least);
        reserved.map_err(NoMemory::from)?;
        self.reserve_header_and_references(&draft, &index)?;
        let mut meta = self.meta_of(&draft, &index, now);
        let references = index.references();
        let indexed = Indexed { blobs, meta: &meta, index: &index };
        let entered = self.metered(references, end, |chain, meter| chain.enter(&indexed, (0, 0), meter));
        let entered = entered.map_err(|error| match error {
            EnterError::Grow(error) => AppendError::from(NoMemory::from(error)),
            EnterError::Unreadable(why) => Ic::trap(&format!("append: {why}")),
        })?;
        if entered.references() < references {
            self.revert_entered(&entered);
            return Ok(Fit::NoRoom(too_large("references: upload the block", entered.references())));
        }
        // The number of id links is known only now.
        meta.id_links = entered.ids.links.len() as u32;
        let end = self.log_end_of(meta.log_end());
        let reserved = self.log.reserve(blobs, owners::CHAIN, self.state.log_first, self.state.log_end..end);
        reserved.inspect_err(|_| self.revert_entered(&entered)).map_err(NoMemory::from)?;

        // From here on the append can no longer be refused.
        let id_links = entered.ids.encode();
        let links = entered.keys.links.iter().map(|(_, links)| links.as_slice()).chain([id_links.as_slice()]);
        let payload = segments.map(|bytes| bytes.as_slice()).into_iter().chain(links);
        let extended = self.log.extend(blobs, self.state.log_end..end, owners::CHAIN);
        extended.unwrap_or_else(|why| cannot_write(why));
        let mut at = start;
        for bytes in payload {
            self.log.write(blobs, at, bytes).unwrap_or_else(|why| cannot_write(why));
            at += bytes.len() as u64;
        }
        self.state.log_end = end;
        self.settle_replaced(&entered);
        self.commit(&draft, meta);
        Ok(Fit::Kept)
    }

    /// Index after the last blob of a log that reaches to `end`.
    fn log_end_of(&self, end: u64) -> u64 {
        self.log.blobs_end(end).max(self.state.log_end)
    }

    /// Returns whether a block is kept already. If it is not, it is the next block after the head, or the first block of an empty chain.
    ///
    /// # Errors
    /// The block is neither of them.
    pub(super) fn is_kept(&self, draft: &Draft) -> Result<bool, AppendError> {
        let state = &self.state;
        if !state.started {
            return Ok(false);
        }
        if let Some(to) = state.rollback_to.filter(|&to| draft.number > to) {
            return Err(AppendError::RollbackUnderway { to });
        }
        if draft.number < state.oldest {
            return Err(AppendError::Pruned { first_available: state.oldest });
        }
        if draft.number < state.next {
            let differs = match self.headers.get(draft.number) {
                Some(kept) => draft.differences(&kept, self.parent(draft.number)),
                None => vec![BlockField::Unreadable],
            };
            return if differs.is_empty() { Ok(true) } else { Err(AppendError::Conflict { differs }) };
        }
        if draft.number > state.next {
            return Err(AppendError::Gap { expected: state.next });
        }
        match state.head_hash.filter(|_| state.seal.is_some()) {
            Some(hash) if hash == draft.parent => Ok(false),
            Some(hash) => Err(AppendError::WrongParent { expected: hash.to_bytes() }),
            // A rollback ended on the oldest block, which was damaged meanwhile.
            None => Err(AppendError::Conflict { differs: vec![BlockField::Unreadable] }),
        }
    }

    /// Checks that no upload is open and no reset is underway, because either blocks a new block.
    pub(super) fn check_no_upload_or_reset(&self, admission: &Admission) -> Result<(), AppendError> {
        match (self.upload_opened(admission.upload_expiry_secs), self.to_clear()) {
            (Some(opened), _) => Err(opened.into()),
            (None, 0) => Ok(()),
            (None, left) => Err(AppendError::ResetUnderway { left }),
        }
    }

    /// Checks what would refuse any next block: a rollback, a damaged head, an upload, a reset, the hash key, the cycles, the capacity.
    ///
    /// # Errors
    /// The refusal of the block.
    pub fn check_next(&self, admission: &Admission) -> Result<(), AppendError> {
        if let Some(to) = self.state.rollback_to {
            return Err(AppendError::RollbackUnderway { to });
        }
        if self.state.started && (self.state.seal.is_none() || self.state.head_hash.is_none()) {
            return Err(AppendError::Conflict { differs: vec![BlockField::Unreadable] });
        }
        self.check_no_upload_or_reset(admission)?;
        self.admit(self.state.next, admission)
    }

    /// Checks the hash key, the cycles, the capacity and the block number limit for the block of a number.
    pub(super) fn admit(&self, number: u64, admission: &Admission) -> Result<(), AppendError> {
        if !self.index.is_keyed() {
            return Err(NotReady.into());
        }
        if let Some(missing) = admission.missing_cycles {
            return Err(AppendError::NoMemory(NoMemory::LowCycles { missing }));
        }
        if let Some(held_by) = &admission.exhausted {
            return Err(AppendError::CapacityExhausted { held_by: held_by.clone() });
        }
        if self.state.started && self.state.counted(number) >= MAX_SPAN {
            return Err(AppendError::NoMemory(NoMemory::OutOfSpace));
        }
        Ok(())
    }

    /// Reserves memory for the block's header and its entries in both tables.
    pub(super) fn reserve_header_and_references(&self, draft: &Draft, index: &Index) -> Result<(), AppendError> {
        let oldest = if self.state.started { self.state.oldest } else { draft.number };
        self.headers.reserve(draft.number, oldest).map_err(NoMemory::from)?;
        self.index.reserve(u64::from(index.transactions())).map_err(NoMemory::from)?;
        if index.keys() > 0 {
            self.keys.reserve(u64::from(index.keys())).map_err(NoMemory::from)?;
        }
        Ok(())
    }

    /// Enters the block's ids and keys from these numbers on, as far as the meter has room, or none of them on an error. Earlier ids and keys
    /// of the block must be there already.
    pub(super) fn enter(&mut self, of: &Indexed, from: (u32, u32), meter: &mut Meter) -> Result<Entered, EnterError> {
        if !self.state.started {
            self.state.base = of.meta.number;
        }
        let ids = self.insert_ids(of, from.0, meter)?;
        if ids.end() < of.index.transactions() {
            return Ok(Entered { ids, keys: EnteredKeys::default() });
        }
        let keys = self.insert_keys(of, from.1, meter).inspect_err(|_| ids.revert(&mut self.index));
        Ok(Entered { ids, keys: keys.map_err(EnterError::Grow)? })
    }

    /// Builds the numbers, sizes and times of the next block; the links of its ids are not counted yet.
    pub(super) fn meta_of(&self, draft: &Draft, index: &Index, now: u64) -> BlockMeta {
        BlockMeta {
            number: draft.number,
            log_offset: self.state.log_tail,
            lengths: draft.lengths,
            transactions: index.transactions(),
            keys: index.keys(),
            timestamp_secs: draft.timestamp_secs,
            monotonic: now.min(self.state.monotonic.max(draft.timestamp_secs)),
            id_links: 0,
        }
    }

    /// Skips to a new blob if the log's last blob is damaged, and logs an error.
    pub(super) fn pass_damaged_tail(&mut self, blobs: &BlobStore) {
        let tail = self.state.log_tail;
        let blob = self.log.blob_of(tail);
        if tail != self.log.start_of(blob) && !self.log.is_used(blobs, blob) {
            self.state.log_tail = self.log.start_of(self.state.log_end);
            self.save();
            log::error(&format!("blob {blob} of the log is damaged: the log continues in a new blob"));
        }
    }

    /// Writes the header of the next block. The seal is known when the block becomes the head.
    pub(super) fn put_header(&mut self, draft: &Draft, meta: BlockMeta, seal: Seal) {
        let references_before = self.state.references;
        self.state.reset.used = self.state.reset.used.max(self.state.counted(meta.number) + 1);
        self.headers.put(&StoredHeader { meta, hash: draft.hash, seal, sha256: draft.sha256, references_before });
    }

    /// Writes the header and moves the head. The payload, the ids and the keys must be in place.
    pub(super) fn commit(&mut self, draft: &Draft, meta: BlockMeta) {
        // For the first block, `base` is already set to its number.
        let leaf = Leaf {
            number: meta.number,
            timestamp_secs: meta.timestamp_secs,
            lengths: meta.lengths,
            hash: draft.hash.as_slice(),
            parent_hash: draft.parent.as_slice(),
            sha256: &draft.sha256,
        };
        let Some((before, leaf)) = self.state.seal.zip(leaf.digest()) else {
            Ic::trap("append: the seal of the block before is unknown");
        };
        let seal = seals::seal(&before, &leaf);
        self.put_header(draft, meta, seal);
        let state = &mut self.state;
        if !state.started {
            state.started = true;
            state.oldest = draft.number;
            state.parent = Some(draft.parent);
        }
        state.head_hash = Some(draft.hash);
        state.seal = Some(seal);
        state.monotonic = meta.monotonic;
        state.log_tail = meta.log_end();
        state.keys += u64::from(meta.keys);
        state.id_links += u64::from(meta.id_links);
        state.references += meta.references();
        state.next = draft.number + 1;
        state.highest = state.highest.max(state.next);
        state.appended_blocks += 1;
        state.appended_bytes += draft.payload_len();
        state.transit = None;
        self.appended_at = Ic::now_secs();
        self.save();
    }
}
