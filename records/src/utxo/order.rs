//! Ordered indexes: records by height, exact after every operation (`slots::rings`); and the store's first slot, which has their roots.
//!
//! ```text
//! the first slot: 0 records u64  8 extra pages u64   16 created u64
//!                 24 a line for each of the four indexes: root u32, complement of the lowest entered key u32 (0: none), records u64
//!                 88 reverts u64   96 run u32   100 the run's bound u32   104 the cutoff u32   108 the retention u32
//!                112 pruned height u32
//! ```
//! *Run* is the run of the pruner (`pruning/`), which sets the run's heights here so that the store can mark records that enter an index
//! where the run has passed. A record that becomes due up to the bound gets the run's number as its note.
//!
//! An unmined record is *late* if its parents may be due before it is old: one that was mined before, a double spend that has won, a new
//! record below the cutoff, and a new record with a parent that is due before the record is old. The highest bit of its key is set
//! ([`LATE`]), so that it comes after all others until a run has examined it.

use super::record::Order;
use ic_coppice_storage::GrowError;
use ic_coppice_storage::bytes::{u32_at, u64_at};
use ic_coppice_storage::slots::radix::{self, MOST_NODES, NODE};
use ic_coppice_storage::slots::rings::{self, Link, Rings};
use ic_coppice_storage::slots::{SlotId, Slots};
use std::iter;

const ROOT: u32 = 116;
/// Offset of the lines.
const LINES: u32 = 24;
/// Offset of the end of the lines, and of the number of reverts.
const REVERTS: u32 = 88;
/// Offset of the run's window.
const WINDOW: u32 = 96;
/// Offset of the pruned height.
const PRUNED: u32 = 112;

/// The store's counters and the roots of its indexes, mirrored on the heap and written through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Master records.
    pub records: u64,
    /// Extra pages.
    pub pages: u64,
    /// The largest `created_at_ns` of any record ever created.
    pub created: u64,
    /// Number of reverted spends and mined flags; a check of spenders is invalid after a revert.
    pub reverts: u64,
    /// The run that is under way.
    pub window: RunWindow,
    /// The highest block of any record that was deleted as spent; 0: none.
    pub pruned: u32,
    indexes: [Index; Order::ALL.len()],
}

/// The heights of the run that is under way, or was last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunWindow {
    /// The run's number; 0: no run is under way.
    pub run: u32,
    /// The run deletes records up to this height.
    pub bound: u32,
    /// Unmined records below this height are old.
    pub cutoff: u32,
    /// Blocks after which an unmined record is old.
    pub retention: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Index {
    rings: Rings,
    /// The complement of the lowest key that was entered since the last [`Root::forget_lowest`]; 0: none.
    lowest: u32,
}

impl Index {
    /// Returns the index's line.
    #[inline]
    fn encode(&self) -> [u8; 16] {
        let Self { rings, lowest } = self;
        (u128::from(rings.tree) | u128::from(*lowest) << 32 | u128::from(rings.count) << 64).to_le_bytes()
    }
}

fn line(order: Order) -> u32 {
    LINES + 16 * order as u32
}

impl Root {
    /// Makes the root of an empty store, in the first slot.
    pub fn create(slots: &mut Slots) -> Result<Self, GrowError> {
        let slot = slots.allocate(ROOT)?;
        slots.write(slot, 0, &[0; ROOT as usize]);
        slots.set_root(slot);
        Ok(Self::default())
    }

    /// Reads the root.
    ///
    /// # Errors
    /// A sentence if the first slot is not in use.
    pub fn load(slots: &Slots) -> Result<Self, String> {
        if !slots.is_inside(slots.root(), u64::from(ROOT)) {
            return Err(format!("UTXO store: slot {} does not hold the counters", slots.root()));
        }
        let bytes: [u8; ROOT as usize] = slots.read(slots.root(), 0);
        let [records, pages, created, reverts] = [0, 8, 16, REVERTS as usize].map(|at| u64_at(&bytes, at));
        let indexes = Order::ALL.map(|order| {
            let at = line(order) as usize;
            let rings = Rings { tree: u32_at(&bytes, at), count: u64_at(&bytes, at + 8) };
            Index { rings, lowest: u32_at(&bytes, at + 4) }
        });
        let [run, bound, cutoff, retention, pruned] =
            std::array::from_fn(|nth| u32_at(&bytes, WINDOW as usize + 4 * nth));
        let window = RunWindow { run, bound, cutoff, retention };
        Ok(Self { records, pages, created, reverts, window, pruned, indexes })
    }

    /// Counts a revert of a spend or of a mined flag.
    pub fn count_revert(&mut self, slots: &mut Slots) {
        self.reverts += 1;
        self.save_reverts(slots);
    }

    fn save_reverts(&self, slots: &mut Slots) {
        slots.write(slots.root(), REVERTS, &self.reverts.to_le_bytes());
    }

    /// Raises the pruned height to the highest block of a record that is deleted as spent.
    #[inline]
    pub fn raise_pruned(&mut self, slots: &mut Slots, highest: u32) {
        if highest > self.pruned {
            self.pruned = highest;
            slots.write_u32(slots.root(), PRUNED, highest);
        }
    }

    /// Writes the run's window and the pruned height.
    pub fn save_window(&self, slots: &mut Slots) {
        let RunWindow { run, bound, cutoff, retention } = self.window;
        let words = [run, bound, cutoff, retention, self.pruned].map(u32::to_le_bytes);
        slots.write(slots.root(), WINDOW, words.as_flattened());
    }

    /// Writes everything anew.
    pub fn rewrite(&self, slots: &mut Slots) {
        self.save_all(slots);
        self.save_reverts(slots);
        self.save_window(slots);
    }

    /// Writes the numbers of records and pages, and the last record's `created_at_ns`.
    pub fn save_counts(&self, slots: &mut Slots) {
        slots.write(slots.root(), 0, [self.records, self.pages, self.created].map(u64::to_le_bytes).as_flattened());
    }

    fn save(&self, slots: &mut Slots, order: Order) {
        slots.write(slots.root(), line(order), &self.indexes[order as usize].encode());
    }

    /// Reserves memory so that a record can enter these indexes under these keys, so that `others` can enter under any keys, and so that
    /// the slots of `wanted`, pairs of bytes and count, can be allocated. An earlier reservation ends.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    #[inline]
    pub fn reserve(
        &self,
        slots: &Slots,
        entering: &[(Order, u32)],
        others: u32,
        wanted: &[(u32, u32)],
    ) -> Result<(), GrowError> {
        let there = wanted.iter().copied().filter(|(_, count)| *count > 0);
        let reserve = |nodes: u32| slots.reserve_each(there.clone().chain([(NODE, nodes)]));
        // The usual case: memory has room for the worst case.
        let most = reserve((MOST_NODES as u32).saturating_mul(entering.len() as u32 + others));
        if most.is_ok() || others > 0 {
            return most;
        }
        let missing =
            |&(order, key): &(Order, u32)| radix::missing_nodes(slots, self.indexes[order as usize].rings.tree, key);
        reserve(entering.iter().map(missing).sum())
    }

    /// Returns the number of records of an index.
    pub fn count(&self, order: Order) -> u64 {
        self.indexes[order as usize].rings.count
    }

    /// Enters a record under a key, moves it to the key, or removes it; `now` is the record's link. Memory is
    /// [reserved](Self::reserve).
    #[inline]
    pub fn set(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link, key: Option<u32>) {
        if let Some(key) = key
            && now.key() != Some(key)
        {
            let lowest = &mut self.indexes[order as usize].lowest;
            *lowest = (*lowest).max(!key);
        }
        self.put(slots, order, slot, now, key);
    }

    /// Does the same as [`set`](Self::set) for a record that only changes its key, and does not count the key as entered.
    #[inline]
    pub fn put(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link, key: Option<u32>) {
        let there = now.key();
        if there == key {
            return;
        }
        let Index { rings, .. } = &mut self.indexes[order as usize];
        if there.is_some() {
            rings.leave(slots, order.link_at(), slot, now, key.is_none());
        }
        if let Some(key) = key {
            rings.enter(slots, order.link_at(), slot, key);
        }
        self.save(slots, order);
    }

    /// Removes a record that leaves the store from an index. The record's link stays, and [`save_all`](Self::save_all) writes the root.
    #[inline]
    pub fn leave(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link) {
        if now.next != 0 {
            self.indexes[order as usize].rings.leave(slots, order.link_at(), slot, now, false);
        }
    }

    /// Writes the numbers of records and pages, and the line of each index.
    pub fn save_all(&self, slots: &mut Slots) {
        let mut bytes = [0; REVERTS as usize];
        bytes[..24].copy_from_slice([self.records, self.pages, self.created].map(u64::to_le_bytes).as_flattened());
        for (index, line) in self.indexes.iter().zip(bytes[LINES as usize..].chunks_exact_mut(16)) {
            line.copy_from_slice(&index.encode());
        }
        slots.write(slots.root(), 0, &bytes);
    }

    /// Returns the smallest key that is `from` or greater, and the first record under the key.
    #[inline]
    pub fn first(&self, slots: &Slots, order: Order, from: u32) -> Option<(u32, SlotId)> {
        radix::next(slots, self.indexes[order as usize].rings.tree, from)
    }

    /// Returns the keys that are `from` or greater, in order.
    pub fn keys(&self, slots: &Slots, order: Order, from: u32) -> impl Iterator<Item = u32> {
        let mut from = Some(from);
        iter::from_fn(move || {
            let (key, _) = self.first(slots, order, from?)?;
            from = key.checked_add(1);
            Some(key)
        })
    }

    /// Returns the records under a key, in the order of their entry.
    pub fn under<'a>(&self, slots: &'a Slots, order: Order, key: u32) -> impl Iterator<Item = SlotId> + use<'a> {
        self.indexes[order as usize].rings.under(slots, order.link_at(), key)
    }

    /// Returns the lowest key under which a record was entered since [`forget_lowest`](Self::forget_lowest).
    pub fn lowest_entered(&self, order: Order) -> Option<u32> {
        Some(self.indexes[order as usize].lowest).filter(|lowest| *lowest != 0).map(|lowest| !lowest)
    }

    /// Forgets the keys that were entered.
    pub fn forget_lowest(&mut self, slots: &mut Slots, order: Order) {
        self.indexes[order as usize].lowest = 0;
        self.save(slots, order);
    }
}

/// Reads a record's link in an index.
#[inline]
pub fn link(slots: &Slots, slot: SlotId, order: Order) -> Link {
    rings::link(slots, slot, order.link_at())
}
