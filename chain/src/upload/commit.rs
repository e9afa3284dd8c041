//! Commit of an uploaded block: all checks that can refuse the block, then its references, a slice in each message (`transit.rs`).

use super::cell::{Upload, corrupt, uploaded_range};
use crate::draft::{Admission, Draft};
use crate::header::BlockMeta;
use crate::owners;
use crate::postings::ids::EnterError;
use crate::postings::{Indexed, links};
use crate::state::{Transit, Way};
use crate::store::ChainStore;
use crate::transit::{Entered, INSTRUCTIONS};
use ic_coppice_interface::seals::Seal;
use ic_coppice_interface::segments::{Index, Segment, check_receipts, receipts_table_len};
use ic_coppice_interface::{AppendError, BlockId, Commit, NoMemory, UploadError};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _};

impl ChainStore {
    /// Continues the commit of the uploaded block.
    ///
    /// # Errors
    /// [`UploadError`]; nothing has changed, and the upload stays open.
    pub fn commit_upload(
        &mut self,
        blobs: &mut BlobStore,
        block: &BlockId,
        admission: &Admission,
        now: u64,
    ) -> Result<Commit, UploadError> {
        let upload = self.upload_of(block.number)?;
        let draft = &upload.draft;
        if draft.hash.as_slice() != block.hash.as_slice() {
            return Err(upload.other());
        }
        if let Some(first) = (0..upload.chunks().count() as u32).find(|&chunk| !self.received(chunk)) {
            return Err(UploadError::Incomplete { missing: self.progress(&upload).missing, first });
        }
        if self.is_aborting() {
            return Err(UploadError::Aborting);
        }
        let bytes = self.uploaded(blobs, draft, Segment::Index, u64::MAX)?;
        let index = Index::parse(&bytes).map_err(AppendError::from)?;
        let (transit, meta) = match self.state.transit {
            Some(transit) => {
                (transit, self.meta_in_transit(draft, &index).ok_or_else(|| corrupt("the state of its commit"))?)
            }
            None => {
                // These checks refuse the block before its first reference is entered.
                self.is_kept(draft)?;
                self.admit(draft.number, admission)?;
                draft.check_entries(&index)?;
                let table = self.uploaded(blobs, draft, Segment::Receipts, receipts_table_len(index.transactions()))?;
                let receipts = u64::from(draft.lengths[Segment::Receipts.index()]);
                check_receipts(&table, receipts, index.transactions()).map_err(AppendError::from)?;
                if admission.verify_segments && !self.verify_upload(blobs, draft)? {
                    self.touch_upload(now);
                    return Ok(Commit::HasMore { entered: 0, of: index.references() });
                }
                self.reserve_header_and_references(draft, &index)?;
                let log_end = self.upload_blobs(&upload).end;
                let transit = Transit { way: Way::Entering, number: draft.number, ids: 0, keys: 0, log_end };
                (transit, self.meta_of(draft, &index, now))
            }
        };
        self.enter_slice(blobs, &upload, transit, meta, &index)?;
        self.touch_upload(now);
        match self.state.transit {
            Some(transit) => Ok(Commit::HasMore { entered: transit.references(), of: index.references() }),
            None => {
                self.close_upload();
                Ok(Commit::Done)
            }
        }
    }

    /// The header of the block in transit, or `None` if it contradicts the upload. Links are written where the header says, so a wrong
    /// header would overwrite other blocks.
    fn meta_in_transit(&self, draft: &Draft, index: &Index) -> Option<BlockMeta> {
        let meta = self.headers.meta(draft.number)?;
        let agrees = meta.log_offset == self.state.log_tail
            && meta.lengths == draft.lengths
            && (meta.transactions, meta.keys) == (index.transactions(), index.keys());
        agrees.then_some(meta)
    }

    /// Enters the next slice. The last slice makes the block the head.
    fn enter_slice(
        &mut self,
        blobs: &mut BlobStore,
        upload: &Upload,
        mut transit: Transit,
        mut meta: BlockMeta,
        index: &Index,
    ) -> Result<(), UploadError> {
        let (from, left) = ((transit.ids, transit.keys), index.references() - transit.references());
        let block = Indexed { blobs, meta: &meta, index };
        let entered = self.metered(left, INSTRUCTIONS, |chain, meter| chain.enter(&block, from, meter));
        let entered = entered.map_err(|error| match error {
            EnterError::Grow(error) => AppendError::from(NoMemory::from(error)).into(),
            EnterError::Unreadable(why) => corrupt(why),
        })?;
        let (ids, keys) = (entered.ids.end(), transit.keys + entered.keys.count());
        let links_before = meta.id_links;
        meta.id_links += entered.ids.links.len() as u32;
        // The number of links is known only now; they lie after the range that the upload has reserved.
        let end = self.log.blobs_end(meta.log_end()).max(transit.log_end);
        let reserved = self.log.reserve(blobs, owners::UPLOAD, self.state.log_first, transit.log_end..end);
        let reserved = reserved.inspect_err(|_| self.revert_entered(&entered)).map_err(NoMemory::from);
        reserved.map_err(AppendError::from)?;
        let done = ids == meta.transactions && keys == meta.keys;
        let whole = self.state.log_end..transit.log_end;
        if done && whole.clone().any(|blob| !self.log.is_used(blobs, blob)) {
            self.revert_entered(&entered);
            return Err(corrupt("a blob of its range is not in use"));
        }

        // From here on the commit can no longer be refused.
        let extended = self.log.extend(blobs, transit.log_end..end, owners::UPLOAD).map_err(|error| error.to_string());
        let written = extended.and_then(|()| self.write_links(blobs, &meta, links_before, &entered));
        written.unwrap_or_else(|why| Ic::trap(&format!("commit_block: the links cannot be written: {why}; abort it")));
        self.settle_replaced(&entered);
        (transit.ids, transit.keys, transit.log_end) = (ids, keys, end);
        if !done {
            self.put_header(&upload.draft, meta, Seal::default());
            self.state.transit = Some(transit);
            self.save();
            return Ok(());
        }
        for ptr in (self.state.log_end..end).filter_map(|blob| self.log.ptr(blob)) {
            let owned = blobs.set_owner(&ptr, owners::CHAIN);
            owned.unwrap_or_else(|error| Ic::trap(&format!("commit_block: a blob of the upload: {error}; abort it")));
        }
        self.state.log_end = end;
        self.commit(&upload.draft, meta);
        Ok(())
    }

    /// Writes the links of a slice. `from` is the index of its first link of ids.
    fn write_links(&self, blobs: &mut BlobStore, meta: &BlockMeta, from: u32, entered: &Entered) -> Result<(), String> {
        let mut write = |at: u64, bytes: &[u8]| self.log.write(blobs, at, bytes).map_err(|error| error.to_string());
        for (first, links) in &entered.keys.links {
            write(meta.payload_end() + links::links_len(*first), links)?;
        }
        let ids = meta.id_links_start();
        for &link in &entered.ids.taken_over {
            // Skip the position (4 bytes) to overwrite the posting.
            write(ids + links::links_len(link) + 4, &links::NONE.to_le_bytes())?;
        }
        write(ids + links::links_len(from), &entered.ids.encode())
    }

    /// The first `most` bytes of an uploaded segment.
    fn uploaded(&self, blobs: &BlobStore, draft: &Draft, segment: Segment, most: u64) -> Result<Vec<u8>, UploadError> {
        let (start, len) = uploaded_range(self.state.log_tail, draft, segment);
        self.log.read(blobs, start..start + len.min(most)).map_err(corrupt)
    }
}
