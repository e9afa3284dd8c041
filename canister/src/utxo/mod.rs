//! UTXO records: one for each transaction, found by txid (`utxo-data-model.md`, `docs/design.md` 6).
//!
//! **Constraint.** A block has thousands of transactions, and each is created, spent from, mined and deleted: an operation must
//! touch few pages and cost the same at any number of records. A `StableBTreeMap` of encoded records reads, decodes, encodes
//! and writes a whole record to change 36 bytes of it, and each secondary index is another such map.
//!
//! **Design.** A record is a slot (`slots`) of fixed layout (`record`), found through the hash table of the chain's index, whose
//! value is the slot. Fields are written where they lie. The ordered indexes are rings through the records' heads (`order`).
//! What few records have lies aside (`extras`), large transactions in the BlobStore (`place`).
//!
//! Whatever can be refused is refused, and memory reserved, before anything is changed; operations that cannot know beforehand
//! keep a journal and are undone to the byte.

mod alert;
mod batch;
mod children;
mod conflict;
mod create;
mod delete;
mod draft;
mod encoding;
mod entry;
mod extras;
mod footprint;
mod mined;
mod order;
mod parse;
mod place;
mod prune;
mod read;
mod record;
mod spend;
mod upload;

use crate::platform;
use crate::storage::memory::{self, GrowError, Region};
use crate::storage::slots::tree::{MOST_NODES, NODE};
use crate::storage::slots::{SlotId, Slots};
use crate::storage::table::HashTable;
pub use batch::{Item, Marked, Weight};
use coppice_interface::{UtxoRefusal, UtxoSettings, UtxoStorage};
pub use delete::ExternalData;
pub use draft::{Body, Draft};
use extras::Extras;
use order::Root;
pub use order::{LATE, Order, Watch};
pub use parse::Parsed;
pub use prune::{Blocked, Candidate, Cursor, LOOKUP_PAGES, Next, Parents, Told, Unstable};
pub use record::Hash;
use record::{HEAD, Head, flag};
pub use spend::LastUnspent;
use std::cell::OnceCell;
use std::rc::Rc;
pub use upload::Uploads;

/// Pages of a record, or of its list of double spends, that go in one step. One with more goes over several, and messages.
pub const STEP_PAGES: u64 = 1_000;

/// Bytes that are kept for the pruner, for nodes of the ordered indexes: at the cap on memory it must preserve before it may
/// delete. More are free again once it has.
const SPARE: u64 = 16 * (NODE as u64 + 2_048);

/// What an operation is told beside its argument.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The height at which the chain is.
    pub height: u32,
    /// Nanoseconds since the Unix epoch.
    pub now_ns: u64,
    /// The settings in force.
    pub settings: &'a UtxoSettings,
    /// The largest height that the call, or a block that it names, may have.
    pub most: u32,
}

impl<'a> Call<'a> {
    /// The pruner's own, which names no height.
    pub fn of_pruner(height: u32, settings: &'a UtxoSettings) -> Self {
        Self { height, now_ns: platform::time_ns(), settings, most: height }
    }

    /// Whether the height may be one.
    ///
    /// # Errors
    /// `ZeroHeight`, `BadHeight`.
    pub fn check(&self) -> Result<(), UtxoRefusal> {
        if self.height == 0 { Err(UtxoRefusal::ZeroHeight) } else { self.check_block(self.height) }
    }

    /// Checks that a block may have this height.
    ///
    /// # Errors
    /// `BadHeight`.
    fn check_block(&self, height: u32) -> Result<(), UtxoRefusal> {
        check_height(height, self.most)
    }

    /// Returns the height from which a record that is eligible now may be deleted; `highest` is its highest block. A call that names a
    /// far lower height does not make this one lower.
    fn due(&self, highest: u32) -> u32 {
        self.height.max(highest).saturating_add(self.settings.block_height_retention)
    }
}

/// UTXO records.
pub struct UtxoStore {
    table: HashTable,
    slots: Slots,
    root: Root,
    changed: Changed,
    /// The transaction that is being uploaded.
    pub uploads: Uploads,
}

/// Pages that this message has changed beside those of the records' slots, at most.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    table: u64,
    blobs: u64,
    /// Pages of the heap: the most of any one record, because the next record reuses them.
    heap: u64,
    /// Pages that this message has read of other records and of lists of double spends.
    read: u64,
}

/// A record that was found.
struct Found {
    slot: SlotId,
    head: Head,
    /// Its extras, once somebody asked for when a reassigned output is spendable.
    extras: OnceCell<Extras>,
}

impl From<GrowError> for UtxoRefusal {
    fn from(error: GrowError) -> Self {
        match error {
            // Only a tick's work is put off, and a tick that meets it goes on later.
            GrowError::OutOfSpace | GrowError::Later => Self::OutOfSpace,
            GrowError::RecordsFull => Self::RecordsFull { limit: memory::records::cap() },
            GrowError::LowCycles { missing } => Self::LowCycles { missing },
            GrowError::ReservedCyclesLimit { missing } => Self::ReservedCyclesLimit { missing },
        }
    }
}

/// # Errors
/// `BadHeight`.
fn check_height(height: u32, most: u32) -> Result<(), UtxoRefusal> {
    if height > most { Err(UtxoRefusal::BadHeight { most }) } else { Ok(()) }
}

fn bad(field: &str, why: impl Into<String>) -> UtxoRefusal {
    UtxoRefusal::BadArgument { field: field.into(), why: why.into() }
}

/// The 32 bytes of an argument.
fn hash_of(field: &str, bytes: &[u8]) -> Result<Hash, UtxoRefusal> {
    bytes.try_into().map_err(|_| bad(field, format!("{} bytes, not 32", bytes.len())))
}

impl UtxoStore {
    /// Opens the store over its regions, or makes an empty one. The cost does not depend on the number of records.
    ///
    /// # Errors
    /// A sentence that says what is wrong: memory could not be grown, or a header is not one that this code wrote.
    pub fn open(cells: Rc<Region>, hash_seed: u64) -> Result<Self, String> {
        let region = memory::region(memory::UTXO_SLOTS);
        let new = region.is_empty();
        let mut slots = Slots::open(region)?;
        slots.keep_spare(SPARE);
        let root = match new {
            true => Root::create(&mut slots).map_err(|error| format!("UTXO store: {error:?}"))?,
            false => Root::load(&slots),
        };
        let table = HashTable::open(memory::region(memory::UTXO_INDEX), hash_seed)?;
        Ok(Self { table, slots, root, changed: Changed::default(), uploads: Uploads::open(cells)? })
    }

    /// Counts of records, and their memory.
    pub fn storage(&self) -> UtxoStorage {
        let slots = self.slots.stats();
        UtxoStorage {
            records: self.root.records,
            extra_pages: self.root.pages,
            deletable: self.root.count(Order::DeleteAt),
            unmined: self.root.count(Order::UnminedSince),
            preserved: self.root.count(Order::PreserveUntil),
            pruned_height: Some(self.root.pruned).filter(|height| *height > 0),
            used_bytes: slots.used_bytes,
            reusable_bytes: slots.free_bytes,
            billed_bytes: memory::records::billed(),
            max_bytes: memory::records::cap(),
        }
    }

    /// Bytes of slots and buckets in use.
    #[cfg(feature = "bench")]
    pub fn used_bytes(&self) -> u64 {
        self.slots.stats().used_bytes + self.table.pages() * 4_096
    }

    /// Bytes of the slots' region that were grown and never used.
    pub fn unused_bytes(&self) -> u64 {
        self.slots.unused_bytes()
    }

    /// The record of a transaction, going or not.
    #[inline]
    fn find_any(&self, txid: &Hash) -> Result<Found, UtxoRefusal> {
        let mut found = Err(UtxoRefusal::TxNotFound);
        self.table.visit(self.table.hash(txid), |value| {
            let slot = value as SlotId;
            match self.read_head(slot) {
                Some(head) if crate::storage::table::same_key(&head.txid, txid) => {
                    found = Ok(Found { slot, head, extras: OnceCell::new() })
                }
                None if found.is_err() => {
                    found = Err(UtxoRefusal::Corrupt { why: format!("the record in slot {slot} cannot be decoded") });
                }
                _ => {}
            }
        });
        found
    }

    /// The record of a transaction, as everyone sees it but who deletes it.
    #[inline]
    fn find(&self, txid: &Hash) -> Result<Found, UtxoRefusal> {
        match self.find_any(txid)? {
            found if found.head.is(flag::DELETING) => Err(UtxoRefusal::TxNotFound),
            found => Ok(found),
        }
    }

    #[inline]
    fn read_head(&self, slot: SlotId) -> Option<Head> {
        if !self.slots.contains(slot) {
            return None;
        }
        self.slots.read_with(slot, 0, |bytes: &[u8; HEAD as usize]| Head::decode(bytes))
    }

    /// The head of a record that was found before, as it is now.
    fn head(&self, slot: SlotId) -> Head {
        self.read_head(slot).unwrap_or_else(|| platform::trap(&format!("the record in slot {slot} is gone")))
    }

    fn set_flags(&mut self, slot: SlotId, flags: u16) {
        self.slots.write(slot, record::at::FLAGS, &flags.to_le_bytes());
    }

    /// Whether so many entries in the ordered indexes can be made without growing memory, whatever is free.
    #[inline]
    fn has_room(&self, entries: u64) -> bool {
        self.slots.has_room(entries * MOST_NODES * u64::from(NODE), entries * MOST_NODES)
    }

    /// Runs an operation that may fail only where it evaluates records, for want of memory: then nothing of it stays. Nearly
    /// always there is room, and no journal is kept.
    fn changing<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, UtxoRefusal>) -> Result<T, UtxoRefusal> {
        if self.has_room(1) { run(self) } else { self.atomically(run) }
    }

    /// Takes a record into the index of those to delete, or out, as `docs/design.md` 6 says.
    ///
    /// # Errors
    /// `OutOfSpace`, `LowCycles`; the record is not where it belongs then.
    fn evaluate(&mut self, slot: SlotId, call: &Call) -> Result<(), UtxoRefusal> {
        let head = self.head(slot);
        let now = head.delete_at();
        let preserved = head.links[Order::PreserveUntil as usize].next != 0;
        let then = if preserved || !head.eligible() {
            None
        } else if call.settings.block_height_retention == 0 || (head.is(flag::CONFLICTING) && now.is_some()) {
            now
        } else {
            // A record whose blocks cannot be read has no known due height, so it is not deleted.
            self.highest_block(&head).ok().and_then(|highest| now.max(Some(call.due(highest))))
        };
        if then == now {
            return Ok(());
        }
        if let Some(key) = then {
            self.root.reserve(&self.slots, &[(Order::DeleteAt, key)], &[])?;
        }
        self.set_delete_at(slot, &head, then);
        Ok(())
    }

    /// Gives a record another height at which it may be deleted, or none. In the middle of a run it is marked where that run
    /// would come by it: phase 1 may have passed by it, as it was not due then. Memory is reserved.
    fn set_delete_at(&mut self, slot: SlotId, head: &Head, then: Option<u32>) {
        self.root.set(&mut self.slots, Order::DeleteAt, slot, head.links[Order::DeleteAt as usize], then);
        let Watch { run, bound, .. } = self.root.watch;
        let note = if then.is_some_and(|key| key <= bound) { run } else { 0 };
        if head.is(flag::POSTPONED | flag::CHECKED) {
            self.set_flags(slot, head.flags & !(flag::POSTPONED | flag::CHECKED));
        }
        if note != head.note {
            self.slots.write_u32(slot, record::at::NOTE, note);
        }
    }

    /// Runs something that may fail in its middle: then nothing of it stays.
    fn atomically<T, E>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
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
}

#[cfg(test)]
pub(crate) mod tests;
