//! The ordered indexes: records by height, exact after every operation.
//!
//! Each index is a tree from the heights that occur to a ring of the records that have it, linked through their heads in the
//! order in which they came. Entering and leaving touches the record, its neighbours and the tree's leaf: the cost does not
//! depend on how many records there are.
//!
//! ```text
//! the first slot: 0 records u64  8 extra pages u64  16 four lines, one an index: root u32, reserved u32, records u64
//! ```

use super::record::{Link, at, encode_link};
use super::tree::{self, MOST_NODES, NODE};
use crate::memory::GrowError;
use crate::slots::{FIRST_SLOT, SlotId, Slots};

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
const ROOT: u32 = 80;

/// The store's counters and the roots of its indexes, mirrored on the heap and written through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Master records.
    pub records: u64,
    /// Pages behind them.
    pub pages: u64,
    trees: [tree::Root; ORDERS],
    counts: [u64; ORDERS],
}

fn line(order: Order) -> u32 {
    16 + 16 * order as u32
}

const fn link_at(order: Order) -> u32 {
    at::LINKS + 12 * order as u32
}

fn read_link(slots: &Slots, slot: SlotId, order: Order) -> Link {
    let bytes: [u8; 12] = slots.read(slot, link_at(order));
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Link { key: word(0), previous: word(4), next: word(8) }
}

fn write_link(slots: &mut Slots, slot: SlotId, order: Order, link: Link) {
    slots.write(slot, link_at(order), &encode_link(link));
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
        for order in 0..ORDERS {
            root.trees[order] = long(16 + 16 * order) as u32;
            root.counts[order] = long(24 + 16 * order);
        }
        root
    }

    /// Writes the number of records and pages.
    pub fn save_counts(&self, slots: &mut Slots) {
        let both = u128::from(self.records) | u128::from(self.pages) << 64;
        slots.write(FIRST_SLOT, 0, &both.to_le_bytes());
    }

    fn save(&self, slots: &mut Slots, order: Order) {
        let both = u128::from(self.trees[order as usize]) | u128::from(self.counts[order as usize]) << 64;
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
        let missing = |&(order, key): &(Order, u32)| tree::missing_nodes(slots, self.trees[order as usize], key);
        let nodes = entering.iter().map(missing).sum();
        slots.reserve(&[wanted, &[(NODE, nodes)]].concat())
    }

    /// Records of an index.
    pub fn count(&self, order: Order) -> u64 {
        self.counts[order as usize]
    }

    /// Puts a record under a key, takes it to another one, or out: whatever its link says now becomes `key`. Memory is
    /// [reserved](Self::reserve).
    #[inline]
    pub fn set(&mut self, slots: &mut Slots, order: Order, slot: SlotId, now: Link, key: Option<u32>) {
        let there = (now.next != 0).then_some(now.key);
        if there == key {
            return;
        }
        if there.is_some() {
            self.leave(slots, order, slot, now, key.is_none());
        }
        if let Some(key) = key {
            self.enter(slots, order, slot, key);
        }
    }

    fn enter(&mut self, slots: &mut Slots, order: Order, slot: SlotId, key: u32) {
        let index = order as usize;
        let first = tree::get(slots, self.trees[index], key);
        if first == 0 {
            write_link(slots, slot, order, Link { key, previous: slot, next: slot });
            if let Err(error) = tree::insert(slots, &mut self.trees[index], key, slot) {
                crate::runtime::trap(&format!("ordered index: memory was not reserved: {error:?}"));
            }
        } else {
            let last = slots.read_u32(first, link_at(order) + 4);
            write_link(slots, slot, order, Link { key, previous: last, next: first });
            slots.write_u32(last, link_at(order) + 8, slot);
            slots.write_u32(first, link_at(order) + 4, slot);
        }
        self.counts[index] += 1;
        self.save(slots, order);
    }

    fn leave(&mut self, slots: &mut Slots, order: Order, slot: SlotId, link: Link, clear: bool) {
        let index = order as usize;
        if link.next == slot {
            tree::remove(slots, &mut self.trees[index], link.key);
        } else {
            slots.write_u32(link.previous, link_at(order) + 8, link.next);
            slots.write_u32(link.next, link_at(order) + 4, link.previous);
            if tree::get(slots, self.trees[index], link.key) == slot {
                tree::replace(slots, self.trees[index], link.key, link.next);
            }
        }
        if clear {
            write_link(slots, slot, order, Link::default());
        }
        self.counts[index] -= 1;
        self.save(slots, order);
    }

    /// The smallest key that is `from` or greater.
    pub fn next_key(&self, slots: &Slots, order: Order, from: u32) -> Option<u32> {
        tree::next(slots, self.trees[order as usize], from).map(|(key, _)| key)
    }

    /// The records under a key, in the order in which they came.
    pub fn under<'a>(&self, slots: &'a Slots, order: Order, key: u32) -> impl Iterator<Item = SlotId> + use<'a> {
        let first = tree::get(slots, self.trees[order as usize], key);
        let mut next = first;
        std::iter::from_fn(move || {
            let slot = next;
            if slot == 0 {
                return None;
            }
            next = read_link(slots, slot, order).next;
            if next == first {
                next = 0;
            }
            Some(slot)
        })
    }
}
