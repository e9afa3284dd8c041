//! Ends of the last leases: the replies to their holders, which a repeated call gets again.

use super::lease::{END, ENDS, LEASE, Lease, MAX_IDS, MAX_LEASES, REPLIES, REPLY, Stage};
use super::token::Token;
use crate::storage::slots::{SlotId, Slots};
use candid::Principal;
use coppice_interface::CompletedBlobDeletions;
use std::collections::VecDeque;

/// End of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub token: Token,
    pub holder: Principal,
    /// True if the holder completed the lease; false if the lease expired, or an operator ended it.
    pub is_completed: bool,
    pub request: Option<Vec<u8>>,
    height: u32,
    ended_at_ns: u64,
    /// Rows removed, rows to retry, dead-letter rows.
    done: [u32; 3],
    /// Number of row numbers in the reply: skipped rows, then rows done already.
    ids: [u32; 2],
    /// Index of the end in the slot.
    place: u32,
}

impl End {
    /// Returns the end of a lease at this time; with `reply` if the holder completed the lease.
    fn of(lease: &Lease, now_ns: u64, reply: Option<&CompletedBlobDeletions>, place: u32) -> Self {
        Self {
            token: lease.token,
            holder: lease.holder,
            is_completed: reply.is_some(),
            request: lease.request.clone(),
            height: lease.height,
            ended_at_ns: now_ns,
            done: lease.done,
            ids: reply.map_or([0; 2], |reply| [&reply.skipped, &reply.already].map(|ids| ids.len() as u32)),
            place,
        }
    }

    /// Decodes an end, which has the layout of a lease.
    fn decode(bytes: &[u8], place: u32) -> Result<Self, String> {
        let mut b = [0; LEASE as usize];
        b[..END as usize].copy_from_slice(bytes);
        let lease = Lease::decode(&b, place)?;
        let is_completed = lease.stage == Stage::Completed;
        let ids = [lease.rows, lease.unknown];
        Ok(Self { is_completed, ids, ..Self::of(&lease, lease.expires_at_ns, None, place) })
    }

    /// Returns the bytes of the end; the bytes after the first [`END`] mean nothing.
    fn encode(&self) -> [u8; LEASE as usize] {
        let End { token, holder, is_completed, ref request, height, ended_at_ns, done, ids, place } = *self;
        let [rows, unknown] = ids;
        let stage = if is_completed { Stage::Completed } else { Stage::Over };
        let (first, acquired_at_ns, expires_at_ns, length, changed) = (0, 0, ended_at_ns, 0, false);
        let request = request.clone();
        let lease = Lease {
            token,
            holder,
            stage,
            request,
            arguments: 0,
            height,
            rows,
            first,
            unknown,
            acquired_at_ns,
            expires_at_ns,
            length,
            done,
            place,
            changed,
        };
        lease.encode()
    }
}

/// Ends of the last leases, oldest first.
#[derive(Default)]
pub struct Ends(VecDeque<End>);

impl Ends {
    /// Decodes the ends; `ended` is the number of leases that ever ended.
    ///
    /// # Errors
    /// A sentence if this code did not write the bytes of an end.
    pub fn decode(bytes: &[u8], ended: u64) -> Result<Self, String> {
        let last = ended.saturating_sub(MAX_LEASES as u64)..ended;
        let ends = last.map(|which| {
            let place = (which % MAX_LEASES as u64) as usize;
            End::decode(&bytes[place * END as usize..][..END as usize], place as u32)
        });
        ends.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the end of the lease with this token.
    pub fn of_token(&self, token: &Token) -> Option<&End> {
        self.0.iter().find(|end| end.token == *token)
    }

    /// Returns the end of the lease that this holder's request acquired.
    pub fn of_request(&self, holder: Principal, request: &[u8]) -> Option<&End> {
        self.0.iter().rev().find(|end| end.holder == holder && end.request.as_deref() == Some(request))
    }

    /// Returns the time of the holder's last completion, in Unix nanoseconds.
    pub fn last_completion(&self, holder: Principal) -> Option<u64> {
        let completed = self.0.iter().filter(|end| end.holder == holder && end.is_completed);
        completed.map(|end| end.ended_at_ns).max()
    }

    /// Adds the end of a lease, and writes the end and its reply. `which` is the number of leases that ended before.
    pub fn add(
        &mut self,
        (slots, slot): (&mut Slots, SlotId),
        lease: &Lease,
        (which, now_ns): (u64, u64),
        reply: Option<&CompletedBlobDeletions>,
    ) {
        let place = (which % MAX_LEASES as u64) as u32;
        let end = End::of(lease, now_ns, reply, place);
        if let Some(reply) = reply {
            let ids = reply.skipped.iter().chain(&reply.already);
            let bytes: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
            if !bytes.is_empty() {
                slots.write(slot, REPLIES + place * REPLY, &bytes);
            }
        }
        slots.write(slot, ENDS + place * END, &end.encode()[..END as usize]);
        if self.0.len() == MAX_LEASES {
            self.0.pop_front();
        }
        self.0.push_back(end);
    }
}

/// Returns the reply that the holder of an ended lease was given, or `None` if the lease was not completed.
pub fn reply(slots: &Slots, slot: SlotId, end: &End) -> Option<CompletedBlobDeletions> {
    if !end.is_completed {
        return None;
    }
    let [skipped, already] = end.ids.map(|many| (many as usize).min(MAX_IDS));
    let mut bytes = Vec::new();
    let len = 8 * (skipped + already).min(MAX_IDS);
    slots.read_onto(&mut bytes, slot, REPLIES + end.place * REPLY, len);
    let mut ids: Vec<u64> = bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
    let already = ids.split_off(skipped.min(ids.len()));
    let [removed, retries_incremented, dead] = end.done.map(u64::from);
    Some(CompletedBlobDeletions { removed, retries_incremented, dead, skipped: ids, already, remaining: 0 })
}
