//! Layout of leases: the holder, rows and expiry of each, and the *ends* of the last ones, which repeat the replies to their holders.
//! `acquire.rs` has the operations.
//!
//! ```text
//! one slot:  256 × lease, 192 bytes ─ 256 × end, 168 bytes ─ 256 × 2,000 × number u64: skipped rows, then rows done already
//! lease:   0 number u64, 0: none   8 digest 32   40 holder: length u8 ‖ 29   70 stage u8   71 request: length u8 ‖ 64
//!        136 removed u32   140 retries u32   144 dead u32   148 rows u32   152 rows of unknown fate u32   156 expires at u64
//!        164 height u32   168 first row u32   172 acquired at u64   180 length in ns u64
//! end:   the first 168 bytes of a lease, with these changes: expires at: time of the end; stage: completed or over; rows: number of
//!        skipped rows; rows of unknown fate: number of rows done already.
//! ```
//! A lease goes through these stages ([`Stage`]):
//!
//! ```text
//! Live ─ expires ──────────────────────▶ Over: all rows are free ─▶ each row returns to its lane ─▶ the lease is dropped
//!      ─ is completed, no row unknown ─▶ Over
//!      ─ is completed, some unknown ───▶ Completed: these rows stay ─ expires ─▶ Over
//!      ─ an operator ends it ──────────▶ Ended: all rows stay ─ expires, within a quarter of its length ─▶ Over
//! ```
//! The rows of a lease form a ring in the order in which they were given. The slot is allocated with the first lease, so a canister without
//! leases pays nothing.

use super::row::{Row, at};
use crate::storage::memory::GrowError;
use crate::storage::slots::{SlotId, Slots};
use candid::Principal;
use coppice_interface::{BlobDeletion, BlobDeletionLease, CompletedBlobDeletions};
use coppice_storage::bytes::{u32_at, u64_at};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};

/// Maximum leases at a time, and ends that are kept.
pub const MAX_LEASES: usize = 256;
/// Maximum row numbers in a completion of a lease.
pub const MAX_IDS: usize = 2_000;
/// Maximum bytes of a request's name.
pub const MAX_REQUEST: usize = 64;
const LEASE: u32 = 192;
const END: u32 = 168;
const ENDS: u32 = LEASE * MAX_LEASES as u32;
const SKIPPED: u32 = ENDS + END * MAX_LEASES as u32;
const SKIPPED_OF_ONE: u32 = 8 * MAX_IDS as u32;
const ALL: u32 = SKIPPED + SKIPPED_OF_ONE * MAX_LEASES as u32;

/// Token of a lease: its number and a hash that cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub number: u64,
    pub digest: [u8; 32],
}

impl Token {
    pub fn new(seed: u64, number: u64, now_ns: u64, holder: Principal) -> Self {
        let mut hash = Sha256::new();
        [seed, number, now_ns].iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.update(holder.as_slice());
        Self { number, digest: hash.finalize().into() }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (number, digest) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), digest: digest.try_into().ok()? })
    }

    pub fn bytes(&self) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], &self.digest].concat()
    }
}

/// Stage of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The holder works on the rows.
    Live,
    /// The lease has ended: its rows are free and return to their lanes.
    Over,
    /// The lease was completed: its rows of unknown fate stay until it expires, the others return to their lanes.
    Completed,
    /// An operator ended the lease: all its rows stay until requests for them are over.
    Ended,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Live, Self::Over, Self::Completed, Self::Ended];
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
    place: u32,
    /// True if the lease may differ from its written bytes.
    changed: bool,
}

/// All leases, mirrored on the heap.
#[derive(Default)]
pub struct Leases {
    slot: SlotId,
    /// Leases that have not ended or still have rows, by number; in any [`Stage`].
    pub open: Vec<Lease>,
    /// Ends of the last leases, oldest first.
    ended: VecDeque<Lease>,
}

impl Lease {
    fn decode(b: &[u8], place: u32) -> Result<Self, String> {
        let token = Token { number: u64_at(b, 0), digest: *b[8..].first_chunk().expect("32 bytes") };
        let wrong = |what: &str| format!("deletion queue: the {what} of lease {}", token.number);
        let holder = b.get(41..41 + usize::from(b[40])).and_then(|bytes| Principal::try_from_slice(bytes).ok());
        let request = b.get(72..72 + usize::from(b[71])).filter(|request| request.len() <= MAX_REQUEST);
        Ok(Self {
            token,
            holder: holder.ok_or_else(|| wrong("holder"))?,
            stage: Stage::ALL.get(usize::from(b[70])).copied().ok_or_else(|| wrong("stage"))?,
            request: Some(request.ok_or_else(|| wrong("request"))?.to_vec()).filter(|request| !request.is_empty()),
            done: [136, 140, 144].map(|at| u32_at(b, at)),
            rows: u32_at(b, 148),
            unknown: u32_at(b, 152),
            expires_at_ns: u64_at(b, 156),
            height: u32_at(b, 164),
            first: u32_at(b, 168),
            acquired_at_ns: u64_at(b, 172),
            length: u64_at(b, 180),
            place,
            changed: false,
        })
    }

    fn encode(&self) -> [u8; LEASE as usize] {
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

    /// Appends a row.
    pub fn push(&mut self, slots: &mut Slots, slot: SlotId) {
        let (before, after) = match self.first {
            0 => (slot, slot),
            first => (slots.read_u32(first, at::BEFORE), first),
        };
        slots.write(slot, at::BEFORE, [before, after].map(u32::to_le_bytes).as_flattened());
        if self.first == 0 {
            self.first = slot;
        } else {
            slots.write_u32(before, at::AFTER, slot);
            slots.write_u32(after, at::BEFORE, slot);
        }
        self.rows += 1;
    }

    /// Removes a row.
    pub fn take_out(&mut self, slots: &mut Slots, row: &Row) {
        let slot = row.slot;
        self.unknown -= u32::from(row.order == UNKNOWN && self.unknown > 0);
        let (before, after) = (slots.read_u32(slot, at::BEFORE), slots.read_u32(slot, at::AFTER));
        if after == slot {
            self.first = 0;
        } else {
            slots.write_u32(before, at::AFTER, after);
            slots.write_u32(after, at::BEFORE, before);
            if self.first == slot {
                self.first = after;
            }
        }
        self.rows -= 1;
    }

    /// Returns the rows in the order in which they were given.
    pub fn rows<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = Row> + use<'a> {
        let (first, mut next) = (self.first, self.first);
        std::iter::from_fn(move || {
            let row = Row::read(slots, Some(next).filter(|slot| *slot != 0)?)?;
            next = slots.read_u32(row.slot, at::AFTER);
            if next == first {
                next = 0;
            }
            Some(row)
        })
    }

    /// Forgets the rows of a damaged ring. The rows that are left are in no place until they are scheduled anew.
    pub fn forget_rows(&mut self) {
        (self.first, self.rows, self.unknown) = (0, 0, 0);
    }

    /// Adds to the counts of the completion and returns the sums.
    pub fn count(&mut self, done: [u64; 3]) -> [u64; 3] {
        for (all, more) in self.done.iter_mut().zip(done) {
            *all = all.saturating_add(more as u32);
        }
        self.done.map(u64::from)
    }
}

impl Leases {
    /// Reads the leases; `ended` is the number of leases that ever ended.
    ///
    /// # Errors
    /// A sentence if this code did not write the bytes of a lease.
    pub fn load(slots: &Slots, slot: SlotId, ended: u64) -> Result<Self, String> {
        let mut all = Self { slot, ..Self::default() };
        if slot == 0 {
            return Ok(all);
        }
        if !slots.holds(slot, u64::from(ALL)) {
            return Err(format!("deletion queue: slot {slot} does not hold the leases"));
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, slot, 0, SKIPPED as usize);
        let (leases, ends) = bytes.split_at(ENDS as usize);
        for (b, place) in leases.chunks_exact(LEASE as usize).zip(0..) {
            if u64_at(b, 0) != 0 {
                all.open.push(Lease::decode(b, place)?);
            }
        }
        all.open.sort_unstable_by_key(|lease| lease.token.number);
        for which in ended.saturating_sub(MAX_LEASES as u64)..ended {
            let place = (which % MAX_LEASES as u64) as usize;
            let mut b = [0; LEASE as usize];
            b[..END as usize].copy_from_slice(&ends[place * END as usize..][..END as usize]);
            all.ended.push_back(Lease::decode(&b, place as u32)?);
        }
        Ok(all)
    }

    /// Allocates the slot of the leases if there is none, and returns it.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn make(&mut self, slots: &mut Slots) -> Result<SlotId, GrowError> {
        if self.slot == 0 {
            self.slot = slots.allocate(ALL)?;
            slots.write(self.slot, 0, &[0; SKIPPED as usize]);
        }
        Ok(self.slot)
    }

    /// Adds a lease without rows. The lease may take the index of a lease that is done, which [`save`](Self::save) clears first.
    pub fn add(&mut self, token: Token, holder: Principal, request: Option<Vec<u8>>, height: u32, times: [u64; 2]) {
        let mut taken = [false; MAX_LEASES];
        self.open.iter().filter(|lease| !lease.is_done()).for_each(|lease| taken[lease.place as usize] = true);
        let place = taken.iter().position(|taken| !taken).expect("there are fewer than that") as u32;
        let [acquired_at_ns, length] = times;
        self.open.push(Lease {
            token,
            holder,
            stage: Stage::Live,
            request,
            height,
            rows: 0,
            first: 0,
            unknown: 0,
            acquired_at_ns,
            expires_at_ns: acquired_at_ns.saturating_add(length),
            length,
            done: [0; 3],
            place,
            changed: true,
        });
    }

    /// Returns a lease by number.
    pub fn get(&self, number: u64) -> Option<&Lease> {
        let at = self.open.binary_search_by_key(&number, |lease| lease.token.number).ok()?;
        Some(&self.open[at])
    }

    /// Returns a lease by number and marks it as changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Lease> {
        let at = self.open.binary_search_by_key(&number, |lease| lease.token.number).ok()?;
        self.open[at].changed = true;
        Some(&mut self.open[at])
    }

    /// Returns the number of the lease that expires first among those that satisfy `is_so`.
    pub fn earliest(&self, is_so: impl Fn(&Lease) -> bool) -> Option<u64> {
        let all = self.open.iter().filter(|lease| is_so(lease));
        all.min_by_key(|lease| (lease.expires_at_ns, lease.token.number)).map(|lease| lease.token.number)
    }

    /// Returns one of the last leases that ended.
    pub fn ended(&self, token: &Token) -> Option<&Lease> {
        self.ended.iter().find(|ended| ended.token == *token)
    }

    /// Returns the end of this holder's request if it is among the last ends.
    pub fn ended_request(&self, holder: Principal, request: &[u8]) -> Option<&Lease> {
        let is_it = |ended: &&Lease| ended.holder == holder && ended.request.as_deref() == Some(request);
        self.ended.iter().rev().find(is_it)
    }

    /// Returns a holder that has its maximum number of leases and has completed none since the returned time, in Unix nanoseconds.
    pub fn idle_holder(&self, most: u32) -> Option<(Principal, u64)> {
        let holders = self.open.iter().filter(|lease| ![Stage::Over, Stage::Ended].contains(&lease.stage));
        let mut by_holder: BTreeMap<Principal, u32> = BTreeMap::new();
        holders.for_each(|lease| *by_holder.entry(lease.holder).or_default() += 1);
        let idle = by_holder.into_iter().filter(|(_, many)| *many >= most).filter_map(|(holder, _)| {
            let completed = self.ended.iter().filter(|ended| ended.holder == holder && ended.stage == Stage::Completed);
            let acquired = self.open.iter().filter(|lease| lease.holder == holder).map(|lease| lease.acquired_at_ns);
            Some((holder, acquired.min()?.max(completed.map(|ended| ended.expires_at_ns).max().unwrap_or(0))))
        });
        idle.min_by_key(|(_, since)| *since)
    }

    /// Ends a lease with a stage, and keeps `answer`, the reply to its holder, if it was completed. `which` is the number of leases that
    /// ended before.
    pub fn end(
        &mut self,
        slots: &mut Slots,
        number: u64,
        (which, now_ns): (u64, u64),
        stage: Stage,
        answer: Option<&CompletedBlobDeletions>,
    ) {
        let place = (which % MAX_LEASES as u64) as u32;
        let Some(lease) = self.get_mut(number) else { return };
        lease.stage = stage;
        let mut ended =
            Lease { stage: Stage::Over, rows: 0, unknown: 0, expires_at_ns: now_ns, place, ..lease.clone() };
        if let Some(answer) = answer {
            ended.stage = Stage::Completed;
            [ended.rows, ended.unknown] = [&answer.skipped, &answer.already].map(|ids| ids.len() as u32);
            let both = answer.skipped.iter().chain(&answer.already);
            let bytes: Vec<u8> = both.flat_map(|id| id.to_le_bytes()).collect();
            if !bytes.is_empty() {
                slots.write(self.slot, SKIPPED + place * SKIPPED_OF_ONE, &bytes);
            }
        }
        slots.write(self.slot, ENDS + place * END, &ended.encode()[..END as usize]);
        if self.ended.len() == MAX_LEASES {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    /// Returns the reply that the holder of an ended lease was given, or `None` if the lease was not completed.
    pub fn answer(&self, slots: &Slots, ended: &Lease) -> Option<CompletedBlobDeletions> {
        if ended.stage != Stage::Completed {
            return None;
        }
        let [skipped, already] = [ended.rows, ended.unknown].map(|many| (many as usize).min(MAX_IDS));
        let mut bytes = Vec::new();
        let len = 8 * (skipped + already).min(MAX_IDS);
        slots.read_onto(&mut bytes, self.slot, SKIPPED + ended.place * SKIPPED_OF_ONE, len);
        let mut ids: Vec<u64> = bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
        let already = ids.split_off(skipped.min(ids.len()));
        let [removed, retries_incremented, dead] = ended.done.map(u64::from);
        Some(CompletedBlobDeletions { removed, retries_incremented, dead, skipped: ids, already, remaining: 0 })
    }

    /// Drops the leases that are done, and writes the changed ones.
    pub fn save(&mut self, slots: &mut Slots) {
        for lease in self.open.iter_mut().filter(|lease| lease.changed) {
            let at = lease.place * LEASE;
            if lease.is_done() {
                slots.write(self.slot, at, &[0; 8]);
            } else {
                slots.write(self.slot, at, &lease.encode());
            }
            lease.changed = false;
        }
        self.open.retain(|lease| !lease.is_done());
    }
}
