//! Uploads of blocks that are larger than an ingress message: begin, put chunks, commit.
//!
//! At most one upload is open. The payload is written directly to its final place, the range after the log's tail, in blobs owned by
//! the upload; a bitmap of received chunks makes every step repeatable in any order. Until the commit the chain does not contain
//! the block, and an abort frees the range. The state of an upload is persisted (`cell.rs`), so it survives an upgrade.
//!
//! ```text
//! begin ─▶ put_chunk, in any order ─▶ commit_upload: verify.rs, 16 MiB a message ─▶ commit.rs, a slice of references a message ─▶ head
//!              └─▶ abort_upload, expire_upload: entered references are removed, a slice a message ─▶ blobs are freed
//! ```

pub mod cell;
mod commit;
#[cfg(test)]
mod tests;
mod verify;

use crate::draft::{Admission, Draft, at_most};
use crate::headers::PAGE_HEADERS;
use crate::state::Way;
use crate::store::ChainStore;
use crate::transit::INSTRUCTIONS;
use crate::{owners, places};
use candid::Principal;
use cell::{BITMAP, HEADER, Upload, corrupt};
use ic_coppice_interface::{
    AppendError, BeginBlock, NoMemory, OpenBlock, PutBlockChunk, UploadError, UploadOpen, UploadProgress,
};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::chunks::{ChunkError, Chunks, is_expired};
use ic_coppice_storage::{Ic, Platform as _};
use std::ops::Range;
use verify::Verified;

/// Bytes of the largest chunk.
const MAX_CHUNK: u32 = 1 << 20;
/// Chunks of the largest upload.
const MAX_CHUNKS: u64 = 16_384;

impl ChainStore {
    /// Owner of the open upload, and its expiry after `expiry` seconds without a call.
    pub fn upload_opened(&self, expiry: u64) -> Option<UploadOpen> {
        self.open.as_ref().map(|upload| upload.opened(expiry))
    }

    /// The open upload if it does not belong to `caller`.
    pub fn upload_of_another(&self, caller: Principal, expiry: u64) -> Option<UploadOpen> {
        self.open.as_ref().filter(|upload| upload.by != caller).map(|upload| upload.opened(expiry))
    }

    /// Time of the last call on the open upload, in Unix seconds.
    pub fn upload_touched(&self) -> Option<u64> {
        self.open.as_ref().map(|upload| upload.touched)
    }

    /// The open upload's block number and progress.
    pub fn upload_progress(&self) -> Option<OpenBlock> {
        self.open.as_ref().map(|upload| OpenBlock { number: upload.draft.number, progress: self.progress(upload) })
    }

    /// The blobs of the log that the upload owns.
    pub(crate) fn upload_blobs(&self, upload: &Upload) -> Range<u64> {
        let payload = self.log.blobs_end(self.state.log_tail + upload.draft.payload_len());
        let end = self.state.transit.map_or(payload, |transit| transit.log_end);
        self.state.log_end..end.max(self.state.log_end)
    }

    /// Opens an upload and reserves its range at the log's tail. Repeating the call returns Ok and changes nothing.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed.
    pub fn begin(
        &mut self,
        blobs: &mut BlobStore,
        block: &BeginBlock,
        by: Principal,
        admission: &Admission,
        now: u64,
    ) -> Result<UploadProgress, AppendError> {
        if block.chunk_size == 0 {
            return Err(AppendError::BadEncoding { segment: 0, offset: 0, why: "chunk_size is 0".into() });
        }
        let hashes = (block.hash.as_slice(), block.parent_hash.as_slice());
        let draft = Draft::new(block.number, hashes, block.timestamp_secs, block.lengths.into(), &block.sha256)?;
        let chunks = Chunks { length: draft.payload_len(), size: block.chunk_size }.count();
        if self.is_kept(&draft)? {
            return Ok(UploadProgress { chunks: chunks as u32, missing: 0 });
        }
        at_most(MAX_CHUNK.into(), "chunk_size", block.chunk_size.into())?;
        at_most(MAX_CHUNKS, "chunks", chunks)?;
        if let Some(open) = self.open.clone() {
            let same = open.draft == draft && open.chunk_size == block.chunk_size;
            if !same || open.by != by || self.is_aborting() {
                return Err(open.opened(admission.upload_expiry_secs).into());
            }
            self.touch_upload(now);
            return Ok(self.progress(&open));
        }
        self.check_no_upload_or_reset(admission)?;
        self.admit(draft.number, admission)?;
        self.pass_damaged_tail(blobs);

        let upload = Upload { draft, by, chunk_size: block.chunk_size, touched: now };
        let range = self.upload_blobs(&upload);
        self.log.reserve(blobs, owners::UPLOAD, self.state.log_first, range.clone()).map_err(NoMemory::from)?;
        let extended = self.log.extend(blobs, range, owners::UPLOAD);
        extended.unwrap_or_else(|why| Ic::trap(&format!("begin_block: a reserved blob cannot be allocated: {why}")));
        self.cells.write(BITMAP, &vec![0; chunks.div_ceil(8) as usize]);
        Verified::default().save(&self.cells);
        upload.save(&self.cells);
        let progress = self.progress(&upload);
        self.open = Some(upload);
        Ok(progress)
    }

    fn progress(&self, upload: &Upload) -> UploadProgress {
        let chunks = upload.chunks().count() as u32;
        let mut bitmap = Vec::new();
        self.cells.read_onto(&mut bitmap, BITMAP, chunks.div_ceil(8) as usize);
        let received = bitmap.iter().map(|byte| byte.count_ones()).sum::<u32>().min(chunks);
        UploadProgress { chunks, missing: chunks - received }
    }

    pub(crate) fn upload_of(&self, number: u64) -> Result<Upload, UploadError> {
        let upload = self.open.clone().ok_or(UploadError::NoUpload)?;
        if upload.draft.number == number { Ok(upload) } else { Err(upload.other()) }
    }

    pub(crate) fn received(&self, chunk: u32) -> bool {
        let [byte] = self.cells.read(BITMAP + u64::from(chunk / 8));
        byte & 1 << (chunk % 8) != 0
    }

    /// Stores one chunk. Putting the same bytes again returns Ok.
    ///
    /// # Errors
    /// [`UploadError`]; nothing has changed.
    pub fn put_chunk(
        &mut self,
        blobs: &mut BlobStore,
        put: &PutBlockChunk,
        now: u64,
    ) -> Result<UploadProgress, UploadError> {
        let upload = self.upload_of(put.number)?;
        let range = upload.chunks().place(put.chunk, put.bytes.len()).map_err(|why| match why {
            ChunkError::OutOfRange { chunks } => UploadError::ChunkOutOfRange { chunks },
            ChunkError::WrongLength { expected } => UploadError::WrongLength { expected },
        })?;
        let (start, len) = (self.state.log_tail + range.start, range.end - range.start);
        if !self.received(put.chunk) {
            self.log.write(blobs, start, &put.bytes).map_err(corrupt)?;
            let at = BITMAP + u64::from(put.chunk / 8);
            let [byte] = self.cells.read(at);
            self.cells.write(at, &[byte | 1 << (put.chunk % 8)]);
        } else if self.log.read(blobs, start..start + len).map_err(corrupt)? != put.bytes.as_slice() {
            return Err(UploadError::ChunkMismatch);
        }
        self.touch_upload(now);
        Ok(self.progress(&upload))
    }

    /// Aborts the open upload of this block, and returns whether there was one. If some of its references are in the indexes, they are
    /// removed first, a slice in each message; until then the upload stays open.
    ///
    /// # Errors
    /// `OtherUpload` if the open upload is of another block.
    pub fn abort_upload(&mut self, blobs: &mut BlobStore, number: u64) -> Result<bool, UploadError> {
        if self.open.is_none() {
            return Ok(false);
        }
        let upload = self.upload_of(number)?;
        self.abandon(blobs, &upload);
        Ok(true)
    }

    /// Aborts an upload that had no call for `expiry` seconds, like [`abort_upload`](Self::abort_upload), and returns its block number.
    pub fn expire_upload(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> Option<u64> {
        let expired = |upload: &Upload| is_expired(upload.touched, now, expiry) && !self.is_aborting();
        let upload = self.open.clone().filter(expired)?;
        self.abandon(blobs, &upload);
        Some(upload.draft.number)
    }

    /// Returns whether references of an aborted upload are still in the indexes.
    pub fn is_aborting(&self) -> bool {
        self.state.transit.is_some_and(|transit| transit.way == Way::Aborted)
    }

    fn abandon(&mut self, blobs: &mut BlobStore, upload: &Upload) {
        if let Some(transit) = &mut self.state.transit {
            transit.way = Way::Aborted;
            self.continue_abort(blobs);
        } else {
            self.drop_upload(blobs, upload);
        }
    }

    /// Removes the next slice of an aborted upload from the indexes; after the last slice its blobs are released.
    pub fn continue_abort(&mut self, blobs: &mut BlobStore) {
        let Some(upload) = self.open.clone().filter(|_| self.is_aborting()) else { return };
        let number = upload.draft.number;
        let left = self.state.transit.map_or(0, |transit| transit.references());
        self.metered(left, INSTRUCTIONS, |chain, meter| chain.remove_slice(blobs, left, meter));
        if self.state.transit.is_none_or(|transit| transit.references() == 0) {
            self.headers.remove(number, number.is_multiple_of(PAGE_HEADERS) || !self.state.started);
            // The blobs must be released while `transit` still has their end.
            self.drop_upload(blobs, &upload);
            self.state.transit = None;
        }
        self.save();
    }

    /// Truncates the tail: the upload's blobs go through quarantine, removal of the reference, and release, like all blobs.
    fn drop_upload(&mut self, blobs: &mut BlobStore, upload: &Upload) {
        let quarantined = self.quarantine(blobs, self.upload_blobs(upload), owners::UPLOAD);
        self.close_upload();
        self.release_freed(blobs, &quarantined);
    }

    /// Returns the faults found since the last call. Removals, rollbacks and resets report their own; the caller takes those of an upload
    /// that was undone.
    pub fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    /// Restarts the expiry of the upload.
    pub(crate) fn touch_upload(&mut self, now: u64) {
        if let Some(upload) = &mut self.open {
            upload.touched = now;
            upload.save(&self.cells);
        }
    }

    /// Empties the cell.
    pub(crate) fn close_upload(&mut self) {
        self.open = None;
        self.cells.write(places::UPLOAD, &[0; HEADER]);
    }
}
