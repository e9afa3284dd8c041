//! Reserving and taking state.

use super::class::{BLOCK_GRANULES, Class, GRANULE, MAX_GRANULES, Owner};
use super::demand::{Demand, left, missing_blocks};
use super::extent;
use super::granules::{Entry, SlotState};
use super::sets::{Line, SetId};
use super::{Arena, State};
use crate::{GrowError, Growth, Platform};

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its first granule.
    pub granule: u64,
    /// Its generation, above the earlier ones of its first granule.
    pub generation: u32,
}

impl<P: Platform> Arena<P> {
    /// Reserves slots for an owner, in place of what the owner reserved before; `wanted` lists classes and counts.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed, except that the owner has nothing reserved.
    pub fn reserve(&self, owner: Owner, wanted: &[(Class, u64)]) -> Result<(), GrowError> {
        self.reserve_parts(owner, wanted, 0)
    }

    /// Reserves slots of which the owner will keep all but `spare` granules.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_parts(&self, owner: Owner, wanted: &[(Class, u64)], spare: u64) -> Result<(), GrowError> {
        self.change(|state, growth| state.reserve(growth, owner, wanted, spare))
    }

    /// Reserves a slot of a class in addition, for an owner that has just given one back, so that there is one.
    pub fn reserve_given(&self, owner: Owner, class: Class) {
        self.change(|state, _| {
            state.reserved[owner.index()][class.index()] += 1;
            state.wanted[class.index()] += 1;
            state.outstanding += 1;
        });
    }

    /// Ends all reservations, as the message does.
    pub fn end_reservations(&self) {
        self.change(|state, _| {
            state.ended += 1;
            if state.outstanding > 0 {
                state.reserved = Default::default();
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
        let entry = Entry { generation: 0, len, state: SlotState::Used, class, owner };
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
        let entry = Entry { generation: 0, len, state: SlotState::Taken, class, owner };
        self.change(|state, growth| state.take(growth, entry)).map(|slot| slot.granule)
    }
}

impl<P: Platform> State<P> {
    fn reserve(
        &mut self,
        growth: &Growth<P>,
        owner: Owner,
        wanted: &[(Class, u64)],
        spare: u64,
    ) -> Result<(), GrowError> {
        let nothing = wanted.iter().all(|(_, count)| *count == 0);
        // The usual case: what is there suffices.
        if nothing && self.outstanding == 0 {
            return Ok(());
        }
        self.unreserve(owner);
        if nothing {
            return Ok(());
        }
        let mut demand = Demand::default();
        wanted.iter().for_each(|&(class, count)| demand[class.index()] += count);
        self.admit(growth, owner, &demand, spare)?;
        self.reserved[owner.index()] = demand;
        self.wanted.iter_mut().zip(demand).for_each(|(all, more)| *all += more);
        self.outstanding += demand.iter().sum::<u64>();
        Ok(())
    }

    fn unreserve(&mut self, owner: Owner) {
        let before = std::mem::take(&mut self.reserved[owner.index()]);
        self.wanted.iter_mut().zip(before).for_each(|(all, less)| *all -= less);
        self.outstanding -= before.iter().sum::<u64>();
    }

    /// Returns whether an owner may take any free slot: nothing is reserved, and no limit applies.
    #[inline]
    fn is_unlimited(&self, owner: Owner) -> bool {
        self.outstanding == 0 && !self.limits.counts(owner) && self.limits.reserve().1 == 0
    }

    /// Bytes that counted owners have reserved.
    pub(super) fn counted_reserved(&self) -> u64 {
        if self.outstanding == 0 {
            return 0;
        }
        let counted = Owner::all().filter(|&owner| self.limits.counts(owner));
        counted.map(|owner| bytes(&self.reserved[owner.index()])).sum()
    }

    /// Checks the limits, and grows memory, so that `demand` can be served in addition to all reservations; `spare` granules of it will be
    /// split off.
    #[inline]
    fn admit(&mut self, growth: &Growth<P>, owner: Owner, demand: &Demand, spare: u64) -> Result<(), GrowError> {
        let limits = &self.limits;
        if limits.counts(owner) {
            limits.check_quota(&self.counters, self.counted_reserved(), bytes(demand) - (spare << GRANULE.ilog2()))?;
        }
        let mut all = self.wanted;
        all.iter_mut().zip(demand).for_each(|(all, more)| *all += more);
        let (class, kept) = limits.reserve();
        if kept > 0 {
            let available = left(self.counters.all_free(), &all, class);
            if available < kept as i64 && available + (self.growable(growth, class) as i64) < kept as i64 {
                return Err(GrowError::OutOfSpace);
            }
        }
        match missing_blocks(self.counters.all_free(), &all) {
            0 => Ok(()),
            blocks => self.grow(growth, blocks, &all),
        }
    }

    /// Slots of a class that the arena gets if it grows up to the cap on raw pages.
    pub(super) fn growable(&self, growth: &Growth<P>, class: Class) -> u64 {
        let end = self.counters.end();
        extent::slots(end, extent::last_end(growth.max_pages()).max(end), class)
    }

    /// Moves the arena's end so that `wanted` can be served, which takes `blocks` blocks, or fewer smaller slots, or more blocks if an
    /// extent begins among them.
    #[cold]
    fn grow(&mut self, growth: &Growth<P>, blocks: u64, wanted: &Demand) -> Result<(), GrowError> {
        if blocks > MAX_GRANULES / BLOCK_GRANULES {
            return Err(GrowError::OutOfSpace);
        }
        let end = self.counters.end();
        // An extent's front is there from its first block on.
        let line = if end.is_multiple_of(BLOCK_GRANULES) { Line::default() } else { self.sets.line(end) };
        let last = extent::last_end(growth.max_pages());
        let mut to = end + (blocks - 1) * BLOCK_GRANULES;
        loop {
            to = extent::next_end(to);
            if to > last {
                return Err(GrowError::OutOfSpace);
            }
            if missing_blocks(&extent::grown(self.counters.all_free(), &line, end, to), wanted) == 0 {
                break;
            }
        }
        growth.reserve(to)?;
        // Memory that was grown beyond need has slots, too.
        self.extend(to.max(extent::last_end(self.raw.pages()).min(last)));
        Ok(())
    }

    /// Adds all slots up to a new end, which raw memory has.
    pub(super) fn extend(&mut self, to: u64) {
        let new = Entry { generation: 0, len: 0, state: SlotState::Free, class: Class::LARGEST, owner: Owner::new(0) };
        extent::pieces(self.counters.end(), to).for_each(|(granule, class)| self.free_piece(granule, class, new));
        self.counters.set_end(self.raw, to);
        self.counters.save_free(self.raw);
    }

    /// Takes a slot; `entry` is its entry without the generation.
    #[inline]
    fn take(&mut self, growth: &Growth<P>, entry: Entry) -> Result<Slot, GrowError> {
        let (owner, class) = (entry.owner, entry.class);
        let reserved = &mut self.reserved[owner.index()][class.index()];
        if *reserved > 0 {
            *reserved -= 1;
            self.wanted[class.index()] -= 1;
            self.outstanding -= 1;
        } else if !self.is_unlimited(owner) {
            let mut one = Demand::default();
            one[class.index()] = 1;
            self.admit(growth, owner, &one, class.granules() - entry.granules())?;
        }
        loop {
            if let Some((from, granule, word)) = self.lowest(class) {
                if let Some(slot) = self.take_from(from, granule, entry, word) {
                    return Ok(slot);
                }
            } else {
                // Only after damage, when slots were written off.
                let mut one = self.wanted;
                one[class.index()] += 1;
                self.grow(growth, 1, &one)?;
            }
        }
    }

    /// The lowest free slot of the smallest class from `class` on that has one, and the word of the index that has it.
    #[inline]
    fn lowest(&mut self, class: Class) -> Option<(Class, u64, u64)> {
        for at in class.index()..Class::COUNT {
            let Some(from) = Class::from_index(at as u8).filter(|from| self.counters.free(*from) > 0) else { continue };
            if let Some((granule, word)) = self.sets.first(SetId::free(from)) {
                return Some((from, granule, word));
            }
        }
        None
    }

    /// Takes the slot of class `from` at `granule`, the lowest of `word` in the index, or none there if that is 0, and frees the granules
    /// beyond those of `entry`. A slot whose entry contradicts the index is written off, so that it does not block later allocations; then
    /// nothing is taken.
    #[inline]
    fn take_from(&mut self, from: Class, granule: u64, entry: Entry, word: u64) -> Option<Slot> {
        let found = self.granules.get(granule);
        let slot = match found {
            Ok(found) if found.state == SlotState::Free && found.class == from && found.generation < u32::MAX => found,
            _ => {
                self.remove_lowest(from, granule, word);
                self.counters.add_free(from, -1);
                self.counters.save_free(self.raw);
                self.counters.lose(self.raw, from);
                return None;
            }
        };
        let generation = slot.generation + 1;
        self.granules.set(granule, &Entry { generation, ..entry });
        let need = entry.granules();
        if need == from.granules() {
            self.remove_lowest(from, granule, word);
        } else {
            self.split(from, granule, need);
        }
        self.counters.add_free(from, -1);
        self.counters.save_free(self.raw);
        self.counters.change_kept(self.raw, entry.owner, need as i32);
        Some(Slot { granule, generation })
    }

    #[inline]
    fn remove_lowest(&mut self, class: Class, granule: u64, word: u64) {
        if word != 0 {
            self.sets.set_word(SetId::free(class), granule, word, word & word.wrapping_sub(1));
        }
    }

    /// Frees the granules of a slot of class `from` beyond the first `need`, and removes the slot from the index.
    #[inline]
    fn split(&mut self, from: Class, granule: u64, need: u64) {
        let before = self.sets.line(granule);
        let mut line = before;
        line[SetId::free(from).index()] &= !(1 << (granule % 64));
        let (mut base, mut size) = (granule, from.granules());
        let end = granule + need;
        while end - base < size {
            size /= 2;
            let upper = base + size;
            if end <= upper {
                let class = Class::for_granules(size).unwrap_or(Class::SMALLEST);
                match self.granules.get(upper) {
                    Ok(piece) if piece.state == SlotState::Inside => {
                        self.granules.set(upper, &piece.free(class));
                        line[SetId::free(class).index()] |= 1 << (upper % 64);
                        self.counters.add_free(class, 1);
                    }
                    _ => self.counters.lose(self.raw, class),
                }
            } else {
                base = upper;
            }
        }
        self.sets.set_line(granule, &before, &line);
    }
}

/// Bytes of wanted state.
fn bytes(demand: &Demand) -> u64 {
    Class::all().map(|class| demand[class.index()] << (class.index() + GRANULE.ilog2() as usize)).sum()
}
