//! Ends of the last leases: the replies to their holders, which a repeated call gets again. An end is a [`Lease`], some of whose fields
//! have other meanings (`lease.rs`).

use super::lease::{END, ENDS, LEASE, Lease, MAX_IDS, MAX_LEASES, REPLIES, REPLY, Stage};
use super::token::Token;
use candid::Principal;
use ic_coppice_interface::CompletedBlobDeletions;
use ic_coppice_storage::slots::{SlotId, Slots};
use std::collections::VecDeque;

/// Returns the index of the end of a lease; `which` leases ended before.
pub fn place_of(which: u64) -> u32 {
    (which % MAX_LEASES as u64) as u32
}

/// Ends of the last leases, oldest first.
#[derive(Default)]
pub struct Ends(VecDeque<Lease>);

impl Ends {
    /// Decodes the ends; `ended` is the number of leases that ever ended.
    ///
    /// # Errors
    /// A sentence if this code did not write the bytes of an end.
    pub fn decode(bytes: &[u8], ended: u64) -> Result<Self, String> {
        let last = ended.saturating_sub(MAX_LEASES as u64)..ended;
        let ends = last.map(|which| {
            let place = place_of(which);
            let mut b = [0; LEASE as usize];
            b[..END as usize].copy_from_slice(&bytes[(place * END) as usize..][..END as usize]);
            Lease::decode(&b, place)
        });
        ends.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the end of the lease with this token.
    pub fn of_token(&self, token: &Token) -> Option<&Lease> {
        self.0.iter().find(|end| end.token == *token)
    }

    /// Returns the end of the lease that this holder's request acquired.
    pub fn of_request(&self, holder: Principal, request: &[u8]) -> Option<&Lease> {
        self.0.iter().rev().find(|end| end.holder == holder && end.request.as_deref() == Some(request))
    }

    /// Returns the time of the holder's last completion, in Unix nanoseconds.
    pub fn last_completion(&self, holder: Principal) -> Option<u64> {
        let completed = self.0.iter().filter(|end| end.holder == holder && end.stage == Stage::Completed);
        completed.map(|end| end.expires_at_ns).max()
    }

    /// Adds the end of a lease, which has the end's time and index already, and writes the end and its reply, which the holder was given if
    /// it completed the lease.
    pub fn add(&mut self, slots: &mut Slots, slot: SlotId, lease: Lease, reply: Option<&CompletedBlobDeletions>) {
        let stage = if reply.is_some() { Stage::Completed } else { Stage::Over };
        let lists = reply.map_or([&[][..]; 2], |reply| [&reply.skipped, &reply.already]);
        let [rows, unknown] = lists.map(|ids| ids.len() as u32);
        let end = Lease { stage, rows, unknown, ..lease };
        let bytes: Vec<u8> = lists.into_iter().flatten().flat_map(|id| id.to_le_bytes()).collect();
        if !bytes.is_empty() {
            slots.write(slot, REPLIES + end.place * REPLY, &bytes);
        }
        slots.write(slot, ENDS + end.place * END, &end.encode()[..END as usize]);
        if self.0.len() == MAX_LEASES {
            self.0.pop_front();
        }
        self.0.push_back(end);
    }
}

/// Returns the reply that the holder of an ended lease was given, or `None` if the lease was not completed.
pub fn reply(slots: &Slots, slot: SlotId, end: &Lease) -> Option<CompletedBlobDeletions> {
    if end.stage != Stage::Completed {
        return None;
    }
    let [skipped, already] = [end.rows, end.unknown].map(|many| (many as usize).min(MAX_IDS));
    let mut bytes = Vec::new();
    let len = 8 * (skipped + already).min(MAX_IDS);
    slots.read_onto(&mut bytes, slot, REPLIES + end.place * REPLY, len);
    let mut ids: Vec<u64> = bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
    let already = ids.split_off(skipped.min(ids.len()));
    let [removed, retries_incremented, dead] = end.done.map(u64::from);
    Some(CompletedBlobDeletions { removed, retries_incremented, dead, skipped: ids, already, remaining: 0 })
}
