//! Reserving and taking state.

use super::class::{BLOCK, BLOCK_GRANULES, Class, GRANULE, MAX_GRANULES, Owner};
use super::demand::{Demand, left, missing_blocks};
use super::granules::{Entry, SlotState};
use super::sets::SetId;
use super::{Arena, State};
use crate::{GrowError, Platform, Region};

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
        self.change(|state, payload| state.reserve(payload, owner, wanted, spare))
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
        self.change(|state, payload| state.take(payload, entry))
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
        self.change(|state, payload| state.take(payload, entry)).map(|slot| slot.granule)
    }
}

impl<P: Platform> State<P> {
    fn reserve(
        &mut self,
        payload: &Region<P>,
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
        self.admit(payload, owner, &demand, spare)?;
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
    fn admit(&mut self, payload: &Region<P>, owner: Owner, demand: &Demand, spare: u64) -> Result<(), GrowError> {
        let limits = &self.limits;
        if limits.counts(owner) {
            limits.check_quota(&self.counters, self.counted_reserved(), bytes(demand) - (spare << GRANULE.ilog2()))?;
        }
        let mut all = self.wanted;
        all.iter_mut().zip(demand).for_each(|(all, more)| *all += more);
        let (class, kept) = limits.reserve();
        if kept > 0 {
            let available = left(self.counters.all_free(), &all, class);
            if available < kept as i64 {
                let growable = self.growable(payload) / u64::from(class.size());
                if available + (growable as i64) < kept as i64 {
                    return Err(GrowError::OutOfSpace);
                }
            }
        }
        match missing_blocks(self.counters.all_free(), &all) {
            0 => Ok(()),
            blocks => {
                let first = self.grow(payload, blocks)?;
                (0..blocks)
                    .for_each(|block| self.sets.insert(SetId::free(Class::LARGEST), first + block * BLOCK_GRANULES));
                Ok(())
            }
        }
    }

    /// Bytes by which the arena can grow under the cap on raw pages if no other store grows: whole blocks.
    pub(super) fn growable(&self, payload: &Region<P>) -> u64 {
        let (room, most) = (payload.room(), MAX_GRANULES * GRANULE);
        // The table of entries grows with the arena, from the same pages.
        let end = room.saturating_sub(self.granules.growth(room.min(most))).min(most);
        end.saturating_sub(self.counters.arena_end()) / BLOCK * BLOCK
    }

    /// Adds blocks at the arena's end, all free, and returns the first granule. The caller enters them in the index, or takes them.
    #[cold]
    fn grow(&mut self, payload: &Region<P>, blocks: u64) -> Result<u64, GrowError> {
        let start = self.counters.arena_end();
        let end = blocks.checked_mul(BLOCK).and_then(|bytes| bytes.checked_add(start)).ok_or(GrowError::OutOfSpace)?;
        if end > MAX_GRANULES * GRANULE {
            return Err(GrowError::OutOfSpace);
        }
        self.granules.reserve(end)?;
        payload.reserve(end)?;
        let largest = Class::LARGEST;
        let free = Entry { generation: 0, len: 0, state: SlotState::Free, class: largest, owner: Owner::new(0) };
        for block in start / BLOCK..end / BLOCK {
            let granule = block * largest.granules();
            self.granules.set(granule, &free);
        }
        self.counters.set_arena_end(self.sets.region(), end);
        self.counters.add_free(largest, blocks as i32);
        self.counters.save_free(self.sets.region());
        Ok(start / GRANULE)
    }

    /// Takes a slot; `entry` is its entry without the generation.
    #[inline]
    fn take(&mut self, payload: &Region<P>, entry: Entry) -> Result<Slot, GrowError> {
        let (owner, class) = (entry.owner, entry.class);
        let reserved = &mut self.reserved[owner.index()][class.index()];
        if *reserved > 0 {
            *reserved -= 1;
            self.wanted[class.index()] -= 1;
            self.outstanding -= 1;
        } else if !self.is_unlimited(owner) {
            let mut one = Demand::default();
            one[class.index()] = 1;
            self.admit(payload, owner, &one, class.granules() - entry.granules())?;
        }
        loop {
            match self.lowest(class) {
                Some((from, granule, word)) => {
                    if let Some(slot) = self.take_from(from, granule, entry, word) {
                        return Ok(slot);
                    }
                }
                // Also after damage, when slots were written off.
                None => {
                    let granule = self.grow(payload, 1)?;
                    if let Some(slot) = self.take_from(Class::LARGEST, granule, entry, 0) {
                        return Ok(slot);
                    }
                }
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
                self.counters.save_free(self.sets.region());
                self.counters.lose(self.sets.region(), from);
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
        self.counters.save_free(self.sets.region());
        self.counters.change_kept(self.sets.region(), entry.owner, need as i32);
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
                    _ => self.counters.lose(self.sets.region(), class),
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
