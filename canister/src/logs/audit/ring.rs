//! The last entries of one kind, in slots of 4 KiB, each located by its number in the ring.
//!
//! ```text
//! slot: 0 place u64  8 number u64  16 time of the first call u64  24 hash of caller and method u64  32 length u32
//!       36 the entry, CBOR
//! ```

use super::entry::{Call, Entry, HEAD, Head};
use crate::places;
use ic_coppice_storage::bytes::{u32_at, u64_at};
use ic_coppice_storage::cbor;
use ic_coppice_storage::ring::Ring as Slots;

/// Nanoseconds within which the calls of one caller through one method share an entry.
pub const HOUR: u64 = 3_600_000_000_000;

/// The last entries of one kind.
pub struct Ring {
    pub slots: Slots,
    /// Entries ever written.
    pub written: u64,
}

impl Ring {
    /// The heads of the kept entries, newest first. Slots that do not hold the expected entry are left out.
    pub fn heads(&self) -> impl Iterator<Item = Head> {
        self.slots.kept(self.written).rev().filter_map(move |place| {
            let head: [u8; 32] = self.slots.space().read(self.slots.slot(place));
            let word = |at: usize| u64_at(&head, at);
            let head = Head { place: word(0), number: word(8), first: word(16), key: word(24) };
            (head.place == place).then_some(head)
        })
    }

    /// Reads an entry; `None` if its bytes cannot be decoded.
    pub fn entry(&self, head: &Head) -> Option<Entry> {
        let slot: [u8; places::AUDIT_LEN] = self.slots.space().read(self.slots.slot(head.place));
        let len = u32_at(&slot, HEAD - 4) as usize;
        cbor::read(slot[HEAD..].get(..len)?).ok()
    }

    /// The heads of this caller's and method's entries within an hour of the call, newest first.
    ///
    /// Entries are ordered by their first calls, so the walk ends at the first entry that is an hour or more away. A clock that goes back
    /// an hour or more starts new entries.
    pub fn recent(&self, call: &Call) -> impl Iterator<Item = Head> {
        let (key, time) = (call.key(), call.time);
        self.heads().take_while(move |head| head.first.abs_diff(time) < HOUR).filter(move |head| head.key == key)
    }

    /// The newest entry of this caller and method within the hour, which the call joins.
    pub fn find(&self, call: &Call) -> Option<(Head, Entry)> {
        self.recent(call).find_map(|head| {
            let entry = self.entry(&head)?;
            entry.is_of(call).then_some((head, entry))
        })
    }

    /// Writes an entry to its place.
    pub fn write(&mut self, head: &Head, entry: &[u8]) {
        let mut slot = Vec::with_capacity(HEAD + entry.len());
        for word in [head.place, head.number, head.first, head.key] {
            slot.extend(word.to_le_bytes());
        }
        slot.extend((entry.len() as u32).to_le_bytes());
        slot.extend(entry);
        self.slots.make_room(self.written);
        self.slots.space().write(self.slots.slot(head.place), &slot);
        self.written = self.written.max(head.place + 1);
    }
}
