//! Reading what is kept.

use super::ChainStore;
use super::records::BlockRecord;
use super::segments::{ID, Segment, id_offset, receipts_table_len};
use crate::api::{Block, BlockHeader, BlockStorage, ReadError, Receipt, SegmentPart, TransactionLocation};
use crate::blob::BlobStore;
use serde_bytes::ByteBuf;

/// Bytes of payload in one reply: 2 MiB less room for everything else that a reply holds.
pub const MAX_REPLY: u64 = (2 << 20) - (64 << 10);

fn corrupt(number: u64, why: impl std::fmt::Debug) -> ReadError {
    ReadError::Corrupt { why: format!("block {number}: {why:?}") }
}

impl BlockRecord {
    /// The record as callers see it.
    pub fn header(&self) -> BlockHeader {
        BlockHeader {
            number: self.number,
            hash: ByteBuf::from(self.hash.as_slice()),
            parent_hash: ByteBuf::from(self.parent.as_slice()),
            timestamp: self.timestamp,
            monotonic_timestamp: self.monotonic,
            transactions: self.transactions,
            keys: self.keys,
            lengths: self.lengths.map(u64::from).to_vec(),
            sha256: self.sha256.iter().map(ByteBuf::from).collect(),
        }
    }
}

impl ChainStore {
    /// The record of a block.
    ///
    /// # Errors
    /// `NotFound`, `Pruned` or `Corrupt`.
    pub fn find(&self, number: u64) -> Result<BlockRecord, ReadError> {
        if !self.state.started || number >= self.state.next {
            return Err(ReadError::NotFound);
        }
        if number < self.state.oldest {
            // Numbers below the first block were never there.
            return Err(if number < self.state.base {
                ReadError::NotFound
            } else {
                ReadError::Pruned { first_available: self.state.oldest }
            });
        }
        self.records.get(number).ok_or_else(|| corrupt(number, "its record cannot be decoded"))
    }

    /// Part of a segment.
    fn read(&self, blobs: &BlobStore, record: &BlockRecord, part: (Segment, u64, u64)) -> Result<ByteBuf, ReadError> {
        let (segment, offset, len) = part;
        let start = record.segment_start(segment) + offset;
        let mut bytes = Vec::new();
        self.log.read_onto(blobs, &mut bytes, start..start + len).map_err(|e| corrupt(record.number, e))?;
        Ok(ByteBuf::from(bytes))
    }

    /// A whole block.
    ///
    /// # Errors
    /// As [`find`](Self::find); `TooLarge` where it does not fit a reply.
    pub fn block(&self, blobs: &BlobStore, number: u64) -> Result<Block, ReadError> {
        let record = self.find(number)?;
        let size = record.payload_len();
        if size > MAX_REPLY {
            return Err(ReadError::TooLarge { size, limit: MAX_REPLY });
        }
        let whole =
            |segment: Segment| self.read(blobs, &record, (segment, 0, u64::from(record.lengths[segment.index()])));
        Ok(Block {
            header: record.header(),
            body: whole(Segment::Body)?,
            receipts: whole(Segment::Receipts)?,
            index: whole(Segment::Index)?,
        })
    }

    /// Up to `length` bytes of a segment from `offset`, as many as a reply may have.
    ///
    /// # Errors
    /// As [`find`](Self::find); `NoSuchSegment`; `OutOfRange` for an offset behind the end.
    pub fn segment(
        &self,
        blobs: &BlobStore,
        number: u64,
        segment: u8,
        offset: u64,
        length: u64,
    ) -> Result<SegmentPart, ReadError> {
        let record = self.find(number)?;
        let segment = Segment::from_index(segment).ok_or(ReadError::NoSuchSegment)?;
        let total = u64::from(record.lengths[segment.index()]);
        let rest = total.checked_sub(offset).ok_or(ReadError::OutOfRange { length: total })?;
        let bytes = self.read(blobs, &record, (segment, offset, length.min(rest).min(MAX_REPLY)))?;
        Ok(SegmentPart { bytes, total })
    }

    /// Where a block's payload lies.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn storage(&self, number: u64) -> Result<BlockStorage, ReadError> {
        let record = self.find(number)?;
        let blobs: Option<Vec<_>> = match record.payload_len() {
            0 => Some(Vec::new()),
            _ => self.log_ptrs(record.log_offset, record.log_end()).collect(),
        };
        Ok(BlockStorage {
            log_offset: record.log_offset,
            lengths: record.lengths.map(u64::from).to_vec(),
            blobs: blobs.ok_or_else(|| corrupt(number, "a blob of the log is missing"))?,
        })
    }

    /// The newest kept transaction with this id, and its block.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` where a candidate cannot be verified and no other is found.
    pub fn transaction(&self, blobs: &BlobStore, id: &[u8]) -> Result<(BlockRecord, u32), ReadError> {
        let id: &[u8; ID] = id.try_into().map_err(|_| ReadError::NotFound)?;
        let mut candidates = Vec::new();
        self.index.visit(self.index.hash(id), |value| {
            candidates.push(value);
            true
        });
        candidates.sort_unstable();
        let mut damaged = None;
        for &value in candidates.iter().rev() {
            let (number, position) = self.index_place(value);
            match self.holds(blobs, number, position, id) {
                Ok(Some(record)) => return Ok((record, position)),
                Ok(None) => {}
                Err(error) => damaged = Some(error),
            }
        }
        Err(damaged.unwrap_or(ReadError::NotFound))
    }

    /// The record of block `number` if its transaction `position` has this id.
    fn holds(
        &self,
        blobs: &BlobStore,
        number: u64,
        position: u32,
        id: &[u8; ID],
    ) -> Result<Option<BlockRecord>, ReadError> {
        let record = match self.find(number) {
            // An entry that outlived a damaged block.
            Err(ReadError::Pruned { .. } | ReadError::NotFound) => return Ok(None),
            found => found?,
        };
        let at = record.segment_start(Segment::Index) + id_offset(position);
        if position >= record.transactions || at + ID as u64 > record.log_end() {
            return Err(corrupt(number, "the index names a transaction that the block does not have"));
        }
        let found: [u8; ID] = self.log.read_array(blobs, at).map_err(|e| corrupt(number, e))?;
        Ok((found == *id).then_some(record))
    }

    /// Where the newest transaction with this id is.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub fn location(&self, blobs: &BlobStore, id: &[u8]) -> Result<TransactionLocation, ReadError> {
        let (record, position) = self.transaction(blobs, id)?;
        Ok(TransactionLocation {
            block_number: record.number,
            block_hash: ByteBuf::from(record.hash.as_slice()),
            position,
        })
    }

    /// The receipt of the newest transaction with this id.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction); `NotFound` also where the block has no receipts; `TooLarge` where it does
    /// not fit a reply.
    pub fn receipt(&self, blobs: &BlobStore, id: &[u8]) -> Result<Receipt, ReadError> {
        let (record, position) = self.transaction(blobs, id)?;
        if record.lengths[Segment::Receipts.index()] == 0 {
            return Err(ReadError::NotFound);
        }
        let table = record.segment_start(Segment::Receipts) + 4;
        let end_of = |receipt: u32| -> Result<u64, ReadError> {
            let word = self.log.read_array(blobs, table + 4 * u64::from(receipt));
            Ok(u64::from(u32::from_le_bytes(word.map_err(|e| corrupt(record.number, e))?)))
        };
        let start = if position == 0 { 0 } else { end_of(position - 1)? };
        let len = end_of(position)?.saturating_sub(start);
        if len > MAX_REPLY {
            return Err(ReadError::TooLarge { size: len, limit: MAX_REPLY });
        }
        let offset = receipts_table_len(record.transactions) + start;
        let bytes = self.read(blobs, &record, (Segment::Receipts, offset, len))?;
        let location = TransactionLocation {
            block_number: record.number,
            block_hash: ByteBuf::from(record.hash.as_slice()),
            position,
        };
        Ok(Receipt { location, bytes })
    }
}
