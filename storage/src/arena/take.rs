//! Reserves and takes slots.

use super::class::{BLOCK_GRANULES, Class, GRANULE, MAX_GRANULES, Owner, Side};
use super::demand::{Demand, left, missing};
use super::granules::{Entry, Slot, SlotState};
use super::sets::{Line, SetId};
use super::{Arena, State, extent};
use crate::{GrowError, Growth, OS_PAGE, Platform};

/// A part of a granule of zeros.
static ZEROS: [u8; OS_PAGE as usize] = [0; OS_PAGE as usize];

/// A free slot, and the word of its side's index whose lowest bit it is, or 0.
#[derive(Clone, Copy)]
struct Lowest {
    class: Class,
    granule: u64,
    word: u64,
}

impl<P: Platform> Arena<P> {
    /// Reserves slots for an owner, in place of what the owner reserved before; `wanted` lists numbers of granules, 1 to 64, and counts of
    /// slots.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed, except that the owner has nothing reserved.
    pub fn reserve(&self, owner: Owner, wanted: &[(u64, u64)]) -> Result<(), GrowError> {
        self.change(|state, growth| state.reserve(growth, owner, wanted))
    }

    /// Reserves a slot of a class in addition, for an owner that has just given one back, so that there is one.
    pub fn reserve_given(&self, owner: Owner, class: Class) {
        self.change(|state, _| {
            let side = state.limits.side(owner, class).index();
            state.reserving |= 1 << owner.index();
            state.reserved[owner.index()][class.index()] += 1;
            state.wanted[side][class.index()] += 1;
            state.outstanding += 1;
        });
    }

    /// Ends all reservations, as the message does.
    pub fn end_reservations(&self) {
        self.change(|state, _| {
            state.ended += 1;
            while state.reserving != 0 {
                state.reserved[state.reserving.trailing_zeros() as usize] = Demand::default();
                state.reserving &= state.reserving - 1;
            }
            if state.outstanding > 0 {
                state.wanted = Default::default();
                state.outstanding = 0;
            }
        });
    }

    /// Returns how often reservations have ended since the arena was opened.
    #[inline]
    pub fn ended_reservations(&self) -> u64 {
        self.with(|state| state.ended)
    }

    /// Takes a slot of a class for a blob of `len` bytes.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed. A reserved slot is refused only after damage.
    #[inline]
    pub fn take(&self, owner: Owner, class: Class, len: u32) -> Result<Slot, GrowError> {
        let entry = Entry { len, state: SlotState::Used, class, owner, ..Entry::NEW };
        self.change(|state, growth| state.take(growth, entry))
    }

    /// Takes granules for a store other than the blobs: 1 to 64, and 1 for 0. A slot of the smallest class that has as many is taken, and
    /// those beyond are split off and free again. More than 64 are `OutOfSpace`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_granules(&self, owner: Owner, granules: u64) -> Result<u64, GrowError> {
        let granules = granules.max(1);
        let class = Class::for_granules(granules).ok_or(GrowError::OutOfSpace)?;
        let len = (granules * GRANULE) as u32;
        let entry = Entry { len, state: SlotState::Taken, class, owner, ..Entry::NEW };
        self.change(|state, growth| state.take(growth, entry)).map(|slot| slot.granule)
    }

    /// Takes a granule whose bytes are zero.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_zeros(&self, owner: Owner) -> Result<u64, GrowError> {
        let fresh = self.with(|state| state.fresh);
        let granule = self.take_granules(owner, 1)?;
        if granule < fresh {
            let pages = granule * GRANULE..(granule + 1) * GRANULE;
            pages.step_by(ZEROS.len()).for_each(|at| self.payload().write(at, &ZEROS));
        }
        Ok(granule)
    }
}

impl<P: Platform> State<P> {
    #[inline]
    fn reserve(&mut self, growth: &Growth<P>, owner: Owner, wanted: &[(u64, u64)]) -> Result<(), GrowError> {
        let nothing = wanted.iter().all(|(_, count)| *count == 0);
        // The usual case: what is there suffices.
        if nothing && self.outstanding == 0 {
            return Ok(());
        }
        if self.reserving & 1 << owner.index() != 0 {
            self.give_up(owner);
        }
        if nothing {
            return Ok(());
        }
        let (mut demand, mut whole) = (Demand::default(), 0);
        for &(granules, count) in wanted {
            let class = Class::for_granules(granules).ok_or(GrowError::OutOfSpace)?;
            demand[class.index()] += count;
            whole += self.whole(owner, granules).saturating_mul(count);
        }
        self.admit(growth, owner, &demand, whole)?;
        self.reserved[owner.index()] = demand;
        self.reserving |= 1 << owner.index();
        self.limits.each(owner, &mut self.wanted, &demand, |all, more| *all += more);
        self.outstanding += demand.iter().sum::<u64>();
        Ok(())
    }

    #[inline(never)]
    fn give_up(&mut self, owner: Owner) {
        self.reserving &= !(1 << owner.index());
        let before = std::mem::take(&mut self.reserved[owner.index()]);
        self.limits.each(owner, &mut self.wanted, &before, |all, less| *all -= less);
        self.outstanding -= before.iter().sum::<u64>();
    }

    /// Granules of the whole units that a slot takes in which a counted owner keeps `granules`; 0 if it is smaller than a unit.
    #[inline]
    fn whole(&self, owner: Owner, granules: u64) -> u64 {
        let unit = self.limits.unit.granules();
        if self.limits.counts(owner) && granules > unit / 2 { granules.next_multiple_of(unit) } else { 0 }
    }

    /// The slots that must be free on the shared side to serve all that is wanted, and `demand` of a counted owner, of which `whole` granules
    /// are whole units; `None` if the owner touches no other unit for it, which is never refused.
    ///
    /// # Errors
    /// `QuotaFull`.
    #[inline(never)]
    fn admit_counted(&self, owner: Owner, demand: &Demand, whole: u64) -> Result<Option<Demand>, GrowError> {
        let mut wanted = self.wanted;
        self.limits.each(owner, &mut wanted, demand, |all, more| *all += more);
        let all = self.limits.shared(&self.counters, &wanted);
        if all == self.limits.shared(&self.counters, &self.wanted) {
            return Ok(None);
        }
        // Counted owners touch the units of `wanted` on their side, the whole units of all that is reserved, and `whole` granules more.
        let pieces = self.limits.new_units(&self.counters, &wanted[Side::Counted.index()]);
        let unit = self.limits.unit;
        let wholes = |demand: &Demand| {
            Class::all().skip(unit.index()).map(|class| demand[class.index()] << class.index()).sum::<u64>()
        };
        let reserved: u64 = self.limits.counted().map(|owner| wholes(&self.reserved[owner.index()])).sum();
        let granules = reserved.saturating_add(whole).saturating_add(pieces * unit.granules());
        let touched = self.limits.touched_bytes(&self.counters).saturating_add(granules.saturating_mul(GRANULE));
        if touched > self.limits.most() { Err(GrowError::QuotaFull { limit: self.limits.cap }) } else { Ok(Some(all)) }
    }

    /// Checks the limits, and grows memory, so that `demand` can be served in addition to all reservations; `whole` granules of it are
    /// whole units.
    #[inline]
    fn admit(&mut self, growth: &Growth<P>, owner: Owner, demand: &Demand, whole: u64) -> Result<(), GrowError> {
        let all = if self.limits.counts(owner) {
            let Some(all) = self.admit_counted(owner, demand, whole)? else { return Ok(()) };
            all
        } else {
            let mut all = self.limits.shared(&self.counters, &self.wanted);
            all.iter_mut().zip(demand).for_each(|(all, more)| *all += more);
            all
        };
        let free = self.counters.free(Side::Shared);
        let (class, kept) = self.limits.reserve();
        if kept > 0 {
            let available = left(free, &all, class);
            if available < kept as i64 && available + (self.growable(growth, class) as i64) < kept as i64 {
                return Err(GrowError::OutOfSpace);
            }
        }
        match missing(free, &all, Class::LARGEST) {
            0 => Ok(()),
            blocks => self.grow(growth, blocks, &all),
        }
    }

    /// Slots of a class that the arena gets if it grows up to the cap on raw pages.
    pub(super) fn growable(&self, growth: &Growth<P>, class: Class) -> u64 {
        let end = extent::end_after(self.counters.end, &growth.strays());
        extent::slots(end, extent::last_end(growth.max_pages()).max(end), class)
    }

    /// Moves the arena's end so that `wanted` can be served, which takes `blocks` blocks, or fewer smaller slots, or more blocks if an
    /// extent begins among them.
    #[cold]
    fn grow(&mut self, growth: &Growth<P>, blocks: u64, wanted: &Demand) -> Result<(), GrowError> {
        if blocks > MAX_GRANULES / BLOCK_GRANULES {
            return Err(GrowError::OutOfSpace);
        }
        self.pass_strays(growth);
        let blocks = missing(self.counters.free(Side::Shared), wanted, Class::LARGEST);
        if blocks == 0 {
            return Ok(());
        }
        let end = self.counters.end;
        // An extent's front is there from its first block on.
        let line = if end.is_multiple_of(BLOCK_GRANULES) { Line::default() } else { self.shared().line(end) };
        let last = extent::last_end(growth.max_pages());
        let free = self.counters.free(Side::Shared);
        let serves = |to: &u64| missing(&extent::grown(free, &line, end, *to), wanted, Class::LARGEST) == 0;
        let first = extent::next_end(end + (blocks - 1) * BLOCK_GRANULES);
        let mut ends =
            std::iter::successors(Some(first), |to| Some(extent::next_end(*to))).take_while(|to| *to <= last);
        let to = ends.find(serves).ok_or(GrowError::OutOfSpace)?;
        growth.reserve(to)?;
        // Memory that was grown beyond need has slots, too.
        self.extend(to.max(extent::last_end(self.raw.pages()).min(last)));
        Ok(())
    }

    /// Adds all slots up to a new end, which raw memory has.
    pub(super) fn extend(&mut self, to: u64) {
        extent::pieces(self.counters.end, to)
            .for_each(|(granule, class)| self.free_piece(Side::Shared, granule, class, Entry::NEW));
        self.counters.set_end(self.raw, to);
        self.counters.save_free(self.raw, Side::Shared);
    }

    /// Takes a slot; `entry` is its entry without the generation.
    #[inline]
    fn take(&mut self, growth: &Growth<P>, entry: Entry) -> Result<Slot, GrowError> {
        let (owner, class) = (entry.owner, entry.class);
        let reserved = &mut self.reserved[owner.index()][class.index()];
        if *reserved > 0 {
            *reserved -= 1;
            let side = self.limits.side(owner, class);
            self.wanted[side.index()][class.index()] -= 1;
            self.outstanding -= 1;
        // If nothing is reserved and no limit applies, the owner may take any free slot.
        } else if self.outstanding > 0 || self.limits.counts(owner) || self.limits.reserve().1 > 0 {
            let mut one = Demand::default();
            one[class.index()] = 1;
            self.admit(growth, owner, &one, self.whole(owner, entry.granules()))?;
        }
        loop {
            match self.take_free(entry) {
                Some(Some(slot)) => return Ok(slot),
                // Only after damage: a slot was written off, and after the last one there may be none.
                Some(None) => {}
                None => {
                    let mut one = self.wanted;
                    one[self.limits.side(owner, class).index()][class.index()] += 1;
                    self.grow(growth, 1, &self.limits.shared(&self.counters, &one))?;
                }
            }
        }
    }

    /// Takes a free slot if there is one; nothing of it is taken if it had to be written off.
    #[inline(always)]
    fn take_free(&mut self, entry: Entry) -> Option<Option<Slot>> {
        if self.limits.counts(entry.owner) {
            return self.take_counted(entry);
        }
        let lowest = self.lowest(Side::Shared, entry.class.index()..Class::COUNT)?;
        Some(self.take_from(Side::Shared, lowest, entry, Side::Shared))
    }

    /// Takes a slot for a counted owner: a piece of a unit that is touched, if it is smaller than a unit and there is one, else a unit or more.
    #[inline(never)]
    fn take_counted(&mut self, entry: Entry) -> Option<Option<Slot>> {
        let (class, unit) = (entry.class.index(), self.limits.unit.index());
        if let Some(lowest) = self.lowest(Side::Counted, class..unit) {
            return Some(self.take_from(Side::Counted, lowest, entry, Side::Counted));
        }
        let lowest = self.lowest(Side::Shared, class.max(unit)..Class::COUNT)?;
        Some(self.take_from(Side::Shared, lowest, entry, Side::Counted))
    }

    /// The lowest free slot of a side, of the smallest class that has one.
    #[inline(always)]
    fn lowest(&mut self, side: Side, classes: std::ops::Range<usize>) -> Option<Lowest> {
        for at in classes {
            if self.counters.free(side)[at] == 0 {
                continue;
            }
            let Some(class) = Class::from_index(at as u8) else { continue };
            if let Some((granule, word)) = self.sets[side.index()].first(SetId::free(class)) {
                return Some(Lowest { class, granule, word });
            }
            // Only after damage: the index does not have what the counter has.
            self.counters.lose_free(self.raw, side, class);
        }
        None
    }

    /// Takes a free slot of a side, and frees the granules beyond those of `entry`, on the side `of` the owner. A slot whose entry contradicts
    /// the index is written off, so that it does not block later allocations; then nothing is taken.
    #[inline(always)]
    fn take_from(&mut self, side: Side, lowest: Lowest, entry: Entry, of: Side) -> Option<Slot> {
        let Lowest { class: from, granule, .. } = lowest;
        let slot = match Entry::read(self.raw, granule) {
            Ok(found) if found.state == SlotState::Free && found.class == from && found.generation < u32::MAX => found,
            _ => {
                self.remove(side, lowest);
                self.counters.add_free(side, from, -1);
                self.counters.save_free(self.raw, side);
                self.counters.lose(self.raw, from);
                return None;
            }
        };
        let generation = slot.generation + 1;
        Entry { generation, ..entry }.write(self.raw, granule);
        let need = entry.granules();
        if need == from.granules() {
            self.remove(side, lowest);
        } else if side == of {
            self.free_beyond(side, granule, from, granule + need);
        } else {
            self.split_units(granule, from, granule + need);
        }
        self.counters.add_free(side, from, -1);
        self.counters.save_free(self.raw, side);
        if side != of {
            self.counters.save_free(self.raw, of);
        }
        self.counters.change_kept(self.raw, entry.owner, need as i32);
        self.fresh = self.fresh.max(granule + need);
        Some(Slot { granule, generation })
    }

    #[inline(always)]
    fn remove(&mut self, side: Side, Lowest { class, granule, word }: Lowest) {
        if word != 0 {
            self.sets[side.index()].set_word(SetId::free(class), granule, word, word & word.wrapping_sub(1));
        }
    }

    /// Removes the slot at `granule` from the index, and frees its granules from `end` on.
    #[inline(always)]
    fn free_beyond(&mut self, side: Side, granule: u64, class: Class, end: u64) {
        let before = self.sets[side.index()].line(granule);
        let mut line = before;
        line[SetId::free(class).index()] &= !(1 << (granule % 64));
        let (mut base, mut size) = (granule, class.granules());
        while end - base < size {
            size /= 2;
            let upper = base + size;
            if end <= upper {
                let class = Class::for_granules(size).unwrap_or(Class::SMALLEST);
                match Entry::read(self.raw, upper) {
                    Ok(piece) if piece.state == SlotState::Inside => {
                        piece.free(class).write(self.raw, upper);
                        line[SetId::free(class).index()] |= 1 << (upper % 64);
                        self.counters.add_free(side, class, 1);
                    }
                    _ => self.counters.lose(self.raw, class),
                }
            } else {
                base = upper;
            }
        }
        self.sets[side.index()].set_line(granule, &before, &line);
    }

    /// Does the same for a slot of a unit or more of which a counted owner takes the granules up to `end`: the pieces of its last unit are free
    /// on the counted side, whole units on the shared one.
    #[inline(never)]
    fn split_units(&mut self, granule: u64, class: Class, end: u64) {
        let unit = self.limits.unit;
        let whole = end.next_multiple_of(unit.granules());
        self.free_beyond(Side::Shared, granule, class, whole);
        if whole > end {
            self.free_beyond(Side::Counted, whole - unit.granules(), unit, end);
        }
    }
}
