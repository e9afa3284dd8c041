//! Assembly of blocks from chunks: checks the position of each chunk, and whether it completes a block.
//!
//! This module neither uses a database nor hashes: [`Assembly`] holds the position of the copy, and accepts or refuses chunks.

use anyhow::{Result, bail, ensure};
use coppice_interface::{ExportChunk, ExportCursor};
use serde::{Deserialize, Serialize};

/// Segments of a block: body, receipts, index.
pub const SEGMENTS: usize = 3;
/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// An answer that is not the next part of the chain, or that no canister gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

/// The block that was stored last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The block's number.
    pub number: u64,
    /// The block's hash.
    pub hash: Vec<u8>,
}

/// The length and digest of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Bytes of the whole segment.
    pub length: u64,
    /// SHA-256 of the whole segment.
    pub sha256: Vec<u8>,
}

/// A block of which some or all chunks have arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: Vec<u8>,
    /// The hash of the previous block; `None` if the canister has lost it.
    pub parent_hash: Option<Vec<u8>>,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    /// The segment that comes next; 3 if the block is whole.
    pub segment: u8,
    /// Bytes of that segment that have arrived.
    pub received: u64,
    /// Lengths and digests of the segments that have begun.
    pub segments: [Option<Declared>; SEGMENTS],
    /// True if all chunks came from update calls.
    pub confirmed: bool,
}

impl Incomplete {
    fn begun(chunk: &ExportChunk, confirmed: bool) -> Self {
        Self {
            number: chunk.number,
            hash: chunk.hash.to_vec(),
            parent_hash: chunk.parent_hash.as_ref().map(|parent| parent.to_vec()),
            timestamp_secs: chunk.timestamp_secs,
            segment: 0,
            received: 0,
            segments: Default::default(),
            confirmed,
        }
    }

    /// Returns whether the whole block has arrived.
    pub fn is_whole(&self) -> bool {
        usize::from(self.segment) == SEGMENTS
    }

    /// Returns the total length of the segments that have begun, in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().flatten().map(|segment| segment.length).sum()
    }

    fn take(&mut self, chunk: &ExportChunk) -> Result<()> {
        let (number, segment) = (chunk.number, chunk.segment);
        let parent = chunk.parent_hash.as_deref().map(Vec::as_slice);
        let same = (&*self.hash, self.parent_hash.as_deref(), self.timestamp_secs)
            == (chunk.hash.as_slice(), parent, chunk.timestamp_secs);
        ensure!(same, "block {number}: its chunks belong to two blocks");
        ensure!(
            (segment, chunk.offset) == (self.segment, self.received),
            "block {number}: a chunk starts at byte {} of segment {segment}, but byte {} of segment {} comes next",
            chunk.offset,
            self.received,
            self.segment
        );
        ensure!(chunk.sha256.len() == DIGEST, "block {number}: a digest has {} bytes", chunk.sha256.len());
        let declared = Declared { length: chunk.total, sha256: chunk.sha256.to_vec() };
        match self.segments.get_mut(usize::from(segment)) {
            Some(Some(before)) => {
                ensure!(*before == declared, "block {number}: segment {segment} has two lengths or digests");
            }
            Some(unknown) => *unknown = Some(declared),
            None => bail!("block {number}: there is no segment {segment}"),
        }
        let end = chunk.offset.saturating_add(chunk.bytes.len() as u64);
        ensure!(end <= chunk.total, "block {number}: segment {segment} has {} bytes, but {end} came", chunk.total);
        ensure!(
            !chunk.bytes.is_empty() || chunk.total == 0,
            "block {number}: an empty chunk of segment {segment}, which has {} bytes",
            chunk.total
        );
        (self.segment, self.received) = if end == chunk.total { (segment + 1, 0) } else { (segment, end) };
        Ok(())
    }
}

/// The position of the copy of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// The newest whole block.
    pub tip: Option<Tip>,
    /// The number that comes next, or `None` before the first block.
    pub expected: Option<u64>,
    /// The block of which some chunks have arrived.
    pub block: Option<Incomplete>,
    /// True if the next block may have a higher number than expected, because the blocks between were pruned.
    pub restart: bool,
}

/// Chunks of one block that were accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The block, with all chunks so far.
    pub block: Incomplete,
    /// True if these chunks start with the block's first chunk.
    pub from_start: bool,
    /// First and last number of the blocks that are missing before this block.
    pub gap: Option<(u64, u64)>,
}

impl Assembly {
    /// Accepts chunks of one block, from an update call if `confirmed` is set. After the last chunk the copy's position is after the block.
    ///
    /// # Errors
    /// When a chunk is not the next one. The assembly must not be used after an error.
    pub fn take(&mut self, chunks: &[ExportChunk], confirmed: bool) -> Result<Taken> {
        let (mut from_start, mut gap) = (false, None);
        let mut block = match (self.block.take(), chunks.first()) {
            (Some(block), _) => block,
            (None, Some(chunk)) => {
                from_start = true;
                gap = self.begin(chunk)?;
                Incomplete::begun(chunk, confirmed)
            }
            (None, None) => bail!("there are no chunks"),
        };
        block.confirmed &= confirmed;
        for chunk in chunks {
            ensure!(
                chunk.number == block.number,
                "block {} was handed out, but block {} is not whole",
                chunk.number,
                block.number
            );
            block.take(chunk)?;
        }
        self.restart = false;
        if block.is_whole() {
            self.tip = Some(Tip { number: block.number, hash: block.hash.clone() });
            self.expected = block.number.checked_add(1);
        } else {
            self.block = Some(block.clone());
        }
        Ok(Taken { block, from_start, gap })
    }

    /// Checks that a block may begin with this chunk, and returns the missing blocks before it.
    fn begin(&self, chunk: &ExportChunk) -> Result<Option<(u64, u64)>> {
        let number = chunk.number;
        let gap = match self.expected {
            Some(expected) if number < expected => {
                bail!("block {number} was handed out, but block {expected} comes next")
            }
            Some(expected) if number > expected => {
                ensure!(self.restart, "block {number} was handed out, but block {expected} was left out");
                Some((expected, number - 1))
            }
            _ => None,
        };
        ensure!(
            !self.is_stranger(chunk),
            "block {number} does not follow the previous block: its parent is not block {} of this database",
            number.saturating_sub(1)
        );
        Ok(gap)
    }

    /// Returns whether a block has the number after the tip, but another parent. A parent that the canister has lost is not compared.
    pub fn is_stranger(&self, chunk: &ExportChunk) -> bool {
        self.block.is_none()
            && self.tip.as_ref().zip(chunk.parent_hash.as_ref()).is_some_and(|(tip, parent)| {
                tip.number.checked_add(1) == Some(chunk.number) && tip.hash != parent.as_slice()
            })
    }

    /// Returns the cursor from which the next block is asked for from its start: after the previous block, or `None` if the copy begins
    /// with this block, the oldest kept one.
    pub fn start_of(&self, block: &Incomplete, rollbacks: u64) -> Option<ExportCursor> {
        self.expected?;
        let before = block.number.checked_sub(1)?;
        let tip = self.tip.as_ref().filter(|tip| tip.number == before);
        let hash = tip.map(|tip| &tip.hash).or(block.parent_hash.as_ref());
        Some(cursor_after(before, hash.map_or(&[], |hash| hash), rollbacks))
    }

    /// Returns whether a cursor and the copy are at the same position. The end of a segment equals the start of the next one.
    pub fn is_at(&self, cursor: &ExportCursor) -> bool {
        match (&self.block, &self.tip) {
            (Some(block), _) => {
                let ended = block.received == 0 && cursor.segment.checked_add(1) == Some(block.segment);
                let length = |segment: u8| block.segments.get(usize::from(segment))?.as_ref().map(|s| s.length);
                (cursor.number, cursor.hash.as_slice()) == (block.number, &block.hash)
                    && ((cursor.segment, cursor.offset) == (block.segment, block.received)
                        || ended && length(cursor.segment) == Some(cursor.offset))
            }
            (None, Some(tip)) => {
                (cursor.number, cursor.hash.as_slice()) == (tip.number, &tip.hash) && cursor.segment >= 2
            }
            (None, None) => false,
        }
    }
}

/// Returns the cursor after a whole block.
pub fn cursor_after(number: u64, hash: &[u8], rollbacks: u64) -> ExportCursor {
    ExportCursor { number, hash: hash.into(), segment: SEGMENTS as u8, offset: 0, rollbacks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;

    fn chunk(number: u8, segment: u8, offset: u64, bytes: &[u8], total: u64) -> ExportChunk {
        ExportChunk {
            number: number.into(),
            hash: [number; 4].into(),
            parent_hash: Some([number - 1; 4].into()),
            timestamp_secs: 5,
            segment,
            offset,
            total,
            sha256: ByteBuf::from([segment; 32]),
            bytes: ByteBuf::from(bytes),
        }
    }

    fn whole(number: u8) -> [ExportChunk; 3] {
        [chunk(number, 0, 0, b"body", 4), chunk(number, 1, 0, b"", 0), chunk(number, 2, 0, b"id", 2)]
    }

    #[test]
    fn blocks_are_assembled_from_chunks_of_any_size() {
        let mut at = Assembly::default();
        let taken = at.take(&whole(7), true).unwrap();
        assert!(taken.from_start && taken.block.is_whole() && taken.gap.is_none());
        assert_eq!((taken.block.bytes(), at.expected, &at.block), (6, Some(8), &None));
        assert!(at.is_at(&cursor_after(7, &[7; 4], 9)) && !at.is_at(&cursor_after(7, &[8; 4], 9)));
        let taken = at.take(&[chunk(8, 0, 0, b"bo", 4)], true).unwrap();
        assert!(taken.from_start && !taken.block.is_whole());
        let cursor = |segment, offset| ExportCursor { segment, offset, ..cursor_after(8, &[8; 4], 0) };
        assert!(at.is_at(&cursor(0, 2)) && !at.is_at(&cursor(0, 3)));
        let taken = at.take(&[chunk(8, 0, 2, b"dy", 4)], true).unwrap();
        assert!(!taken.from_start && !taken.block.is_whole());
        assert!(at.is_at(&cursor(1, 0)) && at.is_at(&cursor(0, 4)) && !at.is_at(&cursor(0, 3)));
        assert!(at.take(&[chunk(8, 1, 0, b"", 0), chunk(8, 2, 0, b"id", 2)], true).unwrap().block.is_whole());
        assert_eq!(at.tip, Some(Tip { number: 8, hash: vec![8; 4] }));
    }

    #[test]
    fn chunk_that_is_not_next_is_refused() {
        let refused = |at: &Assembly, chunks: &[ExportChunk]| at.clone().take(chunks, true).unwrap_err().to_string();
        let mut at = Assembly::default();
        assert!(refused(&at, &[chunk(7, 1, 0, b"", 0)]).contains("segment 0 comes next"));
        assert!(refused(&at, &[chunk(7, 0, 2, b"dy", 4)]).contains("byte 0"));
        at.take(&whole(7), true).unwrap();
        assert!(refused(&at, &whole(7)).contains("block 8 comes next"));
        assert!(refused(&at, &whole(9)).contains("left out"));
        let mut stranger = whole(8);
        stranger[0].parent_hash = Some([9; 4].into());
        assert!(at.is_stranger(&stranger[0]));
        assert!(refused(&at, &stranger).contains("parent"));
        at.take(&[chunk(8, 0, 0, b"bo", 4)], true).unwrap();
        assert!(refused(&at, &[chunk(8, 0, 1, b"ody", 4)]).contains("byte 2"));
        assert!(refused(&at, &[chunk(8, 0, 3, b"y", 4)]).contains("byte 2"));
        assert!(refused(&at, &[chunk(8, 0, 2, b"dyy", 4)]).contains("5 came"));
        assert!(refused(&at, &[chunk(8, 0, 2, b"dy", 5)]).contains("two lengths"));
        assert!(refused(&at, &[chunk(8, 0, 2, b"", 4)]).contains("empty chunk"));
        assert!(refused(&at, &[chunk(9, 0, 0, b"body", 4)]).contains("not whole"));
        let other = ExportChunk { hash: [1; 4].into(), ..chunk(8, 0, 2, b"dy", 4) };
        assert!(refused(&at, &[other]).contains("two blocks"));
        let short = ExportChunk { sha256: ByteBuf::from([1; 4]), ..chunk(8, 0, 2, b"dy", 4) };
        assert!(refused(&at, &[short]).contains("digest"));
        assert!(refused(&Assembly::default(), &[]).contains("no chunks"));
        let ended =
            [chunk(7, 0, 0, b"body", 4), chunk(7, 1, 0, b"", 0), chunk(7, 2, 0, b"id", 2), chunk(7, 3, 0, b"", 0)];
        assert!(refused(&Assembly::default(), &ended).contains("no segment 3"));
    }

    #[test]
    fn restart_allows_a_gap_but_no_lower_number() {
        let mut at = Assembly::default();
        at.take(&whole(7), true).unwrap();
        at.restart = true;
        assert!(at.clone().take(&whole(7), true).is_err());
        assert_eq!(at.clone().take(&whole(8), true).unwrap().gap, None);
        assert_eq!(at.take(&whole(12), true).unwrap().gap, Some((8, 11)));
        assert!(at.take(&whole(14), true).is_err(), "a restart ends with the first block");
    }
}
