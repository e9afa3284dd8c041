//! Blocks that are longer than an ingress message: begun, put in chunks, committed.
//!
//! One upload at a time. Its payload goes straight to where it stays, the range behind the log's tail, in blobs that the
//! upload owns; a bitmap of received chunks makes every step repeatable in any order. Until the commit the chain does not
//! know of it, and aborting it truncates the tail. All of it is persisted, so it survives an upgrade.
//!
//! A commit takes as many messages as the block needs (`commit.rs`). An abort in its middle takes out what was entered, in as many.
//!
//! ```text
//! cell: 0 magic "CPUP"  4 version u16  6 open u8  7 hash length u8  8 number u64  16 timestamp u64  24 lengths 3 × u32
//!       36 chunk size u32  40 missing u32  44 parent length u8  48 last touched u64 (Unix seconds)  56 reserved
//!       64 hash 32  96 parent 32  128 SHA-256 3 × 32  224 producer's length u8  225 producer, up to 29  256 bitmap of received chunks, up to 2048 bytes
//!       4096 how far the segments are verified
//! ```

use super::ChainStore;
use super::append::{Admission, Draft, Standing};
use super::records::{Hash, PAGE_RECORDS};
use super::remove::release;
use super::state::Way;
use super::verified::Verified;
use crate::storage::blob::{BlobStore, Owner};
use crate::storage::memory::{Region, cell};
use candid::Principal;
use coppice_interface::segments::Segment;
use coppice_interface::{AppendError, BeginBlock, OpenBlock, PutBlockChunk, UploadError, UploadProgress};
use std::ops::Range;

/// Bytes of the largest chunk.
pub const MAX_CHUNK: u32 = 1 << 20;
/// Chunks of the largest upload.
const MAX_CHUNKS: u64 = 16_384;
const MAGIC: [u8; 4] = *b"CPUP";
const VERSION: u16 = 1;
const HEADER: usize = 256;
const PRODUCER: usize = 224;
const MISSING: u64 = cell::UPLOAD + 40;
const TOUCHED: u64 = cell::UPLOAD + 48;
const BITMAP: u64 = cell::UPLOAD + HEADER as u64;

/// Whose upload is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Who began it; none where that was not noted.
    pub by: Option<Principal>,
    /// When it expires, in Unix seconds.
    pub expires_at: u64,
}

impl From<Opened> for AppendError {
    fn from(Opened { by, expires_at }: Opened) -> Self {
        Self::UploadOpen { by, expires_at }
    }
}

/// The open upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upload {
    pub draft: Draft,
    /// Who began it; none where that was before it was noted.
    by: Option<Principal>,
    chunk_size: u32,
    pub missing: u32,
    touched: u64,
}

impl Upload {
    pub(super) fn chunks(&self) -> u32 {
        self.draft.payload_len().div_ceil(u64::from(self.chunk_size)) as u32
    }

    /// Bytes of the payload that a chunk holds.
    fn range(&self, chunk: u32) -> Range<u64> {
        let start = u64::from(chunk) * u64::from(self.chunk_size);
        start..(start + u64::from(self.chunk_size)).min(self.draft.payload_len())
    }

    /// What is said to a caller who means another block.
    pub(super) fn other(&self) -> UploadError {
        UploadError::OtherUpload { number: self.draft.number, hash: self.draft.hash.to_bytes() }
    }

    fn opened(&self, expiry: u64) -> Opened {
        Opened { by: self.by, expires_at: self.touched.saturating_add(expiry) }
    }

    fn is_of_another(&self, caller: Principal) -> bool {
        self.by.is_some_and(|by| by != caller)
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
        if let Some(by) = &self.by {
            put(PRODUCER, &[by.as_slice().len() as u8]);
            put(PRODUCER + 1, by.as_slice());
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
            by: match usize::from(b[PRODUCER]) {
                0 => None,
                len => Some(Principal::try_from_slice(b.get(PRODUCER + 1..PRODUCER + 1 + len)?).ok()?),
            },
            chunk_size: u32_at(36),
            missing: u32_at(40),
            touched: u64_at(48),
        })
    }
}

/// Where a segment of an upload lies that begins at log offset `start`, and its bytes.
pub(super) fn uploaded_range(start: u64, draft: &Draft, segment: Segment) -> (u64, u64) {
    let before: u64 = draft.lengths[..segment.index()].iter().map(|&len| u64::from(len)).sum();
    (start + before, u64::from(draft.lengths[segment.index()]))
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

    /// Whose upload is open, and when it expires after `expiry` seconds without a call.
    pub fn upload_opened(&self, expiry: u64) -> Option<Opened> {
        self.upload().map(|upload| upload.opened(expiry))
    }

    /// The open upload where it is another's than `caller`'s. One whose producer was not noted is everybody's.
    pub fn upload_of_another(&self, caller: Principal, expiry: u64) -> Option<Opened> {
        self.upload().filter(|upload| upload.is_of_another(caller)).map(|upload| upload.opened(expiry))
    }

    /// When the open upload was touched last, in Unix seconds.
    pub fn upload_touched(&self) -> Option<u64> {
        self.upload().map(|upload| upload.touched)
    }

    /// The open upload's block number and progress.
    pub fn upload_progress(&self) -> Option<OpenBlock> {
        self.upload().map(|upload| OpenBlock { number: upload.draft.number, progress: upload.progress() })
    }

    /// The blobs of the log that the upload owns.
    pub(super) fn upload_blobs(&self, upload: &Upload) -> Range<u64> {
        let payload = self.log.blobs_end(self.state.log_tail + upload.draft.payload_len());
        let end = self.state.transit.map_or(payload, |transit| transit.log_end);
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
        if block.chunk_size == 0 {
            return Err(bad("chunk_size is 0".into()));
        }
        let draft = Draft::new(
            block.number,
            (&block.hash, &block.parent_hash),
            block.timestamp,
            block.lengths.into(),
            &block.sha256,
        )?;
        if let Standing::Known = self.standing(&draft)? {
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
            let same = open.draft == draft && open.chunk_size == block.chunk_size;
            if !same || open.is_of_another(admission.by) || self.is_aborting() {
                return Err(open.opened(admission.upload_expiry_secs).into());
            }
            self.touch_upload(now);
            return Ok(open.progress());
        }
        self.check_quiet(admission)?;
        self.admit(&draft, admission)?;
        self.pass_damaged_tail(blobs);

        let by = Some(admission.by);
        let upload = Upload { draft, by, chunk_size: block.chunk_size, missing: chunks as u32, touched: now };
        let range = self.upload_blobs(&upload);
        self.log.reserve(blobs, self.state.log_first, range.start, range.end)?;
        if let Err(error) = self.log.extend(blobs, range, Owner::Upload) {
            crate::platform::trap(&format!("begin_block: a reserved blob cannot be had: {error:?}"));
        }
        self.cells.write(BITMAP, &vec![0; chunks.div_ceil(8) as usize]);
        Verified::default().save(&self.cells);
        upload.save(&self.cells);
        Ok(upload.progress())
    }

    pub(super) fn upload_of(&self, number: u64) -> Result<Upload, UploadError> {
        let upload = self.upload().ok_or(UploadError::NoUpload)?;
        if upload.draft.number != number {
            return Err(upload.other());
        }
        Ok(upload)
    }

    pub(super) fn received(&self, chunk: u32) -> bool {
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
            self.touch_upload(now);
            return Ok(upload.progress());
        }
        self.log.write(blobs, start, &put.bytes).map_err(|_| UploadError::Damaged)?;
        let at = BITMAP + u64::from(put.chunk / 8);
        let [byte] = self.cells.read(at);
        self.cells.write(at, &[byte | 1 << (put.chunk % 8)]);
        upload.missing -= 1;
        self.cells.write_u32(MISSING, upload.missing);
        self.touch_upload(now);
        Ok(upload.progress())
    }

    /// Drops the open upload if it is of this block, and says whether it was. Where some of its references are in the indexes, they go first,
    /// a slice in each message; until then the upload stays open.
    ///
    /// # Errors
    /// `OtherUpload` where another one is open.
    pub fn abort_upload(&mut self, blobs: &mut BlobStore, number: u64) -> Result<bool, UploadError> {
        match self.upload_of(number) {
            Ok(upload) => {
                self.abandon(blobs, &upload);
                Ok(true)
            }
            Err(UploadError::NoUpload) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Drops an upload that nobody has touched for `expiry` seconds, as [`abort_upload`](Self::abort_upload) does, and says which.
    pub fn expire_upload(&mut self, blobs: &mut BlobStore, now: u64, expiry: u64) -> Option<u64> {
        let upload = self.upload().filter(|upload| now.saturating_sub(upload.touched) >= expiry)?;
        if self.is_aborting() {
            return None;
        }
        self.abandon(blobs, &upload);
        Some(upload.draft.number)
    }

    /// Whether references of an upload that was dropped are still in the indexes.
    pub fn is_aborting(&self) -> bool {
        self.state.transit.is_some_and(|transit| transit.way == Way::Aborted)
    }

    fn abandon(&mut self, blobs: &mut BlobStore, upload: &Upload) {
        if let Some(transit) = &mut self.state.transit {
            transit.way = Way::Aborted;
            self.go_on_aborting(blobs);
        } else {
            self.drop_upload(blobs, upload);
        }
    }

    /// Takes the next slice of an upload that was dropped out of the indexes; behind the last one its blobs go.
    pub fn go_on_aborting(&mut self, blobs: &mut BlobStore) {
        let Some(upload) = self.upload().filter(|_| self.is_aborting()) else { return };
        let number = upload.draft.number;
        let slice = self.slice();
        if let Err(why) = self.take_out_slice(blobs, slice) {
            self.faults.push(why);
        }
        if self.state.transit.is_some_and(|transit| transit.references() > 0) {
            self.save();
            return;
        }
        self.records.remove(number, number.is_multiple_of(PAGE_RECORDS) || !self.state.started);
        // While the transit still says how far the blobs reach.
        self.drop_upload(blobs, &upload);
        self.state.transit = None;
        self.save();
    }

    /// Truncates the tail: the upload's blobs go the way of every other, quarantine, last reference, release.
    fn drop_upload(&mut self, blobs: &mut BlobStore, upload: &Upload) {
        let range = self.upload_blobs(upload);
        let mut faults = Vec::new();
        let quarantined = self.quarantine(blobs, range.clone(), Owner::Upload, &mut faults);
        range.for_each(|blob| self.log.clear(blob));
        self.close_upload();
        release(blobs, &quarantined, &mut faults);
        self.faults.extend(faults);
    }

    /// What could not be read where an upload was undone, and was not told yet.
    pub fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    pub(super) fn close_upload(&mut self) {
        self.cells.write(cell::UPLOAD, &[0; HEADER]);
    }

    /// Notes that somebody goes on with the upload.
    pub(super) fn touch_upload(&self, now: u64) {
        self.cells.write_u64(TOUCHED, now);
    }
}
