//! The ordered indexes: records by height, exact after every operation (`slots::ring`).
//!
//! ```text
//! the first slot: 0 records u64  8 extra pages u64
//!                 16 four lines, one an index: root u32, ! lowest key that was entered u32, records u64
//!                 80 statuses taken back u64   88 run u32   92 its bound u32   96 the cutoff u32
//!                100 pruned height u32
//! ```
//! Of an unmined record that enters below the cutoff, up to which phase 1 of the pruner has looked, the key has the highest bit
//! set, which no height has: it is found behind all others, until somebody has [looked](super::UtxoStore::on_time).

use super::record::at;
use crate::storage::memory::GrowError;
use crate::storage::slots::ring::{self, Link, Rings};
use crate::storage::slots::tree::{self, MOST_NODES, NODE};
use crate::storage::slots::{FIRST_SLOT, SlotId, Slots};

/// One of the ordered indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By `delete_at_height`.
    DeleteAt,
    /// By `unmined_since`.
    UnminedSince,
    /// By `preserve_until`.
    PreserveUntil,
    /// The unmined ones by `created_at`, in seconds.
    CreatedAt,
}

const ORDERS: usize = 4;
const ROOT: u32 = 104;
/// Where the lines end.
const WATCH: u32 = 80;
/// Offset of the pruned height.
const PRUNED: u32 = 100;
/// The highest bit of a key: the record entered where phase 1 had looked already.
pub const LATE: u32 = 1 << 31;

/// The store's counters and the roots of its indexes, mirrored on the heap and written through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Master records.
    pub records: u64,
    /// Pages behind them.
    pub pages: u64,
    /// How often something that a check of spenders relies on was taken back: a mined status, or a spend.
    pub taken_back: u64,
    /// What runs.
    pub watch: Watch,
    /// The highest block of any record that was deleted as spent; 0: there was none.
    pub pruned: u32,
    indexes: [Index; ORDERS],
}

/// What the store is told of the run that is under way, or was last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Its number; 0: none runs.
    pub run: u32,
    /// Records are deleted whose height is this one or lower.
    pub bound: u32,
    /// Unmined records below this height are old.
    pub cutoff: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Index {
    rings: Rings,
    /// The complement of the lowest key that was entered since somebody asked; 0: none was.
    lowest: u32,
}

fn line(order: Order) -> u32 {
    16 + 16 * order as u32
}

const fn link_at(order: Order) -> u32 {
    at::LINKS + 12 * order as u32
}

impl Root {
    /// Makes the root of an empty store, in the first slot.
    pub fn create(slots: &mut Slots) -> Result<Self, GrowError> {
        let slot = slots.allocate(ROOT)?;
        slots.write(slot, 0, &[0; ROOT as usize]);
        Ok(Self::default())
    }

    /// Reads it.
    pub fn load(slots: &Slots) -> Self {
        let bytes: [u8; ROOT as usize] = slots.read(FIRST_SLOT, 0);
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
        let mut root = Self { records: long(0), pages: long(8), ..Self::default() };
        for (order, index) in root.indexes.iter_mut().enumerate() {
            let word = long(16 + 16 * order);
            let rings = Rings { tree: word as u32, count: long(24 + 16 * order) };
            *index = Index { rings, lowest: (word >> 32) as u32 };
        }
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        root.taken_back = long(80);
        root.watch = Watch { run: word(88), bound: word(92), cutoff: word(96) };
        root.pruned = word(PRUNED as usize);
        root
    }

    /// Something was taken back that a check of spenders may have relied on.
    pub fn take_back(&mut self, slots: &mut Slots) {
        self.taken_back += 1;
        slots.write(FIRST_SLOT, WATCH, &self.taken_back.to_le_bytes());
    }

    /// A record of which this is the highest block is deleted as spent.
    #[inline]
    pub fn raise_pruned(&mut self, slots: &mut Slots, highest: u32) {
        if highest > self.pruned {
            self.pruned = highest;
            slots.write_u32(FIRST_SLOT, PRUNED, highest);
        }
    }

    /// Takes note of what runs.
    pub fn set_watch(&mut self, slots: &mut Slots, watch: Watch) {
        self.watch = watch;
        let words = [watch.run, watch.bound, watch.cutoff].map(u32::to_le_bytes);
        slots.write(FIRST_SLOT, WATCH + 8, words.as_flattened());
    }

    /// The key of a record that is unmined since a height, and enters now.
    pub fn unmined_key(&self, since: u32) -> u32 {
        if since < self.watch.cutoff { since | LATE } else { since }
    }

    /// Writes the number of records and pages.
    pub fn save_counts(&self, slots: &mut Slots) {
        let both = u128::from(self.records) | u128::from(self.pages) << 64;
        slots.write(FIRST_SLOT, 0, &both.to_le_bytes());
    }

    fn save(&self, slots: &mut Slots, order: Order) {
        let Index { rings, lowest } = self.indexes[order as usize];
        let both = u128::from(rings.tree) | u128::from(lowest) << 32 | u128::from(rings.count) << 64;
        slots.write(FIRST_SLOT, line(order), &both.to_le_bytes());
    }

    /// Grows memory so that a record can enter these indexes under these keys, and so that slots for things of so many bytes
    /// can be allocated, each so many times.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    #[inline]
    pub fn reserve(&self, slots: &Slots, entering: &[(Order, u32)], wanted: &[(u32, u32)]) -> Result<(), GrowError> {
        let nodes = MOST_NODES * entering.len() as u64;
        let (bytes, pieces) = wanted.iter().fold((nodes * u64::from(NODE), nodes), |(bytes, pieces), &(len, count)| {
            (bytes + u64::from(len) * u64::from(count), pieces + u64::from(count))
        });
        // Nearly always there is room for the worst case.
        if slots.has_room(bytes, pieces) {
            return Ok(());
        }
        let missing =
            |&(order, key): &(Order, u32)| tree::missing_nodes(slots, self.indexes[order as usize].rings.tree, key);
        let nodes = entering.iter().map(missing).sum();
        slots.reserve(&[wanted, &[(NODE, nodes)]].concat())
    }

    /// Records of an index.
    pub fn count(&self, order: Order) -> u64 {
        self.indexes[order as usize].rings.count
    }

    /// Puts a record under a key, takes it to another one, or out: whatever its link says now becomes `key`. Memory is
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

    /// The same, of a record of which it is known: it was there, and only its key is another one.
    #[inline]
    pub fn put(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link, key: Option<u32>) {
        let there = now.key();
        if there == key {
            return;
        }
        let Index { rings, .. } = &mut self.indexes[order as usize];
        if there.is_some() {
            rings.leave(slots, link_at(order), slot, now, key.is_none());
        }
        if let Some(key) = key {
            rings.enter(slots, link_at(order), slot, key);
        }
        self.save(slots, order);
    }

    /// Takes a record out of an index that is taken out of the store: its link stays as it is, and what the root says is
    /// written [at the end](Self::save_all).
    #[inline]
    pub fn leave(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link) {
        if now.next != 0 {
            self.indexes[order as usize].rings.leave(slots, link_at(order), slot, now, false);
        }
    }

    /// Writes the numbers of records and pages, and of each index.
    pub fn save_all(&self, slots: &mut Slots) {
        let mut bytes = [0; WATCH as usize];
        bytes[..8].copy_from_slice(&self.records.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.pages.to_le_bytes());
        for (Index { rings, lowest }, bytes) in self.indexes.iter().zip(bytes[16..].chunks_exact_mut(16)) {
            bytes[..4].copy_from_slice(&rings.tree.to_le_bytes());
            bytes[4..8].copy_from_slice(&lowest.to_le_bytes());
            bytes[8..].copy_from_slice(&rings.count.to_le_bytes());
        }
        slots.write(FIRST_SLOT, 0, &bytes);
    }

    /// The smallest key that is `from` or greater.
    pub fn next_key(&self, slots: &Slots, order: Order, from: u32) -> Option<u32> {
        self.first(slots, order, from).map(|(key, _)| key)
    }

    /// The smallest key that is `from` or greater, and the first record under it.
    #[inline]
    pub fn first(&self, slots: &Slots, order: Order, from: u32) -> Option<(u32, SlotId)> {
        self.indexes[order as usize].rings.next(slots, from)
    }

    /// The records under a key, in the order in which they came.
    pub fn under<'a>(&self, slots: &'a Slots, order: Order, key: u32) -> impl Iterator<Item = SlotId> + use<'a> {
        self.indexes[order as usize].rings.under(slots, link_at(order), key)
    }

    /// The lowest key under which a record was entered since [`forget_lowest`](Self::forget_lowest).
    pub fn lowest_entered(&self, order: Order) -> Option<u32> {
        Some(self.indexes[order as usize].lowest).filter(|lowest| *lowest != 0).map(|lowest| !lowest)
    }

    /// From now on, which keys are entered is looked at anew.
    pub fn forget_lowest(&mut self, slots: &mut Slots, order: Order) {
        self.indexes[order as usize].lowest = 0;
        self.save(slots, order);
    }
}

/// A record's place in an index, as it is now.
#[inline]
pub fn link(slots: &Slots, slot: SlotId, order: Order) -> Link {
    ring::link(slots, slot, link_at(order))
}
