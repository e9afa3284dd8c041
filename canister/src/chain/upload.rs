//! Blocks that are longer than an ingress message: begun, put in chunks, committed.
//!
//! One upload at a time. Its payload goes straight to where it stays, the range behind the log's tail, in blobs that the
//! upload owns; a bitmap of received chunks makes every step repeatable in any order. Until the commit the chain does not
//! know of it, and aborting it truncates the tail. All of it is persisted, so it survives an upgrade.
//!
//! ```text
//! cell: 0 magic "CPUP"  4 version u16  6 open u8  7 hash length u8  8 number u64  16 timestamp u64  24 lengths 3 × u32
//!       36 chunk size u32  40 missing u32  44 parent length u8  48 last touched u64 (Unix seconds)  56 reserved
//!       64 hash 32  96 parent 32  128 SHA-256 3 × 32  256 bitmap of received chunks, up to 2048 bytes
//! ```

use super::ChainStore;
use super::append::{Admission, Draft, Place};
use super::records::Hash;
use super::remove::release;
use super::segments::{Index, Segment, check_receipts, receipts_table_len};
use crate::api::{AppendError, BeginBlock, BlockId, PutBlockChunk, UploadError, UploadProgress};
use crate::blob::{BlobStore, Owner};
use crate::memory::{Region, cell};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Bytes of the largest chunk.
pub const MAX_CHUNK: u32 = 1 << 20;
/// Chunks of the largest upload.
const MAX_CHUNKS: u64 = 16_384;
const MAGIC: [u8; 4] = *b"CPUP";
const VERSION: u16 = 1;
const HEADER: usize = 256;
const MISSING: u64 = cell::UPLOAD + 40;
const TOUCHED: u64 = cell::UPLOAD + 48;
const BITMAP: u64 = cell::UPLOAD + HEADER as u64;
/// Bytes that are hashed at a time.
const HASH_STEP: u64 = 1 << 20;

/// The open upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upload {
    draft: Draft,
    chunk_size: u32,
    missing: u32,
    touched: u64,
}

impl Upload {
    fn chunks(&self) -> u32 {
        self.draft.payload_len().div_ceil(u64::from(self.chunk_size)) as u32
    }

    /// Bytes of the payload that a chunk holds.
    fn range(&self, chunk: u32) -> Range<u64> {
        let start = u64::from(chunk) * u64::from(self.chunk_size);
        start..(start + u64::from(self.chunk_size)).min(self.draft.payload_len())
    }

    /// What is said to a caller who means another block.
    fn other(&self) -> UploadError {
        UploadError::OtherUpload { number: self.draft.number, hash: self.draft.hash.to_bytes() }
    }

    fn progress(&self) -> UploadProgress {
        UploadProgress { chunks: self.chunks(), missing: self.missing }
    }

    fn save(&self, cells: &Region) {
        let mut b = [0; HEADER];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        let (hash, parent) = (self.draft.hash.as_slice(), self.draft.parent.as_slice());
        put(0, &MAGIC);
        put(4, &VERSION.to_le_bytes());
        put(6, &[1, hash.len() as u8]);
        put(8, &self.draft.number.to_le_bytes());
        put(16, &self.draft.timestamp.to_le_bytes());
        for (i, len) in self.draft.lengths.iter().enumerate() {
            put(24 + 4 * i, &len.to_le_bytes());
        }
        put(36, &self.chunk_size.to_le_bytes());
        put(40, &self.missing.to_le_bytes());
        put(44, &[parent.len() as u8]);
        put(48, &self.touched.to_le_bytes());
        put(64, hash);
        put(96, parent);
        for (i, sha) in self.draft.sha256.iter().enumerate() {
            put(128 + 32 * i, sha);
        }
        cells.write(cell::UPLOAD, &b);
    }

    fn load(cells: &Region) -> Option<Self> {
        let b: [u8; HEADER] = cells.read(cell::UPLOAD);
        if b[..4] != MAGIC || b[4..6] != VERSION.to_le_bytes() || b[6] != 1 {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"));
        let digest = |at: usize| <[u8; 32]>::try_from(&b[at..at + 32]).expect("32 bytes");
        Some(Self {
            draft: Draft {
                number: u64_at(8),
                hash: Hash::new(digest(64).get(..usize::from(b[7]))?)?,
                parent: Hash::new(digest(96).get(..usize::from(b[44]))?)?,
                timestamp: u64_at(16),
                lengths: [u32_at(24), u32_at(28), u32_at(32)],
                sha256: [digest(128), digest(160), digest(192)],
            },
            chunk_size: u32_at(36),
            missing: u32_at(40),
            touched: u64_at(48),
        })
    }
}

/// Refuses a cell that this code did not write.
pub(super) fn check(cells: &Region) -> Result<(), String> {
    let header: [u8; HEADER] = cells.read(cell::UPLOAD);
    if header != [0; HEADER] && Upload::load(cells).is_none() {
        return Err(format!("open upload: magic {:?}, version {}", &header[..4], header[4]));
    }
    Ok(())
}

impl ChainStore {
    /// The open upload.
    pub(super) fn upload(&self) -> Option<Upload> {
        Upload::load(&self.cells)
    }

    /// When the open upload was touched last, in Unix seconds.
    pub fn upload_touched(&self) -> Option<u64> {
        self.upload().map(|upload| upload.touched)
    }

    /// The open upload's block number and progress.
    pub fn upload_progress(&self) -> Option<(u64, UploadProgress)> {
        self.upload().map(|upload| (upload.draft.number, upload.progress()))
    }

    /// The blobs of the log that the upload owns.
    fn upload_blobs(&self, upload: &Upload) -> Range<u64> {
        let end = self.log.blobs_end(self.state.log_tail + upload.draft.payload_len());
        self.state.log_end..end.max(self.state.log_end)
    }

    /// Opens an upload and reserves its range at the log's tail. The same again is Ok and changes nothing.
    ///
    /// # Errors
    /// [`AppendError`], and nothing has changed.
    pub fn begin(
        &mut self,
        blobs: &mut BlobStore,
        block: &BeginBlock,
        admission: &Admission,
        now: u64,
    ) -> Result<UploadProgress, AppendError> {
        let too_large = |what: &str, limit| AppendError::TooLarge { what: what.into(), limit };
        let bad = |why: String| AppendError::BadEncoding { segment: 0, at: 0, why };
        let lengths: [u64; 3] = block
            .lengths
            .as_slice()
            .try_into()
            .map_err(|_| bad(format!("lengths has {} entries; there are 3 segments", block.lengths.len())))?;
        if block.chunk_size == 0 {
            return Err(bad("chunk_size is 0".into()));
        }
        let draft =
            Draft::new(block.number, (&block.hash, &block.parent_hash), block.timestamp, lengths, &block.sha256)?;
        if let Place::Known = self.place(&draft)? {
            let chunks = draft.payload_len().div_ceil(u64::from(block.chunk_size)) as u32;
            return Ok(UploadProgress { chunks, missing: 0 });
        }
        if block.chunk_size > MAX_CHUNK {
            return Err(too_large("chunk_size", u64::from(MAX_CHUNK)));
        }
        let chunks = draft.payload_len().div_ceil(u64::from(block.chunk_size));
        if chunks > MAX_CHUNKS {
            return Err(too_large("chunks", MAX_CHUNKS));
        }
        if let Some(open) = self.upload() {
            if open.draft != draft || open.chunk_size != block.chunk_size {
                return Err(AppendError::UploadOpen);
            }
            self.cells.write_u64(TOUCHED, now);
            return Ok(open.progress());
        }
        self.admit(&draft, admission)?;

        let upload = Upload { draft, chunk_size: block.chunk_size, missing: chunks as u32, touched: now };
        let range = self.upload_blobs(&upload);
        self.log.reserve(blobs, self.state.log_first, range.start, range.end)?;
        if let Err(error) = self.log.extend(blobs, range, Owner::Upload) {
            crate::runtime::trap(&format!("begin_block: a reserved blob cannot be had: {error:?}"));
        }
        self.cells.write(BITMAP, &vec![0; chunks.div_ceil(8) as usize]);
        upload.save(&self.cells);
        Ok(upload.progress())
    }

    fn upload_of(&self, number: u64) -> Result<Upload, UploadError> {
        let upload = self.upload().ok_or(UploadError::NoUpload)?;
        if upload.draft.number != number {
            return Err(upload.other());
        }
        Ok(upload)
    }

    fn received(&self, chunk: u32) -> bool {
        let [byte] = self.cells.read(BITMAP + u64::from(chunk / 8));
        byte & 1 << (chunk % 8) != 0
    }

    /// Takes one chunk; the same bytes again are Ok.
    ///
    /// # Errors
    /// [`UploadError`], and nothing has changed.
    pub fn put_chunk(
        &mut self,
        blobs: &mut BlobStore,
        put: &PutBlockChunk,
        now: u64,
    ) -> Result<UploadProgress, UploadError> {
        let mut upload = self.upload_of(put.number)?;
        if put.chunk >= upload.chunks() {
            return Err(UploadError::ChunkOutOfRange { chunks: upload.chunks() });
        }
        let range = upload.range(put.chunk);
        let (start, len) = (self.state.log_tail + range.start, range.end - range.start);
        if put.bytes.len() as u64 != len {
            return Err(UploadError::WrongLength { expected: len as u32 });
        }
        if self.received(put.chunk) {
            let mut there = Vec::new();
            self.log.read_onto(blobs, &mut there, start..start + len).map_err(|_| UploadError::Damaged)?;
            if there != put.bytes.as_slice() {
                return Err(UploadError::ChunkMismatch);
            }
            self.cells.write_u64(TOUCHED, now);
            return Ok(upload.progress());
        }
        self.log.write(blobs, start, &put.bytes).map_err(|_| UploadError::Damaged)?;
        let at = BITMAP + u64::from(put.chunk / 8);
        let [byte] = self.cells.read(at);
        self.cells.write(at, &[byte | 1 << (put.chunk % 8)]);
        upload.missing -= 1;
        self.cells.write_u32(MISSING, upload.missing);
        self.cells.write_u64(TOUCHED, now);
        Ok(upload.progress())
    }

    /// Makes the uploaded block the head. A block that is kept already is Ok.
    ///
    /// # Errors
    /// [`UploadError`], and nothing has changed: the upload stays open.
    pub fn commit_upload(
        &mut self,
        blobs: &mut BlobStore,
        block: &BlockId,
        admission: &Admission,
        now: u64,
    ) -> Result<(), UploadError> {
        if self.hash(block.number).is_some_and(|hash| hash.as_slice() == block.hash.as_slice()) {
            return Ok(());
        }
        let upload = self.upload_of(block.number)?;
        let draft = &upload.draft;
        if draft.hash.as_slice() != block.hash.as_slice() {
            return Err(upload.other());
        }
        if upload.missing > 0 {
            let first = (0..upload.chunks()).find(|&chunk| !self.received(chunk)).unwrap_or(0);
            return Err(UploadError::Incomplete { missing: upload.missing, first });
        }
        self.place(draft)?;
        self.admit(draft, admission)?;
        let bytes = self.uploaded(blobs, draft, Segment::Index, u64::MAX)?;
        let index = Index::parse(&bytes).map_err(AppendError::from)?;
        draft.check_entries(&index)?;
        let table = self.uploaded(blobs, draft, Segment::Receipts, receipts_table_len(index.transactions()))?;
        let receipts = u64::from(draft.lengths[Segment::Receipts.index()]);
        check_receipts(&table, receipts, index.transactions()).map_err(AppendError::from)?;
        if admission.verify_segments {
            for segment in Segment::ALL {
                draft.verify(segment, self.uploaded_digest(blobs, draft, segment)?)?;
            }
        }
        // How many links there are is known only now: they come behind what the upload has reserved.
        let range = self.upload_blobs(&upload);
        let links_start = self.state.log_tail + draft.payload_len();
        self.reserve_records(draft, &index)?;
        let entered = self.enter(draft, &index)?;
        let end = self.log.blobs_end(links_start + entered.links_len()).max(range.end);
        if let Err(error) = self.log.reserve(blobs, self.state.log_first, range.end, end) {
            self.take_back(&entered);
            return Err(AppendError::from(error).into());
        }

        for blob in range.clone() {
            if self.log.ptr(blob).is_none_or(|ptr| blobs.set_owner(&ptr, Owner::Chain).is_err()) {
                crate::runtime::trap("commit_block: a blob of the upload is damaged; abort it");
            }
        }
        let links = [entered.keys.links.as_slice(), &entered.ids.encode()].concat();
        let written = self.log.extend(blobs, range.end..end, Owner::Chain).map_err(|error| format!("{error:?}"));
        let written =
            written.and_then(|()| self.log.write(blobs, links_start, &links).map_err(|error| format!("{error:?}")));
        if let Err(why) = written {
            crate::runtime::trap(&format!("commit_block: the links cannot be written: {why}; abort it"));
        }
        self.state.log_end = end;
        self.commit(draft, &index, &entered, now);
        self.close_upload();
        Ok(())
    }

    /// The first `most` bytes of an uploaded segment.
    fn uploaded(&self, blobs: &BlobStore, draft: &Draft, segment: Segment, most: u64) -> Result<Vec<u8>, UploadError> {
        let (start, len) = self.uploaded_range(draft, segment);
        let mut bytes = Vec::new();
        self.log.read_onto(blobs, &mut bytes, start..start + len.min(most)).map_err(|_| UploadError::Damaged)?;
        Ok(bytes)
    }

    fn uploaded_range(&self, draft: &Draft, segment: Segment) -> (u64, u64) {
        let before: u64 = draft.lengths[..segment.index()].iter().map(|&len| u64::from(len)).sum();
        (self.state.log_tail + before, u64::from(draft.lengths[segment.index()]))
    }

    fn uploaded_digest(&self, blobs: &BlobStore, draft: &Draft, segment: Segment) -> Result<[u8; 32], UploadError> {
        let (start, len) = self.uploaded_range(draft, segment);
        let mut hasher = Sha256::new();
        let mut bytes = Vec::new();
        for at in (0..len).step_by(HASH_STEP as usize) {
            bytes.clear();
            let part = start + at..start + len.min(at + HASH_STEP);
            self.log.read_onto(blobs, &mut bytes, part).map_err(|_| UploadError::Damaged)?;
            hasher.update(&bytes);
        }
        Ok(hasher.finalize().into())
    }

    /// Drops the open upload if it is of this block, and says whether it was.
    ///
    /// # Errors
    /// `OtherUpload` where another one is open.
    pub fn abort_upload(&mut self, blobs: &mut BlobStore, number: u64) -> Result<bool, UploadError> {
        match self.upload_of(number) {
            Ok(upload) => {
                self.drop_upload(blobs, &upload);
                Ok(true)
            }
            Err(UploadError::NoUpload) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Drops an upload that nobody has touched for `expiry` seconds, and says which.
    pub fn expire_upload(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> Option<u64> {
        let upload = self.upload().filter(|upload| now.saturating_sub(upload.touched) >= expiry)?;
        self.drop_upload(blobs, &upload);
        Some(upload.draft.number)
    }

    /// Truncates the tail: the upload's blobs go the way of every other, quarantine, last reference, release.
    fn drop_upload(&mut self, blobs: &mut BlobStore, upload: &Upload) {
        let range = self.upload_blobs(upload);
        let mut faults = Vec::new();
        let quarantined = self.quarantine(blobs, range.clone(), Owner::Upload, &mut faults);
        range.for_each(|blob| self.log.clear(blob));
        self.close_upload();
        release(blobs, &quarantined, &mut faults);
        for fault in faults {
            crate::runtime::log(&format!("upload of block {}: skipped: {fault}", upload.draft.number));
        }
    }

    fn close_upload(&mut self) {
        self.cells.write(cell::UPLOAD, &[0; HEADER]);
    }
}
