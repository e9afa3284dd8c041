//! Quarantines, releases and gives back slots.

use super::class::{Class, Owner, Side};
use super::granules::{Entry, SlotState, Undecodable};
use super::sets::SetId;
use super::{Arena, State};
use crate::Platform;

impl<P: Platform> Arena<P> {
    /// Changes the owner of a used slot whose entry is `entry`. Either both owners are counted, or neither is.
    pub fn set_owner(&self, granule: u64, entry: Entry, owner: Owner) {
        self.change(|state, _| {
            debug_assert_eq!(state.limits.counts(entry.owner), state.limits.counts(owner));
            Entry { owner, ..entry }.write(state.raw, granule);
            let granules = entry.granules() as i32;
            state.counters.change_kept(state.raw, entry.owner, -granules);
            state.counters.change_kept(state.raw, owner, granules);
        });
    }

    /// Quarantines a used slot whose entry is `entry`.
    #[inline]
    pub fn quarantine(&self, granule: u64, entry: Entry) {
        self.change(|state, _| {
            Entry { state: SlotState::Quarantine, ..entry }.write(state.raw, granule);
            state.shared().insert(SetId::QUARANTINE, granule);
            state.counters.change_quarantined(state.raw, entry.class, 1);
        });
    }

    /// Frees a slot that is not free, and whose entry is `entry`. Only then does it stop counting for its owner.
    #[inline]
    pub fn give(&self, granule: u64, entry: Entry) {
        self.change(|state, _| state.give(granule, entry));
    }

    /// Frees granules, of which [`take_granules`](Self::take_granules) returned the first to `owner`. If the entry contradicts this, they are
    /// written off, so that memory of another owner is never freed.
    pub fn give_granules(&self, owner: Owner, granule: u64, granules: u64) {
        match self.taken(owner, granule).filter(|entry| entry.granules() == granules) {
            Some(entry) => self.give(granule, entry),
            None => (0..granules).for_each(|_| self.lose(Class::SMALLEST, owner)),
        }
    }

    /// The lowest quarantined slot.
    pub fn first_quarantined(&self) -> Option<u64> {
        self.change(|state, _| state.shared().first(SetId::QUARANTINE)).map(|(granule, _)| granule)
    }

    /// Removes a granule from the quarantine whose entry says that it is not there.
    pub fn forget_quarantined(&self, granule: u64) {
        self.change(|state, _| state.shared().remove(SetId::QUARANTINE, granule));
    }

    /// Removes a granule from the quarantine whose entry cannot be decoded, and counts a slot as lost, in the first class that has a
    /// quarantined slot.
    pub fn lose_quarantined(&self, granule: u64) {
        self.change(|state, _| {
            state.shared().remove(SetId::QUARANTINE, granule);
            let quarantined = |class: &Class| state.counters.class(*class).quarantined > 0;
            let Some(class) = Class::all().find(quarantined) else { return };
            state.counters.change_quarantined(state.raw, class, -1);
            let keeps = |owner: &Owner| state.counters.kept(*owner) >= class.granules();
            if let Some(owner) = Owner::all().find(keeps) {
                state.lose(class, owner);
            }
        });
    }

    /// Counts a slot that an owner keeps as lost, because its entry is unreadable: it is never reused.
    pub fn lose(&self, class: Class, owner: Owner) {
        self.change(|state, _| state.lose(class, owner));
    }

    /// Returns whether a granule lies in a free slot, of any class. Only stale pointers ask.
    #[cold]
    #[inline(never)]
    pub fn is_free(&self, granule: u64) -> bool {
        self.with(|state| {
            let start = |class: Class| Entry::read(state.raw, granule / class.granules() * class.granules());
            let begins = |entry: Entry, class| entry.state == SlotState::Free && entry.class >= class;
            Class::all().any(|class| start(class).is_ok_and(|entry| begins(entry, class)))
        })
    }
}

impl<P: Platform> State<P> {
    fn lose(&mut self, class: Class, owner: Owner) {
        if self.counters.kept(owner) >= class.granules() {
            self.counters.change_kept(self.raw, owner, -(class.granules() as i32));
            self.counters.lose(self.raw, class);
        }
    }

    #[inline]
    fn give(&mut self, granule: u64, entry: Entry) {
        if entry.state == SlotState::Quarantine {
            self.shared().remove(SetId::QUARANTINE, granule);
            self.counters.change_quarantined(self.raw, entry.class, -1);
        }
        let granules = entry.granules();
        let first = Class::for_granules(granules).unwrap_or(Class::LARGEST);
        let is_counted = self.limits.counts(entry.owner);
        if first.granules() != granules {
            self.free_pieces(is_counted, granule, granules);
        } else if is_counted {
            self.free_counted(granule, first, entry);
        } else {
            self.free_piece(Side::Shared, granule, first, entry);
        }
        self.counters.save_free(self.raw, Side::Shared);
        if is_counted {
            self.counters.save_free(self.raw, Side::Counted);
        }
        self.counters.change_kept(self.raw, entry.owner, -(granules as i32));
    }

    /// Frees granules whose number is not a power of two, largest piece first.
    #[inline(never)]
    fn free_pieces(&mut self, is_counted: bool, granule: u64, granules: u64) {
        let mut at = granule;
        for class in Class::all().rev().filter(|class| granules & class.granules() != 0) {
            match Entry::read(self.raw, at) {
                Ok(entry) if is_counted => self.free_counted(at, class, entry),
                Ok(entry) => self.free_piece(Side::Shared, at, class, entry),
                Err(Undecodable) => self.counters.lose(self.raw, class),
            }
            at += class.granules();
        }
    }

    /// Frees a piece of a slot of a counted owner. A whole unit becomes free on the shared side.
    #[inline(never)]
    fn free_counted(&mut self, granule: u64, class: Class, entry: Entry) {
        let side = if class < self.limits.unit { Side::Counted } else { Side::Shared };
        self.free_piece(side, granule, class, entry);
    }

    /// Frees a piece of a slot on a side, joined with its buddies that are free.
    #[inline(always)]
    pub(super) fn free_piece(&mut self, side: Side, granule: u64, class: Class, entry: Entry) {
        let sets = &mut self.sets[side.index()];
        let old = sets.word(SetId::free(class), granule);
        if old >> ((granule ^ class.granules()) % 64) & 1 == 0 {
            entry.free(class).write(self.raw, granule);
            sets.set_word(SetId::free(class), granule, old, old | 1 << (granule % 64));
            self.counters.add_free(side, class, 1);
        } else {
            match side {
                Side::Shared => self.join_shared(granule, class, entry),
                Side::Counted => self.join_counted(granule, class, entry),
            }
        }
    }

    #[inline(never)]
    fn join_shared(&mut self, granule: u64, class: Class, entry: Entry) {
        self.join(Side::Shared, granule, class, entry);
    }

    #[inline(never)]
    fn join_counted(&mut self, granule: u64, class: Class, entry: Entry) {
        if let Some((granule, entry)) = self.join(Side::Counted, granule, class, entry) {
            self.free_piece(Side::Shared, granule, self.limits.unit, entry);
        }
    }

    /// Does the same for a piece whose buddy is free according to the index. The buddy's entry decides, not its bit. All buddies lie in one
    /// block, whose line of the index is read once and written once. Returns a whole unit of the counted side, which is not free yet.
    #[inline(always)]
    fn join(&mut self, side: Side, granule: u64, class: Class, entry: Entry) -> Option<(u64, Entry)> {
        let before = self.sets[side.index()].line(granule);
        let mut line = before;
        let (mut at, mut class, mut entry) = (granule, class, entry);
        let unit = loop {
            if side == Side::Counted && class == self.limits.unit {
                break Some((at, entry));
            }
            let word = &mut line[SetId::free(class).index()];
            let buddy = at ^ class.granules();
            let joined = match class.larger() {
                Some(larger) if *word >> (buddy % 64) & 1 == 1 => {
                    let of = Entry::read(self.raw, buddy).ok();
                    of.filter(|of| of.state == SlotState::Free && of.class == class).map(|of| (larger, of))
                }
                _ => None,
            };
            let Some((larger, of_buddy)) = joined else {
                *word |= 1 << (at % 64);
                entry.free(class).write(self.raw, at);
                self.counters.add_free(side, class, 1);
                break None;
            };
            *word &= !(1 << (buddy % 64));
            self.counters.add_free(side, class, -1);
            if buddy > at {
                of_buddy.inside().write(self.raw, buddy);
            } else {
                entry.inside().write(self.raw, at);
                (at, entry) = (buddy, of_buddy);
            }
            class = larger;
        };
        self.sets[side.index()].set_line(granule, &before, &line);
        unit
    }
}
