//! Persisted cell of the open upload, mirrored on the heap.
//!
//! ```text
//! cell: 0 magic "CPUP"  4 version u16  6 open u8  7 hash length u8  8 number u64  16 timestamp u64  24 lengths 3 × u32
//!       36 chunk size u32  40 reserved u32  44 parent length u8  48 last touched u64 (Unix seconds)  56 reserved
//!       64 hash 32  96 parent 32  128 SHA-256 3 × 32  224 producer's length u8  225 producer, up to 29  256 reserved  260 checksum u32
//!       264 bitmap of received chunks, up to 2048 bytes  4096 progress of verification (`verify.rs`)
//! ```

use crate::draft::Draft;
use crate::hash::Hash;
use crate::places;
use candid::Principal;
use ic_coppice_interface::segments::Segment;
use ic_coppice_interface::{UploadError, UploadOpen};
use ic_coppice_storage::bytes::{array_at, u32_at, u64_at};
use ic_coppice_storage::chunks::Chunks;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{OpenError, Space, checksum};

/// Returns the refusal of an upload whose reserved range cannot be read or written.
pub fn corrupt(why: impl ToString) -> UploadError {
    UploadError::Corrupt { why: why.to_string() }
}

const LAYOUT: Header = Header { name: "upload of a block", magic: *b"CPUP", version: 2 };
pub(super) const HEADER: usize = 264;
const PRODUCER: usize = 224;
pub(super) const BITMAP: u64 = places::UPLOAD + HEADER as u64;

/// The open upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub draft: Draft,
    /// The principal that began the upload.
    pub(super) by: Principal,
    pub(super) chunk_size: u32,
    pub(super) touched: u64,
}

impl Upload {
    pub(crate) fn chunks(&self) -> Chunks {
        Chunks { length: self.draft.payload_len(), size: self.chunk_size }
    }

    /// The error for a caller that names another block.
    pub(crate) fn other(&self) -> UploadError {
        UploadError::OtherUpload { number: self.draft.number, hash: self.draft.hash.to_bytes() }
    }

    pub(super) fn opened(&self, expiry: u64) -> UploadOpen {
        UploadOpen { by: self.by, expires_at_secs: self.touched.saturating_add(expiry) }
    }

    pub(crate) fn save(&self, cells: &Space) {
        let mut b = [0; HEADER];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        let (hash, parent) = (self.draft.hash.as_slice(), self.draft.parent.as_slice());
        put(0, &LAYOUT.encode());
        put(6, &[1, hash.len() as u8]);
        put(8, &self.draft.number.to_le_bytes());
        put(16, &self.draft.timestamp_secs.to_le_bytes());
        put(24, self.draft.lengths.map(u32::to_le_bytes).as_flattened());
        put(36, &self.chunk_size.to_le_bytes());
        put(44, &[parent.len() as u8]);
        put(48, &self.touched.to_le_bytes());
        put(64, hash);
        put(96, parent);
        put(128, self.draft.sha256.as_flattened());
        put(PRODUCER, &[self.by.as_slice().len() as u8]);
        put(PRODUCER + 1, self.by.as_slice());
        checksum::put(&mut b);
        cells.write(places::UPLOAD, &b);
    }

    /// Reads the cell; `None` if no upload is open.
    pub(crate) fn load(cells: &Space) -> Result<Option<Self>, OpenError> {
        let b: [u8; HEADER] = cells.read(places::UPLOAD);
        if b == [0; HEADER] {
            return Ok(None);
        }
        if !checksum::is_right(&b) {
            return Err(OpenError::Damaged { name: LAYOUT.name });
        }
        LAYOUT.check(&array_at(&b, 0))?;
        Self::decode(&b).map(Some).ok_or_else(|| LAYOUT.corrupt("a hash or a principal".into()))
    }

    fn decode(b: &[u8; HEADER]) -> Option<Self> {
        let (u32_at, u64_at) = (|at: usize| u32_at(b, at), |at: usize| u64_at(b, at));
        let digest = |at: usize| array_at::<32>(b, at);
        Some(Self {
            draft: Draft {
                number: u64_at(8),
                hash: Hash::new(digest(64).get(..usize::from(b[7]))?)?,
                parent: Hash::new(digest(96).get(..usize::from(b[44]))?)?,
                timestamp_secs: u64_at(16),
                lengths: [u32_at(24), u32_at(28), u32_at(32)],
                sha256: [digest(128), digest(160), digest(192)],
            },
            by: Principal::try_from_slice(b[PRODUCER + 1..].get(..usize::from(b[PRODUCER]))?).ok()?,
            chunk_size: u32_at(36),
            touched: u64_at(48),
        })
    }
}

/// Log offset and bytes of a segment of an upload that begins at log offset `start`.
pub(crate) fn uploaded_range(start: u64, draft: &Draft, segment: Segment) -> (u64, u64) {
    let before: u64 = draft.lengths[..segment.index()].iter().map(|&len| u64::from(len)).sum();
    (start + before, u64::from(draft.lengths[segment.index()]))
}
