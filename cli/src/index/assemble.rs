//! Assembly of blocks from chunks: checks the position of each chunk, and whether it completes a block.
//!
//! This module neither uses a database nor hashes.

use super::header::{Header, Refuted, SEGMENTS};
use anyhow::{Result, bail, ensure};
use ic_coppice_interface::seals::Seal;
use ic_coppice_interface::{ExportChunk, ExportCursor};
use serde::{Deserialize, Serialize};

/// The block that was stored last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    pub number: u64,
    pub hash: Vec<u8>,
    pub seal: Seal,
}

/// A block of which some or all chunks have arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// The proved header.
    pub header: Header,
    pub seal: Seal,
    /// The segment that comes next; 3 if the block is whole.
    pub segment: u8,
    /// Bytes of that segment that have arrived.
    pub received: u64,
}

impl Incomplete {
    pub fn begin(header: Header, seal: Seal) -> Self {
        Self { header, seal, segment: 0, received: 0 }
    }

    /// Returns whether the whole block has arrived.
    pub fn is_whole(&self) -> bool {
        usize::from(self.segment) == SEGMENTS
    }

    /// Takes the next chunks.
    ///
    /// # Errors
    /// [`Refuted`] if a chunk is not the next one. The block must not be used after an error.
    pub fn take(&mut self, chunks: &[ExportChunk]) -> Result<()> {
        chunks.iter().try_for_each(|chunk| self.take_one(chunk))
    }

    fn take_one(&mut self, chunk: &ExportChunk) -> Result<()> {
        let (number, segment, header) = (chunk.number, chunk.segment, &self.header);
        let parent = chunk.parent_hash.as_deref().map(Vec::as_slice);
        let is_parent = parent.is_none() || parent == header.parent_hash.as_deref();
        let same = (number, chunk.hash.as_slice(), chunk.timestamp_secs)
            == (header.number, &*header.hash, header.timestamp_secs);
        ensure!(same && is_parent, Refuted(format!("a chunk of block {number} is not of block {}", header.number)));
        ensure!(
            (segment, chunk.offset) == (self.segment, self.received),
            Refuted(format!(
                "block {number}: a chunk starts at byte {} of segment {segment}, but byte {} of segment {} comes next",
                chunk.offset, self.received, self.segment
            ))
        );
        let Some(declared) = header.segments.get(usize::from(segment)) else {
            bail!(Refuted(format!("block {number}: there is no segment {segment}")));
        };
        let total = u64::from(declared.length);
        ensure!(
            (chunk.total, chunk.sha256.as_slice()) == (total, &declared.sha256[..]),
            Refuted(format!("block {number}: segment {segment} has another length or digest"))
        );
        let end = chunk.offset.saturating_add(chunk.bytes.len() as u64);
        ensure!(end <= total, Refuted(format!("block {number}: segment {segment} has {total} bytes, but {end} came")));
        ensure!(
            !chunk.bytes.is_empty() || total == 0,
            Refuted(format!("block {number}: an empty chunk of segment {segment}, which has {total} bytes"))
        );
        (self.segment, self.received) = if end == total { (segment + 1, 0) } else { (segment, end) };
        Ok(())
    }
}

/// The position of the copy of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The newest whole block.
    pub tip: Option<Tip>,
    /// The number that comes next, or `None` before the first block.
    pub expected: Option<u64>,
    /// The block of which some chunks have arrived.
    pub block: Option<Incomplete>,
}

impl Position {
    /// Moves behind a whole block.
    pub fn pass(&mut self, block: &Incomplete) {
        let Header { number, hash, .. } = &block.header;
        self.tip = Some(Tip { number: *number, hash: hash.clone(), seal: block.seal });
        (self.expected, self.block) = (number.checked_add(1), None);
    }
}

pub fn cursor_after(number: u64, hash: &[u8], rollbacks: u64) -> ExportCursor {
    ExportCursor { number, hash: hash.into(), segment: SEGMENTS as u8, offset: 0, rollbacks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::header::Declared;
    use serde_bytes::ByteBuf;

    fn header() -> Header {
        let declared = |length, of| Declared { length, sha256: [of; 32] };
        let segments = [declared(4, 0), declared(0, 1), declared(2, 2)];
        Header { number: 8, hash: vec![8; 4], parent_hash: Some(vec![7; 4]), timestamp_secs: 5, segments }
    }

    fn chunk(segment: u8, offset: u64, bytes: &[u8]) -> ExportChunk {
        let total = header().segments.get(usize::from(segment)).map_or(0, |declared| declared.length.into());
        ExportChunk {
            number: 8,
            hash: [8; 4].into(),
            parent_hash: Some([7; 4].into()),
            timestamp_secs: 5,
            segment,
            offset,
            total,
            sha256: ByteBuf::from([segment; 32]),
            bytes: ByteBuf::from(bytes),
        }
    }

    #[test]
    fn block_is_assembled_from_chunks_of_any_size() {
        let whole = [chunk(0, 0, b"body"), chunk(1, 0, b""), chunk(2, 0, b"id")];
        assert_eq!(Header::of_chunks(&whole, None).unwrap(), Some(header()));
        assert_eq!(Header::of_chunks(&whole[..2], None).unwrap(), None);
        let mut block = Incomplete::begin(header(), [1; 32]);
        block.take(&whole).unwrap();
        assert!(block.is_whole());
        let mut block = Incomplete::begin(header(), [1; 32]);
        block.take(&[chunk(0, 0, b"bo")]).unwrap();
        assert_eq!((block.segment, block.received), (0, 2));
        // The canister may have lost the parent meanwhile.
        block.take(&[ExportChunk { parent_hash: None, ..chunk(0, 2, b"dy") }]).unwrap();
        assert_eq!((block.segment, block.received, block.is_whole()), (1, 0, false));
        block.take(&whole[1..]).unwrap();
        let mut at = Position::default();
        at.pass(&block);
        assert_eq!((at.expected, at.tip.map(|tip| tip.seal)), (Some(9), Some([1; 32])));
    }

    #[test]
    fn chunk_that_is_not_next_is_refused() {
        let begun = || {
            let mut block = Incomplete::begin(header(), [1; 32]);
            block.take(&[chunk(0, 0, b"bo")]).unwrap();
            block
        };
        let good = || chunk(0, 2, b"dy");
        begun().take(&[good()]).unwrap();
        for (wrong, why) in [
            (ExportChunk { number: 9, ..good() }, "not of block 8"),
            (ExportChunk { hash: [1; 4].into(), ..good() }, "not of block 8"),
            (ExportChunk { parent_hash: Some([1; 4].into()), ..good() }, "not of block 8"),
            (ExportChunk { timestamp_secs: 6, ..good() }, "not of block 8"),
            (chunk(0, 1, b"ody"), "byte 2"),
            (chunk(0, 3, b"y"), "byte 2"),
            (chunk(1, 0, b""), "segment 0 comes next"),
            (chunk(0, 2, b"dyy"), "5 came"),
            (chunk(0, 2, b""), "empty chunk"),
            (ExportChunk { total: 5, ..good() }, "another length"),
            (ExportChunk { sha256: ByteBuf::from([1; 32]), ..good() }, "another length or digest"),
            (ExportChunk { sha256: ByteBuf::from([0; 4]), ..good() }, "another length or digest"),
        ] {
            let found = begun().take(&[wrong]).unwrap_err();
            assert!(found.is::<Refuted>() && found.to_string().contains(why), "{found} instead of {why}");
        }
        let mut whole = begun();
        whole.take(&[good(), chunk(1, 0, b""), chunk(2, 0, b"id")]).unwrap();
        let found = whole.take(&[chunk(3, 0, b"")]).unwrap_err().to_string();
        assert!(found.contains("no segment 3"), "{found}");
    }
}
