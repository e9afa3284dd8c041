//! What the pruner does with records, in pieces of which each fits a message. When, and how many of them, is its business.

use super::entry::{Entry, SPENDER_DELETED, SPENT};
use super::order::{self, Order};
use super::record::{Hash, Head, PAGE, at, flag, inputs_from, page_slot, parents};
use super::{Call, Found, UtxoStore};
use crate::api::UtxoError;
use crate::slots::SlotId;
use crate::table::same_key;
use serde::{Deserialize, Serialize};

/// A place in an ordered index: behind this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The height.
    pub key: u32,
    /// The record's slot; 0: before the first one under the key.
    pub slot: SlotId,
    /// What its slot says is its id, whether it can be decoded or not.
    pub txid: Hash,
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
    /// It was not for long enough.
    Recent,
    /// It has no record, and was not deleted as far as the output says.
    Absent,
}

/// A parent in whose way something stands, and what.
pub type Blocked = (Hash, UtxoError);

impl UtxoStore {
    /// The record behind a place, if its key is `last` at most. Where the record of the place has moved, its key begins anew.
    pub fn behind(&self, order: Order, place: &Place, last: u32) -> Option<Place> {
        let slots = &self.slots;
        let mut from = place.key;
        let there = place.slot != 0 && slots.contains(place.slot) && same_key(&self.txid_in(place.slot), &place.txid);
        let link = if there { order::link(slots, place.slot, order) } else { Default::default() };
        let (key, slot) = match link.key() {
            Some(key) if key == place.key => {
                let (_, first) = self.root.first(slots, order, key).filter(|(first, _)| *first == key)?;
                if link.next != first && slots.contains(link.next) {
                    (key, link.next)
                } else {
                    from = key.checked_add(1)?;
                    self.root.first(slots, order, from)?
                }
            }
            _ => self.root.first(slots, order, from)?,
        };
        (key <= last && slots.contains(slot)).then(|| Place { key, slot, txid: self.txid_in(slot) })
    }

    fn txid_in(&self, slot: SlotId) -> Hash {
        self.slots.read(slot, at::TXID)
    }

    /// A record, if every part of it lies where it says.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn candidate(&self, slot: SlotId) -> Result<Candidate, UtxoError> {
        let corrupt = |what: &str| UtxoError::Corrupt { why: format!("{what} of the record in slot {slot}") };
        let head = self.read_head(slot).ok_or_else(|| corrupt("the head"))?;
        if !self.slots.holds(slot, head.bytes()) {
            return Err(corrupt("the length"));
        }
        for page in 1..=head.extra_pages + head.input_pages() {
            let page_slot = page_slot(&self.slots, slot, &head, page);
            let of_outputs = page <= head.extra_pages;
            if !self.slots.holds(page_slot, 2) || (of_outputs && self.slots.read::<2>(page_slot, 0) != PAGE) {
                return Err(corrupt(&format!("page {page}")));
            }
        }
        Ok(Candidate { slot, head })
    }

    /// Whether a record has entered the index of unmined ones below this height since [`watch_unmined`](Self::watch_unmined).
    pub fn unmined_entered_below(&self, height: u32) -> bool {
        self.root.lowest_entered(Order::UnminedSince).is_some_and(|lowest| lowest < height)
    }

    /// From now on, which records enter the index of unmined ones is looked at anew.
    pub fn watch_unmined(&mut self) {
        self.root.forget_lowest(&mut self.slots, Order::UnminedSince);
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
            match self.preserve(&parent, until) {
                Ok(there) => preserved += u64::from(there),
                Err(UtxoError::Corrupt { .. }) if set_aside => {}
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
    pub fn expire_preservation(&mut self, of: &Candidate, call: &Call) -> Result<(), UtxoError> {
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
        &self,
        of: &Candidate,
        outputs: (u32, u32),
        current: u32,
        retention: u32,
    ) -> Result<Option<Unstable>, UtxoError> {
        let mut result = Ok(None);
        let mut last: Option<Hash> = None;
        self.entries(of.slot, &of.head, outputs, |_, _, entry| {
            let known = last.is_some_and(|last| same_key(&last, &entry.spender.0));
            if matches!(result, Ok(None)) && entry.is(SPENT) && !entry.is(SPENDER_DELETED) && !known {
                last = Some(entry.spender.0);
                result = self.unstable(&entry, current, retention);
            }
        });
        result
    }

    fn unstable(&self, entry: &Entry, current: u32, retention: u32) -> Result<Option<Unstable>, UtxoError> {
        let head = match self.find_any(&entry.spender.0) {
            Ok(found) => found.head,
            Err(UtxoError::TxNotFound) => return Ok(Some(Unstable::Absent)),
            Err(error) => return Err(error),
        };
        if !head.mined() {
            return Ok(Some(Unstable::Unmined));
        }
        let highest = self.blocks(&head)?.iter().map(|block| block.height).max().unwrap_or(0);
        Ok((current < highest.saturating_add(retention)).then_some(Unstable::Recent))
    }

    /// Tells the parents of inputs `first` to `first + most`, those that have a record, that this transaction is deleted:
    /// should it be submitted again, it is refused. A double spend leaves their lists. Answers how many outputs say so now.
    pub fn tell_parents(&mut self, of: &Candidate, (first, most): (u32, u32)) -> u64 {
        let txid = of.txid();
        let inputs = inputs_from(&self.slots, of.slot, &of.head, (first, most));
        if of.head.is(flag::CONFLICTING)
            && let Err(error) = self.atomically(|store| store.leave_parents(txid, &inputs))
        {
            crate::runtime::log(&format!("a double spend stays listed with a parent: {error:?}"));
        }
        let mut told = 0;
        let mut last: Option<(Hash, Option<Found>)> = None;
        for ((parent, vout), vin) in inputs.into_iter().zip(first..) {
            if last.as_ref().is_none_or(|(known, _)| !same_key(known, &parent)) {
                last = Some((parent, self.find(&parent).ok()));
            }
            let Some((_, Some(found))) = &last else { continue };
            let Ok((place, entry)) = self.utxo(found, vout) else { continue };
            if entry.held_by(txid, vin) {
                self.set_state(place, entry.state | SPENDER_DELETED);
                told += 1;
            }
        }
        told
    }

    /// Marks a record as going: from now on nothing finds it but queries. It stays among those to delete where it is finished
    /// from there.
    pub fn mark_deleting(&mut self, of: &Candidate, listed: bool) {
        self.set_flags(of.slot, of.head.flags | flag::DELETING);
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
    pub fn list_deleting(&mut self, of: &Candidate) -> Result<(), UtxoError> {
        self.root.reserve(&self.slots, &[(Order::DeleteAt, 1)], &[])?;
        let link = of.head.links[Order::DeleteAt as usize];
        self.root.set(&mut self.slots, Order::DeleteAt, of.slot, link, Some(1));
        Ok(())
    }

    /// A record that is going, by its id.
    ///
    /// # Errors
    /// `TxNotFound`, `Corrupt`.
    pub fn deleting(&self, txid: &Hash) -> Result<Candidate, UtxoError> {
        let found = self.find_any(txid)?;
        if found.head.is(flag::DELETING) { self.candidate(found.slot) } else { Err(UtxoError::TxNotFound) }
    }

    /// Counts the pages of records that are changed from now on.
    pub fn count_pages(&mut self) {
        self.slots.count_pages();
    }

    /// How many that were.
    pub fn pages_changed(&self) -> u64 {
        self.slots.pages_changed()
    }
}
