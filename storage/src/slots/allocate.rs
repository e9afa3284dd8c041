//! Allocating and freeing slots, and reserving memory for them.

use super::chunk::{FREE, Line, USED, slot_at};
use super::class::{CLASSES, HEAD, LARGE, SIZES, class_for, granules_for, granules_of, slots_of};
use super::id::id_of;
use super::reserved::Reserved;
use super::{SlotId, Slots};
use crate::arena::GRANULE;
use crate::{GrowError, OS_PAGE, Platform};

impl<P: Platform> Slots<P> {
    /// Allocates a slot for `len` bytes, at most [`MAX_LEN`](super::MAX_LEN). Its bytes are not cleared.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed. `OutOfSpace` also if `len` is too large. A reserved slot is refused only after damage.
    pub fn allocate(&mut self, len: u32) -> Result<SlotId, GrowError> {
        let Some(class) = class_for(len) else { return self.allocate_large(len) };
        let (granule, mut line, index) = loop {
            let (granule, mut line) = match self.first_chunk(class) {
                Some(found) => found,
                None => self.take_chunk(class)?,
            };
            if let Some(index) = self.next_slot(class, granule, &mut line) {
                break (granule, line, index);
            }
            // Only after damage: the chunk has no slot that can be used.
            self.unlink(class, granule, &mut line);
            self.set_line(granule, &line);
        };
        line.used += 1;
        if !line.has_room(class) {
            self.unlink(class, granule, &mut line);
        }
        self.set_line(granule, &line);
        self.header.lists[class].used += 1;
        self.header.save_list(&self.space, class);
        let promised = &self.promised[class];
        promised.set(promised.get().saturating_sub(1));
        let at = slot_at(class, granule, index);
        self.put(at, &[class as u8, USED, 0, 0]);
        Ok(id_of(at))
    }

    /// Allocates a slot with granules of its own.
    #[cold]
    fn allocate_large(&mut self, len: u32) -> Result<SlotId, GrowError> {
        let granules = granules_for(len).ok_or(GrowError::OutOfSpace)?;
        let granule = self.take(LARGE, granules)?;
        self.set_line(granule, &Line::of_large(granules));
        let list = &mut self.header.lists[LARGE];
        list.used += 1;
        list.chunks += granules as u32;
        self.header.save_list(&self.space, LARGE);
        let at = granule.wrapping_mul(GRANULE);
        self.put(at, &[LARGE as u8, USED, 0, 0]);
        Ok(id_of(at))
    }

    /// Frees a slot.
    ///
    /// # Panics
    /// Traps if the slot is not in use.
    pub fn free(&mut self, slot: SlotId) {
        let (place, mut line) = self.found(slot);
        let (class, granule) = (place.class, place.granule);
        self.header.lists[class].used -= 1;
        if class == LARGE {
            return self.free_large(granule);
        }
        line.used = line.used.saturating_sub(1);
        if line.used == 0 {
            match &mut self.journal {
                None => return self.give_chunk(class, granule, line),
                Some(journal) => journal.emptied.push(granule),
            }
        }
        let next = u32::from(line.free).to_le_bytes();
        let at = slot_at(class, granule, place.index);
        self.put(at, &[class as u8, FREE, 0, 0, next[0], next[1], next[2], next[3]]);
        if !line.has_room(class) {
            self.link(class, granule, &mut line);
        }
        line.free = place.index as u16 + 1;
        self.set_line(granule, &line);
        self.header.save_list(&self.space, class);
    }

    #[cold]
    fn free_large(&mut self, granule: u64) {
        if let Some(journal) = &mut self.journal {
            // An undo needs its bytes.
            journal.emptied.push(granule);
            self.put(granule * GRANULE, &[LARGE as u8, FREE]);
            self.header.save_list(&self.space, LARGE);
        } else {
            self.give_large(granule);
        }
    }

    fn give_large(&mut self, granule: u64) {
        let granules = self.line(granule).begun;
        let chunks = &mut self.header.lists[LARGE].chunks;
        *chunks = chunks.saturating_sub(granules.into());
        self.header.save_list(&self.space, LARGE);
        self.give(granule, granules.into());
    }

    /// Gives back granules that were emptied in a journal, unless they are in use again.
    pub(super) fn give_emptied(&mut self, granule: u64) {
        match self.kind(granule).map(|class| (class, self.line(granule))) {
            Some((LARGE, _)) => self.give_large(granule),
            Some((class, line)) if line.used == 0 => self.give_chunk(class, granule, line),
            // It is in use again, or was emptied twice.
            _ => {}
        }
    }

    /// Reserves memory so that these slots can be allocated, in place of what was reserved before; `wanted` lists pairs of bytes and count.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed, except that nothing is reserved. `OutOfSpace` also if one of the slots is too large.
    #[inline]
    pub fn reserve(&self, wanted: &[(u32, u32)]) -> Result<(), GrowError> {
        // A batch promises the same for each of its items, and most of them allocate nothing.
        if let &[(len, count)] = wanted
            && let Some(class) = class_for(len)
            && self.has_promised.get() == 1 << class
            && self.promised[class].get() == count
            && self.reserved.get().is_nothing()
        {
            self.promised_at.set(self.arena.ended_reservations());
            return Ok(());
        }
        self.reserve_each(wanted.iter().copied())
    }

    /// Reserves memory for these slots, pairs of bytes and count.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[inline]
    pub fn reserve_each(&self, wanted: impl Iterator<Item = (u32, u32)> + Clone) -> Result<(), GrowError> {
        self.promise_nothing();
        self.promised_at.set(self.arena.ended_reservations());
        if self.reserved.get().is_nothing() && wanted.clone().all(|(len, count)| self.promise(len, count)) {
            return Ok(());
        }
        self.promise_nothing();
        self.reserve_all(&wanted.collect::<Vec<_>>())
    }

    #[inline]
    pub(super) fn promise_nothing(&self) {
        let mut before = self.has_promised.replace(0);
        while before != 0 {
            self.promised[before.trailing_zeros() as usize].set(0);
            before &= before.wrapping_sub(1);
        }
    }

    /// Promises slots if the chunks of their class have room, and nothing else of the class is promised: the usual case.
    #[inline]
    fn promise(&self, len: u32, count: u32) -> bool {
        let Some(class) = class_for(len) else { return false };
        let bit = 1 << class;
        let has_room =
            self.has_promised.get() & bit == 0 && self.header.room(class).is_some_and(|room| u64::from(count) <= room);
        if has_room {
            self.has_promised.set(self.has_promised.get() | bit);
            self.promised[class].set(count);
        }
        has_room
    }

    #[inline(never)]
    fn reserve_all(&self, wanted: &[(u32, u32)]) -> Result<(), GrowError> {
        let (mut classes, mut large) = (0_u64, Vec::new());
        for &(len, count) in wanted.iter().filter(|(_, count)| *count > 0) {
            match class_for(len) {
                Some(class) => {
                    classes |= 1 << class;
                    self.promised[class].set(self.promised[class].get().saturating_add(count));
                }
                None => large.push((granules_for(len).ok_or(GrowError::OutOfSpace)?, u64::from(count))),
            }
        }
        self.has_promised.set(classes);
        let mut wanted = Reserved { other: !large.is_empty(), ..Reserved::default() };
        while classes != 0 {
            let class = classes.trailing_zeros() as usize;
            classes &= classes.wrapping_sub(1);
            let count = self.promised[class].get();
            let room = self.header.room(class).unwrap_or(0);
            if u64::from(count) > room {
                let chunks = if granules_of(class) == 1 { &mut wanted.narrow } else { &mut wanted.wide };
                *chunks = chunks.wrapping_add((count - room as u32).div_ceil(slots_of(class)));
            }
        }
        let before = self.reserved.get();
        if wanted.is_nothing() && before.is_nothing() {
            return Ok(());
        }
        wanted.at = self.arena.ended_reservations();
        if wanted.other || wanted != before { self.reserve_chunks(wanted, large) } else { Ok(()) }
    }

    #[cold]
    fn reserve_chunks(&self, wanted: Reserved, mut chunks: Vec<(u64, u64)>) -> Result<(), GrowError> {
        self.reserved.set(Reserved { other: true, ..Reserved::default() });
        chunks.push((granules_of(0), wanted.narrow.into()));
        chunks.push((granules_of(CLASSES - 1), wanted.wide.into()));
        self.arena.reserve(self.owner, &chunks)?;
        self.reserved.set(wanted);
        Ok(())
    }

    /// Returns an upper bound of the pages of 4 KiB that these slots would touch if they were allocated now; `wanted` lists pairs of bytes
    /// and count. Free slots lie anywhere in their chunks, and slots of new chunks side by side.
    pub fn pages_of(&self, wanted: &[(u32, u32)]) -> u64 {
        let pages = |&(len, count): &(u32, u32)| {
            // Products of two 32-bit numbers do not overflow.
            let (bytes, count) = (u64::from(len) + u64::from(HEAD), u64::from(count));
            let Some(class) = class_for(len) else { return count.wrapping_mul(bytes.div_ceil(OS_PAGE)) };
            let free = count.min(self.header.room(class).unwrap_or(0));
            let chunks = u64::from(self.header.lists[class].chunks)
                .wrapping_mul(granules_of(class).wrapping_mul(GRANULE / OS_PAGE));
            let scattered = free.wrapping_mul(bytes.div_ceil(OS_PAGE) + 1).min(chunks);
            let new = count - free;
            let side_by_side = new.wrapping_mul(u64::from(SIZES[class])).div_ceil(OS_PAGE);
            scattered + side_by_side + new.div_ceil(slots_of(class).into())
        };
        wanted.iter().map(pages).fold(0, u64::saturating_add)
    }
}
