//! Pages of blocks for exporters. A page starts at the cursor and reads no more of the log than it returns, so all pages cost the same, and
//! a segment of 256 MiB takes as many pages as it has megabytes.
//!
//! The canister keeps no state of readers: the cursor contains the number and the hash of their block. If that block was rolled back, the
//! chain's history of rollbacks gives the place to resume. The treatment of a block that the chain does not explain depends on the kind of call:
//!
//! | the cursor | a query | a replicated call |
//! |---|---|---|
//! | is ahead of the head, or of the count of rollbacks | `Behind`: the replica may lag | `Restored` |
//! | has a block that was never part of the chain | `BadCursor` | `Restored` |
//!
//! All replicas agree on the answer of a replicated call, so none of them lags: the canister was restored from a snapshot.

use crate::{ChainStore, Hash, Segment};
use ic_coppice_interface::methods::MAX_REPLY;
use ic_coppice_interface::{ExportChunk, ExportCursor, ExportError, ExportPage, ReadError};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _};
use serde_bytes::ByteBuf;

/// Generous estimate of a chunk's bytes in a reply besides its payload.
const CHUNK: u64 = 192;
/// Segment of a cursor whose block was returned completely.
const WHOLE: u8 = Segment::ALL.len() as u8;
/// Maximum successive damaged blocks that are skipped to find a readable one.
const LOOK_BEHIND: u64 = 10_000;

/// Returns the page after `cursor`, or the first page, with at most `max_bytes` of payload (0: as many as a reply holds).
pub fn page(
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
            // The blocks before the damaged one are returned; the next page reports the error.
            Err(_) if !builder.chunks.is_empty() => break,
            Err(ExportError::Corrupt { number, why, .. }) => {
                return Err(ExportError::Corrupt { number, why, next: readable(chain, number) });
            }
            Err(error) => return Err(error),
        }
    }
    let cursor = builder.done.map_or(cursor, |(Point { number, segment, offset }, hash)| {
        Some(ExportCursor { segment, offset, ..after(chain, number, Some(hash)) })
    });
    Ok(ExportPage { chunks: builder.chunks, cursor, head: chain.state().head() })
}

/// Place of the next byte.
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
        let whole = segment == WHOLE;
        if segment > WHOLE || whole && offset != 0 {
            let why = format!("segment {segment} at {offset}: segments are 0 to 2, and 3 from 0 is a whole block");
            return Err(bad(why));
        }
        if let Some(first_available) = chain.reset_since(cursor.rollbacks) {
            // A reader that trusts no count passes 0, and the hash decides.
            let is_kept = number >= state.oldest || whole && number + 1 == state.oldest;
            let is_same = || hash_of(chain, number).flatten().is_some_and(|hash| is(hash, cursor));
            if cursor.rollbacks > 0 || !is_kept || !is_same() {
                return Err(ExportError::Reset { first_available });
            }
        }
        let ahead = cursor.rollbacks > chain.rollbacks().count();
        // A replica that has executed neither a rollback nor a reset may still have the cursor's block.
        if ahead && Ic::is_replicated() {
            return Err(unknown(chain));
        }
        if state.started && number < state.oldest && !(whole && number + 1 == state.oldest) {
            // A replica that has not executed a reset yet has other blocks.
            return Err(if ahead { unknown(chain) } else { pruned(chain, cursor) });
        }
        // The hash of a damaged block is unknown, but as long as no rollback reaches it, it is the same block.
        let is_same = match hash_of(chain, number) {
            Some(Some(hash)) => is(hash, cursor),
            Some(None) => !ahead && common_ancestor(chain, cursor).is_none(),
            None => false,
        };
        if !is_same {
            return Err(elsewhere(chain, cursor));
        }
        Ok(if whole { Self { number: number + 1, segment: 0, offset: 0 } } else { Self { number, segment, offset } })
    }
}

/// Returns the hash of a kept block, or of the block before the oldest: `Some(None)` if it is unknown, because the block's header is damaged.
/// Returns `None` after the head.
fn hash_of(chain: &ChainStore, number: u64) -> Option<Option<Hash>> {
    let state = chain.state();
    let is_there = state.started && number < state.next;
    is_there.then(|| if number < state.oldest { state.parent } else { chain.hash(number) })
}

fn is(hash: Hash, cursor: &ExportCursor) -> bool {
    hash.as_slice() == cursor.hash.as_slice()
}

fn damaged(number: u64, why: &ReadError) -> ExportError {
    ExportError::Corrupt { number, why: format!("{why}"), next: None }
}

fn bad(why: String) -> ExportError {
    ExportError::BadCursor { why }
}

/// Returns the cursor after a whole block; its hash is empty if it is unknown.
fn after(chain: &ChainStore, number: u64, hash: Option<Hash>) -> ExportCursor {
    let hash = hash.unwrap_or_default().to_bytes();
    ExportCursor { number, hash, segment: WHOLE, offset: 0, rollbacks: chain.rollbacks().count() }
}

/// Returns the cursor before the first readable block after a damaged one.
fn readable(chain: &ChainStore, number: u64) -> Option<ExportCursor> {
    let last = chain.state().next.min(number.saturating_add(LOOK_BEHIND));
    let later = (number + 1..last).find(|&later| chain.stored_header(later).is_ok())?;
    Some(after(chain, later - 1, chain.hash(later - 1)))
}

/// Returns the newest block before the cursor's that is certainly part of both chains, if the cursor's block was rolled back. Any of the
/// rollbacks since the cursor may have removed its block, so only the deepest one is safe.
fn common_ancestor(chain: &ChainStore, cursor: &ExportCursor) -> Option<u64> {
    chain.rollbacks().lowest_since(cursor.rollbacks).filter(|&common| common < cursor.number)
}

/// Returns the error for a reader whose next block was pruned.
fn pruned(chain: &ChainStore, cursor: &ExportCursor) -> ExportError {
    let first_available = chain.state().oldest;
    ExportError::Pruned { first_available, common_ancestor: common_ancestor(chain, cursor) }
}

/// Returns the error for a cursor that is ahead of the chain: in a query, this replica may lag; all replicas together do not.
fn unknown(chain: &ChainStore) -> ExportError {
    let head = chain.state().head();
    if Ic::is_replicated() { ExportError::Restored { head } } else { ExportError::Behind { head } }
}

/// Returns the error for a reader whose block is not in the chain.
fn elsewhere(chain: &ChainStore, cursor: &ExportCursor) -> ExportError {
    let state = chain.state();
    let Some(common_ancestor) = common_ancestor(chain, cursor) else {
        let ahead =
            cursor.rollbacks > chain.rollbacks().count() || state.head().is_none_or(|head| cursor.number > head);
        if ahead || Ic::is_replicated() {
            return unknown(chain);
        }
        return bad(format!("block {} with this hash was never part of this chain", cursor.number));
    };
    if common_ancestor + 1 < state.oldest {
        return pruned(chain, cursor);
    }
    let cursor = after(chain, common_ancestor, hash_of(chain, common_ancestor).flatten());
    ExportError::Reorged { common_ancestor, cursor }
}

struct Builder<'a> {
    chain: &'a ChainStore,
    blobs: &'a BlobStore,
    /// Payload bytes that may still be added.
    bytes: u64,
    /// Bytes that are left in the reply.
    room: u64,
    chunks: Vec<ExportChunk>,
    /// Place after the last chunk, in the same block.
    done: Option<(Point, Hash)>,
}

impl Builder<'_> {
    /// Adds chunks of a block. Returns whether they complete the block.
    fn block(&mut self, point: Point) -> Result<bool, ExportError> {
        let header = self.chain.stored_header(point.number).map_err(|error| damaged(point.number, &error))?;
        let before = self.done.filter(|(at, _)| at.number + 1 == point.number).map(|(_, hash)| hash);
        let parent = before.or_else(|| self.chain.parent(point.number));
        let mut offset = point.offset;
        for segment in Segment::ALL.into_iter().skip(usize::from(point.segment)) {
            let total = u64::from(header.meta.lengths[segment.index()]);
            let rest = total
                .checked_sub(offset)
                .ok_or_else(|| bad(format!("offset {offset} in segment {} of {total} bytes", segment.index())))?;
            let full = self.room < CHUNK || self.bytes == 0;
            let len = rest.min(self.bytes).min(self.room.saturating_sub(CHUNK));
            if full && !self.chunks.is_empty() || len == 0 && rest > 0 {
                return Ok(false);
            }
            let bytes = self.chain.read_part(self.blobs, &header.meta, (segment, offset, len));
            let bytes = bytes.map_err(|error| damaged(point.number, &error))?;
            self.chunks.push(ExportChunk {
                number: point.number,
                hash: header.hash.to_bytes(),
                parent_hash: parent.map(Hash::to_bytes),
                timestamp_secs: header.meta.timestamp_secs,
                segment: segment.index() as u8,
                offset,
                total,
                sha256: ByteBuf::from(header.sha256[segment.index()]),
                bytes,
            });
            self.bytes -= len;
            self.room = self.room.saturating_sub(CHUNK + len);
            let segment = segment.index() as u8;
            if len < rest {
                self.done = Some((Point { segment, offset: offset + len, ..point }, header.hash));
                return Ok(false);
            }
            self.done = Some((Point { segment: segment + 1, offset: 0, ..point }, header.hash));
            offset = 0;
        }
        Ok(true)
    }
}
