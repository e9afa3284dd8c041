//! Lease: its holder, rows and expiry, and the layout of the slot of all leases. `token.rs` has the token, `ring.rs` the rows, `leases.rs`
//! the table of leases, `ends.rs` the *ends* of the last leases, which repeat the replies to their holders, `acquire.rs` the operations,
//! `expire.rs` the end.
//!
//! ```text
//! one slot:  256 × lease, 192 bytes ─ 256 × end, 168 bytes ─ 256 × 2,000 × number u64: skipped rows, then rows done already
//! lease:   0 number u64, 0: none   8 digest 32   40 holder: length u8 ‖ 29   70 stage u8   71 request: length u8 ‖ 64
//!        136 removed u32   140 retries u32   144 dead u32   148 rows u32   152 rows of unknown fate u32   156 expires at u64
//!        164 height u32   168 first row u32   172 acquired at u64   180 length in ns u64   188 digest of the request's arguments u32
//! end:   the first 168 bytes of a lease, with these changes: expires at: time of the end; stage: completed or over; rows: number of
//!        skipped rows; rows of unknown fate: number of rows done already (`ends.rs`).
//! ```
//! A lease goes through these stages ([`Stage`]):
//!
//! ```text
//! Live ─ expires ──────────────────────▶ Over: all rows are free ─▶ each row returns to its lane ─▶ the lease is dropped
//!      ─ is completed, no row unknown ─▶ Over
//!      ─ is completed, some unknown ───▶ Completed: these rows stay ─ expires ─▶ Over
//!      ─ it is ended, or all are ──────▶ Ended: all rows stay ─ expires, within a quarter of its length ─▶ Over
//! ```
//! The rows of a lease form a ring in the order in which they were given. The slot is allocated with the queue, because a worker that
//! deletes blobs frees memory, and must not need any.

use super::row::Row;
use super::token::Token;
use candid::Principal;
use ic_coppice_interface::{BlobDeletion, BlobDeletionLease};
use ic_coppice_storage::bytes::{u32_at, u64_at};
use ic_coppice_storage::slots::SlotId;
use serde_bytes::ByteBuf;

/// Maximum leases at a time, and ends that are kept.
pub const MAX_LEASES: usize = 256;
/// Maximum row numbers in a completion of a lease.
pub const MAX_IDS: usize = 2_000;
/// Maximum bytes of a request's name.
pub const MAX_REQUEST: usize = 64;
/// Bytes of a lease.
pub const LEASE: u32 = 192;
/// Bytes of an end.
pub const END: u32 = 168;
/// Offset of the ends.
pub const ENDS: u32 = LEASE * MAX_LEASES as u32;
/// Offset of the row numbers in replies.
pub const REPLIES: u32 = ENDS + END * MAX_LEASES as u32;
/// Bytes of the row numbers in one reply.
pub const REPLY: u32 = 8 * MAX_IDS as u32;
/// Bytes of the slot.
pub const ALL: u32 = REPLIES + REPLY * MAX_LEASES as u32;

/// Stage of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The holder works on the rows.
    Live,
    /// The lease has ended: its rows are free and return to their lanes.
    Over,
    /// The lease was completed: its rows of unknown fate stay until it expires, the others return to their lanes.
    Completed,
    /// An operator ended the lease, or stopped deletions: all its rows stay until requests for them are over.
    Ended,
}

/// The order of a leased row of unknown fate.
pub const UNKNOWN: u64 = 1;

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub token: Token,
    pub holder: Principal,
    pub stage: Stage,
    /// The holder's name for the request, by which a repeated `acquire` finds the lease.
    pub request: Option<Vec<u8>>,
    /// Digest of the request's arguments; 0 without a name.
    pub arguments: u32,
    /// Rows up to this height were due.
    pub height: u32,
    /// Number of rows in the ring.
    pub rows: u32,
    /// The first row of the ring; 0 if there is none.
    pub first: SlotId,
    /// Number of rows of unknown fate; they come after the others in the ring.
    pub unknown: u32,
    pub acquired_at_ns: u64,
    pub expires_at_ns: u64,
    /// Length that was last requested, in nanoseconds.
    pub length: u64,
    /// Counts of the completion so far: rows removed, rows to retry, dead-letter rows.
    pub done: [u32; 3],
    /// Index of the lease in the slot.
    pub place: u32,
    /// True if the lease may differ from its written bytes.
    pub changed: bool,
}

impl Lease {
    /// Decodes the lease with this index.
    ///
    /// # Errors
    /// A sentence if this code did not write the bytes.
    pub fn decode(b: &[u8], place: u32) -> Result<Self, String> {
        let token = Token { number: u64_at(b, 0), digest: *b[8..].first_chunk().expect("32 bytes") };
        let wrong = |what: &str| format!("deletion queue: the {what} of lease {}", token.number);
        let holder = b.get(41..41 + usize::from(b[40])).and_then(|bytes| Principal::try_from_slice(bytes).ok());
        let stages = [Stage::Live, Stage::Over, Stage::Completed, Stage::Ended];
        let request = b.get(72..72 + usize::from(b[71])).filter(|request| request.len() <= MAX_REQUEST);
        Ok(Self {
            token,
            holder: holder.ok_or_else(|| wrong("holder"))?,
            stage: *stages.get(usize::from(b[70])).ok_or_else(|| wrong("stage"))?,
            request: Some(request.ok_or_else(|| wrong("request"))?.to_vec()).filter(|request| !request.is_empty()),
            done: [136, 140, 144].map(|at| u32_at(b, at)),
            rows: u32_at(b, 148),
            unknown: u32_at(b, 152),
            expires_at_ns: u64_at(b, 156),
            height: u32_at(b, 164),
            first: u32_at(b, 168),
            acquired_at_ns: u64_at(b, 172),
            length: u64_at(b, 180),
            arguments: u32_at(b, 188),
            place,
            changed: false,
        })
    }

    /// Returns the bytes of the lease.
    pub fn encode(&self) -> [u8; LEASE as usize] {
        let mut b = [0; LEASE as usize];
        let (holder, request) = (self.holder.as_slice(), self.request.as_deref().unwrap_or_default());
        b[..40].copy_from_slice(&self.token.bytes());
        (b[40], b[70], b[71]) = (holder.len() as u8, self.stage as u8, request.len() as u8);
        b[41..41 + holder.len()].copy_from_slice(holder);
        b[72..72 + request.len()].copy_from_slice(request);
        b[136..148].copy_from_slice(self.done.map(u32::to_le_bytes).as_flattened());
        b[148..156].copy_from_slice([self.rows, self.unknown].map(u32::to_le_bytes).as_flattened());
        b[156..164].copy_from_slice(&self.expires_at_ns.to_le_bytes());
        b[164..172].copy_from_slice([self.height, self.first].map(u32::to_le_bytes).as_flattened());
        b[172..188].copy_from_slice([self.acquired_at_ns, self.length].map(u64::to_le_bytes).as_flattened());
        b[188..].copy_from_slice(&self.arguments.to_le_bytes());
        b
    }

    /// Returns whether the lease keeps one of its rows from other workers.
    pub fn keeps(&self, row: &Row) -> bool {
        match self.stage {
            Stage::Live | Stage::Ended => true,
            Stage::Completed => row.order == UNKNOWN,
            Stage::Over => false,
        }
    }

    /// Returns the number of rows that other workers may have; they come first in the ring.
    pub fn free(&self) -> u32 {
        match self.stage {
            Stage::Live | Stage::Ended => 0,
            Stage::Completed => self.rows.saturating_sub(self.unknown),
            Stage::Over => self.rows,
        }
    }

    /// Returns whether the lease has ended and has no rows.
    pub fn is_done(&self) -> bool {
        self.stage != Stage::Live && self.rows == 0
    }

    /// Returns the lease as the reply to its holder, with these rows.
    pub fn given(&self, rows: Vec<BlobDeletion>) -> BlobDeletionLease {
        let token = ByteBuf::from(self.token.bytes());
        BlobDeletionLease { token, expires_at_ns: self.expires_at_ns, height: self.height, rows }
    }

    /// Returns the time of the lease's next change without a call; 0: at once.
    pub fn next_event(&self) -> u64 {
        if self.stage == Stage::Over || self.free() > 0 { 0 } else { self.expires_at_ns }
    }

    /// Adds to the counts of the completion and returns the sums.
    pub fn count(&mut self, done: [u64; 3]) -> [u64; 3] {
        for (all, more) in self.done.iter_mut().zip(done) {
            *all = all.saturating_add(more as u32);
        }
        self.done.map(u64::from)
    }
}
