//! Rows of a lease: a ring of slots in the order in which the rows were given, linked through the rows.

use super::lease::{Lease, UNKNOWN};
use super::row::{Row, at};
use ic_coppice_storage::slots::{SlotId, Slots};

impl Lease {
    /// Appends a row to the ring.
    pub fn link(&mut self, slots: &mut Slots, slot: SlotId) {
        if self.first != 0 && !slots.contains(self.first) {
            self.forget_rows();
        }
        let (before, after) = match self.first {
            0 => (slot, slot),
            first => (slots.read_u32(first, at::BEFORE), first),
        };
        if !slots.contains(before) {
            self.forget_rows();
            return self.link(slots, slot);
        }
        slots.write(slot, at::BEFORE, [before, after].map(u32::to_le_bytes).as_flattened());
        if self.first == 0 {
            self.first = slot;
        } else {
            slots.write_u32(before, at::AFTER, slot);
            slots.write_u32(after, at::BEFORE, slot);
        }
        self.rows += 1;
    }

    /// Removes a row from the ring.
    pub fn unlink(&mut self, slots: &mut Slots, row: &Row) {
        let slot = row.slot;
        self.unknown -= u32::from(row.order == UNKNOWN && self.unknown > 0);
        let (before, after) = (slots.read_u32(slot, at::BEFORE), slots.read_u32(slot, at::AFTER));
        if after == slot {
            self.first = 0;
        } else if !slots.contains(before) || !slots.contains(after) {
            return self.forget_rows();
        } else {
            slots.write_u32(before, at::AFTER, after);
            slots.write_u32(after, at::BEFORE, before);
            if self.first == slot {
                self.first = after;
            }
        }
        self.rows -= 1;
    }

    /// Returns the rows in the order in which they were given. A damaged ring may have no end, so the lease's count bounds it.
    pub fn rows<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = Row> + use<'a> {
        let (first, mut next) = (self.first, self.first);
        let all = std::iter::from_fn(move || {
            let row = Row::read(slots, Some(next).filter(|slot| *slot != 0)?)?;
            next = slots.read_u32(row.slot, at::AFTER);
            if next == first {
                next = 0;
            }
            Some(row)
        });
        all.take(self.rows as usize)
    }

    /// Forgets the rows of a damaged ring. The rows that are left are in no place until they are scheduled anew.
    pub fn forget_rows(&mut self) {
        (self.first, self.rows, self.unknown) = (0, 0, 0);
    }
}
