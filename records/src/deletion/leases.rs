//! Table of leases, and of the ends of the last ones.

use super::ends::Ends;
use super::lease::{ALL, ENDS, LEASE, Lease, MAX_LEASES, REPLIES, Stage};
use candid::Principal;
use ic_coppice_storage::GrowError;
use ic_coppice_storage::bytes::u64_at;
use ic_coppice_storage::slots::{SlotId, Slots};
use std::collections::BTreeMap;

/// All leases, mirrored on the heap.
#[derive(Default)]
pub struct Leases {
    /// The slot of the leases.
    pub slot: SlotId,
    /// Leases that have not ended or still have rows, by number; in any [`Stage`].
    pub open: Vec<Lease>,
    /// Ends of the last leases.
    pub ends: Ends,
}

impl Leases {
    /// Reads the leases; `ended` is the number of leases that ever ended.
    ///
    /// # Errors
    /// A sentence if this code did not write the bytes of a lease.
    pub fn load(slots: &Slots, slot: SlotId, ended: u64) -> Result<Self, String> {
        if !slots.is_inside(slot, u64::from(ALL)) {
            return Err(format!("deletion queue: slot {slot} does not hold the leases"));
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, slot, 0, REPLIES as usize);
        let (leases, ends) = bytes.split_at(ENDS as usize);
        let used = leases.chunks_exact(LEASE as usize).zip(0..).filter(|(b, _)| u64_at(b, 0) != 0);
        let mut open = used.map(|(b, place)| Lease::decode(b, place)).collect::<Result<Vec<_>, _>>()?;
        open.sort_unstable_by_key(|lease| lease.token.number);
        Ok(Self { slot, open, ends: Ends::decode(ends, ended)? })
    }

    /// Allocates the slot of the leases.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn create(slots: &mut Slots) -> Result<Self, GrowError> {
        let slot = slots.allocate(ALL)?;
        slots.write(slot, 0, &[0; REPLIES as usize]);
        Ok(Self { slot, ..Self::default() })
    }

    /// Adds a lease, and gives it an index: a free one, or that of a lease that is done, which [`save`](Self::save) clears first.
    pub fn add(&mut self, lease: Lease) {
        let mut taken = [false; MAX_LEASES];
        self.open.iter().filter(|lease| !lease.is_done()).for_each(|lease| taken[lease.place as usize] = true);
        let place = taken.iter().position(|taken| !taken).expect("there are fewer than that") as u32;
        self.open.push(Lease { place, ..lease });
    }

    /// Returns the index of a lease in [`open`](Self::open).
    fn place_of(&self, number: u64) -> Result<usize, usize> {
        self.open.binary_search_by_key(&number, |lease| lease.token.number)
    }

    /// Returns a lease by number.
    pub fn get(&self, number: u64) -> Option<&Lease> {
        self.place_of(number).ok().map(|at| &self.open[at])
    }

    /// Returns a lease by number and marks it as changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Lease> {
        let at = self.place_of(number).ok()?;
        self.open[at].changed = true;
        Some(&mut self.open[at])
    }

    /// Returns the number of the lease that expires first among those that satisfy `is_so`.
    pub fn earliest(&self, is_so: impl Fn(&Lease) -> bool) -> Option<u64> {
        let all = self.open.iter().filter(|lease| is_so(lease));
        all.min_by_key(|lease| (lease.expires_at_ns, lease.token.number)).map(|lease| lease.token.number)
    }

    /// Returns a holder that has its maximum number of leases and has completed none since the returned time, in Unix nanoseconds.
    pub fn idle_holder(&self, most: u32) -> Option<(Principal, u64)> {
        let holders = self.open.iter().filter(|lease| ![Stage::Over, Stage::Ended].contains(&lease.stage));
        let mut by_holder: BTreeMap<Principal, u32> = BTreeMap::new();
        holders.for_each(|lease| *by_holder.entry(lease.holder).or_default() += 1);
        let idle = by_holder.into_iter().filter(|(_, many)| *many >= most).filter_map(|(holder, _)| {
            let acquired = self.open.iter().filter(|lease| lease.holder == holder).map(|lease| lease.acquired_at_ns);
            Some((holder, acquired.min()?.max(self.ends.last_completion(holder).unwrap_or(0))))
        });
        idle.min_by_key(|(_, since)| *since)
    }

    /// Drops the leases that are done, and writes the changed ones, or all.
    pub fn save(&mut self, slots: &mut Slots, all: bool) {
        for lease in self.open.iter_mut().filter(|lease| all || lease.changed) {
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
