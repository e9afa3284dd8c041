//! [`UtxoStore`]: opening, finding a record, evaluating a record's place in the indexes, and doing several changes or none.

use super::call::{Answer, Call};
use super::order::{Root, RunWindow};
use super::record::extras::Extras;
use super::record::{Due, HEAD, Hash, Head, Order, at, flag};
use super::upload::Uploads;
use crate::{owners, places};
use ic_coppice_interface::{NoMemory, NotReady, UtxoRefusal, UtxoStorage};
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::slots::radix::{MOST_NODES, NODE};
use ic_coppice_storage::slots::{SlotId, Slots, rings};
use ic_coppice_storage::table::{HashTable, same_key};
use ic_coppice_storage::{HashKey, Ic, Platform as _, Space, changed_pages};
use std::cell::OnceCell;
use std::rc::Rc;

/// Maximum entries in the indexes for which an operation reserves memory; an operation that may make more keeps a journal.
pub(super) const MOST_ENTRIES: u32 = 8;

/// UTXO records.
pub struct UtxoStore {
    /// Hash of a txid → slot of the master.
    pub(super) table: HashTable,
    /// Slots of masters, pages, extras, lists, and nodes of the ordered indexes.
    pub(super) slots: Slots,
    /// The first slot, mirrored: counters and roots of the ordered indexes.
    pub(super) root: Root,
    pub(super) used: Used,
    /// The transactions that are being uploaded.
    pub uploads: Uploads,
}

/// Upper bound of the pages that this message has used, besides those of stable memory that it has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Pages of the heap: the most of any one record, because the next record reuses them.
    pub heap: u64,
    /// Pages that this message has read of other records and of lists of double spends.
    pub read: u64,
}

/// Reads bytes of a kept block's body: of a block, from the first byte, and their number. `None` if the block does not have them.
pub trait BytesOf: Fn(&BlobStore, u64, (u64, u64)) -> Option<Vec<u8>> {}

impl<F: Fn(&BlobStore, u64, (u64, u64)) -> Option<Vec<u8>>> BytesOf for F {}

/// A record that was found.
pub(super) struct Found {
    pub slot: SlotId,
    /// On the heap, because moving a head takes 300 instructions, and a result moves several times.
    pub head: Box<Head>,
    /// The extras, once they were read for a reassigned output.
    pub extras: OnceCell<Extras>,
}

impl UtxoStore {
    /// Returns whether a growth was deferred to a separate message since this message began.
    pub fn is_growth_wanted(&self) -> bool {
        self.slots.arena().growth().is_wanted()
    }

    /// Opens the store over its spaces, or makes an empty store. The cost does not depend on the number of records.
    ///
    /// # Errors
    /// A sentence if memory could not be grown, or this code did not write a header.
    pub fn open(arena: &Arena, cells: Rc<Space>, key: HashKey) -> Result<Self, String> {
        let space = |id| Space::open(arena, id);
        let mut slots = Slots::open(space(places::UTXO_SLOTS)?, arena.clone(), owners::RECORDS)?;
        let root = match slots.root() {
            0 => Root::create(&mut slots).map_err(|error| format!("UTXO store: {error}"))?,
            _ => Root::load(&slots)?,
        };
        let table = HashTable::open(space(places::UTXO_INDEX)?, arena.clone(), owners::UTXO_INDEX, key)?;
        Ok(Self { table, slots, root, used: Used::default(), uploads: Uploads::open(cells)? })
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&mut self) {
        self.slots.rewrite();
        self.root.rewrite(&mut self.slots);
        self.table.rewrite();
        self.uploads.rewrite();
    }

    /// Checks that records can be entered in the table.
    ///
    /// # Errors
    /// [`NotReady`] until the hash key is set.
    pub fn check_ready(&self) -> Result<(), NotReady> {
        if self.table.is_keyed() { Ok(()) } else { Err(NotReady) }
    }

    /// Returns the numbers of records, and their memory.
    pub fn storage(&self) -> UtxoStorage {
        let slots = self.slots.stats();
        let arena = self.slots.arena();
        UtxoStorage {
            records: self.root.records,
            extra_pages: self.root.pages,
            deletable: self.root.count(Order::DeleteAt),
            unmined: self.root.count(Order::UnminedSince),
            preserved: self.root.count(Order::PreserveUntil),
            pruned_height: Some(self.root.pruned).filter(|height| *height > 0),
            restorable_to: None,
            used_bytes: slots.used_bytes,
            reusable_bytes: slots.free_bytes + arena.free_counted_bytes(),
            kept_bytes: arena.touched_bytes(),
            max_bytes: arena.quota(),
            applying: None,
        }
    }

    /// Finds the record of a transaction, also while it is being deleted.
    #[inline]
    pub(super) fn find_any(&self, txid: &Hash) -> Answer<Found> {
        let mut damaged = None;
        let found = self.table.find(self.table.hash(txid), |value| {
            let slot = value as SlotId;
            let Some(head) = self.read_head(slot) else {
                damaged = Some(slot);
                return None;
            };
            same_key(&head.txid, txid).then(|| Found { slot, head, extras: OnceCell::new() })
        });
        found.ok_or_else(|| match damaged {
            Some(slot) => UtxoRefusal::Corrupt { why: format!("the record in slot {slot} cannot be decoded") },
            None => UtxoRefusal::TxNotFound,
        })
    }

    /// Returns the height at which the record of a transaction may be deleted, or `None` if there is no such record, or no such height.
    #[inline]
    pub(super) fn due(&self, txid: &Hash) -> Option<u32> {
        let due = self.table.find(self.table.hash(txid), |value| {
            let head = self.decode_head(value as SlotId).filter(|head| same_key(&head.txid, txid))?;
            Some(head.delete_at().filter(|_| !head.is(flag::DELETING)))
        });
        due.flatten()
    }

    /// Finds the record of a transaction, hidden once it is being deleted.
    #[inline]
    pub(super) fn find(&self, txid: &Hash) -> Answer<Found> {
        let found = self.find_any(txid)?;
        if found.head.is(flag::DELETING) { Err(UtxoRefusal::TxNotFound) } else { Ok(found) }
    }

    /// Decodes the head of a record. Inlined, because then only the fields that the caller uses are decoded.
    #[inline(always)]
    fn decode_head(&self, slot: SlotId) -> Option<Head> {
        if !self.slots.contains(slot) {
            return None;
        }
        self.slots.read_with(slot, 0, |bytes: &[u8; HEAD as usize]| Head::decode(bytes))
    }

    /// Reads the head of a record, or returns `None` if the slot has none.
    pub(super) fn read_head(&self, slot: SlotId) -> Option<Box<Head>> {
        self.decode_head(slot).map(Box::new)
    }

    /// Reads the head of a record that was found before.
    pub(super) fn head(&self, slot: SlotId) -> Box<Head> {
        self.read_head(slot).unwrap_or_else(|| Self::gone(slot))
    }

    #[cold]
    fn gone(slot: SlotId) -> ! {
        Ic::trap(&format!("the record in slot {slot} is gone"))
    }

    /// Writes all flags of a record.
    pub(super) fn set_flags(&mut self, slot: SlotId, flags: u16) {
        self.slots.write(slot, at::FLAGS, &flags.to_le_bytes());
    }

    /// Reserves memory for `entries` entries in the ordered indexes, and for nothing else. Returns whether there is enough.
    #[inline]
    pub(super) fn reserve_entries(&self, entries: u32) -> bool {
        entries <= MOST_ENTRIES && self.slots.reserve(&[(NODE, entries * MOST_NODES as u32)]).is_ok()
    }

    /// Runs an operation that makes at most `entries` entries in the ordered indexes. The operation can fail only if it lacks memory for
    /// the entries, and then it is undone. If the memory can be reserved, the usual case, no journal is kept. Other operations that may fail in their
    /// middle use [`atomically`](Self::atomically).
    pub(super) fn changing<T>(&mut self, entries: u32, run: impl FnOnce(&mut Self) -> Answer<T>) -> Answer<T> {
        if self.reserve_entries(entries) { run(self) } else { self.atomically(run) }
    }

    /// Reserves memory for entries in the ordered indexes if a journal can undo the operation. An operation without a journal has reserved
    /// all its memory at its beginning.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`.
    #[inline]
    pub(super) fn reserve_more(&self, entering: &[(Order, u32)]) -> Answer<()> {
        if self.slots.is_undoable() {
            self.root.reserve(&self.slots, entering, 0, &[]).map_err(NoMemory::from)?;
        }
        Ok(())
    }

    /// Checks that a record's neighbours in two indexes are slots, before an operation that may take the record out.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub(super) fn check_links(&self, slot: SlotId, head: &Head, orders: [Order; 2]) -> Answer<()> {
        for link in orders.map(|order| head.link(order)) {
            if link.next != 0 && !rings::is_linked(&self.slots, link) {
                return Err(UtxoRefusal::Corrupt { why: format!("the neighbours of the record in slot {slot}") });
            }
        }
        Ok(())
    }

    /// Enters a record in [`Order::DeleteAt`], or removes it, by the rules of `docs/design/records.md`. Memory for an entry is reserved, or a
    /// journal has begun.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`, only in a journal; the index is not up to date then.
    pub(super) fn evaluate(&mut self, slot: SlotId, call: &Call) -> Answer<()> {
        let head = self.decode_head(slot).unwrap_or_else(|| Self::gone(slot));
        let now = head.delete_at();
        let preserved = head.link(Order::PreserveUntil).next != 0;
        let then = if preserved || !head.eligible() {
            None
        } else if call.settings.block_height_retention == 0 || (head.is(flag::CONFLICTING) && now.is_some()) {
            now
        } else {
            // A record whose blocks cannot be read has no known due height, so it is not deleted.
            let highest = head.highest_of_few().map_or_else(|| self.highest_of_many(&self.head(slot)), Ok);
            highest.ok().and_then(|highest| now.max(Some(call.due(highest))))
        };
        if then == now {
            return Ok(());
        }
        if let Some(key) = then {
            self.reserve_more(&[(Order::DeleteAt, key)])?;
        }
        self.set_delete_at(slot, head.due(), then);
        Ok(())
    }

    /// Sets the height at which a record may be deleted. Marks a record that becomes due in the middle of a run, because phase 1 of
    /// the run may have passed the record before. Memory is reserved.
    pub(super) fn set_delete_at(&mut self, slot: SlotId, now: Due, then: Option<u32>) {
        self.root.set(&mut self.slots, Order::DeleteAt, slot, now.link, then);
        let RunWindow { run, bound, .. } = self.root.window;
        let note = if then.is_some_and(|key| key <= bound) { run } else { 0 };
        if now.flags & (flag::POSTPONED | flag::CHECKED) != 0 {
            self.set_flags(slot, now.flags & !(flag::POSTPONED | flag::CHECKED));
        }
        if note != now.note {
            self.slots.write_u32(slot, at::NOTE, note);
        }
    }

    /// Runs an operation that may fail in its middle, and undoes it if it fails.
    pub(super) fn atomically<T, E>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let root = self.root;
        self.slots.begin();
        let result = run(self);
        if result.is_ok() {
            self.slots.commit();
        } else {
            self.slots.undo();
            self.root = root;
        }
        result
    }

    /// Forgets the pages that earlier messages have used.
    pub fn begin_message(&mut self) {
        self.used = Used::default();
    }

    /// Counts pages that other code has read in this message.
    pub fn note_read(&mut self, pages: u64) {
        self.used.read += pages;
    }

    /// Returns the pages that this message has read: of records, their table, and lists of double spends.
    pub fn pages_read(&self) -> u64 {
        self.used.read
    }

    /// Returns the pages that this message has changed since counting began, those of the heap included.
    pub fn pages_changed(&self) -> u64 {
        changed_pages() + self.used.heap
    }
}
