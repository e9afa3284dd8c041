//! Pages of blocks. A page is cut from the chain where the cursor stands, and never reads more of the log than it returns:
//! a segment of 256 MiB costs a reader as many pages as it has megabytes, and each page as much as any other.
//!
//! The canister keeps nothing of its readers: the cursor says which block they are in, with its hash. Where that block is
//! gone, the chain's history of rollbacks says where to go on.

use crate::chain::{BlockRecord, ChainStore, Hash, Segment};
use crate::platform::limits::MAX_REPLY;
use crate::storage::blob::BlobStore;
use coppice_interface::{BlockHash, ExportChunk, ExportCursor, ExportError, ExportPage, ReadError};
use serde_bytes::ByteBuf;

/// Bytes of a chunk in a reply beside its payload, generously.
const CHUNK: u64 = 192;
/// A cursor's segment where its block was handed out whole.
const WHOLE: u8 = Segment::ALL.len() as u8;
/// Damaged blocks in a row that are passed in search of a readable one.
const LOOK_BEHIND: u64 = 10_000;

/// Returns the page after `cursor`, or the first page, with at most `max_bytes` of payload; 0: as many as a reply holds.
///
/// # Errors
/// [`ExportError`].
pub fn page(
    chain: &ChainStore,
    blobs: &BlobStore,
    cursor: Option<ExportCursor>,
    max_bytes: u64,
) -> Result<ExportPage, ExportError> {
    build(chain, blobs, cursor, max_bytes).map_err(|error| match error {
        ExportError::Corrupt { number, why, .. } => ExportError::Corrupt { number, why, next: readable(chain, number) },
        other => other,
    })
}

fn build(
    chain: &ChainStore,
    blobs: &BlobStore,
    cursor: Option<ExportCursor>,
    max_bytes: u64,
) -> Result<ExportPage, ExportError> {
    let mut point = match &cursor {
        None => Point { number: chain.state().oldest, segment: 0, offset: 0 },
        Some(cursor) => Point::after(chain, cursor)?,
    };
    let mut builder = Builder {
        chain,
        blobs,
        bytes: if max_bytes == 0 { MAX_REPLY } else { max_bytes.min(MAX_REPLY) },
        room: MAX_REPLY,
        chunks: Vec::new(),
        done: None,
    };
    while point.number < chain.state().next {
        match builder.block(point) {
            Ok(true) => point = Point { number: point.number + 1, segment: 0, offset: 0 },
            Ok(false) => break,
            // What comes before it is handed out; the next page says what is wrong.
            Err(_) if !builder.chunks.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    let Builder { chunks, done, .. } = builder;
    let cursor = match done {
        None => cursor,
        Some((point, hash)) => {
            let Point { number, segment, offset } = point;
            Some(ExportCursor { segment, offset, ..after(chain, number, hash.to_bytes()) })
        }
    };
    Ok(ExportPage { chunks, cursor, head: chain.state().head() })
}

/// Where the next byte is.
#[derive(Clone, Copy)]
struct Point {
    number: u64,
    segment: u8,
    offset: u64,
}

impl Point {
    fn after(chain: &ChainStore, cursor: &ExportCursor) -> Result<Self, ExportError> {
        let ExportCursor { number, segment, offset, .. } = *cursor;
        let state = chain.state();
        if segment > WHOLE || segment == WHOLE && offset != 0 {
            let why = format!("segment {segment} at {offset}: segments are 0 to 2, and 3 from 0 is a whole block");
            return Err(bad(why));
        }
        if let Some(first_available) = chain.reset_since(cursor.rollbacks) {
            return Err(ExportError::Reset { first_available });
        }
        let whole = segment == WHOLE;
        // A cursor of before the first reset that does not say when it was made goes by its hash.
        let of_before = cursor.rollbacks == 0 && chain.was_reset();
        if of_before && hash_of_kept(chain, number, whole)?.is_none_or(|hash| hash != cursor.hash) {
            return Err(ExportError::Reset { first_available: chain.first_available() });
        }
        if state.started && number < state.oldest && !(whole && number + 1 == state.oldest) {
            // A replica that has not come as far as a reset has other blocks.
            let late = cursor.rollbacks > chain.rollbacks().count();
            return Err(if late { ExportError::Behind { head: state.head() } } else { pruned(chain, cursor) });
        }
        if hash_of(chain, number)?.is_none_or(|hash| hash != cursor.hash) {
            return Err(elsewhere(chain, cursor));
        }
        if whole {
            return Ok(Self { number: number + 1, segment: 0, offset: 0 });
        }
        Ok(Self { number, segment, offset })
    }
}

/// The hash of a kept block, or of the one before the oldest where that is `whole`; `None` for any other.
fn hash_of_kept(chain: &ChainStore, number: u64, whole: bool) -> Result<Option<BlockHash>, ExportError> {
    let oldest = chain.state().oldest;
    if number >= oldest || whole && number + 1 == oldest { hash_of(chain, number) } else { Ok(None) }
}

/// The hash of a kept block, or of the one before the oldest; `None` after the head.
fn hash_of(chain: &ChainStore, number: u64) -> Result<Option<BlockHash>, ExportError> {
    let state = chain.state();
    if !state.started || number >= state.next {
        return Ok(None);
    }
    if number < state.oldest {
        return Ok(Some(record(chain, state.oldest)?.parent.to_bytes()));
    }
    // A damaged record says nothing; the next one names its hash.
    match record(chain, number) {
        Err(_) if number + 1 < state.next => Ok(Some(record(chain, number + 1)?.parent.to_bytes())),
        kept => Ok(Some(kept?.hash.to_bytes())),
    }
}

fn record(chain: &ChainStore, number: u64) -> Result<BlockRecord, ExportError> {
    chain.record(number).map_err(|error| damaged(number, &error))
}

fn damaged(number: u64, why: &ReadError) -> ExportError {
    ExportError::Corrupt { number, why: format!("{why:?}"), next: None }
}

fn bad(why: String) -> ExportError {
    ExportError::BadCursor { why }
}

/// Returns the cursor after a whole block.
fn after(chain: &ChainStore, number: u64, hash: BlockHash) -> ExportCursor {
    ExportCursor { number, hash, segment: WHOLE, offset: 0, rollbacks: chain.rollbacks().count() }
}

/// Returns the cursor before the first readable block after a damaged one.
fn readable(chain: &ChainStore, number: u64) -> Option<ExportCursor> {
    let last = chain.state().next.min(number.saturating_add(LOOK_BEHIND));
    (number + 1..last).find_map(|later| {
        let record = chain.record(later).ok()?;
        Some(after(chain, later - 1, record.parent.to_bytes()))
    })
}

/// The newest block before the cursor's that is surely part of both chains, where the cursor's was rolled back since. It may
/// have gone with any of the rollbacks since then; the deepest is the one that is safe.
fn common_ancestor(chain: &ChainStore, cursor: &ExportCursor) -> Option<u64> {
    chain.rollbacks().lowest_since(cursor.rollbacks).filter(|&common| common < cursor.number)
}

/// What is said to a reader whose next block is gone.
fn pruned(chain: &ChainStore, cursor: &ExportCursor) -> ExportError {
    let first_available = chain.state().oldest;
    ExportError::Pruned { first_available, common_ancestor: common_ancestor(chain, cursor) }
}

/// What is said to a reader whose block is not in the chain.
fn elsewhere(chain: &ChainStore, cursor: &ExportCursor) -> ExportError {
    let state = chain.state();
    let Some(common_ancestor) = common_ancestor(chain, cursor) else {
        // Queries are answered by single replicas, and one of them may be a block or a reorg late.
        if cursor.rollbacks > chain.rollbacks().count() || state.head().is_none_or(|head| cursor.number > head) {
            return ExportError::Behind { head: state.head() };
        }
        return bad(format!("block {} with this hash was never part of this chain", cursor.number));
    };
    if common_ancestor + 1 < state.oldest {
        return pruned(chain, cursor);
    }
    hash_of(chain, common_ancestor).map_or_else(
        |damaged| damaged,
        |hash| ExportError::Reorged {
            common_ancestor,
            cursor: after(chain, common_ancestor, hash.unwrap_or_default()),
        },
    )
}

struct Builder<'a> {
    chain: &'a ChainStore,
    blobs: &'a BlobStore,
    /// Payload bytes that may still come.
    bytes: u64,
    /// Bytes that the reply still holds.
    room: u64,
    chunks: Vec<ExportChunk>,
    /// Bytes after the last chunk, in the same block.
    done: Option<(Point, Hash)>,
}

impl Builder<'_> {
    /// Adds chunks of a block, and says whether they complete it.
    fn block(&mut self, point: Point) -> Result<bool, ExportError> {
        let record = record(self.chain, point.number)?;
        let mut offset = point.offset;
        for segment in Segment::ALL.into_iter().skip(usize::from(point.segment)) {
            let total = u64::from(record.meta.lengths[segment.index()]);
            let rest = total
                .checked_sub(offset)
                .ok_or_else(|| bad(format!("offset {offset} in segment {} of {total} bytes", segment.index())))?;
            let full = self.room < CHUNK || self.bytes == 0;
            let len = rest.min(self.bytes).min(self.room.saturating_sub(CHUNK));
            if full && !self.chunks.is_empty() || len == 0 && rest > 0 {
                return Ok(false);
            }
            let bytes = self.chain.read_part(self.blobs, &record.meta, (segment, offset, len));
            let bytes = bytes.map_err(|error| damaged(point.number, &error))?;
            self.chunks.push(ExportChunk {
                number: point.number,
                hash: record.hash.to_bytes(),
                parent_hash: record.parent.to_bytes(),
                timestamp: record.meta.timestamp,
                segment: segment.index() as u8,
                offset,
                total,
                sha256: ByteBuf::from(record.sha256[segment.index()]),
                bytes,
            });
            self.bytes -= len;
            self.room = self.room.saturating_sub(CHUNK + len);
            let segment = segment.index() as u8;
            if len < rest {
                self.done = Some((Point { segment, offset: offset + len, ..point }, record.hash));
                return Ok(false);
            }
            self.done = Some((Point { segment: segment + 1, offset: 0, ..point }, record.hash));
            offset = 0;
        }
        Ok(true)
    }
}
