//! Walk of an ordered index from a cursor, over messages: the record after the cursor, checked whole, and its key. The pruner's run
//! (`pruning/run.rs`) walks with it, because between two messages any record may change, move or disappear.

use super::call::Answer;
use super::limits::STEP_PAGES;
use super::order::{self, RunWindow};
use super::record::{EXTRA, HEAD, Hash, Head, LATE, Order, at, flag, page_at, page_slot};
use super::store::UtxoStore;
use ic_coppice_interface::{NoMemory, UtxoRefusal};
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::slots::rings::Link;
use ic_coppice_storage::table::same_key;
use serde::{Deserialize, Serialize};

/// Pages that finding a record reads: its head and its place in the table.
pub const LOOKUP_PAGES: u64 = 2;

/// A point in an ordered index: after this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The height.
    pub key: u32,
    /// The record's slot; 0: before the first record under the key.
    pub slot: SlotId,
    /// The id in the record's slot, even if the record cannot be decoded.
    #[serde(with = "serde_bytes")]
    pub txid: Hash,
}

/// The part of an ordered index after a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCursor {
    /// The next record.
    Record(Cursor),
    /// No record up to the bound.
    End,
    /// The cursor's record has left the index.
    Moved,
    /// The ring is damaged at the cursor's record or the next one.
    Broken,
}

/// A record that an index leads to, checked whole.
pub struct Candidate {
    /// The record's slot.
    pub slot: SlotId,
    /// The record's head.
    pub head: Box<Head>,
}

impl Candidate {
    /// Returns the key and the slot of the next record under the same key of an index.
    pub fn next_in(&self, order: Order) -> Option<(u32, SlotId)> {
        let link = self.head.link(order);
        (link.next != self.slot && link.next != 0).then_some((link.key, link.next))
    }
}

impl UtxoStore {
    /// Returns the record after a cursor, if its key is at most `last`.
    pub fn next_after(&self, order: Order, cursor: &Cursor, last: u32) -> AfterCursor {
        let slots = &self.slots;
        let link = if self.is_at(cursor) { order::link(slots, cursor.slot, order) } else { Link::default() };
        let first = match link.key() {
            _ if cursor.slot == 0 => self.root.first(slots, order, cursor.key),
            Some(key) if key == cursor.key => match self.root.first(slots, order, key) {
                Some((found, first)) if found == key && link.next != first => {
                    if !slots.contains(link.next) || order::link(slots, link.next, order).previous != cursor.slot {
                        return AfterCursor::Broken;
                    }
                    Some((key, link.next))
                }
                Some((found, _)) if found == key => {
                    key.checked_add(1).and_then(|from| self.root.first(slots, order, from))
                }
                _ => return AfterCursor::Broken,
            },
            _ => return AfterCursor::Moved,
        };
        match first {
            Some((key, slot)) if key <= last && slots.contains(slot) => {
                AfterCursor::Record(Cursor { key, slot, txid: self.txid_in(slot) })
            }
            Some((key, _)) if key <= last => AfterCursor::Broken,
            _ => AfterCursor::End,
        }
    }

    /// Returns the record that [followed](Candidate::next_in) a removed first record, or `None` if it may not be the first one now.
    pub fn first_now(&self, order: Order, (key, slot): (u32, SlotId)) -> Option<Cursor> {
        let there = self.slots.contains(slot) && order::link(&self.slots, slot, order).key() == Some(key);
        there.then(|| Cursor { key, slot, txid: self.txid_in(slot) })
    }

    /// Returns whether a cursor's record is still in its slot, even if it cannot be decoded.
    #[inline]
    pub fn is_at(&self, cursor: &Cursor) -> bool {
        self.slots.holds(cursor.slot, u64::from(HEAD)) && same_key(&self.txid_in(cursor.slot), &cursor.txid)
    }

    /// Returns the id in a record's slot.
    #[inline(always)]
    fn txid_in(&self, slot: SlotId) -> Hash {
        self.slots.read(slot, at::TXID)
    }

    /// Returns a record if every part of it lies at its place, and, with an index and a key, if the record is linked between its
    /// neighbours there.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn candidate(&self, slot: SlotId, listed: Option<(Order, u32)>) -> Answer<Candidate> {
        let slots = &self.slots;
        let corrupt = |what: &str| UtxoRefusal::Corrupt { why: format!("{what} of the record in slot {slot}") };
        let head = self.read_head(slot).ok_or_else(|| corrupt("the head"))?;
        #[cfg(any(test, feature = "testing"))]
        if crate::faults::traps(&head.txid) {
            <ic_coppice_storage::Ic as ic_coppice_storage::Platform>::trap("injected");
        }
        if !slots.holds(slot, head.bytes()) || head.extra_pages != head.outputs.saturating_sub(1) / head.batch {
            return Err(corrupt("the length"));
        }
        if head.extras != 0 && !slots.holds(head.extras, 8) {
            return Err(corrupt("the extras"));
        }
        // A large record is checked only in the pages that are freed next, because freed pages cannot come back whatever the state of the
        // rest.
        let last = u64::from(head.extra_pages) + u64::from(head.input_pages());
        let first = 1 + u64::from(head.extra_pages).saturating_sub(STEP_PAGES);
        for page in (first..=last).map(|page| page as u32) {
            let page_slot = page_slot(slots, slot, &head, page);
            let of_outputs = |page_slot| {
                let at: [u8; 2] = slots.read(page_slot, 0);
                at == EXTRA && slots.read_u32(page_slot, page_at::MASTER) == slot
            };
            if !slots.holds(page_slot, 24) || (page <= head.extra_pages && !of_outputs(page_slot)) {
                return Err(corrupt(&format!("page {page}")));
            }
        }
        if let Some((order, key)) = listed {
            let Link { key: found, previous, next } = head.link(order);
            let there = found == key && slots.contains(previous) && slots.contains(next);
            let link = |slot| if there { order::link(slots, slot, order) } else { Link::default() };
            let (before, after) = (link(previous), link(next));
            if !there || (before.key, before.next, after.key, after.previous) != (key, slot, key, slot) {
                return Err(corrupt("the neighbours"));
            }
        }
        Ok(Candidate { slot, head })
    }

    /// Sets the heights of a run that begins, or ends if the run's number is 0. Records that become due during the run are marked.
    pub fn set_window(&mut self, window: RunWindow) {
        self.root.window = window;
        self.root.save_window(&mut self.slots);
    }

    /// Returns whether a record entered [`Order::DeleteAt`] at or below a height since [`forget_due`](Self::forget_due).
    pub fn became_due(&self, safe: u32) -> bool {
        self.root.lowest_entered(Order::DeleteAt).is_some_and(|lowest| lowest <= safe)
    }

    /// Forgets the keys that entered [`Order::DeleteAt`].
    pub fn forget_due(&mut self) {
        self.root.forget_lowest(&mut self.slots, Order::DeleteAt);
    }

    /// Returns the lowest height at which a record is examined for deletion, if there is one.
    pub fn first_due(&self) -> Option<u32> {
        self.root.first(&self.slots, Order::DeleteAt, 0).map(|(key, _)| key)
    }

    /// Returns the number of records that are examined for deletion at heights `from` to `to`, at most `most`.
    pub fn count_due(&self, (from, to): (u32, u32), most: usize) -> usize {
        let keys = self.root.keys(&self.slots, Order::DeleteAt, from).take_while(|key| *key <= to);
        keys.flat_map(|key| self.root.under(&self.slots, Order::DeleteAt, key)).take(most).count()
    }

    /// Returns whether no run has examined a late record yet.
    pub fn has_late(&self) -> bool {
        self.root.first(&self.slots, Order::UnminedSince, LATE).is_some()
    }

    /// Moves a late record to its height, after a run has examined it.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn clear_late(&mut self, of: &Candidate) -> Answer<()> {
        let link = of.head.link(Order::UnminedSince);
        let key = link.key & !LATE;
        self.root.reserve(&self.slots, &[(Order::UnminedSince, key)], 0, &[]).map_err(NoMemory::from)?;
        self.root.put(&mut self.slots, Order::UnminedSince, of.slot, link, Some(key));
        Ok(())
    }

    /// Sets the key under which a run examines a kept record again, and returns whether the key has changed. The height that callers see
    /// stays.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn postpone(&mut self, of: &Candidate, key: u32) -> Answer<bool> {
        let link = of.head.link(Order::DeleteAt);
        if link.key == key {
            return Ok(false);
        }
        self.root.reserve(&self.slots, &[(Order::DeleteAt, key)], 0, &[]).map_err(NoMemory::from)?;
        let shown = of.head.delete_at().unwrap_or(0);
        self.root.put(&mut self.slots, Order::DeleteAt, of.slot, link, Some(key));
        self.set_flags(of.slot, (of.head.flags | flag::POSTPONED) & !flag::CHECKED);
        self.slots.write_u32(of.slot, at::NOTE, shown);
        Ok(true)
    }
}
