//! Progress of checking an upload's segments against their SHA-256. Hashing a block of 256 MiB takes 20 billion instructions, so each
//! message hashes a part, and the state of the hash is persisted in between.
//!
//! ```text
//! cell, 4096 bytes from the upload's: 0 segment u8 (3: all are verified)  8 offset u64  16 state of SHA-256
//! ```

use super::cell::{corrupt, uploaded_range};
use crate::draft::Draft;
use crate::places;
use crate::store::ChainStore;
use ic_coppice_interface::UploadError;
use ic_coppice_interface::segments::Segment;
use ic_coppice_storage::Space;
use ic_coppice_storage::blob::BlobStore;
use sha2::Sha256;
use sha2::digest::Digest;
use sha2::digest::common::hazmat::{SerializableState, SerializedState};

/// Bytes that one message hashes: 1.3 billion instructions.
pub const MOST_BYTES: u64 = 16 << 20;
/// Bytes that are read and hashed at a time.
const STEP: u64 = 1 << 20;
const AT: u64 = places::UPLOAD + 4_096;
const STATE: u64 = AT + 16;

/// Progress of the verification.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verified {
    /// Segments that are verified completely.
    segments: u8,
    /// Bytes of the next segment that are hashed.
    offset: u64,
    hasher: Sha256,
}

impl Verified {
    fn load(cells: &Space) -> Result<Self, UploadError> {
        let [segments] = cells.read(AT);
        let offset = cells.read_u64(AT + 8);
        let state = SerializedState::<Sha256>::from(cells.read(STATE));
        // The cell of a new upload has no state to restore.
        let hasher = if offset == 0 { Ok(Sha256::new()) } else { Sha256::deserialize(&state) };
        Ok(Self { segments, offset, hasher: hasher.map_err(corrupt)? })
    }

    /// Writes the cell.
    pub fn save(&self, cells: &Space) {
        cells.write(AT, &[self.segments]);
        cells.write_u64(AT + 8, self.offset);
        cells.write(STATE, &self.hasher.serialize());
    }
}

impl ChainStore {
    /// Continues the verification, as far as one message may. Returns true if all segments match and this message has budget left.
    ///
    /// # Errors
    /// `Corrupt`; `Append(BadEncoding)` if a segment does not match: then the upload can only be aborted.
    pub(crate) fn verify_upload(&mut self, blobs: &BlobStore, draft: &Draft) -> Result<bool, UploadError> {
        let mut verified = Verified::load(&self.cells)?;
        let (mut left, mut bytes) = (MOST_BYTES, Vec::new());
        while let Some(segment) = Segment::from_index(verified.segments) {
            let (start, len) = uploaded_range(self.state.log_tail, draft, segment);
            let step = (len - verified.offset).min(STEP);
            if step > left {
                verified.save(&self.cells);
                return Ok(false);
            }
            left -= step;
            bytes.clear();
            let part = start + verified.offset..start + verified.offset + step;
            self.log.read_onto(blobs, &mut bytes, part).map_err(corrupt)?;
            verified.hasher.update(&bytes);
            verified.offset += step;
            if verified.offset == len {
                draft.verify(segment, verified.hasher.finalize_reset().into())?;
                (verified.segments, verified.offset) = (verified.segments + 1, 0);
            }
        }
        verified.save(&self.cells);
        Ok(left + STEP >= MOST_BYTES)
    }
}
