//! Headers of blocks: they prove the payload, and lead from seal to seal (`docs/design/export.md`).

use anyhow::{Result, bail, ensure};
use ic_coppice_interface::seals::{Leaf, Seal};
use ic_coppice_interface::{BlockHeader, ExportChunk};
use serde::{Deserialize, Serialize};

/// Segments of a block: body, receipts, index.
pub const SEGMENTS: usize = 3;

/// Reason why an answer is a lie: it is not the next part of the chain, or no canister gives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refuted(pub String);

/// The length and digest of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Bytes of the whole segment.
    pub length: u32,
    /// SHA-256 of the whole segment.
    pub sha256: [u8; 32],
}

impl Declared {
    fn new(number: u64, length: u64, sha256: &[u8]) -> Result<Self> {
        let (Ok(length), Ok(sha256)) = (u32::try_from(length), sha256.try_into()) else {
            bail!(Refuted(format!(
                "block {number}: a segment of {length} bytes has a digest of {} bytes",
                sha256.len()
            )));
        };
        Ok(Self { length, sha256 })
    }
}

/// The header of a block, as far as a seal proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub number: u64,
    pub hash: Vec<u8>,
    /// The hash of the previous block; `None` if the canister has lost it.
    pub parent_hash: Option<Vec<u8>>,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    /// Body, receipts, index.
    pub segments: [Declared; SEGMENTS],
}

impl Header {
    /// Reads a header that a canister has handed out. `parent` is the previous block's hash if it is known: the canister may have lost it.
    ///
    /// # Errors
    /// [`Refuted`] if a length or a digest is impossible, or if the block has another parent.
    pub fn of(header: &BlockHeader, parent: Option<&[u8]>) -> Result<Self> {
        let (number, [body, receipts, index]) = (header.number, header.lengths.each());
        let [of_body, of_receipts, of_index] = header.sha256.each();
        let segments = [
            Declared::new(number, *body, of_body)?,
            Declared::new(number, *receipts, of_receipts)?,
            Declared::new(number, *index, of_index)?,
        ];
        let (hash, parent_hash) = (header.hash.to_vec(), header.parent_hash.as_ref().map(|hash| hash.to_vec()));
        Self { number, hash, parent_hash, timestamp_secs: header.timestamp_secs, segments }.after(parent)
    }

    /// Reads the header of a block from its chunks; `None` if a segment has no chunk there.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_chunks(chunks: &[ExportChunk], parent: Option<&[u8]>) -> Result<Option<Self>> {
        let first = |segment: u8| chunks.iter().find(|chunk| chunk.segment == segment);
        let (Some(body), Some(receipts), Some(index)) = (first(0), first(1), first(2)) else { return Ok(None) };
        let declared = |chunk: &ExportChunk| Declared::new(chunk.number, chunk.total, &chunk.sha256);
        Self {
            number: body.number,
            hash: body.hash.to_vec(),
            parent_hash: body.parent_hash.as_ref().map(|hash| hash.to_vec()),
            timestamp_secs: body.timestamp_secs,
            segments: [declared(body)?, declared(receipts)?, declared(index)?],
        }
        .after(parent)
        .map(Some)
    }

    fn after(mut self, parent: Option<&[u8]>) -> Result<Self> {
        let Some(parent) = parent else { return Ok(self) };
        let is_same = self.parent_hash.as_ref().is_none_or(|declared| declared == parent);
        ensure!(is_same, Refuted(format!("block {} has a parent other than the block before it", self.number)));
        self.parent_hash = Some(parent.to_vec());
        Ok(self)
    }

    /// Returns the leaf of the block.
    ///
    /// # Errors
    /// [`Refuted`] if the parent is unknown, or a hash is longer than any canister accepts.
    pub fn leaf(&self) -> Result<Seal> {
        let Some(parent_hash) = &self.parent_hash else {
            bail!(Refuted(format!("block {} lacks its parent's hash", self.number)));
        };
        let leaf = Leaf {
            number: self.number,
            timestamp_secs: self.timestamp_secs,
            lengths: self.segments.each_ref().map(|segment| segment.length),
            hash: &self.hash,
            parent_hash,
            sha256: &self.segments.each_ref().map(|segment| segment.sha256),
        };
        let why = || Refuted(format!("block {} has a hash of more than 32 bytes", self.number));
        leaf.digest().ok_or_else(|| why().into())
    }

    /// Returns the length of all segments, in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }
}
