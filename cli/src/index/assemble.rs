//! From chunks to blocks: whether each chunk is at its place, and what it completes.
//!
//! Nothing here touches a database or hashes anything: [`Assembly`] says where the copy is, and takes a chunk or refuses it.

use anyhow::{Result, bail, ensure};
use coppice_interface::{ExportChunk, ExportCursor};
use serde::{Deserialize, Serialize};

/// Segments of a block: body, receipts, index.
pub const SEGMENTS: usize = 3;
/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// Something handed out that is not what comes next, or that no canister hands out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

/// A block that was stored last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: Vec<u8>,
}

/// A segment's length and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Bytes of the whole segment.
    pub length: u64,
    /// Its SHA-256.
    pub sha256: Vec<u8>,
}

/// A block of which chunks have come, and perhaps all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: Vec<u8>,
    /// The hash of the block before.
    pub parent_hash: Vec<u8>,
    /// Unix seconds, as the chain says.
    pub timestamp: u64,
    /// The segment that comes next; 3 where the block is whole.
    pub segment: u8,
    /// Bytes of it that have come.
    pub received: u64,
    /// What the chunks said of the segments; of those that have begun.
    pub segments: [Option<Declared>; SEGMENTS],
    /// Whether all chunks came as answers of update calls.
    pub confirmed: bool,
}

impl Incomplete {
    fn begun(chunk: &ExportChunk, confirmed: bool) -> Self {
        Self {
            number: chunk.number,
            hash: chunk.hash.to_vec(),
            parent_hash: chunk.parent_hash.to_vec(),
            timestamp: chunk.timestamp,
            segment: 0,
            received: 0,
            segments: Default::default(),
            confirmed,
        }
    }

    /// Whether all of it has come.
    pub fn is_whole(&self) -> bool {
        usize::from(self.segment) == SEGMENTS
    }

    /// Bytes of the segments that have begun.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().flatten().map(|segment| segment.length).sum()
    }

    fn take(&mut self, chunk: &ExportChunk) -> Result<()> {
        let (number, segment) = (chunk.number, chunk.segment);
        let same = (&*self.hash, &*self.parent_hash, self.timestamp)
            == (chunk.hash.as_slice(), chunk.parent_hash.as_slice(), chunk.timestamp);
        ensure!(same, "block {number}: its chunks are of two blocks");
        ensure!(
            (segment, chunk.offset) == (self.segment, self.received),
            "block {number}: a chunk is at byte {} of segment {segment}, and byte {} of segment {} comes next",
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
        ensure!(end <= chunk.total, "block {number}: segment {segment} has {} bytes, and {end} came", chunk.total);
        ensure!(
            !chunk.bytes.is_empty() || chunk.total == 0,
            "block {number}: an empty chunk of segment {segment}, which has {} bytes",
            chunk.total
        );
        (self.segment, self.received) = if end == chunk.total { (segment + 1, 0) } else { (segment, end) };
        Ok(())
    }
}

/// Where the copy of the chain is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// The newest whole block.
    pub tip: Option<Tip>,
    /// The number that comes next; none where the copy begins.
    pub expected: Option<u64>,
    /// The block of which chunks have come.
    pub block: Option<Incomplete>,
    /// Whether the next block may have a higher number than expected, as those between were pruned.
    pub restart: bool,
}

/// What a run of chunks of one block is to the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The block, with all chunks that have come.
    pub block: Incomplete,
    /// Whether the first of these chunks is the block's first.
    pub from_start: bool,
    /// Numbers that were left out before it, both inclusive.
    pub gap: Option<(u64, u64)>,
}

impl Assembly {
    /// Takes chunks of one block, which came as the answer of an update call or not. Where the block is whole, the copy stands behind
    /// it.
    ///
    /// # Errors
    /// When one is not what comes next. The copy may then not be used any more.
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
                "block {} follows, and block {} is not whole",
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

    /// Checks that a block may begin with this chunk, and answers what it leaves out.
    fn begin(&self, chunk: &ExportChunk) -> Result<Option<(u64, u64)>> {
        let number = chunk.number;
        let gap = match self.expected {
            Some(expected) if number < expected => {
                bail!("block {number} was handed out, and block {expected} comes next")
            }
            Some(expected) if number > expected => {
                ensure!(self.restart, "block {number} was handed out, and block {expected} left out");
                Some((expected, number - 1))
            }
            _ => None,
        };
        ensure!(
            !self.is_stranger(chunk),
            "block {number} does not follow the block before: its parent is another one than block {} of this database",
            number.saturating_sub(1)
        );
        Ok(gap)
    }

    /// Whether a block follows the tip by its number, and another block by its parent.
    pub fn is_stranger(&self, chunk: &ExportChunk) -> bool {
        self.block.is_none()
            && self.tip.as_ref().is_some_and(|tip| {
                tip.number.checked_add(1) == Some(chunk.number) && tip.hash != chunk.parent_hash.as_slice()
            })
    }

    /// Where the block that comes next begins, to ask for it from its start: behind the block before it. None where it is the oldest
    /// kept one, with which the copy begins.
    pub fn start_of(&self, block: &Incomplete, rollbacks: u64) -> Option<ExportCursor> {
        self.expected?;
        let before = block.number.checked_sub(1)?;
        let tip = self.tip.as_ref().filter(|tip| tip.number == before);
        Some(behind(before, tip.map_or(&block.parent_hash, |tip| &tip.hash), rollbacks))
    }

    /// Whether a cursor stands where the copy stands, however it says so: a segment's end is the next one's start.
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

/// The cursor behind a whole block.
pub fn behind(number: u64, hash: &[u8], rollbacks: u64) -> ExportCursor {
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
            parent_hash: [number - 1; 4].into(),
            timestamp: 5,
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
    fn blocks_follow_each_other_in_pieces_of_any_size() {
        let mut at = Assembly::default();
        let taken = at.take(&whole(7), true).unwrap();
        assert!(taken.from_start && taken.block.is_whole() && taken.gap.is_none());
        assert_eq!((taken.block.bytes(), at.expected, &at.block), (6, Some(8), &None));
        assert!(at.is_at(&behind(7, &[7; 4], 9)) && !at.is_at(&behind(7, &[8; 4], 9)));
        let taken = at.take(&[chunk(8, 0, 0, b"bo", 4)], true).unwrap();
        assert!(taken.from_start && !taken.block.is_whole());
        let cursor = |segment, offset| ExportCursor { segment, offset, ..behind(8, &[8; 4], 0) };
        assert!(at.is_at(&cursor(0, 2)) && !at.is_at(&cursor(0, 3)));
        let taken = at.take(&[chunk(8, 0, 2, b"dy", 4)], true).unwrap();
        assert!(!taken.from_start && !taken.block.is_whole());
        assert!(at.is_at(&cursor(1, 0)) && at.is_at(&cursor(0, 4)) && !at.is_at(&cursor(0, 3)));
        assert!(at.take(&[chunk(8, 1, 0, b"", 0), chunk(8, 2, 0, b"id", 2)], true).unwrap().block.is_whole());
        assert_eq!(at.tip, Some(Tip { number: 8, hash: vec![8; 4] }));
    }

    #[test]
    fn what_does_not_come_next_is_refused() {
        let refused = |at: &Assembly, chunks: &[ExportChunk]| at.clone().take(chunks, true).unwrap_err().to_string();
        let mut at = Assembly::default();
        assert!(refused(&at, &[chunk(7, 1, 0, b"", 0)]).contains("segment 0 comes next"));
        assert!(refused(&at, &[chunk(7, 0, 2, b"dy", 4)]).contains("byte 0"));
        at.take(&whole(7), true).unwrap();
        assert!(refused(&at, &whole(7)).contains("block 8 comes next"));
        assert!(refused(&at, &whole(9)).contains("left out"));
        let mut stranger = whole(8);
        stranger[0].parent_hash = [9; 4].into();
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
    fn after_a_restart_there_may_be_a_gap_but_no_step_back() {
        let mut at = Assembly::default();
        at.take(&whole(7), true).unwrap();
        at.restart = true;
        assert!(at.clone().take(&whole(7), true).is_err());
        assert_eq!(at.clone().take(&whole(8), true).unwrap().gap, None);
        assert_eq!(at.take(&whole(12), true).unwrap().gap, Some((8, 11)));
        assert!(at.take(&whole(14), true).is_err(), "a restart is over with the first block");
    }
}
