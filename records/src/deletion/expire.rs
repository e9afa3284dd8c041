//! Ends of leases, and the passage of time: leases expire, back-offs end, and rows of ended leases return to their lanes.

use super::header::Counter;
use super::lease::{Lease, Stage};
use super::row::Row;
use super::{Store, ends};
use ic_coppice_interface::{BlobDeletionState, CompletedBlobDeletions};
use ic_coppice_storage::{Meter, log};

impl Store {
    /// Expires leases, the oldest first, and ends back-offs, while the meter has room: each message does this first. Rows of an expired lease wait
    /// again.
    pub fn expire(&mut self, now_ns: u64, meter: &mut Meter) {
        let is_due = |lease: &Lease| lease.stage != Stage::Over && now_ns >= lease.expires_at_ns;
        while let Some(number) = self.leases.earliest(is_due)
            && let Some(lease) = self.leases.get_mut(number)
        {
            match std::mem::replace(&mut lease.stage, Stage::Over) {
                Stage::Live => {
                    self.end(number, now_ns, Stage::Over, None);
                    self.root.tally(Counter::Expired, 1);
                }
                stage => self.root.tally(Counter::Unknown, u64::from(stage == Stage::Completed)),
            }
        }
        self.send_back(&mut || meter.has_room());
        let treap = self.treap();
        while meter.has_room()
            && let Some(slot) = treap.first(&self.slots, self.root.backing_off)
            && treap.key(&self.slots, slot).0 <= now_ns
        {
            match Row::read(&self.slots, slot) {
                Some(mut row) => self.move_to(&mut row, BlobDeletionState::Waiting),
                // A row that stayed here would be read again for ever.
                None => {
                    log::error(&format!("deletion queue: the row in slot {slot} cannot be decoded"));
                    treap.remove(&mut self.slots, &mut self.root.backing_off, slot);
                }
            }
        }
    }

    /// Ends a lease and remembers its request, so that the same request makes no second lease.
    pub fn end(&mut self, number: u64, now_ns: u64, stage: Stage, answer: Option<&CompletedBlobDeletions>) {
        let slot = self.leases.slot;
        let Some(lease) = self.leases.get_mut(number) else { return };
        lease.stage = stage;
        let end = Lease { expires_at_ns: now_ns, place: ends::place_of(self.root.ended), ..lease.clone() };
        self.leases.ends.add(&mut self.slots, slot, end, answer);
        self.root.ended += 1;
    }

    /// Returns the rows of ended leases to their lanes, in the order of the leases' expiry, while there is room.
    pub fn send_back(&mut self, has_room: &mut dyn FnMut() -> bool) {
        while let Some(number) = self.leases.earliest(|lease| lease.free() > 0) {
            while let Some(lease) = self.leases.get_mut(number).filter(|lease| lease.free() > 0) {
                if !has_room() {
                    return;
                }
                let first = lease.rows(&self.slots).next();
                match first {
                    Some(mut row) => {
                        self.leave(&row);
                        row.lease = 0;
                        self.enter(&mut row, BlobDeletionState::Waiting);
                    }
                    // A row that stayed here would be read again for ever.
                    None => {
                        log::error(&format!("deletion queue: a row of lease {number} cannot be decoded"));
                        lease.forget_rows();
                    }
                }
            }
        }
    }
}
