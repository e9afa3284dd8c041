//! Queries of the kept blocks: headers, segments, and look-up of a transaction by its id. `postings/pages.rs` looks up keys.

use super::hash::Hash;
use super::header::{BlockMeta, StoredHeader};
use super::store::ChainStore;
use ic_coppice_interface::methods::MAX_REPLY;
use ic_coppice_interface::segments::{ID, Segment, id_offset, receipts_table_len};
use ic_coppice_interface::{
    Block, BlockHeader, BlockStorage, HeaderPage, ReadError, Receipt, SegmentPart, TransactionLocation,
};
use ic_coppice_storage::Meter;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::table::same_key;
use serde_bytes::ByteBuf;

/// Headers of the longest page: 240 KB.
pub const MAX_HEADERS: usize = 1_000;

/// Instructions after which a look-up reads no other posting: some 15,000 postings, of three pages each.
const LOOK_UP: u64 = 50_000_000;

/// Returns the meter of a look-up that follows the links of postings.
pub(super) fn look_up_meter() -> Meter {
    Meter::lasting(LOOK_UP, u64::MAX)
}

/// Part of a segment: the segment, the first byte, the number of bytes.
pub type Part = (Segment, u64, u64);

fn corrupt(number: u64, why: impl std::fmt::Display) -> ReadError {
    ReadError::Corrupt { why: format!("block {number}: {why}") }
}

fn damaged(number: u64) -> ReadError {
    corrupt(number, "its header is damaged")
}

impl ChainStore {
    /// Checks that a block is kept.
    fn check_kept(&self, number: u64) -> Result<(), ReadError> {
        // Numbers below the first block never existed.
        if !self.state.started || number >= self.state.next || number < self.state.base {
            return Err(ReadError::NotFound);
        }
        if number < self.state.oldest {
            return Err(ReadError::Pruned { first_available: self.state.oldest });
        }
        Ok(())
    }

    /// Numbers, sizes and times of a block.
    ///
    /// # Errors
    /// `NotFound`, `Pruned` or `Corrupt`.
    pub fn find(&self, number: u64) -> Result<BlockMeta, ReadError> {
        self.check_kept(number)?;
        self.headers.meta(number).ok_or_else(|| damaged(number))
    }

    /// The hash of the block before a kept block: `None` if that block's header is damaged.
    pub fn parent(&self, number: u64) -> Option<Hash> {
        if number == self.state.oldest { self.state.parent } else { self.hash(number - 1) }
    }

    /// A block's header as callers get it.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn header(&self, number: u64) -> Result<BlockHeader, ReadError> {
        Ok(self.stored_header(number)?.header(self.parent(number)))
    }

    /// The headers of blocks from `from` to `to`, both included: at most `MAX_HEADERS` (1,000), and none above the head.
    ///
    /// # Errors
    /// As [`find`](Self::find) of `from`. A later block that is damaged ends the page before it.
    pub fn headers(&self, from: u64, to: u64) -> Result<HeaderPage, ReadError> {
        let mut page = HeaderPage { headers: Vec::new(), next: None };
        if from > to {
            return Ok(page);
        }
        let first = self.stored_header(from)?;
        let mut parent = first.hash;
        page.headers.push(first.header(self.parent(from)));
        let last = to.min(self.state.next - 1);
        for number in from + 1..=last {
            match self.stored_header(number) {
                Ok(header) if page.headers.len() < MAX_HEADERS => {
                    page.headers.push(header.header(Some(parent)));
                    parent = header.hash;
                }
                _ => return Ok(HeaderPage { next: Some(number), ..page }),
            }
        }
        Ok(page)
    }

    /// A block's header as it is stored.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn stored_header(&self, number: u64) -> Result<StoredHeader, ReadError> {
        self.check_kept(number)?;
        self.headers.get(number).ok_or_else(|| damaged(number))
    }

    /// The bytes of a part of a segment.
    ///
    /// # Errors
    /// `Corrupt` if a blob of the log cannot be read.
    pub fn read_part(&self, blobs: &BlobStore, meta: &BlockMeta, part: Part) -> Result<ByteBuf, ReadError> {
        let (segment, offset, len) = part;
        let start = meta.segment_start(segment) + offset;
        self.log.read(blobs, start..start + len).map(ByteBuf::from).map_err(|e| corrupt(meta.number, e))
    }

    /// A whole block.
    ///
    /// # Errors
    /// As [`find`](Self::find); `TooLarge` if the block does not fit into a reply.
    pub fn block(&self, blobs: &BlobStore, number: u64) -> Result<Block, ReadError> {
        let header = self.stored_header(number)?;
        let meta = header.meta;
        let size = meta.payload_len();
        if size > MAX_REPLY {
            return Err(ReadError::TooLarge { size, limit: MAX_REPLY });
        }
        let whole =
            |segment: Segment| self.read_part(blobs, &meta, (segment, 0, u64::from(meta.lengths[segment.index()])));
        Ok(Block {
            header: header.header(self.parent(number)),
            body: whole(Segment::Body)?,
            receipts: whole(Segment::Receipts)?,
            index: whole(Segment::Index)?,
        })
    }

    /// Up to `length` bytes of a segment from `offset`, limited to what fits into a reply.
    ///
    /// # Errors
    /// As [`find`](Self::find); `NoSuchSegment`; `OutOfRange` for an offset after the end.
    pub fn segment(
        &self,
        blobs: &BlobStore,
        number: u64,
        segment: u8,
        offset: u64,
        length: u64,
    ) -> Result<SegmentPart, ReadError> {
        let meta = self.find(number)?;
        let segment = Segment::from_index(segment).ok_or(ReadError::NoSuchSegment)?;
        let total = u64::from(meta.lengths[segment.index()]);
        let rest = total.checked_sub(offset).ok_or(ReadError::OutOfRange { length: total })?;
        let bytes = self.read_part(blobs, &meta, (segment, offset, length.min(rest).min(MAX_REPLY)))?;
        Ok(SegmentPart { bytes, total })
    }

    /// Location of a block's payload.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn storage(&self, number: u64) -> Result<BlockStorage, ReadError> {
        let meta = self.find(number)?;
        let end = if meta.payload_len() == 0 { 0 } else { self.log.blobs_end(meta.payload_end()) };
        let blobs = (self.log.blob_of(meta.log_offset)..end).map(|blob| self.log.ptr(blob).map(Into::into));
        Ok(BlockStorage {
            log_offset: meta.log_offset,
            lengths: meta.lengths.map(u64::from).into(),
            blobs: blobs.collect::<Option<Vec<_>>>().ok_or_else(|| corrupt(number, "a blob of the log is missing"))?,
        })
    }

    /// Location of the newest kept transaction with this id.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if the newest posting lies in a damaged block, because only that block's links lead to an older one.
    pub fn location(&self, blobs: &BlobStore, id: &[u8]) -> Result<TransactionLocation, ReadError> {
        let id: &[u8; ID] = id.try_into().map_err(|_| ReadError::NotFound)?;
        let Some(mut posting) = self.index.get(self.id_hash(id)) else { return Err(ReadError::NotFound) };
        let mut meter = look_up_meter();
        while meter.has_time() {
            // Unreachable: the block is pruned, or the posting outlived a damaged block that was rolled back.
            let Some((block_number, position)) = self.reachable(posting) else { return Err(ReadError::NotFound) };
            let (meta, hash) = self.headers.peek(block_number).ok_or_else(|| damaged(block_number))?;
            if position >= meta.transactions {
                // The posting outlived a damaged block with this number.
                return Err(ReadError::NotFound);
            }
            // Readers do not see a block in transit, whatever its id. Nearly always the newest posting of another block has the wanted id.
            if !self.in_transit(block_number) && same_key(&self.id_at(blobs, &meta, position)?, id) {
                return Ok(TransactionLocation { block_number, block_hash: hash.to_bytes(), position });
            }
            let link = self.id_link(blobs, &meta, position).map_err(|why| corrupt(meta.number, why))?;
            let (_, before) = link.ok_or(ReadError::NotFound)?;
            if before >= posting {
                return Err(corrupt(meta.number, "a link of an id does not lead back"));
            }
            posting = before;
        }
        let number = self.index_position(posting).map_or(0, |(number, _)| number);
        Err(corrupt(number, "too many other ids have the hash of this one"))
    }

    /// The id of a transaction of a block whose header was not checked.
    #[inline]
    fn id_at(&self, blobs: &BlobStore, meta: &BlockMeta, position: u32) -> Result<[u8; ID], ReadError> {
        let at = meta.segment_start(Segment::Index) + id_offset(position);
        if at + ID as u64 > meta.payload_end() {
            return Err(corrupt(meta.number, "its header names more transactions than its index segment has room for"));
        }
        self.log.read_array(blobs, at).map_err(|e| corrupt(meta.number, e))
    }

    /// The receipt of the newest transaction with this id.
    ///
    /// # Errors
    /// As [`location`](Self::location); `NotFound` also if the block has no receipts; `TooLarge` if the receipt does not fit into a reply.
    pub fn receipt(&self, blobs: &BlobStore, id: &[u8]) -> Result<Receipt, ReadError> {
        let location = self.location(blobs, id)?;
        let TransactionLocation { block_number: number, position, .. } = location;
        let (meta, _) = self.headers.peek(number).ok_or_else(|| damaged(number))?;
        if meta.lengths[Segment::Receipts.index()] == 0 {
            return Err(ReadError::NotFound);
        }
        let table = meta.segment_start(Segment::Receipts) + 4;
        let end_of = |receipt: u32| -> Result<u64, ReadError> {
            let word = self.log.read_array(blobs, table + 4 * u64::from(receipt));
            Ok(u64::from(u32::from_le_bytes(word.map_err(|e| corrupt(meta.number, e))?)))
        };
        let start = if position == 0 { 0 } else { end_of(position - 1)? };
        let len = end_of(position)?.saturating_sub(start);
        if len > MAX_REPLY {
            return Err(ReadError::TooLarge { size: len, limit: MAX_REPLY });
        }
        let offset = receipts_table_len(meta.transactions) + start;
        let bytes = self.read_part(blobs, &meta, (Segment::Receipts, offset, len))?;
        Ok(Receipt { location, bytes })
    }
}
