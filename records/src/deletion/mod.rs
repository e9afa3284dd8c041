//! Deletion queue: external blobs that workers must delete (`blob-deletion-api.md`, `docs/design/deletion-queue.md`).
//!
//! **Constraint.** A canister cannot delete external blobs itself: it lists the blobs, remote workers delete them, and replies get lost.
//! The pruner schedules thousands of blobs in a tick. No two workers may hold the same blob at a time.
//!
//! **Design.** A row is a slot. Two hash chains lead to each row: one by 20 bits of its name's hash, one by its number. Besides, a row is
//! in exactly one place, which its state determines; only `Store::enter` and `Store::leave` change the place:
//!
//! | state | place | |
//! |---|---|---|
//! | held | none, only counted | a live UTXO record names the blob |
//! | waiting | a treap by (height, number) per lane (store type and file type) | may be deleted from its height on |
//! | leased | the ring of its lease | a worker deletes the blob |
//! | backing off | a treap by (time, number) | waits again from that time on |
//! | dead | two treaps by number per store type: with a record, without one | was given up |
//!
//! Moving a row needs no memory, so leases, failures and retries work even at the memory cap. The space is created with the first row, so
//! a canister without external blobs has no such space.
//!
//! ```text
//! slots of the arena; space DELETIONS has their header
//!   first slot: header: roots of hash chains and treaps, counts ‖ 76 lanes, each with the root of its treap ‖ ages  on the heap, too
//!   one slot:   256 leases, each with the first row of its ring ‖ 256 ends: on the heap, too ‖ row numbers of the ends' replies
//!   a row each: state, order and treap node, or neighbours in a lease's ring ‖ chains ‖ name ‖ record's txid
//! ```
//! **One message.** The canister (`canister/src/api/endpoints/deletion.rs`) calls a method of [`DeletionQueue`], which calls `message`:
//!
//! 1. `Ages::advance` begins a half hour. `Store::expire` processes the passage of time, within a share of the budget: leases that have expired
//!    are over at once, and their rows return to their lanes one by one, as do rows whose back-off has ended.
//! 2. The operation runs on the `Store`.
//! 3. `Store::bound_dead` drops dead-letter rows above the limit, and `Store::write` writes what has changed of header, lanes, ages and leases.
//!
//! **Between messages** a row is in the place of its state and in no other, its name is unique, the counts agree with the rows, the heap
//! agrees with stable memory, and a leased row belongs to a lease of the table.
//!
//! **Files, in reading order**
//!
//! - `row`, `lane`, `lease`, `header`, `ages`: what is stored; `token`, `ring`, `leases`, `ends`: parts of a lease, and the table of leases. This
//!   file moves rows and runs messages.
//! - `schedule`: rows come, are cancelled, and are held by records.
//! - `acquire`: leases begin, are extended, and are ended by their holder or an operator. `expire`: leases expire and end (`Store::end`); the
//!   passage of time.
//! - `complete`: workers report rows. `reported`: the same while deletions are stopped. `retry`: dead-letter rows come back, or are dropped.
//! - `list`: queries. `answer`: results and checks of arguments.
//!
//! A new operation is a method that calls `message`; a new state is a case of `Store::enter` and `Store::change_treap`.

mod acquire;
mod ages;
mod answer;
mod complete;
mod ends;
mod expire;
mod header;
mod lane;
mod lease;
mod leases;
mod list;
mod reported;
mod retry;
mod ring;
mod row;
mod schedule;
mod token;

use crate::{owners, places};
use ages::{Ages, FIRST};
pub use complete::{Completion, RecordEnd};
use header::Root;
use ic_coppice_interface::BlobDeletionState;
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::slots::radix::{self, MOST_NODES, NODE};
use ic_coppice_storage::slots::treap::Treap;
use ic_coppice_storage::slots::{SlotId, Slots, buckets};
use ic_coppice_storage::{Counting, GrowError, HashKey, Ic, MOST_PAGES, Meter, OpenError, Platform as _, Space, log};
use lane::Lanes;
use leases::Leases;
pub use row::Name;
use row::{Row, at};

/// Text whose hash is the secret of a new queue.
const SECRET: &[u8] = b"deletion queue";
/// Bits of a name's hash that select its chain: chains stay short up to some million rows.
const NAME_BITS: u32 = 20;
/// Instructions after which a message begins no further row; the limit of a message is 40 billion.
pub const MOST_INSTRUCTIONS: u64 = 2_000_000_000;
/// Pages and instructions that a call may use to expire leases and end back-offs before its own work.
const SHARE_PAGES: u64 = 4_096;
const SHARE_INSTRUCTIONS: u64 = 500_000_000;

/// Queue of external blobs to delete.
pub struct DeletionQueue {
    arena: Arena,
    store: Option<Store>,
    key: HashKey,
    /// The bounds in force.
    pub limits: Limits,
}

/// Bounds from the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows above which new ones are refused (`max_deletion_rows`).
    pub rows: u64,
    /// Dead-letter rows without a record above which the oldest are dropped (`max_dead_blob_deletions`).
    pub dead: u64,
    /// Maximum leases of one holder (`max_leases_per_holder`).
    pub leases: u32,
    /// Least failures before a row is given up (`least_retries`).
    pub least_retries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows: u64::MAX, dead: u64::MAX, leases: lease::MAX_LEASES as u32, least_retries: 0 }
    }
}

/// Contents of a queue that has had a row.
struct Store {
    slots: Slots,
    /// The header, mirrored on the heap, as are lanes, ages and leases.
    root: Root,
    lanes: Lanes,
    ages: Ages,
    leases: Leases,
    /// The hash key of names.
    key: HashKey,
}

/// Returns a meter of rows that ends `instructions` from now on, or when the message has changed `pages` pages. Removing a row may walk a
/// chain of hundreds of millions of instructions.
pub fn row_meter(instructions: u64, pages: u64) -> Meter {
    Meter::new(Ic::instructions().saturating_add(instructions), pages).exact()
}

impl DeletionQueue {
    /// Opens the queue, whose names are hashed under `key`. The cost does not depend on the number of rows.
    ///
    /// # Errors
    /// A sentence that names the fault of the queue.
    pub fn open(arena: &Arena, key: HashKey) -> Result<Self, String> {
        let load = |slots: Slots| -> Result<Store, String> {
            let root = Root::load(&slots)?;
            let leases = Leases::load(&slots, root.leases, root.ended)?;
            let (lanes, ages) = (Lanes::load(&slots)?, Ages::load(&slots)?);
            Ok(Store { slots, root, lanes, ages, leases, key: key.clone() })
        };
        let slots = if Space::open(arena, places::DELETIONS)?.is_empty() { None } else { Some(Self::slots(arena)?) };
        let store = slots.filter(|slots| slots.root() != 0).map(load).transpose()?;
        if store.is_some() && !key.is_set() {
            return Err("deletion queue: it is there without a hash key".into());
        }
        Ok(Self { arena: arena.clone(), store, key, limits: Limits::default() })
    }

    /// Writes what the heap mirrors anew.
    pub fn rewrite(&mut self) {
        if let Some(store) = &mut self.store {
            store.slots.rewrite();
            store.save(true);
        }
    }

    /// Returns the number of rows in all states, and its limit.
    pub fn rows(&self) -> (u64, u64) {
        (self.store.as_ref().map_or(0, |store| store.root.rows()), self.limits.rows)
    }

    fn slots(arena: &Arena) -> Result<Slots, OpenError> {
        Slots::open(Space::open(arena, places::DELETIONS)?, arena.clone(), owners::DELETIONS)
    }

    /// Returns the store, after creating it if there is none.
    fn get_or_make(&mut self) -> Result<&mut Store, GrowError> {
        if self.store.is_none() {
            let mut slots = Self::slots(&self.arena).map_err(|why| {
                log::error(&format!("deletion queue: {why}"));
                match why {
                    OpenError::Grow { why, .. } => why,
                    _ => GrowError::OutOfSpace,
                }
            })?;
            // The leases have their slot from the beginning, because a worker that deletes blobs frees memory, and must not need any.
            slots.reserve(&[(FIRST, 1), (lease::ALL, 1)])?;
            let (slot, leases) = (slots.allocate(FIRST)?, Leases::create(&mut slots)?);
            slots.set_root(slot);
            let root = Root { leases: leases.slot, ..Root::new(self.key.hash(SECRET)) };
            root.save(&mut slots);
            // The slot may hold old bytes, so zeros clear lanes and ages.
            slots.write(slot, header::ROOT, &[0; (FIRST - header::ROOT) as usize]);
            let (lanes, ages, key) = (Lanes::new(), Ages::default(), self.key.clone());
            self.store = Some(Store { slots, root, lanes, ages, leases, key });
        }
        self.store.as_mut().ok_or(GrowError::OutOfSpace)
    }

    /// Runs an operation on the queue, if there is one, after expiring leases and ending back-offs.
    fn message<T>(&mut self, now_ns: u64, run: impl FnOnce(&mut Store) -> T) -> Option<T> {
        self.within(now_ns, row_meter(SHARE_INSTRUCTIONS, SHARE_PAGES), run)
    }

    /// Expires leases and ends back-offs within the budget of a message.
    pub fn tick(&mut self, now_ns: u64) {
        self.within(now_ns, row_meter(MOST_INSTRUCTIONS, MOST_PAGES), |_| ());
    }

    fn within<T>(&mut self, now_ns: u64, mut meter: Meter, run: impl FnOnce(&mut Store) -> T) -> Option<T> {
        let most = self.limits.dead;
        let message = |store: &mut Store| {
            store.ages.advance(now_ns);
            store.expire(now_ns, &mut meter);
            let result = run(store);
            store.bound_dead(most, row_meter(SHARE_INSTRUCTIONS, MOST_PAGES));
            result
        };
        Some(self.store.as_mut()?.write(message))
    }
}

impl Store {
    fn treap(&self) -> Treap {
        Treap { at: at::NODE, seed: self.root.secret }
    }

    fn hash(&self, name: &Name) -> u32 {
        #[cfg(any(test, feature = "testing"))]
        if crate::faults::has_one_chain() {
            return (self.key.hash(&name.bytes()) >> (32 + NAME_BITS)) as u32;
        }
        (self.key.hash(&name.bytes()) >> 32) as u32
    }

    fn find(&self, id: u64) -> Option<Row> {
        let mut rows = buckets::under(&self.slots, self.root.by_id, at::BY_ID, id as u32);
        rows.find_map(|slot| Row::read(&self.slots, slot).filter(|row| row.id == id))
    }

    fn find_name(&self, name: &Name, hash: u32) -> Option<Row> {
        let mut rows = buckets::under(&self.slots, self.root.by_name, at::BY_NAME, hash >> (32 - NAME_BITS));
        rows.find_map(|slot| {
            Row::read(&self.slots, slot).filter(|row| row.hash == hash && row.is_named(&self.slots, name))
        })
    }

    /// Reserves memory so that a row of this name can be added.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    fn reserve(&self, name: &Name, hash: u32) -> Result<(), GrowError> {
        let reserve = |nodes: u32| self.slots.reserve(&[(name.row_len(), 1), (NODE, nodes)]);
        // The usual case: memory has room for the worst case.
        reserve(2 * MOST_NODES as u32).or_else(|_| {
            let by_name = radix::missing_nodes(&self.slots, self.root.by_name, hash >> (32 - NAME_BITS));
            let by_id = radix::missing_nodes(&self.slots, self.root.by_id, self.root.next_id as u32);
            reserve(by_name + by_id)
        })
    }

    /// Adds a row. Assumes that memory is [reserved](Self::reserve).
    fn add(&mut self, name: &Name, hash: u32, txid: Option<[u8; 32]>, height: u32, state: BlobDeletionState) -> Row {
        let slot = self.slots.allocate(name.row_len()).unwrap_or_else(|error| {
            Ic::trap(&format!("deletion queue: memory was not reserved: {error}"));
        });
        let lane = self.lanes.enter(name);
        let mut row = Row::new(slot, self.root.next_id, name, hash, lane);
        (row.txid, row.height) = (txid, height);
        self.root.next_id += 1;
        row.create(&mut self.slots, name);
        buckets::enter(&mut self.slots, &mut self.root.by_name, at::BY_NAME, slot, hash >> (32 - NAME_BITS));
        buckets::enter(&mut self.slots, &mut self.root.by_id, at::BY_ID, slot, row.id as u32);
        self.enter(&mut row, state);
        row
    }

    /// Removes a row.
    fn remove(&mut self, row: &Row) {
        self.leave(row);
        let key = row.hash >> (32 - NAME_BITS);
        buckets::leave(&mut self.slots, &mut self.root.by_name, at::BY_NAME, row.slot, key);
        buckets::leave(&mut self.slots, &mut self.root.by_id, at::BY_ID, row.slot, row.id as u32);
        self.lanes.leave(row.lane);
        self.slots.free(row.slot);
    }

    /// Puts a row, which is in no place, into the place of a state, and writes the row. A leased row goes into its lease; a row that backs
    /// off is placed by its order.
    fn enter(&mut self, row: &mut Row, state: BlobDeletionState) {
        row.state = state;
        row.order = match state {
            BlobDeletionState::Waiting => u64::from(row.height),
            BlobDeletionState::BackingOff => row.order,
            BlobDeletionState::Held | BlobDeletionState::Leased | BlobDeletionState::Dead => 0,
        };
        self.ages.enter(row);
        row.save(&mut self.slots);
        self.root.counts[state as usize][row.store_type as usize] += 1;
        self.root.dead_alone += u64::from(row.is_dead_alone());
        if state != BlobDeletionState::Leased {
            self.change_treap(row, Treap::insert);
        } else if let Some(lease) = self.leases.get_mut(row.lease) {
            lease.link(&mut self.slots, row.slot);
        } else {
            Ic::trap(&format!("deletion queue: there is no lease {}", row.lease));
        }
    }

    /// Removes a row from its place.
    fn leave(&mut self, row: &Row) {
        self.root.counts[row.state as usize][row.store_type as usize] -= 1;
        self.ages.leave(row);
        self.root.dead_alone -= u64::from(row.is_dead_alone());
        if row.state != BlobDeletionState::Leased {
            self.change_treap(row, Treap::remove);
        } else if let Some(lease) = self.leases.get_mut(row.lease).filter(|lease| lease.rows > 0) {
            // A damaged lease has forgotten its rows.
            lease.unlink(&mut self.slots, row);
        }
    }

    /// Changes the treap that holds the rows of this state, if there is one.
    fn change_treap(&mut self, row: &Row, change: impl Fn(Treap, &mut Slots, &mut SlotId, SlotId)) {
        let treap = self.treap();
        let root = match row.state {
            BlobDeletionState::Held | BlobDeletionState::Leased => return,
            BlobDeletionState::Waiting => {
                return self.lanes.change(row.lane, |root| change(treap, &mut self.slots, root, row.slot));
            }
            BlobDeletionState::BackingOff => &mut self.root.backing_off,
            BlobDeletionState::Dead => &mut self.root.dead[row.store_type as usize][usize::from(row.txid.is_some())],
        };
        change(treap, &mut self.slots, root, row.slot);
    }

    /// Moves a row from its place to that of a state.
    fn move_to(&mut self, row: &mut Row, state: BlobDeletionState) {
        self.leave(row);
        self.enter(row, state);
    }

    /// Returns whether a lease keeps the row from other workers.
    fn is_leased(&self, row: &Row) -> bool {
        row.state == BlobDeletionState::Leased && self.leases.get(row.lease).is_some_and(|lease| lease.keeps(row))
    }

    /// Runs an operation and writes its changes.
    fn write<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let _counting = Counting::begin();
        let result = run(self);
        self.save(false);
        result
    }

    /// Writes what has changed of leases, lanes and ages, or all; and the header.
    fn save(&mut self, all: bool) {
        let Self { slots, root, lanes, ages, leases, .. } = self;
        leases.save(slots, all);
        lanes.save(slots, all);
        ages.save(slots, all);
        root.save(slots);
    }
}

#[cfg(test)]
mod tests;
