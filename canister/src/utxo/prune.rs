//! What the pruner does with records, in pieces of which each fits a message. When, and how many of them, is its business.

use super::entry::{Entry, SPENDER_DELETED, SPENT};
use super::order::{self, LATE, Order, Watch};
use super::record::{EXTRA, HEAD, HEAD_BLOCKS, Hash, Head, at, flag, inputs_from, page_at, page_slot, parents};
use super::spend::EntryAddress;
use super::{Call, Changed, Found, STEP_PAGES, UtxoStore};
use crate::storage::slots::SlotId;
use crate::storage::slots::ring::Link;
use crate::storage::table::same_key;
use crate::text::refusal;
use coppice_interface::UtxoRefusal;
use serde::{Deserialize, Serialize};

/// Pages of parents' lists that a step may read to remove a double spend from them; the lists of one parent are read in any case.
const MOST_LISTED: u64 = 10_000;
/// Pages that a spender and its place in the table are on.
pub const LOOKUP_PAGES: u64 = 2;
/// Pages that a parent, its place in the table and one of its outputs are on.
const PARENT_PAGES: u64 = 3;

/// A point in an ordered index: behind this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The height.
    pub key: u32,
    /// The record's slot; 0: before the first one under the key.
    pub slot: SlotId,
    /// What its slot says is its id, whether it can be decoded or not.
    pub txid: Hash,
}

/// What lies behind a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This record.
    Record(Cursor),
    /// Nothing below the bound.
    End,
    /// The cursor's record is not there any more.
    Moved,
    /// The cursor's record, or the one behind it, does not say where the ring goes on.
    Broken,
}

/// A record that the pruner looks at.
pub struct Candidate {
    pub(super) slot: SlotId,
    pub(super) head: Head,
}

impl Candidate {
    /// Where it lies.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// Its id.
    pub fn txid(&self) -> &Hash {
        &self.head.txid
    }

    /// Its inputs.
    pub fn inputs(&self) -> u32 {
        self.head.inputs
    }

    /// Its outputs.
    pub fn outputs(&self) -> u32 {
        self.head.outputs
    }

    /// Pages behind it.
    pub fn pages(&self) -> u32 {
        self.head.extra_pages
    }

    /// Whether it is going already.
    pub fn is_deleting(&self) -> bool {
        self.head.is(flag::DELETING)
    }

    /// The height at which it may be deleted; 0: none.
    pub fn delete_at(&self) -> u32 {
        self.head.delete_at().unwrap_or(0)
    }

    /// Since when it is unmined; 0: it is not.
    pub fn unmined_since(&self) -> u32 {
        self.head.unmined_since().unwrap_or(0)
    }

    /// It became due in the middle of this run, which leaves it to the next one.
    pub fn is_left_by(&self, run: u32) -> bool {
        !self.head.is(flag::POSTPONED) && !self.is_deleting() && self.head.note == run
    }

    /// It was kept until a height that is its key.
    pub fn is_postponed(&self) -> bool {
        self.head.is(flag::POSTPONED)
    }

    /// Its bytes lie outside.
    pub fn is_outside(&self) -> bool {
        self.head.is(flag::OUTSIDE)
    }

    /// Its key in an index; 0: it is not there.
    pub fn key(&self, order: Order) -> u32 {
        self.head.links[order as usize].key().unwrap_or(0)
    }

    /// It is a double spend.
    pub fn is_conflicting(&self) -> bool {
        self.head.is(flag::CONFLICTING)
    }

    /// Behind it under its key, while it is the first there.
    pub fn next_in(&self, order: Order) -> Option<(u32, SlotId)> {
        let link = self.head.links[order as usize];
        (link.next != self.slot && link.next != 0).then_some((link.key, link.next))
    }

    /// Whether it is what the index of those to delete says.
    pub fn may_go(&self) -> bool {
        self.is_deleting() || (self.head.eligible() && self.head.links[Order::PreserveUntil as usize].key().is_none())
    }
}

/// Why a spender is not stable (`pruner-service.md` 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstable {
    /// It is in no block of the longest chain.
    Unmined,
    /// It was not for long enough, and will be at this height.
    Recent(u32),
    /// It has no record, and was not deleted as far as the output says.
    Absent,
}

/// A parent in whose way something stands, and what.
pub type Blocked = (Hash, UtxoRefusal);

/// Outputs of surviving parents that are to say that their spender was deleted, with what they say now.
pub struct Parents {
    inputs: Vec<(Hash, u32)>,
    held: Vec<(EntryAddress, u32)>,
    /// The input behind these.
    pub next: u32,
}

/// What became of the outputs that a transaction held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// They say now that their spender was deleted, and did not before.
    pub marked: u64,
    /// They are unspent: a double spend held them, which was never spent on the chain.
    pub released: u64,
}

impl UtxoStore {
    /// The record behind a cursor, if its key is `last` at most.
    pub fn behind(&self, order: Order, cursor: &Cursor, last: u32) -> Next {
        let slots = &self.slots;
        let named = |slot| slots.holds(slot, u64::from(HEAD)) && same_key(&self.txid_in(slot), &cursor.txid);
        let link = if named(cursor.slot) { order::link(slots, cursor.slot, order) } else { Link::default() };
        let first = match link.key() {
            _ if cursor.slot == 0 => self.root.first(slots, order, cursor.key),
            Some(key) if key == cursor.key => match self.root.first(slots, order, key) {
                Some((found, first)) if found == key && link.next != first => {
                    let back = |next| slots.contains(next) && order::link(slots, next, order).previous == cursor.slot;
                    if !back(link.next) {
                        return Next::Broken;
                    }
                    Some((key, link.next))
                }
                Some((found, _)) if found == key => {
                    key.checked_add(1).and_then(|from| self.root.first(slots, order, from))
                }
                _ => return Next::Broken,
            },
            _ => return Next::Moved,
        };
        match first {
            Some((key, slot)) if key <= last && slots.contains(slot) => {
                Next::Record(Cursor { key, slot, txid: self.txid_in(slot) })
            }
            Some((key, _)) if key <= last => Next::Broken,
            _ => Next::End,
        }
    }

    /// The record that was [behind](Candidate::next_in) the first one under a key, now that that is gone; none where it is not
    /// sure that it is the first one now.
    pub fn first_now(&self, order: Order, (key, slot): (u32, SlotId)) -> Option<Cursor> {
        let there = self.slots.contains(slot) && order::link(&self.slots, slot, order).key() == Some(key);
        there.then(|| Cursor { key, slot, txid: self.txid_in(slot) })
    }

    /// What a slot says is its record's id.
    pub fn txid_in(&self, slot: SlotId) -> Hash {
        self.slots.read(slot, at::TXID)
    }

    /// A record, if every part of it lies where it says; with an index and a height also, if it lies there between its
    /// neighbours.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn candidate(&self, slot: SlotId, listed: Option<(Order, u32)>) -> Result<Candidate, UtxoRefusal> {
        let slots = &self.slots;
        let corrupt = |what: &str| UtxoRefusal::Corrupt { why: format!("{what} of the record in slot {slot}") };
        let head = self.read_head(slot).ok_or_else(|| corrupt("the head"))?;
        #[cfg(test)]
        if crate::platform::native::with(|world| world.trapping.contains(&head.txid)) {
            crate::platform::trap("injected");
        }
        if !slots.holds(slot, head.bytes()) || head.extra_pages != head.outputs.saturating_sub(1) / head.batch {
            return Err(corrupt("the length"));
        }
        if head.extras != 0 && !slots.holds(head.extras, 8) {
            return Err(corrupt("the extras"));
        }
        // A large record is checked only in the pages that go next: pages that are gone cannot come back, whatever state the rest is in.
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
            let Link { key: found, previous, next } = head.links[order as usize];
            let there = found == key && slots.contains(previous) && slots.contains(next);
            let link = |slot| if there { order::link(slots, slot, order) } else { Link::default() };
            let (before, behind) = (link(previous), link(next));
            if !there || (before.key, before.next, behind.key, behind.previous) != (key, slot, key, slot) {
                return Err(corrupt("the neighbours"));
            }
        }
        Ok(Candidate { slot, head })
    }

    /// A run begins, or ends where its number is 0: from now on, what enters is marked where it matters to it.
    pub fn set_watch(&mut self, watch: Watch) {
        self.root.set_watch(&mut self.slots, watch);
    }

    /// Whether something entered the index of those to delete at or below a height since
    /// [`forget_due`](Self::forget_due).
    pub fn became_due(&self, safe: u32) -> bool {
        self.root.lowest_entered(Order::DeleteAt).is_some_and(|lowest| lowest <= safe)
    }

    /// From now on, what enters the index of those to delete is looked at anew.
    pub fn forget_due(&mut self) {
        self.root.forget_lowest(&mut self.slots, Order::DeleteAt);
    }

    /// Whether an unmined record has entered below the cutoff that nobody has looked at.
    pub fn has_late(&self, cutoff: u32) -> bool {
        let first = self.root.next_key(&self.slots, Order::UnminedSince, LATE);
        cutoff > 0 && first.is_some_and(|key| key < cutoff | LATE)
    }

    /// An unmined record that entered late was looked at: it goes where it belongs.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn on_time(&mut self, of: &Candidate) -> Result<(), UtxoRefusal> {
        let link = of.head.links[Order::UnminedSince as usize];
        let key = link.key & !LATE;
        self.root.reserve(&self.slots, &[(Order::UnminedSince, key)], &[])?;
        self.root.put(&mut self.slots, Order::UnminedSince, of.slot, link, Some(key));
        Ok(())
    }

    /// Has a record that is kept looked at again when the run comes by this key, and says whether it was another one before.
    /// Callers see its height as it was.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn postpone(&mut self, of: &Candidate, key: u32) -> Result<bool, UtxoRefusal> {
        let link = of.head.links[Order::DeleteAt as usize];
        if link.key == key {
            return Ok(false);
        }
        self.root.reserve(&self.slots, &[(Order::DeleteAt, key)], &[])?;
        let shown = of.delete_at();
        self.root.put(&mut self.slots, Order::DeleteAt, of.slot, link, Some(key));
        self.set_flags(of.slot, (of.head.flags | flag::POSTPONED) & !flag::CHECKED);
        self.slots.write_u32(of.slot, at::NOTE, shown);
        Ok(true)
    }

    /// How often something that a check of spenders relies on was taken back.
    pub fn taken_back(&self) -> u64 {
        self.root.taken_back
    }

    /// A check of a record's spenders begins that goes over several messages.
    pub fn begin_check(&mut self, of: &Candidate) {
        self.set_flags(of.slot, of.head.flags | flag::CHECKED);
    }

    /// Whether no output of a record has changed hands since its check began.
    pub fn is_checked(&self, of: &Candidate) -> bool {
        of.head.is(flag::CHECKED)
    }

    /// Phase 1, of one unmined record: preserves what it spends from, inputs `first` to `first + most`; parents that cannot be
    /// read are passed over where it was set aside. Answers how many parents have a record.
    ///
    /// # Errors
    /// [`Blocked`]; parents before it may be preserved.
    pub fn preserve_parents(
        &mut self,
        of: &Candidate,
        (first, most): (u32, u32),
        until: u32,
        set_aside: bool,
    ) -> Result<u64, Blocked> {
        let mut preserved = 0;
        for parent in parents(&inputs_from(&self.slots, of.slot, &of.head, (first, most))) {
            self.changed.read += LOOKUP_PAGES;
            match self.preserve_parent(&parent, until) {
                Ok(there) => preserved += u64::from(there),
                Err(UtxoRefusal::Corrupt { .. }) if set_aside => {}
                Err(error) => return Err((parent, error)),
            }
        }
        Ok(preserved)
    }

    /// Between the phases, of one record whose preservation has expired: clears it, and takes the record among those to delete
    /// where it is eligible.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn expire_preservation(&mut self, of: &Candidate, call: &Call) -> Result<(), UtxoRefusal> {
        self.changing(|store| {
            let link = of.head.links[Order::PreserveUntil as usize];
            store.root.set(&mut store.slots, Order::PreserveUntil, of.slot, link, None);
            store.evaluate(of.slot, call)
        })
    }

    /// Defensive mode, of one record: why a spender of outputs `first` to `first + most` is not stable, if one is not.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn unstable_child(
        &mut self,
        of: &Candidate,
        outputs: (u32, u32),
        current: u32,
        retention: u32,
    ) -> Result<Option<Unstable>, UtxoRefusal> {
        let mut result = Ok(None);
        let mut last: Option<Hash> = None;
        let mut read = 0;
        self.entries(of.slot, &of.head, outputs, |_, _, entry| {
            let known = last.is_some_and(|last| same_key(&last, &entry.spender.0));
            if matches!(result, Ok(None)) && entry.is(SPENT) && !entry.is(SPENDER_DELETED) && !known {
                last = Some(entry.spender.0);
                read += LOOKUP_PAGES;
                result = self.unstable(&entry, current, retention);
            }
        });
        self.changed.read += read;
        result
    }

    fn unstable(&self, entry: &Entry, current: u32, retention: u32) -> Result<Option<Unstable>, UtxoRefusal> {
        let head = match self.find_any(&entry.spender.0) {
            Ok(found) => found.head,
            Err(UtxoRefusal::TxNotFound) => return Ok(Some(Unstable::Absent)),
            Err(error) => return Err(error),
        };
        if !head.mined() {
            return Ok(Some(Unstable::Unmined));
        }
        let stable_at = self.highest_block(&head)?.saturating_add(retention);
        Ok((current < stable_at).then_some(Unstable::Recent(stable_at)))
    }

    /// Returns the outputs that at most `most` inputs, from `first` on, spend from parents that have a record. Covers fewer inputs of a
    /// double spend if many others are listed with its parents.
    ///
    /// # Errors
    /// `Corrupt` where a parent cannot be read: it is there, and would not be told. Or the record's blocks cannot be, by which a
    /// replay of it is refused.
    pub fn parents(&mut self, of: &Candidate, (first, most): (u32, u32)) -> Result<Parents, UtxoRefusal> {
        if of.head.blocks > HEAD_BLOCKS {
            self.highest_block(&of.head)?;
        }
        let mut inputs = inputs_from(&self.slots, of.slot, &of.head, (first, most));
        let mut held = Vec::with_capacity(inputs.len());
        let mut last: Option<(&Hash, Option<Found>)> = None;
        let (mut listed, mut end) = (0, inputs.len());
        for (((parent, vout), vin), at) in inputs.iter().zip(first..).zip(0..) {
            if last.as_ref().is_none_or(|(known, _)| !same_key(known, parent)) {
                self.changed.read += PARENT_PAGES;
                let found = match self.find(parent) {
                    Ok(found) => Some(found),
                    Err(UtxoRefusal::TxNotFound) => None,
                    Err(error) => return Err(error),
                };
                last = Some((parent, found));
                if of.is_conflicting()
                    && let Some((_, Some(found))) = &last
                {
                    listed += self.pages_of_children(&found.head);
                    if listed > MOST_LISTED && at > 0 {
                        end = at;
                        break;
                    }
                }
            }
            let Some((_, Some(found))) = &last else { continue };
            let Ok((address, entry)) = self.utxo(found, *vout) else { continue };
            if entry.held_by(of.txid(), vin) {
                held.push((address, entry.state));
            }
        }
        inputs.truncate(end);
        Ok(Parents { next: first.saturating_add(end as u32), inputs, held })
    }

    /// Tells parents that this transaction is deleted: should it be submitted again, it is refused. Told again, they say so
    /// already. A double spend leaves their lists, and gives back what it holds: that was never spent on the chain, and the
    /// double spend may yet prove right.
    ///
    /// # Errors
    /// `Corrupt`, `OutOfSpace`, `LowCycles`, only of a double spend, and nothing has changed.
    pub fn tell(&mut self, of: &Candidate, parents: &Parents, call: &Call) -> Result<Told, UtxoRefusal> {
        if of.is_conflicting() {
            return self.release(of, parents, call);
        }
        let mut told = Told::default();
        for &(address, state) in &parents.held {
            if state & SPENDER_DELETED == 0 {
                self.set_state(address, state | SPENDER_DELETED);
                told.marked += 1;
            }
        }
        Ok(told)
    }

    fn release(&mut self, of: &Candidate, parents: &Parents, call: &Call) -> Result<Told, UtxoRefusal> {
        if let Err(error) = self.atomically(|store| store.leave_parents(of.txid(), &parents.inputs)) {
            crate::logs::error(&format!("a double spend stays listed with a parent: {}", refusal(error)));
        }
        self.atomically(|store| {
            let mut masters: Vec<SlotId> = Vec::with_capacity(parents.held.len());
            for &(address, _) in &parents.held {
                let entry = store.entry(address);
                store.forget_spender(address, &entry);
                store.count_spent(address, -1);
                masters.push(address.master);
            }
            masters.sort_unstable();
            masters.dedup();
            masters.into_iter().try_for_each(|master| store.evaluate(master, call))?;
            Ok(Told { marked: 0, released: parents.held.len() as u64 })
        })
    }

    /// Marks a record as going: from now on nothing finds it but queries. It stays among those to delete where it is finished
    /// from there.
    pub fn mark_deleting(&mut self, of: &Candidate, listed: bool) {
        self.set_flags(of.slot, (of.head.flags | flag::DELETING) & !flag::CHECKED);
        for order in [Order::DeleteAt, Order::UnminedSince, Order::PreserveUntil, Order::CreatedAt] {
            if order != Order::DeleteAt || !listed {
                self.root.set(&mut self.slots, order, of.slot, of.head.links[order as usize], None);
            }
        }
    }

    /// Takes among those to delete, before all others, what is going and had left them.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn list_deleting(&mut self, of: &Candidate) -> Result<(), UtxoRefusal> {
        self.root.reserve(&self.slots, &[(Order::DeleteAt, 1)], &[])?;
        let link = of.head.links[Order::DeleteAt as usize];
        self.root.set(&mut self.slots, Order::DeleteAt, of.slot, link, Some(1));
        Ok(())
    }

    /// A record that is going, by its id.
    ///
    /// # Errors
    /// `TxNotFound`, `Corrupt`.
    pub fn deleting(&self, txid: &Hash) -> Result<Candidate, UtxoRefusal> {
        let found = self.find_any(txid)?;
        if found.head.is(flag::DELETING) { self.candidate(found.slot, None) } else { Err(UtxoRefusal::TxNotFound) }
    }

    /// What a message of the pruner's may do and others may not: take the memory that is kept for it. Counts the pages that it
    /// changes from now on.
    pub fn begin_pruning(&mut self) {
        self.changed = Changed::default();
        self.slots.set_pruning(true);
    }

    /// The message's end.
    pub fn end_pruning(&mut self) {
        self.slots.set_pruning(false);
    }

    /// Something else has changed so many pages for this message.
    pub fn note_pages(&mut self, pages: u64) {
        self.changed.blobs += pages;
    }

    /// Counts pages that other code has read in this message.
    pub fn note_read(&mut self, pages: u64) {
        self.changed.read += pages;
    }

    /// Pages that this message has read since it began to count: of records, of their table, and of lists of double spends.
    pub fn pages_read(&self) -> u64 {
        self.changed.read
    }

    /// Pages that this message has changed since it began to count: of records, of their table, and of what went into blobs.
    pub fn pages_changed(&self) -> u64 {
        self.slots.pages_changed() + self.changed.table.min(self.table.pages()) + self.changed.blobs + self.changed.heap
    }
}
