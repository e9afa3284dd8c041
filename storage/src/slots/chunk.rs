//! Chunks: granules that the slots of one class share. The chunks of a class that have room are a list.
//!
//! ```text
//! line of a chunk's first granule, 16 bytes
//! ┌──────────┬───────┬──────────┬──────────┬──────────────┬──────────┬──────────┐
//! │ class u8 │ 0  u8 │ used u16 │ free u16 │ begun    u16 │ prev u32 │ next u32 │
//! └──────────┴───────┴──────────┴──────────┴──────────────┴──────────┴──────────┘
//! 0          1       2          4          6              8          12         16
//! used: slots in use    free: first free slot + 1    begun: slots that were ever used    prev, next: first granule + 1; 0 for none
//! ```
//! The line of a slot with granules of its own has the class [`LARGE`], their number in place of `begun`, and zeros.
//!
//! The first chunk of a list serves all allocations until it is full, so that slots that are created together lie together. A full chunk
//! that gets a free slot goes to the end, and has the longest time to become empty. An empty chunk goes back to the arena.

use super::Slots;
use super::class::{CLASSES, LARGE, SIZES, UNIT, chunk_of, granules_of, slots_of};
use super::reserved::Reserved;
use crate::arena::GRANULE;
use crate::bytes::{u16_at, u32_at};
use crate::{GrowError, Platform};

/// State of a slot in use, the second byte of its head.
pub const USED: u8 = 0xA5;
/// State of a free slot.
pub const FREE: u8 = 0x5A;

/// The line of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Class of its slots.
    pub class: u8,
    /// Slots in use.
    pub used: u16,
    /// The first free slot + 1; the others follow through their heads.
    pub free: u16,
    /// Slots that were ever used: the others lie behind them. In a line of [`LARGE`]: granules.
    pub begun: u16,
    prev: u32,
    next: u32,
}

impl Line {
    /// The line of a chunk without slots.
    pub fn new(class: usize) -> Self {
        Self { class: class as u8, ..Self::default() }
    }

    /// The line of a slot with so many granules of its own.
    pub fn of_large(granules: u64) -> Self {
        Self { begun: granules as u16, ..Self::new(LARGE) }
    }

    fn encode(&self) -> [u8; 16] {
        let mut line = [0; 16];
        line[0] = self.class;
        line[2..8].copy_from_slice([self.used, self.free, self.begun].map(u16::to_le_bytes).as_flattened());
        line[8..].copy_from_slice([self.prev, self.next].map(u32::to_le_bytes).as_flattened());
        line
    }

    fn decode(line: &[u8; 16]) -> Self {
        Self {
            class: line[0],
            used: u16_at(line, 2),
            free: u16_at(line, 4),
            begun: u16_at(line, 6),
            prev: u32_at(line, 8),
            next: u32_at(line, 12),
        }
    }

    /// Returns whether the chunk has a free slot, and so is in the list.
    #[inline]
    pub fn has_room(&self, class: usize) -> bool {
        self.free != 0 || u32::from(self.begun) < slots_of(class)
    }
}

/// Returns the offset of a chunk's slot.
#[inline]
pub fn slot_at(class: usize, granule: u64, index: u32) -> u64 {
    // An index is below 512, and checked products are calls of a hundred instructions.
    granule.wrapping_mul(GRANULE).wrapping_add(u64::from(index.wrapping_mul(SIZES[class])))
}

impl<P: Platform> Slots<P> {
    #[inline]
    pub(super) fn line(&self, granule: u64) -> Line {
        Line::decode(&self.arena.line(granule))
    }

    #[inline]
    pub(super) fn set_line(&mut self, granule: u64, line: &Line) {
        if let Some(journal) = &mut self.journal {
            journal.add_line(granule, self.arena.line(granule));
        }
        self.arena.set_line(granule, &line.encode());
    }

    /// Returns a chunk of a class with this name, if there is one.
    #[inline]
    fn chunk_named(&self, class: usize, name: u32) -> Option<(u64, Line)> {
        let granule = u64::from(name.checked_sub(1)?);
        let there = granule % granules_of(class) == 0 && self.kind(granule) == Some(class);
        there.then(|| (granule, self.line(granule)))
    }

    /// Returns the chunk that serves allocations of a class.
    #[inline]
    pub(super) fn first_chunk(&mut self, class: usize) -> Option<(u64, Line)> {
        let name = self.header.lists[class].first;
        if name == 0 {
            return None;
        }
        let found = self.chunk_named(class, name).filter(|(_, line)| line.has_room(class));
        if found.is_none() {
            // A damaged list is never followed: the free slots of its chunks stay unused, and a reservation may count on them.
            (self.header.lists[class].first, self.header.lists[class].last) = (0, 0);
        }
        found
    }

    /// Takes a chunk for a class whose list is empty.
    #[cold]
    pub(super) fn take_chunk(&mut self, class: usize) -> Result<(u64, Line), GrowError> {
        let granule = self.take(class, granules_of(class))?;
        let name = granule as u32 + 1;
        let list = &mut self.header.lists[class];
        (list.first, list.last) = (name, name);
        list.chunks += 1;
        Ok((granule, Line::new(class)))
    }

    /// Takes granules for a class.
    pub(super) fn take(&mut self, class: usize, granules: u64) -> Result<u64, GrowError> {
        let granule = self.arena.take_granules(self.owner, granules)?;
        if !self.reserved.get().is_nothing() {
            self.reserved.set(Reserved { other: true, ..Reserved::default() });
        }
        self.learn(granule, class);
        if let Some(journal) = &mut self.journal {
            journal.taken.push((granule, granules));
        }
        Ok(granule)
    }

    /// Gives granules back that were a chunk, or one slot.
    pub(super) fn give(&mut self, granule: u64, granules: u64) {
        self.forget(granule);
        self.arena.give_granules(self.owner, granule, granules);
    }

    /// Gives an empty chunk back.
    #[cold]
    pub(super) fn give_chunk(&mut self, class: usize, granule: u64, mut line: Line) {
        self.unlink(class, granule, &mut line);
        self.header.lists[class].chunks -= 1;
        self.header.save_list(&self.space, class);
        self.give(granule, granules_of(class));
        if self.promised_at.get() != self.arena.ended_reservations() {
            // The message that was promised slots has ended.
            self.promise_nothing();
        }
        // Its slots may be promised. The arena has room for them now, and keeps it.
        let promised = u64::from(self.promised[class].get());
        if self.header.room(class).is_none_or(|room| room < promised) {
            self.promised[class].set(promised.saturating_sub(slots_of(class).into()) as u32);
            self.reserved.set(Reserved { other: true, ..Reserved::default() });
            self.arena.reserve_given(self.owner, chunk_of(class));
        }
    }

    /// Takes a slot out of a chunk that has room, and returns its number; `None` if the free slots are damaged and there is no other.
    #[inline]
    pub(super) fn next_slot(&self, class: usize, granule: u64, line: &mut Line) -> Option<u32> {
        if let Some(index) = line.free.checked_sub(1) {
            let head: [u8; 8] = self.arena.payload().read(slot_at(class, granule, index.into()));
            let next = u32_at(&head, 4);
            if head[..2] == [class as u8, FREE] && index < line.begun && next <= u32::from(line.begun) {
                line.free = next as u16;
                return Some(index.into());
            }
            // A damaged list is never followed: its slots stay unused.
            line.free = 0;
        }
        let index = u32::from(line.begun);
        (index < slots_of(class)).then(|| {
            line.begun += 1;
            index
        })
    }

    /// Puts a chunk that has room again at the end of its list. The caller writes its line and the list.
    pub(super) fn link(&mut self, class: usize, granule: u64, line: &mut Line) {
        let name = granule as u32 + 1;
        let last = self.header.lists[class].last;
        (line.prev, line.next) = (0, 0);
        match self.chunk_named(class, last) {
            Some((before, mut of)) => {
                line.prev = last;
                of.next = name;
                self.set_line(before, &of);
            }
            None => self.header.lists[class].first = name,
        }
        self.header.lists[class].last = name;
    }

    /// Takes a chunk out of its list. The caller writes its line and the list. A neighbour that contradicts the chunk stays as it is.
    pub(super) fn unlink(&mut self, class: usize, granule: u64, line: &mut Line) {
        let name = granule as u32 + 1;
        if self.header.lists[class].first == name {
            self.header.lists[class].first = line.next;
        } else if let Some((before, mut of)) = self.chunk_named(class, line.prev)
            && of.next == name
        {
            of.next = line.next;
            self.set_line(before, &of);
        }
        if self.header.lists[class].last == name {
            self.header.lists[class].last = line.prev;
        } else if let Some((after, mut of)) = self.chunk_named(class, line.next)
            && of.prev == name
        {
            of.prev = line.prev;
            self.set_line(after, &of);
        }
        (line.prev, line.next) = (0, 0);
    }
}

const _: () = assert!(LARGE == CLASSES && LARGE < 255 && GRANULE / UNIT <= 512);
